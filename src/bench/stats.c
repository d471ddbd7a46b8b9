/* stats.c - mean, median, extremes, sample standard deviation by two passes. */
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool bench_stats_of(bench_stats *out, const double *x, size_t n)
{
    double sum = 0, squares = 0, rest = 0;
    double *sorted = malloc(n * sizeof(*sorted));
    memset(out, 0, sizeof(*out));
    if (!sorted) return false;
    memcpy(sorted, x, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_value);
    out->n = n;
    out->min = sorted[0];
    out->max = sorted[n - 1];
    out->median =
        n % 2 ? sorted[n / 2] : sorted[n / 2 - 1] + (sorted[n / 2] - sorted[n / 2 - 1]) / 2;
    free(sorted);

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    out->mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = x[i] - out->mean;
        squares += d * d;
        rest += d; /* what rounding left in the mean; Chan, Golub, LeVeque 1983, eq. 1.7 */
    }
    if (n < 2) return true;
    out->has_spread = true;
    double variance = (squares - rest * rest / (double)n) / (double)(n - 1);
    out->sd = variance > 0 ? sqrt(variance) : 0;
    out->cv = out->mean != 0 ? out->sd / fabs(out->mean) : 0;
    return true;
}

json_t *bench_stats_json(const bench_stats *s)
{
    json_t *j = json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)s->n, "mean", s->mean,
                          "median", s->median, "min", s->min, "max", s->max);
    if (j && s->has_spread) {
        json_object_set_new(j, "sd", json_real(s->sd));
        json_object_set_new(j, "cv", json_real(s->cv));
    }
    return j;
}
