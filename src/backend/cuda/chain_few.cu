/* chain_few.cu - products and residual sums that follow each other, for one row, as one kernel: in
 * a layer of a transformer all that lies between one attention and the next.
 *
 * Idea. A CTA a multiprocessor stays from the first product to the last, and a warp's ring of slabs
 * (linear_slab.cu) runs on from product to product: weights are constants, so while a CTA waits for
 * what others compute, its next weights come in, as many as its shared memory holds. CTAs tell each
 * other that they are done by counters in device memory; a sum is the work of eight of them, which
 * wait for all, exchange four numbers by words that carry their own mark, and tell all.
 *
 * The work of each product, and the order of all sums, is that of linear_slab.cu and of rows.cu:
 * equal bits. Counters only grow: by one a CTA and run, `epoch` being the number of the run, so
 * that nobody has to clear them. Every CTA must be resident: there are no more than
 * multiprocessors, and a kernel ahead or behind never waits for this one to begin. Bound: memory.
 * Hopper (bulk copies). */
#include "backend/cuda/slab_line.cuh"
#include "backend/cuda/sum_row.cuh"

namespace
{

enum { CHAIN = GEM_CUDA_CHAIN };
#ifndef GEM_CUDA_RING
#define GEM_CUDA_RING 5
#endif

struct args {
    int32_t n, stages;
    layout at;
    product step[CHAIN];
    gem_cuda_sum sum[CHAIN]; /* behind step i, when sums[i] */
    bool sums[CHAIN];
    gem_cuda_sync *sync;
    const int32_t *epoch;
};

/* By one thread: `count` has come to `n`, and what was written before is seen. */
__device__ inline void await_count(const int32_t *count, uint32_t n)
{
    while ((int32_t)((uint32_t)load_acquire(count) - n) < 0) {
    }
}

/* The CTAs of a sum exchange through words of device memory. */
struct grid_meeting {
    uint64_t *words; /* [SUM_CTAS][4]: a number, and above it the epoch */
    float4 *ctas;    /* shared */
    int rank;
    uint32_t epoch;

