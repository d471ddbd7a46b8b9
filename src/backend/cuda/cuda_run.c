/* cuda_run.c - one batch on the device: ids and page tables up, the op list as kernels on one
 * stream, logits down, or the largest of them. Two routes by rows: up to GEM_CUDA_FEW take the
 * decode kernels (weights read once as slabs, attention split over a sequence), more take the tile
 * kernels (weights expanded to f16). A decode batch is one graph, captured at its first use:
 * everything that changes from token to token lives in device memory. */
#include "backend/cuda/cuda_backend.h"

typedef struct pass {
    gem_backend *be;
    gem_cuda_rows rows;
    int32_t n; /* rows alive: all, or after the last append the wanted ones */
    int32_t n_wanted;
    int list; /* of blocks: 0 all rows, 1 the wanted ones */
    bool top; /* logits stay here, their largest go to the host */
    gem_cuda_view view[GEM_PLAN_MAX_BUFS];
    gem_cuda_view
        conv_src; /* what the last convolution read: its tail is kept behind the delta rule */
    /* left to the slab product that comes next */
    gem_cuda_slab_source source;
    const gem_op *glu;       /* of GEM_CUDA_FROM_GATED */
    gem_cuda_packed packed;  /* of GEM_CUDA_FROM_PACKED */
    gem_cuda_runs runs;      /* of GEM_CUDA_FROM_RUNS */
    bool joint;              /* gate and up of the glu that comes next stand in be->joint */
    bool half;               /* as f16 (linear_blas.h) */
    bool in_xh;              /* the next product's rows stand in be->xh already */
    const gem_cuda_op *conv; /* left to the delta rule that comes next, or NULL */
    gem_cuda_qkv raw;        /* left to the attention that comes next, when raw.n_heads > 0 */
} pass;

static gem_cuda_view plain(const gem_backend *be, gem_buf b)
{
    return (gem_cuda_view){.data = be->buf[b], .ld = be->ld[b], .n_parts = 1};
}

/* ---- linear ---- */

/* Rows of a weight that are multiplied at a time. */
static int64_t piece_rows(const gem_backend *be, const gem_cuda_weight *w)
{
    if (w->f16) return w->n_rows;
    return (int64_t)(be->wh_values / (size_t)w->k) / GEM_CUDA_TILE * GEM_CUDA_TILE;
}

/* Whether a product may be kept in f16 (linear_blas.h). */
enum { HALF_MOST_K = 8192 };
static bool half_fits(const pass *p, const gem_cuda_weight *w, int64_t ldy)
{
    const gem_backend *be = p->be;
    const int64_t most = piece_rows(be, w);
    bool fits = be->blas != NULL && w->k <= HALF_MOST_K;
    for (int64_t r = 0; r < w->n_rows && fits; r += most)
        fits = gem_cuda_blas_fits(be->blas, p->n, GEM_MIN(most, w->n_rows - r), w->k, ldy, true);
    return fits;
}

/* Rows of one weight through the tile route, a piece of the weight at a time. whole: y holds whole
 * tiles of rows. half: f16, GEM_CUDA_HALF_SCALE times smaller. */
static cudaError_t tile(const pass *p, const gem_cuda_weight *w, void *y, int64_t ldy, bool whole,
                        bool half)
{
    const gem_backend *be = p->be;
    const int64_t most = piece_rows(be, w);
    cudaError_t e = cudaSuccess;
    for (int64_t r = 0; r < w->n_rows && !e; r += most) {
        int64_t n = GEM_MIN(most, w->n_rows - r);
        const uint16_t *wh = w->f16 ? w->f16 : be->wh;
        if (!w->f16) e = gem_cuda_expand(&be->s, w, r, n, be->wh);
        if (e) break;
        if (whole && be->blas &&
            gem_cuda_blas_linear(be->blas, &be->s, be->xh, wh, p->n, n, w->k,
                                 (uint8_t *)y + r * (half ? 2 : 4), ldy, half, be->blas_work))
            continue;
        if (half) return cudaErrorLaunchFailure; /* half_fits has asked */
        e = gem_cuda_linear_tile(&be->s, be->xh, wh, p->n, n, w->k, (float *)y + r, ldy);
    }
    return e;
}

