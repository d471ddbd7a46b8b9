/* cuda.h - inside the CUDA backend: what an open backend holds, and the kernels' launchers. C11 on
 * the host side (cuda*.c), CUDA C++ on the device side (*.cu); this header is read by both.
 *
 * Values. Activations are f32 rows in device memory. A linear op may leave its result as several
 * partial sums; whoever reads it adds them up in a fixed order (gem_cuda_view), so that no op has a
 * kernel of its own for that. No kernel adds floats atomically: equal input gives equal bits. */
#ifndef GEM_CUDA_H
#define GEM_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include <cuda_runtime_api.h>

enum {
    GEM_CUDA_FEW = 8,      /* rows that the decode routes take at once */
    GEM_CUDA_SLAB_K = 256, /* a slab is 16 weight rows x 256 values of k */
    GEM_CUDA_SLAB_ROWS = 16,
    GEM_CUDA_RUN_SUMS = 48,
    GEM_CUDA_HALF_SCALE = 16, /* f16 products of the tile route are this much smaller */
    GEM_CUDA_TILE = 128,      /* rows of a batch are padded to it by the tile route */
    GEM_CUDA_MAX_SPLITS = 66, /* parts of a sequence that decode attention works on at once */
    GEM_CUDA_MAX_GROUP = 64   /* query heads on one KV head */
};

/* Rows of f32 as they stand in memory: value(r, i) = bias[i] + scale[r] * (a + b), a and b the sums
 * of the first and of the last half of the parts p[j] = data[j * part_stride + r * ld + i], each in
 * order; n_parts is 1 or even. bias, scale: NULL when absent. */
typedef struct gem_cuda_view {
    const float *data;
    const float *bias;
    const float *row_scale;
    int64_t part_stride;
    int64_t ld;
    int32_t n_parts;
} gem_cuda_view;

/* Rows of f16, each run of 8 values under a power of two: value = h * scale. scale 0: all are 0. */
typedef struct gem_cuda_packed {
    uint16_t *h;  /* [GEM_CUDA_FEW][width] */
    float *scale; /* [GEM_CUDA_FEW][width / 8] */
    int64_t width;
} gem_cuda_packed;
/* Rows of f16 as slab products take them: each run of 256 values under a power of two, value = h *
 * scale. sums: of h over the run's eight blocks of 32, their high parts and then their low ones,
 * and over its sixteen of 16 the same. */
typedef struct gem_cuda_runs {
    uint16_t *h;    /* [GEM_CUDA_FEW][width] */
    uint16_t *sums; /* f16[GEM_CUDA_FEW][width / 256][GEM_CUDA_RUN_SUMS] */
    float *scale;   /* [GEM_CUDA_FEW][width / 256] */
    int64_t width;  /* a multiple of 256 */
} gem_cuda_runs;
/* A weight on the device: rows as in the file, or slabs (slab.cuh). With `up`: two weights in one,
 * 8 rows of `tensor` (the gate) and the same 8 of `up` by turns, so that a tile holds both. */
typedef struct gem_cuda_weight {
    const gem_tensor *tensor, *up; /* borrowed; up: NULL when alone */
    const uint8_t *data;           /* device */
    size_t bytes;                  /* there */
    gem_dtype dtype;
    bool slabs, tiled; /* tiled: the tile route multiplies by it */
    int64_t k, n_rows, row_bytes;
    const uint16_t *f16; /* device: all rows as f16, or NULL: expanded at each use */
} gem_cuda_weight;

/* Where kernels run. pdl: a kernel may start before the one before it has ended (it waits on the
 * device before it touches what that one wrote). */
typedef struct gem_cuda_stream {
    cudaStream_t stream;
    bool pdl, clusters, wgmma; /* clusters, wgmma: the device has them */
    int n_sms;
    size_t max_smem; /* bytes of shared memory a CTA may have */
} gem_cuda_stream;

/* ---- rows.cu ---- */

/* Per-run numbers of the rows, one upload: [4][ld] of token, pos, seq, row_of. */
typedef struct gem_cuda_rows {
    const int32_t *token, *pos, *seq, *row_of; /* device */
} gem_cuda_rows;

cudaError_t gem_cuda_embed(const gem_cuda_stream *s, const gem_cuda_weight *w, const int32_t *token,
                           int32_t n, float scale, float *dst, int64_t ld);
