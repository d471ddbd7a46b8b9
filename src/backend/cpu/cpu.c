/* cpu.c - the CPU backend: opens a plan (weights packed, workspace taken once), reports itself,
 * closes. The forward pass is run.c. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/angles.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MAX_SPLIT_ROWS = 2 }; /* rows of a decode whose chunks of keys are spread over threads */

void *gem_cpu_take(gem_backend *be, size_t bytes)
{
    size_t at = be->work_used;
    be->work_used += (size_t)gem_round_up(bytes, 64);
    if (be->work_used > be->work_bytes) return NULL;
    return be->work + at;
}

void *gem_cpu_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

static void close_cpu(gem_backend *be)
{
    if (!be) return;
    gem_team_free(be->team);
    gem_cpu_recurrent_close(be);
    if (be->arena) munmap(be->arena, be->arena_bytes);
    if (be->work) munmap(be->work, be->work_bytes);
    for (int i = 0; i < be->opt.n_pools && be->pool; i++)
        if (be->pool[i]) munmap(be->pool[i], be->pool_bytes[i]);
    gem_cpu_close_keys(be);
    free(be->pool);
    free(be->pool_bytes);
    free(be->page_bytes);
    free(be->weight);
    free(be->op);
    free(be->ranges);
    free(be);
}

/* Shapes that every kernel may rely on. */
static gem_status check_plan(const gem_plan *p, gem_error *err)
{
    for (int i = 0; i < p->n_bufs; i++)
        if (p->buf_width[i] % 32)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cpu: a row of %d values; widths must be multiples of 32",
                            p->buf_width[i]);
    for (int l = 0; l < p->n_layers; l++)
        if (p->layer[l].n_kv_heads && (p->layer[l].head_dim % 32 || p->layer[l].head_dim > 512))
            return gem_fail(
                err, GEM_E_UNSUPPORTED,
                "cpu: layer %d has head size %d; multiples of 32 up to 512 are supported", l,
                p->layer[l].head_dim);
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind != GEM_OP_ATTEND) continue;
        int heads = p->op[i].attend.n_heads, kv = p->layer[p->op[i].layer].n_kv_heads;
        if (heads % kv || heads / kv > GEM_ATTEND_ROWS)
            return gem_fail(
                err, GEM_E_UNSUPPORTED,
                "cpu: layer %d has %d query heads on %d KV heads; up to %d on each are supported",
                p->op[i].layer, heads, kv, GEM_ATTEND_ROWS);
    }
    for (int r = 0; r < p->n_ropes; r++)
        if (p->rope[r].n_dims % 32)
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "cpu: %d rotary dims; multiples of 32 are supported",
                            p->rope[r].n_dims);
    return gem_cpu_recurrent_check(p, err);
}

static int max_heads(const gem_plan *p)
{
    int n = 1;
    for (size_t i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == GEM_OP_ATTEND) n = GEM_MAX(n, p->op[i].attend.n_heads);
    return n;
}

