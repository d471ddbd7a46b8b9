/* quantize.c - scalar quantisation, for synthetic files and for activations.
 * Legacy types put the extreme of a block on the end of the grid and round the rest to nearest. K
 * types try several steps for every sub-block, fit scale and minimum to each by least squares, and
 * keep the best; then the fitted scales are rounded to their own grid and the elements are rounded
 * anew. Elements must be finite: what is not is stored as if it were the nearest end of the grid.
 */
#include "quant/quant.h"

#include <assert.h>
#include <float.h>
#include <math.h>

static inline void put_half(uint8_t *p, float f)
{
    uint16_t h = gem_f32_to_f16(f);
    memcpy(p, &h, sizeof(h));
}

/* Truncate to [0, top]; also gives a defined result for NaN (0) and infinities. */
static inline int clamp_trunc(float v, int top)
{
    if (!(v > 0.0f)) return 0;
    return v >= (float)top ? top : (int)v;
}

static inline int clamp_round(float v, int lo, int hi)
{
    if (!(v > (float)lo)) return lo;
    return v >= (float)hi ? hi : (int)lrintf(v);
}

/* The element of largest magnitude, with its sign; the first one on ties. */
static float extreme(const float *x, int n)
{
    float best = 0.0f, best_abs = 0.0f;
    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (a > best_abs) {
            best_abs = a;
            best = x[i];
        }
    }
    return best;
}

static void range(const float *x, int n, float *lo, float *hi)
{
    *lo = *hi = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < *lo) *lo = x[i];
        if (x[i] > *hi) *hi = x[i];
    }
}

/* Store 32 levels as nibbles and, when `high` is given, their fifth bits. */
static void pack_nibbles(const uint8_t *level, uint8_t *q, uint8_t *high)
{
    uint32_t bits = 0;
    for (int j = 0; j < 16; j++) {
        q[j] = (uint8_t)((level[j] & 15) | (level[j + 16] & 15) << 4);
        bits |= (uint32_t)(level[j] >> 4 & 1) << j | (uint32_t)(level[j + 16] >> 4 & 1) << (j + 16);
    }
    if (high) memcpy(high, &bits, sizeof(bits));
}

/* Q4_0 (mid 8) and Q5_0 (mid 16): the extreme takes level 0, so the step may be negative. */
static void quantize_centred(const float *x, uint8_t *b, int mid)
{
    uint8_t level[32];
    float d = extreme(x, 32) / (float)-mid;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (int j = 0; j < 32; j++)
        level[j] = (uint8_t)clamp_trunc(x[j] * inverse + ((float)mid + 0.5f), 2 * mid - 1);
    put_half(b, d);
    if (mid == 8)
        pack_nibbles(level, b + 2, NULL);
    else
        pack_nibbles(level, b + 6, b + 2);
}

/* Q4_1 (top 15) and Q5_1 (top 31): smallest element on level 0, largest on the top. */
static void quantize_offset(const float *x, uint8_t *b, int top)
{
    uint8_t level[32];
    float lo, hi;
    range(x, 32, &lo, &hi);
    float d = (hi - lo) / (float)top;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    for (int j = 0; j < 32; j++)
        level[j] = (uint8_t)clamp_trunc((x[j] - lo) * inverse + 0.5f, top);
    put_half(b, d);
    put_half(b + 2, lo);
    if (top == 15)
        pack_nibbles(level, b + 4, NULL);
    else
        pack_nibbles(level, b + 8, b + 4);
}

static void quantize_q8_0(const float *x, uint8_t *b)
{
    float d = fabsf(extreme(x, 32)) / 127.0f;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    put_half(b, d);
    for (int j = 0; j < 32; j++) {
        float v = x[j] * inverse;
        int q = clamp_trunc(fabsf(v) + 0.5f, 127); /* half away from zero */
        b[2 + j] = (uint8_t)(int8_t)(v < 0.0f ? -q : q);
    }
}

