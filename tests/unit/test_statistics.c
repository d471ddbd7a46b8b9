/* test_statistics.c - statistics of samples against published data (NIST StRD, univariate: NumAcc1
 * to NumAcc4, certified values) and against values computed once with SciPy 1.17.1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "evidence/statistics.h"

#include <math.h>

#define NEAR(a, b, rel) assert_true(fabs((a) - (b)) <= (rel)*fabs(b))

/* NumAcc2, 3, 4: base + 0.2, then base + 0.1 and base + 0.3 in turn, 1001 values. */
static void num_acc(double *x, double base)
{
    x[0] = base + 0.2;
    for (int i = 1; i < 1001; i++)
        x[i] = base + (i % 2 ? 0.1 : 0.3);
}

static void test_nist_strd(void **state)
{
    static double x[1001];
    const double acc1[] = {10000001, 10000003, 10000002};
    const struct {
        double base, mean, rel_sd;
    } sets[] = {{1, 1.2, 1e-14}, {1000000, 1000000.2, 1e-9}, {10000000, 10000000.2, 1e-8}};
    ev_figures f;
    (void)state;
    ev_figures_of(&f, acc1, 3);
    assert_true(f.mean == 10000002 && f.sd == 1 && f.min == 10000001 && f.max == 10000003);
    for (size_t i = 0; i < 3; i++) {
        num_acc(x, sets[i].base);
        ev_figures_of(&f, x, 1001);
        NEAR(f.mean, sets[i].mean, 1e-15);
        NEAR(f.sd, 0.1, sets[i].rel_sd); /* what the decimal values lose as doubles, no more */
        NEAR(f.cv, 0.1 / sets[i].mean, sets[i].rel_sd);
    }
}

static void test_spread_of_few(void **state)
{
    const double seconds[] = {12140144300, 12308847400, 12225136900, 12154929400, 11909783400};
    const double one = 7, equal[] = {7.1, 7.1, 7.1};
    ev_figures f;
    (void)state;
    ev_figures_of(&f, seconds, 5);
    assert_true(f.mean == 12147768280.0);
    assert_true(fabs(f.sd - 148894758.2) < 0.05);
    /* halves without the middle: (12308847400+12140144300)/2 and (12154929400+11909783400)/2 */
    NEAR(f.half_run_drift, 12032356400.0 / 12224495850.0 - 1, 1e-12);
    ev_figures_of(&f, equal, 3);
    assert_true(f.sd == 0 && f.cv == 0 && f.half_run_drift == 0);
    ev_figures_of(&f, &one, 1);
    assert_true(f.mean == 7 && isnan(f.sd) && isnan(f.cv) && isnan(f.half_run_drift));
}

static void test_student(void **state)
{
    static const double q[][3] = {
        {0.975, 1, 12.706204736174694},  {0.975, 2, 4.302652729749462},
        {0.975, 4, 2.7764451051977934},  {0.999, 4, 7.173182219782307},
        {0.995, 9, 3.249835541592126},   {0.95, 29.5, 1.6981776388380057},
        {0.999, 8, 4.5007909337237235},  {0.9999, 2, 70.70007107496818},
        {0.975, 1e6, 1.959966356814107},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(q) / sizeof(*q); i++) {
        NEAR(ev_t_quantile(q[i][0], q[i][1]), q[i][2], 1e-9);
        NEAR(ev_t_quantile(1 - q[i][0], q[i][1]), -q[i][2], 1e-9);
        NEAR(ev_t_cdf(q[i][2], q[i][1]), q[i][0], 1e-9);
    }
    NEAR(ev_t_cdf(2.5, 3), 0.9561466764959672, 1e-12);
    NEAR(ev_t_cdf(-1.2, 7.5), 0.13333446139661093, 1e-12);
    NEAR(ev_t_cdf(0.1, 30), 0.5394951941048645, 1e-12);
    NEAR(ev_beta_inc(0.5, 0.5, 0.3), 0.36901011956554536, 1e-12);
    NEAR(ev_beta_inc(2, 3, 0.4), 0.5248, 1e-12);
    NEAR(ev_beta_inc(50, 0.5, 0.99), 0.3173043978741973, 1e-11);
    NEAR(ev_beta_inc(10, 20, 0.2), 0.049263517304212585, 1e-11);
    assert_true(ev_t_quantile(0.5, 3) == 0);
    assert_true(isnan(ev_t_quantile(1, 3)) && isnan(ev_t_quantile(0.9, 0)) &&
                isnan(ev_t_quantile(NAN, 2)));
}

static const double arm_a[] = {12.1, 11.8, 12.4, 12.0, 11.9},
                    arm_b[] = {12.9, 12.7, 13.1, 12.6, 13.3};

static void test_intervals(void **state)
{
    ev_interval i;
    (void)state;
    ev_paired(&i, arm_b, arm_a, 5, 0.95);
    assert_true(i.df == 4);
    NEAR(i.mean, 0.88, 1e-12);
    NEAR(i.sd, 0.31144823004794897, 1e-12);
    NEAR(i.lower, 0.4932859454451776, 1e-9);
    NEAR(i.upper, 1.2667140545548217, 1e-9);
    ev_pooled(&i, arm_b, 5, arm_a, 4, 0.95);
    assert_true(i.df == 7);
    NEAR(i.lower, 0.41453909829331653, 1e-9);
    NEAR(i.upper, 1.2754609017066882, 1e-9);
    ev_welch(&i, arm_b, 5, arm_a, 4, 0.95);
    NEAR(i.df, 6.900815417373986, 1e-9);
    NEAR(i.lower, 0.4206018840088196, 1e-9);
    NEAR(i.upper, 1.2693981159911853, 1e-9);
    ev_paired(&i, arm_a, arm_b, 3, 0.95); /* three pairs: df 2, the t of the protocol */
    assert_true(i.df == 2);
    NEAR(i.t, 4.302652729749462, 1e-9);
}

