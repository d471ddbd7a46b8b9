/* cuda.c - the CUDA backend: finds a device, says what it would take before it takes it, opens a
 * plan (weights uploaded, workspace taken once), reports itself, closes. The forward pass is
 * cuda_run.c. The runtime library is linked statically and finds the driver when it is first
 * called: a program with this backend in it runs on machines that have neither. */
#include "backend/cpu/angles.h"
#include "backend/cuda/cuda_backend.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WH_BYTES = 256 << 20, SMEM_RESERVED = 1024, MARGIN_BYTES = 256 << 20 };
enum { MAX_NORM = 12 * 1024 }; /* values of a row that is normed */

gem_status gem_cuda_fail(gem_error *err, cudaError_t e, const char *what)
{
    gem_status st = e == cudaErrorMemoryAllocation ? GEM_E_NOMEM : GEM_E_DEVICE;
    return gem_fail(err, st, "cuda: %s failed: %s (%s)", what, cudaGetErrorString(e),
                    cudaGetErrorName(e));
}

/* ---- what can run ---- */

static gem_status check_plan(gem_backend *be, gem_error *err)
{
    const gem_plan *p = be->plan;
    gem_status st = gem_cuda_recurrent_check(p, err);
    if (st != GEM_OK) return st;
    for (int i = 0; i < be->opt.n_pools; i++)
        if (be->opt.pool[i].values_only)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cuda: no kernels for KV type f32-values; f32, f16 and f16-full have");
    if (p->draft_op)
        return gem_fail(
            err, GEM_E_UNSUPPORTED,
            "cuda: no kernels for a drafter beside its model (--draft own or a file made "
            "for it); ngram and a smaller model have");
    for (int i = 0; i < p->n_bufs; i++)
        if (p->buf_width[i] % 32)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cuda: a row of %d values; widths must be multiples of 32",
                            p->buf_width[i]);
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind > GEM_OP_HEAD)
            return gem_fail(err, GEM_E_UNSUPPORTED, "cuda: op %d of a plan is not known here",
                            (int)p->op[i].kind);
        if ((p->op[i].kind == GEM_OP_NORM || p->op[i].kind == GEM_OP_RESIDUAL) &&
            p->d_model > MAX_NORM)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cuda: a model of width %d; up to %d are supported", p->d_model,
                            MAX_NORM);
        if (p->op[i].kind != GEM_OP_ATTEND) continue;
        const gem_kv_layer *l = &p->layer[p->op[i].layer];
        int heads = p->op[i].attend.n_heads, group = heads / l->n_kv_heads, g = 0;
        if (l->head_dim % 32 || l->head_dim > 512)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cuda: layer %d has head size %d; multiples of 32 up to 512 are "
                            "supported",
                            p->op[i].layer, l->head_dim);
        if (heads % l->n_kv_heads || group > GEM_CUDA_MAX_GROUP)
            return gem_fail(
                err, GEM_E_UNSUPPORTED,
                "cuda: layer %d has %d query heads on %d KV heads; up to %d on each are "
                "supported",
                p->op[i].layer, heads, l->n_kv_heads, GEM_CUDA_MAX_GROUP);
        const int pool = be->opt.layer_pool[p->op[i].layer];
        const int rows = gem_cuda_block_rows(&be->s, l->head_dim, be->opt.pool[pool].f16);
        while (g < be->n_groups && (be->group[g] != group || be->block_rows[g] != rows ||
                                    be->global[g] != (l->window == 0)))
            g++;
        if (g == GEM_CUDA_MAX_GROUPS)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cuda: more than %d kinds of attention in one model",
                            GEM_CUDA_MAX_GROUPS);
        if (g < be->n_groups) continue;
        be->block_rows[be->n_groups] = rows;
        be->global[be->n_groups] = l->window == 0;
        be->group[be->n_groups++] = group;
    }
    return GEM_OK;
}

