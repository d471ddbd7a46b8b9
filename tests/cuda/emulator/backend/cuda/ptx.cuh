/* ptx.cuh - of the emulator: the functions of src/backend/cuda/ptx.cuh by those of emulator.h. */
#ifndef GEM_CUDA_PTX_CUH
#define GEM_CUDA_PTX_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

template <class T> using shared_type = T;
#define SHARED(type, name)                                                                         \
    static const char name##_site = 0;                                                             \
    auto &name = emulator::shared<shared_type<type>>(&name##_site)
#define DYNAMIC_SHARED(type, name, alignment)                                                      \
    static_assert(alignment <= 1024, "");                                                          \
    type *const name = (type *)emulator::dynamic_shared()

inline uint32_t shared_at(const void *p)
{
    return emulator::address_of(p);
}
inline void dependents_go()
{
}
inline void dependency_wait()
{
}

template <class X> inline void touch(const X &)
{
}
template <class X, class Y> inline void settle(X *&, Y *&)
{
}
inline uint32_t forgotten(uint32_t x)
{
    return x;
}

inline void bar_sync(int id, int n)
{
    emulator::bar_sync(id, n);
}
inline void fence_async()
{
}
inline int32_t add_acquire_release(int32_t *p, int32_t x)
{
    return atomicAdd(p, x);
}
inline void prefetch_l2(const void *)
{
}

inline void copy16(uint32_t dst, const void *src)
{
    emulator::copy_thread(dst, src, 16);
}
inline void copy16(uint32_t dst, const void *src, bool valid)
{
    emulator::copy_thread(dst, src, valid ? 16 : 0);
}
inline void copy_commit()
{
    emulator::copy_commit();
}
template <int LEFT> inline void copy_wait()
{
    emulator::copy_wait(LEFT);
}

inline void ldmatrix4(uint32_t r[4], uint32_t at)
{
    emulator::ldmatrix4(r, at, false);
}
inline void ldmatrix4_trans(uint32_t r[4], uint32_t at)
{
    emulator::ldmatrix4(r, at, true);
}
inline uint4 ldmatrix4_plain(uint32_t at)
{
    uint32_t r[4];
    emulator::ldmatrix4(r, at, false);
    return make_uint4(r[0], r[1], r[2], r[3]);
}
inline uint32_t movmatrix(uint32_t x)
{
    return emulator::movmatrix(x);
}
inline void mma16816(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    emulator::mma16816(d, a, b0, b1);
}
inline void mma16816(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                     uint32_t b1)
{
    const uint32_t a[4] = {a0, a1, a2, a3};
    emulator::mma16816(d, a, b0, b1);
}

#if __CUDA_ARCH__ >= 900
inline void barrier_init(uint32_t bar, int arrivals = 1)
{
    emulator::barrier_init(bar, arrivals);
}
inline void barriers_visible()
{
}
inline void arrive(uint32_t bar)
{
    emulator::barrier_arrive(bar, 0);
}
inline void expect(uint32_t bar, uint32_t bytes)
{
    emulator::barrier_arrive(bar, bytes);
}
inline void await(uint32_t bar, uint32_t parity)
{
    emulator::barrier_await(bar, parity);
}
inline uint64_t evict_normal()
{
    return 0;
}
inline uint64_t evict_first()
{
    return 0;
}
inline void copy(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar, uint64_t)
{
    emulator::copy_async(dst, src, nullptr, bytes, bar);
}
inline void cluster_sync()
{
    emulator::cluster_sync();
}
inline void store_async(float4 *to, uint64_t *bar, int rank, float4 x)
{
    emulator::copy_async(emulator::of_rank(shared_at(to), rank), nullptr, &x, sizeof(x),
                         emulator::of_rank(shared_at(bar), rank));
}
inline void store_cluster(float *to, int rank, float x)
{
    *(float *)emulator::at(emulator::of_rank(shared_at(to), rank)) = x;
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int N> inline void registers_down()
{
}
template <int N> inline void registers_up()
{
}
inline void wgmma_fence()
{
}
inline void wgmma_commit()
{
    emulator::wgmma_commit();
}
template <int LEFT> inline void wgmma_wait()
{
    emulator::wgmma_wait(LEFT);
}
template <int N> inline void wgmma_qk(float (&d)[N], uint64_t a, uint64_t b, int add)
{
    emulator::wgmma(d, 2 * N, nullptr, a, b, false, add != 0);
}
inline void wgmma_pv(float (&d)[128], const uint32_t a[4], uint64_t b)
{
    emulator::wgmma(d, 256, a, 0, b, true, true);
}
inline void wgmma_pv(float (&d)[128], uint64_t a, uint64_t b)
{
    emulator::wgmma(d, 256, nullptr, a, b, true, true);
}
#endif

#endif
