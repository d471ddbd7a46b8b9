/* sum_row.cuh - a residual sum and the norm behind it, of one row by several CTAs that meet once:
 * a kernel of its own (rows.cu), or between two products of a layer (layer_few.cu). */
#ifndef GEM_CUDA_SUM_ROW_CUH
#define GEM_CUDA_SUM_ROW_CUH

#include "backend/cuda/device.cuh"

/* A few CTAs a row, four values a thread and group. A row has few values, so what counts is
 * latency: little to load for each CTA, one exchange of four sums, few registers. */
enum { SUM_THREADS = 256, SUM_WARPS = SUM_THREADS / 32, SUM_CTAS = 8 };

/* The four sums of x over the CTA's warps, in their order, for every thread. */
template <class MEETING>
__device__ inline float4 warps_sums(float4 x, float4 *warps, const MEETING &meeting)
{
    const int lane = threadIdx.x % 32, odd = lane & 1, second = lane >> 1 & 1;
    /* neighbours share out the four: z and w are the odd one's, and so on */
    const float2 half = odd ? make_float2(x.z, x.w) : make_float2(x.x, x.y),
                 rest = odd ? make_float2(x.x, x.y) : make_float2(x.z, x.w);
    const float2 two = make_float2(half.x + __shfl_xor_sync(~0u, rest.x, 1),
                                   half.y + __shfl_xor_sync(~0u, rest.y, 1));
    float one = second ? two.y : two.x;
    one += __shfl_xor_sync(~0u, second ? two.x : two.y, 2);
    for (int m = 4; m < 32; m *= 2)
        one += __shfl_xor_sync(~0u, one, m);
    if (lane < 4) ((float *)&warps[threadIdx.x / 32])[2 * odd + second] = one;
    meeting.here();
    x = warps[0];
#pragma unroll
    for (int i = 1; i < SUM_WARPS; i++)
        x = add4(x, warps[i]);
    return x;
}

__device__ inline float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

/* The largest |a b| of a warp. */
__device__ inline float warp_top(float4 a, float4 b)
{
    const float top =
        fmaxf(fmaxf(fabsf(a.x * b.x), fabsf(a.y * b.y)), fmaxf(fabsf(a.z * b.z), fabsf(a.w * b.w)));
    return warp_max_positive(top);
}

/* The share of CTA `rank` of n: the SUM_THREADS threads' values, 4 V each. PARTS: of src, when it
 * has neither bias nor scale; 0: whatever it has. MEETING: here() is a barrier of the SUM_THREADS;
 * sums(x) adds up the CTAs' x in the order of their ranks, for every thread, once. */
