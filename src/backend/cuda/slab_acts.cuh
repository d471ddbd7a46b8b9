/* slab_acts.cuh - activations of slab products: runs of 256 values become f16 fragments in shared
 * memory under a power-of-two scale of their own, with the sums of their blocks beside them. */
#ifndef GEM_CUDA_SLAB_ACTS_CUH
#define GEM_CUDA_SLAB_ACTS_CUH

#include "backend/cuda/mma.cuh"
#include "backend/cuda/slab_mma.cuh"

enum { SLAB_WARPS = 16 };

struct acts {
    uint8_t *frag, *sums; /* rows frag_ld, sum_ld bytes apart */
    float *scale;         /* [rows][slabs] */
    int frag_ld, sum_ld, slabs;
};

/* A run from its pairs h[t] of block lane / 4 and j = lane % 4: [block][t][j]; `back` undoes the
 * scale they stand under. By a whole warp. */
template <int T>
__device__ inline void put_pairs(const acts &s, int row, int ks, const uint32_t h[4], float back,
                                 int lane)
{
    uint8_t *frag = s.frag + row * s.frag_ld + 512 * ks + 64 * (lane / 4) + 4 * (lane % 4);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 v = __half22float2(*(const __half2 *)&h[i]);
        sum += v.x + v.y;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) { /* rotated: no bank is hit twice */
        int at = (i + lane / 8) % 4;
        uint32_t pick = at == 0 ? h[0] : at == 1 ? h[1] : at == 2 ? h[2] : h[3];
        *(uint32_t *)(frag + 16 * at) = pick;
    }
    const bool sixteen = T == GEM_DTYPE_Q6_K;
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (!sixteen) sum += __shfl_xor_sync(~0u, sum, 2);
    __half hi = __float2half_rn(sum), lo = __float2half_rn(sum - __half2float(hi));
    __half *out = (__half *)(s.sums + row * s.sum_ld + sum_bytes(T) * ks);
    const int n = sixteen ? 16 : 8, b = sixteen ? lane / 2 : lane / 4;
    if (lane % (32 / n) == 0) {
        out[b] = hi;
        out[n + b] = lo;
    }
    if (lane == 0) s.scale[row * s.slabs + ks] = back;
}

/* A run of f32, 8 values a lane. */
template <int T>
__device__ inline void put_run(const acts &s, int row, int ks, float4 a, float4 b, int lane)
{
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    float top = 0;
    for (int i = 0; i < 8; i++)
        top = fmaxf(top, fabsf(v[i]));
    float f = f16_scale(warp_max(top));
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __half2 pair = __floats2half2_rn(v[2 * i] * f, v[2 * i + 1] * f);
        h[i] = *(uint32_t *)&pair;
    }
    put_pairs<T>(s, row, ks, h, inverse(f), lane);
}

/* Runs i, i + 16, ... of the n_runs = rows x slabs, slab0 being the first. Not in line, nor what
 * follows: off the path of decode, whose code should be short (linear_slab.cu). */
template <int T>
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
        put_run<T>(s, row, run, u[0], u[1], lane);
    }
}

/* The same of act(a) * b. */
template <int T>
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
        put_run<T>(s, row, run, u[0], u[1], lane);
    }
}

/* A packed run: h: pair t = lane % 4 of the four octets of block lane / 4, own: their scales. The
 * scales of a run become one; powers of two move nothing but what falls below f16's least number.
 */
template <int T>
__device__ inline void put_packed_run(const acts &s, int row, int ks, uint32_t h[4], float4 own,
                                      int lane)
{
    const int block = lane / 4, t = lane % 4;
    float top = fmaxf(fmaxf(own.x, own.y), fmaxf(own.z, own.w));
    for (int m = 4; m < 32; m *= 2)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
    if (top == 0) top = 1;
    const float down = inverse(top), f[4] = {own.x, own.y, own.z, own.w};
    float sum[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const __half2 x = __hmul2(*(const __half2 *)&h[j], __float2half2_rn(f[j] * down));
        const float2 y = __half22float2(x);
        h[j] = *(const uint32_t *)&x;
        sum[j] = y.x + y.y;
    }
    *(uint4 *)(s.frag + row * s.frag_ld + 512 * ks + 16 * lane) =
        make_uint4(h[0], h[1], h[2], h[3]);
    const bool sixteen = T == GEM_DTYPE_Q6_K;
    float lo = sum[0] + sum[1], hi = sum[2] + sum[3];
    if (!sixteen) lo += hi;
    for (int m = 1; m < 4; m *= 2) {
        lo += __shfl_xor_sync(~0u, lo, m);
        if (sixteen) hi += __shfl_xor_sync(~0u, hi, m);
    }
    __half *out = (__half *)(s.sums + row * s.sum_ld + sum_bytes(T) * ks);
    const int n = sixteen ? 16 : 8;
    if (t < n / 8) { /* a block's sum, or a half block's: high and low */
        const float x = t ? hi : lo;
        const __half high = __float2half_rn(x);
        out[n / 8 * block + t] = high;
        out[n + n / 8 * block + t] = __float2half_rn(x - __half2float(high));
    }
    if (lane == 0) s.scale[row * s.slabs + ks] = top;
}

