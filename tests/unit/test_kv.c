/* KV pages: sharing, copy on write, windows, trim, and exact accounting. The pages of these tests
 * hold the token that was written at each position, so what a sequence would read can be compared.
 */
#include "runtime/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_LAYERS = 3, N_PAGES = 400, CTX = 640, MAX_SEQS = 6 };
static const int layer_pool[N_LAYERS] = {0, 1, 0};
static const int32_t window[N_LAYERS] = {0, 100, 64};

typedef struct world {
    gem_kv_store *st;
    int32_t n_pages[2];
    int32_t content[2][N_PAGES][GEM_PAGE];
    int n_copies;
} world;

static void copy_page(void *user, int pool, int32_t dst, int32_t src)
{
    world *w = user;
    memcpy(w->content[pool][dst], w->content[pool][src], sizeof(w->content[pool][dst]));
    w->n_copies++;
}

static world *new_world(int32_t n0, int32_t n1)
{
    world *w = calloc(1, sizeof(*w));
    w->n_pages[0] = n0;
    w->n_pages[1] = n1;
    const gem_kv_pool pool[2] = {{1, 32, false, n0, false}, {1, 32, false, n1, false}};
    const gem_kv_options o = {N_LAYERS, 2, layer_pool, window, pool, CTX, copy_page, w};
    assert_int_equal(gem_kv_open(&w->st, &o, NULL), GEM_OK);
    return w;
}

static void free_world(world *w)
{
    assert_int_equal(gem_kv_used(w->st, 0), 0);
    assert_int_equal(gem_kv_used(w->st, 1), 0);
    gem_kv_close(w->st);
    free(w);
}

/* A sequence and what was written to it. */
typedef struct tracked {
    gem_kv_seq kv;
    int32_t history[CTX];
    int32_t low; /* a trim to here and on must be possible */
} tracked;

static gem_status append(world *w, tracked *t, int32_t n, int32_t *next_token, gem_error *err)
{
    int32_t need[GEM_KV_MAX_POOLS] = {0};
    gem_kv_need(&t->kv, n, need);
    gem_status st = gem_kv_check(w->st, need, err);
    if (st != GEM_OK) return st;
    gem_kv_append(&t->kv, n);
    for (int32_t i = 0; i < n; i++) {
        int32_t pos = t->kv.n_pos + i;
        t->history[pos] = (*next_token)++;
        for (int l = 0; l < N_LAYERS; l++) {
            int32_t page = gem_kv_table(&t->kv, l)[pos / GEM_PAGE];
            assert_int_equal(gem_kv_refs(w->st, layer_pool[l], page),
                             1); /* private while written */
            w->content[layer_pool[l]][page][pos % GEM_PAGE] = t->history[pos];
        }
    }
    gem_kv_commit(&t->kv, n);
    t->low = GEM_MAX(t->low, t->kv.n_pos - GEM_ROLLBACK);
    return GEM_OK;
}

/* Everything the next query may see is there and is this sequence's own history. */
static void check_visible(const world *w, const tracked *t)
{
    for (int l = 0; l < N_LAYERS; l++) {
        int32_t from = window[l] ? GEM_MAX(0, t->kv.n_pos - window[l] + 1) : 0;
        for (int32_t p = from; p < t->kv.n_pos; p++) {
            int32_t page = gem_kv_table(&t->kv, l)[p / GEM_PAGE];
            if (page < 0) fail_msg("layer %d position %d of %d is gone", l, p, t->kv.n_pos);
            if (w->content[layer_pool[l]][page][p % GEM_PAGE] != t->history[p])
                fail_msg("layer %d position %d: another sequence's value", l, p);
        }
        /* dropped behind the window of a query GEM_ROLLBACK back */
        for (int32_t i = 0; (i + 1) * GEM_PAGE <= from - GEM_ROLLBACK; i++)
            assert_int_equal(gem_kv_table(&t->kv, l)[i], -1);
    }
}

