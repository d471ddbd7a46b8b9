/* Recurrent state: slots and tapes through sessions, over a backend that only hashes what it may
 * see (fake_backend.h). Whatever is cut, shared, given up and run again, logits must be those of
 * the tokens alone, nobody may read a state or tape that is not his, and memory stays in its
 * budget. */
#include "count_malloc.h"
#include "fake_backend.h"
#include "runtime/engine.h"
#include "tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MAX_CTX = 8192, N_VOCAB = 300 };

enum { STATE_BYTES = 3 * (2 * 32 * 32 + 3 * (2 + 2) * 32) * 4 };

static gem_model *model;

static int32_t slot_refs(int32_t slot)
{
    return gem_state_refs(model->states, slot);
}

/* `snapshots`: states beyond those that sessions always have; < 0: the default budget. */
static gem_model *open_hybrid(gem_model_options o, int snapshots)
{
    tiny t = tiny_gemma3();
    char path[128];
    gem_error err = {0};
    const gem_engine_options e = {.n_logits = 8, .ops = &fake_ops, .change_plan = fake_hybrid};
    t.tokenizer = true;
    t.ctx = MAX_CTX;
    o.state_bytes = snapshots < 0 ? 0 : snapshots ? (int64_t)snapshots * STATE_BYTES : -1;
    if (!tiny_write(&t, tiny_path(path, "state"))) fail();
    gem_status st = gem_model_open_engine(&model, path, &o, &e, &err);
    unlink(path);
    if (st != GEM_OK) fail_msg("%s", err.text);
    fake->refs = slot_refs;
    return model;
}

static gem_session *new_session(gem_model *m)
{
    gem_session *s;
    gem_error err = {0};
    if (gem_session_new(&s, m, &err) != GEM_OK) fail_msg("%s", err.text);
    return s;
}

static void expect_logits(const int32_t *tokens, int32_t n, const float *got)
{
    float want[N_VOCAB];
    assert_non_null(got);
    fake_expect(&model->plan, tokens, n, want);
    if (memcmp(want, got, sizeof(want)) != 0) fail_msg("logits behind %d tokens differ", n);
    assert_int_equal(fake->n_missing, 0);
    assert_int_equal(fake->n_violations, 0);
}

static void close_clean(gem_model *m)
{
    assert_int_equal(fake->n_violations, 0);
    assert_int_equal(gem_state_used(m->states), 0);
    for (int i = 0; i < m->layout.n_pools; i++)
        assert_int_equal(gem_kv_used(m->kv, i), 0);
    assert_int_equal(m->n_open, 0);
    assert_int_equal(m->n_free_tapes, m->n_sessions);
    gem_model_close(m);
}

static int32_t text[MAX_CTX];

static void write_text(void)
{
    for (int32_t i = 0; i < MAX_CTX; i++)
        text[i] = (i * 7 + i / 9 + i * i % 31) % N_VOCAB;
}

/* Run text[from, to) and check the last logits; returns how many rows the backend ran. */
static int64_t run(gem_session *s, int32_t from, int32_t to)
{
    const float *x;
    gem_error err = {0};
    int64_t before = fake->n_rows;
    assert_int_equal(gem_session_position(s), from);
    if (gem_session_prefill(s, text + from, (size_t)(to - from), NULL, NULL, &x, &err) != GEM_OK)
        fail_msg("%s", err.text);
    expect_logits(text, to, x);
    return fake->n_rows - before;
}

