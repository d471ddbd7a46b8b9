/* linear_slab.cu - decode products: one to eight activation rows against slabs (slab.cuh).
 *
 * Idea. The work, row tiles x slabs, is one line; it is cut into equal stripes, one a CTA and one
 * CTA a multiprocessor, and each stripe into one run of slabs a warp. A warp fetches its slabs into
 * a ring of its own in shared memory by bulk copies, several ahead and, with dependent launch,
 * before the kernel ahead has ended; it multiplies them by m16n8k16: weights are the 16 rows,
 * activations the 8 columns, so up to eight rows cost one row's memory traffic. Quants go into the
 * product as subnormal f16 numbers, without arithmetic; the f32 sum of a block is scaled by its f32
 * scale, and offsets and minima are one more product with the block sums of the activations.
 * Activations become f16 per 256 values, scaled by a power of two: products are exact but for that
 * one rounding of the activations (relative 2^-12).
 *
 * Order of sums: blocks and slabs ascending along a warp's run, warps ascending, then two partial
 * sums a tile and slice of k (a tile lies in at most two CTAs): it depends on the shape and the
 * number of multiprocessors, not on the number of rows. Slices exist so that eight rows of a wide
 * input fit shared memory; one row uses the same.
 * Bound: memory. Measured: docs/cuda.md. Layout and order after the design facts given there. */
#include "backend/cuda/ring.cuh"
#include "backend/cuda/slab.cuh"

namespace
{

enum { WARPS = 16, THREADS = WARPS * 32, MAX_OUT = 4 };

struct out_part {
    const uint8_t *w;
    float *y;
    int64_t ldy;
    int32_t n_rows, tile_end; /* tiles of this output and those before it */
};

struct args {
    out_part out[MAX_OUT];
    gem_cuda_slab_in in;
    int32_t n, tiles, k_slabs, slice, per_slice, stages;
};

/* More slabs a slice leave the ring of eight rows too little of a Hopper multiprocessor's shared
 * memory. */
enum { MAX_SLICE = 24 };

__host__ __device__ constexpr int sum_bytes(int t) /* block sums of a row and slab, high and low */
{
    return t == GEM_DTYPE_Q6_K ? 64 : 32;
}

/* Where slab (tile, ks) of this slice lies. */
__device__ inline const uint8_t *slab_of(const args &a, int32_t tile, int32_t slab, int bytes)
{
    int i = 0;
    int32_t first = 0;
    while (tile >= a.out[i].tile_end)
        first = a.out[i++].tile_end;
    return a.out[i].w + ((int64_t)(tile - first) * a.k_slabs + slab) * bytes;
}

/* ---- products ---- */

__device__ inline void mma(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Byte i of w as f32, by building 2^23 + byte. */
__device__ inline float byte_f32(uint32_t w, int i)
{
    return __int_as_float((int)__byte_perm(w, 0x4B000000u, 0x7440u | (uint32_t)i)) - 8388608.0f;
}
/* Bytes i and i + 1 of w as f16, minus `bias` - 1024. */
__device__ inline uint32_t bytes_f16(uint32_t w, int i, float bias)
{
    uint32_t h = __byte_perm(w, 0x64646464u, i ? 0x4342u : 0x4140u);
    __half2 v = __hsub2(*(__half2 *)&h, __float2half2_rn(bias));
    return *(uint32_t *)&v;
}

/* A slab in registers, as lane l sees it. */
template <int T> struct slab {
    static constexpr int Q = slab_extra(T) / 512;
    uint4 q[Q];
    uint4 e[2];       /* 16 bytes of scales of rows g and g + 8 */
    uint32_t pair[2]; /* Q4_0, Q8_0: d of blocks 2t, 2t + 1 of both rows; Q6_K: d of both rows */

    __device__ void load(const uint8_t *p, int lane)
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < Q; i++)
            q[i] = *(const uint4 *)(p + 512 * i + 16 * lane);
        p += slab_extra(T);
        e[0] = *(const uint4 *)(p + 16 * g);
        e[1] = *(const uint4 *)(p + 16 * g + 128);
        if (T == GEM_DTYPE_Q4_0 || T == GEM_DTYPE_Q8_0) {
            pair[0] = *(const uint32_t *)(p + 16 * g + 4 * t);
            pair[1] = *(const uint32_t *)(p + 16 * g + 128 + 4 * t);
        } else if (T == GEM_DTYPE_Q6_K) {
            pair[0] = *(const uint16_t *)(p + 256 + 2 * g);
            pair[1] = *(const uint16_t *)(p + 256 + 2 * g + 16);
        }
    }

