/* slab_line.cuh - how the work of a slab product (linear_slab.cu) is cut among CTAs and warps, and
 * what becomes of tiles and of their pieces. */
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

/* A tile whose slabs are several warps': the first of them adds their pieces up. Piece 2 w + 1 is
 * of the tile that warp w ends in, when that is not the one that it begins in, whose piece is 2 w.
 */
struct job {
    float *y; /* of its first row and column; NULL: there is none */
    int64_t ldy;
    int32_t left;        /* rows */
    int32_t first, more; /* pieces: this one, then the first ones of `more` warps behind the
                            first's; first < 0: it is zeros */
    int32_t tile;
    bool zero; /* there is no other part: zeros */
};
struct pieces_of {
    float *red; /* [WARPS][2][column][16 rows] */
    job *jobs;  /* [WARPS][2] */
};

/* What a warp puts together behind its loop, worked out before it, while others still run: behind
 * it every step of this would be waited for. */
template <int N>
__device__ __forceinline__ void plan_jobs(const product &a, const warp_line &line,
                                          const pieces_of &shared)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const stripe &mine = line.mine;
    const int runs = 16 >> a.log_slices, run = warp & (runs - 1), len = mine.len;
    const int32_t from = line.from, to = line.to;
    if (from == to) /* no slab: a piece that changes nothing */
        for (int i = lane; i < 16 * N; i += 32)
            shared.red[2 * warp * 16 * N + i] = 0;
    if (lane < 2) {
        const int32_t begins = from / len, ends = to / len;
        const bool last = run == runs - 1 && !line.idle && mine.shares;
        /* 0: the tile it ends in, if it has that tile's first slab; 1: the place's first */
        job own = {};
        own.tile = lane ? begins : ends;
        own.first = 2 * warp + (lane == 0 && ends != begins);
        bool is = to > from && (lane ? from == mine.lo && from != begins * len
                                     : to != ends * len && ends * len >= from);
        if (lane == 0 && last &&
            mine.hi == (mine.end - 1) * len) /* all slabs are the next place's */
            is = true, own.tile = mine.end - 1, own.first = -1;
        for (int j = run + 1; own.first >= 0 && j < runs; j++)
            own.more += mine.run(a, j) < (own.tile + 1) * len;
        if (is) {
            const int part = mine.shared && own.tile < mine.first;
            const target to(a, own.tile);
            own.ldy = to.ldy;
            own.left = to.left;
            own.zero = !part && !a.cut && !(mine.shares && own.tile == mine.end - 1);
            own.y = to.y + ((part << a.log_slices) + line.slice) * GEM_CUDA_FEW * own.ldy;
            if (a.end.gated) own.y = (float *)shared.red; /* something: it is not used */
        }
        shared.jobs[2 * warp + lane] = own;
    }
    __syncwarp();
}

/* A tile, or the warp's piece of it, is done; all: the tile's whole slice was this warp's. first:
 * the tile that the warp began with. */
template <int N>
__device__ __forceinline__ void end_tile(const product &a, const warp_line &line,
                                         const pieces_of &shared, int32_t tile, int32_t first,
                                         bool all, const float acc[4])
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int slices = 1 << a.log_slices;
    if (!all) {
        const int piece = warp * 2 + (tile != first);
        if (N > 1 || t == 0)
            for (int u = 0; u < 2; u++)
                for (int c = 0; c < (N > 1 ? 2 : 1); c++)
                    shared.red[piece * 16 * N + ((N > 1 ? 2 * t : 0) + c) * 16 + g + 8 * u] =
                        acc[2 * u + c];
    } else if (a.end.gated) {
#pragma unroll
        for (int c = 0; c < (N > 1 ? 2 : 1); c++) {
            const int col = (N > 1 ? 2 * t : 0) + c;
            const float x = activate(a.end.act, acc[c]) * acc[2 + c];
            pack_octet<1>(a.end.packed, col, tile, g, &x, (N > 1 || t == 0) && col < a.n, 4);
        }
    } else if (N > 1 || t == 0) {
        const target to(a, tile);
        const int p = line.mine.shared && tile < line.mine.first;
#pragma unroll
        for (int i = 0; i < (N > 1 ? 4 : 2); i++) {
            const int c = N > 1 ? i % 2 : 0, u = N > 1 ? i / 2 : i;
            const int col = (N > 1 ? 2 * t : 0) + c, q = p * slices + line.slice;
            to.put(a, q, col, g + 8 * u, acc[2 * u + c]);
            if (!p && !a.cut) to.put(a, q + slices, col, g + 8 * u, 0.0f);
        }
    }
}

/* Behind a meeting of the CTA: tiles in pieces add up, in ascending order. */
template <int N>
__device__ __forceinline__ void join_pieces(const product &a, const pieces_of &shared)
{
    constexpr int V = N == 1 ? 1 : 4; /* values a lane: rows of a column */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int item = V * lane % (16 * N), col = item / 16, row = item % 16;
#pragma unroll
    for (int i = 0; i < (N == 1 ? 1 : 2); i++) { /* of one row, half a warp a job */
        const job own = shared.jobs[2 * warp + (N == 1 ? lane / 16 : i)];
        float sum[V] = {};
        const auto add = [&](int piece) {
            const float *x = shared.red + piece * 16 * N + item;
#pragma unroll
            for (int v = 0; v < V; v++)
                sum[v] += x[v];
        };
        if (own.y && own.first >= 0) {
            add(own.first);
#pragma unroll 1
            for (int j = 0; j < own.more; j++)
                add(2 * (warp + 1 + j));
        }
        if (a.end.gated) { /* one slice, cut between tiles: the upper half of a column is up */
            if (i || !__any_sync(~0u, own.y != NULL)) continue;
#pragma unroll
            for (int v = 0; v < V; v++) {
                const float up = __shfl_down_sync(~0u, sum[v], 8 / V);
                sum[v] = activate(a.end.act, sum[v]) * up;
            }
            pack_octet<V>(a.end.packed, col, own.tile, row, sum, own.y && row < 8 && col < a.n, 1);
            continue;
        }
        if (!own.y || col >= a.n) continue;
        float *to = own.y + col * own.ldy + row;
        const int64_t other = ((int64_t)GEM_CUDA_FEW << a.log_slices) * own.ldy;
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (row + v >= own.left) continue;
            to[v] = a.end.softcap > 0 ? capped(sum[v], a.end.softcap) : sum[v];
            if (own.zero) to[v + other] = 0.0f;
        }
    }
}

} // namespace

#endif