template <int V, int PARTS> struct sum_row {
    float4 post[V], next[V];
    int64_t at[V];
    bool in[V];

    struct shared {
        float4 warps[SUM_WARPS];
        float tops[V][SUM_WARPS][2];
    };

    /* Constants. */
    __device__ sum_row(const gem_cuda_sum &a, int rank, int n)
    {
        const float4 zero = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < V; j++) {
            at[j] = 4 * ((int64_t)(j * n + rank) * SUM_THREADS + threadIdx.x);
            in[j] = at[j] < a.d;
            post[j] = a.post && in[j] ? *(const float4 *)(a.post + at[j]) : make_float4(1, 1, 1, 1);
            next[j] = a.next && in[j] ? *(const float4 *)(a.next + at[j]) : zero;
        }
    }

    /* row, part: of this row, part from at[0] on */
    template <class MEETING>
    __device__ __forceinline__ void finish(const gem_cuda_sum &a, int64_t r, float *row,
                                           const float *part, shared &own, const MEETING &meeting)
    {
        const float4 zero = make_float4(0, 0, 0, 0);
        const float inverse_d = 1.0f / (float)a.d;
        float4 x[V], t[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = in[j] ? __ldcg((const float4 *)(row + at[j])) : zero;
        if (PARTS) {
            float4 p[PARTS ? PARTS : 1];
#pragma unroll
            for (int q = 0; q < PARTS; q++, part += a.src.part_stride)
                p[q] = in[0] ? __ldcg((const float4 *)part) : zero;
            t[0] = p[0];
            float4 rest = p[PARTS / 2];
#pragma unroll
            for (int q = 1; q < PARTS / 2; q++)
                t[0] = add4(t[0], p[q]), rest = add4(rest, p[PARTS / 2 + q]);
            t[0] = add4(t[0], rest);
        } else {
            view_at4<V, V == 1 ? 8 : 2>(a.src, r, at, in, t);
        }
        /* squares of t, of x and of t * post, and x by t * post: both norms follow from them, and
         * the cluster meets once; from the largest x * next and t * post * next of a run, a bound
         * of it */
        const int warp = threadIdx.x / 32;
        float4 sum = zero;
        float f = 1;
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (!in[j]) t[j] = zero;
            sum.x = dot4(t[j], t[j], sum.x);
            t[j].x *= post[j].x, t[j].y *= post[j].y, t[j].z *= post[j].z, t[j].w *= post[j].w;
            sum.y = dot4(x[j], x[j], sum.y);
            sum.z = dot4(x[j], t[j], sum.z);
            sum.w = dot4(t[j], t[j], sum.w);
            if (!a.runs.h) continue;
            const float tops_x = warp_top(x[j], next[j]), tops_t = warp_top(t[j], next[j]);
            if (threadIdx.x % 32 == 0) own.tops[j][warp][0] = tops_x, own.tops[j][warp][1] = tops_t;
        }
        sum = meeting.sums(warps_sums(sum, own.warps, meeting));
        if (a.post) f = rsqrtf(fmaf(sum.x, inverse_d, a.eps));
#pragma unroll
        for (int j = 0; j < V; j++) {
            x[j].x = fmaf(t[j].x, f, x[j].x) * a.out_scale;
            x[j].y = fmaf(t[j].y, f, x[j].y) * a.out_scale;
            x[j].z = fmaf(t[j].z, f, x[j].z) * a.out_scale;
            x[j].w = fmaf(t[j].w, f, x[j].w) * a.out_scale;
            if (in[j]) *(float4 *)(row + at[j]) = x[j];
        }
        if (!a.next) return;
        const float squares = a.out_scale * a.out_scale * fmaf(f, fmaf(f, sum.w, 2 * sum.z), sum.y);
        const float f_post = f;
        f = rsqrtf(fmaf(fmaxf(squares, 0.0f), inverse_d, a.eps));
#pragma unroll
        for (int j = 0; j < V; j++) { /* a run is two warps', so a warp is in or out of it */
            const float4 y = make_float4(x[j].x * f * next[j].x, x[j].y * f * next[j].y,
                                         x[j].z * f * next[j].z, x[j].w * f * next[j].w);
            if (a.dst && in[j]) *(float4 *)(a.dst + r * a.ld + at[j]) = y;
            if (!a.runs.h || !in[j]) continue;
            const float *one = own.tops[j][warp & ~1], *two = own.tops[j][warp | 1];
            const float up = f16_scale(fabsf(a.out_scale) * f *
                                       fmaf(f_post, fmaxf(one[1], two[1]), fmaxf(one[0], two[0])));
            const __half2 h[2] = {__floats2half2_rn(y.x * up, y.y * up),
                                  __floats2half2_rn(y.z * up, y.w * up)};
            const int64_t value = r * a.runs.width + at[j], run = value / 256;
            *(uint2 *)(a.runs.h + value) = *(uint2 *)h;
            const float2 lo = __half22float2(h[0]), hi = __half22float2(h[1]);
            float sum16 = (lo.x + lo.y) + (hi.x + hi.y);
            sum16 += __shfl_xor_sync(~0u, sum16, 1);
            sum16 += __shfl_xor_sync(~0u, sum16, 2);
            const float sum32 = sum16 + __shfl_xor_sync(~0u, sum16, 4);
            __half *sums = (__half *)a.runs.sums + run * GEM_CUDA_RUN_SUMS;
            const int i = (int)(at[j] % 256);
            if (i % 16 == 0) put_high_low(sums + 16 + i / 16, 16, sum16);
            if (i % 32 == 0) put_high_low(sums + i / 32, 8, sum32);
            if (i == 0) a.runs.scale[run] = inverse(up);
        }
    }
};

#endif
