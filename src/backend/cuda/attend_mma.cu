/* attend_mma.cu - attention of a few rows over f16 pages at the memory roof: decode.
 *
 * A CTA takes one part of a sequence, one KV head and up to eight of its query heads. Its warps
 * take tiles of 16 positions in turn; keys and values of a tile arrive by bulk copies in a
 * ring of three slots. Positions are the 16 rows of m16n8k16 and queries its 8 columns, so a group
 * of eight query heads needs no padding: scores' = K q', the maximum over positions by three
 * shuffles, probabilities to f16 and turned around by movmatrix, output' += V' p'. Warps merge
 * through shared memory, parts by the merge of attend_split.cu, both in ascending order. Positions
 * that earlier tokens wrote are fetched before the kernel ahead has ended. Of several rows, a CTA
 * takes several parts of one, each by itself: parts stay the same for any number of rows.
 *
 * A row alone does without the append kernel: each CTA norms and rotates its own queries, and the
 * one that sees the row's position also its key and value, which go into the page and over the
 * fetched tile. Same steps and order of sums as append (attend_split.cu): same bits. With 128
 * registers (its queries stay in shared memory) it finds room beside the product ahead of it and
 * the one behind it. Bound: memory, 4 bytes of keys and values a position and dim. Figures:
 * docs/cuda.md. */
#include "backend/cuda/heads.cuh"
#include "backend/cuda/ptx.cuh"
#include "backend/cuda/ring.cuh"

