/* The drafter that comes in a file of its own beside a Gemma 4 model: its guesses against another
 * engine's (tests/golden/synth/gemma4-assistant-tiny.json), on every way to a position, through
 * speculation, and its refusals. gem-synth-model makes both files, byte for byte. */
#include "golden.h"
#include "slow_build.h"
#include "speculate_check.h"

#include <unistd.h>

#define BOUND 0.001 /* of a logit, exact mode */

/* A slow build takes the reference's shortest runs, and one KV type. */
enum { SLOW = SLOW_BUILD, LONGEST = SLOW ? 60 : 2000 };

enum { CTX = 1280, N_VOCAB = 1024 };

static const char *made_path(char out[128], const char *args, int which)
{
    char line[512];
    snprintf(out, 128, "assistant-%d-%ld.gguf", which, (long)getpid());
    snprintf(line, sizeof(line), "%s/gem-synth-model %s --quiet -o %s >/dev/null", GEM_BIN_DIR,
             args, out);
    assert_int_equal(system(line), 0);
    return out;
}

typedef struct setting {
    const char *model, *drafter; /* arguments of gem-synth-model */
    gem_kv_type kv;
    int n_threads;
    int32_t n_ctx;
    bool exact;
    void (*change)(gem_plan *p);
} setting;

static gem_status open_pair(gem_model **m, const setting *s, gem_error *err)
{
    char model[128], drafter[128];
    const gem_model_options o = {.n_ctx = s->n_ctx ? s->n_ctx : CTX,
                                 .n_batch = 128,
                                 .n_sessions = 3,
                                 .n_threads = s->n_threads ? s->n_threads : 2,
                                 .kv_type = s->kv,
                                 .exact = s->exact,
                                 .drafter_path = made_path(drafter, s->drafter, 1)};
    const gem_engine_options e = {.ops = gem_backend_find("cpu"), .change_plan = s->change};
    gem_status st = gem_model_open_engine(m, made_path(model, s->model, 0), &o, &e, err);
    unlink(model);
    unlink(drafter);
    return st;
}

static gem_model *open_ok(const setting *s)
{
    gem_model *m;
    gem_error err;
    if (open_pair(&m, s, &err) != GEM_OK) fail_msg("%s", err.text);
    return m;
}

static void fill(int32_t *tokens, int32_t n)
{
    uint64_t x = 12345;
    tokens[0] = 2;
    for (int32_t i = 1; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = 300 + (int32_t)((x >> 33) % (N_VOCAB - 300));
    }
}

static int32_t best_of(const float *x)
{
    int32_t best = 0;
    for (int32_t i = 1; i < N_VOCAB; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* ---- numbers ---- */

static void check_row(const json_t *row, const float *x, int32_t n, size_t guess)
{
    const json_t *few = json_array_get(row, 2);
    const int32_t best = (int32_t)json_integer_value(json_array_get(row, 0));
    double sum = 0;
    assert_int_equal(best_of(x), best);
    for (int32_t i = 0; i < N_VOCAB; i++)
        sum += exp((double)x[i] - (double)x[best]);
    if (!(fabs((double)x[best] + log(sum) - json_number_value(json_array_get(row, 1))) <= BOUND))
        fail_msg("behind %d tokens, guess %zu: another sum", n, guess);
    assert_int_equal(json_array_size(few), (N_VOCAB + 60) / 61);
    for (size_t i = 0; i < json_array_size(few); i++) {
        double want = json_number_value(json_array_get(few, i)), got = (double)x[61 * i];
        if (!(fabs(got - want) <= BOUND))
            fail_msg("behind %d tokens, guess %zu, logit %zu: %.7g, wanted %.7g", n, guess, 61 * i,
                     got, want);
    }
}

static void check_run(gem_model *m, const json_t *run)
{
    int32_t tokens[CTX], n = (int32_t)golden_number(run, "n");
    const float *x;
    gem_error err;
    gem_session *s;
    const json_t *guesses = json_object_get(run, "guesses");
    fill(tokens, n + 1);
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_session_prefill(s, tokens, (size_t)n, NULL, NULL, &x, &err), GEM_OK);
    assert_int_equal(json_array_size(guesses), 8);
    int32_t token = tokens[n];
    for (size_t i = 0; i < 8; i++) {
        if (gem_session_guess(s, token, (int32_t)i, &x, &err) != GEM_OK) fail_msg("%s", err.text);
        check_row(json_array_get(guesses, i), x, n, i);
        token = best_of(x);
    }
    gem_session_guess_end(s);
    gem_session_free(s);
}

static void test_guesses_are_the_other_engines(void **state)
{
    (void)state;
    json_t *root = golden_json("synth", "gemma4-assistant-tiny"), *run;
    const json_t *args = json_object_get(root, "arguments"), *runs = json_object_get(root, "runs");
    static const gem_kv_type types[] = {GEM_KV_F32, GEM_KV_F32_VALUES};
    size_t i;
    assert_int_equal((int32_t)golden_number(root, "n_vocab"), N_VOCAB);
    assert_int_equal(json_array_size(runs), 7);
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        const setting s = {.model = json_string_value(json_array_get(args, 0)),
                           .drafter = json_string_value(json_array_get(args, 1)),
                           .kv = types[t],
                           .exact = true};
        gem_model *m = open_ok(&s);
        json_array_foreach(runs, i, run)
        {
            /* keys made of values are the same bits (gem.same_bits): the short runs are enough */
            if (golden_number(run, "n") <= (t ? GEM_MIN(300, LONGEST) : LONGEST)) check_run(m, run);
        }
        gem_model_close(m);
    }
    json_decref(root);
}

