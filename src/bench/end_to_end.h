/* end_to_end.h - one timed run as a user sees it: prompt in, tokens out. What experiment receipts
 * ask for: end-to-end time, time to first token, prefill and decode, per repetition, with the
 * identity of the run and a digest of the tokens it produced. */
#ifndef GEM_BENCH_END_TO_END_H
#define GEM_BENCH_END_TO_END_H

#include "bench/bench.h"

typedef struct bench_e2e {
    /* set by the caller; borrowed */
    gem_model *model;
    gem_sampler *greedy;
    const int32_t *prompt;
    int32_t n_prompt, n_decode;
    int repetitions;
    /* owned */
    gem_session *session;
    uint64_t *e2e_ns, *ttft_ns, *decode_ns; /* [repetitions] */
    int32_t *tokens;                        /* [n_decode + 1] of the last run */
    size_t n;
    uint64_t run[3]; /* of the run that just ended */
    char output[65]; /* SHA-256 of the first timed run's tokens */
    size_t n_same;   /* timed runs with the same tokens */
} bench_e2e;

gem_status bench_e2e_init(bench_e2e *e, gem_error *err);
void bench_e2e_deinit(bench_e2e *e);
/* Hooks of a bench_arm whose user is the bench_e2e. */
gem_status bench_e2e_prepare(void *user, gem_error *err);
gem_status bench_e2e_run(void *user, gem_error *err);
gem_status bench_e2e_finish(void *user, int round, gem_error *err);
/* The member `receipt` of a record; command is the scrubbed command line. */
json_t *bench_e2e_json(const bench_e2e *e, int batch, const char *command);
/* argv as one line, folders taken off every argument. The caller frees; NULL when out of memory. */
char *bench_scrubbed_command(int argc, char **argv);

#endif
