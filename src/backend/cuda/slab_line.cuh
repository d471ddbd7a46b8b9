/* slab_line.cuh - how the work of a slab product (linear_slab.cu) is cut among CTAs and warps, and
 * what becomes of tiles: read by the kernel of one product and by that of a layer's (layer_few.cu),
 * so that both have the same bits. */
#ifndef GEM_CUDA_SLAB_LINE_CUH
#define GEM_CUDA_SLAB_LINE_CUH

#include "backend/cuda/ring.cuh"
#include "backend/cuda/slab_acts.cuh"

namespace
{

enum { WARPS = SLAB_WARPS, THREADS = WARPS * 32, MAX_OUT = 4 };

struct out_part {
    const uint8_t *w;
    float *y;
    int64_t ldy;
    int32_t n_rows, tile_end; /* tiles of this output and those before it; no output: INT32_MAX */
};

/* Shared memory, behind the rings: byte offsets. Set by the host. */
struct layout {
    int32_t acts, sums, red, scale, pieces, bars, all;
    int32_t slabs; /* of activations: the longest slice */
};

/* Weights of one type and one k that share an input. */
struct product {
    int32_t n, tiles, k_slabs, log_slices;
    int32_t places;     /* that have work */
    uint32_t per_place; /* ceil(2^32 / places): a division by places is a product */
    bool cut;           /* between tiles */
    out_part out[MAX_OUT];
    gem_cuda_slab_in in;
    gem_cuda_slab_end end;
};

/* Longer slices leave the ring of eight rows too little of a Hopper multiprocessor's shared memory;
 * with this many tiles a place, one more or less does not matter. */
enum { MAX_SLICE = 24, CUT_TILES = 6 };

/* The stripe of place v in slice s. Tiles [first, end) start at the place; the tile in front of
 * `first` began at the place before when `shared`. Slabs [lo, hi) of the slice's line. */
struct stripe {
    int32_t slab0, len; /* of the slice */
    int32_t first, end, lo, hi;
    bool shared, shares; /* shares: the place behind has the rest of tile end - 1 */

    __device__ stripe(const product &a, int v, int s)
    {
        slab0 = a.k_slabs * s >> a.log_slices;
        len = (a.k_slabs * (s + 1) >> a.log_slices) - slab0;
        const int32_t x = a.tiles * v, y = x + a.tiles;
        const int32_t t0 = over_places(a, x), t1 = over_places(a, y);
        const int32_t rest0 = a.cut ? 0 : x - t0 * a.places, rest1 = a.cut ? 0 : y - t1 * a.places;
        shared = rest0 != 0;
        shares = rest1 != 0;
        first = t0 + shared;
        end = t1 + shares;
        lo = t0 * len + over_places(a, rest0 * len);
        hi = t1 * len + over_places(a, rest1 * len);
    }
    /* x / places for x * places < 2^32 */
    __device__ static int32_t over_places(const product &a, int32_t x)
    {
        return a.places == 1 ? x : (int32_t)__umulhi((uint32_t)x, a.per_place);
    }
    /* where run j of 16 >> log_slices begins */
    __device__ int32_t run(const product &a, int j) const
    {
        return lo + ((hi - lo) * j >> (4 - a.log_slices));
    }
};

/* A warp's run: slabs [from, to) of the line of its CTA's slice. */
struct warp_line {
    int slice;
    bool idle; /* its place has no work */
    stripe mine;
    int32_t from, to;

