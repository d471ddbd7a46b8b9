/* linear_avx2.c - several tokens against one quantised panel on AVX2 + FMA without VNNI.
 *
 * Idea. A 32-byte half of an R16K4 vector is 8 rows x 4 k. vpmaddubsw multiplies unsigned weights
 * by signed activations (one 4-byte group of a token, broadcast) and adds pairs into int16; weights
 * below 32 allow 4 such sums before widening (31*127*2*4 < 2^15), 6-bit ones 2; vpmaddwd by ones
 * widens to one int32 a row. Q8_0 takes |w| and x with w's sign. 1,024 k
 * of the panel are unpacked to bytes once, so that they stay in L1 (20 KB), and the tokens pass in
 * tiles of 16 rows x 2 tokens; one token alone: token_avx2.c. Bound of a block of 1,024 products:
 * 32 256-bit loads (2 a cycle) and 40 multiplies (2 a cycle): 51 a cycle; measured on Zen 3: 33.
 * Arithmetic and its order: panel.h. */
#include "backend/cpu/avx2/blocks_avx2.h"

INLINE int
kind_chain(gem_panel_type t) /* vpmaddubsw sums before widening: fewer than fit is no loss */
{
    return t == GEM_PANEL_Q6_K ? 2 : t == GEM_PANEL_Q8_0 ? 1 : 4;
}

