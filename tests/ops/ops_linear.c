/* ops_linear.c - panels: packing against gem_dequantize_row, one panel x n columns against ref bit
 * for bit, and ref against a product in double precision. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Where a GGUF block keeps its f16 numbers and, for types with a minimum, its quants. */
typedef struct block_shape {
    gem_dtype dtype;
    int n_half, half[2];
    int quants; /* first byte behind scales; 0: no minimum, not needed */
} block_shape;

static const block_shape shapes[] = {
    {GEM_DTYPE_Q4_0, 1, {0}, 0},     {GEM_DTYPE_Q4_1, 2, {0, 2}, 4},
    {GEM_DTYPE_Q5_0, 1, {0}, 0},     {GEM_DTYPE_Q5_1, 2, {0, 2}, 4},
    {GEM_DTYPE_Q8_0, 1, {0}, 0},     {GEM_DTYPE_Q4_K, 2, {0, 2}, 16},
    {GEM_DTYPE_Q5_K, 2, {0, 2}, 16}, {GEM_DTYPE_Q6_K, 1, {208}, 0},
    {GEM_DTYPE_F32, 0, {0}, 0},      {GEM_DTYPE_F16, 0, {0}, 0},
    {GEM_DTYPE_BF16, 0, {0}, 0},
};

/* PLAIN: scales around 0.05 of both signs, any quants. EXTREME: quants at their ends, some scales
 * zero, denormal or huge, activations at +-127. */
static const char *const kinds[] = {"plain", "extreme"};

typedef struct weights {
    const block_shape *shape;
    const gem_dtype_info *info;
    int64_t k, n_rows;
    size_t row_bytes;
    uint8_t *rows;
} weights;

static void fill_floats(check *c, const weights *w, int kind)
{
    for (int64_t i = 0; i < w->n_rows * w->k; i++) {
        float f = check_uniform(c, -1.0f, 1.0f);
        if (kind == 1) f = check_int(c, 0, 3) ? ldexpf(f, check_int(c, -40, 15)) : 0.0f;
        uint16_t h = w->shape->dtype == GEM_DTYPE_F16 ? gem_f32_to_f16(f) : gem_f32_to_bf16(f);
        if (w->shape->dtype == GEM_DTYPE_F32)
            memcpy(w->rows + 4 * i, &f, 4);
        else
            memcpy(w->rows + 2 * i, &h, 2);
    }
}

static weights make_weights(check *c, const block_shape *s, int64_t k, int64_t n_rows, int kind)
{
    static const uint8_t ends[] = {0x00, 0xff, 0x0f, 0xf0, 0x80, 0x7f};
    static const float odd[] = {0.0f, -0.0f, 6e-8f, -5e-7f, 30.0f, -60000.0f};
    weights w = {.shape = s, .info = gem_dtype_get(s->dtype), .k = k, .n_rows = n_rows};
    if (!gem_dtype_row_bytes(w.info, (uint64_t)k, &w.row_bytes)) abort();
    w.rows = check_buf(c, w.row_bytes * (size_t)n_rows);
    if (s->n_half == 0) {
        fill_floats(c, &w, kind);
        return w;
    }
    for (size_t i = 0; i < w.row_bytes * (size_t)n_rows; i++)
        w.rows[i] = kind == 1 ? ends[check_int(c, 0, 5)] : (uint8_t)check_u32(c);
    for (size_t b = 0; b < w.row_bytes * (size_t)n_rows; b += w.info->block_bytes) {
        for (int i = 0; i < s->n_half; i++) {
            float d = check_uniform(c, -0.1f, 0.1f);
            if (kind == 1 && check_int(c, 0, 2) == 0) d = odd[check_int(c, 0, 5)];
            uint16_t h = gem_f32_to_f16(d);
            memcpy(w.rows + b + s->half[i], &h, 2);
        }
    }
    return w;
}

/* ---- packing ---- */

