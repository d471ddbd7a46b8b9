/* Tokenizer on small vocabularies: merging, markers, broken text, hostile text, refused files. */
#include "cpu_time.h"
#include "slow_build.h"
#include "small_vocab.h"
#include "tokenizer/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka needs the three above */
#include <cmocka.h>
#include <math.h>

typedef void (*spec_fn)(vocab_spec *);

static void spec_score(vocab_spec *v)
{
    vocab_of_chars(v, "llama");
}

static void spec_rank(vocab_spec *v)
{
    vocab_of_chars(v, "gemma4");
}

static void spec_qwen2(vocab_spec *v)
{
    vocab_of_words(v, "qwen2");
}

static void spec_qwen35(vocab_spec *v)
{
    vocab_of_words(v, "qwen35");
}

/* Pieces of a text as "[one][two]", stored form, so that a failure reads well. */
static void assert_pieces(spec_fn make, const char *text, size_t len, int flags, const char *want)
{
    vocab_spec v;
    small_vocab s;
    gem_error err = {0};
    int32_t *ids;
    size_t n;
    gem_bytes got = {0};
    make(&v);
    assert_int_equal(small_open(&s, &v, &err), GEM_OK);
    assert_int_equal(gem_tokenizer_encode(s.t, text, len, flags, &ids, &n, &err), GEM_OK);
    gem_bytes_put(&got, "", 0);
    for (size_t i = 0; i < n; i++) {
        assert_in_range(ids[i], 0, v.n_tok - 1);
        gem_bytes_printf(&got, "[%s]", v.tok[ids[i]].text);
    }
    assert_string_equal(got.data, want);
    gem_bytes_free(&got);
    free(ids);
    small_close(&s);
    vocab_clear(&v);
}

#define PIECES(make, text, flags, want) assert_pieces(make, text, sizeof(text) - 1, flags, want)
#define U "\xE2\x96\x81" /* a space in stored form */
#define G "\xC4\xA0"     /* a space in the byte alphabet */
#define NL "\xC4\x8A"    /* a newline in the byte alphabet */

static void test_score_merges_best_first(void **state)
{
    (void)state;
    PIECES(spec_score, "hello world", 0, "[hello][" U "world]");
    PIECES(spec_score, "hell", 0, "[hell]");
    PIECES(spec_score, "aaaaa", 0, "[aaaa][a]"); /* equal scores: the leftmost pair */
    PIECES(spec_score, "abc", 0, "[abc]");       /* "ab" scores above "bc" */
    PIECES(spec_score, "", 0, "");
    PIECES(spec_score, " ", 0, "[" U "]");
    PIECES(spec_score, "a b", 0, "[a][" U "][b]");
}

static void test_rank_merges_lowest_first(void **state)
{
    (void)state;
    PIECES(spec_rank, "hello world", 0, "[hello][" U "world]");
    PIECES(spec_rank, "aaaaa", 0, "[aaaa][a]");
    PIECES(spec_rank, "user", 0, "[user]");
    PIECES(spec_rank, "abcb", 0, "[abc][b]");
    PIECES(spec_qwen2, "hello world", 0, "[hello][" G "world]");
    PIECES(spec_qwen2, "aaaaa", 0, "[aaaa][a]");
    PIECES(spec_qwen2, "system", 0, "[system]");
}

static void test_characters_without_token_become_bytes(void **state)
{
    (void)state;
    PIECES(spec_score, "a\xC3\xA8", 0, "[a][<0xC3>][<0xA8>]");
    PIECES(spec_score, "\xF0\x9F\x99\x83", 0, "[<0xF0>][<0x9F>][<0x99>][<0x83>]");
    PIECES(spec_rank, "Z\xC3\xA9", 0, "[<0x5A>][\xC3\xA9]");
}

static void test_each_invalid_byte_is_one_byte_token(void **state)
{
    (void)state;
    PIECES(spec_score,
           "a\xFF"
           "bcd",
           0, "[a][<0xFF>][bc][d]");
    PIECES(spec_score, "\xE2\x96", 0, "[<0xE2>][<0x96>]");             /* cut short */
    PIECES(spec_score, "\xC0\x80", 0, "[<0xC0>][<0x80>]");             /* overlong */
    PIECES(spec_score, "\xED\xA0\x80", 0, "[<0xED>][<0xA0>][<0x80>]"); /* surrogate */
    PIECES(spec_rank,
           "h\xF5"
           "e",
           0, "[h][<0xF5>][e]");
    PIECES(spec_score, "a\0b", 0, "[a][<0x00>][b]");
    PIECES(spec_qwen2, "\xFF\xC3\xA9", 0,
           "[\xC3\xBF][\xC3\x83\xC2\xA9]"); /* y with dots stands for byte FF */
}