    __device__ void here() const
    {
        bar_sync(1, SUM_THREADS);
    }
    __device__ float4 sums(float4 x) const
    {
        const int i = (int)threadIdx.x;
        if (i < 4) {
            const float own = i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
            store_relaxed(words + 4 * rank + i, (uint64_t)epoch << 32 | __float_as_uint(own));
        }
        if (i < 4 * SUM_CTAS) {
            uint64_t word = load_relaxed(words + i);
            while ((uint32_t)(word >> 32) != epoch)
                word = load_relaxed(words + i);
            ((float *)ctas)[i] = __uint_as_float((uint32_t)word);
        }
        here();
        x = ctas[0];
#pragma unroll
        for (int c = 1; c < SUM_CTAS; c++)
            x = add4(x, ctas[c]);
        return x;
    }
};

/* What a warp fetches: its runs of all products, one behind the other. */
template <int T> struct feed {
    int step = -1;
    int32_t tile = 0, ks = 0, len = 0, left = 0, end = 0; /* end: of the tiles of this output */
    const uint8_t *next = NULL;

    __device__ __forceinline__ void seek(const args &a, int32_t slab0)
    {
        const product &w = a.step[step];
        const int2 of = out_of(w, tile);
        next = w.out[of.x].w + ((int64_t)(tile - of.y) * w.k_slabs + slab0 + ks) * slab_bytes(T);
        end = w.out[of.x].tile_end;
    }
    /* The next product in which this warp has work. */
    __device__ __forceinline__ void begin(const args &a)
    {
#pragma unroll 1
        while (left == 0 && ++step < a.n) {
            const warp_line line(a.step[step]);
            len = line.mine.len;
            left = line.to - line.from;
            tile = line.from / len;
            ks = line.from - tile * len;
            if (left > 0) seek(a, line.mine.slab0);
        }
    }
    __device__ __forceinline__ void advance(const args &a)
    {
        next += slab_bytes(T);
        if (--left == 0) return begin(a);
        if (++ks < len) return;
        const product &w = a.step[step];
        ks = 0;
        next += (w.k_slabs - len) * slab_bytes(T);
        if (++tile == end)
            seek(a, w.k_slabs * ((int)blockIdx.x & ((1 << w.log_slices) - 1)) >> w.log_slices);
    }
};

template <int T>
__global__ void __launch_bounds__(THREADS, 1) chain_few(const __grid_constant__ args a)
{
#if __CUDA_ARCH__ >= 900
    using sum_of = sum_row<1, 0>;
    DYNAMIC_SHARED(uint8_t, smem, 128);
    SHARED(sum_of::shared, sums);
    SHARED(float4[SUM_CTAS], ctas);
    constexpr int bytes = slab_bytes(T);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int cta = (int)blockIdx.x, n_ctas = (int)gridDim.x;
    uint8_t *ring = smem + (size_t)warp * (size_t)(a.stages * bytes);
    const pieces_of shared = {(float *)(smem + a.at.red), (job *)(smem + a.at.jobs)};
    const uint32_t bar = shared_at(smem + a.at.bars) + 8 * (uint32_t)(warp * a.stages);
    const uint32_t slots = shared_at(ring);
    acts s = {};
    s.rows = smem + a.at.acts;
    s.sums = smem + a.at.sums;
    s.scale = (float *)(smem + a.at.scale);

    dependents_go();
    const uint64_t policy = evict_first();
    if (lane == 0)
#pragma unroll 1
        for (int i = 0; i < a.stages; i++)
            barrier_init(bar + 8 * i);
    barriers_visible();
    __syncwarp();
    feed<T> to_come;
    to_come.begin(a);
#pragma unroll 1
    for (int i = 0; i < a.stages && to_come.left > 0; i++) {
        if (lane == 0) fetch(slots + i * bytes, to_come.next, bytes, bar + 8 * i, policy);
        to_come.advance(a);
    }
    const uint32_t epoch = (uint32_t)__ldcg(a.epoch); /* uploaded before the first kernel */
    const int each = n_ctas / SUM_CTAS, rank = cta / each;
    const bool sums_rows = rank < SUM_CTAS && cta == rank * each;
    dependency_wait();

    int stage = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int p = 0; p < a.n; p++) {
        const product &w = a.step[p];
        const warp_line line(w);
        plan_jobs<1>(w, line, shared);
        if (p > 0) {
            gem_cuda_meeting *before = &a.sync->meeting[p - 1];
            const uint32_t all = epoch * (uint32_t)n_ctas;
            const bool sum = a.sums[p - 1];
            if (sum && sums_rows && threadIdx.x < SUM_THREADS) {
                const gem_cuda_sum &what = a.sum[p - 1];
                sum_of mine(what, rank, SUM_CTAS);
                const grid_meeting meeting = {before->words, ctas, rank, epoch};
                if (threadIdx.x == 0) await_count(&before->arrived, all);
                meeting.here();
                mine.finish(what, 0, what.x, what.src.data + mine.at[0], sums, meeting);
                meeting.here();
                if (threadIdx.x == 0) add_release(&before->summed, 1);
            }
            if (threadIdx.x == 0)
                await_count(sum ? &before->summed : &before->arrived, sum ? epoch * SUM_CTAS : all);
            __syncthreads();
        }
        const int32_t len = line.mine.len, slab0 = line.mine.slab0;
        s.slabs = len;
        if (w.in.from == GEM_CUDA_FROM_RUNS)
            put_runs<T, 1>(s, w.in.runs, 1, slab0, warp, lane);
        else
            put_packed<T, 1>(s, w.in.packed, len, slab0, warp, lane);
        __syncthreads();

        slab_sums<T, 1> total;
        total.clear();
        int32_t tile = line.from / len, ks = line.from - tile * len;
        const int32_t first = tile;
        bool whole = ks == 0; /* this tile began in this warp */
        const uint32_t rows = shared_at(s.rows) + octet_at<1>(lane % 8 * 4 + lane / 8);
#pragma unroll 1
        for (int32_t i = line.from; i < line.to; i++) {
            slab<T> x;
            await(bar + 8 * stage, parity);
            x.template load<true>(ring + stage * bytes, lane);
            __syncwarp();
            if (to_come.left > 0) {
                if (lane == 0)
                    fetch(slots + stage * bytes, to_come.next, bytes, bar + 8 * stage, policy);
                to_come.advance(a);
            }
            if (++stage == a.stages) stage = 0, parity ^= 1;
            const float scale = s.scale[ks];
            total.add(x, rows + 512 * ks, s.sums + sum_bytes(T) * ks, lane % 4, scale, scale);
            const bool ends = ++ks == len;
            if (!ends && i + 1 < line.to) continue;
            end_tile<1>(w, line.mine, line.slice, shared, tile, first, ends && whole, total.value);
            total.clear();
            tile++;
            ks = 0;
            whole = true;
        }
        __syncthreads();
        join_pieces<1>(w, shared);
        if (p + 1 == a.n) break;
        __syncthreads();
        if (threadIdx.x == 0) add_release(&a.sync->meeting[p].arrived, 1);
    }
#endif
}

