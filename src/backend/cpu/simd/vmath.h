/* vmath.h - the elementary functions of ref/math_ref.h on 16 lanes, operation for operation.
 * Included after a vec_<isa>.h. */
#ifndef GEM_CPU_VMATH_H
#define GEM_CPU_VMATH_H

#include "backend/cpu/ref/math_ref.h"

V16_INLINE v16 v16_exp(v16 x)
{
    v16 n = v16_round(v16_mul(x, v16_set1(GEM_LOG2E)));
    v16 r = v16_fnma(n, v16_set1(GEM_LN2_HI), x);
    r = v16_fnma(n, v16_set1(GEM_LN2_LO), r);
    v16 p = v16_fma(v16_set1(GEM_EXP_C4), r, v16_set1(GEM_EXP_C3));
    p = v16_fma(p, r, v16_set1(GEM_EXP_C2));
    p = v16_fma(p, r, v16_set1(GEM_EXP_C1));
    p = v16_fma(p, r, v16_set1(GEM_EXP_C0));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_mul(p, v16_pow2(n)); /* NaN stays NaN here: p is NaN already */
    p = v16_select(m16_lt(v16_set1(GEM_EXP_MAX), x), v16_set1(INFINITY), p);
    return v16_select(m16_lt(x, v16_set1(GEM_EXP_MIN)), v16_set1(0.0f), p);
}

V16_INLINE v16 v16_gate(v16 x, v16 u)
{
    return v16_div(x, v16_add(v16_set1(1.0f), v16_exp(v16_neg(u))));
}

V16_INLINE v16 v16_silu(v16 x)
{
    return v16_gate(x, x);
}

V16_INLINE v16 v16_gelu(v16 x)
{
    v16 x2 = v16_mul(x, x);
    v16 in = v16_fma(v16_mul(x2, x), v16_set1(GEM_GELU_B), x);
    return v16_gate(x, v16_mul(in, v16_set1(GEM_GELU_A)));
}

V16_INLINE v16 v16_tanh(v16 u)
{
    v16 e = v16_exp(v16_mul(v16_set1(2.0f), u));
    return v16_sub(v16_set1(1.0f), v16_div(v16_set1(2.0f), v16_add(e, v16_set1(1.0f))));
}

#endif