static void test_words_of_qwen2(void **state)
{
    (void)state;
    PIECES(spec_qwen2, "user's USER'LL", 0, "[user]['][s][" G "][U][S][E][R]['][L][L]");
    PIECES(spec_qwen2, "aaaa  aa", 0, "[aaaa][" G "][" G "][aa]");
    PIECES(spec_qwen2, "a\n\nb", 0, "[a][" NL NL "][b]");
    PIECES(spec_qwen2, "a\n \n", 0, "[a][" NL "][" G "][" NL "]");
    PIECES(spec_qwen2, "as", 0, "[a][s]"); /* a token no merge makes is not made */
}

/* Words as "a|b|c". */
static void assert_words(const char *text, bool marks_in_words, const char *want)
{
    gem_bytes got = {0};
    for (size_t pos = 0, end, len = strlen(text); pos < len; pos = end) {
        end = gem_word_end(text, len, pos, marks_in_words);
        assert_true(end > pos && end <= len);
        gem_bytes_printf(&got, "%s%.*s", pos ? "|" : "", (int)(end - pos), text + pos);
    }
    assert_string_equal(got.data, want);
    gem_bytes_free(&got);
}

#define ACUTE "\xCC\x81"     /* U+0301, a mark */
#define NBSP "\xC2\xA0"      /* white space, and no separator of words by itself */
#define HEART "\xE2\x9D\xA4" /* a symbol */

