/* Same request, same bits, on small models with seeded weights: tiles, threads, ways back and batch
 * mates change no byte of any row's logits; nothing is allocated while tokens flow. */
#include "count_malloc.h"

#include "backend/cpu/kernels.h"
#include "bits.h"
#include "slow_build.h"
#include "tiny_model.h"

enum { N = SLOW_BUILD ? 110 : 230 }; /* crosses the window of 100 and several pages */

static const char *write_model(char path[128], tiny t)
{
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "bits"))) fail();
    return path;
}

/* Every way to run the same n tokens; max_vocab: ids stay below. */
static void check_file(const char *path, int32_t n, int32_t max_vocab, gem_model_options o,
                       int max_threads)
{
    int32_t *tokens = malloc((size_t)n * sizeof(*tokens));
    uint64_t *base = malloc((size_t)n * sizeof(*base));
    static const int32_t all[] = {1 << 20};
    for (int32_t i = 0; i < n; i++)
        tokens[i] = (i * i + 3 * i) % (max_vocab - 1);
    o.n_ctx = GEM_MAX(512, n);
    o.n_batch = n;
    o.n_sessions = 4;
    o.n_threads = 2;
    gem_model *m = bits_open(path, o, n);
    gem_session *s = bits_session(m);
    bits_run(s, tokens, n, all, 1, base);
    for (int32_t i = 1; i < n; i++)
        assert_true(base[i] != base[i - 1]);
    gem_session_free(s);
    bits_check_ways_back(m, tokens, n, base);
    bits_check_batch_mates(m, tokens, n, base);
    gem_model_close(m);
    bits_check_tiles_and_threads(path, o, tokens, n, max_threads, base);
    free(tokens);
    free(base);
}

static void check(tiny t, gem_model_options o, int max_threads)
{
    char path[128];
    check_file(write_model(path, t), N, 300, o, max_threads);
    unlink(path);
}

static void test_gemma3(void **state)
{
    (void)state;
    check(tiny_gemma3(), (gem_model_options){0}, 4);
}

static void test_qwen2(void **state)
{
    (void)state;
    check(tiny_qwen2(), (gem_model_options){0}, 4);
}

/* Heads and values that differ by layer, in every KV type; fast and exact. */
static void test_gemma4(void **state)
{
    (void)state;
    check(tiny_gemma4(), (gem_model_options){0}, 4);
    check(tiny_gemma4(), (gem_model_options){.kv_type = GEM_KV_F16}, 2);
    check(tiny_gemma4(), (gem_model_options){.kv_type = GEM_KV_F16_FULL}, 2);
    check(tiny_gemma4(), (gem_model_options){.kv_type = GEM_KV_F32_VALUES}, 2);
    check(tiny_gemma4(), (gem_model_options){.exact = true}, 2);
}

/* Keys made of values are the keys that would have been kept; in every instruction set. */
static void check_values_alone(const char *path)
{
    enum { TOKENS = SLOW_BUILD ? 180 : 600 };
    static const int32_t pieces[] = {150, 1, 33};
    int32_t tokens[TOKENS];
    uint64_t kept[TOKENS], made[TOKENS];
    gem_cpu_isa isa[8];
    int n_isas = gem_cpu_isas(isa, 8);
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = (i * i + 7 * i) % 1023;
    gem_model_options o = {.n_ctx = TOKENS, .n_batch = 150, .n_sessions = 1};
    for (int k = -1; k < n_isas; k++) {
        gem_kv_type type = k < 0 ? GEM_KV_F32 : GEM_KV_F32_VALUES;
        int32_t n = k == n_isas - 1 ? 100 : TOKENS; /* ref is slow */
        if (k >= 0 && !isa[k].usable) continue;
        o.kv_type = type;
        o.isa = k < 0 ? NULL : isa[k].name;
        gem_model *m = bits_open(path, o, 150);
        gem_session *s = bits_session(m);
        bits_run(s, tokens, n, pieces, 3, k < 0 ? kept : made);
        if (k >= 0) bits_compare(isa[k].name, kept, made, n);
        gem_session_free(s);
        gem_model_close(m);
    }
}

