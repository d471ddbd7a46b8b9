/* floats_avx2.c - float panels (F32, F16, BF16) on AVX2 + FMA: 16 lanes are 16 rows; blocks of 32 k
 * are summed apart, then added (panel.h). For exact mode and unquantised files. */
#include "backend/cpu/avx2/blocks_avx2.h"

INLINE void load16(gem_panel_type t, const uint8_t *panel, int64_t i, __m256 w[2])
{
    if (t == GEM_PANEL_F32) {
        w[0] = _mm256_loadu_ps((const float *)panel + 16 * i);
        w[1] = _mm256_loadu_ps((const float *)panel + 16 * i + 8);
    } else if (t == GEM_PANEL_F16) {
        w[0] = halves8(panel + 32 * i);
        w[1] = halves8(panel + 32 * i + 16);
    } else {
        for (int h = 0; h < 2; h++) {
            __m128i v = _mm_loadu_si128((const __m128i *)(panel + 32 * i + 16 * h));
            w[h] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
        }
    }
}

#define FLOAT_TILE(T, NC)                                                                          \
    do {                                                                                           \
        __m256 acc[NC][2];                                                                         \
        _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) acc[i][0] = acc[i][1] =             \
            _mm256_setzero_ps();                                                                   \
        const float *x = a->xf + (size_t)c * a->ldx;                                               \
        for (int64_t k0 = 0; k0 < a->k; k0 += 32) {                                                \
            __m256 s[NC][2];                                                                       \
            _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) s[i][0] = s[i][1] =             \
                _mm256_setzero_ps();                                                               \
            int64_t end = GEM_MIN(k0 + 32, a->k);                                                  \
            for (int64_t k = k0; k < end; k++) {                                                   \
                __m256 w[2];                                                                       \
                load16(T, panel, k, w);                                                            \
                _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                             \
                {                                                                                  \
                    __m256 v = _mm256_broadcast_ss(x + (size_t)i * a->ldx + k);                    \
                    s[i][0] = _mm256_fmadd_ps(w[0], v, s[i][0]);                                   \
                    s[i][1] = _mm256_fmadd_ps(w[1], v, s[i][1]);                                   \
                }                                                                                  \
            }                                                                                      \
            _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                 \
            {                                                                                      \
                acc[i][0] = _mm256_add_ps(acc[i][0], s[i][0]);                                     \
                acc[i][1] = _mm256_add_ps(acc[i][1], s[i][1]);                                     \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                     \
        {                                                                                          \
            _mm256_storeu_ps(a->y + (size_t)(c + i) * a->ldy, acc[i][0]);                          \
            _mm256_storeu_ps(a->y + (size_t)(c + i) * a->ldy + 8, acc[i][1]);                      \
        }                                                                                          \
    } while (0)

INLINE void floats(gem_panel_type t, const gem_panel_args *a)
{
    const uint8_t *panel = a->panel;
    int c = 0;
    for (; c + 4 <= a->n; c += 4)
        FLOAT_TILE(t, 4);
    for (; c < a->n; c++)
        FLOAT_TILE(t, 1);
}

static void linear_f32_avx2(const gem_panel_args *a)
{
    floats(GEM_PANEL_F32, a);
}

static void linear_f16_avx2(const gem_panel_args *a)
{
    floats(GEM_PANEL_F16, a);
}

static void linear_bf16_avx2(const gem_panel_args *a)
{
    floats(GEM_PANEL_BF16, a);
}

void gem_float_kernels_avx2(gem_cpu_kernels *t)
{
    t->linear[GEM_PANEL_F32] = linear_f32_avx2;
    t->linear[GEM_PANEL_F16] = linear_f16_avx2;
    t->linear[GEM_PANEL_BF16] = linear_bf16_avx2;
}
