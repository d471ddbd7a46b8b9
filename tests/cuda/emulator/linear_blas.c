/* linear_blas.c - of the emulator: linear_blas.h by loops of the host. */
#include "backend/cuda/linear_blas.h"

#include "quant/quant.h"

#include <stdlib.h>

struct gem_cuda_blas {
    int unused;
};

gem_cuda_blas *gem_cuda_blas_open(void)
{
    return calloc(1, sizeof(gem_cuda_blas));
}

void gem_cuda_blas_close(gem_cuda_blas *b)
{
    free(b);
}

bool gem_cuda_blas_fits(gem_cuda_blas *b, int32_t n, int64_t n_rows, int64_t k, int64_t ldy,
                        bool half)
{
    (void)b, (void)n, (void)n_rows, (void)ldy, (void)half;
    return k % 16 == 0;
}

/* k: a multiple of 16, as cuBLASLt's shapes here are */
static float dot(const float *x, const float *y, int64_t k)
{
    float sum[16] = {0};
    for (int64_t i = 0; i < k; i += 16)
        for (int j = 0; j < 16; j++)
            sum[j] += x[i + j] * y[i + j];
    for (int j = 1; j < 16; j++)
        sum[0] += sum[j];
    return sum[0];
}

bool gem_cuda_blas_linear(gem_cuda_blas *b, const gem_cuda_stream *s, const uint16_t *xh,
                          const uint16_t *w, int32_t n, int64_t n_rows, int64_t k, void *y,
                          int64_t ldy, bool half, void *work)
{
    const int64_t padded = (int64_t)gem_round_up((uint64_t)n, GEM_CUDA_TILE);
    float *row = malloc((size_t)k * sizeof(float)),
          *weights = malloc((size_t)(n_rows * k) * sizeof(float));
    (void)b, (void)s, (void)work;
    if (!row || !weights || k % 16) {
        free(row), free(weights);
        return false;
    }
    for (int64_t i = 0; i < n_rows * k; i++)
        weights[i] = gem_f16_to_f32(w[i]);
    for (int64_t r = 0; r < padded; r++) {
        for (int64_t i = 0; i < k; i++)
            row[i] = gem_f16_to_f32(xh[r * k + i]);
        for (int64_t j = 0; j < n_rows; j++) {
            const float sum =
                r < n ? dot(row, weights + j * k, k) : 0; /* rows behind n are zeros */
            if (half)
                ((uint16_t *)y)[r * ldy + j] = gem_f32_to_f16(sum / GEM_CUDA_HALF_SCALE);
            else
                ((float *)y)[r * ldy + j] = sum;
        }
    }
    free(row), free(weights);
    return true;
}