/* Take the routes that `isa` names behind the instruction set; false: one is not known. */
static bool read_route(gem_backend *be, const char *at, size_t len)
{
    static const char *const names[] = {"launch=pdl",  "launch=graph", "launch=stream",
                                        "linear=blas", "linear=tile",  "attend=ref",
                                        "delta=rows",  "weights=f16"};
    size_t i = 0;
    while (i < ARRAY_LEN(names) && (strlen(names[i]) != len || memcmp(at, names[i], len) != 0))
        i++;
    if (i < 3) be->launch = (gem_cuda_launch)i;
    be->own_tile = be->own_tile || i == 4;
    be->attend_ref = be->attend_ref || i == 5;
    be->delta_rows = be->delta_rows || i == 6;
    be->keep_f16 = be->keep_f16 || i == 7;
    return i < ARRAY_LEN(names);
}

/* "sm_90" or nothing, and routes behind commas. */
static gem_status read_isa(gem_backend *be, gem_error *err)
{
    const char *at = be->opt.isa;
    size_t len = strlen(be->isa);
    if (!at) return GEM_OK;
    bool known = true;
    if (strncmp(at, be->isa, len) == 0) at += len;
    for (; known && *at; at += len) {
        len = strcspn(at + 1, ",") + 1;
        known = *at == ',' && read_route(be, at + 1, len - 1);
    }
    if (known) return GEM_OK;
    return gem_fail(
        err, GEM_E_UNSUPPORTED,
        "cuda: instruction set %.64s; this device is %s, and behind it may stand "
        ",launch=pdl|graph|stream ,linear=blas|tile ,attend=ref ,delta=rows and ,weights=f16",
        be->opt.isa, be->isa);
}

static gem_status open_device(gem_backend *be, gem_error *err)
{
    struct cudaDeviceProp p;
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "cuda: no NVIDIA driver, or one older than CUDA %d.%d: this machine cannot "
                        "run --backend cuda",
                        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (e == cudaErrorNoDevice || (!e && n == 0))
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "cuda: this machine has no NVIDIA GPU that can be used");
    if (e) return gem_cuda_fail(err, e, "asking for devices");
    be->device_id = 0;
    if ((e = cudaSetDevice(be->device_id)) || (e = cudaGetDeviceProperties(&p, be->device_id)))
        return gem_cuda_fail(err, e, "opening the device");
    if (p.major < 8)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "cuda: %s has compute capability %d.%d; 8.0 and above are supported",
                        p.name, p.major, p.minor);
    snprintf(be->isa, sizeof(be->isa), "sm_%d%d", p.major, p.minor);
    snprintf(be->device, sizeof(be->device), "%s", p.name);
    be->s.n_sms = p.multiProcessorCount;
    be->s.max_smem = p.sharedMemPerBlockOptin;
    be->s.clusters = p.major >= 9;
    be->s.wgmma = p.major == 9 && p.minor == 0;
    be->launch = p.major >= 9 ? GEM_CUDA_LAUNCH_PDL : GEM_CUDA_LAUNCH_GRAPH;
    if ((e = cudaStreamCreateWithFlags(&be->s.stream, cudaStreamNonBlocking)))
        return gem_cuda_fail(err, e, "making a stream");
    return read_isa(be, err);
}

/* ---- memory ---- */

static void *take(gem_backend *be, size_t count, size_t size)
{
    size_t at = be->work_used;
    be->work_used += (size_t)gem_round_up(count * size, 256);
    return be->work ? be->work + at : NULL;
}

