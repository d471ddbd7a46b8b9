/* delta_chunks.cu - the gated delta rule of whole chunks of 64 rows by tensor cores: the chunked
 * form (arXiv:2412.06464) of what docs/adr/0010 writes row by row.
 *
 * With A[t][s] = beta[t] (k[t].k[s]) D[t][s] below the diagonal and P[t][s] = (q[t].k[s]) D[t][s]
 * up to it, the rows N of a chunk solve (I + A) N = beta (v - exp(b) K S0). Kernel 1 needs no state
 * and takes all chunks and V heads side by side: keys and queries in f16, T = (I + A)^-1 by
 * substitution in f32, P and T in f16, gates. Kernel 2 walks the chunks of a sequence, 64 value
 * columns of a V head a CTA, the state in f32 registers: five small products a chunk, each
 * m16n8k16 with f16 operands and f32 sums, three barriers; the next chunk is fetched meanwhile.
 *
 * Rounding: q, k, P, T, the right side, N and the copy of the state that is multiplied are f16, the
 * last three under a fixed 2^-4, so that values up to a million pass. States, tapes and b as the
 * row by row form leaves them; bits differ from it. A chunk's bits depend on its rows and the state
 * before it alone. Bound: latency; bytes: 80 KB a chunk and CTA, most of them from L2. */
#include "backend/cuda/ptx.cuh"
#include "backend/cuda/recurrent.cuh"

namespace
{

enum { CHUNK = GEM_PAGE, WIDE = 64 /* value columns of a CTA */, SQUARE = CHUNK * CHUNK * 2 };
enum { PREPARE_CTA = 128, SCAN_CTA = 256 };

/* What kernel 1 leaves of a V head and chunk; bytes. Rows of T and P: 128 bytes, 16-byte chunk c at
 * c ^ (r & 7). */
enum {
    AT_T = 0,
    AT_P = SQUARE,
    AT_EB = 2 * SQUARE,      /* f32[64] exp(b) */
    AT_REST = AT_EB + 256,   /* f32[64] exp(b[63] - b) */
    AT_BETA = AT_REST + 256, /* f32[64] */
    AT_B = AT_BETA + 256,    /* f64[64] */
    HEAD_BYTES = AT_B + 512
};
/* Keys, then queries of a K head and chunk: f16[64][HD], swizzled the same way. */
__host__ __device__ constexpr int kq_bytes(int hd)
{
    return 2 * CHUNK * hd * 2;
}

/* Byte of 16-byte chunk c of row r, rows of HD halves. */
template <int HD> __device__ inline uint32_t at_row(int r, int c)
{
    return (uint32_t)(r * HD * 2 + ((c ^ (r & 7)) << 4));
}

struct scratch {
    uint8_t *kq, *heads;

