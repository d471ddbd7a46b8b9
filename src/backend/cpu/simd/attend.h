/* attend.h - attention over one chunk of keys on 16 lanes: the SIMD form of attend_ref, same bits.
 * Included once by attend_<isa>.c after its vec_<isa>.h.
 *
 * Idea: flash attention over tiles of one page (64 keys) at absolute positions. The rows that see a
 * key of the tile are a run (rows are sorted by position), cut into groups of up to
 * V16_ATTEND_ROWS. Scores: group x 16 keys, a lane is a key, one chain over head_dim. P.V: group x
 * 16 dims, a lane is a dim, one chain over the keys. The only horizontal steps are one maximum and
 * one sum a row and tile. Keys that no row of a group sees are left out in units of 16, which the
 * reference makes bit-neutral. Bound: 2 * head_dim fma a (row, key) at the FMA peak from 6 rows on;
 * for few rows a page is read once, at the speed of memory. Sources: arXiv:1805.02867,
 * arXiv:2205.14135. */
#ifndef GEM_CPU_ATTEND_H
#define GEM_CPU_ATTEND_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd/vmath.h"

/* Rows that are computed together, and the keys of the tile that any of them sees. */
typedef struct attend_group {
    int row, n;
    int key0, key1; /* multiples of 16 */
} attend_group;

typedef struct attend_tile {
    const void *k, *v; /* the page part's layout; f32, or f16 that is converted at each load */
    int32_t first;     /* position of key 0 */
    /* what is fetched while scores are computed, and values: as many bytes as these read */
    const void *ahead[2];
    float *p; /* [GEM_ATTEND_ROWS][GEM_PAGE] scores, then weights */
    float alpha[GEM_ATTEND_ROWS];
} attend_tile;

V16_INLINE v16 tile_load(const void *p, size_t i, bool f16)
{
    return f16 ? v16_load_f16((const uint16_t *)p + i) : v16_load((const float *)p + i);
}

/* One line of what comes next for each line that is read: memory is far, and the hardware's
 * prefetchers start anew in each page. In two streams, as fast as four, and faster than one. */
V16_INLINE void tile_ahead(const void *p, size_t i, size_t hd, bool f16)
{
    size_t line = i / (f16 ? 32 : 16), half = hd * GEM_PAGE * (f16 ? 2 : 4) / 2;
    __builtin_prefetch((const char *)p + ((0 - (line & 1)) & half) + line / 2 * 64);
}

/* Scores of R rows against W panels of 16 keys. R, W, f16 and ahead are constants where this is
 * inlined. */
V16_INLINE void scores_block(const gem_attend_args *a, const attend_tile *t, int row, int panel,
                             int R, int W, bool f16, bool ahead)
{
    const size_t hd = (size_t)a->head_dim;
    const float *q[V16_ATTEND_ALONE];
    v16 acc[V16_ATTEND_ALONE][4];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        q[r] = a->q[row + r];
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            acc[r][w] = v16_set1(0.0f);
    }
    size_t k = (size_t)panel * hd * 16;
    for (size_t d = 0; d < hd; d++, k += 16) {
        v16 key[4];
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            key[w] = tile_load(t->k, k + (size_t)w * hd * 16, f16);
#pragma GCC unroll 4
        for (int w = 0; ahead && w < W; w++)
            tile_ahead(t->ahead[0], k + (size_t)w * hd * 16, hd, f16);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            v16 x = v16_set1(q[r][d]);
#pragma GCC unroll 4
            for (int w = 0; w < W; w++)
                acc[r][w] = v16_fma(x, key[w], acc[r][w]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            v16_store(t->p + (row + r) * GEM_PAGE + 16 * (panel + w), acc[r][w]);
    }
}

/* o = o * alpha + p V of R rows, W columns of 16 dims from dim d on. */
V16_INLINE void values_block(const gem_attend_args *a, const attend_tile *t, const attend_group *g,
                             size_t d, int R, int W, bool f16, bool ahead)
{
    const size_t hd = (size_t)a->head_dim;
    float *o = a->o + (size_t)g->row * hd + d;
    const float *p = t->p + g->row * GEM_PAGE;
    v16 acc[V16_ATTEND_ALONE][4];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        v16 alpha = v16_set1(t->alpha[g->row + r]);
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            acc[r][w] = v16_mul(v16_load(o + (size_t)r * hd + 16 * w), alpha);
    }
    size_t v = (size_t)GEM_PAGE * d + 16 * (size_t)g->key0;
    for (int j = g->key0; j < g->key1; j++, v += 16) {
        v16 val[4];
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            val[w] = tile_load(t->v, v + (size_t)w * 16 * GEM_PAGE, f16);
#pragma GCC unroll 4
        for (int w = 0; ahead && w < W; w++)
            tile_ahead(t->ahead[1], v + (size_t)w * 16 * GEM_PAGE, hd, f16);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            v16 x = v16_set1(p[r * GEM_PAGE + j]);
#pragma GCC unroll 4
            for (int w = 0; w < W; w++)
                acc[r][w] = v16_fma(x, val[w], acc[r][w]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            v16_store(o + (size_t)r * hd + 16 * w, v16_add(acc[r][w], v16_set1(0.0f)));
    }
}

