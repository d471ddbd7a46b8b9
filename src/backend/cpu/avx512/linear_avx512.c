/* linear_avx512.c - quantised and float panels on AVX-512 with VNNI.
 *
 * Idea. An R16K4 vector is one register: 16 rows x 4 k. vpdpbusd multiplies it by 4 bytes of a
 * column, broadcast from memory, into one int32 a row; the offset of unsigned weights is the
 * accumulator's start. Per block of 32 k the 8 groups are unpacked into registers and met by up to
 * 8 columns in two integer chains, then one mul and one fma (two fma with a minimum) a column.
 * Types that are dear to unpack (5 and 6 bits) are unpacked to bytes once when many columns come.
 * Bound: 8 of 10 multiplier slots do products: 80 % of the VNNI peak; one column runs at the speed
 * of memory. Arithmetic and its order: panel.h. */
#include "backend/cpu/simd/blocks.h"

#include <immintrin.h>

#define INLINE BLOCKS_INLINE

enum { MAX_COLUMNS = 8, TILE_FROM = 24 };

/* An unpacked block: 8 groups of bytes, and the scale with its minimum or second scale. */
typedef struct block512 {
    __m512i w[8];
    __m512 a, b;
} block512;

INLINE __m512i load512(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

/* w | (bits & mask) */
INLINE __m512i merge_bits(__m512i w, __m512i bits, char mask)
{
    return _mm512_ternarylogic_epi32(w, bits, _mm512_set1_epi8(mask), 0xf8);
}

INLINE void unpack_groups(gem_panel_type t, const panel_block *p, __m512i w[8])
{
    const __m512i low = _mm512_set1_epi8(15);
    if (t == GEM_PANEL_Q8_0) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            w[j] = load512(p->vec + 64 * j);
        return;
    }
    if (panel_is_five(t)) {
        const __m512i five = _mm512_set1_epi8(31);
        __m512i line[5];
#pragma GCC unroll 5
        for (int i = 0; i < 5; i++)
            line[i] = load512(p->vec + 64 * i);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) { /* the group of two lines' upper bits: 3, then 6 */
            __m512i v = _mm512_and_si512(_mm512_srli_epi16(line[3 * g], 5), _mm512_set1_epi8(7));
            w[3 + 3 * g] = merge_bits(v, _mm512_srli_epi16(line[3 * g + 1], 2), 0x18);
        }
        w[0] = _mm512_and_si512(line[0], five);
        w[1] = _mm512_and_si512(line[1], five);
        w[2] = _mm512_and_si512(line[2], five);
        w[4] = _mm512_and_si512(line[3], five);
        w[5] = _mm512_and_si512(line[4], five);
        w[7] = _mm512_and_si512(_mm512_srli_epi16(line[2], 5), _mm512_set1_epi8(7));
        w[7] = merge_bits(w[7], _mm512_srli_epi16(line[1], 4), 8);
        w[7] = merge_bits(w[7], _mm512_srli_epi16(line[4], 3), 16);
        return;
    }
    if (t == GEM_PANEL_Q6_K) {
#pragma GCC unroll 2
        for (int g = 0; g < 8; g += 4) {
            const __m512i six = _mm512_set1_epi8(63);
            const uint8_t *vec = p->vec + 48 * g;
            __m512i a = load512(vec), b = load512(vec + 64), c = load512(vec + 128);
            w[g] = _mm512_and_si512(a, six);
            w[g + 1] = _mm512_and_si512(b, six);
            w[g + 2] = _mm512_and_si512(c, six);
            w[g + 3] = _mm512_and_si512(_mm512_srli_epi16(a, 6), _mm512_set1_epi8(3));
            w[g + 3] = merge_bits(w[g + 3], _mm512_srli_epi16(b, 4), 12);
            w[g + 3] = merge_bits(w[g + 3], _mm512_srli_epi16(c, 2), 48);
        }
        return;
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m512i v = load512(p->vec + 64 * j);
        w[j] = _mm512_and_si512(v, low);
        w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
}

