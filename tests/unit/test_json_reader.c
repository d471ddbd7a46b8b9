/* Strict reader and writer: grammar, pointers, duplicates, raw numbers, ECMAScript numbers, RFC
 * 8785. */
#include "base/json_reader.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static gem_json_fault fault_of(const char *text, size_t len)
{
    gem_json_error err;
    gem_json_doc *doc = gem_json_read(text, len, 64, &err);
    assert_non_null(doc);
    gem_json_free(doc);
    return err.fault;
}

static void test_accepts_what_rfc8259_accepts(void **state)
{
    (void)state;
    static const char *good[] = {"0",
                                 "-0",
                                 "1.5e+3",
                                 " [ ] ",
                                 "{}",
                                 "\"\"",
                                 "[1,2,[3,{\"a\":null}]]",
                                 "\"\\u00e9\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                 "\xc3\xa9" + 2,
                                 "true",
                                 "false",
                                 "null",
                                 "\t\r\n 1 \n",
                                 "\"\x7f\"",
                                 "1E400"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (!*good[i]) continue;
        assert_int_equal(fault_of(good[i], strlen(good[i])), GEM_JSON_OK);
    }
}

static void test_refuses_what_is_not_json(void **state)
{
    (void)state;
    static const char *bad[] = {"",
                                "{",
                                "[1,]",
                                "{\"a\":1,}",
                                "01",
                                "1.",
                                ".5",
                                "+1",
                                "1e",
                                "-",
                                "NaN",
                                "Infinity",
                                "tru",
                                "nulL",
                                "'a'",
                                "{a:1}",
                                "[1 2]",
                                "\"a",
                                "\"\n\"",
                                "\"\\x\"",
                                "\"\\u12\"",
                                "\"\\ud800\"",
                                "\"\\udc00\"",
                                "\"\\ud800\\u0041\"",
                                "\"\xff\"",
                                "\"\xc0\x80\"",
                                "\"\xed\xa0\x80\"",
                                "\xef\xbb\xbf{}",
                                "/**/1",
                                "{\"a\" 1}",
                                "{\"a\":}",
                                "[",
                                "]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(fault_of(bad[i], strlen(bad[i])), GEM_JSON_SYNTAX);
    assert_int_equal(fault_of("\"\0\"", 3), GEM_JSON_SYNTAX);
    static const char *trailing[] = {"1 2", "{} {}", "[]x", "null,", "{}\0"};
    for (size_t i = 0; i < ARRAY_LEN(trailing); i++)
        assert_int_equal(fault_of(trailing[i], i == 4 ? 3 : strlen(trailing[i])),
                         GEM_JSON_TRAILING);
}

static void test_depth_limit_is_exact(void **state)
{
    (void)state;
    char text[200] = "";
    for (int d = 64; d <= 65; d++) {
        memset(text, '[', (size_t)d);
        memset(text + d, ']', (size_t)d);
        assert_int_equal(fault_of(text, (size_t)d * 2), d == 64 ? GEM_JSON_OK : GEM_JSON_SYNTAX);
    }
}

static void test_names_the_first_duplicate(void **state)
{
    (void)state;
    const char *text = "{\"x\":{\"b\":1,\"a/~\":2,\"c\":3,\"a/~\":4,\"b\":5}}";
    gem_json_error err;
    gem_json_doc *doc = gem_json_read(text, strlen(text), 64, &err);
    gem_bytes pointer = {0};
    assert_int_equal(err.fault, GEM_JSON_DUPLICATE);
    gem_json_pointer(err.at, &pointer);
    assert_string_equal(pointer.data, "/x/a~1~0");
    assert_int_equal(err.at->index, 3);
    gem_bytes_free(&pointer);
    gem_json_free(doc);
}

static void test_keeps_number_text_and_pointers(void **state)
{
    (void)state;
    const char *text = "{\"a\":[10,{\"b\":1.0}]}";
    gem_json_error err;
    gem_json_doc *doc = gem_json_read(text, strlen(text), 64, &err);
    const gem_json *b = gem_json_get(gem_json_at(gem_json_get(gem_json_root(doc), "a"), 1), "b");
    gem_bytes pointer = {0};
    assert_string_equal(b->text, "1.0");
    gem_json_pointer(b, &pointer);
    assert_string_equal(pointer.data, "/a/1/b");
    gem_bytes_free(&pointer);
    gem_json_free(doc);
}

static void test_numbers_are_ecmascript(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {{0.1 + 0.2, "0.30000000000000004"},
                 {1e21, "1e+21"},
                 {1e-7, "1e-7"},
                 {5e-324, "5e-324"},
                 {-0.0, "0"},
                 {1e20, "100000000000000000000"},
                 {123456789012345680000.0, "123456789012345680000"},
                 {1e-6, "0.000001"},
                 {1.5e-6, "0.0000015"},
                 {-1.25, "-1.25"},
                 {100, "100"},
                 {6.966061, "6.966061"},
                 {9007199254740993.0, "9007199254740992"},
                 {1.7976931348623157e308, "1.7976931348623157e+308"},
                 {333333333.33333329, "333333333.3333333"},
                 {4.35, "4.35"},
                 {2.5e-9, "2.5e-9"},
                 {-1e-10, "-1e-10"}};
    /* a locale with a decimal comma must change nothing (skipped silently where none is installed)
     */
    for (int pass = 0; pass < 2; pass++) {
        if (pass && !setlocale(LC_ALL, "de_DE.UTF-8")) break;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            char out[32];
            gem_json_number(out, cases[i].v);
            assert_string_equal(out, cases[i].text);
        }
    }
    setlocale(LC_ALL, "C");
}

