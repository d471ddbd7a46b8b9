/* device.cuh - what every kernel file uses: launching with or without programmatic dependent
 * launch, reading a view, sums and maxima over a warp and a CTA in a fixed order. */
#ifndef GEM_CUDA_DEVICE_CUH
#define GEM_CUDA_DEVICE_CUH

#include "backend/cuda/cuda.h"
#include "backend/cuda/ptx.cuh"

/* cluster: CTAs along x that make one, on devices that have clusters */
template <class... P, class... A>
cudaError_t launch_clusters(const gem_cuda_stream *s, void (*kernel)(P...), dim3 grid, dim3 block,
                            unsigned cluster, size_t smem, A... args)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute attrs[2] = {};
    unsigned n = 0;
    if (cluster > 1) {
        attrs[n].id = cudaLaunchAttributeClusterDimension;
        attrs[n].val.clusterDim.x = cluster;
        attrs[n].val.clusterDim.y = attrs[n].val.clusterDim.z = 1;
        n++;
    }
    if (s->pdl) {
        attrs[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attrs[n].val.programmaticStreamSerializationAllowed = 1;
        n++;
    }
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = smem;
    c.stream = s->stream;
    c.attrs = attrs;
    c.numAttrs = n;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}

template <class... P, class... A>
cudaError_t launch(const gem_cuda_stream *s, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t smem, A... args)
{
    return launch_clusters(s, kernel, grid, block, 1, smem, args...);
}

/* Activations are read past L1: an earlier kernel wrote them. */
__device__ inline float view_at(const gem_cuda_view &v, int64_t r, int64_t i)
{
    const float *p = v.data + r * v.ld + i;
    const int half = (v.n_parts + 1) / 2;
    float sum = __ldcg(p), rest = 0;
#pragma unroll 4
    for (int j = 1; j < v.n_parts; j++) {
        float x = __ldcg(p + j * v.part_stride);
        if (j < half)
            sum += x;
        else
            rest = j == half ? x : rest + x;
    }
    if (v.n_parts > 1) sum += rest;
    if (v.row_scale) sum *= __ldcg(v.row_scale + r);
    if (v.bias) sum += v.bias[i];
    return sum;
}

/* Where value d of position `slot` stands in a page's keys or values. f16 pages of heads of whole
 * 128 bytes stand as tensor cores want them: tiles of 64 dims, in a tile 128 bytes a position, of
 * which 16-byte chunk c stands at c ^ (slot & 7): copied to shared memory as it is, a column of
 * positions falls into all banks. */
__device__ inline int page_at(int hd, int slot, int d, bool swizzled)
{
    if (!swizzled) return slot * hd + d;
    return (d >> 6) * (64 * GEM_PAGE) + slot * 64 + (((d >> 3 ^ slot) & 7) << 3) + (d & 7);
}
__device__ inline bool page_swizzled(int, const float *)
{
    return false;
}
__device__ inline bool page_swizzled(int hd, const __half *)
{
    return hd % 64 == 0;
}

__device__ inline float4 add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* V groups of four values, i[] apart: the loads of Q parts stand side by side. */
template <int V, int Q = 4>
__device__ inline void view_at4(const gem_cuda_view &v, int64_t r, const int64_t i[V],
                                const bool in[V], float4 out[V])
{
    const float4 zero = make_float4(0, 0, 0, 0);
    const int half = (v.n_parts + 1) / 2;
    float4 rest[V];
#pragma unroll 1
    for (int j = 0; j < v.n_parts; j += Q) {
        float4 x[Q][V];
#pragma unroll
        for (int q = 0; q < Q; q++)
#pragma unroll
            for (int c = 0; c < V; c++)
                x[q][c] = j + q < v.n_parts && in[c]
                              ? __ldcg((const float4 *)(v.data + (j + q) * v.part_stride +
                                                        r * v.ld + i[c]))
                              : zero;
#pragma unroll
        for (int q = 0; q < Q; q++)
#pragma unroll
            for (int c = 0; c < V; c++) {
                if (j + q >= v.n_parts) continue;
                if (j + q < half)
                    out[c] = j + q == 0 ? x[q][c] : add4(out[c], x[q][c]);
                else
                    rest[c] = j + q == half ? x[q][c] : add4(rest[c], x[q][c]);
            }
    }
    const float scale = v.row_scale ? __ldcg(v.row_scale + r) : 1.0f;
#pragma unroll
    for (int c = 0; c < V; c++) {
        if (v.n_parts > 1) out[c] = add4(out[c], rest[c]);
        if (v.row_scale)
            out[c] =
                make_float4(out[c].x * scale, out[c].y * scale, out[c].z * scale, out[c].w * scale);
        if (v.bias && in[c]) out[c] = add4(out[c], *(const float4 *)(v.bias + i[c]));
    }
}

__device__ inline float warp_sum(float x)
{
    for (int m = 16; m; m >>= 1)
        x += __shfl_xor_sync(~0u, x, m);
    return x;
}
__device__ inline float warp_max(float x)
{
    for (int m = 16; m; m >>= 1)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, m));
    return x;
}

/* Of numbers that are not negative: they are ordered as integers are. */
__device__ inline float warp_max_positive(float x)
{
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(x)));
}

/* x to two f16: its high part, and `n` behind that its low one: 22 bits. */
__device__ inline void put_high_low(__half *to, int n, float x)
{
    const __half high = __float2half_rn(x);
    to[0] = high;
    to[n] = __float2half_rn(x - __half2float(high));
}

/* silu, or gelu by tanh: 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)). */
__device__ inline float activate(gem_act act, float x)
{
    const float u = 2 * 0.79788456080286535588f * x * (1.0f + 0.044715f * x * x);
    return x / (1.0f + expf(act == GEM_ACT_SILU ? -x : -u));
}

/* The same by the fast exponential and division, whose relative error grows with |x| (about |x|
 * 2^-23): below f16's 2^-11 wherever the result is no zero in f16. For results that become f16. */
__device__ inline float activate_fast(gem_act act, float x)
{
    const float u = 2 * 0.79788456080286535588f * x * (1.0f + 0.044715f * x * x);
    return __fdividef(x, 1.0f + __expf(act == GEM_ACT_SILU ? -x : -u));
}

/* Sum over the CTA; every thread gets it. shared: f32[33]. */
__device__ inline float block_sum(float x, float *shared)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = (blockDim.x + 31) / 32;
    x = warp_sum(x);
    __syncthreads(); /* an earlier use of shared is over */
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    return warp_sum(lane < n ? shared[lane] : 0.0f);
}
__device__ inline float block_max(float x, float *shared)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = (blockDim.x + 31) / 32;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    return warp_max(lane < n ? shared[lane] : -INFINITY);
}

/* 2^e that brings `top` into [512, 1024) when multiplied: f16 then keeps 11 bits of every value
 * down to 2^-24 of the largest (slab_mma.cuh: of every other octet down to 2^-20), and sums of 32
 * values stay finite. 1 for zero and for no number. */
__device__ inline float f16_scale(float top)
{
    int e = (__float_as_int(top) >> 23 & 255) - 127; /* floor(log2(top)) */
    if (!(top > 0.0f) || e > 126 || e < -110) return 1.0f;
    return __int_as_float((9 - e + 127) << 23);
}

/* 1 / f for f = 2^e, -126 < e < 127 */
__device__ inline float inverse(float f)
{
    return __int_as_float((254 << 23) - __float_as_int(f));
}

#endif
