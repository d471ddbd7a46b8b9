/* recurrent_few.cu - a recurrent layer's convolution, delta rule and gated norm of up to eight rows
 * in one kernel: decode. The form is that of recurrent.cu, row by row (docs/adr/0010).
 *
 * A CTA keeps 32 value columns of one V head, the CTAs of a head are a cluster. State, tape and the
 * raw inputs of earlier rows are fetched before the kernel ahead has ended. Each CTA makes the
 * queries and keys that it needs itself: 256 channels of four taps are less than another kernel.
 * Sums over a head's columns go through the cluster's shared memory, in the order of its CTAs. What
 * later runs need is written by the CTAs of the first V heads that a K head has, values by everyone
 * for itself; positions that are written and those that others still read differ in the ring.
 * Bits do not depend on the number of rows. Bound: latency; the state is read once, 3.1 MB a layer
 * of 48 heads of 128 x 128. */
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/ptx.cuh"
#include "backend/cuda/recurrent.cuh"

namespace
{

enum { THREADS = 128, WARPS = THREADS / 32, MAX_DIM = 128, MAX_SLICES = MAX_DIM / COLS };
enum { QUERY, KEY, VALUE, KINDS };

struct args {
    delta_args d;
    gem_cuda_view raw, z;
    const float *taps, *norm;
    float conv_eps, eps;
    float *dst;
    int64_t ld;
    gem_cuda_packed packed; /* instead of dst when h is set */
};

/* Shared memory, floats. */
struct layout {
    int state, values, query, near, part, outs, all;

