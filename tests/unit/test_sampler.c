/* The sampler's rules: order, ties, penalties, degenerate input, reproducible draws, no allocation.
 */
#include "count_malloc.h"
#include "runtime/sampler.h"
#include "top_of_row.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BIG = 262144 };

static gem_sampler *make(int32_t n, gem_sampler_options o)
{
    gem_sampler *s = NULL;
    gem_error err = {0};
    if (gem_sampler_new(&s, n, &o, &err) != GEM_OK) fail_msg("%s", err.text);
    return s;
}

static gem_sampler_options defaults(void)
{
    gem_sampler_options o;
    gem_sampler_defaults(&o);
    return o;
}

static int32_t draw(gem_sampler *s, const float *x)
{
    int32_t t = -1;
    gem_error err = {0};
    if (gem_sampler_draw(s, x, &t, &err) != GEM_OK) fail_msg("%s", err.text);
    return t;
}

static int32_t draw_once(int32_t n, gem_sampler_options o, const float *x)
{
    gem_sampler *s = make(n, o);
    int32_t t = draw(s, x);
    gem_sampler_free(s);
    return t;
}

/* Logits of a fixed generator, roughly normal between -12 and 12. */
static float *random_logits(int32_t n, uint32_t seed)
{
    float *x = malloc((size_t)n * sizeof(*x));
    uint32_t z = seed * 2654435761u + 1;
    for (int32_t i = 0; i < n; i++) {
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            z = z * 1664525u + 1013904223u;
            sum += (int)(z >> 20);
        }
        x[i] = (float)(sum - 8190) / 700.0f;
    }
    return x;
}

static void test_greedy_takes_lowest_id_on_ties(void **state)
{
    (void)state;
    float x[200];
    for (int i = 0; i < 200; i++)
        x[i] = -1.0f;
    x[70] = x[130] = x[199] = 3.0f;
    static const float temps[] = {0.0f, 1e-6f};
    for (size_t i = 0; i < ARRAY_LEN(temps); i++) {
        gem_sampler_options o = defaults();
        o.temperature = temps[i];
        assert_int_equal(draw_once(200, o, x), 70);
    }
    gem_sampler_options o = defaults();
    o.temperature = 1.0f;
    static const float tiny[] = {0.0f, 1e-9f};
    for (size_t i = 0; i < ARRAY_LEN(tiny); i++) {
        o.top_p = tiny[i];
        assert_int_equal(draw_once(200, o, x), 70);
    }
    o.top_p = 1.0f;
    o.top_k = 1;
    assert_int_equal(draw_once(200, o, x), 70);
    /* the two zeros are equal */
    float z[3] = {-1.0f, -0.0f, 0.0f};
    assert_int_equal(draw_once(3, defaults(), z), 1);
}

static void test_degenerate_logits(void **state)
{
    (void)state;
    float x[100];
    gem_error err;
    int32_t t;
    for (int mode = 0; mode < 4; mode++) {
        gem_sampler_options o = defaults();
        o.temperature = mode == 0 ? 0.0f : 1.0f;
        o.top_k = mode == 2 ? 10 : 0;
        o.top_p = mode == 3 ? 0.9f : 1.0f;
        gem_sampler *s = make(100, o);
        for (int i = 0; i < 100; i++)
            x[i] = -INFINITY;
        assert_int_equal(gem_sampler_draw(s, x, &t, &err), GEM_E_RANGE);
        assert_non_null(strstr(err.text, "-infinity"));
        for (int i = 0; i < 100; i++)
            x[i] = 1.5f;
        for (int bad = 0; bad < 100; bad += 33) {
            x[bad] = bad % 2 ? NAN : -NAN;
            assert_int_equal(gem_sampler_draw(s, x, &t, &err), GEM_E_RANGE);
            x[bad] = INFINITY;
            assert_int_equal(gem_sampler_draw(s, x, &t, &err), GEM_E_RANGE);
            x[bad] = 1.5f;
        }
        for (int i = 0; i < 50; i++) { /* all equal */
            t = draw(s, x);
            assert_in_range(t, 0, 99);
        }
        for (int i = 0; i < 100; i++)
            x[i] = -INFINITY;
        x[42] = -1e30f; /* one possible token */
        for (int i = 0; i < 20; i++)
            assert_int_equal(draw(s, x), 42);
        gem_sampler_free(s);
    }
}

