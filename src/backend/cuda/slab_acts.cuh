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

/* A packed run: the scales of its 32 octets, `own` this lane's, become one; powers of two move
 * nothing but what falls below f16's least number. */
template <int T>
__device__ inline void put_packed_run(const acts &s, int row, int ks, uint4 q, float own, int lane)
{
    float top = warp_max(own);
    if (top == 0) top = 1;
    const __half2 f = __float2half2_rn(own * inverse(top));
    uint32_t h[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int c = 0; c < 4; c++) {
        __half2 v = __hmul2(*(__half2 *)&h[c], f);
        h[c] = *(uint32_t *)&v;
    }
    put_pairs<T>(s, row, ks, h, top, lane);
}

/* Packed runs of one row, two of a warp at once. */
template <int T>
__device__ inline void put_packed(const acts &s, const gem_cuda_packed &p, int n_runs, int slab0,
                                  int warp, int lane)
{
#pragma unroll 1
    for (int i = warp; i < n_runs; i += 2 * SLAB_WARPS) {
        uint4 q[2];
        float own[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int64_t at = 32 * (slab0 + i + j * SLAB_WARPS) + lane;
            if (i + j * SLAB_WARPS >= n_runs) continue;
            q[j] = __ldcg((const uint4 *)p.h + at);
            own[j] = __ldcg(p.scale + at);
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
            if (i + j * SLAB_WARPS < n_runs)
                put_packed_run<T>(s, 0, i + j * SLAB_WARPS, q[j], own[j], lane);
    }
}

/* Of several rows: all runs of a warp are on their way at once, to where their fragments will
 * stand; their scales go to `spare`, 128 bytes each, `room` of them. */
template <int T>
__device__ inline void put_packed_rows(const acts &s, const gem_cuda_packed &p, int n_runs,
                                       int slab0, int warp, int lane, uint8_t *spare, int room)
{
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
            copy16(smem_u32(s.frag + row * s.frag_ld + 512 * ks + 16 * lane),
                   (const uint4 *)p.h + at + lane, true);
            if (lane < 8) copy16(smem_u32(scales + 16 * lane), p.scale + at + 4 * lane, true);
        }
        copy_commit();
        copy_wait<0>();
        __syncwarp();
        row = row0, ks = i0 - row0 * s.slabs, scales = spare;
#pragma unroll 1
        for (int i = i0; i < end; i += SLAB_WARPS, scales += 128, step()) {
            const uint4 q = *(const uint4 *)(s.frag + row * s.frag_ld + 512 * ks + 16 * lane);
            const float own = *(const float *)(scales + 4 * lane);
            __syncwarp();
            put_packed_run<T>(s, row, ks, q, own, lane);
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
