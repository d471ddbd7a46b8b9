/* token_avx2.c - one token against one panel, or against four that lie far apart, on AVX2 + FMA.
 *
 * Idea. Decode is bound by memory, if the kernel lets it. A pure read loop is fastest with four
 * streams that advance line by line in turn, so the kernel walks its four panels that way: a small
 * rolled loop takes line j of all of them, every broadcast of the token serves all, and one
 * prefetch a line runs ahead. Three things matter on Zen 3, each worth 5 to 20 %: a rolled loop
 * (its few loads advance by 64 bytes; unrolled over a block, dozens of loads with long strides
 * upset the hardware's prefetchers), prefetches spread evenly (not a block's at once), and strictly
 * in the order of addresses. Unpacking must be cheap too, since it fills the reorder buffer before
 * the next lines are asked for: bits are packed so that most groups cost one `and` (panel.h).
 *
 * A 32-byte half of an R16K4 vector is 8 rows x 4 k: vpmaddubsw multiplies unsigned weights by
 * signed activations and adds pairs into int16, which hold 8 sums of 4-bit weights, 4 of 5-bit and
 * 2 of 6-bit ones; then vpmaddwd by ones gives one int32 a row. Q8_0 takes |w| and x with w's sign.
 * Bound: bytes of the weight. Arithmetic and its order: panel.h. */
#include "backend/cpu/avx2/blocks_avx2.h"

enum { AHEAD = 448 }; /* bytes: 384 to 640 are alike, 256 is late, 1,024 and more lose 15 % */

/* The panels that are read side by side. Offsets into a panel are the same in all of them. */
typedef struct side_by_side {
    const uint8_t *panel[GEM_PANEL_STREAMS];
} side_by_side;

/* What the visits of one block leave: int32 sums of S panels x two halves of 8 rows. Q6_K: of the
 * first 16 k in t, of the second in u. */
typedef struct block_sums {
    __m256i t[GEM_PANEL_STREAMS][2], u[GEM_PANEL_STREAMS][2];
} block_sums;

/* Fetch ahead of line i of the block that starts at `block`. */
INLINE void fetch(const side_by_side *w, int s, size_t block, int i)
{
    _mm_prefetch((const char *)w->panel[s] + block + AHEAD + 64 * i, _MM_HINT_NTA);
}

INLINE __m256i widen(__m256i p)
{
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}

INLINE __m256i pair(__m256i w0, __m256i w1, __m256i x0, __m256i x1)
{
    return _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
}

#define EACH_HALF(S)                                                                               \
    _Pragma("GCC unroll 4") for (int s = 0; s < (S); s++)                                          \
        _Pragma("GCC unroll 2") for (int h = 0; h < 2; h++)

INLINE void clear(int S, __m256i t[][2])
{
    EACH_HALF(S) t[s][h] = _mm256_setzero_si256();
}

/* Four lines; 8 int16 sums of 15 * 127 * 2 fit. */
INLINE void dot_nibbles(int S, const side_by_side *w, size_t at, size_t block, const int8_t *q,
                        block_sums *r)
{
    const __m256i low = _mm256_set1_epi8(15);
    clear(S, r->t);
#pragma GCC unroll 1
    for (int j = 0; j < 4; j++, at += 64, q += 4) {
        const __m256i x = broadcast4(q), y = broadcast4(q + 16);
        EACH_HALF(S)
        {
            if (h == 0) fetch(w, s, block, j);
            __m256i v = load32(w->panel[s] + at + 32 * h);
            r->t[s][h] =
                _mm256_add_epi16(r->t[s][h], pair(_mm256_and_si256(v, low), bits(v, 4, 15), x, y));
        }
    }
    EACH_HALF(S) r->t[s][h] = widen(r->t[s][h]);
}

/* Four of five lines: groups 0 1 2 4 from their low bits; then the fifth and what upper bits make:
 * groups 5 3 6 7. */
