/* linear_slab.cu - decode products: one to eight activation rows against slabs (slab.cuh).
 *
 * Idea. Each slice of k has a line of work, row tiles x slabs; it is cut into equal stripes, one a
 * "place" and as many places as multiprocessors, and a stripe into equal runs of slabs. Every warp
 * has one run. A CTA is one slice of as many places as there are slices: it needs that slice of the
 * activations only, which for eight rows must fit shared memory. A warp fetches its slabs into a
 * ring of its own in shared memory by bulk copies, several ahead and, with dependent launch, before
 * the kernel ahead has ended; it multiplies them by m16n8k16: weights are the 16 rows, activations
 * the 8 columns, so up to eight rows cost one row's memory traffic (slab_mma.cuh). Activations
 * become f16 per 256 values, scaled by a power of two: products are exact but for that one rounding
 * of the activations (relative 2^-12; of what is below 2^-19 of the largest of 256, slab_mma.cuh).
 *
 * act(gate) * up of a joint weight is in here too, and leaves as f16 octets (gem_cuda_packed), as
 * heads do; residual sums leave whole runs (rows.cu). Every CTA reads all of a row, and what they
 * read together from one place costs more than its bytes, so they are few. 96 registers leave room
 * beside it for the kernel of those sums.
 *
 * Order of sums: a slab's blocks by pairs (slab_mma.cuh), slabs ascending along a run, runs
 * ascending; slices and the two places that may share a tile leave sums of their own
 * (gem_cuda_view). Places and runs follow from the shape and the number of multiprocessors, so bits
 * do not depend on the number of rows. With many tiles and one slice, places are cut between tiles
 * and there is one sum. What runs before and behind the loop over slabs is short: some 4 ns an
 * instruction pass while nothing streams. Which pieces of tiles a warp adds up behind its loop is
 * worked out before it, while the kernel ahead still runs (slab_line.cuh).
 * Bound: memory while slabs stream, and the loop itself (slab_mma.cuh). Measured: docs/cuda.md.
 * Layout and order after the design facts given there. */
#include "backend/cuda/slab_line.cuh"

