/* linear_avx2.c - quantised and float panels on AVX2 + FMA without VNNI.
 *
 * Idea. A 32-byte half of an R16K4 vector is 8 rows x 4 k. vpmaddubsw multiplies unsigned weights by
 * signed activations (one 4-byte group of a token, broadcast) and adds pairs into int16; weights below
 * 32 allow 4 such sums before widening (31*127*2*4 < 2^15), 6-bit ones 2; vpmaddwd by ones
 * widens to one int32 a row. Q8_0 takes |w| and x with w's sign. One token runs straight from the
 * packed bits (memory bound); more tokens unpack the panel to bytes once and walk it in tiles of
 * 8 rows x 4 tokens. Bound: two multiply pipes, 10 multiplies per 256 products (chain of 4).
 * Arithmetic and its order: panel.h. */
#include "backend/cpu/kernels.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef enum unpack_kind { U_Q4_0, U_Q4_1, U_Q5_0, U_Q5_1, U_Q8_0, U_Q4_K, U_Q5_K, U_Q6_K } unpack_kind;

INLINE bool kind_has_min(unpack_kind t)
{
    return t == U_Q4_1 || t == U_Q5_1 || t == U_Q4_K || t == U_Q5_K;
}

INLINE int kind_offset_shift(unpack_kind t) /* offset 8, 16, 32 as a shift; -1: none */
{
    return t == U_Q4_0 ? 3 : t == U_Q5_0 ? 4 : t == U_Q6_K ? 5 : -1;
}

INLINE int kind_chain(unpack_kind t) /* vpmaddubsw sums before widening: fewer than fit is no loss */
{
    return t == U_Q6_K ? 2 : t == U_Q8_0 ? 1 : 4;
}

/* Where block b (32 k) of a panel keeps its parts. */
typedef struct block_ref {
    const uint8_t *unit, *vec, *plane;
    int sub; /* sub-block in a K unit */
} block_ref;

INLINE block_ref block_at(unpack_kind t, const uint8_t *panel, int64_t b)
{
    block_ref r = {0};
    switch (t) {
    case U_Q4_0: r.unit = panel + b * 288, r.vec = r.unit + 32; break;
    case U_Q4_1: r.unit = panel + b * 320, r.vec = r.unit + 64; break;
    case U_Q5_0: r.unit = panel + b * 352, r.vec = r.unit + 32; break;
    case U_Q5_1: r.unit = panel + b * 384, r.vec = r.unit + 64; break;
    case U_Q8_0: r.unit = panel + b * 544, r.vec = r.unit + 32; break;
    case U_Q4_K: r.unit = panel + b / 8 * 2368, r.sub = (int)(b % 8), r.vec = r.unit + 320 + r.sub * 256; break;
    case U_Q5_K: r.unit = panel + b / 8 * 2880, r.sub = (int)(b % 8), r.vec = r.unit + 320 + r.sub * 320; break;
    case U_Q6_K: r.unit = panel + b / 8 * 3360, r.sub = (int)(b % 8), r.vec = r.unit + 64 + r.sub * 416; break;
    }
    r.plane = r.vec + 256;
    return r;
}

/* The 8 groups of half h (rows 8h..8h+7) as bytes; Q8_0 signed, all others unsigned. */
INLINE void unpack_half(unpack_kind t, const block_ref *r, int h, __m256i w[8])
{
    const __m256i low = _mm256_set1_epi8(15);
    if (t == U_Q8_0) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(r->vec + 64 * j + 32 * h)), _mm256_set1_epi8((char)0x80));
        return;
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(r->vec + 64 * j + 32 * h));
        w[j] = _mm256_and_si256(v, low);
        w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
    if (t == U_Q5_0 || t == U_Q5_1 || t == U_Q5_K) {
        __m256i p = _mm256_loadu_si256((const __m256i *)(r->plane + 32 * h)), bit = _mm256_set1_epi8(16);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m256i s = j < 4 ? _mm256_slli_epi16(p, 4 - j) : _mm256_srli_epi16(p, j - 4);
            w[j] = _mm256_or_si256(w[j], _mm256_and_si256(s, bit));
        }
    }
    if (t == U_Q6_K) {
        const __m256i bits = _mm256_set1_epi8(0x30);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            __m256i p = _mm256_loadu_si256((const __m256i *)(r->plane + 64 * g + 32 * h));
            w[2 * g] = _mm256_or_si256(w[2 * g], _mm256_and_si256(_mm256_slli_epi16(p, 4), bits));
            w[2 * g + 4] = _mm256_or_si256(w[2 * g + 4], _mm256_and_si256(_mm256_slli_epi16(p, 2), bits));
            w[2 * g + 1] = _mm256_or_si256(w[2 * g + 1], _mm256_and_si256(p, bits));
            w[2 * g + 5] = _mm256_or_si256(w[2 * g + 5], _mm256_and_si256(_mm256_srli_epi16(p, 2), bits));
        }
    }
}

