/* rows_ref.c - row-wise ops and attention, scalar: the oracle of their SIMD forms. Every sum has a
 * fixed order: 16 virtual lanes (element i in lane i % 16, ascending), then the tree of math_ref.h.
 */
#include "backend/cpu/kernels.h"
#include "backend/cpu/ref/math_ref.h"

#include <float.h>

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* A block whose largest value is below 1e-36 is zero (127/a must stay finite); one that holds an
 * infinity or NaN gets scale NaN, so that the fault shows in the logits. */
static void quantize_ref(const float *x, int64_t n, const gem_qrows *row)
{
    for (int64_t b = 0; b < n / 32; b++) {
        const float *v = x + 32 * b;
        int8_t *q = row->q + 32 * b;
        uint32_t top = 0;
        for (int i = 0; i < 32; i++) {
            uint32_t u = bits_of(v[i]) & 0x7fffffffu;
            if (u > top) top = u;
        }
        float a;
        memcpy(&a, &top, 4);
        bool finite = a <= FLT_MAX, zero = a < 1e-36f;
        float inv = finite && !zero ? 127.0f / a : 0.0f;
        row->xs[b] = !finite ? NAN : zero ? 0.0f : a / 127.0f;
        int32_t half[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            q[i] = finite ? (int8_t)rintf(v[i] * inv) : 0;
            half[i / 16] += q[i];
        }
        row->nsum16[2 * b] = -half[0];
        row->nsum16[2 * b + 1] = -half[1];
        row->nsum[b] = -(half[0] + half[1]);
        row->xsum[b] = (float)(half[0] + half[1]);
    }
}