/* table[update[i].at] = update[i].page */
typedef struct gem_cuda_update {
    int32_t at, page;
} gem_cuda_update;
cudaError_t gem_cuda_scatter(const gem_cuda_stream *s, const gem_cuda_update *update, int32_t n,
                             int32_t *table);
/* cos, sin f32[n][half] of pos * freq */
cudaError_t gem_cuda_angles(const gem_cuda_stream *s, const int32_t *pos, int32_t n,
                            const double *freq, int half, float *cs, float *sn);
cudaError_t gem_cuda_norm(const gem_cuda_stream *s, gem_cuda_view src, const float *w, int32_t n,
                          int64_t d, float eps, float *dst, int64_t ld);
/* x = (x + [rms(src, post)]) * out_scale; if next: dst, runs = rms(x, next), each unless NULL;
 * runs: d is a multiple of 256 */
typedef struct gem_cuda_sum {
    float *x, *dst;
    const float *post, *next; /* f32[d] or NULL */
    int64_t ldx, ld, d;       /* d: a multiple of 8 */
    gem_cuda_view src;
    gem_cuda_runs runs;
    float eps, out_scale;
} gem_cuda_sum;
cudaError_t gem_cuda_residual(const gem_cuda_stream *s, const gem_cuda_sum *a, int32_t n);
cudaError_t gem_cuda_glu(const gem_cuda_stream *s, gem_act act, gem_cuda_view gate,
                         gem_cuda_view up, int32_t n, int64_t d, float *dst, int64_t ld);
cudaError_t gem_cuda_head_finish(const gem_cuda_stream *s, gem_cuda_view src, int32_t n,
                                 int64_t n_vocab, float softcap, float *dst, int64_t ld);
/* dst row w = src row row_of[w], through `via` (f32[n][width]): rows move to the front in place. */
cudaError_t gem_cuda_gather(const gem_cuda_stream *s, float *rows, int64_t ld, int64_t width,
                            const int32_t *row_of, int32_t n, float *via);
/* The same of pos and seq. */
cudaError_t gem_cuda_gather_ids(const gem_cuda_stream *s, int32_t *pos, int32_t *seq,
                                const int32_t *row_of, int32_t n);

/* ---- rows_many.cu: of the tile route; xh, scale: as gem_cuda_to_f16 leaves them ---- */

/* x = (x + [rms(src, post)]) * out_scale, xh = rms(x, next); nothing else is written. */
cudaError_t gem_cuda_sum_many(const gem_cuda_stream *s, const gem_cuda_sum *a, int32_t n,
                              int32_t n_padded, uint16_t *xh, float *scale);
/* xh[n_padded][d] of a joint weight's product: act(gate) * up. half: its rows are f16, times
 * GEM_CUDA_HALF_SCALE. */
bool gem_cuda_glu_many_fits(int64_t d);
cudaError_t gem_cuda_glu_many(const gem_cuda_stream *s, gem_act act, gem_cuda_view both, bool half,
                              int32_t n, int32_t n_padded, int64_t d, uint16_t *xh, float *scale);

/* ---- linear_exact.cu: any type, any k, rows as in the file; f32 throughout ---- */
cudaError_t gem_cuda_linear_exact(const gem_cuda_stream *s, const gem_cuda_weight *w,
                                  const float *x, int64_t ldx, int32_t n, float *y, int64_t ldy);

/* ---- linear_slab.cu: 1 to GEM_CUDA_FEW rows ---- */

typedef struct gem_cuda_slab_out {
    const gem_cuda_weight *w;
    float *y; /* [parts][GEM_CUDA_FEW rows][ldy] */
    int64_t ldy;
} gem_cuda_slab_out;
/* Slices of k that a weight of this width is cut into. 0: no slab kernel. */
int gem_cuda_slab_slices(gem_dtype t, int64_t k, const gem_cuda_stream *s);
bool gem_cuda_slab_type(gem_dtype t);
size_t gem_cuda_slab_bytes(gem_dtype t);
/* Parts that a product of n rows leaves of each value (gem_cuda_view): 1, 2, or 2 a slice. */
int gem_cuda_slab_parts(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out,
                        int32_t n);
