/* repack.cu - weights on their way to and from the slab layout (slab.cuh): file rows to slabs at
 * load, either layout to f16 rows for the tile route, single rows for embeddings. Bound by memory;
 * loading does it once, the tile route once a matrix and batch. */
#include "backend/cuda/slab_mma.cuh"

/* One word of a slab's quants from the file's rows. row: of the tile's first row; NULL rows are 0.
 */
template <int T>
__device__ uint32_t slab_word(const uint8_t *src, int64_t row_bytes, int n, int64_t k0, int word)
{
    int lane, up, b, at = word * 4;
    if (T == GEM_DTYPE_Q8_0) {
        b = at / 512, lane = at % 512 / 16, up = at % 16 / 8;
    } else if (at < 2048) {
        b = at / 512 * 2 + at % 16 / 8, lane = at % 512 / 16, up = at / 4 % 2;
    } else if (T == GEM_DTYPE_Q5_K) {
        b = at % 16 / 8 * 4, lane = (at - 2048) / 16, up = at / 4 % 2;
    } else {
        b = (at - 2048) / 512 * 4 + at % 16 / 8 * 2, lane = at % 512 / 16, up = at / 4 % 2;
    }
    int r = lane / 4 + 8 * up, t = lane % 4;
    if (r >= n) return T == GEM_DTYPE_Q8_0 ? 0x80808080u : 0;
    const uint8_t *row = src + r * row_bytes;
    uint32_t out = 0;
    if (T == GEM_DTYPE_Q8_0) {
        int j0 = at / 4 % 2 * 2;
        for (int e = 0; e < 2; e++)
            for (int j = 0; j < 2; j++)
                out |=
                    (uint32_t)(quant_at<T>(row, k0 + 32 * b + 8 * (j0 + j) + 2 * t + e) + 128 & 255)
                    << (8 * (2 * e + j));
    } else if (at < 2048) {
        for (int e = 0; e < 2; e++)
            for (int j = 0; j < 4; j++)
                out |= (uint32_t)(quant_at<T>(row, k0 + 32 * b + 8 * j + 2 * t + e) & 15)
                       << (4 * j + 16 * e);
    } else if (T == GEM_DTYPE_Q5_K) {
        for (int c = 0; c < 4; c++)
            for (int e = 0; e < 2; e++)
                for (int j = 0; j < 4; j++)
                    out |= (uint32_t)(quant_at<T>(row, k0 + 32 * (b + c) + 8 * j + 2 * t + e) >> 4)
                           << (4 * c + j + 16 * e);
    } else {
        for (int c = 0; c < 2; c++)
            for (int e = 0; e < 2; e++)
                for (int j = 0; j < 4; j++)
                    out |= (uint32_t)(quant_at<T>(row, k0 + 32 * (b + c) + 8 * j + 2 * t + e) >> 4)
                           << (2 * (4 * c + j) + 16 * e);
    }
    return out;
}

template <int T>
__device__ void slab_scales(const uint8_t *src, int64_t row_bytes, int n, int64_t k0,
                            uint8_t *extra, int r)
{
    uint8_t *out = extra + 16 * r;
    const uint8_t *row = src + r * row_bytes;
    for (int i = 0; i < 16; i++) {
        if (T == GEM_DTYPE_Q4_0 || T == GEM_DTYPE_Q8_0)
            out[i] = r < n ? row[(k0 / 32 + i / 2) * (T == GEM_DTYPE_Q4_0 ? 18 : 34) + i % 2] : 0;
        else if (T == GEM_DTYPE_Q6_K)
            out[i] = r < n ? row[k0 / 256 * 210 + 192 + i] : 0;
        else
            out[i] = r < n ? row[k0 / 256 * (T == GEM_DTYPE_Q4_K ? 144 : 176) + i] : 0;
    }
    if (T == GEM_DTYPE_Q6_K)
        for (int i = 0; i < 2; i++)
            extra[256 + 2 * r + i] = r < n ? row[k0 / 256 * 210 + 208 + i] : 0;
}

