/* rows.cu - row-wise ops: norms, residual sums, gated activations, rotary angles, the head's end,
 * and the small moves of rows and page tables. Each is bound by the latency of its kernel at one
 * row and by memory at many: bytes = what it reads and writes once. */
#include "backend/cuda/cluster.cuh"

enum { ROW_THREADS = 1024 };

/* Sums run over a thread's strided values, then the warp, then the warps: the order depends on d
 * alone. */
__global__ void __launch_bounds__(ROW_THREADS)
    norm(gem_cuda_view src, const float *w, int64_t d, float eps, float *dst, int64_t ld)
{
    SHARED(float[33], shared);
    dependents_go();
    dependency_wait();
    int64_t r = blockIdx.x;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
        float x = view_at(src, r, i);
        sum = fmaf(x, x, sum);
    }
    float f = rsqrtf(block_sum(sum, shared) / (float)d + eps);
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
        dst[r * ld + i] = view_at(src, r, i) * f * w[i];
}

cudaError_t gem_cuda_norm(const gem_cuda_stream *s, gem_cuda_view src, const float *w, int32_t n,
                          int64_t d, float eps, float *dst, int64_t ld)
{
    return launch(s, norm, dim3((unsigned)n), ROW_THREADS, 0, src, w, d, eps, dst, ld);
}

/* Residual sums: a cluster a row (one CTA where there are none), four values a thread and group. A
 * row has few values, so what counts is latency: little to load for each CTA, two sums over the
 * cluster through each other's shared memory, few registers, so that it can wait beside a product
 * (linear_slab.cu) that still runs. Rows do not meet. */
enum { SUM_THREADS = 256, SUM_WARPS = SUM_THREADS / 32, SUM_CTAS = 8 };

/* The four sums of x over the cluster, in the order of warps and CTAs, for every thread. warps:
 * [SUM_WARPS], ctas: [SUM_CTAS], the first n of them; once a launch. */
__device__ inline float4 cluster_sums(float4 x, float4 *warps, float4 *ctas, uint64_t *bar,
                                      int rank, int n)
{
    const int lane = threadIdx.x % 32, odd = lane & 1, second = lane >> 1 & 1;
    /* neighbours share out the four: z and w are the odd one's, and so on */
    const float2 half = odd ? make_float2(x.z, x.w) : make_float2(x.x, x.y),
                 rest = odd ? make_float2(x.x, x.y) : make_float2(x.z, x.w);
    const float2 two = make_float2(half.x + __shfl_xor_sync(~0u, rest.x, 1),
                                   half.y + __shfl_xor_sync(~0u, rest.y, 1));
    float one = second ? two.y : two.x;
    one += __shfl_xor_sync(~0u, second ? two.x : two.y, 2);
    for (int m = 4; m < 32; m *= 2)
        one += __shfl_xor_sync(~0u, one, m);
    if (lane < 4) ((float *)&warps[threadIdx.x / 32])[2 * odd + second] = one;
    __syncthreads();
    x = warps[0];
#pragma unroll
    for (int i = 1; i < SUM_WARPS; i++)
        x = add4(x, warps[i]);
    if (n == 1) return x;
    if ((int)threadIdx.x < n) give(ctas + rank, bar, (int)threadIdx.x, x);
    gifts_arrived(bar);
    x = ctas[0];
#pragma unroll
    for (int i = 1; i < SUM_CTAS; i++)
        if (i < n) x = add4(x, ctas[i]);
    return x;
}

__device__ inline float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, sum))));
}

/* The largest |a b| of a warp. */
__device__ inline float warp_top(float4 a, float4 b)
{
    const float top =
        fmaxf(fmaxf(fabsf(a.x * b.x), fabsf(a.y * b.y)), fmaxf(fabsf(a.z * b.z), fabsf(a.w * b.w)));
    return warp_max_positive(top);
}

/* PARTS: of src, when it has neither bias nor scale; 0: whatever it has. 64 registers: see
 * linear_slab.cu */