/* ---- the same bits on every way ---- */

static void guess_bits(gem_session *s, float *out)
{
    const float *x;
    gem_error err;
    for (int32_t i = 0, token = 777; i < 4; i++) {
        if (gem_session_guess(s, token, i, &x, &err) != GEM_OK) fail_msg("%s", err.text);
        memcpy(out + (size_t)i * N_VOCAB, x, N_VOCAB * sizeof(*x));
        token = best_of(x);
    }
    gem_session_guess_end(s);
}

static void run_tokens(gem_session *s, const int32_t *tokens, int32_t n, int32_t piece)
{
    const float *x;
    gem_error err;
    for (int32_t at = 0, k; at < n; at += k) {
        k = GEM_MIN(piece, n - at);
        if (gem_session_prefill(s, tokens + at, (size_t)k, NULL, NULL, &x, &err) != GEM_OK)
            fail_msg("%s", err.text);
    }
}

static void test_guesses_do_not_depend_on_the_way(void **state)
{
    (void)state;
    enum { N = 300 };
    static float want[4 * N_VOCAB], got[4 * N_VOCAB];
    static const gem_kv_type types[] = {GEM_KV_F32, GEM_KV_F16, GEM_KV_F32_VALUES};
    static const int32_t pieces[] = {3, 65, 128};
    int32_t tokens[N + 13];
    fill(tokens, N + 13);
    for (size_t t = SLOW; t < (SLOW ? 2 : ARRAY_LEN(types)); t++)
        for (int threads = 1 + SLOW; threads <= 2; threads++) {
            const setting how = {"-p gemma4-tiny -q q4_0", "-p gemma4-assistant-tiny -q q8_0",
                                 .kv = types[t], .n_threads = threads};
            gem_model *m = open_ok(&how);
            for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
                gem_session *s;
                assert_int_equal(gem_session_new(&s, m, NULL), GEM_OK);
                run_tokens(s, tokens, N, pieces[i]);
                guess_bits(s, i == 0 && threads == 1 + SLOW ? want : got);
                if (i || threads > 1 + SLOW) assert_memory_equal(got, want, sizeof(want));
                /* forward and back again, as after a round of wrong guesses; and guessed twice */
                run_tokens(s, tokens + N, 13, pieces[i]);
                assert_int_equal(gem_session_trim(s, N, NULL), GEM_OK);
                guess_bits(s, got);
                assert_memory_equal(got, want, sizeof(want));
                guess_bits(s, got);
                assert_memory_equal(got, want, sizeof(want));
                gem_session_free(s);
            }
            gem_model_close(m);
        }
}

/* ---- speculation ---- */

static gem_tensor first_half; /* rows of the identity, then zeros */
static float zeros[256];

/* Layers add nothing, and the drafter computes from its token what the model computes from it: each
 * guess must be kept. */
static void copy_the_model(gem_plan *p)
{
    static float identity[256][512];
    const gem_op *model_head = &p->op[p->draft_op - 1];
    for (int i = 0; i < 256; i++)
        identity[i][i] = 1.0f;
    first_half = (gem_tensor){.name = "identity",
                              .dtype = GEM_DTYPE_F32,
                              .n_dims = 2,
                              .dim = {512, 256, 1, 1},
                              .data = (const uint8_t *)identity,
                              .bytes = sizeof(identity),
                              .row_bytes = sizeof(identity[0])};
    gem_op *last = NULL, *last_drafted = NULL;
    for (size_t i = 0; i < p->n_ops; i++) {
        gem_op *op = &p->op[i];
        if (op->kind != GEM_OP_RESIDUAL) continue;
        op->residual.post_norm = zeros;
        op->residual.out_scale = 1.0f;
        *(i < p->draft_op ? &last : &last_drafted) = op;
    }
    last_drafted->residual.next_norm = last->residual.next_norm;
    p->op[p->draft_op + 2].linear.w[0] = &first_half;
    p->op[p->n_ops - 1].head.w = model_head->head.w;
}

