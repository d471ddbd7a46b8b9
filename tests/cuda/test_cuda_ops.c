/* test_cuda_ops.c - every kernel of the CUDA backend x type against the same sum in double on the
 * host, within bounds that follow from the rounding each kernel does. Skips itself without a
 * device. */
#include "device.h"

#include "quant/quant.h"
#include "top_of_row.h"

static const gem_dtype types[] = {GEM_DTYPE_F32,  GEM_DTYPE_F16,  GEM_DTYPE_BF16, GEM_DTYPE_Q4_0,
                                  GEM_DTYPE_Q4_1, GEM_DTYPE_Q5_0, GEM_DTYPE_Q5_1, GEM_DTYPE_Q8_0,
                                  GEM_DTYPE_Q4_K, GEM_DTYPE_Q5_K, GEM_DTYPE_Q6_K};
static int n_cases, n_failed;
static gem_cuda_stream s;

static void report(bool ok, const char *what, const char *type, int64_t a, int64_t b, int64_t c,
                   double worst)
{
    n_cases++;
    if (ok) return;
    n_failed++;
    printf("FAIL %s %s %lld %lld %lld: %g of the bound\n", what, type, (long long)a, (long long)b,
           (long long)c, worst);
}

static float *any_floats(size_t n, float range)
{
    float *x = malloc(n * sizeof(*x));
    for (size_t i = 0; i < n; i++)
        x[i] = any_float(-range, range) * (any_u32() % 16 ? 1.0f : 30.0f);
    return x;
}

/* ---- weights ---- */

/* Expanded rows are the rounded exact values: the slab layout loses no bit. */
static void check_expand(gem_dtype t, int64_t k, int64_t n_rows, bool slabs)
{
    size_t row_bytes, bad = 0;
    uint8_t *rows = any_rows(t, k, n_rows, &row_bytes);
    gem_cuda_weight w = any_weight(&s, t, rows, k, n_rows, row_bytes, slabs);
    uint16_t *wh = device_take((size_t)(k * n_rows) * 2), *got;
    float *want = malloc((size_t)k * 4);
    DO(gem_cuda_expand(&s, &w, 0, n_rows, wh));
    DO(cudaStreamSynchronize(s.stream));
    got = host_copy(wh, (size_t)(k * n_rows) * 2);
    for (int64_t r = 0; r < n_rows; r++) {
        gem_dequantize_row(t, rows + (size_t)r * row_bytes, want, (size_t)k);
        for (int64_t i = 0; i < k; i++)
            bad += got[r * k + i] != gem_f32_to_f16(want[i]);
    }
    report(bad == 0, slabs ? "expand slabs" : "expand rows", gem_dtype_get(t)->name, k, n_rows, 0,
           (double)bad);
    cudaFree((void *)w.data);
    cudaFree(wh);
    free(rows), free(want), free(got);
}

/* Rows of embeddings are exact. */
static void check_embed(gem_dtype t, int64_t k, bool slabs)
{
    const int32_t ids[3] = {36, 0, 17};
    size_t row_bytes, bad = 0;
    uint8_t *rows = any_rows(t, k, 37, &row_bytes);
    gem_cuda_weight w = any_weight(&s, t, rows, k, 37, row_bytes, slabs);
    float *dst = device_take(3 * (size_t)k * 4), *want = malloc((size_t)k * 4), *got;
    int32_t *token = device_copy(ids, sizeof(ids));
    DO(gem_cuda_embed(&s, &w, token, 3, 1.5f, dst, k));
    DO(cudaStreamSynchronize(s.stream));
    got = host_copy(dst, 3 * (size_t)k * 4);
    for (int r = 0; r < 3; r++) {
        gem_dequantize_row(t, rows + (size_t)ids[r] * row_bytes, want, (size_t)k);
        for (int64_t i = 0; i < k; i++)
            bad += got[r * k + i] != want[i] * 1.5f;
    }
    report(bad == 0, slabs ? "embed slabs" : "embed rows", gem_dtype_get(t)->name, k, 0, 0,
           (double)bad);
    cudaFree((void *)w.data), cudaFree(dst), cudaFree(token);
    free(rows), free(want), free(got);
}

/* ---- products ---- */

typedef enum route { EXACT, SLAB, TILE } route;
static const char *const route_name[] = {"exact", "slab", "tile"};

