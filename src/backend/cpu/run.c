/* run.c - the hot path: one forward pass of a batch as one parallel region. Every thread walks the
 * op list; an op shares its work over the threads and ends at a barrier. */
#include "backend/cpu/angles.h"
#include "backend/cpu/cpu.h"

#include <math.h>

typedef struct pass { /* what one thread knows of the region */
    gem_backend *be;
    int tid;
    int32_t n; /* rows alive: all, or after the last append the wanted ones */
    cpu_ahead ahead;
    bool phases; /* attention is timed in its parts */
} pass;

/* Everyone has come; a thread that waits brings the next weights nearer meanwhile. */
static void barrier(pass *p)
{
    gem_team_barrier_idle(p->be->team, gem_cpu_fetch_ahead, &p->ahead);
}

/* ---- row-wise ops ---- */

/* Columns of a row were written; the last ones complete it. */
static void filled(const gem_backend *be, gem_buf b, int64_t r, int64_t end)
{
    if (end == be->plan->buf_width[b]) gem_cpu_quantize(be, b, r, 0, end);
}

static void embed(const pass *p, const gem_op *op)
{
    const gem_tensor *t = op->embed.w;
    int64_t lo, hi, d = (int64_t)t->dim[0];
    gem_share(p->n, p->be->n_threads, p->tid, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        float *x = gem_cpu_row(p->be, op->embed.dst, r) + op->embed.at;
        gem_dequantize_row(t->dtype, t->data + (size_t)p->be->batch->token[r] * t->row_bytes, x,
                           (size_t)d);
        for (int64_t i = 0; i < d; i++)
            x[i] = x[i] * op->embed.scale;
        filled(p->be, op->embed.dst, r, op->embed.at + d);
    }
}

static void angles(const pass *p)
{
    gem_backend *be = p->be;
    for (int k = 0; k < be->plan->n_ropes; k++) {
        int64_t lo, hi, half = be->plan->rope[k].n_dims / 2;
        gem_share(p->n * half, be->n_threads, p->tid, &lo, &hi);
        for (int64_t i = lo; i < hi; i++)
            gem_sincos((double)be->pos[i / half] * be->freq[k][i % half], &be->sin[k][i],
                       &be->cos[k][i]);
    }
}

static void input(const pass *p, const gem_op *op)
{
    int64_t lo, hi, d = p->be->plan->d_model;
    gem_share(p->n, p->be->n_threads, p->tid, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        memcpy(gem_cpu_row(p->be, op->input.dst, r) + op->input.at, p->be->batch->input + r * d,
               (size_t)d * sizeof(float));
        filled(p->be, op->input.dst, r, op->input.at + d);
    }
}

static void norm(const pass *p, const gem_op *op)
{
    int64_t lo, hi, d = p->be->plan->buf_width[op->norm.src];
    gem_share(p->n, p->be->n_threads, p->tid, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        p->be->k.norm(gem_cpu_row(p->be, op->norm.src, r), op->norm.w, d, op->norm.eps,
                      gem_cpu_row(p->be, op->norm.dst, r) + op->norm.at);
        filled(p->be, op->norm.dst, r, op->norm.at + d);
    }
}

static void residual(const pass *p, const gem_op *op)
{
    const gem_cpu_kernels *k = &p->be->k;
    int64_t lo, hi, d = p->be->plan->buf_width[op->residual.x];
    gem_share(p->n, p->be->n_threads, p->tid, &lo, &hi);
    for (int64_t r = lo; r < hi; r++) {
        float *x = gem_cpu_row(p->be, op->residual.x, r),
              *t = gem_cpu_row(p->be, op->residual.src, r);
        if (op->residual.post_norm) k->norm(t, op->residual.post_norm, d, op->residual.eps, t);
        k->add(x, t, d, op->residual.out_scale);
        if (!op->residual.next_norm) continue;
        k->norm(x, op->residual.next_norm, d, op->residual.eps,
                gem_cpu_row(p->be, op->residual.dst, r));
        gem_cpu_quantize(p->be, op->residual.dst, r, 0, d);
    }
}

