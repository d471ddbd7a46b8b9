/* cuda_backend.h - the host side of the CUDA backend: what an open one holds. cuda.c opens and
 * closes, cuda_weights.c places and uploads weights, cuda_run.c runs batches, cuda_logits.c brings
 * logits, cuda_trace.c serves profiles, cuda_image.c lets contents of pages out. */
#ifndef GEM_CUDA_BACKEND_H
#define GEM_CUDA_BACKEND_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/linear_blas.h"

#include <stdatomic.h>

enum {
    GEM_CUDA_MAX_SEQS = 64, /* sequences of one batch */
    GEM_CUDA_LINEARS = GEM_LINEAR_MAX,
    GEM_CUDA_MAX_GROUPS = 4
};

/* An op with its weights and vectors on the device. */
typedef struct gem_cuda_op {
    const gem_op *op;
    const gem_cuda_weight *w[GEM_CUDA_LINEARS];
    const float *bias[GEM_CUDA_LINEARS];
    bool joins_next; /* glu, residual, attend, delta: the op behind it reads it as slab products do;
                        conv: the delta rule alone reads it */
    bool all_slabs;  /* linear, head: every weight */
    bool read_once;  /* residual, delta: the op behind it alone reads the norm, the result */
    bool joint;      /* linear: w[0] holds the gate and the up rows of the glu behind it */
    const float *v[3]; /* norm: w; qkv: q_norm, k_norm; residual: post_norm, next_norm; conv: w;
                          delta: a, dt_bias, norm */
    int recurrent;     /* which of the recurrent layers */
} gem_cuda_op;

typedef enum gem_cuda_launch {
    GEM_CUDA_LAUNCH_PDL, /* decode: one graph, kernels overlap by programmatic dependent launch */
    GEM_CUDA_LAUNCH_GRAPH,
    GEM_CUDA_LAUNCH_STREAM
} gem_cuda_launch;

typedef struct gem_cuda_tracer gem_cuda_tracer;

struct gem_backend {
    gem_backend_options opt;
    const gem_plan *plan;
    gem_cuda_stream s;
    gem_cuda_launch launch;
    int device_id, n_seqs; /* n_seqs: most sequences of a batch */
    char isa[16];          /* "sm_90" */
    char device[256];      /* its name */

    gem_cuda_blas *blas;     /* owned; NULL: linear_tile */
    bool attend_ref;         /* attention of every row by one CTA a head, in f32 */
    bool own_tile;           /* asked for linear_tile */
    bool delta_rows;         /* the delta rule row by row, whole chunks too */
    bool keep_f16;           /* the tile route's weights stay as f16 beside the others */
    gem_cuda_op *op;         /* owned, [plan->n_ops] */
    gem_cuda_weight *weight; /* owned */
    size_t n_weights;
    uint8_t *arena, *work, **pool; /* device, owned; pool[n_pools] */
    uint8_t *wide;                 /* device, owned: weights as f16, or NULL */
    size_t wide_bytes;
    size_t arena_bytes, work_bytes, work_used, kv_bytes, *pool_bytes;
    uint64_t decode_bytes;
    size_t last_append; /* index of the last op that appends to the KV cache */

    /* device workspace */
    float *buf[GEM_PLAN_MAX_BUFS];
    int64_t ld[GEM_PLAN_MAX_BUFS];
    float *part[GEM_PLAN_MAX_BUFS]; /* partial sums of slab products; NULL: none come here */
    int n_parts[GEM_PLAN_MAX_BUFS];
    float *head_part, *logits, *via, *partial;
    gem_cuda_runs summed;     /* of the decode route: norms of residual sums */
    gem_cuda_packed attended; /* and heads */
    float *joint;           /* [n_batch][joint_width]: rows of joint weights, of the tile route */
    gem_cuda_packed packed; /* gated rows of the decode route */
    int64_t joint_width;    /* 0: there are no joint weights */
    int32_t *turn;          /* counters of attend_mma */
    size_t turns;
    int head_parts;
    int64_t ld_logits;
    uint32_t *top_groups; /* of gem_cuda_top */
    int32_t *never;       /* [plan->n_suppress] */
    double *freq[GEM_PLAN_MAX_ROPES];
    float *cs[GEM_PLAN_MAX_ROPES], *sn[GEM_PLAN_MAX_ROPES];
    uint16_t *xh, *wh; /* f16 activations and weights of the tile route */
    float *scale;      /* of rows of xh */
    void *blas_work;
    size_t wh_values;
    int32_t *table; /* [n_seqs][n_layers][max_pages] */
    int32_t max_pages;
    int32_t *ids; /* [4][n]: token, pos, seq, row_of */
    gem_cuda_update *update;
    gem_cuda_block *block; /* gem_cuda_block_list */
    /* kinds of attention: query heads on a KV head, rows of a block, without a window */
    int group[GEM_CUDA_MAX_GROUPS], block_rows[GEM_CUDA_MAX_GROUPS], n_groups;
    bool global[GEM_CUDA_MAX_GROUPS];
    /* routes of layers without a window (cuda_trace.c) */
    int query_tokens; /* most tokens of a block; 0: as many as fit */
    bool wide_keys;   /* attend_flash128 instead of attend_flash */

