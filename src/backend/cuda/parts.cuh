/* parts.cuh - how decode attention cuts a sequence into parts that CTAs work on side by side. */
#ifndef GEM_CUDA_PARTS_CUH
#define GEM_CUDA_PARTS_CUH

#include "backend/cuda/device.cuh"

template <class E>
__device__ inline E *page_part(const gem_cuda_kv &kv, int64_t seq, int32_t pos, int head)
{
    int32_t page = __ldg(kv.table + seq * kv.table_stride + pos / GEM_PAGE);
    if (page < 0) return NULL;
    return (E *)kv.pool + ((int64_t)page * kv.n_kv_heads + head) * (2 * GEM_PAGE * kv.head_dim);
}

/* Pages a part holds when `span` pages can be seen: 1..7, then 8..15 times a power of two. */
__host__ __device__ inline int32_t pages_per_split(int32_t span, int32_t max_splits)
{
    int32_t c = (span + max_splits - 1) / max_splits, e = 0;
    while (c > 15) {
        c = (c + 1) / 2;
        e++;
    }
    return c << e;
}

struct part {
    int32_t first, last; /* pages, both included; first > last: none */
    int32_t n;           /* parts of this row */
};

__device__ inline part part_of(const gem_cuda_kv &kv, int32_t pos, int32_t which,
                               int32_t max_splits)
{
    part p;
    int32_t first = kv.window && pos >= kv.window ? (pos - kv.window + 1) / GEM_PAGE : 0;
    int32_t last = pos / GEM_PAGE, span = last + 1;
    if (kv.window) span = min(span, (kv.window + GEM_PAGE - 2) / GEM_PAGE + 1);
    int32_t chunk = max_splits > 1 ? pages_per_split(span, max_splits) : last + 1;
    p.n = last / chunk - first / chunk + 1;
    int32_t at = first / chunk + which;
    p.first = max(first, at * chunk);
    p.last = min(last, at * chunk + chunk - 1);
    return p;
}

/* Clocks of the three phases of attention, where the kernel is TIMED; no code otherwise. */
template <bool TIMED> struct phases {
    uint32_t sum[3], at;
    __device__ void begin()
    {
        if (TIMED) sum[0] = sum[1] = sum[2] = 0, at = (uint32_t)clock();
    }
    __device__ void end(int phase) /* scores, softmax, values: since the last end */
    {
        if (!TIMED) return;
        const uint32_t now = (uint32_t)clock();
        sum[phase] += now - at;
        at = now;
    }
    __device__ void add(unsigned long long *clocks, bool counts) const
    {
        if (TIMED && counts)
            for (int i = 0; i < 3; i++)
                atomicAdd(clocks + i, (unsigned long long)sum[i]);
    }
};

/* Not in line: gates are rare, and code counts (linear_slab.cu). */
static __device__ __noinline__ float gate_of(const gem_cuda_view &v, int64_t r, int64_t i)
{
    return 1.0f / (1.0f + expf(-view_at(v, r, i)));
}

/* Dim d of a head's result; the dims of an octet are eight lanes' side by side. */
__device__ inline void put(const gem_cuda_queries &q, int64_t r, int64_t h, int hd, int d, float x)
{
    if (q.gated) x *= gate_of(q.gate, r, h * q.stride + hd + d);
    if (!q.packed.h) {
        q.dst[r * q.ld_dst + h * hd + d] = x;
        return;
    }
    const uint32_t octet = 0xffu << (threadIdx.x & 24);
    float top = fabsf(x);
    for (int m = 1; m < 8; m *= 2)
        top = fmaxf(top, __shfl_xor_sync(octet, top, m));
    const float up = f16_scale(top);
    const int64_t at = r * q.packed.width + h * hd + d;
    ((__half *)q.packed.h)[at] = __float2half_rn(x * up);
    if (d % 8 == 0) q.packed.scale[at / 8] = top == 0 ? 0.0f : inverse(up);
}

/* Dims d..d+3, x times f; the other half of the octet is the next lane's or the one before. */
__device__ inline void put_four(const gem_cuda_queries &q, int64_t r, int64_t h, int hd, int d,
                                float4 x, float f)
{
    x = make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
    if (q.gated) {
        const int64_t at = h * q.stride + hd + d;
        x.x *= gate_of(q.gate, r, at), x.y *= gate_of(q.gate, r, at + 1);
        x.z *= gate_of(q.gate, r, at + 2), x.w *= gate_of(q.gate, r, at + 3);
    }
    if (!q.packed.h) {
        *(float4 *)(q.dst + r * q.ld_dst + h * hd + d) = x;
        return;
    }
    float top = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    top = fmaxf(top, __shfl_xor_sync(0x3u << (threadIdx.x & 30), top, 1));
    const float up = f16_scale(top);
    const int64_t at = r * q.packed.width + h * hd + d;
    __half2 v[2] = {__floats2half2_rn(x.x * up, x.y * up), __floats2half2_rn(x.z * up, x.w * up)};
    *(uint2 *)(q.packed.h + at) = *(uint2 *)v;
    if (d % 8 == 0) q.packed.scale[at / 8] = top == 0 ? 0.0f : inverse(up);
}

/* A lane's values of one row of the result, o[..][at], times f; N columns of 8 dims from dim d. */
template <int N>
__device__ __forceinline__ void store_row(const gem_cuda_queries &q, int64_t row, int64_t h, int hd,
                                          int d, float (*o)[4], int at, float f)
{
    float *out = q.dst + row * q.ld_dst + h * hd + d;
    const float *gate = q.data + row * q.ld + h * q.stride + hd + d;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float2 x = make_float2(o[i][at] * f, o[i][at + 1] * f);
        if (q.gated) {
            x.x *= 1.0f / (1.0f + expf(-__ldcg(gate + 8 * i)));
            x.y *= 1.0f / (1.0f + expf(-__ldcg(gate + 8 * i + 1)));
        }
        *(float2 *)(out + 8 * i) = x;
    }
}

#endif