typedef enum gem_cuda_slab_source {
    GEM_CUDA_FROM_ROWS,   /* a */
    GEM_CUDA_FROM_GATED,  /* act(a) * b */
    GEM_CUDA_FROM_PACKED, /* packed */
    GEM_CUDA_FROM_RUNS    /* runs */
} gem_cuda_slab_source;
typedef struct gem_cuda_slab_in {
    gem_cuda_slab_source from;
    gem_act act;
    gem_cuda_view a, b;
    gem_cuda_packed packed;
    gem_cuda_runs runs;
} gem_cuda_slab_in;
/* What becomes of the products, besides going to y. */
typedef struct gem_cuda_slab_end {
    bool gated; /* one joint weight, one slice: act(gate) * up goes to `packed`, nothing to y */
    gem_act act;
    gem_cuda_packed packed;
    float softcap; /* > 0: softcap * tanh(y / softcap); one part only */
} gem_cuda_slab_end;
/* Weights of one type and one k that share an input. end: NULL for none. */
cudaError_t gem_cuda_linear_slab(const gem_cuda_stream *s, const gem_cuda_slab_out *out, int n_out,
                                 const gem_cuda_slab_in *in, const gem_cuda_slab_end *end,
                                 int32_t n);

/* ---- linear_tile.cu: many rows, weights expanded to f16 ---- */
/* xh[r][i] = f16(x[r][i] / scale[r]), scale a power of two that puts the row's maximum into
 * [512, 1024); rows n..n_padded become zeros. */
cudaError_t gem_cuda_to_f16(const gem_cuda_stream *s, const float *x, int64_t ldx, int32_t n,
                            int32_t n_padded, int64_t k, uint16_t *xh, float *scale);
/* y[r][i] = sum over k of xh[r][k] w[i][k], f32 accumulation, rows not rescaled */
cudaError_t gem_cuda_linear_tile(const gem_cuda_stream *s, const uint16_t *xh, const uint16_t *w,
                                 int32_t n, int64_t n_rows, int64_t k, float *y, int64_t ldy);

/* ---- repack.cu ---- */
/* Rows [row0, row0 + n) of the file at src into slabs of dst; row0 is a multiple of 16, and so is n
 * unless they are the last. half: 0 or 1 for the gate and the up rows of a joint weight, else -1.
 */
cudaError_t gem_cuda_repack(cudaStream_t s, gem_dtype t, const uint8_t *src, int64_t row0,
                            int64_t n, int half, int64_t k, uint8_t *dst);
/* f16[n][k] of rows [row0, row0 + n) */
cudaError_t gem_cuda_expand(const gem_cuda_stream *s, const gem_cuda_weight *w, int64_t row0,
                            int64_t n, uint16_t *dst);

/* ---- attend_split.cu, attend_flash.cu ---- */

/* One layer's keys and values: [page][KV head][K: GEM_PAGE x head_dim | V: GEM_PAGE x head_dim], a
 * position's dims in the order of page_at (device.cuh). */
typedef struct gem_cuda_kv {
    uint8_t *pool;        /* device */
    const int32_t *table; /* device; of sequence 0 and this layer */
    int64_t table_stride; /* from one sequence to the next */
    int n_kv_heads, head_dim;
    int32_t window;
    bool f16;
} gem_cuda_kv;

typedef struct gem_cuda_qkv {
    gem_cuda_view q, k, v;
    float *q_out;
    int64_t ldq;
    const float *cs, *sn; /* f32[n][half] */
    int half, n_heads;
    int64_t q_stride; /* from one query head to the next; what lies between is copied along */
    const float *q_norm, *k_norm;
    float eps, q_scale;
    bool v_norm, v_from_k;
} gem_cuda_qkv;
cudaError_t gem_cuda_append(const gem_cuda_stream *s, const gem_cuda_qkv *a, const gem_cuda_kv *kv,
                            const gem_cuda_rows *rows, int32_t n);

/* rows_many.cu: the same, of many rows. */
cudaError_t gem_cuda_append_many(const gem_cuda_stream *s, const gem_cuda_qkv *a,
                                 const gem_cuda_kv *kv, const gem_cuda_rows *rows, int32_t n);

/* Queries of n_heads heads, and where the result goes. gated: head_dim gate values behind each
 * query head; the result is multiplied by their sigmoid. */
typedef struct gem_cuda_queries {
    const float *data;
    int64_t ld, stride; /* from one row, one head to the next */
    int n_heads;
    bool gated;
    float *dst;
    int64_t ld_dst;
    gem_cuda_view gate;     /* of the rows that hold them; the flash kernel reads data */
    gem_cuda_packed packed; /* split route: where the result goes instead of dst, when h is set */
    /* split route, profiles: clocks of scores, of the softmax and of values are added, [3] on the
     * device, over all that count them (ctas or warps); NULL otherwise */
    unsigned long long *clocks;
} gem_cuda_queries;

