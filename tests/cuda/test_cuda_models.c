/* test_cuda_models.c - small models with seeded weights on the device against the CPU's exact mode
 * (argmax, top ten, correlation, NMSE of every row), and the bits that must not move: runs
 * repeated, rows alone and in company, decoding behind one prompt twice. Skips itself without a
 * device. With a model path: the same on that file, and 200 tokens of greedy text against the CPU.
 * "quick": fewer of everything. */
#include "runtime/engine.h"
#include "tiny_model.h"
#include "top_of_row.h"

static int n_failed;

static void check(bool ok, const char *what, const char *model, double value)
{
    if (!ok) n_failed++;
    printf("%s %s: %s %.9g\n", ok ? "ok  " : "FAIL", model, what, value);
}

static gem_model *open_on(const char *backend, const char *path, gem_model_options o,
                          int32_t logits)
{
    gem_model *m = NULL;
    gem_error err = {0};
    const gem_engine_options e = {.n_logits = logits, .ops = gem_backend_find(backend)};
    if (strcmp(backend, "cuda") != 0) o.isa = NULL;
    if (gem_model_open_engine(&m, path, &o, &e, &err) != GEM_OK) {
        printf("%s: %s\n", backend, err.text);
        return NULL;
    }
    return m;
}

/* Logits of all rows, fed in pieces. */
static float *rows_of(gem_model *m, const int32_t *tokens, int32_t n, int32_t piece)
{
    gem_session *s = NULL;
    gem_error err = {0};
    size_t vocab = (size_t)m->plan.n_vocab;
    float *out = malloc((size_t)n * vocab * sizeof(*out));
    const float **x = malloc((size_t)n * sizeof(*x));
    uint8_t *want = malloc((size_t)n);
    memset(want, 1, (size_t)n);
    gem_status st = gem_session_new(&s, m, &err);
    for (int32_t at = 0; at < n && st == GEM_OK; at += piece) {
        int32_t len = GEM_MIN(piece, n - at);
        st = gem_session_run(s, tokens + at, (size_t)len, want, x, &err);
        for (int32_t i = 0; i < len && st == GEM_OK; i++)
            memcpy(out + (size_t)(at + i) * vocab, x[i], vocab * sizeof(*out));
    }
    if (st != GEM_OK) printf("FAIL run: %s\n", err.text), n_failed++;
    gem_session_free(s);
    free(x), free(want);
    return out;
}

/* Rows that are to be drawn from, every fifth with all its logits beside them: the tops are those
 * of the same rows' logits, `all`, which are there with the same bits for whoever asks afterwards.
 */
static void check_tops(gem_model *m, const char *label, const int32_t *tokens, int32_t n,
                       int32_t piece, const float *all)
{
    gem_session *s = NULL;
    gem_error err = {0};
    const size_t vocab = (size_t)m->plan.n_vocab;
    const float **x = malloc((size_t)n * sizeof(*x));
    uint8_t *want = malloc((size_t)n);
    int bad[3] = {0};
    gem_status st = gem_session_new(&s, m, &err);
    for (int32_t at = 0; at < n && st == GEM_OK; at += piece) {
        const int32_t len = GEM_MIN(piece, n - at);
        for (int32_t i = 0; i < len; i++)
            want[i] = (at + i) % 5 == 2 && piece > 1 ? GEM_ROW_LOGITS : GEM_ROW_DRAW;
        st = gem_session_run(s, tokens + at, (size_t)len, want, x, &err);
        for (int32_t i = 0; i < len && st == GEM_OK; i++) {
            const float *row = all + (size_t)(at + i) * vocab;
            const int32_t place = m->place[i];
            gem_top top;
            top_of_row(row, (int32_t)vocab, &top);
            if (want[i] == GEM_ROW_LOGITS) {
                bad[1] += memcmp(x[i], row, vocab * sizeof(*row)) != 0;
                continue;
            }
            bad[0] += top.n != m->top[place]->n || x[i] || m->logits[place];
            bad[0] += memcmp(top.id, m->top[place]->id, (size_t)top.n * sizeof(*top.id)) != 0;
            bad[0] +=
                memcmp(top.logit, m->top[place]->logit, (size_t)top.n * sizeof(*top.logit)) != 0;
            if ((at + i) % 3) continue;
            st = m->ops->logits(m->be, place, &x[i], &err);
            if (st == GEM_OK) bad[2] += memcmp(x[i], row, vocab * sizeof(*row)) != 0;
        }
    }
    if (st != GEM_OK) printf("FAIL tops: %s\n", err.text), n_failed++;
    check(!bad[0], "largest logits are those of the row", label, piece);
    check(!bad[1], "logits beside tops have their bits", label, piece);
    check(!bad[2], "logits fetched later have their bits", label, piece);
    gem_session_free(s);
    free(x), free(want);
}