/* Where a product goes, and how it is then read. */
typedef struct target {
    float *y;    /* rows of the tile and exact routes */
    float *part; /* partial sums of the slab route */
    int64_t ld;
    gem_cuda_view *view;
} target;

/* What the next slab product reads: rows of src, or what was left to it. */
static gem_cuda_slab_in slab_input(const pass *p, gem_buf src)
{
    gem_cuda_slab_in in = {.from = p->source, .packed = p->packed, .runs = p->runs};
    if (p->source == GEM_CUDA_FROM_ROWS) in.a = plain(p->be, src);
    if (p->source == GEM_CUDA_FROM_GATED) {
        in.a = p->view[p->glu->glu.gate];
        in.b = p->view[p->glu->glu.up];
        in.act = p->glu->glu.act;
    }
    return in;
}

/* Up to GEM_CUDA_FEW rows, or exact mode with any number. */
static cudaError_t linear_few(pass *p, const gem_cuda_op *o, int n, gem_buf src, const target *t,
                              const gem_cuda_slab_end *end)
{
    const gem_backend *be = p->be;
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < n && !e;) {
        const gem_cuda_weight *w = o->w[i];
        gem_cuda_slab_out out[GEM_CUDA_LINEARS];
        int count = 0, first = i;
        if (!w->slabs) {
            *t[i].view =
                (gem_cuda_view){.data = t[i].y, .bias = o->bias[i], .ld = t[i].ld, .n_parts = 1};
            e = gem_cuda_linear_exact(&be->s, w, be->buf[src], be->ld[src], p->n, t[i].y, t[i].ld);
            i++;
            continue;
        }
        for (; i < n && o->w[i]->slabs && o->w[i]->dtype == w->dtype; i++, count++)
            out[count] = (gem_cuda_slab_out){o->w[i], t[i].part, t[i].ld};
        const int parts = gem_cuda_slab_parts(&be->s, out, count, p->n);
        for (int j = first; j < i; j++)
            *t[j].view = (gem_cuda_view){.data = t[j].part,
                                         .bias = o->bias[j],
                                         .part_stride = GEM_CUDA_FEW * t[j].ld,
                                         .ld = t[j].ld,
                                         .n_parts = parts};
        const gem_cuda_slab_in in = slab_input(p, src);
        e = gem_cuda_linear_slab(&be->s, out, count, &in, end, p->n);
    }
    p->source = GEM_CUDA_FROM_ROWS;
    return e;
}

static int32_t padded_rows(const pass *p)
{
    return (int32_t)gem_round_up((uint64_t)p->n, GEM_CUDA_TILE);
}

static cudaError_t linear_many(pass *p, const gem_cuda_op *o, int n, gem_buf src, const target *t)
{
    const gem_backend *be = p->be;
    cudaError_t e = cudaSuccess;
    if (!p->in_xh)
        e = gem_cuda_to_f16(&be->s, be->buf[src], be->ld[src], p->n, padded_rows(p), o->w[0]->k,
                            be->xh, be->scale);
    p->in_xh = false;
    for (int i = 0; i < n && !e; i++) {
        *t[i].view = (gem_cuda_view){.data = t[i].y,
                                     .bias = o->bias[i],
                                     .row_scale = be->scale,
                                     .ld = t[i].ld,
                                     .n_parts = 1};
        e = tile(p, o->w[i], t[i].y, t[i].ld, t[i].y != be->logits, p->joint && p->half);
    }
    return e;
}

static bool few_rows(const pass *p)
{
    return p->n <= GEM_CUDA_FEW || p->be->opt.exact;
}

