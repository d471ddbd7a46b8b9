/* statistics.c - moments, shapes in time, comparisons of arms. */
#include "evidence/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double mean_of(const double *x, size_t n)
{
    double sum = 0, rest = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    double m = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        rest += x[i] - m;
    return m + rest / (double)n; /* what rounding left behind */
}

/* Sum of squared deviations, with the correction of Chan, Golub and LeVeque 1983, eq. 1.7. */
static double squares_of(const double *x, size_t n, double mean)
{
    double squares = 0, rest = 0;
    for (size_t i = 0; i < n; i++) {
        double d = x[i] - mean;
        squares += d * d;
        rest += d;
    }
    squares -= rest * rest / (double)n;
    return squares > 0 ? squares : 0;
}

void ev_figures_of(ev_figures *f, const double *x, size_t n)
{
    f->mean = mean_of(x, n);
    f->min = f->max = x[0];
    for (size_t i = 1; i < n; i++) {
        f->min = x[i] < f->min ? x[i] : f->min;
        f->max = x[i] > f->max ? x[i] : f->max;
    }
    f->sd = f->cv = f->half_run_drift = NAN;
    if (n < 2) return;
    f->sd = sqrt(squares_of(x, n, f->mean) / (double)(n - 1));
    f->cv = f->mean != 0 ? f->sd / fabs(f->mean) : NAN;
    double first = mean_of(x, n / 2), last = mean_of(x + n - n / 2, n / 2);
    f->half_run_drift = last / first - 1;
}

/* ---- shapes in time ---- */
double ev_mann_kendall(const double *x, size_t n, double *p)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            s += (x[k] > x[i]) - (x[k] < x[i]);
    double variance = (double)n * (double)(n - 1) * (2.0 * (double)n + 5) / 18;
    double z = s == 0 ? 0 : (fabs(s) - 1) / sqrt(variance);
    *p = erfc(z / sqrt(2.0));
    return s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ev_theil_sen(const double *x, size_t n)
{
    size_t m = 0, all = n * (n - 1) / 2;
    double *slope = malloc(all * sizeof(*slope));
    if (!slope) return NAN;
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            slope[m++] = (x[k] - x[i]) / (double)(k - i);
    qsort(slope, m, sizeof(*slope), by_value);
    double median = m % 2 ? slope[m / 2] : (slope[m / 2 - 1] + slope[m / 2]) / 2;
    free(slope);
    return median;
}

bool ev_is_ramp(const double *x, size_t n, double floor)
{
    size_t up = 0, down = 0;
    if (n < 3) return false;
    double mean = mean_of(x, n);
    for (size_t i = 1; i < n; i++) {
        up += x[i] > x[i - 1];
        down += x[i] < x[i - 1];
    }
    if ((up == n - 1 || down == n - 1) && fabs(x[n - 1] - x[0]) > floor * fabs(mean)) return true;
    if (n < 6) return false;
    double p, change;
    ev_mann_kendall(x, n, &p);
    change = ev_theil_sen(x, n) * (double)(n - 1);
    return p < 0.01 && !(fabs(change) <= floor * fabs(mean)); /* out of memory: a ramp */
}

bool ev_is_discontinuous(const double *x, size_t n, double floor, size_t *cut)
{
    double best = 0, mean = n ? mean_of(x, n) : 0;
    bool found = false;
    if (n < 6) return false;
    for (size_t k = 2; k + 2 <= n; k++) {
        double a = mean_of(x, k), b = mean_of(x + k, n - k), step = fabs(b - a);
        double inside = squares_of(x, k, a) + squares_of(x + k, n - k, b);
        double se = sqrt(inside / (double)(n - 2) * (1.0 / (double)k + 1.0 / (double)(n - k)));
        if (!(step > floor * fabs(mean)) || !(step > 6 * se)) continue;
        if (found && step <= best) continue;
        found = true;
        best = step;
        if (cut) *cut = k;
    }
    return found;
}

/* ---- two means ---- */
static void interval(ev_interval *out, size_t n, double mean, double se, double df, double level)
{
    out->n = n;
    out->mean = mean;
    out->se = se;
    out->df = df;
    out->t = ev_t_quantile(0.5 + level / 2, df);
    out->lower = mean - out->t * se;
    out->upper = mean + out->t * se;
}