/* Split by columns as well, so that a single row keeps every thread busy. */
static void glu(const pass *p, const gem_op *op)
{
    const gem_backend *be = p->be;
    int64_t width = be->plan->buf_width[op->glu.dst], step = p->n < 4 * be->n_threads ? 512 : width;
    int64_t parts = (width + step - 1) / step, lo, hi;
    gem_share(p->n * parts, be->n_threads, p->tid, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int64_t r = i / parts, at = i % parts * step, n = GEM_MIN(step, width - at);
        float *dst = gem_cpu_row(be, op->glu.dst, r) + at;
        be->k.glu(op->glu.act, gem_cpu_row(be, op->glu.gate, r) + at,
                  gem_cpu_row(be, op->glu.up, r) + at, n, dst);
        gem_cpu_quantize(be, op->glu.dst, r, at, n);
    }
}

/* ---- attention ---- */

static uint8_t *page_part(const gem_backend *be, int layer, int32_t page, int head)
{
    int pool = be->opt.layer_pool[layer];
    const gem_kv_pool *kp = &be->opt.pool[pool];
    if (page < 0) return NULL;
    return be->pool[pool] + (size_t)page * be->page_bytes[pool] +
           (size_t)head * gem_cpu_part_bytes(kp);
}

static const int32_t *table_of(const gem_backend *be, int32_t seq, int layer)
{
    return be->batch->table[(size_t)seq * (size_t)be->plan->n_layers + (size_t)layer];
}

static size_t q_stride(int stride, int head_dim)
{
    return (size_t)(stride ? stride : head_dim);
}

/* One item is one head of one row: query heads first, then key heads with their values, if any. */
static void qkv(const pass *p, const gem_op *op)
{
    gem_backend *be = p->be;
    const gem_kv_layer *l = &be->plan->layer[op->layer];
    const gem_kv_pool *pool = &be->opt.pool[be->opt.layer_pool[op->layer]];
    int hd = l->head_dim, heads = op->qkv.n_heads;
    int all = op->qkv.k < 0 ? heads : heads + l->n_kv_heads;
    int half = be->plan->rope[op->qkv.rope].n_dims / 2;
    int64_t lo, hi;
    gem_share((int64_t)p->n * all, be->n_threads, p->tid, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int64_t r = i / all;
        int h = (int)(i % all), kvh = h - heads;
        const float *cs = be->cos[op->qkv.rope] + r * half, *sn = be->sin[op->qkv.rope] + r * half;
        float *x = kvh < 0
                       ? gem_cpu_row(be, op->qkv.q, r) + (size_t)h * q_stride(op->qkv.q_stride, hd)
                       : gem_cpu_row(be, op->qkv.k, r) + (size_t)kvh * (size_t)hd;
        const float *w = kvh < 0 ? op->qkv.q_norm : op->qkv.k_norm;
        float *v = kvh < 0 ? NULL : gem_cpu_row(be, op->qkv.v, r) + (size_t)kvh * (size_t)hd;
        if (v && op->qkv.v_norm)
            be->k.norm(op->qkv.v_from_k ? x : v, NULL, hd, op->qkv.eps, v);
        else if (v && op->qkv.v_from_k)
            memcpy(v, x, (size_t)hd * sizeof(*v));
        if (w) be->k.norm(x, w, hd, op->qkv.eps, x);
        be->k.rope(x, cs, sn, half, hd, kvh < 0 ? op->qkv.q_scale : 1.0f);
        if (kvh < 0) continue;
        int32_t page = table_of(be, be->seq[r], op->layer)[be->pos[r] / GEM_PAGE];
        uint8_t *part = page_part(be, op->layer, page, kvh);
        if (pool->values_only)
            gem_cpu_append_value(part, hd, be->pos[r] % GEM_PAGE, v);
        else
            be->k.append(part, hd, pool->f16, be->pos[r] % GEM_PAGE, x, v);
    }
}

/* The last position that a row sees, and how many it sees at most (0: all). */
static int32_t seen_to(const gem_backend *be, const gem_op *op, int64_t r)
{
    return be->pos[r] - op->attend.earlier;
}

static int32_t seen_window(const gem_op *op, const gem_kv_layer *l)
{
    return l->window ? l->window - op->attend.earlier : 0;
}