static cudaError_t linear_op(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    target t[GEM_CUDA_LINEARS];
    if (o->joint) {
        const gem_op *glu = op + 1;
        const gem_cuda_slab_end end = {true, glu->glu.act, be->packed, 0};
        gem_cuda_view none;
        t[0] = (target){be->joint, be->joint, o->w[0]->n_rows, &none};
        if (!few_rows(p)) {
            p->joint = true;
            p->half = half_fits(p, o->w[0], t[0].ld);
            return linear_many(p, o, 1, op->linear.src, t);
        }
        cudaError_t e = linear_few(p, o, 1, op->linear.src, t, &end);
        p->source = GEM_CUDA_FROM_PACKED;
        p->packed = be->packed;
        return e;
    }
    for (int i = 0; i < op->linear.n; i++) {
        gem_buf b = op->linear.dst[i];
        t[i] = (target){be->buf[b], be->part[b], be->ld[b], &p->view[b]};
    }
    return few_rows(p) ? linear_few(p, o, op->linear.n, op->linear.src, t, NULL)
                       : linear_many(p, o, op->linear.n, op->linear.src, t);
}

static cudaError_t head(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    gem_cuda_view v;
    cudaError_t e;
    const bool few = few_rows(p);
    /* no parts: the product finishes the logits itself */
    const bool whole = few && o->w[0]->slabs && be->head_parts == 0;
    const gem_cuda_slab_end end = {.softcap = whole ? o->op->head.softcap : 0};
    /* one row goes to the host as it is made; more would wait for the bus */
    const bool mapped = whole && p->n == 1 && !p->top;
    float *to = mapped ? be->host_logits : be->logits;
    target t = {to, whole ? to : be->head_part, be->ld_logits, &v};
    e = few ? linear_few(p, o, 1, o->op->head.src, &t, &end)
            : linear_many(p, o, 1, o->op->head.src, &t);
    if (!e && !whole)
        e = gem_cuda_head_finish(&be->s, v, p->n, be->plan->n_vocab, o->op->head.softcap,
                                 be->logits, be->ld_logits);
    if (e || mapped) return e;
    if (p->top)
        return gem_cuda_top(&be->s, be->logits, be->ld_logits, p->n, be->plan->n_vocab, be->never,
                            (int32_t)be->plan->n_suppress, be->top_groups, be->host_top);
    return cudaMemcpyAsync(be->host_logits, be->logits,
                           (size_t)p->n * (size_t)be->ld_logits * sizeof(float),
                           cudaMemcpyDeviceToHost, be->s.stream);
}

/* ---- attention ---- */

static gem_cuda_kv kv_of(const gem_backend *be, int layer)
{
    const gem_kv_layer *l = &be->plan->layer[layer];
    int pool = be->opt.layer_pool[layer];
    return (gem_cuda_kv){
        .pool = be->pool[pool],
        .table = be->table + (int64_t)layer * be->max_pages,
        .table_stride = (int64_t)be->plan->n_layers * be->max_pages,
        .n_kv_heads = l->n_kv_heads,
        .head_dim = l->head_dim,
        .window = l->window,
        .f16 = be->opt.pool[pool].f16,
    };
}

static cudaError_t qkv(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    gem_cuda_kv kv = kv_of(be, op->layer);
    gem_cuda_qkv a = {
        .q = p->view[op->qkv.q],
        .k = p->view[op->qkv.k],
        .v = p->view[op->qkv.v],
        .q_out = be->buf[op->qkv.q],
        .ldq = be->ld[op->qkv.q],
        .cs = be->cs[op->qkv.rope],
        .sn = be->sn[op->qkv.rope],
        .half = be->plan->rope[op->qkv.rope].n_dims / 2,
        .n_heads = op->qkv.n_heads,
        .q_stride = op->qkv.q_stride ? op->qkv.q_stride : kv.head_dim,
        .q_norm = o->v[0],
        .k_norm = o->v[1],
        .eps = op->qkv.eps,
        .q_scale = op->qkv.q_scale,
        .v_norm = op->qkv.v_norm,
        .v_from_k = op->qkv.v_from_k,
    };
    p->view[op->qkv.q] = plain(be, op->qkv.q);
    if (p->n == 1 && p->n_wanted == 1 && !be->opt.exact && !be->attend_ref &&
        gem_cuda_mma_head(&be->s, kv.head_dim, kv.f16)) {
        p->raw = a;
        return cudaSuccess;
    }
    return few_rows(p) ? gem_cuda_append(&be->s, &a, &kv, &p->rows, p->n)
                       : gem_cuda_append_many(&be->s, &a, &kv, &p->rows, p->n);
}