INLINE __m256 halves8(const uint8_t *p, int h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16 * h)));
}

INLINE __m256 bytes8(const uint8_t *p, int h)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8 * h))));
}

/* Scale a, and minimum (negated for K types) or second scale b, of half h. */
INLINE void load_scales(unpack_kind t, const block_ref *r, int h, __m256 *a, __m256 *b)
{
    *a = halves8(r->unit, h);
    *b = _mm256_setzero_ps();
    if (t == U_Q4_1 || t == U_Q5_1) *b = halves8(r->unit + 32, h);
    if (t == U_Q4_K || t == U_Q5_K) {
        *a = _mm256_mul_ps(*a, bytes8(r->unit + 64 + 16 * r->sub, h));
        __m256 m = _mm256_mul_ps(halves8(r->unit + 32, h), bytes8(r->unit + 192 + 16 * r->sub, h));
        *b = _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
    }
    if (t == U_Q6_K) {
        const uint8_t *sc = r->vec - 32;
        __m256 s0 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(sc + 8 * h))));
        __m256 s1 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(sc + 16 + 8 * h))));
        *b = _mm256_mul_ps(*a, s1);
        *a = _mm256_mul_ps(*a, s0);
    }
}

/* Everything a token brings to block b. */
typedef struct token_block {
    const int8_t *q;
    const float *xs, *xsum;
    const int32_t *nsum, *nsum16;
} token_block;

INLINE token_block token_at(const gem_qrows *x, size_t c)
{
    token_block t = {x->q + c * x->ld, x->xs + c * (x->ld / 32), x->xsum + c * (x->ld / 32),
                     x->nsum + c * (x->ld / 32), x->nsum16 + c * (x->ld / 16)};
    return t;
}

INLINE __m256i broadcast4(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

/* t: int32 sums with the offset applied -> the canonical float step. */
INLINE __m256 step(unpack_kind t, __m256i t0, __m256i t1, __m256 a, __m256 b, const token_block *x, int64_t blk, __m256 acc)
{
    __m256 xs = _mm256_set1_ps(x->xs[blk]), f = _mm256_cvtepi32_ps(t0);
    if (t == U_Q6_K) return _mm256_fmadd_ps(_mm256_fmadd_ps(b, _mm256_cvtepi32_ps(t1), _mm256_mul_ps(a, f)), xs, acc);
    if (kind_has_min(t))
        return _mm256_fmadd_ps(_mm256_fmadd_ps(b, _mm256_set1_ps(x->xsum[blk]), _mm256_mul_ps(a, f)), xs, acc);
    return _mm256_fmadd_ps(f, _mm256_mul_ps(a, xs), acc);
}

INLINE __m256i start(unpack_kind t, const int32_t *nsum)
{
    if (kind_offset_shift(t) < 0) return _mm256_setzero_si256();
    return _mm256_slli_epi32(_mm256_set1_epi32(*nsum), kind_offset_shift(t));
}

/* NC tokens x 8 rows of one block: w holds 8 groups, `stride` vectors apart. */
#define TILE_DOT(T, NC, W_AT)                                                                         \
    do {                                                                                               \
        const __m256i ones = _mm256_set1_epi16(1);                                                     \
        const int chain = kind_chain(T);                                                               \
        _Pragma("GCC unroll 8") for (int g = 0; g < 8; g += chain)                                     \
        {                                                                                              \
            __m256i p[NC];                                                                             \
            _Pragma("GCC unroll 8") for (int j = g; j < g + chain; j++)                                \
            {                                                                                          \
                __m256i w = W_AT(j);                                                                   \
                __m256i aw = (T) == U_Q8_0 ? _mm256_abs_epi8(w) : w;                                   \
                _Pragma("GCC unroll 4") for (int i_ = 0; i_ < (NC); i_++)                                 \
                {                                                                                      \
                    __m256i v = broadcast4(x[i_].q + 32 * b + 4 * j);                                   \
                    if ((T) == U_Q8_0) v = _mm256_sign_epi8(v, w);                                     \
                    v = _mm256_maddubs_epi16(aw, v);                                                   \
                    p[i_] = j == g ? v : _mm256_add_epi16(p[i_], v);                                     \
                }                                                                                      \
            }                                                                                          \
            _Pragma("GCC unroll 4") for (int i_ = 0; i_ < (NC); i_++)                                     \
            {                                                                                          \
                __m256i v = _mm256_madd_epi16(p[i_], ones);                                             \
                if ((T) == U_Q6_K && g >= 4) t1[i_] = _mm256_add_epi32(t1[i_], v);                       \
                else t0[i_] = _mm256_add_epi32(t0[i_], v);                                               \
            }                                                                                          \
        }                                                                                              \
    } while (0)

INLINE void starts(unpack_kind t, const token_block *x, int64_t b, __m256i *t0, __m256i *t1)
{
    *t0 = start(t, t == U_Q6_K ? x->nsum16 + 2 * b : x->nsum + b);
    *t1 = t == U_Q6_K ? start(t, x->nsum16 + 2 * b + 1) : _mm256_setzero_si256();
}

/* The same block some pages of compute ahead: the hardware prefetchers stop short of the roof here. */
INLINE void prefetch_block(unpack_kind t, const block_ref *r)
{
    enum { AHEAD = 8192 };
    const int bytes = t == U_Q8_0 ? 544 : t == U_Q6_K ? 416 : t == U_Q4_0 || t == U_Q4_K ? 288 : 352;
#pragma GCC unroll 9
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)r->vec + AHEAD + i, _MM_HINT_T0);
}