/* All workspace. The first call, on an empty mapping, only counts bytes. */
static void take_work(gem_backend *be)
{
    const gem_plan *p = be->plan;
    size_t rows = (size_t)be->opt.n_batch, n_threads = (size_t)be->n_threads;
    int64_t max_k = 1;
    int max_hd = 1;
    for (int i = 0; i < p->n_bufs; i++) {
        size_t ld = (size_t)gem_round_up((uint64_t)p->buf_width[i], 32);
        be->ld[i] = ld;
        be->buf[i] = gem_cpu_take(be, rows * ld * sizeof(float));
        if (!be->quantized[i]) continue;
        gem_qrows *q = &be->qbuf[i];
        q->ld = ld;
        q->q = gem_cpu_take(be, rows * ld);
        q->xs = gem_cpu_take(be, rows * ld / 32 * sizeof(float));
        q->xsum = gem_cpu_take(be, rows * ld / 32 * sizeof(float));
        q->nsum = gem_cpu_take(be, rows * ld / 32 * sizeof(int32_t));
        q->nsum16 = gem_cpu_take(be, rows * ld / 16 * sizeof(int32_t));
    }
    for (int r = 0; r < p->n_ropes; r++) {
        size_t half = (size_t)p->rope[r].n_dims / 2;
        be->freq[r] = gem_cpu_take(be, half * sizeof(double));
        be->cos[r] = gem_cpu_take(be, rows * half * sizeof(float));
        be->sin[r] = gem_cpu_take(be, rows * half * sizeof(float));
    }
    be->ld_logits = (size_t)gem_round_up((uint64_t)p->n_vocab, 32);
    be->logits = gem_cpu_take(be, (size_t)be->opt.n_logits * be->ld_logits * sizeof(float));
    be->pos = gem_cpu_take(be, rows * sizeof(int32_t));
    be->seq = gem_cpu_take(be, rows * sizeof(int32_t));
    be->row_of = gem_cpu_take(be, rows * sizeof(int32_t));
    be->block = gem_cpu_take(be, rows * sizeof(cpu_block));
    if (p->draft_op) be->hidden = gem_cpu_take(be, rows * (size_t)p->d_model * sizeof(float));
    size_t delta_floats = 0;
    if (p->recurrent.n_layers) {
        be->group = gem_cpu_take(be, rows * sizeof(cpu_seq));
        be->order = gem_cpu_take(be, rows * sizeof(int32_t));
        be->group_of = gem_cpu_take(be, rows * sizeof(int32_t));
        be->group_of_row = gem_cpu_take(be, rows * sizeof(int32_t));
        delta_floats = gem_cpu_delta_scratch(&p->recurrent);
    }
    for (size_t i = 0; i < be->n_weights; i++)
        max_k = GEM_MAX(max_k, be->weight[i].k);
    for (int l = 0; l < p->n_layers; l++)
        max_hd = GEM_MAX(max_hd, p->layer[l].head_dim);
    size_t chunks = ((size_t)be->opt.n_ctx + GEM_CHUNK - 1) / GEM_CHUNK;
    be->partial_floats = MAX_SPLIT_ROWS * (size_t)max_heads(p) * chunks * ((size_t)max_hd + 2);
    be->partial = gem_cpu_take(be, be->partial_floats * sizeof(float));
    be->scratch = gem_cpu_take(be, n_threads * sizeof(cpu_scratch));
    for (size_t t = 0; t < n_threads; t++) {
        cpu_scratch s;
        s.unpack = gem_cpu_take(be, gem_panel_scratch(max_k));
        s.panel = gem_cpu_take(be, (size_t)max_k * 64 + 4096);
        s.row = gem_cpu_take(be, (size_t)max_k * sizeof(float));
        s.attend = gem_cpu_take(be, gem_attend_scratch(max_hd) * sizeof(float));
        s.o = gem_cpu_take(be, GEM_ATTEND_ROWS * (size_t)max_hd * sizeof(float));
        s.total = gem_cpu_take(be, GEM_ATTEND_ROWS * (size_t)max_hd * sizeof(float));
        s.keys = gem_cpu_values_only(be)
                     ? gem_cpu_take(be, GEM_CHUNK * (size_t)max_hd * sizeof(float))
                     : NULL;
        s.delta = gem_cpu_take(be, delta_floats * sizeof(float));
        if (be->work_used <= be->work_bytes) be->scratch[t] = s;
    }
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

gem_status gem_cpu_forecast(gem_backend *be, gem_error *err)
{
    uint64_t weights = gem_cpu_weights_bytes(be), kv = 0, states = gem_cpu_recurrent_bytes(be);
    uint8_t *work = be->work; /* vectors are in there */
    size_t bytes = be->work_bytes, used = be->work_used;
    if (!be->opt.max_bytes) return GEM_OK;
    be->work = NULL;
    be->work_bytes = be->work_used = 0;
    take_work(be); /* counts */
    uint64_t work_bytes = be->work_used + bytes;
    be->work = work;
    be->work_bytes = bytes;
    be->work_used = used;
    for (int i = 0; i < be->opt.n_pools; i++)
        kv += (uint64_t)be->opt.pool[i].n_pages * gem_kv_page_bytes(&be->opt.pool[i]);
    uint64_t all = weights + kv + states + work_bytes;
    if (all <= be->opt.max_bytes) return GEM_OK;
    return gem_fail(err, GEM_E_NOMEM,
                    "%.0f MiB of memory are needed (weights %.0f, keys and values %.0f, recurrent "
                    "states %.0f, workspace %.0f) and there are %.0f",
                    mib(all), mib(weights), mib(kv), mib(states), mib(work_bytes),
                    mib(be->opt.max_bytes));
}

static gem_status take_pools(gem_backend *be, gem_error *err)
{
    size_t n = (size_t)be->opt.n_pools;
    be->pool = calloc(n, sizeof(*be->pool));
    be->pool_bytes = calloc(n, sizeof(*be->pool_bytes));
    be->page_bytes = calloc(n, sizeof(*be->page_bytes));
    if (!be->pool || !be->pool_bytes || !be->page_bytes)
        return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu KV pools", n);
    for (size_t i = 0; i < n; i++) {
        const gem_kv_pool *p = &be->opt.pool[i];
        be->page_bytes[i] = gem_kv_page_bytes(p);
        if (!gem_mul_ok(be->page_bytes[i], (size_t)p->n_pages, &be->pool_bytes[i]))
            return gem_fail(err, GEM_E_NOMEM, "cpu: %d KV pages of %zu bytes overflow", p->n_pages,
                            be->page_bytes[i]);
        be->pool[i] = gem_cpu_map(be->pool_bytes[i]);
        if (!be->pool[i])
            return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu bytes of KV cache",
                            be->pool_bytes[i]);
        be->kv_bytes += be->pool_bytes[i];
    }
    return GEM_OK;
}