    __device__ __forceinline__ warp_line(const product &a)
        : slice((int)blockIdx.x & ((1 << a.log_slices) - 1)), idle(place(a) >= a.places),
          mine(a, min(place(a), a.places - 1), slice)
    {
        const int run = (int)threadIdx.x / 32 & ((16 >> a.log_slices) - 1);
        from = idle ? 0 : mine.run(a, run);
        to = idle ? 0 : mine.run(a, run + 1);
    }
    __device__ static int place(const product &a)
    {
        return ((int)blockIdx.x & -(1 << a.log_slices)) +
               ((int)threadIdx.x / 32 >> (4 - a.log_slices));
    }
};

/* Which output a tile belongs to, and the first tile of it. In line: by reference, arguments are
 * read through memory. */
__device__ inline int2 out_of(const product &a, int32_t tile)
{
    static_assert(MAX_OUT == 4, "one comparison for each but the last");
    const int i =
        (tile >= a.out[0].tile_end) + (tile >= a.out[1].tile_end) + (tile >= a.out[2].tile_end);
    return make_int2(i, i ? a.out[i - 1].tile_end : 0);
}

__device__ __noinline__ float capped(float v, float cap)
{
    return cap * tanhf(v / cap);
}

/* Where the results of a tile go. */
struct target {
    float *y;
    int64_t ldy;
    int32_t left; /* rows */

    __device__ target(const product &a, int32_t tile)
    {
        const int2 of = out_of(a, tile);
        ldy = a.out[of.x].ldy;
        left = a.out[of.x].n_rows - 16 * (tile - of.y);
        y = a.out[of.x].y + 16 * (tile - of.y);
    }
    __device__ void put(const product &a, int part, int col, int row, float v) const
    {
        if (a.end.softcap > 0) v = capped(v, a.end.softcap);
        if (row < left && col < a.n) y[((int64_t)part * GEM_CUDA_FEW + col) * ldy + row] = v;
    }
};

/* Where the pieces of tiles that several warps share meet: [warp][2] of red and pieces. */
struct pieces_of {
    float *red; /* [column][16 rows] each */
    int32_t *what;
};

/* A tile, or the warp's piece of it, is done; all: the tile's whole slice was this warp's. first:
 * the tile that the warp began with. */
template <int N>
__device__ __forceinline__ void end_tile(const product &a, const stripe &mine, int own_slice,
                                         const pieces_of &shared, int32_t tile, int32_t first,
                                         bool all, const float acc[4])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int slices = 1 << a.log_slices;
    if (all) { /* all of the tile's slice was this warp's */
        if (a.end.gated) {
#pragma unroll
            for (int c = 0; c < (N > 1 ? 2 : 1); c++) {
                const int col = (N > 1 ? 2 * t : 0) + c;
                const float x = activate(a.end.act, acc[c]) * acc[2 + c];
                pack_octet<1>(a.end.packed, col, tile, g, &x, (N > 1 || t == 0) && col < a.n, 4);
            }
        } else if (N > 1 || t == 0) {
            const target to(a, tile);
            const int p = mine.shared && tile < mine.first;
#pragma unroll
            for (int i = 0; i < (N > 1 ? 4 : 2); i++) {
                const int c = N > 1 ? i % 2 : 0, u = N > 1 ? i / 2 : i;
                const int col = (N > 1 ? 2 * t : 0) + c, q = p * slices + own_slice;
                to.put(a, q, col, g + 8 * u, acc[2 * u + c]);
                if (!p && !a.cut) to.put(a, q + slices, col, g + 8 * u, 0.0f);
            }
        }
    } else {
        const int piece = warp * 2 + (tile != first);
        const int part = mine.shared && tile < mine.first;
        const bool last = !part && !a.cut && !(mine.shares && tile == mine.end - 1);
        if (lane == 0) shared.what[piece] = tile * 4 + part * 2 + last;
        if (N > 1 || t == 0)
            for (int u = 0; u < 2; u++)
                for (int c = 0; c < (N > 1 ? 2 : 1); c++)
                    shared.red[piece * 16 * N + ((N > 1 ? 2 * t : 0) + c) * 16 + g + 8 * u] =
                        acc[2 * u + c];
    }
}