/* References equal table entries, page by page, and used pages are the pages with references. */
static void check_counts(const world *w, const tracked *t, int n)
{
    int32_t *refs = calloc((size_t)2 * N_PAGES, sizeof(*refs));
    for (int i = 0; i < n; i++)
        if (t[i].kv.store)
            for (int l = 0; l < N_LAYERS; l++)
                for (int32_t k = 0; k < CTX / GEM_PAGE; k++) {
                    int32_t page = gem_kv_table(&t[i].kv, l)[k];
                    if (page >= 0) refs[layer_pool[l] * N_PAGES + page]++;
                }
    for (int p = 0; p < 2; p++) {
        int32_t used = 0;
        for (int32_t k = 0; k < w->n_pages[p]; k++) {
            assert_int_equal(gem_kv_refs(w->st, p, k), refs[p * N_PAGES + k]);
            used += refs[p * N_PAGES + k] > 0;
        }
        assert_int_equal(gem_kv_used(w->st, p), used);
    }
    free(refs);
}

static void start(world *w, tracked *t)
{
    assert_int_equal(gem_kv_seq_init(&t->kv, w->st, NULL), GEM_OK);
}

static void test_pages_follow_positions(void **state)
{
    (void)state;
    world *w = new_world(N_PAGES, N_PAGES);
    tracked t = {0};
    int32_t token = 1;
    start(w, &t);
    assert_int_equal(append(w, &t, 1, &token, NULL), GEM_OK);
    assert_int_equal(gem_kv_used(w->st, 0), 2); /* two layers share pool 0 */
    assert_int_equal(gem_kv_used(w->st, 1), 1);
    assert_int_equal(append(w, &t, 63, &token, NULL), GEM_OK);
    assert_int_equal(gem_kv_used(w->st, 0), 2); /* exactly full */
    assert_int_equal(append(w, &t, 1, &token, NULL), GEM_OK);
    assert_int_equal(gem_kv_used(w->st, 1), 2);
    check_visible(w, &t);
    gem_kv_seq_deinit(&t.kv);
    free_world(w);
}

static void test_windows_drop_pages(void **state)
{
    (void)state;
    world *w = new_world(N_PAGES, N_PAGES);
    tracked t = {0};
    int32_t token = 1;
    start(w, &t);
    /* the query at 163 sees 64..163 of layer 1: position 63 has left. At 176 the sequence can no
     * longer go back to 162, and page 0 goes; at 175 it stays */
    assert_int_equal(append(w, &t, 175, &token, NULL), GEM_OK);
    assert_int_not_equal(gem_kv_table(&t.kv, 1)[0], -1);
    assert_int_equal(append(w, &t, 1, &token, NULL), GEM_OK);
    assert_int_equal(gem_kv_table(&t.kv, 1)[0], -1);
    /* layer 2 has window 64: the query at 127 sees 64..127 */
    assert_int_equal(gem_kv_table(&t.kv, 2)[0], -1);
    assert_int_not_equal(gem_kv_table(&t.kv, 2)[1], -1);
    assert_int_not_equal(gem_kv_table(&t.kv, 0)[0], -1);
    while (t.kv.n_pos < CTX) {
        assert_int_equal(append(w, &t, 1, &token, NULL), GEM_OK);
        check_visible(w, &t);
        assert_true(gem_kv_used(w->st, 1) <= 3); /* 100 + 13 positions touch 3 pages */
    }
    gem_kv_seq_deinit(&t.kv);
    free_world(w);
}