/* All device workspace; the first time, without memory, only counts. */
static void take_work(gem_backend *be)
{
    const gem_plan *p = be->plan;
    size_t rows = (size_t)be->opt.n_batch, padded = (size_t)gem_round_up(rows, GEM_CUDA_TILE);
    size_t layers = (size_t)p->n_layers, few = GEM_CUDA_FEW, widest = 32, max_k = 32, partial = 0,
           largest = 0;
    bool tiles = be->opt.n_batch > GEM_CUDA_FEW && !be->opt.exact;
    be->work_used = 0;
    for (int b = 0; b < p->n_bufs; b++) {
        size_t ld = (size_t)gem_round_up((uint64_t)p->buf_width[b], 32);
        be->ld[b] = (int64_t)ld;
        widest = GEM_MAX(widest, ld);
        be->buf[b] = take(be, (tiles ? padded : rows) * ld, sizeof(float));
        be->part[b] =
            be->n_parts[b] ? take(be, (size_t)be->n_parts[b] * few * ld, sizeof(float)) : NULL;
    }
    for (size_t i = 0; i < be->n_weights; i++) {
        const gem_cuda_weight *w = &be->weight[i];
        max_k = GEM_MAX(max_k, (size_t)w->k);
        if (!be->keep_f16 || !w->tiled)
            largest = GEM_MAX(largest, (size_t)gem_round_up((uint64_t)w->n_rows, GEM_CUDA_TILE) *
                                           (size_t)w->k);
    }
    for (int r = 0; r < p->n_ropes; r++) {
        size_t half = (size_t)p->rope[r].n_dims / 2;
        be->freq[r] = take(be, half, sizeof(double));
        be->cs[r] = take(be, rows * half, sizeof(float));
        be->sn[r] = take(be, rows * half, sizeof(float));
    }
    be->ld_logits = (int64_t)gem_round_up((uint64_t)p->n_vocab, 32);
    be->logits = take(be, (size_t)be->opt.n_logits * (size_t)be->ld_logits, sizeof(float));
    be->top_groups = take(
        be, (size_t)be->opt.n_logits * (size_t)gem_cuda_top_groups(p->n_vocab), sizeof(uint32_t));
    be->never = take(be, p->n_suppress, sizeof(int32_t));
    be->head_part = take(be, (size_t)be->head_parts * few * (size_t)be->ld_logits, sizeof(float));
    be->summed.width = (int64_t)gem_round_up((uint64_t)p->d_model, 256);
    be->summed.h = take(be, few * (size_t)be->summed.width, sizeof(uint16_t));
    be->summed.sums =
        take(be, few * (size_t)be->summed.width / 256 * GEM_CUDA_RUN_SUMS, sizeof(uint16_t));
    be->summed.scale = take(be, few * (size_t)be->summed.width / 256, sizeof(float));
    be->joint = take(be, tiles ? padded * (size_t)be->joint_width : 0, sizeof(float));
    be->packed.width = be->joint_width / 2;
    be->packed.h = take(be, few * (size_t)be->packed.width, sizeof(uint16_t));
    be->packed.scale = take(be, few * (size_t)be->packed.width / 8, sizeof(float));
    be->via = take(be, (size_t)be->opt.n_logits * widest, sizeof(float));
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == GEM_OP_ATTEND) {
            const gem_kv_layer *l = &p->layer[p->op[i].layer];
            size_t n = gem_cuda_partial_floats(p->op[i].attend.n_heads, l->n_kv_heads, l->head_dim);
            partial = GEM_MAX(partial, n);
            be->turns = GEM_MAX(be->turns, few * 8 * (size_t)l->n_kv_heads);
            be->attended.width =
                GEM_MAX(be->attended.width, (int64_t)p->op[i].attend.n_heads * l->head_dim);
        }
    if (p->recurrent.n_layers)
        be->attended.width =
            GEM_MAX(be->attended.width, (int64_t)p->recurrent.n_v_heads * p->recurrent.head_dim);
    be->attended.h = take(be, few * (size_t)be->attended.width, sizeof(uint16_t));
    be->attended.scale = take(be, few * (size_t)be->attended.width / 8, sizeof(float));
    be->partial = take(be, partial, sizeof(float));
    be->turn = take(be, be->turns, sizeof(int32_t));
    be->wh_values =
        tiles ? GEM_MAX(GEM_MIN(WH_BYTES / sizeof(uint16_t), largest), GEM_CUDA_TILE * max_k) : 0;
    be->wh = take(be, be->wh_values, sizeof(uint16_t));
    be->xh = take(be, tiles ? padded * max_k : 0, sizeof(uint16_t));
    be->scale = take(be, padded, sizeof(float));
    be->blas_work = take(be, be->blas ? GEM_CUDA_BLAS_WORK_BYTES : 0, 1);
    be->table = take(be, (size_t)be->n_seqs * layers * (size_t)be->max_pages, sizeof(int32_t));
    be->ids = take(be, 4 * rows, sizeof(int32_t));
    be->update = take(be, GEM_CUDA_MAX_UPDATES, sizeof(*be->update));
    be->block = take(be, 2 * GEM_CUDA_MAX_GROUPS * rows, sizeof(*be->block));
    be->rec = take(be, be->rec_ints, sizeof(int32_t));
    const size_t chunks = p->recurrent.n_layers && tiles
                              ? gem_cuda_chunk_bytes(&be->s, &p->recurrent, be->opt.n_batch)
                              : 0;
    be->chunks = take(be, chunks, 1);
    if (!chunks) be->chunks = NULL;
}

