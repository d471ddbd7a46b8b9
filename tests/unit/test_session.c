/* Sessions over a backend that only hashes what it may see: every way of cutting, sharing, going
 * back and mixing must give what the tokens alone give. */
#include "count_malloc.h"
#include "fake_backend.h"
#include "runtime/engine.h"
#include "tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MAX_CTX = 2048 };

static gem_model *open_on(const gem_backend_ops *ops, const gem_model_options *o, int32_t n_logits)
{
    tiny t = tiny_gemma3();
    char path[128];
    gem_model *m;
    gem_error err = {0};
    const gem_engine_options e = {.n_logits = n_logits, .ops = ops};
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "session"))) fail();
    gem_status st = gem_model_open_engine(&m, path, o, &e, &err);
    unlink(path);
    if (st != GEM_OK) fail_msg("%s", err.text);
    return m;
}

static gem_model *open_tiny(const gem_model_options *o, int32_t n_logits)
{
    return open_on(&fake_ops, o, n_logits);
}

static gem_session *new_session(gem_model *m)
{
    gem_session *s;
    gem_error err = {0};
    if (gem_session_new(&s, m, &err) != GEM_OK) fail_msg("%s", err.text);
    return s;
}

static int32_t token_at(int32_t i, int32_t salt)
{
    return (i * 7 + salt * 31 + i / 9) % 300;
}

static void expect_logits(const gem_model *m, const int32_t *tokens, int32_t n, const float *got)
{
    float want[300];
    assert_non_null(got);
    fake_expect(&m->plan, tokens, n, want);
    if (memcmp(want, got, sizeof(want)) != 0) fail_msg("logits behind %d tokens differ", n);
    assert_int_equal(fake->n_missing, 0);
}

static void close_clean(gem_model *m)
{
    for (int i = 0; i < m->layout.n_pools; i++)
        assert_int_equal(gem_kv_used(m->kv, i), 0);
    assert_int_equal(m->n_open, 0);
    gem_model_close(m);
}

static void test_pieces_do_not_matter(void **state)
{
    (void)state;
    static const int32_t batches[] = {1, 7, 63, 64, 65, 128, 512, 1024};
    static const int32_t lens[] = {1, 64, 99, 100, 101, 511, 513, 1025, 1700};
    int32_t tokens[MAX_CTX];
    for (int32_t i = 0; i < MAX_CTX; i++)
        tokens[i] = token_at(i, 1);
    for (size_t b = 0; b < ARRAY_LEN(batches); b++) {
        const gem_model_options o = {.n_ctx = MAX_CTX, .n_batch = batches[b], .n_sessions = 1};
        gem_model *m = open_tiny(&o, 0);
        for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
            gem_session *s = new_session(m);
            const float *x;
            gem_error err;
            assert_int_equal(gem_session_prefill(s, tokens, (size_t)lens[l], NULL, NULL, &x, &err),
                             GEM_OK);
            expect_logits(m, tokens, lens[l], x);
            for (int32_t i = lens[l]; i < lens[l] + 70; i++) {
                assert_int_equal(gem_session_decode(s, tokens[i], &x, &err), GEM_OK);
                expect_logits(m, tokens, i + 1, x);
            }
            assert_int_equal(gem_session_position(s), lens[l] + 70);
            gem_session_free(s);
        }
        close_clean(m);
    }
}

static void test_a_full_context(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 200, .n_batch = 64, .n_sessions = 2};
    gem_model *m = open_tiny(&o, 0);
    gem_session *s = new_session(m);
    int32_t tokens[201];
    const float *x;
    gem_error err;
    for (int32_t i = 0; i < 201; i++)
        tokens[i] = token_at(i, 2);
    assert_int_equal(gem_session_prefill(s, tokens, 201, NULL, NULL, &x, &err), GEM_E_RANGE);
    assert_int_equal(gem_session_position(s), 0);
    assert_null(x);
    assert_int_equal(gem_session_prefill(s, tokens, 200, NULL, NULL, &x, &err), GEM_OK);
    expect_logits(m, tokens, 200, x);
    assert_int_equal(gem_session_decode(s, 1, &x, &err), GEM_E_RANGE);
    assert_non_null(strstr(err.text, "200 of 200"));
    assert_int_equal(gem_session_position(s), 200);
    gem_session_free(s);
    close_clean(m);
}

