/* test_cuda_trace.c - what profiles and caches ask of the CUDA backend, on a device: a traced run
 * has the bits of an ordinary one and its times add up; a seeded past holds the CPU's values and
 * gives its logits; routes that are other code give the same numbers; contents of pages and states
 * survive the way out and back. Skips itself without a device. */
#include "backend/op_routes.h"
#include "bench/operator.h"
#include "runtime/engine.h"
#include "tiny_model.h"

enum { CTX = 700, MOST = 40 };

static int n_failed;

static void check(bool ok, const char *what, const char *label, double value)
{
    if (!ok) n_failed++;
    printf("%s %s: %s %.9g\n", ok ? "ok  " : "FAIL", label, what, value);
}

typedef struct world {
    gem_model *m;
    gem_session *s;
} world;

static bool open_world(world *w, const char *backend, const char *path, int kv_type, bool exact)
{
    const gem_model_options o = {.n_threads = 2,
                                 .n_ctx = CTX,
                                 .n_sessions = 2,
                                 .n_batch = 64,
                                 .kv_type = (gem_kv_type)kv_type,
                                 .exact = exact};
    const gem_engine_options e = {.ops = gem_backend_find(backend), .n_logits = MOST};
    gem_error err = {0};
    gem_status st = gem_model_open_engine(&w->m, path, &o, &e, &err);
    if (st == GEM_OK) st = gem_session_new(&w->s, w->m, &err);
    if (st == GEM_OK) return true;
    printf("FAIL %s: %s\n", backend, err.text);
    n_failed++;
    return false;
}

static void close_world(world *w)
{
    gem_session_free(w->s);
    gem_model_close(w->m);
    memset(w, 0, sizeof(*w));
}

/* Logits of n rows behind the session's position, [n][n_vocab]; the session is put back. */
static float *rows_of(world *w, int32_t n, gem_trace *trace)
{
    int32_t token[MOST];
    uint8_t want[MOST];
    const float *x[MOST];
    gem_checkpoint *c = NULL;
    gem_error err = {0};
    const size_t vocab = (size_t)w->m->plan.n_vocab;
    float *out = calloc((size_t)n * vocab, sizeof(*out));
    for (int32_t i = 0; i < n; i++) {
        token[i] = 5 + i;
        want[i] = 1;
    }
    gem_status st = gem_session_checkpoint(w->s, &c, &err);
    w->m->trace = trace;
    if (st == GEM_OK) st = gem_session_run(w->s, token, (size_t)n, want, x, &err);
    w->m->trace = NULL;
    for (int32_t i = 0; st == GEM_OK && i < n; i++)
        memcpy(out + (size_t)i * vocab, x[i], vocab * sizeof(*out));
    if (st == GEM_OK) st = gem_session_rollback(w->s, c, &err);
    gem_checkpoint_free(c);
    if (st != GEM_OK) {
        printf("FAIL run: %s\n", err.text);
        n_failed++;
    }
    return out;
}

static void fill(world *w, int32_t n)
{
    int32_t *token = malloc((size_t)n * sizeof(*token));
    const float *logits;
    gem_error err = {0};
    for (int32_t i = 0; i < n; i++)
        token[i] = 3 + i % 50;
    if (gem_session_prefill(w->s, token, (size_t)n, NULL, NULL, &logits, &err) != GEM_OK) {
        printf("FAIL prefill: %s\n", err.text);
        n_failed++;
    }
    free(token);
}

static double nmse(const float *got, const float *want, size_t n)
{
    double err = 0, power = 0, mean = 0, used = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(want[i])) mean += want[i], used++;
    mean /= used;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(want[i])) continue;
        err += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        power += (want[i] - mean) * (want[i] - mean);
    }
    return err / power;
}

/* ---- traces ---- */

static bool adds_up(const gem_trace *t)
{
    return t->prepare_ns + t->encode_ns + t->wait_ns + t->readback_ns + t->cleanup_ns ==
           t->end_ns - t->start_ns;
}

