/* cuda_weights.c - weights on their way to the device: placed once in one arena, copied from the
 * mapped file through two pinned buffers, turned into slabs there. The copy into one buffer
 * overlaps the transfer from the other. */
#include "backend/cuda/cuda_backend.h"

#include <stdlib.h>

enum { STAGING_BYTES = 64 << 20, ALIGN = 256 };

static gem_cuda_weight *add(gem_backend *be, const gem_tensor *t)
{
    for (size_t i = 0; i < be->n_weights; i++)
        if (be->weight[i].tensor == t) return &be->weight[i];
    gem_cuda_weight *w = &be->weight[be->n_weights++];
    bool whole = be->opt.exact || be->opt.no_repack;
    w->tensor = t;
    w->dtype = t->dtype;
    w->k = (int64_t)t->dim[0];
    w->n_rows = (int64_t)t->dim[1];
    w->row_bytes = (int64_t)t->row_bytes;
    w->slabs = !whole && gem_cuda_slab_slices(t->dtype, w->k, &be->s) > 0;
    size_t tiles = ((size_t)w->n_rows + GEM_CUDA_SLAB_ROWS - 1) / GEM_CUDA_SLAB_ROWS;
    w->bytes = w->slabs ? tiles * (size_t)(w->k / GEM_CUDA_SLAB_K) * gem_cuda_slab_bytes(w->dtype)
                        : t->bytes;
    return w;
}

/* Visit every vector of an op: where its device address goes, its source and length. */
typedef void (*vector_fn)(void *ctx, const float **slot, const float *v, int64_t n);

static void vectors(gem_backend *be, gem_cuda_op *o, vector_fn fn, void *ctx)
{
    const gem_op *op = o->op;
    const gem_recurrent *r = &be->plan->recurrent;
    int64_t d = be->plan->d_model;
    switch (op->kind) {
    case GEM_OP_NORM:
        fn(ctx, &o->v[0], op->norm.w, d);
        break;
    case GEM_OP_LINEAR:
        for (int i = 0; i < op->linear.n; i++)
            fn(ctx, &o->bias[i], op->linear.bias[i], (int64_t)op->linear.w[i]->dim[1]);
        break;
    case GEM_OP_QKV:
        fn(ctx, &o->v[0], op->qkv.q_norm, be->plan->layer[op->layer].head_dim);
        fn(ctx, &o->v[1], op->qkv.k_norm, be->plan->layer[op->layer].head_dim);
        break;
    case GEM_OP_CONV:
        fn(ctx, &o->v[0], op->conv.w,
           (int64_t)(2 * r->n_k_heads + r->n_v_heads) * r->head_dim * GEM_CONV_TAPS);
        break;
    case GEM_OP_DELTA:
        fn(ctx, &o->v[0], op->delta.a, r->n_v_heads);
        fn(ctx, &o->v[1], op->delta.dt_bias, r->n_v_heads);
        fn(ctx, &o->v[2], op->delta.norm, r->head_dim);
        break;
    case GEM_OP_RESIDUAL:
        fn(ctx, &o->v[0], op->residual.post_norm, d);
        fn(ctx, &o->v[1], op->residual.next_norm, d);
        break;
    default:
        break;
    }
}

static void count_vector(void *ctx, const float **slot, const float *v, int64_t n)
{
    size_t *bytes = ctx;
    (void)slot;
    if (v) *bytes += (size_t)gem_round_up((uint64_t)n * sizeof(float), ALIGN);
}

/* A gated activation whose result the next op alone reads, by slab products of one type: the kernel
 * of that op can compute it as it reads. Plans write their buffers anew before each use: the op
 * behind the next one reads none of this. */
static bool joins_next(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    if (i + 2 >= p->n_ops || p->op[i].kind != GEM_OP_GLU || p->op[i + 1].kind != GEM_OP_LINEAR)
        return false;
    const gem_op *next = &p->op[i + 1], *behind = &p->op[i + 2];
    if (next->linear.src != p->op[i].glu.dst || next->linear.n != 1) return false;
    if (behind->kind != GEM_OP_RESIDUAL || behind->residual.src == p->op[i].glu.dst) return false;
    return be->op[i + 1].w[0]->slabs;
}

gem_status gem_cuda_plan_weights(gem_backend *be, gem_error *err)
{
    const gem_plan *p = be->plan;
    size_t total = 0;
    be->op = calloc(p->n_ops + 1, sizeof(*be->op));
    be->weight = calloc(GEM_CUDA_LINEARS * p->n_ops + 1, sizeof(*be->weight));
    if (!be->op || !be->weight)
        return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for %zu ops", p->n_ops);
    for (size_t i = 0; i < p->n_ops; i++) {
        const gem_op *op = &p->op[i];
        gem_cuda_op *o = &be->op[i];
        o->op = op;
        if (op->kind == GEM_OP_QKV || op->kind == GEM_OP_DELTA) be->last_append = i;
        for (int l = 0; l < op->layer; l++)
            o->recurrent += p->layer[l].n_kv_heads == 0;
        if (op->kind == GEM_OP_EMBED) o->w[0] = add(be, op->embed.w);
        if (op->kind == GEM_OP_HEAD) o->w[0] = add(be, op->head.w);
        for (int j = 0; op->kind == GEM_OP_LINEAR && j < op->linear.n; j++)
            o->w[j] = add(be, op->linear.w[j]);
        for (int j = 0; op->kind != GEM_OP_EMBED && j < GEM_CUDA_LINEARS && o->w[j]; j++)
            be->decode_bytes += o->w[j]->bytes;
        vectors(be, o, count_vector, &total);
    }
    for (size_t i = 0; i < p->n_ops; i++)
        be->op[i].joins_next = joins_next(be, i);
    for (size_t i = 0; i < be->n_weights; i++) {
        size_t bytes = (size_t)gem_round_up(be->weight[i].bytes, ALIGN);
        if (!gem_add_ok(total, bytes, &total))
            return gem_fail(err, GEM_E_NOMEM, "cuda: %s does not fit the address space",
                            be->weight[i].tensor->name);
    }
    be->arena_bytes = total;
    return GEM_OK;
}

