/* ops_delta.c - short convolution, gated delta rule and their small functions against ref; ref
 * against the per-token recurrence in double, within a derived bound. */
#include "check.h"

#include "backend/cpu/ref/math_ref.h"

#include <float.h>
#include <math.h>

/* ---- elementary ---- */

static void softplus(check *c)
{
    if (c->isa->isa != c->ref->isa || !check_begin(c, "softplus")) return;
    /* exp has |x| + 4 roundings, the last step one more; at 20 the form changes by 2e-9 */
    for (float x = -87.0f; x < 60.0f; x += 0.0037f) {
        double want = x > 20.0f ? (double)x : log1p(exp((double)x));
        check_near(c, "softplus", 0, (double)gem_softplus_ref(x), want,
                   want * (fabs((double)x) + 8) * (double)FLT_EPSILON);
    }
    check_near(c, "softplus", 1, (double)gem_softplus_ref(-1e30f), 0.0, 0.0);
    check_near(c, "sigmoid", 0, (double)gem_sigmoid_ref(0.0f), 0.5, 0.0);
    check_near(c, "sigmoid", 1, (double)gem_sigmoid_ref(-200.0f), 0.0, 0.0);
    check_near(c, "sigmoid", 2, (double)gem_sigmoid_ref(200.0f), 1.0, 0.0);
}

static void sigmoid_gate(check *c)
{
    static const int64_t lens[] = {1, 16, 31, 256};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (int odd = 0; odd < 2; odd++) {
            size_t n = (size_t)lens[l];
            if (!check_begin(c, "sigmoid gate n=%d%s", (int)n, odd ? " odd" : "")) continue;
            float *gate = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 9.0f);
            float *want = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 3.0f);
            float *got = check_copy(c, want, n * 4), *x = check_copy(c, want, n * 4);
            c->ref->sigmoid_gate(want, gate, lens[l]);
            c->isa->sigmoid_gate(got, gate, lens[l]);
            check_same_floats(c, "x", got, want, n);
            for (size_t i = 0; !odd && i < n; i++) {
                double y = (double)x[i] / (1.0 + exp(-(double)gate[i]));
                check_near(c, "x", i, (double)want[i], y,
                           fabs(y) * (fabs((double)gate[i]) + 8) * (double)FLT_EPSILON);
            }
        }
    }
}

static void conv(check *c)
{
    static const int64_t lens[] = {1, 15, 32, 64, 100, 128};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (int mode = 0; mode < 4; mode++) {
            size_t n = (size_t)lens[l];
            bool norm = mode & 1, odd = mode & 2;
            if (!check_begin(c, "conv n=%d%s%s", (int)n, norm ? " norm" : "", odd ? " odd" : ""))
                continue;
            gem_conv_args a = {.n = lens[l], .ldw = n + 5, .norm = norm, .eps = 1e-6f};
            a.scale = 0.25f;
            a.w = check_floats(c, GEM_CONV_TAPS * (n + 5), CHECK_UNIFORM, 1.0f);
            for (int j = 0; j < GEM_CONV_TAPS; j++)
                a.u[j] = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 3.0f);
            float *want = check_buf(c, n * 4), *got = check_buf(c, n * 4);
            a.dst = want;
            c->ref->conv(&a);
            a.dst = got;
            c->isa->conv(&a);
            check_same_floats(c, "dst", got, want, n);
            if (odd) continue;
            double y[128], sum = 0.0;
            for (size_t i = 0; i < n; i++) {
                double x = 0.0;
                for (size_t j = 0; j < GEM_CONV_TAPS; j++)
                    x += (double)a.w[j * a.ldw + i] * (double)a.u[j][i];
                y[i] = x / (1.0 + exp(-x));
                sum += y[i] * y[i];
            }
            double r = norm ? 0.25 / sqrt(sum + 1e-6) : 1.0;
            /* |x| <= 12; four roundings of terms up to 12, slope of silu up to 1.1; 40 after it */
            for (size_t i = 0; i < n; i++)
                check_near(c, "dst", i, (double)want[i], y[i] * r,
                           (60.0 * r + 40.0 * fabs(y[i] * r)) * (double)FLT_EPSILON);
        }
    }
}