/* NC tokens x 8 rows of one block: w holds 8 groups, `stride` vectors apart. */
#define TILE_DOT(T, NC, W_AT)                                                                      \
    do {                                                                                           \
        const __m256i ones = _mm256_set1_epi16(1);                                                 \
        const int chain = kind_chain(T);                                                           \
        _Pragma("GCC unroll 8") for (int g = 0; g < 8; g += chain)                                 \
        {                                                                                          \
            __m256i p[NC];                                                                         \
            _Pragma("GCC unroll 8") for (int j = g; j < g + chain; j++)                            \
            {                                                                                      \
                __m256i w = W_AT(j);                                                               \
                __m256i aw = (T) == GEM_PANEL_Q8_0 ? _mm256_abs_epi8(w) : w;                       \
                _Pragma("GCC unroll 4") for (int i_ = 0; i_ < (NC); i_++)                          \
                {                                                                                  \
                    __m256i v = broadcast4(x[i_].q + 32 * b + 4 * j);                              \
                    if ((T) == GEM_PANEL_Q8_0) v = _mm256_sign_epi8(v, w);                         \
                    v = _mm256_maddubs_epi16(aw, v);                                               \
                    p[i_] = j == g ? v : _mm256_add_epi16(p[i_], v);                               \
                }                                                                                  \
            }                                                                                      \
            _Pragma("GCC unroll 4") for (int i_ = 0; i_ < (NC); i_++)                              \
            {                                                                                      \
                __m256i v = _mm256_madd_epi16(p[i_], ones);                                        \
                if ((T) == GEM_PANEL_Q6_K && g >= 4)                                               \
                    t1[i_] = _mm256_add_epi32(t1[i_], v);                                          \
                else                                                                               \
                    t0[i_] = _mm256_add_epi32(t0[i_], v);                                          \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* Blocks [first, first + n) of a panel, unpacked: a stretch of k that stays in L1 while all tokens
 * pass. */
enum { STRETCH = 1024 / 32 };
typedef struct stretch {
    int64_t first, n;
    const __m256i *bytes; /* a block: 8 groups of 64 bytes */
    const float *scales;  /* a block: two vectors of 16 scales or minima */
} stretch;

INLINE void unpack_stretch(gem_panel_type t, const gem_panel_args *a, const stretch *k,
                           __m256i *bytes, float *scales)
{
    for (int64_t b = 0; b < k->n; b++) {
        panel_block r = panel_block_at(t, a->panel, k->first + b);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i w8[8];
            __m256 d, m, sa, sb;
            unpack_half(t, &r, h, w8);
            unit_scales(t, r.unit, h, &d, &m);
            block_scales(t, &r, 0, h, d, m, &sa, &sb);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                _mm256_store_si256(bytes + 16 * b + 2 * j + h, w8[j]);
            _mm256_store_ps(scales + 32 * b + 8 * h, sa);
            _mm256_store_ps(scales + 32 * b + 16 + 8 * h, sb);
        }
    }
}

/* 16 rows x 2 tokens of one block, in assembly: compilers spill the sums here, which halves the
 * rate. Sums of one chain stay in int16 (p), a chain ends by widening into t. */
#define DOT_FIRST(j)                                                                               \
    "vmovdqa 64*" #j "(%[w]), %[w0]\n\tvmovdqa 64*" #j "+32(%[w]), %[w1]\n\t"                      \
    "vpbroadcastd 4*" #j "(%[x0]), %[v]\n\t"                                                       \
    "vpmaddubsw %[v], %[w0], %[p0]\n\tvpmaddubsw %[v], %[w1], %[p1]\n\t"                           \
    "vpbroadcastd 4*" #j "(%[x1]), %[v]\n\t"                                                       \
    "vpmaddubsw %[v], %[w0], %[p2]\n\tvpmaddubsw %[v], %[w1], %[p3]\n\t"
#define DOT_NEXT(j)                                                                                \
    "vmovdqa 64*" #j "(%[w]), %[w0]\n\tvmovdqa 64*" #j "+32(%[w]), %[w1]\n\t"                      \
    "vpbroadcastd 4*" #j "(%[x0]), %[v]\n\t"                                                       \
    "vpmaddubsw %[v], %[w0], %[u]\n\tvpmaddubsw %[v], %[w1], %[v]\n\t"                             \
    "vpaddw %[u], %[p0], %[p0]\n\tvpaddw %[v], %[p1], %[p1]\n\t"                                   \
    "vpbroadcastd 4*" #j "(%[x1]), %[v]\n\t"                                                       \
    "vpmaddubsw %[v], %[w0], %[u]\n\tvpmaddubsw %[v], %[w1], %[v]\n\t"                             \
    "vpaddw %[u], %[p2], %[p2]\n\tvpaddw %[v], %[p3], %[p3]\n\t"
#define DOT_FOLD                                                                                   \
    "vpmaddwd %[ones], %[p0], %[p0]\n\tvpmaddwd %[ones], %[p1], %[p1]\n\t"                         \
    "vpmaddwd %[ones], %[p2], %[p2]\n\tvpmaddwd %[ones], %[p3], %[p3]\n\t"                         \
    "vpaddd %[p0], %[t0], %[t0]\n\tvpaddd %[p1], %[t1], %[t1]\n\t"                                 \
    "vpaddd %[p2], %[t2], %[t2]\n\tvpaddd %[p3], %[t3], %[t3]\n\t"
#define DOT_ASM(text)                                                                              \
    __asm__(text                                                                                   \
            : [t0] "+x"(t0), [t1] "+x"(t1), [t2] "+x"(t2), [t3] "+x"(t3), [p0] "=&x"(p0),          \
              [p1] "=&x"(p1), [p2] "=&x"(p2), [p3] "=&x"(p3), [w0] "=&x"(w0), [w1] "=&x"(w1),      \
              [v] "=&x"(v), [u] "=&x"(u)                                                           \
            : [w] "r"(w), [x0] "r"(x0), [x1] "r"(x1), [ones] "x"(ones),                            \
              "m"(*(const char(*)[512])w), "m"(*(const char(*)[32])x0),                            \
              "m"(*(const char(*)[32])x1))

/* acc of (token, half of the rows) after one block. */
INLINE __m256 step2(gem_panel_type t, __m256i ta, __m256i tb, const float *s, int h,
                    const block_column *x, int64_t b, __m256 acc)
{
    return step(t, ta, tb, _mm256_load_ps(s + 8 * h), _mm256_load_ps(s + 16 + 8 * h), x, b, acc);
}

/* The sum so far: y, or 0 in the first stretch. */
INLINE __m256 so_far(const stretch *k, const float *y)
{
    return k->first ? _mm256_loadu_ps(y) : _mm256_setzero_ps();
}

INLINE void tile2(gem_panel_type t, const gem_panel_args *a, const stretch *k, int c)
{
    const __m256i ones = _mm256_set1_epi16(1), *w = k->bytes;
    const float *s = k->scales;
    const block_column xa = block_column_at(&a->x, (size_t)c),
                       xb = block_column_at(&a->x, (size_t)c + 1);
    float *y = a->y + (size_t)c * a->ldy;
    __m256 a0 = so_far(k, y), a1 = so_far(k, y + 8), b0 = so_far(k, y + a->ldy),
           b1 = so_far(k, y + a->ldy + 8);
    for (int64_t b = k->first; b < k->first + k->n; b++, w += 16, s += 32) {
        const int8_t *x0 = xa.q + 32 * b, *x1 = xb.q + 32 * b;
        __m256i p0, p1, p2, p3, w0, w1, v, u, t0, t1, t2, t3, later_a, later_b;
        starts(t, &xa, b, &t0, &later_a);
        starts(t, &xb, b, &t2, &later_b);
        t1 = t0, t3 = t2;
        if (t == GEM_PANEL_Q6_K) { /* two sums a block: each half of the k has its own scale */
            DOT_ASM(DOT_FIRST(0) DOT_NEXT(1) DOT_FOLD DOT_FIRST(2) DOT_NEXT(3) DOT_FOLD);
            __m256i f0 = t0, f1 = t1, f2 = t2, f3 = t3;
            t0 = t1 = later_a, t2 = t3 = later_b;
            DOT_ASM(DOT_FIRST(4) DOT_NEXT(5) DOT_FOLD DOT_FIRST(6) DOT_NEXT(7) DOT_FOLD);
            a0 = step2(t, f0, t0, s, 0, &xa, b, a0);
            a1 = step2(t, f1, t1, s, 1, &xa, b, a1);
            b0 = step2(t, f2, t2, s, 0, &xb, b, b0);
            b1 = step2(t, f3, t3, s, 1, &xb, b, b1);
        } else {
            DOT_ASM(DOT_FIRST(0) DOT_NEXT(1) DOT_NEXT(2) DOT_NEXT(3) DOT_FOLD DOT_FIRST(4)
                        DOT_NEXT(5) DOT_NEXT(6) DOT_NEXT(7) DOT_FOLD);
            a0 = step2(t, t0, t0, s, 0, &xa, b, a0);
            a1 = step2(t, t1, t1, s, 1, &xa, b, a1);
            b0 = step2(t, t2, t2, s, 0, &xb, b, b0);
            b1 = step2(t, t3, t3, s, 1, &xb, b, b1);
        }
    }
    _mm256_storeu_ps(y, a0);
    _mm256_storeu_ps(y + 8, a1);
    _mm256_storeu_ps(y + a->ldy, b0);
    _mm256_storeu_ps(y + a->ldy + 8, b1);
}

INLINE void tile1(gem_panel_type t, const gem_panel_args *a, const stretch *k, int c)
{
    const block_column x[1] = {block_column_at(&a->x, (size_t)c)};
    for (int h = 0; h < 2; h++) {
        const __m256i *wp = k->bytes + h;
        const float *s = k->scales;
        float *y = a->y + (size_t)c * a->ldy + 8 * h;
        __m256 acc = so_far(k, y);
        for (int64_t b = k->first; b < k->first + k->n; b++, wp += 16, s += 32) {
            __m256i t0[1], t1[1];
            starts(t, x, b, t0, t1);
#define W_AT(j) _mm256_load_si256(wp + 2 * (j))
            TILE_DOT(t, 1, W_AT);
#undef W_AT
            acc = step2(t, t0[0], t1[0], s, h, x, b, acc);
        }
        _mm256_storeu_ps(y, acc);
    }
}

/* Q8_0: 8 rows x 4 tokens; signs take so much that loads do not matter. */
INLINE void tile4_q8_0(const gem_panel_args *a, const stretch *k, int c)
{
    const block_column x[4] = {
        block_column_at(&a->x, (size_t)c), block_column_at(&a->x, (size_t)c + 1),
        block_column_at(&a->x, (size_t)c + 2), block_column_at(&a->x, (size_t)c + 3)};
    for (int h = 0; h < 2; h++) {
        const __m256i *wp = k->bytes + h;
        const float *s = k->scales;
        float *y = a->y + (size_t)c * a->ldy + 8 * h;
        __m256 acc[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            acc[i] = so_far(k, y + (size_t)i * a->ldy);
        for (int64_t b = k->first; b < k->first + k->n; b++, wp += 16, s += 32) {
            __m256i t0[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                             _mm256_setzero_si256()};
            __m256i t1[4];
#define W_AT(j) _mm256_load_si256(wp + 2 * (j))
            TILE_DOT(GEM_PANEL_Q8_0, 4, W_AT);
#undef W_AT
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                acc[i] = step2(GEM_PANEL_Q8_0, t0[i], t0[i], s, h, &x[i], b, acc[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            _mm256_storeu_ps(y + (size_t)i * a->ldy, acc[i]);
    }
}

INLINE void linear(gem_panel_type t, const gem_panel_args *a)
{
    if (a->n == 1) {
        gem_token_avx2(t, a);
        return;
    }
    __m256i *bytes = (__m256i *)a->scratch;
    float *scales = (float *)(a->scratch + STRETCH * 512);
    for (int64_t first = 0; first < a->k / 32; first += STRETCH) {
        const stretch k = {first, GEM_MIN((int64_t)STRETCH, a->k / 32 - first), bytes, scales};
        int c = 0;
        unpack_stretch(t, a, &k, bytes, scales);
        if (t == GEM_PANEL_Q8_0)
            for (; c + 4 <= a->n; c += 4)
                tile4_q8_0(a, &k, c);
        else
            for (; c + 2 <= a->n; c += 2)
                tile2(t, a, &k, c);
        for (; c < a->n; c++)
            tile1(t, a, &k, c);
    }
}

/* One function a type, so that the type is a constant where it is inlined. */
#define LINEAR(name, T)                                                                            \
    static void linear_##name##_avx2(const gem_panel_args *a)                                      \
    {                                                                                              \
        linear(T, a);                                                                              \
    }
LINEAR(q4_0, GEM_PANEL_Q4_0)
LINEAR(q4_1, GEM_PANEL_Q4_1)
LINEAR(q5_0, GEM_PANEL_Q5_0)
LINEAR(q5_1, GEM_PANEL_Q5_1)
LINEAR(q8_0, GEM_PANEL_Q8_0)
LINEAR(q4_k, GEM_PANEL_Q4_K)
LINEAR(q5_k, GEM_PANEL_Q5_K)
LINEAR(q6_k, GEM_PANEL_Q6_K)

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
}