/* How many partial sums the buffers receive from slab products. */
static void count_parts(gem_backend *be)
{
    for (size_t i = 0; i < be->plan->n_ops; i++) {
        const gem_cuda_op *o = &be->op[i];
        for (int j = 0; !o->joint && j < GEM_CUDA_LINEARS && o->w[j]; j++) {
            if (!o->w[j]->slabs) continue;
            const gem_cuda_slab_out out = {.w = o->w[j]};
            int parts = 2 * gem_cuda_slab_slices(o->w[j]->dtype, o->w[j]->k, &be->s);
            if (o->op->kind == GEM_OP_HEAD && gem_cuda_slab_parts(&be->s, &out, 1, 1) == 1)
                parts = 0; /* goes to the logits */
            int *n = o->op->kind == GEM_OP_LINEAR ? &be->n_parts[o->op->linear.dst[j]]
                     : o->op->kind == GEM_OP_HEAD ? &be->head_parts
                                                  : NULL;
            if (n) *n = GEM_MAX(*n, parts);
        }
    }
}

static gem_status forecast(gem_backend *be, gem_error *err)
{
    size_t free_bytes = 0, all = 0;
    int n_pools = be->opt.n_pools;
    be->pool = calloc((size_t)n_pools + 1, sizeof(*be->pool));
    be->pool_bytes = calloc((size_t)n_pools + 1, sizeof(*be->pool_bytes));
    if (!be->pool || !be->pool_bytes)
        return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for %d KV pools", n_pools);
    for (int i = 0; i < n_pools; i++) {
        const gem_kv_pool *p = &be->opt.pool[i];
        if (!gem_mul_ok(gem_kv_page_bytes(p), (size_t)p->n_pages, &be->pool_bytes[i]) ||
            !gem_add_ok(be->kv_bytes, be->pool_bytes[i], &be->kv_bytes))
            return gem_fail(err, GEM_E_NOMEM, "cuda: %d KV pages of %zu bytes overflow", p->n_pages,
                            gem_kv_page_bytes(p));
    }
    gem_status st = gem_cuda_recurrent_plan(be, err);
    if (st != GEM_OK) return st;
    take_work(be);
    be->work_bytes = be->work_used;
    cudaError_t e = cudaMemGetInfo(&free_bytes, &all);
    if (e) return gem_cuda_fail(err, e, "asking for free memory");
    size_t state_bytes = be->state_bytes + be->tape_bytes;
    size_t need = be->arena_bytes + be->wide_bytes + be->kv_bytes + state_bytes + be->work_bytes +
                  MARGIN_BYTES;
    if (need <= free_bytes) return GEM_OK;
    return gem_fail(
        err, GEM_E_NOMEM,
        "cuda: %.2f GB of weights, %.2f GB of KV cache, %.2f GB of recurrent states, %.2f GB of "
        "workspace and %.2f GB of reserve do not fit the %.2f GB that are free of %.2f GB: a "
        "smaller context, fewer sessions or f16 KV take less",
        (double)(be->arena_bytes + be->wide_bytes) / 1e9, (double)be->kv_bytes / 1e9,
        (double)state_bytes / 1e9, (double)be->work_bytes / 1e9, (double)MARGIN_BYTES / 1e9,
        (double)free_bytes / 1e9, (double)all / 1e9);
}