template <int V, int PARTS>
__global__ void __launch_bounds__(SUM_THREADS, V == 1 ? 4 : 1) residual(gem_cuda_sum a)
{
    SHARED(float4[SUM_WARPS], warps);
    SHARED(float4[SUM_CTAS], ctas);
    SHARED(uint64_t, bar);
    SHARED(float[V][SUM_WARPS][2], tops);
    const float4 zero = make_float4(0, 0, 0, 0);
    const int n = (int)gridDim.x, rank = (int)blockIdx.x;
    const int64_t r = blockIdx.y;
    float4 post[V], next[V], x[V], t[V];
    int64_t at[V];
    bool in[V];
    dependents_go();
#pragma unroll
    for (int j = 0; j < V; j++) { /* constants: before the wait */
        at[j] = 4 * ((int64_t)(j * n + rank) * SUM_THREADS + threadIdx.x);
        in[j] = at[j] < a.d;
        post[j] = a.post && in[j] ? *(const float4 *)(a.post + at[j]) : make_float4(1, 1, 1, 1);
        next[j] = a.next && in[j] ? *(const float4 *)(a.next + at[j]) : zero;
    }
    if (threadIdx.x == 0) gifts_expected(&bar, (uint32_t)n * 16);
    cluster_meet(); /* all are there: their shared memory may be written */
    const float inverse_d = 1.0f / (float)a.d;
    float *row = a.x + r * a.ldx;
    const float *part = a.src.data + r * a.src.ld + at[0];
    settle(row, part); /* before the wait */
    dependency_wait();
#pragma unroll
    for (int j = 0; j < V; j++)
        x[j] = in[j] ? __ldcg((const float4 *)(row + at[j])) : zero;
    if (PARTS) {
        float4 p[PARTS ? PARTS : 1];
#pragma unroll
        for (int q = 0; q < PARTS; q++, part += a.src.part_stride)
            p[q] = in[0] ? __ldcg((const float4 *)part) : zero;
        t[0] = p[0];
        float4 rest = p[PARTS / 2];
#pragma unroll
        for (int q = 1; q < PARTS / 2; q++)
            t[0] = add4(t[0], p[q]), rest = add4(rest, p[PARTS / 2 + q]);
        t[0] = add4(t[0], rest);
    } else {
        view_at4<V, V == 1 ? 8 : 2>(a.src, r, at, in, t);
    }
    /* squares of t, of x and of t * post, and x by t * post: both norms follow from them, and the
     * cluster meets once; from the largest x * next and t * post * next of a run, a bound of it */
    const int warp = threadIdx.x / 32;
    float4 sum = zero;
    float f = 1;
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (!in[j]) t[j] = zero;
        sum.x = dot4(t[j], t[j], sum.x);
        t[j].x *= post[j].x, t[j].y *= post[j].y, t[j].z *= post[j].z, t[j].w *= post[j].w;
        sum.y = dot4(x[j], x[j], sum.y);
        sum.z = dot4(x[j], t[j], sum.z);
        sum.w = dot4(t[j], t[j], sum.w);
        if (!a.runs.h) continue;
        const float tops_x = warp_top(x[j], next[j]), tops_t = warp_top(t[j], next[j]);
        if (threadIdx.x % 32 == 0) tops[j][warp][0] = tops_x, tops[j][warp][1] = tops_t;
    }
    sum = cluster_sums(sum, warps, ctas, &bar, rank, n);
    if (a.post) f = rsqrtf(fmaf(sum.x, inverse_d, a.eps));
#pragma unroll
    for (int j = 0; j < V; j++) {
        x[j].x = fmaf(t[j].x, f, x[j].x) * a.out_scale;
        x[j].y = fmaf(t[j].y, f, x[j].y) * a.out_scale;
        x[j].z = fmaf(t[j].z, f, x[j].z) * a.out_scale;
        x[j].w = fmaf(t[j].w, f, x[j].w) * a.out_scale;
        if (in[j]) *(float4 *)(row + at[j]) = x[j];
    }
    if (!a.next) return;
    const float squares = a.out_scale * a.out_scale * fmaf(f, fmaf(f, sum.w, 2 * sum.z), sum.y);
    const float f_post = f;
    f = rsqrtf(fmaf(fmaxf(squares, 0.0f), inverse_d, a.eps));