    __host__ __device__ explicit layout(int hd)
    {
        state = GEM_PAGE * (hd + 4); /* keys: rows in different banks */
        values = state + hd * COLS;
        query = values + GEM_PAGE * COLS;
        near = query + hd; /* weights of earlier rows in N and o */
        part = near + 2 * GEM_PAGE;
        outs = part + 16 * COLS;
        all = outs + GEM_CUDA_FEW * COLS;
    }
};

/* The tail of the state behind a chunk that ends. Not in line: once in 64 rows. */
__device__ __noinline__ void keep_tail(const args &a, int seq, int32_t chunk, int64_t channel)
{
    const gem_cuda_recurrent &c = a.d.c;
    const int64_t n = channels(c.r);
    float *tail = state_of(c, slot_of(c, seq, chunk)) + state_floats(c.r) - TAIL * n;
    for (int j = 0; j < TAIL; j++)
        tail[j * n + channel] = raw_input(c, a.raw, seq, chunk * GEM_PAGE - TAIL + j, channel);
}

/* grid: slice of columns, V head, sequence; a head's slices are a cluster */
__global__ void __launch_bounds__(THREADS) recurrent_few(const __grid_constant__ args a)
{
    DYNAMIC_SHARED(float, smem, 16);
    SHARED(double[GEM_PAGE], b);
    SHARED(float[2][WARPS], squares);
    SHARED(float[2], weights);
    SHARED(float[GEM_CUDA_FEW][MAX_SLICES], sums);
    const gem_cuda_recurrent &c = a.d.c;
    const int hd = c.r.head_dim, ks = hd + 4, tid = threadIdx.x, col = tid % COLS, lot = tid / COLS;
    const int slice = blockIdx.x, h = blockIdx.y, seq = blockIdx.z, kh = h % c.r.n_k_heads;
    const layout at(hd);
    float *keys = smem, *state = smem + at.state, *values = smem + at.values,
          *query = smem + at.query, *nw = smem + at.near, *pw = nw + GEM_PAGE,
          *part = smem + at.part, *outs = smem + at.outs;
    /* sequences were uploaded before the first kernel of this batch */
    if (seq >= *c.n_seqs) {
        dependency_wait();
        return;
    }
    const gem_cuda_seq g = c.seq[seq];
    const int64_t head_slice = (int64_t)h * (hd / COLS) + slice;
    int32_t chunk = g.pos / GEM_PAGE;
    int t = g.pos % GEM_PAGE;
    {
        const float *s0 =
            chunk ? state_of(c, slot_of(c, seq, chunk)) + head_slice * hd * COLS : NULL;
        const float *kept = tape_keys(c, g.tape, chunk) + (int64_t)kh * GEM_PAGE * hd,
                    *kept_values = tape_values(c, g.tape, chunk) + head_slice * GEM_PAGE * COLS;
        for (int i = tid; i < hd * COLS / 4; i += THREADS)
            copy16(shared_at(state + 4 * i), s0 ? s0 + 4 * i : a.norm, s0 != NULL);
        for (int i = tid; i < t * hd / 4; i += THREADS)
            copy16(shared_at(keys + i / (hd / 4) * ks + i % (hd / 4) * 4), kept + 4 * i, true);
        for (int i = tid; i < t * COLS / 4; i += THREADS)
            copy16(shared_at(values + 4 * i), kept_values + 4 * i, true);
        copy_commit();
        if (tid < t) b[tid] = (tape_b(c, g.tape, chunk) + head_slice * GEM_PAGE)[tid];
    }
    /* a thread's channels: of the query, of the key, and the first warp's of the values */
    const int64_t channel[KINDS] = {(int64_t)kh * hd + tid,
                                    (int64_t)(c.r.n_k_heads + kh) * hd + tid,
                                    (int64_t)(2 * c.r.n_k_heads + h) * hd + slice * COLS + col};
    const bool is[KINDS] = {tid < hd, tid < hd, lot == 0};
    const bool owns[KINDS] = {tid < hd && h == kh && slice == 0, tid < hd && h == kh && slice == 0,
                              lot == 0};
    float4 taps[KINDS];
    float past[KINDS][TAIL], now[KINDS];
    /* raw inputs of the last positions before the run: as raw_input finds them */
    const float *raw[TAIL];
#pragma unroll
    for (int j = 0; j < TAIL; j++) {
        const int32_t pos = g.pos - TAIL + j, start = g.pos - t;
        raw[j] = pos < 0        ? NULL
                 : pos >= start ? ring_of(c, g.tape, pos)
                                : state_of(c, slot_of(c, seq, chunk)) + state_floats(c.r) -
                                      (int64_t)(start - pos) * channels(c.r);
    }
#pragma unroll
    for (int i = 0; i < KINDS; i++) {
        taps[i] = is[i] ? *(const float4 *)(a.taps + channel[i] * GEM_CONV_TAPS)
                        : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < TAIL; j++)
            past[i][j] = is[i] && raw[j] ? raw[j][channel[i]] : 0.0f;
    }
    const int32_t *row = c.order + g.first;
    cluster_meet(); /* all are there: their shared memory may be written */
    dependency_wait();
#pragma unroll
    for (int i = 0; i < KINDS; i++)
        now[i] = is[i] ? view_at(a.raw, row[0], channel[i]) : 0.0f;
    float decay = 0, gate[GEM_CUDA_FEW / WARPS];
    if (tid == 0) decay = a.d.decay(row[0], h);
    if (tid == 32) decay = a.d.weight(row[0], h);
#pragma unroll
    for (int i = 0; i < GEM_CUDA_FEW / WARPS; i++) {
        const int r = lot + i * WARPS;
        gate[i] = r < g.n ? view_at(a.z, row[r], (int64_t)h * hd + slice * COLS + col) : 0.0f;
    }
    dependents_go(); /* late, lest what the next kernel fetches ahead stands in the way */
    copy_wait<0>();
    __syncthreads();

#pragma unroll 1
    for (int r = 0; r < g.n; r++) {
        const int32_t pos = g.pos + r;
        float y[KINDS];
#pragma unroll
        for (int i = 0; i < KINDS; i++) {
            const float x = fmaf(
                taps[i].w, now[i],
                fmaf(taps[i].z, past[i][2], fmaf(taps[i].y, past[i][1], taps[i].x * past[i][0])));
            y[i] = x / (1.0f + expf(-x));
            if (owns[i]) ring_of(c, g.tape, pos)[channel[i]] = now[i];
            past[i][0] = past[i][1], past[i][1] = past[i][2], past[i][2] = now[i];
        }
        const float q2 = warp_sum(is[QUERY] ? y[QUERY] * y[QUERY] : 0.0f),
                    k2 = warp_sum(is[KEY] ? y[KEY] * y[KEY] : 0.0f);
        if (col == 0) squares[0][lot] = q2, squares[1][lot] = k2;
        if (tid == 0) {
            b[t] = (t ? b[t - 1] : 0.0) + (double)decay;
            (tape_b(c, g.tape, chunk) + head_slice * GEM_PAGE)[t] = b[t];
        }
        if (tid == 32) weights[r % 2] = decay;
        if (r + 1 < g.n) {
#pragma unroll
            for (int i = 0; i < KINDS; i++)
                now[i] = is[i] ? view_at(a.raw, row[r + 1], channel[i]) : 0.0f;
            if (tid == 0) decay = a.d.decay(row[r + 1], h);
            if (tid == 32) decay = a.d.weight(row[r + 1], h);
        }
        __syncthreads();
        const float weight = weights[r % 2];
        if (is[KEY]) {
            float sq = 0, sk = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++)
                sq += squares[0][i], sk += squares[1][i];
            const float k = y[KEY] * rsqrtf(sk + a.conv_eps);
            query[tid] = y[QUERY] * (rsqrtf((float)hd) * rsqrtf(sq + a.conv_eps));
            keys[t * ks + tid] = k;
            if (owns[KEY]) tape_keys(c, g.tape, chunk)[((int64_t)kh * GEM_PAGE + t) * hd + tid] = k;
        }
        __syncthreads();
        /* k_t . k_s by threads 0..63, q_t . k_s by the others */
        const int s = tid % GEM_PAGE;
        if (s <= t) {
            const float4 *x = (const float4 *)(tid < GEM_PAGE ? keys + t * ks : query);
            const float4 *z = (const float4 *)(keys + s * ks);
            float dot[2] = {};
#pragma unroll 4
            for (int i = 0; i < hd / 4; i++) {
                const float4 p = x[i], q = z[i];
                dot[i % 2] =
                    fmaf(p.x, q.x, fmaf(p.y, q.y, fmaf(p.z, q.z, fmaf(p.w, q.w, dot[i % 2]))));
            }
            const float near = (dot[0] + dot[1]) * expf((float)(b[t] - b[s]));
            if (tid < GEM_PAGE)
                nw[s] = weight * near;
            else
                pw[s] = near;
        }
        float sk = 0, sq = 0; /* S0'k, S0'q: a lot takes a quarter of the dims */
#pragma unroll 8
        for (int i = lot * hd / 4; i < (lot + 1) * hd / 4; i++) {
            const float x = state[i * COLS + col];
            sk = fmaf(keys[t * ks + i], x, sk);
            sq = fmaf(query[i], x, sq);
        }
        part[lot * COLS + col] = sk;
        part[(4 + lot) * COLS + col] = sq;
        __syncthreads();
        float sn = 0, so = 0;
#pragma unroll 4
        for (int i = lot; i < t; i += 4) {
            const float x = values[i * COLS + col];
            sn = fmaf(nw[i], x, sn);
            so = fmaf(pw[i], x, so);
        }
        part[(8 + lot) * COLS + col] = sn;
        part[(12 + lot) * COLS + col] = so;
        __syncthreads();
        if (lot == 0) {
            float sum[4];
            for (int i = 0; i < 4; i++)
                sum[i] = (part[4 * i * COLS + col] + part[(4 * i + 1) * COLS + col]) +
                         (part[(4 * i + 2) * COLS + col] + part[(4 * i + 3) * COLS + col]);
            const float eb = expf((float)b[t]);
            const float x = fmaf(-eb, sum[0], y[VALUE]) * weight - sum[2];
            values[t * COLS + col] = x;
            (tape_values(c, g.tape, chunk) + head_slice * GEM_PAGE * COLS)[t * COLS + col] = x;
            outs[r * COLS + col] = fmaf(eb, sum[1], fmaf(pw[t], x, sum[3]));
        }
        if (++t < GEM_PAGE) continue;
        t = 0, chunk++; /* the state behind this chunk */
        if (tid < GEM_PAGE) nw[tid] = expf((float)(b[GEM_PAGE - 1] - b[tid]));
        __syncthreads();
        const float eb = expf((float)b[GEM_PAGE - 1]);
        float *s1 = state_of(c, slot_of(c, seq, chunk)) + head_slice * hd * COLS;
        for (int i = lot; i < hd; i += 4) { /* a thread owns its elements of the state */
            float x = eb * state[i * COLS + col];
            for (int j = 0; j < GEM_PAGE; j++)
                x = fmaf(keys[j * ks + i] * nw[j], values[j * COLS + col], x);
            state[i * COLS + col] = x;
            s1[i * COLS + col] = x;
        }
        for (int i = 0; i < KINDS; i++)
            if (owns[i]) keep_tail(a, seq, chunk, channel[i]);
        __syncthreads();
    }
    __syncthreads();
    /* gated norm: a warp a row; squares from all CTAs of the head */
    const int slices = hd / COLS;