static gem_status take_memory(gem_backend *be, gem_error *err)
{
    size_t rows = (size_t)be->opt.n_batch;
    size_t tables = (size_t)be->n_seqs * (size_t)be->plan->n_layers * (size_t)be->max_pages;
    cudaError_t e = cudaMalloc((void **)&be->work, be->work_bytes);
    for (int i = 0; i < be->opt.n_pools && !e; i++) {
        e = cudaMalloc((void **)&be->pool[i], be->pool_bytes[i]);
        /* products with unseen positions are 0 * value: every value of a page must be finite */
        if (!e) e = cudaMemsetAsync(be->pool[i], 0, be->pool_bytes[i], be->s.stream);
    }
    if (!e && be->state_bytes) {
        e = cudaMalloc((void **)&be->states, be->state_bytes);
        if (!e) e = cudaMalloc((void **)&be->tapes, be->tape_bytes);
        if (!e) e = cudaMallocHost((void **)&be->host_rec, be->rec_ints * sizeof(int32_t));
        if (!e) memset(be->host_rec, 0, be->rec_ints * sizeof(int32_t));
    }
    if (!e) e = cudaMallocHost((void **)&be->host_ids, rows * 4 * sizeof(int32_t));
    if (!e)
        e = cudaMallocHost((void **)&be->host_update,
                           GEM_CUDA_MAX_UPDATES * sizeof(*be->host_update));
    if (!e)
        e = cudaMallocHost((void **)&be->host_block,
                           2 * GEM_CUDA_MAX_GROUPS * rows * sizeof(*be->host_block));
    if (!e)
        e = cudaMallocHost((void **)&be->host_logits,
                           (size_t)be->opt.n_logits * (size_t)be->ld_logits * sizeof(float));
    if (!e)
        e = cudaMallocHost((void **)&be->host_top,
                           (size_t)be->opt.n_logits * sizeof(*be->host_top));
    if (e) return gem_cuda_fail(err, e, "taking memory");
    be->mirror = malloc(tables * sizeof(int32_t) + 1);
    be->wanted_pos = malloc(rows * sizeof(int32_t));
    be->wanted_seq = malloc(rows * sizeof(int32_t));
    if (!be->mirror || !be->wanted_pos || !be->wanted_seq)
        return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for %zu page numbers", tables);
    take_work(be);
    memset(be->mirror, 0xff, tables * sizeof(int32_t)); /* -1, as the device has it */
    e = cudaMemsetAsync(be->table, 0xff, tables * sizeof(int32_t), be->s.stream);
    if (!e) e = cudaMemsetAsync(be->turn, 0, be->turns * sizeof(int32_t), be->s.stream);
    if (!e && be->plan->n_suppress)
        e = cudaMemcpyAsync(be->never, be->plan->suppress,
                            be->plan->n_suppress * sizeof(int32_t), cudaMemcpyHostToDevice,
                            be->s.stream);
    for (int r = 0; r < be->plan->n_ropes && !e; r++) {
        size_t half = (size_t)be->plan->rope[r].n_dims / 2;
        double *freq = malloc(half * sizeof(double) + 1);
        if (!freq) return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for rotary frequencies");
        if (half) {
            gem_rope_frequencies(&be->plan->rope[r], freq);
            e = cudaMemcpyAsync(be->freq[r], freq, half * sizeof(double), cudaMemcpyHostToDevice,
                                be->s.stream);
            if (!e) e = cudaStreamSynchronize(be->s.stream);
        }
        free(freq);
    }
    if (!e) e = cudaStreamSynchronize(be->s.stream);
    return e ? gem_cuda_fail(err, e, "preparing memory") : GEM_OK;
}

/* ---- the table ---- */