/* y[n][n_rows] of a route; slab partial sums added in the order of their readers. */
static float *product(route how, const gem_cuda_weight *w, const float *x, int32_t n)
{
    size_t values = (size_t)n * (size_t)w->n_rows;
    float *out, *y;
    if (how == SLAB) {
        size_t part = GEM_CUDA_FEW * (size_t)w->n_rows;
        y = device_take((size_t)(2 * gem_cuda_slab_slices(w->dtype, w->k, &s)) * part * 4);
        gem_cuda_slab_out o = {w, y, w->n_rows};
        gem_cuda_slab_in in = {.a = {.data = x, .ld = w->k, .n_parts = 1}};
        int parts = gem_cuda_slab_parts(&s, &o, 1, n), half = (parts + 1) / 2;
        DO(gem_cuda_linear_slab(&s, &o, 1, &in, NULL, n));
        DO(cudaStreamSynchronize(s.stream));
        float *all = host_copy(y, (size_t)parts * part * 4);
        out = malloc(values * 4);
        for (size_t i = 0; i < values; i++) { /* as gem_cuda_view has it */
            float rest = parts > 1 ? all[(size_t)half * part + i] : 0;
            out[i] = all[i];
            for (int j = 1; j < half; j++) {
                out[i] += all[(size_t)j * part + i];
                rest += all[(size_t)(half + j) * part + i];
            }
            if (parts > 1) out[i] += rest;
        }
        free(all);
    } else if (how == EXACT) {
        y = device_take(values * 4);
        DO(gem_cuda_linear_exact(&s, w, x, w->k, n, y, w->n_rows));
        DO(cudaStreamSynchronize(s.stream));
        out = host_copy(y, values * 4);
    } else {
        int32_t padded = (n + 127) / 128 * 128;
        uint16_t *xh = device_take((size_t)padded * (size_t)w->k * 2);
        uint16_t *wh = device_take((size_t)w->n_rows * (size_t)w->k * 2);
        float *scale = device_take((size_t)padded * 4), *f;
        y = device_take(values * 4);
        DO(gem_cuda_to_f16(&s, x, w->k, n, padded, w->k, xh, scale));
        DO(gem_cuda_expand(&s, w, 0, w->n_rows, wh));
        DO(gem_cuda_linear_tile(&s, xh, wh, n, w->n_rows, w->k, y, w->n_rows));
        DO(cudaStreamSynchronize(s.stream));
        out = host_copy(y, values * 4);
        f = host_copy(scale, (size_t)n * 4);
        for (size_t i = 0; i < values; i++)
            out[i] *= f[i / (size_t)w->n_rows];
        cudaFree(xh), cudaFree(wh), cudaFree(scale), free(f);
    }
    cudaFree(y);
    return out;
}

/* Each product's error: an activation rounded to f16 is off by 2^-12 of itself, or 2^-25 of the
 * largest it shares a scale with; a weight rounded to f16 by 2^-12; f32 sums by some 2^-20 of the
 * sum of absolute values, with Q8_0 and Q6_K offsets (128, 32 times a block's scale) on top. */
static void check_product(route how, gem_dtype t, int64_t k, int64_t n_rows, int32_t n)
{
    size_t row_bytes;
    uint8_t *rows = any_rows(t, k, n_rows, &row_bytes);
    float *x = any_floats((size_t)(k * n), 3), *want = malloc((size_t)k * 4);
    gem_cuda_weight w = any_weight(&s, t, rows, k, n_rows, row_bytes, how == SLAB);
    float *dx = device_copy(x, (size_t)(k * n) * 4), *got = product(how, &w, dx, n);
    double worst = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        gem_dequantize_row(t, rows + (size_t)r * row_bytes, want, (size_t)k);
        for (int32_t c = 0; c < n; c++) {
            double sum = 0, abs_sum = 0, w_sum = 0, top = 0;
            for (int64_t i = 0; i < k; i++) {
                double v = x[c * k + i];
                sum += want[i] * v;
                abs_sum += fabs(want[i] * v);
                w_sum += fabs(want[i]);
                top = fmax(top, fabs(v));
            }
            double bound = abs_sum * 0x1p-20 + 1e-30;
            if (how == SLAB) bound = abs_sum * (0x1p-12 + 0x1p-18) + w_sum * top * 0x1p-20;
            if (how == TILE) bound = abs_sum * (0x1p-11 + 0x1p-18) + w_sum * top * 0x1p-24;
            worst = fmax(worst, fabs((double)got[c * n_rows + r] - sum) / bound);
            if (!isfinite(got[c * n_rows + r])) worst = INFINITY;
        }
    }
    report(worst <= 1, route_name[how], gem_dtype_get(t)->name, k, n_rows, n, worst);
    if (how != TILE && n > 1) { /* a row alone has the same bits */
        float *one = product(how, &w, dx + (n - 1) * k, 1);
        int bad = memcmp(one, got + (n - 1) * n_rows, (size_t)n_rows * 4) != 0;
        report(!bad, "alone", gem_dtype_get(t)->name, k, n_rows, n, 0);
        free(one);
    }
    cudaFree((void *)w.data), cudaFree(dx);
    free(rows), free(x), free(want), free(got);
}

/* ---- products with what stands before and behind them ---- */

/* Gate and up in one weight against the two apart: the gated rows that come out, and what the next
 * product makes of them, within the rounding of both. */
