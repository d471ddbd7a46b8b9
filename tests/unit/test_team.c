/* The thread team: regions, barriers with and without work for those who wait, shared ranges. Built
 * by the tsan preset it is the check for data races: ctest --preset tsan -R gem.team, or -R
 * gem.same_bits for whole forward passes. */
#include "backend/cpu/team.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { THREADS = 4, ROUNDS = 300, REGIONS = 5, ITEMS = 1000 };

typedef struct shared {
    gem_team *team;
    gem_range range[THREADS];
    int64_t taken[ITEMS]; /* plain memory throughout: only the team orders its uses */
    int64_t slot[THREADS], sum;
    int pieces[THREADS];
} shared;

static bool piece(void *left)
{
    return --*(int *)left > 0;
}

static void region(void *ctx, int tid)
{
    shared *s = ctx;
    for (int round = 0; round < ROUNDS; round++) {
        s->slot[tid] = round + tid;
        s->pieces[tid] = 20;
        if (tid == 0) gem_ranges_set(s->range, THREADS, ITEMS);
        gem_team_barrier_idle(s->team, piece, &s->pieces[tid]);
        int64_t lo, hi;
        int victim = tid;
        while ((hi = gem_range_take(s->range, THREADS, tid, &victim, 3, &lo)) > lo)
            for (int64_t i = lo; i < hi; i++)
                s->taken[i]++;
        gem_team_barrier(s->team);
        if (tid == round % THREADS)
            for (int i = 0; i < THREADS; i++)
                s->sum += s->slot[i];
        gem_team_barrier(s->team);
    }
}

static void test_every_item_once_and_all_is_seen(void **state)
{
    (void)state;
    static shared s;
    gem_error err;
    assert_int_equal(gem_team_new(&s.team, THREADS, &err), GEM_OK);
    for (int i = 0; i < REGIONS; i++)
        gem_team_run(s.team, region, &s);
    gem_team_free(s.team);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(s.taken[i], REGIONS * ROUNDS);
    /* a round adds 4 * round + (0 + 1 + 2 + 3) */
    assert_int_equal(s.sum, REGIONS * (THREADS * (ROUNDS * (ROUNDS - 1) / 2) + 6 * ROUNDS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_item_once_and_all_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