namespace
{

/* Shared memory, behind the rings: byte offsets. Set by the host. */
struct layout {
    int32_t acts, sums, red, scale, jobs, bars, all;
    int32_t slabs; /* of activations: the longest slice */
};

/* Longer slices leave the ring of eight rows too little of a Hopper multiprocessor's shared memory;
 * with this many tiles a place, one more or less does not matter. */
enum { MAX_SLICE = 24, CUT_TILES = 6 };

struct args : product {
    int32_t stages, early;
    layout at;
};

/* N: columns that differ, 1 or 8; FROM: of gated rows as of rows, of runs as of packed rows: a
 * layer's products are one kernel, whose code may still be near */
template <int T, int N, int FROM>
__global__ void __maxnreg__(96) linear_slab(const __grid_constant__ args a)
{
    DYNAMIC_SHARED(uint8_t, smem, 128);
    constexpr int bytes = slab_bytes(T);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

    uint8_t *ring = smem + (size_t)warp * (size_t)(a.stages * bytes);
    const pieces_of shared = {(float *)(smem + a.at.red), (job *)(smem + a.at.jobs)};
    const uint32_t bar = shared_at(smem + a.at.bars) + 8 * (uint32_t)(warp * a.stages);
    const uint32_t slots = shared_at(ring);
    acts s;
    s.slabs = a.at.slabs;
    s.rows = smem + a.at.acts;
    s.row_ld = 512 * s.slabs + 16;
    s.sums = smem + a.at.sums;
    s.sum_ld = sum_bytes(T) * s.slabs + 16;
    s.scale = (float *)(smem + a.at.scale);

    dependents_go();
    const warp_line line(a);
    const stripe &mine = line.mine;
    const int32_t from = line.from, to = line.to, len = mine.len;

    /* Weights are constants: fetch before the kernel ahead has ended. */
    int32_t next_tile = from / len, next_ks = from - next_tile * len, left = to - from;
    const int32_t first_tile = next_tile, first_ks = next_ks;
    const uint8_t *next = NULL;
    int32_t next_end = 0; /* of the output that next lies in */
    const auto seek = [&] {
        const int2 of = out_of(a, next_tile);
        next = a.out[of.x].w +
               ((int64_t)(next_tile - of.y) * a.k_slabs + mine.slab0 + next_ks) * bytes;
        next_end = a.out[of.x].tile_end;
    };
    if (left > 0) seek();
    const auto advance = [&] {
        left--;
        next += bytes;
        if (++next_ks < len) return;
        next_ks = 0;
        next += (a.k_slabs - len) * bytes;
        if (++next_tile == next_end && left > 0) seek();
    };
#if __CUDA_ARCH__ >= 900
    const uint64_t policy = evict_first();
    if (lane == 0)
#pragma unroll 1
        for (int i = 0; i < a.stages; i++)
            barrier_init(bar + 8 * i);
    barriers_visible();
    __syncwarp();
    int filled = 0;
    const auto fill = [&](int until) {
#pragma unroll 1
        for (; filled < until && left > 0; filled++) {
            if (lane == 0) fetch(slots + filled * bytes, next, bytes, bar + 8 * filled, policy);
            advance();
        }
    };
#else
    (void)bar; /* cp.async counts groups itself */
    (void)slots;
    int filled = 0;
    const auto fill = [&](int until) {
        for (; filled < until; filled++) {
            if (left > 0) {
                fetch_lanes(ring + filled * bytes, next, bytes, lane);
                advance();
            }
            copy_commit();
        }
    };
#endif
    fill(a.early);
    /* arguments that are used later: on their way from the constants */
    touch(a.in.packed.h), touch(a.in.runs.h), touch(a.at.scale), touch(a.out[0].y);
    touch((int32_t)a.end.gated), touch(a.end.packed.width), touch(a.end.softcap);
    const int first_slab = mine.slab0;
    acts own = s;
    own.slabs = len;
    const int n_runs = (N > 1 ? a.n : 1) * len;
    plan_jobs<N>(a, line, shared);
    dependency_wait();
    if (FROM == GEM_CUDA_FROM_PACKED && a.in.from == GEM_CUDA_FROM_RUNS) {
        put_runs<T, N>(own, a.in.runs, a.n, first_slab, warp, lane);
    } else if (FROM == GEM_CUDA_FROM_PACKED) {
        put_packed<T, N>(own, a.in.packed, n_runs, first_slab, warp, lane);
    } else if (a.in.from == GEM_CUDA_FROM_GATED)
        put_gated<T, N>(own, a.in, n_runs, first_slab, warp, lane);
    else
        put_rows<T, N>(own, a.in.a, n_runs, first_slab, warp, lane);
    fill(a.stages);
    __syncthreads();

    slab_sums<T, N> sum;
    sum.clear();
    int32_t tile = first_tile, ks = first_ks;
    bool whole = ks == 0; /* this tile began in this warp */
    int stage = 0;
    uint32_t parity = 0;
    const uint32_t rows = shared_at(s.rows) + (N > 1 ? lane % 8 * s.row_ld + lane / 8 * 16
                                                     : octet_at<N>(lane % 8 * 4 + lane / 8));
    const uint8_t *sums = s.sums + (N > 1 ? g * s.sum_ld : 0);

#pragma unroll 1
    for (int32_t i = from; i < to; i++) {
        slab<T> w;
#if __CUDA_ARCH__ >= 900
        await(bar + 8 * stage, parity);
        w.template load<N == 1>(ring + stage * bytes, lane);
        __syncwarp();
        if (left > 0) {
            if (lane == 0) fetch(slots + stage * bytes, next, bytes, bar + 8 * stage, policy);
            advance();
        }
#else
        await_group(a.stages);
        w.template load<N == 1>(ring + stage * bytes, lane);
        __syncwarp();
        if (left > 0) {
            fetch_lanes(ring + stage * bytes, next, bytes, lane);
            advance();
        }
        copy_commit();
#endif
        if (++stage == a.stages) stage = 0, parity ^= 1;
        const float s0 = s.scale[(N > 1 ? 2 * t * len : 0) + ks],
                    s1 = N > 1 ? s.scale[(2 * t + 1) * len + ks] : s0;
        sum.add(w, rows + 512 * ks, sums + sum_bytes(T) * ks, t, s0, s1);
        const bool ends = ++ks == len;
        if (!ends && i + 1 < to) continue;
        end_tile<N>(a, line, shared, tile, first_tile, ends && whole, sum.value);
        sum.clear();
        tile++;
        ks = 0;
        whole = true;
    }
    __syncthreads();

    join_pieces<N>(a, shared);
}

/* What follows from the shape. */
product shape(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out, int32_t n)
{
    product a = {};
    const gem_cuda_weight *w = out[0].w;
    for (int i = 0; i < n_out; i++) {
        a.tiles += (int32_t)((out[i].w->n_rows + 15) / 16);
        a.out[i] = {out[i].w->data, out[i].y, out[i].ldy, (int32_t)out[i].w->n_rows, a.tiles};
    }
    for (int i = n_out; i < MAX_OUT; i++)
        a.out[i].tile_end = INT32_MAX;
    a.n = n;
    a.k_slabs = (int32_t)(w->k / GEM_CUDA_SLAB_K);
    const int slices = gem_cuda_slab_slices(w->dtype, w->k, s);
    if (!slices) return a;
    while (1 << a.log_slices < slices)
        a.log_slices++;
    a.places = s->n_sms / slices * slices;
    a.cut = slices == 1 && a.tiles >= CUT_TILES * a.places;
    if (a.places > a.tiles) a.places = a.tiles;
    a.per_place = (uint32_t)((0xffffffffu + (uint64_t)a.places) / (uint64_t)a.places);
    return a;
}

/* n: 1 or 8 */
layout layout_of(gem_dtype t, int n, const product &a, int stages)
{
    layout l = {};
    const int slices = 1 << a.log_slices;
    l.slabs = (a.k_slabs + slices - 1) / slices;
    l.acts = WARPS * stages * slab_bytes(t);
    l.sums = l.acts + n * (512 * l.slabs + 16); /* 16: rows fall into different banks */
    l.red = l.sums + n * (sum_bytes(t) * l.slabs + 16);
    l.scale = l.red + WARPS * 2 * 16 * n * 4; /* red: [warp][2][column][16 rows] */
    l.jobs = l.scale + (n * l.slabs + 3) / 4 * 16;
    l.bars = l.jobs + WARPS * 2 * (int32_t)sizeof(job);
    l.all = l.bars + WARPS * stages * 8;
    return l;
}

template <int T> void (*kernel_of(int n, gem_cuda_slab_source from))(args)
{
    switch (from) {
    case GEM_CUDA_FROM_RUNS:
    case GEM_CUDA_FROM_PACKED:
        return n == 1 ? linear_slab<T, 1, GEM_CUDA_FROM_PACKED>
                      : linear_slab<T, 8, GEM_CUDA_FROM_PACKED>;
    default:
        return n == 1 ? linear_slab<T, 1, GEM_CUDA_FROM_ROWS>
                      : linear_slab<T, 8, GEM_CUDA_FROM_ROWS>;
    }
}

template <int T> cudaError_t run(const gem_cuda_stream *s, args a, int grid)
{
    int n = a.n == 1 ? 1 : 8;
    a.stages = n == 1 ? 3 : 4; /* more would stand in the way of what the next kernel reads */
    while (a.stages > 2 && (size_t)layout_of((gem_dtype)T, n, a, a.stages).all > s->max_smem)
        a.stages--;
    a.at = layout_of((gem_dtype)T, n, a, a.stages);
    a.early = a.stages > 2 ? 2 : 1;
    size_t bytes = (size_t)a.at.all;
    /* With dependent launch two CTAs of one kernel must not share a multiprocessor. */
    if (bytes < s->max_smem / 2 + 1024) bytes = s->max_smem / 2 + 1024;
    if (bytes > s->max_smem) return cudaErrorInvalidValue;
    return launch(s, kernel_of<T>(n, a.in.from), dim3((unsigned)grid), THREADS, bytes, a);
}

template <int T> cudaError_t init(const gem_cuda_stream *s)
{
    cudaError_t e = cudaSuccess;
    for (int n = 1; n <= 8 && !e; n += 7)
        for (int from = 0; from <= GEM_CUDA_FROM_PACKED && !e; from++)
            e = cudaFuncSetAttribute(kernel_of<T>(n, (gem_cuda_slab_source)from),
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)s->max_smem);
    return e;
}

} // namespace

