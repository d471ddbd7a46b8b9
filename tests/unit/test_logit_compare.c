/* test_logit_compare.c - whole vectors beside each other; figures from NumPy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "evidence/logit_compare.h"

#include <math.h>

static void test_figures(void **state)
{
    float a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
          b[] = {1, 2, 3, 4.5, 5, 6, 7, 8, 9, 10, 10.75, 12};
    ev_logit_difference d;
    (void)state;
    ev_logits_compare(&d, a, b, 12);
    assert_true(d.finite && d.same_argmax && d.same_top_set && d.same_top_order);
    assert_true(fabs(d.correlation - 0.9990329765288343) < 1e-12);
    assert_true(fabs(d.nmse - 0.0004816491667469415) < 1e-15);
    assert_true(d.largest == 0.5 && d.largest_at == 3);
    assert_int_equal(d.n_top, 10);
    assert_int_equal(d.top_ours[0], 11);
    assert_int_equal(d.top_ours[9], 2);
}

static void test_top_sets(void **state)
{
    float a[20], b[20];
    ev_logit_difference d;
    (void)state;
    for (int i = 0; i < 20; i++)
        a[i] = b[i] = (float)i;
    b[12] = 13.5f; /* swaps places 7 and 8: the same set in another order */
    ev_logits_compare(&d, a, b, 20);
    assert_true(d.same_argmax && d.same_top_set && !d.same_top_order);
    b[12] = 12;
    b[9] = 10.5f; /* id 9 takes the place of id 10 */
    ev_logits_compare(&d, a, b, 20);
    assert_true(d.same_argmax && !d.same_top_set);
    b[9] = 9;
    b[3] = 99;
    ev_logits_compare(&d, a, b, 20);
    assert_false(d.same_argmax);
    for (int i = 0; i < 20; i++)
        a[i] = b[i] = 1; /* ties: the lowest ids; no correlation */
    ev_logits_compare(&d, a, b, 20);
    assert_true(d.top_ours[0] == 0 && d.top_ours[9] == 9 && isnan(d.correlation) && d.nmse == 0);
}

static void test_not_finite(void **state)
{
    float a[] = {1, 2, 3}, b[] = {1, NAN, 3}, c[] = {1, 2, INFINITY};
    ev_logit_difference d;
    (void)state;
    ev_logits_compare(&d, a, b, 3);
    assert_false(d.finite || d.same_argmax);
    ev_logits_compare(&d, c, a, 3);
    assert_false(d.finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_top_sets),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