template <int T> cudaError_t run(const gem_cuda_stream *s, args a, int grid)
{
    product longest = a.step[0];
    for (int i = 1; i < a.n; i++)
        if (layout_of((gem_dtype)T, 1, a.step[i], 0).slabs >
            layout_of((gem_dtype)T, 1, longest, 0).slabs)
            longest = a.step[i];
    a.stages = GEM_CUDA_RING;
    while (a.stages > 2 &&
           (size_t)layout_of((gem_dtype)T, 1, longest, a.stages).all + 1024 > s->max_smem)
        a.stages--;
    a.at = layout_of((gem_dtype)T, 1, longest, a.stages);
    size_t bytes = (size_t)a.at.all;
    if (bytes < s->max_smem / 2 + 1024)
        bytes = s->max_smem / 2 + 1024; /* one CTA a multiprocessor */
    return launch_clusters(s, chain_few<T>, dim3((unsigned)grid), THREADS,
                           GRID_IS_CLUSTER ? (unsigned)grid : 1, bytes, a);
}

template <int T> cudaError_t init(const gem_cuda_stream *s)
{
    return cudaFuncSetAttribute(chain_few<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)s->max_smem - 1024);
}

} // namespace

bool gem_cuda_chain_takes(const gem_cuda_stream *s, const gem_cuda_step *step)
{
    product w;
    const gem_cuda_slab_source from = step->in.from;
    return s->clusters && s->n_sms >= SUM_CTAS && gem_cuda_slab_type(step->out[0].w->dtype) &&
           (from == GEM_CUDA_FROM_RUNS || from == GEM_CUDA_FROM_PACKED) &&
           product_of(&w, s, step->out, step->n_out, &step->in, &step->end, 1);
}

bool gem_cuda_chain_sums(const gem_cuda_sum *sum)
{
    return sum->d <= (int64_t)4 * SUM_THREADS * SUM_CTAS && sum->d % 8 == 0;
}

cudaError_t gem_cuda_chain_few(const gem_cuda_stream *s, const gem_cuda_step *step, int n,
                               gem_cuda_sync *sync, const int32_t *epoch)
{
    args a = {};
    if (n < 1 || n > CHAIN) return cudaErrorInvalidValue;
    a.n = n;
    a.sync = sync;
    a.epoch = epoch;
    for (int i = 0; i < n; i++) {
        if (step[i].out[0].w->dtype != step[0].out[0].w->dtype ||
            !product_of(&a.step[i], s, step[i].out, step[i].n_out, &step[i].in, &step[i].end, 1))
            return cudaErrorInvalidValue;
        a.sums[i] = step[i].sums;
        a.sum[i] = step[i].sum;
    }
    return GEM_CUDA_BY_SLAB_TYPE(step[0].out[0].w->dtype, run, s, a, s->n_sms);
}

cudaError_t gem_cuda_chain_init(const gem_cuda_stream *s)
{
    cudaError_t e = cudaSuccess;
    if (!s->clusters) return e;
    if (!e) e = init<GEM_DTYPE_Q4_0>(s);
    if (!e) e = init<GEM_DTYPE_Q8_0>(s);
    if (!e) e = init<GEM_DTYPE_Q4_K>(s);
    if (!e) e = init<GEM_DTYPE_Q5_K>(s);
    if (!e) e = init<GEM_DTYPE_Q6_K>(s);
    return e;
}
