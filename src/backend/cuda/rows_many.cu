/* rows_many.cu - row-wise ops of the tile route: residual sums with their norm, gated activations,
 * queries, keys and values. Rows are many here, so what counts is memory traffic: results that only
 * the next product reads leave as its f16 operand, under a power of two a row that brings the row's
 * maximum into [512, 1024); nothing is read twice. Bound: memory. Figures: docs/cuda.md. */
#include "backend/cuda/heads.cuh"

namespace
{

enum { SUM_CTA = 256, GLU_CTA = 512, CTA_WARPS = 8 };

/* Sum and maximum over a CTA at once; shared: f32[2][W], another one each time in turn. */
template <int W> __device__ inline float2 sum_max(float sum, float top, float *shared)
{
    sum = warp_sum(sum);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = sum;
        shared[W + threadIdx.x / 32] = top;
    }
    __syncthreads();
    float2 all = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < W; i++) {
        all.x += shared[i];
        all.y = fmaxf(all.y, shared[W + i]);
    }
    return all;
}

__device__ inline uint2 as_f16(float4 v, float f)
{
    __half2 a = __floats2half2_rn(v.x * f, v.y * f), b = __floats2half2_rn(v.z * f, v.w * f);
    return make_uint2(*(uint32_t *)&a, *(uint32_t *)&b);
}

__device__ inline float dot4(float4 v)
{
    return fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, v.w * v.w)));
}
__device__ inline float max4(float4 v)
{
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

/* V groups of four values a thread. A CTA goes through rows; the norms' weights stay with it. */
template <int V>
__global__ void __launch_bounds__(SUM_CTA)
    sum_many(gem_cuda_sum a, int32_t n, int32_t n_padded, uint16_t *xh, float *scale)
{
    DYNAMIC_SHARED(float, norms, 16);
    SHARED(float[4][2 * CTA_WARPS], shared);
    const int groups = (int)(a.d / 4);
    float4 *post = (float4 *)norms, *next = post + groups;
    dependents_go();
    for (int i = threadIdx.x; i < groups; i += SUM_CTA) {
        if (a.post) post[i] = ((const float4 *)a.post)[i];
        next[i] = ((const float4 *)a.next)[i];
    }
    dependency_wait();
    __syncthreads();
    int turn = 0;
    for (int64_t r = blockIdx.x; r < n_padded; r += gridDim.x) {
        uint2 *out = (uint2 *)(xh + r * a.d);
        if (r >= n) { /* the same for all threads */
            for (int i = threadIdx.x; i < groups; i += SUM_CTA)
                out[i] = make_uint2(0, 0);
            continue;
        }
        float4 x[V], t[V];
        int64_t at[V];
        bool in[V];
        float sum = 0, top = 0;
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int i = threadIdx.x + j * SUM_CTA;
            at[j] = 4 * i;
            in[j] = i < groups;
            x[j] = in[j] ? __ldcg((const float4 *)(a.x + r * a.ldx) + i) : make_float4(0, 0, 0, 0);
        }
        view_at4<V, 1>(a.src, r, at, in, t);
        float f = 1;
        if (a.post) {
#pragma unroll
            for (int j = 0; j < V; j++)
                if (in[j]) sum += dot4(t[j]);
            sum = sum_max<CTA_WARPS>(sum, 0, shared[turn++ & 3]).x;
            f = rsqrtf(sum / (float)a.d + a.eps);
        }
        sum = 0;
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (!in[j]) continue;
            const int i = threadIdx.x + j * SUM_CTA;
            const float4 w = a.post ? post[i] : make_float4(1, 1, 1, 1), u = next[i];
            x[j].x = fmaf(t[j].x * f, w.x, x[j].x) * a.out_scale;
            x[j].y = fmaf(t[j].y * f, w.y, x[j].y) * a.out_scale;
            x[j].z = fmaf(t[j].z * f, w.z, x[j].z) * a.out_scale;
            x[j].w = fmaf(t[j].w * f, w.w, x[j].w) * a.out_scale;
            ((float4 *)(a.x + r * a.ldx))[i] = x[j];
            sum += dot4(x[j]);
            t[j] = make_float4(x[j].x * u.x, x[j].y * u.y, x[j].z * u.z, x[j].w * u.w);
            top = fmaxf(top, max4(t[j]));
        }
        const float2 all = sum_max<CTA_WARPS>(sum, top, shared[turn++ & 3]);
        f = rsqrtf(all.x / (float)a.d + a.eps);
        const float up = f16_scale(all.y * f);
#pragma unroll
        for (int j = 0; j < V; j++)
            if (in[j]) out[threadIdx.x + j * SUM_CTA] = as_f16(t[j], f * up);
        if (threadIdx.x == 0) scale[r] = 1.0f / up;
    }
}

