/* Logits of the real models against those of another engine's F32 run (tests/golden/logits).
 * Exact mode: every committed logit within 0.001, and with them the log of the sum of exp over the
 * whole row (which moves by at most the row's largest difference); equal argmax where the best two
 * are further apart than that. Fast path, long text: KL divergence over the eight best tokens and
 * one class for all others (a lower bound of the full one, taken the same way for both) and argmax
 * disagreements no larger than those of the other engine's own quantised run; correlation >= 0.999
 * and NMSE <= 0.001 at the last position, over every 61st logit. A model that has not been fetched
 * is skipped. */
#include "golden.h"

#define BOUND 0.001
#define MIN_REST 1e-6 /* mass outside the top, as in make_golden.py */

enum { GEMMA, QWEN, N_MODELS, N_TOP = 8 };
enum { ROW_IDS, ROW_LOGITS, ROW_LSE, ROW_FIXED }; /* row_format of the files */
static const char *const families[] = {"gemma", "qwen"};
static const char *const files[] = {REAL_GEMMA3, REAL_QWEN2};
static char paths[N_MODELS][4096];
static bool present[N_MODELS];

typedef struct check {
    const golden *g;
    const char *what;
    double worst; /* exact: the largest difference so far */
    int32_t worst_pos, rows;
    double kl; /* fast: sums over the rows */
    int32_t differs;
    double correlation, nmse; /* of the last row */
} check;

static double item(const json_t *array, size_t i)
{
    return json_number_value(json_array_get(array, i));
}

static const json_t *row_part(const check *c, int32_t pos, size_t part)
{
    return json_array_get(json_array_get(json_object_get(c->g->root, "rows"), (size_t)pos), part);
}

static int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* The terms in single precision, for speed: each is off by a few 1e-7 of itself. */
static double log_sum_exp(const float *x, int32_t n)
{
    float best = x[argmax(x, n)];
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)expf(x[i] - best);
    return (double)best + log(sum);
}

/* ---- exact mode ---- */

static void near(check *c, int32_t pos, const char *what, int32_t id, double got, double want)
{
    double d = fabs(got - want);
    if (!(d <= BOUND)) /* also NaN */
        fail_msg("%s, position %d: %s %d is %.7g, wanted %.7g", c->what, pos, what, id, got, want);
    if (d > c->worst) {
        c->worst = d;
        c->worst_pos = pos;
    }
}

static void exact_row(void *user, int32_t pos, const float *x)
{
    check *c = user;
    const json_t *ids = row_part(c, pos, ROW_IDS), *logits = row_part(c, pos, ROW_LOGITS);
    const json_t *fixed = json_object_get(c->g->root, "fixed_ids");
    int32_t n_vocab = c->g->n_vocab, best = argmax(x, n_vocab);
    for (size_t i = 0; i < N_TOP; i++) {
        int32_t id = (int32_t)item(ids, i);
        near(c, pos, "logit", id, (double)x[id], item(logits, i));
    }
    for (size_t i = 0; i < json_array_size(fixed); i++) {
        int32_t id = (int32_t)item(fixed, i);
        near(c, pos, "logit", id, (double)x[id], item(row_part(c, pos, ROW_FIXED), i));
    }
    near(c, pos, "log of the sum of exp, vocabulary", n_vocab, log_sum_exp(x, n_vocab),
         json_number_value(row_part(c, pos, ROW_LSE)));
    if (item(logits, 0) - item(logits, 1) > BOUND && best != (int32_t)item(ids, 0))
        fail_msg("%s, position %d: the best token is %d, wanted %d", c->what, pos, best,
                 (int32_t)item(ids, 0));
    c->rows++;
}

/* want == NULL: every position. */
static void check_exact(gem_model *m, const golden *g, const char *what, const uint8_t *want)
{
    check c = {.g = g, .what = what};
    golden_run(m, g, want, exact_row, &c);
    assert_true(c.rows > 0);
    print_message("%s, exact: %d rows, largest difference %.3g at position %d\n", what, c.rows,
                  c.worst, c.worst_pos);
}

/* A spread of the long text's positions: every 97th, both sides of a batch, of Gemma's window of
 * 512 and, for Gemma, of its double. What follows the last of them is not run: time. */
static void spread(uint8_t *want, int32_t n, int which)
{
    static const int32_t around[] = {128, 512, 1024}, ends[N_MODELS] = {1090, 560};
    int32_t end = ends[which];
    assert_true(n > end);
    memset(want, 0, (size_t)n);
    for (int32_t i = 0; i < end; i += 97)
        want[i] = 1;
    for (size_t k = 0; k < ARRAY_LEN(around) && around[k] < end; k++)
        for (int32_t i = around[k] - 3; i < around[k] + 3; i++)
            want[i] = 1;
    for (int32_t i = end - 6; i < end; i++)
        want[i] = 1;
}