static void trim(gem_session *s, int32_t to)
{
    gem_error err = {0};
    if (gem_session_trim(s, to, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal(gem_session_position(s), to);
}

static void test_pieces_do_not_matter(void **state)
{
    (void)state;
    static const int32_t batches[] = {1, 7, 63, 64, 65, 128, 512};
    static const int32_t lens[] = {1, 63, 64, 65, 127, 128, 500, 700};
    for (size_t b = 0; b < ARRAY_LEN(batches); b++)
        for (int snapshots = 0; snapshots < 4; snapshots++) {
            gem_model *m = open_hybrid(
                (gem_model_options){.n_ctx = 2048, .n_batch = batches[b], .n_sessions = 1},
                snapshots);
            for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
                gem_session *s = new_session(m);
                assert_int_equal(run(s, 0, lens[l]), lens[l]);
                for (int32_t i = lens[l]; i < lens[l] + 70; i++)
                    assert_int_equal(run(s, i, i + 1), 1);
                gem_session_free(s);
            }
            close_clean(m);
        }
}

/* The promise of GEM_ROLLBACK: back by up to 13 and on, as drafts do, without running a token
 * again, without any snapshot, wherever chunks end. */
static void test_going_back_a_little_runs_nothing_again(void **state)
{
    (void)state;
    gem_model *m = open_hybrid((gem_model_options){.n_ctx = 1024, .n_sessions = 1}, 0);
    for (int32_t back = 0; back <= GEM_ROLLBACK; back++)
        for (int32_t kept = 0; kept <= 8; kept++) {
            gem_session *s = new_session(m);
            int32_t pos = 20;
            run(s, 0, pos);
            trim(s, pos - back);
            pos -= back;
            while (pos < 300) { /* nine rows, of which 1 + kept stay */
                assert_int_equal(run(s, pos, pos + 9), 9);
                trim(s, pos + 1 + kept);
                pos += 1 + kept;
            }
            gem_session_free(s);
        }
    gem_session *s = new_session(m);
    for (int32_t n = 14; n < 400; n++) { /* prefill at once, back once */
        int32_t to = n - 1 - n % GEM_ROLLBACK;
        run(s, 0, n);
        trim(s, to);
        assert_int_equal(run(s, to, to + 1), 1);
        trim(s, 0);
    }
    gem_session_free(s);
    close_clean(m);
}

static void test_going_back_far_runs_less_than_a_page_again(void **state)
{
    (void)state;
    gem_model *m = open_hybrid((gem_model_options){.n_ctx = 4096, .n_sessions = 1}, -1);
    gem_session *s = new_session(m);
    run(s, 0, 2000); /* an edit at 70%: the page it stands in, no more */
    trim(s, 1400);
    assert_int_equal(run(s, 1400, 2000), 600 + 1400 % 64);
    trim(s, 1983);
    assert_int_equal(run(s, 1983, 1990), 7 + 1983 % 64);
    for (int32_t to = 1900; to >= 0; to -= 113) {
        trim(s, to);
        assert_int_equal(run(s, to, to + 2), 2 + to % 64);
        trim(s, to);
    }
    trim(s, 0);
    run(s, 0, 60); /* a short first turn has its state too: the empty one */
    assert_int_equal(run(s, 60, 100), 40);
    gem_session_free(s);
    close_clean(m);
}

static void test_without_snapshots_the_past_runs_again(void **state)
{
    (void)state;
    gem_model *m =
        open_hybrid((gem_model_options){.n_ctx = 4096, .n_batch = 96, .n_sessions = 1}, 0);
    gem_session *s = new_session(m);
    run(s, 0, 1000);
    trim(s, 930); /* boundaries 14 and 15 are always there */
    assert_int_equal(run(s, 930, 931), 1 + 930 - 14 * 64);
    trim(s, 895); /* and 13 while the third slot is free */
    assert_int_equal(run(s, 895, 896), 64);
    trim(s, 831);
    assert_int_equal(run(s, 831, 832), 832);
    trim(s, 700);
    trim(s, 600); /* in debt already */
    trim(s, 590);
    assert_int_equal(run(s, 590, 650), 650);
    gem_session_free(s);
    assert_true(m->n_states == GEM_STATE_SLOTS);
    close_clean(m);
}

/* Boundaries kept of a sequence, into at[]. */
static int kept(const gem_session *s, int32_t *at)
{
    int n = 0;
    for (int32_t c = 1; c <= s->state.end; c++)
        if (s->state.slot[c] >= 0) at[n++] = c;
    return n;
}

/* Gaps between kept boundaries are bounded by their distance from the end; every slot is used. */
static void test_gaps_grow_with_the_distance_from_the_end(void **state)
{
    (void)state;
    for (int snapshots = 8; snapshots <= 32; snapshots *= 2)
        for (int32_t piece = 1; piece <= 512; piece *= 8) {
            gem_model *m = open_hybrid(
                (gem_model_options){.n_ctx = MAX_CTX, .n_batch = 512, .n_sessions = 1}, snapshots);
            gem_session *s = new_session(m);
            int32_t at[MAX_CTX / 64 + 1], n_pos = piece == 1 ? 2500 : MAX_CTX;
            double worst = 0;
            fake->no_keys = true;
            for (int32_t pos = 0; pos < n_pos; pos += piece) {
                gem_error err;
                const float *x;
                size_t n = (size_t)GEM_MIN(piece, n_pos - pos);
                assert_int_equal(gem_session_prefill(s, text + pos, n, NULL, NULL, &x, &err),
                                 GEM_OK);
            }
            int n = kept(s, at);
            assert_true(n >= GEM_MIN(snapshots + 1, n_pos / 64));
            assert_true(n <= m->n_states);
            for (int i = 0; i < n; i++) {
                int32_t before = i ? at[i - 1] : 0;
                double gap = (at[i] - before) / (double)(s->state.end - before);
                if (at[i] - before > 1) worst = GEM_MAX(worst, gap);
            }
            if (worst > 6.0 / snapshots)
                fail_msg("%d snapshots, pieces of %d: a gap is %.2f of its distance", snapshots,
                         piece, worst);
            assert_int_equal(at[n - 1], n_pos / 64);
            assert_int_equal(at[n - 2], n_pos / 64 - 1);
            gem_session_free(s);
            close_clean(m);
        }
}

static void test_a_checkpoint_keeps_its_state(void **state)
{
    (void)state;
    gem_model *m = open_hybrid((gem_model_options){.n_ctx = 4096, .n_sessions = 2}, 2);
    gem_session *s = new_session(m), *other = new_session(m);
    gem_checkpoint *c;
    gem_error err;
    run(s, 0, 700);
    assert_int_equal(gem_session_checkpoint(s, &c, &err), GEM_OK);
    run(s, 700, 4000);
    run(other, 0, 4000);
    for (int i = 0; i < 3; i++) {
        gem_session *to = i == 1 ? other : s;
        assert_int_equal(gem_session_rollback(to, c, &err), GEM_OK);
        assert_int_equal(gem_session_position(to), 700);
        assert_int_equal(run(to, 700, 703), 3 + 700 % 64);
        assert_int_equal(gem_session_rollback(to, c, &err), GEM_OK);
        assert_int_equal(run(to, 700, 3000), 2300); /* the tape still reaches back to it */
    }
    gem_session_free(s);
    gem_session_free(other);
    s = new_session(m); /* a checkpoint outlives its session */
    assert_int_equal(gem_session_rollback(s, c, &err), GEM_OK);
    run(s, 700, 720);
    gem_checkpoint_free(c);
    gem_session_free(s);
    close_clean(m);
}

static void test_forks_share_states(void **state)
{
    (void)state;
    gem_model *m = open_hybrid((gem_model_options){.n_ctx = 2048, .n_sessions = 3}, 20);
    gem_session *s = new_session(m), *f, *g;
    gem_error err;
    run(s, 0, 1000);
    int32_t used = gem_state_used(m->states);
    assert_int_equal(gem_session_fork(&f, s, &err), GEM_OK);
    assert_int_equal(gem_session_position(f), 1000);
    assert_int_equal(gem_session_fork(&g, f, &err), GEM_OK); /* of one that has not run yet */
    assert_int_equal(gem_state_used(m->states), used);
    assert_int_equal(run(f, 1000, 1100), 100 + 1000 % 64);
    assert_int_equal(run(s, 1000, 1100), 100);
    assert_int_equal(run(g, 1000, 1001), 1 + 1000 % 64);
    trim(g, 300);
    run(g, 300, 400);
    gem_session_free(s);
    trim(f, 500);
    run(f, 500, 600);
    gem_session_free(f);
    gem_session_free(g);
    close_clean(m);
}

typedef struct stopper {
    size_t calls, stop_at;
} stopper;

static bool on_progress(void *user, size_t done, size_t total)
{
    stopper *w = user;
    (void)done;
    (void)total;
    return ++w->calls != w->stop_at;
}

static void test_refusals_and_cancelling_change_nothing(void **state)
{
    (void)state;
    gem_model *m =
        open_hybrid((gem_model_options){.n_ctx = 640, .n_batch = 16, .n_sessions = 2}, 0);
    gem_session *s = new_session(m), *other = new_session(m);
    gem_error err;
    const float *x;
    gem_checkpoint *c[4] = {0};
    run(s, 0, 600);
    trim(s, 300);
    assert_int_equal(gem_session_trim(s, 301, &err), GEM_E_RANGE);
    assert_int_equal(gem_session_trim(s, -1, &err), GEM_E_RANGE);
    assert_int_equal(gem_session_prefill(s, text, 341, NULL, NULL, &x, &err), GEM_E_RANGE);
    assert_non_null(strstr(err.text, "300 of 640"));
    stopper stop = {.stop_at = 2};
    assert_int_equal(gem_session_prefill(s, text + 300, 10, on_progress, &stop, &x, &err),
                     GEM_E_CANCELLED);
    assert_int_equal(gem_session_position(s), 300);
    assert_int_equal(s->kv.n_pos % 64, 32); /* two pieces of 16 were run again already */
    int32_t left = 300 - s->kv.n_pos;
    assert_int_equal(run(s, 300, 310), 10 + left);

    /* other pages are held by checkpoints of pasts that have gone */
    trim(s, 0);
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        trim(other, 0);
        if (gem_session_prefill(other, text, 600, NULL, NULL, &x, &err) != GEM_OK) break;
        assert_int_equal(gem_session_checkpoint(other, &c[i], &err), GEM_OK);
    }
    trim(other, 0);
    gem_status st = gem_session_prefill(s, text, 600, NULL, NULL, &x, &err);
    assert_int_equal(st, GEM_E_NOMEM);
    assert_non_null(strstr(err.text, "free checkpoints"));
    int32_t pos = gem_session_position(s);
    for (size_t i = 0; i < ARRAY_LEN(c); i++)
        gem_checkpoint_free(c[i]);
    run(s, pos, 600);

    /* a failure while tokens run again: the sessions of the batch are lost, others are not */
    trim(s, 200);
    fake->fail_next = true;
    assert_int_equal(gem_session_decode(s, 1, &x, &err), GEM_E_DEVICE);
    assert_int_equal(gem_session_decode(s, 1, &x, &err), GEM_E_DEVICE);
    run(other, 0, 100);
    gem_session_free(s);
    gem_session_free(other);
    close_clean(m);
}

