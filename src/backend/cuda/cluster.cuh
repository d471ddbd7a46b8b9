/* cluster.cuh - CTAs of a cluster meet and give each other numbers through shared memory (sm_90);
 * before, a cluster is one CTA, which gives to itself. */
#ifndef GEM_CUDA_CLUSTER_CUH
#define GEM_CUDA_CLUSTER_CUH

#include "backend/cuda/ring.cuh"

__device__ inline void cluster_meet()
{
#if __CUDA_ARCH__ >= 900
    cluster_sync();
#endif
}

/* By one thread, before the first meeting: `bytes` will be given to this CTA. */
__device__ inline void gifts_expected(uint64_t *bar, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    barrier_init(shared_at(bar));
    barriers_visible();
    expect(shared_at(bar), bytes);
#endif
}

/* 16 bytes to the same place of the CTA of that rank, counted by its `bar`: number and signal are
 * one trip. */
__device__ inline void give(float4 *to, uint64_t *bar, int rank, float4 x)
{
#if __CUDA_ARCH__ >= 900
    store_async(to, bar, rank, x);
#else
    *to = x;
#endif
}

/* To the same place of the CTA of that rank, which sees it when the cluster has met. */
__device__ inline void give(float *to, int rank, float x)
{
#if __CUDA_ARCH__ >= 900
    store_cluster(to, rank, x);
#else
    *to = x;
#endif
}

/* All that was expected is there. By every thread. */
__device__ inline void gifts_arrived(uint64_t *bar)
{
#if __CUDA_ARCH__ >= 900
    await(shared_at(bar), 0);
#else
    __syncthreads();
#endif
}

#endif
