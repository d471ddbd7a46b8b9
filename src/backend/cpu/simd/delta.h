/* delta.h - short convolution and gated delta rule on 16 lanes: the SIMD form of ref/delta_ref.c,
 * same order, same bits. Included once by delta_<isa>.c after its vec_<isa>.h.
 *
 * Idea: all of a chunk's work is one product, rows of scalars times panels of 16 columns added to
 * rows
 * (`product`): S0'k and S0'q of all rows together, k.k and q.k, the triangular sums over N, and the
 * rank-64 update of the state. Its chains ascend, so how rows are grouped changes no bit.
 * Bound: 5.5 head_dim^2 fma a row and V head at the FMA peak in prefill; in decode the reading of
 * S0, 4 head_dim^2 bytes a V head. Source: arXiv:2412.06464. */
#ifndef GEM_CPU_DELTA_H
#define GEM_CPU_DELTA_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd/vmath.h"

/* y[r][16 w ..] += sum over i < n, ascending, of x[r][i] * m[w][i][0..15] */
typedef struct product {
    const float *x;
    size_t ldx;
    const float *m;
    size_t m_panel; /* floats from one panel to the next */
    float *y;
    size_t ldy, y_panel;
    int rows, n, panels;
} product;

/* R and W are constants where this is inlined. */
V16_INLINE void product_block(const product *p, int row, int panel, int R, int W)
{
    const float *x = p->x + (size_t)row * p->ldx, *m = p->m + (size_t)panel * p->m_panel;
    float *y = p->y + (size_t)row * p->ldy + (size_t)panel * p->y_panel;
    v16 acc[V16_ATTEND_ROWS][4];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            acc[r][w] = v16_load(y + (size_t)r * p->ldy + (size_t)w * p->y_panel);
    }
    for (int i = 0; i < p->n; i++) {
        v16 col[4];
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            col[w] = v16_load(m + (size_t)w * p->m_panel + 16 * (size_t)i);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            v16 s = v16_set1(x[(size_t)r * p->ldx + (size_t)i]);
#pragma GCC unroll 4
            for (int w = 0; w < W; w++)
                acc[r][w] = v16_fma(s, col[w], acc[r][w]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w++)
            v16_store(y + (size_t)r * p->ldy + (size_t)w * p->y_panel, acc[r][w]);
    }
}

/* Rows [row, row + R) of panels [from, to). */
V16_INLINE void product_rows(const product *p, int row, int from, int to, int R)
{
    const int W = V16_ATTEND_WIDTH(R);
    for (; from + W <= to; from += W)
        product_block(p, row, from, R, W);
    for (; W > 1 && from < to; from++)
        product_block(p, row, from, R, 1);
}

/* A row count to a constant; one above V16_ATTEND_ROWS never occurs and costs no code. */
#define DELTA_ROWS_CASE(R)                                                                         \
    case R:                                                                                        \
        if (R <= V16_ATTEND_ROWS) product_rows(p, row, from, to, R);                               \
        break

static void product_group(const product *p, int row, int n, int from, int to)
{
    switch (n) {
        DELTA_ROWS_CASE(1);
        DELTA_ROWS_CASE(2);
        DELTA_ROWS_CASE(3);
        DELTA_ROWS_CASE(4);
        DELTA_ROWS_CASE(5);
        DELTA_ROWS_CASE(6);
        DELTA_ROWS_CASE(7);
        DELTA_ROWS_CASE(8);
    }
}

/* Groups of nearly equal size; several groups: two panels stay in L1 for all of them. */
static void product_run(const product *p)
{
    int groups = (p->rows + V16_ATTEND_ROWS - 1) / V16_ATTEND_ROWS;
    int step = groups > 1 ? 2 : p->panels;
    for (int from = 0; from < p->panels; from += step)
        for (int g = 0, row = 0; g < groups; g++) {
            int n = (p->rows - row + groups - g - 1) / (groups - g);
            product_group(p, row, n, from, GEM_MIN(from + step, p->panels));
            row += n;
        }
}

static void sigmoid_gate_simd(float *x, const float *gate, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_gate(v16_load(x + i), v16_load(gate + i)));
    for (; i < n; i++)
        x[i] = gem_gate_ref(x[i], gate[i]);
}