static void check_gated(gem_dtype t, int64_t k, int64_t ff, int32_t n)
{
    size_t row_bytes, next_bytes;
    uint8_t *gate = any_rows(t, k, ff, &row_bytes), *up = any_rows(t, k, ff, &row_bytes);
    uint8_t *next = any_rows(t, ff, 40, &next_bytes);
    float *x = any_floats((size_t)(k * n), 0.3f), *dx = device_copy(x, (size_t)(k * n) * 4);
    gem_cuda_weight one = any_weight(&s, t, gate, k, ff, row_bytes, true);
    gem_cuda_weight two = any_weight(&s, t, up, k, ff, row_bytes, true);
    gem_cuda_weight last = any_weight(&s, t, next, ff, 40, next_bytes, true);
    gem_cuda_weight both = {.dtype = t, .slabs = true, .k = k, .n_rows = 2 * ff};
    both.bytes = (size_t)(ff / 8 * (k / 256)) * gem_cuda_slab_bytes(t);
    uint8_t *data = device_take(both.bytes);
    for (int half = 0; half < 2; half++) {
        uint8_t *raw = device_copy(half ? up : gate, row_bytes * (size_t)ff);
        for (int64_t r = 0; r < ff; r += 32)
            DO(gem_cuda_repack(s.stream, t, raw + (size_t)r * row_bytes, r, GEM_MIN(32, ff - r),
                               half, k, data));
        DO(cudaStreamSynchronize(s.stream));
        cudaFree(raw);
    }
    both.data = data;
    gem_cuda_packed p = {device_take(8 * (size_t)ff * 2), device_take(8 * (size_t)ff / 8 * 4), ff};
    gem_cuda_slab_out o = {&both, NULL, 0};
    gem_cuda_slab_in in = {.a = {.data = dx, .ld = k, .n_parts = 1}};
    gem_cuda_slab_end end = {true, GEM_ACT_SILU, p, 0};
    DO(gem_cuda_linear_slab(&s, &o, 1, &in, &end, n));
    size_t out_floats = 2 * 16 * GEM_CUDA_FEW * 40;
    float *y = device_take(out_floats * 4), *a = product(SLAB, &one, dx, n),
          *b = product(SLAB, &two, dx, n);
    gem_cuda_slab_out to = {&last, y, 40};
    gem_cuda_slab_in from = {.from = GEM_CUDA_FROM_PACKED, .packed = p};
    DO(gem_cuda_linear_slab(&s, &to, 1, &from, NULL, n));
    DO(cudaStreamSynchronize(s.stream));
    uint16_t *h = host_copy(p.h, 8 * (size_t)ff * 2);
    float *scale = host_copy(p.scale, 8 * (size_t)ff / 8 * 4), *got = host_copy(y, out_floats * 4);
    float *w = malloc((size_t)ff * 4);
    double worst = 0, worst_next = 0;
    for (int64_t i = 0; i < n * ff; i++) {
        double want = a[i] / (1 + exp(-(double)a[i])) * b[i], top = 0;
        for (int64_t j = i / 8 * 8; j < i / 8 * 8 + 8; j++)
            top = fmax(top, fabs(a[j] / (1 + exp(-(double)a[j])) * b[j]));
        double v = (double)gem_f16_to_f32(h[i]) * scale[i / 8];
        worst = fmax(worst, fabs(v - want) / (fabs(want) * 0x1p-11 + top * 0x1p-20 + 1e-30));
    }
    int parts = gem_cuda_slab_parts(&s, &to, 1, n);
    for (int64_t r = 0; r < 40; r++) {
        gem_dequantize_row(t, next + (size_t)r * next_bytes, w, (size_t)ff);
        for (int32_t c = 0; c < n; c++) {
            double sum = 0, abs_sum = 0, w_sum = 0, top = 0, v = 0;
            for (int64_t i = 0; i < ff; i++) {
                double act = (double)gem_f16_to_f32(h[c * ff + i]) * scale[(c * ff + i) / 8];
                sum += w[i] * act;
                abs_sum += fabs(w[i] * act);
                w_sum += fabs(w[i]);
                top = fmax(top, fabs(act));
            }
            for (int j = 0; j < parts; j++)
                v += got[((size_t)j * GEM_CUDA_FEW + (size_t)c) * 40 + (size_t)r];
            worst_next =
                fmax(worst_next, fabs(v - sum) / (abs_sum * 0x1p-17 + w_sum * top * 0x1p-20));
        }
    }
    report(worst <= 1, "gated", gem_dtype_get(t)->name, k, ff, n, worst);
    report(worst_next <= 1, "from packed", gem_dtype_get(t)->name, k, ff, n, worst_next);
    cudaFree((void *)one.data), cudaFree((void *)two.data), cudaFree((void *)last.data);
    cudaFree(data), cudaFree(p.h), cudaFree(p.scale), cudaFree(y), cudaFree(dx);
    free(gate), free(up), free(next), free(x), free(a), free(b), free(h), free(scale), free(got),
        free(w);
}