    /* The pair (k, k + 1) of group j of block b in row g (up = 0) or g + 8: subnormal f16. */
    __device__ uint32_t pair_of(int b, int j, int up) const
    {
        if (T == GEM_DTYPE_Q8_0) {
            uint32_t w = up ? (j < 2 ? q[b].z : q[b].w) : (j < 2 ? q[b].x : q[b].y);
            return (j % 2 ? w >> 8 : w) & 0x00ff00ffu;
        }
        const uint4 &v = q[b / 2];
        uint32_t w = b % 2 ? (up ? v.w : v.z) : (up ? v.y : v.x);
        uint32_t out = (w >> (4 * j)) & 0x000f000fu;
        if (T == GEM_DTYPE_Q5_K) {
            const uint4 &p = q[Q - 1];
            uint32_t h = b / 4 ? (up ? p.w : p.z) : (up ? p.y : p.x);
            int f = 4 * (b % 4) + j;
            out |= (f >= 4 ? h >> (f - 4) : h << (4 - f)) & 0x00100010u;
        }
        if (T == GEM_DTYPE_Q6_K) {
            const uint4 &p = q[Q - 2 + b / 4];
            uint32_t h = b / 2 % 2 ? (up ? p.w : p.z) : (up ? p.y : p.x);
            int f = 2 * (4 * (b % 2) + j);
            out |= (f >= 4 ? h >> (f - 4) : h << (4 - f)) & 0x00300030u;
        }
        return out;
    }

    __device__ float scale_f16(int b, int up) const /* f16 number b of the 16 bytes */
    {
        const uint4 &v = e[up];
        uint32_t w = b / 2 == 0 ? v.x : b / 2 == 1 ? v.y : b / 2 == 2 ? v.z : v.w;
        return __half2float(__ushort_as_half((unsigned short)(b % 2 ? w >> 16 : w & 0xffffu)));
    }
    __device__ float scale_i8(int s, int up) const
    {
        const uint4 &v = e[up];
        uint32_t w = s / 4 == 0 ? v.x : s / 4 == 1 ? v.y : s / 4 == 2 ? v.z : v.w;
        return byte_f32(w ^ 0x80808080u, s % 4) - 128.0f;
    }

