/* blocks_avx2.h - what the AVX2 kernels of quantised panels share: a block of 32 k unpacked half by
 * half (8 rows), its scales, and the canonical step (panel.h). `t` is a constant at every call. */
#ifndef GEM_CPU_BLOCKS_AVX2_H
#define GEM_CPU_BLOCKS_AVX2_H

#include "backend/cpu/simd/blocks.h"

#include <immintrin.h>

#define INLINE BLOCKS_INLINE

/* One token against one panel: token_avx2.c. */
void gem_token_avx2(gem_panel_type t, const gem_panel_args *a);

INLINE __m256i load32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Bytes (v >> n) & mask: what a 16-bit shift carries over from the neighbour is masked away. */
INLINE __m256i bits(__m256i v, int n, char mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, n), _mm256_set1_epi8(mask));
}

INLINE __m256i or3(__m256i a, __m256i b, __m256i c)
{
    return _mm256_or_si256(_mm256_or_si256(a, b), c);
}

/* Groups that are spread over the upper bits of lines (panel.h). */
INLINE __m256i five_of_two(__m256i a, __m256i b)
{
    return _mm256_or_si256(bits(a, 5, 7), bits(b, 2, 0x18));
}

INLINE __m256i five_of_three(__m256i c, __m256i b, __m256i e)
{
    return or3(bits(c, 5, 7), bits(b, 4, 8), bits(e, 3, 16));
}

INLINE __m256i six_of_three(__m256i a, __m256i b, __m256i c)
{
    return or3(bits(a, 6, 3), bits(b, 4, 12), bits(c, 2, 48));
}

/* The 8 groups of half h (rows 8h..8h+7) as bytes; Q8_0 signed, all others unsigned. */
INLINE void unpack_half(gem_panel_type t, const panel_block *r, int h, __m256i w[8])
{
    const uint8_t *p = r->vec + 32 * h;
    if (t == GEM_PANEL_Q8_0) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_xor_si256(load32(p + 64 * j), _mm256_set1_epi8((char)0x80));
    } else if (panel_is_five(t)) {
        const __m256i five = _mm256_set1_epi8(31);
        __m256i a = load32(p), b = load32(p + 64), c = load32(p + 128), d = load32(p + 192),
                e = load32(p + 256);
        w[0] = _mm256_and_si256(a, five);
        w[1] = _mm256_and_si256(b, five);
        w[2] = _mm256_and_si256(c, five);
        w[3] = five_of_two(a, b);
        w[4] = _mm256_and_si256(d, five);
        w[5] = _mm256_and_si256(e, five);
        w[6] = five_of_two(d, e);
        w[7] = five_of_three(c, b, e);
    } else if (t == GEM_PANEL_Q6_K) {
        const __m256i six = _mm256_set1_epi8(63);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++, p += 192) {
            __m256i a = load32(p), b = load32(p + 64), c = load32(p + 128);
            w[4 * g] = _mm256_and_si256(a, six);
            w[4 * g + 1] = _mm256_and_si256(b, six);
            w[4 * g + 2] = _mm256_and_si256(c, six);
            w[4 * g + 3] = six_of_three(a, b, c);
        }
    } else {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i v = load32(p + 64 * j);
            w[j] = _mm256_and_si256(v, _mm256_set1_epi8(15));
            w[j + 4] = bits(v, 4, 15);
        }
    }
}

INLINE __m256 halves8(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 unsigned8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256 signed8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* What a unit says of half h: d, and m or dmin. */
INLINE void unit_scales(gem_panel_type t, const uint8_t *unit, int h, __m256 *d, __m256 *m)
{
    *d = halves8(unit + 16 * h);
    *m = panel_has_min(t) ? halves8(unit + 32 + 16 * h) : _mm256_setzero_ps();
}

/* What a block makes of it: scale a, and minimum or second scale b. `at`: the
 * same block of another panel. */
INLINE void block_scales(gem_panel_type t, const panel_block *r, size_t at, int h, __m256 d,
                         __m256 m, __m256 *a, __m256 *b)
{
    *a = d;
    *b = m;
    if (t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K) {
        *a = _mm256_mul_ps(d, unsigned8(r->scale + at + 8 * h));
        *b = _mm256_mul_ps(m, unsigned8(r->min + at + 8 * h));
    }
    if (t == GEM_PANEL_Q6_K) {
        *a = _mm256_mul_ps(d, signed8(r->scale + at + 8 * h));
        *b = _mm256_mul_ps(d, signed8(r->scale + at + 16 + 8 * h));
    }
}

INLINE __m256i broadcast4(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

/* t: int32 sums with the offset applied -> the canonical float step. */
INLINE __m256 step(gem_panel_type t, __m256i t0, __m256i t1, __m256 a, __m256 b,
                   const block_column *x, int64_t blk, __m256 acc)
{
    __m256 xs = _mm256_set1_ps(x->xs[blk]), f = _mm256_cvtepi32_ps(t0);
    if (t == GEM_PANEL_Q6_K)
        return _mm256_fmadd_ps(_mm256_fmadd_ps(b, _mm256_cvtepi32_ps(t1), _mm256_mul_ps(a, f)), xs,
                               acc);
    if (panel_has_min(t)) {
        __m256 v = _mm256_mul_ps(a, f), xsum = _mm256_set1_ps(x->xsum[blk]);
        bool minus = t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K;
        v = minus ? _mm256_fnmadd_ps(b, xsum, v) : _mm256_fmadd_ps(b, xsum, v);
        return _mm256_fmadd_ps(v, xs, acc);
    }
    return _mm256_fmadd_ps(f, _mm256_mul_ps(a, xs), acc);
}

INLINE int kind_offset_shift(gem_panel_type t) /* offset 8, 16, 32 as a shift; -1: none */
{
    return t == GEM_PANEL_Q4_0 ? 3 : t == GEM_PANEL_Q5_0 ? 4 : t == GEM_PANEL_Q6_K ? 5 : -1;
}

INLINE __m256i start(gem_panel_type t, const int32_t *nsum)
{
    if (kind_offset_shift(t) < 0) return _mm256_setzero_si256();
    return _mm256_slli_epi32(_mm256_set1_epi32(*nsum), kind_offset_shift(t));
}

/* What the sums of a block start from; Q6_K: of each half of its k. */
INLINE void starts(gem_panel_type t, const block_column *x, int64_t b, __m256i *t0, __m256i *t1)
{
    *t0 = start(t, t == GEM_PANEL_Q6_K ? x->nsum16 + 2 * b : x->nsum + b);
    *t1 = t == GEM_PANEL_Q6_K ? start(t, x->nsum16 + 2 * b + 1) : _mm256_setzero_si256();
}

#endif