INLINE __m512 halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE __m512 unsigned_bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE __m512 signed_bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE void unpack_scales(gem_panel_type t, const panel_block *p, __m512 *a, __m512 *b)
{
    __m512 d = halves(p->unit);
    *a = d;
    *b = _mm512_setzero_ps();
    if (t == GEM_PANEL_Q4_1 || t == GEM_PANEL_Q5_1) *b = halves(p->unit + 32);
    if (t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K) {
        *a = _mm512_mul_ps(d, unsigned_bytes(p->scale));
        *b = _mm512_mul_ps(halves(p->unit + 32), unsigned_bytes(p->min));
    }
    if (t == GEM_PANEL_Q6_K) {
        *a = _mm512_mul_ps(d, signed_bytes(p->scale));
        *b = _mm512_mul_ps(d, signed_bytes(p->scale + 16));
    }
}

INLINE block512 unpack_block(gem_panel_type t, const uint8_t *panel, int64_t i)
{
    block512 r;
    panel_block p = panel_block_at(t, panel, i);
    unpack_groups(t, &p, r.w);
    unpack_scales(t, &p, &r.a, &r.b);
    return r;
}

/* A block as unpack_panel left it. */
INLINE block512 read_block(const uint8_t *bytes, const float *scales, int64_t i)
{
    block512 r;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        r.w[j] = load512(bytes + 512 * i + 64 * j);
    r.a = _mm512_load_ps(scales + 32 * i);
    r.b = _mm512_load_ps(scales + 32 * i + 16);
    return r;
}

/* -offset * sum(q): what the accumulator starts from, so that weights may stay unsigned. */
INLINE __m512i start(gem_panel_type t, const int32_t *nsum)
{
    switch (t) {
    case GEM_PANEL_Q4_0:
        return _mm512_slli_epi32(_mm512_set1_epi32(*nsum), 3);
    case GEM_PANEL_Q5_0:
        return _mm512_slli_epi32(_mm512_set1_epi32(*nsum), 4);
    case GEM_PANEL_Q6_K:
        return _mm512_slli_epi32(_mm512_set1_epi32(*nsum), 5);
    case GEM_PANEL_Q8_0:
        return _mm512_slli_epi32(_mm512_set1_epi32(*nsum), 7);
    default:
        return _mm512_setzero_si512();
    }
}

INLINE __m512i four_bytes(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

/* The canonical step of block i for one column. */
INLINE __m512 block_step(gem_panel_type t, const block512 *blk, const block_column *x, int64_t i,
                         __m512 acc)
{
    const bool two = t == GEM_PANEL_Q6_K; /* a scale for each half of the block */
    __m512i t0 = start(t, two ? x->nsum16 + 2 * i : x->nsum + i);
    __m512i t1 = two ? start(t, x->nsum16 + 2 * i + 1) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        t0 = _mm512_dpbusd_epi32(t0, blk->w[j], four_bytes(x->q + 32 * i + 4 * j));
        t1 = _mm512_dpbusd_epi32(t1, blk->w[j + 4], four_bytes(x->q + 32 * i + 16 + 4 * j));
    }
    __m512 xs = _mm512_set1_ps(x->xs[i]);
    if (two) {
        __m512 v = _mm512_mul_ps(blk->a, _mm512_cvtepi32_ps(t0));
        return _mm512_fmadd_ps(_mm512_fmadd_ps(blk->b, _mm512_cvtepi32_ps(t1), v), xs, acc);
    }
    __m512 f = _mm512_cvtepi32_ps(_mm512_add_epi32(t0, t1));
    if (!panel_has_min(t)) return _mm512_fmadd_ps(f, _mm512_mul_ps(blk->a, xs), acc);
    __m512 v = _mm512_mul_ps(blk->a, f), xsum = _mm512_set1_ps(x->xsum[i]);
    bool minus = t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K;
    v = minus ? _mm512_fnmadd_ps(blk->b, xsum, v) : _mm512_fmadd_ps(blk->b, xsum, v);
    return _mm512_fmadd_ps(v, xs, acc);
}

