/* Speculative decoding gives what plain decoding gives, whatever is guessed: on the backend that
 * hashes what it may see (windowed layers, recurrent layers) and on small models with seeded
 * weights. */
#include "count_malloc.h"
#include "fake_backend.h"
#include "slow_build.h"
#include "speculate_check.h"
#include "tiny_model.h"

static gem_model *open_file(const char *path, const gem_backend_ops *ops,
                            void (*change)(gem_plan *))
{
    gem_model *m;
    gem_error err = {0};
    const gem_model_options o = {
        .n_ctx = 512, .n_batch = 64, .n_sessions = 2, .n_threads = 2, .state_bytes = -1};
    const gem_engine_options e = {.ops = ops, .change_plan = change};
    gem_status st = gem_model_open_engine(&m, path, &o, &e, &err);
    unlink(path);
    if (st != GEM_OK) fail_msg("%s", err.text);
    return m;
}

static gem_model *open_model(tiny t, const gem_backend_ops *ops, void (*change)(gem_plan *))
{
    char path[128];
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "speculate"))) fail();
    return open_file(path, ops, change);
}

static gem_model *open_synthetic(const char *args)
{
    char path[128], line[512];
    snprintf(line, sizeof(line), "%s/gem-synth-model %s --quiet -o %s >/dev/null", GEM_BIN_DIR,
             args, tiny_path(path, "speculate"));
    assert_int_equal(system(line), 0);
    return open_file(path, gem_backend_find(NULL), NULL);
}

static gem_sampler_options sampler_options(int kind)
{
    gem_sampler_options so;
    gem_sampler_defaults(&so);
    so.seed = (uint64_t)kind + 5;
    if (kind == 0) return so; /* greedy */
    so.temperature = 0.8f;
    if (kind == 1) so.top_k = 40;
    if (kind == 2) so.top_p = 0.9f;
    so.repetition_penalty = 1.2f;
    so.presence_penalty = 0.3f;
    return so;
}

static void fill_prompt(int32_t *prompt, int32_t n, int32_t salt)
{
    for (int32_t i = 0; i < n; i++)
        prompt[i] = (i * 11 + salt * 37 + i / 7) % 299;
}

/* A run long enough to cross pages and the window; seeds are tried until none ends early. */
static plain_run long_run(gem_model *m, gem_sampler_options *so, int32_t *prompt, int32_t n_prompt,
                          int32_t n)
{
    for (int32_t salt = 0; salt < 100; salt++) {
        plain_run p;
        fill_prompt(prompt, n_prompt, salt);
        check_plain(&p, m, so, prompt, n_prompt, n);
        if (p.n == n) return p;
        free(p.last);
    }
    fail_msg("every run ends before %d tokens", n);
    return (plain_run){0};
}

static void check_model(gem_model *m, int32_t n, int32_t step)
{
    int32_t prompt[40];
    for (int kind = 0; kind < 3; kind++) {
        gem_sampler_options so = sampler_options(kind);
        plain_run p = long_run(m, &so, prompt, 40, n);
        check_acceptance_lengths(&p, m, &so, SLOW_BUILD ? 20 : step);
        gem_drafter *d;
        assert_int_equal(gem_drafter_ngram(&d, NULL), GEM_OK);
        check_speculation(&p, m, &so, d, GEM_DRAFT_MAX, "ngram");
        gem_drafter_free(d);
        free(p.last);
    }
}

static void test_windowed_layers(void **state)
{
    (void)state;
    gem_model *m = open_model(tiny_gemma3(), &fake_ops, NULL);
    check_model(m, SLOW_BUILD ? 130 : 170, 1);
    assert_int_equal(fake->n_missing, 0);
    gem_model_close(m);
}

static void test_recurrent_layers(void **state)
{
    (void)state;
    gem_model *m = open_model(tiny_gemma3(), &fake_ops, fake_hybrid);
    check_model(m, SLOW_BUILD ? 130 : 170, 1);
    assert_int_equal(fake->n_violations, 0);
    gem_model_close(m);
}