void ev_paired(ev_interval *out, const double *a, const double *b, size_t n, double level)
{
    double sum = 0, squares = 0, rest = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] - b[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        double d = a[i] - b[i] - mean;
        squares += d * d;
        rest += d;
    }
    squares -= rest * rest / (double)n;
    out->sd = sqrt((squares > 0 ? squares : 0) / (double)(n - 1));
    interval(out, n, mean, out->sd / sqrt((double)n), (double)(n - 1), level);
}

void ev_pooled(ev_interval *out, const double *a, size_t na, const double *b, size_t nb,
               double level)
{
    double ma = mean_of(a, na), mb = mean_of(b, nb), df = (double)(na + nb - 2);
    out->sd = sqrt((squares_of(a, na, ma) + squares_of(b, nb, mb)) / df);
    interval(out, na + nb, ma - mb, out->sd * sqrt(1.0 / (double)na + 1.0 / (double)nb), df, level);
}

void ev_welch(ev_interval *out, const double *a, size_t na, const double *b, size_t nb,
              double level)
{
    double ma = mean_of(a, na), mb = mean_of(b, nb);
    double va = squares_of(a, na, ma) / (double)(na - 1) / (double)na,
           vb = squares_of(b, nb, mb) / (double)(nb - 1) / (double)nb;
    double v = va + vb;
    /* both without spread: any df gives the same, a point */
    double df = v > 0 ? v * v / (va * va / (double)(na - 1) + vb * vb / (double)(nb - 1))
                      : (double)(na + nb - 2);
    out->sd = sqrt(v);
    interval(out, na + nb, ma - mb, sqrt(v), df, level);
}

bool ev_dominates(const double *candidate, size_t nc, const double *baseline, size_t nb,
                  bool higher_is_better)
{
    for (size_t i = 0; i < nc; i++)
        for (size_t k = 0; k < nb; k++)
            if (higher_is_better ? !(candidate[i] > baseline[k]) : !(candidate[i] < baseline[k]))
                return false;
    return nc > 0 && nb > 0;
}

double ev_drift_explains(const double *baseline, size_t nb, const double *candidate, size_t nc)
{
    double above = 0, below = 0;
    for (int arm = 0; arm < 2; arm++) {
        const double *x = arm ? candidate : baseline;
        size_t n = arm ? nc : nb;
        double centre = ((double)n - 1) / 2, mean = mean_of(x, n);
        for (size_t i = 0; i < n; i++) {
            above += ((double)i - centre) * (x[i] - mean);
            below += ((double)i - centre) * ((double)i - centre);
        }
    }
    return below > 0 ? above / below * (double)(nb + nc) / 2 : 0;
}

double ev_improvement(double baseline, double candidate, bool higher_is_better)
{
    return higher_is_better ? candidate / baseline - 1 : 1 - candidate / baseline;
}

/* ---- ABBA ---- */
bool ev_abba_of(ev_abba *out, const double *const arm[4], const size_t n[4])
{
    size_t na = n[0] + n[3], nb = n[1] + n[2];
    double mean[4], *a = malloc(na * sizeof(*a)), *b = malloc(nb * sizeof(*b));
    bool ok = a && b;
    memset(out, 0, sizeof(*out));
    if (ok) {
        memcpy(a, arm[0], n[0] * sizeof(*a));
        memcpy(a + n[0], arm[3], n[3] * sizeof(*a));
        memcpy(b, arm[1], n[1] * sizeof(*b));
        memcpy(b + n[1], arm[2], n[2] * sizeof(*b));
        for (int i = 0; i < 4; i++)
            mean[i] = mean_of(arm[i], n[i]);
        ev_figures_of(&out->a, a, na);
        ev_figures_of(&out->b, b, nb);
        out->opening = ev_improvement(mean[0], mean[1], false);
        out->closing = ev_improvement(mean[3], mean[2], false);
        out->improvement = ev_improvement(out->a.mean, out->b.mean, false);
        out->drift_a = mean[3] / mean[0] - 1;
        out->drift_b = mean[2] / mean[1] - 1;
        out->dominance = ev_dominates(b, nb, a, na, false);
        ev_pooled(&out->difference, a, na, b, nb, 0.95);
        double *scaled[] = {&out->difference.mean, &out->difference.sd, &out->difference.se,
                            &out->difference.lower, &out->difference.upper};
        for (size_t i = 0; i < sizeof(scaled) / sizeof(*scaled); i++)
            *scaled[i] /= out->a.mean;
    }
    free(a);
    free(b);
    return ok;
}