struct octet {
    float4 a, b;
};
__device__ inline octet eight(const float *p)
{
    return {__ldcs((const float4 *)p), __ldcs((const float4 *)p + 1)};
}
__device__ inline octet eight(const __half *p)
{
    const uint4 v = __ldcs((const uint4 *)p);
    const float2 x = __half22float2(*(const __half2 *)&v.x),
                 y = __half22float2(*(const __half2 *)&v.y),
                 z = __half22float2(*(const __half2 *)&v.z),
                 w = __half22float2(*(const __half2 *)&v.w);
    return {make_float4(x.x, x.y, y.x, y.y), make_float4(z.x, z.y, w.x, w.y)};
}

__device__ inline float4 gated(gem_act act, float4 g, float4 u, float f)
{
    return make_float4(
        activate_fast(act, g.x * f) * (u.x * f), activate_fast(act, g.y * f) * (u.y * f),
        activate_fast(act, g.z * f) * (u.z * f), activate_fast(act, g.w * f) * (u.w * f));
}

/* Rows of a joint weight's product: 8 gates, their 8 ups, and so on. V octets a thread. */
template <class E, int V>
__global__ void __launch_bounds__(GLU_CTA, V > 6 ? 1 : 2)
    glu_many(gem_act act, gem_cuda_view both, int32_t n, int64_t d, uint16_t *xh, float *scale)
{
    SHARED(float[2 * GLU_CTA / 32], shared);
    dependents_go();
    dependency_wait();
    const int64_t r = blockIdx.x;
    const int octets = (int)(d / 8);
    uint4 *out = (uint4 *)(xh + r * d);
    if (r >= n) {
        for (int i = threadIdx.x; i < octets; i += GLU_CTA)
            out[i] = make_uint4(0, 0, 0, 0);
        return;
    }
    const float f = (both.row_scale ? __ldcg(both.row_scale + r) : 1.0f) *
                    (sizeof(E) == 2 ? (float)GEM_CUDA_HALF_SCALE : 1.0f);
    const E *row = (const E *)both.data + r * both.ld;
    octet h[V];
    float top = 0;
#pragma unroll
    for (int j = 0; j < V; j++) {
        const int i = threadIdx.x + j * GLU_CTA;
        h[j] = {};
        if (i >= octets) continue;
        const octet g = eight(row + 16 * i), u = eight(row + 16 * i + 8);
        h[j] = {gated(act, g.a, u.a, f), gated(act, g.b, u.b, f)};
        top = fmaxf(top, fmaxf(max4(h[j].a), max4(h[j].b)));
    }
    const float up = f16_scale(sum_max<GLU_CTA / 32>(0, top, shared).y);
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (threadIdx.x + j * GLU_CTA >= octets) continue;
        const uint2 a = as_f16(h[j].a, up), b = as_f16(h[j].b, up);
        out[threadIdx.x + j * GLU_CTA] = make_uint4(a.x, a.y, b.x, b.y);
    }
    if (threadIdx.x == 0) scale[r] = 1.0f / up;
}

/* A warp a head: queries, then keys, then values. */
template <int HD, class E>
__global__ void __launch_bounds__(32 * CTA_WARPS)
    append_many(gem_cuda_qkv a, gem_cuda_kv kv, gem_cuda_rows rows, int32_t n)
{
    SHARED(float4[CTA_WARPS][HD / 4], spare);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int heads = a.n_heads + 2 * kv.n_kv_heads;
    dependents_go();
    dependency_wait();
    const int64_t item = (int64_t)blockIdx.x * CTA_WARPS + warp, r = item / heads;
    if (r >= n) return;
    int h = (int)(item - r * heads);
    one_head<HD> x, w, cs, sn;
    if (h >= a.n_heads + kv.n_kv_heads) {
        h -= a.n_heads + kv.n_kv_heads;
        const int32_t pos = __ldcg(rows.pos + r);
        x.load(a.v_from_k ? a.k : a.v, r, (int64_t)h * HD, lane);
        E *page = page_part<E>(kv, __ldcg(rows.seq + r), pos, h);
        x.scale(a.v_norm ? x.rms(a.eps) : 1.0f);
        x.to_page(page);
        x.store_page(page + GEM_PAGE * HD, pos % GEM_PAGE, lane);
        return;
    }
    const bool query = h < a.n_heads;
    const float *norm = query ? a.q_norm : a.k_norm;
    if (!query) h -= a.n_heads;
    x.load(query ? a.q : a.k, r, query ? h * a.q_stride : (int64_t)h * HD, lane);
    cs.angles(a.cs + r * a.half, a.half, lane);
    sn.angles(a.sn + r * a.half, a.half, lane);
    if (norm) {
        w.vector(norm, lane);
        x.norm(w, a.eps);
    }
    x.rotate(cs, sn, a.half, (float *)spare[warp], lane);
    if (!query) {
        const int32_t pos = __ldcg(rows.pos + r);
        E *page = page_part<E>(kv, __ldcg(rows.seq + r), pos, h);
        x.to_page(page);
        x.store_page(page, pos % GEM_PAGE, lane);
        return;
    }
    float *q = a.q_out + r * a.ldq + h * a.q_stride;
    x.scale(a.q_scale);
    x.store(q, lane);
    for (int64_t d = HD + lane; d < a.q_stride; d += 32) /* a gate behind it */
        q[d] = view_at(a.q, r, h * a.q_stride + d);
}