static void norm_ref(const float *x, const float *w, int64_t n, float eps, float *y)
{
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float r = 1.0f / sqrtf(gem_tree16_ref(lane) / (float)n + eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

static void add_ref(float *x, const float *t, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (x[i] + t[i]) * scale;
}

static void glu_ref(gem_act act, const float *gate, const float *up, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (act == GEM_ACT_SILU ? gem_silu_ref(gate[i]) : gem_gelu_ref(gate[i])) * up[i];
}

static void rope_ref(float *x, const float *cs, const float *sn, int half, int64_t n, float scale)
{
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = fmaf(-b, sn[i], a * cs[i]) * scale;
        x[i + half] = fmaf(b, cs[i], a * sn[i]) * scale;
    }
    for (int64_t i = 2 * half; i < n; i++)
        x[i] = x[i] * scale;
}

static float finite_or_zero(float f)
{
    return fabsf(f) <= FLT_MAX ? f : 0.0f;
}

static uint16_t to_half(float f)
{
    f = finite_or_zero(f);
    f = f > 65504.0f ? 65504.0f : f < -65504.0f ? -65504.0f : f;
    return gem_f32_to_f16(f);
}

static void append_ref(uint8_t *page, int head_dim, bool f16, int32_t slot, const float *k,
                       const float *v)
{
    size_t kat = (size_t)(slot / 16) * (size_t)head_dim * 16 + (size_t)(slot % 16);
    for (int i = 0; i < head_dim; i++) {
        size_t vat = gem_page_v_at(head_dim, slot, i);
        if (f16) {
            ((uint16_t *)page)[kat + (size_t)i * 16] = to_half(k[i]);
            ((uint16_t *)page)[vat] = to_half(v[i]);
        } else {
            ((float *)page)[kat + (size_t)i * 16] = finite_or_zero(k[i]);
            ((float *)page)[vat] = finite_or_zero(v[i]);
        }
    }
}

static float page_value(const uint8_t *page, bool f16, size_t i)
{
    return f16 ? gem_f16_to_f32(((const uint16_t *)page)[i]) : ((const float *)page)[i];
}

static void keys_ref(const gem_keys_args *a)
{
    for (int s = 0; s < a->n_keys; s++) {
        float *out = a->keys + gem_page_k_at(a->head_dim, s, 0);
        for (int d = 0; d < a->head_dim; d++)
            out[(size_t)d * 16] = a->value[d / 16 * 16 * GEM_PAGE + s * 16 + d % 16] * a->norm[d];
        for (int i = 0; i < a->n_pairs; i++) {
            float *x = out + (size_t)i * 16, *y = out + (size_t)(i + a->half) * 16;
            float cs = a->cos[s * a->n_pairs + i], sn = a->sin[s * a->n_pairs + i];
            float p = *x, q = *y;
            *x = fmaf(-q, sn, p * cs);
            *y = fmaf(q, cs, p * sn);
        }
    }
}

/* Dim d of the value at key j of tile t. */
static float value_at(const gem_attend_args *a, int t, int j, int d)
{
    size_t i = gem_page_v_at(a->head_dim, j, d);
    if (!a->value) return page_value(a->page[t], a->f16, i);
    return page_value(a->value[t], false, i - (size_t)GEM_PAGE * (size_t)a->head_dim);
}

static void attend_row(const gem_attend_args *a, int r)
{
    const size_t hd = (size_t)a->head_dim;
    float m = -INFINITY, s = 0.0f, *o = a->o + (size_t)r * hd;
    memset(o, 0, hd * sizeof(*o));
    for (int t = 0; t < GEM_CHUNK / GEM_PAGE; t++) {
        int32_t first = a->chunk + t * GEM_PAGE, pos = a->pos[r];
        float score[GEM_PAGE], p[GEM_PAGE], lane[16] = {0}, top = -INFINITY;
        bool seen[GEM_PAGE], any = false;
        for (int j = 0; j < GEM_PAGE; j++) {
            seen[j] = first + j <= pos && (!a->window || pos - (first + j) < a->window);
            any = any || seen[j];
        }
        if (!any) continue;
        uint64_t stamp = a->phase_ns ? gem_now_ns() : 0;
        for (int j = 0; j < GEM_PAGE; j++) {
            float acc = 0.0f;
            for (size_t d = 0; d < hd; d++) {
                size_t at = (size_t)(j / 16) * hd * 16 + d * 16 + (size_t)(j % 16);
                acc = fmaf(a->q[r][d], page_value(a->page[t], a->f16, at), acc);
            }
            score[j] = acc;
            if (seen[j] && acc > top) top = acc; /* never NaN: NaN shows in the sums */
        }
        if (a->phase_ns) gem_phase_end(&a->phase_ns[0], &stamp);
        top = (top > m ? top : m) + 0.0f; /* -0 to 0: the order of equal scores does not matter */
        float alpha = gem_exp_ref(m - top);
        for (int j = 0; j < GEM_PAGE; j++) {
            p[j] = seen[j] ? gem_exp_ref(score[j] - top) : 0.0f;
            lane[j % 16] = lane[j % 16] + p[j];
        }
        s = fmaf(s, alpha, gem_tree16_ref(lane));
        if (a->phase_ns) gem_phase_end(&a->phase_ns[1], &stamp);
        for (size_t d = 0; d < hd; d++) {
            float acc = o[d] * alpha;
            for (int j = 0; j < GEM_PAGE; j++)
                acc = fmaf(p[j], value_at(a, t, j, (int)d), acc);
            o[d] = acc + 0.0f; /* -0 to 0: so leaving out unseen keys (p = 0) changes no bit */
        }
        m = top;
    }
    a->m[r] = m;
    a->s[r] = s;
}

static void attend_ref(const gem_attend_args *a)
{
    for (int r = 0; r < a->n; r++)
        attend_row(a, r);
}

static void attend_merge_ref(float *m, float *s, float *o, float m2, float s2, const float *o2,
                             int64_t n)
{
    float top = *m > m2 ? *m : m2;
    float f1 = gem_exp_ref(*m - top), f2 = gem_exp_ref(m2 - top);
    *s = fmaf(s2, f2, *s * f1);
    for (int64_t i = 0; i < n; i++)
        o[i] = fmaf(o2[i], f2, o[i] * f1);
    *m = top;
}

static void attend_finish_ref(const float *o, float s, int64_t n, float *dst)
{
    float r = 1.0f / s;
    for (int64_t i = 0; i < n; i++)
        dst[i] = o[i] * r;
}

static void softcap_ref(float *x, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = cap * gem_tanh_ref(x[i] / cap);
}

void gem_cpu_kernels_ref(gem_cpu_kernels *t)
{
    memset(t, 0, sizeof(*t));
    t->isa = "ref";
    gem_linear_kernels_ref(t);
    gem_delta_kernels_ref(t);
    t->quantize = quantize_ref;
    t->norm = norm_ref;
    t->add = add_ref;
    t->glu = glu_ref;
    t->rope = rope_ref;
    t->append = append_ref;
    t->attend = attend_ref;
    t->keys = keys_ref;
    t->attend_merge = attend_merge_ref;
    t->attend_finish = attend_finish_ref;
    t->softcap = softcap_ref;
}