    /* sum over the slab of weight x activation: acts: this lane's fragments of block 0, sums: of
     * the block sums. Elements: (row g, col 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). */
    __device__ void multiply(const uint8_t *acts, const uint8_t *sums, int t, float out[4]) const
    {
        float part[4] = {}, corr[4] = {};
        uint32_t scales[2][2]; /* K types: eight 6-bit scales of both rows */
        if (T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K)
            for (int u = 0; u < 2; u++) {
                scales[u][0] = e[u].y & 0x3f3f3f3fu;
                scales[u][1] = (e[u].w & 0x0f0f0f0fu) | (e[u].y >> 2 & 0x30303030u);
            }
#pragma unroll
        for (int b = 0; b < 8; b++) {
            uint4 x = *(const uint4 *)(acts + 64 * b);
            float d[4] = {}, d2[4] = {};
            mma(d, pair_of(b, 0, 0), pair_of(b, 0, 1), pair_of(b, 1, 0), pair_of(b, 1, 1), x.x,
                x.y);
            float *second = T == GEM_DTYPE_Q6_K ? d2 : d;
            mma(second, pair_of(b, 2, 0), pair_of(b, 2, 1), pair_of(b, 3, 0), pair_of(b, 3, 1), x.z,
                x.w);
#pragma unroll
            for (int u = 0; u < 2; u++) {
                if (T == GEM_DTYPE_Q6_K) {
                    float s0 = scale_i8(2 * b, u), s1 = scale_i8(2 * b + 1, u);
                    part[2 * u] = fmaf(s1, d2[2 * u], fmaf(s0, d[2 * u], part[2 * u]));
                    part[2 * u + 1] =
                        fmaf(s1, d2[2 * u + 1], fmaf(s0, d[2 * u + 1], part[2 * u + 1]));
                    continue;
                }
                float s = T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K
                              ? byte_f32(scales[u][b / 4], b % 4)
                              : scale_f16(b, u);
                part[2 * u] = fmaf(s, d[2 * u], part[2 * u]);
                part[2 * u + 1] = fmaf(s, d[2 * u + 1], part[2 * u + 1]);
            }
        }
        const uint32_t *hi = (const uint32_t *)sums;
        const float two24 = 16777216.0f;
        if (T == GEM_DTYPE_Q6_K) {
            uint32_t a[4];
            for (int u = 0; u < 2; u++) { /* scales 2t, 2t + 1 and 8 + 2t, 9 + 2t */
                uint32_t lo_w = (t < 2 ? e[u].x : e[u].y) ^ 0x80808080u;
                uint32_t hi_w = (t < 2 ? e[u].z : e[u].w) ^ 0x80808080u;
                a[u] = t % 2 ? bytes_f16(lo_w, 2, 1152.0f) : bytes_f16(lo_w, 0, 1152.0f);
                a[2 + u] = t % 2 ? bytes_f16(hi_w, 2, 1152.0f) : bytes_f16(hi_w, 0, 1152.0f);
            }
            mma(corr, a[0], a[1], a[2], a[3], hi[t], hi[4 + t]);
            mma(corr, a[0], a[1], a[2], a[3], hi[8 + t], hi[12 + t]);
            for (int i = 0; i < 4; i++)
                out[i] = __half2float(__ushort_as_half((unsigned short)pair[i / 2])) *
                         fmaf(-32.0f, corr[i], two24 * part[i]);
        } else if (T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K) {
            uint32_t a[2];
            for (int u = 0; u < 2; u++) { /* minima 2t, 2t + 1 */
                uint32_t m = t < 2 ? e[u].z & 0x3f3f3f3fu
                                   : (e[u].w >> 4 & 0x0f0f0f0fu) | (e[u].z >> 2 & 0x30303030u);
                a[u] = t % 2 ? bytes_f16(m, 2, 1024.0f) : bytes_f16(m, 0, 1024.0f);
            }
            mma(corr, a[0], a[1], a[0], a[1], hi[t], hi[4 + t]);
            for (int i = 0; i < 4; i++) {
                float2 d = __half22float2(*(const __half2 *)&e[i / 2].x); /* d, dmin */
                out[i] = fmaf(-d.y, corr[i], d.x * (two24 * part[i]));
            }
        } else {
            mma(corr, pair[0], pair[1], pair[0], pair[1], hi[t], hi[4 + t]);
            for (int i = 0; i < 4; i++)
                out[i] = fmaf(T == GEM_DTYPE_Q8_0 ? -128.0f : -8.0f, corr[i], two24 * part[i]);
        }
    }
};

/* ---- activations ---- */

struct acts {
    uint8_t *frag, *sums; /* rows frag_ld, sum_ld bytes apart */
    float *scale;         /* [rows][slice] */
    int frag_ld, sum_ld;
};

/* One warp turns 256 values of one row into fragments: [block][t][j] pairs, f16, times 2^e. */
template <int T>
__device__ void put_acts(const acts &s, const gem_cuda_slab_in &in, int row, int64_t k0, int ks,
                         int slice, int lane)
{
    const int64_t at[2] = {k0 + 256 * ks + 8 * lane, k0 + 256 * ks + 8 * lane + 4};
    const bool all[2] = {true, true};
    float4 u[2], w[2];
    view_at4<2>(in.a, row, at, all, u);
    float v[8] = {u[0].x, u[0].y, u[0].z, u[0].w, u[1].x, u[1].y, u[1].z, u[1].w};
    if (in.gated) {
        view_at4<2>(in.b, row, at, all, w);
        const float up[8] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = activate(in.act, v[i]) * up[i];
    }
    float top = 0, sum = 0;
    for (int i = 0; i < 8; i++)
        top = fmaxf(top, fabsf(v[i]));
    float f = f16_scale(warp_max(top));
    uint8_t *frag = s.frag + row * s.frag_ld + 512 * ks + 64 * (lane / 4) + 4 * (lane % 4);
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __half2 pair = __floats2half2_rn(v[2 * i] * f, v[2 * i + 1] * f);
        float2 back = __half22float2(pair);
        sum += back.x + back.y;
        h[i] = *(uint32_t *)&pair;
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
    if (lane == 0) s.scale[row * slice + ks] = 1.0f / f;
}