/* grid: slabs of a tile, tiles. half: see gem_cuda_repack; 8 source rows are then a tile's. */
template <int T>
__global__ void repack(const uint8_t *src, int64_t row_bytes, int64_t n, int half, int64_t k,
                       uint8_t *dst)
{
    const int64_t tile = blockIdx.y, slab = blockIdx.x;
    const int most = half < 0 ? 16 : 8, shift = half > 0 ? 8 : 0;
    /* row 0 of the tile, though its first eight may be another weight's */
    const uint8_t *rows = src + (tile * most - shift) * row_bytes;
    uint8_t *out = dst + (tile * (k / 256) + slab) * slab_bytes(T);
    const int left = shift + (int)(n - tile * most < most ? n - tile * most : most);
    for (int w = threadIdx.x; w < slab_extra(T) / 4; w += blockDim.x) {
        const int up = T == GEM_DTYPE_Q8_0 ? w / 2 % 2 : w % 2;
        if (half < 0 || up == half)
            ((uint32_t *)out)[w] = slab_word<T>(rows, row_bytes, left, slab * 256, w);
    }
    const int r = threadIdx.x;
    if (r < 16 && (half < 0 || r / 8 == half))
        slab_scales<T>(rows, row_bytes, left, slab * 256, out + slab_extra(T), r);
}

template <int T>
static cudaError_t run_repack(cudaStream_t s, const uint8_t *src, int64_t n, int half, int64_t k,
                              int64_t row_bytes, uint8_t *dst)
{
    const int64_t most = half < 0 ? 16 : 8, tiles = (n + most - 1) / most;
    gem_cuda_stream on = {};
    cudaError_t e = cudaSuccess;
    on.stream = s;
    for (int64_t at = 0; at < tiles && !e; at += 65535) { /* grid.y */
        int64_t now = tiles - at < 65535 ? tiles - at : 65535;
        e = launch(&on, repack<T>, dim3((unsigned)(k / 256), (unsigned)now), 128, 0,
                   src + at * most * row_bytes, row_bytes, n - at * most, half, k,
                   dst + at * (k / 256) * slab_bytes(T));
    }
    return e;
}

cudaError_t gem_cuda_repack(cudaStream_t s, gem_dtype t, const uint8_t *src, int64_t row0,
                            int64_t n, int half, int64_t k, uint8_t *dst)
{
    size_t row_bytes;
    if (!gem_dtype_row_bytes(gem_dtype_get(t), (uint64_t)k, &row_bytes))
        return cudaErrorInvalidValue;
    const int64_t tile = row0 / (half < 0 ? 16 : 8);
    uint8_t *at = dst + (size_t)(tile * (k / 256)) * gem_cuda_slab_bytes(t);
    return GEM_CUDA_BY_SLAB_TYPE(t, run_repack, s, src, n, half, k, (int64_t)row_bytes, at);
}

/* ---- back ---- */

/* One thread, eight values. */
template <int T>
__global__ void expand(const uint8_t *w, int64_t row_bytes, int64_t k, int64_t row0, int64_t n,
                       uint4 *dst)
{
    dependents_go();
    dependency_wait();
    int64_t octets = k / 8;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * octets;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t r = i / octets, o = i - r * octets;
        float v[8];
        octet<T>(w + (row0 + r) * row_bytes, o, v);
        __half2 h[4];
        for (int j = 0; j < 4; j++)
            h[j] = __floats2half2_rn(v[2 * j], v[2 * j + 1]);
        dst[i] = *(uint4 *)h;
    }
}

enum { EXPAND_WARPS = 8, EXPAND_LD = 512 + 16 }; /* bytes of a row of 256; rows in other banks */

/* A warp a slab, read as the products read it; eight rows at a time go through shared memory, so
 * that 512 bytes of a row are written at once. Bit for bit what slab_octet gives. row0: a multiple
 * of 16. */