static void pack(check *c, const block_shape *s, int64_t k, int kind)
{
    const int64_t n_rows = 21;
    gem_panel_type t = gem_panel_type_of(s->dtype);
    if (!check_begin(c, "pack %s k=%d %s", gem_dtype_get(s->dtype)->name, (int)k, kinds[kind]))
        return;
    weights w = make_weights(c, s, k, n_rows, kind);
    float *want = check_buf(c, (size_t)k * 4), *got = check_buf(c, (size_t)k * 4);
    for (int64_t row0 = 0; row0 < n_rows; row0 += GEM_PANEL_ROWS) {
        uint8_t *panel = check_buf(c, gem_panel_bytes(t, k));
        gem_panel_pack(t, w.rows, w.row_bytes, n_rows, row0, k, panel);
        for (int r = 0; r < GEM_PANEL_ROWS; r++) {
            gem_panel_row(t, panel, r, k, got);
            if (row0 + r < n_rows)
                gem_dequantize_row(s->dtype, w.rows + (size_t)(row0 + r) * w.row_bytes, want,
                                   (size_t)k);
            for (int64_t i = 0; i < k; i++) {
                if (row0 + r < n_rows)
                    check_same_floats(c, "row", &got[i], &want[i], 1);
                else if (got[i] != 0.0f)
                    check_fail(c, "padding row %d holds %g", r, (double)got[i]);
            }
        }
    }
}

/* ---- products ---- */

static gem_qrows make_columns(check *c, int64_t k, int n, int kind, const float **xf)
{
    size_t ld = (size_t)gem_round_up((uint64_t)k, 32) + 32, all = ld * (size_t)n;
    gem_qrows x = {check_buf(c, all),     check_buf(c, all / 8), check_buf(c, all / 8),
                   check_buf(c, all / 8), check_buf(c, all / 4), ld};
    float *f = check_floats(c, all, CHECK_UNIFORM, 3.0f);
    for (size_t i = 0; kind == 1 && i < all; i++) {
        if (i % ld / 32 % 3 == 0) f[i] = check_int(c, 0, 1) ? 3.0f : -3.0f; /* a block of +-127 */
        if (i % ld / 32 % 3 == 1) f[i] = 0.0f;
    }
    for (int col = 0; col < n; col++) {
        gem_qrows r = gem_qrows_at(&x, (size_t)col);
        c->ref->quantize(f + (size_t)col * ld, k / 32 * 32, &r);
    }
    *xf = f;
    return x;
}

/* What makes ref mean a matrix product: its result against double precision over the dequantised
 * row and the dequantised activations. Rounding: integer sums are exact; every block adds at most 5
 * roundings of its own parts, |d q x| and |m x| with |d q| <= |w| + |m|, and the chain one a block
 * (float types: one a k within a block of 32). */
static void check_product(check *c, const weights *w, int64_t row0, const gem_panel_args *a,
                          const float *y)
{
    size_t k = (size_t)a->k;
    const uint8_t *last = w->rows + (size_t)(w->n_rows - 1) * w->row_bytes;
    float *row = check_buf(c, k * 4), *min = check_buf(c, k * 4);
    uint8_t *zeroed = check_copy(c, last, w->row_bytes);
    gem_dequantize_row(w->shape->dtype, last, row, k);
    memset(min, 0, k * 4);
    if (w->shape->quants) {
        for (size_t b = 0; b < w->row_bytes; b += w->info->block_bytes)
            memset(zeroed + b + w->shape->quants, 0,
                   w->info->block_bytes - (size_t)w->shape->quants);
        gem_dequantize_row(w->shape->dtype, zeroed, min, k);
    }
    for (int col = 0; col < a->n; col++) {
        double sum = 0.0, abs_sum = 0.0;
        gem_qrows x = gem_qrows_at(&a->x, (size_t)col);
        for (size_t i = 0; i < k; i++) {
            double v = w->shape->n_half ? (double)x.xs[i / 32] * x.q[i]
                                        : (double)a->xf[(size_t)col * a->ldx + i];
            sum += v * (double)row[i];
            abs_sum += fabs(v) * (fabs((double)row[i]) + 2.0 * fabs((double)min[i]));
        }
        double roundings = (double)(k / 32) + (w->shape->n_half ? 6.0 : 34.0);
        check_near(c, "y", (size_t)col,
                   (double)y[(size_t)col * a->ldy + (size_t)(w->n_rows - 1 - row0)], sum,
                   roundings * (double)FLT_EPSILON * abs_sum + 1e-40);
    }
}

