/* ring.cuh - a warp's private ring of slots in shared memory, filled from device memory while the
 * warp works: bulk copies that complete on a barrier a slot (sm_90), cp.async groups before. A warp
 * may refill a slot when all its lanes have loaded it into registers and met at __syncwarp. */
#ifndef GEM_CUDA_RING_CUH
#define GEM_CUDA_RING_CUH

#include "backend/cuda/device.cuh"

__device__ inline uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#if __CUDA_ARCH__ >= 900
__device__ inline void barrier_init(uint32_t bar, int arrivals = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ inline void arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ inline void barriers_visible()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline uint64_t evict_normal()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ inline uint64_t evict_first()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ inline void expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
/* 16-byte aligned */
__device__ inline void copy(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                            uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
}
/* By one lane. With evict_first() L2 need not keep what is read once. */
__device__ inline void fetch(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                             uint64_t policy)
{
    expect(bar, bytes);
    copy(dst, src, bytes, bar, policy);
}
__device__ inline void await(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again%=;\n"
                 "}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
#else
/* By the whole warp, 16 bytes a lane; one group a slot, empty when nothing is left to fetch. */
__device__ inline void fetch_lanes(void *dst, const void *src, uint32_t bytes, int lane)
{
    for (uint32_t at = 16u * (uint32_t)lane; at < bytes; at += 512)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at((char *)dst + at)),
                     "l"((const char *)src + at)
                     : "memory");
}
__device__ inline void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ inline void await_group(int stages)
{
    if (stages == 2) asm volatile("cp.async.wait_group 1;" ::: "memory");
    if (stages == 3) asm volatile("cp.async.wait_group 2;" ::: "memory");
    if (stages == 4) asm volatile("cp.async.wait_group 3;" ::: "memory");
    __syncwarp();
}
#endif

#endif