/* ---- delta rule ---- */

typedef struct chunk { /* a whole chunk of one head, and the state before it */
    size_t hd;
    float *rows; /* [GEM_PAGE][3 hd]: q | k | v */
    float *keys, *s0, *beta;
    double *b;
} chunk;

static size_t panel_at(size_t n, size_t i, size_t v)
{
    return (v / 16 * n + i) * 16 + v % 16;
}

static void unit(float *x, size_t n, double size)
{
    double sum = 1e-6;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * size / sqrt(sum));
}

/* decay: 0 slow, 1 fast, 2 with forgetting at once now and then */
static chunk new_chunk(check *c, int head_dim, int decay, bool state)
{
    chunk k = {.hd = (size_t)head_dim};
    size_t hd = k.hd, width = 3 * hd;
    k.rows = check_floats(c, GEM_PAGE * width, CHECK_UNIFORM, 2.0f);
    k.keys = check_buf(c, GEM_PAGE * hd * 4);
    k.s0 = state ? check_floats(c, hd * hd, CHECK_UNIFORM, 0.5f) : NULL;
    k.beta = check_buf(c, GEM_PAGE * 4);
    k.b = check_buf(c, GEM_PAGE * sizeof(double));
    double sum = 0.0;
    for (size_t t = 0; t < GEM_PAGE; t++) {
        float *row = k.rows + t * width;
        float g = -check_uniform(c, 0.0f, decay == 0 ? 0.01f : 1.0f);
        if (decay == 2 && check_int(c, 0, 9) == 0) g = -check_uniform(c, 20.0f, 300.0f);
        if (t % 5 == 4) memcpy(row + hd, row - width + hd, hd * 4); /* the same key again */
        unit(row, hd, 1.0 / sqrt((double)hd));
        unit(row + hd, hd, 1.0);
        for (size_t d = 0; d < hd; d++)
            k.keys[gem_delta_key_at(head_dim, (int)t, (int)d)] = row[hd + d];
        k.b[t] = sum += (double)g;
        k.beta[t] = check_uniform(c, 0.0f, 1.0f);
    }
    return k;
}

/* Rows [t0, t0 + n) into values, o (of those rows) and s1, by a table. */
static void run_rows(check *c, const gem_cpu_kernels *table, const chunk *k, int t0, int n,
                     float *kk, float *qk, float *values, float *o, float *s1)
{
    const float *row[GEM_PAGE];
    for (int i = 0; i < n; i++)
        row[i] = k->rows + (size_t)(t0 + i) * 3 * k->hd;
    gem_delta_args a = {
        .head_dim = (int)k->hd,
        .t0 = t0,
        .n = n,
        .row = row,
        .q_at = 0,
        .k_at = k->hd,
        .v_at = 2 * k->hd,
        .keys = k->keys,
        .kk = kk,
        .qk = qk,
        .b = check_copy(c, k->b, (size_t)(t0 + n) * sizeof(double)), /* it ends with the rows */
        .beta = check_copy(c, k->beta + t0, (size_t)n * 4),
        .s0 = k->s0,
        .values = values,
        .o = o,
        .s1 = s1,
        .scratch = check_buf(c, gem_delta_scratch((int)k->hd) * 4),
    };
    table->delta_scores(&a);
    table->delta(&a);
}

