/* attend_flash128.cu - attention of many rows over pages as in attend_flash.cu, with one step of
 * the softmax for two pages: tiles of 128 keys (the route bq8-bk128).
 *
 * A row's maximum is agreed on, and its sums are rescaled, half as often. Shared memory does not
 * hold four tiles beside the queries at head size 512, so two slots take them in turn: while scores
 * of the first page's keys are multiplied, the second's arrive; behind them come the first values,
 * then the second, then keys again. A slot is refilled as soon as all warps have read it. An odd
 * last page is a step by itself. Order: pages ascending, so a row's bits depend on its position and
 * its page borders alone; they are not those of steps of 64 keys. */
#include "backend/cuda/attend_flash.cuh"

namespace
{

using namespace flash_parts;

enum { STEP = 2 * KEYS };

template <class E, int HD>
__global__ void __launch_bounds__(THREADS, HD > 128 ? 1 : 2) flash128(args a)
{
    DYNAMIC_SHARED(uint8_t, smem, 1024);
    uint8_t *qs = smem, *slot[2] = {qs + ROWS * HD * 2, qs + ROWS * HD * 2 + KEYS * HD * 2};
    uint8_t *ps = slot[1] + KEYS * HD * 2;        /* [64][128] f16 */
    float *red = (float *)(ps + ROWS * STEP * 2); /* [2][64] */
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int rg = warp / 2, half = warp % 2;
    const gem_cuda_kv &kv = a.kv;
    const int head = blockIdx.y, group = a.q.n_heads / kv.n_kv_heads;
    dependents_go();
    dependency_wait();
    /* long rows first: the last blocks see most keys */
    const gem_cuda_block b = a.block[gridDim.x - 1 - blockIdx.x];
    const int n = b.n_tokens * group;
    const int32_t pos0 = __ldcg(a.rows.pos + b.row),
                  pos1 = __ldcg(a.rows.pos + b.row + b.n_tokens - 1);
    const int32_t *table = kv.table + (int64_t)__ldcg(a.rows.seq + b.row) * kv.table_stride;
    const int32_t first = kv.window && pos0 >= kv.window ? (pos0 - kv.window + 1) / KEYS : 0;
    const int32_t last = pos1 / KEYS;

    const auto source = [&](int32_t page, bool values) {
        return (const E *)kv.pool +
               ((int64_t)__ldg(table + page) * kv.n_kv_heads + head) * (2 * GEM_PAGE * HD) +
               (values ? (int64_t)GEM_PAGE * HD : 0);
    };
    const auto load = [&](int to, int32_t page, bool values) {
        if (sizeof(E) == sizeof(float) && page + 1 < last)
            expect_tile<HD>(source(page + 2, values), tid);
        if (page <= last) load_tile<HD>(shared_at(slot[to]), slot[to], source(page, values), tid);
        copy_commit();
    };
    load(0, first, false);
    load(1, first + 1, false);
    load_queries<HD>(qs, a.q, b.row, n, head, group, tid);

    int32_t pos[2]; /* of this lane's rows; -1: no row */
    for (int u = 0; u < 2; u++) {
        int r = rg * 16 + g + 8 * u;
        pos[u] = r < n ? __ldcg(a.rows.pos + b.row + r / group) : -1;
    }
    constexpr int TILES = HD / 2 / 8; /* 8-dim columns of this warp's half */
    float o[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++)
        o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, s[2][4][4];
    const float log2e = 1.4426950408889634f;

    /* of a page that stands in slot `which`; -inf where a row does not see a key */
    const auto scores = [&](int which, int32_t page) {
        float(*x)[4] = s[which];
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[i / 4][i % 4] = 0;
#pragma unroll 4
        for (int kk = 0; kk < HD / 16; kk++) {
            uint32_t q[4], k0[4], k1[4];
            ldmatrix4(q, shared_at(qs + at_chunk(HD, rg * 16 + lane % 16, 2 * kk + lane / 16)));
            int key = half * 32 + lane / 16 * 8 + lane % 8, c = 2 * kk + lane / 8 % 2;
            ldmatrix4(k0, shared_at(slot[which] + at_page(key, c)));
            ldmatrix4(k1, shared_at(slot[which] + at_page(key + 16, c)));
            mma16816(x[0], q, k0[0], k0[1]);
            mma16816(x[1], q, k0[2], k0[3]);
            mma16816(x[2], q, k1[0], k1[1]);
            mma16816(x[3], q, k1[2], k1[3]);
        }
        const int32_t key0 = page * KEYS + half * 32;
        if (page * KEYS + KEYS - 1 > pos0 || n < ROWS ||
            (kv.window && pos1 - page * KEYS >= kv.window))
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int32_t key = key0 + i / 4 * 8 + 2 * t + i % 2, p = pos[i % 4 / 2];
                if (key > p || (kv.window && p - key >= kv.window)) x[i / 4][i % 4] = -INFINITY;
            }
    };
    const auto weigh = [&](int which) {
#pragma unroll
        for (int kk = 0; kk < KEYS / 16; kk++) {
            uint32_t p[4];
            ldmatrix4(p, shared_at(ps + at_chunk(STEP, rg * 16 + lane % 16,
                                                 which * 8 + 2 * kk + lane / 16)));
#pragma unroll
            for (int i = 0; i < TILES; i += 2) {
                uint32_t v[4];
                int key = kk * 16 + lane % 16, c = half * (HD / 16) + i + lane / 16;
                ldmatrix4_trans(v, shared_at(slot[which] + at_page(key, c)));
                mma16816(o[i], p, v[0], v[1]);
                mma16816(o[i + 1], p, v[2], v[3]);
            }
        }
    };
    /* Tiles that copies bring are there for all when each has waited for its own and then for the
     * others. Those that threads wrote themselves (f32) were there at the barrier before. */
    const auto arrive = [] {
        copy_wait<1>();
        __syncthreads();
    };
    constexpr bool COPIES = sizeof(E) == sizeof(__half);
    for (int32_t page = first; page <= last; page += 2) {
        const bool two = page < last;
        if (COPIES || page == first) arrive(); /* first keys */
        scores(0, page);
        __syncthreads(); /* and read */
        load(0, page, true);
        if (COPIES) arrive(); /* second keys */
        if (two) {
            scores(1, page + 1);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++)
                s[1][i / 4][i % 4] = -INFINITY;
        }
        float top[2], fade[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            top[u] = -INFINITY;
#pragma unroll
            for (int i = 0; i < 8; i++)
                top[u] = fmaxf(top[u], fmaxf(s[i / 4][i % 4][2 * u], s[i / 4][i % 4][2 * u + 1]));
            top[u] = fmaxf(top[u], __shfl_xor_sync(~0u, top[u], 1));
            top[u] = fmaxf(top[u], __shfl_xor_sync(~0u, top[u], 2));
            if (t == 0) red[half * ROWS + rg * 16 + g + 8 * u] = top[u];
        }
        __syncthreads(); /* second keys are read, maxima are there */
        load(1, two ? page + 1 : last + 1, true);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            float other = red[(1 - half) * ROWS + rg * 16 + g + 8 * u];
            float now = fmaxf(m[u], fmaxf(top[u], other));
            float f = now == -INFINITY ? 0.0f : now * log2e;
            fade[u] = exp2f(m[u] * log2e - f);
            m[u] = now;
            float sum = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float p0 = exp2f(fmaf(s[i / 4][i % 4][2 * u], log2e, -f));
                float p1 = exp2f(fmaf(s[i / 4][i % 4][2 * u + 1], log2e, -f));
                sum += p0 + p1;
                int r = rg * 16 + g + 8 * u, c = i / 4 * 8 + half * 4 + i % 4;
                *(__half2 *)(ps + at_chunk(STEP, r, c) + 4 * t) = __floats2half2_rn(p0, p1);
            }
            l[u] = fmaf(l[u], fade[u], sum);
        }
        if (__any_sync(~0u, fade[0] != 1.0f || fade[1] != 1.0f))
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                o[i][0] *= fade[0], o[i][1] *= fade[0];
                o[i][2] *= fade[1], o[i][3] *= fade[1];
            }
        arrive(); /* first values, and probabilities */
        weigh(0);
        __syncthreads(); /* and read */
        load(0, page + 2, false);
        if (COPIES) arrive(); /* second values */
        if (two) weigh(1);
        __syncthreads(); /* and read */
        load(1, page + 3, false);
    }
    for (int u = 0; u < 2; u++) {
        l[u] += __shfl_xor_sync(~0u, l[u], 1);
        l[u] += __shfl_xor_sync(~0u, l[u], 2);
        if (t == 0) red[half * ROWS + rg * 16 + g + 8 * u] = l[u];
    }
    pair_sync(rg);