static void test_a_copy_of_the_model_guesses_right(void **state)
{
    (void)state;
    const setting how = {"-p gemma4-tiny -q f32", "-p gemma4-assistant-tiny -q f32 --d-model 256",
                         .exact = true, .change = copy_the_model};
    gem_model *m = open_ok(&how);
    int32_t prompt[30];
    gem_sampler_options so;
    gem_drafter *d;
    plain_run p;
    fill(prompt, 30);
    gem_sampler_defaults(&so);
    check_plain(&p, m, &so, prompt, 30, 100);
    assert_int_equal(gem_drafter_own(&d, m, NULL), GEM_OK);
    gem_draft_stats s = check_speculation(&p, m, &so, d, 4, "a copy of the model");
    assert_true(p.n > 20);
    assert_true(gem_draft_stats_drafted(&s) >= (uint64_t)(p.n - 1) * 4 / 5 - 4);
    assert_int_equal(gem_draft_stats_accepted(&s), gem_draft_stats_drafted(&s));
    gem_drafter_free(d);
    free(p.last);
    gem_model_close(m);
}

static void test_speculation_changes_no_token(void **state)
{
    (void)state;
    const setting how = {.model = "-p gemma4-tiny -q q4_0",
                         .drafter = "-p gemma4-assistant-tiny -q q4_0"};
    gem_model *m = open_ok(&how);
    int32_t prompt[300];
    gem_drafter *d;
    fill(prompt, 300);
    assert_int_equal(gem_drafter_own(&d, m, NULL), GEM_OK);
    for (int sampled = 0; sampled < 2; sampled++) {
        plain_run p;
        gem_sampler_options so;
        gem_sampler_defaults(&so);
        if (sampled) {
            so.temperature = 0.9f;
            so.seed = 11;
        }
        check_plain(&p, m, &so, prompt, sampled && !SLOW ? 300 : 1, SLOW ? 20 : 60);
        check_speculation(&p, m, &so, d, 5, "random weights");
        free(p.last);
    }
    gem_drafter_free(d);
    gem_model_close(m);
}

/* An empty session has no hidden vector to go on from, a full one no position. */
static void test_where_there_is_no_guess(void **state)
{
    (void)state;
    enum { N = 128 };
    const setting how = {.model = "-p gemma4-tiny -q q8_0",
                         .drafter = "-p gemma4-assistant-tiny -q q8_0",
                         .n_ctx = N};
    gem_model *m = open_ok(&how);
    int32_t tokens[N];
    const float *x;
    gem_session *s;
    gem_error err;
    fill(tokens, N);
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_session_guess(s, 5, 0, &x, &err), GEM_E_RANGE);
    run_tokens(s, tokens, N - 1, N);
    assert_int_equal(gem_session_guess(s, 5, 0, &x, &err), GEM_OK);
    run_tokens(s, tokens, 1, 1);
    assert_int_equal(gem_session_guess(s, 5, 0, &x, &err), GEM_E_RANGE);
    gem_session_free(s);
    gem_model_close(m);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *model, *drafter, *says;
        gem_status st;
    } cases[] = {
        {"-p gemma4-tiny", "-p gemma4-assistant-tiny --vocab 1030", "vocabulary", GEM_E_ARG},
        {"-p gemma4-tiny --d-model 512", "-p gemma4-assistant-tiny", "embedding_length_out",
         GEM_E_FORMAT},
        {"-p gemma4-tiny --head-dim 32", "-p gemma4-assistant-tiny", "attention.key_length_swa",
         GEM_E_FORMAT},
        {"-p gemma4-tiny --kv-heads 8", "-p gemma4-assistant-tiny", "attention.head_count_kv",
         GEM_E_FORMAT},
        {"-p gemma4-tiny --window 128", "-p gemma4-assistant-tiny", "attention.sliding_window",
         GEM_E_FORMAT},
        {"-p gemma4-tiny", "-p gemma4-tiny", "no drafter that runs beside a model",
         GEM_E_UNSUPPORTED},
        {"-p gemma3-tiny", "-p gemma4-assistant-tiny", "vocabulary", GEM_E_ARG},
        {"-p gemma4-assistant-tiny", "-p gemma4-assistant-tiny", "--draft FILE", GEM_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const setting s = {.model = cases[i].model, .drafter = cases[i].drafter, .n_ctx = 128};
        gem_model *m;
        gem_error err = {0};
        assert_int_equal(open_pair(&m, &s, &err), cases[i].st);
        assert_null(m);
        if (!strstr(err.text, cases[i].says)) fail_msg("case %zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guesses_are_the_other_engines),
        cmocka_unit_test(test_guesses_do_not_depend_on_the_way),
        cmocka_unit_test(test_a_copy_of_the_model_guesses_right),
        cmocka_unit_test(test_speculation_changes_no_token),
        cmocka_unit_test(test_where_there_is_no_guess),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
