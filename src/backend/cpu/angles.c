/* angles.c - rotary angles: cos and sin of pos * theta^(-2i/n), in double with our own polynomials
 * so that no C library decides a bit. Argument reduction is exact enough for any position below
 * 2^22. */
#include "backend/cpu/angles.h"

#include <math.h>

/* Taylor series on |r| <= pi/4: the first omitted terms are below 2^-56. */
static double sin_poly(double r)
{
    double z = r * r;
    double p = -1.0 / 1307674368000.0;
    p = p * z + 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    return r + r * z * p;
}

static double cos_poly(double r)
{
    double z = r * r;
    double p = 1.0 / 20922789888000.0;
    p = p * z - 1.0 / 87178291200.0;
    p = p * z + 1.0 / 479001600.0;
    p = p * z - 1.0 / 3628800.0;
    p = p * z + 1.0 / 40320.0;
    p = p * z - 1.0 / 720.0;
    p = p * z + 1.0 / 24.0;
    p = p * z - 0.5;
    return 1.0 + z * p;
}

void gem_sincos(double angle, float *sn, float *cs)
{
    /* pi/2 in three parts of 32 significant bits: n * part is exact for n < 2^21 */
    static const double p1 = 0x1.921fb544p+0, p2 = 0x1.0b4611a6p-34, p3 = 0x1.3198a2ep-69;
    double n = nearbyint(angle * 0x1.45f306dc9c883p-1);
    double r = ((angle - n * p1) - n * p2) - n * p3;
    double s = sin_poly(r), c = cos_poly(r);
    switch ((int64_t)n & 3) {
    case 0:
        *sn = (float)s, *cs = (float)c;
        break;
    case 1:
        *sn = (float)c, *cs = (float)-s;
        break;
    case 2:
        *sn = (float)-s, *cs = (float)-c;
        break;
    default:
        *sn = (float)-c, *cs = (float)s;
        break;
    }
}

static double ln(double x)
{
    int e;
    double m = frexp(x, &e); /* [0.5, 1) */
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), z = s * s, p = 0; /* |s| <= 0.172 */
    for (int k = 25; k >= 3; k -= 2)
        p = (p + 1.0 / k) * z;
    return 2 * s * (1 + p) + e * 0x1.62e42fefa39efp-1;
}

static double exp_small(double x)
{
    double n = nearbyint(x * 0x1.71547652b82fep+0), p = 1;
    double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    for (int k = 14; k >= 1; k--)
        p = 1 + p * r / k;
    return ldexp(p, (int)n);
}

void gem_rope_frequencies(const gem_rope *r, double *freq)
{
    double step = -2.0 * ln((double)r->theta) / r->n_dims;
    for (int i = 0; i < r->n_dims / 2; i++) {
        freq[i] = exp_small(step * i) * (double)r->scale;
        if (r->freq_factors) freq[i] /= (double)r->freq_factors[i];
        /* files stop a pair by a factor of 1e30: the angle stays 0 at any position */
        if ((r->freq_factors && r->freq_factors[i] >= 1e29f) || (r->n_pairs && i >= r->n_pairs))
            freq[i] = 0.0;
    }
}