    __device__ scratch(const gem_cuda_recurrent &c, int64_t chunk, int64_t most, int kh, int h)
    {
        kq = c.chunks + (chunk * c.r.n_k_heads + kh) * kq_bytes(c.r.head_dim);
        heads = c.chunks + most * c.r.n_k_heads * kq_bytes(c.r.head_dim) +
                (chunk * c.r.n_v_heads + h) * HEAD_BYTES;
    }
};

__device__ inline uint32_t half_pair(float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    return *(const uint32_t *)&h;
}

/* ---- kernel 1 ---- */

enum { LD_A = CHUNK + 4 };
__host__ __device__ constexpr int prepare_front(int hd) /* keys and queries, then T and P */
{
    return kq_bytes(hd) > CHUNK * CHUNK * 4 + SQUARE ? kq_bytes(hd) : CHUNK * CHUNK * 4 + SQUARE;
}
__host__ __device__ constexpr int prepare_smem(int hd)
{
    return prepare_front(hd) + CHUNK * LD_A * 4 + 4 * 256 + 512;
}

/* Column `col` of (I + A)^-1 by one thread. a: [s][t] holds -A[t][s]; x: [row][col]. Columns of a
 * warp begin at row `from`; the rows before it are 0. */
__device__ inline void invert(const float *a, float *x, int col, int from)
{
    for (int r = 0; r < from; r++)
        x[r * CHUNK + col] = 0;
#pragma unroll 1
    for (int r = from; r < CHUNK; r += 8) {
        float sum[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] = r + i == col ? 1.0f : 0.0f;
#pragma unroll 4
        for (int s = from; s < r; s++) {
            const float4 u = *(const float4 *)(a + s * LD_A + r),
                         v = *(const float4 *)(a + s * LD_A + r + 4);
            const float y = x[s * CHUNK + col];
            sum[0] = fmaf(u.x, y, sum[0]), sum[1] = fmaf(u.y, y, sum[1]);
            sum[2] = fmaf(u.z, y, sum[2]), sum[3] = fmaf(u.w, y, sum[3]);
            sum[4] = fmaf(v.x, y, sum[4]), sum[5] = fmaf(v.y, y, sum[5]);
            sum[6] = fmaf(v.z, y, sum[6]), sum[7] = fmaf(v.w, y, sum[7]);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            x[(r + j) * CHUNK + col] = sum[j];
#pragma unroll
            for (int i = j + 1; i < 8; i++)
                sum[i] = fmaf(a[(r + j) * LD_A + r + i], sum[j], sum[i]);
        }
    }
}

/* grid: V head, whole chunk of the run */
template <int HD> __global__ void __launch_bounds__(PREPARE_CTA) prepare(delta_args d, int32_t most)
{
    DYNAMIC_SHARED(uint8_t, smem, 128);
    uint8_t *keys = smem, *queries = smem + CHUNK * HD * 2;
    float *x = (float *)smem; /* T, when keys and queries have been multiplied */
    uint8_t *ps = smem + CHUNK * CHUNK * 4;
    float *a = (float *)(smem + prepare_front(HD)), *part = a + CHUNK * LD_A;
    float *gates = part + CHUNK; /* as from AT_EB on */
    double *b = (double *)(gates + 3 * CHUNK);
    const gem_cuda_recurrent &c = d.c;
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int h = blockIdx.x, kh = h % c.r.n_k_heads;
    dependents_go();
    dependency_wait();
    int32_t left = blockIdx.y, seq = 0;
    const int32_t n_seqs = *c.n_seqs;
    for (; seq < n_seqs; seq++) {
        const int32_t n = whole_chunks(c.seq[seq]).n;
        if (left < n) break;
        left -= n;
    }
    if (seq == n_seqs) return;
    const gem_cuda_seq q = c.seq[seq];
    const int32_t *row =
        c.order + q.first + (whole_chunks(q).first + left) * CHUNK - q.pos; /* of the chunk */
    const scratch out(c, blockIdx.y, most, kh, h);

    if (tid < CHUNK) {
        part[tid] = d.decay(row[tid], h);
        gates[2 * CHUNK + tid] = d.weight(row[tid], h);
    }
    __syncthreads();
    if (tid == 0) { /* in double, ascending, as rows do it */
        double sum = 0;
        for (int i = 0; i < CHUNK; i++)
            b[i] = sum += (double)part[i];
    }
    const int64_t q_at = (int64_t)kh * HD, k_at = (int64_t)(c.r.n_k_heads + kh) * HD;
#pragma unroll 4
    for (int i = tid; i < 2 * CHUNK * HD / 8; i += PREPARE_CTA) {
        const int which = i / (CHUNK * HD / 8), r = i / (HD / 8) % CHUNK, at = i % (HD / 8);
        const float4 *p = (const float4 *)(d.rows + row[r] * d.ld + (which ? q_at : k_at) + 8 * at);
        const float4 u = __ldcg(p), w = __ldcg(p + 1);
        const uint4 v = make_uint4(half_pair(u.x, u.y), half_pair(u.z, u.w), half_pair(w.x, w.y),
                                   half_pair(w.z, w.w));
        const uint32_t to = (uint32_t)(which * CHUNK * HD * 2) + at_row<HD>(r, at);
        *(uint4 *)(smem + to) = v;
        if (h < c.r.n_k_heads) *(uint4 *)(out.kq + to) = v;
    }
    __syncthreads();
    if (tid < CHUNK) {
        gates[tid] = expf((float)b[tid]);
        gates[CHUNK + tid] = expf((float)(b[CHUNK - 1] - b[tid]));
    }
    float kk[8][4] = {}, qk[8][4] = {};
#pragma unroll 2
    for (int k = 0; k < HD / 16; k++) {
        uint32_t xk[4], xq[4];
        ldmatrix4(xk, shared_at(keys + at_row<HD>(16 * warp + lane % 16, 2 * k + lane / 16)));
        ldmatrix4(xq, shared_at(queries + at_row<HD>(16 * warp + lane % 16, 2 * k + lane / 16)));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j > warp) continue;
            uint32_t y[4];
            ldmatrix4(y, shared_at(keys + at_row<HD>(16 * j + lane / 16 * 8 + lane % 8,
                                                     2 * k + lane / 8 % 2)));
            mma16816(kk[2 * j], xk, y[0], y[1]);
            mma16816(kk[2 * j + 1], xk, y[2], y[3]);
            mma16816(qk[2 * j], xq, y[0], y[1]);
            mma16816(qk[2 * j + 1], xq, y[2], y[3]);
        }
    }
    __syncthreads(); /* keys and queries are read */
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int r = 16 * warp + g + 8 * u;
            float p[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int s = 8 * j + 2 * t + e;
                const float decay = s <= r ? expf((float)(b[r] - b[s])) : 0.0f;
                p[e] = qk[j][2 * u + e] * decay;
                a[s * LD_A + r] = s < r ? -gates[2 * CHUNK + r] * kk[j][2 * u + e] * decay : 0.0f;
            }
            *(uint32_t *)(ps + at_row<CHUNK>(r, j) + 4 * t) = half_pair(p[0], p[1]);
        }
    __syncthreads();
    if (tid < CHUNK) invert(a, x, tid, tid & 32);
    __syncthreads();
    for (int i = tid; i < CHUNK * 8; i += PREPARE_CTA) {
        const float4 *p = (const float4 *)(x + i * 8);
        const float4 u = p[0], w = p[1];
        *(uint4 *)(out.heads + AT_T + at_row<CHUNK>(i / 8, i % 8)) = make_uint4(
            half_pair(u.x, u.y), half_pair(u.z, u.w), half_pair(w.x, w.y), half_pair(w.z, w.w));
        ((uint4 *)(out.heads + AT_P))[i] = ((const uint4 *)ps)[i];
    }
    for (int i = tid; i < (HEAD_BYTES - AT_EB) / 16; i += PREPARE_CTA)
        ((uint4 *)(out.heads + AT_EB))[i] = ((const uint4 *)gates)[i];
}

