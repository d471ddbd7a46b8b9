/* generate.h - one answer: prefill what the session lacks, then draw and stream tokens. Used by
 * run. */
#ifndef GEM_CMD_GENERATE_H
#define GEM_CMD_GENERATE_H

#include "base/base.h"
#include "cmd/cli/cli.h"
#include "runtime/speculate.h"

/* A session and the tokens whose keys and values it holds, so that the next turn reuses them. */
typedef struct generator {
    gem_model *model;       /* borrowed */
    gem_session *session;   /* owned */
    gem_detokenizer *detok; /* owned */
    int32_t *held;          /* owned, [n_held] of cap */
    size_t n_held, cap;
    int32_t n_ctx;
    gem_speculator *speculator; /* owned; NULL: no speculation */
    gem_chat_parser *parser;    /* owned by the caller, for one answer of a chat; NULL: plain text.
                                   Its events go to generator_event */
    gem_bytes *answer, *thoughts; /* borrowed; where the answer's text and its thoughts are kept;
                                     NULL: not */
    bool show_thoughts, dim;      /* dim: a thought is being shown */
    bool terminal;                /* stdout is a terminal: no control characters reach it */
    bool progress;                /* show the prefill on stderr */
} generator;

typedef enum finish { FINISH_END, FINISH_LENGTH, FINISH_CONTEXT, FINISH_INTERRUPTED } finish;

typedef struct generate_stats {
    size_t n_prompt, n_cached, n_generated, n_decoded;
    uint64_t prefill_ns, first_ns, decode_ns; /* first_ns: from the call to the first token drawn */
    finish finish;
    gem_draft_stats draft; /* of this answer; rounds 0 without speculation */
} generate_stats;

/* drafter may be NULL; draft_max: guesses a round. */
gem_status generator_init(generator *g, gem_model *m, gem_drafter *drafter, int32_t draft_max,
                          gem_error *err);
void generator_deinit(generator *g);

/* tokens   the whole prompt, int32[n]; what the session already holds of it is not run again
 * max      tokens to draw; < 0: until the end token or the end of the context
 * The answer is written to stdout and appended to g->answer. */
gem_status generate(generator *g, const gem_sampler_options *so, const int32_t *tokens, size_t n,
                    int32_t max, generate_stats *stats, gem_error *err);
/* What the parser of an answer finds: content is written, thoughts are shown dim at a terminal.
 * `user` is the generator. */
void generator_event(void *user, const gem_chat_event *e);
/* One line on stderr: token counts, rates, time to first token. */
void print_stats(const generate_stats *s, uint64_t load_ns);

#endif
