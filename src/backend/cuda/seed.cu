/* seed.cu - a KV memory full of made-up values, those that the CPU backend makes of the same seed
 * (backend/seed.h): there a page holds 16 positions of a key dim, then the next dim
 * (cpu/kernels.h), here the order is page_at's. */
#include "backend/cuda/device.cuh"
#include "backend/seed.h"

namespace
{

enum { THREADS = 256, CTAS = 1024 };

template <class E>
__global__ void seed(E *pool, int64_t n_pages, int n_kv_heads, int hd, int which,
                     const float *pattern)
{
    const int64_t half = (int64_t)GEM_PAGE * hd, per_page = 2 * half * n_kv_heads;
    const bool swizzled = page_swizzled(hd, (const E *)NULL);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n_pages * per_page;
         i += (int64_t)CTAS * THREADS) {
        const int64_t page = i / per_page, part = i % per_page / half; /* K, V of head 0, 1, ... */
        const int slot = (int)(i % half / hd), d = (int)(i % hd);
        const int64_t in_part =
            part % 2 ? (int64_t)(d / 16 * 16) * GEM_PAGE + slot * 16 + d % 16 /* gem_page_v_at */
                     : (int64_t)(slot / 16) * hd * 16 + d * 16 + slot % 16;   /* gem_page_k_at */
        const int64_t at =
            (page * 7919 + which * 104729) % GEM_SEED_PATTERN + part * half + in_part;
        pool[page * per_page + part * half + page_at(hd, slot, d, swizzled)] =
            (E)pattern[at % GEM_SEED_PATTERN];
    }
}

} // namespace

cudaError_t gem_cuda_seed(const gem_cuda_stream *s, uint8_t *pool, const gem_kv_pool *p, int which,
                          const float *pattern)
{
    if (p->f16)
        return launch(s, seed<__half>, CTAS, THREADS, 0, (__half *)pool, (int64_t)p->n_pages,
                      p->n_kv_heads, p->head_dim, which, pattern);
    return launch(s, seed<float>, CTAS, THREADS, 0, (float *)pool, (int64_t)p->n_pages,
                  p->n_kv_heads, p->head_dim, which, pattern);
}
