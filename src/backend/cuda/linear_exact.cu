/* linear_exact.cu - products in f32 against exactly dequantised weights, of any type and any width:
 * the oracle's arithmetic on the device (exact mode), and the decode route of what has no slabs.
 * One warp a weight row and up to eight activation rows; lanes take every 32nd group of eight
 * values, and a fixed tree adds them, so a row's bits do not depend on its company. Bound: memory
 * for F16 and BF16; integer arithmetic for the packed types (about half of the read roof is
 * expected). */
#include "backend/cuda/dequant.cuh"

enum { WARPS = 8 };

template <int T, int N>
__global__ void __launch_bounds__(WARPS * 32)
    linear_exact(const uint8_t *w, int64_t row_bytes, int64_t n_rows, int64_t k, const float *x,
                 int64_t ldx, int32_t n, float *y, int64_t ldy)
{
    dependents_go();
    dependency_wait();
    int lane = threadIdx.x % 32;
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int32_t c0 = (int32_t)blockIdx.y * N;
    if (r >= n_rows) return;
    float acc[N] = {};
    for (int64_t o = lane; o < k / 8; o += 32) {
        float v[8];
        octet<T>(w + r * row_bytes, o, v);
#pragma unroll
        for (int c = 0; c < N; c++) {
            if (c0 + c >= n) break;
            const float4 *p = (const float4 *)(x + (int64_t)(c0 + c) * ldx + 8 * o);
            float4 a = __ldcg(p), b = __ldcg(p + 1);
            float t = acc[c];
            t = fmaf(v[0], a.x, t), t = fmaf(v[1], a.y, t), t = fmaf(v[2], a.z, t);
            t = fmaf(v[3], a.w, t), t = fmaf(v[4], b.x, t), t = fmaf(v[5], b.y, t);
            t = fmaf(v[6], b.z, t), acc[c] = fmaf(v[7], b.w, t);
        }
    }
#pragma unroll
    for (int c = 0; c < N; c++) {
        float sum = warp_sum(acc[c]);
        if (lane == 0 && c0 + c < n) y[(int64_t)(c0 + c) * ldy + r] = sum;
    }
}

template <int T>
static cudaError_t run(const gem_cuda_stream *s, const gem_cuda_weight *w, const float *x,
                       int64_t ldx, int32_t n, float *y, int64_t ldy)
{
    dim3 grid((unsigned)((w->n_rows + WARPS - 1) / WARPS), 1);
    if (n == 1)
        return launch(s, linear_exact<T, 1>, grid, WARPS * 32, 0, w->data, w->row_bytes, w->n_rows,
                      w->k, x, ldx, n, y, ldy);
    grid.y = (unsigned)((n + 7) / 8);
    return launch(s, linear_exact<T, 8>, grid, WARPS * 32, 0, w->data, w->row_bytes, w->n_rows,
                  w->k, x, ldx, n, y, ldy);
}

cudaError_t gem_cuda_linear_exact(const gem_cuda_stream *s, const gem_cuda_weight *w,
                                  const float *x, int64_t ldx, int32_t n, float *y, int64_t ldy)
{
    if (w->slabs) return cudaErrorInvalidValue;
    return GEM_CUDA_BY_TYPE(w->dtype, run, s, w, x, ldx, n, y, ldy);
}