/* Fit x[32] ~ scale * q - minimum, q in [0, top], minimum >= 0. */
static void fit_scale_min(const float *x, int top, float *scale, float *minimum)
{
    enum { N = 32, TRIES = 21 };
    float lo, hi;
    double best = DBL_MAX;
    range(x, N, &lo, &hi);
    if (lo > 0.0f) lo = 0.0f; /* the format cannot add, only subtract */
    *scale = 0.0f;
    *minimum = -lo;
    if (!(hi > lo)) return;
    for (int t = 0; t < TRIES; t++) {
        float inverse = ((float)top - 1.0f + 0.1f * (float)t) / (hi - lo);
        double sq = 0, sqq = 0, sx = 0, sxq = 0;
        for (int i = 0; i < N; i++) {
            double q = clamp_round((x[i] - lo) * inverse, 0, top);
            sq += q;
            sqq += q * q;
            sx += x[i];
            sxq += x[i] * q;
        }
        double det = N * sqq - sq * sq;
        if (det <= 0) continue;
        double s = (N * sxq - sq * sx) / det, m = (sq * sxq - sqq * sx) / det;
        if (m < 0) {
            m = 0;
            s = sxq / sqq;
        }
        if (s <= 0) continue;
        double error = 0; /* with the levels that these two would really get */
        for (int i = 0; i < N; i++) {
            double q = clamp_round((float)((x[i] + m) / s), 0, top);
            double e = s * q - m - x[i];
            error += e * e;
        }
        if (error < best) {
            best = error;
            *scale = (float)s;
            *minimum = (float)m;
        }
    }
    if (best == DBL_MAX) *scale = (hi - lo) / (float)top;
}

