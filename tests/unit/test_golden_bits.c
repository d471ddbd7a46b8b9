/* The bits of the fast path on the real models: SHA-256 over the logits of all positions of a text
 * (f32, little-endian, in order), the same on every instruction set, committed in
 * tests/golden/logits/bits.json. A change of arithmetic shows here; a commit that means one writes
 * the new digests, which this test prints, and says why. */
#include "golden.h"

static void hash_row(void *user, int32_t pos, const float *x)
{
    void **u = user; /* the hash, and the row's length */
    (void)pos;
    gem_sha256_update(u[0], x, (size_t) * (int32_t *)u[1] * sizeof(*x));
}

/* False when this machine lacks the instruction set. */
static bool check_bits(const char *family, const char *path, const char *text, const char *isa)
{
    char hex[65];
    gem_model *m;
    json_t *bits = golden_json("logits", "bits");
    golden g = golden_open(family, text);
    bool ran = golden_model(&m, path, &g, false, isa);
    if (ran) {
        gem_sha256 *h = gem_sha256_new();
        void *user[] = {h, &g.n_vocab};
        assert_non_null(h);
        golden_run(m, &g, NULL, hash_row, user);
        gem_sha256_finish(h, hex);
        gem_model_close(m);
        const char *want = json_string_value(json_object_get(json_object_get(bits, family), text));
        print_message("%s, %s text, %s: %s\n", family, text, isa, hex);
        if (!want || strcmp(want, hex) != 0)
            fail_msg("%s, %s text, %s: the logits' bits are not the committed ones", family, text,
                     isa);
    } else {
        print_message("%s, %s text, %s: not on this machine\n", family, text, isa);
    }
    golden_close(&g);
    json_decref(bits);
    return ran;
}

static void check_family(const char *family, const char *file)
{
    static const char *const isas[] = {"avx2", "avx512", "neon"};
    char path[4096];
    real_path(path, sizeof(path), file);
    if (access(path, R_OK) != 0) skip();
    bool any = false;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        any = check_bits(family, path, "mixed", isas[i]) || any;
    assert_true(check_bits(family, path, "short", "ref"));
    if (!any) check_bits(family, path, "mixed", "ref");
}

static void test_gemma(void **state)
{
    (void)state;
    check_family("gemma", REAL_GEMMA3);
}

static void test_qwen(void **state)
{
    (void)state;
    check_family("qwen", REAL_QWEN2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemma), cmocka_unit_test(test_qwen)};
    static const char *const files[] = {REAL_GEMMA3, REAL_QWEN2};
    bool any = false;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[4096];
        real_path(path, sizeof(path), files[i]);
        if (access(path, R_OK) == 0)
            any = true;
        else
            fprintf(stderr, "%s has not been fetched; its bits are not checked\n", path);
    }
    return any ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
