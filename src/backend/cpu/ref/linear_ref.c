/* linear_ref.c - one panel against n activation rows, scalar: the oracle of every linear kernel.
 * The arithmetic is the canonical one of panel.h. */
#include "backend/cpu/kernels.h"

#include <math.h>

static float half_at(const uint8_t *p, int i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return gem_f16_to_f32(h);
}

/* Weight e of a 32-block, from lines of nibbles, five bits or six bits (panel.h). */
static int weight(int bits, const uint8_t *vec, int row, int e)
{
    int j = e / 4, k = e % 16 / 4;
    const uint8_t *p = vec + 4 * row + e % 4;
    if (bits == 4) return p[64 * k] >> (j < 4 ? 0 : 4) & 15;
    if (bits == 6) {
        p += 192 * (e / 16);
        return k < 3 ? p[64 * k] & 63 : p[0] >> 6 | p[64] >> 6 << 2 | p[128] >> 6 << 4;
    }
    if (j == 7) return p[128] >> 5 | p[64] >> 7 << 3 | p[256] >> 7 << 4;
    if (j >= 4) p += 192;
    return j % 4 < (j < 4 ? 3 : 2) ? p[64 * (j % 4)] & 31 : p[0] >> 5 | (p[64] >> 5 & 3) << 3;
}

/* Exact sum over elements [e0, e1). */
static int32_t dot(int bits, const uint8_t *vec, int row, const int8_t *q, int e0, int e1)
{
    int32_t t = 0;
    for (int e = e0; e < e1; e++)
        t += weight(bits, vec, row, e) * q[e];
    return t;
}

static void legacy(const gem_panel_args *a, int unit, bool min, bool five)
{
    int offset = min ? 0 : five ? 16 : 8;
    for (int c = 0; c < a->n; c++) {
        gem_qrows x = gem_qrows_at(&a->x, (size_t)c);
        for (int r = 0; r < 16; r++) {
            float acc = 0.0f;
            const uint8_t *u = a->panel;
            for (int64_t b = 0; b < a->k / 32; b++, u += unit) {
                const uint8_t *vec = u + (min ? 64 : 32);
                int32_t t = dot(five ? 5 : 4, vec, r, x.q + 32 * b, 0, 32);
                float d = half_at(u, r);
                t += offset * x.nsum[b];
                if (min)
                    acc = fmaf(fmaf(half_at(u + 32, r), x.xsum[b], d * (float)t), x.xs[b], acc);
                else
                    acc = fmaf((float)t, d * x.xs[b], acc);
            }
            a->y[(size_t)c * a->ldy + (size_t)r] = acc;
        }
    }
}

static void linear_q4_0_ref(const gem_panel_args *a)
{
    legacy(a, 288, false, false);
}

static void linear_q4_1_ref(const gem_panel_args *a)
{
    legacy(a, 320, true, false);
}

static void linear_q5_0_ref(const gem_panel_args *a)
{
    legacy(a, 352, false, true);
}

static void linear_q5_1_ref(const gem_panel_args *a)
{
    legacy(a, 384, true, true);
}

static void linear_q8_0_ref(const gem_panel_args *a)
{
    for (int c = 0; c < a->n; c++) {
        gem_qrows x = gem_qrows_at(&a->x, (size_t)c);
        for (int r = 0; r < 16; r++) {
            float acc = 0.0f;
            const uint8_t *u = a->panel;
            for (int64_t b = 0; b < a->k / 32; b++, u += 544) {
                int32_t t = 128 * x.nsum[b];
                for (int e = 0; e < 32; e++)
                    t += (int)u[32 + 64 * (e / 4) + 4 * r + e % 4] * x.q[32 * b + e];
                acc = fmaf((float)t, half_at(u, r) * x.xs[b], acc);
            }
            a->y[(size_t)c * a->ldy + (size_t)r] = acc;
        }
    }
}

