/* linear_tile.cu - products of many rows: weights expanded to f16 (repack.cu), activations rounded
 * to f16 under a power-of-two scale a row, f32 accumulation by m16n8k16.
 *
 * A CTA computes 128 rows x 128 features, 64 of k a step, three steps in flight by cp.async; eight
 * warps of 64 x 32. The order along k is fixed and rows do not meet, so a row's bits depend on
 * nothing but the row. Bound: the matrix rate of mma.sync, about 60% of what wgmma reaches on
 * Hopper; it is the portable route and the oracle of faster ones. */
#include "backend/cuda/device.cuh"

namespace
{

enum { BM = 128, BN = 128, BK = 64, STAGES = 3, THREADS = 256, STAGE_BYTES = (BM + BN) * BK * 2 };

/* Byte of 16-byte chunk c (8 of them) of row r: a column of rows falls into all banks. */
__device__ inline uint32_t chunk_at(int r, int c)
{
    return (uint32_t)(r * 128 + ((c ^ (r & 7)) << 4));
}

__global__ void __launch_bounds__(THREADS, 2)
    linear_tile(const uint16_t *x, const uint16_t *w, int32_t n, int64_t n_rows, int64_t k,
                float *y, int64_t ldy)
{
    DYNAMIC_SHARED(uint8_t, smem, 1024);
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, wm = warp / 4, wn = warp % 4;
    const int64_t m0 = (int64_t)blockIdx.x * BM, n0 = (int64_t)blockIdx.y * BN;
    const uint32_t base = shared_at(smem);
    const int steps = (int)((k + BK - 1) / BK);
    dependents_go();
    dependency_wait();

    const auto fetch = [&](int step) {
        uint32_t at = base + (uint32_t)(step % STAGES) * STAGE_BYTES;
        int64_t k0 = (int64_t)step * BK;
#pragma unroll
        for (int i = tid; i < BM * 8; i += THREADS) {
            int r = i / 8, c = i % 8;
            bool in = k0 + 8 * c < k;
            copy16(at + chunk_at(r, c), x + (m0 + r) * k + (in ? k0 + 8 * c : 0), in);
        }
#pragma unroll
        for (int i = tid; i < BN * 8; i += THREADS) {
            int r = i / 8, c = i % 8;
            bool in = k0 + 8 * c < k && n0 + r < n_rows;
            copy16(at + BM * 128 + chunk_at(r, c), w + (in ? (n0 + r) * k + k0 + 8 * c : 0), in);
        }
    };

    float acc[4][4][4] = {};
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < steps) fetch(i);
        copy_commit();
    }
    for (int step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
        copy_commit();
        const uint32_t a_at = base + (uint32_t)(step % STAGES) * STAGE_BYTES,
                       b_at = a_at + BM * 128;
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            uint32_t a[4][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                ldmatrix4(a[i], a_at + chunk_at(wm * 64 + i * 16 + lane % 16, 2 * kk + lane / 16));
#pragma unroll
            for (int j = 0; j < 2; j++)
                ldmatrix4(b[j], b_at + chunk_at(wn * 32 + j * 16 + lane / 16 * 8 + lane % 8,
                                                2 * kk + lane / 8 % 2));
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma16816(acc[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
        }
    }
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int u = 0; u < 2; u++) {
                int64_t r = m0 + wm * 64 + i * 16 + g + 8 * u, c = n0 + wn * 32 + j * 8 + 2 * t;
                if (r >= n) continue;
                if (c < n_rows) y[r * ldy + c] = acc[i][j][2 * u];
                if (c + 1 < n_rows) y[r * ldy + c + 1] = acc[i][j][2 * u + 1];
            }
}

__global__ void to_f16(const float *x, int64_t ldx, int32_t n, int64_t k, uint16_t *xh,
                       float *scale)
{
    SHARED(float[33], shared);
    dependents_go();
    dependency_wait();
    const int64_t r = blockIdx.x;
    uint2 *out = (uint2 *)(xh + r * k);
    if (r >= n) {
        for (int64_t i = threadIdx.x; i < k / 4; i += blockDim.x)
            out[i] = make_uint2(0, 0);
        return;
    }
    const float4 *in = (const float4 *)(x + r * ldx);
    float top = 0;
    for (int64_t i = threadIdx.x; i < k / 4; i += blockDim.x) {
        float4 v = __ldcg(in + i);
        top = fmaxf(fmaxf(fmaxf(top, fabsf(v.x)), fmaxf(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
    }
    float f = f16_scale(block_max(top, shared));
    for (int64_t i = threadIdx.x; i < k / 4; i += blockDim.x) {
        float4 v = __ldcg(in + i);
        __half2 a = __floats2half2_rn(v.x * f, v.y * f), b = __floats2half2_rn(v.z * f, v.w * f);
        out[i] = make_uint2(*(uint32_t *)&a, *(uint32_t *)&b);
    }
    if (threadIdx.x == 0) scale[r] = 1.0f / f;
}

} // namespace

cudaError_t gem_cuda_to_f16(const gem_cuda_stream *s, const float *x, int64_t ldx, int32_t n,
                            int32_t n_padded, int64_t k, uint16_t *xh, float *scale)
{
    return launch(s, to_f16, dim3((unsigned)n_padded), 256, 0, x, ldx, n, k, xh, scale);
}

cudaError_t gem_cuda_linear_tile(const gem_cuda_stream *s, const uint16_t *xh, const uint16_t *w,
                                 int32_t n, int64_t n_rows, int64_t k, float *y, int64_t ldy)
{
    dim3 grid((unsigned)((n + BM - 1) / BM), (unsigned)((n_rows + BN - 1) / BN));
    return launch(s, linear_tile, grid, THREADS, STAGES * STAGE_BYTES, xh, w, n, n_rows, k, y, ldy);
}

cudaError_t gem_cuda_tile_init(const gem_cuda_stream *s)
{
    (void)s;
    return cudaFuncSetAttribute(linear_tile, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                STAGES * STAGE_BYTES);
}