/* ---- one kernel ---- */

/* N: columns that differ, 1 or 8 */
template <int T, int N> __global__ void __launch_bounds__(THREADS, 1) linear_slab(args a)
{
    extern __shared__ __align__(128) uint8_t smem[];
    constexpr int bytes = slab_bytes(T), tile_floats = 16 * N;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int32_t which = (int32_t)blockIdx.x / a.per_slice,
                  cta = (int32_t)blockIdx.x % a.per_slice;
    const int32_t slice = a.slice, slab0 = which * slice;
    const int32_t active = a.tiles < a.per_slice ? a.tiles : a.per_slice;

    uint8_t *ring = smem + (size_t)warp * (size_t)(a.stages * bytes);
    acts s;
    s.frag = smem + WARPS * a.stages * bytes;
    s.frag_ld = 512 * slice + 64; /* 64: rows fall into different banks */
    s.sum_ld = sum_bytes(T) * slice + 16;
    s.sums = s.frag + N * s.frag_ld;
    float *red = (float *)(s.sums + N * s.sum_ld); /* [warp][2][column][16 rows] */
    s.scale = red + WARPS * 2 * tile_floats;
    uint64_t *bar = (uint64_t *)(s.scale + (N * slice + 1) / 2 * 2) + warp * a.stages;

    dependents_go();
    if (cta >= active) return;
    const int64_t line = (int64_t)a.tiles * slice;
    const int32_t lo = (int32_t)(line * cta / active), hi = (int32_t)(line * (cta + 1) / active);
    const int32_t len = hi - lo;
    const int32_t from = lo + len * warp / WARPS, to = lo + len * (warp + 1) / WARPS;

    /* Weights are constants: fetch before the kernel ahead has ended. */
    int32_t next_tile = from / slice, next_ks = from % slice, left = to - from;
    const uint8_t *next = left > 0 ? slab_of(a, next_tile, slab0 + next_ks, bytes) : NULL;
    const auto advance = [&] {
        left--;
        next += bytes;
        if (++next_ks < slice) return;
        next_ks = 0;
        next_tile++;
        if (left > 0) next = slab_of(a, next_tile, slab0, bytes);
    };
#if __CUDA_ARCH__ >= 900
    const uint64_t policy = evict_first();
    if (lane == 0)
        for (int i = 0; i < a.stages; i++)
            barrier_init(&bar[i]);
    barriers_visible();
    __syncwarp();
    for (int i = 0; i < a.stages && left > 0; i++) {
        if (lane == 0) fetch(ring + i * bytes, next, bytes, &bar[i], policy);
        advance();
    }
#else
    (void)bar; /* cp.async counts groups itself */
    for (int i = 0; i < a.stages; i++) {
        if (left > 0) {
            fetch_lanes(ring + i * bytes, next, bytes, lane);
            advance();
        }
        commit();
    }
#endif
    dependency_wait();

    for (int i = warp; i < a.n * slice; i += WARPS) {
        int row = i / slice, ks = i % slice;
        put_acts<T>(s, a.in, row, (int64_t)slab0 * 256, ks, slice, lane);
    }
    __syncthreads();

    float acc[4] = {};
    int32_t tile = from / slice, ks = from % slice;
    const int32_t first_tile = tile;
    bool whole = ks == 0; /* this tile began in this warp */
    int stage = 0;
    uint32_t parity = 0;
    const uint8_t *frag = s.frag + (N > 1 ? g * s.frag_ld : 0) + 16 * t;
    const uint8_t *sums = s.sums + (N > 1 ? g * s.sum_ld : 0);

    const auto write = [&](int32_t tl, int part, int col, int row, float v) {
        int i = 0;
        int32_t first = 0;
        while (tl >= a.out[i].tile_end)
            first = a.out[i++].tile_end;
        int32_t r = 16 * (tl - first) + row;
        if (r < a.out[i].n_rows && col < a.n)
            a.out[i].y[((int64_t)(2 * which + part) * GEM_CUDA_FEW + col) * a.out[i].ldy + r] = v;
    };

    for (int32_t at = from; at < to; at++) {
        slab<T> w;
        float v[4];
#if __CUDA_ARCH__ >= 900
        await(&bar[stage], parity);
        w.load(ring + stage * bytes, lane);
        __syncwarp();
        if (left > 0) {
            if (lane == 0) fetch(ring + stage * bytes, next, bytes, &bar[stage], policy);
            advance();
        }
#else
        await_group(a.stages);
        w.load(ring + stage * bytes, lane);
        __syncwarp();
        if (left > 0) {
            fetch_lanes(ring + stage * bytes, next, bytes, lane);
            advance();
        }
        commit();
#endif
        if (++stage == a.stages) stage = 0, parity ^= 1;
        w.multiply(frag + 512 * ks, sums + sum_bytes(T) * ks, t, v);
        float s0 = s.scale[(N > 1 ? 2 * t * slice : 0) + ks];
        float s1 = N > 1 ? s.scale[(2 * t + 1) * slice + ks] : s0;
        acc[0] = fmaf(v[0], s0, acc[0]);
        acc[2] = fmaf(v[2], s0, acc[2]);
        if (N > 1) {
            acc[1] = fmaf(v[1], s1, acc[1]);
            acc[3] = fmaf(v[3], s1, acc[3]);
        }
        const bool ends = ++ks == slice;
        if (!ends && at + 1 < to) continue;
        if (ends && whole) { /* all of the tile's slice was this warp's */
            if (N > 1 || t == 0)
                for (int u = 0; u < 2; u++)
                    for (int c = 0; c < (N > 1 ? 2 : 1); c++) {
                        write(tile, 0, (N > 1 ? 2 * t : 0) + c, g + 8 * u, acc[2 * u + c]);
                        write(tile, 1, (N > 1 ? 2 * t : 0) + c, g + 8 * u, 0.0f);
                    }
        } else if (N > 1 || t == 0) {
            float *out = red + (warp * 2 + (tile != first_tile)) * tile_floats;
            for (int u = 0; u < 2; u++)
                for (int c = 0; c < (N > 1 ? 2 : 1); c++)
                    out[((N > 1 ? 2 * t : 0) + c) * 16 + g + 8 * u] = acc[2 * u + c];
        }
        acc[0] = acc[1] = acc[2] = acc[3] = 0;
        tile++;
        ks = 0;
        whole = true;
    }
    __syncthreads();

    /* Tiles that several warps share: the one this CTA's stripe begins inside of, and for each warp
     * the one that begins in its run and ends behind it. */
    for (int i = threadIdx.x; i < (WARPS + 1) * tile_floats; i += THREADS) {
        int who = i / tile_floats - 1, item = i % tile_floats;
        int32_t tl, w0 = lo + len * GEM_MAX(who, 0) / WARPS,
                    w1 = lo + len * (GEM_MAX(who, 0) + 1) / WARPS;
        float sum = 0;
        if (who < 0) {
            if (lo % slice == 0) continue;
            tl = lo / slice;
        } else {
            if (w1 == w0) continue;
            tl = (w1 - 1) / slice;
            if (tl * slice < w0 || (tl + 1) * slice <= w1) continue;
            sum = red[(who * 2 + (tl != w0 / slice)) * tile_floats + item];
        }
        const int32_t end = (tl + 1) * slice;
        for (int w = who + 1; w < WARPS; w++) {
            w0 = lo + len * w / WARPS, w1 = lo + len * (w + 1) / WARPS;
            if (w0 >= end) break;
            if (w1 > w0) sum += red[w * 2 * tile_floats + item];
        }
        const bool starts = who >= 0, ends = end <= hi;
        write(tl, starts ? 0 : 1, item / 16, item % 16, sum);
        if (starts && ends) write(tl, 1, item / 16, item % 16, 0.0f);
    }
}