/* ---- kernel 2 ---- */

enum {
    LD_V = (WIDE + 8) * 4 /* bytes: rows fall into different banks */,
    NARROW = CHUNK * WIDE * 2
};
__host__ __device__ constexpr int stage_bytes(int hd) /* keys and queries, a head's part, values */
{
    return kq_bytes(hd) + HEAD_BYTES + CHUNK * LD_V;
}
__host__ __device__ constexpr int scan_smem(int hd) /* state, right side, N, N to the chunk's end */
{
    return 2 * stage_bytes(hd) + hd * WIDE * 2 + 3 * NARROW;
}

/* acc (16 rows x 32 columns) += a rows of 64 halves, columns 0..16 steps - 1, times b's columns
 * from chunk `at` on. */
__device__ inline void square_times(float acc[4][4], const uint8_t *a, int row0, const uint8_t *b,
                                    int at, int steps, int lane)
{
#pragma unroll 1
    for (int k = 0; k < steps; k++) {
        uint32_t x[4], y0[4], y1[4];
        ldmatrix4(x, shared_at(a + at_row<CHUNK>(row0 + lane % 16, 2 * k + lane / 16)));
        ldmatrix4_trans(y0, shared_at(b + at_row<WIDE>(16 * k + lane % 16, at + lane / 16)));
        ldmatrix4_trans(y1, shared_at(b + at_row<WIDE>(16 * k + lane % 16, at + 2 + lane / 16)));
        mma16816(acc[0], x, y0[0], y0[1]);
        mma16816(acc[1], x, y0[2], y0[3]);
        mma16816(acc[2], x, y1[0], y1[1]);
        mma16816(acc[3], x, y1[2], y1[3]);
    }
}

