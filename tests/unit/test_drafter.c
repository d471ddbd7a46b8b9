/* The drafter that a qwen35 file brings (the block that predicts ahead): its program against trunks
 * that compute the same by ops already tested, its keys and values through every way back, and
 * speculation with it, which changes no token. */
#include "count_malloc.h"
#include "speculate_check.h"
#include "tiny_model.h"

enum { D = 64, FF = 96, HEADS = 2, HD = 32, VOCAB = 300, CTX = 512 };

/* What the two halves of eh_proj are: the identity and zeros make the block a layer over one of its
 * two inputs. */
typedef struct recipe {
    bool nextn, from_hidden;
    uint32_t layer0, layer1; /* seeds of their weights */
    const float *embd;       /* f32[VOCAB][D]; NULL: rows of root mean square 1 */
} recipe;

static float noise(uint32_t seed, uint32_t i)
{
    uint64_t z = ((uint64_t)seed << 32 | i) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (float)(int32_t)(z >> 32) / 2147483648.0f;
}

static void unit_row(float *row)
{
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += (double)row[i] * (double)row[i];
    for (int i = 0; i < D; i++)
        row[i] = sum > 0 ? (float)(row[i] / sqrt(sum / D)) : 0.0f;
}

typedef struct writer {
    gem_gguf_writer *g;
    const recipe *r;
    bool declare;
} writer;

static float value(const writer *w, const char *name, uint32_t seed, uint64_t n0, uint64_t row,
                   uint64_t i)
{
    if (strstr(name, "eh_proj")) return i == row + (w->r->from_hidden ? D : 0) ? 1.0f : 0.0f;
    if (strstr(name, "nextn.enorm") || strstr(name, "nextn.hnorm")) return 1.0f;
    uint32_t at = 0;
    for (const char *c = strrchr(name, '.') - 1; c >= name && *c != '.'; c--)
        at = at * 31 + (uint32_t)*c; /* the same name in another block: the same weights by seed */
    float x = noise(seed + at * 7919u, (uint32_t)(row * n0 + i));
    return n0 * (row + 1) <= n0 && strstr(name, "norm") ? 1.0f + 0.3f * x
                                                        : x * 2.0f / sqrtf((float)n0);
}

static void tensor(writer *w, const char *name, uint32_t seed, uint64_t n0, uint64_t n1)
{
    const uint64_t dims[2] = {n0, n1};
    if (w->declare) {
        assert_int_equal(gem_gguf_declare_tensor(w->g, name, GEM_DTYPE_F32, n1 ? 2 : 1, dims, NULL),
                         GEM_OK);
        return;
    }
    float *row = malloc(n0 * sizeof(*row));
    for (uint64_t r = 0; r < GEM_MAX(n1, 1); r++) {
        for (uint64_t i = 0; i < n0; i++)
            row[i] = value(w, name, seed, n0, r, i);
        if (!strcmp(name, "token_embd.weight")) {
            if (w->r->embd)
                memcpy(row, w->r->embd + r * D, D * sizeof(*row));
            else
                unit_row(row);
        }
        assert_int_equal(gem_gguf_put_data(w->g, row, n0 * sizeof(*row), NULL), GEM_OK);
    }
    free(row);
}