static void test_rows_of_sessions_in_debt(void **state)
{
    (void)state;
    enum { N = 3 };
    gem_model *m =
        open_hybrid((gem_model_options){.n_ctx = 1024, .n_batch = 32, .n_sessions = N}, 1);
    gem_session *s[N];
    gem_error err = {0};
    for (int i = 0; i < N; i++) {
        s[i] = new_session(m);
        run(s[i], 0, 500 + 50 * i);
    }
    for (int round = 0; round < 40; round++) {
        gem_row rows[2 * N];
        const float *x[2 * N];
        int32_t behind[2 * N], n = 0, pos[N];
        for (int i = 0; i < N; i++) {
            pos[i] = gem_session_position(s[i]);
            if ((round + i) % 3 == 0) trim(s[i], pos[i] = pos[i] * (round % 5) / 5);
        }
        for (int r = 0; r < 2 * N; r++) { /* mixed */
            int i = r % N;
            rows[n] = (gem_row){s[i], text[pos[i]], true};
            behind[n++] = ++pos[i];
        }
        if (gem_batch_run(m, rows, (size_t)n, x, &err) != GEM_OK) fail_msg("%s", err.text);
        for (int r = 0; r < n; r++)
            expect_logits(text, behind[r], x[r]);
    }
    for (int i = 0; i < N; i++)
        gem_session_free(s[i]);
    close_clean(m);
}