/* Q4_K (top 15) and Q5_K (top 31). */
static void quantize_scale_min(const float *x, uint8_t *b, int top)
{
    float scale[8], minimum[8], max_scale = 0.0f, max_min = 0.0f;
    uint8_t sc[8], mn[8], level[256];
    for (int s = 0; s < 8; s++) {
        fit_scale_min(x + 32 * s, top, &scale[s], &minimum[s]);
        max_scale = fmaxf(max_scale, scale[s]);
        max_min = fmaxf(max_min, minimum[s]);
    }
    put_half(b, max_scale / 63.0f);
    put_half(b + 2, max_min / 63.0f);
    uint16_t h[2];
    memcpy(h, b, sizeof(h));
    float d = gem_f16_to_f32(h[0]), dmin = gem_f16_to_f32(h[1]); /* as the reader will see them */
    for (int s = 0; s < 8; s++) {
        sc[s] = (uint8_t)(d > 0.0f ? clamp_round(scale[s] / d, 0, 63) : 0);
        mn[s] = (uint8_t)(dmin > 0.0f ? clamp_round(minimum[s] / dmin, 0, 63) : 0);
        float step = d * (float)sc[s], m = dmin * (float)mn[s];
        for (int i = 0; i < 32; i++) {
            float v = step > 0.0f ? (x[32 * s + i] + m) / step : 0.0f;
            level[32 * s + i] = (uint8_t)clamp_round(v, 0, top);
        }
    }
    for (int j = 0; j < 4; j++) {
        b[4 + j] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
        b[8 + j] = (uint8_t)(mn[j] | (mn[j + 4] >> 4) << 6);
        b[12 + j] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
    uint8_t *high = top == 31 ? b + 16 : NULL, *q = top == 31 ? b + 48 : b + 16;
    if (high) memset(high, 0, 32);
    for (int s = 0; s < 8; s += 2)
        for (int l = 0; l < 32; l++) {
            uint8_t lo = level[32 * s + l], hi = level[32 * s + 32 + l];
            *q++ = (uint8_t)((lo & 15) | (hi & 15) << 4);
            if (high) high[l] |= (uint8_t)((lo >> 4) << s | (hi >> 4) << (s + 1));
        }
}

/* Fit x[16] ~ scale * q with q in [-32, 31]; the scale may be negative, so the extreme gets -32. */
static float fit_scale(const float *x)
{
    enum { N = 16, TRIES = 19 };
    float top = extreme(x, N), scale = 0.0f;
    double best = DBL_MAX;
    if (top == 0.0f) return 0.0f;
    for (int t = 0; t < TRIES; t++) {
        float inverse = -(32.0f + 0.1f * (float)(t - TRIES / 2)) / top;
        double sxq = 0, sqq = 0;
        for (int i = 0; i < N; i++) {
            double q = clamp_round(x[i] * inverse, -32, 31);
            sxq += x[i] * q;
            sqq += q * q;
        }
        if (sqq == 0) continue;
        double s = sxq / sqq, error = 0;
        if (s == 0) continue;
        for (int i = 0; i < N; i++) {
            double e = s * clamp_round((float)(x[i] / s), -32, 31) - x[i];
            error += e * e;
        }
        if (error < best) {
            best = error;
            scale = (float)s;
        }
    }
    return scale;
}

static void quantize_q6_k(const float *x, uint8_t *b)
{
    float scale[16];
    uint8_t level[256];
    for (int s = 0; s < 16; s++)
        scale[s] = fit_scale(x + 16 * s);
    put_half(b + 208, extreme(scale, 16) / -128.0f); /* the extreme scale becomes -128 */
    uint16_t h;
    memcpy(&h, b + 208, sizeof(h));
    float d = gem_f16_to_f32(h);
    for (int s = 0; s < 16; s++) {
        int sc = d != 0.0f ? clamp_round(scale[s] / d, -128, 127) : 0;
        b[192 + s] = (uint8_t)(int8_t)sc;
        float step = d * (float)sc;
        for (int i = 0; i < 16; i++) {
            float v = step != 0.0f ? x[16 * s + i] / step : 0.0f;
            level[16 * s + i] = (uint8_t)(clamp_round(v, -32, 31) + 32);
        }
    }
    for (int half = 0; half < 2; half++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *q = level + 128 * half + l;
            b[64 * half + l] = (uint8_t)((q[0] & 15) | (q[64] & 15) << 4);
            b[64 * half + 32 + l] = (uint8_t)((q[32] & 15) | (q[96] & 15) << 4);
            b[128 + 32 * half + l] =
                (uint8_t)(q[0] >> 4 | (q[32] >> 4) << 2 | (q[64] >> 4) << 4 | (q[96] >> 4) << 6);
        }
}

static void quantize_block(gem_dtype t, const float *x, uint8_t *b)
{
    uint16_t h;
    switch (t) {
    case GEM_DTYPE_F32:
        memcpy(b, x, sizeof(*x));
        break;
    case GEM_DTYPE_F16:
        put_half(b, *x);
        break;
    case GEM_DTYPE_BF16:
        h = gem_f32_to_bf16(*x);
        memcpy(b, &h, sizeof(h));
        break;
    case GEM_DTYPE_Q4_0:
        quantize_centred(x, b, 8);
        break;
    case GEM_DTYPE_Q5_0:
        quantize_centred(x, b, 16);
        break;
    case GEM_DTYPE_Q4_1:
        quantize_offset(x, b, 15);
        break;
    case GEM_DTYPE_Q5_1:
        quantize_offset(x, b, 31);
        break;
    case GEM_DTYPE_Q8_0:
        quantize_q8_0(x, b);
        break;
    case GEM_DTYPE_Q4_K:
        quantize_scale_min(x, b, 15);
        break;
    case GEM_DTYPE_Q5_K:
        quantize_scale_min(x, b, 31);
        break;
    case GEM_DTYPE_Q6_K:
        quantize_q6_k(x, b);
        break;
    }
}

void gem_quantize_row(gem_dtype t, const float *src, void *dst, size_t n)
{
    const gem_dtype_info *info = gem_dtype_get((uint32_t)t);
    assert(info && n % info->block_len == 0);
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += info->block_len, b += info->block_bytes)
        quantize_block(t, src + i, b);
}
