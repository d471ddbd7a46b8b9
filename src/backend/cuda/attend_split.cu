/* attend_split.cu - queries, keys and values of a layer, and attention of a few rows over pages.
 *
 * append: one CTA a head and row: norm, rotation, scale; keys and values go into their page.
 * attend: one CTA a part of a sequence, KV head and row, for up to eight query heads at once. A
 * page is 64 positions: scores first (a warp takes eight positions, four lanes share one and read
 * 16 bytes each), then the running maximum, then values (a thread owns four dims and every few-th
 *   position). Keys and values are read once, from memory straight into registers. All in f32.
 * merge: parts in ascending order. Borders of parts depend on the position alone, so bits do not
 *   depend on load or company.
 * Bound: memory in f32 (16 bytes feed 32 multiplies a lane); f16 needs the conversion too and stays
 * further from the roof. */
#include "backend/cuda/heads.cuh"

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32, MAX_DIM = 512 };

/* Four dims a thread: as many loads as can stand in flight at once. */
enum { APPEND_THREADS = MAX_DIM / 4 };

__device__ inline float squares(float4 x)
{
    return fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w)));
}

/* Two sums over the CTA at once. shared: f32[2 * APPEND_THREADS / 32]. */
__device__ inline float2 block_sum2(float a, float b, float *shared)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = APPEND_THREADS / 32;
    a = warp_sum(a);
    b = warp_sum(b);
    if (lane == 0) {
        shared[warp] = a;
        shared[n + warp] = b;
    }
    __syncthreads();
    float2 sum = make_float2(0, 0);
    for (int i = 0; i < n; i++) {
        sum.x += shared[i];
        sum.y += shared[n + i];
    }
    return sum;
}

/* Dims i..i+3 of a position; they share a 16-byte chunk. */
template <class E> __device__ inline void put4(E *page, int at, float4 x)
{
    put4(page + at, make_float4(page_value(x.x, page), page_value(x.y, page), page_value(x.z, page),
                                page_value(x.w, page)));
}

template <class E>
__global__ void __launch_bounds__(APPEND_THREADS)
    append(gem_cuda_qkv a, gem_cuda_kv kv, gem_cuda_rows rows)
{
    SHARED(float4[APPEND_THREADS], x4);
    SHARED(float[2 * APPEND_THREADS / 32], shared);
    const float4 zero = make_float4(0, 0, 0, 0), one = make_float4(1, 1, 1, 1);
    const int hd = kv.head_dim, h = blockIdx.x, i = 4 * threadIdx.x;
    const int64_t r = blockIdx.y;
    const bool query = h < a.n_heads, in[1] = {i < hd};
    const int64_t base = query ? h * a.q_stride : (int64_t)(h - a.n_heads) * hd, at[1] = {base + i};
    const float *w = query ? a.q_norm : a.k_norm;
    dependents_go();
    const float4 norm = w && in[0] ? *(const float4 *)(w + i) : one;
    const bool rotates = in[0] && i < 2 * a.half;
    const int j = i < a.half ? i : i - a.half;
    dependency_wait();
    const int32_t pos = __ldcg(rows.pos + r);
    const int slot = pos % GEM_PAGE;
    E *page = query ? NULL : page_part<E>(kv, __ldcg(rows.seq + r), pos, h - a.n_heads);
    const int put = page_at(hd, slot, i, page_swizzled(hd, page));
    float4 x[1] = {zero}, v[1] = {zero}, cs = one, sn = zero;
    view_at4<1>(query ? a.q : a.k, r, at, in, x);
    if (!query && !a.v_from_k) view_at4<1>(a.v, r, at, in, v);
    if (rotates) {
        cs = __ldcg((const float4 *)(a.cs + r * a.half + j));
        sn = __ldcg((const float4 *)(a.sn + r * a.half + j));
    }
    if (!in[0]) x[0] = v[0] = zero;
    if (a.v_from_k) v[0] = x[0];
    const float2 sum = block_sum2(squares(x[0]), squares(v[0]), shared);
    if (!query && in[0]) {
        float f = a.v_norm ? rsqrtf(sum.y / (float)hd + a.eps) : 1.0f;
        put4(page + GEM_PAGE * hd, put,
             make_float4(v[0].x * f, v[0].y * f, v[0].z * f, v[0].w * f));
    }
    if (w) {
        float f = rsqrtf(sum.x / (float)hd + a.eps);
        x[0] = make_float4(x[0].x * f * norm.x, x[0].y * f * norm.y, x[0].z * f * norm.z,
                           x[0].w * f * norm.w);
    }
    x4[threadIdx.x] = x[0];
    __syncthreads();
    if (rotates) { /* the partner of dim i is i + half, or i - half */
        const float4 y = x4[i < a.half ? threadIdx.x + a.half / 4 : threadIdx.x - a.half / 4];
        const float sign = i < a.half ? -1.0f : 1.0f;
        x[0] = make_float4(
            fmaf(sign * y.x, sn.x, x[0].x * cs.x), fmaf(sign * y.y, sn.y, x[0].y * cs.y),
            fmaf(sign * y.z, sn.z, x[0].z * cs.z), fmaf(sign * y.w, sn.w, x[0].w * cs.w));
    }
    if (!query) {
        if (in[0]) put4(page, put, x[0]);
        return;
    }
    float *q = a.q_out + r * a.ldq + base;
    if (in[0])
        *(float4 *)(q + i) = make_float4(x[0].x * a.q_scale, x[0].y * a.q_scale, x[0].z * a.q_scale,
                                         x[0].w * a.q_scale);
    for (int64_t d = hd + threadIdx.x; d < a.q_stride; d += APPEND_THREADS) /* a gate behind it */
        q[d] = view_at(a.q, r, base + d);
}

