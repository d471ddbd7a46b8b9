/* parts.cuh - how decode attention cuts a sequence into parts that CTAs work on side by side. */
#ifndef GEM_CUDA_PARTS_CUH
#define GEM_CUDA_PARTS_CUH

#include "backend/cuda/device.cuh"

template <class E>
__device__ inline E *page_part(const gem_cuda_kv &kv, int64_t seq, int32_t pos, int head)
{
    int32_t page = __ldg(kv.table + seq * kv.table_stride + pos / GEM_PAGE);
    if (page < 0) return NULL;
    return (E *)kv.pool + ((int64_t)page * kv.n_kv_heads + head) * (2 * GEM_PAGE * kv.head_dim);
}

/* Pages a part holds when `span` pages can be seen: 1..7, then 8..15 times a power of two. */
__host__ __device__ inline int32_t pages_per_split(int32_t span, int32_t max_splits)
{
    int32_t c = (span + max_splits - 1) / max_splits, e = 0;
    while (c > 15) {
        c = (c + 1) / 2;
        e++;
    }
    return c << e;
}

struct part {
    int32_t first, last; /* pages, both included; first > last: none */
    int32_t n;           /* parts of this row */
};

__device__ inline part part_of(const gem_cuda_kv &kv, int32_t pos, int32_t which,
                               int32_t max_splits)
{
    part p;
    int32_t first = kv.window && pos >= kv.window ? (pos - kv.window + 1) / GEM_PAGE : 0;
    int32_t last = pos / GEM_PAGE, span = last + 1;
    if (kv.window) span = min(span, (kv.window + GEM_PAGE - 2) / GEM_PAGE + 1);
    int32_t chunk = max_splits > 1 ? pages_per_split(span, max_splits) : last + 1;
    p.n = last / chunk - first / chunk + 1;
    int32_t at = first / chunk + which;
    p.first = max(first, at * chunk);
    p.last = min(last, at * chunk + chunk - 1);
    return p;
}

__device__ inline void put(const gem_cuda_queries &q, int64_t r, int64_t h, int hd, int d, float x)
{
    if (q.gated) x *= 1.0f / (1.0f + expf(-__ldcg(q.data + r * q.ld + h * q.stride + hd + d)));
    q.dst[r * q.ld_dst + h * hd + d] = x;
}

#endif