/* Over a backend that keeps logits: rounds drawn from the tops of their rows, or from all. */
static void test_logits_that_stay(void **state)
{
    (void)state;
    gem_model *m = open_model(tiny_gemma3(), fake_keeping_ops(), NULL);
    check_model(m, 100, 10);
    assert_true(fake->n_tops > 100);
    assert_int_equal(fake->n_fetched, 0);
    gem_model_close(m);
}

/* Rounds never run a token twice: rows are the guesses and one a round. */
static void test_a_round_costs_its_rows(void **state)
{
    (void)state;
    gem_model *m = open_model(tiny_gemma3(), &fake_ops, fake_hybrid);
    gem_sampler_options so = sampler_options(1);
    int32_t prompt[40];
    plain_run p = long_run(m, &so, prompt, 40, 200);
    knowing_drafter d = {{"knowing", knowing_draft, knowing_free, NULL}, &p, 3, 300};
    int64_t before = fake->n_rows;
    gem_draft_stats s = check_speculation(&p, m, &so, &d.base, 8, "rows");
    int64_t rows = 40 + (int64_t)s.rounds + (int64_t)gem_draft_stats_drafted(&s) + 1;
    assert_int_equal(fake->n_rows - before, rows); /* the prompt, the rounds, one to compare */
    free(p.last);
    gem_model_close(m);
}

static void test_small_models(void **state)
{
    (void)state;
    const tiny models[] = {tiny_gemma3(), tiny_qwen2(), tiny_gemma4()};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        gem_model *m = open_model(models[i], gem_backend_find(NULL), NULL);
        check_model(m, 120, 7);
        gem_model_close(m);
    }
}

/* Chunks, states and tapes of the real kernels; without snapshots. */
static void test_small_hybrid(void **state)
{
    (void)state;
    gem_model *m = open_synthetic("-p qwen35-tiny -q q4_k_m --layers 4");
    int32_t prompt[40];
    gem_sampler_options so = sampler_options(1);
    plain_run p = long_run(m, &so, prompt, 40, 100);
    check_acceptance_lengths(&p, m, &so, 8);
    free(p.last);
    gem_model_close(m);
}

/* Another model's guesses: itself (all right), and one with other weights. */
static void test_a_model_as_drafter(void **state)
{
    (void)state;
    tiny other = tiny_gemma3();
    other.layers = 2;
    other.ctx = 256; /* its context ends before the target's */
    gem_model *m = open_model(tiny_gemma3(), gem_backend_find(NULL), NULL),
              *twin = open_model(tiny_gemma3(), gem_backend_find(NULL), NULL),
              *small = open_model(other, gem_backend_find(NULL), NULL),
              *foreign = open_model(tiny_qwen2(), gem_backend_find(NULL), NULL);
    int32_t prompt[40];
    gem_sampler_options so = sampler_options(0);
    plain_run p = long_run(m, &so, prompt, 40, 300);
    gem_drafter *d;
    gem_error err;
    assert_int_equal(gem_drafter_model(&d, twin, m, &err), GEM_OK);
    gem_draft_stats s = check_speculation(&p, m, &so, d, 5, "twin");
    assert_int_equal(gem_draft_stats_accepted(&s), gem_draft_stats_drafted(&s));
    assert_int_equal(s.rounds, (299 + 5) / 6);
    check_speculation(&p, m, &so, d, 2, "twin again"); /* its session goes back to the prompt */
    gem_drafter_free(d);
    assert_int_equal(gem_drafter_model(&d, small, m, &err), GEM_OK);
    check_speculation(&p, m, &so, d, 8, "small");
    gem_drafter_free(d);
    assert_int_equal(gem_drafter_model(&d, foreign, m, &err), GEM_E_ARG);
    assert_non_null(strstr(err.text, "another vocabulary"));
    assert_null(d);
    free(p.last);
    gem_model_close(m);
    gem_model_close(twin);
    gem_model_close(small);
    gem_model_close(foreign);
}