/* Panels [from, to) of a group, as wide as the registers allow. */
V16_INLINE void scores_rows(const gem_attend_args *a, const attend_tile *t, int row, int from,
                            int to, int R, bool f16, bool ahead)
{
    const int W = V16_ATTEND_WIDTH(R);
    for (; from + W <= to; from += W)
        scores_block(a, t, row, from, R, W, f16, ahead);
    for (; W > 1 && from < to; from++)
        scores_block(a, t, row, from, R, 1, f16, ahead);
}

/* 16-dim columns [from, to) of a group. */
V16_INLINE void values_rows(const gem_attend_args *a, const attend_tile *t, const attend_group *g,
                            int from, int to, int R, bool f16, bool ahead)
{
    const int W = V16_ATTEND_WIDTH(R);
    for (; from + W <= to; from += W)
        values_block(a, t, g, 16 * (size_t)from, R, W, f16, ahead);
    for (; W > 1 && from < to; from++)
        values_block(a, t, g, 16 * (size_t)from, R, 1, f16, ahead);
}

/* Row counts to constants. A count that never occurs costs no code. */
#define ATTEND_ROWS_CASE(R, call)                                                                  \
    case R:                                                                                        \
        if (R <= (ahead ? V16_ATTEND_ALONE : V16_ATTEND_ROWS)) call;                               \
        break

V16_INLINE void scores_group(const gem_attend_args *a, const attend_tile *t, const attend_group *g,
                             int from, int to, bool f16, bool ahead)
{
    switch (g->n) {
        ATTEND_ROWS_CASE(1, scores_rows(a, t, g->row, from, to, 1, f16, ahead));
        ATTEND_ROWS_CASE(2, scores_rows(a, t, g->row, from, to, 2, f16, ahead));
        ATTEND_ROWS_CASE(3, scores_rows(a, t, g->row, from, to, 3, f16, ahead));
        ATTEND_ROWS_CASE(4, scores_rows(a, t, g->row, from, to, 4, f16, ahead));
        ATTEND_ROWS_CASE(5, scores_rows(a, t, g->row, from, to, 5, f16, ahead));
        ATTEND_ROWS_CASE(6, scores_rows(a, t, g->row, from, to, 6, f16, ahead));
        ATTEND_ROWS_CASE(7, scores_rows(a, t, g->row, from, to, 7, f16, ahead));
        ATTEND_ROWS_CASE(8, scores_rows(a, t, g->row, from, to, 8, f16, ahead));
    }
}

V16_INLINE void values_group(const gem_attend_args *a, const attend_tile *t, const attend_group *g,
                             int from, int to, bool f16, bool ahead)
{
    switch (g->n) {
        ATTEND_ROWS_CASE(1, values_rows(a, t, g, from, to, 1, f16, ahead));
        ATTEND_ROWS_CASE(2, values_rows(a, t, g, from, to, 2, f16, ahead));
        ATTEND_ROWS_CASE(3, values_rows(a, t, g, from, to, 3, f16, ahead));
        ATTEND_ROWS_CASE(4, values_rows(a, t, g, from, to, 4, f16, ahead));
        ATTEND_ROWS_CASE(5, values_rows(a, t, g, from, to, 5, f16, ahead));
        ATTEND_ROWS_CASE(6, values_rows(a, t, g, from, to, 6, f16, ahead));
        ATTEND_ROWS_CASE(7, values_rows(a, t, g, from, to, 7, f16, ahead));
        ATTEND_ROWS_CASE(8, values_rows(a, t, g, from, to, 8, f16, ahead));
    }
}

/* Functions of their own, so that each gets the registers to itself. f16 pages that are read as
 * such are read by the first group, the only one. */
#define ATTEND_VARIANT(name, work, f16, ahead)                                                     \
    static void name(const gem_attend_args *a, const attend_tile *t, const attend_group *g,        \
                     int from, int to)                                                             \
    {                                                                                              \
        work(a, t, g, from, to, f16, ahead);                                                       \
    }
