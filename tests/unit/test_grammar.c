/* test_grammar.c - texts that fit a schema and texts that do not; schemas that are refused. */
#include "server/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static gem_schema *schema_of(const char *text, bool strict, gem_fault *f)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    gem_schema *s = gem_schema_new(GEM_SCHEMA_VALUE, v, NULL, strict, "schema", f);
    json_decref(v);
    return s;
}

/* A text that was let in can be ended: some byte may follow, or it is complete. */
static void check_way_out(gem_grammar *g, const char *text)
{
    bool out = gem_grammar_done(g);
    for (int c = 1; c < 256 && !out; c++)
        out = gem_grammar_allows(g, (const char[]){(char)c}, 1);
    if (!out) fail_msg("no way on inside %s", text);
}

/* Does the whole text fit? Fed byte by byte, and again at once. */
static bool fits_in(const gem_schema *s, const char *text)
{
    gem_grammar *one = gem_grammar_new(s), *all = gem_grammar_new(s);
    bool ok = true;
    size_t n = 0, accepted = gem_grammar_accepts(all, text, strlen(text));
    for (const char *p = text; *p && ok; p++, n += ok) {
        ok = gem_grammar_push(one, p, 1);
        if (ok) check_way_out(one, text);
    }
    assert_int_equal(accepted, n);
    ok = ok && gem_grammar_done(one);
    assert_int_equal(gem_grammar_push(all, text, strlen(text)) && gem_grammar_done(all), ok);
    gem_grammar_free(one);
    gem_grammar_free(all);
    return ok;
}

static void check(const char *schema, bool strict, const char *const *good, const char *const *bad)
{
    gem_fault f = {0};
    gem_schema *s = schema_of(schema, strict, &f);
    if (!s) fail_msg("%s: %s", schema, f.message);
    for (; *good; good++)
        if (!fits_in(s, *good)) fail_msg("%s must fit %s", *good, schema);
    for (; *bad; bad++)
        if (fits_in(s, *bad)) fail_msg("%s must not fit %s", *bad, schema);
    gem_schema_free(s);
}
#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void test_any_value(void **state)
{
    (void)state;
    check("{}", false,
          LIST("{}", "[]", "\"\"", "0", "-1.5e10", "true", "null",
               "{\"a\": [1, {\"b\": \"\\u00e9\"}]}", "[1,2]", "{\n  \"a\": 1\n}"),
          LIST("", "{", "[1,]", "{\"a\"}", "01", "1.", "tru", "\"\x01\"", "{\"a\":1,}",
               "\"\\ud800\"", "\"\\u0000\"", "\"\xC3\"", "{\n\n\"a\":1}", "[1 2]", "-"));
}

static void test_numbers_stay_in_bounds(void **state)
{
    (void)state;
    check("{\"type\":\"integer\",\"minimum\":1}", false, LIST("1", "10", "99999", "2"),
          LIST("0", "-1", "1.0", "01", "1e3"));
    check("{\"type\":\"integer\",\"minimum\":15,\"maximum\":20}", false, LIST("15", "20", "17"),
          LIST("1", "14", "21", "2", "150", "3", "0", "-15"));
    check("{\"type\":\"integer\",\"minimum\":-5,\"maximum\":-2}", false, LIST("-5", "-2"),
          LIST("-1", "-6", "2", "0", "-50"));
    check("{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", false,
          LIST("0.5", "1", "0.001", "1.0"), LIST("0", "1.5", "-0.5", "2", "0.0"));
    check("{\"type\":\"integer\",\"exclusiveMinimum\":2,\"exclusiveMaximum\":4}", false, LIST("3"),
          LIST("2", "4"));
    check("{\"type\":\"number\"}", false, LIST("0", "-0.5", "1e9", "1E-7"), LIST("+1", ".5", "1e"));
}

static void test_strings_and_lengths(void **state)
{
    (void)state;
    check("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", false,
          LIST("\"ab\"", "\"a\\nb\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", "\"\\u00e9x\""),
          LIST("\"a\"", "\"abcd\"", "\"\"", "ab"));
    check("{\"type\":\"string\",\"maxLength\":65536}", false, LIST("\"x\""), LIST("1"));
    check("{\"enum\":[\"red\",\"green\",\"re\",3,null]}", false,
          LIST("\"red\"", "\"re\"", "3", "null", "\"green\""), LIST("\"blue\"", "\"r\"", "4"));
    check("{\"const\":{\"a\":1}}", false, LIST("{\"a\":1}"), LIST("{}", "{\"a\":2}"));
}