static void close_cuda(gem_backend *be)
{
    if (!be) return;
    if (be->s.stream) {
        cudaSetDevice(be->device_id);
        cudaStreamSynchronize(be->s.stream);
    }
    for (int i = 0; i < 2 * (GEM_CUDA_FEW + 1); i++)
        if (be->graph[i % 2][i / 2]) cudaGraphExecDestroy(be->graph[i % 2][i / 2]);
    gem_cuda_trace_close(be);
    gem_cuda_image_close(be);
    for (int i = 0; be->pool && i < be->opt.n_pools; i++)
        if (be->pool[i]) cudaFree(be->pool[i]);
    if (be->arena) cudaFree(be->arena);
    if (be->wide) cudaFree(be->wide);
    if (be->work) cudaFree(be->work);
    if (be->states) cudaFree(be->states);
    if (be->tapes) cudaFree(be->tapes);
    if (be->host_rec) cudaFreeHost(be->host_rec);
    if (be->host_ids) cudaFreeHost(be->host_ids);
    if (be->host_update) cudaFreeHost(be->host_update);
    if (be->host_block) cudaFreeHost(be->host_block);
    if (be->host_logits) cudaFreeHost(be->host_logits);
    if (be->host_top) cudaFreeHost(be->host_top);
    gem_cuda_blas_close(be->blas);
    if (be->s.stream) cudaStreamDestroy(be->s.stream);
    free(be->mirror);
    free(be->wanted_pos);
    free(be->wanted_seq);
    free(be->pool);
    free(be->pool_bytes);
    free(be->op);
    free(be->weight);
    free(be);
}

static gem_status open_cuda(gem_backend **out, const gem_backend_options *opt, gem_error *err)
{
    gem_status st;
    cudaError_t e;
    *out = NULL;
    gem_backend *be = calloc(1, sizeof(*be));
    if (!be) return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for %zu bytes", sizeof(*be));
    be->opt = *opt;
    be->plan = opt->plan;
    be->max_pages = (opt->n_ctx + GEM_PAGE - 1) / GEM_PAGE;
    be->n_seqs = GEM_MIN(opt->n_batch, GEM_CUDA_MAX_SEQS);
    if ((st = open_device(be, err)) != GEM_OK) goto done;
    if ((st = check_plan(be, err)) != GEM_OK) goto done;
    if (opt->n_batch > GEM_CUDA_FEW && !opt->exact && !be->own_tile)
        be->blas = gem_cuda_blas_open();
    if ((st = gem_cuda_plan_weights(be, err)) != GEM_OK) goto done;
    count_parts(be);
    if ((st = forecast(be, err)) != GEM_OK) goto done;
    if ((e = gem_cuda_kernels_init(&be->s))) {
        st = gem_cuda_fail(err, e, "preparing kernels");
        goto done;
    }
    if ((st = gem_cuda_load_weights(be, err)) != GEM_OK) goto done;
    if ((st = take_memory(be, err)) != GEM_OK) goto done;
    if ((st = gem_cuda_image_open(be, err)) != GEM_OK) goto done;
    *out = be;
    be = NULL;
done:
    close_cuda(be);
    return st;
}

/* 16-byte chunk c of a position's keys or values: where it stands (page_at, device.cuh). */
static size_t chunk_at(int head_dim, size_t value, int slot, size_t c)
{
    if (value != 2 || head_dim % 64) return (size_t)slot * (size_t)head_dim * value + 16 * c;
    return c / 8 * (GEM_PAGE * 128) + (size_t)slot * 128 + 16 * ((c ^ (size_t)slot) & 7);
}

static void read_kv(const gem_backend *be, int layer, int32_t page, int32_t pos, float *k, float *v)
{
    const gem_kv_layer *l = &be->plan->layer[layer];
    const int pool = be->opt.layer_pool[layer], slot = pos % GEM_PAGE, hd = l->head_dim;
    const bool f16 = be->opt.pool[pool].f16;
    const size_t value = f16 ? 2 : 4, row = (size_t)hd * value, half = GEM_PAGE * row;
    uint8_t *all = malloc(half);
    for (int i = 0; i < 2 * l->n_kv_heads; i++) {
        const uint8_t *from =
            be->pool[pool] + ((size_t)page * (size_t)l->n_kv_heads * 2 + (size_t)i) * half;
        float *to = (i % 2 ? v : k) + (size_t)(i / 2) * (size_t)hd;
        const bool read = all && !cudaSetDevice(be->device_id) &&
                          !cudaStreamSynchronize(be->s.stream) &&
                          !cudaMemcpy(all, from, half, cudaMemcpyDeviceToHost);
        for (int d = 0; d < hd; d++) {
            const size_t at = (size_t)d * value;
            uint16_t h;
            to[d] = NAN; /* a fault shows in the comparison */
            if (!read) continue;
            const uint8_t *p = all + chunk_at(hd, value, slot, at / 16) + at % 16;
            if (f16) {
                memcpy(&h, p, sizeof(h));
                to[d] = gem_f16_to_f32(h);
            } else {
                memcpy(&to[d], p, sizeof(float));
            }
        }
    }
    free(all);
}

