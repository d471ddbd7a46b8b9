/* cluster.cuh - CTAs of a cluster meet and give each other numbers through shared memory (sm_90);
 * before, a cluster is one CTA, which gives to itself. */
#ifndef GEM_CUDA_CLUSTER_CUH
#define GEM_CUDA_CLUSTER_CUH

#include "backend/cuda/ring.cuh"

__device__ inline void cluster_meet()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
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
    asm volatile("{\n"
                 ".reg .b32 there, signal;\n"
                 "mapa.shared::cluster.u32 there, %0, %2;\n"
                 "mapa.shared::cluster.u32 signal, %1, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
                 "{%3, %4, %5, %6}, [signal];\n"
                 "}" ::"r"(shared_at(to)),
                 "r"(shared_at(bar)), "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    *to = x;
#endif
}

/* To the same place of the CTA of that rank, which sees it when the cluster has met. */
__device__ inline void give(float *to, int rank, float x)
{
#if __CUDA_ARCH__ >= 900
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(shared_at(to)), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
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