static void conv_simd(const gem_conv_args *a)
{
    v16 lane = v16_set1(0.0f);
    int64_t whole = a->n - a->n % 16, i;
    float tail[16] = {0};
    for (i = 0; i < whole; i += 16) {
        v16 acc = v16_mul(v16_load(a->w + i), v16_load(a->u[0] + i));
        for (int j = 1; j < GEM_CONV_TAPS; j++)
            acc = v16_fma(v16_load(a->w + (size_t)j * a->ldw + (size_t)i), v16_load(a->u[j] + i),
                          acc);
        acc = v16_silu(acc);
        v16_store(a->dst + i, acc);
        lane = v16_fma(acc, acc, lane);
    }
    for (; i < a->n; i++) {
        float acc = a->w[i] * a->u[0][i];
        for (int j = 1; j < GEM_CONV_TAPS; j++)
            acc = fmaf(a->w[(size_t)j * a->ldw + (size_t)i], a->u[j][i], acc);
        a->dst[i] = gem_silu_ref(acc);
        tail[i - whole] = a->dst[i];
    }
    if (!a->norm) return;
    if (whole < a->n) lane = v16_fma(v16_load(tail), v16_load(tail), lane);
    float r = a->scale / sqrtf(v16_tree(lane) + a->eps);
    for (i = 0; i < whole; i += 16)
        v16_store(a->dst + i, v16_mul(v16_load(a->dst + i), v16_set1(r)));
    for (; i < a->n; i++)
        a->dst[i] = a->dst[i] * r;
}

/* Parts of the scratch: k rows, then q rows behind them, packed by delta_scores; and what S0 makes
 * of them. */
static float *packed_rows(const gem_delta_args *a)
{
    return a->scratch;
}
static float *state_rows(const gem_delta_args *a)
{
    return a->scratch + 2 * (size_t)GEM_PAGE * (size_t)a->head_dim;
}

static void pack_rows(const gem_delta_args *a)
{
    const size_t hd = (size_t)a->head_dim, n = (size_t)a->n;
    float *x = packed_rows(a);
    for (size_t r = 0; r < n; r++) {
        memcpy(x + r * hd, a->row[r] + a->k_at, hd * sizeof(*x));
        memcpy(x + (n + r) * hd, a->row[r] + a->q_at, hd * sizeof(*x));
    }
}

static void delta_scores_simd(const gem_delta_args *a)
{
    const size_t hd = (size_t)a->head_dim, n = (size_t)a->n;
    pack_rows(a);
    memset(a->kk, 0, n * GEM_PAGE * sizeof(float));
    memset(a->qk, 0, n * GEM_PAGE * sizeof(float));
    product p = {.x = packed_rows(a),
                 .ldx = hd,
                 .m = a->keys,
                 .m_panel = 16 * hd,
                 .y = a->kk,
                 .ldy = GEM_PAGE,
                 .y_panel = 16,
                 .rows = a->n,
                 .n = a->head_dim,
                 .panels = (a->t0 + a->n + 15) / 16};
    product_run(&p);
    p.x += n * hd;
    p.y = a->qk;
    product_run(&p);
}

/* exp(b[t] - b[s]) of 16 s; lanes whose b is not written yet are arbitrary. */
V16_INLINE v16 decay16(double bt, const double *b)
{
    float x[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float)(bt - b[i]);
    return v16_exp(v16_load(x));
}

/* Coefficients of row r: n[s] = -beta (k.k[s]) D, p[s] = (q.k[s]) D. */
static void coefficients(const gem_delta_args *a, int r, float *n, float *p)
{
    const v16 beta = v16_set1(a->beta[r]);
    const int t = a->t0 + r;
    double last[16] = {0};
    for (int s = 0; s <= t; s += 16) {
        const double *b = a->b + s;
        if (s + 16 > t + 1) { /* b ends at t */
            memcpy(last, b, (size_t)(t + 1 - s) * sizeof(*last));
            b = last;
        }
        v16 decay = decay16(a->b[t], b);
        v16 kk = v16_load(a->kk + r * GEM_PAGE + s), qk = v16_load(a->qk + r * GEM_PAGE + s);
        v16_store(n + s, v16_neg(v16_mul(v16_mul(beta, kk), decay)));
        v16_store(p + s, v16_mul(qk, decay));
    }
}

/* First terms: N[t] = beta (v - exp(b) S0'k), o = exp(b) S0'q. */
static void first_terms(const gem_delta_args *a, const float *sk, const float *sq)
{
    const size_t hd = (size_t)a->head_dim;
    for (int r = 0; r < a->n; r++, sk += hd, sq += hd) {
        const float eb = gem_exp_ref((float)a->b[a->t0 + r]);
        const v16 e = v16_set1(eb), minus = v16_set1(-eb), beta = v16_set1(a->beta[r]);
        const float *v = a->row[r] + a->v_at;
        float *n = a->values + 16 * (a->t0 + r), *o = a->o + (size_t)r * hd;
        for (size_t i = 0; i < hd; i += 16) {
            v16_store(n + GEM_PAGE * i,
                      v16_mul(v16_fma(minus, v16_load(sk + i), v16_load(v + i)), beta));
            v16_store(o + i, v16_mul(e, v16_load(sq + i)));
        }
    }
}

