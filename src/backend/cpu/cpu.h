/* cpu.h - the CPU backend's own state, shared by cpu.c (open, close), weights.c (load) and run.c
 * (the forward pass). Everything the pass needs is allocated at open. */
#ifndef GEM_CPU_CPU_H
#define GEM_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/team.h"

/* A 2-D tensor as this backend multiplies it. */
typedef struct cpu_weight {
    const gem_tensor *tensor;
    gem_panel_type type;   /* of the panels that the kernel sees */
    const uint8_t *panels; /* in the arena; NULL: made from the mapped rows on the fly */
    size_t panel_bytes;
    int64_t k, n_rows, n_panels;
} cpu_weight;

typedef struct cpu_op {
    const gem_op *op;
    const cpu_weight *w[GEM_LINEAR_MAX]; /* LINEAR, HEAD */
    const float *bias[GEM_LINEAR_MAX];
    int recurrent;    /* CONV, DELTA: which of the recurrent layers */
    int64_t n_panels; /* of all weights */
    gem_range *range; /* [n_threads] */
} cpu_op;

/* Rows of one sequence that share an attention pass: at most GEM_ATTEND_ROWS (token, head) pairs.
 */
typedef struct cpu_block {
    int32_t row, n_tokens;
} cpu_block;

/* Rows of one sequence in a run of a recurrent model: consecutive positions. */
typedef struct cpu_seq {
    int32_t seq, pos; /* pos: of the first row */
    int32_t first, n; /* in be->order */
} cpu_seq;

typedef struct cpu_scratch { /* of one thread; all 64-byte aligned parts of one slab */
    uint8_t *unpack;         /* gem_panel_scratch(max k) */
    uint8_t *panel;          /* one panel made on the fly */
    float *row;              /* one dequantised row */
    float *attend;
    float *o;             /* [GEM_ATTEND_ROWS][head_dim]: a chunk's partial result */
    float *total;         /* [GEM_ATTEND_ROWS][head_dim] */
    float *keys;          /* [GEM_CHUNK][head_dim], where layers keep values alone; else NULL */
    float *delta;         /* gem_cpu_delta_scratch() floats; recurrent models only */
    uint64_t phase_ns[3]; /* of a traced run: scores, normalisation, values */
} cpu_scratch;

struct gem_backend {
    gem_backend_options opt;
    const gem_plan *plan;
    gem_cpu_kernels k;
    gem_team *team;
    int n_threads;

    uint8_t *arena; /* one mapping for weights, one for the rest */
    size_t arena_bytes;
    uint8_t *work;
    size_t work_bytes, work_used, work_bytes_apart; /* apart: other tables */
    cpu_weight *weight;                             /* [n_weights] */
    size_t n_weights;
    cpu_op *op; /* [plan->n_ops] */
    gem_range *ranges;
    uint64_t decode_bytes;

    float *buf[GEM_PLAN_MAX_BUFS];
    size_t ld[GEM_PLAN_MAX_BUFS];
    bool quantized[GEM_PLAN_MAX_BUFS]; /* a linear op reads this buffer in 8 bits */
    gem_qrows qbuf[GEM_PLAN_MAX_BUFS];
    double *freq[GEM_PLAN_MAX_ROPES];
    float *cos[GEM_PLAN_MAX_ROPES], *sin[GEM_PLAN_MAX_ROPES]; /* [n_batch][half] */
    float *logits;
    size_t ld_logits;
    cpu_scratch *scratch; /* [n_threads] */

    uint8_t **pool; /* [n_pools] page memory */
    size_t *pool_bytes, *page_bytes;
    uint64_t kv_bytes;
    /* Layers that keep values alone: the QKV op that says how keys are made of them, and the angles
     * of all positions so far, of the pairs that move at all. */
    const gem_op **key_op; /* owned, [n_layers]; NULL where keys are kept */
    float *key_cos[GEM_PLAN_MAX_ROPES], *key_sin[GEM_PLAN_MAX_ROPES]; /* [n_ctx][key_pairs] */
    int key_pairs[GEM_PLAN_MAX_ROPES]; /* a multiple of 16; 0: not needed */
    int32_t key_positions;             /* filled */

    /* recurrent models (delta.c); NULL otherwise */
    float *states, *tapes;
    float *conv_w; /* owned, [recurrent layers][GEM_CONV_TAPS][channels], then a row of zeros */
    uint64_t state_bytes, tape_bytes;

    /* of the run in hand */
    const gem_batch *batch;
    gem_trace *trace; /* borrowed; NULL: not a traced run */
    int query_rows;   /* most tokens of a sequence in one pass of attention; 0: as many as fit */
    int32_t *pos, *seq, *row_of; /* [n_batch]; after the last append: of the wanted rows only */
    int32_t n_wanted, n_logits;  /* rows that want anything; that want logits */
    float *hidden;               /* [n_batch][d_model]; plans with a draft_op */
    cpu_block *block;            /* [n_batch] */
    int n_blocks;
    float *partial; /* split decode: [rows][heads][chunks][head_dim + 2] */
    size_t partial_floats;
    size_t first_op, end_op; /* of the program that runs */
    size_t span_op, span_end; /* of the region that runs: all of the program's, or a layer's */
    int32_t alive;            /* rows at the region's start */
    size_t last_append;      /* index of its last QKV or DELTA op: later ops see wanted rows only */
    cpu_seq *group;          /* [n_groups], at most n_batch; recurrent models only */
    int32_t n_groups, n_levels;
    int32_t *order, *group_of, *group_of_row; /* [n_batch] rows by group; the group of each place */
};

