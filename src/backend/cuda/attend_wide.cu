/* attend_wide.cu - attention of many rows over f16 pages on Hopper: head size 512.
 *
 * A CTA takes up to 64 query rows of one KV head, as attend_wgmma.cu takes 128; queries, the keys
 * and the values of one page fill its shared memory. Two warpgroups share the work by columns:
 * each multiplies the scores of 32 positions (m64n32k16), they agree on the maximum of a row, leave
 * their probabilities in shared memory, and each sums 256 of the 512 dims (m64n256k16). The scores
 * of the next page are multiplied right behind the values of this one, so that keys arrive while
 * values are summed and values while scores are. Sums run over pages in ascending order: a row's
 * bits depend on its position and its block alone.
 * Bound: the matrix rate; the scores, 32 columns at a time, that of shared memory. Design after the
 * facts in docs/cuda.md, figures there. */
#include "backend/cuda/parts.cuh"
#include "backend/cuda/ring.cuh"
#include "backend/cuda/wgmma.cuh"

namespace
{

enum { THREADS = 384, KEYS = GEM_PAGE, HD = 512, ROWS = 64, TILE = KEYS * HD * 2 };
enum { Q_BYTES = ROWS * HD * 2, P_BYTES = ROWS * KEYS * 2 };
enum { AT_K = Q_BYTES, AT_V = AT_K + TILE, AT_P = AT_V + TILE, AT_RED = AT_P + P_BYTES };
enum { AT_BARS = AT_RED + 2 * ROWS * 4, BYTES = AT_BARS + 32 };
enum { FULL_K = 0, FULL_V = 8, EMPTY_K = 16, EMPTY_V = 24 }; /* barriers */

struct args {
    gem_cuda_kv kv;
    gem_cuda_rows rows;
    const gem_cuda_block *block;
    gem_cuda_queries q;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ void produce(const args &a, int32_t first, int32_t last, uint32_t base,
                        const int32_t *table)
{
    const uint64_t policy = evict_normal();
    const uint32_t bars = base + AT_BARS;
    for (int32_t page = first; page <= last; page++) {
        const uint32_t turn = (uint32_t)((page - first) & 1);
        const __half *src =
            (const __half *)a.kv.pool +
            ((int64_t)__ldg(table + page) * a.kv.n_kv_heads + blockIdx.y) * (2 * GEM_PAGE * HD);
        await(bars + EMPTY_K, turn ^ 1);
        fetch(base + AT_K, src, TILE, bars + FULL_K, policy);
        await(bars + EMPTY_V, turn ^ 1);
        fetch(base + AT_V, src + GEM_PAGE * HD, TILE, bars + FULL_V, policy);
    }
}
__device__ inline void both_groups()
{
    bar_sync(1, 256);
}
#endif

__global__ void __launch_bounds__(THREADS, 1) attend_wide(args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    DYNAMIC_SHARED(uint8_t, smem, 1024);
    const int tid = threadIdx.x, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int warp = __shfl_sync(~0u, tid / 32, 0); /* known to be one number a warp */
    const int wg = warp / 4, rank = warp % 4;
    const int head = blockIdx.y, group = a.q.n_heads / a.kv.n_kv_heads;
    const uint32_t base = shared_at(smem), bars = base + AT_BARS;
    float *red = (float *)(smem + AT_RED); /* [2][64] */
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
        barrier_init(bars + FULL_K);
        barrier_init(bars + FULL_V);
        barrier_init(bars + EMPTY_K, 8);
        barrier_init(bars + EMPTY_V, 8);
        barriers_visible();
    }
    __syncthreads();
    if (warp >= 8) { /* registers go to those who multiply */
        registers_down<24>();
        if (tid == 256) produce(a, first, last, base, table);
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
    both_groups();

    int32_t pos[2]; /* of this lane's rows; -1: no row */
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const int r = rank * 16 + g + 8 * u;
        pos[u] = r < n ? __ldcg(a.rows.pos + b.row + r / group) : -1;
    }
    float s[16], o[128], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 128; i++)
        o[i] = 0;
    const float log2e = 1.4426950408889634f;
    const uint64_t q_at = wgmma_tile(base, 16),
                   k_at = wgmma_tile(base + AT_K + wg * (32 * 128), 16),
                   p_at = wgmma_tile(base + AT_P, 16),
                   v_at = wgmma_tile(base + AT_V + wg * (4 * KEYS * 128), KEYS * 128);