static cudaError_t attend(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    gem_cuda_kv kv = kv_of(be, op->layer);
    gem_cuda_queries q = {
        .data = be->buf[op->attend.q],
        .ld = be->ld[op->attend.q],
        .stride = op->attend.q_stride ? op->attend.q_stride : kv.head_dim,
        .n_heads = op->attend.n_heads,
        .gated = op->attend.gated,
        .dst = be->buf[op->attend.dst],
        .ld_dst = be->ld[op->attend.dst],
        .clocks = gem_cuda_phase_clocks(be),
    };
    bool few = p->n <= GEM_CUDA_FEW && !be->attend_ref;
    const gem_cuda_qkv left = p->raw, *raw = left.n_heads ? &left : NULL;
    q.gate = raw ? raw->q : plain(be, op->attend.q);
    p->raw.n_heads = 0;
    if (few && !be->opt.exact && o->joins_next) {
        q.packed = p->packed = be->attended;
        p->source = GEM_CUDA_FROM_PACKED;
    }
    p->view[op->attend.dst] = plain(be, op->attend.dst);
    if (few || be->opt.exact || be->attend_ref || !gem_cuda_flash_head(kv.head_dim))
        return gem_cuda_attend_split(&be->s, &kv, &p->rows, &q, raw, p->n, few, be->partial,
                                     be->turn);
    const int rows = gem_cuda_block_rows(&be->s, kv.head_dim, kv.f16);
    int g = 0;
    while (be->group[g] != q.n_heads / kv.n_kv_heads || be->block_rows[g] != rows ||
           be->global[g] != (kv.window == 0))
        g++;
    const gem_cuda_block *block = be->block + gem_cuda_block_list(be, p->list, g);
    const int32_t n_blocks = be->n_blocks[p->list][g];
    if (gem_cuda_wgmma_rows(&be->s, kv.head_dim, kv.f16))
        return gem_cuda_attend_wgmma(&be->s, &kv, &p->rows, block, n_blocks, &q);
    return be->wide_keys && be->global[g] && gem_cuda_flash128_head(&be->s, kv.head_dim)
               ? gem_cuda_attend_flash128(&be->s, &kv, &p->rows, block, n_blocks, &q)
               : gem_cuda_attend_flash(&be->s, &kv, &p->rows, block, n_blocks, &q);
}

/* ---- recurrent layers ---- */

static cudaError_t conv(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    gem_cuda_recurrent c = gem_cuda_recurrent_of(be, o->recurrent);
    p->conv_src = p->view[op->conv.src];
    if (p->n <= GEM_CUDA_FEW && !be->opt.exact && o->joins_next &&
        gem_cuda_recurrent_few_fits(&be->s, &be->plan->recurrent)) {
        p->conv = o;
        return cudaSuccess;
    }
    p->view[op->conv.dst] = plain(be, op->conv.dst);
    return gem_cuda_conv(&be->s, &c, p->conv_src, o->v[0], op->conv.eps, p->n,
                         be->buf[op->conv.dst], be->ld[op->conv.dst]);
}

static cudaError_t delta(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    gem_cuda_recurrent c = gem_cuda_recurrent_of(be, o->recurrent);
    gem_buf b = op->delta.dst;
    gem_cuda_delta d = {
        .rows = be->buf[op->delta.src],
        .ld = be->ld[op->delta.src],
        .z = p->view[op->delta.z],
        .alpha = p->view[op->delta.alpha],
        .beta = p->view[op->delta.beta],
        .a = o->v[0],
        .dt_bias = o->v[1],
        .norm = o->v[2],
        .eps = op->delta.eps,
        .o = be->buf[b], /* each value is read and written by one thread */
        .ldo = be->ld[b],
        .dst = be->buf[b],
        .ld_dst = be->ld[b],
    };
    p->view[b] = plain(be, b);
    /* a graph serves any number of sequences, other batches know theirs */
    const bool few = p->n <= GEM_CUDA_FEW;
    const int32_t seqs = few ? GEM_MIN(p->n, be->n_seqs) : *be->host_rec;
    const bool all = o != be->op + be->last_append || p->n_wanted == p->n;
    if (p->conv) {
        const gem_cuda_op *conv = p->conv;
        p->conv = NULL;
        if (o->joins_next && all) {
            p->source = GEM_CUDA_FROM_PACKED;
            p->packed = be->attended;
        }
        return gem_cuda_recurrent_few(&be->s, &c, seqs, p->conv_src, conv->v[0], conv->op->conv.eps,
                                      &d, o->joins_next && all ? &be->attended : NULL);
    }
    d.finished_later =
        !few_rows(p) && o->read_once && all && gem_cuda_delta_finish_fits(&be->plan->recurrent);
    cudaError_t e = gem_cuda_delta_rule(&be->s, &c, seqs, p->conv_src, &d, p->n);
    if (e || !d.finished_later) return e;
    p->in_xh = true;
    return gem_cuda_delta_finish_many(&be->s, &be->plan->recurrent, &d, p->n, padded_rows(p),
                                      be->xh, be->scale);
}

