/* linear_bench.h - products of a few rows with matrices of one shape, timed a submission at a time:
 * what gem-kernel-bench (one row) and gem-prefill-bench (the rows of a verification) measure. */
#ifndef GEM_BENCH_LINEAR_BENCH_H
#define GEM_BENCH_LINEAR_BENCH_H

#include "bench/bench.h"
#include "bench/operator.h"

typedef struct bench_linear_options {
    const char *program, *kernel; /* kernel NULL: linear_<type> */
    bench_operator_options op;    /* rows, backend, ...; no_repack and outputs are set here */
    bench_linear linear;
    bool copy;
    int32_t warmup, iterations, repetitions; /* of products; iterations a multiple of the span */
    bool (*progress)(void *user, const char *arm, int round, uint64_t ns);
    void *progress_user;
} bench_linear_options;

/* The record, gem-kernel-bench/1; *same is false when two runs gave other bits. */
gem_status bench_linear_measure(const bench_linear_options *opt, json_t **out, bool *same,
                                gem_error *err);

#endif