static gem_status open_cpu(gem_backend **out, const gem_backend_options *opt, gem_error *err)
{
    gem_status st = GEM_OK;
    const gem_plan *p = opt->plan;
    *out = NULL;
    if ((st = check_plan(p, err)) != GEM_OK) return st;
    gem_backend *be = calloc(1, sizeof(*be));
    if (!be) return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu bytes", sizeof(*be));
    be->opt = *opt;
    be->plan = p;
    be->n_threads = opt->n_threads;
    if ((st = gem_cpu_kernels_get(&be->k, opt->isa, err)) != GEM_OK) goto done;
    if ((st = gem_team_new(&be->team, be->n_threads, err)) != GEM_OK) goto done;

    be->weight = calloc(GEM_LINEAR_MAX * p->n_ops + 1, sizeof(*be->weight));
    be->op = calloc(p->n_ops + 1, sizeof(*be->op));
    be->ranges = aligned_alloc(64, sizeof(gem_range) * (size_t)be->n_threads * (p->n_ops + 1));
    if (!be->weight || !be->op || !be->ranges) {
        st = gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu ops", p->n_ops);
        goto done;
    }
    for (size_t i = 0; i < p->n_ops; i++) {
        be->op[i].range = be->ranges + i * (size_t)be->n_threads;
        for (int l = 0; l < p->op[i].layer; l++)
            be->op[i].recurrent += p->layer[l].n_kv_heads == 0;
    }
    /* Vectors come from the work mapping too: give it room for all of them first. */
    size_t vectors = 0;
    for (size_t i = 0; i < p->n_ops; i++)
        for (int j = 0; p->op[i].kind == GEM_OP_LINEAR && j < p->op[i].linear.n; j++)
            if (p->op[i].linear.bias[j])
                vectors += (size_t)gem_round_up(p->op[i].linear.w[j]->dim[1], 16) * 4 + 64;
    be->work_bytes = vectors + 64;
    be->work = gem_cpu_map(be->work_bytes);
    uint8_t *vector_map = be->work;
    size_t vector_bytes = be->work_bytes;
    if (!be->work) {
        st = gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu bytes of vectors", be->work_bytes);
        goto done;
    }
    if ((st = gem_cpu_load_weights(be, err)) != GEM_OK) goto done;

    be->work_bytes = 0; /* count */
    be->work_used = 0;
    take_work(be);
    size_t need = be->work_used;
    be->work = gem_cpu_map(need + vector_bytes);
    if (!be->work) {
        be->work = vector_map;
        be->work_bytes = vector_bytes;
        st = gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu bytes of workspace", need);
        goto done;
    }
    be->work_bytes = need + vector_bytes;
    memcpy(be->work + need, vector_map, vector_bytes);
    for (size_t i = 0; i < p->n_ops; i++) /* biases moved with the mapping */
        for (int j = 0; j < GEM_LINEAR_MAX; j++)
            if (be->op[i].bias[j])
                be->op[i].bias[j] =
                    (const float *)(be->work + need +
                                    ((const uint8_t *)be->op[i].bias[j] - vector_map));
    munmap(vector_map, vector_bytes);
    be->work_used = 0;
    take_work(be);
    for (int r = 0; r < p->n_ropes; r++)
        if (p->rope[r].n_dims) gem_rope_frequencies(&p->rope[r], be->freq[r]);
    if ((st = gem_cpu_open_keys(be, err)) != GEM_OK) goto done;
    if ((st = take_pools(be, err)) != GEM_OK) goto done;
    if ((st = gem_cpu_recurrent_open(be, err)) != GEM_OK) goto done;
    *out = be;
    be = NULL;
done:
    close_cpu(be);
    return st;
}