/* Rows of one block and KV head against one chunk of keys. */
static void attend_chunk(const pass *p, const gem_op *op, cpu_block b, int kvh, int32_t chunk,
                         float *m, float *s, float *o)
{
    gem_backend *be = p->be;
    const gem_kv_layer *l = &be->plan->layer[op->layer];
    const int group = op->attend.n_heads / l->n_kv_heads;
    const float *q[GEM_ATTEND_ROWS];
    int32_t pos[GEM_ATTEND_ROWS];
    const uint8_t *page[GEM_CHUNK / GEM_PAGE], *value[GEM_CHUNK / GEM_PAGE];
    const gem_kv_pool *pool = &be->opt.pool[be->opt.layer_pool[op->layer]];
    const int32_t *table = table_of(be, be->seq[b.row], op->layer);
    int32_t last_pos = seen_to(be, op, b.row + b.n_tokens - 1), last = last_pos / GEM_PAGE;
    for (int i = 0; i < GEM_CHUNK / GEM_PAGE; i++) {
        int32_t at = chunk * (GEM_CHUNK / GEM_PAGE) + i;
        page[i] = value[i] = at <= last ? page_part(be, op->layer, table[at], kvh) : NULL;
        if (pool->values_only && value[i])
            page[i] =
                gem_cpu_make_keys(be, p->tid, op->layer, value[i], at * GEM_PAGE, last_pos, i);
    }
    for (int t = 0; t < b.n_tokens; t++)
        for (int g = 0; g < group; g++) {
            q[t * group + g] =
                gem_cpu_row(be, op->attend.q, b.row + t) +
                (size_t)(kvh * group + g) * q_stride(op->attend.q_stride, l->head_dim);
            pos[t * group + g] = seen_to(be, op, b.row + t);
        }
    gem_attend_args a = {
        .head_dim = l->head_dim,
        .f16 = pool->f16,
        .n = b.n_tokens * group,
        .q = q,
        .pos = pos,
        .window = seen_window(op, l),
        .chunk = chunk * GEM_CHUNK,
        .page = page,
        .value = pool->values_only ? value : NULL,
        .m = m,
        .s = s,
        .o = o,
        .scratch = be->scratch[p->tid].attend,
        .phase_ns = p->phases ? be->scratch[p->tid].phase_ns : NULL,
    };
    be->k.attend(&a);
}

static void chunks_of(const gem_backend *be, const gem_op *op, cpu_block b, int32_t *first,
                      int32_t *last)
{
    int32_t window = seen_window(op, &be->plan->layer[op->layer]);
    int32_t from = window ? GEM_MAX(0, seen_to(be, op, b.row) - window + 1) : 0;
    *first = from / GEM_CHUNK;
    *last = seen_to(be, op, b.row + b.n_tokens - 1) / GEM_CHUNK;
}

static void finish_row(const pass *p, const gem_op *op, int64_t r, int head, const float *o,
                       float s)
{
    int hd = p->be->plan->layer[op->layer].head_dim;
    float *dst = gem_cpu_row(p->be, op->attend.dst, r) + (size_t)head * (size_t)hd;
    p->be->k.attend_finish(o, s, hd, dst);
    if (!op->attend.gated) return;
    const float *q =
        gem_cpu_row(p->be, op->attend.q, r) + (size_t)head * q_stride(op->attend.q_stride, hd);
    p->be->k.sigmoid_gate(dst, q + hd, hd);
}

/* A piece of attention that this thread did: of it, scores and normalisation are told apart. */
static void busy_end(const pass *p, uint64_t stamp)
{
    if (p->phases) p->be->scratch[p->tid].phase_ns[2] += gem_now_ns() - stamp;
}

