/* backend.h - what a backend is: one const table. The runtime opens it with a plan, and gives it
 * batches of rows; it never sees prompts or sampling. Which backends exist: registry.c. */
#ifndef GEM_BACKEND_H
#define GEM_BACKEND_H

#include "backend/plan.h"

struct json_t; /* jansson's */
struct gem_op_route;
typedef struct gem_backend gem_backend;

enum {
    GEM_PAGE = 64,     /* positions a KV page holds; pages start at multiples of it */
    GEM_ROLLBACK = 13, /* a sequence can always go back this many positions at once */
    GEM_TOP = 64       /* largest logits of a row that a backend may give instead of all */
};

/* The largest logits of a row in descending order, equal ones by ascending id: what most samplers
 * draw from (runtime/sampler.h). n: the smaller of GEM_TOP and n_vocab; 0: the row holds a value
 * that is no number, or +infinity. The logits are the row's, but that -0 is given as 0. */
typedef struct gem_top {
    int32_t n;
    int32_t id[GEM_TOP];
    float logit[GEM_TOP];
} gem_top;

/* KV memory of one kind of layer: pages of equal size. The backend owns the memory; the runtime
 * hands out page numbers and counts references (runtime/kv.h). */
typedef struct gem_kv_pool {
    int n_kv_heads, head_dim;
    bool f16;
    int32_t n_pages;
    bool values_only; /* f32; keys are made when they are needed (gem_kv_layer.k_from_v) */
} gem_kv_pool;

typedef struct gem_backend_options {
    const gem_plan *plan; /* borrowed for the backend's life */
    gem_gguf *file;       /* borrowed; weights are read from it at open */
    gem_gguf *drafter;    /* the same of the plan's drafter, where it has a file of its own */
    const char *isa;      /* NULL: best */
    int n_threads;        /* >= 1 */
    int32_t n_batch;      /* most rows of one run */
    int32_t n_logits;     /* most rows of one run that want logits */
    int32_t n_ctx;        /* most positions of a sequence */
    bool exact, no_repack;
    bool layer_span; /* what one submission to the device covers: the ops of a layer, and the host
                        waits for it before it submits the next; else a whole run */
    uint64_t max_bytes;      /* gem_model_options; 0: no limit */
    const gem_kv_pool *pool; /* [n_pools] */
    int n_pools;
    const int *layer_pool; /* [plan->n_layers]; -1: the layer keeps no KV pages */
    int32_t n_states;      /* slots of recurrent state: gem_batch.state */
    int32_t n_tapes;       /* gem_batch.tape */
    gem_log log;
    void (*progress)(void *user, double done);
    void *progress_user;
} gem_backend_options;

enum {
    GEM_WANT_LOGITS = 1,
    GEM_WANT_HIDDEN = 2, /* HEAD's hidden vector; plans with a draft_op only */
    GEM_WANT_TOP = 4     /* the largest logits; backends with the op `logits` only */
};

/* One forward pass. Rows of a sequence stand in ascending positions, but rows of different
 * sequences may be mixed. A row's result depends on its token, its position and its sequence's past
 * only. */
typedef struct gem_batch {
    int32_t n_rows;
    const int32_t *token; /* [n_rows] */
    const int32_t *pos;   /* [n_rows] */
    const int32_t *seq;   /* [n_rows], index into the tables */
    const uint8_t *want;  /* [n_rows], GEM_WANT_... of this row */
    int32_t n_seqs;
    /* table[seq * n_layers + layer][pos / GEM_PAGE] is the page number in the layer's pool; -1
     * where a windowed layer no longer keeps the page. Pages that this batch writes are private to
     * it. */
    const int32_t *const *table;
    /* Recurrent models only. state[seq][c] is the slot that holds the state of every recurrent
     * layer before position c * GEM_PAGE; c 0 has no slot, that state is zero. A run whose rows end
     * chunk c writes slot state[seq][c + 1]; it reads the slot of the chunk that its first row
     * falls into, which no run writes again while a table names it. Slots of chunks that a run
     * passes through may repeat (two are enough). NULL otherwise. */
    const int32_t *const *state;
    /* tape[seq]: where the backend keeps a sequence's rows of the unfinished chunk and of the one
     * before it. When the first row's position p is no multiple of GEM_PAGE, the tape must have
     * been written by runs over this sequence's positions from the start of p's chunk to p - 1 at
     * least, and at most GEM_ROLLBACK positions beyond p. */
    const int32_t *tape;
    /* Plans with a draft_op only. draft: run the drafter's program, on rows with a vector each,
     * input f32[n_rows][d_model]. hidden[k] is set for the k-th row that wants it: f32[d_model],
     * borrowed until the next run that wants any. */
    bool draft;
    const float *input;
    const float **hidden;
    /* Set where a row wants its top: top[k] is that of the row whose place among those that want
     * logits or their top is k; borrowed until the next run. */
    const gem_top **top;
} gem_batch;