/* Going back: the last rows again behind a trim have the bits they had. */
static void check_trim(gem_model *m, const char *label, const int32_t *tokens, int32_t n,
                       const float *one)
{
    gem_session *s = NULL;
    gem_error err = {0};
    const float *x;
    size_t bytes = (size_t)m->plan.n_vocab * sizeof(float);
    bool same = true;
    gem_status st = gem_session_new(&s, m, &err);
    for (int32_t i = 0; i < n && st == GEM_OK; i++)
        st = gem_session_decode(s, tokens[i], &x, &err);
    if (st == GEM_OK) st = gem_session_trim(s, n - 12, &err);
    for (int32_t i = n - 12; i < n && st == GEM_OK; i++) {
        st = gem_session_decode(s, tokens[i], &x, &err);
        same = same && st == GEM_OK &&
               memcmp(x, one + (size_t)i * (size_t)m->plan.n_vocab, bytes) == 0;
    }
    if (st != GEM_OK) printf("FAIL %s\n", err.text);
    check(st == GEM_OK && same, "rows behind a trim have their bits", label, 0);
    gem_session_free(s);
}

/* Logits of all rows of two sessions that share their batches, the second one `lag` rows behind:
 * those of the first, or of the second. */
static float *rows_beside(gem_model *m, const int32_t *tokens, int32_t n, int32_t piece,
                          int32_t lag, bool second)
{
    gem_session *s[2] = {NULL, NULL};
    gem_error err = {0};
    size_t vocab = (size_t)m->plan.n_vocab;
    float *out = calloc((size_t)n * vocab, sizeof(*out));
    const float **x = malloc((size_t)(2 * piece) * sizeof(*x));
    gem_row *row = malloc((size_t)(2 * piece) * sizeof(*row));
    int32_t at[2] = {0, 0};
    gem_status st = gem_session_new(&s[0], m, &err);
    if (st == GEM_OK) st = gem_session_new(&s[1], m, &err);
    while (at[second] < n && st == GEM_OK) {
        size_t count = 0;
        for (int i = 0; i < 2; i++) {
            int32_t len = GEM_MIN(i && at[0] == 0 ? piece - lag : piece, n - at[i]);
            for (int32_t j = 0; j < len; j++)
                row[count++] = (gem_row){s[i], tokens[at[i] + j], i == second};
        }
        st = gem_batch_run(m, row, count, x, &err);
        for (size_t j = 0; j < count && st == GEM_OK; j++) {
            const int i = row[j].session == s[1];
            if (x[j]) memcpy(out + (size_t)at[i] * vocab, x[j], vocab * sizeof(*out));
            at[i]++;
        }
    }
    if (st != GEM_OK) printf("FAIL beside: %s\n", err.text), n_failed++;
    gem_session_free(s[0]);
    gem_session_free(s[1]);
    free(x), free(row);
    return out;
}

static int top_of(const float *x, int n, const bool *taken)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best])) best = i;
    return best;
}

static double nmse(const float *got, const float *want, size_t n)
{
    double err = 0, power = 0, mean = 0;
    for (size_t i = 0; i < n; i++)
        mean += isfinite(want[i]) ? want[i] : 0;
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(want[i])) continue;
        err += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        power += ((double)want[i] - mean) * ((double)want[i] - mean);
    }
    return err / power;
}

/* Rows whose argmax differs although the two best are further apart than both runs' noise, and the
 * like; summary figures over all rows. */
