/* linear_blas.h - f16 products by NVIDIA's cuBLASLt, for large tiles of rows. The library (half a
 * gigabyte) is looked for when the backend opens and may be absent; linear_tile.cu then does the
 * work. A shape keeps the algorithm chosen at its first use, so repeats give the same bits. */
#ifndef GEM_CUDA_LINEAR_BLAS_H
#define GEM_CUDA_LINEAR_BLAS_H

#include "backend/cuda/cuda.h"

typedef struct gem_cuda_blas gem_cuda_blas;

enum { GEM_CUDA_BLAS_WORK_BYTES = 32 << 20 };

gem_cuda_blas *gem_cuda_blas_open(void); /* NULL: not on this machine */
void gem_cuda_blas_close(gem_cuda_blas *b);
/* y[r][i] = sum over k of xh[r][k] w[i][k] for r < n; xh and y hold whole tiles of GEM_CUDA_TILE
 * rows. y: f32, or with `half` f16 of 1/16 of that (rows of xh stay below 1,024, so a weight row
 * would have to be 1,023 / sqrt(k) long to leave f16: 14 at k 5,376, 11 at the largest k it is used
 * for). False: no algorithm for this shape, nothing was done.
 * work: GEM_CUDA_BLAS_WORK_BYTES of the device. */
bool gem_cuda_blas_fits(gem_cuda_blas *b, int32_t n, int64_t n_rows, int64_t k, int64_t ldy,
                        bool half);
bool gem_cuda_blas_linear(gem_cuda_blas *b, const gem_cuda_stream *s, const uint16_t *xh,
                          const uint16_t *w, int32_t n, int64_t n_rows, int64_t k, void *y,
                          int64_t ldy, bool half, void *work);

#endif
