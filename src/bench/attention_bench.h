/* attention_bench.h - attention alone, at a long position, by named routes in turn: what
 * gem-long-attention-profile and gem-decode-attention-profile time. */
#ifndef GEM_BENCH_ATTENTION_BENCH_H
#define GEM_BENCH_ATTENTION_BENCH_H

#include "bench/bench.h"
#include "bench/operator.h"

typedef struct bench_shape {
    const char *name;
    int n_heads, n_kv_heads, head_dim;
    int32_t window;
    const char *about;
} bench_shape;
const bench_shape *bench_shape_at(size_t i); /* NULL behind the last */
const bench_shape *bench_shape_find(const char *name);
bool bench_shape_names(char *out, size_t size);

enum { BENCH_ROUTES = 2 };

/* One timed run of one route: `iterations` dispatches. */
typedef struct bench_dispatch {
    uint64_t start_ns, end_ns; /* host clock */
    uint64_t device_ns;        /* of attention alone, all iterations */
    uint64_t score_ns, normalization_ns, value_ns;
    int round; /* < 0: warm-up */
} bench_dispatch;

typedef struct bench_attention_route {
    struct bench_attention_bench *bench;
    const gem_op_route *route;
    const char *ran;        /* the code it led to; static */
    bench_dispatch *sample; /* owned, [repetitions] */
    size_t n;
    bench_dispatch last;
    char digest[65]; /* of the first run's outputs */
    bool same;       /* every run gave these */
} bench_attention_route;

typedef struct bench_attention_bench {
    bench_operator op; /* owned */
    int32_t position, iterations;
    bool phases;
    const gem_op_route *route[BENCH_ROUTES];
    size_t n_routes;
    int repetitions, warmup;
    bool (*progress)(void *user, const char *arm, int round, uint64_t ns);
    bench_attention_route arm[BENCH_ROUTES];
    bench_arm timed[BENCH_ROUTES];
    bench_plan plan;
} bench_attention_bench;

/* Warm-up and rounds of all routes in turn; op, position, iterations, phases, routes, counts and
 * progress were set. GEM_E_UNSUPPORTED where the backend has no time stamps. */
gem_status bench_attention_run(bench_attention_bench *b, gem_error *err);
void bench_attention_close(bench_attention_bench *b); /* and the operator */

typedef uint64_t (*bench_dispatch_part)(const bench_dispatch *d);
uint64_t bench_part_device(const bench_dispatch *d);
uint64_t bench_part_score(const bench_dispatch *d);
uint64_t bench_part_normalization(const bench_dispatch *d);
uint64_t bench_part_value(const bench_dispatch *d);
/* {"samples_ns": a dispatch, "time_ns"} of one part. */
json_t *bench_part_json(const bench_attention_bench *b, size_t route, bench_dispatch_part part);
/* Every run: {"variant", "round", "start_ns", "end_ns", "device_ns"} from the first start on, in
 * order of time. */
json_t *bench_dispatches_json(const bench_attention_bench *b);
/* Two routes that led to the same code. */
bool bench_attention_identical(const bench_attention_bench *b);
bool bench_attention_deterministic(const bench_attention_bench *b);
/* {"samples_ns", "time_ns"} of n values. */
json_t *bench_samples_json(const double *x, size_t n);

#endif