/* Parts a sequence is cut into at most; their borders depend on the position alone. */
int gem_cuda_max_splits(int n_kv_heads, int group, bool mma);
/* Positions of a part, for the row at `pos` of a layer without a window. */
int32_t gem_cuda_part_keys(const gem_cuda_stream *s, int n_heads, const gem_kv_pool *p,
                           int32_t pos);
/* raw: for one row with f16 pages of a gem_cuda_mma_head, split: its q, k and v as projected; they
 * are normed, rotated and appended here, q's data is not read. NULL: that has been done.
 * split: parts of a sequence side by side, then a merge in ascending order (`partial`: see
 * gem_cuda_partial_floats; turn: GEM_CUDA_FEW * 8 * KV heads counters, zero between runs);
 * otherwise one CTA walks all of a row's keys. */
cudaError_t gem_cuda_attend_split(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                  const gem_cuda_rows *rows, const gem_cuda_queries *q,
                                  const gem_cuda_qkv *raw, int32_t n, bool split, float *partial,
                                  int32_t *turn);
/* attend_mma.cu: the same for f16 pages of some head sizes, by tensor cores; leaves the merge to
 * another kernel when turn is NULL. */
bool gem_cuda_mma_head(const gem_cuda_stream *s, int head_dim, bool f16);
cudaError_t gem_cuda_attend_mma(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                const gem_cuda_rows *rows, const gem_cuda_queries *q,
                                const gem_cuda_qkv *raw, int32_t n, int32_t splits, float *partial,
                                int32_t *turn);
/* Whether few enough parts meet for the last CTA to merge them itself. */
bool gem_cuda_mma_merges(const gem_cuda_kv *kv, const gem_cuda_queries *q, int32_t splits);
size_t gem_cuda_partial_floats(int n_heads, int n_kv_heads, int head_dim);

typedef struct gem_cuda_block {
    int32_t row, n_tokens; /* rows of one sequence, ascending positions */
} gem_cuda_block;
bool gem_cuda_flash_head(int head_dim);
cudaError_t gem_cuda_attend_flash(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                  const gem_cuda_rows *rows, const gem_cuda_block *block,
                                  int32_t n_blocks, const gem_cuda_queries *q);
/* attend_flash128.cu: the same with one step of the softmax for two pages of keys. */
bool gem_cuda_flash128_head(const gem_cuda_stream *s, int head_dim);
cudaError_t gem_cuda_attend_flash128(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                     const gem_cuda_rows *rows, const gem_cuda_block *block,
                                     int32_t n_blocks, const gem_cuda_queries *q);

/* attend_wgmma.cu: the same on Hopper, for f16 pages of some head sizes. Rows of a block, at most;
 * 0: it does not take them. */
int gem_cuda_wgmma_rows(const gem_cuda_stream *s, int head_dim, bool f16);
cudaError_t gem_cuda_attend_wgmma(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                  const gem_cuda_rows *rows, const gem_cuda_block *block,
                                  int32_t n_blocks, const gem_cuda_queries *q);
/* attend_wide.cu: the same for head size 512; called by the two above. */
int gem_cuda_wide_rows(int head_dim);
cudaError_t gem_cuda_attend_wide(const gem_cuda_stream *s, const gem_cuda_kv *kv,
                                 const gem_cuda_rows *rows, const gem_cuda_block *block,
                                 int32_t n_blocks, const gem_cuda_queries *q);
cudaError_t gem_cuda_wide_init(void);
/* Rows of a block of whichever kernel takes them. */
static inline int gem_cuda_block_rows(const gem_cuda_stream *s, int head_dim, bool f16)
{
    const int rows = gem_cuda_wgmma_rows(s, head_dim, f16);
    return rows ? rows : GEM_CUDA_MAX_GROUP;
}

/* ---- recurrent.cu ---- */