static void block(writer *w, int l, uint32_t seed, bool nextn)
{
    static const struct {
        const char *name;
        uint64_t n0, n1;
        bool nextn;
    } list[] = {
        {"attn_norm.weight", D, 0, false},
        {"attn_q.weight", D, 2 * HEADS * HD, false},
        {"attn_k.weight", D, HD, false},
        {"attn_v.weight", D, HD, false},
        {"attn_output.weight", HEADS * HD, D, false},
        {"attn_q_norm.weight", HD, 0, false},
        {"attn_k_norm.weight", HD, 0, false},
        {"post_attention_norm.weight", D, 0, false},
        {"ffn_gate.weight", D, FF, false},
        {"ffn_up.weight", D, FF, false},
        {"ffn_down.weight", FF, D, false},
        {"nextn.eh_proj.weight", 2 * D, D, true},
        {"nextn.enorm.weight", D, 0, true},
        {"nextn.hnorm.weight", D, 0, true},
        {"nextn.shared_head_norm.weight", D, 0, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        char name[64];
        if (list[i].nextn && !nextn) continue;
        /* the last norm of the block is the trunk's */
        bool last = strstr(list[i].name, "shared_head_norm") != NULL;
        snprintf(name, sizeof(name), "blk.%d.%s", l, list[i].name);
        if (last && !w->declare) {
            float row[D];
            for (uint32_t k = 0; k < D; k++)
                row[k] = value(w, "output_norm.weight", 9, D, 0, k);
            assert_int_equal(gem_gguf_put_data(w->g, row, sizeof(row), NULL), GEM_OK);
        } else {
            tensor(w, name, seed, list[i].n0, list[i].n1);
        }
    }
}

static void tensors(writer *w)
{
    tensor(w, "token_embd.weight", 1, D, VOCAB);
    tensor(w, "output_norm.weight", 9, D, 0);
    tensor(w, "output.weight", 3, D, VOCAB);
    block(w, 0, w->r->layer0, false);
    if (w->r->nextn) block(w, 1, w->r->layer1, true);
}

static gem_model *open_recipe(const recipe *r, bool drafter)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {
        {"context_length", 4096},       {"embedding_length", D},
        {"feed_forward_length", FF},    {"attention.head_count", HEADS},
        {"attention.head_count_kv", 1}, {"attention.key_length", HD},
        {"attention.value_length", HD}, {"full_attention_interval", 1},
        {"rope.dimension_count", 32},   {"ssm.conv_kernel", 4},
        {"ssm.state_size", 32},         {"ssm.group_count", 1},
        {"ssm.time_step_rank", 1},      {"ssm.inner_size", 32},
    };
    char path[128], key[96];
    writer w = {.r = r, .declare = true};
    tiny t = {.arch = "qwen35", .vocab = VOCAB};
    tiny_path(path, "drafter");
    assert_int_equal(gem_gguf_writer_new(&w.g, path, NULL), GEM_OK);
    assert_int_equal(gem_gguf_put_str(w.g, "general.architecture", "qwen35", 6, NULL), GEM_OK);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(key, sizeof(key), "qwen35.%s", keys[i].key);
        assert_int_equal(gem_gguf_put_u32(w.g, key, keys[i].value, NULL), GEM_OK);
    }
    gem_gguf_put_u32(w.g, "qwen35.block_count", r->nextn ? 2 : 1, NULL);
    if (r->nextn) gem_gguf_put_u32(w.g, "qwen35.nextn_predict_layers", 1, NULL);
    gem_gguf_put_f32(w.g, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f, NULL);
    gem_gguf_put_f32(w.g, "qwen35.rope.freq_base", 1e6f, NULL);
    tiny_writer tw = {.w = w.g, .t = &t};
    tiny_tokens(&tw);
    assert_int_equal(tw.st, GEM_OK);
    tensors(&w);
    w.declare = false;
    tensors(&w);
    assert_int_equal(gem_gguf_writer_finish(w.g, NULL), GEM_OK);
    gem_gguf_writer_free(w.g);
    gem_model *m;
    gem_error err = {0};
    const gem_model_options o = {.n_ctx = CTX,
                                 .n_batch = 128,
                                 .n_sessions = 3,
                                 .n_threads = 2,
                                 .exact = true,
                                 .drafter = drafter};
    gem_status st = gem_model_open(&m, path, &o, &err);
    unlink(path);
    if (st != GEM_OK) fail_msg("%s", err.text);
    return m;
}

