/* What profiles stand on: a traced run gives the bits of an ordinary one and its times add up; a
 * seeded past is finite, the same every time, and behaves as one that was evaluated; the nine
 * stages of a layer; the table of routes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/op_routes.h"
#include "bench/operator.h"
#include "bench/prefix.h"
#include "bench/stages.h"
#include "model/manifest.h"
#include "runtime/engine.h"
#include "tiny_model.h"

enum { CTX = 700, ROWS = 7 };

typedef struct world {
    char path[128];
    gem_model *m;
    gem_session *s;
} world;

static void open_spans(world *w, const tiny *t, int n_threads, int32_t n_batch, bool layer_span)
{
    const gem_model_options o = {
        .n_threads = n_threads, .n_ctx = CTX, .n_sessions = 2, .n_batch = n_batch};
    const gem_engine_options e = {
        .ops = gem_backend_find("cpu"), .n_logits = ROWS, .layer_span = layer_span};
    gem_error err = {0};
    tiny whole = *t;
    whole.tokenizer = true;
    tiny_path(w->path, "trace");
    assert_true(tiny_write(&whole, w->path));
    if (gem_model_open_engine(&w->m, w->path, &o, &e, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal(gem_session_new(&w->s, w->m, NULL), GEM_OK);
}

static void open_world(world *w, const tiny *t, int n_threads, int32_t n_batch)
{
    open_spans(w, t, n_threads, n_batch, false);
}

static void close_world(world *w)
{
    gem_session_free(w->s);
    gem_model_close(w->m);
    unlink(w->path);
}

/* Logits of ROWS rows at the session's position, f32[ROWS][n_vocab]; the session is put back. */
static void rows_of(world *w, gem_trace *trace, float *out)
{
    int32_t token[ROWS];
    uint8_t want[ROWS];
    const float *logits[ROWS];
    gem_checkpoint *c = NULL;
    size_t n = (size_t)w->m->plan.n_vocab;
    for (int i = 0; i < ROWS; i++) {
        token[i] = 5 + i;
        want[i] = 1;
    }
    assert_int_equal(gem_session_checkpoint(w->s, &c, NULL), GEM_OK);
    w->m->trace = trace;
    assert_int_equal(gem_session_run(w->s, token, ROWS, want, logits, NULL), GEM_OK);
    w->m->trace = NULL;
    for (size_t i = 0; i < ROWS; i++)
        memcpy(out + i * n, logits[i], n * sizeof(*out));
    assert_int_equal(gem_session_rollback(w->s, c, NULL), GEM_OK);
    gem_checkpoint_free(c);
}

static void fill(world *w, int32_t n)
{
    int32_t *token = malloc((size_t)n * sizeof(*token));
    const float *logits;
    for (int32_t i = 0; i < n; i++)
        token[i] = 3 + i % 50;
    assert_int_equal(gem_session_prefill(w->s, token, (size_t)n, NULL, NULL, &logits, NULL),
                     GEM_OK);
    free(token);
}

static void check_family(const tiny *t, int n_threads)
{
    world w;
    open_world(&w, t, n_threads, 64);
    fill(&w, 150);
    size_t n = (size_t)w.m->plan.n_vocab * ROWS;
    float *plain = malloc(n * sizeof(*plain)), *traced = malloc(n * sizeof(*traced));
    uint64_t *op_ns = calloc(w.m->plan.n_ops, sizeof(*op_ns)), sum = 0;
    rows_of(&w, NULL, plain);
    for (int phases = 0; phases < 2; phases++) {
        gem_trace tr = {.op_ns = op_ns, .attend_phases = phases == 1};
        memset(op_ns, 0, w.m->plan.n_ops * sizeof(*op_ns));
        rows_of(&w, &tr, traced);
        assert_memory_equal(plain, traced, n * sizeof(*plain));
        sum = 0;
        for (size_t i = 0; i < w.m->plan.n_ops; i++) {
            assert_true(op_ns[i] > 0);
            sum += op_ns[i];
        }
        assert_true(sum == tr.device_ns);
        assert_true(tr.device_ns <= tr.wait_ns);
        assert_true(tr.prepare_ns + tr.encode_ns + tr.wait_ns + tr.readback_ns + tr.cleanup_ns ==
                    tr.end_ns - tr.start_ns);
        assert_true((tr.score_ns > 0 && tr.normalization_ns > 0 && tr.value_ns > 0) ==
                    (phases == 1));
        assert_true(tr.score_ns + tr.normalization_ns + tr.value_ns <= tr.device_ns);
    }
    gem_trace host = {0};
    rows_of(&w, &host, traced);
    assert_memory_equal(plain, traced, n * sizeof(*plain));
    assert_true(host.wait_ns > 0 && host.score_ns == 0);
    free(plain);
    free(traced);
    free(op_ns);
    close_world(&w);
}