bool gem_cuda_slab_type(gem_dtype t)
{
    return t == GEM_DTYPE_Q4_0 || t == GEM_DTYPE_Q8_0 || t == GEM_DTYPE_Q4_K ||
           t == GEM_DTYPE_Q5_K || t == GEM_DTYPE_Q6_K;
}

size_t gem_cuda_slab_bytes(gem_dtype t)
{
    return (size_t)slab_bytes(t);
}

int gem_cuda_slab_slices(gem_dtype t, int64_t k, const gem_cuda_stream *s)
{
    if (!gem_cuda_slab_type(t) || k % GEM_CUDA_SLAB_K) return 0;
    product a = {};
    a.k_slabs = (int32_t)(k / GEM_CUDA_SLAB_K);
    for (int any = 0; any < 2; any++) /* short slices if there are; else any that fits */
        for (a.log_slices = 0; a.log_slices < 5; a.log_slices++) {
            const int n = 1 << a.log_slices;
            if (n > a.k_slabs || (!any && (a.k_slabs + n - 1) / n > MAX_SLICE)) continue;
            a.places = a.tiles = 1;
            if ((size_t)layout_of(t, GEM_CUDA_FEW, a, 2).all <= s->max_smem) return n;
        }
    return 0;
}

int gem_cuda_slab_parts(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out,
                        int32_t n)
{
    const product a = shape(s, out, n_out, n);
    return a.cut ? 1 : 2 << a.log_slices;
}