static void k45(const gem_panel_args *a, bool five)
{
    int step = five ? 320 : 256;
    for (int c = 0; c < a->n; c++) {
        gem_qrows x = gem_qrows_at(&a->x, (size_t)c);
        for (int r = 0; r < 16; r++) {
            float acc = 0.0f;
            for (int64_t b = 0; b < a->k / 32; b++) {
                const uint8_t *u = a->panel + (size_t)(b / 8) * (size_t)(320 + 8 * step);
                const uint8_t *sub = u + 320 + (b % 8) * step;
                float ws = half_at(u, r) * (float)u[64 + 16 * (b % 8) + r];
                float wm = half_at(u + 32, r) * (float)u[192 + 16 * (b % 8) + r];
                int32_t t = dot(five ? 5 : 4, sub, r, x.q + 32 * b, 0, 32);
                acc = fmaf(fmaf(-wm, x.xsum[b], ws * (float)t), x.xs[b], acc);
            }
            a->y[(size_t)c * a->ldy + (size_t)r] = acc;
        }
    }
}

static void linear_q4_k_ref(const gem_panel_args *a)
{
    k45(a, false);
}

static void linear_q5_k_ref(const gem_panel_args *a)
{
    k45(a, true);
}

static void linear_q6_k_ref(const gem_panel_args *a)
{
    for (int c = 0; c < a->n; c++) {
        gem_qrows x = gem_qrows_at(&a->x, (size_t)c);
        for (int r = 0; r < 16; r++) {
            float acc = 0.0f;
            for (int64_t b = 0; b < a->k / 32; b++) {
                const uint8_t *u = a->panel + (size_t)(b / 8) * 3360;
                const uint8_t *sub = u + 32 + (b % 8) * 416;
                const int8_t *q = x.q + 32 * b;
                float d = half_at(u, r);
                float s0 = d * (float)(int8_t)sub[r], s1 = d * (float)(int8_t)sub[16 + r];
                int32_t t0 = dot(6, sub + 32, r, q, 0, 16) + 32 * x.nsum16[2 * b];
                int32_t t1 = dot(6, sub + 32, r, q, 16, 32) + 32 * x.nsum16[2 * b + 1];
                acc = fmaf(fmaf(s1, (float)t1, s0 * (float)t0), x.xs[b], acc);
            }
            a->y[(size_t)c * a->ldy + (size_t)r] = acc;
        }
    }
}

static float value_at(gem_panel_type t, const uint8_t *p, int64_t i)
{
    float f;
    uint16_t h;
    if (t == GEM_PANEL_F32) {
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    memcpy(&h, p + 2 * i, 2);
    return t == GEM_PANEL_F16 ? gem_f16_to_f32(h) : gem_bf16_to_f32(h);
}

static void floats(const gem_panel_args *a, gem_panel_type t)
{
    for (int c = 0; c < a->n; c++) {
        const float *x = a->xf + (size_t)c * a->ldx;
        for (int r = 0; r < 16; r++) {
            float acc = 0.0f;
            for (int64_t k = 0; k < a->k; k += 32) {
                float chain = 0.0f;
                for (int64_t i = k; i < GEM_MIN(k + 32, a->k); i++)
                    chain = fmaf(value_at(t, a->panel, 16 * i + r), x[i], chain);
                acc = acc + chain;
            }
            a->y[(size_t)c * a->ldy + (size_t)r] = acc;
        }
    }
}

static void linear_f32_ref(const gem_panel_args *a)
{
    floats(a, GEM_PANEL_F32);
}

static void linear_f16_ref(const gem_panel_args *a)
{
    floats(a, GEM_PANEL_F16);
}

static void linear_bf16_ref(const gem_panel_args *a)
{
    floats(a, GEM_PANEL_BF16);
}

void gem_linear_kernels_ref(gem_cpu_kernels *t)
{
    t->linear[GEM_PANEL_Q4_0] = linear_q4_0_ref;
    t->linear[GEM_PANEL_Q4_1] = linear_q4_1_ref;
    t->linear[GEM_PANEL_Q5_0] = linear_q5_0_ref;
    t->linear[GEM_PANEL_Q5_1] = linear_q5_1_ref;
    t->linear[GEM_PANEL_Q8_0] = linear_q8_0_ref;
    t->linear[GEM_PANEL_Q4_K] = linear_q4_k_ref;
    t->linear[GEM_PANEL_Q5_K] = linear_q5_k_ref;
    t->linear[GEM_PANEL_Q6_K] = linear_q6_k_ref;
    t->linear[GEM_PANEL_F32] = linear_f32_ref;
    t->linear[GEM_PANEL_F16] = linear_f16_ref;
    t->linear[GEM_PANEL_BF16] = linear_bf16_ref;
}