static void compare(const char *label, const float *got, const float *want, int32_t n, int vocab,
                    double nmse_bound)
{
    double err = 0, power = 0, worst_corr = 1;
    int argmax = 0, top10 = 0;
    bool *a = malloc((size_t)vocab), *b = malloc((size_t)vocab);
    for (int32_t r = 0; r < n; r++) {
        const float *g = got + (size_t)r * (size_t)vocab, *w = want + (size_t)r * (size_t)vocab;
        double mg = 0, mw = 0, gg = 0, ww = 0, gw = 0, e = 0;
        int used = 0;
        for (int i = 0; i < vocab; i++)
            if (isfinite(w[i])) mg += g[i], mw += w[i], used++;
        mg /= used, mw /= used;
        for (int i = 0; i < vocab; i++) {
            if (!isfinite(w[i])) continue;
            gg += (g[i] - mg) * (g[i] - mg), ww += (w[i] - mw) * (w[i] - mw);
            gw += (g[i] - mg) * (w[i] - mw), e += (g[i] - w[i]) * (g[i] - w[i]);
        }
        err += e, power += ww;
        worst_corr = fmin(worst_corr, gw / sqrt(gg * ww));
        double noise = 4 * sqrt(e / used);
        memset(a, 0, (size_t)vocab), memset(b, 0, (size_t)vocab);
        for (int k = 0; k < 10; k++) {
            int x = top_of(g, vocab, a), y = top_of(w, vocab, b);
            if (k == 0 && x != y && fabs(w[x] - w[y]) > noise) argmax++;
            a[x] = b[y] = true;
        }
        for (int i = 0, low = -1; i < vocab; i++) {
            if (!a[i] || b[i]) continue;
            for (int j = 0; j < vocab; j++) /* the tenth of the other side */
                if (b[j] && (low < 0 || w[j] < w[low])) low = j;
            if (fabs(w[i] - w[low]) > noise) top10++;
        }
    }
    check(err / power <= nmse_bound, "NMSE", label, err / power);
    check(worst_corr >= 1 - fmax(1e-4, 10 * nmse_bound), "least correlation", label, worst_corr);
    check(argmax == 0, "rows of another argmax", label, argmax);
    check(top10 == 0, "tokens outside the other's top ten", label, top10);
    free(a), free(b);
}

static bool quick; /* fewer models, fewer rows: for the emulator */

static void one_model(const char *label, const char *path, gem_model_options o, int32_t n)
{
    int32_t *tokens = malloc((size_t)n * sizeof(*tokens));
    o.n_ctx = GEM_MAX(512, n + 64);
    o.n_batch = n;
    o.n_sessions = 2;
    gem_model_options exact = o;
    exact.exact = true;
    gem_model *fast = open_on("cpu", path, o, n);
    gem_model *cpu = open_on("cpu", path, exact, n), *cuda = open_on("cuda", path, o, n);
    if (!fast || !cpu || !cuda) {
        n_failed++;
        return;
    }
    int vocab = cpu->plan.n_vocab;
    const int32_t few = quick ? 24 : n; /* rows that are decoded */
    size_t bytes = (size_t)n * (size_t)vocab * sizeof(float),
           few_bytes = bytes / (size_t)n * (size_t)few;
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (i * i + 3 * i + 5) % (vocab - 1);
    float *want = rows_of(cpu, tokens, n, n), *tile = rows_of(cuda, tokens, n, n);
    float *again = rows_of(cuda, tokens, n, n), *one = rows_of(cuda, tokens, few, 1);
    float *eight = rows_of(cuda, tokens, few, 8), *five = rows_of(cuda, tokens, few, 5);
    /* 1e-4; random weights can make a model so sensitive that the CPU's own fast mode is further
     * off than that: then a quarter of its NMSE. */
    float *cpu_fast = rows_of(fast, tokens, n, n);
    double bound = fmax(1e-4, nmse(cpu_fast, want, (size_t)n * (size_t)vocab) / 4);
    char text[160];
    snprintf(text, sizeof(text), "%s kv %d%s, one batch", label, (int)o.kv_type,
             o.exact ? " exact" : "");
    compare(text, tile, want, n, vocab, bound);
    snprintf(text, sizeof(text), "%s kv %d%s, rows alone", label, (int)o.kv_type,
             o.exact ? " exact" : "");
    compare(text, one, want, few, vocab, bound);
    for (int second = 0; second < 2 && !o.exact; second++) { /* chunks cut, sessions that share */
        float *beside = rows_beside(cuda, tokens, n, n * 100 / 230, n * 30 / 230, second);
        snprintf(text, sizeof(text), "%s kv %d, beside %d", label, (int)o.kv_type, second);
        compare(text, beside, want, n, vocab, bound);
        free(beside);
    }
    check(memcmp(tile, again, bytes) == 0, "a repeat has the same bits", label, 0);
    check(memcmp(one, eight, few_bytes) == 0, "eight rows at once have the bits of one", label, 0);
    check(memcmp(one, five, few_bytes) == 0, "five rows at once have the bits of one", label, 0);
    check_trim(cuda, label, tokens, few, one);
    check_tops(cuda, label, tokens, GEM_MIN(few, 12), 1, one);
    check_tops(cuda, label, tokens, GEM_MIN(few, 20), 8, one);
    check_tops(cuda, label, tokens, n, n, tile);
    gem_model_close(cpu);
    gem_model_close(cuda);
    gem_model_close(fast);
    free(cpu_fast);
    free(tokens), free(want), free(tile), free(again), free(one), free(eight), free(five);
}