static void test_bad_tokens(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 200, .n_batch = 4};
    gem_model *m = open_tiny(&o, 0);
    gem_session *s = new_session(m);
    const float *x;
    gem_error err;
    int32_t tokens[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 300};
    assert_int_equal(gem_session_prefill(s, tokens, 10, NULL, NULL, &x, &err), GEM_E_RANGE);
    assert_non_null(strstr(err.text, "token 9 is 300"));
    tokens[0] = -1;
    assert_int_equal(gem_session_prefill(s, tokens, 9, NULL, NULL, &x, &err), GEM_E_RANGE);
    assert_int_equal(gem_session_prefill(s, tokens, 0, NULL, NULL, &x, &err), GEM_E_ARG);
    assert_int_equal(gem_session_position(s), 0); /* nothing ran, not even the good part */
    gem_session_free(s);
    close_clean(m);
}

typedef struct watch {
    size_t calls, done[16], total, stop_after;
} watch;

static bool on_progress(void *user, size_t done, size_t total)
{
    watch *w = user;
    w->done[w->calls++] = done;
    w->total = total;
    return w->calls != w->stop_after;
}

static void test_progress_and_cancel(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 300, .n_batch = 32};
    gem_model *m = open_tiny(&o, 0);
    gem_session *s = new_session(m);
    int32_t tokens[200];
    const float *x;
    gem_error err;
    for (int32_t i = 0; i < 200; i++)
        tokens[i] = token_at(i, 3);
    watch w = {0};
    assert_int_equal(gem_session_prefill(s, tokens, 100, on_progress, &w, &x, &err), GEM_OK);
    assert_int_equal(w.calls, 4);
    assert_int_equal(w.done[0], 32);
    assert_int_equal(w.done[3], 100);
    assert_int_equal(w.total, 100);
    w = (watch){.stop_after = 2};
    assert_int_equal(gem_session_prefill(s, tokens + 100, 100, on_progress, &w, &x, &err),
                     GEM_E_CANCELLED);
    assert_null(x);
    assert_int_equal(gem_session_position(s), 164); /* two batches stay */
    w = (watch){.stop_after = 2}; /* false after the last batch: there is nothing left to stop */
    assert_int_equal(gem_session_prefill(s, tokens + 164, 36, on_progress, &w, &x, &err), GEM_OK);
    expect_logits(m, tokens, 200, x);
    gem_session_free(s);
    close_clean(m);
}

static void test_batch_of_several_sessions(void **state)
{
    (void)state;
    enum { N = 3, STEPS = 150 };
    const gem_model_options o = {.n_ctx = 512, .n_batch = 16, .n_sessions = N};
    gem_model *m = open_tiny(&o, 16);
    gem_session *s[N];
    static int32_t history[N][512];
    for (int i = 0; i < N; i++)
        s[i] = new_session(m);
    uint32_t z = 5;
    for (int step = 0; step < STEPS; step++) {
        gem_row rows[16];
        int32_t owner[16], behind[16];
        const float *x[16];
        gem_error err = {0};
        int32_t n = 1 + (int32_t)((z = z * 1664525u + 1013904223u) >> 28), pos[N];
        for (int i = 0; i < N; i++)
            pos[i] = gem_session_position(s[i]);
        for (int32_t r = 0; r < n; r++) { /* rows of different sessions are mixed */
            int i = (int)(((z = z * 1664525u + 1013904223u) >> 16) % N);
            if (pos[i] >= 512) i = 0;
            rows[r] = (gem_row){s[i], token_at(step * 16 + r, i), (z >> 12) % 2 == 0};
            history[i][pos[i]++] = rows[r].token;
            owner[r] = i;
            behind[r] = pos[i];
        }
        if (gem_batch_run(m, rows, (size_t)n, x, &err) != GEM_OK) fail_msg("%s", err.text);
        for (int32_t r = 0; r < n; r++) {
            if (rows[r].want)
                expect_logits(m, history[owner[r]], behind[r], x[r]);
            else
                assert_null(x[r]);
        }
    }
    for (int i = 0; i < N; i++) {
        assert_true(gem_session_position(s[i]) > 200);
        gem_session_free(s[i]);
    }
    close_clean(m);
}

