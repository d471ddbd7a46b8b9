/* rows.cu - row-wise ops: norms, residual sums, gated activations, rotary angles, the head's end,
 * and the small moves of rows and page tables. Each is bound by the latency of its kernel at one
 * row and by memory at many: bytes = what it reads and writes once. */
#include "backend/cuda/device.cuh"

enum { ROW_THREADS = 1024, RESIDUAL_THREADS = 512 };

/* Sums run over a thread's strided values, then the warp, then the warps: the order depends on d
 * alone. */
__global__ void __launch_bounds__(ROW_THREADS)
    norm(gem_cuda_view src, const float *w, int64_t d, float eps, float *dst, int64_t ld)
{
    __shared__ float shared[33];
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

/* V groups of four values a thread stay in registers (d <= V * 4 * RESIDUAL_THREADS). With t the
 * sublayer's output: the first sum gives its norm, the second the next one's. Few threads with wide
 * loads: what counts at one row is how many loads stand in flight at once. */
template <int V>
__global__ void __launch_bounds__(RESIDUAL_THREADS)
    residual(float *x, int64_t ldx, gem_cuda_view src, const float *post, const float *next,
             int64_t d, float eps, float out_scale, float *dst, int64_t ld)
{
    __shared__ float shared[33];
    const float4 one = make_float4(1, 1, 1, 1), zero = make_float4(0, 0, 0, 0);
    float4 t[V], v[V], pw[V], nw[V];
    int64_t at[V];
    bool in[V];
    dependents_go();
    const int64_t r = blockIdx.x;
#pragma unroll
    for (int j = 0; j < V; j++) { /* constants: before the wait */
        at[j] = 4 * (threadIdx.x + (int64_t)j * RESIDUAL_THREADS);
        in[j] = at[j] < d;
        pw[j] = post && in[j] ? *(const float4 *)(post + at[j]) : one;
        nw[j] = next && in[j] ? *(const float4 *)(next + at[j]) : one;
    }
    dependency_wait();
#pragma unroll
    for (int j = 0; j < V; j++)
        v[j] = in[j] ? __ldcg((const float4 *)(x + r * ldx + at[j])) : zero;
    view_at4<V>(src, r, at, in, t);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < V; j++)
        if (in[j])
            sum = fmaf(t[j].x, t[j].x,
                       fmaf(t[j].y, t[j].y, fmaf(t[j].z, t[j].z, fmaf(t[j].w, t[j].w, sum))));
    float f = post ? rsqrtf(block_sum(sum, shared) / (float)d + eps) : 1.0f;
    sum = 0;
#pragma unroll
    for (int j = 0; j < V; j++) {
        v[j].x = (v[j].x + t[j].x * f * pw[j].x) * out_scale;
        v[j].y = (v[j].y + t[j].y * f * pw[j].y) * out_scale;
        v[j].z = (v[j].z + t[j].z * f * pw[j].z) * out_scale;
        v[j].w = (v[j].w + t[j].w * f * pw[j].w) * out_scale;
        if (!in[j]) continue;
        *(float4 *)(x + r * ldx + at[j]) = v[j];
        sum = fmaf(v[j].x, v[j].x,
                   fmaf(v[j].y, v[j].y, fmaf(v[j].z, v[j].z, fmaf(v[j].w, v[j].w, sum))));
    }
    if (!next) return;
    f = rsqrtf(block_sum(sum, shared) / (float)d + eps);
#pragma unroll
    for (int j = 0; j < V; j++)
        if (in[j])
            *(float4 *)(dst + r * ld + at[j]) =
                make_float4(v[j].x * f * nw[j].x, v[j].y * f * nw[j].y, v[j].z * f * nw[j].z,
                            v[j].w * f * nw[j].w);
}

cudaError_t gem_cuda_residual(const gem_cuda_stream *s, float *x, int64_t ldx, gem_cuda_view src,
                              const float *post, const float *next, int32_t n, int64_t d, float eps,
                              float out_scale, float *dst, int64_t ld)
{
    const auto kernel = d <= 4 * RESIDUAL_THREADS    ? residual<1>
                        : d <= 12 * RESIDUAL_THREADS ? residual<3>
                                                     : residual<6>;
    if (d > 24 * RESIDUAL_THREADS) return cudaErrorInvalidValue; /* refused at open */
    return launch(s, kernel, dim3((unsigned)n), RESIDUAL_THREADS, 0, x, ldx, src, post, next, d,
                  eps, out_scale, dst, ld);
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