/* Rows of one sequence in a run: places [first, first + n) of the order, positions pos and on. */
typedef struct gem_cuda_seq {
    int32_t first, n, pos, tape;
} gem_cuda_seq;
/* Recurrent state of one layer and the rows of a run; all device memory. */
typedef struct gem_cuda_recurrent {
    gem_recurrent r;
    int layer; /* among the recurrent ones */
    float *states, *tapes;
    const int32_t *n_seqs;
    const gem_cuda_seq *seq;
    const int32_t *order, *seq_of; /* by place: row of the batch, index into seq */
    const int32_t *slot;           /* [seq][slot_ld]: before chunk pos / GEM_PAGE and those after */
    int slot_ld;
    bool exact;      /* a row's bits are the same in any batch */
    uint8_t *chunks; /* scratch of gem_cuda_chunk_bytes; NULL: whole chunks go row by row too */
} gem_cuda_recurrent;
/* Of a batch of n rows. 0: heads of a size that has no kernel for whole chunks here. */
size_t gem_cuda_chunk_bytes(const gem_cuda_stream *s, const gem_recurrent *r, int32_t n);
size_t gem_cuda_state_floats(const gem_recurrent *r); /* of one layer of a slot, of a tape */
size_t gem_cuda_tape_floats(const gem_recurrent *r);
cudaError_t gem_cuda_conv(const gem_cuda_stream *s, const gem_cuda_recurrent *c, gem_cuda_view src,
                          const float *w, float eps, int32_t n, float *dst, int64_t ld);
typedef struct gem_cuda_delta {
    const float *rows; /* q | k | v, from conv */
    int64_t ld;
    gem_cuda_view z, alpha, beta;
    const float *a, *dt_bias, *norm;
    float eps;
    float *o; /* scratch rows, as wide as dst */
    int64_t ldo;
    float *dst;
    int64_t ld_dst;
    bool finished_later; /* o stays as it is: gem_cuda_delta_finish_many comes behind */
} gem_cuda_delta;
/* raw: what conv read. most_seqs: at least *c->n_seqs. */
cudaError_t gem_cuda_delta_rule(const gem_cuda_stream *s, const gem_cuda_recurrent *c,
                                int32_t most_seqs, gem_cuda_view raw, const gem_cuda_delta *d,
                                int32_t n);
/* recurrent_few.cu: convolution, delta rule and gated norm of up to GEM_CUDA_FEW rows; d's rows and
 * o are not used. packed: where the result goes instead of d->dst, or NULL. */
bool gem_cuda_recurrent_few_fits(const gem_cuda_stream *s, const gem_recurrent *r);
cudaError_t gem_cuda_recurrent_few(const gem_cuda_stream *s, const gem_cuda_recurrent *c,
                                   int32_t most_seqs, gem_cuda_view raw, const float *taps,
                                   float conv_eps, const gem_cuda_delta *d,
                                   const gem_cuda_packed *packed);
/* xh[n_padded][V heads x dim] = rms(o, norm) * silu(z), xh and scale as gem_cuda_to_f16 leaves
 * them; false: not of such heads. */
bool gem_cuda_delta_finish_fits(const gem_recurrent *r);
cudaError_t gem_cuda_delta_finish_many(const gem_cuda_stream *s, const gem_recurrent *r,
                                       const gem_cuda_delta *d, int32_t n, int32_t n_padded,
                                       uint16_t *xh, float *scale);
cudaError_t gem_cuda_recurrent_init(const gem_cuda_stream *s);

/* ---- top.cu ---- */
/* out[n], device or mapped host memory: the largest logits of each row (gem_top). Logits of the ids
 * in never[n_never] become -infinity first; ld: a multiple of 4, rows at 16 bytes; groups:
 * u32[n][gem_cuda_top_groups]. */
int32_t gem_cuda_top_groups(int64_t n_vocab);
cudaError_t gem_cuda_top(const gem_cuda_stream *s, float *logits, int64_t ld, int32_t n,
                         int64_t n_vocab, const int32_t *never, int32_t n_never, uint32_t *groups,
                         gem_top *out);

/* ---- seed.cu ---- */
/* Every value of a pool: pattern f32[GEM_SEED_PATTERN] on the device (backend/seed.h). */
cudaError_t gem_cuda_seed(const gem_cuda_stream *s, uint8_t *pool, const gem_kv_pool *p, int which,
                          const float *pattern);

/* Raise the shared-memory limits of the kernels; once per device. */
cudaError_t gem_cuda_kernels_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_mma_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_slab_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_flash_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_flash128_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_tile_init(const gem_cuda_stream *s);
cudaError_t gem_cuda_many_init(void);
cudaError_t gem_cuda_wgmma_init(const gem_cuda_stream *s);

#ifdef __cplusplus
}
#endif
#endif