static gem_model *open_synthetic(void)
{
    char path[128], line[512];
    gem_model *m;
    gem_error err = {0};
    const gem_model_options o = {.n_ctx = CTX,
                                 .n_batch = 128,
                                 .n_sessions = 3,
                                 .n_threads = 2,
                                 .state_bytes = -1,
                                 .drafter = true};
    snprintf(
        line, sizeof(line),
        "%s/gem-synth-model -p qwen35-tiny -q q8_0 --layers 4 --nextn --quiet -o %s >/dev/null",
        GEM_BIN_DIR, tiny_path(path, "drafter"));
    assert_int_equal(system(line), 0);
    gem_status st = gem_model_open(&m, path, &o, &err);
    unlink(path);
    if (st != GEM_OK) fail_msg("%s", err.text);
    return m;
}

static void fill(int32_t *tokens, int32_t n, int32_t salt)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (i * i + 5 * i + salt * 17) % (VOCAB - 1);
}

/* The block computes what the trunk computes, from the same input: every guess must be the trunk's
 * own choice, through keys and values that were filled by prompts and rounds of guesses. */
static void test_a_block_like_the_trunk_guesses_right(void **state)
{
    (void)state;
    const recipe r = {.nextn = true, .layer0 = 5, .layer1 = 5};
    gem_model *m = open_recipe(&r, true);
    int32_t prompt[100];
    int n_long = 0;
    for (int32_t salt = 0; salt < 2; salt++) {
        gem_sampler_options so;
        gem_drafter *d;
        plain_run p;
        gem_sampler_defaults(&so);
        fill(prompt, 100, salt);
        check_plain(&p, m, &so, prompt, 100 - salt * 30, 150);
        assert_int_equal(gem_drafter_own(&d, m, NULL), GEM_OK);
        gem_draft_stats s = check_speculation(&p, m, &so, d, 4, "own drafter");
        assert_int_equal(gem_draft_stats_accepted(&s), gem_draft_stats_drafted(&s));
        n_long += p.n > 50;
        gem_drafter_free(d);
        free(p.last);
    }
    assert_true(n_long > 0);
    gem_model_close(m);
}

/* The other input: the hidden vector of the position before. A trunk of the block's weights, whose
 * embedding table is those vectors, gives the same logits. */
static void test_the_hidden_vector_is_that_of_the_position_before(void **state)
{
    (void)state;
    enum { N = 90 };
    const recipe r = {.nextn = true, .from_hidden = true, .layer0 = 5, .layer1 = 6};
    gem_model *m = open_recipe(&r, true);
    int32_t tokens[N + 1], at[N + 1];
    static float table[VOCAB][D];
    static float got[VOCAB];
    const float *x;
    gem_error err;
    gem_session *s;
    fill(tokens, N + 1, 3);
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    for (int32_t done = 0, n; done < N; done += n) { /* in pieces */
        n = GEM_MIN(1 + done % 41, N - done);
        assert_int_equal(gem_session_prefill(s, tokens + done, (size_t)n, NULL, NULL, &x, &err),
                         GEM_OK);
        for (int32_t i = 0; i < n; i++) {
            memcpy(table[done + i + 1], m->hidden[i], sizeof(table[0]));
            unit_row(table[done + i + 1]);
        }
    }
    assert_int_equal(gem_session_guess(s, tokens[N], 0, &x, &err), GEM_OK);
    memcpy(got, x, sizeof(got));
    gem_session_guess_end(s);
    gem_session_free(s);
    gem_model_close(m);

    const recipe other = {.layer0 = 6, .embd = table[0]}; /* row 0: zeros, before the text */
    m = open_recipe(&other, false);
    for (int32_t i = 0; i <= N; i++)
        at[i] = i;
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_session_prefill(s, at, N + 1, NULL, NULL, &x, &err), GEM_OK);
    float largest = 0, spread = 0;
    for (int i = 0; i < VOCAB; i++) {
        largest = GEM_MAX(largest, fabsf(x[i] - got[i]));
        spread = GEM_MAX(spread, fabsf(x[i]));
    }
    /* f32 through one layer: sums of at most 128 terms, a few dozen roundings each */
    if (!(spread > 0.5f) || largest > 2e-4f * spread)
        fail_msg("logits up to %g differ by %g", (double)spread, (double)largest);
    gem_session_free(s);
    gem_model_close(m);
}