/* Prompts of several sequences in one batch, with memory for what each is owed and no more: while
 * they run, no slot is two sequences', and the last two of each are its own for good. */
static void test_sequences_of_a_batch_share_no_slot(void **state)
{
    (void)state;
    enum { N = 3, CHUNKS = 9 };
    for (int32_t spare = 0; spare < 2 * CHUNKS; spare++) {
        gem_state_store *st;
        gem_state_seq s[N];
        gem_error err = {0};
        assert_int_equal(gem_state_open(&st, N * GEM_STATE_SLOTS + spare, MAX_CTX, &err), GEM_OK);
        for (int i = 0; i < N; i++)
            assert_int_equal(gem_state_seq_init(&s[i], st, false, &err), GEM_OK);
        for (int32_t at = 0; at < 3; at++) {
            const int32_t from = at * CHUNKS * GEM_PAGE;
            for (int i = 0; i < N; i++) {
                assert_true(gem_state_covers(&s[i], from));
                gem_state_append(&s[i], from, CHUNKS * GEM_PAGE);
            }
            for (int i = 0; i < N; i++) {
                assert_int_equal(s[i].run[s[i].end], s[i].slot[s[i].end]);
                assert_int_equal(s[i].run[s[i].end - 1], s[i].slot[s[i].end - 1]);
                for (int32_t c = s[i].reads + 1; c <= s[i].end; c++) {
                    if (c > 1 && s[i].run[c] == s[i].run[c - 1])
                        fail_msg("spare %d, round %d, sequence %d: boundaries %d and %d (of %d to "
                                 "%d) pass through slot %d",
                                 spare, at, i, c - 1, c, s[i].reads, s[i].end, s[i].run[c]);
                    if (s[i].slot[c] >= 0) assert_int_equal(s[i].run[c], s[i].slot[c]);
                    for (int k = 0; k < N; k++)
                        for (int32_t d = 1; k != i && d <= s[k].end; d++) {
                            if (d >= s[k].reads && d > 0)
                                assert_int_not_equal(s[i].run[c], s[k].run[d]);
                            if (s[k].slot[d] >= 0) assert_int_not_equal(s[i].run[c], s[k].slot[d]);
                        }
                }
            }
            for (int i = 0; i < N; i++)
                gem_state_commit(&s[i], from, CHUNKS * GEM_PAGE);
        }
        for (int i = 0; i < N; i++)
            gem_state_seq_deinit(&s[i]);
        gem_state_close(st);
    }
}