/* The sums over earlier rows of the chunk, for a group of rows: what all of them see in one
 * product, the triangle row by row. */
static void triangle(const gem_delta_args *a, int r0, int rows, const float *n, const float *p)
{
    const int t = a->t0 + r0, panels = a->head_dim / 16;
    product to_n = {.x = n,
                    .ldx = GEM_PAGE,
                    .m = a->values,
                    .m_panel = 16 * GEM_PAGE,
                    .y = a->values + 16 * t,
                    .ldy = 16,
                    .y_panel = 16 * GEM_PAGE,
                    .rows = rows,
                    .n = t,
                    .panels = panels};
    product to_o = to_n;
    product_run(&to_n);
    for (int r = 1; r < rows; r++) {
        product one = to_n;
        one.x = n + r * GEM_PAGE + t;
        one.m = a->values + 16 * t;
        one.y = a->values + 16 * (t + r);
        one.rows = 1;
        one.n = r;
        product_run(&one);
    }
    to_o.x = p;
    to_o.y = a->o + (size_t)r0 * (size_t)a->head_dim;
    to_o.ldy = (size_t)a->head_dim;
    to_o.y_panel = 16;
    to_o.n = t + 1;
    product_run(&to_o);
    for (int r = 1; r < rows; r++) {
        product one = to_o;
        one.x = p + r * GEM_PAGE + t + 1;
        one.m = a->values + 16 * (t + 1);
        one.y = to_o.y + (size_t)r * to_o.ldy;
        one.rows = 1;
        one.n = r;
        product_run(&one);
    }
}

/* S1 = exp(b[63]) S0 + sum over s of (exp(b[63] - b[s]) k[s]) N[s]' */
static void next_state(const gem_delta_args *a)
{
    const size_t hd = (size_t)a->head_dim;
    const double last = a->b[GEM_PAGE - 1];
    const v16 eb = v16_set1(gem_exp_ref((float)last));
    float *x = state_rows(a);
    for (int s = 0; s < GEM_PAGE; s += 16) {
        v16 decay = decay16(last, a->b + s);
        const float *k = a->keys + (size_t)s * hd;
        for (size_t d = 0; d < hd; d++)
            v16_store(x + d * GEM_PAGE + s, v16_mul(v16_load(k + 16 * d), decay));
    }
    for (size_t i = 0; i < hd * hd; i += 16)
        v16_store(a->s1 + i, a->s0 ? v16_mul(eb, v16_load(a->s0 + i)) : v16_set1(0.0f));
    product p = {.x = x,
                 .ldx = GEM_PAGE,
                 .m = a->values,
                 .m_panel = 16 * GEM_PAGE,
                 .y = a->s1,
                 .ldy = 16,
                 .y_panel = 16 * hd,
                 .rows = a->head_dim,
                 .n = GEM_PAGE,
                 .panels = a->head_dim / 16};
    product_run(&p);
}

static void delta_simd(const gem_delta_args *a)
{
    const size_t hd = (size_t)a->head_dim, rows = (size_t)a->n;
    float *sk = state_rows(a), *n = sk + 2 * (size_t)GEM_PAGE * hd, *p = n + GEM_PAGE * GEM_PAGE;
    memset(sk, 0, 2 * rows * hd * sizeof(*sk));
    if (a->s0) {
        product all = {.x = packed_rows(a),
                       .ldx = hd,
                       .m = a->s0,
                       .m_panel = 16 * hd,
                       .y = sk,
                       .ldy = hd,
                       .y_panel = 16,
                       .rows = 2 * a->n,
                       .n = a->head_dim,
                       .panels = a->head_dim / 16};
        product_run(&all);
    }
    first_terms(a, sk, sk + rows * hd);
    for (int r = 0; r < a->n; r += V16_ATTEND_ROWS) {
        int group = GEM_MIN(V16_ATTEND_ROWS, a->n - r);
        for (int i = 0; i < group; i++)
            coefficients(a, r + i, n + i * GEM_PAGE, p + i * GEM_PAGE);
        triangle(a, r, group, n, p);
    }
    if (a->s1) next_state(a);
}

V16_INLINE void delta_kernels_simd(gem_cpu_kernels *t)
{
    t->sigmoid_gate = sigmoid_gate_simd;
    t->conv = conv_simd;
    t->delta_scores = delta_scores_simd;
    t->delta = delta_simd;
}

#endif
