/* top.cu - the GEM_TOP largest logits of a row (gem_top), so that the others need not leave the
 * device. Two kernels. The first reads every logit once, from L2 where the head has just left them,
 * and keeps the largest of each group of 64: that is its bound. The second, a CTA a row, finds the
 * GEM_TOP groups whose largest are largest: no other group can hold one of the row's GEM_TOP, since
 * each of these holds a larger one. Then it does the same to their values.
 *
 * What is compared are whole keys (value, then lower id), no two alike: a row has one answer,
 * however threads come about it, and ties need no care. */
#include "backend/cuda/device.cuh"

namespace
{

enum {
    THREADS = 256,
    EACH = 16, /* keys a thread holds */
    LIST = EACH * THREADS,
    COLUMNS = THREADS / 2,
    GROUP_SHIFT = 6, /* a group's 64 logits, of vocabularies up to LIST * 64 */
    AHEAD = 4,       /* groups that half a warp reads at once */
    CTA_GROUPS = THREADS / 16 * AHEAD
};

/* Smallest shift that makes at most LIST groups of n_vocab logits. */
int group_shift(int64_t n_vocab)
{
    int shift = GROUP_SHIFT;
    while ((n_vocab - 1) >> shift >= LIST)
        shift++;
    return shift;
}

/* Ordered as the values are, both zeros alike; what is no number stands above infinity. */
__device__ inline uint32_t order_of(float x)
{
    if (x != x) return ~0u;
    const uint32_t b = __float_as_uint(x + 0.0f);
    return b >> 31 ? ~b : b | 0x80000000u;
}
__device__ inline float value_of(uint32_t order)
{
    return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}
constexpr uint32_t ORDER_OF_INFINITY = 0xff800000u;

/* The larger value, and of equal ones the lower id, has the larger key; none is 0. */
__device__ inline uint64_t key_of(uint32_t order, int32_t id)
{
    return (uint64_t)order << 32 | (uint32_t)~id;
}
__device__ inline int32_t id_of(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}

/* ---- the largest of each group ---- */

/* most[row][group]: order_of the largest. Logits of the ids in `never` become -infinity first. */
__global__ void __launch_bounds__(THREADS)
    group_tops(float *logits, int64_t ld, int32_t n, int shift, const int32_t *never,
               int32_t n_never, uint32_t *most)
{
    dependents_go();
    dependency_wait();
    const int tid = (int)threadIdx.x;
    const int32_t n_groups = ((n - 1) >> shift) + 1, first = (int32_t)blockIdx.x * CTA_GROUPS;
    float *row = logits + (int64_t)blockIdx.y * ld;
    for (int32_t i = tid; i < n_never; i += THREADS) {
        const int32_t id = never[i];
        if (id >= 0 && id < n && id >> shift >= first && id >> shift < first + CTA_GROUPS)
            row[id] = -INFINITY;
    }
    if (n_never) __syncthreads();
    uint32_t best[AHEAD] = {};
    for (int32_t part = 0; part < 1 << shift; part += 1 << GROUP_SHIFT) {
        float4 x[AHEAD];
        int64_t at[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) { /* rows are padded to whole float4 */
            at[j] = ((int64_t)(first + tid / 16 * AHEAD + j) << shift) + part + tid % 16 * 4;
            x[j] = at[j] < n ? __ldcg((const float4 *)(row + at[j])) : float4{};
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const float v[4] = {x[j].x, x[j].y, x[j].z, x[j].w};
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (at[j] + c < n) best[j] = max(best[j], order_of(v[c]));
        }
    }
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        for (int m = 8; m; m >>= 1)
            best[j] = max(best[j], __shfl_xor_sync(~0u, best[j], m));
        const int32_t g = first + tid / 16 * AHEAD + j;
        if (tid % 16 == 0 && g < n_groups) most[(int64_t)blockIdx.y * n_groups + g] = best[j];
    }
}

/* ---- the largest of a list ---- */

typedef struct list {
    uint64_t key[LIST];
    uint64_t top[COLUMNS]; /* largest of each column; in the end of all, in order */
    uint64_t bound;
    int32_t n;
    int32_t start[GEM_TOP]; /* of the groups: their first ids */
} list;

/* Append own[j] for the bits j of `in`, in no particular order. All threads. */
__device__ inline void append(list &l, const uint64_t own[EACH], uint32_t in)
{
    const int lane = (int)threadIdx.x % 32, n = __popc(in);
    int upto = n, at = 0; /* of the lanes up to this one */
    for (int d = 1; d < 32; d *= 2) {
        const int before = __shfl_sync(~0u, upto, (lane - d) & 31);
        if (lane >= d) upto += before;
    }
    if (lane == 31 && upto > 0) at = atomicAdd(&l.n, upto);
    at = __shfl_sync(~0u, at, 31) + upto - n;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (in >> j & 1) l.key[at++] = own[j];
}

/* How many of keys[0 .. n) are above keys[threadIdx.x / 2]: two threads count for each. */
__device__ inline int rank_among(const uint64_t *keys, int n)
{
    const uint64_t own = keys[threadIdx.x / 2];
    int above = 0;
    for (int i = (int)threadIdx.x % 2; i < n; i += 2)
        above += keys[i] > own;
    return above + __shfl_xor_sync(~0u, above, 1);
}