static void test_copy_on_write_of_the_last_page(void **state)
{
    (void)state;
    world *w = new_world(N_PAGES, N_PAGES);
    tracked t[3] = {0};
    int32_t token = 1;
    for (int i = 0; i < 3; i++)
        start(w, &t[i]);
    assert_int_equal(append(w, &t[0], 70, &token, NULL), GEM_OK);
    for (int i = 1; i < 3; i++) {
        gem_kv_seq_copy(&t[i].kv, &t[0].kv);
        memcpy(t[i].history, t[0].history, sizeof(t[0].history));
    }
    assert_int_equal(w->n_copies, 0); /* sharing copies nothing */
    check_counts(w, t, 3);
    assert_int_equal(append(w, &t[1], 1, &token, NULL), GEM_OK);
    assert_int_equal(w->n_copies, N_LAYERS);
    assert_int_equal(append(w, &t[2], 1, &token, NULL), GEM_OK);
    assert_int_equal(w->n_copies, 2 * N_LAYERS);
    assert_int_equal(append(w, &t[0], 1, &token, NULL), GEM_OK); /* alone by now */
    assert_int_equal(w->n_copies, 2 * N_LAYERS);
    for (int i = 0; i < 3; i++)
        check_visible(w, &t[i]);
    check_counts(w, t, 3);

    /* full pages are shared for good: nothing to copy at a page's border */
    assert_int_equal(append(w, &t[0], 128 - 71, &token, NULL), GEM_OK);
    gem_kv_seq_copy(&t[1].kv, &t[0].kv);
    memcpy(t[1].history, t[0].history, sizeof(t[0].history));
    int before = w->n_copies;
    assert_int_equal(append(w, &t[1], 5, &token, NULL), GEM_OK);
    assert_int_equal(append(w, &t[0], 5, &token, NULL), GEM_OK);
    assert_int_equal(w->n_copies, before);
    for (int i = 0; i < 2; i++)
        check_visible(w, &t[i]);
    for (int i = 0; i < 3; i++)
        gem_kv_seq_deinit(&t[i].kv);
    free_world(w);
}

static void test_trim(void **state)
{
    (void)state;
    world *w = new_world(N_PAGES, N_PAGES);
    tracked t = {0};
    int32_t token = 1;
    gem_error err;
    start(w, &t);
    assert_int_equal(append(w, &t, 200, &token, NULL), GEM_OK);
    assert_int_equal(gem_kv_trim(&t.kv, 201, &err), GEM_E_RANGE);
    assert_int_equal(gem_kv_trim(&t.kv, -1, &err), GEM_E_RANGE);
    assert_int_equal(gem_kv_trim(&t.kv, 195, &err), GEM_OK);
    check_visible(w, &t);
    assert_int_equal(append(w, &t, 5, &token, NULL), GEM_OK);
    check_visible(w, &t);
    assert_int_equal(append(w, &t, 4, &token, NULL), GEM_OK);
    /* layer 2 holds 128 and on: the query at 191, 13 back, needs 128, the one at 190 needs 127 */
    assert_int_equal(gem_kv_trim(&t.kv, 190, &err), GEM_E_RANGE);
    assert_non_null(strstr(err.text, "window"));
    assert_int_equal(t.kv.n_pos, 204);
    check_visible(w, &t);
    assert_int_equal(gem_kv_trim(&t.kv, 204 - GEM_ROLLBACK, &err), GEM_OK);
    check_visible(w, &t);
    assert_int_equal(gem_kv_trim(&t.kv, 0, &err), GEM_OK); /* nothing is needed at 0 */
    assert_int_equal(gem_kv_used(w->st, 0) + gem_kv_used(w->st, 1), 0);
    assert_int_equal(append(w, &t, 66, &token, NULL), GEM_OK);
    check_visible(w, &t);
    gem_kv_seq_deinit(&t.kv);
    free_world(w);
}

static void test_no_pages_left_is_an_error_that_changes_nothing(void **state)
{
    (void)state;
    world *w = new_world(5, 3);
    tracked t[2] = {0};
    int32_t token = 1;
    gem_error err = {0};
    for (int i = 0; i < 2; i++)
        start(w, &t[i]);
    assert_int_equal(append(w, &t[0], 65, &token, &err), GEM_OK); /* 4 of 5, 2 of 3 */
    assert_int_equal(append(w, &t[1], 1, &token, &err), GEM_E_NOMEM);
    assert_non_null(strstr(err.text, "1 free pages of 5"));
    assert_int_equal(t[1].kv.n_pos, 0);
    assert_int_equal(gem_kv_used(w->st, 0), 4);
    gem_kv_seq_copy(&t[1].kv, &t[0].kv);
    assert_int_equal(append(w, &t[1], 1, &token, &err), GEM_E_NOMEM); /* copies need 2 and 1 */
    check_counts(w, t, 2);
    gem_kv_seq_deinit(&t[0].kv);
    memcpy(t[1].history, t[0].history, sizeof(t[0].history));
    assert_int_equal(append(w, &t[1], 1, &token, &err), GEM_OK);
    check_visible(w, &t[1]);
    gem_kv_seq_deinit(&t[1].kv);
    free_world(w);
}