static void test_trend(void **state)
{
    const double x[] = {5.1, 5.0, 5.3, 5.2, 5.6, 5.5, 5.9, 5.8};
    double p;
    (void)state;
    assert_true(ev_mann_kendall(x, 8, &p) == 20);
    NEAR(p, 0.018741136789596692, 1e-12);
    NEAR(ev_theil_sen(x, 8), 0.12916666666666665, 1e-12);
    NEAR(ev_drift_explains(x, 8, x, 8), 0.12380952380952363 * 8, 1e-9);
}

static void test_ramps(void **state)
{
    const double up[] = {100, 101, 102.5}, little[] = {100, 100.2, 100.9}, back[] = {100, 103, 101};
    const double slow[] = {100, 101, 100.8, 102, 101.9, 103, 102.7, 104, 103.8, 105};
    const double noise[] = {100, 103, 99, 102, 98, 101, 99.5, 102.5, 100.2, 99.7};
    (void)state;
    assert_true(ev_is_ramp(up, 3, 0.02));
    assert_false(ev_is_ramp(up, 3, 0.03)); /* 2.5 % is below a floor of 3 % */
    assert_false(ev_is_ramp(little, 3, 0.01));
    assert_false(ev_is_ramp(back, 3, 0.01));
    assert_true(ev_is_ramp(slow, 10, 0.02)); /* not one-way, yet a trend */
    assert_false(ev_is_ramp(noise, 10, 0.01));
    assert_false(ev_is_ramp(up, 2, 0.001)); /* two points have no shape */
}

static void test_steps(void **state)
{
    const double step[] = {100, 100.2, 99.9, 100.1, 104, 104.1, 103.9, 104.2};
    const double small[] = {100, 100.01, 99.99, 100.5, 100.51, 100.49};
    const double noise[] = {100, 103, 99, 102, 98, 101, 99.5, 102.5};
    size_t cut = 0;
    (void)state;
    assert_true(ev_is_discontinuous(step, 8, 0.01, &cut));
    assert_int_equal(cut, 4);
    assert_false(ev_is_discontinuous(small, 6, 0.01, NULL)); /* clear, but half a percent */
    assert_false(ev_is_discontinuous(noise, 8, 0.01, NULL));
    assert_false(ev_is_discontinuous(step, 5, 0.01, NULL));
}

/* Times of 100 in both arms and a linear drift of 1 a run: ABBA cancels it. */
static void test_abba(void **state)
{
    const double a1[] = {100, 101}, b1[] = {92, 93}, b2[] = {94, 95}, a2[] = {106, 107};
    const double *const arm[] = {a1, b1, b2, a2};
    const size_t n[] = {2, 2, 2, 2};
    const double d0[] = {100, 101}, d1[] = {102, 103}, d2[] = {104, 105}, d3[] = {106, 107};
    const double *const drift[] = {d0, d1, d2, d3};
    ev_abba r;
    (void)state;
    assert_true(ev_abba_of(&r, arm, n));
    NEAR(r.a.mean, 103.5, 1e-12);
    NEAR(r.b.mean, 93.5, 1e-12);
    NEAR(r.opening, 1 - 92.5 / 100.5, 1e-12);
    NEAR(r.closing, 1 - 94.5 / 106.5, 1e-12);
    NEAR(r.improvement, 1 - 93.5 / 103.5, 1e-12);
    NEAR(r.drift_a, 106.5 / 100.5 - 1, 1e-12);
    NEAR(r.drift_b, 94.5 / 92.5 - 1, 1e-12);
    assert_true(r.dominance && r.difference.lower > 0 && r.difference.df == 6);
    assert_true(ev_abba_of(&r, drift, n));
    assert_true(fabs(r.improvement) < 1e-12);
    assert_true(r.opening < 0 && r.closing > 0 && !r.dominance);
}

static void test_dominance(void **state)
{
    const double a[] = {3, 4, 5}, b[] = {6, 7}, tie[] = {5, 6};
    (void)state;
    assert_true(ev_dominates(b, 2, a, 3, true));
    assert_false(ev_dominates(b, 2, a, 3, false));
    assert_true(ev_dominates(a, 3, b, 2, false));
    assert_false(ev_dominates(tie, 2, a, 3, true)); /* equal is not better */
    assert_false(ev_dominates(b, 0, a, 3, true));
    NEAR(ev_improvement(100, 104, true), 0.04, 1e-12);
    NEAR(ev_improvement(100, 96, false), 0.04, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nist_strd), cmocka_unit_test(test_spread_of_few),
        cmocka_unit_test(test_student),   cmocka_unit_test(test_intervals),
        cmocka_unit_test(test_trend),     cmocka_unit_test(test_ramps),
        cmocka_unit_test(test_steps),     cmocka_unit_test(test_abba),
        cmocka_unit_test(test_dominance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