namespace
{

enum { WARPS = 4, THREADS = WARPS * 32, SLOTS = 3, TILE = 16, QUERIES = 8 };
static_assert(WARPS * QUERIES == 32, "a warp weighs what each warp has of each query");

/* Byte of 16-byte chunk c of a tile's position: 64 dims of all positions, then the next 64. */
__device__ inline uint32_t tile_at(int row, int c)
{
    return (uint32_t)((c >> 3) * (TILE * 128) + row * 128 + (((c ^ row) & 7) << 4));
}

/* Queries as f16 in shared memory, rows apart by this: no bank is hit twice. */
template <int HD> __host__ __device__ constexpr int query_ld()
{
    return HD + 8;
}

/* The parts of n_q query heads from h0 on, in ascending order whichever CTA comes last. stats:
 * float2[n_q][GEM_CUDA_MAX_SPLITS]. */
template <int HD>
__device__ inline void merge_parts(const gem_cuda_queries &q, int64_t r, int h0, int n_q, int n,
                                   const float *partial, int32_t max_splits, int64_t ld,
                                   float2 *stats)
{
    constexpr int AHEAD = 8; /* parts on their way together */
    const float *in = partial + (r * q.n_heads + h0) * (max_splits + 1) * ld;
    float4 x[AHEAD];
    const auto load = [&](int i, int w0) {
        const float *from = in + i / (HD / 4) * (max_splits + 1) * ld + i % (HD / 4) * 4;
#pragma unroll
        for (int w = 0; w < AHEAD; w++)
            if (w0 + w < n) x[w] = __ldcg((const float4 *)(from + (w0 + w) * ld));
    };
    if ((int)threadIdx.x < n_q * HD / 4) load(threadIdx.x, 0);
    for (int i = threadIdx.x; i < n_q * n; i += THREADS) {
        const int c = i / n, w = i - c * n;
        stats[c * GEM_CUDA_MAX_SPLITS + w] =
            __ldcg((const float2 *)(in + (c * (max_splits + 1) + w) * ld + HD));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_q * HD / 4; i += THREADS) {
        const int c = i / (HD / 4), d = i % (HD / 4) * 4;
        const float2 *stat = stats + c * GEM_CUDA_MAX_SPLITS;
        float top = -INFINITY, total = 0;
        float4 sum = make_float4(0, 0, 0, 0);
        for (int w = 0; w < n; w++)
            top = fmaxf(top, stat[w].x);
#pragma unroll 1
        for (int w0 = 0; w0 < n; w0 += AHEAD) {
            if (i >= THREADS || w0) load(i, w0);
#pragma unroll
            for (int w = 0; w < AHEAD; w++) {
                if (w0 + w >= n) break;
                const float f = expf(stat[w0 + w].x - top);
                total = fmaf(f, stat[w0 + w].y, total);
                sum.x = fmaf(f, x[w].x, sum.x), sum.y = fmaf(f, x[w].y, sum.y);
                sum.z = fmaf(f, x[w].z, sum.z), sum.w = fmaf(f, x[w].w, sum.w);
            }
        }
        put_four(q, r, h0 + c, HD, d, sum, 1.0f / total);
    }
}

/* A row alone, of a head size that leaves room for it beside a product. */
template <int HD, bool ALONE> __host__ __device__ constexpr bool fits_beside()
{
    return ALONE && HD <= 256;
}

template <int HD, bool ALONE, bool TIMED>
__global__ void __launch_bounds__(THREADS, fits_beside<HD, ALONE>() ? 4 : 1)
    attend_mma(gem_cuda_kv kv, gem_cuda_rows rows, gem_cuda_queries q, gem_cuda_qkv raw,
               int32_t max_splits, float *partial, int64_t partial_ld, int32_t *turn)
{
    DYNAMIC_SHARED(uint8_t, smem, 128);
    SHARED(bool, is_last);
    SHARED(float[2][WARPS][QUERIES], stat); /* maximum and sum of each warp */
    SHARED(float[3][QUERIES], both);        /* maximum, sum, its inverse */
    SHARED(int32_t[WARPS], spares);
    SHARED(uint64_t[WARPS][SLOTS], bars);
    constexpr int BYTES = TILE * HD * 2, TILES = HD / 16;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int group = q.n_heads / kv.n_kv_heads, groups = (group + QUERIES - 1) / QUERIES;
    const int head = blockIdx.x / groups, h0 = head * group + blockIdx.x % groups * QUERIES;
    const int n_q = min((int)QUERIES, head * group + group - h0);
    const int64_t r = blockIdx.z;
    uint8_t *ring = smem + warp * SLOTS * BYTES;
    if (!ALONE) dependents_go();
    /* ids and tables were uploaded before the first kernel of this batch */
    const int32_t pos = __ldcg(rows.pos + r), seq = __ldcg(rows.seq + r);
    int32_t which = (int32_t)blockIdx.y, behind = which + 1; /* parts of this CTA */
    part p = part_of(kv, pos, which, max_splits);
    if (!ALONE && (int32_t)gridDim.y <= max_splits) { /* fewer CTAs than parts there may be */
        which = p.n * (int32_t)blockIdx.y / (int32_t)gridDim.y;
        behind = p.n * ((int32_t)blockIdx.y + 1) / (int32_t)gridDim.y;
        p = part_of(kv, pos, which, max_splits);
    }
    behind = min(behind, p.n);
    if (which >= behind) return;
    const int32_t n_parts = behind - which;

    /* this warp's tiles: every WARPS-th of those that hold a position the row sees */
    const int32_t seen0 = kv.window && pos >= kv.window ? pos - kv.window + 1 : 0;
    int32_t tile0, n_tiles, n_loads, base = 0; /* base: loads of earlier parts */
    const auto begin = [&] {
        const int32_t tile1 = min(p.last * GEM_PAGE + GEM_PAGE - 1, pos) / TILE;
        tile0 = max(p.first * GEM_PAGE, seen0) / TILE;
        n_tiles = tile1 < tile0 + warp ? 0 : (tile1 - tile0 - warp) / WARPS + 1;
        n_loads = 2 * n_tiles;
    };
    begin();
    const auto source =
        [&](int32_t load) { /* loads 2i, 2i + 1: keys, values of tile i */
                            int32_t at = (tile0 + warp + load / 2 * WARPS) * TILE;
                            const __half *page = page_part<__half>(kv, seq, at, head);
                            return page + (load % 2 ? GEM_PAGE * HD : 0) + at % GEM_PAGE * 64;
        };
    /* not written by this batch: rows of it are few, and a row alone brings its own */
    const auto old = [&](int32_t load) {
        return ALONE || (tile0 + warp + load / 2 * WARPS) * TILE + TILE + GEM_CUDA_FEW <= pos;
    };
    /* a row alone: its queries, key and value, f16 */
    __half *own_q = (__half *)(smem + WARPS * SLOTS * BYTES), *own_k = own_q + 8 * query_ld<HD>(),
           *own_v = own_k + HD;
    const auto norm_of = [&](int i) { return i < n_q ? raw.q_norm : i == n_q ? raw.k_norm : NULL; };
    one_head<HD> norm; /* of this warp's first head; constants: before the wait */
    if (ALONE) norm.vector(norm_of(warp), lane);
    if (fits_beside<HD, ALONE>()) /* no query: zeros */
        for (int i = n_q * query_ld<HD>() / 2 + threadIdx.x; i < 8 * query_ld<HD>() / 2;
             i += THREADS)
            ((uint32_t *)own_q)[i] = 0;
    int32_t issued = 0;
#if __CUDA_ARCH__ >= 900
    const uint64_t policy = evict_first();
    if (lane == 0)
        for (int i = 0; i < SLOTS; i++)
            barrier_init(shared_at(&bars[warp][i]));
    barriers_visible();
    __syncwarp();
    const auto issue = [&] {
        const uint32_t bar = shared_at(&bars[warp][issued % SLOTS]);
        if (lane == 0) expect(bar, BYTES);
        __syncwarp();
        if (lane < HD / 64) /* 64 dims each */
            copy(shared_at(ring) + issued % SLOTS * BYTES + lane * (TILE * 128),
                 source(issued - base) + lane * (64 * GEM_PAGE), TILE * 128, bar, policy);
        issued++;
    };
    const auto fill = [&](int32_t slots) {
#pragma unroll 1
        while (issued - base < min(n_loads, slots))
            issue();
    };
#pragma unroll 1
    while (issued < min(n_loads, (int32_t)SLOTS) && old(issued))
        issue();
    dependency_wait();
    if (!ALONE) fill(SLOTS);
#else
    (void)bars; /* cp.async counts groups itself */
    const auto issue = [&] {
        if (issued - base < n_loads)
            for (int c = 0; c < HD / 64; c++)
                fetch_lanes(ring + issued % SLOTS * BYTES + c * (TILE * 128),
                            source(issued - base) + c * (64 * GEM_PAGE), TILE * 128, lane);
        copy_commit();
        issued++;
    };
    const auto fill = [&](int32_t slots) {
        while (issued - base < slots)
            issue();
    };
    dependency_wait();
    fill(SLOTS);
#endif

    if (ALONE) {
        float *spare = (float *)(own_v + HD) + warp * HD;
        const int n_heads = n_q + (pos / GEM_PAGE == p.last ? 2 : 0); /* q heads, k, v */
        const int slot = pos % GEM_PAGE;
        __half *page = page_part<__half>(kv, seq, pos, head);
        one_head<HD> cs = {}, sn = {}, now, next = {};
        const auto load = [&](int i) {
            if (i >= n_heads) return;
            const bool query = i<n_q, value = i> n_q;
            next.load(query                    ? raw.q
                      : value && !raw.v_from_k ? raw.v
                                               : raw.k,
                      r, query ? (h0 + i) * raw.q_stride : (int64_t)head * HD, lane);
        };
        cs.angles(raw.cs + r * raw.half, raw.half, lane);
        sn.angles(raw.sn + r * raw.half, raw.half, lane);
#pragma unroll 1
        for (int i = warp - WARPS; i < n_heads; i += WARPS) { /* one ahead */
            now = next;
            load(i + WARPS);
            if (i < 0) continue;
            if (i > n_q) {
                now.scale(raw.v_norm ? now.rms(raw.eps) : 1.0f);
            } else {
                if (i > warp && norm_of(i) != norm_of(i - WARPS)) norm.vector(norm_of(i), lane);
                if (norm_of(i)) now.norm(norm, raw.eps);
                now.rotate(cs, sn, raw.half, spare, lane);
            }
            if (i < n_q) {
                now.scale(raw.q_scale);
                now.store(own_q + i * query_ld<HD>(), lane);
            } else {
                now.to_page(page);
                now.store(i > n_q ? own_v : own_k, lane);
                now.store_page(page + (i > n_q ? GEM_PAGE * HD : 0), slot, lane);
            }
        }
        __syncthreads();
    }
    /* late, lest what the next kernel fetches ahead stands in the way of the loads above */
    if (ALONE) dependents_go();

    uint32_t x[TILES][2]; /* queries as the k x 8 side */
#pragma unroll
    for (int i = 0; i < (fits_beside<HD, ALONE>() ? 0 : TILES); i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (ALONE) {
                const __half *from = own_q + g * query_ld<HD>() + 2 * t;
                x[i][j] = g < n_q ? *(const uint32_t *)(from + 16 * i + 8 * j) : 0;
                continue;
            }
            float2 v = make_float2(0, 0);
            if (g < n_q)
                v = __ldcg((const float2 *)(q.data + r * q.ld + (h0 + g) * q.stride + 16 * i +
                                            8 * j + 2 * t));
            __half2 h = __floats2half2_rn(v.x, v.y);
            x[i][j] = *(uint32_t *)&h;
        }
    float o[TILES][4], m[2], l[2];
    const float log2e = 1.4426950408889634f;

    const auto await_load = [&](int32_t load) {
#if __CUDA_ARCH__ >= 900
        await(shared_at(&bars[warp][(base + load) % SLOTS]), (uint32_t)((base + load) / SLOTS & 1));
#else
        await_group(SLOTS);
#endif
    };
    const auto refill = [&] {
        __syncwarp();
#if __CUDA_ARCH__ >= 900
        if (issued - base < n_loads) issue();
#else
        issue();
#endif
    };
    /* The row's own key or value over what was fetched for its position. */
    const auto bring = [&](int32_t i, int32_t load, const __half *own) {
        const int32_t at = (tile0 + warp + i * WARPS) * TILE, row = pos - at;
        if (!ALONE || row < 0 || row >= TILE) return;
        uint8_t *to = ring + (base + load) % SLOTS * BYTES;
        for (int c = lane; c < HD / 8; c += 32)
            *(uint4 *)(to + tile_at(row, c)) = *(const uint4 *)(own + 8 * c);
        __syncwarp();
    };
    const bool whole = p.n == 1; /* nothing to merge with */
    phases<TIMED> spent;
#pragma unroll 1
    for (;;) {
        spent.begin();
#pragma unroll
        for (int i = 0; i < TILES; i++)
            o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
        m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
        for (int32_t i = 0; i < n_tiles; i++) {
            const uint32_t keys = shared_at(ring + (base + 2 * i) % SLOTS * BYTES);
            const uint32_t values = shared_at(ring + (base + 2 * i + 1) % SLOTS * BYTES);
            float s[2][4] = {}; /* two chains: even and odd steps */
            uint32_t two[4];    /* queries of two steps */
            await_load(2 * i);
            bring(i, 2 * i, own_k);
#pragma unroll
            for (int k = 0; k < TILES; k++) {
                uint32_t a[4];
                int row = lane % 16, c = 2 * k + lane / 16;
                ldmatrix4(a, keys + tile_at(row, c));
                if (!fits_beside<HD, ALONE>()) {
                    mma16816(s[k % 2], a, x[k][0], x[k][1]);
                    continue;
                }
                if (k % 2 == 0)
                    ldmatrix4(two,
                              shared_at(own_q + lane % 8 * query_ld<HD>() + 16 * k + lane / 8 * 8));
                mma16816(s[k % 2], a, two[k % 2 * 2], two[k % 2 * 2 + 1]);
            }
            refill();
            spent.end(0);
            const int32_t at = (tile0 + warp + i * WARPS) * TILE;
            float v[4], fade[2];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int32_t key = at + g + 8 * (j / 2);
                v[j] = key <= pos && key >= seen0 ? s[0][j] + s[1][j] : -INFINITY;
            }
            bool grew = false;
#pragma unroll
            for (int u = 0; u < 2; u++) { /* columns 2t, 2t + 1 */
                float top = fmaxf(v[u], v[2 + u]);
                for (int w = 4; w < 32; w *= 2)
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, w));
                float now = fmaxf(m[u], top), f = now == -INFINITY ? 0.0f : now * log2e;
                fade[u] = exp2f(m[u] * log2e - f);
                grew |= now > m[u];
                m[u] = now;
                v[u] = exp2f(fmaf(v[u], log2e, -f));
                v[2 + u] = exp2f(fmaf(v[2 + u], log2e, -f));
                l[u] = fmaf(l[u], fade[u], v[u] + v[2 + u]);
            }
            if (__any_sync(~0u, grew))
#pragma unroll
                for (int j = 0; j < TILES; j++) {
                    o[j][0] *= fade[0], o[j][1] *= fade[1];
                    o[j][2] *= fade[0], o[j][3] *= fade[1];
                }
            __half2 h0v = __floats2half2_rn(v[0], v[1]), h1v = __floats2half2_rn(v[2], v[3]);
            const uint32_t b0 = movmatrix(*(uint32_t *)&h0v), b1 = movmatrix(*(uint32_t *)&h1v);
            spent.end(1);
            await_load(2 * i + 1);
            bring(i, 2 * i + 1, own_v);
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                uint32_t a[4];
                int row = lane / 16 * 8 + lane % 8, c = 2 * j + lane / 8 % 2;
                ldmatrix4_trans(a, values + tile_at(row, c));
                mma16816(o[j], a, b0, b1);
            }
            refill();
            spent.end(2);
        }
        spent.add(q.clocks, lane == 0);

        /* merge: the ring is free once every warp is here */
        for (int u = 0; u < 2; u++) {
            for (int w = 4; w < 32; w *= 2)
                l[u] += __shfl_xor_sync(~0u, l[u], w);
            if (g == 0) {
                stat[0][warp][2 * t + u] = m[u];
                stat[1][warp][2 * t + u] = l[u];
            }
        }
        __syncthreads();
        if (threadIdx.x < WARPS * QUERIES) { /* what each warp's part counts */
            const int c = lane % QUERIES, w = lane / QUERIES;
            float top = -INFINITY, total = 0;
            for (int i = 0; i < WARPS; i++)
                top = fmaxf(top, stat[0][i][c]);
            const float f = expf(stat[0][w][c] - top), sum = stat[1][w][c];
            __syncwarp();
            for (int i = 0; i < WARPS; i++)
                total = fmaf(__shfl_sync(~0u, f, i * QUERIES + c),
                             __shfl_sync(~0u, sum, i * QUERIES + c), total);
            stat[0][w][c] = f;
            if (w == 0) {
                both[0][c] = top;
                both[1][c] = total;
                both[2][c] = 1.0f / total;
            }
        }
        /* each warp's output into the slot that it read last, [query][dim ^ ...]: no bank is hit
         * twice; the other slots take what comes next meanwhile */
        const int32_t now = which, spare = (base + n_loads + SLOTS - 1) % SLOTS;
        if (lane == 0) spares[warp] = spare;
        which++;
        if (!ALONE && which < behind) {
            p = part_of(kv, pos, which, max_splits);
            base = issued;
            begin();
#if __CUDA_ARCH__ >= 900
            fill(SLOTS - 1);
#endif
        }
        float *out = (float *)(ring + spare * BYTES);
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                out[(2 * t + k % 2) * HD + ((16 * j + g + 8 * (k / 2)) ^ (8 * t))] = o[j][k];
        __syncthreads();
        for (int i = threadIdx.x; i < n_q * HD / 4; i += THREADS) {
            const int c = i / (HD / 4), d = i % (HD / 4) * 4;
            float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float f = stat[0][w][c];
                const float *from = (const float *)(smem + (w * SLOTS + spares[w]) * BYTES);
                const float4 x = *(const float4 *)(from + c * HD + (d ^ (c / 2 * 8)));
                sum.x = fmaf(f, x.x, sum.x), sum.y = fmaf(f, x.y, sum.y);
                sum.z = fmaf(f, x.z, sum.z), sum.w = fmaf(f, x.w, sum.w);
            }
            if (whole) {
                put_four(q, r, h0 + c, HD, d, sum, both[2][c]);
                continue;
            }
            float *to = partial + ((r * q.n_heads + h0 + c) * (max_splits + 1) + now) * partial_ld;
            *(float4 *)(to + d) = sum;
            if (d == 0) {
                to[HD] = both[0][c];
                to[HD + 1] = both[1][c];
            }
        }
        if (ALONE || which == behind) break;
        fence_async(); /* copies come over this */
        __syncthreads();
        fill(SLOTS);
    }
    if (!turn || whole) return;
    /* The CTA that comes last merges the parts. The barrier, then one thread's release and acquire,
     * order what all threads wrote and will read. */
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *mine = turn + r * gridDim.x + blockIdx.x;
        const int32_t before = add_acquire_release(mine, n_parts);
        is_last = before == p.n - n_parts;
        if (is_last) *mine = 0; /* for the next launch */
    }
    __syncthreads();
    if (!is_last) return;
    merge_parts<HD>(q, r, h0, n_q, p.n, partial, max_splits, partial_ld, (float2 *)smem);
}