static uint32_t rnd(uint32_t *z, uint32_t n)
{
    *z = *z * 1664525u + 1013904223u;
    return (*z >> 8) % n;
}

/* Thousands of random steps on sequences that share pages, checked after each. */
static void test_random_steps(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 8; seed++) {
        world *w = new_world(seed % 2 ? N_PAGES : 30, seed % 2 ? N_PAGES : 15);
        static tracked t[MAX_SEQS];
        memset(t, 0, sizeof(t));
        uint32_t z = seed;
        int32_t token = 1, n_done = 0;
        for (int i = 0; i < MAX_SEQS; i++)
            start(w, &t[i]);
        for (int step = 0; step < 1500; step++) {
            tracked *a = &t[rnd(&z, MAX_SEQS)], *b = &t[rnd(&z, MAX_SEQS)];
            uint32_t what = rnd(&z, 10);
            if (what < 6) {
                int32_t room = CTX - a->kv.n_pos, n = 1 + (int32_t)rnd(&z, what < 4 ? 5 : 150);
                if (GEM_MIN(n, room) > 0)
                    n_done += append(w, a, GEM_MIN(n, room), &token, NULL) == GEM_OK;
            } else if (what < 8) {
                gem_kv_seq_copy(&a->kv, &b->kv);
                if (a != b) memcpy(a->history, b->history, sizeof(a->history));
                a->low = b->low;
            } else if (what == 8) {
                int32_t n_pos = a->kv.n_pos, to = (int32_t)rnd(&z, (uint32_t)n_pos + 1);
                if (rnd(&z, 2)) to = n_pos - (int32_t)rnd(&z, (uint32_t)GEM_MIN(n_pos, 15) + 1);
                gem_status st = gem_kv_trim(&a->kv, to, NULL);
                assert_true(st == GEM_OK || st == GEM_E_RANGE);
                assert_true(st == GEM_OK || to < a->low);
                if (a->kv.n_pos == 0) a->low = 0;
            } else {
                gem_kv_seq_deinit(&a->kv);
                start(w, a);
                a->low = 0;
            }
            for (int i = 0; i < MAX_SEQS; i++)
                check_visible(w, &t[i]);
            check_counts(w, t, MAX_SEQS);
        }
        assert_true(n_done > 100);
        for (int i = 0; i < MAX_SEQS; i++)
            gem_kv_seq_deinit(&t[i].kv);
        free_world(w);
    }
}

