/* draft.h - generation with and without speculation, side by side: the same greedy tokens behind
 * the same prompt, one arm by decoding, one by rounds of guesses. What gem-bench --draft times. */
#ifndef GEM_BENCH_DRAFT_H
#define GEM_BENCH_DRAFT_H

#include "bench/bench.h"
#include "runtime/speculate.h"

typedef struct bench_draft {
    gem_model *model;     /* borrowed, as the drafter */
    gem_drafter *drafter; /* may go before the bench_draft is closed, once nothing runs */
    int32_t n_generated, max;
    gem_session *session;  /* owned, as all below */
    gem_checkpoint *start; /* behind the prompt */
    int32_t *prompt, n_prompt;
    gem_sampler *greedy;
    gem_speculator *speculator;
    int32_t *plain, *drafted; /* [n_generated + 1] tokens of the last run of each arm */
    gem_draft_stats before;   /* the speculator's when the timed runs began */
    bool ran_plain, same;     /* same: every timed run gave the tokens of plain decoding */
} bench_draft;

/* Runs the prompt (copied). */
gem_status bench_draft_open(bench_draft *d, gem_model *model, gem_drafter *drafter, int32_t max,
                            const int32_t *prompt, int32_t n_prompt, int32_t n_generated,
                            gem_error *err);
void bench_draft_close(bench_draft *d); /* contents; takes a zeroed or half-open one */
/* Hooks of the two arms; `user` is the bench_draft. */
gem_status bench_draft_rewind(void *user, gem_error *err);
gem_status bench_draft_plain(void *user, gem_error *err);
gem_status bench_draft_rounds(void *user, gem_error *err);
gem_status bench_draft_finish(void *user, int round, gem_error *err); /* of the second arm */
/* Statistics of the timed runs (gem_draft_stats_json); new reference. */
json_t *bench_draft_json(const bench_draft *d);

#endif
