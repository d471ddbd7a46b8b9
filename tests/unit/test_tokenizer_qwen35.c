/* The vocabulary of Qwen3.5 to 3.8 with its 248,077 tokens: published vectors and every marker.
 * Needs qwen3.5-vocab.gguf beside the models (tests/golden/tokenizer/make_qwen35_vocab.py makes
 * it). Texts are not normalised: a decomposed character keeps its own tokens. */
#include "real_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka needs both */
#include <cmocka.h>

static real_vocab vocab;

static const struct {
    const char *text, *ids;
} vectors[] = {
    {"Hello world", "9419 1814"},
    {"Hello  world", "9419 220 1814"},
    {"Hello   world", "9419 256 1814"},
    {"I'm sure we'LL see, it'S fine", "40 2688 2617 567 6 3950 1436 11 424 12887 6699"},
    {"don't", "14572 914"},
    {"'S'", "12887 6"},
    {"a\r\nb\r\n\r\nc", "64 317 65 845 66"},
    {"x \n y", "87 695 374"},
    {"  lead", "220 2895"},
    {"trail  ", "75210 256"},
    {"\t\tif (x) {\n\t}\n", "197 720 318 87 8 313 198 197 92 198"},
    {"12345 3.14", "16 17 18 19 20 220 18 13 16 19"},
    {"é", "933"},
    {"naïve café", "3267 36328 571 50203"},
    {"e\xCC\x81", "68 52033"}, /* not joined into é */
    {"中文测试", "99986 99449"},
    {"人力资源", "99655"},
    {"你好，世界！", "109266 3709 96748 6115"},
    {"Привет, мир!", "51844 26125 7921 11 160202 0"},
    {"हिन्दी", "215989 150127 177453"},
    {"กำลัง", "151088"},
    {"🙂👍🏽", "169171 9008 239 235 9008 237 121"},
    {"1️⃣", "16 29545 158 225 96"},
    {"\xC2\xA0x", "3966 87"},
    {"a\xE2\x80\x8B"
     "b",
     "64 15231 65"},
    {"foo\xE3\x80\x80"
     "bar",
     "7724 21742 2185"},
    {"print('hi')", "1302 482 5834 837"},
    {"==>\n\n\nx", "81731 1358 87"},
    {"\n\n", "271"},
    {"  \n  x", "2228 220 830"},
    {" !!\n\nA", "10693 271 32"},
    {"x=1;\r\n\r\n\r\n  y=2", "87 28 16 26 8301 220 374 28 17"},
    {"résumé — “quoted” …", "41196 168699 1892 1001 61574 828 4444"},
    {"The quick brown fox jumps over the lazy dog.",
     "760 3841 13477 37550 33075 888 279 15217 5388 13"},
    {"function add(a, b) {\n    return a + b;\n}\n",
     "1628 884 2784 11 292 8 313 198 262 460 264 478 292 26 198 92 198"},
    {"Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ",
     "9419 0 220 97169 97621 6115 16 478 220 16 283 220 17 9551 254 68933 128 97 91914 28495 68933 "
     "128 105 68933 128 95"},
    {"俱乐部", "98112 96404 95938"}, /* a token that no merge reaches */
    {"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n",
     "248045 846 198 12675 248046 198 248045 74455 198 248068 198"},
    {"<think>\n\n</think>\n\n", "248068 271 248069 271"},
    {"<think>\nok\n</think>\n\nHi<|im_end|>", "248068 198 547 198 248069 271 12675 248046"},
    {"<|im_start|>system\nBe terse.<|im_end|>\n", "248045 8678 198 3320 48834 13 248046 198"},
    {"<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"
     "</tool_call>",
     "248058 198 27 1628 27362 67017 29 198 27 15704 28 8656 29 198 27925 379 198 510 15704 29 198 "
     "510 1628 29 198 248059"},
};

static void encode(gem_bytes *out, const char *text, size_t len, int flags)
{
    int32_t *ids;
    size_t n;
    assert_int_equal(gem_tokenizer_encode(vocab.t, text, len, flags, &ids, &n, NULL), GEM_OK);
    gem_bytes_put(out, "", 0);
    for (size_t i = 0; i < n; i++)
        gem_bytes_printf(out, "%s%d", i ? " " : "", ids[i]);
    free(ids);
}

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        gem_bytes got = {0};
        encode(&got, vectors[i].text, strlen(vectors[i].text), GEM_TOK_SPECIAL);
        assert_string_equal(got.data, vectors[i].ids);
        gem_bytes_free(&got);
    }
}

static void test_markers(void **state)
{
    int n = 0, n_end = 0;
    (void)state;
    for (int32_t id = 248044; id < gem_tokenizer_n_vocab(vocab.t); id++) {
        char want[16], text[64];
        size_t len;
        gem_token_type type = gem_tokenizer_type(vocab.t, id);
        const char *bytes = gem_tokenizer_bytes(vocab.t, id, true, &len);
        n_end += gem_tokenizer_is_end(vocab.t, id);
        assert_int_equal(type == GEM_TOKEN_UNUSED, id > 248076);
        if (type == GEM_TOKEN_UNUSED) continue;
        gem_bytes on = {0}, plain = {0};
        assert_true(len < sizeof(text));
        snprintf(text, sizeof(text), "%.*s", (int)len, bytes);
        snprintf(want, sizeof(want), "%d", id);
        encode(&on, text, len, GEM_TOK_SPECIAL);
        encode(&plain, text, len, GEM_TOK_PLAIN);
        assert_string_equal(on.data, want);
        assert_null(strstr(plain.data, want));
        gem_bytes_free(&on);
        gem_bytes_free(&plain);
        n++;
    }
    assert_int_equal(n, 33);
    assert_int_equal(n_end, 5); /* endoftext, im_end, fim_pad, repo_name, file_sep */
    assert_true(gem_tokenizer_is_end(vocab.t, 248044) && gem_tokenizer_is_end(vocab.t, 248046));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_markers),
    };
    if (!real_open(&vocab, REAL_QWEN35)) return 77;
    int failed = cmocka_run_group_tests_name("tokenizer_qwen35", tests, NULL, NULL);
    real_close(&vocab);
    return failed;
}