static void test_a_batch_is_all_or_nothing(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 100, .n_batch = 8, .n_sessions = 2};
    gem_model *m = open_tiny(&o, 2), *other = open_tiny(&o, 2);
    gem_session *a = new_session(m), *b = new_session(m), *foreign = new_session(other);
    const float *x[8];
    gem_error err;
    const float *last;
    int32_t tokens[100] = {0};
    assert_int_equal(gem_session_prefill(b, tokens, 99, NULL, NULL, &last, &err), GEM_OK);
    gem_row rows[9] = {{a, 1, true}, {b, 2, false}, {b, 3, true}};
    assert_int_equal(gem_batch_run(m, rows, 3, x, &err), GEM_E_RANGE); /* b has one position left */
    assert_int_equal(gem_session_position(a), 0);
    assert_int_equal(gem_session_position(b), 99);
    rows[2].token = 300;
    rows[2].session = a;
    assert_int_equal(gem_batch_run(m, rows, 3, x, &err), GEM_E_RANGE);
    rows[2].token = 3;
    rows[1].want = GEM_ROW_LOGITS; /* three, two are had */
    assert_int_equal(gem_batch_run(m, rows, 3, x, &err), GEM_E_ARG);
    rows[1].session = foreign;
    assert_int_equal(gem_batch_run(m, rows, 3, x, &err), GEM_E_ARG);
    assert_int_equal(gem_batch_run(m, rows, 0, x, &err), GEM_E_ARG);
    assert_int_equal(gem_batch_run(m, rows, 9, x, &err), GEM_E_ARG);
    assert_int_equal(gem_session_position(a), 0);
    rows[1] = (gem_row){b, 2, false};
    assert_int_equal(gem_batch_run(m, rows, 3, x, &err), GEM_OK); /* the refusals left no trace */
    const int32_t history[2] = {1, 3};
    const float *got = x[2];
    float want[300];
    fake_expect(&m->plan, history, 2, want);
    assert_memory_equal(got, want, sizeof(want));
    gem_session_free(a);
    gem_session_free(b);
    gem_session_free(foreign);
    close_clean(m);
    close_clean(other);
}

static void test_want_flags_of_one_session(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 100, .n_batch = 64, .n_sessions = 1};
    gem_model *m = open_tiny(&o, 64);
    gem_session *s = new_session(m);
    int32_t tokens[64];
    uint8_t want[64];
    const float *x[64];
    gem_error err;
    for (int32_t i = 0; i < 64; i++) {
        tokens[i] = token_at(i, 4);
        want[i] = 1;
    }
    assert_int_equal(gem_session_run(s, tokens, 64, want, x, &err), GEM_OK);
    for (int32_t i = 0; i < 64; i++)
        expect_logits(m, tokens, i + 1, x[i]);
    gem_session_free(s);
    close_clean(m);
}

/* A backend that keeps logits gives the tops of the rows that will be drawn from, all logits where
 * they are asked for, then or later; the tokens are those of a backend that hands out all. */