template <int HD> size_t smem_bytes()
{
    return (size_t)WARPS * SLOTS * TILE * HD * 2 /* the merge takes a slot of each warp */
           + 8 * query_ld<HD>() * 2 + 2 * HD * 2 + WARPS * HD * 4;
}

template <int HD>
cudaError_t run(const gem_cuda_stream *s, const gem_cuda_kv *kv, const gem_cuda_rows *rows,
                const gem_cuda_queries *q, const gem_cuda_qkv *raw, int32_t n, int32_t splits,
                float *partial, int32_t *turn)
{
    const gem_cuda_qkv none = {};
    int group = q->n_heads / kv->n_kv_heads, groups = (group + QUERIES - 1) / QUERIES;
    const int ctas = kv->n_kv_heads * groups * n; /* and at most two waves of them */
    int parts = splits + 1;
    if (n > 1) parts = GEM_MIN(parts, GEM_MAX(1, (HD > 256 ? 1 : 2) * s->n_sms / ctas));
    dim3 grid((unsigned)(kv->n_kv_heads * groups), (unsigned)parts, (unsigned)n);
    /* phases are told of single rows */
    const auto kernel = !raw        ? attend_mma<HD, false, false>
                        : q->clocks ? attend_mma<HD, true, true>
                                    : attend_mma<HD, true, false>;
    return launch(s, kernel, grid, THREADS, smem_bytes<HD>(), *kv, *rows, *q, raw ? *raw : none,
                  splits, partial, (int64_t)HD + 4, turn);
}