    const auto scores = [&](uint32_t turn) {
        const uint64_t q = wgmma_anew(q_at), keys = wgmma_anew(k_at);
        await(bars + FULL_K, turn);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < HD / 16; k++)
            wgmma_qk(s, wgmma_ahead(q, k / 4 * (ROWS * 128) + k % 4 * 32),
                     wgmma_ahead(keys, k / 4 * (KEYS * 128) + k % 4 * 32), k > 0);
        wgmma_commit();
    };
    /* Probabilities of this group's 32 positions to shared memory. */
    const auto softmax = [&](int32_t page) {
        if (page * KEYS + KEYS - 1 > pos0 || n < ROWS || (window && pos1 - page * KEYS >= window))
#pragma unroll
            for (int j = 0; j < 16; j++) {
                const int32_t key = page * KEYS + wg * 32 + j / 4 * 8 + 2 * t + j % 2,
                              at = pos[j % 4 / 2];
                if (key > at || (window && at - key >= window)) s[j] = -INFINITY;
            }
        float top[2], fade[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            top[u] = -INFINITY;
#pragma unroll
            for (int j = 0; j < 4; j++)
                top[u] = fmaxf(top[u], fmaxf(s[4 * j + 2 * u], s[4 * j + 2 * u + 1]));
            top[u] = fmaxf(top[u], __shfl_xor_sync(~0u, top[u], 1));
            top[u] = fmaxf(top[u], __shfl_xor_sync(~0u, top[u], 2));
            if (t == 0) red[wg * ROWS + rank * 16 + g + 8 * u] = top[u];
        }
        both_groups(); /* maxima are there; nobody reads the last page's probabilities any more */
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int r = rank * 16 + g + 8 * u;
            const float now = fmaxf(m[u], fmaxf(top[u], red[(1 - wg) * ROWS + r]));
            const float f = now == -INFINITY ? 0.0f : now * log2e;
            fade[u] = exp2f(m[u] * log2e - f);
            m[u] = now;
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float p0 = exp2f(fmaf(s[4 * j + 2 * u], log2e, -f));
                const float p1 = exp2f(fmaf(s[4 * j + 2 * u + 1], log2e, -f));
                sum += p0 + p1;
                *(__half2 *)(smem + AT_P + r * 128 + (((4 * wg + j) ^ (r & 7)) << 4) + 4 * t) =
                    __floats2half2_rn(p0, p1);
            }
            l[u] = fmaf(l[u], fade[u], sum);
        }
        fence_async();
        both_groups();
        if (__any_sync(~0u, fade[0] != 1.0f || fade[1] != 1.0f))
#pragma unroll
            for (int j = 0; j < 128; j += 4) {
                o[j] *= fade[0], o[j + 1] *= fade[0];
                o[j + 2] *= fade[1], o[j + 3] *= fade[1];
            }
    };
    const auto weigh = [&](uint32_t turn) {
        const uint64_t weights = wgmma_anew(p_at), values = wgmma_anew(v_at);
        await(bars + FULL_V, turn);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++)
            wgmma_pv(o, wgmma_ahead(weights, k * 32), wgmma_ahead(values, k * (16 * 128)));
        wgmma_commit();
    };
    const auto done = [&](int what) {
        if (lane == 0) arrive(bars + what);
    };
    scores(0);
    wgmma_wait<0>();
    done(EMPTY_K);
    for (int32_t page = first; page < last; page++) {
        const uint32_t turn = (uint32_t)((page - first) & 1);
        softmax(page);
        weigh(turn);
        scores(turn ^ 1);
        wgmma_wait<1>();
        done(EMPTY_V);
        wgmma_wait<0>();
        done(EMPTY_K);
    }
    softmax(last);
    weigh((uint32_t)((last - first) & 1));
    wgmma_wait<0>();
    for (int u = 0; u < 2; u++) {
        l[u] += __shfl_xor_sync(~0u, l[u], 1);
        l[u] += __shfl_xor_sync(~0u, l[u], 2);
        if (t == 0) red[wg * ROWS + rank * 16 + g + 8 * u] = l[u];
    }
    both_groups();
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const int r = rank * 16 + g + 8 * u;
        if (r >= n) continue;
        const float f = 1.0f / (red[r] + red[ROWS + r]);
        const int64_t row = b.row + r / group, h = head * group + r % group;
        const int d = wg * 256 + 2 * t;
        store_row<32>(a.q, row, h, HD, d, (float(*)[4])o, 2 * u, f);
    }
#else
    (void)a;
#endif
}

} // namespace

int gem_cuda_wide_rows(int head_dim)
{
    return head_dim == HD ? ROWS : 0;
}

cudaError_t gem_cuda_attend_wide(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                 const gem_cuda_rows *rows, const gem_cuda_block *block,
                                 int32_t n_blocks, const gem_cuda_queries *q)
{
    const args a = {*kv, *rows, block, *q};
    return launch(s, attend_wide, dim3((unsigned)n_blocks, (unsigned)kv->n_kv_heads), THREADS,
                  BYTES, a);
}

cudaError_t gem_cuda_wide_init(void)
{
    return cudaFuncSetAttribute(attend_wide, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
}
