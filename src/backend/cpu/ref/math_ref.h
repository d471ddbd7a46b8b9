/* math_ref.h - the elementary functions of the CPU backend, scalar. Own polynomials with explicit fma,
 * never libm, so that every ISA and every C library gives the same bits. SIMD forms repeat these
 * operations one for one (simd/math.h). */
#ifndef GEM_CPU_MATH_REF_H
#define GEM_CPU_MATH_REF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define GEM_LOG2E 0x1.715476p+0f
#define GEM_LN2_HI 0x1.62ep-1f /* 12 significant bits: n * hi is exact for |n| < 2^12 */
#define GEM_LN2_LO 0x1.0bfbe8p-15f
#define GEM_EXP_MIN (-87.0f) /* below: 0; no denormals, which some CPUs compute slowly */
#define GEM_EXP_MAX 88.0f    /* above: infinity */
/* (exp(r) - 1 - r) / r^2 on |r| <= ln2/2, Chebyshev fit of degree 4; relative error of exp 1e-8 */
#define GEM_EXP_C0 0x1p-1f
#define GEM_EXP_C1 0x1.5554dcp-3f
#define GEM_EXP_C2 0x1.5554e8p-5f
#define GEM_EXP_C3 0x1.120be8p-7f
#define GEM_EXP_C4 0x1.6d43b4p-10f

static inline float gem_exp_ref(float x)
{
    float n = rintf(x * GEM_LOG2E);
    float r = fmaf(n, -GEM_LN2_HI, x);
    r = fmaf(n, -GEM_LN2_LO, r);
    float p = fmaf(GEM_EXP_C4, r, GEM_EXP_C3);
    p = fmaf(p, r, GEM_EXP_C2);
    p = fmaf(p, r, GEM_EXP_C1);
    p = fmaf(p, r, GEM_EXP_C0);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    if (x < GEM_EXP_MIN) return 0.0f;
    if (x > GEM_EXP_MAX) return INFINITY;
    if (x != x) return x;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}

/* x / (1 + exp(-u)) */
static inline float gem_gate_ref(float x, float u)
{
    return x / (1.0f + gem_exp_ref(-u));
}

static inline float gem_silu_ref(float x)
{
    return gem_gate_ref(x, x);
}

static inline float gem_sigmoid_ref(float x)
{
    return gem_gate_ref(1.0f, x);
}

/* log(1 + y) of y >= 0 in double: y below 2^-24 is its own logarithm to single precision; otherwise
 * 1 + y = m 2^n with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1)/(m + 1)), whose series ends
 * behind s^13 with a relative error of 1e-11. */
static inline double gem_log1p_ref(double y)
{
    double x = 1.0 + y, s, s2, p;
    uint64_t bits;
    int n;
    if (!(y >= 0x1p-24 && y <= 0x1p+1000)) return y;
    memcpy(&bits, &x, 8);
    n = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&x, &bits, 8);
    if (x > 0x1.6a09e667f3bcdp+0) {
        x = x * 0.5;
        n++;
    }
    s = (x - 1.0) / (x + 1.0);
    s2 = s * s;
    p = 1.0 / 13.0;
    p = p * s2 + 1.0 / 11.0;
    p = p * s2 + 1.0 / 9.0;
    p = p * s2 + 1.0 / 7.0;
    p = p * s2 + 1.0 / 5.0;
    p = p * s2 + 1.0 / 3.0;
    p = p * s2 + 1.0;
    return (double)n * 0x1.62e42fefa39efp-1 + 2.0 * s * p;
}

/* log(1 + exp(x)); x itself above 20, as the reference implementations have it */
static inline float gem_softplus_ref(float x)
{
    return x > 20.0f ? x : (float)gem_log1p_ref((double)gem_exp_ref(x));
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)) */
#define GEM_GELU_A 0x1.988454p+0f /* 2 sqrt(2/pi) */
#define GEM_GELU_B 0x1.6e4e26p-5f /* 0.044715 */
static inline float gem_gelu_ref(float x)
{
    float x2 = x * x;
    float in = fmaf(x2 * x, GEM_GELU_B, x);
    return gem_gate_ref(x, in * GEM_GELU_A);
}

static inline float gem_tanh_ref(float u)
{
    return 1.0f - 2.0f / (gem_exp_ref(2.0f * u) + 1.0f);
}

/* Sum of 16 lanes by the fixed tree 16 -> 8 -> 4 -> 2 -> 1. */
static inline float gem_tree16_ref(float v[16])
{
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++) v[i] = v[i] + v[i + w];
    return v[0];
}

#endif