template <int T>
__global__ void __launch_bounds__(32 * EXPAND_WARPS)
    expand_slabs(const uint8_t *w, int64_t k, int64_t row0, int64_t n, uint4 *dst)
{
    struct __align__(16) rows_of
    {
        uint8_t at[8 * EXPAND_LD];
    };
    SHARED(rows_of[EXPAND_WARPS], spare);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int slabs = (int)(k / 256);
    const int64_t all = (n + 15) / 16 * slabs, step = (int64_t)gridDim.x * EXPAND_WARPS;
    uint8_t *mine = spare[warp].at;
    dependents_go();
    dependency_wait();
    for (int64_t i = (int64_t)blockIdx.x * EXPAND_WARPS + warp; i < all; i += step) {
        const int64_t tile = i / slabs;
        const int ks = (int)(i - tile * slabs);
        slab<T> x;
        x.load(w + ((row0 / 16 + tile) * slabs + ks) * slab_bytes(T), lane);
#pragma unroll
        for (int up = 0; up < 2; up++) {
#pragma unroll
            for (int b = 0; b < 8; b++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    *(uint32_t *)(mine + g * EXPAND_LD + 64 * b + 16 * j + 4 * t) =
                        x.halves(b, j, up);
            __syncwarp();
            const int64_t row = 16 * tile + 8 * up;
            uint4 *out = dst + row * (k / 8) + 32 * ks + lane;
#pragma unroll
            for (int r = 0; r < 8; r++)
                if (row + r < n)
                    out[r * (k / 8)] = *(const uint4 *)(mine + r * EXPAND_LD + 16 * lane);
            __syncwarp();
        }
    }
}

template <int T>
static cudaError_t run_expand(const gem_cuda_stream *s, const gem_cuda_weight *w, int64_t row0,
                              int64_t n, uint16_t *dst)
{
    int64_t blocks = (n * (w->k / 8) + 255) / 256, most = 16 * (int64_t)s->n_sms;
    return launch(s, expand<T>, dim3((unsigned)(blocks < most ? blocks : most)), 256, 0, w->data,
                  w->row_bytes, w->k, row0, n, (uint4 *)dst);
}
template <int T>
static cudaError_t run_expand_slabs(const gem_cuda_stream *s, const gem_cuda_weight *w,
                                    int64_t row0, int64_t n, uint16_t *dst)
{
    const int64_t slabs = (n + 15) / 16 * (w->k / 256), most = 8 * (int64_t)s->n_sms;
    const int64_t blocks = (slabs + EXPAND_WARPS - 1) / EXPAND_WARPS;
    if (row0 % 16) return cudaErrorInvalidValue;
    return launch(s, expand_slabs<T>, dim3((unsigned)(blocks < most ? blocks : most)),
                  32 * EXPAND_WARPS, 0, w->data, w->k, row0, n, (uint4 *)dst);
}

cudaError_t gem_cuda_expand(const gem_cuda_stream *s, const gem_cuda_weight *w, int64_t row0,
                            int64_t n, uint16_t *dst)
{
    if (w->slabs) return GEM_CUDA_BY_SLAB_TYPE(w->dtype, run_expand_slabs, s, w, row0, n, dst);
    return GEM_CUDA_BY_TYPE(w->dtype, run_expand, s, w, row0, n, dst);
}

/* ---- embeddings ---- */

template <int T, bool SLABS>
__global__ void embed(const uint8_t *w, int64_t row_bytes, int64_t k, const int32_t *token,
                      float scale, float *dst, int64_t ld)
{
    dependents_go();
    dependency_wait();
    int64_t r = blockIdx.y, id = __ldcg(token + r);
    int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= k / 8) return;
    float v[8];
    if (SLABS)
        slab_octet<T>(w, k, id, o, v);
    else
        octet<T>(w + id * row_bytes, o, v);
    for (int i = 0; i < 8; i++)
        dst[r * ld + 8 * o + i] = v[i] * scale;
}

template <int T>
static cudaError_t run_embed(const gem_cuda_stream *s, const gem_cuda_weight *w,
                             const int32_t *token, int32_t n, float scale, float *dst, int64_t ld)
{
    return launch(s, embed<T, false>, dim3((unsigned)((w->k / 8 + 127) / 128), (unsigned)n), 128, 0,
                  w->data, w->row_bytes, w->k, token, scale, dst, ld);
}
template <int T>
static cudaError_t run_embed_slabs(const gem_cuda_stream *s, const gem_cuda_weight *w,
                                   const int32_t *token, int32_t n, float scale, float *dst,
                                   int64_t ld)
{
    return launch(s, embed<T, true>, dim3((unsigned)((w->k / 8 + 127) / 128), (unsigned)n), 128, 0,
                  w->data, w->row_bytes, w->k, token, scale, dst, ld);
}

cudaError_t gem_cuda_embed(const gem_cuda_stream *s, const gem_cuda_weight *w, const int32_t *token,
                           int32_t n, float scale, float *dst, int64_t ld)
{
    if (w->slabs)
        return GEM_CUDA_BY_SLAB_TYPE(w->dtype, run_embed_slabs, s, w, token, n, scale, dst, ld);
    return GEM_CUDA_BY_TYPE(w->dtype, run_embed, s, w, token, n, scale, dst, ld);
}