static void test_draws_where_logits_are(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 400, .n_batch = 8, .n_sessions = 3};
    gem_model *m[2] = {open_on(&fake_ops, &o, 8), open_on(fake_keeping_ops(), &o, 8)};
    gem_session *s[2][3];
    gem_sampler *sampler[2][3];
    gem_error err;
    int32_t history[3][300], drawn[2][3], fetched = 0, tops = 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) { /* greedy, from the forty best, from all */
            gem_sampler_options so;
            gem_sampler_defaults(&so);
            so.temperature = i ? 0.9f : 0.0f;
            so.top_k = i == 1 ? 40 : 0;
            so.seed = 5;
            assert_int_equal(gem_sampler_new(&sampler[k][i], 300, &so, &err), GEM_OK);
            s[k][i] = new_session(m[k]);
            drawn[k][i] = 3 + i;
        }
    for (int32_t step = 0; step < 250; step++) {
        bool ask = step % 5 == 4; /* for the logits of the last, beforehand */
        for (int k = 0; k < 2; k++) {
            const float *x[3];
            gem_row row[3];
            for (int i = 0; i < 3; i++) {
                history[i][step] = drawn[k][i];
                row[i] =
                    (gem_row){s[k][i], drawn[k][i], ask && i == 2 ? GEM_ROW_LOGITS : GEM_ROW_DRAW};
            }
            assert_int_equal(gem_batch_run(m[k], row, 3, x, &err), GEM_OK);
            assert_true(!x[0] && !x[1] && (x[2] != NULL) == ask);
            if (ask) expect_logits(m[k], history[2], step + 1, x[2]);
            for (int i = 0; i < 3; i++)
                if (gem_session_draw(s[k][i], sampler[k][i], &drawn[k][i], &err) != GEM_OK)
                    fail_msg("%s", err.text);
            if (step % 50 == 7) { /* all of a row that gave its top */
                assert_int_equal(gem_session_logits(s[k][1], &x[1], &err), GEM_OK);
                expect_logits(m[k], history[1], step + 1, x[1]);
                fetched += k;
            }
        }
        fetched += !ask;
        tops += 3 - ask;
        assert_memory_equal(drawn[0], drawn[1], sizeof(drawn[0]));
    }
    assert_int_equal(fake->n_fetched, fetched);
    assert_int_equal(fake->n_tops, tops);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) {
            gem_sampler_free(sampler[k][i]);
            gem_session_free(s[k][i]);
        }
    close_clean(m[0]);
    close_clean(m[1]);
}

static void test_draws_of_another_run_are_refused(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 100, .n_batch = 8, .n_sessions = 2};
    gem_model *m = open_on(fake_keeping_ops(), &o, 8);
    gem_session *a = new_session(m), *b = new_session(m);
    gem_sampler *greedy;
    gem_sampler_options so;
    const float *x;
    gem_error err;
    int32_t token;
    const int32_t tokens[3] = {5, 6, 7};
    gem_sampler_defaults(&so);
    assert_int_equal(gem_sampler_new(&greedy, 300, &so, &err), GEM_OK);
    assert_int_equal(gem_session_draw(a, greedy, &token, &err), GEM_E_RANGE); /* nothing has run */
    assert_int_equal(gem_session_prefill(a, tokens, 3, NULL, NULL, NULL, &err), GEM_OK);
    assert_int_equal(gem_session_draw(b, greedy, &token, &err), GEM_E_RANGE);
    assert_int_equal(gem_session_draw(a, greedy, &token, &err), GEM_OK);
    assert_int_equal(gem_session_logits(a, &x, &err), GEM_OK);
    expect_logits(m, tokens, 3, x);
    assert_int_equal(gem_session_decode(b, 5, NULL, &err), GEM_OK);
    assert_int_equal(gem_session_draw(a, greedy, &token, &err), GEM_E_RANGE);
    assert_non_null(strstr(err.text, "no logits of this session"));
    assert_int_equal(gem_session_draw(b, greedy, &token, &err), GEM_OK);
    fake->fail_next = true;
    assert_int_equal(gem_session_logits(b, &x, &err), GEM_E_DEVICE);
    assert_null(x);
    gem_row row = {b, 6, GEM_ROW_NONE};
    assert_int_equal(gem_batch_run(m, &row, 1, &x, &err), GEM_OK);
    assert_null(x);
    assert_int_equal(gem_session_draw(b, greedy, &token, &err), GEM_E_RANGE);
    gem_sampler_free(greedy);
    gem_session_free(a);
    gem_session_free(b);
    close_clean(m);
}