static void expect_refused(gem_sampler_options o, const char *field)
{
    gem_sampler *s = NULL;
    gem_error err = {0};
    assert_int_equal(gem_sampler_new(&s, 100, &o, &err), GEM_E_ARG);
    assert_null(s);
    if (!strstr(err.text, field)) fail_msg("\"%s\" does not name %s", err.text, field);
}

static void test_options_are_checked_by_name(void **state)
{
    (void)state;
    static const float bad_temp[] = {-1.0f, NAN, INFINITY};
    for (size_t i = 0; i < ARRAY_LEN(bad_temp); i++) {
        gem_sampler_options o = defaults();
        o.temperature = bad_temp[i];
        expect_refused(o, "temperature");
    }
    gem_sampler_options o = defaults();
    o.top_p = 1.5f;
    expect_refused(o, "top_p");
    o = defaults();
    o.top_p = NAN;
    expect_refused(o, "top_p");
    o = defaults();
    o.min_p = 1.0f;
    expect_refused(o, "min_p");
    o = defaults();
    o.top_k = -1;
    expect_refused(o, "top_k");
    o = defaults();
    o.repetition_penalty = 0.0f;
    expect_refused(o, "repetition_penalty");
    o = defaults();
    o.presence_penalty = NAN;
    expect_refused(o, "presence_penalty");
    o = defaults();
    o.frequency_penalty = -INFINITY;
    expect_refused(o, "frequency_penalty");
    o = defaults();
    o.penalty_last_n = -1;
    expect_refused(o, "penalty_last_n");
    gem_logit_bias b = {100, 1.0f};
    o = defaults();
    o.logit_bias = &b;
    o.n_logit_bias = 1;
    expect_refused(o, "logit_bias");
    b = (gem_logit_bias){5, NAN};
    expect_refused(o, "logit_bias");
    b = (gem_logit_bias){5, INFINITY};
    expect_refused(o, "logit_bias");
}

static void test_logit_bias(void **state)
{
    (void)state;
    float x[64] = {0};
    x[10] = 5.0f;
    x[20] = 4.0f;
    gem_logit_bias b = {10, -100.0f};
    gem_sampler_options o = defaults();
    o.logit_bias = &b;
    o.n_logit_bias = 1;
    assert_int_equal(draw_once(64, o, x), 20);
    b.bias = -INFINITY;
    assert_int_equal(draw_once(64, o, x), 20);
    b = (gem_logit_bias){33, 100.0f};
    gem_sampler *s = make(64, o);
    b.token = 1; /* the sampler has its own copy */
    for (int i = 0; i < 4; i++) {
        int32_t t = draw(s, x);
        assert_int_equal(t, 33);
        gem_sampler_accept(s, t);
    }
    gem_sampler_free(s);
    assert_int_equal(x[33] == 0.0f, 1); /* logits are not written */
}

static void test_penalties(void **state)
{
    (void)state;
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = -5.0f;
    x[1] = 2.0f;
    x[2] = 1.5f;
    gem_sampler_options o = defaults();
    o.repetition_penalty = 2.0f;
    o.penalty_last_n = 2;
    gem_sampler *s = make(64, o);
    assert_int_equal(draw(s, x), 1);
    gem_sampler_accept(s, 1);
    gem_sampler_accept(s, 1); /* twice in the window, applied once: 2 / 2 = 1 < 1.5 */
    assert_int_equal(draw(s, x), 2);
    x[2] = 0.9f; /* applied twice it would be 0.5 */
    assert_int_equal(draw(s, x), 1);
    x[2] = 1.5f;
    gem_sampler_accept(s, 5);
    gem_sampler_accept(s, 5); /* 1 has left the window */
    assert_int_equal(draw(s, x), 1);
    gem_sampler_free(s);

    float neg[3] = {-1.0f, -1.5f, -4.0f}; /* negative logits are multiplied: -1 * 2 < -1.5 */
    s = make(3, o);
    gem_sampler_accept(s, 0);
    assert_int_equal(draw(s, neg), 1);
    gem_sampler_free(s);

    o = defaults();
    o.presence_penalty = 0.4f;
    s = make(64, o);
    gem_sampler_accept(s, 1);
    gem_sampler_accept(s, 1);
    assert_int_equal(draw(s, x), 1); /* 2 - 0.4 > 1.5, however often it was seen */
    gem_sampler_free(s);
    o.presence_penalty = 0.0f;
    o.frequency_penalty = 0.3f;
    s = make(64, o);
    gem_sampler_accept(s, 1);
    assert_int_equal(draw(s, x), 1); /* 1.7 */
    gem_sampler_accept(s, 1);
    assert_int_equal(draw(s, x), 2); /* 1.4 < 1.5 */
    gem_sampler_accept(s, -1);
    gem_sampler_accept(s, 64); /* no ids: ignored */
    gem_sampler_free(s);
}