size_t smem_bytes(gem_dtype t, int n, int slice, int stages)
{
    size_t acts = (size_t)n * (size_t)(512 * slice + 64 + sum_bytes(t) * slice + 16);
    size_t red = (size_t)WARPS * 2 * 16 * (size_t)n * 4, scale = (size_t)(n * slice + 1) / 2 * 8;
    return (size_t)WARPS * (size_t)stages * ((size_t)slab_bytes(t) + 8) + acts + red + scale;
}

template <int T> cudaError_t run(const gem_cuda_stream *s, args a, int grid)
{
    int n = a.n == 1 ? 1 : 8;
    a.stages = 4;
    while (a.stages > 2 && smem_bytes((gem_dtype)T, n, a.slice, a.stages) > s->max_smem)
        a.stages--;
    size_t bytes = smem_bytes((gem_dtype)T, n, a.slice, a.stages);
    /* With dependent launch two CTAs of one kernel must not share a multiprocessor. */
    if (bytes < s->max_smem / 2 + 1024) bytes = s->max_smem / 2 + 1024;
    if (bytes > s->max_smem) return cudaErrorInvalidValue;
    return launch(s, n == 1 ? linear_slab<T, 1> : linear_slab<T, 8>, dim3((unsigned)grid), THREADS,
                  bytes, a);
}

