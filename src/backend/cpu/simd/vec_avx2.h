/* vec_avx2.h - the 16-lane float vector of the templates on AVX2: two __m256.
 * Every vec_<isa>.h offers the same names; rows.h and attend.h are written over them, and one lane
 * does exactly what the scalar reference does to one element. */
#ifndef GEM_CPU_VEC_AVX2_H
#define GEM_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define V16_INLINE static inline __attribute__((always_inline))

typedef struct v16 {
    __m256 a, b; /* lanes 0..7, 8..15 */
} v16;
typedef struct m16 {
    __m256 a, b; /* all bits of a lane, or none */
} m16;

/* Attention blocks: rows of a block, and how many vectors of keys or dims beside R rows keep at
 * least 8 chains of fma busy within 16 registers. Seven rows that have nobody beside them are one
 * block, keys read from memory operands: 3 to 4 % slower in long prompts, but in decode keys are
 * read once. */
enum { V16_ATTEND_ROWS = 6, V16_ATTEND_ALONE = 7 };
#define V16_ATTEND_WIDTH(R) ((R) == 1 ? 4 : (R) <= 3 ? 2 : 1)

V16_INLINE v16 v16_set1(float f)
{
    __m256 v = _mm256_set1_ps(f);
    return (v16){v, v};
}
V16_INLINE v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
V16_INLINE void v16_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
V16_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
V16_INLINE void v16_store_f16(uint16_t *p, v16 v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
V16_INLINE v16 v16_add(v16 x, v16 y)
{
    return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
V16_INLINE v16 v16_sub(v16 x, v16 y)
{
    return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
V16_INLINE v16 v16_mul(v16 x, v16 y)
{
    return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
V16_INLINE v16 v16_div(v16 x, v16 y)
{
    return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
/* x * y + z */
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
/* -(x * y) + z */
V16_INLINE v16 v16_fnma(v16 x, v16 y, v16 z)
{
    return (v16){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
/* x > y ? x : y, so y where x is NaN */
V16_INLINE v16 v16_max(v16 x, v16 y)
{
    return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
/* x < y ? x : y */
V16_INLINE v16 v16_min(v16 x, v16 y)
{
    return (v16){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
V16_INLINE v16 v16_neg(v16 x)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
V16_INLINE v16 v16_abs(v16 x)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
/* To the nearest integer, ties to even. */
V16_INLINE v16 v16_round(v16 x)
{
    enum { MODE = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    return (v16){_mm256_round_ps(x.a, MODE), _mm256_round_ps(x.b, MODE)};
}
V16_INLINE __m256 v16_half_pow2(__m256 n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
/* 2^n of integral n in [-126, 127]; other lanes are arbitrary. */
V16_INLINE v16 v16_pow2(v16 n)
{
    return (v16){v16_half_pow2(n.a), v16_half_pow2(n.b)};
}

V16_INLINE m16 m16_lt(v16 x, v16 y)
{
    return (m16){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
V16_INLINE m16 m16_le(v16 x, v16 y)
{
    return (m16){_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}
V16_INLINE __m256 m16_half_range(__m256i lane, int lo, int hi)
{
    __m256i in = _mm256_and_si256(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(lo - 1)),
                                  _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), lane));
    return _mm256_castsi256_ps(in);
}
/* Lanes i with lo <= i < hi. */
V16_INLINE m16 m16_range(int lo, int hi)
{
    return (m16){m16_half_range(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), lo, hi),
                 m16_half_range(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), lo, hi)};
}
/* m ? x : 0 */
V16_INLINE v16 v16_keep(m16 m, v16 x)
{
    return (v16){_mm256_and_ps(m.a, x.a), _mm256_and_ps(m.b, x.b)};
}
/* m ? x : y */
V16_INLINE v16 v16_select(m16 m, v16 x, v16 y)
{
    return (v16){_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}

/* The fixed tree of sums: 16 -> 8 -> 4 -> 2 -> 1, lane i + lane i + half. */
V16_INLINE float v16_tree(v16 x)
{
    __m256 v = _mm256_add_ps(x.a, x.b);
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
/* Largest lane; no lane is NaN. */
V16_INLINE float v16_top(v16 x)
{
    __m256 v = _mm256_max_ps(x.a, x.b);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
/* Bits of |lanes|, largest as unsigned number: NaN above infinity above all numbers. */
V16_INLINE uint32_t v16_top_bits(v16 x, v16 y)
{
    v16 ax = v16_abs(x), ay = v16_abs(y);
    __m256i v =
        _mm256_max_epi32(_mm256_max_epi32(_mm256_castps_si256(ax.a), _mm256_castps_si256(ax.b)),
                         _mm256_max_epi32(_mm256_castps_si256(ay.a), _mm256_castps_si256(ay.b)));
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(h);
}
/* 32 values of magnitude at most 127 to int8, ties to even; sum[i]: of lanes 16i..16i+15. */
V16_INLINE void v16_store_i8(int8_t *q, v16 x, v16 y, int32_t sum[2])
{
    __m256i p = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    __m256i r = _mm256_packs_epi32(_mm256_cvtps_epi32(y.a), _mm256_cvtps_epi32(y.b));
    /* packs works within 128-bit halves: dwords come out as 0 2 4 6 1 3 5 7 */
    __m256i v = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(p, r),
                                            _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, v);
    __m256i biased = _mm256_xor_si256(v, _mm256_set1_epi8(-128));
    __m256i s = _mm256_sad_epu8(biased, _mm256_setzero_si256());
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
    sum[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(s)) - 16 * 128;
    sum[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1)) - 16 * 128;
}

#endif