/* Packed runs of one row, two of a warp at once. */
template <int T>
__device__ inline void put_packed(const acts &s, const gem_cuda_packed &p, int n_runs, int slab0,
                                  int warp, int lane)
{
#pragma unroll 1
    for (int i = warp; i < n_runs; i += 2 * SLAB_WARPS) {
        uint32_t h[2][4];
        float4 own[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int64_t at = slab0 + i + u * SLAB_WARPS;
            if (i + u * SLAB_WARPS >= n_runs) continue;
#pragma unroll
            for (int j = 0; j < 4; j++)
                h[u][j] =
                    __ldcg((const uint32_t *)p.h + 128 * at + 16 * (lane / 4) + 4 * j + lane % 4);
            own[u] = __ldcg((const float4 *)p.scale + 8 * at + lane / 4);
        }
#pragma unroll
        for (int u = 0; u < 2; u++)
            if (i + u * SLAB_WARPS < n_runs)
                put_packed_run<T>(s, 0, i + u * SLAB_WARPS, h[u], own[u], lane);
    }
}

/* Of several rows: all runs of a warp are on their way at once, octets to where their fragments
 * will stand, in an order in which no bank is hit twice when they are read turned; their scales to
 * `spare`, 128 bytes a run, `room` of them. */
template <int T>
__device__ inline void put_packed_rows(const acts &s, const gem_cuda_packed &p, int n_runs,
                                       int slab0, int warp, int lane, uint8_t *spare, int room)
{
    const int block = lane / 4, t = lane % 4, turn = block / 2 % 4;
#pragma unroll 1
    for (int i0 = warp; i0 < n_runs; i0 += SLAB_WARPS * room) {
        const int end = min(n_runs, i0 + SLAB_WARPS * room), row0 = i0 / s.slabs;
        int row = row0, ks = i0 - row0 * s.slabs;
        const auto step = [&] {
            for (ks += SLAB_WARPS; ks >= s.slabs; row++)
                ks -= s.slabs;
        };
        uint8_t *scales = spare;
#pragma unroll 1
        for (int i = i0; i < end; i += SLAB_WARPS, scales += 128, step()) {
            const int64_t at = row * (p.width / 8) + 32 * (slab0 + ks);
            copy16(smem_u32(s.frag + row * s.frag_ld + 512 * ks + 64 * block + 16 * (t ^ turn)),
                   (const uint4 *)p.h + at + lane, true);
            if (lane < 8) copy16(smem_u32(scales + 16 * lane), p.scale + at + 4 * lane, true);
        }
        copy_commit();
        copy_wait<0>();
        __syncwarp();
        row = row0, ks = i0 - row0 * s.slabs, scales = spare;
#pragma unroll 1
        for (int i = i0; i < end; i += SLAB_WARPS, scales += 128, step()) {
            const uint8_t *frag = s.frag + row * s.frag_ld + 512 * ks + 64 * block + 4 * t;
            const float4 own = *(const float4 *)(scales + 16 * block);
            uint32_t h[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                h[j] = *(const uint32_t *)(frag + 16 * (j ^ turn));
            __syncwarp();
            put_packed_run<T>(s, row, ks, h, own, lane);
        }
        __syncwarp();
    }
}

/* act(gate) * up of 8 rows of a tile, for the lanes of a group that differ in `mask` bits: rows. */
__device__ inline void pack_octet(const gem_cuda_packed &p, int64_t row, int64_t octet, int r,
                                  float x, bool put, uint32_t lanes, int step)
{
    float top = fabsf(x);
    for (int m = step; m < 8 * step; m *= 2)
        top = fmaxf(top, __shfl_xor_sync(lanes, top, m));
    const float f = f16_scale(top);
    if (!put) return;
    ((__half *)p.h)[row * p.width + 8 * octet + r] = __float2half_rn(x * f);
    if (r == 0) p.scale[row * (p.width / 8) + octet] = top == 0 ? 0.0f : inverse(f);
}

#endif