static void test_device_failure(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 100, .n_batch = 8, .n_sessions = 2};
    gem_model *m = open_tiny(&o, 2);
    gem_session *a = new_session(m), *b = new_session(m), *f;
    const float *x;
    gem_error err;
    gem_checkpoint *c;
    const int32_t tokens[3] = {5, 6, 7};
    assert_int_equal(gem_session_prefill(a, tokens, 2, NULL, NULL, &x, &err), GEM_OK);
    fake->fail_next = true;
    assert_int_equal(gem_session_decode(a, 7, &x, &err), GEM_E_DEVICE);
    assert_int_equal(gem_session_decode(a, 7, &x, &err), GEM_E_DEVICE); /* for good */
    assert_int_equal(gem_session_checkpoint(a, &c, &err), GEM_E_DEVICE);
    assert_int_equal(gem_session_fork(&f, a, &err), GEM_E_DEVICE);
    assert_int_equal(gem_session_trim(a, 0, &err), GEM_E_DEVICE);
    assert_int_equal(gem_session_prefill(b, tokens, 3, NULL, NULL, &x, &err), GEM_OK);
    expect_logits(m, tokens, 3, x);
    gem_session_free(a);
    gem_session_free(b);
    close_clean(m);
}

static void test_sessions_are_limited(void **state)
{
    (void)state;
    const gem_model_options o = {.n_ctx = 100, .n_sessions = 2};
    gem_model *m = open_tiny(&o, 0);
    gem_session *a = new_session(m), *b = new_session(m), *c;
    gem_error err;
    assert_int_equal(gem_session_new(&c, m, &err), GEM_E_RANGE);
    assert_non_null(strstr(err.text, "n_sessions"));
    assert_int_equal(gem_session_fork(&c, a, &err), GEM_E_RANGE);
    gem_session_free(a);
    c = new_session(m);
    gem_session_free(b);
    gem_session_free(c);
    close_clean(m);
}