/* grid: V head, 64 of its columns, sequence */
template <int HD> __global__ void __launch_bounds__(SCAN_CTA, 1) scan(delta_args d, int32_t most)
{
    DYNAMIC_SHARED(uint8_t, smem, 128);
    constexpr int STAGE = stage_bytes(HD), DIMS = HD / 64; /* m16 tiles of state a warp */
    constexpr float DOWN = 0.0625f, UP = 16.0f;
    uint8_t *state = smem + 2 * STAGE, *right = state + HD * WIDE * 2, *ns = right + NARROW,
            *ws = ns + NARROW;
    const gem_cuda_recurrent &c = d.c;
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int rows = warp % 4, cols = warp / 4; /* 16 rows, 32 columns of the CTA's */
    const int h = blockIdx.x, seq = blockIdx.z, kh = h % c.r.n_k_heads;
    const int slice = blockIdx.y * (WIDE / COLS) + cols;
    dependents_go();
    dependency_wait();
    if (seq >= *c.n_seqs) return;
    const gem_cuda_seq q = c.seq[seq];
    const whole_chunks whole(q);
    if (whole.n == 0) return;
    int32_t before = 0;
    for (int i = 0; i < seq; i++)
        before += whole_chunks(c.seq[i]).n;
    const int32_t *row = c.order + q.first + whole.first * CHUNK - q.pos; /* of the first chunk */
    const int32_t kept_from = (q.pos + q.n - 1) / CHUNK - 1;              /* chunks tapes keep */
    const int64_t v_at = (int64_t)(2 * c.r.n_k_heads + h) * HD + blockIdx.y * WIDE;
    const int64_t my_slice = (int64_t)h * (HD / COLS) + slice;

    const auto load = [&](int i) {
        if (i < whole.n) {
            const uint32_t to = shared_at(smem + i % 2 * STAGE);
            const scratch from(c, before + i, most, kh, h);
            for (int j = tid; j < kq_bytes(HD) / 16; j += SCAN_CTA)
                copy16(to + 16 * j, from.kq + 16 * j, true);
            for (int j = tid; j < HEAD_BYTES / 16; j += SCAN_CTA)
                copy16(to + kq_bytes(HD) + 16 * j, from.heads + 16 * j, true);
            for (int j = tid; j < CHUNK * WIDE / 4; j += SCAN_CTA) {
                const int r = j / (WIDE / 4), at = j % (WIDE / 4);
                copy16(to + kq_bytes(HD) + HEAD_BYTES + r * LD_V + 16 * at,
                       d.rows + row[i * CHUNK + r] * d.ld + v_at + 4 * at, true);
            }
        }
        copy_commit();
    };
    /* the state of dims 16 DIMS rows.. and columns 32 cols.., times DOWN; its f16 copy */
    float s[DIMS][4][4];
    const auto dim_of = [&](int i, int u) { return 16 * (DIMS * rows + i) + g + 8 * u; };
    const auto publish = [&] {
#pragma unroll
        for (int i = 0; i < DIMS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int u = 0; u < 2; u++)
                    *(uint32_t *)(state + at_row<WIDE>(dim_of(i, u), 4 * cols + j) + 4 * t) =
                        half_pair(s[i][j][2 * u], s[i][j][2 * u + 1]);
    };
    load(0);
    load(1);
    const float *s0 =
        whole.first ? state_of(c, slot_of(c, seq, whole.first)) + my_slice * HD * COLS : NULL;
#pragma unroll
    for (int i = 0; i < DIMS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int u = 0; u < 2; u++) {
                float2 v = make_float2(0, 0);
                if (s0) v = *(const float2 *)(s0 + dim_of(i, u) * COLS + 8 * j + 2 * t);
                s[i][j][2 * u] = v.x * DOWN, s[i][j][2 * u + 1] = v.y * DOWN;
            }
    publish();
    copy_wait<1>();
    __syncthreads();

#pragma unroll 1
    for (int i = 0; i < whole.n; i++) {
        const int32_t chunk = whole.first + i;
        const uint8_t *keys = smem + i % 2 * STAGE, *queries = keys + CHUNK * HD * 2,
                      *head = keys + kq_bytes(HD), *values = head + HEAD_BYTES;
        const float *eb = (const float *)(head + AT_EB), *rest = (const float *)(head + AT_REST),
                    *beta = (const float *)(head + AT_BETA);
        float ks[4][4] = {}, qs[4][4] = {};
#pragma unroll 4
        for (int k = 0; k < HD / 16; k++) {
            uint32_t xk[4], xq[4], y0[4], y1[4];
            ldmatrix4(xk, shared_at(keys + at_row<HD>(16 * rows + lane % 16, 2 * k + lane / 16)));
            ldmatrix4(xq,
                      shared_at(queries + at_row<HD>(16 * rows + lane % 16, 2 * k + lane / 16)));
            const int r = 16 * k + lane % 16, at = 4 * cols + lane / 16;
            ldmatrix4_trans(y0, shared_at(state + at_row<WIDE>(r, at)));
            ldmatrix4_trans(y1, shared_at(state + at_row<WIDE>(r, at + 2)));
            mma16816(ks[0], xk, y0[0], y0[1]), mma16816(ks[1], xk, y0[2], y0[3]);
            mma16816(ks[2], xk, y1[0], y1[1]), mma16816(ks[3], xk, y1[2], y1[3]);
            mma16816(qs[0], xq, y0[0], y0[1]), mma16816(qs[1], xq, y0[2], y0[3]);
            mma16816(qs[2], xq, y1[0], y1[1]), mma16816(qs[3], xq, y1[2], y1[3]);
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int r = 16 * rows + g + 8 * u;
            const float e = eb[r], w = beta[r];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 v =
                    *(const float2 *)(values + r * LD_V + (32 * cols + 8 * j + 2 * t) * 4);
                *(uint32_t *)(right + at_row<WIDE>(r, 4 * cols + j) + 4 * t) =
                    half_pair(w * fmaf(-e, ks[j][2 * u], v.x * DOWN),
                              w * fmaf(-e, ks[j][2 * u + 1], v.y * DOWN));
                qs[j][2 * u] *= e, qs[j][2 * u + 1] *= e;
            }
        }
        __syncthreads(); /* the right side is there */
        float n[4][4] = {};
        square_times(n, head + AT_T, 16 * rows, right, 4 * cols, rows + 1, lane);
        float *kept =
            chunk >= kept_from ? tape_values(c, q.tape, chunk) + my_slice * CHUNK * COLS : NULL;
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const int r = 16 * rows + g + 8 * u;
            const float w = rest[r];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float n0 = n[j][2 * u], n1 = n[j][2 * u + 1];
                const uint32_t to = at_row<WIDE>(r, 4 * cols + j) + 4 * t;
                *(uint32_t *)(ns + to) = half_pair(n0, n1);
                *(uint32_t *)(ws + to) = half_pair(n0 * w, n1 * w);
                if (kept)
                    *(float2 *)(kept + r * COLS + 8 * j + 2 * t) = make_float2(n0 * UP, n1 * UP);
            }
        }
        if (kept && tid % 128 < CHUNK) /* a copy for each slice */
            (tape_b(c, q.tape, chunk) + my_slice * CHUNK)[tid % 128] =
                ((const double *)(head + AT_B))[tid % 128];
        __syncthreads(); /* N is there */
        square_times(qs, head + AT_P, 16 * rows, ns, 4 * cols, rows + 1, lane);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            float *out = d.o + row[i * CHUNK + 16 * rows + g + 8 * u] * d.ldo + (int64_t)h * HD +
                         slice * COLS + 2 * t;