/* One token straight from the packed bits. */
INLINE void direct1(unpack_kind t, const gem_panel_args *a)
{
    token_block x[1] = {token_at(&a->x, 0)};
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t b = 0; b < a->k / 32; b++) {
        block_ref r = block_at(t, a->panel, b);
        prefetch_block(t, &r);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i w8[8], t0[1], t1[1];
            __m256 sa, sb;
            unpack_half(t, &r, h, w8);
            starts(t, x, b, t0, t1);
#define W_AT(j) w8[j]
            TILE_DOT(t, 1, W_AT);
#undef W_AT
            load_scales(t, &r, h, &sa, &sb);
            acc[h] = step(t, t0[0], t1[0], sa, sb, x, b, acc[h]);
        }
    }
    _mm256_storeu_ps(a->y, acc[0]);
    _mm256_storeu_ps(a->y + 8, acc[1]);
}

/* Scratch of an unpacked panel: per block and half 8 vectors of 32 bytes, then per block and half the
 * two scale vectors. */
INLINE void unpack_panel(unpack_kind t, const gem_panel_args *a, __m256i *bytes, float *scales)
{
    for (int64_t b = 0; b < a->k / 32; b++) {
        block_ref r = block_at(t, a->panel, b);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i w8[8];
            __m256 sa, sb;
            unpack_half(t, &r, h, w8);
            load_scales(t, &r, h, &sa, &sb);
            int64_t at = (int64_t)h * (a->k / 32) + b; /* one half of all blocks, then the other */
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) _mm256_store_si256(bytes + 8 * at + j, w8[j]);
            _mm256_store_ps(scales + 16 * at, sa);
            _mm256_store_ps(scales + 16 * at + 8, sb);
        }
    }
}

#define TILE(T, NC)                                                                                    \
    do {                                                                                               \
        token_block x[NC];                                                                             \
        _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) x[i] = token_at(&a->x, (size_t)(c + i)); \
        for (int h = 0; h < 2; h++) {                                                                  \
            const __m256i *wp = bytes + 8 * h * n_blocks;                                              \
            const float *sp = scales + 16 * h * n_blocks;                                              \
            __m256 acc[NC];                                                                            \
            _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) acc[i] = _mm256_setzero_ps();       \
            for (int64_t b = 0; b < n_blocks; b++, wp += 8, sp += 16) {                                \
                __m256i t0[NC], t1[NC];                                                                \
                _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) starts(T, &x[i], b, &t0[i], &t1[i]); \
                TILE_DOT(T, NC, W_AT);                                                                 \
                __m256 sa = _mm256_load_ps(sp), sb = _mm256_load_ps(sp + 8);                           \
                _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                 \
                    acc[i] = step(T, t0[i], t1[i], sa, sb, &x[i], b, acc[i]);                          \
            }                                                                                          \
            _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                     \
                _mm256_storeu_ps(a->y + (size_t)(c + i) * a->ldy + 8 * h, acc[i]);                     \
        }                                                                                              \
    } while (0)

INLINE void linear(unpack_kind t, const gem_panel_args *a)
{
    if (a->n == 1) {
        direct1(t, a);
        return;
    }
    const int64_t n_blocks = a->k / 32;
    __m256i *bytes = (__m256i *)a->scratch;
    float *scales = (float *)(a->scratch + n_blocks * 512);
    unpack_panel(t, a, bytes, scales);
    int c = 0;
#define W_AT(j) _mm256_load_si256(wp + (j))
    for (; c + 4 <= a->n; c += 4) TILE(t, 4);
    for (; c < a->n; c++) TILE(t, 1);
#undef W_AT
}

static void linear_q4_0_avx2(const gem_panel_args *a)
{
    linear(U_Q4_0, a);
}

