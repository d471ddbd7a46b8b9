/* rows.cu - row-wise ops: norms, residual sums, gated activations, rotary angles, the head's end,
 * and the small moves of rows and page tables. Each is bound by the latency of its kernel at one
 * row and by memory at many: bytes = what it reads and writes once. */
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/sum_row.cuh"

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

/* Residual sums: a cluster a row (one CTA where there are none), which meets through its CTAs'
 * shared memory; few registers, so that it can wait beside a product (linear_slab.cu) that still
 * runs. Rows do not meet. */
struct cluster_meeting {
    float4 *ctas; /* [SUM_CTAS], the first n of them */
    uint64_t *bar;
    int rank, n;

    __device__ void here() const
    {
        __syncthreads();
    }
    __device__ float4 sums(float4 x) const
    {
        if (n == 1) return x;
        if ((int)threadIdx.x < n) give(ctas + rank, bar, (int)threadIdx.x, x);
        gifts_arrived(bar);
        x = ctas[0];
#pragma unroll
        for (int i = 1; i < SUM_CTAS; i++)
            if (i < n) x = add4(x, ctas[i]);
        return x;
    }
};

/* 64 registers: see linear_slab.cu */
template <int V, int PARTS>
__global__ void __launch_bounds__(SUM_THREADS, V == 1 ? 4 : 1) residual(gem_cuda_sum a)
{
    using row_of = sum_row<V, PARTS>;
    SHARED(typename row_of::shared, own);
    SHARED(float4[SUM_CTAS], ctas);
    SHARED(uint64_t, bar);
    const int n = (int)gridDim.x, rank = (int)blockIdx.x;
    const int64_t r = blockIdx.y;
    dependents_go();
    row_of mine(a, rank, n); /* constants: before the wait */
    if (threadIdx.x == 0) gifts_expected(&bar, (uint32_t)n * 16);
    cluster_meet(); /* all are there: their shared memory may be written */
    float *row = a.x + r * a.ldx;
    const float *part = a.src.data + r * a.src.ld + mine.at[0];
    settle(row, part); /* before the wait */
    dependency_wait();
    const cluster_meeting meeting = {ctas, &bar, rank, n};
    mine.finish(a, r, row, part, own, meeting);
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
