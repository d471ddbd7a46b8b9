/* vec_neon.h - the 16-lane float vector of the templates on AArch64 NEON: four float32x4_t.
 * Names and meaning: vec_avx2.h. Minimum and maximum are compare and select, as x86 defines them:
 * NEON's own differ for NaN and for zeros of both signs. */
#ifndef GEM_CPU_VEC_NEON_H
#define GEM_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define V16_INLINE static inline __attribute__((always_inline))

typedef float32x4x4_t v16; /* val[i]: lanes 4i..4i+3 */
typedef uint32x4x4_t m16;  /* all bits of a lane, or none */

/* Attention blocks: 6 rows x 16 lanes are 24 accumulators of 32 registers. */
enum { V16_ATTEND_ROWS = 6, V16_ATTEND_ALONE = 6 };
#define V16_ATTEND_WIDTH(R) ((R) == 1 ? 4 : (R) == 2 ? 2 : 1)

/* r.val[i] = expression in i, for the four parts */
#define V16_PARTS(type, r, expression)                                                             \
    type r;                                                                                        \
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) r.val[i] = (expression)

V16_INLINE v16 v16_set1(float f)
{
    V16_PARTS(v16, r, vdupq_n_f32(f));
    return r;
}
V16_INLINE v16 v16_load(const float *p)
{
    V16_PARTS(v16, r, vld1q_f32(p + 4 * i));
    return r;
}
V16_INLINE void v16_store(float *p, v16 x)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1q_f32(p + 4 * i, x.val[i]);
}
V16_INLINE v16 v16_load_f16(const uint16_t *p)
{
    V16_PARTS(v16, r, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
    return r;
}
V16_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.val[i])));
}
V16_INLINE v16 v16_add(v16 x, v16 y)
{
    V16_PARTS(v16, r, vaddq_f32(x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_sub(v16 x, v16 y)
{
    V16_PARTS(v16, r, vsubq_f32(x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_mul(v16 x, v16 y)
{
    V16_PARTS(v16, r, vmulq_f32(x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_div(v16 x, v16 y)
{
    V16_PARTS(v16, r, vdivq_f32(x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_fma(v16 x, v16 y, v16 z)
{
    V16_PARTS(v16, r, vfmaq_f32(z.val[i], x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_fnma(v16 x, v16 y, v16 z)
{
    V16_PARTS(v16, r, vfmsq_f32(z.val[i], x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_max(v16 x, v16 y)
{
    V16_PARTS(v16, r, vbslq_f32(vcgtq_f32(x.val[i], y.val[i]), x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_min(v16 x, v16 y)
{
    V16_PARTS(v16, r, vbslq_f32(vcltq_f32(x.val[i], y.val[i]), x.val[i], y.val[i]));
    return r;
}
V16_INLINE v16 v16_neg(v16 x)
{
    V16_PARTS(v16, r, vnegq_f32(x.val[i]));
    return r;
}
V16_INLINE v16 v16_abs(v16 x)
{
    V16_PARTS(v16, r, vabsq_f32(x.val[i]));
    return r;
}
V16_INLINE v16 v16_round(v16 x)
{
    V16_PARTS(v16, r, vrndnq_f32(x.val[i]));
    return r;
}
V16_INLINE float32x4_t v16_quarter_pow2(float32x4_t n)
{
    int32x4_t e = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}
V16_INLINE v16 v16_pow2(v16 n)
{
    V16_PARTS(v16, r, v16_quarter_pow2(n.val[i]));
    return r;
}

V16_INLINE m16 m16_lt(v16 x, v16 y)
{
    V16_PARTS(m16, r, vcltq_f32(x.val[i], y.val[i]));
    return r;
}
V16_INLINE m16 m16_le(v16 x, v16 y)
{
    V16_PARTS(m16, r, vcleq_f32(x.val[i], y.val[i]));
    return r;
}
V16_INLINE uint32x4_t m16_quarter_range(int first, int lo, int hi)
{
    static const int32_t ramp[4] = {0, 1, 2, 3};
    int32x4_t lane = vaddq_s32(vld1q_s32(ramp), vdupq_n_s32(first));
    return vandq_u32(vcgeq_s32(lane, vdupq_n_s32(lo)), vcltq_s32(lane, vdupq_n_s32(hi)));
}
V16_INLINE m16 m16_range(int lo, int hi)
{
    V16_PARTS(m16, r, m16_quarter_range(4 * i, lo, hi));
    return r;
}
V16_INLINE v16 v16_keep(m16 m, v16 x)
{
    V16_PARTS(v16, r, vreinterpretq_f32_u32(vandq_u32(m.val[i], vreinterpretq_u32_f32(x.val[i]))));
    return r;
}
V16_INLINE v16 v16_select(m16 m, v16 x, v16 y)
{
    V16_PARTS(v16, r, vbslq_f32(m.val[i], x.val[i], y.val[i]));
    return r;
}

V16_INLINE float v16_tree(v16 x)
{
    float32x4_t v = vaddq_f32(vaddq_f32(x.val[0], x.val[2]), vaddq_f32(x.val[1], x.val[3]));
    float32x2_t h = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
V16_INLINE float v16_top(v16 x)
{
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.val[0], x.val[1]), vmaxq_f32(x.val[2], x.val[3])));
}
V16_INLINE uint32_t v16_top_bits(v16 x, v16 y)
{
    uint32x4_t top = vdupq_n_u32(0);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(x.val[i])));
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(y.val[i])));
    }
    return vmaxvq_u32(top);
}
V16_INLINE int32_t v16_store_half_i8(int8_t *q, v16 x)
{
    int16x8_t lo =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.val[0])), vmovn_s32(vcvtnq_s32_f32(x.val[1])));
    int16x8_t hi =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.val[2])), vmovn_s32(vcvtnq_s32_f32(x.val[3])));
    int8x16_t v = vcombine_s8(vmovn_s16(lo), vmovn_s16(hi));
    vst1q_s8(q, v);
    return vaddlvq_s8(v);
}
V16_INLINE void v16_store_i8(int8_t *q, v16 x, v16 y, int32_t sum[2])
{
    sum[0] = v16_store_half_i8(q, x);
    sum[1] = v16_store_half_i8(q + 16, y);
}

#endif