#pragma unroll
            for (int j = 0; j < 4; j++)
                *(float2 *)(out + 8 * j) = make_float2(qs[j][2 * u] * UP, qs[j][2 * u + 1] * UP);
        }
        const float fade = eb[CHUNK - 1];
#pragma unroll
        for (int m = 0; m < DIMS; m++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[m][j][e] *= fade;
#pragma unroll
        for (int k = 0; k < CHUNK / 16; k++) {
            uint32_t y0[4], y1[4];
            const int r = 16 * k + lane % 16, at = 4 * cols + lane / 16;
            ldmatrix4_trans(y0, shared_at(ws + at_row<WIDE>(r, at)));
            ldmatrix4_trans(y1, shared_at(ws + at_row<WIDE>(r, at + 2)));
#pragma unroll
            for (int m = 0; m < DIMS; m++) {
                uint32_t x[4]; /* of keys turned: dims are the rows */
                ldmatrix4_trans(x,
                                shared_at(keys + at_row<HD>(16 * k + lane / 16 * 8 + lane % 8,
                                                            2 * (DIMS * rows + m) + lane / 8 % 2)));
                mma16816(s[m][0], x, y0[0], y0[1]), mma16816(s[m][1], x, y0[2], y0[3]);
                mma16816(s[m][2], x, y1[0], y1[1]), mma16816(s[m][3], x, y1[2], y1[3]);
            }
        }
        publish();
        float *s1 = state_of(c, slot_of(c, seq, chunk + 1)) + my_slice * HD * COLS;
#pragma unroll
        for (int m = 0; m < DIMS; m++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int u = 0; u < 2; u++)
                    *(float2 *)(s1 + dim_of(m, u) * COLS + 8 * j + 2 * t) =
                        make_float2(s[m][j][2 * u] * UP, s[m][j][2 * u + 1] * UP);
        copy_wait<0>();
        __syncthreads(); /* the state and the next chunk are there, this one is done with */
        load(i + 2);
    }
}