#pragma unroll
    for (int i = 0; i < GEM_CUDA_FEW / WARPS; i++) {
        const int r = lot + i * WARPS;
        if (r >= g.n) break;
        const float x = outs[r * COLS + col], sum = warp_sum(x * x);
        if (col < slices) give(&sums[r][slice], col, sum);
    }
    cluster_meet();
#pragma unroll
    for (int i = 0; i < GEM_CUDA_FEW / WARPS; i++) {
        const int r = lot + i * WARPS;
        if (r >= g.n) break;
        float sum = 0;
        for (int j = 0; j < slices; j++)
            sum += sums[r][j];
        const int64_t d = (int64_t)h * hd + slice * COLS + col, at_row = row[r];
        const float y = outs[r * COLS + col] * rsqrtf(sum / (float)hd + a.eps) *
                        a.norm[slice * COLS + col] * (gate[i] / (1.0f + expf(-gate[i])));
        if (!a.packed.h) {
            a.dst[at_row * a.ld + d] = y;
            continue;
        }
        float top = fabsf(y);
        for (int m = 1; m < 8; m *= 2)
            top = fmaxf(top, __shfl_xor_sync(~0u, top, m));
        const float up = f16_scale(top);
        const int64_t to = at_row * a.packed.width + d;
        ((__half *)a.packed.h)[to] = __float2half_rn(y * up);
        if (col % 8 == 0) a.packed.scale[to / 8] = top == 0 ? 0.0f : inverse(up);
    }
}

} // namespace