/* A residual sum and its norm, as f32 and in runs, against doubles; a row's bits alone. */
static void check_sum(int64_t d, bool post)
{
    enum { N = 3, PARTS = 4 };
    const size_t row = (size_t)d * 4;
    float *x = any_floats(N * (size_t)d, 5), *src = any_floats(PARTS * N * (size_t)d, 3),
          *norms = any_floats(2 * (size_t)d, 1);
    float *dsrc = device_copy(src, PARTS * N * row), *dn = device_copy(norms, 2 * row);
    const bool runs = d % 256 == 0;
    const size_t n_runs = (size_t)d / 256, sums_bytes = n_runs * GEM_CUDA_RUN_SUMS * 2;
    float *got[2][3]; /* x, dst, scale */
    uint16_t *h[2], *sums[2];
    for (int i = 0; i < 2; i++) { /* the last row with the others, and alone */
        const int64_t from = i ? N - 1 : 0;
        float *dx = device_copy(x, N * row), *dst = device_take(N * row);
        gem_cuda_runs p = {device_take(N * row / 2), device_take(N * sums_bytes),
                           device_take(N * n_runs * 4), d},
                      none = {0};
        const gem_cuda_runs own = {p.h + from * d, p.sums + from * d / 256 * GEM_CUDA_RUN_SUMS,
                                   p.scale + from * d / 256, d};
        gem_cuda_sum sum = {
            .x = dx + from * d,
            .dst = dst + from * d,
            .post = post ? dn : NULL,
            .next = dn + d,
            .ldx = d,
            .ld = d,
            .d = d,
            .src = {.data = dsrc + from * d, .part_stride = N * d, .ld = d, .n_parts = PARTS},
            .runs = runs ? own : none,
            .eps = 1e-6f,
            .out_scale = 0.75f};
        DO(gem_cuda_residual(&s, &sum, i ? 1 : N));
        DO(cudaStreamSynchronize(s.stream));
        got[i][0] = host_copy(dx, N * row), got[i][1] = host_copy(dst, N * row);
        got[i][2] = host_copy(p.scale, N * n_runs * 4), h[i] = host_copy(p.h, N * row / 2);
        sums[i] = host_copy(p.sums, N * sums_bytes);
        cudaFree(dx), cudaFree(dst), cudaFree(p.h), cudaFree(p.sums), cudaFree(p.scale);
    }
    const size_t last = (N - 1) * (size_t)d;
    report(memcmp(got[0][0] + last, got[1][0] + last, row) == 0 &&
               memcmp(got[0][1] + last, got[1][1] + last, row) == 0 &&
               (!runs || (memcmp(h[0] + last, h[1] + last, row / 2) == 0 &&
                          memcmp(got[0][2] + last / 256, got[1][2] + last / 256, n_runs * 4) == 0 &&
                          memcmp((char *)sums[0] + (N - 1) * sums_bytes,
                                 (char *)sums[1] + (N - 1) * sums_bytes, sums_bytes) == 0)),
           "sum alone", "", d, post, 0, 0);
    double worst[4] = {0}, *want = malloc((size_t)d * sizeof(*want));
    for (int64_t r = 0; r < N; r++) {
        double square = 0, all = 0;
        for (int64_t i = 0; i < d; i++) {
            want[i] = 0;
            for (int j = 0; j < PARTS; j++)
                want[i] += src[(j * N + r) * d + i];
            square += want[i] * want[i];
        }
        const double f = post ? 1 / sqrt(square / (double)d + 1e-6) : 1;
        for (int64_t i = 0; i < d; i++) {
            double v = want[i] * f * (post ? norms[i] : 1), size = fabs(x[r * d + i]) + fabs(v);
            for (int j = 0; j < PARTS; j++) /* parts may cancel */
                size += fabs(src[(j * N + r) * d + i] * f) * 4;
            want[i] = (x[r * d + i] + v) * 0.75;
            all += want[i] * want[i];
            worst[0] = fmax(worst[0], fabs(got[0][0][r * d + i] - want[i]) / (size * 0x1p-20));
            want[i] = got[0][0][r * d + i]; /* the norm is judged by what it was given */
        }
        for (int64_t i = 0; i < d; i++)
            want[i] *= norms[d + i] / sqrt(all / (double)d + 1e-6);
        for (int64_t i = 0; i < d; i++) {
            worst[1] = fmax(worst[1], fabs(got[0][1][r * d + i] - want[i]) /
                                          (fabs(want[i]) * 0x1p-18 + 1e-30));
        }
        for (int64_t i = 0; i < d && runs; i++) {
            double top = 0,
                   v = (double)gem_f16_to_f32(h[0][r * d + i]) * got[0][2][(r * d + i) / 256];
            for (int64_t j = i / 256 * 256; j < i / 256 * 256 + 256; j++)
                top = fmax(top, fabs(want[j]));
            worst[2] = fmax(worst[2],
                            fabs(v - want[i]) / (fabs(want[i]) * 0x1p-11 + top * 0x1p-22 + 1e-30));
        }
        for (int64_t b = 0; b < d / 16 && runs; b++) { /* sums of blocks of 16, of 32 */
            const uint16_t *of = sums[0] + (size_t)(r * d + 16 * b) / 256 * GEM_CUDA_RUN_SUMS;
            const int i = (int)(b % 16);
            double sum[2] = {0}, size = 0;
            for (int64_t j = 0; j < 32; j++) {
                const double v = gem_f16_to_f32(h[0][r * d + b / 2 * 32 + j]);
                sum[1] += v, size += fabs(v);
                if (j / 16 == b % 2) sum[0] += v;
            }
            const double is[2] = {(double)gem_f16_to_f32(of[16 + i]) + gem_f16_to_f32(of[32 + i]),
                                  (double)gem_f16_to_f32(of[i / 2]) +
                                      gem_f16_to_f32(of[8 + i / 2])};
            for (int j = 0; j < 2; j++)
                worst[3] = fmax(worst[3], fabs(is[j] - sum[j]) / (size * 0x1p-20 + 1e-30));
        }
    }
    report(worst[0] <= 1, "sum", "", d, post, 0, worst[0]);
    report(worst[1] <= 1, "norm of sum", "", d, post, 0, worst[1]);
    if (runs) report(worst[2] <= 1, "runs of sum", "", d, post, 0, worst[2]);
    if (runs) report(worst[3] <= 1, "sums of runs", "", d, post, 0, worst[3]);
    for (int i = 0; i < 2; i++)
        free(got[i][0]), free(got[i][1]), free(got[i][2]), free(h[i]), free(sums[i]);
    cudaFree(dsrc), cudaFree(dn);
    free(x), free(src), free(norms), free(want);
}

/* ---- attention ---- */

typedef struct shape {
    int hd, heads, kv_heads;
    int32_t window;
    bool f16, gated;
} shape;

static double page_value(double x, bool f16)
{
    return f16 ? (double)gem_f16_to_f32(gem_f32_to_f16((float)x)) : x;
}

/* Two sequences' worth of pages in one pool; rows at the given positions of sequence 1. Keys and
 * values come in through append (no norm, no rotation), as a run would. */