static void test_traced_run_is_the_ordinary_run(void **state)
{
    const tiny families[] = {tiny_gemma3(), tiny_gemma4(), tiny_qwen2(), tiny_qwen35()};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        for (int n_threads = 1; n_threads <= 3; n_threads += 2)
            check_family(&families[i], n_threads);
}

/* A layer a submission instead of a run: the same bits, of every family, and when only some rows
 * are wanted. */
static void test_layer_spans_change_no_bit(void **state)
{
    const tiny families[] = {tiny_gemma3(), tiny_gemma4(), tiny_qwen2(), tiny_qwen35()};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        float *x[2];
        size_t n = 0;
        for (int span = 0; span < 2; span++) {
            world w;
            open_spans(&w, &families[i], 3, 64, span == 1);
            n = (size_t)w.m->plan.n_vocab * ROWS;
            x[span] = malloc(n * sizeof(float));
            fill(&w, 150);
            gem_trace t = {0};
            rows_of(&w, span ? &t : NULL, x[span]);
            if (span) assert_true(t.device_ns > 0 && t.device_ns <= t.wait_ns);
            close_world(&w);
        }
        assert_memory_equal(x[0], x[1], n * sizeof(float));
        free(x[0]);
        free(x[1]);
    }
}

/* Two models of other thread and batch sizes, one after the other on the same session place. */
static void test_seeded_past_is_the_same_past(void **state)
{
    const tiny t = tiny_gemma4();
    float *first = NULL;
    (void)state;
    for (int k = 0; k < 3; k++) {
        world w;
        open_world(&w, &t, 1 + k, 64);
        size_t n = (size_t)w.m->plan.n_vocab * ROWS;
        float *x = malloc(n * sizeof(*x));
        assert_int_equal(gem_session_seed(w.s, 600, 7, NULL), GEM_OK);
        assert_int_equal(w.s->n_pos, 600);
        rows_of(&w, NULL, x);
        for (size_t i = 0; i < n; i++)
            assert_true(isfinite(x[i]));
        if (first)
            assert_memory_equal(first, x, n * sizeof(*x));
        else
            first = malloc(n * sizeof(*first)), memcpy(first, x, n * sizeof(*x));
        assert_int_equal(gem_session_trim(w.s, 600 - GEM_ROLLBACK, NULL), GEM_OK);
        free(x);
        close_world(&w);
    }
    free(first);
}

/* Routes of attention change what a pass shares, never a bit; names that lead nowhere else lead to
 * production. */
static void test_routes_change_no_bit(void **state)
{
    static const char *const names[] = {"bq8-bk64", "online-row2", "online-row4", "bq8-bk128"};
    const tiny t = tiny_gemma4();
    world w;
    const char *production = NULL, *ran;
    (void)state;
    open_world(&w, &t, 2, 64);
    fill(&w, 150);
    size_t n = (size_t)w.m->plan.n_vocab * ROWS;
    float *first = malloc(n * sizeof(*first)), *x = malloc(n * sizeof(*x));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        w.m->ops->choose_route(w.m->be, gem_op_route_find("prefill-attention", names[i]), &ran);
        if (i == 0) production = ran;
        assert_int_equal(strcmp(ran, production) != 0, i == 1 || i == 2);
        rows_of(&w, NULL, i ? x : first);
        if (i) assert_memory_equal(first, x, n * sizeof(*x));
    }
    w.m->ops->choose_route(w.m->be, gem_op_route_find("decode-attention", "dim32"), &ran);
    assert_string_equal(ran, production);
    free(first);
    free(x);
    close_world(&w);
}