static void tiny_one(const char *label, tiny t, gem_model_options o)
{
    char path[128];
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "cuda"))) {
        printf("FAIL cannot write %s\n", path);
        n_failed++;
        return;
    }
    one_model(label, path, o, quick ? 68 : 230);
    unlink(path);
}

/* Greedy text of both backends after one prompt: equal, or different only from a near-tie on. */
static void greedy(const char *path, int32_t n)
{
    gem_model_options o = {.n_ctx = 1024, .n_sessions = 1};
    gem_model *m[2] = {open_on("cpu", path, o, 0), open_on("cuda", path, o, 0)};
    gem_session *s[2] = {NULL, NULL};
    gem_error err = {0};
    int32_t prompt[24], same = 0;
    double gap = 0;
    if (!m[0] || !m[1]) {
        n_failed++;
        return;
    }
    for (int i = 0; i < 24; i++)
        prompt[i] = 100 + 37 * i;
    const float *x[2];
    for (int i = 0; i < 2; i++)
        if (gem_session_new(&s[i], m[i], &err) != GEM_OK ||
            gem_session_prefill(s[i], prompt, 24, NULL, NULL, &x[i], &err) != GEM_OK) {
            printf("FAIL %s\n", err.text);
            n_failed++;
            return;
        }
    for (; same < n; same++) {
        int best[2];
        for (int i = 0; i < 2; i++) {
            best[i] = 0;
            for (int k = 1; k < m[i]->plan.n_vocab; k++)
                if (x[i][k] > x[i][best[i]]) best[i] = k;
        }
        if (best[0] != best[1]) {
            gap = fabs((double)x[0][best[0]] - x[0][best[1]]);
            break;
        }
        for (int i = 0; i < 2; i++)
            if (gem_session_decode(s[i], best[i], &x[i], &err) != GEM_OK) {
                printf("FAIL %s\n", err.text);
                n_failed++;
                return;
            }
    }
    check(gap < 0.5, "greedy tokens equal, then a tie within", path, gap);
    printf("     %d of %d tokens equal\n", same, n);
    for (int i = 0; i < 2; i++) {
        gem_session_free(s[i]);
        gem_model_close(m[i]);
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    gem_error err = {0};
    char path[128];
    tiny t = tiny_qwen2();
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "cuda"))) return 1;
    gem_model *m = NULL;
    const gem_engine_options e = {.ops = gem_backend_find("cuda")};
    gem_status st = gem_model_open_engine(&m, path, NULL, &e, &err);
    unlink(path);
    if (st == GEM_E_UNSUPPORTED) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    if (st != GEM_OK) {
        printf("FAIL %s\n", err.text);
        return 1;
    }
    gem_model_close(m);
    quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    if (argc > 1 && !quick) {
        one_model(argv[1], argv[1], (gem_model_options){0}, argc > 2 ? atoi(argv[2]) : 64);
        greedy(argv[1], 200);
        printf("%d failed\n", n_failed);
        return n_failed != 0;
    }
    for (int kv = 0; kv < 3; kv++) {
        gem_model_options o = {.kv_type = (gem_kv_type)kv};
        tiny wide = tiny_qwen35();
        wide.state = kv % 2 ? 64 : 128;
        if (quick && o.kv_type != GEM_KV_F16) continue;
        tiny_one("gemma4", tiny_gemma4(), o);
        tiny_one("qwen35, wide states", wide, o);
        if (quick) continue;
        tiny_one("gemma3", tiny_gemma3(), o);
        tiny_one("qwen2", tiny_qwen2(), o);
        tiny_one("qwen35", tiny_qwen35(), o);
    }
    if (!quick) {
        tiny_one("qwen2", tiny_qwen2(), (gem_model_options){.exact = true});
        tiny_one("qwen2 mapped", tiny_qwen2(), (gem_model_options){.no_repack = true});
    }
    static const gem_dtype types[] = {GEM_DTYPE_Q4_0, GEM_DTYPE_Q4_K, GEM_DTYPE_Q5_K,
                                      GEM_DTYPE_Q6_K, GEM_DTYPE_Q8_0};
    for (size_t i = 0; i < (quick ? 1 : ARRAY_LEN(types)); i++) { /* widths that make slabs */
        tiny x = i % 2 ? tiny_qwen2() : tiny_gemma3();
        x.d = 512, x.ff = 1024, x.heads = 8, x.kv_heads = 2, x.hd = 64;
        x.linear = types[i], x.embd = types[i];
        tiny_one(gem_dtype_get(types[i])->name, x, (gem_model_options){.kv_type = GEM_KV_F16});
        if (i < 2 && !quick)
            tiny_one("kept as f16", x,
                     (gem_model_options){.kv_type = GEM_KV_F16, .isa = ",weights=f16"});
    }
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