static void check_attend(shape a, const int32_t *pos, int32_t n, int how)
{
    const int32_t last = pos[n - 1], n_pages = last / GEM_PAGE + 1;
    const size_t hd = (size_t)a.hd, kvw = (size_t)a.kv_heads * hd, len = (size_t)last + 1;
    const size_t stride = a.gated ? 2 * hd : hd, qw = (size_t)a.heads * stride;
    float *k = any_floats(len * kvw, 1), *v = any_floats(len * kvw, 1);
    float *q = any_floats((size_t)n * qw, 0.3f);
    int32_t *table = malloc(2 * (size_t)n_pages * 4), *all = malloc(len * 3 * 4);
    gem_cuda_block *block = malloc((size_t)n * sizeof(*block));
    size_t page_bytes = (size_t)2 * GEM_PAGE * kvw * (a.f16 ? 2 : 4);
    for (int32_t i = 0; i < n_pages; i++) {
        table[i] = -1; /* sequence 0 holds none */
        table[n_pages + i] = n_pages - 1 - i;
    }
    for (size_t i = 0; i < len; i++) {
        all[i] = (int32_t)i;
        all[len + i] = 1;
    }
    gem_cuda_kv kv = {.pool = device_take(page_bytes * (size_t)n_pages),
                      .table = device_copy(table, 2 * (size_t)n_pages * 4),
                      .table_stride = n_pages,
                      .n_kv_heads = a.kv_heads,
                      .head_dim = a.hd,
                      .window = a.window,
                      .f16 = a.f16};
    DO(cudaMemset(kv.pool, 0, page_bytes * (size_t)n_pages));
    DO(cudaDeviceSynchronize());
    int32_t *d_all = device_copy(all, len * 2 * 4), *d_pos = device_copy(pos, (size_t)n * 4);
    int32_t *d_seq = device_copy(all + len, (size_t)n * 4);
    float *dk = device_copy(k, len * kvw * 4), *dv = device_copy(v, len * kvw * 4);
    float *dq = device_copy(q, (size_t)n * qw * 4), *none = device_take(len * qw * 4);
    float *dst = device_take((size_t)n * (size_t)a.heads * hd * 4);
    float *partial = device_take(gem_cuda_partial_floats(a.heads, a.kv_heads, a.hd) * 4);
    int32_t *turn = device_take(GEM_CUDA_FEW * 8 * (size_t)a.kv_heads * 4);
    DO(cudaMemset(turn, 0, GEM_CUDA_FEW * 8 * (size_t)a.kv_heads * 4));
    DO(cudaDeviceSynchronize());
    gem_cuda_rows in = {d_all, d_all, d_all + len, d_all}, rows = {d_pos, d_pos, d_seq, d_pos};
    gem_cuda_qkv put = {
        .q = {dk, NULL, NULL, 0, 0, 1}, /* any finite numbers; the result is unused */
        .k = {dk, NULL, NULL, 0, (int64_t)kvw, 1},
        .v = {dv, NULL, NULL, 0, (int64_t)kvw, 1},
        .q_out = none,
        .ldq = (int64_t)qw,
        .n_heads = 0,
        .q_stride = (int64_t)hd,
        .q_scale = 1};
    DO(gem_cuda_append(&s, &put, &kv, &in, (int32_t)len));
    gem_cuda_queries queries = {dq,
                                (int64_t)qw,
                                (int64_t)stride,
                                a.heads,
                                a.gated,
                                dst,
                                (int64_t)((size_t)a.heads * hd),
                                {.data = dq, .ld = (int64_t)qw, .n_parts = 1},
                                {0},
                                NULL};
    if (how < 2) {
        DO(gem_cuda_attend_split(&s, &kv, &rows, &queries, NULL, n, how == 0, partial, turn));
    } else {
        const bool wgmma = how == 3;
        int rows_most = wgmma ? gem_cuda_wgmma_rows(&s, a.hd, a.f16) : GEM_CUDA_MAX_GROUP;
        int count = 0, most = rows_most / (a.heads / a.kv_heads);
        for (int32_t r = 0; r < n; r += most)
            block[count++] = (gem_cuda_block){r, GEM_MIN(most, n - r)};
        gem_cuda_block *d_block = device_copy(block, (size_t)count * sizeof(*block));
        DO((how == 4 ? gem_cuda_attend_flash128
            : wgmma  ? gem_cuda_attend_wgmma
                     : gem_cuda_attend_flash)(&s, &kv, &rows, d_block, count, &queries));
        DO(cudaStreamSynchronize(s.stream));
        cudaFree(d_block);
    }
    DO(cudaStreamSynchronize(s.stream));
    float *got = host_copy(dst, (size_t)n * (size_t)a.heads * hd * 4);
    double *p = malloc(len * sizeof(*p)), *want = malloc(hd * sizeof(*want)), worst = 0;
    for (int32_t r = 0; r<n; r += n> 20 ? n / 10 : 1)
        for (int h = 0; h < a.heads; h++) {
            size_t kvh = (size_t)(h / (a.heads / a.kv_heads)) * hd;
            const float *x = q + (size_t)r * qw + (size_t)h * stride;
            int32_t from = a.window ? GEM_MAX(0, pos[r] - a.window + 1) : 0;
            double top = -INFINITY, sum = 0, top_v = 0, size = 0;
            for (int32_t i = from; i <= pos[r]; i++) {
                double score = 0, abs_score = 0;
                for (size_t d = 0; d < hd; d++) {
                    double t = x[d] * page_value(k[(size_t)i * kvw + kvh + d], a.f16);
                    score += t;
                    abs_score += fabs(t);
                }
                p[i] = score;
                top = fmax(top, score);
                size = fmax(size, abs_score);
            }
            memset(want, 0, hd * sizeof(*want));
            for (int32_t i = from; i <= pos[r]; i++) {
                p[i] = exp(p[i] - top);
                sum += p[i];
                for (size_t d = 0; d < hd; d++) {
                    double y = page_value(v[(size_t)i * kvw + kvh + d], a.f16);
                    want[d] += p[i] * y;
                    top_v = fmax(top_v, fabs(y));
                }
            }
            /* a score off by e changes a weight by e of itself; f16: q, k, p and v are rounded */
            bool mma = how >= 2 || (how == 0 && gem_cuda_mma_head(&s, a.hd, a.f16));
            double e = mma ? size * 0x1p-10 + 0x1p-9 : size * 0x1p-19 + 0x1p-18;
            for (size_t d = 0; d < hd; d++) {
                double y = want[d] / sum;
                if (a.gated) y /= 1 + exp(-(double)x[hd + d]);
                double got_y = got[((size_t)r * (size_t)a.heads + (size_t)h) * hd + d];
                worst = fmax(worst, fabs(got_y - y) / (2 * e * top_v));
                if (!isfinite(got_y)) worst = INFINITY;
            }
        }
    static const char *const names[] = {"split", "rows", "flash", "wgmma", "flash128"};
    char label[64];
    snprintf(label, sizeof(label), "hd %d heads %d/%d %s", a.hd, a.heads, a.kv_heads,
             a.f16 ? "f16" : "f32");
    report(worst <= 1, names[how], label, a.window, n, last, worst);
    cudaFree(kv.pool), cudaFree((void *)kv.table), cudaFree(d_all), cudaFree(d_pos),
        cudaFree(d_seq);
    cudaFree(dk), cudaFree(dv), cudaFree(dq), cudaFree(none), cudaFree(dst), cudaFree(partial),
        cudaFree(turn);
    free(k), free(v), free(q), free(table), free(all), free(block), free(got), free(p), free(want);
}