static void test_random_doubles_round_trip(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        double v;
        char out[32];
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(&v, &x, sizeof(v));
        if (!isfinite(v)) continue;
        gem_json_number(out, v);
        assert_true(strtod(out, NULL) == v);
        assert_true(strlen(out) < 26);
    }
}

static void test_canonical_form_is_rfc8785(void **state)
{
    (void)state;
    /* the sorting and literal examples of RFC 8785, 3.2.2 and 3.2.3 */
    const char *text = "{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage "
                       "Return\",\"\\ufb33\":\"Hebrew Letter Dalet With "
                       "Dagesh\",\"1\":\"One\",\"\\ud83d\\ude00\":\"Emoji: Grinning "
                       "Face\",\"\\u0080\":\"Control\","
                       "\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}";
    const char *want = "{\"\\r\":\"Carriage "
                       "Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\",\"\xc3\xb6\":\"Latin Small "
                       "Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro "
                       "Sign\",\"\xf0\x9f\x98\x80\":\"Emoji: Grinning "
                       "Face\",\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}";
    gem_json_error err;
    gem_json_doc *doc = gem_json_read(text, strlen(text), 64, &err);
    gem_bytes out = {0};
    gem_json_write_canonical(&out, gem_json_root(doc), NULL);
    assert_string_equal(out.data, want);
    gem_bytes_free(&out);
    gem_json_free(doc);
    text =
        "{\"numbers\":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],\"string\":"
        "\"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/"
        "\",\"literals\":[null,true,false]}";
    want = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
           "\"string\":"
           "\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    doc = gem_json_read(text, strlen(text), 64, &err);
    gem_json_write_canonical(&out, gem_json_root(doc), NULL);
    assert_string_equal(out.data, want);
    gem_bytes_free(&out);
    gem_json_free(doc);
}

static void test_builds_and_writes_indented(void **state)
{
    (void)state;
    gem_json_doc *doc = gem_json_new();
    gem_json *root = gem_json_put(doc, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(doc, root, "a", "<&>\x01");
    gem_json *list = gem_json_put(doc, root, "b", GEM_JSON_ARRAY);
    gem_json_put(doc, root, "e", GEM_JSON_ARRAY);
    gem_json_put_int(doc, list, NULL, 3);
    gem_json_put_number(doc, list, NULL, 0.5);
    gem_json_insert_copy(doc, root, gem_json_get(root, "a"), "x", gem_json_get(root, "e"));
    gem_bytes out = {0};
    gem_json_write(&out, root);
    assert_string_equal(out.data, "{\n  \"a\": \"<&>\\u0001\",\n  \"x\": [],\n  \"b\": [\n    3,\n "
                                  "   0.5\n  ],\n  \"e\": []\n}\n");
    assert_int_equal(gem_json_get(root, "b")->index, 2);
    gem_bytes_free(&out);
    gem_json_free(doc);
}

static void test_value_count_is_bounded(void **state)
{
    (void)state;
    size_t n = 3u << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i == 0 ? '[' : i + 1 == n ? ']' : i % 2 ? '0' : ',';
    assert_int_equal(fault_of(text, n), GEM_JSON_SYNTAX);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts_what_rfc8259_accepts),
        cmocka_unit_test(test_refuses_what_is_not_json),
        cmocka_unit_test(test_depth_limit_is_exact),
        cmocka_unit_test(test_names_the_first_duplicate),
        cmocka_unit_test(test_keeps_number_text_and_pointers),
        cmocka_unit_test(test_numbers_are_ecmascript),
        cmocka_unit_test(test_random_doubles_round_trip),
        cmocka_unit_test(test_canonical_form_is_rfc8785),
        cmocka_unit_test(test_builds_and_writes_indented),
        cmocka_unit_test(test_value_count_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