/* ---- the op list ---- */

/* After the last append only rows that want logits matter: move them to the front. */
static cudaError_t select_wanted(pass *p, size_t i)
{
    gem_backend *be = p->be;
    const gem_plan *plan = be->plan;
    const gem_op *op = &plan->op[i];
    gem_buf q = op->kind == GEM_OP_DELTA ? op->delta.dst : op->qkv.q, x = -1;
    if (p->n_wanted == p->n) return cudaSuccess;
    if (p->n_wanted == 0) { /* nothing is left to do */
        p->n = 0;
        return cudaSuccess;
    }
    for (size_t j = i + 1; j < plan->n_ops && x < 0; j++)
        if (plan->op[j].kind == GEM_OP_RESIDUAL) x = plan->op[j].residual.x;
    cudaError_t e = gem_cuda_gather(&be->s, be->buf[q], be->ld[q], be->ld[q], p->rows.row_of,
                                    p->n_wanted, be->via);
    if (!e && x >= 0)
        e = gem_cuda_gather(&be->s, be->buf[x], be->ld[x], be->ld[x], p->rows.row_of, p->n_wanted,
                            be->via);
    if (!e)
        e = gem_cuda_gather_ids(&be->s, (int32_t *)p->rows.pos, (int32_t *)p->rows.seq,
                                p->rows.row_of, p->n_wanted);
    p->n = p->n_wanted;
    p->list = 1;
    return e;
}

static cudaError_t residual(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    const gem_buf b = op->residual.dst, x = op->residual.x;
    gem_cuda_sum a = {.x = be->buf[x],
                      .dst = b >= 0 ? be->buf[b] : NULL,
                      .post = o->v[0],
                      .next = o->v[1],
                      .ldx = be->ld[x],
                      .ld = b >= 0 ? be->ld[b] : 0,
                      .d = be->plan->d_model,
                      .src = p->view[op->residual.src],
                      .eps = op->residual.eps,
                      .out_scale = op->residual.out_scale};
    if (b >= 0) p->view[b] = plain(be, b);
    if (!few_rows(p) && o->read_once) {
        p->in_xh = true;
        return gem_cuda_sum_many(&be->s, &a, p->n, padded_rows(p), be->xh, be->scale);
    }
    if (p->n <= GEM_CUDA_FEW && o->joins_next) {
        a.runs = be->summed;
        p->runs = be->summed;
        p->source = GEM_CUDA_FROM_RUNS;
        if (o->read_once && o[1].all_slabs) a.dst = NULL;
    }
    return gem_cuda_residual(&be->s, &a, p->n);
}

static cudaError_t glu(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    const gem_buf b = op->glu.dst;
    const gem_cuda_view gate = p->view[op->glu.gate], up = p->view[op->glu.up];
    if (o > be->op && o[-1].joint && few_rows(p))
        return cudaSuccess; /* done by the product before */
    if (p->joint) {
        const int64_t width = o[-1].w[0]->n_rows;
        const gem_cuda_view both = {
            .data = be->joint, .row_scale = be->scale, .ld = width, .n_parts = 1};
        p->joint = false;
        p->in_xh = true;
        return gem_cuda_glu_many(&be->s, op->glu.act, both, p->half, p->n, padded_rows(p),
                                 width / 2, be->xh, be->scale);
    }
    if (o->joins_next && p->n <= GEM_CUDA_FEW) {
        p->glu = op;
        p->source = GEM_CUDA_FROM_GATED;
        return cudaSuccess;
    }
    p->view[b] = plain(be, b);
    return gem_cuda_glu(&be->s, op->glu.act, gate, up, p->n, be->plan->buf_width[b], be->buf[b],
                        be->ld[b]);
}