/* Which ids can come out, over many draws. */
static void collect(int32_t n, gem_sampler_options o, const float *x, int n_draws, int *hits)
{
    gem_sampler *s = make(n, o);
    for (int i = 0; i < n_draws; i++)
        hits[draw(s, x)]++;
    gem_sampler_free(s);
}

static void test_truncation_sets(void **state)
{
    (void)state;
    /* p = 0.5, 0.25, 0.125, 0.0625, 0.0625 in mixed order */
    const float x[5] = {logf(0.0625f), logf(0.5f), logf(0.0625f), logf(0.25f), logf(0.125f)};
    gem_sampler_options o = defaults();
    o.temperature = 1.0f;
    for (int way = 0; way < 2; way++) { /* top_k 5 is off; 4 takes the sorted way */
        int hits[5] = {0};
        o.top_p = 0.7f; /* 0.5 + 0.25 reach it */
        o.top_k = way ? 4 : 0;
        collect(5, o, x, 400, hits);
        assert_true(hits[1] > 0 && hits[3] > 0);
        assert_int_equal(hits[0] + hits[2] + hits[4], 0);
        o.top_p = 1.0f;
        o.min_p = 0.2f; /* of the largest: 0.1 in probability */
        memset(hits, 0, sizeof(hits));
        collect(5, o, x, 400, hits);
        assert_true(hits[1] > 0 && hits[3] > 0 && hits[4] > 0);
        assert_int_equal(hits[0] + hits[2], 0);
        o.min_p = 0.0f;
    }
    int hits[5] = {0};
    o.top_k = 4; /* of the two equal smallest the lower id stays */
    collect(5, o, x, 800, hits);
    assert_true(hits[0] > 0);
    assert_int_equal(hits[2], 0);
    /* top-p counts within what top-k left: 0.5 / 0.75 = 0.667 does not reach 0.7 */
    memset(hits, 0, sizeof(hits));
    o.top_k = 2;
    o.top_p = 0.6f;
    collect(5, o, x, 400, hits);
    assert_int_equal(hits[1], 400);
}

/* Frequencies of every route against the distribution itself. Bound: five standard deviations. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { N = 300, DRAWS = 8000 };
    float *x = random_logits(N, 3);
    double p[N], total = 0, t = 1.7;
    for (int i = 0; i < N; i++)
        total += p[i] = exp((double)x[i] / t);
    for (int route = 0; route < 3; route++) {
        static int hits[N];
        gem_sampler_options o = defaults();
        memset(hits, 0, sizeof(hits));
        o.temperature = (float)t;
        o.seed = 11 + (uint64_t)route;
        o.top_k = route == 1 ? N - 1 : 0; /* sorted way, loses only the smallest */
        o.min_p = route == 2 ? 1e-30f : 0.0f;
        collect(N, o, x, DRAWS, hits);
        for (int i = 0; i < N; i++) {
            double mean = DRAWS * p[i] / total, sd = sqrt(mean) + 1.0;
            if (fabs(hits[i] - mean) > 5 * sd)
                fail_msg("route %d id %d: %d, expected %g", route, i, hits[i], mean);
        }
    }
    free(x);
}

/* top-k by blocks and heap against sorting everything. */
static void test_top_k_is_exact(void **state)
{
    (void)state;
    enum { N = 2000 };
    float *x = random_logits(N, 9);
    for (int i = 0; i < N; i++)
        x[i] = floorf(x[i] * 4) / 4; /* many ties */
    static const int ks[] = {2, 3, 17, 64, 200};
    for (size_t k = 0; k < ARRAY_LEN(ks); k++) {
        char *in = calloc(N, 1);
        for (int taken = 0; taken < ks[k]; taken++) {
            int best = -1;
            for (int i = 0; i < N; i++)
                if (!in[i] && (best < 0 || x[i] > x[best])) best = i;
            in[best] = 1;
        }
        gem_sampler_options o = defaults();
        o.temperature = 1000.0f; /* nearly uniform over the set */
        o.top_k = ks[k];
        gem_sampler *s = make(N, o);
        int seen = 0;
        char *hit = calloc(N, 1);
        for (int i = 0; i < 20 * ks[k]; i++) {
            int32_t t = draw(s, x);
            assert_true(in[t]);
            seen += !hit[t];
            hit[t] = 1;
        }
        assert_int_equal(seen, ks[k]);
        gem_sampler_free(s);
        free(hit);
        free(in);
    }
    free(x);
}

