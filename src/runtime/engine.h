/* engine.h - inside the runtime: what a model and a session are made of, and the options that only
 * our own programs and tests set. */
#ifndef GEM_ENGINE_H
#define GEM_ENGINE_H

#include "chat/chat.h"
#include "model/model.h"
#include "runtime/kv.h"
#include "runtime/state.h"

enum { GEM_DEFAULT_LOGITS = 64 };

typedef struct gem_engine_options {
    int32_t n_logits; /* most rows of a batch that want logits; 0: min(n_batch, GEM_DEFAULT_LOGITS).
                         Each takes n_vocab floats. `gem logits` asks for n_batch. */
    const gem_backend_ops *ops;          /* required unless vocab_only */
    void (*change_plan)(gem_plan *plan); /* tests: before memory is laid out for it; may be NULL */
    bool layer_span;                     /* benches: gem_backend_options.layer_span */
} gem_engine_options;

/* gem_model_open with these options; engine may be NULL. */
gem_status gem_model_open_engine(gem_model **out, const char *path, const gem_model_options *opt,
                                 const gem_engine_options *engine, gem_error *err);
/* The same on a container that is open already; owned by the model on success. */
gem_status gem_model_open_gguf(gem_model **out, gem_gguf *file, const gem_model_options *opt,
                               const gem_engine_options *engine, gem_error *err);

struct gem_model {
    gem_gguf *file;     /* owned */
    gem_gguf *drafter;  /* owned; NULL but for a drafter with a file of its own */
    gem_tokenizer *tok; /* owned */
    gem_chat_format chat;
    gem_plan plan; /* empty when vocab_only */
    const gem_backend_ops *ops;
    gem_backend *be; /* owned; NULL when vocab_only */
    gem_kv_layout layout;
    gem_kv_store *kv;          /* owned */
    gem_state_store *states;   /* owned; NULL: no recurrent layers */
    int32_t n_states;          /* slots */
    int64_t state_bytes;       /* option */
    char *family, *name, *isa; /* owned */
    int n_threads, n_sessions, n_open;
    int32_t n_ctx, n_batch, n_logits;
    gem_kv_type kv_type;
    bool exact, no_repack;
    gem_log log;
    gem_trace *trace; /* profiles: borrowed; runs are timed into it (ops->run_traced is there) */

    /* one batch, allocated at open: a session's rows are put here and run */
    int32_t *token, *pos, *seq; /* [n_batch] */
    uint8_t *want;              /* [n_batch] */
    gem_row *row;               /* [n_batch], for prefill */
    const float **row_logits;   /* [n_batch], for prefill */
    const float **logits;       /* [n_logits]; NULL: a row whose logits are with the backend, */
    const gem_top **top;        /* [n_logits]: and then its largest ones */
    int32_t *place;             /* [n_batch], of a row in logits and top; -1: it wanted neither */
    uint64_t n_runs;            /* of the backend so far */
    const int32_t **table;      /* [n_sessions * n_layers] */
    gem_session **batch;        /* [n_sessions], sessions of this batch by seq */
    /* recurrent models only */
    const int32_t **state; /* [n_sessions] */
    int32_t *tape;         /* [n_sessions] */
    int32_t *free_tape;    /* [n_sessions], stack of the tapes no session has */
    int32_t n_free_tapes;
    int32_t *again_pos, *zeros; /* [n_batch], for rows that are run again */
    /* plans with a drafter only */
    uint8_t *want_hidden; /* [n_batch] GEM_WANT_HIDDEN, for rows that are run again */
    const float **hidden; /* [n_batch] */
    float *input;         /* [n_batch][d_model] */
    float *edge;          /* [n_states][d_model], the hidden vector before a slot's boundary */
};

enum {
    GEM_RECENT = 16
}; /* hidden vectors a session remembers: GEM_ROLLBACK and one more at least */

struct gem_session {
    gem_model *m; /* borrowed */
    gem_kv_seq kv;
    int32_t n_pos; /* positions filled; kv.n_pos is less while tokens are to be run again */
    /* recurrent models only */
    gem_state_seq state;
    int32_t tape;
    int32_t *past; /* owned, [n_ctx]: tokens at positions below n_pos */
    /* plans with a drafter only: hidden vectors of the positions [recent_from, recent_to), each at
     * its position modulo GEM_RECENT; those at n_pos and beyond were taken back */
    float *recent; /* owned, [GEM_RECENT][d_model] */
    int32_t recent_from, recent_to;
    uint64_t run;    /* the run whose logits are the session's; 0: none */
    int32_t place;   /* of its last row there */
    bool failed;     /* a backend error: may only be freed */
    int32_t n_batch; /* rows in the batch being put together; 0 outside */
    int32_t seq;     /* index in it */
};

struct gem_checkpoint {
    gem_model *m; /* borrowed */
    gem_kv_seq kv;
    int32_t n_pos;
    gem_state_seq state;
    int32_t *past; /* owned, [n_pos]; NULL: no recurrent layers */
};

/* Rows of one session at once, at most n_batch. want[i]: a gem_row_want; NULL:
 * the last row's logits. logits_out as in gem_batch_run. */
gem_status gem_session_run(gem_session *s, const int32_t *tokens, size_t n_tokens,
                           const uint8_t *want, const float **logits_out, gem_error *err);

/* gem_session_draw from row i of the last batch, which wanted logits or its top. */
gem_status gem_row_draw(gem_model *m, int32_t i, gem_sampler *sampler, int32_t *token,
                        gem_error *err);

/* After s->n_pos went back, or was set: cut pages and states to where its next batch can start. */
void gem_session_settle(gem_session *s);

/* Plans with a drafter: run its program for the token at position n_pos + ahead, which is not
 * appended; calls count ahead from 0. The hidden vector before it is the session's own, or for
 * ahead > 0 what the last call gave. logits of the token behind it, borrowed until the next run.
 * When the last guess has been made, gem_session_guess_end.
 * errors  GEM_E_NOMEM  no free KV pages; GEM_E_RANGE  the context ends, tokens of the
 *         session must be run again first, or it is empty and the drafter only reads; GEM_E_DEVICE. Allocates nothing. */
gem_status gem_session_guess(gem_session *s, int32_t token, int32_t ahead, const float **logits,
                             gem_error *err);
void gem_session_guess_end(gem_session *s);

/* Profiles: stand at `position` without having run a token, over keys and values that the backend
 * made up (seed_kv): the graph, the pages and the routes are those of a long text, the results mean
 * nothing. The session must be fresh.
 * errors  GEM_E_UNSUPPORTED  the backend offers no seed_kv, or the model has recurrent layers
 *         GEM_E_NOMEM, GEM_E_RANGE */
gem_status gem_session_seed(gem_session *s, int32_t position, uint64_t seed, gem_error *err);

/* SHA-256 in hex over the sorted list of metadata scalars (arrays by kind and length) and of tensor
 * names, types and shapes: names a file's contents without reading its weights. GEM_E_NOMEM. */
gem_status gem_manifest_digest(const gem_gguf *g, char hex[65], gem_error *err);

#endif