static void check_trace(world *w, const char *label, int32_t n)
{
    const size_t bytes = (size_t)n * (size_t)w->m->plan.n_vocab * sizeof(float);
    uint64_t *op_ns = calloc(w->m->plan.n_ops, sizeof(*op_ns));
    float *plain = rows_of(w, n, NULL);
    for (int phases = 0; phases < 2; phases++) {
        gem_trace t = {.op_ns = op_ns, .attend_phases = phases == 1};
        uint64_t sum = 0, attend = 0, parts;
        int idle = 0;
        memset(op_ns, 0, w->m->plan.n_ops * sizeof(*op_ns));
        float *x = rows_of(w, n, &t);
        for (size_t i = 0; i < w->m->plan.n_ops; i++) {
            const gem_op_kind kind = w->m->plan.op[i].kind;
            sum += op_ns[i];
            if (kind == GEM_OP_ATTEND) attend += op_ns[i];
            idle +=
                op_ns[i] == 0 && kind != GEM_OP_QKV && kind != GEM_OP_GLU && kind != GEM_OP_CONV;
        }
        parts = t.score_ns + t.normalization_ns + t.value_ns;
        check(memcmp(x, plain, bytes) == 0, "a traced run has the ordinary bits", label, n);
        check(sum == t.device_ns && sum > 0, "ops make the device's time, ns", label, (double)sum);
        check(idle == 0, "ops without a time", label, idle);
        check(t.device_ns <= t.wait_ns, "the device works while the host waits, ns", label,
              (double)t.wait_ns);
        check(adds_up(&t), "phases of the host add up, ns", label, (double)(t.end_ns - t.start_ns));
        check(phases && n == 1 ? parts == attend && t.score_ns && t.normalization_ns && t.value_ns
                               : parts <= attend && (phases || parts == 0),
              "phases of attention, ns", label, (double)parts);
        free(x);
    }
    gem_trace host = {0};
    float *x = rows_of(w, n, &host);
    check(memcmp(x, plain, bytes) == 0, "timed as a whole it has them too", label, n);
    check(host.device_ns > 0 && host.device_ns <= host.wait_ns && adds_up(&host), "host phases",
          label, (double)host.device_ns);
    free(x), free(plain), free(op_ns);
}

static void check_family(const char *label, const char *path, int kv_type)
{
    static const int32_t n[] = {1, 7, 40};
    world w;
    if (!open_world(&w, "cuda", path, kv_type, false)) return;
    fill(&w, 150);
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        check_trace(&w, label, n[i]);
    close_world(&w);
}

/* ---- seeded pasts ---- */

static void check_seed(const char *label, const char *path, int kv_type)
{
    world cpu, cuda, fast;
    float k[2][1024], v[2][1024];
    int differ = 0, seen = 0;
    gem_error err = {0};
    if (!open_world(&cpu, "cpu", path, kv_type, true)) return;
    if (!open_world(&cuda, "cuda", path, kv_type, false)) return;
    if (!open_world(&fast, "cpu", path, kv_type, false)) return;
    if (gem_session_seed(cpu.s, 600, 7, &err) != GEM_OK ||
        gem_session_seed(fast.s, 600, 7, &err) != GEM_OK ||
        gem_session_seed(cuda.s, 600, 7, &err) != GEM_OK) {
        check(false, err.text, label, 0);
        return;
    }
    for (int l = 0; l < cpu.m->plan.n_layers; l++)
        for (int32_t pos = 1; pos < 5 * GEM_PAGE; pos += 37) {
            const gem_kv_layer *layer = &cpu.m->plan.layer[l];
            const size_t bytes = (size_t)(layer->n_kv_heads * layer->head_dim) * sizeof(float);
            cpu.m->ops->read_kv(cpu.m->be, l, pos / GEM_PAGE, pos, k[0], v[0]);
            cuda.m->ops->read_kv(cuda.m->be, l, pos / GEM_PAGE, pos, k[1], v[1]);
            differ += memcmp(k[0], k[1], bytes) != 0 || memcmp(v[0], v[1], bytes) != 0;
            seen++;
        }
    check(differ == 0 && seen >= 9 * cpu.m->plan.n_layers,
          "positions whose seeded keys or values differ", label, differ);
    static const int32_t rows[] = {1, 32};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const size_t n = (size_t)rows[i] * (size_t)cpu.m->plan.n_vocab;
        float *want = rows_of(&cpu, rows[i], NULL), *got = rows_of(&cuda, rows[i], NULL);
        float *other = rows_of(&fast, rows[i], NULL);
        /* as in test_cuda_models.c */
        const double e = nmse(got, want, n), bound = fmax(1e-4, nmse(other, want, n) / 4);
        check(e <= bound, rows[i] == 1 ? "one row behind it, NMSE" : "32 rows behind it, NMSE",
              label, e);
        free(want), free(got), free(other);
    }
    close_world(&cpu), close_world(&cuda), close_world(&fast);
}