static void delta(check *c)
{
    static const int dims[] = {32, 64, 96, 128};
    static const int rows[][2] = {{0, 1},   {0, 64},  {0, 13},  {1, 1},  {5, 1},  {3, 7}, {15, 2},
                                  {16, 16}, {17, 30}, {31, 33}, {50, 8}, {60, 4}, {63, 1}};
    for (size_t h = 0; h < ARRAY_LEN(dims); h++) {
        for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
            int t0 = rows[i / 2][0], n = rows[i / 2][1];
            bool state = i & 1;
            if (!check_begin(c, "delta head_dim=%d rows=%d+%d%s", dims[h], t0, n,
                             state ? " state" : ""))
                continue;
            chunk k = new_chunk(c, dims[h], (int)(i / 2 % 3), state);
            size_t hd = k.hd, o_bytes = (size_t)n * hd * 4, scores = (size_t)n * GEM_PAGE * 4;
            float *want = check_buf(c, GEM_PAGE * hd * 4);
            memset(want, 0xff, GEM_PAGE * hd * 4); /* NaN: rows not written yet must not matter */
            if (t0) {
                float *kk = check_buf(c, GEM_PAGE * GEM_PAGE * 4),
                      *qk = check_buf(c, GEM_PAGE * GEM_PAGE * 4);
                run_rows(c, c->ref, &k, 0, t0, kk, qk, want, check_buf(c, (size_t)t0 * hd * 4),
                         NULL);
            }
            float *got = check_copy(c, want, GEM_PAGE * hd * 4);
            float *kk[2], *qk[2], *o[2], *s1[2] = {NULL, NULL};
            for (int j = 0; j < 2; j++) {
                kk[j] = check_buf(c, scores);
                qk[j] = check_buf(c, scores);
                o[j] = check_buf(c, o_bytes);
                if (t0 + n == GEM_PAGE) s1[j] = check_buf(c, hd * hd * 4);
                run_rows(c, j ? c->isa : c->ref, &k, t0, n, kk[j], qk[j], j ? got : want, o[j],
                         s1[j]);
            }
            for (int r = 0; r < n; r++) {
                size_t at = (size_t)r * GEM_PAGE, seen = (size_t)(t0 + r + 1);
                check_same_floats(c, "k.k", kk[1] + at, kk[0] + at, seen);
                check_same_floats(c, "q.k", qk[1] + at, qk[0] + at, seen);
            }
            check_same_floats(c, "N", got, want, GEM_PAGE * hd);
            check_same_floats(c, "o", o[1], o[0], (size_t)n * hd);
            if (s1[0]) check_same_floats(c, "S1", s1[1], s1[0], hd * hd);
        }
    }
}

/* ---- meaning ---- */

/* The recurrence of one chunk in double: S in place (row-major), d and o of every row. */
static void recurrence(const chunk *k, double *s, double *d, double *o)
{
    size_t hd = k->hd;
    for (size_t t = 0; t < GEM_PAGE; t++) {
        const float *q = k->rows + t * 3 * hd, *key = q + hd, *v = key + hd;
        double g = exp(k->b[t] - (t ? k->b[t - 1] : 0.0));
        for (size_t i = 0; i < hd; i++) {
            double sum = 0.0, out = 0.0;
            for (size_t x = 0; x < hd; x++) {
                s[x * hd + i] *= g;
                sum += s[x * hd + i] * (double)key[x];
            }
            d[t * hd + i] = (double)k->beta[t] * ((double)v[i] - sum);
            for (size_t x = 0; x < hd; x++) {
                s[x * hd + i] += (double)key[x] * d[t * hd + i];
                out += s[x * hd + i] * (double)q[x];
            }
            o[t * hd + i] = out;
        }
    }
}

typedef struct bounds {            /* sums of magnitudes, in double */
    double kk[GEM_PAGE][GEM_PAGE]; /* |k|.|k[s]| D: what k.k[s] D is made of */
    double qk[GEM_PAGE][GEM_PAGE];
    double inverse[GEM_PAGE][GEM_PAGE]; /* of I + A, magnitudes */
    double exact_qk[GEM_PAGE][GEM_PAGE];
} bounds;

