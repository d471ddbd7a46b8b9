/* vec_avx512.h - the 16-lane float vector of the templates on AVX-512 (F, DQ): one __m512.
 * Names and meaning: vec_avx2.h. */
#ifndef GEM_CPU_VEC_AVX512_H
#define GEM_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define V16_INLINE static inline __attribute__((always_inline))

typedef struct v16 {
    __m512 v;
} v16;
typedef struct m16 {
    __mmask16 m;
} m16;

/* Attention blocks: 32 registers hold 8 rows x 2 vectors; few rows take the whole tile at once. */
enum { V16_ATTEND_ROWS = 8, V16_ATTEND_ALONE = 8 };
#define V16_ATTEND_WIDTH(R) ((R) <= 4 ? 4 : 2)

V16_INLINE v16 v16_set1(float f)
{
    return (v16){_mm512_set1_ps(f)};
}
V16_INLINE v16 v16_load(const float *p)
{
    return (v16){_mm512_loadu_ps(p)};
}
V16_INLINE void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x.v);
}
V16_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))};
}
V16_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
V16_INLINE v16 v16_add(v16 x, v16 y)
{
    return (v16){_mm512_add_ps(x.v, y.v)};
}
V16_INLINE v16 v16_sub(v16 x, v16 y)
{
    return (v16){_mm512_sub_ps(x.v, y.v)};
}
V16_INLINE v16 v16_mul(v16 x, v16 y)
{
    return (v16){_mm512_mul_ps(x.v, y.v)};
}
V16_INLINE v16 v16_div(v16 x, v16 y)
{
    return (v16){_mm512_div_ps(x.v, y.v)};
}
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm512_fmadd_ps(x.v, y.v, z.v)};
}
V16_INLINE v16 v16_fnma(v16 x, v16 y, v16 z)
{
    return (v16){_mm512_fnmadd_ps(x.v, y.v, z.v)};
}
V16_INLINE v16 v16_max(v16 x, v16 y)
{
    return (v16){_mm512_max_ps(x.v, y.v)};
}
V16_INLINE v16 v16_min(v16 x, v16 y)
{
    return (v16){_mm512_min_ps(x.v, y.v)};
}
V16_INLINE v16 v16_neg(v16 x)
{
    return (v16){_mm512_xor_ps(x.v, _mm512_set1_ps(-0.0f))};
}
V16_INLINE v16 v16_abs(v16 x)
{
    return (v16){_mm512_andnot_ps(_mm512_set1_ps(-0.0f), x.v)};
}
V16_INLINE v16 v16_round(v16 x)
{
    return (v16){_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
V16_INLINE v16 v16_pow2(v16 n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return (v16){_mm512_castsi512_ps(_mm512_slli_epi32(e, 23))};
}

V16_INLINE m16 m16_lt(v16 x, v16 y)
{
    return (m16){_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)};
}
V16_INLINE m16 m16_le(v16 x, v16 y)
{
    return (m16){_mm512_cmp_ps_mask(x.v, y.v, _CMP_LE_OQ)};
}
V16_INLINE m16 m16_range(int lo, int hi)
{
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 from = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo));
    return (m16){_mm512_mask_cmplt_epi32_mask(from, lane, _mm512_set1_epi32(hi))};
}
V16_INLINE v16 v16_keep(m16 m, v16 x)
{
    return (v16){_mm512_maskz_mov_ps(m.m, x.v)};
}
V16_INLINE v16 v16_select(m16 m, v16 x, v16 y)
{
    return (v16){_mm512_mask_mov_ps(y.v, m.m, x.v)};
}

V16_INLINE float v16_tree(v16 x)
{
    __m256 v = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
V16_INLINE float v16_top(v16 x)
{
    return _mm512_reduce_max_ps(x.v);
}
V16_INLINE uint32_t v16_top_bits(v16 x, v16 y)
{
    __m512i ax = _mm512_castps_si512(v16_abs(x).v), ay = _mm512_castps_si512(v16_abs(y).v);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(ax, ay));
}
V16_INLINE int32_t v16_sum_i8(__m128i v)
{
    __m128i s = _mm_sad_epu8(_mm_xor_si128(v, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 2) - 16 * 128;
}
V16_INLINE void v16_store_i8(int8_t *q, v16 x, v16 y, int32_t sum[2])
{
    __m128i lo = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v));
    __m128i hi = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(y.v));
    _mm_storeu_si128((__m128i *)q, lo);
    _mm_storeu_si128((__m128i *)(q + 16), hi);
    sum[0] = v16_sum_i8(lo);
    sum[1] = v16_sum_i8(hi);
}

#endif
