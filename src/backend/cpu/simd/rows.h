/* rows.h - row-wise ops on 16 lanes: the SIMD form of ref/rows_ref.c, same order, same bits.
 * Included once by rows_<isa>.c after its vec_<isa>.h. All of them are bound by the reads and
 * writes of a row that stands in L1, but glu (two divisions and an exp a value) and quantize. */
#ifndef GEM_CPU_ROWS_H
#define GEM_CPU_ROWS_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd/vmath.h"

#include <float.h>

/* The last n < 16 values of a row; lanes behind are 0. */
V16_INLINE v16 load_tail(const float *p, int64_t n)
{
    float v[16] = {0};
    memcpy(v, p, (size_t)n * sizeof(*v));
    return v16_load(v);
}

V16_INLINE void store_tail(float *p, v16 x, int64_t n)
{
    float v[16];
    v16_store(v, x);
    memcpy(p, v, (size_t)n * sizeof(*v));
}

static void quantize_simd(const float *x, int64_t n, const gem_qrows *row)
{
    for (int64_t b = 0; b < n / 32; b++) {
        v16 lo = v16_load(x + 32 * b), hi = v16_load(x + 32 * b + 16);
        uint32_t top = v16_top_bits(lo, hi);
        float a;
        memcpy(&a, &top, 4);
        if (!(a <= FLT_MAX)) { /* an infinity or NaN: the block becomes NaN */
            memset(row->q + 32 * b, 0, 32);
            row->xs[b] = NAN;
            row->nsum16[2 * b] = row->nsum16[2 * b + 1] = row->nsum[b] = 0;
            row->xsum[b] = 0.0f;
            continue;
        }
        bool zero = a < 1e-36f;
        v16 inv = v16_set1(zero ? 0.0f : 127.0f / a);
        int32_t sum[2];
        v16_store_i8(row->q + 32 * b, v16_mul(lo, inv), v16_mul(hi, inv), sum);
        row->xs[b] = zero ? 0.0f : a / 127.0f;
        row->nsum16[2 * b] = -sum[0];
        row->nsum16[2 * b + 1] = -sum[1];
        row->nsum[b] = -(sum[0] + sum[1]);
        row->xsum[b] = (float)(sum[0] + sum[1]);
    }
}

static void norm_simd(const float *x, const float *w, int64_t n, float eps, float *y)
{
    v16 lane = v16_set1(0.0f);
    int64_t whole = n - n % 16, i;
    for (i = 0; i < whole; i += 16) {
        v16 v = v16_load(x + i);
        lane = v16_fma(v, v, lane);
    }
    if (whole < n) {
        v16 v = load_tail(x + whole, n - whole);
        lane = v16_fma(v, v, lane);
    }
    float r = 1.0f / sqrtf(v16_tree(lane) / (float)n + eps);
    v16 rr = v16_set1(r);
    if (w) {
        for (i = 0; i < whole; i += 16)
            v16_store(y + i, v16_mul(v16_mul(v16_load(x + i), rr), v16_load(w + i)));
    } else {
        for (i = 0; i < whole; i += 16)
            v16_store(y + i, v16_mul(v16_load(x + i), rr));
    }
    for (; i < n; i++)
        y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

static void add_simd(float *x, const float *t, int64_t n, float scale)
{
    int64_t i = 0;
    v16 s = v16_set1(scale);
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_mul(v16_add(v16_load(x + i), v16_load(t + i)), s));
    for (; i < n; i++)
        x[i] = (x[i] + t[i]) * scale;
}

V16_INLINE v16 glu16(gem_act act, v16 gate, v16 up)
{
    return v16_mul(act == GEM_ACT_SILU ? v16_silu(gate) : v16_gelu(gate), up);
}

V16_INLINE void glu_act(gem_act act, const float *gate, const float *up, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(dst + i, glu16(act, v16_load(gate + i), v16_load(up + i)));
    if (i < n)
        store_tail(dst + i, glu16(act, load_tail(gate + i, n - i), load_tail(up + i, n - i)),
                   n - i);
}