static void magnitudes(const chunk *k, bounds *m)
{
    size_t hd = k->hd;
    double a[GEM_PAGE][GEM_PAGE], inv[GEM_PAGE][GEM_PAGE] = {{0}};
    for (size_t t = 0; t < GEM_PAGE; t++) {
        const float *q = k->rows + t * 3 * hd, *key = q + hd;
        for (size_t s = 0; s <= t; s++) {
            const float *old = k->rows + s * 3 * hd + hd;
            double decay = exp(k->b[t] - k->b[s]), kk = 0, qk = 0, sum = 0, qsum = 0;
            for (size_t x = 0; x < hd; x++) {
                kk += fabs((double)key[x] * (double)old[x]);
                qk += fabs((double)q[x] * (double)old[x]);
                sum += (double)key[x] * (double)old[x];
                qsum += (double)q[x] * (double)old[x];
            }
            m->kk[t][s] = kk * decay;
            m->qk[t][s] = qk * decay;
            m->exact_qk[t][s] = fabs(qsum * decay);
            a[t][s] = (double)k->beta[t] * sum * decay;
        }
        for (size_t col = 0; col <= t; col++) {
            double sum = col == t ? 1.0 : 0.0;
            for (size_t s = col; s < t; s++)
                sum -= a[t][s] * inv[s][col];
            inv[t][col] = sum;
            m->inverse[t][col] = fabs(sum);
        }
    }
}

/* The chunk form solves (I + A) N = R by substitution. To first order, with u half a FLT_EPSILON:
 * every product of sums has at most c = head_dim + 64 + 16 roundings, plus |b| for an exponent
 * rounded to single precision. So the residual of row t is at most c u times the sum of the
 * magnitudes of its terms, the error of N is |(I + A)^-1| times that, and o and S1 add their own
 * roundings to what they take over from N. */
static void meaning(check *c)
{
    static const int dims[] = {32, 64};
    static bounds m;
    for (int i = 0; i < 12; i++) {
        int hd = dims[i % 2], decay = i / 2 % 3;
        bool state = i >= 6;
        if (c->isa->isa != c->ref->isa || !check_begin(c, "delta meaning head_dim=%d decay=%d%s",
                                                       hd, decay, state ? " state" : ""))
            continue;
        chunk k = new_chunk(c, hd, decay, state);
        size_t n = k.hd;
        float *kk = check_buf(c, GEM_PAGE * GEM_PAGE * 4),
              *qk = check_buf(c, GEM_PAGE * GEM_PAGE * 4);
        float *values = check_buf(c, GEM_PAGE * n * 4), *o = check_buf(c, GEM_PAGE * n * 4);
        float *s1 = check_buf(c, n * n * 4);
        double *s = check_buf(c, n * n * 8), *d = check_buf(c, GEM_PAGE * n * 8),
               *want = check_buf(c, GEM_PAGE * n * 8), *err = check_buf(c, GEM_PAGE * n * 8);
        run_rows(c, c->ref, &k, 0, GEM_PAGE, kk, qk, values, o, s1);
        for (size_t x = 0; x < n; x++)
            for (size_t v = 0; v < n; v++)
                s[x * n + v] = k.s0 ? (double)k.s0[panel_at(n, x, v)] : 0.0;
        recurrence(&k, s, d, want);
        magnitudes(&k, &m);
        const double u = (double)FLT_EPSILON / 2, tiny = 1e-30;
        for (size_t v = 0; v < n; v++) {
            double residual[GEM_PAGE];
            for (size_t t = 0; t < GEM_PAGE; t++) {
                const float *row = k.rows + t * 3 * n;
                double beta = (double)k.beta[t], b = -k.b[t], size = fabs((double)row[2 * n + v]),
                       q_size = 0.0, s_size = 0.0, sum = 0.0, e = 0.0, out;
                for (size_t x = 0; k.s0 && x < n; x++) {
                    double z = fabs((double)k.s0[panel_at(n, x, v)]) * exp(-b);
                    s_size += z * fabs((double)row[n + x]);
                    q_size += z * fabs((double)row[x]);
                }
                double rounds = ((double)n + 80 + b) * u;
                for (size_t j = 0; j < t; j++)
                    sum += m.kk[t][j] * fabs(d[j * n + v]);
                residual[t] = rounds * beta * (size + s_size + sum) + tiny;
                for (size_t j = 0; j <= t; j++)
                    e += m.inverse[t][j] * residual[j];
                err[t * n + v] = e;
                check_near(c, "N", t * n + v, (double)values[panel_at(GEM_PAGE, t, v)],
                           d[t * n + v], 1.01 * e);
                out = rounds * q_size + tiny;
                for (size_t j = 0; j <= t; j++)
                    out += rounds * m.qk[t][j] * fabs(d[j * n + v]) +
                           m.exact_qk[t][j] * err[j * n + v];
                check_near(c, "o", t * n + v, (double)o[t * n + v], want[t * n + v], 1.01 * out);
            }
            for (size_t x = 0; x < n; x++) {
                double b = -k.b[GEM_PAGE - 1], rounds = (80 + b) * u,
                       bound = k.s0 ? rounds * fabs((double)k.s0[panel_at(n, x, v)]) * exp(-b) : 0;
                for (size_t j = 0; j < GEM_PAGE; j++)
                    bound += fabs((double)k.rows[j * 3 * n + n + x]) * exp(-b - k.b[j]) *
                             (rounds * fabs(d[j * n + v]) + err[j * n + v]);
                check_near(c, "S1", x * n + v, (double)s1[panel_at(n, x, v)], s[x * n + v],
                           1.01 * bound + tiny);
            }
        }
    }
}