/* Where the time of runs went. Zeroed by the caller; several runs add up. */
typedef struct gem_trace {
    /* asked for */
    uint64_t *op_ns;    /* [plan->n_ops], by the device's clock, or NULL: host phases alone, on the
                           path that `run` takes */
    bool attend_phases; /* with op_ns: attention in its three parts, too (one row a run) */
    /* host phases: what lies between start_ns and end_ns (gem_now_ns) without gaps */
    uint64_t start_ns, end_ns; /* of the first run, of the last one */
    uint64_t prepare_ns;       /* ids, tables, shares of the work */
    uint64_t encode_ns;        /* command buffer or graph; 0 where there is none */
    uint64_t wait_ns;          /* from submission to completion */
    uint64_t readback_ns;      /* logits to the host */
    uint64_t cleanup_ns;
    uint64_t device_ns; /* inside wait_ns */
    /* attention: q.k; maximum, exponents and sum; weights times values with the folding of partial
     * results. Mean over the threads that share it; all 0 where attention cannot be divided. */
    uint64_t score_ns, normalization_ns, value_ns;
} gem_trace;
/* Add the time since *stamp; the next part starts now. */
static inline void gem_phase_end(uint64_t *sum, uint64_t *stamp)
{
    uint64_t now = gem_now_ns();
    *sum += now - *stamp;
    *stamp = now;
}

typedef struct gem_backend_stats {
    uint64_t weights_bytes, kv_bytes, workspace_bytes, decode_bytes;
    uint64_t state_bytes, tape_bytes; /* of all slots, of all tapes; 0 without recurrent layers */
    const char *isa;
    int n_threads;
} gem_backend_stats;

typedef struct gem_backend_ops {
    const char *name; /* "cpu", "cuda", "metal": as on the command line and in records */
    gem_status (*open)(gem_backend **out, const gem_backend_options *opt, gem_error *err);
    void (*close)(gem_backend *be);
    /* Run the plan (or its drafter's program) over a batch. logits[k] is set for the k-th row that
     * wants them, or its top: f32[n_vocab], borrowed until the next run; NULL when the row wants
     * its top alone. GEM_E_DEVICE on failure. Allocates nothing. */
    gem_status (*run)(gem_backend *be, const gem_batch *b, const float **logits, gem_error *err);
    /* All logits of the k-th of those rows of the last run, one that wanted its top: borrowed until
     * the next run. GEM_E_DEVICE. NULL: there is no GEM_WANT_TOP here, all logits are at hand. */
    gem_status (*logits)(gem_backend *be, int32_t k, const float **logits, gem_error *err);
    /* The same, timed. The results are those of `run`; with op_ns the way there may be another (one
     * submission an op). NULL: the backend has no time stamps to offer. */
    gem_status (*run_traced)(gem_backend *be, const gem_batch *b, const float **logits,
                             gem_trace *trace, gem_error *err);
    /* Fill the whole KV memory with finite, sparse diagnostic values, the same for the same seed:
     * for profiles at positions that nobody wants to wait for. NULL: not offered. */
    gem_status (*seed_kv)(gem_backend *be, uint64_t seed, gem_error *err);
    /* Take this way (op_routes.h) for its op in every run from now on. *ran names the code that it
     * leads to, a static string: two ways of one name are the same code, and a way that the backend
     * has no code for leads to production's. NULL: there is one way for everything. */
    void (*choose_route)(gem_backend *be, const struct gem_op_route *route, const char **ran);
    /* Copy a KV page (copy on write). */
    void (*copy_page)(gem_backend *be, int pool, int32_t dst, int32_t src);
    /* What attention of a layer sees at one position, in its page: f32[n_kv_heads][head_dim] each.
     * For comparisons between engines, not for the hot path. */
    void (*read_kv)(const gem_backend *be, int layer, int32_t page, int32_t pos, float *k,
                    float *v);
    /* Contents of a KV page (gem_kv_page_bytes) and of a slot of recurrent state
     * (gem_recurrent_bytes), as this backend lays them out: what was read from one may be written
     * into any other of its pool, of any process with the same build, plan and options, and then
     * means the same. May be called from any thread beside a run that does not use the page or
     * slot. Reading is false when the device failed; after a failed write the next run does. All
     * four or none are given; NULL: contents cannot leave this backend. */
    bool (*read_page)(const gem_backend *be, int pool, int32_t page, void *out);
    void (*write_page)(gem_backend *be, int pool, int32_t page, const void *in);
    bool (*read_state)(const gem_backend *be, int32_t slot, void *out);
    void (*write_state)(gem_backend *be, int32_t slot, const void *in);
    void (*stats)(const gem_backend *be, gem_backend_stats *out);
    /* Routes, tile sizes, memory: for print-config. New reference. */
    struct json_t *(*config)(const gem_backend *be);
} gem_backend_ops;

const gem_backend_ops *gem_backend_find(const char *name); /* NULL name: the default */
/* Names, for messages: "cpu, cuda". */
const char *gem_backend_names(void);
/* Bytes of one page of a pool in host-side layout: K panels and V columns (cpu/kernels.h;
 * docs/architecture.md). */
size_t gem_kv_page_bytes(const gem_kv_pool *p);
/* Bytes of one slot of recurrent state, every recurrent layer together: f32. */
size_t gem_recurrent_bytes(const gem_recurrent *r);

#endif