/* ---- routes ---- */

static void check_routes(const char *label, const char *path, int kv_type)
{
    static const char *const names[] = {"bq8-bk64", "online-row2", "online-row4", "bq8-bk128",
                                        "bq8-bk64"};
    const char *ran[5] = {""};
    float *x[5];
    world w;
    if (!open_world(&w, "cuda", path, kv_type, false)) return;
    fill(&w, 650);
    const size_t n = (size_t)MOST * (size_t)w.m->plan.n_vocab;
    for (int i = 0; i < 5; i++) {
        w.m->ops->choose_route(w.m->be, gem_op_route_find("prefill-attention", names[i]), &ran[i]);
        x[i] = rows_of(&w, MOST, NULL);
        printf("     %s: %s\n", names[i], ran[i]);
    }
    for (int i = 1; i < 4; i++)
        check(strcmp(ran[i], ran[0]) != 0, "other code", names[i], i);
    check(strcmp(ran[4], ran[0]) == 0 && !memcmp(x[4], x[0], n * sizeof(float)), "and back", label,
          0);
    check(!memcmp(x[1], x[0], n * sizeof(float)) && !memcmp(x[2], x[0], n * sizeof(float)),
          "fewer query tokens a block change no bit", label, 0);
    const double e = nmse(x[3], x[0], n);
    check(e > 0 && e < 1e-4, "tiles of 128 keys, NMSE to those of 64", label, e);
    w.m->ops->choose_route(w.m->be, gem_op_route_find("decode-attention", "dim32"), &ran[1]);
    check(strcmp(ran[1], "split") == 0, "decode has one way", label, 0);
    for (int i = 0; i < 5; i++)
        free(x[i]);
    close_world(&w);
}

/* An attention operator by both backends: the same made-up weights and keys. */
static void check_operator(const char *label, const bench_attention *a, int32_t rows, double bound)
{
    bench_operator op[2];
    double e = 0;
    gem_error err = {0};
    const bench_operator_options o[2] = {
        {.backend = "cpu", .n_threads = 2, .rows = rows, .tmp_dir = "/tmp", .outputs = true},
        {.backend = "cuda", .rows = rows, .tmp_dir = "/tmp", .outputs = true},
    };
    bool ok = true;
    memset(op, 0, sizeof(op));
    for (int i = 0; i < 2 && ok; i++)
        ok = bench_operator_attention(&op[i], &o[i], a, &err) == GEM_OK &&
             bench_operator_seed(&op[i], 3, &err) == GEM_OK;
    static const char *const names[] = {"bq8-bk64", "bq8-bk128"};
    for (int route = 0; route < 2 && ok; route++) {
        gem_trace t[2] = {{.attend_phases = rows == 1}, {.attend_phases = rows == 1}};
        for (int i = 0; i < 2 && ok; i++) {
            bench_choose_route(op[i].ops, op[i].be,
                               gem_op_route_find("prefill-attention", names[route]));
            ok = bench_operator_run(&op[i], a->n_ctx - rows, &t[i], &err) == GEM_OK;
        }
        float got[MOST * BENCH_OPERATOR_OUTPUTS], want[MOST * BENCH_OPERATOR_OUTPUTS];
        for (int32_t r = 0; r < rows && ok; r++) {
            const size_t width = BENCH_OPERATOR_OUTPUTS;
            memcpy(want + (size_t)r * width, op[0].logits[r], width * sizeof(float));
            memcpy(got + (size_t)r * width, op[1].logits[r], width * sizeof(float));
        }
        if (ok) e = nmse(got, want, (size_t)rows * BENCH_OPERATOR_OUTPUTS);
        check(ok && e <= bound, ok ? "NMSE to the CPU's" : err.text, names[route], e);
        if (!ok || rows > 1) continue;
        const uint64_t parts = t[1].score_ns + t[1].normalization_ns + t[1].value_ns;
        check(parts == bench_operator_ns(&op[1]) && t[1].score_ns && t[1].value_ns,
              "phases make the operator's time, ns", label, (double)parts);
        printf("     score %llu, softmax %llu, values %llu ns\n", (unsigned long long)t[1].score_ns,
               (unsigned long long)t[1].normalization_ns, (unsigned long long)t[1].value_ns);
    }
    bench_operator_close(&op[0]);
    bench_operator_close(&op[1]);
}