template <int HD>
cudaError_t append_run(const gem_cuda_stream *s, const gem_cuda_qkv *a, const gem_cuda_kv *kv,
                       const gem_cuda_rows *rows, int32_t n)
{
    const int64_t items = (int64_t)n * (a->n_heads + 2 * kv->n_kv_heads);
    const dim3 grid((unsigned)((items + CTA_WARPS - 1) / CTA_WARPS));
    return launch(s, kv->f16 ? append_many<HD, __half> : append_many<HD, float>, grid,
                  32 * CTA_WARPS, 0, *a, *kv, *rows, n);
}

} // namespace

cudaError_t gem_cuda_sum_many(const gem_cuda_stream *s, const gem_cuda_sum *a, int32_t n,
                              int32_t n_padded, uint16_t *xh, float *scale)
{
    const auto kernel = a->d <= 6 * 4 * SUM_CTA ? sum_many<6> : sum_many<12>;
    const int64_t grid = GEM_MIN(3 * s->n_sms, n_padded);
    if (a->d > 12 * 4 * SUM_CTA || a->d % 4 || !a->next) return cudaErrorInvalidValue;
    return launch(s, kernel, dim3((unsigned)grid), SUM_CTA, (size_t)(2 * a->d) * sizeof(float), *a,
                  n, n_padded, xh, scale);
}

bool gem_cuda_glu_many_fits(int64_t d)
{
    return d % 8 == 0 && d <= 8 * 8 * GLU_CTA;
}

template <class E>
static cudaError_t glu_run(const gem_cuda_stream *s, gem_act act, gem_cuda_view both, int32_t n,
                           int32_t n_padded, int64_t d, uint16_t *xh, float *scale)
{
    const auto kernel = d <= 2 * 8 * GLU_CTA   ? glu_many<E, 2>
                        : d <= 6 * 8 * GLU_CTA ? glu_many<E, 6>
                                               : glu_many<E, 8>;
    return launch(s, kernel, dim3((unsigned)n_padded), GLU_CTA, 0, act, both, n, d, xh, scale);
}

cudaError_t gem_cuda_glu_many(const gem_cuda_stream *s, gem_act act, gem_cuda_view both, bool half,
                              int32_t n, int32_t n_padded, int64_t d, uint16_t *xh, float *scale)
{
    if (!gem_cuda_glu_many_fits(d)) return cudaErrorInvalidValue;
    return half ? glu_run<__half>(s, act, both, n, n_padded, d, xh, scale)
                : glu_run<float>(s, act, both, n, n_padded, d, xh, scale);
}

cudaError_t gem_cuda_append_many(const gem_cuda_stream *s, const gem_cuda_qkv *a,
                                 const gem_cuda_kv *kv, const gem_cuda_rows *rows, int32_t n)
{
    switch (kv->head_dim) {
    case 64:
        return append_run<64>(s, a, kv, rows, n);
    case 128:
        return append_run<128>(s, a, kv, rows, n);
    case 256:
        return append_run<256>(s, a, kv, rows, n);
    case 512:
        return append_run<512>(s, a, kv, rows, n);
    }
    return gem_cuda_append(s, a, kv, rows, n);
}

cudaError_t gem_cuda_many_init(void)
{
    const int bytes = 2 * 12 * 4 * SUM_CTA * (int)sizeof(float);
    cudaError_t e =
        cudaFuncSetAttribute(sum_many<6>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return e ? e
             : cudaFuncSetAttribute(sum_many<12>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    bytes);
}