/* ---- upload ---- */

typedef struct loader {
    gem_backend *be;
    uint8_t *pinned[2], *raw[2]; /* host, device */
    cudaEvent_t copied[2];       /* the pinned buffer may be filled again */
    int turn;
    uint8_t *at; /* next free byte of the arena */
    size_t done;
    cudaError_t e;
} loader;

/* `bytes` of host memory to the device, through the next buffer; NULL dst: into its raw buffer. */
static uint8_t *send(loader *l, uint8_t *dst, const void *src, size_t bytes)
{
    int i = l->turn;
    l->turn = !i;
    if (!l->e) l->e = cudaEventSynchronize(l->copied[i]);
    if (l->e) return NULL;
    memcpy(l->pinned[i], src, bytes);
    if (!dst) dst = l->raw[i];
    l->e = cudaMemcpyAsync(dst, l->pinned[i], bytes, cudaMemcpyHostToDevice, l->be->s.stream);
    return dst;
}

static void sent(loader *l, size_t bytes)
{
    const gem_backend_options *o = &l->be->opt;
    if (!l->e) l->e = cudaEventRecord(l->copied[!l->turn], l->be->s.stream);
    l->done += bytes;
    if (o->progress) o->progress(o->progress_user, (double)l->done / (double)l->be->arena_bytes);
}

static void upload(loader *l, gem_cuda_weight *w)
{
    const gem_tensor *t = w->tensor;
    size_t row = (size_t)w->row_bytes;
    int64_t step = (int64_t)(STAGING_BYTES / row) / GEM_CUDA_SLAB_ROWS * GEM_CUDA_SLAB_ROWS;
    if (step < 1) {
        l->e = cudaErrorInvalidValue; /* refused at open: see check_plan */
        return;
    }
    w->data = l->at;
    for (int64_t r = 0; r < w->n_rows && !l->e; r += step) {
        int64_t n = GEM_MIN(step, w->n_rows - r);
        size_t bytes = (size_t)n * row;
        uint8_t *to = w->slabs ? NULL : l->at + (size_t)r * row;
        uint8_t *raw = send(l, to, t->data + (size_t)r * row, bytes);
        if (!l->e && w->slabs)
            l->e = gem_cuda_repack(l->be->s.stream, w->dtype, raw, r, n, w->n_rows, w->k, l->at);
        sent(l, bytes);
    }
    l->at += gem_round_up(w->bytes, ALIGN);
}

static void upload_vector(void *ctx, const float **slot, const float *v, int64_t n)
{
    loader *l = ctx;
    size_t bytes = (size_t)n * sizeof(float);
    *slot = NULL;
    if (!v || l->e) return;
    send(l, l->at, v, bytes);
    *slot = (const float *)l->at;
    sent(l, bytes);
    l->at += gem_round_up(bytes, ALIGN);
}

gem_status gem_cuda_load_weights(gem_backend *be, gem_error *err)
{
    loader l = {.be = be};
    l.e = cudaMalloc((void **)&be->arena, be->arena_bytes);
    l.at = be->arena;
    for (int i = 0; i < 2 && !l.e; i++) {
        l.e = cudaMallocHost((void **)&l.pinned[i], STAGING_BYTES);
        if (!l.e) l.e = cudaMalloc((void **)&l.raw[i], STAGING_BYTES);
        if (!l.e) l.e = cudaEventCreateWithFlags(&l.copied[i], cudaEventDisableTiming);
        if (!l.e) l.e = cudaEventRecord(l.copied[i], be->s.stream);
    }
    for (size_t i = 0; i < be->n_weights && !l.e; i++) {
        upload(&l, &be->weight[i]);
        gem_gguf_drop_pages(be->opt.file, be->weight[i].tensor);
    }
    for (size_t i = 0; i < be->plan->n_ops && !l.e; i++)
        vectors(be, &be->op[i], upload_vector, &l);
    if (!l.e) l.e = cudaStreamSynchronize(be->s.stream);
    for (int i = 0; i < 2; i++) {
        if (l.pinned[i]) cudaFreeHost(l.pinned[i]);
        if (l.raw[i]) cudaFree(l.raw[i]);
        if (l.copied[i]) cudaEventDestroy(l.copied[i]);
    }
    return l.e ? gem_cuda_fail(err, l.e, "loading weights") : GEM_OK;
}