static void test_objects(void **state)
{
    (void)state;
    static const char s[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
                            "\"ab\":{\"type\":\"string\"}},\"required\":[\"a\"],"
                            "\"additionalProperties\":false}";
    check(s, false, LIST("{\"a\":1}", "{\"ab\":\"x\",\"a\":1}", "{ \"a\": 1, \"ab\": \"\" }"),
          LIST("{}", "{\"ab\":\"x\"}", "{\"a\":1,\"a\":2}", "{\"a\":\"1\"}", "{\"c\":1,\"a\":1}",
               "{\"a\":1,\"c\":1}"));
    check(s, true, LIST("{\"a\":1}", "{\"a\":1,\"ab\":\"x\"}"), LIST("{\"ab\":\"x\",\"a\":1}"));
    check("{\"type\":\"object\",\"properties\":{}}", false, LIST("{}", "{\"x\":[1]}"), LIST("[]"));
    check("{\"type\":\"object\",\"required\":[\"z\"],\"additionalProperties\":{\"type\":\"null\"}}",
          false, LIST("{\"z\":1}", "{\"y\":null,\"z\":2}"), LIST("{}", "{\"z\":1,\"y\":1}"));
    check("{\"type\":\"object\",\"properties\":{\"q\\\"t\":{}},\"required\":[\"q\\\"t\"],"
          "\"additionalProperties\":false}",
          false, LIST("{\"q\\\"t\":1}"), LIST("{\"q\":1}"));
}

static void test_arrays(void **state)
{
    (void)state;
    check("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
          false, LIST("[true]", "[true, false]"), LIST("[]", "[true,true,true]", "[1]"));
    check("{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":false,"
          "\"type\":\"array\"}",
          false, LIST("[\"a\",1]", "[\"a\"]", "[]"), LIST("[1]", "[\"a\",1,2]"));
    check("{\"items\":[{\"type\":\"integer\"}]}", false, LIST("[1]", "[1,\"x\"]"), LIST("[\"x\"]"));
}

static void test_combinations_and_references(void **state)
{
    (void)state;
    check("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
          false, LIST("1", "[]", "[1,[2,[3]]]"), LIST("\"a\"", "[\"a\"]"));
    check("{\"$defs\":{\"n\":{\"type\":[\"string\",\"null\"]}},\"type\":\"object\",\"properties\":"
          "{\"v\":{\"$ref\":\"#/$defs/"
          "n\"},\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},"
          "\"required\":[\"v\",\"next\"],\"additionalProperties\":false}",
          true, LIST("{\"v\":\"a\",\"next\":{\"v\":null,\"next\":null}}"),
          LIST("{\"v\":1,\"next\":null}", "{\"v\":\"a\"}"));
    check("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}},"
          "{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}],"
          "\"additionalProperties\":false}",
          false, LIST("{\"b\":null}", "{\"a\":null,\"b\":null}"), LIST("{\"a\":null}"));
}

static void test_refused_schemas_name_the_place(void **state)
{
    static const struct {
        const char *schema, *part;
        bool strict;
    } cases[] = {
        {"123", "no object", false},
        {"{\"type\":123}", "type", false},
        {"{\"type\":\"hiccup\"}", "type", false},
        {"{\"properties\":{\"p\":{\"type\":\"x\"}}}", "/properties/p", false},
        {"{\"$ref\":\"http://x\"}", "$ref", false},
        {"{\"$ref\":\"#/nowhere\"}", "$ref", false},
        {"{\"type\":\"string\",\"pattern\":\"a\"}", "pattern", true},
        {"{\"properties\":{\"p\":{\"not\":{}}}}", "/properties/p", true},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "minimum", false},
        {"{\"enum\":[]}", "enum", false},
        {"{\"$ref\":\"#\"}", "no value", false},
        {"false", "no value", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        gem_fault f = {0};
        assert_null(schema_of(cases[i].schema, cases[i].strict, &f));
        assert_int_equal(f.http, 400);
        assert_string_equal(f.code, "invalid_json_schema");
        if (!strstr(f.message, cases[i].part)) fail_msg("%s: %s", cases[i].schema, f.message);
    }
    check("{\"type\":\"string\",\"pattern\":\"a\",\"format\":\"x\"}", false, LIST("\"b\""),
          LIST("1"));
}

static void test_calls(void **state)
{
    gem_fault f = {0};
    (void)state;
    json_t *tools = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"bash\",\"parameters\":{\"type\":"
        "\"object\","
        "\"properties\":{\"command\":{\"type\":\"string\"},\"timeout\":{\"type\":\"integer\","
        "\"minimum\":1}},"
        "\"required\":[\"command\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"bark\"}}]",
        0, NULL);
    gem_schema *s = gem_schema_new(GEM_SCHEMA_CALLS, tools, NULL, false, "tools", &f);
    assert_non_null(s);
    assert_true(fits_in(s, "{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}"));
    assert_true(fits_in(s, "{\"name\": \"bark\", \"arguments\": {}}"));
    assert_false(
        fits_in(s, "{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\", \"timeout\": 0}}"));
    assert_false(fits_in(s, "{\"name\": \"bash\", \"arguments\": {}}"));
    assert_false(fits_in(s, "{\"name\": \"ba\", \"arguments\": {}}"));
    gem_schema_free(s);
    s = gem_schema_new(GEM_SCHEMA_CALLS, tools, "bark", false, "tools", &f);
    assert_non_null(s);
    assert_false(fits_in(s, "{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}"));
    gem_schema_free(s);
    json_decref(tools);
}

/* A hundred tools of a kilobyte each compile, and a deep text is refused, not a crash. */
static void test_size_and_depth(void **state)
{
    gem_fault f = {0};
    gem_bytes b = {0};
    (void)state;
    gem_bytes_printf(&b, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 200; i++)
        gem_bytes_printf(
            &b, "%s\"p%d\":{\"type\":\"string\",\"description\":\"%0500d\",\"maxLength\":65536}",
            i ? "," : "", i, i);
    gem_bytes_printf(&b, "}}");
    gem_schema *s = schema_of(b.data, false, &f);
    assert_non_null(s);
    assert_true(fits_in(s, "{\"p199\":\"x\",\"p0\":\"y\"}"));
    gem_schema_free(s);
    gem_bytes_free(&b);
    s = schema_of("{}", false, &f);
    gem_grammar *g = gem_grammar_new(s);
    for (int i = 0; i < 200; i++)
        gem_bytes_put(&b, "[", 1);
    assert_false(gem_grammar_push(g, b.data, b.len));
    gem_grammar_free(g);
    gem_schema_free(s);
    gem_bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_value),
        cmocka_unit_test(test_numbers_stay_in_bounds),
        cmocka_unit_test(test_strings_and_lengths),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_combinations_and_references),
        cmocka_unit_test(test_refused_schemas_name_the_place),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_size_and_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