template <class E> struct pack; /* what 16 bytes of keys are */
template <> struct pack<float> {
    enum { N = 4 };
    __device__ static void get(const float *p, float v[4])
    {
        float4 x = __ldcs((const float4 *)p);
        v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
    }
    __device__ static void four(const float *p, float v[4])
    {
        get(p, v);
    }
};
template <> struct pack<__half> {
    enum { N = 8 };
    __device__ static void get(const __half *p, float v[8])
    {
        uint4 x = __ldcs((const uint4 *)p);
        const __half2 *h = (const __half2 *)&x;
        for (int i = 0; i < 4; i++) {
            float2 f = __half22float2(h[i]);
            v[2 * i] = f.x, v[2 * i + 1] = f.y;
        }
    }
    __device__ static void four(const __half *p, float v[4])
    {
        uint2 x = __ldcs((const uint2 *)p);
        const __half2 *h = (const __half2 *)&x;
        for (int i = 0; i < 2; i++) {
            float2 f = __half22float2(h[i]);
            v[2 * i] = f.x, v[2 * i + 1] = f.y;
        }
    }
};

/* G query heads of one KV head. grid: part, KV head x groups of G, row. */
template <class E, int G, bool TIMED>
__global__ void __launch_bounds__(THREADS)
    attend(gem_cuda_kv kv, gem_cuda_rows rows, gem_cuda_queries q, int32_t max_splits,
           float *partial, int64_t partial_ld)
{
    DYNAMIC_SHARED(float, smem, 16);
    constexpr int N = pack<E>::N;
    const int hd = kv.head_dim, group = q.n_heads / kv.n_kv_heads, groups = (group + G - 1) / G;
    const int head = blockIdx.y / groups, h0 = head * group + (blockIdx.y % groups) * G;
    const int n_q = min(G, head * group + group - h0);
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int64_t r = blockIdx.z;
    float *qs = smem;                  /* [G][hd] */
    float *score = qs + G * hd;        /* [64][G] */
    float *top = score + GEM_PAGE * G; /* [G] each */
    float *fade = top + G, *total = fade + G;
    float *sums = top + 4 * G; /* [value threads][G][4], after the last page; 16-aligned */
    dependents_go();
    dependency_wait();
    const int32_t pos = __ldcg(rows.pos + r), seq = __ldcg(rows.seq + r);
    const part p = part_of(kv, pos, (int32_t)blockIdx.x, max_splits);
    if ((int32_t)blockIdx.x >= p.n) return;
    for (int i = tid; i < G * hd; i += THREADS)
        qs[i] = i / hd < n_q ? __ldcg(q.data + r * q.ld + (h0 + i / hd) * q.stride + i % hd) : 0.0f;
    if (tid < G) {
        top[tid] = -INFINITY;
        total[tid] = 0;
    }
    const bool swizzled = page_swizzled(hd, (const E *)NULL);
    /* value threads: hd / 4 share a position, `lots` positions at once */
    const int width = hd / 4, lots = THREADS / width, lot = tid / width, dim = tid % width * 4;
    float o[G][4] = {};
    phases<TIMED> spent;
    spent.begin();
    __syncthreads();

    for (int32_t page = p.first; page <= p.last; page++) {
        const E *keys = page_part<E>(kv, seq, page * GEM_PAGE, head);
        const E *values = keys + GEM_PAGE * hd;
        { /* scores */
            const int slot = warp * 8 + lane / 4, t = lane % 4, at = page * GEM_PAGE + slot;
            const bool seen = at <= pos && (!kv.window || pos - at < kv.window);
            float s[G] = {};
            if (seen)
#pragma unroll 4
                for (int i = t * N; i < hd; i += 4 * N) {
                    float v[N];
                    pack<E>::get(keys + page_at(hd, slot, i, swizzled), v);
#pragma unroll
                    for (int g = 0; g < G; g++)
#pragma unroll
                        for (int j = 0; j < N; j += 4) {
                            float4 x = *(const float4 *)(qs + g * hd + i + j);
                            s[g] = fmaf(v[j], x.x, s[g]);
                            s[g] = fmaf(v[j + 1], x.y, s[g]);
                            s[g] = fmaf(v[j + 2], x.z, s[g]);
                            s[g] = fmaf(v[j + 3], x.w, s[g]);
                        }
                }
#pragma unroll
            for (int g = 0; g < G; g++) {
                s[g] += __shfl_xor_sync(~0u, s[g], 1);
                s[g] += __shfl_xor_sync(~0u, s[g], 2);
                if (t == 0) score[slot * G + g] = seen ? s[g] : -INFINITY;
            }
        }
        __syncthreads();
        spent.end(0);
        for (int g = warp; g < G; g += WARPS) { /* running maximum; a warp a head */
            float a = score[lane * G + g], b = score[(lane + 32) * G + g];
            float m = fmaxf(warp_max(fmaxf(a, b)), top[g]), f = m == -INFINITY ? 0.0f : m;
            a = expf(a - f);
            b = expf(b - f);
            float sum = warp_sum(a + b), old = expf(top[g] - f);
            score[lane * G + g] = a;
            score[(lane + 32) * G + g] = b;
            __syncwarp();
            if (lane == 0) {
                fade[g] = old;
                total[g] = total[g] * old + sum;
                top[g] = m;
            }
        }
        __syncthreads();
        spent.end(1);
        if (lot < lots) {
#pragma unroll
            for (int g = 0; g < G; g++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    o[g][j] *= fade[g];
            const int n = min(GEM_PAGE, pos - page * GEM_PAGE + 1);
#pragma unroll 8
            for (int slot = lot; slot < n; slot += lots) {
                float v[4];
                pack<E>::four(values + page_at(hd, slot, dim, swizzled), v);
#pragma unroll
                for (int g = 0; g < G; g++) {
                    float w = score[slot * G + g];
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        o[g][j] = fmaf(w, v[j], o[g][j]);
                }
            }
        }
        __syncthreads();
        spent.end(2);
    }
    spent.add(q.clocks, tid == 0);
    if (lot < lots)
        for (int g = 0; g < G; g++)
            *(float4 *)(sums + (g * THREADS + tid) * 4) =
                make_float4(o[g][0], o[g][1], o[g][2], o[g][3]);
    __syncthreads();
    for (int i = tid; i < n_q * hd; i += THREADS) {
        int g = i / hd, d = i % hd;
        float sum = 0;
        for (int l = 0; l < lots; l++)
            sum += sums[(g * THREADS + l * width + d / 4) * 4 + d % 4];
        if (max_splits == 1) {
            put(q, r, h0 + g, hd, d, sum / total[g]);
            continue;
        }
        float *out =
            partial + ((r * q.n_heads + h0 + g) * (max_splits + 1) + blockIdx.x) * partial_ld;
        out[d] = sum;
        if (d == 0) {
            out[hd] = top[g];
            out[hd + 1] = total[g];
        }
    }
}

enum { MERGE_THREADS = 512, MERGE_AHEAD = 9 };

/* grid: head, row. Threads take four dims of a share of the parts each; shares are summed in
 * ascending order. */
__global__ void __launch_bounds__(MERGE_THREADS)
    merge(gem_cuda_kv kv, gem_cuda_rows rows, gem_cuda_queries q, int32_t max_splits,
          const float *partial, int64_t partial_ld, bool whole_done)
{
    SHARED(float[GEM_CUDA_MAX_SPLITS + 1], weight);
    SHARED(float4[MERGE_THREADS], sums);
    const int hd = kv.head_dim, quads = hd / 4, shares = MERGE_THREADS / quads;
    const int lane = threadIdx.x % 32, share = threadIdx.x / quads, d = threadIdx.x % quads * 4;
    const int64_t r = blockIdx.y, h = blockIdx.x;
    dependents_go();
    dependency_wait();
    const part p = part_of(kv, __ldcg(rows.pos + r), 0, max_splits);
    if (p.n == 1 && whole_done) return; /* the part's own CTA has finished it */
    const float *in = partial + (r * q.n_heads + h) * (max_splits + 1) * partial_ld;
    constexpr int EACH = (GEM_CUDA_MAX_SPLITS + 32) / 32; /* parts of a lane; each warp does all */
    float top = -INFINITY, total = 0;
    float2 stat[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        stat[i] = make_float2(-INFINITY, 0);
        if (lane + 32 * i < p.n)
            stat[i] = make_float2(__ldcg(in + (lane + 32 * i) * partial_ld + hd),
                                  __ldcg(in + (lane + 32 * i) * partial_ld + hd + 1));
        top = fmaxf(top, stat[i].x);
    }
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float f = expf(stat[i].x - top);
        total = fmaf(f, stat[i].y, total);
        if (threadIdx.x < 32 && lane + 32 * i < p.n) weight[lane + 32 * i] = f;
    }
    total = warp_sum(total);
    __syncthreads();
    float4 sum = make_float4(0, 0, 0, 0);
    if (share < shares) {
        const int to = p.n * (share + 1) / shares;
#pragma unroll 1
        for (int from = p.n * share / shares; from < to; from += MERGE_AHEAD) {
            float4 x[MERGE_AHEAD];
#pragma unroll
            for (int i = 0; i < MERGE_AHEAD; i++)
                if (from + i < to)
                    x[i] = __ldcg((const float4 *)(in + (from + i) * partial_ld + d));
#pragma unroll
            for (int i = 0; i < MERGE_AHEAD; i++) {
                if (from + i >= to) continue;
                const float f = weight[from + i];
                sum.x = fmaf(f, x[i].x, sum.x), sum.y = fmaf(f, x[i].y, sum.y);
                sum.z = fmaf(f, x[i].z, sum.z), sum.w = fmaf(f, x[i].w, sum.w);
            }
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (share > 0) return;
    for (int i = 1; i < shares; i++)
        sum = add4(sum, sums[i * quads + threadIdx.x]);
    put_four(q, r, h, hd, d, sum, 1.0f / total);
}

template <class E, int G>
cudaError_t run(const gem_cuda_stream *s, const gem_cuda_kv *kv, const gem_cuda_rows *rows,
                const gem_cuda_queries *q, int32_t n, int32_t max_splits, float *partial)
{
    int group = q->n_heads / kv->n_kv_heads, groups = (group + G - 1) / G;
    size_t smem =
        sizeof(float) * (size_t)(G * kv->head_dim + GEM_PAGE * G + 4 * G + 4 * THREADS * G);
    dim3 grid((unsigned)(max_splits > 1 ? max_splits + 1 : 1), (unsigned)(kv->n_kv_heads * groups),
              (unsigned)n);
    return launch(s, q->clocks ? attend<E, G, true> : attend<E, G, false>, grid, THREADS, smem, *kv,
                  *rows, *q, max_splits, partial, (int64_t)kv->head_dim + 4);
}

template <class E>
cudaError_t by_group(const gem_cuda_stream *s, const gem_cuda_kv *kv, const gem_cuda_rows *rows,
                     const gem_cuda_queries *q, int32_t n, int32_t max_splits, float *partial)
{
    int group = q->n_heads / kv->n_kv_heads;
    if (group <= 2) return run<E, 2>(s, kv, rows, q, n, max_splits, partial);
    if (group <= 4) return run<E, 4>(s, kv, rows, q, n, max_splits, partial);
    return run<E, 8>(s, kv, rows, q, n, max_splits, partial);
}

} // namespace

cudaError_t gem_cuda_append(const gem_cuda_stream *s, const gem_cuda_qkv *a, const gem_cuda_kv *kv,
                            const gem_cuda_rows *rows, int32_t n)
{
    dim3 grid((unsigned)(a->n_heads + kv->n_kv_heads), (unsigned)n);
    return launch(s, kv->f16 ? append<__half> : append<float>, grid, APPEND_THREADS, 0, *a, *kv,
                  *rows);
}

int gem_cuda_max_splits(int n_kv_heads, int group, bool mma)
{
    int ctas = n_kv_heads * ((group + 7) / 8);
    int n = (mma ? 132 : 264) / ctas; /* one or two CTAs a multiprocessor */
    return n < 2 ? 2 : n > GEM_CUDA_MAX_SPLITS - 1 ? GEM_CUDA_MAX_SPLITS - 1 : n;
}

int32_t gem_cuda_part_keys(const gem_cuda_stream *s, int n_heads, const gem_kv_pool *p, int32_t pos)
{
    const bool mma = gem_cuda_mma_head(s, p->head_dim, p->f16);
    const int32_t splits = gem_cuda_max_splits(p->n_kv_heads, n_heads / p->n_kv_heads, mma);
    return pages_per_split(pos / GEM_PAGE + 1, splits) * GEM_PAGE;
}

size_t gem_cuda_partial_floats(int n_heads, int n_kv_heads, int head_dim)
{
    int splits = gem_cuda_max_splits(n_kv_heads, n_heads / n_kv_heads, false) + 1;
    return (size_t)GEM_CUDA_FEW * (size_t)n_heads * (size_t)splits * ((size_t)head_dim + 4);
}

cudaError_t gem_cuda_attend_split(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                  const gem_cuda_rows *rows, const gem_cuda_queries *q,
                                  const gem_cuda_qkv *raw, int32_t n, bool split, float *partial,
                                  int32_t *turn)
{
    const bool mma = split && gem_cuda_mma_head(s, kv->head_dim, kv->f16);
    const int group = q->n_heads / kv->n_kv_heads;
    int32_t splits = split ? gem_cuda_max_splits(kv->n_kv_heads, group, mma) : 1;
    cudaError_t e;
    if (mma && gem_cuda_mma_merges(kv, q, splits))
        return gem_cuda_attend_mma(s, kv, rows, q, raw, n, splits, partial, turn);
    if (mma)
        e = gem_cuda_attend_mma(s, kv, rows, q, raw, n, splits, partial, NULL);
    else
        e = kv->f16 ? by_group<__half>(s, kv, rows, q, n, splits, partial)
                    : by_group<float>(s, kv, rows, q, n, splits, partial);
    if (e || splits == 1) return e;
    return launch(s, merge, dim3((unsigned)q->n_heads, (unsigned)n), MERGE_THREADS, 0, *kv, *rows,
                  *q, splits, (const float *)partial, (int64_t)kv->head_dim + 4, mma);
}

template <class E, int G> static cudaError_t raise_smem()
{
    const cudaFuncAttribute what = cudaFuncAttributeMaxDynamicSharedMemorySize;
    cudaError_t e = cudaFuncSetAttribute(attend<E, G, false>, what, 65536);
    return e ? e : cudaFuncSetAttribute(attend<E, G, true>, what, 65536);
}

cudaError_t gem_cuda_kernels_init(const gem_cuda_stream *s)
{
    cudaError_t e = gem_cuda_slab_init(s);
    if (!e) e = gem_cuda_tile_init(s);
    if (!e) e = gem_cuda_flash_init(s);
    if (!e) e = gem_cuda_flash128_init(s);
    if (!e) e = gem_cuda_mma_init(s);
    if (!e) e = gem_cuda_recurrent_init(s);
    if (!e) e = gem_cuda_many_init();
    if (!e) e = gem_cuda_wgmma_init(s);
    if (!e) e = raise_smem<float, 8>();
    if (!e) e = raise_smem<__half, 8>();
    return e;
}
