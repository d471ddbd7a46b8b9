/* recurrent.cu - short convolution and gated delta rule over state slots and tapes, in the row by
 * row form of docs/adr/0010: a row needs the state before its chunk of 64 positions and the rows of
 * the chunk before it, so one row at a time and a whole prompt run the same arithmetic.
 *
 * A CTA of the delta kernel keeps 32 value columns of one V head: its slice of the state, the
 * chunk's keys and its N rows stand in shared memory while it walks the rows. Three barriers a row.
 * Bound at one row: the state, read once (3.1 MB a layer of 48 heads of 128 x 128). Of many rows,
 * those of whole chunks go to delta_chunks.cu. */
#include "backend/cuda/recurrent.cuh"

namespace
{

enum { THREADS = 128, MAX_DIM = 128, KEEP_SHARES = 16 };

/* grid: head, place of a row in the order of sequences */
__global__ void conv(gem_cuda_recurrent c, gem_cuda_view src, const float *w, float eps, float *dst,
                     int64_t ld)
{
    SHARED(float[33], shared);
    const int hd = c.r.head_dim, h = blockIdx.x;
    dependents_go();
    dependency_wait();
    const int32_t place = (int32_t)blockIdx.y, seq = c.seq_of[place];
    const gem_cuda_seq g = c.seq[seq];
    const int32_t pos = g.pos + place - g.first;
    float y = 0;
    const int64_t channel = (int64_t)h * hd + threadIdx.x;
    const bool in = (int)threadIdx.x < hd;
    if (in) {
#pragma unroll
        for (int j = 0; j < GEM_CONV_TAPS; j++)
            y = fmaf(w[channel * GEM_CONV_TAPS + j],
                     raw_input(c, src, seq, pos - TAIL + j, channel), y);
        y = y / (1.0f + expf(-y));
    }
    if (h < 2 * c.r.n_k_heads) {
        float scale = h < c.r.n_k_heads ? rsqrtf((float)hd) : 1.0f;
        y *= scale * rsqrtf(block_sum(y * y, shared) + eps);
    }
    if (in) dst[c.order[place] * ld + channel] = y;
}

/* What later runs need: tails of the states that this run ends, the ring, and the keys of the last
 * two chunks. A thread owns a channel, or a share of it: the first one has the ring, and the tail
 * that may read it before; so nobody reads what another overwrites. grid: channels, sequences,
 * shares */
__global__ void keep(gem_cuda_recurrent c, gem_cuda_view raw, const float *rows, int64_t ld)
{
    dependents_go();
    dependency_wait();
    const int seq = blockIdx.y, hd = c.r.head_dim;
    const int64_t channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = channels(c.r);
    if (seq >= *c.n_seqs || channel >= n) return;
    const gem_cuda_seq g = c.seq[seq];
    const int32_t end = g.pos + g.n, share = (int32_t)blockIdx.z, shares = (int32_t)gridDim.z;
    for (int32_t chunk = g.pos / GEM_PAGE + 1 + share; chunk * GEM_PAGE <= end; chunk += shares) {
        bool kept = true; /* a slot that is only passed through comes again: its last tail counts */
        for (int32_t later = chunk + 1; later * GEM_PAGE <= end; later++)
            kept = kept && slot_of(c, seq, later) != slot_of(c, seq, chunk);
        if (!kept) continue;
        float *tail = state_of(c, slot_of(c, seq, chunk)) + state_floats(c.r) - TAIL * n;
        for (int j = 0; j < TAIL; j++)
            tail[j * n + channel] = raw_input(c, raw, seq, chunk * GEM_PAGE - TAIL + j, channel);
    }
    for (int32_t pos = max(g.pos, end - RING); share == 0 && pos < end; pos++)
        ring_of(c, g.tape, pos)[channel] = raw_input(c, raw, seq, pos, channel);
    const int head = (int)(channel / hd) - c.r.n_k_heads;
    if (head < 0 || head >= c.r.n_k_heads) return;
    for (int32_t pos = max(g.pos, ((end - 1) / GEM_PAGE - 1) * GEM_PAGE) + share; pos < end;
         pos += shares)
        tape_keys(c, g.tape,
                  pos / GEM_PAGE)[((int64_t)head * GEM_PAGE + pos % GEM_PAGE) * hd + channel % hd] =
            __ldcg(rows + c.order[g.first + pos - g.pos] * ld + channel);
}

/* Which rows of a sequence: all, or those before the run's first whole chunk (all if it has none),
 * or those behind its last. */
enum delta_part { ALL_ROWS, ROWS_BEFORE, ROWS_BEHIND };

/* grid: V head, slice of columns, sequence */
__global__ void __launch_bounds__(THREADS) delta(delta_args d, delta_part which)
{
    DYNAMIC_SHARED(float, smem, 16);
    const gem_cuda_recurrent &c = d.c;
    const int hd = c.r.head_dim, ks = hd + 4, tid = threadIdx.x, col = tid % COLS, lot = tid / COLS;
    const int h = blockIdx.x, slice = blockIdx.y, seq = blockIdx.z, kh = h % c.r.n_k_heads;
    float *keys = smem;                               /* [64][hd + 4]: rows in different banks */
    float *state = keys + GEM_PAGE * ks;              /* [hd][COLS] */
    float *values = state + hd * COLS;                /* N, [64][COLS] */
    float *query = values + GEM_PAGE * COLS;          /* [hd] */
    float *nw = query + MAX_DIM, *pw = nw + GEM_PAGE; /* weights of earlier rows in N and o */
    float *part = pw + GEM_PAGE;                      /* [4 sums][4 lots][COLS] */
    float *beta = part + 16 * COLS;                   /* [64] */
    double *b = (double *)(beta + GEM_PAGE);          /* [64] */
    dependents_go();
    dependency_wait();
    if (seq >= *c.n_seqs) return;
    const gem_cuda_seq g = c.seq[seq];
    const int32_t kept_from = (g.pos + g.n - 1) / GEM_PAGE - 1; /* chunks that tapes keep */
    const whole_chunks whole(g);
    int32_t begin = g.pos, end = g.pos + g.n;
    if (which == ROWS_BEFORE && whole.n) end = whole.first * GEM_PAGE;
    if (which == ROWS_BEHIND) begin = whole.n ? (whole.first + whole.n) * GEM_PAGE : end;
    if (begin >= end) return;
    const int64_t head_state = ((int64_t)h * (hd / COLS) + slice) * hd * COLS;
    const int64_t head_values = ((int64_t)h * (hd / COLS) + slice) * GEM_PAGE * COLS;
    const int64_t head_b = ((int64_t)h * (hd / COLS) + slice) * GEM_PAGE;
    const int64_t q_at = (int64_t)kh * hd, k_at = (int64_t)(c.r.n_k_heads + kh) * hd;
    const int64_t v_at = (int64_t)(2 * c.r.n_k_heads + h) * hd + slice * COLS;

    for (int32_t chunk = begin / GEM_PAGE; chunk * GEM_PAGE < end; chunk++) {
        const int32_t from = max(begin, chunk * GEM_PAGE), to = min(end, (chunk + 1) * GEM_PAGE);
        const int t0 = from - chunk * GEM_PAGE, n = to - from;
        const int32_t *row = c.order + g.first + (from - g.pos); /* of t0 */
        __syncthreads();
        if (chunk == begin / GEM_PAGE) { /* later chunks find the state where they left it */
            const float *s0 = chunk ? state_of(c, slot_of(c, seq, chunk)) + head_state : NULL;
            for (int i = tid; i < hd * COLS; i += THREADS)
                state[i] = s0 ? s0[i] : 0.0f;
            const float *kept = tape_values(c, g.tape, chunk) + head_values;
            for (int i = tid; i < t0 * COLS; i += THREADS)
                values[i] = kept[i];
            const double *kept_b = tape_b(c, g.tape, chunk) + head_b;
            if (tid < t0) b[tid] = kept_b[tid];
        }
        const float *kept_keys = tape_keys(c, g.tape, chunk) + (int64_t)kh * GEM_PAGE * hd;
        for (int i = tid; i < (t0 + n) * hd; i += THREADS) {
            int s = i / hd, j = i % hd;
            keys[s * ks + j] =
                s < t0 ? kept_keys[i] : __ldcg(d.rows + row[s - t0] * d.ld + k_at + j);
        }
        if (tid < n) { /* gates; the running sum in double, ascending */
            part[tid] = d.decay(row[tid], h);
            beta[t0 + tid] = d.weight(row[tid], h);
        }
        __syncthreads();
        if (tid == 0) {
            double sum = t0 ? b[t0 - 1] : 0.0;
            for (int i = 0; i < n; i++)
                b[t0 + i] = sum += (double)part[i];
        }
        for (int t = t0; t < t0 + n; t++) {
            const int64_t r = row[t - t0];
            float v = 0;
            if (tid < hd) query[tid] = __ldcg(d.rows + r * d.ld + q_at + tid);
            if (lot == 0) v = __ldcg(d.rows + r * d.ld + v_at + col);
            __syncthreads();
            /* k_t . k_s by threads 0..63, q_t . k_s by the others */
            const int s = tid % GEM_PAGE;
            const bool keyed = tid < GEM_PAGE;
            if (s <= t) {
                const float4 *x = (const float4 *)(keyed ? keys + t * ks : query);
                const float4 *y = (const float4 *)(keys + s * ks);
                float dot = 0;
                for (int i = 0; i < hd / 4; i++) {
                    float4 p = x[i], q = y[i];
                    dot = fmaf(p.x, q.x, fmaf(p.y, q.y, fmaf(p.z, q.z, fmaf(p.w, q.w, dot))));
                }
                float decay = expf((float)(b[t] - b[s]));
                if (keyed)
                    nw[s] = beta[t] * dot * decay;
                else
                    pw[s] = dot * decay;
            }
            float sk = 0, sq = 0; /* S0'k, S0'q: a lot takes a quarter of the dims */
            for (int i = lot * hd / 4; i < (lot + 1) * hd / 4; i++) {
                float x = state[i * COLS + col];
                sk = fmaf(keys[t * ks + i], x, sk);
                sq = fmaf(query[i], x, sq);
            }
            __syncthreads();
            float sn = 0, so = 0;
            for (int i = lot; i < t; i += 4) {
                float x = values[i * COLS + col];
                sn = fmaf(nw[i], x, sn);
                so = fmaf(pw[i], x, so);
            }
            part[lot * COLS + col] = sk;
            part[(4 + lot) * COLS + col] = sq;
            part[(8 + lot) * COLS + col] = sn;
            part[(12 + lot) * COLS + col] = so;
            __syncthreads();
            if (lot == 0) {
                float sum[4];
                for (int i = 0; i < 4; i++)
                    sum[i] = (part[4 * i * COLS + col] + part[(4 * i + 1) * COLS + col]) +
                             (part[(4 * i + 2) * COLS + col] + part[(4 * i + 3) * COLS + col]);
                const float eb = expf((float)b[t]);
                const float x = fmaf(-eb, sum[0], v) * beta[t] - sum[2];
                values[t * COLS + col] = x;
                d.o[r * d.ldo + (int64_t)h * hd + slice * COLS + col] =
                    fmaf(eb, sum[1], fmaf(pw[t], x, sum[3]));
            }
        }
        __syncthreads();
        if (chunk >= kept_from) {
            float *kept = tape_values(c, g.tape, chunk) + head_values;
            double *kept_b = tape_b(c, g.tape, chunk) + head_b;
            for (int i = t0 * COLS + tid; i < (t0 + n) * COLS; i += THREADS)
                kept[i] = values[i];
            if (tid >= t0 && tid < t0 + n) kept_b[tid] = b[tid];
        }
        if (t0 + n < GEM_PAGE) continue;
        if (tid < GEM_PAGE) nw[tid] = expf((float)(b[GEM_PAGE - 1] - b[tid]));
        __syncthreads();
        const float eb = expf((float)b[GEM_PAGE - 1]);
        float *s1 = state_of(c, slot_of(c, seq, chunk + 1)) + head_state;
        for (int i = lot; i < hd; i += 4) { /* a thread owns its elements of the state */
            float x = eb * state[i * COLS + col];
            for (int s = 0; s < GEM_PAGE; s++)
                x = fmaf(keys[s * ks + i] * nw[s], values[s * COLS + col], x);
            state[i * COLS + col] = x;
            s1[i * COLS + col] = x;
        }
    }
}

/* dst = rms(o, norm) * silu(z). grid: V head, row */
__global__ void delta_finish(const float *o, int64_t ldo, gem_cuda_view z, const float *norm,
                             int hd, float eps, float *dst, int64_t ld)
{
    SHARED(float[33], shared);
    dependents_go();
    dependency_wait();
    const int64_t r = blockIdx.y, at = (int64_t)blockIdx.x * hd + threadIdx.x;
    const bool in = (int)threadIdx.x < hd;
    float x = in ? __ldcg(o + r * ldo + at) : 0.0f;
    float f = rsqrtf(block_sum(x * x, shared) / (float)hd + eps);
    if (in)
        dst[r * ld + at] = x * f * norm[threadIdx.x] * activate(GEM_ACT_SILU, view_at(z, r, at));
}

size_t delta_smem(const gem_recurrent &r)
{
    return sizeof(float) *
           (size_t)(GEM_PAGE * (r.head_dim + 4) + r.head_dim * COLS + GEM_PAGE * COLS + MAX_DIM +
                    2 * GEM_PAGE + 16 * COLS + GEM_PAGE + 2 * GEM_PAGE);
}

} // namespace

