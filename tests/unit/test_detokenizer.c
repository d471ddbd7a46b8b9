/* Streaming detokenizer: whole characters out, whatever the tokens cut. */
#include "small_vocab.h"
#include "tokenizer/detokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka needs the three above */
#include <cmocka.h>

#define FFFD "\xEF\xBF\xBD"

static vocab_spec spec;
static small_vocab vocab;

static int open_vocab(void **state)
{
    (void)state;
    vocab_of_chars(&spec, "llama");
    return small_open(&vocab, &spec, NULL) == GEM_OK ? 0 : -1;
}

static int close_vocab(void **state)
{
    (void)state;
    small_close(&vocab);
    vocab_clear(&spec);
    return 0;
}

/* Tokens by their stored text, as "a|b|c"; the pieces that come out joined by '.', the finish last.
 */
static void assert_stream(const char *tokens, bool special, const char *want)
{
    gem_detok *d;
    gem_bytes got = {0};
    size_t n;
    char buf[256];
    assert_true(strlen(tokens) < sizeof(buf));
    memcpy(buf, tokens, strlen(tokens) + 1);
    assert_int_equal(gem_detok_new(&d, vocab.t, special, NULL), GEM_OK);
    for (char *save, *tok = strtok_r(buf, "|", &save); tok; tok = strtok_r(NULL, "|", &save)) {
        const char *text = gem_detok_push(d, (int32_t)vocab_id(&spec, tok), &n);
        assert_int_equal(strlen(text), n);
        assert_int_equal(gem_utf8_complete(text, n), n);
        gem_bytes_printf(&got, "%s.", text);
    }
    const char *text = gem_detok_finish(d, &n);
    assert_int_equal(strlen(text), n);
    gem_bytes_put(&got, text, n);
    assert_string_equal(got.data, want);
    gem_detok_finish(d, &n); /* nothing is left, and it can be used again */
    assert_int_equal(n, 0);
    gem_detok_free(d);
    gem_bytes_free(&got);
}

static void test_plain_tokens_pass_at_once(void **state)
{
    (void)state;
    assert_stream("hello|\xE2\x96\x81world|\n", false, "hello. world.\n.");
}

static void test_a_character_waits_for_its_last_byte(void **state)
{
    (void)state;
    assert_stream("<0xC3>|<0xA8>", false, ".\xC3\xA8.");
    assert_stream("a|<0xF0>|<0x9F>|<0x99>|<0x83>|b", false, "a....\xF0\x9F\x99\x83.b.");
}

static void test_a_tail_becomes_one_replacement(void **state)
{
    (void)state;
    assert_stream("a|<0xF0>|<0x9F>|<0x99>", false, "a...." FFFD);
    assert_stream("<0xC3>", false, "." FFFD);
}

static void test_invalid_bytes_become_one_replacement_each(void **state)
{
    (void)state;
    assert_stream("<0xFF>|a", false, FFFD ".a.");
    assert_stream("<0xE2>|<0x96>|a", false, ".." FFFD FFFD "a."); /* what waited is lost */
    assert_stream("<0xC3>|<0xC3>|<0xA8>", false,
                  "." FFFD ".\xC3\xA8."); /* the second still waits */
    assert_stream("<0xED>|<0xA0>|<0x80>", false, "." FFFD FFFD "." FFFD ".");
}

static void test_control_tokens_show_on_request(void **state)
{
    (void)state;
    assert_stream("<bos>|a|<end_of_turn>", false, ".a..");
    assert_stream("<bos>|a|<end_of_turn>", true, "<bos>.a.<end_of_turn>.");
}

/* Any tokens in any order: the text equals that of all bytes at once, and never ends mid-character.
 */
static void test_random_streams_equal_the_whole(void **state)
{
    uint32_t x = 7;
    (void)state;
    for (int round = 0; round < 200; round++) {
        gem_bytes raw = {0}, want = {0}, got = {0};
        gem_detok *d;
        size_t n;
        assert_int_equal(gem_detok_new(&d, vocab.t, true, NULL), GEM_OK);
        for (int i = 0; i < 60; i++) {
            x = x * 1664525u + 1013904223u;
            int32_t id = (int32_t)((x >> 8) % spec.n_tok);
            const char *bytes = gem_tokenizer_bytes(vocab.t, id, true, &n);
            gem_bytes_put(&raw, bytes, n);
            bytes = gem_detok_push(d, id, &n);
            gem_bytes_put(&got, bytes, n);
        }
        const char *rest = gem_detok_finish(d, &n);
        gem_bytes_put(&got, rest, n);

        size_t whole = gem_utf8_complete(raw.data, raw.len);
        for (size_t i = 0; i < whole;) {
            uint32_t cp;
            int len = gem_utf8_decode(raw.data + i, whole - i, &cp);
            gem_bytes_put(&want, len ? raw.data + i : FFFD, len ? (size_t)len : 3);
            i += len ? (size_t)len : 1;
        }
        if (whole < raw.len) gem_bytes_put(&want, FFFD, 3);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len);
        gem_detok_free(d);
        gem_bytes_free(&raw);
        gem_bytes_free(&want);
        gem_bytes_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_tokens_pass_at_once),
        cmocka_unit_test(test_a_character_waits_for_its_last_byte),
        cmocka_unit_test(test_a_tail_becomes_one_replacement),
        cmocka_unit_test(test_invalid_bytes_become_one_replacement_each),
        cmocka_unit_test(test_control_tokens_show_on_request),
        cmocka_unit_test(test_random_streams_equal_the_whole),
    };
    return cmocka_run_group_tests_name("detokenizer", tests, open_vocab, close_vocab);
}