static void product(check *c, const block_shape *s, int64_t k, int n, int64_t n_rows, int kind)
{
    gem_panel_type t = gem_panel_type_of(s->dtype);
    if (!check_begin(c, "linear %s k=%d n=%d rows=%d %s", gem_dtype_get(s->dtype)->name, (int)k, n,
                     (int)n_rows, kinds[kind]))
        return;
    weights w = make_weights(c, s, k, n_rows, kind);
    int64_t row0 = (n_rows - 1) / GEM_PANEL_ROWS * GEM_PANEL_ROWS;
    uint8_t *panel = check_buf(c, gem_panel_bytes(t, k));
    gem_panel_pack(t, w.rows, w.row_bytes, n_rows, row0, k, panel);
    gem_panel_args a = {
        .panel = panel, .k = k, .n = n, .ldy = 19, .scratch = check_buf(c, gem_panel_scratch(k))};
    a.x = make_columns(c, k, n, kind, &a.xf);
    a.ldx = a.x.ld;
    size_t y_bytes = ((size_t)(n - 1) * a.ldy + 16) * 4;
    float *want = check_buf(c, y_bytes), *got = check_buf(c, y_bytes);
    a.y = want;
    c->ref->linear[t](&a);
    a.y = got;
    c->isa->linear[t](&a);
    check_same_bytes(c, "y", got, want, y_bytes); /* also what lies between columns */
    if (n == 2) check_product(c, &w, row0, &a, want);
}

/* One token against four panels that lie apart: the same 64 values as panel by panel. */
static void streams(check *c, const block_shape *s, int64_t k, int kind)
{
    gem_panel_type t = gem_panel_type_of(s->dtype);
    if (!c->isa->linear4[t]) return;
    if (!check_begin(c, "linear4 %s k=%d %s", gem_dtype_get(s->dtype)->name, (int)k, kinds[kind]))
        return;
    const int64_t n_rows = GEM_PANEL_STREAMS * GEM_PANEL_ROWS - 3;
    weights w = make_weights(c, s, k, n_rows, kind);
    const size_t apart = gem_panel_bytes(t, k) + 192;
    uint8_t *panels = check_buf(c, GEM_PANEL_STREAMS * apart);
    gem_panel_args a = {.panel = panels,
                        .k = k,
                        .n = 1,
                        .ldy = 64,
                        .scratch = check_buf(c, gem_panel_scratch(k)),
                        .panel_bytes = apart};
    a.x = make_columns(c, k, 1, kind, &a.xf);
    a.ldx = a.x.ld;
    float want[GEM_PANEL_STREAMS * GEM_PANEL_ROWS], got[GEM_PANEL_STREAMS * GEM_PANEL_ROWS];
    for (int i = 0; i < GEM_PANEL_STREAMS; i++) {
        a.panel = panels + (size_t)i * apart;
        gem_panel_pack(t, w.rows, w.row_bytes, n_rows, i * GEM_PANEL_ROWS, k,
                       panels + (size_t)i * apart);
        a.y = want + i * GEM_PANEL_ROWS;
        c->ref->linear[t](&a);
    }
    a.panel = panels;
    a.y = got;
    c->isa->linear4[t](&a);
    check_same_bytes(c, "y", got, want, sizeof(want));
}

void ops_linear(check *c)
{
    static const int columns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 33};
    static const int64_t lens[] = {32,  64,   96,   160,  256,  512, 640,
                                   896, 1024, 1056, 1280, 2048, 4864};
    static const int64_t float_lens[] = {1, 7, 32, 33, 80, 640, 1000};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        bool floats = shapes[s].n_half == 0;
        for (size_t l = 0; l < (floats ? ARRAY_LEN(float_lens) : ARRAY_LEN(lens)); l++) {
            int64_t k = floats ? float_lens[l] : lens[l];
            if (k % gem_dtype_get(shapes[s].dtype)->block_len) continue;
            for (int kind = 0; kind < 2; kind++) {
                if (k < 3000) pack(c, &shapes[s], k, kind);
                streams(c, &shapes[s], k, kind);
                for (size_t n = 0; n < ARRAY_LEN(columns); n++) {
                    if (k > 1000 && columns[n] > 2 && n % 4 != l % 4) continue; /* ref is slow */
                    product(c, &shapes[s], k, columns[n], n % 3 == 2 ? 21 : 16, kind);
                }
            }
        }
    }
}