    /* recurrent models */
    float *states, *tapes; /* device, owned */
    uint64_t state_bytes, tape_bytes;
    int32_t *rec; /* rec_ints: number of sequences, 3 unused, gem_cuda_seq[n_seqs], order[n_batch],
                     seq_of[n_batch], slot[n_seqs][slot_ld] */
    int32_t *host_rec;
    size_t rec_ints;
    int slot_ld;
    uint8_t *chunks; /* scratch of whole chunks; NULL: none */

    /* host; the first four and host_rec pinned */
    int32_t *host_ids;
    gem_cuda_update *host_update;
    gem_cuda_block *host_block;
    float *host_logits;
    gem_top *host_top; /* pinned, too */
    int32_t n_kept;    /* rows of the last run whose logits are in `logits` */
    int32_t *mirror;                  /* what table holds */
    int32_t *wanted_pos, *wanted_seq; /* [n_batch], of the rows that want logits */
    int n_blocks[2][GEM_CUDA_MAX_GROUPS];

    /* by rows, all of which want logits; whether they stay and tops go to the host */
    cudaGraphExec_t graph[2][GEM_CUDA_FEW + 1];

    gem_cuda_tracer *tracer; /* owned; NULL before the first traced run */
    cudaStream_t images;     /* of contents that go out and come in, beside runs */
    cudaEvent_t copied;      /* behind the last copy of a page */
    _Atomic int image_error; /* cudaError_t of the first copy that failed: the next run's */
};

enum { GEM_CUDA_MAX_UPDATES = 65536 };

/* Where the blocks of rows for one kind of attention begin: of all rows, or of those that want
 * logits.
 */
static inline size_t gem_cuda_block_list(const gem_backend *be, int wanted, int group)
{
    return (size_t)(wanted * GEM_CUDA_MAX_GROUPS + group) * (size_t)be->opt.n_batch;
}

gem_status gem_cuda_fail(gem_error *err, cudaError_t e, const char *what);

/* Which tensors become which weights, and what they take: fills be->op, be->weight and
 * be->arena_bytes. */
gem_status gem_cuda_plan_weights(gem_backend *be, gem_error *err);
/* Allocate the arena and bring everything there. */
gem_status gem_cuda_load_weights(gem_backend *be, gem_error *err);
/* cuda_recurrent.c: state slots and tapes of recurrent layers. */
gem_status gem_cuda_recurrent_check(const gem_plan *p, gem_error *err);
gem_status gem_cuda_recurrent_plan(gem_backend *be, gem_error *err); /* sizes, for the forecast */
gem_status gem_cuda_recurrent_begin(gem_backend *be, const gem_batch *b, gem_error *err);
gem_cuda_recurrent gem_cuda_recurrent_of(const gem_backend *be, int layer);
gem_status gem_cuda_run(gem_backend *be, const gem_batch *b, const float **logits, gem_error *err);

/* cuda_logits.c. Of a run that leaves logits on the device: copies of those that are asked for with
 * it, behind its kernels; then, when the stream is empty, what gem_batch and `run` promise. */
cudaError_t gem_cuda_bring_wanted(const gem_backend *be, const gem_batch *b);
void gem_cuda_hand_out(const gem_backend *be, const gem_batch *b, const float **logits);
gem_status gem_cuda_logits(gem_backend *be, int32_t k, const float **logits, gem_error *err);

/* cuda_trace.c. The marks that a run passes; they do nothing unless it is traced. */
bool gem_cuda_traces_ops(const gem_backend *be); /* then kernels go to the stream, no graph */
unsigned long long *gem_cuda_phase_clocks(const gem_backend *be); /* gem_cuda_queries.clocks */
void gem_cuda_mark_prepared(gem_backend *be);
cudaError_t gem_cuda_mark_begin(gem_backend *be);         /* before the first kernel */
cudaError_t gem_cuda_mark_op(gem_backend *be, size_t op); /* behind its kernels */
cudaError_t gem_cuda_mark_end(gem_backend *be);           /* behind the last */
void gem_cuda_mark_done(gem_backend *be);                 /* the stream is empty */
gem_status gem_cuda_run_traced(gem_backend *be, const gem_batch *b, const float **logits,
                               gem_trace *trace, gem_error *err);
void gem_cuda_trace_close(gem_backend *be);
gem_status gem_cuda_seed_kv(gem_backend *be, uint64_t seed, gem_error *err);
struct gem_op_route;
void gem_cuda_choose_route(gem_backend *be, const struct gem_op_route *route, const char **ran);
/* What the configuration calls attention of many rows by production's way. */
const char *gem_cuda_attention_many(const gem_backend *be);

/* cuda_image.c */
gem_status gem_cuda_image_open(gem_backend *be, gem_error *err);
void gem_cuda_image_close(gem_backend *be);
void gem_cuda_copy_page(gem_backend *be, int pool, int32_t dst, int32_t src);
bool gem_cuda_read_page(const gem_backend *be, int pool, int32_t page, void *out);
void gem_cuda_write_page(gem_backend *be, int pool, int32_t page, const void *in);
bool gem_cuda_read_state(const gem_backend *be, int32_t slot, void *out);
void gem_cuda_write_state(gem_backend *be, int32_t slot, const void *in);

#endif
