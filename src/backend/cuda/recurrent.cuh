/* recurrent.cuh - how the state slots and tapes of recurrent layers are laid out (docs/adr/0010),
 * and which chunks of a run are whole. */
#ifndef GEM_CUDA_RECURRENT_CUH
#define GEM_CUDA_RECURRENT_CUH

#include "backend/cuda/device.cuh"

enum { TAIL = GEM_CONV_TAPS - 1, RING = 16, COLS = 32 };

__host__ __device__ inline int64_t channels(const gem_recurrent &r)
{
    return (int64_t)(2 * r.n_k_heads + r.n_v_heads) * r.head_dim;
}
__host__ __device__ inline int64_t keys_floats(const gem_recurrent &r)
{
    return (int64_t)r.n_k_heads * r.head_dim * GEM_PAGE;
}
__host__ __device__ inline int64_t values_floats(const gem_recurrent &r)
{
    return (int64_t)r.n_v_heads * r.head_dim * GEM_PAGE;
}
/* b of the rows, a copy for each slice of columns: CTAs share nothing. */
__host__ __device__ inline int64_t b_doubles(const gem_recurrent &r)
{
    return (int64_t)r.n_v_heads * (r.head_dim / COLS) * GEM_PAGE;
}
/* A layer of a slot: S of each V head in slices [slice][k dim][COLS], then the last raw inputs. */
__host__ __device__ inline int64_t state_floats(const gem_recurrent &r)
{
    return (int64_t)r.n_v_heads * r.head_dim * r.head_dim + TAIL * channels(r);
}
/* A layer of a tape: by parity of the chunk keys [K head][64][dim], N [V head][slice][64][COLS] and
 * b; then the raw inputs of the last RING positions. */
__host__ __device__ inline int64_t tape_floats(const gem_recurrent &r)
{
    return 2 * (keys_floats(r) + values_floats(r) + 2 * b_doubles(r)) + RING * channels(r);
}

__device__ inline float *state_of(const gem_cuda_recurrent &c, int32_t slot)
{
    return c.states + ((int64_t)slot * c.r.n_layers + c.layer) * state_floats(c.r);
}
__device__ inline float *tape_of(const gem_cuda_recurrent &c, int32_t tape)
{
    return c.tapes + ((int64_t)tape * c.r.n_layers + c.layer) * tape_floats(c.r);
}
__device__ inline float *tape_keys(const gem_cuda_recurrent &c, int32_t tape, int32_t chunk)
{
    return tape_of(c, tape) + (chunk & 1) * keys_floats(c.r);
}
__device__ inline float *tape_values(const gem_cuda_recurrent &c, int32_t tape, int32_t chunk)
{
    return tape_of(c, tape) + 2 * keys_floats(c.r) + (chunk & 1) * values_floats(c.r);
}
__device__ inline double *tape_b(const gem_cuda_recurrent &c, int32_t tape, int32_t chunk)
{
    float *all = tape_of(c, tape) + 2 * (keys_floats(c.r) + values_floats(c.r));
    return (double *)all + (chunk & 1) * b_doubles(c.r);
}
__device__ inline float *ring_of(const gem_cuda_recurrent &c, int32_t tape, int32_t pos)
{
    return tape_of(c, tape) + tape_floats(c.r) -
           (int64_t)(RING - (pos & (RING - 1))) * channels(c.r);
}
/* The slot of the state before `chunk`. */
__device__ inline int32_t slot_of(const gem_cuda_recurrent &c, int seq, int32_t chunk)
{
    return c.slot[seq * c.slot_ld + chunk - c.seq[seq].pos / GEM_PAGE];
}

/* Raw input of a channel at pos, at most TAIL before the run or within it: a row of the run; before
 * it the tape's ring; before the chunk that the run starts in, the state's tail. */
__device__ inline float raw_input(const gem_cuda_recurrent &c, const gem_cuda_view &src, int seq,
                                  int32_t pos, int64_t channel)
{
    const gem_cuda_seq g = c.seq[seq];
    const int32_t start = g.pos / GEM_PAGE * GEM_PAGE;
    if (pos < 0) return 0.0f;
    if (pos >= g.pos) return view_at(src, c.order[g.first + pos - g.pos], channel);
    if (pos >= start) return ring_of(c, g.tape, pos)[channel];
    return state_of(
        c, slot_of(c, seq, g.pos / GEM_PAGE))[state_floats(c.r) -
                                              (int64_t)(start - pos) * channels(c.r) + channel];
}

/* Chunks of a sequence's rows that the run has all of: first..first + n - 1. */
struct whole_chunks {
    int32_t first, n;

    __device__ explicit whole_chunks(const gem_cuda_seq &g)
    {
        first = (g.pos + GEM_PAGE - 1) / GEM_PAGE;
        n = max((g.pos + g.n) / GEM_PAGE - first, 0);
    }
};

struct delta_args {
    gem_cuda_recurrent c;
    const float *rows; /* q | k | v of the convolution */
    int64_t ld;
    gem_cuda_view alpha, beta;
    const float *a, *dt_bias;
    float *o; /* f32 rows, a V head's values side by side */
    int64_t ldo;

    /* The logarithm of a row's decay. */
    __device__ float decay(int64_t row, int h) const
    {
        const float x = view_at(alpha, row, h) + dt_bias[h];
        return a[h] * (x > 20.0f ? x : log1pf(expf(x)));
    }
    __device__ float weight(int64_t row, int h) const
    {
        return 1.0f / (1.0f + expf(-view_at(beta, row, h)));
    }
};

/* recurrent_many.cu: convolution and what is kept of many rows. false: not of this head size. */
bool gem_cuda_conv_many_fits(const gem_recurrent &r, const gem_cuda_view &src);
cudaError_t gem_cuda_conv_many(const gem_cuda_stream *s, const gem_cuda_recurrent *c,
                               gem_cuda_view src, const float *w, float eps, int32_t n, float *dst,
                               int64_t ld);
/* delta_chunks.cu: the whole chunks of a run. */
cudaError_t gem_cuda_delta_chunks(const gem_cuda_stream *s, const delta_args &d, int32_t most_seqs,
                                  int32_t n);
cudaError_t gem_cuda_chunks_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_recurrent_few_init(void);

#endif