static cudaError_t one_op(pass *p, const gem_cuda_op *o)
{
    gem_backend *be = p->be;
    const gem_op *op = o->op;
    int64_t d = be->plan->d_model;
    gem_buf b;
    switch (op->kind) {
    case GEM_OP_EMBED:
        b = op->embed.dst;
        p->view[b] = plain(be, b);
        return gem_cuda_embed(&be->s, o->w[0], p->rows.token, p->n, op->embed.scale, be->buf[b],
                              be->ld[b]);
    case GEM_OP_NORM:
        b = op->norm.dst;
        p->view[b] = plain(be, b);
        return gem_cuda_norm(&be->s, p->view[op->norm.src], o->v[0], p->n, d, op->norm.eps,
                             be->buf[b], be->ld[b]);
    case GEM_OP_LINEAR:
        return linear_op(p, o);
    case GEM_OP_QKV:
        return qkv(p, o);
    case GEM_OP_ATTEND:
        return attend(p, o);
    case GEM_OP_CONV:
        return conv(p, o);
    case GEM_OP_DELTA:
        return delta(p, o);
    case GEM_OP_RESIDUAL:
        return residual(p, o);
    case GEM_OP_GLU:
        return glu(p, o);
    case GEM_OP_HEAD:
        return head(p, o);
    default:
        return cudaErrorNotSupported; /* refused at open */
    }
}

/* The op has no kernel of its own: it was done by the product before it, or waits for what is next.
 */
static bool rides(const pass *p, const gem_cuda_op *o)
{
    if (o->op->kind == GEM_OP_QKV) return p->raw.n_heads > 0;
    if (o->op->kind == GEM_OP_CONV) return p->conv != NULL;
    return o->op->kind == GEM_OP_GLU &&
           ((few_rows(p) && o > p->be->op && o[-1].joint) || p->source == GEM_CUDA_FROM_GATED);
}

static cudaError_t enqueue(gem_backend *be, int32_t n, int32_t n_wanted, bool top)
{
    const gem_plan *plan = be->plan;
    pass p = {.be = be, .n = n, .n_wanted = n_wanted, .top = top};
    cudaError_t e = cudaSuccess;
    p.rows = (gem_cuda_rows){be->ids, be->ids + n, be->ids + 2 * n, be->ids + 3 * n};
    for (int b = 0; b < plan->n_bufs; b++)
        p.view[b] = plain(be, b);
    for (int r = 0; r < plan->n_ropes && !e; r++)
        if (plan->rope[r].n_dims)
            e = gem_cuda_angles(&be->s, p.rows.pos, n, be->freq[r], plan->rope[r].n_dims / 2,
                                be->cs[r], be->sn[r]);
    for (size_t i = 0; i < plan->n_ops && p.n > 0 && !e; i++) {
        e = one_op(&p, &be->op[i]);
        if (!e && i == be->last_append) e = select_wanted(&p, i);
        if (!e && !rides(&p, &be->op[i])) e = gem_cuda_mark_op(be, i);
        if (!e && be->opt.layer_span && i + 1 < plan->n_ops &&
            plan->op[i].layer != plan->op[i + 1].layer)
            e = cudaStreamSynchronize(be->s.stream);
    }
    return e;
}

/* ---- what goes up ---- */

static cudaError_t flush(gem_backend *be, int32_t *n)
{
    cudaError_t e = cudaSuccess;
    if (*n == 0) return e;
    e = cudaMemcpyAsync(be->update, be->host_update, (size_t)*n * sizeof(*be->update),
                        cudaMemcpyHostToDevice, be->s.stream);
    if (!e) e = gem_cuda_scatter(&be->s, be->update, *n, be->table);
    if (!e) e = cudaStreamSynchronize(be->s.stream); /* host_update is filled again */
    *n = 0;
    return e;
}

