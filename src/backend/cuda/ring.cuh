/* ring.cuh - a warp's private ring of slots in shared memory, filled from device memory while the
 * warp works: bulk copies that complete on a barrier a slot (sm_90), cp.async groups before. A warp
 * may refill a slot when all its lanes have loaded it into registers and met at __syncwarp. */
#ifndef GEM_CUDA_RING_CUH
#define GEM_CUDA_RING_CUH

#include "backend/cuda/device.cuh"

#if __CUDA_ARCH__ >= 900
/* By one lane. With evict_first() L2 need not keep what is read once. */
__device__ inline void fetch(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                             uint64_t policy)
{
    expect(bar, bytes);
    copy(dst, src, bytes, bar, policy);
}
#else
/* By the whole warp, 16 bytes a lane; one group a slot, empty when nothing is left to fetch. */
__device__ inline void fetch_lanes(void *dst, const void *src, uint32_t bytes, int lane)
{
    for (uint32_t at = 16u * (uint32_t)lane; at < bytes; at += 512)
        copy16(shared_at((char *)dst + at), (const char *)src + at);
}
__device__ inline void await_group(int stages)
{
    if (stages == 2) copy_wait<1>();
    if (stages == 3) copy_wait<2>();
    if (stages == 4) copy_wait<3>();
    __syncwarp();
}
#endif

#endif