static void linear_q4_1_avx2(const gem_panel_args *a)
{
    linear(U_Q4_1, a);
}

static void linear_q5_0_avx2(const gem_panel_args *a)
{
    linear(U_Q5_0, a);
}

static void linear_q5_1_avx2(const gem_panel_args *a)
{
    linear(U_Q5_1, a);
}

static void linear_q8_0_avx2(const gem_panel_args *a)
{
    linear(U_Q8_0, a);
}

static void linear_q4_k_avx2(const gem_panel_args *a)
{
    linear(U_Q4_K, a);
}

static void linear_q5_k_avx2(const gem_panel_args *a)
{
    linear(U_Q5_K, a);
}

static void linear_q6_k_avx2(const gem_panel_args *a)
{
    linear(U_Q6_K, a);
}

/* ---- float panels: 16 lanes are 16 rows; blocks of 32 k are summed apart, then added ---- */

INLINE void load16(gem_panel_type t, const uint8_t *panel, int64_t i, __m256 w[2])
{
    if (t == GEM_PANEL_F32) {
        w[0] = _mm256_loadu_ps((const float *)panel + 16 * i);
        w[1] = _mm256_loadu_ps((const float *)panel + 16 * i + 8);
    } else if (t == GEM_PANEL_F16) {
        w[0] = halves8(panel + 32 * i, 0);
        w[1] = halves8(panel + 32 * i, 1);
    } else {
        for (int h = 0; h < 2; h++) {
            __m128i v = _mm_loadu_si128((const __m128i *)(panel + 32 * i + 16 * h));
            w[h] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
        }
    }
}

#define FLOAT_TILE(T, NC)                                                                              \
    do {                                                                                               \
        __m256 acc[NC][2];                                                                             \
        _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps(); \
        const float *x = a->xf + (size_t)c * a->ldx;                                                   \
        for (int64_t k0 = 0; k0 < a->k; k0 += 32) {                                                    \
            __m256 s[NC][2];                                                                           \
            _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++) s[i][0] = s[i][1] = _mm256_setzero_ps(); \
            int64_t end = GEM_MIN(k0 + 32, a->k);                                                      \
            for (int64_t k = k0; k < end; k++) {                                                       \
                __m256 w[2];                                                                           \
                load16(T, panel, k, w);                                                                \
                _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                 \
                {                                                                                      \
                    __m256 v = _mm256_broadcast_ss(x + (size_t)i * a->ldx + k);                        \
                    s[i][0] = _mm256_fmadd_ps(w[0], v, s[i][0]);                                       \
                    s[i][1] = _mm256_fmadd_ps(w[1], v, s[i][1]);                                       \
                }                                                                                      \
            }                                                                                          \
            _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                     \
            {                                                                                          \
                acc[i][0] = _mm256_add_ps(acc[i][0], s[i][0]);                                         \
                acc[i][1] = _mm256_add_ps(acc[i][1], s[i][1]);                                         \
            }                                                                                          \
        }                                                                                              \
        _Pragma("GCC unroll 4") for (int i = 0; i < (NC); i++)                                         \
        {                                                                                              \
            _mm256_storeu_ps(a->y + (size_t)(c + i) * a->ldy, acc[i][0]);                              \
            _mm256_storeu_ps(a->y + (size_t)(c + i) * a->ldy + 8, acc[i][1]);                          \
        }                                                                                              \
    } while (0)

INLINE void floats(gem_panel_type t, const gem_panel_args *a)
{
    const uint8_t *panel = a->panel;
    int c = 0;
    for (; c + 4 <= a->n; c += 4) FLOAT_TILE(t, 4);
    for (; c < a->n; c++) FLOAT_TILE(t, 1);
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

void gem_linear_kernels_avx2(gem_cpu_kernels *t)
{
    t->linear[GEM_PANEL_Q4_0] = linear_q4_0_avx2;
    t->linear[GEM_PANEL_Q4_1] = linear_q4_1_avx2;
    t->linear[GEM_PANEL_Q5_0] = linear_q5_0_avx2;
    t->linear[GEM_PANEL_Q5_1] = linear_q5_1_avx2;
    t->linear[GEM_PANEL_Q8_0] = linear_q8_0_avx2;
    t->linear[GEM_PANEL_Q4_K] = linear_q4_k_avx2;
    t->linear[GEM_PANEL_Q5_K] = linear_q5_k_avx2;
    t->linear[GEM_PANEL_Q6_K] = linear_q6_k_avx2;
    t->linear[GEM_PANEL_F32] = linear_f32_avx2;
    t->linear[GEM_PANEL_F16] = linear_f16_avx2;
    t->linear[GEM_PANEL_BF16] = linear_bf16_avx2;
}