#pragma unroll
    for (int j = 0; j < V; j++) { /* a run is two warps', so a warp is in or out of it */
        const float4 y = make_float4(x[j].x * f * next[j].x, x[j].y * f * next[j].y,
                                     x[j].z * f * next[j].z, x[j].w * f * next[j].w);
        if (a.dst && in[j]) *(float4 *)(a.dst + r * a.ld + at[j]) = y;
        if (!a.runs.h || !in[j]) continue;
        const float *one = tops[j][warp & ~1], *two = tops[j][warp | 1];
        const float up = f16_scale(fabsf(a.out_scale) * f *
                                   fmaf(f_post, fmaxf(one[1], two[1]), fmaxf(one[0], two[0])));
        const __half2 h[2] = {__floats2half2_rn(y.x * up, y.y * up),
                              __floats2half2_rn(y.z * up, y.w * up)};
        const int64_t value = r * a.runs.width + at[j], run = value / 256;
        *(uint2 *)(a.runs.h + value) = *(uint2 *)h;
        const float2 lo = __half22float2(h[0]), hi = __half22float2(h[1]);
        float sum16 = (lo.x + lo.y) + (hi.x + hi.y);
        sum16 += __shfl_xor_sync(~0u, sum16, 1);
        sum16 += __shfl_xor_sync(~0u, sum16, 2);
        const float sum32 = sum16 + __shfl_xor_sync(~0u, sum16, 4);
        __half *sums = (__half *)a.runs.sums + run * GEM_CUDA_RUN_SUMS;
        const int i = (int)(at[j] % 256);
        if (i % 16 == 0) put_high_low(sums + 16 + i / 16, 16, sum16);
        if (i % 32 == 0) put_high_low(sums + i / 32, 8, sum32);
        if (i == 0) a.runs.scale[run] = inverse(up);
    }
}

cudaError_t gem_cuda_residual(const gem_cuda_stream *s, const gem_cuda_sum *a, int32_t n)
{
    const unsigned ctas = s->clusters ? SUM_CTAS : 1;
    const int64_t groups = (a->d + 4 * SUM_THREADS * ctas - 1) / (4 * SUM_THREADS * ctas);
    const int parts = a->src.bias || a->src.row_scale ? 0 : a->src.n_parts;
    const auto kernel = groups > 6   ? residual<12, 0>
                        : groups > 2 ? residual<6, 0>
                        : groups > 1 ? residual<2, 0>
                        : parts == 8 ? residual<1, 8>
                        : parts == 4 ? residual<1, 4>
                        : parts == 2 ? residual<1, 2>
                                     : residual<1, 0>;
    if (groups > 12 || a->d % 8 || (a->runs.h && a->d % 256))
        return cudaErrorInvalidValue; /* refused at open */
    return launch_clusters(s, kernel, dim3(ctas, (unsigned)n), SUM_THREADS, ctas, 0, *a);
}

__global__ void glu(gem_act act, gem_cuda_view gate, gem_cuda_view up, int64_t d, float *dst,
                    int64_t ld)
{
    dependents_go();
    dependency_wait();
    int64_t r = blockIdx.y, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < d) dst[r * ld + i] = activate(act, view_at(gate, r, i)) * view_at(up, r, i);
}

cudaError_t gem_cuda_glu(const gem_cuda_stream *s, gem_act act, gem_cuda_view gate,
                         gem_cuda_view up, int32_t n, int64_t d, float *dst, int64_t ld)
{
    return launch(s, glu, dim3((unsigned)((d + 255) / 256), (unsigned)n), 256, 0, act, gate, up, d,
                  dst, ld);
}

