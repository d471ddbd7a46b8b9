/* slab_acts.cuh - activations of slab products: rows of f16 in shared memory, each run of 256
 * values under a power-of-two scale of its own, with the sums of its blocks beside it. An octet of
 * eight rows is one 8 x 8 matrix of ldmatrix, so that rows need no other order; of one row, octets
 * change places (octet_at). Odd octets stand smaller (octet_scale). */
#ifndef GEM_CUDA_SLAB_ACTS_CUH
#define GEM_CUDA_SLAB_ACTS_CUH

#include "backend/cuda/slab_mma.cuh"

enum { SLAB_WARPS = 16 };

struct acts {
    uint8_t *rows, *sums; /* row_ld, sum_ld bytes apart */
    float *scale;         /* [rows][slabs] */
    int row_ld, sum_ld, slabs;
};

/* An octet of run ks to its place. */
template <int T, int N>
__device__ inline void put_octet(const acts &s, int row, int ks, uint4 h, int lane)
{
    const __half2 f = __float2half2_rn(octet_scale<T>(lane & 1));
    const __half2 x[4] = {__hmul2(*(__half2 *)&h.x, f), __hmul2(*(__half2 *)&h.y, f),
                          __hmul2(*(__half2 *)&h.z, f), __hmul2(*(__half2 *)&h.w, f)};
    *(uint4 *)(s.rows + row * s.row_ld + 512 * ks + octet_at<N>(lane)) = *(const uint4 *)x;
}

/* A run by a warp, an octet a lane; `back` undoes the scale it stands under. */
template <int T, int N>
__device__ inline void put_octets(const acts &s, int row, int ks, uint4 h, float back, int lane)
{
    put_octet<T, N>(s, row, ks, h, lane);
    const float2 a = __half22float2(*(const __half2 *)&h.x), b = __half22float2(*(__half2 *)&h.y),
                 c = __half22float2(*(const __half2 *)&h.z), d = __half22float2(*(__half2 *)&h.w);
    float sum = ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
    const bool sixteen = T == GEM_DTYPE_Q6_K;
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (!sixteen) sum += __shfl_xor_sync(~0u, sum, 2);
    const int n = sixteen ? 16 : 8; /* blocks: high parts of their sums, then low parts */
    if (lane % (32 / n) == 0)
        put_high_low((__half *)(s.sums + row * s.sum_ld + sum_bytes(T) * ks) + lane / (32 / n), n,
                     sum);
    if (lane == 0) s.scale[row * s.slabs + ks] = back;
}

/* A run of f32, 8 values a lane. */
template <int T, int N>
__device__ inline void put_run(const acts &s, int row, int ks, float4 a, float4 b, int lane)
{
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    float top = 0;
    for (int i = 0; i < 8; i++)
        top = fmaxf(top, fabsf(v[i]));
    float f = f16_scale(warp_max(top));
    __half2 h[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        h[i] = __floats2half2_rn(v[2 * i] * f, v[2 * i + 1] * f);
    put_octets<T, N>(s, row, ks, *(uint4 *)h, inverse(f), lane);
}

/* Runs i, i + 16, ... of the n_runs = rows x slabs, slab0 being the first. Not in line, nor what
 * follows: off the path of decode, whose code should be short (linear_slab.cu). */
template <int T, int N>
__device__ __noinline__ void put_rows(const acts &s, const gem_cuda_view &v, int n_runs, int slab0,
                                      int warp, int lane)
{
#pragma unroll 1
    for (int i = warp; i < n_runs; i += SLAB_WARPS) {
        const int row = i / s.slabs, run = i - row * s.slabs;
        const int64_t at[2] = {256 * (int64_t)(slab0 + run) + 8 * lane,
                               256 * (int64_t)(slab0 + run) + 8 * lane + 4};
        const bool is[2] = {true, true};
        float4 u[2];
        view_at4<2>(v, row, at, is, u);
        put_run<T, N>(s, row, run, u[0], u[1], lane);
    }
}

/* The same of act(a) * b. */
template <int T, int N>
__device__ __noinline__ void put_gated(const acts &s, const gem_cuda_slab_in &in, int n_runs,
                                       int slab0, int warp, int lane)
{
#pragma unroll 1
    for (int i = warp; i < n_runs; i += SLAB_WARPS) {
        const int row = i / s.slabs, run = i - row * s.slabs;
        const int64_t at[2] = {256 * (int64_t)(slab0 + run) + 8 * lane,
                               256 * (int64_t)(slab0 + run) + 8 * lane + 4};
        const bool is[2] = {true, true};
        float4 u[2], w[2];
        view_at4<2>(in.a, row, at, is, u);
        view_at4<2>(in.b, row, at, is, w);
#pragma unroll
        for (int j = 0; j < 2; j++)
            u[j] =
                make_float4(activate(in.act, u[j].x) * w[j].x, activate(in.act, u[j].y) * w[j].y,
                            activate(in.act, u[j].z) * w[j].z, activate(in.act, u[j].w) * w[j].w);
        put_run<T, N>(s, row, run, u[0], u[1], lane);
    }
}

/* Packed rows, U runs of a warp on their way at once. The scales of a run become one: powers of two
 * move nothing but what falls below f16's least number. N: rows, or 1 */
template <int T, int N>
__device__ inline void put_packed(const acts &s, const gem_cuda_packed &p, int n_runs, int slab0,
                                  int warp, int lane)
{
    constexpr int U = N == 1 ? 2 : 6;
    const auto wrap = [&](int &row, int &ks) {
        if (N > 1)
            for (; ks >= s.slabs; row++)
                ks -= s.slabs;
    };
    int row = 0, ks = warp; /* of the run that is put next */
    wrap(row, ks);
#pragma unroll 1
    for (int i = warp; i < n_runs; i += U * SLAB_WARPS) {
        uint4 h[U];
        float own[U];
        int r = row, k = ks;
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * SLAB_WARPS >= n_runs) break;
            const int64_t at = r * (p.width / 8) + 32 * (slab0 + k) + lane;
            h[u] = __ldcg((const uint4 *)p.h + at);
            own[u] = __ldcg(p.scale + at);
            wrap(r, k += SLAB_WARPS);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (i + u * SLAB_WARPS >= n_runs) break;
            float top = warp_max_positive(own[u]);
            if (top == 0) top = 1;
            const __half2 f = __float2half2_rn(own[u] * inverse(top));
            __half2 x[4] = {__hmul2(*(__half2 *)&h[u].x, f), __hmul2(*(__half2 *)&h[u].y, f),
                            __hmul2(*(__half2 *)&h[u].z, f), __hmul2(*(__half2 *)&h[u].w, f)};
            put_octets<T, N>(s, row, ks, *(uint4 *)x, top, lane);
            wrap(row, ks += SLAB_WARPS);
        }
    }
}

