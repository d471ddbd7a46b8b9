/* slab_mma.cuh - a slab (slab.cuh) in the registers of a warp, and its product with activations
 * that stand in shared memory as rows of f16. Quants enter m16n8k16 as subnormal f16 numbers,
 * without arithmetic; the f32 sum of a block is scaled by its f32 scale; offsets and minima are one
 * more product with the block sums of the activations.
 *
 * Eight rows are the eight columns of a product. Of one row, the eight columns are its eight blocks
 * of a slab: a product of a block of weights is right in that block's column, the others are
 * dropped, so that activations are loaded once a slab and lane t scales blocks 2 t and 2 t + 1
 * alone. In both cases the sum of a slab is that of its four pairs of blocks, ((0 + 1) + (2 + 3)),
 * so the bits are the same.
 *
 * What bounds the loop besides memory is not the tensor cores but integer steps and the bandwidth
 * of shared memory: nibbles j = 1, 3 are left where they stand, 16 times too large, and their
 * activations are 16 times smaller, which rounds those below 2^-10 once more. */
#ifndef GEM_CUDA_SLAB_MMA_CUH
#define GEM_CUDA_SLAB_MMA_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/slab.cuh"

__host__ __device__ constexpr int sum_bytes(int t) /* block sums of a row and slab, high and low */
{
    return t == GEM_DTYPE_Q6_K ? 64 : 32;
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
    static constexpr bool PLAIN = T == GEM_DTYPE_Q4_0 || T == GEM_DTYPE_Q8_0;
    uint4 q[Q];
    uint4 e[2];       /* 16 bytes of scales of rows g and g + 8 */
    uint32_t pair[2]; /* Q4_0, Q8_0: d of blocks 2t, 2t + 1 of both rows; Q6_K: d of both rows */

    /* ONE: for the product of one row alone */
    template <bool ONE = false> __device__ void load(const uint8_t *p, int lane)
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < Q; i++)
            q[i] = *(const uint4 *)(p + 512 * i + 16 * lane);
        p += slab_extra(T);
        if (!ONE || !PLAIN) {
            e[0] = *(const uint4 *)(p + 16 * g);
            e[1] = *(const uint4 *)(p + 16 * g + 128);
        }
        if (PLAIN) {
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

    /* The two values of that pair, as slab_octet has them; K types. */
    __device__ float2 values(int b, int j, int up) const
    {
        const uint32_t q = pair_of(b, j, up);
        const float from = 8388608.0f + (T == GEM_DTYPE_Q6_K ? 32.0f : 0.0f);
        /* built as 2^23 + q: exact */
        const float q0 = __int_as_float((int)__byte_perm(q, 0x4B000000u, 0x7610u)) - from,
                    q1 = __int_as_float((int)__byte_perm(q, 0x4B000000u, 0x7632u)) - from;
        if (T == GEM_DTYPE_Q6_K) {
            const float d = __fmul_rn(__half2float(__ushort_as_half((unsigned short)pair[up])),
                                      scale_i8(2 * b + j / 2, up));
            return make_float2(__fmul_rn(d, q0), __fmul_rn(d, q1));
        }
        const float2 d = __half22float2(*(const __half2 *)&e[up].x); /* d, dmin */
        const uint32_t low =
            b < 4 ? e[up].y & 0x3f3f3f3fu : (e[up].w & 0x0f0f0f0fu) | (e[up].y >> 2 & 0x30303030u);
        const uint32_t min = b < 4 ? e[up].z & 0x3f3f3f3fu
                                   : (e[up].w >> 4 & 0x0f0f0f0fu) | (e[up].z >> 2 & 0x30303030u);
        const float s = __fmul_rn(d.x, byte_f32(low, b % 4)),
                    m = -__fmul_rn(d.y, byte_f32(min, b % 4));
        return make_float2(__fadd_rn(__fmul_rn(s, q0), m), __fadd_rn(__fmul_rn(s, q1), m));
    }

    /* The same, rounded to f16. Q4_0, Q8_0: the product in f32 is exact, so f16's own rounds as
     * often. */
    __device__ uint32_t halves(int b, int j, int up) const
    {
        if (T == GEM_DTYPE_Q4_0 || T == GEM_DTYPE_Q8_0) {
            const uint4 &v = e[up];
            const uint32_t w = b / 2 == 0 ? v.x : b / 2 == 1 ? v.y : b / 2 == 2 ? v.z : v.w;
            const uint32_t d = __byte_perm(w, 0, b % 2 ? 0x3232u : 0x1010u);
            const uint32_t q = pair_of(b, j, up) | 0x64006400u; /* 1024 + q */
            const __half2 x =
                __hmul2(__hsub2(*(const __half2 *)&q,
                                __float2half2_rn(T == GEM_DTYPE_Q8_0 ? 1152.0f : 1032.0f)),
                        *(const __half2 *)&d);
            return *(const uint32_t *)&x;
        }
        const float2 v = values(b, j, up);
        const __half2 h = __floats2half2_rn(v.x, v.y);
        return *(const uint32_t *)&h;
    }

    /* That pair as the product takes it: 16 times as large for odd j, but for Q8_0. */
    __device__ uint32_t operand(int b, int j, int up) const
    {
        if (T == GEM_DTYPE_Q8_0) {
            const uint32_t w = up ? (j < 2 ? q[b].z : q[b].w) : (j < 2 ? q[b].x : q[b].y);
            return __byte_perm(w, 0, j % 2 ? 0x4341u : 0x4240u);
        }
        const uint4 &v = q[b / 2];
        const uint32_t w = b % 2 ? (up ? v.w : v.z) : (up ? v.y : v.x);
        uint32_t out = (j < 2 ? w : w >> 8) & (j % 2 ? 0x00f000f0u : 0x000f000fu);
        /* the upper bits, at `from` of h, go behind the nibble */
        const auto bits = [&](uint32_t h, int from, uint32_t mask) {
            const int to = j % 2 ? 8 : 4;
            if (j % 2) mask <<= 4;
            out |= (from >= to ? h >> (from - to) : h << (to - from)) & mask;
        };
        if (T == GEM_DTYPE_Q5_K) {
            const uint4 &p = q[Q - 1];
            bits(b / 4 ? (up ? p.w : p.z) : (up ? p.y : p.x), 4 * (b % 4) + j, 0x00100010u);
        }
        if (T == GEM_DTYPE_Q6_K) {
            const uint4 &p = q[Q - 2 + b / 4];
            bits(b / 2 % 2 ? (up ? p.w : p.z) : (up ? p.y : p.x), 2 * (4 * (b % 2) + j),
                 0x00300030u);
        }
        return out;
    }
};

