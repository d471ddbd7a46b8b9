/* cuda_logits.c - what of a run's logits comes to the host: all of a row where they are asked for,
 * with the run or later, else its largest, which top.cu has put there. */
#include "backend/cuda/cuda_backend.h"

#include <math.h>

static float *host_row(const gem_backend *be, int32_t k)
{
    return be->host_logits + (size_t)k * (size_t)be->ld_logits;
}

/* Logits of the k-th wanted row, which stayed on the device. */
static cudaError_t bring(const gem_backend *be, int32_t k)
{
    return cudaMemcpyAsync(host_row(be, k), be->logits + (size_t)k * (size_t)be->ld_logits,
                           (size_t)be->plan->n_vocab * sizeof(float), cudaMemcpyDeviceToHost,
                           be->s.stream);
}

static const float *finished(const gem_backend *be, int32_t k)
{
    const gem_plan *plan = be->plan;
    float *row = host_row(be, k);
    for (size_t i = 0; i < plan->n_suppress; i++)
        if (plan->suppress[i] >= 0 && plan->suppress[i] < plan->n_vocab)
            row[plan->suppress[i]] = -INFINITY;
    return row;
}

cudaError_t gem_cuda_bring_wanted(const gem_backend *be, const gem_batch *b)
{
    cudaError_t e = cudaSuccess;
    for (int32_t r = 0, k = 0; r < b->n_rows && !e; r++) {
        if (b->want[r] & GEM_WANT_LOGITS) e = bring(be, k);
        k += b->want[r] != 0;
    }
    return e;
}

void gem_cuda_hand_out(const gem_backend *be, const gem_batch *b, const float **logits)
{
    for (int32_t r = 0, k = 0; r < b->n_rows; r++) {
        if (!b->want[r]) continue;
        logits[k] = b->want[r] & GEM_WANT_LOGITS ? finished(be, k) : NULL;
        if (b->want[r] & GEM_WANT_TOP) b->top[k] = be->host_top + k;
        k++;
    }
}

gem_status gem_cuda_logits(gem_backend *be, int32_t k, const float **logits, gem_error *err)
{
    if (k < 0 || k >= be->n_kept)
        return gem_fail(err, GEM_E_ARG, "cuda: logits of row %d; the last run kept %d", k,
                        be->n_kept);
    cudaError_t e = cudaSetDevice(be->device_id);
    if (!e) e = bring(be, k);
    if (!e) e = cudaStreamSynchronize(be->s.stream);
    if (e) return gem_cuda_fail(err, e, "bringing logits");
    *logits = finished(be, k);
    return GEM_OK;
}