/* Golden ids: the draws are part of the contract, on every machine. */
static void test_draws_are_reproducible(void **state)
{
    (void)state;
    enum { N = 5000, DRAWS = 8 };
    static const int32_t want[4][DRAWS] = {
        {456, 2188, 4105, 4696, 4930, 4430, 4297, 4606},
        {4696, 655, 4452, 2803, 83, 891, 4, 1610},
        {456, 2210, 4196, 4696, 4947, 4452, 4368, 4606},
        {4696, 4606, 4927, 4368, 3497, 542, 4196, 3382},
    };
    float *x = random_logits(N, 1);
    for (int mode = 0; mode < 4; mode++) {
        gem_sampler_options o = defaults();
        o.temperature = mode == 3 ? 0.7f : 1.0f;
        o.top_k = mode == 1 || mode == 3 ? 64 : 0;
        o.top_p = mode >= 2 ? 0.95f : 1.0f;
        o.min_p = mode == 3 ? 0.02f : 0.0f;
        o.seed = 42;
        gem_sampler *s = make(N, o), *again = make(N, o);
        for (int i = 0; i < DRAWS; i++) {
            int32_t t = draw(s, x);
            assert_int_equal(draw(again, x), t);
            if (getenv("GEM_TEST_PRINT"))
                printf("%d%s", t, i + 1 < DRAWS ? ", " : "\n");
            else
                assert_int_equal(t, want[mode][i]);
        }
        gem_sampler_free(s);
        gem_sampler_free(again);
    }
    free(x);
}

/* ---- from the largest alone ---- */

/* Logits with what makes selection hard: few different values, ties across the 64th place,
 * forbidden tokens, both zeros. */
static float *hard_logits(int32_t n, int kind, uint32_t seed)
{
    float *x = random_logits(n, seed);
    for (int32_t i = 0; i < n; i++) {
        if (kind == 1) x[i] = floorf(x[i]);                /* some twenty values */
        if (kind == 2) x[i] = x[i] > 0 ? 3.0f : -INFINITY; /* half are possible, all equal */
        if (kind == 3) x[i] = i % 7 == 3 ? x[i] : -INFINITY;
        if (kind == 4) x[i] = i % 2 ? 0.0f : -0.0f;
        if (kind == 5) x[i] = -INFINITY;
        if (kind == 6) x[i] *= 1e36f;
    }
    if (kind == 5) x[n / 2] = x[n / 3] = 1.0f; /* two are left */
    return x;
}

static gem_sampler_options some_options(uint32_t i)
{
    static const float temperatures[] = {0.0f, 0.2f, 0.7f, 1.0f, 1.5f, 100.0f};
    static const int32_t top_ks[] = {1, 2, 20, 40, 63, 64};
    static const float top_ps[] = {1.0f, 0.95f, 0.5f, 0.01f}, min_ps[] = {0.0f, 0.05f, 0.6f};
    gem_sampler_options o = defaults();
    o.seed = i * 0x9e3779b9u;
    o.temperature = temperatures[i % 6];
    o.top_k = top_ks[i / 6 % 6];
    o.top_p = top_ps[i / 36 % 4];
    o.min_p = min_ps[i / 144 % 3];
    return o;
}

/* Whatever the settings, seeds and rows: the same tokens from the top as from all logits, in one
 * row after another, so that the generators stay in step; also when draws from both alternate. */
static void test_top_gives_the_tokens_of_all(void **state)
{
    (void)state;
    enum { KINDS = 7, SETTINGS = 432, ROWS = 6 };
    static const int32_t sizes[] = {65, 100, 1000, 5003};
    for (size_t v = 0; v < ARRAY_LEN(sizes); v++) {
        int32_t n = sizes[v];
        float *x[KINDS * ROWS];
        gem_top top[KINDS * ROWS];
        for (int r = 0; r < KINDS * ROWS; r++) {
            x[r] = hard_logits(n, r % KINDS, (uint32_t)(r + 100 * (int)v));
            top_of_row(x[r], n, &top[r]);
        }
        for (uint32_t i = 0; i < SETTINGS; i++) {
            gem_sampler *all = make(n, some_options(i)), *few = make(n, some_options(i));
            gem_sampler *turns = make(n, some_options(i));
            assert_false(gem_sampler_needs_all(few));
            for (int r = 0; r < KINDS * ROWS; r++) {
                int32_t want = draw(all, x[r]), got = -1, turn = -1;
                assert_int_equal(gem_sampler_draw_top(few, &top[r], &got, NULL), GEM_OK);
                if (r % 2)
                    turn = draw(turns, x[r]);
                else
                    assert_int_equal(gem_sampler_draw_top(turns, &top[r], &turn, NULL), GEM_OK);
                if (got != want || turn != want)
                    fail_msg("n %d, setting %u, row %d: %d and %d from the top, %d from all", n, i,
                             r, got, turn, want);
                gem_sampler_accept(all, want);
                gem_sampler_accept(few, got);
                gem_sampler_accept(turns, turn);
            }
            gem_sampler_free(all);
            gem_sampler_free(few);
            gem_sampler_free(turns);
        }
        for (int r = 0; r < KINDS * ROWS; r++)
            free(x[r]);
    }
}

