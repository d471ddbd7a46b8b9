/* bench.h - the timing core of every gem-*-bench: arms that are run in an order in which drift
 * cancels, warmed up first, timed apart, every sample kept. It prints nothing and judges nothing.
 */
#ifndef GEM_BENCH_H
#define GEM_BENCH_H

#include "base/base.h"

#include <jansson.h>

typedef struct bench_arm {
    const char *name;
    /* Untimed preparation before each run; may be NULL. */
    gem_status (*prepare)(void *user, gem_error *err);
    gem_status (*run)(void *user, gem_error *err);
    /* Untimed, behind each timed run; round < 0 is warm-up. May be NULL. */
    gem_status (*finish)(void *user, int round, gem_error *err);
    void *user;
    double work;  /* units of one run (tokens, bytes): rates are work over time */
    uint64_t *ns; /* owned by the bench: samples in order of time */
    size_t n;
    uint64_t *warm_ns;
    size_t n_warm;
} bench_arm;

typedef struct bench_plan {
    bench_arm *arm; /* borrowed, [n_arms] */
    size_t n_arms;
    int repetitions, warmups;
    /* After each run; return false to stop. May be NULL. `round` < 0 is warm-up. */
    bool (*progress)(void *user, const char *arm, int round, uint64_t ns);
    void *progress_user;
    const char **order; /* owned: names in the order the timed runs took */
    size_t n_order;
} bench_plan;

/* The arm that runs `slot`-th in `round`. Two arms: ABBABAAB... (Thue-Morse), which cancels linear
 * and quadratic drift over four rounds. More: forward and backward by the same rule. */
size_t bench_arm_at(size_t n_arms, int round, size_t slot);

/* Warm up every arm, then run `repetitions` rounds of all arms. errors: an arm's own;
 * GEM_E_CANCELLED. */
gem_status bench_run(bench_plan *p, gem_error *err);
void bench_plan_deinit(bench_plan *p); /* frees samples and the order, not the arms */

/* {"name", "samples_ns", "warmup_ns", "time_ns": stats, "rate_per_s": stats, "samples_per_s"}.
 * rate_per_s carries "overall" too: total work over total time. */
json_t *bench_arm_json(const bench_arm *a);

/* ---- the machine ---- */
/* CPU model, governor, load, kernel, memory, huge pages, build; strings a reader can compare. */
json_t *bench_host_json(void);

/* ---- the memory roof ---- */
/* Threads that read one large arena of huge pages; each has its own part. */
typedef struct bench_roof bench_roof;
/* bytes: of the whole arena, rounded up to 2 MiB a thread. */
gem_status bench_roof_open(bench_roof **out, int n_threads, size_t bytes, gem_error *err);
void bench_roof_close(bench_roof *r);
/* Bytes one pass reads. */
size_t bench_roof_bytes(const bench_roof *r);
/* One pass over everything by all threads; the time from the common start to the last thread's end.
 */
uint64_t bench_roof_pass(bench_roof *r);

#endif