cudaError_t gem_cuda_linear_slab(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out,
                                 const gem_cuda_slab_in *in, const gem_cuda_slab_end *end,
                                 int32_t n)
{
    args a = {};
    (product &)a = shape(s, out, n_out, n);
    const int slices = 1 << a.log_slices;
    if (!a.places || n_out > MAX_OUT || n < 1 || n > GEM_CUDA_FEW) return cudaErrorInvalidValue;
    a.in = *in;
    if (end) a.end = *end;
    if (a.end.gated && slices == 1) a.cut = true;
    if ((a.end.gated || a.end.softcap > 0) && !a.cut) return cudaErrorInvalidValue;
    const int grid = (a.places + slices - 1) / slices * slices;
    return GEM_CUDA_BY_SLAB_TYPE(out[0].w->dtype, run, s, a, grid);
}

cudaError_t gem_cuda_slab_init(const gem_cuda_stream *s)
{
    cudaError_t e = cudaSuccess;
    if (!e) e = init<GEM_DTYPE_Q4_0>(s);
    if (!e) e = init<GEM_DTYPE_Q8_0>(s);
    if (!e) e = init<GEM_DTYPE_Q4_K>(s);
    if (!e) e = init<GEM_DTYPE_Q5_K>(s);
    if (!e) e = init<GEM_DTYPE_Q6_K>(s);
    return e;
}
