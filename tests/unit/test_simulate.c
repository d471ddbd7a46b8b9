/* test_simulate.c - the promotion gate on noise: 10,000 pairs without a difference promote fewer
 * than 10 of them, whatever the noise; a true gain is seen. The whole table: gem-analyze simulate.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "evidence/simulate.h"

static void test_noise_is_not_promoted(void **state)
{
    static const double cvs[] = {0.005, 0.02, 0.05};
    (void)state;
    for (int k = 0; k < EV_NOISE_KINDS; k++)
        for (size_t c = 0; c < 3; c++) {
            ev_simulation s = {.noise = (ev_noise)k,
                               .cv = cvs[c],
                               .repetitions = c == 1 ? 5 : 3,
                               .pairs = 10000,
                               .seed = 7};
            size_t n = ev_simulate(&s);
            if (n >= 10) print_error("%s, cv %g: %zu promoted\n", ev_noise_names[k], cvs[c], n);
            assert_true(n < 10);
        }
}

static void test_a_gain_is_seen(void **state)
{
    ev_simulation s = {.cv = 0.0025, .repetitions = 3, .pairs = 500, .seed = 3};
    (void)state;
    for (int k = 0; k < EV_NOISE_KINDS; k++) {
        s.noise = (ev_noise)k;
        s.gain = 0.06;
        assert_true(ev_simulate(&s) > 450);
        s.gain = 0.02; /* below the floor of 3 % */
        assert_true(ev_simulate(&s) < 5);
        s.gain = -0.06;
        assert_true(ev_simulate(&s) == 0);
    }
}

static void test_more_repetitions_see_more(void **state)
{
    ev_simulation s = {.cv = 0.01, .gain = 0.05, .pairs = 500, .seed = 5};
    (void)state;
    s.repetitions = 3;
    size_t few = ev_simulate(&s);
    s.repetitions = 10;
    assert_true(ev_simulate(&s) > few + 100);
    size_t again = ev_simulate(&s);
    assert_true(ev_simulate(&s) == again); /* a seed is a seed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_is_not_promoted),
        cmocka_unit_test(test_a_gain_is_seen),
        cmocka_unit_test(test_more_repetitions_see_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