static void glu_simd(gem_act act, const float *gate, const float *up, int64_t n, float *dst)
{
    if (act == GEM_ACT_SILU)
        glu_act(GEM_ACT_SILU, gate, up, n, dst);
    else
        glu_act(GEM_ACT_GELU_TANH, gate, up, n, dst);
}

static void rope_simd(float *x, const float *cs, const float *sn, int half, int64_t n, float scale)
{
    int64_t i = 0;
    v16 s = v16_set1(scale);
    for (; i + 16 <= half; i += 16) {
        v16 a = v16_load(x + i), b = v16_load(x + i + half), c = v16_load(cs + i),
            d = v16_load(sn + i);
        v16_store(x + i, v16_mul(v16_fnma(b, d, v16_mul(a, c)), s));
        v16_store(x + i + half, v16_mul(v16_fma(b, c, v16_mul(a, d)), s));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = fmaf(-b, sn[i], a * cs[i]) * scale;
        x[i + half] = fmaf(b, cs[i], a * sn[i]) * scale;
    }
    i = 2 * (int64_t)half;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_mul(v16_load(x + i), s));
    for (; i < n; i++)
        x[i] = x[i] * scale;
}

V16_INLINE v16 finite_or_zero16(v16 x)
{
    return v16_keep(m16_le(v16_abs(x), v16_set1(FLT_MAX)), x);
}

V16_INLINE v16 half_range16(v16 x)
{
    return v16_max(v16_min(finite_or_zero16(x), v16_set1(65504.0f)), v16_set1(-65504.0f));
}

/* A key is a column of its panel: 16 dims are computed at once and stored one by one. */
static void append_simd(uint8_t *page, int head_dim, bool f16, int32_t slot, const float *k,
                        const float *v)
{
    size_t kat = (size_t)(slot / 16) * (size_t)head_dim * 16 + (size_t)(slot % 16);
    for (int i = 0; i < head_dim; i += 16, kat += 256) {
        size_t vat = gem_page_v_at(head_dim, slot, i);
        if (f16) {
            uint16_t *p = (uint16_t *)page, col[16];
            v16_store_f16(col, half_range16(v16_load(k + i)));
            for (int d = 0; d < 16; d++)
                p[kat + 16 * (size_t)d] = col[d];
            v16_store_f16(p + vat, half_range16(v16_load(v + i)));
        } else {
            float *p = (float *)page, col[16];
            v16_store(col, finite_or_zero16(v16_load(k + i)));
            for (int d = 0; d < 16; d++)
                p[kat + 16 * (size_t)d] = col[d];
            v16_store(p + vat, finite_or_zero16(v16_load(v + i)));
        }
    }
}

static void attend_merge_simd(float *m, float *s, float *o, float m2, float s2, const float *o2,
                              int64_t n)
{
    float top = *m > m2 ? *m : m2;
    float f1 = gem_exp_ref(*m - top), f2 = gem_exp_ref(m2 - top);
    v16 v1 = v16_set1(f1), v2 = v16_set1(f2);
    *s = fmaf(s2, f2, *s * f1);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(o + i, v16_fma(v16_load(o2 + i), v2, v16_mul(v16_load(o + i), v1)));
    for (; i < n; i++)
        o[i] = fmaf(o2[i], f2, o[i] * f1);
    *m = top;
}

static void attend_finish_simd(const float *o, float s, int64_t n, float *dst)
{
    float r = 1.0f / s;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(dst + i, v16_mul(v16_load(o + i), v16_set1(r)));
    for (; i < n; i++)
        dst[i] = o[i] * r;
}

static void softcap_simd(float *x, int64_t n, float cap)
{
    v16 c = v16_set1(cap);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_mul(c, v16_tanh(v16_div(v16_load(x + i), c))));
    if (i < n) store_tail(x + i, v16_mul(c, v16_tanh(v16_div(load_tail(x + i, n - i), c))), n - i);
}

V16_INLINE void rows_kernels_simd(gem_cpu_kernels *t)
{
    t->quantize = quantize_simd;
    t->norm = norm_simd;
    t->add = add_simd;
    t->glu = glu_simd;
    t->rope = rope_simd;
    t->append = append_simd;
    t->attend_merge = attend_merge_simd;
    t->attend_finish = attend_finish_simd;
    t->softcap = softcap_simd;
}

#endif