#pragma unroll
    for (int u = 0; u < 2; u++) {
        int r = rg * 16 + g + 8 * u;
        if (r >= n) continue;
        float f = 1.0f / (red[r] + red[ROWS + r]);
        store_row<TILES>(a.q, b.row + r / group, head * group + r % group, HD,
                         half * (HD / 2) + 2 * t, o, 2 * u, f);
    }
}

size_t smem_bytes(int hd)
{
    return (size_t)3 * 64 * hd * 2 + ROWS * STEP * 2 + 2 * ROWS * 4;
}

template <class E, int HD>
cudaError_t run(const gem_cuda_stream *s, const args &a, int32_t n_blocks)
{
    return launch(s, flash128<E, HD>, dim3((unsigned)n_blocks, (unsigned)a.kv.n_kv_heads), THREADS,
                  smem_bytes(HD), a);
}

template <class E> cudaError_t by_head(const gem_cuda_stream *s, const args &a, int32_t n_blocks)
{
    switch (a.kv.head_dim) {
    case 64:
        return run<E, 64>(s, a, n_blocks);
    case 256:
        return run<E, 256>(s, a, n_blocks);
    case 512:
        return run<E, 512>(s, a, n_blocks);
    }
    return cudaErrorInvalidValue;
}

template <class E, int HD> cudaError_t init(const gem_cuda_stream *s)
{
    if (!gem_cuda_flash128_head(s, HD)) return cudaSuccess;
    return cudaFuncSetAttribute(flash128<E, HD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)smem_bytes(HD));
}

} // namespace

bool gem_cuda_flash128_head(const gem_cuda_stream *s, int head_dim)
{
    return (head_dim == 64 || head_dim == 256 || head_dim == 512) &&
           smem_bytes(head_dim) <= s->max_smem;
}

cudaError_t gem_cuda_attend_flash128(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                     const gem_cuda_rows *rows, const gem_cuda_block *block,
                                     int32_t n_blocks, const gem_cuda_queries *q)
{
    const args a = {*kv, *rows, block, *q};
    return kv->f16 ? by_head<__half>(s, a, n_blocks) : by_head<float>(s, a, n_blocks);
}

cudaError_t gem_cuda_flash128_init(const gem_cuda_stream *s)
{
    cudaError_t e = init<float, 64>(s);
    if (!e) e = init<float, 256>(s);
    if (!e) e = init<float, 512>(s);
    if (!e) e = init<__half, 64>(s);
    if (!e) e = init<__half, 256>(s);
    if (!e) e = init<__half, 512>(s);
    return e;
}
