/* prefix.h - a model with a session that stands at a long position, evaluated or seeded, and an
 * exact checkpoint to repeat the same step from. What the profiles of long positions stand on. */
#ifndef GEM_BENCH_PREFIX_H
#define GEM_BENCH_PREFIX_H

#include "bench/bench.h"
#include "runtime/engine.h"

typedef struct bench_prefix_options {
    const char *path;
    const gem_model_options *model; /* n_ctx 0: position and `rows`; n_sessions is set here */
    int32_t position, rows;         /* rows: of the step behind it */
    bool seeded, traced;            /* traced: steps will want time stamps */
    uint64_t seed;
    int32_t progress_every; /* tokens; 0: silent */
    void (*progress)(void *user, int32_t done, int32_t total, uint64_t ns);
    void *progress_user;
    const volatile int *stop; /* not zero: give up; may be NULL */
} bench_prefix_options;

typedef struct bench_prefix {
    gem_model *model; /* owned, as all below */
    gem_session *session;
    gem_checkpoint *start;
    int32_t *token; /* [rows], behind the prefix */
    int32_t position, rows;
    bool seeded;
    int builds;           /* prefixes evaluated: 1, or 0 for a seeded one */
    uint64_t build_ns;    /* 0 for a seeded one */
    uint64_t *op_ns;      /* [plan.n_ops] */
    const float **logits; /* [rows] of the last step */
} bench_prefix;

/* GEM_E_UNSUPPORTED where the backend has no time stamps, or cannot seed; GEM_E_CANCELLED. */
gem_status bench_prefix_open(bench_prefix *p, const bench_prefix_options *o, gem_error *err);
void bench_prefix_close(bench_prefix *p); /* contents; takes a zeroed or half-open one */
gem_status bench_prefix_rewind(bench_prefix *p, gem_error *err);
/* One step of `rows` rows; logits of the last one, or with all_logits of every one. trace NULL: not
 * timed; with_ops: with the times of ops, in p->op_ns. *wall_ns: around the whole call. */
gem_status bench_prefix_step(bench_prefix *p, bool all_logits, gem_trace *trace, bool with_ops,
                             uint64_t *wall_ns, gem_error *err);
/* Members that every record of such a program has: model, prefix_mode, prefix_builds,
 * prefix_build_wall_seconds, prefix_tokens_per_second, layers, config. digest: "" or SHA-256. */
json_t *bench_prefix_json(const bench_prefix *p, const char *path, const char *digest);
/* SHA-256 of the last row's logits. */
void bench_logits_digest(const bench_prefix *p, char hex[65]);

#endif