/* Random walks with all the ways back; the histories say what must come out. */
static void test_ways_back(void **state)
{
    (void)state;
    enum { N = 3, MARKS = 4, CTX = 700 };
    for (uint32_t seed = 1; seed <= 4; seed++) {
        const gem_model_options o = {.n_ctx = CTX, .n_batch = 128, .n_sessions = N + 4};
        gem_model *m = open_tiny(&o, 0);
        gem_session *s[N];
        gem_checkpoint *mark[MARKS] = {0};
        static int32_t history[N][CTX], marked[MARKS][CTX];
        int32_t marked_pos[MARKS] = {0}, n_ran = 0;
        uint32_t z = seed;
        gem_error err;
        for (int i = 0; i < N; i++)
            s[i] = new_session(m);
        for (int step = 0; step < 500; step++) {
            z = z * 1664525u + 1013904223u;
            int i = (int)(z >> 20) % N, k = (int)(z >> 12) % MARKS;
            int32_t pos = gem_session_position(s[i]);
            const float *x;
            switch (z >> 29) {
            default: { /* run */
                int32_t n = GEM_MIN(1 + (int32_t)(z >> 8) % (step % 2 ? 3 : 150), CTX - pos);
                if (n == 0) break;
                for (int32_t j = 0; j < n; j++)
                    history[i][pos + j] = token_at(step + j, (int32_t)seed);
                gem_status st =
                    gem_session_prefill(s[i], history[i] + pos, (size_t)n, NULL, NULL, &x, &err);
                if (st == GEM_E_NOMEM) break; /* checkpoints hold the rest */
                assert_int_equal(st, GEM_OK);
                expect_logits(m, history[i], pos + n, x);
                n_ran++;
                break;
            }
            case 0:
                gem_checkpoint_free(mark[k]);
                assert_int_equal(gem_session_checkpoint(s[i], &mark[k], &err), GEM_OK);
                memcpy(marked[k], history[i], sizeof(marked[k]));
                marked_pos[k] = pos;
                break;
            case 1:
                if (!mark[k]) break;
                assert_int_equal(gem_session_rollback(s[i], mark[k], &err), GEM_OK);
                memcpy(history[i], marked[k], sizeof(marked[k]));
                assert_int_equal(gem_session_position(s[i]), marked_pos[k]);
                break;
            case 2: {
                int32_t to = pos - (int32_t)(z >> 8) % 40;
                if (to < 0) break;
                gem_status st = gem_session_trim(s[i], to, &err);
                if (st == GEM_OK)
                    assert_int_equal(gem_session_position(s[i]), to);
                else
                    assert_int_equal(st, GEM_E_RANGE);
                break;
            }
            case 3: {
                int j = (i + 1) % N;
                gem_session_free(s[j]);
                assert_int_equal(gem_session_fork(&s[j], s[i], &err), GEM_OK);
                memcpy(history[j], history[i], sizeof(history[j]));
                break;
            }
            }
        }
        assert_true(n_ran > 100);
        for (int i = 0; i < N; i++)
            gem_session_free(s[i]);
        for (int k = 0; k < MARKS; k++)
            gem_checkpoint_free(mark[k]); /* may outlive every session */
        close_clean(m);
    }
}

