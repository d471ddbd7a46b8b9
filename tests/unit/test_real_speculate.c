/* Speculative decoding on real weights, gemma-3-270m and qwen2.5-coder-0.5b: the tokens of plain
 * decoding, greedy and sampled. A few prompts; GEM_TEST_PROMPTS=50 takes all (from
 * GEM_TEST_FIRST_PROMPT on). Skips itself (77)
 * when the models have not been fetched: they are looked for in GEM_MODEL_DIR, XDG_CACHE_HOME/gem,
 * HOME/.cache/gem. */
#include "speculate_check.h"

#include <stdio.h>
#include <unistd.h>

enum { N_PROMPTS = 50 };
static char gemma[1024], qwen[1024];
static int first_prompt, n_prompts = 2, n_tokens = 32;

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

static gem_model *open_real(const char *path)
{
    gem_model *m;
    gem_error err = {0};
    const gem_model_options o = {.n_ctx = 1024, .n_sessions = 2};
    if (gem_model_open(&m, path, &o, &err) != GEM_OK) fail_msg("%s", err.text);
    return m;
}

/* Ten subjects, each in five forms: prose, a list, code, a copy, a dialogue. */
static void write_prompt(int i, char *out, size_t cap)
{
    static const char *const about[10] = {
        "a red bicycle",   "the tides of the sea", "binary search", "a bakery in winter",
        "the planet Mars", "sorting a list",       "a lost letter", "growing tomatoes",
        "counting to ten", "the history of clocks"};
    static const char *const form[5][3] = {
        {"Once there was a story about ", ". To tell of ", ", it began like this:"},
        {"Five facts about ", ":\n1. The first fact about ", " is"},
        {"/* A small C program about ", ".\n * It prints what is known of ",
         ". */\n#include <stdio.h>\n\nint main(void)\n{\n"},
        {"Copy this line four times.\nLine: I know a little about ",
         ".\nLine: I know a little about ", ".\nLine: I know"},
        {"A: Tell me something about ", ".\nB: Gladly. About ", " one must know that"}};
    const char *const *f = form[i % 5], *what = about[i / 5 % 10];
    snprintf(out, cap, "%s%s%s%s%s", f[0], what, f[1], what, f[2]);
}

static void check_prompts(const char *path)
{
    gem_model *m = open_real(path);
    gem_drafter *d;
    uint64_t kept = 0, rounds = 0, tokens = 0;
    assert_int_equal(gem_drafter_ngram(&d, NULL), GEM_OK);
    for (int i = 0; i < n_prompts; i++) {
        char text[512], what[32];
        int32_t *ids;
        size_t n_ids;
        plain_run p;
        gem_sampler_options so;
        int which = n_tokens < 64 ? i * (N_PROMPTS / n_prompts) + 3 : first_prompt + i;
        gem_sampler_defaults(&so);
        so.seed = (uint64_t)i + 1;
        if (i % 2 == 1) {
            so.temperature = 0.7f;
            so.top_k = 40;
            so.top_p = 0.95f;
            so.repetition_penalty = i % 4 == 1 ? 1.1f : 1.0f;
        }
        write_prompt(which % N_PROMPTS, text, sizeof(text));
        snprintf(what, sizeof(what), "prompt %d", which % N_PROMPTS);
        assert_int_equal(gem_tokenize(m, text, strlen(text), GEM_TOK_BOS, &ids, &n_ids, NULL),
                         GEM_OK);
        check_plain(&p, m, &so, ids, (int32_t)n_ids, n_tokens);
        gem_draft_stats s = check_speculation(&p, m, &so, d, GEM_DRAFT_MAX, what);
        if (i == 0 && first_prompt == 0) { /* every length, once */
            for (int32_t right = 0; right <= GEM_DRAFT_MAX; right += n_tokens < 64 ? 5 : 1) {
                knowing_drafter k = {
                    {"knowing", knowing_draft, knowing_free, NULL}, &p, right, m->plan.n_vocab};
                check_speculation(&p, m, &so, &k.base, GEM_DRAFT_MAX, "knowing");
            }
        }
        kept += gem_draft_stats_accepted(&s);
        rounds += s.rounds;
        tokens += s.tokens;
        free(p.last);
        free(ids);
    }
    printf("%d prompts: %llu guesses kept, %.2f tokens a round\n", n_prompts,
           (unsigned long long)kept, (double)tokens / (double)rounds);
    assert_true(kept > 0);
    gem_drafter_free(d);
    gem_model_close(m);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_prompts(gemma);
}

static void test_qwen2(void **state)
{
    (void)state;
    check_prompts(qwen);
}

int main(void)
{
    const char *n = getenv("GEM_TEST_PROMPTS"), *first = getenv("GEM_TEST_FIRST_PROMPT");
    if (first) first_prompt = atoi(first);
    if (n) n_tokens = 64;
    if (n) n_prompts = GEM_MAX(1, GEM_MIN(atoi(n), N_PROMPTS));
    if (!find(gemma, sizeof(gemma), "gemma-3-270m-q4_k_m.gguf") ||
        !find(qwen, sizeof(qwen), "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")) {
        fprintf(stderr, "the models have not been fetched (gem pull): skipped\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_qwen2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
