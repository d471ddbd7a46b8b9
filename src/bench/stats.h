/* stats.h - figures of a list of samples. Spread is computed in two passes; one value has none. */
#ifndef GEM_BENCH_STATS_H
#define GEM_BENCH_STATS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct bench_stats {
    size_t n;
    double mean, median, min, max;
    bool has_spread;
    double sd, cv; /* sample standard deviation (n - 1); sd / mean; valid when has_spread */
} bench_stats;

/* n >= 1. Returns false when out of memory (the median needs a sorted copy). */
bool bench_stats_of(bench_stats *out, const double *x, size_t n);
/* {"n", "mean", "median", "min", "max"} and, from two values on, {"sd", "cv"}. */
json_t *bench_stats_json(const bench_stats *s);

#endif