static void test_word_pattern(void **state)
{
    static const struct {
        const char *text, *words;
    } both[] = {
        {"I'm we'LL 'tis o'S'", "I|'m| we|'LL| '|tis| o|'S|'"},
        {"don'''t", "don|'''|t"},
        {"x1234y", "x|1|2|3|4|y"},
        {"  lead", " | lead"},
        {"trail  ", "trail|  "},
        {"a   b", "a|  | b"},
        {"a  9", "a| | |9"},
        {"x \n y", "x| \n| y"},
        {"  \n \n  x", "  \n \n| | x"},
        {"a\r\n\r\nb", "a|\r\n\r\n|b"},
        {"\t\tif (x) {\n\t}\n", "\t|\tif| (|x|)| {\n|\t|}\n"},
        {" !!\n\nA", " !!\n\n|A"},
        {"f(x):\n->", "f|(x|):\n|->"},
        {"foo" NBSP "bar" NBSP "1" NBSP NBSP, "foo|" NBSP "bar|" NBSP "|1|" NBSP NBSP},
        {"\n\n", "\n\n"},
        {"\nA", "\n|A"},
        {"=a =9", "=a| =|9"},
        {"'", "'"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        assert_words(both[i].text, false, both[i].words);
        assert_words(both[i].text, true, both[i].words);
    }
}

static void test_marks_belong_to_words_in_qwen35_only(void **state)
{
    static const struct {
        const char *text, *qwen2, *qwen35;
    } cases[] = {
        {"a" ACUTE "b", "a|" ACUTE "b", "a" ACUTE "b"},
        {" " ACUTE "b", " " ACUTE "|b", " " ACUTE "b"},
        {HEART ACUTE "b", HEART ACUTE "|b", HEART ACUTE "b"},
        {"!!" ACUTE ACUTE, "!!" ACUTE ACUTE, "!!|" ACUTE ACUTE},
        {"9" ACUTE, "9|" ACUTE, "9|" ACUTE},
        {"\n" ACUTE, "\n|" ACUTE, "\n|" ACUTE},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_words(cases[i].text, false, cases[i].qwen2);
        assert_words(cases[i].text, true, cases[i].qwen35);
    }
}

static void test_control_tokens_only_on_request(void **state)
{
    (void)state;
    PIECES(spec_score, "<bos>a", GEM_TOK_SPECIAL, "[<bos>][a]");
    PIECES(spec_score, "<bos>", 0, "[<][b][o][s][>]");
    PIECES(spec_qwen2, "hello<|im_end|>", GEM_TOK_SPECIAL, "[hello][<|im_end|>]");
    PIECES(spec_qwen2, "<|im_end|>", 0, "[<][|][i][m][_][e][n][d][|][>]");
    PIECES(spec_score, "<unused7>", GEM_TOK_SPECIAL, "[<][u][<0x6E>][us][e][d][<0x37>][>]");
}

static void test_user_defined_text_always_matches(void **state)
{
    (void)state;
    PIECES(spec_score, "a\n\n\n\nb", 0, "[a][\n\n\n][\n][b]");
    PIECES(spec_score, "a     b", 0, "[a][    ][" U "][b]");
    PIECES(spec_score, "</s>", 0, "[</s>]");
    PIECES(spec_score, "\n\n", GEM_TOK_PLAIN, "[\n\n]");
    PIECES(spec_qwen2, "<tool_call>", 0, "[<tool_call>]");
    PIECES(spec_score, "<start_of_image>", 0, "[<start_of_image>]");
}

static void test_plain_text_spells_no_protocol_marker(void **state)
{
    (void)state;
    PIECES(spec_qwen2, "<tool_call>", GEM_TOK_PLAIN, "[<][t][o][o][l][_][c][a][ll][>]");
    PIECES(spec_qwen2, "<tool_call><|im_end|>", GEM_TOK_PLAIN | GEM_TOK_SPECIAL,
           "[<][t][o][o][l][_][c][a][ll][>][<][|][i][m][_][e][n][d][|][>]");
    PIECES(spec_rank, "<|\"|>", 0, "[<][|][<0x22>][|][>]"); /* typed user-defined, yet a marker */
    PIECES(spec_rank, "<|\"|>", GEM_TOK_SPECIAL, "[<|\"|>]");
    PIECES(spec_rank, "<|channel>", GEM_TOK_PLAIN, "[<][|][c][h][a][<0x6E>][<0x6E>][e][l][>]");
}

static void test_longest_marker_wins(void **state)
{
    vocab_spec v;
    small_vocab s;
    int32_t *ids;
    size_t n;
    (void)state;
    spec_score(&v);
    uint32_t shorter = vocab_add(&v, "<x>", GEM_TOKEN_CONTROL, 0),
             longer = vocab_add(&v, "<x>y", GEM_TOKEN_CONTROL, 0);
    uint32_t inner = vocab_add(&v, "x>yz", GEM_TOKEN_CONTROL, 0);
    assert_int_equal(small_open(&s, &v, NULL), GEM_OK);
    assert_int_equal(gem_tokenizer_encode(s.t, "<x>y<x><x", 9, GEM_TOK_SPECIAL, &ids, &n, NULL),
                     GEM_OK);
    assert_int_equal(ids[0], longer);
    assert_int_equal(ids[1], shorter);
    assert_int_equal(ids[2], vocab_id(&v, "<")); /* what only begins like a marker is text */
    free(ids);
    assert_int_equal(gem_tokenizer_encode(s.t, "<x>yz x>yz", 10, GEM_TOK_SPECIAL, &ids, &n, NULL),
                     GEM_OK);
    assert_int_equal(ids[0], longer); /* the first place wins over a marker that begins inside */
    assert_int_equal(ids[n - 1], inner);
    free(ids);
    small_close(&s);
    vocab_clear(&v);
}

static void test_a_space_needs_no_token_of_its_own(void **state)
{
    vocab_spec v;
    small_vocab s;
    int32_t *ids;
    size_t n;
    (void)state;
    spec_score(&v);
    v.tok[vocab_id(&v, U)].text[0] = 'X';
    assert_int_equal(small_open(&s, &v, NULL), GEM_OK);
    assert_int_equal(gem_tokenizer_encode(s.t, "a b", 3, 0, &ids, &n, NULL), GEM_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], vocab_id(&v, "<0x20>"));
    free(ids);
    small_close(&s);
    vocab_clear(&v);
}

static void test_bos_is_put_once(void **state)
{
    (void)state;
    PIECES(spec_score, "a", GEM_TOK_BOS, "[<bos>][a]");
    PIECES(spec_score, "<bos>a", GEM_TOK_BOS | GEM_TOK_SPECIAL, "[<bos>][a]");
    PIECES(spec_score, "", GEM_TOK_BOS, "[<bos>]");
    PIECES(spec_qwen2, "aa", GEM_TOK_BOS, "[aa]"); /* its file says add_bos_token = false */
}