static void copy_page(gem_backend *be, int pool, int32_t dst, int32_t src)
{
    memcpy(be->pool[pool] + (size_t)dst * be->page_bytes[pool],
           be->pool[pool] + (size_t)src * be->page_bytes[pool], be->page_bytes[pool]);
}

static bool read_page(const gem_backend *be, int pool, int32_t page, void *out)
{
    memcpy(out, be->pool[pool] + (size_t)page * be->page_bytes[pool], be->page_bytes[pool]);
    return true;
}

static void write_page(gem_backend *be, int pool, int32_t page, const void *in)
{
    memcpy(be->pool[pool] + (size_t)page * be->page_bytes[pool], in, be->page_bytes[pool]);
}

static void read_kv(const gem_backend *be, int layer, int32_t page, int32_t pos, float *k, float *v)
{
    int pool = be->opt.layer_pool[layer];
    const gem_kv_pool *p = &be->opt.pool[pool];
    const uint8_t *at = be->pool[pool] + (size_t)page * be->page_bytes[pool];
    const int32_t slot = pos % GEM_PAGE;
    const size_t hd = (size_t)p->head_dim, behind = p->values_only ? GEM_PAGE * hd : 0;
    for (int h = 0; h < p->n_kv_heads; h++, at += gem_cpu_part_bytes(p), k += hd, v += hd) {
        for (int d = 0; d < p->head_dim; d++) {
            size_t ki = gem_page_k_at(p->head_dim, slot, d),
                   vi = gem_page_v_at(p->head_dim, slot, d) - behind;
            v[d] = p->f16 ? gem_f16_to_f32(((const uint16_t *)(const void *)at)[vi])
                          : ((const float *)(const void *)at)[vi];
            if (p->values_only) continue;
            k[d] = p->f16 ? gem_f16_to_f32(((const uint16_t *)(const void *)at)[ki])
                          : ((const float *)(const void *)at)[ki];
        }
        if (p->values_only) gem_cpu_key_of_value(be, layer, pos, v, k);
    }
}

static void stats_cpu(const gem_backend *be, gem_backend_stats *out)
{
    memset(out, 0, sizeof(*out));
    out->weights_bytes = be->arena_bytes;
    out->kv_bytes = be->kv_bytes;
    out->state_bytes = be->state_bytes;
    out->tape_bytes = be->tape_bytes;
    out->workspace_bytes = be->work_bytes + be->work_bytes_apart;
    out->decode_bytes = be->decode_bytes;
    out->isa = be->k.isa;
    out->n_threads = be->n_threads;
}

static json_t *config_cpu(const gem_backend *be)
{
    const char *layout = be->opt.exact       ? "mapped rows, dequantised to f32 a panel at a time"
                         : be->opt.no_repack ? "mapped rows, packed a panel at a time"
                                             : "R16K4 panels";
    return json_pack(
        "{s:s, s:s, s:i, s:s, s:s, s:{s:s, s:s, s:s, s:i, s:i, s:i}, s:I, s:I, s:I, s:b}", "name",
        "cpu", "isa", be->k.isa, "threads", be->n_threads, "numerics",
        be->opt.exact ? "exact: f32 activations" : "fast: 8-bit activations, blocks of 32",
        "weight_layout", layout, "routes", "linear", "panels of 16 rows", "attention",
        gem_cpu_attention, "attention_form", "flash-chunks", "prefill_tile_rows",
        (int)be->opt.n_batch, "key_tile", GEM_PAGE, "key_chunk", GEM_CHUNK, "weights_bytes",
        (json_int_t)be->arena_bytes, "workspace_bytes",
        (json_int_t)(be->work_bytes + be->work_bytes_apart), "decode_weight_bytes",
        (json_int_t)be->decode_bytes, "same_bits_across_batches_and_threads", 1);
}

const gem_backend_ops gem_backend_cpu = {
    .name = "cpu",
    .open = open_cpu,
    .close = close_cpu,
    .run = gem_cpu_run,
    .run_traced = gem_cpu_run_traced,
    .seed_kv = gem_cpu_seed_kv,
    .choose_route = gem_cpu_choose_route,
    .copy_page = copy_page,
    .read_kv = read_kv,
    .read_page = read_page,
    .write_page = write_page,
    .read_state = gem_cpu_read_state,
    .write_state = gem_cpu_write_state,
    .stats = stats_cpu,
    .config = config_cpu,
};
