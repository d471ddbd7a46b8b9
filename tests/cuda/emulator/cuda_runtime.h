/* cuda_runtime.h - of the emulator: the words of CUDA C++ that gem's kernels use, for a host
 * compiler. */
#ifndef GEM_EMULATED_CUDA_RUNTIME_H
#define GEM_EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "emulator.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __maxnreg__(n)

#define threadIdx (emulator::self->tid)
#define blockIdx (emulator::block_of(emulator::self))

/* ---- vectors ---- */

#define VECTOR2(type, name, alignment)                                                             \
    struct alignas(alignment) name {                                                               \
        type x, y;                                                                                 \
    };                                                                                             \
    inline name make_##name(type x, type y)                                                        \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define VECTOR4(type, name)                                                                        \
    struct alignas(16) name {                                                                      \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name make_##name(type x, type y, type z, type w)                                        \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
VECTOR2(float, float2, 8)
VECTOR2(int, int2, 8)
VECTOR2(unsigned, uint2, 8)
VECTOR4(float, float4)
VECTOR4(unsigned, uint4)
#undef VECTOR2
#undef VECTOR4

/* ---- launches ---- */

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int n)
{
    if (n < 0 || n > emulator::SHARED_MOST) return cudaErrorInvalidValue;
    emulator::allow_shared((const void *)kernel, n);
    return cudaSuccess;
}

enum cudaLaunchAttributeID {
    cudaLaunchAttributeClusterDimension,
    cudaLaunchAttributeProgrammaticStreamSerialization
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        struct {
            unsigned x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
namespace emulator
{
cudaError_t launch(const cudaLaunchConfig_t &c, const void *kernel, std::function<void()> body);
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A... args)
{
    return emulator::launch(*c, (const void *)kernel, [=] { kernel(args...); });
}

/* ---- a thread's own ---- */

template <class T> inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> inline T __ldg(const T *p)
{
    return *p;
}
template <class To, class From> inline To bits_as(From x)
{
    To to;
    static_assert(sizeof(To) == sizeof(From), "");
    memcpy(&to, &x, sizeof(to));
    return to;
}
inline float __int_as_float(int x)
{
    return bits_as<float>(x);
}
inline float __uint_as_float(unsigned x)
{
    return bits_as<float>(x);
}
inline int __float_as_int(float x)
{
    return bits_as<int>(x);
}
inline unsigned __float_as_uint(float x)
{
    return bits_as<unsigned>(x);
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __expf(float x)
{
    return expf(x);
}
inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) { /* bit 3 of a selector, the sign's copy, is not used */
        if (which >> (4 * i) & 8) emulator::fail("__byte_perm: a selector above 7");
        out |= (unsigned)(both >> (8 * (which >> (4 * i) & 7)) & 255) << (8 * i);
    }
    return out;
}
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    return b < a ? b : a;
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    return a < b ? b : a;
}
template <class T> inline T atomicAdd(T *p, T x)
{
    const T before = *p;
    *p += x;
    return before;
}

/* ---- a warp's ---- */

inline void __syncthreads()
{
    emulator::bar_sync(0, 0);
}
inline void __syncwarp(unsigned mask = ~0u)
{
    emulator::meet(mask, "__syncwarp", nullptr, 0);
}
template <class T> inline T shuffled(unsigned mask, const char *what, T x, int from)
{
    static_assert(sizeof(T) <= emulator::SLOT, "");
    const emulator::slots &s = emulator::meet(mask, what, &x, sizeof(x));
    if (from < 0 || from > 31 || !(mask >> from & 1))
        emulator::fail("a shuffle from no lane of its mask");
    memcpy(&x, s.in[from], sizeof(x));
    return x;
}
template <class T> inline T __shfl_sync(unsigned mask, T x, int from)
{
    return shuffled(mask, "__shfl_sync", x, from & 31);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int m)
{
    return shuffled(mask, "__shfl_xor_sync", x, emulator::self->lane ^ m);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T x, unsigned d)
{
    const int from = emulator::self->lane + (int)d;
    return shuffled(mask, "__shfl_down_sync", x, from > 31 ? emulator::self->lane : from);
}
template <class T, class F> inline T of_lanes(unsigned mask, const char *what, T x, T start, F f)
{
    const emulator::slots &s = emulator::meet(mask, what, &x, sizeof(x));
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        memcpy(&x, s.in[i], sizeof(x));
        start = f(start, x, i);
    }
    return start;
}
inline unsigned __ballot_sync(unsigned mask, int x)
{
    return of_lanes(mask, "__ballot_sync", (unsigned)(x != 0), 0u,
                    [](unsigned all, unsigned one, int i) { return all | one << i; });
}
inline int __any_sync(unsigned mask, int x)
{
    return __ballot_sync(mask, x) != 0;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned x)
{
    return of_lanes(mask, "__reduce_max_sync", x, 0u,
                    [](unsigned all, unsigned one, int) { return one > all ? one : all; });
}
#endif