/* A row alone that brings its own key and value has the bits of append and attention apart, in the
 * pages too. */
static void check_alone(shape a, int32_t pos, bool v_from_k, int32_t half)
{
    const size_t hd = (size_t)a.hd, stride = a.gated ? 2 * hd : hd, qw = (size_t)a.heads * stride,
                 kvw = (size_t)a.kv_heads * hd;
    const int32_t n_pages = pos / GEM_PAGE + 1;
    const size_t pool_bytes = (size_t)2 * GEM_PAGE * kvw * 2 * (size_t)n_pages,
                 turns = GEM_CUDA_FEW * 8 * (size_t)a.kv_heads;
    float *q = any_floats(2 * qw, 0.3f), *k = any_floats(2 * kvw, 1), *v = any_floats(2 * kvw, 1),
          *norms = any_floats(2 * hd, 1), *cs = any_floats(2 * hd, 1);
    uint16_t *noise = malloc(pool_bytes), *pool[2];
    int32_t *table = malloc((size_t)n_pages * 4), ids[2] = {pos, 0};
    for (size_t i = 0; i < pool_bytes / 2; i++)
        noise[i] = (uint16_t)(any_u32() & 0xbbffu);
    for (int32_t i = 0; i < n_pages; i++)
        table[i] = n_pages - 1 - i;
    float *dq = device_copy(q, 2 * qw * 4), *dk = device_copy(k, 2 * kvw * 4),
          *dv = device_copy(v, 2 * kvw * 4), *dn = device_copy(norms, 2 * hd * 4),
          *dcs = device_copy(cs, 2 * hd * 4), *out[2];
    int32_t *d_table = device_copy(table, (size_t)n_pages * 4), *d_ids = device_copy(ids, 8);
    const gem_cuda_rows rows = {d_ids, d_ids, d_ids + 1, d_ids};
    float *partial = device_take(gem_cuda_partial_floats(a.heads, a.kv_heads, a.hd) * 4);
    int32_t *turn = device_take(turns * 4);
    DO(cudaMemset(turn, 0, turns * 4));
    for (int i = 0; i < 2; i++) {
        uint8_t *d_pool = device_copy(noise, pool_bytes);
        float *q_out = device_take(qw * 4), *dst = device_take((size_t)a.heads * hd * 4);
        gem_cuda_kv kv = {d_pool, d_table, n_pages, a.kv_heads, a.hd, a.window, true};
        gem_cuda_qkv raw = {.q = {dq, NULL, NULL, (int64_t)qw, (int64_t)qw, 2},
                            .k = {dk, NULL, NULL, (int64_t)kvw, (int64_t)kvw, 2},
                            .v = {dv, NULL, NULL, (int64_t)kvw, (int64_t)kvw, 2},
                            .q_out = q_out,
                            .ldq = (int64_t)qw,
                            .cs = dcs,
                            .sn = dcs + hd,
                            .half = half,
                            .n_heads = a.heads,
                            .q_stride = (int64_t)stride,
                            .q_norm = dn,
                            .k_norm = dn + hd,
                            .eps = 1e-6f,
                            .q_scale = 0.125f,
                            .v_norm = v_from_k,
                            .v_from_k = v_from_k};
        gem_cuda_queries queries = {q_out,
                                    (int64_t)qw,
                                    (int64_t)stride,
                                    a.heads,
                                    a.gated,
                                    dst,
                                    (int64_t)((size_t)a.heads * hd),
                                    {.data = q_out, .ld = (int64_t)qw, .n_parts = 1},
                                    {0},
                                    NULL};
        if (i) queries.gate = raw.q;
        if (!i) DO(gem_cuda_append(&s, &raw, &kv, &rows, 1));
        DO(gem_cuda_attend_split(&s, &kv, &rows, &queries, i ? &raw : NULL, 1, true, partial,
                                 turn));
        DO(cudaStreamSynchronize(s.stream));
        out[i] = host_copy(dst, (size_t)a.heads * hd * 4);
        pool[i] = host_copy(d_pool, pool_bytes);
        cudaFree(d_pool), cudaFree(q_out), cudaFree(dst);
    }
    char label[64];
    snprintf(label, sizeof(label), "hd %d heads %d/%d", a.hd, a.heads, a.kv_heads);
    report(memcmp(out[0], out[1], (size_t)a.heads * hd * 4) == 0, "alone attends", label, a.window,
           pos, half, 0);
    report(memcmp(pool[0], pool[1], pool_bytes) == 0, "alone appends", label, a.window, pos, half,
           0);
    cudaFree(dq), cudaFree(dk), cudaFree(dv), cudaFree(dn), cudaFree(dcs), cudaFree(d_table),
        cudaFree(d_ids), cudaFree(partial), cudaFree(turn);
    free(q), free(k), free(v), free(norms), free(cs), free(noise), free(table);
    for (int i = 0; i < 2; i++)
        free(out[i]), free(pool[i]);
}