static void test_end_tokens_and_the_end_of_the_context(void **state)
{
    (void)state;
    gem_model *m = open_model(tiny_gemma3(), &fake_ops, NULL);
    int32_t prompt[470];
    int n_ended = 0;
    for (int32_t salt = 0; salt < 60; salt++) {
        plain_run p;
        gem_sampler_options so = sampler_options(salt % 3);
        fill_prompt(prompt, 470, salt);
        check_plain(&p, m, &so, prompt, salt % 2 ? 470 : 30, 42);
        n_ended += p.n < 42;
        knowing_drafter d = {{"knowing", knowing_draft, knowing_free, NULL}, &p, salt % 9, 300};
        check_speculation(&p, m, &so, &d.base, 8, "to its end");
        free(p.last);
    }
    assert_in_range(n_ended, 3, 50);

    gem_session *s;
    gem_speculator *sp;
    gem_drafter *d;
    gem_sampler *sampler =
        check_sampler(m, &(gem_sampler_options){.top_p = 1, .repetition_penalty = 1}, NULL, 0);
    gem_error err;
    const float *x;
    int32_t out[GEM_DRAFT_MAX + 1], n_out, all[512] = {0};
    assert_int_equal(gem_drafter_ngram(&d, NULL), GEM_OK);
    s = check_session(m, all, 510, &x);
    assert_int_equal(gem_speculator_new(&sp, m, d, 0, &err), GEM_E_ARG);
    assert_int_equal(gem_speculator_new(&sp, m, d, 9, &err), GEM_E_ARG);
    assert_int_equal(gem_speculator_new(&sp, m, d, 8, &err), GEM_OK);
    assert_int_equal(gem_speculator_begin(sp, s, all, 509, &err), GEM_E_ARG);
    assert_int_equal(gem_speculate(sp, sampler, 0, 5, out, &n_out, &err), GEM_E_ARG);
    assert_int_equal(gem_speculator_begin(sp, s, all, 510, &err), GEM_OK);
    assert_int_equal(gem_speculate(sp, sampler, 0, 0, out, &n_out, &err), GEM_E_ARG);
    while (gem_session_position(s) < 512) {
        int32_t pos = gem_session_position(s);
        assert_int_equal(gem_speculate(sp, sampler, 0, 5, out, &n_out, &err), GEM_OK);
        assert_int_equal(gem_session_position(s), pos + n_out);
    }
    assert_int_equal(gem_speculate(sp, sampler, 0, 5, out, &n_out, &err), GEM_E_RANGE);
    assert_int_equal(n_out, 0);
    gem_speculator_free(sp);
    gem_session_free(s);
    gem_sampler_free(sampler);
    gem_drafter_free(d);
    gem_model_close(m);
}

static void expect_draft(const int32_t *tokens, int32_t n, int32_t max, const int32_t *want,
                         int32_t n_want)
{
    gem_drafter *d;
    int32_t out[GEM_DRAFT_MAX], got;
    assert_int_equal(gem_drafter_ngram(&d, NULL), GEM_OK);
    assert_int_equal(d->draft(d, tokens, n, max, out, &got, NULL), GEM_OK);
    assert_int_equal(got, n_want);
    if (n_want) assert_memory_equal(out, want, (size_t)n_want * sizeof(*want));
    gem_drafter_free(d);
}