/* Three steps worked by hand, two dims of sixteen in use. */
static void by_hand(check *c)
{
    static const float k[3][2] = {{0.6f, 0.8f}, {0.8f, 0.6f}, {0.0f, 1.0f}};
    static const float v[3][2] = {{1.0f, 2.0f}, {3.0f, -1.0f}, {-1.0f, 0.5f}};
    static const float q[3][2] = {{0.6f, 0.8f}, {1.0f, 0.0f}, {0.6f, -0.8f}};
    static const float beta[3] = {0.5f, 0.25f, 1.0f}, g[3] = {-0.1f, -0.2f, -0.05f};
    static const double d[3][2] = {{0.5, 1.0}, {0.651752, -0.446495}, {-1.6835, 0.131791}};
    static const double o[3][2] = {{0.5, 1.0}, {0.767021, 0.134042}, {1.237768, -0.323497}};
    if (!check_begin(c, "delta by hand")) return;
    chunk x = {.hd = 16};
    double sum = 0.0;
    x.rows = check_buf(c, 3 * 48 * 4);
    x.keys = check_buf(c, GEM_PAGE * 16 * 4);
    x.beta = check_copy(c, beta, sizeof(beta));
    x.b = check_buf(c, 3 * sizeof(double));
    memset(x.rows, 0, 3 * 48 * 4);
    memset(x.keys, 0, GEM_PAGE * 16 * 4);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 2; i++) {
            x.rows[48 * t + i] = q[t][i];
            x.rows[48 * t + 16 + i] = k[t][i];
            x.rows[48 * t + 32 + i] = v[t][i];
            x.keys[gem_delta_key_at(16, t, i)] = k[t][i];
        }
        x.b[t] = sum += (double)g[t];
    }
    float *kk = check_buf(c, 3 * GEM_PAGE * 4), *qk = check_buf(c, 3 * GEM_PAGE * 4),
          *values = check_buf(c, GEM_PAGE * 16 * 4), *out = check_buf(c, 3 * 16 * 4);
    run_rows(c, c->isa, &x, 0, 3, kk, qk, values, out, NULL);
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < 2; i++) {
            check_near(c, "d", 2 * t + i, (double)values[panel_at(GEM_PAGE, t, i)], d[t][i], 2e-6);
            check_near(c, "o", 2 * t + i, (double)out[16 * t + i], o[t][i], 2e-6);
        }
}

void ops_delta(check *c)
{
    softplus(c);
    sigmoid_gate(c);
    conv(c);
    delta(c);
    meaning(c);
    by_hand(c);
}
