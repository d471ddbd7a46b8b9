/* test_serve_text.c - stop strings over streamed text, and who may ask a server. */
#include "server/guard.h"
#include "server/stop_match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list[n])
        n++;
    return n;
}

/* Pieces in, what is shown out; then the same text one byte at a time must show the same. */
static void check(const char *const *stops, const char *const *pieces, const char *want,
                  bool stopped)
{
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        gem_stop_match m = {.stop = stops, .n = count(stops)};
        gem_bytes out = {0};
        bool hit = false;
        for (const char *const *p = pieces; *p && !hit; p++)
            for (size_t i = 0, n = strlen(*p), k = bytewise ? 1 : n; i < n && !hit; i += k)
                hit = gem_stop_match_push(&m, *p + i, k, &out);
        if (!hit) gem_stop_match_finish(&m, &out);
        assert_int_equal(hit, stopped);
        assert_int_equal(m.hit != NULL, stopped);
        assert_string_equal(out.data ? out.data : "", want);
        gem_bytes_free(&out);
        gem_stop_match_deinit(&m);
    }
}

static void test_stops_are_matched_on_text(void **state)
{
    (void)state;
    check(LIST("DEFGHIJ"), LIST("DEF", "G", "HI", "J"), "", true);
    check(LIST("beta gamma"), LIST(" alpha", " beta", " gamma"), " alpha ", true);
    check(LIST("?\n"), LIST("Mars", "?\n"), "Mars", true);
    check(LIST("abcd"), LIST("ab", "c"), "abc", false);
    check(LIST("\nUser:", "er:"), LIST("\nUser", ":"), "", true);
    check(LIST("aab"), LIST("aaaab"), "aa", true);
    check(LIST("bc", "abcd"), LIST("xabc", "d"), "xa", true);
    check(LIST("x"), LIST("no stop here"), "no stop here", false);
}

static void test_hosts(void **state)
{
    static const char *const good[] = {"localhost",   "LOCALHOST:8080", "localhost.", "127.0.0.1",
                                       "127.1.2.3:9", "[::1]",          "[::1]:80"};
    static const char *const bad[] = {"",
                                      "evil.example",
                                      "localhost.evil.com",
                                      "127.0.0.1.evil.com",
                                      "notlocalhost",
                                      "[::1",
                                      "[::1]x",
                                      "128.0.0.1",
                                      "127.0.0",
                                      "127.0.0.256"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!gem_guard_host(good[i], NULL)) fail_msg("%s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (gem_guard_host(bad[i], NULL)) fail_msg("%s", bad[i]);
    assert_true(gem_guard_host("box.lan:80", "other,box.lan"));
    assert_false(gem_guard_host("x.lan", "other,box.lan"));
}

static void test_origins(void **state)
{
    (void)state;
    assert_true(gem_guard_origin("http://localhost:3000", "localhost"));
    assert_true(gem_guard_origin("https://a.example", "https://b.example,https://a.example"));
    assert_false(gem_guard_origin("http://localhost.evil.com", "localhost"));
    assert_false(gem_guard_origin("https://a.example.evil", "https://a.example"));
    assert_false(gem_guard_origin("null", "localhost"));
    assert_false(gem_guard_origin("http://localhost", NULL));
    assert_true(gem_guard_same("http://127.0.0.1:8080", "127.0.0.1:8080"));
    assert_false(gem_guard_same("http://127.0.0.1:8081", "127.0.0.1:8080"));
    assert_false(gem_guard_same("http://127.0.0.1:8080", NULL));
}

static void test_keys(void **state)
{
    uint8_t d[2][32];
    (void)state;
    gem_guard_digest("one", 3, d[0]);
    gem_guard_digest("two", 3, d[1]);
    assert_true(gem_guard_key("two", 3, (const uint8_t(*)[32])d, 2));
    assert_false(gem_guard_key("tw", 2, (const uint8_t(*)[32])d, 2));
    assert_false(gem_guard_key("two", 3, (const uint8_t(*)[32])d, 1));
    assert_false(gem_guard_key("", 0, (const uint8_t(*)[32])d, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stops_are_matched_on_text),
                                       cmocka_unit_test(test_hosts), cmocka_unit_test(test_origins),
                                       cmocka_unit_test(test_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