/* The largest keys of the list, GEM_TOP of them or all, come into l.top in order; the list is
 * spent. All threads; returns how many they are.
 *
 * While the list is long: the GEM_TOP-th largest of the columns' maxima is a lower bound, and only
 * GEM_TOP columns hold keys that reach it, so half go at least, nearly all as a rule. */
__device__ int take_top(list &l)
{
    const int tid = (int)threadIdx.x;
    __syncthreads(); /* the list is complete */
    int n = l.n;
    while (n > COLUMNS) {
        uint64_t own[EACH], best = 0;
        uint32_t in = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = tid + j * THREADS;
            own[j] = i < n ? l.key[i] : 0;
            best = max(best, own[j]);
        }
        best = max(best, __shfl_xor_sync(~0u, best, 1));
        if (tid % 2 == 0) l.top[tid / 2] = best;
        __syncthreads();
        if (tid == 0) l.n = 0;
        const int rank = rank_among(l.top, COLUMNS);
        if (tid % 2 == 0 && rank == GEM_TOP - 1) l.bound = l.top[tid / 2];
        __syncthreads();
        const uint64_t bound = l.bound;
#pragma unroll
        for (int j = 0; j < EACH; j++)
            in |= (uint32_t)(own[j] >= bound) << j;
        append(l, own, in);
        __syncthreads();
        n = l.n;
    }
    const int rank = rank_among(l.key, n);
    if (tid % 2 == 0 && tid / 2 < n && rank < GEM_TOP) l.top[rank] = l.key[tid / 2];
    __syncthreads();
    return min(n, (int)GEM_TOP);
}

__global__ void __launch_bounds__(THREADS) row_top(const float *logits, int64_t ld, int32_t n,
                                                   int shift, const uint32_t *most, gem_top *out)
{
    SHARED(list, l);
    dependents_go();
    dependency_wait();
    const int tid = (int)threadIdx.x;
    const int32_t n_groups = ((n - 1) >> shift) + 1;
    const float *row = logits + (int64_t)blockIdx.x * ld;
    uint64_t own[EACH];
    uint32_t in = 0;
    if (tid == 0) l.n = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int32_t g = tid + j * THREADS;
        const bool is = g < n_groups;
        own[j] = key_of(is ? __ldcg(most + (int64_t)blockIdx.x * n_groups + g) : 0, g);
        in |= (uint32_t)is << j;
    }
    append(l, own, in);
    const int n_taken = take_top(l);
    gem_top *to = out + blockIdx.x;
    if ((uint32_t)(l.top[0] >> 32) >= ORDER_OF_INFINITY) {
        if (tid == 0) to->n = 0;
        return;
    }
    const uint32_t least = n_taken == GEM_TOP ? (uint32_t)(l.top[GEM_TOP - 1] >> 32) : 0;
    if (tid < n_taken) l.start[tid] = id_of(l.top[tid]) << shift;
    __syncthreads();
    /* values of these groups, as many at a time as the list takes beside the best so far */
    const int32_t all = n_taken << shift;
    int best = 0;
    for (int32_t from = 0, take; from < all; from += take) {
        take = min(all - from, LIST - best);
        in = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int32_t e = tid + j * THREADS, i = from + e;
            own[j] = 0;
            if (e >= take) continue;
            const int32_t id = l.start[i >> shift] + (i & ((1 << shift) - 1));
            if (id >= n) continue;
            const uint32_t order = order_of(__ldcg(row + id));
            own[j] = key_of(order, id);
            in |= (uint32_t)(order >= least) << j;
        }
        if (tid < best) l.key[tid] = l.top[tid];
        if (tid == 0) l.n = best;
        __syncthreads();
        append(l, own, in);
        best = take_top(l);
    }
    if (tid < best) {
        to->id[tid] = id_of(l.top[tid]);
        to->logit[tid] = value_of((uint32_t)(l.top[tid] >> 32));
    }
    if (tid == 0) to->n = best;
}

} // namespace

int32_t gem_cuda_top_groups(int64_t n_vocab)
{
    return (int32_t)(((n_vocab - 1) >> group_shift(n_vocab)) + 1);
}

cudaError_t gem_cuda_top(const gem_cuda_stream *s, float *logits, int64_t ld, int32_t n,
                         int64_t n_vocab, const int32_t *never, int32_t n_never, uint32_t *groups,
                         gem_top *out)
{
    const int shift = group_shift(n_vocab);
    const unsigned ctas = (unsigned)((gem_cuda_top_groups(n_vocab) + CTA_GROUPS - 1) / CTA_GROUPS);
    if (ld % 4 || n_vocab > 1 << 24) return cudaErrorInvalidValue;
    cudaError_t e = launch(s, group_tops, dim3(ctas, (unsigned)n), THREADS, 0, logits, ld,
                           (int32_t)n_vocab, shift, never, n_never, groups);
    return e ? e
             : launch(s, row_top, dim3((unsigned)n), THREADS, 0, logits, ld, (int32_t)n_vocab,
                      shift, groups, out);
}