static void alone(void)
{
    static const shape shapes[] = {{512, 8, 1, 0, true, false},  {256, 4, 2, 100, true, false},
                                   {256, 6, 1, 0, true, true},   {128, 12, 1, 0, true, false},
                                   {64, 4, 2, 0, true, true},    {256, 32, 16, 1024, true, false},
                                   {128, 6, 2, 400, true, true}, {64, 8, 1, 130, true, false}};
    static const int32_t at[] = {0, 15, 16, 63, 64, 250, 1100, 3000};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (size_t j = 0; j < ARRAY_LEN(at); j++)
            check_alone(shapes[i], at[j], i % 2 == 0, shapes[i].hd / (j % 2 ? 2 : 8));
}

static void attention(bool quick)
{
    static const shape shapes[] = {
        {512, 8, 1, 0, true, false},   {512, 16, 2, 0, false, false}, {256, 4, 2, 100, true, false},
        {256, 6, 1, 0, true, true},    {256, 6, 1, 0, false, true},   {128, 4, 4, 70, true, false},
        {128, 14, 2, 0, false, false}, {64, 32, 1, 0, true, false},   {96, 3, 1, 90, false, false},
        {32, 2, 1, 0, true, false},
    };
    int32_t many[150], few[3] = {0, 63, 400};
    for (int32_t i = 0; i < 150; i++)
        many[i] = 230 + i;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        static const int32_t one[] = {5000};
        check_attend(shapes[i], few, 3, 0);
        if (!quick) check_attend(shapes[i], one, 1, 0);
        check_attend(shapes[i], many, quick ? 20 : 150, 1);
        if (gem_cuda_flash_head(shapes[i].hd)) check_attend(shapes[i], many, 150, 2);
        if (gem_cuda_flash128_head(&s, shapes[i].hd))
            for (int32_t n = 150; n > 0; n -= 80) /* an even and an odd number of pages */
                check_attend(shapes[i], many, n, 4);
        if (!gem_cuda_wgmma_rows(&s, shapes[i].hd, shapes[i].f16)) continue;
        for (int32_t j = 0; j < 4; j++) { /* short and long blocks, from the start and further on */
            static const int32_t n[] = {150, 1, 64, 129};
            for (int32_t r = 0; r < n[j]; r++)
                many[r] = (j % 2 ? 0 : 1130) + r;
            check_attend(shapes[i], many, n[j], 3);
        }
        for (int32_t r = 0; r < 150; r++)
            many[r] = 230 + r;
    }
}

/* ---- the largest logits ---- */

typedef enum row_kind {
    ANY_LOGITS,
    FEW_VALUES, /* ties all over, and across the 64th place */
    ALL_EQUAL,  /* the first ids */
    ASCENDING,  /* all of the largest groups' values are above any bound but the last one's */
    DESCENDING,
    MOSTLY_NEVER, /* -infinity but for a few */
    ZEROS,        /* of both signs */
    SPREAD,       /* one column of every group large: half of them go at a time */
    APART,        /* 64 far above the others, each in a column of its own */
    NO_NUMBER,
    INFINITE,
    ROW_KINDS
} row_kind;

static void fill_row(float *x, int64_t n, row_kind kind)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = any_float(-30, 30);
        if (kind == FEW_VALUES) x[i] = floorf(x[i]);
        if (kind == ALL_EQUAL) x[i] = -3.25f;
        if (kind == ASCENDING) x[i] = (float)i * 0.25f - 1000;
        if (kind == DESCENDING) x[i] = 1000 - (float)i * 0.25f;
        if (kind == MOSTLY_NEVER && i % 1009 != 7) x[i] = -INFINITY;
        if (kind == ZEROS) x[i] = i % 3 ? 0.0f : -0.0f;
        if (kind == SPREAD && i % 512 < 4) x[i] += 100;
        if (kind == APART && i % 128 == 0 && i < 64 * 128) x[i] += 100;
    }
    if (kind == NO_NUMBER) x[any_u32() % n] = any_u32() % 2 ? NAN : -NAN;
    if (kind == INFINITE) x[any_u32() % n] = INFINITY;
}