static void test_other_seed_is_another_past(void **state)
{
    const tiny t = tiny_gemma3();
    world w;
    float k[2][64], v[2][64];
    (void)state;
    open_world(&w, &t, 2, 64);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.m->ops->seed_kv(w.m->be, (uint64_t)i, NULL), GEM_OK);
        w.m->ops->read_kv(w.m->be, 0, 0, 3, k[i], v[i]);
    }
    assert_memory_not_equal(k[0], k[1], (size_t)w.m->plan.layer[0].head_dim * sizeof(float));
    int zeros = 0, n = w.m->plan.layer[0].head_dim;
    for (int i = 0; i < n; i++) {
        assert_true(fabsf(k[0][i]) <= 0.5f);
        zeros += k[0][i] == 0.0f;
    }
    assert_true(zeros > n / 2 && zeros < n); /* sparse, and not empty */
    close_world(&w);
}

static void test_refusals(void **state)
{
    const tiny hybrid = tiny_qwen35(), t = tiny_gemma3();
    world w;
    gem_error err;
    (void)state;
    open_world(&w, &hybrid, 1, 64);
    assert_int_equal(gem_session_seed(w.s, 100, 0, &err), GEM_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "recurrent"));
    close_world(&w);
    open_world(&w, &t, 1, 64);
    assert_int_equal(gem_session_seed(w.s, CTX + 1, 0, &err), GEM_E_RANGE);
    fill(&w, 3);
    assert_int_equal(gem_session_seed(w.s, 100, 0, &err), GEM_E_ARG);
    gem_backend_ops bare = *w.m->ops;
    bare.seed_kv = NULL;
    const gem_backend_ops *ops = w.m->ops;
    gem_session *fresh;
    assert_int_equal(gem_session_new(&fresh, w.m, NULL), GEM_OK);
    w.m->ops = &bare;
    assert_int_equal(gem_session_seed(fresh, 100, 0, &err), GEM_E_UNSUPPORTED);
    w.m->ops = ops;
    gem_session_free(fresh);
    close_world(&w);
}

/* Counts of each stage: once a layer, and the first norm once a model. */
static void check_stages(const tiny *t, int per_layer[BENCH_STAGES])
{
    world w;
    open_world(&w, t, 1, 64);
    const gem_plan *p = &w.m->plan;
    bench_stage *stage = calloc(p->n_ops, sizeof(*stage));
    int count[BENCH_ALL_STAGES] = {0};
    assert_true(bench_stages_of(p, stage));
    for (size_t i = 0; i < p->n_ops; i++)
        count[stage[i]]++;
    assert_int_equal(count[BENCH_EMBED], 1);
    assert_int_equal(count[BENCH_HEAD], 1);
    assert_int_equal(count[BENCH_INPUT_NORM], 1);
    for (int s = BENCH_INPUT_NORM + 1; s < BENCH_STAGES; s++)
        assert_int_equal(count[s], per_layer[s] * p->n_layers);
    free(stage);
    close_world(&w);
}

static void test_nine_stages(void **state)
{
    const tiny dense[] = {tiny_gemma3(), tiny_gemma4(), tiny_qwen2()};
    int ops[BENCH_STAGES] = {0, 1, 1, 1, 1, 1, 2, 1, 1};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(dense); i++)
        check_stages(&dense[i], ops);
    const tiny hybrid = tiny_qwen35();
    world w;
    open_world(&w, &hybrid, 1, 64);
    bench_stage *stage = calloc(w.m->plan.n_ops, sizeof(*stage));
    assert_true(bench_stages_of(&w.m->plan, stage));
    for (size_t i = 0; i < w.m->plan.n_ops; i++)
        if (w.m->plan.op[i].kind == GEM_OP_DELTA) assert_int_equal(stage[i], BENCH_ATTENTION);
    assert_string_equal(bench_layer_kind(&w.m->plan, 0), "recurrent");
    assert_string_equal(bench_layer_kind(&w.m->plan, 3), "full");
    free(stage);
    close_world(&w);
}