/* Chunks one after the other, folded in ascending order. */
static void attend_block(const pass *p, const gem_op *op, cpu_block b, int kvh)
{
    gem_backend *be = p->be;
    const gem_kv_layer *l = &be->plan->layer[op->layer];
    const int group = op->attend.n_heads / l->n_kv_heads, n = b.n_tokens * group;
    const size_t hd = (size_t)l->head_dim;
    float m[GEM_ATTEND_ROWS], s[GEM_ATTEND_ROWS] = {0}, m2[GEM_ATTEND_ROWS], s2[GEM_ATTEND_ROWS];
    float *total = be->scratch[p->tid].total, *part = be->scratch[p->tid].o;
    uint64_t stamp = p->phases ? gem_now_ns() : 0;
    int32_t first, last;
    chunks_of(be, op, b, &first, &last);
    for (int32_t c = first; c <= last; c++) {
        if (c == first) {
            attend_chunk(p, op, b, kvh, c, m, s, total);
            continue;
        }
        attend_chunk(p, op, b, kvh, c, m2, s2, part);
        for (int i = 0; i < n; i++) {
            if (s2[i] == 0.0f) continue;
            if (s[i] == 0.0f) {
                m[i] = m2[i];
                s[i] = s2[i];
                memcpy(total + (size_t)i * hd, part + (size_t)i * hd, hd * sizeof(float));
            } else {
                be->k.attend_merge(&m[i], &s[i], total + (size_t)i * hd, m2[i], s2[i],
                                   part + (size_t)i * hd, l->head_dim);
            }
        }
    }
    for (int i = 0; i < n; i++)
        finish_row(p, op, b.row + i / group, kvh * group + i % group, total + (size_t)i * hd, s[i]);
    busy_end(p, stamp);
}

/* Blocks of rows of one sequence, in batch order. */
static int make_blocks(gem_backend *be, int32_t n, int max_tokens, cpu_block *out)
{
    int count = 0;
    for (int32_t r = 0; r < n;) {
        int32_t end = r + 1;
        while (end < n && end - r < max_tokens && be->seq[end] == be->seq[r] &&
               be->pos[end] > be->pos[end - 1])
            end++;
        out[count++] = (cpu_block){r, end - r};
        r = end;
    }
    return count;
}

/* A few rows over many keys: chunks are items of their own, folded after a barrier. */
static void attend_split(pass *p, const gem_op *op)
{
    gem_backend *be = p->be;
    const gem_kv_layer *l = &be->plan->layer[op->layer];
    const int group = op->attend.n_heads / l->n_kv_heads;
    const size_t hd = (size_t)l->head_dim, slot = (hd + 2) * (size_t)group;
    int64_t items = 0, lo, hi, at = 0;
    uint64_t stamp = p->phases ? gem_now_ns() : 0;
    int32_t first, last;
    for (int32_t r = 0; r < p->n; r++) {
        chunks_of(be, op, (cpu_block){r, 1}, &first, &last);
        items += (int64_t)(last - first + 1) * l->n_kv_heads;
    }
    gem_share(items, be->n_threads, p->tid, &lo, &hi);
    for (int32_t r = 0; r < p->n; r++) {
        chunks_of(be, op, (cpu_block){r, 1}, &first, &last);
        for (int h = 0; h < l->n_kv_heads; h++)
            for (int32_t c = first; c <= last; c++, at++) {
                if (at < lo || at >= hi) continue;
                float *out = be->partial + (size_t)at * slot;
                attend_chunk(p, op, (cpu_block){r, 1}, h, c, out, out + group, out + 2 * group);
            }
    }
    busy_end(p, stamp);
    barrier(p);
    stamp = p->phases ? gem_now_ns() : 0;
    gem_share((int64_t)p->n * op->attend.n_heads, be->n_threads, p->tid, &lo, &hi);
    at = 0;
    for (int32_t r = 0; r < p->n; r++) {
        chunks_of(be, op, (cpu_block){r, 1}, &first, &last);
        for (int h = 0; h < op->attend.n_heads; h++) {
            int g = h % group;
            int64_t me = (int64_t)r * op->attend.n_heads + h,
                    from = at + (int64_t)(h / group) * (last - first + 1);
            if (me < lo || me >= hi) continue;
            float *t =
                be->partial + (size_t)from * slot; /* this head's own part is the accumulator */
            float *m = t + g, *s = t + group + g, *o = t + 2 * group + (size_t)g * hd;
            for (int32_t c = first + 1; c <= last; c++) {
                const float *u = be->partial + (size_t)(from + c - first) * slot;
                float s2 = u[group + g];
                const float *o2 = u + 2 * group + (size_t)g * hd;
                if (s2 == 0.0f) continue;
                if (*s == 0.0f) {
                    *m = u[g];
                    *s = s2;
                    memcpy(o, o2, hd * sizeof(float));
                } else {
                    be->k.attend_merge(m, s, o, u[g], s2, o2, l->head_dim);
                }
            }
            finish_row(p, op, r, h, o, *s);
        }
        at += (int64_t)(last - first + 1) * l->n_kv_heads;
    }
    busy_end(p, stamp);
}

