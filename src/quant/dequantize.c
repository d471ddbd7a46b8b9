/* dequantize.c - exact values of quantised rows: the oracle of every kernel.
 * Each value is built from f32 products in the order given in docs/formats.md and nothing is
 * contracted, so that all builds, and any other implementation of the same order, give equal bits.
 * Called by: exact mode, packers at load time, tests. Source: GGUF block layouts (docs/formats.md).
 */
#include "quant/quant.h"

#include <assert.h>

static inline float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return gem_f16_to_f32(h);
}

static void dequantize_f16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = half_at(src + 2 * i);
}

static void dequantize_bf16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof(h));
        dst[i] = gem_bf16_to_f32(h);
    }
}

static void dequantize_q4_0(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 32, b += 18, dst += 32) {
        float d = half_at(b);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((b[2 + j] & 15) - 8);
            dst[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
        }
    }
}

static void dequantize_q4_1(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 32, b += 20, dst += 32) {
        float d = half_at(b), m = half_at(b + 2);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(b[4 + j] & 15) + m;
            dst[j + 16] = d * (float)(b[4 + j] >> 4) + m;
        }
    }
}

static void dequantize_q5_0(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 32, b += 22, dst += 32) {
        float d = half_at(b);
        uint32_t high;
        memcpy(&high, b + 2, sizeof(high));
        for (int j = 0; j < 16; j++) {
            int lo = (b[6 + j] & 15) | (int)((high >> j & 1) << 4);
            int hi = (b[6 + j] >> 4) | (int)((high >> (j + 16) & 1) << 4);
            dst[j] = d * (float)(lo - 16);
            dst[j + 16] = d * (float)(hi - 16);
        }
    }
}

static void dequantize_q5_1(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 32, b += 24, dst += 32) {
        float d = half_at(b), m = half_at(b + 2);
        uint32_t high;
        memcpy(&high, b + 4, sizeof(high));
        for (int j = 0; j < 16; j++) {
            int lo = (b[8 + j] & 15) | (int)((high >> j & 1) << 4);
            int hi = (b[8 + j] >> 4) | (int)((high >> (j + 16) & 1) << 4);
            dst[j] = d * (float)lo + m;
            dst[j + 16] = d * (float)hi + m;
        }
    }
}

static void dequantize_q8_0(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 32, b += 34, dst += 32) {
        float d = half_at(b);
        for (int j = 0; j < 32; j++)
            dst[j] = d * (float)(int8_t)b[2 + j];
    }
}

static void dequantize_q4_k(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 256, b += 144) {
        float d = half_at(b), dmin = half_at(b + 2);
        const uint8_t *q = b + 16;
        for (int s = 0; s < 8; s += 2, q += 32, dst += 64) {
            uint8_t scale0, min0, scale1, min1;
            gem_k4_scale_min(b + 4, s, &scale0, &min0);
            gem_k4_scale_min(b + 4, s + 1, &scale1, &min1);
            float d0 = d * (float)scale0, m0 = dmin * (float)min0;
            float d1 = d * (float)scale1, m1 = dmin * (float)min1;
            for (int l = 0; l < 32; l++) {
                dst[l] = d0 * (float)(q[l] & 15) - m0;
                dst[l + 32] = d1 * (float)(q[l] >> 4) - m1;
            }
        }
    }
}

static void dequantize_q5_k(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 256, b += 176) {
        float d = half_at(b), dmin = half_at(b + 2);
        const uint8_t *high = b + 16, *q = b + 48;
        for (int s = 0; s < 8; s += 2, q += 32, dst += 64) {
            uint8_t scale0, min0, scale1, min1;
            gem_k4_scale_min(b + 4, s, &scale0, &min0);
            gem_k4_scale_min(b + 4, s + 1, &scale1, &min1);
            float d0 = d * (float)scale0, m0 = dmin * (float)min0;
            float d1 = d * (float)scale1, m1 = dmin * (float)min1;
            for (int l = 0; l < 32; l++) {
                int lo = (q[l] & 15) | (high[l] >> s & 1) << 4;
                int hi = (q[l] >> 4) | (high[l] >> (s + 1) & 1) << 4;
                dst[l] = d0 * (float)lo - m0;
                dst[l + 32] = d1 * (float)hi - m1;
            }
        }
    }
}

static void dequantize_q6_k(const uint8_t *b, float *dst, size_t n)
{
    for (; n; n -= 256, b += 210) {
        float d = half_at(b + 208);
        for (int half = 0; half < 2; half++, dst += 128) {
            const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
            const uint8_t *scales = b + 192 + 8 * half;
            float ds[8];
            for (int s = 0; s < 8; s++)
                ds[s] = d * (float)(int8_t)scales[s];
            for (int l = 0; l < 32; l++) {
                int s = l / 16, h = high[l];
                dst[l] = ds[s] * (float)(((low[l] & 15) | (h & 3) << 4) - 32);
                dst[l + 32] = ds[2 + s] * (float)(((low[l + 32] & 15) | (h >> 2 & 3) << 4) - 32);
                dst[l + 64] = ds[4 + s] * (float)(((low[l] >> 4) | (h >> 4 & 3) << 4) - 32);
                dst[l + 96] = ds[6 + s] * (float)(((low[l + 32] >> 4) | (h >> 6) << 4) - 32);
            }
        }
    }
}

void gem_dequantize_row(gem_dtype t, const void *src, float *dst, size_t n)
{
    const gem_dtype_info *info = gem_dtype_get((uint32_t)t);
    assert(info && n % info->block_len == 0);
    (void)info;
    switch (t) {
    case GEM_DTYPE_F32:
        memcpy(dst, src, n * sizeof(*dst));
        break;
    case GEM_DTYPE_F16:
        dequantize_f16(src, dst, n);
        break;
    case GEM_DTYPE_BF16:
        dequantize_bf16(src, dst, n);
        break;
    case GEM_DTYPE_Q4_0:
        dequantize_q4_0(src, dst, n);
        break;
    case GEM_DTYPE_Q4_1:
        dequantize_q4_1(src, dst, n);
        break;
    case GEM_DTYPE_Q5_0:
        dequantize_q5_0(src, dst, n);
        break;
    case GEM_DTYPE_Q5_1:
        dequantize_q5_1(src, dst, n);
        break;
    case GEM_DTYPE_Q8_0:
        dequantize_q8_0(src, dst, n);
        break;
    case GEM_DTYPE_Q4_K:
        dequantize_q4_k(src, dst, n);
        break;
    case GEM_DTYPE_Q5_K:
        dequantize_q5_k(src, dst, n);
        break;
    case GEM_DTYPE_Q6_K:
        dequantize_q6_k(src, dst, n);
        break;
    }
}