/* Page numbers that the device does not have yet, of the pages that this batch can see. */
static cudaError_t send_tables(gem_backend *be, const gem_batch *b)
{
    int n_layers = be->plan->n_layers;
    int32_t n = 0;
    cudaError_t e = cudaSuccess;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        int32_t lo = -1, hi = -1;
        for (int32_t r = 0; r < b->n_rows; r++)
            if (b->seq[r] == s) {
                if (lo < 0) lo = b->pos[r];
                hi = b->pos[r];
            }
        for (int l = 0; lo >= 0 && l < n_layers; l++) {
            const gem_kv_layer *layer = &be->plan->layer[l];
            if (be->opt.layer_pool[l] < 0) continue;
            int32_t first = layer->window && lo >= layer->window ? (lo - layer->window + 1) : 0;
            int32_t i = first / GEM_PAGE, last = hi / GEM_PAGE;
            int64_t at = ((int64_t)s * n_layers + l) * be->max_pages;
            const int32_t *want = b->table[(size_t)s * (size_t)n_layers + (size_t)l];
            if (memcmp(be->mirror + at + i, want + i, (size_t)(last - i + 1) * sizeof(*want)) == 0)
                continue;
            for (; i <= last; i++) {
                if (be->mirror[at + i] == want[i]) continue;
                be->mirror[at + i] = want[i];
                be->host_update[n++] = (gem_cuda_update){(int32_t)(at + i), want[i]};
                if (n == GEM_CUDA_MAX_UPDATES && (e = flush(be, &n))) return e;
            }
        }
    }
    if (n == 0) return e;
    e = cudaMemcpyAsync(be->update, be->host_update, (size_t)n * sizeof(*be->update),
                        cudaMemcpyHostToDevice, be->s.stream);
    return e ? e : gem_cuda_scatter(&be->s, be->update, n, be->table);
}

/* Rows of one sequence. */
static int make_blocks(int max_tokens, const int32_t *seq, const int32_t *pos, int32_t n,
                       gem_cuda_block *out)
{
    int count = 0;
    for (int32_t r = 0; r < n;) {
        int32_t end = r + 1;
        while (end < n && end - r < max_tokens && seq[end] == seq[r] && pos[end] > pos[end - 1])
            end++;
        out[count++] = (gem_cuda_block){r, end - r};
        r = end;
    }
    return count;
}

/* For all rows and for the wanted ones, for each kind of attention that the model has. */
static cudaError_t send_blocks(gem_backend *be, const gem_batch *b, int32_t n_wanted)
{
    const int32_t *row_of = be->host_ids + 3 * (size_t)b->n_rows;
    cudaError_t e = cudaSuccess;
    for (int32_t w = 0; w < n_wanted; w++) {
        be->wanted_pos[w] = b->pos[row_of[w]];
        be->wanted_seq[w] = b->seq[row_of[w]];
    }
    for (int g = 0; g < be->n_groups; g++) {
        size_t all = gem_cuda_block_list(be, 0, g), wanted = gem_cuda_block_list(be, 1, g);
        int tokens = be->block_rows[g] / be->group[g];
        if (be->global[g] && be->query_tokens) tokens = GEM_MIN(tokens, be->query_tokens);
        be->n_blocks[0][g] = make_blocks(tokens, b->seq, b->pos, b->n_rows, be->host_block + all);
        be->n_blocks[1][g] =
            make_blocks(tokens, be->wanted_seq, be->wanted_pos, n_wanted, be->host_block + wanted);
        for (int list = 0; list < 2 && !e; list++) {
            size_t at = list ? wanted : all, count = (size_t)be->n_blocks[list][g];
            if (count)
                e = cudaMemcpyAsync(be->block + at, be->host_block + at, count * sizeof(*be->block),
                                    cudaMemcpyHostToDevice, be->s.stream);
        }
    }
    return e;
}

