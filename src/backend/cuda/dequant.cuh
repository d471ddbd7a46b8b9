/* dequant.cuh - eight consecutive values of a weight row, of any type, as the file has them. The
 * products are those of quant/dequantize.c in the same order and without contraction, so the bits
 * are the same. Layouts: docs/formats.md. */
#ifndef GEM_CUDA_DEQUANT_CUH
#define GEM_CUDA_DEQUANT_CUH

#include "backend/cuda/device.cuh"

__device__ inline float half_at(const uint8_t *p)
{
    return __half2float(__ushort_as_half((unsigned short)(p[0] | p[1] << 8)));
}

__device__ inline uint32_t word_at(const uint8_t *p) /* 2-byte aligned at least */
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The stored integer of value k, without offset: 0..15, 0..31, 0..63, or the byte of Q8_0. */
template <int T> __device__ inline int quant_at(const uint8_t *row, int64_t k)
{
    int i = (int)(k % 32);
    if (T == GEM_DTYPE_Q4_0 || T == GEM_DTYPE_Q4_1) {
        const uint8_t *q =
            row + k / 32 * (T == GEM_DTYPE_Q4_0 ? 18 : 20) + (T == GEM_DTYPE_Q4_0 ? 2 : 4);
        return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    }
    if (T == GEM_DTYPE_Q5_0 || T == GEM_DTYPE_Q5_1) {
        const uint8_t *b =
            row + k / 32 * (T == GEM_DTYPE_Q5_0 ? 22 : 24) + (T == GEM_DTYPE_Q5_0 ? 2 : 4);
        int high = b[i / 8] >> (i % 8) & 1;
        return (i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4) | high << 4;
    }
    if (T == GEM_DTYPE_Q8_0) return (int)(int8_t)row[k / 32 * 34 + 2 + i];
    int sub = (int)(k % 256) / 32; /* K types: blocks of 256 */
    if (T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K) {
        const uint8_t *b = row + k / 256 * (T == GEM_DTYPE_Q4_K ? 144 : 176);
        const uint8_t *q = b + (T == GEM_DTYPE_Q4_K ? 16 : 48) + sub / 2 * 32;
        int low = sub % 2 ? q[i] >> 4 : q[i] & 15;
        return T == GEM_DTYPE_Q4_K ? low : low | (b[16 + i] >> sub & 1) << 4;
    }
    const uint8_t *b = row + k / 256 * 210; /* Q6_K */
    int half = sub / 4, part = sub % 4;
    const uint8_t *l = b + 64 * half + 32 * (part % 2), *h = b + 128 + 32 * half;
    return (part < 2 ? l[i] & 15 : l[i] >> 4) | (h[i] >> (2 * part) & 3) << 4;
}

__device__ inline void k4_scale_min(const uint8_t *s, int b, int *scale, int *min)
{
    if (b < 4) {
        *scale = s[b] & 63;
        *min = s[b + 4] & 63;
    } else {
        *scale = (s[b + 4] & 15) | (s[b - 4] >> 6) << 4;
        *min = (s[b + 4] >> 4) | (s[b] >> 6) << 4;
    }
}

/* Values 8 o .. 8 o + 7 of a row. */
template <int T> __device__ inline void octet(const uint8_t *row, int64_t o, float v[8])
{
    int64_t k = 8 * o;
    float d = 0, m = 0;
    if (T == GEM_DTYPE_F32) {
        const float4 a = ((const float4 *)row)[2 * o], b = ((const float4 *)row)[2 * o + 1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
        v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
    if (T == GEM_DTYPE_F16 || T == GEM_DTYPE_BF16) {
        const uint4 a = ((const uint4 *)row)[o];
        const uint32_t w[4] = {a.x, a.y, a.z, a.w};
        for (int i = 0; i < 8; i++) {
            uint32_t h = w[i / 2] >> (16 * (i % 2)) & 0xffffu;
            v[i] = T == GEM_DTYPE_F16 ? __half2float(__ushort_as_half((unsigned short)h))
                                      : __int_as_float((int)(h << 16));
        }
        return;
    }
    if (T == GEM_DTYPE_Q4_0) d = half_at(row + k / 32 * 18);
    if (T == GEM_DTYPE_Q5_0) d = half_at(row + k / 32 * 22);
    if (T == GEM_DTYPE_Q8_0) d = half_at(row + k / 32 * 34);
    if (T == GEM_DTYPE_Q4_1) d = half_at(row + k / 32 * 20), m = half_at(row + k / 32 * 20 + 2);
    if (T == GEM_DTYPE_Q5_1) d = half_at(row + k / 32 * 24), m = half_at(row + k / 32 * 24 + 2);
    if (T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K) {
        const uint8_t *b = row + k / 256 * (T == GEM_DTYPE_Q4_K ? 144 : 176);
        int scale, min;
        k4_scale_min(b + 4, (int)(k % 256) / 32, &scale, &min);
        d = __fmul_rn(half_at(b), (float)scale);
        m = -__fmul_rn(half_at(b + 2), (float)min);
    }
    if (T == GEM_DTYPE_Q6_K) {
        const uint8_t *b = row + k / 256 * 210;
        d = __fmul_rn(half_at(b + 208), (float)(int8_t)b[192 + (int)(k % 256) / 16]);
    }
    const int offset = T == GEM_DTYPE_Q4_0   ? 8
                       : T == GEM_DTYPE_Q5_0 ? 16
                       : T == GEM_DTYPE_Q6_K ? 32
                                             : 0;
    const bool min =
        T == GEM_DTYPE_Q4_1 || T == GEM_DTYPE_Q5_1 || T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float x = __fmul_rn(d, (float)(quant_at<T>(row, k + i) - offset));
        v[i] = min ? __fadd_rn(x, m) : x;
    }
}

/* Call f<T>(...) for the type t that is only known at run time. */
#define GEM_CUDA_BY_TYPE(t, f, ...)                                                                \
    ((t) == GEM_DTYPE_F32    ? f<GEM_DTYPE_F32>(__VA_ARGS__)                                       \
     : (t) == GEM_DTYPE_F16  ? f<GEM_DTYPE_F16>(__VA_ARGS__)                                       \
     : (t) == GEM_DTYPE_BF16 ? f<GEM_DTYPE_BF16>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q4_0 ? f<GEM_DTYPE_Q4_0>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q4_1 ? f<GEM_DTYPE_Q4_1>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q5_0 ? f<GEM_DTYPE_Q5_0>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q5_1 ? f<GEM_DTYPE_Q5_1>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q8_0 ? f<GEM_DTYPE_Q8_0>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q4_K ? f<GEM_DTYPE_Q4_K>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q5_K ? f<GEM_DTYPE_Q5_K>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q6_K ? f<GEM_DTYPE_Q6_K>(__VA_ARGS__)                                      \
                             : cudaErrorInvalidValue)
#define GEM_CUDA_BY_SLAB_TYPE(t, f, ...)                                                           \
    ((t) == GEM_DTYPE_Q4_0   ? f<GEM_DTYPE_Q4_0>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q8_0 ? f<GEM_DTYPE_Q8_0>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q4_K ? f<GEM_DTYPE_Q4_K>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q5_K ? f<GEM_DTYPE_Q5_K>(__VA_ARGS__)                                      \
     : (t) == GEM_DTYPE_Q6_K ? f<GEM_DTYPE_Q6_K>(__VA_ARGS__)                                      \
                             : cudaErrorInvalidValue)

#endif