static inline size_t gem_cpu_part_bytes(const gem_kv_pool *p)
{
    return gem_page_part_bytes(p->head_dim, p->f16) / (p->values_only ? 2 : 1);
}

static inline float *gem_cpu_row(const gem_backend *be, gem_buf b, int64_t r)
{
    return be->buf[b] + (size_t)r * be->ld[b];
}

/* Columns [at, at + n) of a finished row, multiples of 32, where a linear op reads it in 8 bits. */
static inline void gem_cpu_quantize(const gem_backend *be, gem_buf b, int64_t r, int64_t at,
                                    int64_t n)
{
    if (!be->quantized[b]) return;
    gem_qrows q = gem_qrows_at(&be->qbuf[b], (size_t)r);
    q.q += at;
    q.xs += at / 32;
    q.xsum += at / 32;
    q.nsum += at / 32;
    q.nsum16 += at / 16;
    be->k.quantize(gem_cpu_row(be, b, r) + at, n, &q);
}

/* linear.c. What the threads share out of an op for n_rows rows. */
int64_t gem_cpu_linear_items(const gem_backend *be, const cpu_op *o, int32_t n_rows);
/* Rows that op i of the run in hand works on. */
int32_t gem_cpu_rows_of(const gem_backend *be, size_t i);
/* This thread's part of dst[i] (or logits) = w[i] * src for rows [0, n_rows). */
void gem_cpu_linear(const gem_backend *be, int tid, int32_t n_rows, const cpu_op *o, gem_buf src,
                    const gem_buf *dst, float *logits);
/* What a waiting thread may fetch: its share of the next op with weights, from first_op on. */
typedef struct cpu_ahead {
    const gem_backend *be;
    const cpu_op *op;
    int64_t item, end;
    size_t at, left; /* bytes: into each stream of the item; of the budget */
} cpu_ahead;
void gem_cpu_ahead_of(cpu_ahead *a, const gem_backend *be, int tid, size_t first_op);
bool gem_cpu_fetch_ahead(void *ahead); /* a gem_team_idle_fn */

/* Zeroed memory of its own mapping, in huge pages where the system has them, for munmap; NULL when
 * there is none. Pages are taken when they are first written. */
void *gem_cpu_map(size_t bytes);
/* Take zeroed, 64-byte aligned memory from the work mapping (sized by a dry first pass). */
void *gem_cpu_take(gem_backend *be, size_t bytes);
gem_status gem_cpu_load_weights(gem_backend *be, gem_error *err);
/* Before weights are loaded, when it is known which: GEM_E_NOMEM when all that this backend will
 * take is more than opt.max_bytes. */
gem_status gem_cpu_forecast(gem_backend *be, gem_error *err);
uint64_t gem_cpu_weights_bytes(const gem_backend *be);   /* 0: they stay mapped */
uint64_t gem_cpu_recurrent_bytes(const gem_backend *be); /* states and tapes */
/* The recurrent ops, delta.c. check: shapes; begin: the rows of be->batch by sequence, GEM_E_ARG
 * when positions, slots or tapes do not fit. */
gem_status gem_cpu_recurrent_check(const gem_plan *p, gem_error *err);
gem_status gem_cpu_recurrent_open(gem_backend *be, gem_error *err);
void gem_cpu_recurrent_close(gem_backend *be);
bool gem_cpu_read_state(const gem_backend *be, int32_t slot, void *out);
void gem_cpu_write_state(gem_backend *be, int32_t slot, const void *in);
gem_status gem_cpu_recurrent_begin(gem_backend *be, gem_error *err);
size_t gem_cpu_delta_scratch(const gem_recurrent *r);
void gem_cpu_conv(gem_backend *be, int tid, const cpu_op *o);
void gem_cpu_delta(gem_backend *be, int tid, const cpu_op *o);
gem_status gem_cpu_run(gem_backend *be, const gem_batch *b, const float **logits, gem_error *err);
/* trace.c: the entries of the table that profiles use. */
gem_status gem_cpu_run_traced(gem_backend *be, const gem_batch *b, const float **logits,
                              gem_trace *trace, gem_error *err);
gem_status gem_cpu_seed_kv(gem_backend *be, uint64_t seed, gem_error *err);
void gem_cpu_choose_route(gem_backend *be, const struct gem_op_route *route, const char **ran);
extern const char gem_cpu_attention[]; /* what the configuration calls attention */
/* Inside the region, by thread 0 behind an op's last barrier. */
void gem_cpu_trace_op(gem_backend *be, size_t op, uint64_t *last);

/* ---- layers that keep values alone: keys.c ---- */
bool gem_cpu_values_only(const gem_backend *be); /* any layer does */
/* After the frequencies are known. GEM_E_NOMEM. */
gem_status gem_cpu_open_keys(gem_backend *be, gem_error *err);
void gem_cpu_close_keys(gem_backend *be);
/* Before the region: angles of the positions that this batch reaches first. */
void gem_cpu_key_angles(gem_backend *be, const gem_batch *b);
void gem_cpu_append_value(uint8_t *page, int head_dim, int32_t slot, const float *v);
/* K panels of a page's values, of the positions from `first` (the page's) to `last` at most; page
 * `which` of a chunk. Borrowed from thread tid's scratch until the next chunk. */
const uint8_t *gem_cpu_make_keys(const gem_backend *be, int tid, int layer, const uint8_t *values,
                                 int32_t first, int32_t last, int which);
/* One key of one value, f32[head_dim] each: for comparisons. */
void gem_cpu_key_of_value(const gem_backend *be, int layer, int32_t pos, const float *v, float *k);

#endif
