/* linear.c - the LINEAR and HEAD ops of the forward pass: panels shared out over the threads, and
 * weights fetched ahead by threads that wait. */
#include "backend/cpu/cpu.h"

/* Panel p of a weight: packed at load, or made now in this thread's scratch. */
static const uint8_t *panel_of(const gem_backend *be, int tid, const cpu_weight *w, int64_t panel)
{
    const cpu_scratch *s = &be->scratch[tid];
    const gem_tensor *t = w->tensor;
    if (w->panels) return w->panels + (size_t)panel * w->panel_bytes;
    if (!be->opt.exact) {
        gem_panel_pack(w->type, t->data, t->row_bytes, w->n_rows, panel * GEM_PANEL_ROWS, w->k,
                       s->panel);
        return s->panel;
    }
    float *out = (float *)s->panel;
    for (int64_t r = 0; r < GEM_PANEL_ROWS; r++) {
        int64_t at = panel * GEM_PANEL_ROWS + r;
        if (at < w->n_rows)
            gem_dequantize_row(t->dtype, t->data + (size_t)at * t->row_bytes, s->row, (size_t)w->k);
        else
            memset(s->row, 0, (size_t)w->k * sizeof(float));
        for (int64_t i = 0; i < w->k; i++)
            out[16 * i + r] = s->row[i];
    }
    return s->panel;
}

/* One token reads GEM_PANEL_STREAMS panels side by side, a quarter of the weight apart. */
static bool streams(const gem_backend *be, const cpu_weight *w, int32_t n)
{
    return n == 1 && w->panels && be->k.linear4[w->type];
}

/* What the threads share out of one weight: panels, or groups of streams and the panels left over.
 */
static int64_t items_of(const gem_backend *be, const cpu_weight *w, int32_t n)
{
    if (!streams(be, w, n)) return w->n_panels;
    return w->n_panels / GEM_PANEL_STREAMS + w->n_panels % GEM_PANEL_STREAMS;
}

/* Rows are cut into parts only when there are too few panels to keep the threads busy. */
static int64_t token_parts(const gem_backend *be, int64_t n_panels, int32_t n)
{
    int64_t parts = 1;
    while (n_panels * parts < 4 * be->n_threads && n / (parts * 2) >= 16)
        parts *= 2;
    return parts;
}

int64_t gem_cpu_linear_items(const gem_backend *be, const cpu_op *o, int32_t n)
{
    int64_t items = 0;
    for (int i = 0; i < GEM_LINEAR_MAX && o->w[i]; i++)
        items += items_of(be, o->w[i], n);
    return items * token_parts(be, o->n_panels, n);
}

int32_t gem_cpu_rows_of(const gem_backend *be, size_t i)
{
    if (i <= be->last_append) return be->batch->n_rows;
    return be->op[i].op->kind == GEM_OP_HEAD ? be->n_logits : be->n_wanted;
}

/* Where an item lies: `count` panels of weight i, `apart` from one to the next. */
typedef struct place {
    int i, count;
    int64_t panel, apart;
} place;

static place place_of(const gem_backend *be, const cpu_op *o, int64_t item, int32_t n_rows)
{
    place p = {0, 1, item, 0};
    int64_t n;
    while (p.panel >= (n = items_of(be, o->w[p.i], n_rows)))
        p.panel -= n, p.i++;
    if (!streams(be, o->w[p.i], n_rows)) return p;
    int64_t apart = o->w[p.i]->n_panels / GEM_PANEL_STREAMS;
    if (p.panel < apart) {
        p.count = GEM_PANEL_STREAMS;
        p.apart = apart;
    } else {
        p.panel += (GEM_PANEL_STREAMS - 1) * apart;
    }
    return p;
}