static void check_exact_texts(int which)
{
    static const char *const texts[] = {"short", "mixed", "long"};
    golden g[3];
    gem_model *m;
    char what[64];
    if (!present[which]) skip();
    for (size_t i = 0; i < 3; i++)
        g[i] = golden_open(families[which], texts[i]);
    uint8_t *want = malloc((size_t)g[2].n);
    assert_non_null(want);
    spread(want, g[2].n, which);
    assert_true(golden_model(&m, paths[which], &g[2], true, NULL)); /* the longest decides n_ctx */
    for (size_t i = 0; i < 3; i++) {
        snprintf(what, sizeof(what), "%s, %s text", families[which], texts[i]);
        check_exact(m, &g[i], what, i == 2 ? want : NULL);
        golden_close(&g[i]);
    }
    gem_model_close(m);
    free(want);
}

static void test_exact_gemma(void **state)
{
    (void)state;
    check_exact_texts(GEMMA);
}

static void test_exact_qwen(void **state)
{
    (void)state;
    check_exact_texts(QWEN);
}

/* ---- fast path ---- */

/* KL(golden || gem) over N_TOP tokens and one class for all others. */
static double kl_top(const check *c, int32_t pos, const float *x)
{
    const json_t *ids = row_part(c, pos, ROW_IDS), *logits = row_part(c, pos, ROW_LOGITS);
    double lse_p = json_number_value(row_part(c, pos, ROW_LSE));
    double lse_q = log_sum_exp(x, c->g->n_vocab), rest_p = 1, rest_q = 1, kl = 0;
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

/* Pearson's correlation, and the squared error over the golden's squares, of a thinned row. */
static void compare_last(check *c, const float *x)
{
    const json_t *last = json_object_get(c->g->root, "last");
    size_t n = json_array_size(last), stride = (size_t)golden_number(c->g->root, "last_stride");
    double r = 0, o = 0, rr = 0, oo = 0, ro = 0, dd = 0;
    assert_int_equal(n, ((size_t)c->g->n_vocab + stride - 1) / stride);
    for (size_t i = 0; i < n; i++) {
        double a = item(last, i), b = (double)x[i * stride];
        r += a;
        o += b;
        rr += a * a;
        oo += b * b;
        ro += a * b;
        dd += (a - b) * (a - b);
    }
    double k = (double)n;
    c->correlation = (ro - r * o / k) / sqrt((rr - r * r / k) * (oo - o * o / k));
    c->nmse = dd / rr;
}

static void fast_row(void *user, int32_t pos, const float *x)
{
    check *c = user;
    c->kl += kl_top(c, pos, x);
    c->differs += argmax(x, c->g->n_vocab) != (int32_t)item(row_part(c, pos, ROW_IDS), 0);
    if (++c->rows == c->g->n) compare_last(c, x);
}

static void check_fast(int which)
{
    gem_model *m;
    if (!present[which]) skip();
    golden g = golden_open(families[which], "long");
    check c = {.g = &g};
    const json_t *peer = json_object_get(g.root, "quantised");
    double peer_kl = golden_number(peer, "mean_kl_top");
    int32_t peer_differs = (int32_t)golden_number(peer, "argmax_differs");
    assert_true(golden_model(&m, paths[which], &g, false, getenv("GEM_CPU_ISA")));
    golden_run(m, &g, NULL, fast_row, &c);
    gem_model_close(m);
    assert_int_equal(c.rows, g.n);
    print_message("%s, long text, fast: mean KL (top 8 and rest) %.4g, the other engine's %.4g; "
                  "argmax differs %d times, the other's %d; last position: correlation %.6f, "
                  "NMSE %.3g\n",
                  families[which], c.kl / g.n, peer_kl, c.differs, peer_differs, c.correlation,
                  c.nmse);
    assert_true(c.kl / g.n <= peer_kl);
    assert_true(c.differs <= peer_differs);
    assert_true(c.correlation >= 0.999);
    assert_true(c.nmse <= 0.001);
    golden_close(&g);
}

static void test_fast_gemma(void **state)
{
    (void)state;
    check_fast(GEMMA);
}

static void test_fast_qwen(void **state)
{
    (void)state;
    check_fast(QWEN);
}

/* The goldens speak of these very files. */
static void test_digests(void **state)
{
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        char hex[65];
        gem_error err = {0};
        if (!present[i]) continue;
        golden g = golden_open(families[i], "short");
        if (gem_sha256_file(paths[i], hex, &err) != GEM_OK) fail_msg("%s", err.text);
        assert_string_equal(hex, json_string_value(json_object_get(g.root, "model_sha256")));
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),    cmocka_unit_test(test_exact_gemma),
        cmocka_unit_test(test_exact_qwen), cmocka_unit_test(test_fast_gemma),
        cmocka_unit_test(test_fast_qwen),
    };
    bool any = false;
    for (int i = 0; i < N_MODELS; i++) {
        real_path(paths[i], sizeof(paths[i]), files[i]);
        present[i] = access(paths[i], R_OK) == 0;
        any = any || present[i];
        if (!present[i])
            fprintf(stderr, "%s has not been fetched; its goldens are skipped\n", paths[i]);
    }
    return any ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