/* Random walks with every way back, several sessions a batch, budgets from nothing up; the
 * histories say what must come out. */
static void walk(uint32_t seed, int snapshots)
{
    enum { N = 3, MARKS = 3, CTX = 700 };
    gem_model *m = open_hybrid(
        (gem_model_options){.n_ctx = CTX, .n_batch = 150, .n_sessions = N + 3}, snapshots);
    gem_session *s[N];
    gem_checkpoint *mark[MARKS] = {0};
    static int32_t history[N][CTX], marked[MARKS][CTX];
    int32_t n_ran = 0;
    uint32_t z = seed;
    gem_error err;
    for (int i = 0; i < N; i++)
        s[i] = new_session(m);
    for (int step = 0; step < 400; step++) {
        z = z * 1664525u + 1013904223u;
        int i = (int)(z >> 20) % N, k = (int)(z >> 12) % MARKS;
        int32_t pos = gem_session_position(s[i]);
        switch (z >> 29) {
        default: { /* rows of this session, and one of each of the others */
            gem_row rows[160];
            const float *x[160];
            int32_t n = GEM_MIN(1 + (int32_t)(z >> 8) % (step % 3 ? 9 : 140), CTX - pos),
                    n_rows = 0;
            for (int32_t j = 0; j < n; j++) {
                history[i][pos + j] = (step * 3 + j * 5) % N_VOCAB;
                rows[n_rows++] = (gem_row){s[i], history[i][pos + j], j + 1 == n};
            }
            for (int j = 0; j < N && step % 2; j++) {
                int32_t at = gem_session_position(s[j]);
                if (j == i || at == CTX) continue;
                history[j][at] = step % N_VOCAB;
                rows[n_rows++] = (gem_row){s[j], history[j][at], true};
            }
            if (n_rows == 0) break;
            gem_status st = gem_batch_run(m, rows, (size_t)n_rows, x, &err);
            if (st == GEM_E_NOMEM) { /* checkpoints hold the rest; nothing was appended */
                assert_int_equal(gem_session_position(s[i]), pos);
                break;
            }
            if (st != GEM_OK) fail_msg("%s", err.text);
            for (int32_t r = 0; r < n_rows; r++)
                for (int j = 0; j < N; j++)
                    if (rows[r].session == s[j] && x[r])
                        expect_logits(history[j], gem_session_position(s[j]), x[r]);
            n_ran++;
            break;
        }
        case 0:
            gem_checkpoint_free(mark[k]);
            assert_int_equal(gem_session_checkpoint(s[i], &mark[k], &err), GEM_OK);
            memcpy(marked[k], history[i], sizeof(marked[k]));
            break;
        case 1:
            if (!mark[k]) break;
            assert_int_equal(gem_session_rollback(s[i], mark[k], &err), GEM_OK);
            memcpy(history[i], marked[k], sizeof(marked[k]));
            break;
        case 2: {
            int32_t to = pos - (int32_t)(z >> 8) % (step % 4 ? 16 : 300);
            if (to >= 0) trim(s[i], to);
            break;
        }
        case 3: {
            int j = (i + 1) % N;
            if (step % 3) break;
            gem_session_free(s[j]);
            assert_int_equal(gem_session_fork(&s[j], s[i], &err), GEM_OK);
            memcpy(history[j], history[i], sizeof(history[j]));
            break;
        }
        }
        assert_true(gem_state_used(m->states) <= m->n_states);
    }
    assert_true(n_ran > 100);
    for (int i = 0; i < N; i++)
        gem_session_free(s[i]);
    for (int k = 0; k < MARKS; k++)
        gem_checkpoint_free(mark[k]);
    close_clean(m);
}