INLINE void dot_fives(int S, const side_by_side *w, size_t at, size_t block, const int8_t *q,
                      block_sums *r)
{
    const __m256i five = _mm256_set1_epi8(31);
    clear(S, r->t);
#pragma GCC unroll 1
    for (int j = 0; j < 4; j++) {
        const __m256i x = broadcast4(q + 4 * (j + j / 3));
        EACH_HALF(S)
        {
            const uint8_t *p = w->panel[s] + at + 64 * (size_t)j;
            if (h == 0) fetch(w, s, block, j);
            __m256i v = _mm256_and_si256(load32(p + 32 * h), five);
            r->t[s][h] = _mm256_add_epi16(r->t[s][h], _mm256_maddubs_epi16(v, x));
        }
    }
    const __m256i x3 = broadcast4(q + 12), x5 = broadcast4(q + 20), x6 = broadcast4(q + 24),
                  x7 = broadcast4(q + 28);
    EACH_HALF(S)
    {
        const uint8_t *p = w->panel[s] + at + 32 * h;
        if (h == 0) fetch(w, s, block, 4);
        __m256i a = load32(p), b = load32(p + 64), c = load32(p + 128), d = load32(p + 192),
                e = load32(p + 256);
        __m256i m = pair(_mm256_and_si256(e, five), five_of_two(a, b), x5, x3),
                n = pair(five_of_two(d, e), five_of_three(c, b, e), x6, x7);
        r->t[s][h] = _mm256_add_epi32(widen(r->t[s][h]), widen(_mm256_add_epi16(m, n)));
    }
}

/* Three of six lines a scale, then the group that their upper bits make. */
INLINE void dot_sixes(int S, const side_by_side *w, size_t at, size_t block, const int8_t *q,
                      block_sums *r)
{
    const __m256i six = _mm256_set1_epi8(63);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++, at += 192, q += 16) {
        __m256i(*t)[2] = half ? r->u : r->t;
        clear(S, t);
#pragma GCC unroll 1
        for (int j = 0; j < 3; j++) {
            const __m256i x = broadcast4(q + 4 * j);
            EACH_HALF(S)
            {
                const uint8_t *p = w->panel[s] + at + 64 * (size_t)j;
                if (h == 0) fetch(w, s, block, j + 3 * half);
                __m256i v = _mm256_and_si256(load32(p + 32 * h), six);
                t[s][h] = _mm256_add_epi32(t[s][h], widen(_mm256_maddubs_epi16(v, x)));
            }
        }
        const __m256i x = broadcast4(q + 12);
        EACH_HALF(S)
        {
            const uint8_t *p = w->panel[s] + at + 32 * h;
            __m256i d = six_of_three(load32(p), load32(p + 64), load32(p + 128));
            t[s][h] = _mm256_add_epi32(t[s][h], widen(_mm256_maddubs_epi16(d, x)));
        }
    }
}

INLINE void dot_bytes(int S, const side_by_side *w, size_t at, size_t block, const int8_t *q,
                      block_sums *r)
{
    const __m256i flip = _mm256_set1_epi8((char)0x80);
    clear(S, r->t);
#pragma GCC unroll 1
    for (int j = 0; j < 8; j++, at += 64, q += 4) {
        const __m256i x = broadcast4(q);
        EACH_HALF(S)
        {
            if (h == 0) fetch(w, s, block, j);
            __m256i v = _mm256_xor_si256(load32(w->panel[s] + at + 32 * h), flip);
            v = _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v));
            r->t[s][h] = _mm256_add_epi32(r->t[s][h], widen(v));
        }
    }
}

/* acc of S panels after block b, whose offset in its unit is that of `r`. d and m: the unit's. */
INLINE void token_block(gem_panel_type t, int S, const side_by_side *w, const panel_block *r,
                        const block_column *x, int64_t b, __m256 d[][2], __m256 m[][2],
                        __m256 acc[][2])
{
    const size_t at = (size_t)(r->vec - w->panel[0]);
    const size_t block =
        (size_t)(r->unit - w->panel[0]) + (size_t)(b % panel_unit_blocks(t)) * panel_block_bytes(t);
    block_sums sum;
    if (t == GEM_PANEL_Q8_0)
        dot_bytes(S, w, at, block, x->q + 32 * b, &sum);
    else if (t == GEM_PANEL_Q6_K)
        dot_sixes(S, w, at, block, x->q + 32 * b, &sum);
    else if (panel_is_five(t))
        dot_fives(S, w, at, block, x->q + 32 * b, &sum);
    else
        dot_nibbles(S, w, at, block, x->q + 32 * b, &sum);
    __m256i start0, start1, t1 = _mm256_setzero_si256();
    starts(t, x, b, &start0, &start1);
#pragma GCC unroll 4
    for (int s = 0; s < S; s++) {
        fetch(w, s, block, panel_lines(t));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 sa, sb;
            block_scales(t, r, (size_t)(w->panel[s] - w->panel[0]), h, d[s][h], m[s][h], &sa, &sb);
            if (t == GEM_PANEL_Q6_K) t1 = _mm256_add_epi32(sum.u[s][h], start1);
            acc[s][h] = step(t, _mm256_add_epi32(sum.t[s][h], start0), t1, sa, sb, x, b, acc[s][h]);
        }
    }
}