/* The pools hold what the layout promises: every session full, each with one lagging checkpoint. */
static void test_layout_is_enough(void **state)
{
    (void)state;
    gem_kv_layer layers[N_LAYERS] = {{1, 32, 0, false}, {2, 32, 100, false}, {1, 32, 64, false}};
    const gem_plan plan = {.n_layers = N_LAYERS, .layer = layers};
    enum { SESSIONS = 2, BATCH = 90 };
    gem_kv_layout l;
    assert_int_equal(gem_kv_layout_init(&l, &plan, GEM_KV_F32, CTX, BATCH, SESSIONS, NULL), GEM_OK);
    assert_int_equal(l.n_pools, 2);
    assert_int_equal(l.pool[0].n_pages, 2 * ((10 + 1) + (1 + 2 + 2 + 2 + 1)));
    assert_int_equal(l.pool[1].n_pages, 2 * (2 + 2 + 2 + 2 + 1));
    assert_int_equal(gem_kv_layout_bytes(&l),
                     (uint64_t)38 * 2 * 64 * 32 * 4 + (uint64_t)18 * 2 * 64 * 64 * 4);

    world *w = calloc(1, sizeof(*w));
    const gem_kv_options o = {N_LAYERS, l.n_pools, l.layer_pool, l.window,
                              l.pool,   CTX,       copy_page,    w};
    assert_int_equal(gem_kv_open(&w->st, &o, NULL), GEM_OK);
    static tracked t[SESSIONS], c[SESSIONS];
    memset(t, 0, sizeof(t));
    memset(c, 0, sizeof(c));
    int32_t token = 1;
    for (int i = 0; i < SESSIONS; i++) {
        start(w, &t[i]);
        start(w, &c[i]);
    }
    for (int32_t mark = 1; mark < CTX; mark += 37) { /* the checkpoint lies anywhere */
        for (int i = 0; i < SESSIONS; i++) {
            gem_kv_trim(&t[i].kv, 0, NULL);
            gem_kv_trim(&c[i].kv, 0, NULL);
        }
        for (int i = 0; i < SESSIONS; i++)
            while (t[i].kv.n_pos < CTX) {
                int32_t n = GEM_MIN(BATCH, CTX - t[i].kv.n_pos);
                bool take = t[i].kv.n_pos < mark && mark <= t[i].kv.n_pos + n;
                if (take) n = mark - t[i].kv.n_pos;
                gem_error err;
                if (append(w, &t[i], n, &token, &err) != GEM_OK)
                    fail_msg("mark %d: %s", mark, err.text);
                if (take) gem_kv_seq_copy(&c[i].kv, &t[i].kv);
            }
    }
    for (int i = 0; i < SESSIONS; i++) {
        gem_kv_seq_deinit(&t[i].kv);
        gem_kv_seq_deinit(&c[i].kv);
    }
    free_world(w);
    gem_kv_layout_deinit(&l);

    /* KV types: only layers that see all are narrowed by f16-full */
    assert_int_equal(gem_kv_layout_init(&l, &plan, GEM_KV_F16_FULL, CTX, BATCH, 1, NULL), GEM_OK);
    assert_int_equal(l.n_pools, 3);
    assert_true(l.pool[l.layer_pool[0]].f16);
    assert_false(l.pool[l.layer_pool[1]].f16);
    assert_false(l.pool[l.layer_pool[2]].f16);
    gem_kv_layout_deinit(&l);
    assert_int_equal(gem_kv_layout_init(&l, &plan, GEM_KV_F16, CTX, BATCH, 1, NULL), GEM_OK);
    assert_int_equal(l.n_pools, 2);
    assert_true(l.pool[0].f16 && l.pool[1].f16);
    gem_kv_layout_deinit(&l);

    /* values alone: only where keys follow from them, and then half the bytes */
    gem_error err = {0};
    assert_int_equal(gem_kv_layout_init(&l, &plan, GEM_KV_F32_VALUES, CTX, BATCH, 1, &err),
                     GEM_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "f32-values"));
    layers[0].k_from_v = true;
    assert_int_equal(gem_kv_layout_init(&l, &plan, GEM_KV_F32_VALUES, CTX, BATCH, 1, NULL), GEM_OK);
    assert_int_equal(l.n_pools, 3);
    assert_true(l.pool[l.layer_pool[0]].values_only);
    assert_false(l.pool[l.layer_pool[2]].values_only);
    assert_int_equal(gem_kv_page_bytes(&l.pool[l.layer_pool[0]]), 64 * 32 * 4);
    assert_int_equal(gem_kv_page_bytes(&l.pool[l.layer_pool[2]]), 2 * 64 * 32 * 4);
    gem_kv_layout_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_follow_positions),
        cmocka_unit_test(test_windows_drop_pages),
        cmocka_unit_test(test_copy_on_write_of_the_last_page),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_no_pages_left_is_an_error_that_changes_nothing),
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_layout_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
