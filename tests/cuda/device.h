/* device.h - what the tests and the bench of CUDA kernels share: a stream, device buffers, random
 * rows of weights of every type. A failing CUDA call ends the program with its name. */
#ifndef GEM_TEST_CUDA_DEVICE_H
#define GEM_TEST_CUDA_DEVICE_H

#include "backend/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DO(call)                                                                                   \
    do {                                                                                           \
        cudaError_t do_e = (call);                                                                 \
        if (do_e) {                                                                                \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(do_e));   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t device_rng = 88172645463325252u;

static inline uint32_t any_u32(void)
{
    device_rng ^= device_rng << 13;
    device_rng ^= device_rng >> 7;
    device_rng ^= device_rng << 17;
    return (uint32_t)(device_rng >> 32);
}

static inline float any_float(float lo, float hi)
{
    return lo + (hi - lo) * ((float)(any_u32() >> 8) * 0x1p-24f);
}

/* False: no device here. */
static inline bool device_open(gem_cuda_stream *s)
{
    struct cudaDeviceProp p;
    int n = 0;
    if (cudaGetDeviceCount(&n) || n == 0) return false;
    DO(cudaGetDeviceProperties(&p, 0));
    memset(s, 0, sizeof(*s));
    DO(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    s->n_sms = p.multiProcessorCount;
    s->max_smem = p.sharedMemPerBlockOptin;
    s->clusters = p.major >= 9;
    s->wgmma = p.major == 9 && p.minor == 0;
    DO(gem_cuda_kernels_init(s));
    return true;
}

static inline void *device_take(size_t bytes)
{
    void *p;
    DO(cudaMalloc(&p, bytes + 256));
    DO(cudaMemset(p, 0x7f, bytes + 256)); /* what is not written shows */
    DO(cudaDeviceSynchronize());          /* the kernels' stream does not wait for this one */
    return p;
}

static inline void *device_copy(const void *from, size_t bytes)
{
    void *p = device_take(bytes);
    DO(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    DO(cudaDeviceSynchronize());
    return p;
}

static inline void *host_copy(const void *device, size_t bytes)
{
    void *p = malloc(bytes + 1);
    DO(cudaMemcpy(p, device, bytes, cudaMemcpyDeviceToHost));
    return p;
}

/* Rows of a type: any quants, scales around 0.02 of both signs. */
static inline uint8_t *any_rows(gem_dtype t, int64_t k, int64_t n_rows, size_t *row_bytes)
{
    const gem_dtype_info *info = gem_dtype_get(t);
    if (!gem_dtype_row_bytes(info, (uint64_t)k, row_bytes)) abort();
    size_t all = *row_bytes * (size_t)n_rows;
    uint8_t *rows = malloc(all);
    if (info->block_len == 1) {
        for (int64_t i = 0; i < k * n_rows; i++) {
            float f = any_float(-1, 1);
            uint16_t h = t == GEM_DTYPE_F16 ? gem_f32_to_f16(f) : gem_f32_to_bf16(f);
            if (t == GEM_DTYPE_F32)
                memcpy(rows + 4 * i, &f, 4);
            else
                memcpy(rows + 2 * i, &h, 2);
        }
        return rows;
    }
    for (size_t i = 0; i < all; i++)
        rows[i] = (uint8_t)any_u32();
    for (size_t b = 0; b < all; b += info->block_bytes) {
        bool two = t == GEM_DTYPE_Q4_1 || t == GEM_DTYPE_Q5_1 || t == GEM_DTYPE_Q4_K ||
                   t == GEM_DTYPE_Q5_K;
        for (int i = 0; i < 1 + two; i++) {
            uint16_t h = gem_f32_to_f16(any_float(-0.02f, 0.02f));
            memcpy(rows + b + (t == GEM_DTYPE_Q6_K ? 208 : 2 * i), &h, 2);
        }
    }
    return rows;
}

/* The weight on the device, as rows or as slabs. */
static inline gem_cuda_weight any_weight(const gem_cuda_stream *s, gem_dtype t, const uint8_t *rows,
                                         int64_t k, int64_t n_rows, size_t row_bytes, bool slabs)
{
    gem_cuda_weight w = {.dtype = t, .slabs = slabs, .k = k, .n_rows = n_rows};
    uint8_t *raw = device_copy(rows, row_bytes * (size_t)n_rows);
    w.row_bytes = (int64_t)row_bytes;
    w.data = raw;
    if (!slabs) return w;
    w.bytes = (size_t)((n_rows + 15) / 16 * (k / 256)) * gem_cuda_slab_bytes(t);
    uint8_t *data = device_take(w.bytes);
    DO(gem_cuda_repack(s->stream, t, raw, 0, n_rows, -1, k, data));
    DO(cudaStreamSynchronize(s->stream));
    DO(cudaFree(raw));
    w.data = data;
    return w;
}

#endif