static void test_routes(void **state)
{
    char names[256], small[8];
    (void)state;
    assert_int_equal(gem_op_route_find("decode-attention", "split16")->selector, 19);
    assert_int_equal(gem_op_route_find("decode-attention", "dim32")->selector, 18);
    assert_int_equal(gem_op_route_find("decode-attention", "score-tile8")->selector, 20);
    assert_string_equal(gem_op_route_by_selector("prefill-attention", 19)->name, "bq8-bk64");
    assert_string_equal(gem_op_route_by_selector("prefill-attention", 22)->name, "online-row2");
    assert_string_equal(gem_op_route_by_selector("prefill-attention", 23)->name, "bq8-bk128");
    assert_null(gem_op_route_find("decode-attention", "bq8-bk64"));
    assert_null(gem_op_route_by_selector("prefill-attention", 0)); /* no number is no name */
    assert_true(gem_op_route_names("linear", names, sizeof(names)));
    assert_string_equal(names, "verify8-4sg");
    assert_false(gem_op_route_names("linear", small, sizeof(small)));
    for (size_t i = 0; gem_op_route_at(i); i++)
        if (gem_op_route_at(i)->production)
            assert_string_equal(gem_op_route_at(i)->axis, "production");
}

/* Attention alone is the attention of a model: over one key its result is that key's value. */
static void test_operator_attention(void **state)
{
    const bench_operator_options o = {
        .n_threads = 2, .rows = 1, .tmp_dir = "/tmp", .outputs = true};
    const bench_attention a = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 32, .n_ctx = 200};
    bench_operator op;
    gem_trace t = {.attend_phases = true};
    char at0[65], again[65], at100[65], seeded[65];
    float k[64], v[64];
    (void)state;
    assert_int_equal(bench_operator_attention(&op, &o, &a, NULL), GEM_OK);
    assert_int_equal(bench_operator_run(&op, 0, &t, NULL), GEM_OK);
    assert_true(bench_operator_ns(&op) > 0 && bench_operator_ns(&op) < t.device_ns);
    bench_operator_digest(&op, at0);
    op.ops->read_kv(op.be, 0, 0, 0, k, v);
    const float *head = gem_vector(gem_gguf_tensor(op.file, "head"));
    for (int j = 0; j < BENCH_OPERATOR_OUTPUTS; j++) {
        double want = 0;
        for (int i = 0; i < 128; i++) /* query heads 0 and 1 read KV head 0 */
            want += (double)head[j * 128 + i] * (double)v[i / 64 * 32 + i % 32];
        assert_true(fabs(want - (double)op.logits[0][j]) < 1e-4);
    }
    assert_int_equal(bench_operator_run(&op, 0, NULL, NULL), GEM_OK);
    bench_operator_digest(&op, again);
    assert_string_equal(at0, again);
    assert_int_equal(bench_operator_run(&op, 100, NULL, NULL), GEM_OK);
    bench_operator_digest(&op, at100);
    assert_int_equal(bench_operator_seed(&op, 1, NULL), GEM_OK);
    assert_int_equal(bench_operator_run(&op, 100, NULL, NULL), GEM_OK);
    bench_operator_digest(&op, seeded);
    assert_string_not_equal(at100, seeded);
    bench_operator_close(&op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traced_run_is_the_ordinary_run),
        cmocka_unit_test(test_layer_spans_change_no_bit),
        cmocka_unit_test(test_seeded_past_is_the_same_past),
        cmocka_unit_test(test_routes_change_no_bit),
        cmocka_unit_test(test_other_seed_is_another_past),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nine_stages),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_operator_attention),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
