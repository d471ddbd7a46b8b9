/* subject.h - a model under test: a session that stands at a given depth, the two things that are
 * timed on it (a prompt, a run of generated tokens), and the time to the first token. */
#ifndef GEM_BENCH_SUBJECT_H
#define GEM_BENCH_SUBJECT_H

#include "bench/bench.h"

typedef struct bench_subject {
    gem_model *model; /* owned */
    uint64_t load_ns;
    int32_t n_prompt, n_generated;
    gem_session *session;
    gem_checkpoint *start; /* the session at its depth; NULL for depth 0 */
    gem_sampler *greedy;
    int32_t *prompt, *generated; /* token ids, the same on every machine */
    const float *logits;         /* of the last position run; borrowed from the session */
    uint64_t run_start;
    uint64_t *ttft_ns; /* [max_ttft] */
    size_t n_ttft, max_ttft;
} bench_subject;

/* n token ids by seed, the same on every machine, the first one `bos` unless it is negative. NULL:
 * out of memory. The caller frees. */
int32_t *bench_random_tokens(int32_t n, int32_t n_vocab, int32_t bos, uint64_t seed);

/* Opens the model and fills `depth` positions. layer_span: gem_backend_options. max_ttft: most
 * prompts that will be timed. */
gem_status bench_subject_open(bench_subject *s, const char *path, const gem_model_options *opt,
                              bool layer_span, int32_t n_prompt, int32_t n_generated, int32_t depth,
                              size_t max_ttft, gem_error *err);
void bench_subject_close(bench_subject *s); /* contents; takes a zeroed or half-open one */

/* For bench_arm; `user` is the subject. Back to its depth; run the prompt; draw the first token
 * behind it (noting the time since the prompt began); run the generated tokens one by one. */
gem_status bench_subject_rewind(void *user, gem_error *err);
gem_status bench_subject_prompt(void *user, gem_error *err);
gem_status bench_subject_first(void *user, int round, gem_error *err);
gem_status bench_subject_generate(void *user, gem_error *err);

/* {"samples_ns", "time_ns": stats or null} */
json_t *bench_subject_ttft_json(const bench_subject *s);

#endif