static bool same_top(const gem_top *got, const gem_top *want)
{
    const size_t n = (size_t)want->n;
    return got->n == want->n && memcmp(got->id, want->id, n * sizeof(*got->id)) == 0 &&
           memcmp(got->logit, want->logit, n * sizeof(*got->logit)) == 0;
}

/* n rows, the kinds by turns from `first`, against insertion; ids that may never be drawn; the row
 * alone; what is left of the logits. */
static void check_top(int64_t vocab, int32_t n, int first)
{
    const int64_t ld = (vocab + 31) / 32 * 32;
    const size_t floats = (size_t)(n * ld), groups = (size_t)gem_cuda_top_groups(vocab);
    float *x = malloc(floats * 4);
    int32_t never[5] = {-1, (int32_t)vocab, 0, (int32_t)(vocab / 2), (int32_t)vocab - 1};
    int bad[3] = {0};
    for (size_t i = 0; i < floats; i++)
        x[i] = i % 2 ? INFINITY : NAN; /* what stands behind a row counts for nothing */
    for (int32_t r = 0; r < n; r++)
        fill_row(x + r * ld, vocab, (row_kind)((first + r) % ROW_KINDS));
    for (int some = 0; some < 2; some++) { /* without and with ids that may not be drawn */
        float *dx = device_copy(x, floats * 4);
        int32_t *d_never = device_copy(never, sizeof(never));
        uint32_t *work = device_take((size_t)n * groups * 4);
        gem_top *out = device_take((size_t)(n + 1) * sizeof(*out)), want, *got, *alone;
        DO(gem_cuda_top(&s, dx, ld, n, vocab, d_never, some ? 5 : 0, work, out));
        DO(gem_cuda_top(&s, dx + (n - 1) * ld, ld, 1, vocab, d_never, 0, work, out + n));
        DO(cudaStreamSynchronize(s.stream));
        got = host_copy(out, (size_t)(n + 1) * sizeof(*out));
        alone = got + n;
        float *left = host_copy(dx, floats * 4);
        for (int32_t r = 0; r < n; r++) {
            for (int i = 2; some && i < 5; i++)
                x[r * ld + never[i]] = -INFINITY;
            top_of_row(x + r * ld, (int32_t)vocab, &want);
            bad[0] += !same_top(&got[r], &want);
            bad[1] += r == n - 1 && !same_top(alone, &want);
        }
        bad[2] += memcmp(left, x, floats * 4) != 0;
        cudaFree(dx), cudaFree(d_never), cudaFree(work), cudaFree(out);
        free(got), free(left);
    }
    report(!bad[0], "top", "", vocab, n, first, bad[0]);
    report(!bad[1], "top alone", "", vocab, n, first, bad[1]);
    report(!bad[2], "logits under it", "", vocab, n, first, bad[2]);
    free(x);
}

static void tops(bool quick)
{
    static const int64_t sizes[] = {1,    2,    63,     64,     65,     127,    128,
                                    129,  255,  256,    4095,   4096,   4097,   20000,
                                    8191, 8193, 151936, 262144, 262145, 1000003};
    static const int32_t rows[] = {1, 3, 8};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const bool large = sizes[i] > 20000;
        for (size_t j = 0; j < 3; j++)
            if (!quick || !large || j == i % 3) check_top(sizes[i], rows[j], (int)(i + 3 * j));
        for (int kind = 0; kind < ROW_KINDS; kind++)
            if (!quick || !large || (sizes[i] == 262145 && kind == ASCENDING))
                check_top(sizes[i], 1, kind);
    }
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0; /* fewer cases */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!device_open(&s)) {
        printf("skipped: no CUDA device\n");
        return 77;
    }
    /* quick apart: racecheck (CUDA 13.0) cannot follow shared memory of other CTAs */
    if (argc > 2 && strcmp(argv[2], "apart") == 0) s.clusters = false;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        gem_dtype t = types[i];
        check_expand(t, 512, 37, false);
        check_embed(t, 512, false);
        check_product(EXACT, t, 512, 33, 3);
        check_product(EXACT, t, 768, 40, 11);
        check_product(TILE, t, 512, 200, 150);
        if (!quick) check_product(TILE, t, 1280, 130, 9);
        if (!gem_cuda_slab_type(t)) continue;
        check_expand(t, 512, 37, true);
        check_embed(t, 512, true);
        static const int64_t k[] = {256, 1024, 2816, 5376, 8192, 21504};
        for (size_t j = 0; j < ARRAY_LEN(k); j++) {
            if (quick && j > 2) break;
            check_product(SLAB, t, k[j], 33 + 16 * (int64_t)j, 1);
            check_product(SLAB, t, k[j], j == 3 ? 5000 : 300, 8);
            check_product(SLAB, t, k[j], 2112, 5);
        }
        check_product(SLAB, t, 256, 13000, 2); /* places cut between tiles */
        for (int32_t n = 1; n <= 8; n += 7)    /* slices, and tiles that two places share */
            check_product(SLAB, t, 8192, quick ? 400 : 5000, n);
        check_gated(t, 512, 256, 1);
        check_gated(t, 512, 256 * 48, 8);
        check_gated(t, 1280, 256 * 13, 3);
    }
    check_sum(5376, true);
    check_sum(512, false);
    check_sum(12288, true);
    check_sum(8224, true);
    alone();
    attention(quick);
    tops(quick);
    printf("%d cases, %d failed\n", n_cases, n_failed);
    return n_failed != 0;
}