INLINE void token(gem_panel_type t, int S, const gem_panel_args *a)
{
    const block_column x = block_column_at(&a->x, 0);
    const int per_unit = panel_unit_blocks(t);
    side_by_side w;
    __m256 acc[GEM_PANEL_STREAMS][2], d[GEM_PANEL_STREAMS][2], m[GEM_PANEL_STREAMS][2];
#pragma GCC unroll 4
    for (int s = 0; s < S; s++) {
        w.panel[s] = a->panel + (size_t)s * a->panel_bytes;
        acc[s][0] = acc[s][1] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < a->k / 32; b += per_unit) {
        const size_t unit = (size_t)(panel_block_at(t, a->panel, b).unit - a->panel);
#pragma GCC unroll 4
        for (int s = 0; s < S; s++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                unit_scales(t, w.panel[s] + unit, h, &d[s][h], &m[s][h]);
        for (int i = 0; i < per_unit; i++) {
            panel_block r = panel_block_at(t, a->panel, b + i);
            token_block(t, S, &w, &r, &x, b + i, d, m, acc);
        }
    }
#pragma GCC unroll 4
    for (int s = 0; s < S; s++) {
        _mm256_storeu_ps(a->y + 16 * s, acc[s][0]);
        _mm256_storeu_ps(a->y + 16 * s + 8, acc[s][1]);
    }
}

/* One function a type and shape, so that both are constants where they are inlined. */
#define TOKEN(name, T)                                                                             \
    static void linear1_##name##_avx2(const gem_panel_args *a)                                     \
    {                                                                                              \
        token(T, 1, a);                                                                            \
    }                                                                                              \
    static void linear4_##name##_avx2(const gem_panel_args *a)                                     \
    {                                                                                              \
        token(T, GEM_PANEL_STREAMS, a);                                                            \
    }
TOKEN(q4_0, GEM_PANEL_Q4_0)
TOKEN(q4_1, GEM_PANEL_Q4_1)
TOKEN(q5_0, GEM_PANEL_Q5_0)
TOKEN(q5_1, GEM_PANEL_Q5_1)
TOKEN(q8_0, GEM_PANEL_Q8_0)
TOKEN(q4_k, GEM_PANEL_Q4_K)
TOKEN(q5_k, GEM_PANEL_Q5_K)
TOKEN(q6_k, GEM_PANEL_Q6_K)

void gem_token_avx2(gem_panel_type t, const gem_panel_args *a)
{
    static void (*const of[GEM_N_QPANELS])(const gem_panel_args *) = {
        [GEM_PANEL_Q4_0] = linear1_q4_0_avx2, [GEM_PANEL_Q4_1] = linear1_q4_1_avx2,
        [GEM_PANEL_Q5_0] = linear1_q5_0_avx2, [GEM_PANEL_Q5_1] = linear1_q5_1_avx2,
        [GEM_PANEL_Q8_0] = linear1_q8_0_avx2, [GEM_PANEL_Q4_K] = linear1_q4_k_avx2,
        [GEM_PANEL_Q5_K] = linear1_q5_k_avx2, [GEM_PANEL_Q6_K] = linear1_q6_k_avx2,
    };
    of[t](a);
}

void gem_token_kernels_avx2(gem_cpu_kernels *t)
{
    t->linear4[GEM_PANEL_Q4_0] = linear4_q4_0_avx2;
    t->linear4[GEM_PANEL_Q4_1] = linear4_q4_1_avx2;
    t->linear4[GEM_PANEL_Q5_0] = linear4_q5_0_avx2;
    t->linear4[GEM_PANEL_Q5_1] = linear4_q5_1_avx2;
    t->linear4[GEM_PANEL_Q8_0] = linear4_q8_0_avx2;
    t->linear4[GEM_PANEL_Q4_K] = linear4_q4_k_avx2;
    t->linear4[GEM_PANEL_Q5_K] = linear4_q5_k_avx2;
    t->linear4[GEM_PANEL_Q6_K] = linear4_q6_k_avx2;
}