/* Logits of a chain of guesses behind a session, by hash. */
static uint64_t guesses(gem_session *s, int32_t token)
{
    uint64_t h = 7;
    gem_error err = {0};
    for (int32_t ahead = 0; ahead < 3; ahead++) {
        const float *x;
        if (gem_session_guess(s, token + ahead, ahead, &x, &err) != GEM_OK)
            fail_msg("%s", err.text);
        for (int32_t i = 0; i < s->m->plan.n_vocab; i++) {
            uint32_t b;
            memcpy(&b, &x[i], sizeof(b));
            h = (h ^ b) * 1099511628211u;
        }
    }
    gem_session_guess_end(s);
    return h;
}

/* However a session came to its position, its guesses are the same bits: pieces, guesses that were
 * taken back, trims, a checkpoint, other sessions' rows in the batch. */
static void test_guesses_do_not_depend_on_the_way(void **state)
{
    (void)state;
    enum { N = 150 };
    gem_model *m = open_synthetic();
    int32_t tokens[N], wrong[N];
    const float *x;
    gem_error err;
    gem_session *s, *t;
    gem_checkpoint *c;
    fill(tokens, N, 1);
    fill(wrong, N, 2);
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_session_prefill(s, tokens, 128, NULL, NULL, &x, &err), GEM_OK);
    assert_int_equal(gem_session_prefill(s, tokens + 128, N - 128, NULL, NULL, &x, &err), GEM_OK);
    uint64_t want = guesses(s, 5);
    assert_int_equal(guesses(s, 5), want); /* guesses leave no trace */
    gem_session_free(s);

    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_session_new(&t, m, &err), GEM_OK);
    for (int32_t i = 0; i < N; i++) {
        gem_row rows[4] = {{s, tokens[i], true}, {t, wrong[i], false}};
        const float *logits[4];
        int32_t n = 2;
        if (i % 5 == 0 && i + 2 < N) { /* two rows more, taken back */
            rows[n++] = (gem_row){s, wrong[i + 1], true};
            rows[n++] = (gem_row){s, wrong[i + 2], true};
        }
        guesses(s, wrong[i]);
        assert_int_equal(gem_batch_run(m, rows, (size_t)n, logits, &err), GEM_OK);
        if (n > 2) assert_int_equal(gem_session_trim(s, i + 1, &err), GEM_OK);
    }
    assert_int_equal(guesses(s, 5), want);

    assert_int_equal(gem_session_checkpoint(s, &c, &err), GEM_OK);
    assert_int_equal(gem_session_prefill(s, wrong, 9, NULL, NULL, &x, &err), GEM_OK);
    assert_int_equal(gem_session_rollback(s, c, &err), GEM_OK);
    assert_int_equal(guesses(s, 5), want);
    /* far back: tokens are run again, and the drafter's layer with them */
    assert_int_equal(gem_session_trim(s, 100, &err), GEM_OK);
    assert_int_equal(gem_session_guess(s, 1, 0, &x, &err), GEM_E_RANGE); /* not before they are */
    assert_int_equal(gem_session_prefill(s, tokens + 100, N - 100, NULL, NULL, &x, &err), GEM_OK);
    assert_int_equal(guesses(s, 5), want);
    gem_checkpoint_free(c);
    gem_session_free(s);
    gem_session_free(t);
    for (int i = 0; i < m->layout.n_pools; i++)
        assert_int_equal(gem_kv_used(m->kv, i), 0);
    gem_model_close(m);
}

/* One row at a time without logits: the drafter wants its hidden vector alone. Then such rows by
 * themselves: a trim to one position behind a page runs that one token again. */