static void test_options_are_checked_by_name(void **state)
{
    (void)state;
    static const struct {
        gem_model_options o;
        const char *says;
    } bad[] = {
        {{.n_ctx = -1}, "n_ctx"},           {{.n_batch = -5}, "n_batch"},
        {{.n_sessions = -1}, "n_sessions"}, {{.n_threads = -1}, "n_threads"},
        {{.n_threads = 5000}, "n_threads"}, {{.kv_type = (gem_kv_type)4}, "kv_type"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        gem_model *m = NULL;
        gem_error err = {0};
        assert_int_equal(gem_model_open(&m, "no-such-file.gguf", &bad[i].o, &err) == GEM_OK, 0);
        const gem_engine_options e = {.ops = &fake_ops};
        tiny t = tiny_gemma3();
        char path[128];
        t.tokenizer = true;
        if (!tiny_write(&t, tiny_path(path, "options"))) fail();
        assert_int_equal(gem_model_open_engine(&m, path, &bad[i].o, &e, &err), GEM_E_ARG);
        unlink(path);
        if (!strstr(err.text, bad[i].says))
            fail_msg("\"%s\" does not name %s", err.text, bad[i].says);
        assert_null(m);
    }
    gem_model *m;
    gem_error err;
    const gem_model_options o = {.backend = "abacus"};
    assert_int_equal(gem_model_open(&m, "x.gguf", &o, &err), GEM_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cpu"));
    assert_int_equal(gem_model_open(&m, "no-such-file.gguf", NULL, &err), GEM_E_IO);
}

static void test_config_names_what_runs(void **state)
{
    (void)state;
    const gem_model_options o = {
        .n_ctx = 256, .n_batch = 64, .n_sessions = 1, .kv_type = GEM_KV_F16_FULL, .n_threads = 3};
    gem_model *m = open_tiny(&o, 0);
    char *text = gem_model_config_json(m);
    assert_non_null(text);
    json_t *j = json_loads(text, 0, NULL), *kv = json_object_get(j, "kv");
    assert_string_equal(json_string_value(json_object_get(j, "backend")), "fake");
    assert_int_equal(json_integer_value(json_object_get(j, "threads")), 3);
    assert_string_equal(json_string_value(json_object_get(kv, "type")), "f16-full");
    assert_int_equal(json_array_size(json_object_get(kv, "pools")), 2);
    /* one global layer: 4 pages and one to copy into, f16; six sliding: 4 held, 2 for a checkpoint,
     * 1 */
    uint64_t page = 2 * 64 * 32;
    assert_int_equal(json_integer_value(json_object_get(kv, "bytes")),
                     5 * page * 2 + 6 * (4 + 2 + 1) * page * 4);
    /* a full context of 256 without pages: one layer of all of it in f16, six of their window in
     * f32 */
    json_t *layers = json_object_get(kv, "layers"), *sliding = json_array_get(layers, 0);
    json_int_t window = json_integer_value(json_object_get(sliding, "window"));
    assert_int_equal(json_array_size(layers), 2);
    assert_true(window > 0 && window < 256);
    assert_int_equal(json_integer_value(json_object_get(sliding, "layers")), 6);
    assert_int_equal(json_integer_value(json_object_get(kv, "context_bytes")),
                     2 * 32 * (256 * 2 + 6 * window * 4));
    const char *digest =
        json_string_value(json_object_get(json_object_get(j, "model"), "manifest_sha256"));
    assert_int_equal(strlen(digest), 64);
    char again[65];
    assert_int_equal(gem_manifest_digest(m->file, again, NULL), GEM_OK);
    assert_string_equal(digest, again);
    json_decref(j);
    free(text);
    gem_model_info info;
    gem_model_get_info(m, &info);
    assert_string_equal(info.family, "gemma3");
    assert_string_equal(info.name, "tiny");
    assert_int_equal(info.n_vocab, 300);
    assert_int_equal(info.bos, 2);
    close_clean(m);

    tiny t = tiny_gemma3(); /* one key differs, so does the digest */
    char path[128], other[65];
    gem_gguf *g;
    t.tokenizer = true;
    t.window = 101;
    if (!tiny_write(&t, tiny_path(path, "digest"))) fail();
    assert_int_equal(gem_gguf_open(&g, path, NULL), GEM_OK);
    unlink(path);
    assert_int_equal(gem_manifest_digest(g, other, NULL), GEM_OK);
    assert_string_not_equal(other, again);
    gem_gguf_close(g);
}

static void test_vocab_only(void **state)
{
    (void)state;
    const gem_model_options o = {.vocab_only = true};
    gem_model *m = open_tiny(&o, 0);
    gem_session *s;
    gem_error err;
    assert_int_equal(gem_session_new(&s, m, &err), GEM_E_ARG);
    int32_t *ids;
    size_t n, len;
    assert_int_equal(gem_tokenize(m, "abc", 3, GEM_TOK_BOS, &ids, &n, &err), GEM_OK);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], 2);
    assert_memory_equal(gem_token_bytes(m, ids[2], false, &len), "b", 1);
    assert_int_equal(len, 1);
    gem_token_bytes(m, 300, false, &len);
    assert_int_equal(len, 0);
    gem_token_bytes(m, -1, false, &len);
    assert_int_equal(len, 0);
    assert_true(gem_token_is_end(m, 1));
    assert_false(gem_token_is_end(m, 300));
    free(ids);
    char *text = gem_model_config_json(m);
    assert_non_null(text);
    free(text);
    close_clean(m);
}

static void push(gem_detokenizer *d, int32_t byte, const char *want)
{
    size_t len;
    const char *got = gem_detokenizer_push(d, byte + 4, &len); /* byte tokens start at 4 */
    if (len != strlen(want) || memcmp(got, want, len) != 0)
        fail_msg("byte %02x gives \"%.*s\", expected \"%s\"", (unsigned)byte, (int)len, got, want);
}