/* Rows [r0, r1) against the panels of one item. */
static void panels(const gem_backend *be, int tid, const cpu_op *o, place at, int64_t r0,
                   int64_t r1, gem_buf src, float *y, size_t ldy)
{
    const cpu_weight *w = o->w[at.i];
    float side[GEM_PANEL_STREAMS * GEM_PANEL_ROWS];
    gem_panel_args a = {
        .panel = panel_of(be, tid, w, at.panel),
        .k = w->k,
        .xf = gem_cpu_row(be, src, r0),
        .ldx = be->ld[src],
        .n = (int)(r1 - r0),
        .y = at.count > 1 ? side : y + at.panel * GEM_PANEL_ROWS,
        .ldy = ldy,
        .scratch = be->scratch[tid].unpack,
        .panel_bytes = (size_t)at.apart * w->panel_bytes,
    };
    if (be->quantized[src]) a.x = gem_qrows_at(&be->qbuf[src], (size_t)r0);
    if (at.count > 1) /* the lines that it will write, so that stores do not wait for memory */
        for (int s = 0; s < at.count; s++)
            __builtin_prefetch(y + (at.panel + s * at.apart) * GEM_PANEL_ROWS, 1);
    (at.count > 1 ? be->k.linear4 : be->k.linear)[w->type](&a);
    for (int s = 0; s < at.count; s++) {
        float *out = y + (at.panel + s * at.apart) * GEM_PANEL_ROWS;
        if (at.count > 1) memcpy(out, side + s * GEM_PANEL_ROWS, GEM_PANEL_ROWS * sizeof(float));
        if (!o->bias[at.i]) continue;
        const float *bias = o->bias[at.i] + (at.panel + s * at.apart) * GEM_PANEL_ROWS;
        for (int c = 0; c < a.n; c++)
            for (int j = 0; j < GEM_PANEL_ROWS; j++)
                out[(size_t)c * ldy + (size_t)j] += bias[j];
    }
}

void gem_cpu_linear(const gem_backend *be, int tid, int32_t n_rows, const cpu_op *o, gem_buf src,
                    const gem_buf *dst, float *logits)
{
    int64_t parts = token_parts(be, o->n_panels, n_rows), lo, hi;
    int64_t chunk = n_rows > 8 ? 1 : o->n_panels >= 4096 ? 4 : 1;
    int victim = tid;
    while ((hi = gem_range_take(o->range, be->n_threads, tid, &victim, chunk, &lo)) > lo) {
        for (int64_t item = lo; item < hi; item++) {
            int64_t part = parts == 1 ? 0 : item % parts;
            place at = place_of(be, o, parts == 1 ? item : item / parts, n_rows);
            int64_t r0 = n_rows * part / parts, r1 = n_rows * (part + 1) / parts;
            size_t ldy = logits ? be->ld_logits : be->ld[dst[at.i]];
            float *y = logits ? logits + (size_t)r0 * ldy : gem_cpu_row(be, dst[at.i], r0);
            panels(be, tid, o, at, r0, r1, src, y, ldy);
        }
    }
}

/* ---- ahead of time ---- */

/* Weights do not depend on activations, so a thread that waits for the others loses no memory time
 * if it fetches what it will read next: the first items of its own range of the next LINEAR op, as
 * far as they stay in L2 beside the rest. */
enum { AHEAD_BYTES = 128 << 10, AHEAD_PIECE = 256 };

void gem_cpu_ahead_of(cpu_ahead *a, const gem_backend *be, int tid, size_t first_op)
{
    size_t i = first_op;
    while (i < be->end_op && !be->op[i].n_panels)
        i++;
    a->left = 0;
    if (i == be->end_op) return;
    if (gem_cpu_rows_of(be, i) != 1) return; /* with more rows the time does not go into memory */
    const gem_range *r = &be->op[i].range[tid];
    *a = (cpu_ahead){.be = be,
                     .op = &be->op[i],
                     .item = atomic_load_explicit(&r->next, memory_order_relaxed),
                     .end = r->end,
                     .left = AHEAD_BYTES};
}

/* One piece: AHEAD_PIECE bytes of each stream. */
bool gem_cpu_fetch_ahead(void *ctx)
{
    cpu_ahead *a = ctx;
    if (a->left < AHEAD_PIECE * GEM_PANEL_STREAMS || a->item >= a->end) return false;
    place p = place_of(a->be, a->op, a->item, 1);
    const cpu_weight *w = a->op->w[p.i];
    if (p.count != GEM_PANEL_STREAMS) {
        a->left = 0;
        return false;
    }
    const uint8_t *from = w->panels + (size_t)p.panel * w->panel_bytes + a->at;
    for (size_t line = 0; line < AHEAD_PIECE; line += 64)
        for (int s = 0; s < p.count; s++)
            __builtin_prefetch(from + line + (size_t)(s * p.apart) * w->panel_bytes, 0, 2);
    a->left -= AHEAD_PIECE * GEM_PANEL_STREAMS;
    a->at += AHEAD_PIECE;
    if (a->at >= w->panel_bytes) {
        a->at = 0;
        a->item++;
    }
    return true;
}