/* Columns [c, c + N) of a panel, packed or (bytes not NULL) unpacked. */
INLINE void columns(gem_panel_type t, int N, const gem_panel_args *a, const uint8_t *bytes,
                    size_t c)
{
    const float *scales = (const float *)(const void *)(a->scratch + 16 * a->k);
    block_column x[MAX_COLUMNS];
    __m512 acc[MAX_COLUMNS];
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
        x[i] = block_column_at(&a->x, c + (size_t)i);
        acc[i] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < a->k / 32; i++) {
        block512 blk = bytes ? read_block(bytes, scales, i) : unpack_block(t, a->panel, i);
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            acc[n] = block_step(t, &blk, &x[n], i, acc[n]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
        _mm512_storeu_ps(a->y + (c + (size_t)i) * a->ldy, acc[i]);
}

INLINE void rest(gem_panel_type t, const gem_panel_args *a, const uint8_t *bytes, size_t c)
{
    switch ((size_t)a->n - c) {
    case 1:
        columns(t, 1, a, bytes, c);
        break;
    case 2:
        columns(t, 2, a, bytes, c);
        break;
    case 3:
        columns(t, 3, a, bytes, c);
        break;
    case 4:
        columns(t, 4, a, bytes, c);
        break;
    case 5:
        columns(t, 5, a, bytes, c);
        break;
    case 6:
        columns(t, 6, a, bytes, c);
        break;
    case 7:
        columns(t, 7, a, bytes, c);
        break;
    }
}

INLINE void linear(gem_panel_type t, const gem_panel_args *a)
{
    size_t c = 0;
    for (; c + MAX_COLUMNS <= (size_t)a->n; c += MAX_COLUMNS)
        columns(t, MAX_COLUMNS, a, NULL, c);
    rest(t, a, NULL, c);
}

/* For many columns: the panel as bytes [block][8][64] in scratch, then two f32[16] a block. */
INLINE void linear_unpacked(gem_panel_type t, const gem_panel_args *a)
{
    if (a->n < TILE_FROM) {
        linear(t, a);
        return;
    }
    float *scales = (float *)(void *)(a->scratch + 16 * a->k);
    for (int64_t i = 0; i < a->k / 32; i++) {
        block512 blk = unpack_block(t, a->panel, i);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            _mm512_store_si512(a->scratch + 512 * i + 64 * j, blk.w[j]);
        _mm512_store_ps(scales + 32 * i, blk.a);
        _mm512_store_ps(scales + 32 * i + 16, blk.b);
    }
    size_t c = 0;
    for (; c + MAX_COLUMNS <= (size_t)a->n; c += MAX_COLUMNS)
        columns(t, MAX_COLUMNS, a, a->scratch, c);
    rest(t, a, a->scratch, c);
}

/* One token, four far panels side by side: four memory streams, each fetched 512 bytes ahead. */
INLINE void streams(gem_panel_type t, const gem_panel_args *a)
{
    const int bytes = t == GEM_PANEL_Q8_0 ? 544 : t == GEM_PANEL_Q6_K ? 416 : 352;
    block_column x = block_column_at(&a->x, 0);
    __m512 acc[GEM_PANEL_STREAMS];
#pragma GCC unroll 4
    for (int s = 0; s < GEM_PANEL_STREAMS; s++)
        acc[s] = _mm512_setzero_ps();
    for (int64_t i = 0; i < a->k / 32; i++) {
#pragma GCC unroll 4
        for (int s = 0; s < GEM_PANEL_STREAMS; s++) {
            const uint8_t *panel = a->panel + (size_t)s * a->panel_bytes;
            const char *ahead = (const char *)panel_block_at(t, panel, i).vec + 512;
#pragma GCC unroll 9
            for (int j = 0; j < bytes; j += 64)
                _mm_prefetch(ahead + j, _MM_HINT_T0);
            block512 blk = unpack_block(t, panel, i);
            acc[s] = block_step(t, &blk, &x, i, acc[s]);
        }
    }
#pragma GCC unroll 4
    for (int s = 0; s < GEM_PANEL_STREAMS; s++)
        _mm512_storeu_ps(a->y + 16 * s, acc[s]);
}

#define STREAMS(name, T)                                                                           \
    static void linear4_##name##_avx512(const gem_panel_args *a)                                   \
    {                                                                                              \
        streams(T, a);                                                                             \
    }
STREAMS(q4_0, GEM_PANEL_Q4_0)
STREAMS(q4_1, GEM_PANEL_Q4_1)
STREAMS(q5_0, GEM_PANEL_Q5_0)
STREAMS(q5_1, GEM_PANEL_Q5_1)
STREAMS(q8_0, GEM_PANEL_Q8_0)
STREAMS(q4_k, GEM_PANEL_Q4_K)
STREAMS(q5_k, GEM_PANEL_Q5_K)
STREAMS(q6_k, GEM_PANEL_Q6_K)

static void linear_q4_0_avx512(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q4_0, a);
}

