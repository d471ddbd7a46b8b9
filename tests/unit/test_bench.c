/* test_bench.c - statistics against known values; an order in which drift cancels; samples are
 * kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "bench/stats.h"

#include <math.h>

static void test_spread_is_two_pass(void **state)
{
    const double seconds[] = {12140144300, 12308847400, 12225136900, 12154929400, 11909783400};
    const double close[] = {1000000004, 1000000007, 1000000013, 1000000016};
    const double equal[] = {7.1, 7.1, 7.1};
    bench_stats s;
    (void)state;
    assert_true(bench_stats_of(&s, seconds, 5));
    assert_true(s.mean == 12147768280.0);
    assert_true(fabs(s.sd - 148894758.2) < 0.05);
    assert_true(s.median == 12154929400.0 && s.min == 11909783400.0 && s.max == 12308847400.0);
    assert_true(bench_stats_of(&s, close, 4));
    assert_true(fabs(s.sd - 5.4772256) < 1e-7);
    assert_true(s.median == 1000000010.0);
    assert_true(bench_stats_of(&s, equal, 3));
    assert_true(s.has_spread && s.sd == 0);
}

static void test_one_value_has_no_spread(void **state)
{
    const double x = 3;
    bench_stats s;
    (void)state;
    assert_true(bench_stats_of(&s, &x, 1));
    assert_false(s.has_spread);
    json_t *j = bench_stats_json(&s);
    assert_null(json_object_get(j, "sd"));
    assert_null(json_object_get(j, "cv"));
    assert_true(json_number_value(json_object_get(j, "mean")) == 3);
    json_decref(j);
}

/* Both arms take 100 plus a drift of the run's number i; the difference of their means is the bias.
 */
static double bias(int rounds, double linear, double quadratic)
{
    double sum[2] = {0, 0};
    int i = 0;
    for (int r = 0; r < rounds; r++)
        for (size_t slot = 0; slot < 2; slot++, i++)
            sum[bench_arm_at(2, r, slot)] += 100 + linear * i + quadratic * i * i;
    return sum[1] / rounds - sum[0] / rounds;
}

static void test_order_cancels_drift(void **state)
{
    (void)state;
    assert_true(bias(1, 1, 0) == 1);  /* AB */
    assert_true(bias(2, 1, 0) == 0);  /* ABBA */
    assert_true(bias(2, 0, 1) == -2); /* ABBA does not cancel a quadratic drift */
    assert_true(bias(4, 1, 1) == 0);  /* ABBABAAB does */
    size_t seen = 0;
    for (size_t slot = 0; slot < 5; slot++)
        seen |= (size_t)1 << bench_arm_at(5, 1, slot);
    assert_int_equal(seen, 31);
}

static int calls[3]; /* prepare, run, finish */

static gem_status count_prepare(void *user, gem_error *err)
{
    (void)user, (void)err;
    calls[0]++;
    return GEM_OK;
}
static gem_status count_run(void *user, gem_error *err)
{
    (void)user;
    return ++calls[1] == 100 ? gem_fail(err, GEM_E_DEVICE, "the hundredth run fails") : GEM_OK;
}
static gem_status count_finish(void *user, int round, gem_error *err)
{
    (void)user, (void)err;
    if (round >= 0) calls[2]++;
    return GEM_OK;
}

static void test_every_sample_is_kept(void **state)
{
    gem_error err;
    bench_arm arm[2] = {{.name = "a",
                         .prepare = count_prepare,
                         .run = count_run,
                         .finish = count_finish,
                         .work = 10},
                        {.name = "b", .run = count_run, .work = 1}};
    bench_plan p = {.arm = arm, .n_arms = 2, .repetitions = 4, .warmups = 2};
    (void)state;
    memset(calls, 0, sizeof(calls));
    assert_int_equal(bench_run(&p, &err), GEM_OK);
    assert_int_equal(calls[0], 6);
    assert_int_equal(calls[1], 12);
    assert_int_equal(calls[2], 4);
    assert_int_equal(arm[0].n, 4);
    assert_int_equal(arm[1].n_warm, 2);
    assert_int_equal(p.n_order, 8);
    assert_string_equal(p.order[2], "b");
    json_t *j = bench_arm_json(&arm[0]);
    assert_int_equal(json_array_size(json_object_get(j, "samples_ns")), 4);
    assert_int_equal(json_array_size(json_object_get(j, "warmup_ns")), 2);
    json_decref(j);
    bench_plan_deinit(&p);

    p.repetitions = 200;
    assert_int_equal(bench_run(&p, &err), GEM_E_DEVICE);
    assert_string_equal(err.text, "the hundredth run fails");
    bench_plan_deinit(&p);
}

static void test_rate_is_total_work_over_total_time(void **state)
{
    uint64_t ns[] = {1000000000, 3000000000};
    bench_arm a = {.name = "pp", .work = 100, .ns = ns, .n = 2};
    (void)state;
    json_t *j = bench_arm_json(&a);
    json_t *rate = json_object_get(j, "rate_per_s");
    assert_true(json_number_value(json_object_get(rate, "overall")) ==
                50); /* not the mean of 100 and 33.3 */
    assert_true(json_number_value(json_object_get(rate, "max")) == 100);
    json_decref(j);
}

static void test_roof_reads_everything(void **state)
{
    bench_roof *r;
    gem_error err;
    (void)state;
    assert_int_equal(bench_roof_open(&r, 2, 16 << 20, &err), GEM_OK);
    assert_true(bench_roof_bytes(r) >= 16 << 20);
    for (int i = 0; i < 3; i++) {
        uint64_t ns = bench_roof_pass(r);
        double gb_s = (double)bench_roof_bytes(r) / (double)ns;
        assert_true(gb_s > 0.05 && gb_s < 5000);
    }
    bench_roof_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread_is_two_pass),
        cmocka_unit_test(test_one_value_has_no_spread),
        cmocka_unit_test(test_order_cancels_drift),
        cmocka_unit_test(test_every_sample_is_kept),
        cmocka_unit_test(test_rate_is_total_work_over_total_time),
        cmocka_unit_test(test_roof_reads_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
