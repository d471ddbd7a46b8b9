/* Same request, same bits, on small models with seeded weights: tiles, threads, ways back and batch
 * mates change no byte of any row's logits; nothing is allocated while tokens flow. */
#include "count_malloc.h"

#include "bits.h"
#include "tiny_model.h"

enum { N = 230 }; /* crosses the window of 100 and several pages */

static const char *write_model(char path[128], tiny t)
{
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "bits"))) fail();
    return path;
}

static void check(tiny t, gem_model_options o, int max_threads)
{
    char path[128];
    int32_t tokens[N];
    uint64_t base[N];
    static const int32_t all[] = {N};
    for (int32_t i = 0; i < N; i++)
        tokens[i] = (i * i + 3 * i) % 299;
    write_model(path, t);
    o.n_ctx = 512;
    o.n_batch = N;
    o.n_sessions = 4;
    o.n_threads = 2;
    gem_model *m = bits_open(path, o, N);
    gem_session *s = bits_session(m);
    bits_run(s, tokens, N, all, 1, base);
    for (int32_t i = 1; i < N; i++)
        assert_true(base[i] != base[i - 1]);
    gem_session_free(s);
    bits_check_ways_back(m, tokens, N, base);
    bits_check_batch_mates(m, tokens, N, base);
    gem_model_close(m);
    bits_check_tiles_and_threads(path, o, tokens, N, max_threads, base);
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
    check(tiny_gemma4(), (gem_model_options){.exact = true}, 2);
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
        cmocka_unit_test(test_other_types_and_kv),
        cmocka_unit_test(test_exact_and_mapped),
        cmocka_unit_test(test_repacking_changes_no_bit),
        cmocka_unit_test(test_decode_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