template <int HD> cudaError_t init()
{
    const cudaFuncAttribute what = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const int bytes = (int)smem_bytes<HD>();
    cudaError_t e = cudaFuncSetAttribute(attend_mma<HD, false, false>, what, bytes);
    if (!e) e = cudaFuncSetAttribute(attend_mma<HD, true, false>, what, bytes);
    return e ? e : cudaFuncSetAttribute(attend_mma<HD, true, true>, what, bytes);
}

} // namespace

bool gem_cuda_mma_head(const gem_cuda_stream *s, int head_dim, bool f16)
{
    return f16 && gem_cuda_flash_head(head_dim) &&
           (head_dim < 512 || smem_bytes<512>() + 1024 <= s->max_smem);
}

bool gem_cuda_mma_merges(const gem_cuda_kv *kv, const gem_cuda_queries *q, int32_t splits)
{
    int group = q->n_heads / kv->n_kv_heads;
    int32_t pages = kv->window ? (kv->window + GEM_PAGE - 2) / GEM_PAGE + 2 : splits + 1;
    return GEM_MIN(group, QUERIES) * kv->head_dim * GEM_MIN(splits + 1, pages) <= 16384;
}

cudaError_t gem_cuda_attend_mma(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                const gem_cuda_rows *rows, const gem_cuda_queries *q,
                                const gem_cuda_qkv *raw, int32_t n, int32_t splits, float *partial,
                                int32_t *turn)
{
    switch (kv->head_dim) {
    case 64:
        return run<64>(s, kv, rows, q, raw, n, splits, partial, turn);
    case 128:
        return run<128>(s, kv, rows, q, raw, n, splits, partial, turn);
    case 256:
        return run<256>(s, kv, rows, q, raw, n, splits, partial, turn);
    case 512:
        return run<512>(s, kv, rows, q, raw, n, splits, partial, turn);
    }
    return cudaErrorInvalidValue;
}

cudaError_t gem_cuda_mma_init(const gem_cuda_stream *s)
{
    cudaError_t e = init<64>();
    if (!e) e = init<128>();
    if (!e) e = init<256>();
    if (!e && gem_cuda_mma_head(s, 512, true)) e = init<512>();
    return e;
}
