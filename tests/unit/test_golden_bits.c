/* The bits of the fast path on the real models: SHA-256 over the logits of all positions of the mixed
 * text (f32, little-endian, in order), the same on every instruction set, and over its first eight,
 * the same with the slow scalar oracle `ref`; committed in tests/golden/logits/bits.json. A change
 * of arithmetic shows here; a commit that means one writes the new digests, which this test prints,
 * and says why. */
#include "golden.h"

enum { OPENING = 8 };

typedef struct hashes {
    gem_sha256 *opening, *all;
    size_t row_bytes;
} hashes;

static void hash_row(void *user, int32_t pos, const float *x)
{
    hashes *h = user;
    if (pos < OPENING) gem_sha256_update(h->opening, x, h->row_bytes);
    gem_sha256_update(h->all, x, h->row_bytes);
}

static void check_digest(const char *family, const char *which, const char *isa, gem_sha256 *h)
{
    char hex[65];
    json_t *bits = golden_json("logits", "bits");
    gem_sha256_finish(h, hex);
    const char *want = json_string_value(json_object_get(json_object_get(bits, family), which));
    print_message("%s, %s, %s: %s\n", family, which, isa, hex);
    if (!want || strcmp(want, hex) != 0)
        fail_msg("%s, %s, %s: the logits' bits are not the committed ones", family, which, isa);
    json_decref(bits);
}

/* False when this machine lacks the instruction set. */
static bool check_bits(const char *family, const char *path, const char *isa, bool all)
{
    gem_model *m;
    golden g = golden_open(family, "mixed");
    bool ran = golden_model(&m, path, &g, false, isa);
    if (ran) {
        hashes h = {gem_sha256_new(), gem_sha256_new(), (size_t)g.n_vocab * sizeof(float)};
        assert_non_null(h.opening);
        assert_non_null(h.all);
        assert_true(g.n > OPENING);
        if (!all) g.n = OPENING;
        golden_run(m, &g, NULL, hash_row, &h);
        gem_model_close(m);
        check_digest(family, "opening", isa, h.opening);
        if (all)
            check_digest(family, "mixed", isa, h.all);
        else
            gem_sha256_finish(h.all, (char[65]){0});
    } else {
        print_message("%s, %s: not on this machine\n", family, isa);
    }
    golden_close(&g);
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
        any = check_bits(family, path, isas[i], true) || any;
    assert_true(check_bits(family, path, "ref", !any));
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
