/* attend_flash.cuh - what the flash kernels of mma.sync share (attend_flash.cu,
 * attend_flash128.cu): 64 query rows a CTA, pages of keys and values as tiles of f16 in shared
 * memory. */
#ifndef GEM_CUDA_ATTEND_FLASH_CUH
#define GEM_CUDA_ATTEND_FLASH_CUH

#include "backend/cuda/parts.cuh"
#include "backend/cuda/ptx.cuh"

namespace flash_parts
{

enum { THREADS = 256, ROWS = 64, KEYS = GEM_PAGE };

struct args {
    gem_cuda_kv kv;
    gem_cuda_rows rows;
    const gem_cuda_block *block;
    gem_cuda_queries q;
};

/* Byte of 16-byte chunk c of row r, rows of `width` halves. */
__device__ inline uint32_t at_chunk(int width, int r, int c)
{
    return (uint32_t)(r * width * 2 + ((c ^ (r & 7)) << 4));
}

/* The same in a page's keys or values. */
__device__ inline uint32_t at_page(int r, int c)
{
    return (uint32_t)((c >> 3) * (KEYS * 128) + r * 128 + (((c ^ r) & 7) << 4));
}

/* 64 rows x HD of a page into shared memory as f16. */
template <int HD>
__device__ inline void load_tile(uint32_t dst, uint8_t *, const __half *src, int tid)
{
#pragma unroll 8
    for (int i = tid; i < KEYS * HD / 8; i += THREADS)
        copy16(dst + 16 * i, src + 8 * i, true); /* pages stand as at_page has it */
}
template <int HD> __device__ inline void load_tile(uint32_t, uint8_t *to, const float *src, int tid)
{
#pragma unroll 4
    for (int i = tid; i < KEYS * HD / 8; i += THREADS) {
        float4 a = __ldg((const float4 *)src + 2 * i), b = __ldg((const float4 *)src + 2 * i + 1);
        __half2 h[4] = {__floats2half2_rn(a.x, a.y), __floats2half2_rn(a.z, a.w),
                        __floats2half2_rn(b.x, b.y), __floats2half2_rn(b.z, b.w)};
        *(uint4 *)(to + at_page(i / (HD / 8), i % (HD / 8))) = *(uint4 *)h;
    }
}

/* f32 tiles come through registers, four loads of a thread at a time: they want to stand in L2 by
 * then. Copies of f16 tiles are all under way at once and need no help. */
template <int HD> __device__ inline void expect_tile(const __half *, int)
{
}
template <int HD> __device__ inline void expect_tile(const float *src, int tid)
{
#pragma unroll
    for (int i = tid; i < KEYS * HD / 32; i += THREADS)
        prefetch_l2(src + 32 * i);
}

/* The queries of a block as f16 rows of shared memory; zeros where there is no row. */
template <int HD>
__device__ inline void load_queries(uint8_t *qs, const gem_cuda_queries &q, int64_t row0, int n,
                                    int head, int group, int tid)
{
    for (int i = tid; i < ROWS * HD / 8; i += THREADS) {
        int r = i / (HD / 8), c = i % (HD / 8);
        __half2 h[4] = {};
        if (r < n) {
            const float4 *p = (const float4 *)(q.data + (row0 + r / group) * q.ld +
                                               (head * group + r % group) * q.stride + 8 * c);
            float4 u = __ldcg(p), w = __ldcg(p + 1);
            h[0] = __floats2half2_rn(u.x, u.y), h[1] = __floats2half2_rn(u.z, u.w);
            h[2] = __floats2half2_rn(w.x, w.y), h[3] = __floats2half2_rn(w.z, w.w);
        }
        *(uint4 *)(qs + at_chunk(HD, r, c)) = *(uint4 *)h;
    }
}

__device__ inline void pair_sync(int group) /* the two warps of a row group */
{
    bar_sync(group + 1, 64);
}

} // namespace flash_parts

#endif