/* Behind a meeting of the CTA: tiles in pieces add up. */
template <int N>
__device__ __forceinline__ void join_pieces(const product &a, const stripe &mine, int own_slice,
                                            const pieces_of &shared, bool idle)
{
    constexpr int tile_floats = 16 * N;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int slices = 1 << a.log_slices, runs = 16 >> a.log_slices, run = warp & (runs - 1);
    /* Tiles in pieces: lane l of every warp looks at piece l; those of one tile add up in order, a
     * tile a warp. */
    const int32_t mine_is = shared.what[lane];
    const uint32_t like = __match_any_sync(~0u, mine_is);
    const bool leads = mine_is >= 0 && __ffs((int)like) - 1 == lane;
    const uint32_t leaders = __ballot_sync(~0u, leads);
    const int rank = __popc(leaders & ((1u << lane) - 1));
#pragma unroll 1
    for (int i = warp; i < __popc(leaders); i += WARPS) {
        const int leader = __ffs((int)__ballot_sync(~0u, leads && rank == i)) - 1;
        const int32_t what = __shfl_sync(~0u, mine_is, leader);
        constexpr int V = N == 1 ? 1 : 4; /* values a lane: rows of a column */
        const int item = V * lane, col = item / 16, row = item % 16;
        const float *from = shared.red + (N == 1 ? lane % 16 : item);
        float sum[V] = {};
#pragma unroll 1
        for (uint32_t left = __shfl_sync(~0u, like, leader); left; left &= left - 1) {
            const float *piece = from + (__ffs((int)left) - 1) * tile_floats;
            if (N == 1) {
                sum[0] += *piece;
            } else {
                const float4 x = *(const float4 *)piece;
                sum[0] += x.x, sum[V / 4] += x.y, sum[V / 2] += x.z, sum[V - 1] += x.w;
            }
        }
        if (a.end.gated) { /* one slice, cut between tiles: the upper half of a column is up */
#pragma unroll
            for (int v = 0; v < V; v++) {
                const float up = __shfl_down_sync(~0u, sum[v], 8 / V);
                sum[v] = activate(a.end.act, sum[v]) * up;
            }
            pack_octet<V>(a.end.packed, col, what / 4, row, sum, row < 8 && col < a.n, 1);
            continue;
        }
        if (N == 1 && lane >= 16) continue;
        const target to(a, what / 4);
        const int part = (what & 2 ? slices : 0) + own_slice;
#pragma unroll
        for (int v = 0; v < V; v++) {
            to.put(a, part, col, row + v, sum[v]);
            if (what & 1) to.put(a, slices + own_slice, col, row + v, 0.0f);
        }
    }
    /* A tile of this place whose slabs are all the next one's. */
    if (run == runs - 1 && !idle && mine.shares && mine.hi == (mine.end - 1) * mine.len) {
        const target to(a, mine.end - 1);
        const int part = mine.shared && mine.end - 1 < mine.first;
        for (int i = lane; i < tile_floats; i += 32)
            to.put(a, part * slices + own_slice, i / 16, i % 16, 0.0f);
    }
}

/* What follows from the shape. */
inline product shape(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out, int32_t n)
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

/* The product of n rows; false: there is none such. */
inline bool product_of(product *a, const gem_cuda_stream *s, const gem_cuda_slab_out *out,
                       int n_out, const gem_cuda_slab_in *in, const gem_cuda_slab_end *end,
                       int32_t n)
{
    *a = shape(s, out, n_out, n);
    if (!a->places || n_out > MAX_OUT || n < 1 || n > GEM_CUDA_FEW) return false;
    a->in = *in;
    if (end) a->end = *end;
    if (a->end.gated && a->log_slices == 0) a->cut = true;
    return (!a->end.gated && a->end.softcap <= 0) || a->cut;
}

/* n: 1 or 8 */
inline layout layout_of(gem_dtype t, int n, const product &a, int stages)
{
    layout l = {};
    const int slices = 1 << a.log_slices;
    l.slabs = (a.k_slabs + slices - 1) / slices;
    l.acts = WARPS * stages * slab_bytes(t);
    l.sums = l.acts + n * (512 * l.slabs + 16); /* 16: rows fall into different banks */
    l.red = l.sums + n * (sum_bytes(t) * l.slabs + 16);
    l.scale = l.red + WARPS * 2 * 16 * n * 4; /* red: [warp][2][column][16 rows] */
    l.pieces = l.scale + (n * l.slabs + 3) / 4 * 16;
    l.bars = l.pieces + WARPS * 2 * 4;
    l.all = l.bars + WARPS * stages * 8;
    return l;
}

} // namespace

#endif