static void linear_q4_1_avx512(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q4_1, a);
}

static void linear_q5_0_avx512(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q5_0, a);
}

static void linear_q5_1_avx512(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q5_1, a);
}

static void linear_q8_0_avx512(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q8_0, a);
}

static void linear_q4_k_avx512(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q4_K, a);
}

static void linear_q5_k_avx512(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q5_K, a);
}

static void linear_q6_k_avx512(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q6_K, a);
}

/* ---- float panels: one chain of fma per 32 k, added to the sum ---- */

INLINE __m512 load_value(gem_panel_type t, const uint8_t *panel, int64_t k)
{
    if (t == GEM_PANEL_F32) return _mm512_loadu_ps(panel + 64 * k);
    if (t == GEM_PANEL_F16) return halves(panel + 32 * k);
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(panel + 32 * k)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

INLINE void float_columns(gem_panel_type t, int N, const gem_panel_args *a, size_t c)
{
    const float *x[MAX_COLUMNS];
    __m512 acc[MAX_COLUMNS];
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
        x[i] = a->xf + (c + (size_t)i) * a->ldx;
        acc[i] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < a->k; k += 32) {
        int64_t end = GEM_MIN(k + 32, a->k);
        __m512 chain[MAX_COLUMNS];
#pragma GCC unroll 8
        for (int i = 0; i < N; i++)
            chain[i] = _mm512_setzero_ps();
        for (int64_t j = k; j < end; j++) {
            __m512 w = load_value(t, a->panel, j);
#pragma GCC unroll 8
            for (int i = 0; i < N; i++)
                chain[i] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[i][j]), chain[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; i++)
            acc[i] = _mm512_add_ps(acc[i], chain[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++)
        _mm512_storeu_ps(a->y + (c + (size_t)i) * a->ldy, acc[i]);
}

INLINE void floats(gem_panel_type t, const gem_panel_args *a)
{
    size_t c = 0, n = (size_t)a->n;
    for (; c + 8 <= n; c += 8)
        float_columns(t, 8, a, c);
    for (; c + 4 <= n; c += 4)
        float_columns(t, 4, a, c);
    for (; c < n; c++)
        float_columns(t, 1, a, c);
}

static void linear_f32_avx512(const gem_panel_args *a)
{
    floats(GEM_PANEL_F32, a);
}

static void linear_f16_avx512(const gem_panel_args *a)
{
    floats(GEM_PANEL_F16, a);
}

static void linear_bf16_avx512(const gem_panel_args *a)
{
    floats(GEM_PANEL_BF16, a);
}

void gem_linear_kernels_avx512(gem_cpu_kernels *t)
{
    t->linear[GEM_PANEL_Q4_0] = linear_q4_0_avx512;
    t->linear4[GEM_PANEL_Q4_0] = linear4_q4_0_avx512;
    t->linear[GEM_PANEL_Q4_1] = linear_q4_1_avx512;
    t->linear4[GEM_PANEL_Q4_1] = linear4_q4_1_avx512;
    t->linear[GEM_PANEL_Q5_0] = linear_q5_0_avx512;
    t->linear4[GEM_PANEL_Q5_0] = linear4_q5_0_avx512;
    t->linear[GEM_PANEL_Q5_1] = linear_q5_1_avx512;
    t->linear4[GEM_PANEL_Q5_1] = linear4_q5_1_avx512;
    t->linear[GEM_PANEL_Q8_0] = linear_q8_0_avx512;
    t->linear4[GEM_PANEL_Q8_0] = linear4_q8_0_avx512;
    t->linear[GEM_PANEL_Q4_K] = linear_q4_k_avx512;
    t->linear4[GEM_PANEL_Q4_K] = linear4_q4_k_avx512;
    t->linear[GEM_PANEL_Q5_K] = linear_q5_k_avx512;
    t->linear4[GEM_PANEL_Q5_K] = linear4_q5_k_avx512;
    t->linear[GEM_PANEL_Q6_K] = linear_q6_k_avx512;
    t->linear4[GEM_PANEL_Q6_K] = linear4_q6_k_avx512;
    t->linear[GEM_PANEL_F32] = linear_f32_avx512;
    t->linear[GEM_PANEL_F16] = linear_f16_avx512;
    t->linear[GEM_PANEL_BF16] = linear_bf16_avx512;
}