ATTEND_VARIANT(scores_f32, scores_group, false, false)
ATTEND_VARIANT(scores_f32_first, scores_group, false, true)
ATTEND_VARIANT(scores_f16_first, scores_group, true, true)
ATTEND_VARIANT(values_f32, values_group, false, false)
ATTEND_VARIANT(values_f32_first, values_group, false, true)
ATTEND_VARIANT(values_f16_first, values_group, true, true)
#undef ATTEND_VARIANT

/* First key of the tile that a row sees, and one behind the last; none when equal. */
static void seen_keys(const gem_attend_args *a, int32_t first, int r, int *lo, int *hi)
{
    int32_t pos = a->pos[r], from = a->window && pos >= a->window ? pos - a->window + 1 : 0;
    *lo = (int)GEM_MIN(GEM_MAX(from - first, 0), GEM_PAGE);
    *hi = (int)GEM_MIN(GEM_MAX(pos - first + 1, 0), GEM_PAGE);
}

/* Scores of one row to weights: exp(score - maximum), 0 where not seen; updates m and s. */
static void softmax_row(const gem_attend_args *a, attend_tile *t, const attend_group *g, int r)
{
    const v16 none = v16_set1(-INFINITY);
    float *p = t->p + r * GEM_PAGE, m = a->m[r];
    int lo, hi;
    seen_keys(a, t->first, r, &lo, &hi);
    v16 most = none;
    for (int j = g->key0; j < g->key1; j += 16) {
        m16 seen = m16_range(lo - j, hi - j);
        most = v16_max(v16_select(seen, v16_load(p + j), none), most);
    }
    float top = v16_top(most);
    top = (top > m ? top : m) + 0.0f;
    v16 sum = v16_set1(0.0f), tops = v16_set1(top);
    for (int j = g->key0; j < g->key1; j += 16) {
        v16 w = v16_keep(m16_range(lo - j, hi - j), v16_exp(v16_sub(v16_load(p + j), tops)));
        v16_store(p + j, w);
        sum = v16_add(sum, w);
    }
    float alpha = m - top == 0.0f ? 1.0f : gem_exp_ref(m - top); /* exp(0) is exactly 1 */
    t->alpha[r] = alpha;
    a->s[r] = fmaf(a->s[r], alpha, v16_tree(sum));
    a->m[r] = top;
}

/* Cut the rows that see keys of the tile into groups of nearly equal size; returns how many groups.
 * What one group can hold is not cut: keys are read, and converted, once. */
static int make_groups(const gem_attend_args *a, int32_t first, attend_group *group)
{
    int lo, hi, from = 0, to = a->n;
    for (; from < to; from++) {
        seen_keys(a, first, from, &lo, &hi);
        if (lo < hi) break;
    }
    for (; to > from; to--) {
        seen_keys(a, first, to - 1, &lo, &hi);
        if (lo < hi) break;
    }
    int most = to - from <= V16_ATTEND_ALONE ? V16_ATTEND_ALONE : V16_ATTEND_ROWS;
    int n = (to - from + most - 1) / most;
    for (int i = 0; i < n; i++) {
        attend_group *g = &group[i];
        g->row = from;
        g->n = (to - from + n - i - 1) / (n - i);
        from += g->n;
        seen_keys(a, first, g->row, &g->key0, &hi);
        seen_keys(a, first, g->row + g->n - 1, &lo, &g->key1);
        g->key0 = g->key0 / 16 * 16;
        g->key1 = (g->key1 + 15) / 16 * 16;
    }
    return n;
}

/* f16 keys and values [key0, key1) of a page to f32 in the same layout. */
static void widen_tile(const uint16_t *page, size_t hd, int key0, int key1, float *out)
{
    const size_t v0 = GEM_PAGE * hd;
    for (size_t i = hd * (size_t)key0; i < hd * (size_t)key1; i += 16)
        v16_store(out + i, v16_load_f16(page + i));
    for (size_t d = 0; d < hd; d += 16) {
        size_t column = v0 + GEM_PAGE * d;
        for (size_t i = column + 16 * (size_t)key0; i < column + 16 * (size_t)key1; i += 16)
            v16_store(out + i, v16_load_f16(page + i));
    }
}