static void test_prompt_lookup(void **state)
{
    (void)state;
    const int32_t a[] = {1, 2, 3, 4, 5, 9, 1, 2, 3, 7, 8, 6, 2, 3};
    expect_draft(a, 14, 8, (int32_t[]){7, 8},
                 2); /* 2 3 twice before: the latest; as many as matched */
    const int32_t b[] = {1, 2, 3, 4, 5, 9, 2, 3, 7, 8, 1, 2, 3};
    expect_draft(b, 13, 8, (int32_t[]){4, 5, 9}, 3); /* 1 2 3 is longer, though older */
    expect_draft(b, 13, 1, (int32_t[]){4}, 1);
    const int32_t c[] = {4, 5, 6, 7, 5};
    expect_draft(c, 5, 8, NULL, 0); /* one token alone says nothing */
    const int32_t e[] = {8, 5, 6, 5, 6, 5, 6};
    expect_draft(e, 7, 8, (int32_t[]){5, 6, 5, 6}, 4); /* a period goes on */
    const int32_t f[] = {7, 7, 7};
    expect_draft(f, 3, 8, (int32_t[]){7, 7}, 2);
    expect_draft(f, 1, 8, NULL, 0);
    expect_draft(f, 2, 8, NULL, 0);
    int32_t g[40];
    for (int32_t i = 0; i < 40; i++)
        g[i] = i % 20;
    expect_draft(g, 40, 8, (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
}

static void test_rounds_allocate_nothing(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    gem_model *m = open_model(tiny_gemma3(), &fake_ops, fake_hybrid);
    gem_sampler_options so = sampler_options(1);
    int32_t prompt[40], out[GEM_DRAFT_MAX + 1], n_out, token = 1;
    const float *x;
    gem_drafter *d;
    gem_speculator *sp;
    gem_error err;
    fill_prompt(prompt, 40, 1);
    gem_session *s = check_session(m, prompt, 40, &x);
    gem_sampler *sampler = check_sampler(m, &so, prompt, 40);
    assert_int_equal(gem_drafter_ngram(&d, NULL), GEM_OK);
    assert_int_equal(gem_speculator_new(&sp, m, d, 8, &err), GEM_OK);
    assert_int_equal(gem_speculator_begin(sp, s, prompt, 40, &err), GEM_OK);
    size_t before = n_allocations;
    while (gem_session_position(s) < 500) {
        assert_int_equal(gem_speculate(sp, sampler, token, 100, out, &n_out, &err), GEM_OK);
        token = out[0] % 5; /* repeats */
    }
    assert_int_equal(n_allocations - before, 0);
    gem_speculator_free(sp);
    gem_drafter_free(d);
    gem_sampler_free(sampler);
    gem_session_free(s);
    gem_model_close(m);
#else
    skip();
#endif
}

static void test_statistics_as_json(void **state)
{
    (void)state;
    const gem_draft_stats s = {.rounds = 4,
                               .tokens = 10,
                               .drafted_at = {4, 4, 2},
                               .accepted_at = {3, 2, 1},
                               .draft_ns = 5,
                               .verify_ns = 6};
    json_t *j = gem_draft_stats_json(&s, "ngram", 3);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "drafter")), "ngram");
    assert_int_equal(json_integer_value(json_object_get(j, "drafted")), 10);
    assert_int_equal(json_integer_value(json_object_get(j, "accepted")), 6);
    assert_true(json_real_value(json_object_get(j, "tokens_per_round")) == 2.5);
    assert_int_equal(json_array_size(json_object_get(j, "accepted_at")), 3);
    json_decref(j);
    j = gem_draft_stats_json(&(gem_draft_stats){0}, "model", 8); /* no round: no ratios */
    assert_true(json_is_null(json_object_get(j, "acceptance")));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windowed_layers),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_logits_that_stay),
        cmocka_unit_test(test_a_round_costs_its_rows),
        cmocka_unit_test(test_small_models),
        cmocka_unit_test(test_small_hybrid),
        cmocka_unit_test(test_a_model_as_drafter),
        cmocka_unit_test(test_end_tokens_and_the_end_of_the_context),
        cmocka_unit_test(test_prompt_lookup),
        cmocka_unit_test(test_rounds_allocate_nothing),
        cmocka_unit_test(test_statistics_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
