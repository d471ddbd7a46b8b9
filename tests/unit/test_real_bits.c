/* The promises of the KV cache on real weights, gemma-3-270m and qwen2.5-coder-0.5b: results do not
 * depend on tiles (also longer than the window), threads, batch mates or ways back; narrower KV
 * types stay close past the window as before it. Skips itself (77) when the models have not been
 * fetched: they are looked for in GEM_MODEL_DIR, XDG_CACHE_HOME/gem, HOME/.cache/gem. */
#include "bits.h"

#include <stdio.h>
#include <unistd.h>

static char gemma[1024], qwen[1024];

static bool find(char *out, size_t cap, const char *file)
{
    const char *dir = getenv("GEM_MODEL_DIR"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (dir && *dir)
        snprintf(out, cap, "%s/%s", dir, file);
    else if (cache && *cache)
        snprintf(out, cap, "%s/gem/%s", cache, file);
    else
        snprintf(out, cap, "%s/.cache/gem/%s", home ? home : "", file);
    return access(out, R_OK) == 0;
}

/* BOS and the digits (7i + 3) mod 10: long, cheap to make, and not all alike. */
static void digits(const gem_model *m, int32_t *tokens, int32_t n)
{
    int32_t digit[10], first;
    for (int d = 0; d < 10; d++) {
        int32_t *ids;
        size_t n_ids;
        char text[2] = {(char)('0' + d), 0};
        assert_int_equal(gem_tokenize(m, text, 1, 0, &ids, &n_ids, NULL), GEM_OK);
        assert_int_equal(n_ids, 1);
        digit[d] = ids[0];
        free(ids);
    }
    first = gem_tokenizer_add_bos(m->tok) ? gem_tokenizer_bos(m->tok) : digit[3];
    tokens[0] = first;
    for (int32_t i = 1; i < n; i++)
        tokens[i] = digit[(7 * (i - 1) + 3) % 10];
}

/* Plain prose without end: the first n tokens. */
static void story(const gem_model *m, int32_t *tokens, int32_t n)
{
    static const char *const who[] = {"the old captain", "a young botanist", "my neighbour",
                                      "the night watchman", "her sister"};
    static const char *const what[] = {"walked along the river", "repaired the broken clock",
                                       "wrote a long letter", "counted the boats"};
    static const char *const then[] = {"and found a small key under a stone",
                                       "but forgot to close the gate",
                                       "because the wind had turned to the north"};
    gem_bytes text = {0};
    int32_t *ids;
    size_t n_ids;
    for (int32_t day = 1; day <= n / 12; day++)
        gem_bytes_printf(&text, "On day %d %s %s %s. ", day, who[day % 5], what[day * 3 % 4],
                         then[day * 7 % 3]);
    assert_false(text.failed);
    assert_int_equal(gem_tokenize(m, text.data, text.len, GEM_TOK_BOS, &ids, &n_ids, NULL), GEM_OK);
    assert_true(n_ids >= (size_t)n);
    memcpy(tokens, ids, (size_t)n * sizeof(*tokens));
    free(ids);
    gem_bytes_free(&text);
}

static int32_t argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

enum { N_PROMPTS = 7, LONGEST = 2049, N_GREEDY = 32 };
static const int32_t prompt_len[N_PROMPTS] = {511, 512, 513, 1023, 1024, 1025, 2049};

typedef struct tile_result {
    uint64_t last[N_PROMPTS]; /* hash of the logits behind each prompt */
    int32_t greedy[N_PROMPTS][N_GREEDY];
} tile_result;

/* The first n_prompts, which are prefixes of each other: one pass, cut at each length, tiles
 * counted from the start. */
static void run_tile(const char *path, int32_t tile, int n_prompts, tile_result *out)
{
    const gem_model_options o = {.n_ctx = 2304, .n_batch = tile, .n_sessions = 2, .n_threads = 2};
    gem_model *m = bits_open(path, o, 0);
    int32_t tokens[LONGEST], done = 0;
    gem_session *s = bits_session(m);
    gem_error err = {0};
    digits(m, tokens, LONGEST);
    for (int p = 0; p < n_prompts; p++) {
        const float *x = NULL;
        gem_session *f;
        while (done < prompt_len[p]) { /* to the end of the tile or of the prompt */
            int32_t n = GEM_MIN(tile - done % tile, prompt_len[p] - done);
            if (gem_session_prefill(s, tokens + done, (size_t)n, NULL, NULL, &x, &err) != GEM_OK)
                fail_msg("%s", err.text);
            done += n;
        }
        for (int32_t i = 0; i < m->plan.n_vocab; i++)
            assert_true(isfinite(x[i]));
        out->last[p] = bits_hash(x, m->plan.n_vocab);
        bool follow = p == 2 || p == N_PROMPTS - 1;
        if (gem_session_fork(&f, s, &err) != GEM_OK) fail_msg("%s", err.text);
        for (int i = 0; follow && i < N_GREEDY; i++) {
            int32_t t = argmax(x, m->plan.n_vocab);
            assert_int_not_equal(t, 0); /* <pad>: what a fully masked row would give */
            out->greedy[p][i] = t;
            if (gem_session_decode(f, t, &x, &err) != GEM_OK) fail_msg("%s", err.text);
        }
        gem_session_free(f);
    }
    gem_session_free(s);
    gem_model_close(m);
}

static void test_tiles_across_the_window(void **state)
{
    (void)state;
    static const int32_t tiles[] = {512, 1, 32, 1024};
    static tile_result base, got;
    for (size_t i = 0; i < ARRAY_LEN(tiles); i++) {
        memset(&got, 0, sizeof(got));
        /* token by token is slow: across the window of 512 is enough */
        int n = tiles[i] == 1 ? 3 : i == 0 || tiles[i] == 1024 ? N_PROMPTS : N_PROMPTS - 1;
        run_tile(gemma, tiles[i], n, &got);
        if (i == 0) base = got;
        for (int p = 0; p < n; p++) {
            if (got.last[p] != base.last[p])
                fail_msg("tile %d: logits behind %d tokens differ", tiles[i], prompt_len[p]);
            for (int k = 0; k < N_GREEDY; k++)
                if (got.greedy[p][k] != base.greedy[p][k])
                    fail_msg("tile %d, prompt of %d: greedy token %d differs", tiles[i],
                             prompt_len[p], k);
        }
    }
}

static void check_same_bits(const char *path, int32_t n)
{
    gem_model_options o = {.n_ctx = 1024, .n_batch = n, .n_sessions = 4, .n_threads = 2};
    static const int32_t all[] = {1 << 20};
    gem_model *m = bits_open(path, o, n);
    int32_t *tokens = malloc((size_t)n * sizeof(*tokens));
    uint64_t *base = malloc((size_t)n * sizeof(*base));
    digits(m, tokens, n);
    for (int32_t i = 0; i < n; i++) /* a few words of the vocabulary between the digits */
        if (i % 5 == 3) tokens[i] = 1000 + i * 37 % 90000;
    gem_session *s = bits_session(m);
    bits_run(s, tokens, n, all, 1, base);
    gem_session_free(s);
    bits_check_ways_back(m, tokens, n, base);
    bits_check_batch_mates(m, tokens, n, base);
    gem_model_close(m);
    bits_check_tiles_and_threads(path, o, tokens, n, 4, base);
    free(tokens);
    free(base);
}

static void test_same_bits_gemma3(void **state)
{
    (void)state;
    check_same_bits(gemma, 80);
}

static void test_same_bits_qwen2(void **state)
{
    (void)state;
    check_same_bits(qwen, 48);
}

static void logits_at(const char *path, gem_kv_type type, bool exact, const int32_t *lens,
                      int n_lens, float *out)
{
    gem_model_options o = {.n_ctx = 2304, .n_sessions = 1, .kv_type = type, .exact = exact};
    gem_model *m = bits_open(path, o, 0);
    int32_t tokens[2100], done = 0;
    gem_session *s = bits_session(m);
    gem_error err = {0};
    const float *x;
    story(m, tokens, lens[n_lens - 1]);
    for (int i = 0; i < n_lens; i++) {
        if (gem_session_prefill(s, tokens + done, (size_t)(lens[i] - done), NULL, NULL, &x, &err) !=
            GEM_OK)
            fail_msg("%s", err.text);
        done = lens[i];
        memcpy(out + (size_t)i * (size_t)m->plan.n_vocab, x, (size_t)m->plan.n_vocab * sizeof(*x));
    }
    gem_session_free(s);
    gem_model_close(m);
}

static double correlation(const float *a, const float *b, int32_t n)
{
    double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
    for (int32_t i = 0; i < n; i++) {
        ma += (double)a[i] / n;
        mb += (double)b[i] / n;
    }
    for (int32_t i = 0; i < n; i++) {
        double x = (double)a[i] - ma, y = (double)b[i] - mb;
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    return ab / sqrt(aa * bb);
}

static void check_kv_types(const char *path, int32_t n_vocab, bool exact, const int32_t *lens,
                           int n_lens)
{
    enum { N_LENS = 2 };
    float *want = malloc((size_t)n_vocab * N_LENS * sizeof(*want)),
          *got = malloc((size_t)n_vocab * N_LENS * sizeof(*got));
    logits_at(path, GEM_KV_F32, exact, lens, n_lens, want);
    for (int type = GEM_KV_F16; type <= GEM_KV_F16_FULL; type++) {
        logits_at(path, (gem_kv_type)type, exact, lens, n_lens, got);
        for (int i = 0; i < n_lens; i++) {
            const float *a = want + (size_t)i * (size_t)n_vocab,
                        *b = got + (size_t)i * (size_t)n_vocab;
            for (int32_t k = 0; k < n_vocab; k++)
                assert_true(isfinite(b[k]));
            double c = correlation(a, b, n_vocab);
            print_message("KV type %d, %d tokens: correlation %.7f\n", type, lens[i], c);
            assert_int_equal(argmax(a, n_vocab), argmax(b, n_vocab));
            /* 8-bit activations amplify the smallest change; alone, f16 keys and values cost
             * nothing */
            assert_true(c >= (exact ? 0.99999 : 0.999));
        }
    }
    free(want);
    free(got);
}

static void test_narrow_kv_stays_close(void **state)
{
    (void)state;
    static const int32_t lens[] = {600, 1100}; /* past the window, past its double */
    check_kv_types(gemma, 262144, false, lens, 2);
    check_kv_types(gemma, 262144, true, lens, 1);
}

static void test_narrow_kv_stays_close_qwen2(void **state)
{
    (void)state;
    static const int32_t len = 200; /* no window to pass */
    check_kv_types(qwen, 151936, false, &len, 1);
}

int main(void)
{
    if (!find(gemma, sizeof(gemma), "gemma-3-270m-q4_k_m.gguf") ||
        !find(qwen, sizeof(qwen), "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")) {
        printf("skipped: %s and its like have not been fetched\n", gemma);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_gemma3),
        cmocka_unit_test(test_same_bits_qwen2),
        cmocka_unit_test(test_tiles_across_the_window),
        cmocka_unit_test(test_narrow_kv_stays_close),
        cmocka_unit_test(test_narrow_kv_stays_close_qwen2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