static void attend_tile_rows(const gem_attend_args *a, const uint8_t *page, const uint8_t *value,
                             const uint8_t *next, attend_tile *t)
{
    const size_t hd = (size_t)a->head_dim, v0 = GEM_PAGE * hd;
    attend_group group[GEM_ATTEND_ROWS];
    int n = make_groups(a, t->first, group), key0 = GEM_PAGE, key1 = 0;
    if (n == 0) return;
    for (int i = 0; i < n; i++) {
        key0 = GEM_MIN(key0, group[i].key0);
        key1 = GEM_MAX(key1, group[i].key1);
    }
    bool f16 = a->f16;
    t->k = page;
    t->v = value ? (const void *)value
           : f16 ? (const void *)((const uint16_t *)page + v0)
                 : (const void *)((const float *)page + v0);
    t->ahead[0] = t->v;
    t->ahead[1] = next;
    if (f16 && n > 1) { /* worth converting once */
        float *wide = t->p + GEM_ATTEND_ROWS * GEM_PAGE;
        widen_tile((const uint16_t *)page, hd, key0, key1, wide);
        t->k = wide;
        t->v = wide + v0;
        t->ahead[0] = next; /* all of it: as many bytes as wide keys */
        f16 = false;
    }
    /* Several groups: 16 keys of all dims, then 64 values of 16 dims, stay in L1 for all of them.
     */
    int step = n > 1 ? 16 : GEM_PAGE;
    uint64_t stamp = a->phase_ns ? gem_now_ns() : 0;
    for (int key = 0; key < GEM_PAGE; key += step) {
        for (int i = 0; i < n; i++) {
            int from = GEM_MAX(key, group[i].key0), to = GEM_MIN(key + step, group[i].key1);
            if (from >= to) continue;
            (f16 ? scores_f16_first
             : i ? scores_f32
                 : scores_f32_first)(a, t, &group[i], from / 16, to / 16);
        }
    }
    if (a->phase_ns) gem_phase_end(&a->phase_ns[0], &stamp);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < group[i].n; r++)
            softmax_row(a, t, &group[i], group[i].row + r);
    if (a->phase_ns) gem_phase_end(&a->phase_ns[1], &stamp);
    int columns = a->head_dim / 16, columns_step = n > 1 ? 1 : columns;
    for (int c = 0; c < columns; c += columns_step)
        for (int i = 0; i < n; i++)
            (f16 ? values_f16_first
             : i ? values_f32
                 : values_f32_first)(a, t, &group[i], c, c + columns_step);
}

static void attend_simd(const gem_attend_args *a)
{
    attend_tile t;
    t.p = a->scratch;
    memset(a->o, 0, (size_t)a->n * (size_t)a->head_dim * sizeof(*a->o));
    for (int r = 0; r < a->n; r++) {
        a->m[r] = -INFINITY;
        a->s[r] = 0.0f;
    }
    for (int i = 0; i < GEM_CHUNK / GEM_PAGE; i++) {
        int next = i + 1 < GEM_CHUNK / GEM_PAGE && a->page[i + 1] ? i + 1 : i;
        t.first = a->chunk + i * GEM_PAGE;
        attend_tile_rows(a, a->page[i], a->value ? a->value[i] : NULL, a->page[next], &t);
    }
}

/* Rows of 16 values to columns: out[j][i] = row i's value j. */
V16_INLINE void put_columns(float rows[16][16], float *out)
{
    for (int j = 0; j < 16; j++)
        for (int i = 0; i < 16; i++)
            out[16 * j + i] = rows[i][j];
}

/* 16 keys at a time, 16 dims and their partners together where these rotate. The transposition
 * costs about a cycle a value; attention of 16 heads over the same keys costs 32 or more. */
static void keys_simd(const gem_keys_args *a)
{
    const int hd = a->head_dim, half = a->half;
    float low[16][16], high[16][16];
    for (int s0 = 0; s0 < a->n_keys; s0 += 16) {
        float *out = a->keys + (size_t)s0 * (size_t)hd;
        for (int d = 0; d < hd; d += 16) {
            const float *v = a->value + (size_t)d * GEM_PAGE + (size_t)s0 * 16;
            v16 w = v16_load(a->norm + d);
            if (d >= half && d < half + a->n_pairs) continue; /* done with its partner */
            if (d >= a->n_pairs) {
                for (int s = 0; s < 16; s++)
                    v16_store(low[s], v16_mul(v16_load(v + 16 * s), w));
                put_columns(low, out + 16 * d);
                continue;
            }
            const float *u = v + (size_t)half * GEM_PAGE;
            v16 z = v16_load(a->norm + d + half);
            for (int s = 0; s < 16; s++) {
                size_t at = (size_t)(s0 + s) * (size_t)a->n_pairs + (size_t)d;
                v16 p = v16_mul(v16_load(v + 16 * s), w), q = v16_mul(v16_load(u + 16 * s), z);
                v16 cs = v16_load(a->cos + at), sn = v16_load(a->sin + at);
                v16_store(low[s], v16_fnma(q, sn, v16_mul(p, cs)));
                v16_store(high[s], v16_fma(q, cs, v16_mul(p, sn)));
            }
            put_columns(low, out + 16 * d);
            put_columns(high, out + 16 * (d + half));
        }
    }
}

#endif