template <int HD>
cudaError_t run(const gem_cuda_stream *s, const delta_args &d, int32_t most_seqs, int32_t n)
{
    const int32_t most = n / CHUNK;
    if (most == 0) return cudaSuccess;
    cudaError_t e = launch(s, prepare<HD>, dim3((unsigned)d.c.r.n_v_heads, (unsigned)most),
                           PREPARE_CTA, prepare_smem(HD), d, most);
    if (e) return e;
    return launch(s, scan<HD>,
                  dim3((unsigned)d.c.r.n_v_heads, (unsigned)(HD / WIDE), (unsigned)most_seqs),
                  SCAN_CTA, scan_smem(HD), d, most);
}

template <int HD> cudaError_t init()
{
    cudaError_t e = cudaFuncSetAttribute(prepare<HD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         prepare_smem(HD));
    return e ? e
             : cudaFuncSetAttribute(scan<HD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    scan_smem(HD));
}

} // namespace

size_t gem_cuda_chunk_bytes(const gem_cuda_stream *s, const gem_recurrent *r, int32_t n)
{
    if ((r->head_dim != 64 && r->head_dim != 128) || s->max_smem < (size_t)scan_smem(r->head_dim))
        return 0;
    return (size_t)(n / CHUNK) * ((size_t)r->n_k_heads * (size_t)kq_bytes(r->head_dim) +
                                  (size_t)r->n_v_heads * HEAD_BYTES);
}

cudaError_t gem_cuda_delta_chunks(const gem_cuda_stream *s, const delta_args &d, int32_t most_seqs,
                                  int32_t n)
{
    return d.c.r.head_dim == 64 ? run<64>(s, d, most_seqs, n) : run<128>(s, d, most_seqs, n);
}

cudaError_t gem_cuda_chunks_init(const gem_cuda_stream *s)
{
    cudaError_t e = cudaSuccess;
    if (s->max_smem >= (size_t)scan_smem(64)) e = init<64>();
    if (!e && s->max_smem >= (size_t)scan_smem(128)) e = init<128>();
    return e;
}