__global__ void head_finish(gem_cuda_view src, int64_t n, float softcap, float *dst, int64_t ld)
{
    dependents_go();
    dependency_wait();
    int64_t r = blockIdx.y, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = view_at(src, r, i);
    dst[r * ld + i] = softcap > 0 ? softcap * tanhf(x / softcap) : x;
}

cudaError_t gem_cuda_head_finish(const gem_cuda_stream *s, gem_cuda_view src, int32_t n,
                                 int64_t n_vocab, float softcap, float *dst, int64_t ld)
{
    return launch(s, head_finish, dim3((unsigned)((n_vocab + 255) / 256), (unsigned)n), 256, 0, src,
                  n_vocab, softcap, dst, ld);
}

/* In double: the angle of position 131,072 keeps 2^-36 of a turn. */
__global__ void angles(const int32_t *pos, const double *freq, int half, float *cs, float *sn)
{
    dependents_go();
    dependency_wait();
    int64_t r = blockIdx.x;
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        double s, c;
        sincos((double)__ldcg(pos + r) * freq[i], &s, &c);
        cs[r * half + i] = (float)c;
        sn[r * half + i] = (float)s;
    }
}

cudaError_t gem_cuda_angles(const gem_cuda_stream *s, const int32_t *pos, int32_t n,
                            const double *freq, int half, float *cs, float *sn)
{
    return launch(s, angles, dim3((unsigned)n), 64, 0, pos, freq, half, cs, sn);
}

__global__ void scatter(const gem_cuda_update *update, int32_t n, int32_t *table)
{
    dependents_go();
    dependency_wait();
    for (int32_t i = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int32_t)(gridDim.x * blockDim.x))
        table[update[i].at] = update[i].page;
}

cudaError_t gem_cuda_scatter(const gem_cuda_stream *s, const gem_cuda_update *update, int32_t n,
                             int32_t *table)
{
    return launch(s, scatter, dim3((unsigned)((n + 255) / 256)), 256, 0, update, n, table);
}

/* Two passes, since a row may move onto one that is still to be read. */
__global__ void gather(const float *rows, int64_t ld, int64_t width, const int32_t *row_of,
                       float *via, bool back)
{
    dependents_go();
    dependency_wait();
    int64_t w = blockIdx.y, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    if (back)
        ((float *)rows)[w * ld + i] = __ldcg(via + w * width + i);
    else
        via[w * width + i] = __ldcg(rows + (int64_t)__ldcg(row_of + w) * ld + i);
}

cudaError_t gem_cuda_gather(const gem_cuda_stream *s, float *rows, int64_t ld, int64_t width,
                            const int32_t *row_of, int32_t n, float *via)
{
    dim3 grid((unsigned)((width + 255) / 256), (unsigned)n);
    cudaError_t e = launch(s, gather, grid, 256, 0, rows, ld, width, row_of, via, false);
    return e ? e : launch(s, gather, grid, 256, 0, rows, ld, width, row_of, via, true);
}

/* One CTA; row_of ascends and row_of[w] >= w, so a chunk of rows is read before it is written. */
__global__ void gather_ids(int32_t *pos, int32_t *seq, const int32_t *row_of, int32_t n)
{
    dependents_go();
    dependency_wait();
    for (int32_t at = 0; at < n; at += (int32_t)blockDim.x) {
        int32_t w = at + (int32_t)threadIdx.x, p = 0, q = 0;
        if (w < n) p = pos[row_of[w]], q = seq[row_of[w]];
        __syncthreads();
        if (w < n) pos[w] = p, seq[w] = q;
        __syncthreads();
    }
}

cudaError_t gem_cuda_gather_ids(const gem_cuda_stream *s, int32_t *pos, int32_t *seq,
                                const int32_t *row_of, int32_t n)
{
    return launch(s, gather_ids, dim3(1), 1024, 0, pos, seq, row_of, n);
}