bool gem_cuda_recurrent_few_fits(const gem_cuda_stream *s, const gem_recurrent *r)
{
    return s->clusters && r->head_dim % COLS == 0 && r->head_dim <= MAX_DIM;
}

cudaError_t gem_cuda_recurrent_few(const gem_cuda_stream *s, const gem_cuda_recurrent *c,
                                   int32_t most_seqs, gem_cuda_view raw, const float *taps,
                                   float conv_eps, const gem_cuda_delta *d,
                                   const gem_cuda_packed *packed)
{
    args a = {{*c, NULL, 0, d->alpha, d->beta, d->a, d->dt_bias, NULL, 0},
              raw,
              d->z,
              taps,
              d->norm,
              conv_eps,
              d->eps,
              d->dst,
              d->ld_dst,
              {}};
    if (packed) a.packed = *packed;
    const unsigned slices = (unsigned)(c->r.head_dim / COLS);
    return launch_clusters(s, recurrent_few,
                           dim3(slices, (unsigned)c->r.n_v_heads, (unsigned)most_seqs), THREADS,
                           slices, (size_t)layout(c->r.head_dim).all * sizeof(float), a);
}

cudaError_t gem_cuda_recurrent_few_init(void)
{
    return cudaFuncSetAttribute(recurrent_few, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                layout(MAX_DIM).all * (int)sizeof(float));
}