static void test_random_steps(void **state)
{
    (void)state;
    const char *more = getenv("GEM_TEST_WALKS"); /* the long run */
    uint32_t n = more ? (uint32_t)strtoul(more, NULL, 10) : 2;
    for (uint32_t seed = 1; seed <= n; seed++)
        for (int snapshots = -1; snapshots < 6; snapshots++)
            walk(seed * 7919 + (uint32_t)snapshots, snapshots);
}

static void test_nothing_is_allocated_while_tokens_flow(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    gem_model *m =
        open_hybrid((gem_model_options){.n_ctx = 2048, .n_batch = 64, .n_sessions = 2}, 3);
    gem_session *s = new_session(m), *b = new_session(m);
    gem_checkpoint *c;
    gem_error err;
    run(s, 0, 700);
    assert_int_equal(gem_session_checkpoint(s, &c, &err), GEM_OK);
    size_t before = n_allocations;
    for (int32_t pos = 0; pos < 1500; pos++) {
        const float *x[2];
        const gem_row rows[2] = {{s, text[pos], true}, {b, text[pos], true}};
        assert_int_equal(gem_batch_run(m, rows, 2, x, &err), GEM_OK);
        if (pos % 100 == 99) trim(b, gem_session_position(b) - 30);
        if (pos % 200 == 199) assert_int_equal(gem_session_rollback(s, c, &err), GEM_OK);
    }
    assert_int_equal(n_allocations - before, 0);
    assert_int_equal(fake->n_violations, 0);
    gem_checkpoint_free(c);
    gem_session_free(s);
    gem_session_free(b);
    close_clean(m);
#else
    skip();
#endif
}

static json_int_t number(const json_t *j, const char *key)
{
    return json_integer_value(json_object_get(j, key));
}