/* Runs as they are: a row is copied by its share of the warps. */
template <int T, int N>
__device__ inline void put_runs(const acts &s, const gem_cuda_runs &p, int n, int slab0, int warp,
                                int lane)
{
    constexpr int EACH = SLAB_WARPS / N, U = N == 1 ? 2 : 6; /* warps a row, loads on their way */
    constexpr int CHUNKS = sum_bytes(T) / 16;
    const int row = warp / EACH, first = warp % EACH;
    if (row >= n) return;
    const int64_t run0 = row * (p.width / 256) + slab0;
    const uint4 *h = (const uint4 *)p.h + 32 * run0 + lane;
    const uint16_t *sums = p.sums + run0 * GEM_CUDA_RUN_SUMS + (T == GEM_DTYPE_Q6_K ? 16 : 0);
    const auto chunk = [&](int i) {
        return __ldcg((const uint4 *)(sums + i / CHUNKS * GEM_CUDA_RUN_SUMS) + i % CHUNKS);
    };
    int i = 32 * first + lane;
    uint4 of_sums = make_uint4(0, 0, 0, 0);
    float scale = 0;
    if (i < s.slabs * CHUNKS) of_sums = chunk(i);
    if (i < s.slabs) scale = __ldcg(p.scale + run0 + i);
#pragma unroll 1
    for (int k0 = first; k0 < s.slabs; k0 += U * EACH) {
        uint4 x[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            if (k0 + u * EACH < s.slabs) x[u] = __ldcg(h + 32 * (k0 + u * EACH));
#pragma unroll
        for (int u = 0; u < U; u++)
            if (k0 + u * EACH < s.slabs) put_octet<T, N>(s, row, k0 + u * EACH, x[u], lane);
    }
    if (i < s.slabs) s.scale[row * s.slabs + i] = scale;
    if (i < s.slabs * CHUNKS) *(uint4 *)(s.sums + row * s.sum_ld + 16 * i) = of_sums;
#pragma unroll 1
    for (i += 32 * EACH; i < s.slabs * CHUNKS; i += 32 * EACH) { /* long rows have more */
        *(uint4 *)(s.sums + row * s.sum_ld + 16 * i) = chunk(i);
        if (i < s.slabs) s.scale[row * s.slabs + i] = __ldcg(p.scale + run0 + i);
    }
}

/* act(gate) * up of 8 rows of a tile: V of them, from r on, a lane; lanes of an octet are `step`
 * apart. By a whole warp. */
template <int V>
__device__ inline void pack_octet(const gem_cuda_packed &p, int64_t row, int64_t octet, int r,
                                  const float *x, bool put, int step)
{
    float top = 0;
#pragma unroll
    for (int v = 0; v < V; v++)
        top = fmaxf(top, fabsf(x[v]));
    for (int m = step; m < 8 / V * step; m *= 2)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
    const float f = f16_scale(top);
    if (!put) return;
#pragma unroll
    for (int v = 0; v < V; v++)
        ((__half *)p.h)[row * p.width + 8 * octet + r + v] = __float2half_rn(x[v] * f);
    if (r == 0) p.scale[row * (p.width / 8) + octet] = top == 0 ? 0.0f : inverse(f);
}

#endif
