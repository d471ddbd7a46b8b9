/* Logits of synthetic models against another engine's F32 run (tests/golden/synth). gem-synth-model
 * remakes each model, byte for byte, so no model is fetched. Exact mode: every committed logit and
 * the log of the sum of exp of its whole row within 0.001, equal argmax where the best two are
 * further apart; at every position of the F32 file. Fast path: KL over the best tokens and one
 * class for all others no larger than that of the other engine's own quantised run. */
#include "golden.h"
#include "slow_build.h"

#include <sys/wait.h>

#define BOUND 0.001
#define MIN_REST 1e-6 /* mass outside the top, as in make_golden.py */

/* Positions of a run, for time: the quantised files differ from the F32 one only in how weights are
 * read, and a sanitizer build is slow. */
enum {
    EXACT_END = SLOW_BUILD ? 130 : 700,
    FAST_END = SLOW_BUILD ? 130 : 1 << 20,
    F32_END = SLOW_BUILD ? 300 : 1 << 20
};
enum { ROW_IDS, ROW_LOGITS, ROW_LSE, ROW_FIXED, N_TOP = 4 };

static const char *const goldens[] = {
    "gemma4-tiny-f32", "gemma4-tiny-q8_0",     "gemma4-tiny-q4_0",  "gemma4-tiny-q4_k_m",
    "qwen35-tiny-f32", "qwen35-tiny-2-q4_k_m", "qwen35-tiny-1-q8_0"};

typedef struct check {
    golden g;
    const char *name;
    const json_t *rows, *positions;
    uint8_t *want; /* [g.n] */
    size_t row;    /* next */
    bool exact;
    double worst, kl;
    int32_t differs;
} check;

static double item(const json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

static double log_sum_exp(const float *x, int32_t n)
{
    double top = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum);
}

static void near(check *c, int32_t pos, const char *what, int32_t id, double got, double want)
{
    double d = fabs(got - want);
    if (!(d <= BOUND)) /* also NaN */
        fail_msg("%s, position %d: %s %d is %.7g, wanted %.7g", c->name, pos, what, id, got, want);
    c->worst = fmax(c->worst, d);
}

static void exact_row(check *c, int32_t pos, const json_t *row, const float *x, int32_t best)
{
    const json_t *ids = json_array_get(row, ROW_IDS), *logits = json_array_get(row, ROW_LOGITS);
    const json_t *fixed = json_object_get(c->g.root, "fixed_ids");
    for (size_t i = 0; i < N_TOP; i++)
        near(c, pos, "logit", (int32_t)item(ids, i), (double)x[(int32_t)item(ids, i)],
             item(logits, i));
    for (size_t i = 0; i < json_array_size(fixed); i++)
        near(c, pos, "logit", (int32_t)item(fixed, i), (double)x[(int32_t)item(fixed, i)],
             item(json_array_get(row, ROW_FIXED), i));
    near(c, pos, "log of the sum of exp, vocabulary", c->g.n_vocab, log_sum_exp(x, c->g.n_vocab),
         json_number_value(json_array_get(row, ROW_LSE)));
    if (item(logits, 0) - item(logits, 1) > BOUND && best != (int32_t)item(ids, 0))
        fail_msg("%s, position %d: the best token is %d, wanted %d", c->name, pos, best,
                 (int32_t)item(ids, 0));
}

/* KL(golden || gem) over N_TOP tokens and one class for all others. */
static double kl_top(const json_t *row, const float *x, int32_t n_vocab)
{
    const json_t *ids = json_array_get(row, ROW_IDS), *logits = json_array_get(row, ROW_LOGITS);
    double lse_p = json_number_value(json_array_get(row, ROW_LSE)), lse_q = log_sum_exp(x, n_vocab);
    double rest_p = 1, rest_q = 1, kl = 0;
    for (size_t i = 0; i < N_TOP; i++) {
        double log_p = item(logits, i) - lse_p, log_q = (double)x[(int32_t)item(ids, i)] - lse_q;
        kl += exp(log_p) * (log_p - log_q);
        rest_p -= exp(log_p);
        rest_q -= exp(log_q);
    }
    rest_p = fmax(rest_p, MIN_REST);
    rest_q = fmax(rest_q, MIN_REST);
    return kl + rest_p * log(rest_p / rest_q);
}

static void one_row(void *user, int32_t pos, const float *x)
{
    check *c = user;
    const json_t *row = json_array_get(c->rows, c->row);
    int32_t best = 0;
    assert_int_equal(item(c->positions, c->row++), pos);
    for (int32_t i = 1; i < c->g.n_vocab; i++)
        if (x[i] > x[best]) best = i;
    if (c->exact) {
        exact_row(c, pos, row, x, best);
    } else {
        c->kl += kl_top(row, x, c->g.n_vocab);
        c->differs += best != (int32_t)item(json_array_get(row, ROW_IDS), 0);
    }
}

static void make_model(const golden *g, const char *path)
{
    char line[1024], hex[65];
    gem_error err = {0};
    snprintf(line, sizeof(line), "%s/gem-synth-model --quiet %s --out %s >/dev/null", GEM_BIN_DIR,
             json_string_value(json_object_get(g->root, "arguments")), path);
    int status = system(line);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (gem_sha256_file(path, hex, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_string_equal(hex, json_string_value(json_object_get(g->root, "model_sha256")));
}

static void run(check *c, const char *path, bool exact, int32_t end)
{
    gem_model *m;
    size_t n = 0;
    c->exact = exact;
    c->row = 0;
    memset(c->want, 0, (size_t)c->g.n);
    for (; n < json_array_size(c->positions) && item(c->positions, n) < end; n++)
        c->want[(int32_t)item(c->positions, n)] = 1;
    assert_true(golden_model(&m, path, &c->g, exact, getenv("GEM_CPU_ISA")));
    golden_run(m, &c->g, c->want, one_row, c);
    gem_model_close(m);
    assert_int_equal(c->row, n);
}

static void check_golden(const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "synth-logits-%ld.gguf", (long)getpid());
    check c = {.g = golden_read("synth", name), .name = name};
    c.rows = json_object_get(c.g.root, "rows");
    c.positions = json_object_get(c.g.root, "positions");
    c.want = calloc((size_t)c.g.n, 1);
    assert_non_null(c.want);
    const json_t *peer = json_object_get(c.g.root, "quantised");
    make_model(&c.g, path);
    run(&c, path, true, peer ? EXACT_END : F32_END);
    print_message("%s, exact: %zu rows, largest difference %.3g\n", name, c.row, c.worst);
    if (peer && FAST_END > c.g.n) {
        run(&c, path, false, FAST_END);
        double kl = c.kl / (double)c.row, peer_kl = golden_number(peer, "mean_kl_top");
        print_message("%s, fast: mean KL (top 4 and rest) %.4g, the other engine's %.4g; argmax "
                      "differs %d times, the other's %d\n",
                      name, kl, peer_kl, c.differs, (int)golden_number(peer, "argmax_differs"));
        assert_true(kl <= peer_kl);
    }
    unlink(path);
    free(c.want);
    golden_close(&c.g);
}

static void test_logits(void **state)
{
    check_golden(*state);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(goldens)];
    memset(tests, 0, sizeof(tests));
    for (size_t i = 0; i < ARRAY_LEN(goldens); i++)
        tests[i] = (struct CMUnitTest){
            .name = goldens[i], .test_func = test_logits, .initial_state = (void *)goldens[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