static void test_bytes_and_types(void **state)
{
    vocab_spec v;
    small_vocab s;
    size_t n;
    (void)state;
    spec_score(&v);
    assert_int_equal(small_open(&s, &v, NULL), GEM_OK);
    const struct {
        const char *token, *shown, *special;
    } cases[] = {{U "world", " world", " world"}, {"<0x0A>", "\n", "\n"},
                 {"    ", "    ", "    "},        {"<bos>", "", "<bos>"},
                 {"<unused7>", "", "<unused7>"},  {"</s>", "</s>", "</s>"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t id = gem_tokenizer_find(s.t, cases[i].token, strlen(cases[i].token));
        assert_int_equal(id, vocab_id(&v, cases[i].token));
        const char *bytes = gem_tokenizer_bytes(s.t, id, false, &n);
        assert_int_equal(n, strlen(cases[i].shown));
        assert_memory_equal(bytes, cases[i].shown, n);
        bytes = gem_tokenizer_bytes(s.t, id, true, &n);
        assert_int_equal(n, strlen(cases[i].special));
        assert_memory_equal(bytes, cases[i].special, n);
    }
    gem_tokenizer_bytes(s.t, -1, true, &n);
    assert_int_equal(n, 0);
    gem_tokenizer_bytes(s.t, (int32_t)v.n_tok, true, &n);
    assert_int_equal(n, 0);
    assert_int_equal(gem_tokenizer_find(s.t, "absent", 6), -1);
    assert_int_equal(gem_tokenizer_bos(s.t), v.bos);
    assert_true(gem_tokenizer_is_end(s.t, v.eos));
    assert_true(gem_tokenizer_is_end(s.t, (int32_t)vocab_id(&v, "<end_of_turn>")));
    assert_false(gem_tokenizer_is_end(s.t, (int32_t)vocab_id(&v, "</s>")));
    assert_false(gem_tokenizer_is_end(s.t, v.bos));
    small_close(&s);
    vocab_clear(&v);
}

/* A megabyte of the same thing, of everything that has been slow somewhere: the token count is
 * exact, so a quadratic loop would show as a hung test. */
static void test_a_megabyte_of_anything(void **state)
{
    static const spec_fn makes[] = {spec_score, spec_rank, spec_qwen2, spec_qwen35};
    static const char *const units[] = {
        " ",  "a", "\n",       "0",    "\xF0\x9F\x99\x82", "\xFF", "<", "<|",
        "a ", "'", "\xCC\x81", "\r\n", "<start_of_imag"};
    enum { SIZE = SLOW_BUILD ? 1 << 17 : 1 << 20 };
    char *text = malloc(SIZE);
    (void)state;
    assert_non_null(text);
    for (size_t k = 0; k < ARRAY_LEN(makes); k++) {
        vocab_spec v;
        small_vocab s;
        makes[k](&v);
        assert_int_equal(small_open(&s, &v, NULL), GEM_OK);
        for (size_t u = 0; u <= ARRAY_LEN(units); u++) {
            uint32_t x = 1;
            for (size_t i = 0; i < SIZE; i++) {
                x = x * 1664525u + 1013904223u;
                text[i] = u < ARRAY_LEN(units) ? units[u][i % strlen(units[u])] : (char)(x >> 24);
            }
            int32_t *ids;
            size_t n, total = 0;
            double start = cpu_seconds();
            assert_int_equal(gem_tokenizer_encode(s.t, text, SIZE, GEM_TOK_SPECIAL, &ids, &n, NULL),
                             GEM_OK);
            double seconds = cpu_seconds() - start;
            for (size_t i = 0; i < n; i++) {
                size_t len;
                const char *bytes = gem_tokenizer_bytes(s.t, ids[i], true, &len);
                assert_true(total + len <= SIZE);
                assert_memory_equal(bytes, text + total, len);
                total += len;
            }
            assert_int_equal(total, SIZE);
            free(ids);
            if (seconds > 20) fail_msg("vocabulary %zu, text %zu: %.1f s", k, u, seconds);
        }
        small_close(&s);
        vocab_clear(&v);
    }
    free(text);
}

/* ---- files that must be refused, by a sentence that names key and entry ---- */

static void assert_refused(vocab_spec *v, gem_status want, const char *part)
{
    small_vocab s;
    gem_error err = {0};
    gem_status st = small_open(&s, v, &err);
    small_close(&s);
    vocab_clear(v);
    if (st != want || !strstr(err.text, part))
        fail_msg("status %d, \"%s\", wanted %d with \"%s\"", st, err.text, want, part);
}

static void test_refuses_what_it_cannot_run(void **state)
{
    vocab_spec v;
    (void)state;
    spec_score(&v);
    v.model = "bert";
    assert_refused(&v, GEM_E_UNSUPPORTED, "tokenizer.ggml.model is \"bert\"; supported are llama");
    vocab_of_words(&v, "llama-bpe");
    assert_refused(&v, GEM_E_UNSUPPORTED, "pre is \"llama-bpe\"");
    vocab_of_words(&v, NULL);
    assert_refused(&v, GEM_E_UNSUPPORTED, "pre is \"\"");
    spec_score(&v);
    v.add_space_prefix = 1;
    assert_refused(&v, GEM_E_UNSUPPORTED, "add_space_prefix");
}

static void test_refuses_broken_vocabularies(void **state)
{
    vocab_spec v;
    (void)state;
    spec_score(&v);
    v.no_types = true;
    assert_refused(&v, GEM_E_FORMAT, "tokenizer.ggml.token_type");
    spec_score(&v);
    v.no_scores = true;
    assert_refused(&v, GEM_E_FORMAT, "tokenizer.ggml.scores");
    spec_score(&v);
    v.tok[40].score = NAN;
    assert_refused(&v, GEM_E_FORMAT, "scores: entry 40 is not a finite number");
    spec_score(&v);
    v.tok[7].type = 9;
    assert_refused(&v, GEM_E_FORMAT, "token_type: entry 7 is 9");
    spec_score(&v);
    vocab_add(&v, "hello", GEM_TOKEN_NORMAL, 0);
    assert_refused(&v, GEM_E_FORMAT, "are the same text");
    spec_score(&v);
    v.tok[vocab_id(&v, "<0x41>")].text[3] = 'G';
    assert_refused(&v, GEM_E_FORMAT, "has type 6");
    spec_score(&v);
    v.tok[vocab_id(&v, "<0x41>")].type = GEM_TOKEN_NORMAL;
    assert_refused(&v, GEM_E_FORMAT, "no token for byte 65");
    spec_score(&v);
    v.eos = (int32_t)v.n_tok;
    assert_refused(&v, GEM_E_FORMAT, "tokenizer.ggml.eos_token_id");
    spec_score(&v);
    v.bos = -1;
    v.add_bos = 1;
    assert_refused(&v, GEM_E_FORMAT, "bos_token_id is missing");
}

static void test_refuses_broken_merges(void **state)
{
    vocab_spec v;
    (void)state;
    spec_qwen2(&v);
    v.n_merge = 0;
    assert_refused(&v, GEM_E_FORMAT, "tokenizer.ggml.merges");
    spec_qwen2(&v);
    v.merge[3] = "hello";
    assert_refused(&v, GEM_E_FORMAT, "entry 3 is not two texts");
    spec_qwen2(&v);
    v.merge[3] = "hell ";
    assert_refused(&v, GEM_E_FORMAT, "entry 3 is not two texts");
    spec_qwen2(&v);
    v.merge[3] = "nope o";
    assert_refused(&v, GEM_E_FORMAT, "the left part of entry 3");
    spec_qwen2(&v);
    v.merge[3] = "o nope";
    assert_refused(&v, GEM_E_FORMAT, "the right part of entry 3");
    spec_qwen2(&v);
    v.merge[3] = "o o";
    assert_refused(&v, GEM_E_FORMAT, "the joined text of entry 3");
    spec_qwen2(&v);
    v.merge[3] = v.merge[2];
    assert_refused(&v, GEM_E_FORMAT, "entries 2 and 3 are the same");
    spec_qwen2(&v);
    v.tok[vocab_id(&v, "hello")].type = GEM_TOKEN_CONTROL;
    assert_refused(&v, GEM_E_FORMAT, "which is of type 3, not 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_score_merges_best_first),
        cmocka_unit_test(test_rank_merges_lowest_first),
        cmocka_unit_test(test_characters_without_token_become_bytes),
        cmocka_unit_test(test_each_invalid_byte_is_one_byte_token),
        cmocka_unit_test(test_words_of_qwen2),
        cmocka_unit_test(test_word_pattern),
        cmocka_unit_test(test_marks_belong_to_words_in_qwen35_only),
        cmocka_unit_test(test_control_tokens_only_on_request),
        cmocka_unit_test(test_user_defined_text_always_matches),
        cmocka_unit_test(test_plain_text_spells_no_protocol_marker),
        cmocka_unit_test(test_longest_marker_wins),
        cmocka_unit_test(test_a_space_needs_no_token_of_its_own),
        cmocka_unit_test(test_bos_is_put_once),
        cmocka_unit_test(test_bytes_and_types),
        cmocka_unit_test(test_a_megabyte_of_anything),
        cmocka_unit_test(test_refuses_what_it_cannot_run),
        cmocka_unit_test(test_refuses_broken_vocabularies),
        cmocka_unit_test(test_refuses_broken_merges),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
