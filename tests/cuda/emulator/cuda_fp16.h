/* cuda_fp16.h - of the emulator: the f16 functions that gem's kernels use. */
#ifndef GEM_EMULATED_CUDA_FP16_H
#define GEM_EMULATED_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
    uint16_t x;
    __half() = default;
    explicit __half(float v) : x(emulator::half_of(v))
    {
    }
};
struct alignas(4) __half2 {
    __half x, y;
};

inline float __half2float(__half h)
{
    return emulator::half_value(h.x);
}
inline __half __float2half_rn(float x)
{
    return __half(x);
}
inline __half __ushort_as_half(unsigned short x)
{
    __half h;
    h.x = x;
    return h;
}
inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __float2half2_rn(float x)
{
    return __floats2half2_rn(x, x);
}
inline float2 __half22float2(__half2 h)
{
    return make_float2(__half2float(h.x), __half2float(h.y));
}
/* f32 holds the product of two f16, and the difference of two whose exponents are near */
inline __half2 __hmul2(__half2 a, __half2 b)
{
    return __floats2half2_rn(__half2float(a.x) * __half2float(b.x),
                             __half2float(a.y) * __half2float(b.y));
}
inline __half2 __hsub2(__half2 a, __half2 b)
{
    return __floats2half2_rn(__half2float(a.x) - __half2float(b.x),
                             __half2float(a.y) - __half2float(b.y));
}

#endif
