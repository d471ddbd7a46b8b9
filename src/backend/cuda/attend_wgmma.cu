/* attend_wgmma.cu - attention of many rows over f16 pages on Hopper: head size 256.
 *
 * A CTA takes up to 128 query rows of one KV head: consecutive tokens of one sequence times the
 * query heads of the group. Two warpgroups multiply 64 rows each, one thread of a third fetches
 * keys and values of a page (64 positions) by one bulk copy each; pages stand in memory as the
 * products want them (page_at). Scores, S = Q K' by m64n64k16 from shared memory; the running
 * maximum and sum of a row as in FlashAttention (arXiv:2205.14135); probabilities stay in
 * registers, O += P V by m64n256k16. The scores of the next page are multiplied behind the values
 * of this one. Sums run over pages in ascending order: a row's bits depend on its position and its
 * block alone. Bound: the matrix rate. Figures: docs/cuda.md. Head size 512: attend_wide.cu. */
#include "backend/cuda/parts.cuh"
#include "backend/cuda/ring.cuh"
#include "backend/cuda/wgmma.cuh"

namespace
{

enum { THREADS = 384, KEYS = GEM_PAGE };

struct args {
    gem_cuda_kv kv;
    gem_cuda_rows rows;
    const gem_cuda_block *block;
    gem_cuda_queries q;
};

enum { HD = 256, ROWS = 128, STAGES = 2, Q_BYTES = ROWS * HD * 2, TILE = KEYS * HD * 2 };
enum { BYTES = Q_BYTES + 2 * STAGES * TILE + 8 * 4 * STAGES };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ void produce(const args &a, int32_t first, int32_t last, uint32_t ks, uint32_t vs,
                        uint32_t bars, const int32_t *table)
{
    const uint64_t policy = evict_normal();
    for (int32_t page = first; page <= last; page++) {
        const int i = page - first, stage = i % STAGES;
        const uint32_t turn = (uint32_t)(i / STAGES & 1);
        const __half *src =
            (const __half *)a.kv.pool +
            ((int64_t)__ldg(table + page) * a.kv.n_kv_heads + blockIdx.y) * (2 * GEM_PAGE * HD);
        /* full keys, full values, empty keys, empty values: bars + 8 (4 stage + 0..3) */
        const uint32_t bar = bars + 32 * stage;
        await(bar + 16, turn ^ 1);
        expect(bar, TILE);
        copy(ks + stage * TILE, src, TILE, bar, policy);
        await(bar + 24, turn ^ 1);
        expect(bar + 8, TILE);
        copy(vs + stage * TILE, src + GEM_PAGE * HD, TILE, bar + 8, policy);
    }
}
#endif

__global__ void __launch_bounds__(THREADS, 1) attend_wgmma(args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    DYNAMIC_SHARED(uint8_t, smem, 1024);
    const int tid = threadIdx.x, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int warp = __shfl_sync(~0u, tid / 32, 0); /* known to be one number a warp */
    const int wg = warp / 4, head = blockIdx.y, group = a.q.n_heads / a.kv.n_kv_heads;
    const uint32_t qs = shared_at(smem), ks = qs + Q_BYTES, vs = ks + STAGES * TILE,
                   bars = vs + STAGES * TILE;
    dependents_go();
    dependency_wait();
    /* long rows first: the last blocks see most keys */
    const gem_cuda_block b = a.block[gridDim.x - 1 - blockIdx.x];
    const int n = b.n_tokens * group;
    const int32_t window = a.kv.window;
    const int32_t pos0 = __ldcg(a.rows.pos + b.row),
                  pos1 = __ldcg(a.rows.pos + b.row + b.n_tokens - 1);
    const int32_t *table = a.kv.table + (int64_t)__ldcg(a.rows.seq + b.row) * a.kv.table_stride;
    const int32_t first = window && pos0 >= window ? (pos0 - window + 1) / KEYS : 0;
    const int32_t last = pos1 / KEYS;
    if (tid == 0) {
        for (int i = 0; i < 4 * STAGES; i++)
            barrier_init(bars + 8 * i, i % 4 < 2 ? 1 : 8);
        barriers_visible();
    }
    __syncthreads();
    if (warp >= 8) { /* registers go to those who multiply */
        registers_down<24>();
        if (tid == 256) produce(a, first, last, ks, vs, bars, table);
        return;
    }
    registers_up<240>();

    for (int i = tid; i < ROWS * HD / 8; i += 256) {
        const int r = i / (HD / 8), c = i % (HD / 8);
        __half2 h[4] = {};
        if (r < n) {
            const float4 *p = (const float4 *)(a.q.data + (int64_t)(b.row + r / group) * a.q.ld +
                                               (head * group + r % group) * a.q.stride + 8 * c);
            const float4 u = __ldcg(p), w = __ldcg(p + 1);
            h[0] = __floats2half2_rn(u.x, u.y), h[1] = __floats2half2_rn(u.z, u.w);
            h[2] = __floats2half2_rn(w.x, w.y), h[3] = __floats2half2_rn(w.z, w.w);
        }
        *(uint4 *)(smem + c / 8 * (ROWS * 128) + r * 128 + (((c ^ r) & 7) << 4)) = *(uint4 *)h;
    }
    fence_async();
    bar_sync(1, 256);

    const int row0 = 64 * wg, rank = warp % 4;
    int32_t pos[2]; /* of this lane's rows; -1: no row */
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const int r = row0 + rank * 16 + g + 8 * u;
        pos[u] = r < n ? __ldcg(a.rows.pos + b.row + r / group) : -1;
    }
    float s[32], o[128], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 128; i++)
        o[i] = 0;
    const float log2e = 1.4426950408889634f;

    const uint64_t q_at = wgmma_tile(qs + (uint32_t)(row0 * 128), 16), k_at = wgmma_tile(ks, 16),
                   v_at = wgmma_tile(vs, KEYS * 128);
    const auto scores =
        [&](int i) { /* of page first + i */
                     const int stage = i % STAGES;
                     const uint64_t q = wgmma_anew(q_at),
                                    keys = wgmma_anew(wgmma_ahead(k_at, stage * TILE));
                     await(bars + 32 * stage, (uint32_t)(i / STAGES & 1));
                     wgmma_fence();
#pragma unroll
                     for (int k = 0; k < HD / 16; k++)
                         wgmma_qk(s, wgmma_ahead(q, k / 4 * (ROWS * 128) + k % 4 * 32),
                                  wgmma_ahead(keys, k / 4 * (KEYS * 128) + k % 4 * 32), k > 0);
                     wgmma_commit();
        };
    uint32_t p[4][4];
    const auto softmax = [&](int32_t page) {
        if (page * KEYS + KEYS - 1 > pos0 || n < ROWS || (window && pos1 - page * KEYS >= window))
#pragma unroll
            for (int j = 0; j < 32; j++) {
                const int32_t key = page * KEYS + j / 4 * 8 + 2 * t + j % 2, at = pos[j % 4 / 2];
                if (key > at || (window && at - key >= window)) s[j] = -INFINITY;
            }
        float fade[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < 8; j++)
                top = fmaxf(top, fmaxf(s[4 * j + 2 * u], s[4 * j + 2 * u + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            const float now = fmaxf(m[u], top), f = now == -INFINITY ? 0.0f : now * log2e;
            fade[u] = exp2f(m[u] * log2e - f);
            m[u] = now;
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float p0 = exp2f(fmaf(s[4 * j + 2 * u], log2e, -f));
                const float p1 = exp2f(fmaf(s[4 * j + 2 * u + 1], log2e, -f));
                sum += p0 + p1;
                const __half2 h = __floats2half2_rn(p0, p1);
                p[j / 2][j % 2 * 2 + u] = *(const uint32_t *)&h;
            }
            l[u] = fmaf(l[u], fade[u], sum);
        }
        if (__any_sync(~0u, fade[0] != 1.0f || fade[1] != 1.0f))
#pragma unroll
            for (int j = 0; j < 128; j += 4) {
                o[j] *= fade[0], o[j + 1] *= fade[0];
                o[j + 2] *= fade[1], o[j + 3] *= fade[1];
            }
    };
    const auto weigh = [&](int i) {
        const int stage = i % STAGES;
        const uint64_t values = wgmma_anew(wgmma_ahead(v_at, stage * TILE));
        await(bars + 32 * stage + 8, (uint32_t)(i / STAGES & 1));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma_pv(o, p[k], wgmma_ahead(values, k * (16 * 128)));
        wgmma_commit();
    };
    const auto done = [&](int i, int what) { /* what: 16 keys, 24 values */
                                             if (lane == 0) arrive(bars + 32 * (i % STAGES) + what);
    };
    scores(0);
    wgmma_wait<0>();
    done(0, 16);
    for (int32_t page = first; page < last; page++) {
        const int i = page - first;
        softmax(page);
        weigh(i);
        scores(i + 1);
        wgmma_wait<1>();
        done(i, 24);
        wgmma_wait<0>();
        done(i + 1, 16);
    }
    softmax(last);
    weigh(last - first);
    wgmma_wait<0>();
#pragma unroll
    for (int u = 0; u < 2; u++) {
        l[u] += __shfl_xor_sync(~0u, l[u], 1);
        l[u] += __shfl_xor_sync(~0u, l[u], 2);
        const int r = row0 + rank * 16 + g + 8 * u;
        if (r >= n) continue;
        const float f = 1.0f / l[u];
        const int64_t row = b.row + r / group, h = head * group + r % group;
        const int d = 2 * t;
        store_row<32>(a.q, row, h, HD, d, (float(*)[4])o, 2 * u, f);
    }
#else
    (void)a;
#endif
}

} // namespace

int gem_cuda_wgmma_rows(const gem_cuda_stream *s, int head_dim, bool f16)
{
    if (!f16 || !s->wgmma) return 0;
    return head_dim == HD ? ROWS : gem_cuda_wide_rows(head_dim);
}

cudaError_t gem_cuda_attend_wgmma(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                  const gem_cuda_rows *rows, const gem_cuda_block *block,
                                  int32_t n_blocks, const gem_cuda_queries *q)
{
    const args a = {*kv, *rows, block, *q};
    if (!gem_cuda_wgmma_rows(s, kv->head_dim, kv->f16)) return cudaErrorInvalidValue;
    if (kv->head_dim != HD) return gem_cuda_attend_wide(s, kv, rows, block, n_blocks, q);
    return launch(s, attend_wgmma, dim3((unsigned)n_blocks, (unsigned)kv->n_kv_heads), THREADS,
                  BYTES, a);
}

cudaError_t gem_cuda_wgmma_init(const gem_cuda_stream *s)
{
    if (!s->wgmma) return cudaSuccess;
    cudaError_t e =
        cudaFuncSetAttribute(attend_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    return e ? e : gem_cuda_wide_init();
}
