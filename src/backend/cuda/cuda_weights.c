/* cuda_weights.c - weights on their way to the device: placed once in one arena, copied from the
 * mapped file through two pinned buffers, turned into slabs there. The copy into one buffer
 * overlaps the transfer from the other. */
#include "backend/cuda/cuda_backend.h"

#include <stdlib.h>

enum { STAGING_BYTES = 64 << 20, ALIGN = 256 };

/* up: the other half of a joint weight, or NULL. */
static gem_cuda_weight *add(gem_backend *be, const gem_tensor *t, const gem_tensor *up)
{
    for (size_t i = 0; i < be->n_weights; i++)
        if (be->weight[i].tensor == t && be->weight[i].up == up) return &be->weight[i];
    gem_cuda_weight *w = &be->weight[be->n_weights++];
    bool whole = be->opt.exact || be->opt.no_repack;
    w->tensor = t;
    w->up = up;
    w->dtype = t->dtype;
    w->k = (int64_t)t->dim[0];
    w->n_rows = (int64_t)t->dim[1] * (up ? 2 : 1);
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
static bool glu_joins(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    if (i + 2 >= p->n_ops || p->op[i].kind != GEM_OP_GLU || p->op[i + 1].kind != GEM_OP_LINEAR)
        return false;
    const gem_op *next = &p->op[i + 1], *behind = &p->op[i + 2];
    if (next->linear.src != p->op[i].glu.dst || next->linear.n != 1) return false;
    if (behind->kind != GEM_OP_RESIDUAL || behind->residual.src == p->op[i].glu.dst) return false;
    const gem_tensor *t = next->linear.w[0];
    return !be->opt.exact && !be->opt.no_repack &&
           gem_cuda_slab_slices(t->dtype, (int64_t)t->dim[0], &be->s) > 0;
}

/* A residual sum whose norm the next op reads through slabs. */
static bool residual_joins(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    if (i + 1 >= p->n_ops || p->op[i].kind != GEM_OP_RESIDUAL || p->op[i].residual.dst < 0)
        return false;
    const gem_op *next = &p->op[i + 1];
    gem_buf src = next->kind == GEM_OP_LINEAR ? next->linear.src
                  : next->kind == GEM_OP_HEAD ? next->head.src
                                              : -1;
    const gem_cuda_weight *w = be->op[i + 1].w[0];
    return src == p->op[i].residual.dst && w && w->slabs && w->k == p->d_model;
}

static bool reads(const gem_op *op, gem_buf b)
{
    switch (op->kind) {
    case GEM_OP_NORM:
        return op->norm.src == b;
    case GEM_OP_LINEAR:
        return op->linear.src == b;
    case GEM_OP_QKV:
        return op->qkv.q == b || op->qkv.k == b || op->qkv.v == b;
    case GEM_OP_ATTEND:
        return op->attend.q == b;
    case GEM_OP_CONV:
        return op->conv.src == b;
    case GEM_OP_DELTA:
        return op->delta.src == b || op->delta.z == b || op->delta.alpha == b ||
               op->delta.beta == b;
    case GEM_OP_RESIDUAL:
        return op->residual.x == b || op->residual.src == b;
    case GEM_OP_GLU:
        return op->glu.gate == b || op->glu.up == b;
    case GEM_OP_HEAD:
        return op->head.src == b;
    default:
        return false;
    }
}

/* Linear ops and convolutions that write all of a buffer anew, reading others. */
static bool writes(const gem_op *op, gem_buf b)
{
    if (op->kind == GEM_OP_CONV) return op->conv.dst == b && op->conv.src != b;
    for (int i = 0; op->kind == GEM_OP_LINEAR && op->linear.src != b && i < op->linear.n; i++)
        if (op->linear.dst[i] == b) return true;
    return false;
}

/* A residual sum whose norm goes into the products of the next op and nowhere else before the next
 * residual sum writes the buffer anew. */
static bool residual_once(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    const gem_op *op = &p->op[i];
    if (op->kind != GEM_OP_RESIDUAL || op->residual.dst < 0 || i + 1 >= p->n_ops) return false;
    const gem_buf b = op->residual.dst;
    const gem_op *next = &p->op[i + 1];
    const bool head = next->kind == GEM_OP_HEAD && next->head.src == b;
    if (!head && (next->kind != GEM_OP_LINEAR || next->linear.src != b ||
                  next->linear.w[0]->dim[0] != (uint64_t)p->d_model))
        return false;
    for (size_t j = i + 2; j < p->n_ops; j++) {
        if (reads(&p->op[j], b)) return false;
        if (p->op[j].kind == GEM_OP_RESIDUAL && p->op[j].residual.dst == b) return true;
    }
    return true;
}

/* Attention that slab products alone read. */
static bool attend_joins(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    if (i + 1 >= p->n_ops || p->op[i].kind != GEM_OP_ATTEND) return false;
    const gem_buf b = p->op[i].attend.dst;
    if (p->op[i + 1].kind != GEM_OP_LINEAR || p->op[i + 1].linear.src != b ||
        !be->op[i + 1].all_slabs)
        return false;
    for (size_t j = i + 2; j < p->n_ops; j++) {
        if (reads(&p->op[j], b)) return false;
        if (p->op[j].kind == GEM_OP_ATTEND && p->op[j].attend.dst == b) return true;
    }
    return true;
}

/* A convolution that the delta rule behind it alone reads. */
static bool conv_joins(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    if (i + 1 >= p->n_ops || p->op[i].kind != GEM_OP_CONV) return false;
    const gem_buf b = p->op[i].conv.dst;
    if (p->op[i + 1].kind != GEM_OP_DELTA || p->op[i + 1].delta.src != b) return false;
    for (size_t j = i + 2; j < p->n_ops; j++) {
        if (writes(&p->op[j], b)) return true;
        if (reads(&p->op[j], b)) return false;
    }
    return true;
}

/* A delta rule whose result goes into the products of the next op and nowhere else before its
 * buffer is written anew. */
static bool delta_once(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    if (i + 1 >= p->n_ops || p->op[i].kind != GEM_OP_DELTA) return false;
    const gem_buf b = p->op[i].delta.dst;
    if (p->op[i + 1].kind != GEM_OP_LINEAR || p->op[i + 1].linear.src != b) return false;
    for (size_t j = i + 2; j < p->n_ops; j++) {
        if (reads(&p->op[j], b)) return false;
        if ((p->op[j].kind == GEM_OP_ATTEND && p->op[j].attend.dst == b) ||
            (p->op[j].kind == GEM_OP_DELTA && p->op[j].delta.dst == b))
            return true;
    }
    return true;
}

static size_t f16_bytes(const gem_cuda_weight *w)
{
    return (size_t)gem_round_up((uint64_t)(w->n_rows * w->k) * sizeof(uint16_t), ALIGN);
}

/* Gate and up in one weight: of one type, in one slice, without bias, for the glu behind them. */
static bool joint(const gem_backend *be, size_t i)
{
    const gem_plan *p = be->plan;
    const gem_op *op = &p->op[i];
    if (op->kind != GEM_OP_LINEAR || op->linear.n != 2 || !glu_joins(be, i + 1)) return false;
    const gem_op *glu = &p->op[i + 1];
    const gem_tensor *g = op->linear.w[0], *u = op->linear.w[1];
    return glu->glu.gate == op->linear.dst[0] && glu->glu.up == op->linear.dst[1] &&
           g->dtype == u->dtype && g->dim[0] == u->dim[0] && g->dim[1] == u->dim[1] &&
           gem_cuda_glu_many_fits((int64_t)g->dim[1]) && !op->linear.bias[0] &&
           !op->linear.bias[1] && gem_cuda_slab_slices(g->dtype, (int64_t)g->dim[0], &be->s) == 1;
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
        o->joint = joint(be, i);
        if (op->kind == GEM_OP_EMBED) o->w[0] = add(be, op->embed.w, NULL);
        if (op->kind == GEM_OP_HEAD) o->w[0] = add(be, op->head.w, NULL);
        if (o->joint) {
            o->w[0] = add(be, op->linear.w[0], op->linear.w[1]);
            be->joint_width = GEM_MAX(be->joint_width, o->w[0]->n_rows);
        }
        for (int j = 0; op->kind == GEM_OP_LINEAR && !o->joint && j < op->linear.n; j++)
            o->w[j] = add(be, op->linear.w[j], NULL);
        for (int j = 0; op->kind != GEM_OP_EMBED && j < GEM_CUDA_LINEARS && o->w[j]; j++) {
            be->decode_bytes += o->w[j]->bytes;
            if (op->kind == GEM_OP_LINEAR) be->weight[o->w[j] - be->weight].tiled = true;
        }
        vectors(be, o, count_vector, &total);
    }
    for (size_t i = 0; i < p->n_ops; i++) {
        be->op[i].all_slabs = be->op[i].w[0] != NULL;
        for (int j = 0; j < GEM_CUDA_LINEARS && be->op[i].w[j]; j++)
            be->op[i].all_slabs = be->op[i].all_slabs && be->op[i].w[j]->slabs;
    }
    for (size_t i = 0; i < p->n_ops; i++) {
        be->op[i].joins_next = glu_joins(be, i) || residual_joins(be, i) || attend_joins(be, i) ||
                               conv_joins(be, i) || (delta_once(be, i) && be->op[i + 1].all_slabs);
        be->op[i].read_once = residual_once(be, i) || delta_once(be, i);
    }
    for (size_t i = 0; i < be->n_weights; i++) {
        size_t bytes = (size_t)gem_round_up(be->weight[i].bytes, ALIGN);
        if (!gem_add_ok(total, bytes, &total))
            return gem_fail(err, GEM_E_NOMEM, "cuda: %s does not fit the address space",
                            be->weight[i].tensor->name);
    }
    be->arena_bytes = total;
    be->keep_f16 = be->keep_f16 && !be->opt.exact && be->opt.n_batch > GEM_CUDA_FEW;
    for (size_t i = 0; i < be->n_weights && be->keep_f16; i++)
        if (be->weight[i].tiled &&
            !gem_add_ok(be->wide_bytes, f16_bytes(&be->weight[i]), &be->wide_bytes))
            return gem_fail(err, GEM_E_NOMEM, "cuda: weights as f16 do not fit the address space");
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

/* half: of a joint weight; -1: the tensor is all of the weight */
static void upload_tensor(loader *l, gem_cuda_weight *w, const gem_tensor *t, int half)
{
    const size_t row = (size_t)w->row_bytes;
    const int64_t n_rows = (int64_t)t->dim[1];
    int64_t step = (int64_t)(STAGING_BYTES / row) / GEM_CUDA_SLAB_ROWS * GEM_CUDA_SLAB_ROWS;
    if (step < 1) {
        l->e = cudaErrorInvalidValue; /* refused at open: see check_plan */
        return;
    }
    for (int64_t r = 0; r < n_rows && !l->e; r += step) {
        int64_t n = GEM_MIN(step, n_rows - r);
        size_t bytes = (size_t)n * row;
        uint8_t *to = w->slabs ? NULL : l->at + (size_t)r * row;
        uint8_t *raw = send(l, to, t->data + (size_t)r * row, bytes);
        if (!l->e && w->slabs)
            l->e = gem_cuda_repack(l->be->s.stream, w->dtype, raw, r, n, half, w->k, l->at);
        sent(l, bytes);
    }
    gem_gguf_drop_pages(l->be->opt.file, t);
}

static void upload(loader *l, gem_cuda_weight *w)
{
    w->data = l->at;
    upload_tensor(l, w, w->tensor, w->up ? 0 : -1);
    if (w->up) upload_tensor(l, w, w->up, 1);
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

/* The tile route's weights once and for all. */
static cudaError_t widen(gem_backend *be)
{
    uint8_t *at;
    cudaError_t e = cudaMalloc((void **)&be->wide, be->wide_bytes);
    at = be->wide;
    for (size_t i = 0; i < be->n_weights && !e; i++) {
        gem_cuda_weight *w = &be->weight[i];
        if (!w->tiled) continue;
        e = gem_cuda_expand(&be->s, w, 0, w->n_rows, (uint16_t *)(void *)at);
        w->f16 = (const uint16_t *)(const void *)at;
        at += f16_bytes(w);
    }
    return e;
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
    for (size_t i = 0; i < be->n_weights && !l.e; i++)
        upload(&l, &be->weight[i]);
    for (size_t i = 0; i < be->plan->n_ops && !l.e; i++)
        vectors(be, &be->op[i], upload_vector, &l);
    if (!l.e && be->wide_bytes) l.e = widen(be);
    if (!l.e) l.e = cudaStreamSynchronize(be->s.stream);
    for (int i = 0; i < 2; i++) {
        if (l.pinned[i]) cudaFreeHost(l.pinned[i]);
        if (l.raw[i]) cudaFree(l.raw[i]);
        if (l.copied[i]) cudaEventDestroy(l.copied[i]);
    }
    return l.e ? gem_cuda_fail(err, l.e, "loading weights") : GEM_OK;
}