static void test_detokenizer_gives_whole_characters(void **state)
{
    (void)state;
    const gem_model_options o = {.vocab_only = true};
    gem_model *m = open_tiny(&o, 0);
    gem_detokenizer *d;
    size_t len;
    assert_int_equal(gem_detokenizer_new(&d, m, false, NULL), GEM_OK);
    push(d, 'x', "x");
    push(d, 0xE2, "");
    push(d, 0x82, "");
    push(d, 0xAC, "\xE2\x82\xAC");
    push(d, 0xF0, "");
    push(d, 0x9F, "");
    push(d, 'y', "\xEF\xBF\xBD\xEF\xBF\xBDy"); /* what can no longer become a character */
    push(d, 0xC3, "");
    assert_memory_equal(gem_detokenizer_finish(d, &len), "\xEF\xBF\xBD", 3);
    assert_int_equal(len, 3);
    gem_detokenizer_finish(d, &len);
    assert_int_equal(len, 0);
    gem_detokenizer_push(d, 2, &len); /* a control token is silent */
    assert_int_equal(len, 0);
    gem_detokenizer_free(d);
    assert_int_equal(gem_detokenizer_new(&d, m, true, NULL), GEM_OK);
    assert_memory_equal(gem_detokenizer_push(d, 2, &len), "<bos>", 5);
    gem_detokenizer_free(d);
    close_clean(m);
}

static void test_decode_allocates_nothing(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    const gem_model_options o = {.n_ctx = 1024, .n_batch = 64, .n_sessions = 2};
    gem_model *m = open_tiny(&o, 0);
    gem_session *s = new_session(m), *b = new_session(m);
    gem_sampler_options so;
    gem_sampler_defaults(&so);
    so.temperature = 0.7f;
    so.top_k = 40;
    so.repetition_penalty = 1.1f;
    gem_sampler *sampler;
    gem_detokenizer *d;
    gem_error err;
    const float *x, *y[2];
    int32_t prompt[100] = {0}, token = 7;
    size_t len;
    assert_int_equal(gem_sampler_new(&sampler, 300, &so, &err), GEM_OK);
    assert_int_equal(gem_detokenizer_new(&d, m, false, &err), GEM_OK);
    size_t before = n_allocations;
    assert_int_equal(gem_session_prefill(s, prompt, 100, NULL, NULL, &x, &err), GEM_OK);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(gem_session_decode(s, token, &x, &err), GEM_OK);
        assert_int_equal(gem_sampler_draw(sampler, x, &token, &err), GEM_OK);
        gem_sampler_accept(sampler, token);
        gem_detokenizer_push(d, token, &len);
        const gem_row rows[2] = {{s, token, true}, {b, token, true}};
        assert_int_equal(gem_batch_run(m, rows, 2, y, &err), GEM_OK);
    }
    assert_int_equal(n_allocations - before, 0);
    gem_detokenizer_free(d);
    gem_sampler_free(sampler);
    gem_session_free(s);
    gem_session_free(b);
    close_clean(m);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_do_not_matter),
        cmocka_unit_test(test_a_full_context),
        cmocka_unit_test(test_bad_tokens),
        cmocka_unit_test(test_progress_and_cancel),
        cmocka_unit_test(test_batch_of_several_sessions),
        cmocka_unit_test(test_a_batch_is_all_or_nothing),
        cmocka_unit_test(test_want_flags_of_one_session),
        cmocka_unit_test(test_draws_where_logits_are),
        cmocka_unit_test(test_draws_of_another_run_are_refused),
        cmocka_unit_test(test_device_failure),
        cmocka_unit_test(test_sessions_are_limited),
        cmocka_unit_test(test_ways_back),
        cmocka_unit_test(test_options_are_checked_by_name),
        cmocka_unit_test(test_config_names_what_runs),
        cmocka_unit_test(test_vocab_only),
        cmocka_unit_test(test_detokenizer_gives_whole_characters),
        cmocka_unit_test(test_decode_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
