/* student.c - Student's t: distribution by the incomplete beta function, quantiles by bisection.
 * Source: Abramowitz and Stegun 26.7.1 (t by beta), 26.5.8 (the continued fraction), evaluated by
 * the method of Lentz with Thompson and Barnett's change for zero denominators. */
#include "evidence/statistics.h"

#include <float.h>
#include <math.h>

/* The continued fraction of 26.5.8; converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = DBL_MIN / DBL_EPSILON;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double f = d;
    for (int m = 1; m < 10000; m++) {
        double k = m, even = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k)),
               odd = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        f *= c * d;
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        f *= c * d;
        if (fabs(c * d - 1) < 4 * DBL_EPSILON) break;
    }
    return f;
}

double ev_beta_inc(double a, double b, double x)
{
    if (!(x > 0)) return x <= 0 ? 0 : NAN;
    if (x >= 1) return 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double ev_t_cdf(double t, double df)
{
    double tail = ev_beta_inc(df / 2, 0.5, df / (df + t * t)) / 2;
    return t > 0 ? 1 - tail : tail;
}

double ev_t_quantile(double p, double df)
{
    if (!(p > 0 && p < 1 && df > 0)) return NAN;
    if (p <= 0.5) return p == 0.5 ? 0 : -ev_t_quantile(1 - p, df);
    double low = 0, high = 1;
    while (ev_beta_inc(df / 2, 0.5, df / (df + high * high)) / 2 > 1 - p && high < 1e150)
        high *= 2;
    for (int i = 0; i < 200 && high - low > DBL_EPSILON * high; i++) {
        double mid = low + (high - low) / 2;
        if (ev_beta_inc(df / 2, 0.5, df / (df + mid * mid)) / 2 > 1 - p)
            low = mid;
        else
            high = mid;
    }
    return low + (high - low) / 2;
}