/* 16 query heads on one KV head, past the window of 256. */
static void test_gemma4_synthetic(void **state)
{
    (void)state;
    char path[128], line[512];
    tiny_path(path, "synth");
    snprintf(line, sizeof(line),
             "%s/gem-synth-model -p gemma4-tiny -q q4_0 --quiet -o %s >/dev/null", GEM_BIN_DIR,
             path);
    assert_int_equal(system(line), 0);
    enum { MORE = SLOW_BUILD ? 70 : 300, LESS = SLOW_BUILD ? 50 : 270 }; /* the window is 256 */
    check_file(path, MORE, 1024, (gem_model_options){0}, 4);
    check_file(path, LESS, 1024, (gem_model_options){.kv_type = GEM_KV_F16}, 1);
    check_file(path, LESS, 1024, (gem_model_options){.kv_type = GEM_KV_F16_FULL}, 1);
    check_file(path, LESS, 1024, (gem_model_options){.kv_type = GEM_KV_F32_VALUES}, 1);
    check_values_alone(path);
    unlink(path);
}

/* Recurrent layers: chunks of 64 positions, states and tapes; three value heads on a key head and
 * one, with another size of state. */
static void test_qwen35_synthetic(void **state)
{
    (void)state;
    static const struct {
        const char *args;
        int32_t n;
        gem_model_options o;
        int threads;
    } cases[] = {
        {"-q q4_k_m", 210, {0}, 3},
        {"-q q8_0 --v-heads 2 --state-dim 32 --tied", 140, {.kv_type = GEM_KV_F16}, 1},
        {"-q f16 --layers 3 --v-heads 4", 140, {.kv_type = GEM_KV_F16_FULL}, 1},
        {"-q q5_k_m --layers 4", 100, {.exact = true}, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[128], line[512];
        tiny_path(path, "synth");
        snprintf(line, sizeof(line),
                 "%s/gem-synth-model -p qwen35-tiny %s --quiet -o %s >/dev/null", GEM_BIN_DIR,
                 cases[i].args, path);
        assert_int_equal(system(line), 0);
        check_file(path, SLOW_BUILD ? 70 : cases[i].n, 1024, cases[i].o, cases[i].threads);
        unlink(path);
    }
}

static void test_other_types_and_kv(void **state)
{
    (void)state;
    static const gem_dtype types[] = {GEM_DTYPE_Q4_0, GEM_DTYPE_Q5_0, GEM_DTYPE_F16, GEM_DTYPE_F32};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        tiny t = tiny_gemma3();
        t.linear = types[i];
        check(t, (gem_model_options){.kv_type = (gem_kv_type)(i % 3)}, 2);
    }
}

static void test_exact_and_mapped(void **state)
{
    (void)state;
    check(tiny_gemma3(), (gem_model_options){.exact = true}, 2);
    check(tiny_qwen2(), (gem_model_options){.no_repack = true}, 2);
}

/* Weights as mapped and weights repacked are the same numbers in the same order. */
static void test_repacking_changes_no_bit(void **state)
{
    (void)state;
    char path[128];
    int32_t tokens[N];
    uint64_t base[N], got[N];
    static const int32_t all[] = {N};
    for (int32_t i = 0; i < N; i++)
        tokens[i] = (i * 5) % 300;
    write_model(path, tiny_gemma3());
    for (int way = 0; way < 2; way++) {
        gem_model *m = bits_open(
            path, (gem_model_options){.n_ctx = 512, .n_batch = N, .no_repack = way == 1}, N);
        gem_session *s = bits_session(m);
        bits_run(s, tokens, N, all, 1, way ? got : base);
        gem_session_free(s);
        gem_model_close(m);
    }
    bits_compare("no_repack", base, got, N);
    unlink(path);
}

static void test_decode_allocates_nothing(void **state)
{
    (void)state;
#ifdef COUNTS_MALLOC
    char path[128];
    write_model(path, tiny_gemma3());
    gem_model *m = bits_open(path, (gem_model_options){.n_ctx = 512, .n_threads = 2}, 0);
    gem_session *s = bits_session(m);
    gem_error err;
    const float *x;
    int32_t prompt[150] = {0};
    assert_int_equal(gem_session_prefill(s, prompt, 1, NULL, NULL, &x, &err), GEM_OK);
    size_t before = n_allocations;
    assert_int_equal(gem_session_prefill(s, prompt, 150, NULL, NULL, &x, &err), GEM_OK);
    for (int i = 0; i < 200; i++)
        assert_int_equal(gem_session_decode(s, i, &x, &err), GEM_OK);
    assert_int_equal(n_allocations - before, 0);
    gem_session_free(s);
    gem_model_close(m);
    unlink(path);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_gemma4_synthetic),
        cmocka_unit_test(test_qwen35_synthetic),
        cmocka_unit_test(test_other_types_and_kv),
        cmocka_unit_test(test_exact_and_mapped),
        cmocka_unit_test(test_repacking_changes_no_bit),
        cmocka_unit_test(test_decode_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
