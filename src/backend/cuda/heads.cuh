/* heads.cuh - queries, keys and values by a warp a head: norm, rotation, and the way into a page.
 * The steps and the order of sums are those of append (attend_split.cu), so the bits are too. */
#ifndef GEM_CUDA_HEADS_CUH
#define GEM_CUDA_HEADS_CUH

#include "backend/cuda/parts.cuh"

/* Not finite becomes 0, f16 saturates: a page's values are always finite. */
__device__ inline float page_value(float x, const float *)
{
    return fabsf(x) <= 3.402823466e38f ? x : 0.0f;
}
__device__ inline float page_value(float x, const __half *)
{
    return fminf(fmaxf(page_value(x, (const float *)NULL), -65504.0f), 65504.0f);
}

__device__ inline void put4(float *to, float4 x)
{
    *(float4 *)to = x;
}
__device__ inline void put4(__half *to, float4 x)
{
    __half2 h[2] = {__floats2half2_rn(x.x, x.y), __floats2half2_rn(x.z, x.w)};
    *(uint2 *)to = *(uint2 *)h;
}

/* 4 dims a lane and group of 128. */
template <int HD> struct one_head {
    static constexpr int V = (HD + 127) / 128;
    float4 x[V];

    __device__ void load(const gem_cuda_view &v, int64_t r, int64_t base, int lane)
    {
        int64_t at[V];
        bool in[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            at[j] = base + 128 * j + 4 * lane;
            in[j] = 128 * j + 4 * lane < HD;
        }
        view_at4<V, 2>(v, r, at, in, x);
#pragma unroll
        for (int j = 0; j < V; j++)
            if (!in[j]) x[j] = make_float4(0, 0, 0, 0);
    }
    __device__ float rms(float eps) const
    {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < V; j++)
            sum += warp_sum(
                fmaf(x[j].x, x[j].x, fmaf(x[j].y, x[j].y, fmaf(x[j].z, x[j].z, x[j].w * x[j].w))));
        return rsqrtf(sum / (float)HD + eps);
    }
    __device__ void vector(const float *w, int lane) /* constants, e.g. a norm's; 1 without */
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = w && 128 * j + 4 * lane < HD ? *(const float4 *)(w + 128 * j + 4 * lane)
                                                : make_float4(1, 1, 1, 1);
    }
    __device__ void norm(const one_head &w, float eps)
    {
        const float f = rms(eps);
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = make_float4(x[j].x * f * w.x[j].x, x[j].y * f * w.x[j].y, x[j].z * f * w.x[j].z,
                               x[j].w * f * w.x[j].w);
    }
    /* cosines or sines at this lane's dims */
    __device__ void angles(const float *of, int half, int lane)
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int i = 128 * j + 4 * lane;
            if (i < HD && i < 2 * half)
                x[j] = __ldcg((const float4 *)(of + (i < half ? i : i - half)));
        }
    }
    /* spare: f32[HD] of this warp */
    __device__ void rotate(const one_head &cs, const one_head &sn, int half, float *spare, int lane)
    {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < V; j++)
            if (128 * j + 4 * lane < HD) *(float4 *)(spare + 128 * j + 4 * lane) = x[j];
        __syncwarp();
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int i = 128 * j + 4 * lane;
            if (i >= HD || i >= 2 * half) continue;
            const float4 y = *(const float4 *)(spare + (i < half ? i + half : i - half));
            const float4 c = cs.x[j], s = sn.x[j];
            const float sign = i < half ? -1.0f : 1.0f;
            x[j] = make_float4(
                fmaf(sign * y.x, s.x, x[j].x * c.x), fmaf(sign * y.y, s.y, x[j].y * c.y),
                fmaf(sign * y.z, s.z, x[j].z * c.z), fmaf(sign * y.w, s.w, x[j].w * c.w));
        }
    }
    __device__ void scale(float f)
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = make_float4(x[j].x * f, x[j].y * f, x[j].z * f, x[j].w * f);
    }
    template <class E> __device__ void store(E *to, int lane) const
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            if (128 * j + 4 * lane < HD) put4(to + 128 * j + 4 * lane, x[j]);
    }
    /* Into a page's keys or values at `slot`. */
    template <class E> __device__ void store_page(E *page, int slot, int lane) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int i = 128 * j + 4 * lane;
            if (i < HD) put4(page + page_at(HD, slot, i, page_swizzled(HD, page)), x[j]);
        }
    }
    /* as to_page() leaves it */
    template <class E> __device__ void to_page(E *)
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = make_float4(page_value(x[j].x, (E *)NULL), page_value(x[j].y, (E *)NULL),
                               page_value(x[j].z, (E *)NULL), page_value(x[j].w, (E *)NULL));
    }
};

#endif