static void test_single_rows_that_want_no_logits(void **state)
{
    (void)state;
    enum { N = 200 };
    gem_model *m = open_synthetic();
    int32_t tokens[N];
    const float *x;
    gem_error err = {0};
    gem_session *s, *t;
    fill(tokens, N, 4);
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_session_new(&t, m, &err), GEM_OK);
    for (int32_t i = 0; i < N; i++) {
        const gem_row row = {s, tokens[i], false};
        if (gem_batch_run(m, &row, 1, &x, &err) != GEM_OK) fail_msg("%s", err.text);
    }
    assert_int_equal(gem_session_prefill(t, tokens, N, NULL, NULL, &x, &err), GEM_OK);
    uint64_t want = guesses(t, 5);
    assert_int_equal(guesses(s, 5), want);
    assert_int_equal(gem_session_trim(t, 2 * GEM_PAGE + 1, &err), GEM_OK);
    for (int32_t i = 2 * GEM_PAGE + 1; i < N; i++)
        assert_int_equal(gem_session_decode(t, tokens[i], &x, &err), GEM_OK);
    assert_int_equal(guesses(t, 5), want);
    gem_session_free(s);
    gem_session_free(t);
    gem_model_close(m);
}

static void test_speculation_changes_no_token(void **state)
{
    (void)state;
    gem_model *m = open_synthetic();
    int32_t prompt[60];
    for (int kind = 0; kind < 2; kind++) {
        gem_sampler_options so;
        gem_drafter *d;
        plain_run p;
        gem_sampler_defaults(&so);
        so.temperature = kind ? 0.9f : 0.0f;
        so.top_k = 50;
        fill(prompt, 60, kind);
        check_plain(&p, m, &so, prompt, 60, 70);
        assert_int_equal(gem_drafter_own(&d, m, NULL), GEM_OK);
        gem_draft_stats s = check_speculation(&p, m, &so, d, 8, "own drafter");
        assert_true(p.n < 20 || gem_draft_stats_drafted(&s) > 20);
        gem_drafter_free(d);
        if (kind) check_acceptance_lengths(&p, m, &so, 8);
        free(p.last);
    }
    gem_model_close(m);
}

static void test_models_without_one(void **state)
{
    (void)state;
    const recipe r = {.layer0 = 5};
    gem_model *m = open_recipe(&r, false), *n;
    gem_drafter *d;
    gem_error err;
    assert_int_equal(gem_drafter_own(&d, m, &err), GEM_E_ARG);
    gem_model_close(m);
    tiny t = tiny_qwen2();
    char path[128];
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "drafter"))) fail();
    const gem_model_options o = {.drafter = true};
    assert_int_equal(gem_model_open(&n, path, &o, &err), GEM_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "bring no drafter"));
    unlink(path);
}

static void test_guesses_allocate_nothing(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    gem_model *m = open_synthetic();
    int32_t tokens[60], out[8], n;
    gem_session *s;
    gem_drafter *d;
    const float *x;
    gem_error err;
    fill(tokens, 60, 1);
    assert_int_equal(gem_session_new(&s, m, &err), GEM_OK);
    assert_int_equal(gem_drafter_own(&d, m, NULL), GEM_OK);
    d->begin(d, s);
    assert_int_equal(gem_session_prefill(s, tokens, 59, NULL, NULL, &x, &err), GEM_OK);
    size_t before = n_allocations;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(d->draft(d, tokens, 60, 8, out, &n, &err), GEM_OK);
        assert_int_equal(n, 8);
    }
    assert_int_equal(n_allocations - before, 0);
    gem_drafter_free(d);
    gem_session_free(s);
    gem_model_close(m);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_block_like_the_trunk_guesses_right),
        cmocka_unit_test(test_the_hidden_vector_is_that_of_the_position_before),
        cmocka_unit_test(test_guesses_do_not_depend_on_the_way),
        cmocka_unit_test(test_single_rows_that_want_no_logits),
        cmocka_unit_test(test_speculation_changes_no_token),
        cmocka_unit_test(test_models_without_one),
        cmocka_unit_test(test_guesses_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