static void test_config_and_sizes(void **state)
{
    (void)state;
    gem_model *m = open_hybrid((gem_model_options){.n_ctx = 1024, .n_sessions = 2}, 5);
    char *doc = gem_model_config_json(m);
    json_t *j = json_loads(doc, 0, NULL), *r = json_object_get(j, "recurrent");
    assert_string_equal(json_string_value(json_object_get(r, "type")), "f32");
    assert_int_equal(number(r, "layers"), 3);
    assert_int_equal(number(r, "state_bytes"), STATE_BYTES);
    assert_int_equal(number(r, "states"), 3 * 2 + 5);
    assert_int_equal(number(r, "bytes"), 11 * STATE_BYTES);
    assert_int_equal(number(r, "snapshot_bytes"), 5 * STATE_BYTES);
    assert_int_equal(number(r, "tapes"), 2);
    assert_int_equal(number(r, "tape_bytes"), 10);
    assert_int_equal(number(json_object_get(j, "memory"), "recurrent_bytes"),
                     11 * STATE_BYTES + 10);
    const json_t *pools = json_object_get(json_object_get(j, "kv"), "pools");
    assert_int_equal(json_array_size(pools), 1);
    assert_int_equal(number(json_array_get(pools, 0), "layers"), 4); /* of 7 */
    json_decref(j);
    free(doc);
    close_clean(m);

    m = open_hybrid((gem_model_options){.n_ctx = 1000, .n_sessions = 2}, -1);
    assert_int_equal(m->n_states, 6 + 2 * 15); /* never more than there are boundaries */
    close_clean(m);
    gem_error err;
    int32_t n;
    const gem_recurrent big = {48, 16, 48, 128};
    assert_int_equal(gem_recurrent_bytes(&big), 156893184); /* of the 27B model */
    assert_int_equal(gem_state_slots(&n, &big, 0, 262144, 1, &err), GEM_OK);
    assert_int_equal(n, 3 + 6);
    assert_int_equal(gem_state_slots(&n, &big, -1, 262144, 4, &err), GEM_OK);
    assert_int_equal(n, 12);
    assert_int_equal(gem_state_slots(&n, &big, INT64_MAX, 1 << 24, 4096, &err), GEM_OK);
    assert_int_equal(n, 3 * 4096 + (1 << 18) * 4096);
    const gem_recurrent huge = {1 << 20, 1 << 12, 1 << 12, 1 << 10};
    assert_int_equal(gem_state_slots(&n, &huge, -1, 64, 4096, &err), GEM_E_NOMEM);
}

static void make_windowed_hybrid(gem_plan *p)
{
    fake_hybrid(p);
    p->layer[2].window = 100;
}

static void test_what_cannot_be_kept_is_refused_at_open(void **state)
{
    (void)state;
    tiny t = tiny_gemma3();
    char path[128];
    gem_model *m;
    gem_error err;
    gem_model_options o = {.n_ctx = 100};
    gem_engine_options e = {.ops = &fake_ops, .change_plan = make_windowed_hybrid};
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "state"))) fail();
    assert_int_equal(gem_model_open_engine(&m, path, &o, &e, &err), GEM_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "window of 100"));
    e.change_plan = fake_hybrid;
    o.state_bytes = -2;
    assert_int_equal(gem_model_open_engine(&m, path, &o, &e, &err), GEM_E_ARG);
    assert_non_null(strstr(err.text, "state_bytes"));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_do_not_matter),
        cmocka_unit_test(test_going_back_a_little_runs_nothing_again),
        cmocka_unit_test(test_going_back_far_runs_less_than_a_page_again),
        cmocka_unit_test(test_without_snapshots_the_past_runs_again),
        cmocka_unit_test(test_gaps_grow_with_the_distance_from_the_end),
        cmocka_unit_test(test_a_checkpoint_keeps_its_state),
        cmocka_unit_test(test_forks_share_states),
        cmocka_unit_test(test_refusals_and_cancelling_change_nothing),
        cmocka_unit_test(test_rows_of_sessions_in_debt),
        cmocka_unit_test(test_sequences_of_a_batch_share_no_slot),
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_nothing_is_allocated_while_tokens_flow),
        cmocka_unit_test(test_config_and_sizes),
        cmocka_unit_test(test_what_cannot_be_kept_is_refused_at_open),
    };
    write_text();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
