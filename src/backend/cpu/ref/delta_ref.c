/* delta_ref.c - short convolution and gated delta rule, scalar: the oracle of simd/delta.h. One row
 * at a time, exactly as docs/adr/0010 writes it; every sum is one chain of fma, ascending. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/ref/math_ref.h"

static void sigmoid_gate_ref(float *x, const float *gate, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = gem_gate_ref(x[i], gate[i]);
}

static void conv_ref(const gem_conv_args *a)
{
    float lane[16] = {0};
    for (int64_t i = 0; i < a->n; i++) {
        float acc = a->w[i] * a->u[0][i];
        for (int j = 1; j < GEM_CONV_TAPS; j++)
            acc = fmaf(a->w[(size_t)j * a->ldw + (size_t)i], a->u[j][i], acc);
        a->dst[i] = gem_silu_ref(acc);
        lane[i % 16] = fmaf(a->dst[i], a->dst[i], lane[i % 16]);
    }
    if (!a->norm) return;
    float r = a->scale / sqrtf(gem_tree16_ref(lane) + a->eps);
    for (int64_t i = 0; i < a->n; i++)
        a->dst[i] = a->dst[i] * r;
}

static void delta_scores_ref(const gem_delta_args *a)
{
    for (int r = 0; r < a->n; r++)
        for (int s = 0; s <= a->t0 + r; s++) {
            float kk = 0.0f, qk = 0.0f;
            for (int d = 0; d < a->head_dim; d++) {
                float key = a->keys[gem_delta_key_at(a->head_dim, s, d)];
                kk = fmaf(a->row[r][a->k_at + (size_t)d], key, kk);
                qk = fmaf(a->row[r][a->q_at + (size_t)d], key, qk);
            }
            a->kk[r * GEM_PAGE + s] = kk;
            a->qk[r * GEM_PAGE + s] = qk;
        }
}

/* Index of value dim v in row i of panels of n rows. */
static size_t at(int n, int i, int v)
{
    return ((size_t)(v / 16) * (size_t)n + (size_t)i) * 16 + (size_t)(v % 16);
}

static void row_ref(const gem_delta_args *a, int r)
{
    const int t = a->t0 + r, hd = a->head_dim;
    const float *q = a->row[r] + a->q_at, *k = a->row[r] + a->k_at, *v = a->row[r] + a->v_at;
    const float eb = gem_exp_ref((float)a->b[t]);
    float n[GEM_PAGE], p[GEM_PAGE];
    for (int s = 0; s <= t; s++) {
        float decay = gem_exp_ref((float)(a->b[t] - a->b[s]));
        n[s] = -((a->beta[r] * a->kk[r * GEM_PAGE + s]) * decay);
        p[s] = a->qk[r * GEM_PAGE + s] * decay;
    }
    for (int i = 0; i < hd; i++) {
        float sk = 0.0f, sq = 0.0f, acc;
        for (int d = 0; a->s0 && d < hd; d++) {
            sk = fmaf(k[d], a->s0[at(hd, d, i)], sk);
            sq = fmaf(q[d], a->s0[at(hd, d, i)], sq);
        }
        acc = fmaf(-eb, sk, v[i]) * a->beta[r];
        for (int s = 0; s < t; s++)
            acc = fmaf(n[s], a->values[at(GEM_PAGE, s, i)], acc);
        a->values[at(GEM_PAGE, t, i)] = acc;
        acc = eb * sq;
        for (int s = 0; s <= t; s++)
            acc = fmaf(p[s], a->values[at(GEM_PAGE, s, i)], acc);
        a->o[(size_t)r * (size_t)hd + (size_t)i] = acc;
    }
}

static void state_ref(const gem_delta_args *a)
{
    const int hd = a->head_dim, last = GEM_PAGE - 1;
    const float eb = gem_exp_ref((float)a->b[last]);
    float decay[GEM_PAGE];
    for (int s = 0; s < GEM_PAGE; s++)
        decay[s] = gem_exp_ref((float)(a->b[last] - a->b[s]));
    for (int d = 0; d < hd; d++)
        for (int i = 0; i < hd; i++) {
            float acc = a->s0 ? eb * a->s0[at(hd, d, i)] : 0.0f;
            for (int s = 0; s < GEM_PAGE; s++)
                acc = fmaf(a->keys[gem_delta_key_at(hd, s, d)] * decay[s],
                           a->values[at(GEM_PAGE, s, i)], acc);
            a->s1[at(hd, d, i)] = acc;
        }
}

static void delta_ref(const gem_delta_args *a)
{
    for (int r = 0; r < a->n; r++)
        row_ref(a, r);
    if (a->s1) state_ref(a);
}

void gem_delta_kernels_ref(gem_cpu_kernels *t)
{
    t->sigmoid_gate = sigmoid_gate_ref;
    t->conv = conv_ref;
    t->delta_scores = delta_scores_ref;
    t->delta = delta_ref;
}