size_t gem_cuda_state_floats(const gem_recurrent *r)
{
    return (size_t)state_floats(*r);
}

size_t gem_cuda_tape_floats(const gem_recurrent *r)
{
    return (size_t)tape_floats(*r);
}

cudaError_t gem_cuda_conv(const gem_cuda_stream *s, const gem_cuda_recurrent *c, gem_cuda_view src,
                          const float *w, float eps, int32_t n, float *dst, int64_t ld)
{
    dim3 grid((unsigned)(2 * c->r.n_k_heads + c->r.n_v_heads), (unsigned)n);
    if (n > GEM_CUDA_FEW && !c->exact && gem_cuda_conv_many_fits(c->r, src))
        return gem_cuda_conv_many(s, c, src, w, eps, n, dst, ld);
    return launch(s, conv, grid, MAX_DIM, 0, *c, src, w, eps, dst, ld);
}

cudaError_t gem_cuda_delta_rule(const gem_cuda_stream *s, const gem_cuda_recurrent *c,
                                int32_t most_seqs, gem_cuda_view raw, const gem_cuda_delta *d,
                                int32_t n)
{
    delta_args a = {*c, d->rows, d->ld, d->alpha, d->beta, d->a, d->dt_bias, d->o, d->ldo};
    dim3 grid((unsigned)c->r.n_v_heads, (unsigned)(c->r.head_dim / COLS), (unsigned)most_seqs);
    const bool chunks = c->chunks && n > GEM_CUDA_FEW;
    cudaError_t e =
        launch(s, delta, grid, THREADS, delta_smem(c->r), a, chunks ? ROWS_BEFORE : ALL_ROWS);
    if (!e && chunks) e = gem_cuda_delta_chunks(s, a, most_seqs, n);
    if (!e && chunks) e = launch(s, delta, grid, THREADS, delta_smem(c->r), a, ROWS_BEHIND);
    const dim3 shares((unsigned)((channels(c->r) + 127) / 128), (unsigned)most_seqs,
                      n > GEM_CUDA_FEW ? KEEP_SHARES : 1);
    if (!e) e = launch(s, keep, shares, 128, 0, *c, raw, d->rows, d->ld);
    if (!e && !d->finished_later)
        e = launch(s, delta_finish, dim3((unsigned)c->r.n_v_heads, (unsigned)n), MAX_DIM, 0,
                   (const float *)d->o, d->ldo, d->z, d->norm, c->r.head_dim, d->eps, d->dst,
                   d->ld_dst);
    return e;
}

cudaError_t gem_cuda_recurrent_init(const gem_cuda_stream *s)
{
    gem_recurrent most = {};
    most.head_dim = MAX_DIM;
    cudaError_t e = cudaFuncSetAttribute(delta, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)delta_smem(most));
    if (!e) e = gem_cuda_chunks_init(s);
    return e ? e : gem_cuda_recurrent_few_init();
}