/* One row in decode, where a KV head is one thread's from its keys to the quantised result, so that
 * nobody waits in between. False: its keys are better shared out. */
static bool attend_row(const pass *p, const gem_op *op)
{
    gem_backend *be = p->be;
    const gem_kv_layer *l = &be->plan->layer[op->layer];
    const int64_t width = (int64_t)op->attend.n_heads / l->n_kv_heads * l->head_dim;
    const cpu_block b = {0, 1};
    int32_t first, last;
    if (p->n != 1 || width % GEM_QBLOCK != 0) return false;
    chunks_of(be, op, b, &first, &last);
    if (first < last && l->n_kv_heads < be->n_threads) return false;
    int64_t lo, hi;
    gem_share(l->n_kv_heads, be->n_threads, p->tid, &lo, &hi);
    for (int64_t h = lo; h < hi; h++) {
        attend_block(p, op, b, (int)h);
        gem_cpu_quantize(be, op->attend.dst, 0, h * width, width);
    }
    return true;
}

static void attend(pass *p, const gem_op *op, gem_range *range)
{
    if (attend_row(p, op)) return;
    gem_backend *be = p->be;
    const gem_kv_layer *l = &be->plan->layer[op->layer];
    const int group = op->attend.n_heads / l->n_kv_heads;
    if (p->n <= 2 && be->n_threads > 1 && (int64_t)p->n * l->n_kv_heads < be->n_threads) {
        attend_split(p, op);
    } else {
        int max_tokens = GEM_MAX(1, GEM_ATTEND_ROWS / group);
        if (be->query_rows) max_tokens = GEM_MIN(max_tokens, be->query_rows);
        if (p->n < max_tokens * be->n_threads) max_tokens = GEM_MAX(1, (int)(p->n / be->n_threads));
        int64_t lo, hi;
        int victim = p->tid;
        if (p->tid == 0) {
            be->n_blocks = make_blocks(be, p->n, max_tokens, be->block);
            gem_ranges_set(range, be->n_threads, (int64_t)be->n_blocks * l->n_kv_heads);
        }
        barrier(p);
        while ((hi = gem_range_take(range, be->n_threads, p->tid, &victim, 1, &lo)) > lo)
            for (int64_t i = lo; i < hi; i++)
                attend_block(p, op, be->block[i % be->n_blocks], (int)(i / be->n_blocks));
    }
    if (!be->quantized[op->attend.dst]) return;
    barrier(p);
    int64_t lo, hi, width = (int64_t)op->attend.n_heads * l->head_dim;
    gem_share(p->n, be->n_threads, p->tid, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        gem_cpu_quantize(be, op->attend.dst, r, 0, width);
}

/* ---- the pass ---- */

static void move_row(const gem_backend *be, gem_buf b, int32_t to, int32_t from)
{
    memmove(gem_cpu_row(be, b, to), gem_cpu_row(be, b, from), be->ld[b] * sizeof(float));
    if (!be->quantized[b]) return;
    gem_qrows x = gem_qrows_at(&be->qbuf[b], (size_t)to);
    gem_qrows y = gem_qrows_at(&be->qbuf[b], (size_t)from);
    memmove(x.q, y.q, x.ld);
    memmove(x.xs, y.xs, x.ld / 32 * sizeof(*x.xs));
    memmove(x.xsum, y.xsum, x.ld / 32 * sizeof(*x.xsum));
    memmove(x.nsum, y.nsum, x.ld / 32 * sizeof(*x.nsum));
    memmove(x.nsum16, y.nsum16, x.ld / 16 * sizeof(*x.nsum16));
}

/* After the last append only rows that want logits matter: move them to the front. Alive are the
 * residual and what the next op reads: the queries, or what the delta rule gave. */
static void select_wanted(pass *p, size_t i)
{
    gem_backend *be = p->be;
    const gem_op *op = &be->plan->op[i];
    if (p->tid == 0 && be->n_wanted < p->n) {
        gem_buf alive = op->kind == GEM_OP_DELTA ? op->delta.dst : op->qkv.q, x = -1;
        for (size_t j = i + 1; j < be->end_op && x < 0; j++)
            if (be->plan->op[j].kind == GEM_OP_RESIDUAL) x = be->plan->op[j].residual.x;
        for (int32_t w = 0; w < be->n_wanted; w++) {
            int32_t r = be->row_of[w];
            be->pos[w] = be->pos[r];
            be->seq[w] = be->seq[r];
            move_row(be, alive, w, r);
            if (x >= 0) move_row(be, x, w, r);
        }
    }
    p->n = be->n_wanted;
    gem_team_barrier(be->team);
}

/* Hidden vectors of the rows that want them are kept apart, then only rows with logits matter. */
static void keep_hidden(pass *p, const gem_op *op)
{
    gem_backend *be = p->be;
    size_t d = (size_t)be->plan->d_model;
    for (int32_t w = 0, k = 0, l = 0; p->tid == 0 && w < be->n_wanted; w++) {
        uint8_t want = be->batch->want[be->row_of[w]];
        if (want & GEM_WANT_HIDDEN) {
            be->batch->hidden[k] = be->hidden + (size_t)k * d;
            memcpy(be->hidden + (size_t)k++ * d, gem_cpu_row(be, op->head.hidden, w),
                   d * sizeof(float));
        }
        if (!(want & GEM_WANT_LOGITS)) continue;
        if (l < w) move_row(be, op->head.src, l, w);
        l++;
    }
    p->n = be->n_logits;
    gem_team_barrier(be->team);
}

static void head_finish(const pass *p, const gem_op *op)
{
    gem_backend *be = p->be;
    const gem_plan *plan = be->plan;
    int64_t lo, hi, n = plan->n_vocab, per_row = 16;
    if (op->head.softcap > 0) {
        int64_t step = (int64_t)gem_round_up((uint64_t)(n + per_row - 1) / (uint64_t)per_row, 32);
        gem_share((int64_t)p->n * per_row, be->n_threads, p->tid, &lo, &hi);
        for (int64_t i = lo; i < hi; i++) {
            int64_t at = i % per_row * step;
            if (at < n)
                be->k.softcap(be->logits + (size_t)(i / per_row) * be->ld_logits + at,
                              GEM_MIN(step, n - at), op->head.softcap);
        }
        gem_team_barrier(be->team);
    }
    if (p->tid != 0) return;
    for (int32_t r = 0; r < p->n; r++)
        for (size_t i = 0; i < plan->n_suppress; i++)
            if (plan->suppress[i] >= 0 && plan->suppress[i] < n)
                be->logits[(size_t)r * be->ld_logits + (size_t)plan->suppress[i]] = -INFINITY;
}

static void region(void *ctx, int tid)
{
    gem_backend *be = ctx;
    const gem_plan *plan = be->plan;
    pass p = {.be = be, .tid = tid, .n = be->alive};
    uint64_t stamp = be->trace ? gem_now_ns() : 0;
    p.phases = be->trace && be->trace->op_ns && be->trace->attend_phases;
    gem_cpu_ahead_of(&p.ahead, be, tid, be->span_op);
    if (be->span_op == be->first_op) angles(&p);
    for (size_t i = be->span_op; i < be->span_end && p.n > 0; i++) {
        const cpu_op *o = &be->op[i];
        const gem_op *op = o->op;
        switch (op->kind) {
        case GEM_OP_EMBED:
            embed(&p, op);
            break;
        case GEM_OP_INPUT:
            input(&p, op);
            break;
        case GEM_OP_NORM:
            norm(&p, op);
            break;
        case GEM_OP_LINEAR:
            gem_cpu_linear(be, tid, p.n, o, op->linear.src, op->linear.dst, NULL);
            gem_cpu_ahead_of(&p.ahead, be, tid, i + 1);
            break;
        case GEM_OP_QKV:
            qkv(&p, op);
            break;
        case GEM_OP_ATTEND:
            attend(&p, op, o->range);
            break;
        case GEM_OP_CONV:
            gem_cpu_conv(be, tid, o);
            break;
        case GEM_OP_DELTA:
            gem_cpu_delta(be, tid, o);
            break;
        case GEM_OP_RESIDUAL:
            residual(&p, op);
            break;
        case GEM_OP_GLU:
            glu(&p, op);
            break;
        case GEM_OP_HEAD:
            if (plan->draft_op) keep_hidden(&p, op);
            p.ahead.left = 0;
            if (p.n == 0) break;
            gem_cpu_linear(be, tid, p.n, o, op->head.src, NULL, be->logits);
            gem_team_barrier(be->team);
            head_finish(&p, op);
            break;
        }
        barrier(&p);
        if (i == be->last_append) select_wanted(&p, i);
        if (tid == 0 && be->trace) gem_cpu_trace_op(be, i, &stamp);
    }
    if (tid == 0 && be->alive != p.n)
        be->alive = p.n; /* all have passed a barrier since the start */
}

/* The ops of one submission, from span_op on. */
static size_t span_end(const gem_backend *be)
{
    const gem_op *op = be->plan->op;
    size_t i = be->span_op + 1;
    if (!be->opt.layer_span) return be->end_op;
    while (i < be->end_op && op[i].layer == op[be->span_op].layer)
        i++;
    return i;
}

/* Which ops run: the model's, or its drafter's. */
static void choose_program(gem_backend *be, const gem_batch *b)
{
    const gem_plan *plan = be->plan;
    be->first_op = b->draft ? plan->draft_op : 0;
    be->end_op = b->draft || !plan->draft_op ? plan->n_ops : plan->draft_op;
    for (size_t i = be->first_op; i < be->end_op; i++)
        if (plan->op[i].kind == GEM_OP_QKV || plan->op[i].kind == GEM_OP_DELTA) be->last_append = i;
}

gem_status gem_cpu_run(gem_backend *be, const gem_batch *b, const float **logits, gem_error *err)
{
    if (b->n_rows < 1 || b->n_rows > be->opt.n_batch)
        return gem_fail(err, GEM_E_ARG, "cpu: a batch of %d rows; 1 to %d are possible", b->n_rows,
                        be->opt.n_batch);
    if (b->draft && (!be->plan->draft_op || !b->input))
        return gem_fail(err, GEM_E_ARG, "cpu: a batch for a drafter that the plan does not have");
    be->batch = b;
    be->n_wanted = be->n_logits = 0;
    gem_cpu_key_angles(be, b);
    choose_program(be, b);
    for (int32_t r = 0; r < b->n_rows; r++) {
        be->pos[r] = b->pos[r];
        be->seq[r] = b->seq[r];
        if (b->want[r]) be->row_of[be->n_wanted++] = r;
        be->n_logits += b->want[r] & GEM_WANT_LOGITS;
    }
    if (be->n_logits > be->opt.n_logits)
        return gem_fail(err, GEM_E_ARG, "cpu: %d rows want logits; at most %d can", be->n_logits,
                        be->opt.n_logits);
    gem_status st = b->draft ? GEM_OK : gem_cpu_recurrent_begin(be, err);
    if (st != GEM_OK) return st;
    for (size_t i = be->first_op; i < be->end_op; i++) {
        const cpu_op *o = &be->op[i];
        if (o->n_panels)
            gem_ranges_set(o->range, be->n_threads,
                           gem_cpu_linear_items(be, o, gem_cpu_rows_of(be, i)));
    }
    uint64_t stamp = be->trace ? gem_now_ns() : 0;
    if (be->trace) be->trace->prepare_ns += stamp - be->trace->end_ns;
    be->alive = b->n_rows;
    for (be->span_op = be->first_op; be->span_op < be->end_op; be->span_op = be->span_end) {
        be->span_end = span_end(be);
        gem_team_run(be->team, region, be);
    }
    if (be->trace) gem_phase_end(&be->trace->wait_ns, &stamp);
    for (int32_t w = 0; w < be->n_logits; w++)
        logits[w] = be->logits + (size_t)w * be->ld_logits;
    return GEM_OK;
}