static cudaError_t send_ids(gem_backend *be, const gem_batch *b, int32_t *n_wanted)
{
    int32_t n = b->n_rows, *token = be->host_ids, *pos = token + n, *seq = pos + n,
            *row_of = seq + n;
    cudaError_t e;
    *n_wanted = 0;
    for (int32_t r = 0; r < n; r++) {
        token[r] = b->token[r];
        pos[r] = b->pos[r];
        seq[r] = b->seq[r];
        row_of[r] = 0;
        if (b->want[r]) row_of[(*n_wanted)++] = r;
    }
    e = cudaMemcpyAsync(be->ids, be->host_ids, (size_t)n * 4 * sizeof(int32_t),
                        cudaMemcpyHostToDevice, be->s.stream);
    if (e || n <= GEM_CUDA_FEW) return e;
    return send_blocks(be, b, *n_wanted);
}

/* ---- graphs ---- */

static cudaError_t capture(gem_backend *be, int32_t n, bool top)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t *exec = &be->graph[top][n];
    cudaError_t e = cudaStreamBeginCapture(be->s.stream, cudaStreamCaptureModeThreadLocal), end;
    if (e) return e;
    be->s.pdl = be->launch == GEM_CUDA_LAUNCH_PDL;
    e = enqueue(be, n, n, top);
    be->s.pdl = false;
    end = cudaStreamEndCapture(be->s.stream, &graph);
    if (!e) e = end;
    if (!e) e = cudaGraphInstantiate(exec, graph, 0);
    if (!e) e = cudaGraphUpload(*exec, be->s.stream);
    if (graph) cudaGraphDestroy(graph);
    return e;
}

gem_status gem_cuda_run(gem_backend *be, const gem_batch *b, const float **logits, gem_error *err)
{
    int32_t n = b->n_rows, n_wanted = 0;
    bool top = false;
    cudaError_t e;
    be->n_kept = 0;
    if (n < 1 || n > be->opt.n_batch)
        return gem_fail(err, GEM_E_ARG, "cuda: a batch of %d rows; 1 to %d are possible", n,
                        be->opt.n_batch);
    if ((e = (cudaError_t)atomic_load(&be->image_error)))
        return gem_cuda_fail(err, e, "copying pages or states");
    if (b->n_seqs > be->n_seqs)
        return gem_fail(err, GEM_E_ARG, "cuda: %d sequences in a batch; at most %d are possible",
                        b->n_seqs, be->n_seqs);
    for (int32_t r = 0; r < n; r++) {
        n_wanted += b->want[r] != 0;
        top |= (b->want[r] & GEM_WANT_TOP) != 0;
    }
    if (n_wanted > be->opt.n_logits)
        return gem_fail(err, GEM_E_ARG, "cuda: %d rows want logits; at most %d can", n_wanted,
                        be->opt.n_logits);
    e = cudaSetDevice(be->device_id); /* a session may run on another thread than the last */
    if (e) return gem_cuda_fail(err, e, "choosing the device");
    gem_status st = gem_cuda_recurrent_begin(be, b, err);
    if (st != GEM_OK) return st;
    bool graph = be->launch != GEM_CUDA_LAUNCH_STREAM && n <= GEM_CUDA_FEW && n_wanted == n &&
                 !gem_cuda_traces_ops(be) && !be->opt.layer_span;
    e = send_tables(be, b);
    if (!e) e = send_ids(be, b, &n_wanted);
    gem_cuda_mark_prepared(be);
    if (!e && graph && !be->graph[top][n]) e = capture(be, n, top);
    if (!e) e = gem_cuda_mark_begin(be);
    if (!e)
        e = graph ? cudaGraphLaunch(be->graph[top][n], be->s.stream)
                  : enqueue(be, n, n_wanted, top);
    if (!e && top) e = gem_cuda_bring_wanted(be, b);
    if (!e) e = gem_cuda_mark_end(be);
    if (!e) e = cudaStreamSynchronize(be->s.stream);
    if (e) return gem_cuda_fail(err, e, "running a batch");
    gem_cuda_mark_done(be);
    be->n_kept = top ? n_wanted : 0;
    gem_cuda_hand_out(be, b, logits);
    return GEM_OK;
}