/* What octets of activations are multiplied by when they go to shared memory; odd: of a block. */
template <int T> __device__ inline float octet_scale(int odd)
{
    return T != GEM_DTYPE_Q8_0 && odd ? 0.0625f : 1.0f;
}
/* Where octet o of a run of 256 stands: of one row so that ldmatrix meets every bank once. */
template <int N> __device__ inline int octet_at(int o)
{
    return 16 * (N == 1 ? o ^ (o >> 3 & 3) : o);
}

/* The sums of a warp over slabs of a tile: rows g and g + 8, columns 2 t and 2 t + 1 of eight rows
 * (N = 8), or one row's (N = 1; value[0] and value[2], the same in the lanes of a group of four).
 */
template <int T, int N> struct slab_sums {
    static constexpr int SUBS = T == GEM_DTYPE_Q6_K ? 2 : 1; /* scales a block */
    static constexpr bool MINIMA = T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K;
    float value[4];

    __device__ void clear()
    {
        value[0] = value[1] = value[2] = value[3] = 0;
    }

    /* The scale of block b, sub-block i, row g + 8 u; of one row: b = 0, 1 for 2 t, 2 t + 1. */
    __device__ static float scale(const slab<T> &w, int b, int i, int u, int t)
    {
        if (N > 1 && slab<T>::PLAIN) return w.scale_f16(b, u);
        if (N > 1 && T == GEM_DTYPE_Q6_K) return w.scale_i8(2 * b + i, u);
        const uint4 &e = w.e[u];
        if (T == GEM_DTYPE_Q6_K) {
            const uint32_t word = t < 2 ? (t ? e.y : e.x) : (t == 2 ? e.z : e.w);
            return byte_f32(word ^ 0x80808080u, 2 * b + i) - 128.0f;
        }
        if (slab<T>::PLAIN) {
            const float2 d = __half22float2(*(const __half2 *)&w.pair[u]);
            return b ? d.y : d.x;
        }
        const uint32_t low = e.y & 0x3f3f3f3fu,
                       high = (e.w & 0x0f0f0f0fu) | (e.y >> 2 & 0x30303030u);
        if (N > 1) return byte_f32(b < 4 ? low : high, b % 4);
        return byte_f32((t < 2 ? low : high) >> (t % 2 * 16), b);
    }

    /* A slab. acts: shared; of one row the lane's address of octet_at, of eight that of octet
     * lane / 8 of block 0 in row lane % 8. sums: of this lane's row's block sums. s0, s1:
     * scales of the columns' activations. */
    __device__ __forceinline__ void add(const slab<T> &w, uint32_t acts, const uint8_t *sums, int t,
                                        float s0, float s1)
    {
        const float two24 = 16777216.0f;
        float own[2][SUBS][2]; /* one row: scales of blocks 2 t, 2 t + 1 [block][sub-block][row] */
        float part[4] = {}, all[4], pair[4]; /* of a pair, all, two pairs */
        uint4 x;
        if (N == 1) {
            x = ldmatrix4_plain(acts); /* pair t of octets 0 to 3 of block g */
#pragma unroll
            for (int i = 0; i < 4 * SUBS; i++)
                own[i & 1][i >> 2][i >> 1 & 1] = scale(w, i & 1, i >> 2, i >> 1 & 1, t);
        }
#pragma unroll
        for (int b = 0; b < 8; b++) {
            if (N > 1) x = ldmatrix4_plain(acts + 64 * b); /* of row g */
            float d[SUBS][4] = {};
            mma16816(d[0], w.operand(b, 0, 0), w.operand(b, 0, 1), w.operand(b, 1, 0),
                     w.operand(b, 1, 1), x.x, x.y);
            mma16816(d[SUBS - 1], w.operand(b, 2, 0), w.operand(b, 2, 1), w.operand(b, 3, 0),
                     w.operand(b, 3, 1), x.z, x.w);
#pragma unroll
            for (int i = 0; i < SUBS; i++) {
                const bool first = b % 2 == 0 && i == 0; /* of its pair */
#pragma unroll
                for (int u = 0; u < 2; u++) {
                    if (N == 1) { /* in column b */
                        const float y = d[i][2 * u + b % 2], f = own[b % 2][i][u];
                        if (t == b / 2) part[2 * u] = first ? f * y : fmaf(f, y, part[2 * u]);
                        continue;
                    }
                    const float f = scale(w, b, i, u, t);
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        part[2 * u + c] =
                            first ? f * d[i][2 * u + c] : fmaf(f, d[i][2 * u + c], part[2 * u + c]);
                }
            }
#pragma unroll
            for (int i = 0; N > 1 && b % 2 && i < 4; i++) {
                if (b % 4 == 1)
                    pair[i] = part[i];
                else
                    pair[i] += part[i], all[i] = b == 3 ? pair[i] : all[i] + pair[i];
            }
        }
        if (N == 1)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                all[i] = part[i] + __shfl_xor_sync(~0u, part[i], 1);
                all[i] += __shfl_xor_sync(~0u, all[i], 2);
            }

        const uint32_t *hi = (const uint32_t *)sums;
        float corr[4] = {};
        if (T == GEM_DTYPE_Q6_K) {
            uint32_t a[4];
            for (int u = 0; u < 2; u++) { /* scales 2t, 2t + 1 and 8 + 2t, 9 + 2t */
                uint32_t lo_w = (t < 2 ? w.e[u].x : w.e[u].y) ^ 0x80808080u;
                uint32_t hi_w = (t < 2 ? w.e[u].z : w.e[u].w) ^ 0x80808080u;
                a[u] = t % 2 ? bytes_f16(lo_w, 2, 1152.0f) : bytes_f16(lo_w, 0, 1152.0f);
                a[2 + u] = t % 2 ? bytes_f16(hi_w, 2, 1152.0f) : bytes_f16(hi_w, 0, 1152.0f);
            }
            mma16816(corr, a[0], a[1], a[2], a[3], hi[t], hi[4 + t]);
            mma16816(corr, a[0], a[1], a[2], a[3], hi[8 + t], hi[12 + t]);
        } else if (MINIMA) {
            uint32_t a[2];
            for (int u = 0; u < 2; u++) { /* minima 2t, 2t + 1 */
                uint32_t m = t < 2 ? w.e[u].z & 0x3f3f3f3fu
                                   : (w.e[u].w >> 4 & 0x0f0f0f0fu) | (w.e[u].z >> 2 & 0x30303030u);
                a[u] = t % 2 ? bytes_f16(m, 2, 1024.0f) : bytes_f16(m, 0, 1024.0f);
            }
            mma16816(corr, a[0], a[1], a[0], a[1], hi[t], hi[4 + t]);
        } else {
            mma16816(corr, w.pair[0], w.pair[1], w.pair[0], w.pair[1], hi[t], hi[4 + t]);
        }
#pragma unroll
        for (int i = 0; i < 4; i += N == 1 ? 2 : 1) {
            float sum = two24 * all[i];
            if (MINIMA) {
                const float2 d = __half22float2(*(const __half2 *)&w.e[i / 2].x); /* d, dmin */
                sum = fmaf(-d.y, corr[i], d.x * sum);
            } else if (T == GEM_DTYPE_Q6_K) {
                sum = __half2float(__ushort_as_half((unsigned short)w.pair[i / 2])) *
                      fmaf(-32.0f, corr[i], sum);
            } else {
                sum = fmaf(T == GEM_DTYPE_Q8_0 ? -128.0f : -8.0f, corr[i], sum);
            }
            value[i] = fmaf(sum, i % 2 ? s1 : s0, value[i]);
        }
    }
};

#endif