static void test_top_refuses_what_all_refuse(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++)
        for (int greedy = 0; greedy < 2; greedy++) {
            gem_sampler_options o = defaults();
            o.top_k = 40;
            o.temperature = greedy ? 0.0f : 1.0f;
            gem_sampler *s = make(100, o);
            float x[100];
            gem_top top;
            gem_error all, few;
            int32_t t;
            for (int i = 0; i < 100; i++)
                x[i] = k == 2 || i == 77 ? bad[k] : 1.0f;
            top_of_row(x, 100, &top);
            assert_int_equal(gem_sampler_draw(s, x, &t, &all), GEM_E_RANGE);
            assert_int_equal(gem_sampler_draw_top(s, &top, &t, &few), GEM_E_RANGE);
            assert_string_equal(all.text, few.text);
            gem_sampler_free(s);
        }
}

static bool needs_all(int32_t n, gem_sampler_options o)
{
    gem_sampler *s = make(n, o);
    bool all = gem_sampler_needs_all(s);
    gem_sampler_free(s);
    return all;
}

static void test_who_needs_all_logits(void **state)
{
    (void)state;
    gem_sampler_options o = defaults();
    assert_false(needs_all(1000, o)); /* greedy */
    o.temperature = 1.0f;
    assert_true(needs_all(1000, o));
    o.top_k = 64;
    assert_false(needs_all(1000, o));
    assert_true(needs_all(64, o)); /* cuts nothing off */
    o.top_k = 65;
    assert_true(needs_all(1000, o));
    o.top_p = 0.9f;
    o.top_k = 0;
    assert_true(needs_all(1000, o));
    o.top_p = 0.0f; /* only the best */
    assert_false(needs_all(1000, o));
    const gem_logit_bias b = {7, 1.0f};
    for (int i = 0; i < 4; i++) {
        gem_sampler_options p = defaults();
        if (i == 0) p.repetition_penalty = 1.1f;
        if (i == 1) p.presence_penalty = 0.1f;
        if (i == 2) p.frequency_penalty = -0.1f;
        if (i == 3) p.logit_bias = &b, p.n_logit_bias = 1;
        assert_true(needs_all(1000, p));
    }
}

static void test_draw_allocates_nothing(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    float *x = random_logits(BIG, 5);
    gem_logit_bias b = {7, 1.0f};
    for (int mode = 0; mode < 6; mode++) {
        gem_sampler_options o = defaults();
        o.temperature = mode ? 0.8f : 0.0f;
        o.top_k = mode == 1 || mode == 4 ? 64 : 0;
        o.top_p = mode == 2 || mode == 4 ? 0.95f : 1.0f;
        o.min_p = mode == 3 ? 0.05f : 0.0f;
        if (mode >= 4) {
            o.repetition_penalty = 1.1f;
            o.frequency_penalty = o.presence_penalty = 0.1f;
            o.logit_bias = &b;
            o.n_logit_bias = 1;
        }
        gem_sampler *s = make(BIG, o);
        size_t before = n_allocations;
        for (int i = 0; i < 10; i++)
            gem_sampler_accept(s, draw(s, x));
        assert_int_equal(n_allocations - before, 0);
        gem_sampler_free(s);
    }
    free(x);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_lowest_id_on_ties),
        cmocka_unit_test(test_degenerate_logits),
        cmocka_unit_test(test_options_are_checked_by_name),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_truncation_sets),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_top_k_is_exact),
        cmocka_unit_test(test_draws_are_reproducible),
        cmocka_unit_test(test_top_gives_the_tokens_of_all),
        cmocka_unit_test(test_top_refuses_what_all_refuse),
        cmocka_unit_test(test_who_needs_all_logits),
        cmocka_unit_test(test_draw_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