static void stats_cuda(const gem_backend *be, gem_backend_stats *out)
{
    memset(out, 0, sizeof(*out));
    out->weights_bytes = be->arena_bytes + be->wide_bytes;
    out->kv_bytes = be->kv_bytes;
    out->workspace_bytes = be->work_bytes;
    out->state_bytes = be->state_bytes;
    out->tape_bytes = be->tape_bytes;
    out->decode_bytes = be->decode_bytes;
    out->isa = be->isa;
    out->n_threads = 1;
}

/* Positions of a part of decode attention at the end of the context, of the first layer that sees
 * all; of the first one when all have windows. */
static int32_t key_chunk(const gem_backend *be)
{
    const gem_plan *p = be->plan;
    const gem_op *found = NULL;
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind != GEM_OP_ATTEND) continue;
        if (!found) found = &p->op[i];
        if (p->layer[p->op[i].layer].window) continue;
        found = &p->op[i];
        break;
    }
    if (!found) return 0;
    return gem_cuda_part_keys(&be->s, found->attend.n_heads,
                              &be->opt.pool[be->opt.layer_pool[found->layer]], be->opt.n_ctx - 1);
}

static json_t *config_cuda(const gem_backend *be)
{
    static const char *const launch[] = {"graph with programmatic dependent launch", "graph",
                                         "stream"};
    bool exact = be->opt.exact;
    return json_pack(
        "{s:s, s:s, s:s, s:i, s:s, s:s, s:{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s}, s:i, s:i, s:I, "
        "s:I, s:I, "
        "s:I, "
        "s:s}",
        "name", "cuda", "device", be->device, "isa", be->isa, "multiprocessors", be->s.n_sms,
        "numerics",
        exact ? "exact: f32 activations, exactly dequantised weights"
              : "f16 activations under power-of-two scales, f32 sums",
        "weight_layout", exact || be->opt.no_repack ? "rows of the file" : "slabs of 16 rows x 256",
        "routes", "linear_few", exact ? "f32" : "slab-mma", "linear_many",
        exact      ? "f32"
        : be->blas ? be->keep_f16 ? "f16-kept+cublaslt" : "f16+cublaslt"
                   : "f16-tile",
        "attention_few", be->attend_ref ? "rows" : "split", "attention_form",
        be->attend_ref ? "rows" : "flash-chunks", "key_chunk", (int)key_chunk(be), "attention_many",
        gem_cuda_attention_many(be), "delta_many",
        be->chunks && !exact && !be->delta_rows ? "chunk64" : "rows", "launch", launch[be->launch],
        "few_rows", GEM_CUDA_FEW, "prefill_tile_rows", (int)be->opt.n_batch, "weights_bytes",
        (json_int_t)(be->arena_bytes + be->wide_bytes), "kv_bytes", (json_int_t)be->kv_bytes,
        "workspace_bytes", (json_int_t)be->work_bytes, "decode_weight_bytes",
        (json_int_t)be->decode_bytes, "same_bits",
        exact ? "any batch" : "within batches of up to few_rows rows");
}

const gem_backend_ops gem_backend_cuda = {
    .name = "cuda",
    .open = open_cuda,
    .close = close_cuda,
    .run = gem_cuda_run,
    .logits = gem_cuda_logits,
    .run_traced = gem_cuda_run_traced,
    .seed_kv = gem_cuda_seed_kv,
    .choose_route = gem_cuda_choose_route,
    .copy_page = gem_cuda_copy_page,
    .read_kv = read_kv,
    .read_page = gem_cuda_read_page,
    .write_page = gem_cuda_write_page,
    .read_state = gem_cuda_read_state,
    .write_state = gem_cuda_write_state,
    .stats = stats_cuda,
    .config = config_cuda,
};
