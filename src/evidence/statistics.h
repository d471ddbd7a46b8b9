/* statistics.h - what is computed from samples, as plain functions of arrays. Spread is the sample
 * deviation (n - 1) by two passes; quantiles of Student's t come from the incomplete beta function.
 * Nothing here decides anything. */
#ifndef GEM_EVIDENCE_STATISTICS_H
#define GEM_EVIDENCE_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ev_figures {
    double mean, min, max;
    double sd, cv;         /* NAN for one value; cv = sd / |mean| */
    double half_run_drift; /* mean of the last half over mean of the first, less 1; the middle value
                              of an odd number belongs to neither; NAN for one value */
} ev_figures;
/* x[n], n >= 1, in order of time. */
void ev_figures_of(ev_figures *f, const double *x, size_t n);

/* A change of less than this share of the mean is no shape, whatever its form. */
#define EV_SHAPE_FLOOR 0.01
/* A ramp: the samples move one way and by more than `floor` of their mean. One way: every step has
 * the same sign (from 3 samples on), or, from 6 on, Mann-Kendall's test rejects "no trend" at 1 %
 * and the Theil-Sen slope carries the change. */
bool ev_is_ramp(const double *x, size_t n, double floor);
/* A step: from 6 samples on, some cut leaves two runs of at least 2 whose means differ by more than
 * `floor` of the mean and by more than 6 standard errors of what is left inside the runs. *cut gets
 * the first index behind it; NULL allowed. */
bool ev_is_discontinuous(const double *x, size_t n, double floor, size_t *cut);
/* Mann and Kendall's S: pairs that rise less pairs that fall; and the two-sided p of its normal
 * approximation with continuity correction (no ties assumed). n >= 2. */
double ev_mann_kendall(const double *x, size_t n, double *p);
/* Median of the slopes of all pairs, per step. n >= 2; NAN when out of memory. */
double ev_theil_sen(const double *x, size_t n);

/* Student's t. df > 0. */
double ev_t_cdf(double t, double df);
double ev_t_quantile(double p, double df); /* 0 < p < 1 */
/* Regularised incomplete beta function I_x(a, b). */
double ev_beta_inc(double a, double b, double x);

/* A difference of two means with its interval; `lower` and `upper` at two-sided `level`. */
typedef struct ev_interval {
    size_t n;
    double mean, sd, se, df, t, lower, upper;
} ev_interval;
/* Differences a[i] - b[i]; df = n - 1. n >= 2. */
void ev_paired(ev_interval *out, const double *a, const double *b, size_t n, double level);
/* Mean of a less mean of b, one variance for both; df = na + nb - 2. na, nb >= 2. */
void ev_pooled(ev_interval *out, const double *a, size_t na, const double *b, size_t nb,
               double level);
/* The same with two variances (Welch), df by Satterthwaite. */
void ev_welch(ev_interval *out, const double *a, size_t na, const double *b, size_t nb,
              double level);

/* Every value of `candidate` better than every one of `baseline`. */
bool ev_dominates(const double *candidate, size_t nc, const double *baseline, size_t nb,
                  bool higher_is_better);
/* What the arms' own trends explain: the slope (least squares, per sample) of both arms together,
 * times the distance between their centres when the candidate follows the baseline at once. In the
 * unit of the samples; positive when drift alone would raise the candidate. */
double ev_drift_explains(const double *baseline, size_t nb, const double *candidate, size_t nc);

/* Four arms in the order A1 B1 B2 A2. */
typedef struct ev_abba {
    ev_figures a, b;         /* pooled */
    double opening, closing; /* improvement of B1 over A1 and of B2 over A2, as shares */
    double improvement;      /* pooled B over pooled A */
    double drift_a, drift_b; /* last arm over first, less 1 */
    bool dominance;          /* every B better than every A */
    ev_interval difference;  /* better is positive, as a share of the baseline's mean; pooled
                                variance, 95 % */
} ev_abba;
/* Lower is better (times). arm[4], n[4]: each n >= 2. False when out of memory. */
bool ev_abba_of(ev_abba *out, const double *const arm[4], const size_t n[4]);

/* 1 - candidate/baseline for times (lower is better), candidate/baseline - 1 for rates. */
double ev_improvement(double baseline, double candidate, bool higher_is_better);

#endif