/* ---- contents ---- */

static void check_images(const char *label, const char *path, int kv_type)
{
    world w;
    float k[2][1024], v[2][1024];
    if (!open_world(&w, "cuda", path, kv_type, false)) return;
    fill(&w, 150);
    const gem_backend_ops *ops = w.m->ops;
    for (int l = 0; l < w.m->plan.n_layers; l++) {
        const int pool = w.m->layout.layer_pool[l];
        if (pool < 0) continue;
        const gem_kv_pool *p = &w.m->layout.pool[pool];
        const size_t bytes = gem_kv_page_bytes(p);
        uint8_t *a = malloc(bytes), *b = malloc(bytes);
        const int32_t last = p->n_pages - 1;
        ops->read_page(w.m->be, pool, 0, a);
        ops->write_page(w.m->be, pool, last, a);
        ops->read_page(w.m->be, pool, last, b);
        ops->read_kv(w.m->be, l, 0, 5, k[0], v[0]);
        ops->read_kv(w.m->be, l, last, 5, k[1], v[1]);
        check(!memcmp(a, b, bytes) &&
                  !memcmp(k[0], k[1], (size_t)(p->n_kv_heads * p->head_dim) * sizeof(float)) &&
                  k[0][0] != 0,
              "a page out and into another", label, l);
        a[0] ^= 1;
        ops->write_page(w.m->be, pool, last, a);
        ops->copy_page(w.m->be, pool, last - 1, last);
        ops->read_page(w.m->be, pool, last - 1, b); /* waits for the copy */
        check(!memcmp(a, b, bytes), "a page behind a copy", label, l);
        free(a), free(b);
    }
    if (w.m->plan.recurrent.n_layers) {
        const size_t bytes = gem_recurrent_bytes(&w.m->plan.recurrent);
        uint8_t *a = malloc(bytes), *b = malloc(bytes);
        bool any = false;
        for (size_t i = 0; i < bytes; i++)
            a[i] = (uint8_t)(i * 31);
        ops->read_state(w.m->be, w.s->state.run[1], b);
        for (size_t i = 0; i < bytes; i++)
            any = any || b[i] != 0;
        check(any, "a state that is not zero", label, 0);
        ops->write_state(w.m->be, 0, a);
        ops->read_state(w.m->be, 0, b);
        check(!memcmp(a, b, bytes), "a state out and back", label, 0);
        free(a), free(b);
    }
    close_world(&w);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    static const char *const kv_names[] = {"f32", "f16", "f16-full"};
    char path[128], label[64];
    bool opened = false;
    for (int f = 0; f < 4; f++) {
        tiny t = f == 0   ? tiny_gemma3()
                 : f == 1 ? tiny_gemma4()
                 : f == 2 ? tiny_qwen2()
                          : tiny_qwen35();
        t.tokenizer = true;
        if (!tiny_write(&t, tiny_path(path, "cudatrace"))) return 1;
        if (!opened) {
            gem_model *m = NULL;
            gem_error err = {0};
            const gem_engine_options e = {.ops = gem_backend_find("cuda")};
            gem_status st = gem_model_open_engine(&m, path, NULL, &e, &err);
            gem_model_close(m);
            if (st == GEM_E_UNSUPPORTED) {
                unlink(path);
                printf("skipped: %s\n", err.text);
                return 77;
            }
            opened = true;
        }
        for (int kv = 0; kv < 2; kv++) {
            snprintf(label, sizeof(label), "%s %s", t.arch, kv_names[kv]);
            check_family(label, path, kv);
            if (f < 3) check_seed(label, path, kv);
            if (f == 1) check_routes(label, path, kv);
            check_images(label, path, kv);
        }
        unlink(path);
    }
    static const bench_attention shapes[] = {{8, 2, 64, 0, false, 2048},
                                             {32, 4, 512, 0, false, 1000},
                                             {32, 4, 512, 0, true, 1000},
                                             {8, 1, 256, 0, false, 700}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int32_t rows = 1; rows <= 32; rows += 31) {
            snprintf(label, sizeof(label), "operator, heads of %d, %s, %d rows", shapes[i].head_dim,
                     shapes[i].f16 ? "f16" : "f32", rows);
            printf("     %s\n", label);
            check_operator(label, &shapes[i], rows, 1e-4);
        }
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