template <int T> cudaError_t init(const gem_cuda_stream *s)
{
    cudaError_t e = cudaFuncSetAttribute(
        linear_slab<T, 1>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)s->max_smem);
    return e ? e
             : cudaFuncSetAttribute(linear_slab<T, 8>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)s->max_smem);
}

} // namespace

bool gem_cuda_slab_type(gem_dtype t)
{
    return t == GEM_DTYPE_Q4_0 || t == GEM_DTYPE_Q8_0 || t == GEM_DTYPE_Q4_K ||
           t == GEM_DTYPE_Q5_K || t == GEM_DTYPE_Q6_K;
}

size_t gem_cuda_slab_bytes(gem_dtype t)
{
    return (size_t)slab_bytes(t);
}

int gem_cuda_slab_slices(gem_dtype t, int64_t k, const gem_cuda_stream *s)
{
    if (!gem_cuda_slab_type(t) || k % GEM_CUDA_SLAB_K) return 0;
    int slabs = (int)(k / GEM_CUDA_SLAB_K);
    for (int n = 1; n <= 16 && n <= s->n_sms; n++)
        if (slabs % n == 0 && slabs / n <= MAX_SLICE &&
            smem_bytes(t, GEM_CUDA_FEW, slabs / n, 2) <= s->max_smem)
            return n;
    return 0;
}

cudaError_t gem_cuda_linear_slab(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out,
                                 const gem_cuda_slab_in *in, int32_t n)
{
    args a = {};
    const gem_cuda_weight *w = out[0].w;
    int slices = gem_cuda_slab_slices(w->dtype, w->k, s);
    if (!slices || n_out > MAX_OUT || n < 1 || n > GEM_CUDA_FEW) return cudaErrorInvalidValue;
    for (int i = 0; i < n_out; i++) {
        a.tiles += (int32_t)((out[i].w->n_rows + 15) / 16);
        a.out[i] = {out[i].w->data, out[i].y, out[i].ldy, (int32_t)out[i].w->n_rows, a.tiles};
    }
    a.in = *in;
    a.n = n;
    a.k_slabs = (int32_t)(w->k / GEM_CUDA_SLAB_K);
    a.slice = a.k_slabs / slices;
    a.per_slice = s->n_sms / slices;
    return GEM_CUDA_BY_SLAB_TYPE(w->dtype, run, s, a, slices * a.per_slice);
}

cudaError_t gem_cuda_slab_init(const gem_cuda_stream *s)
{
    cudaError_t e = cudaSuccess;
    if (!e) e = init<GEM_DTYPE_Q4_0>(s);
    if (!e) e = init<GEM_DTYPE_Q8_0>(s);
    if (!e) e = init<GEM_DTYPE_Q4_K>(s);
    if (!e) e = init<GEM_DTYPE_Q5_K>(s);
    if (!e) e = init<GEM_DTYPE_Q6_K>(s);
    return e;
}
