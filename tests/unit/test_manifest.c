/* test_manifest.c - a sealed folder: any byte of any file, the manifest included, cannot change
 * unseen; nor can a file come, go, or turn into something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "evidence/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *data, size_t len)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_true(fwrite(data, 1, len, f) == len);
    assert_true(fclose(f) == 0);
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_true(system(command) == 0);
}

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/gem-manifest-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    put("a.json", "{\"x\": [1, 2]}\n", 14);
    mkdir(in_dir("raw"), 0777);
    put("raw/one.sse", "data: {}\n\ndata: [DONE]\n\n", 24);
    put("empty", "", 0);
    return ev_manifest_write(dir, NULL) != GEM_OK;
}

static int end(void **state)
{
    (void)state;
    remove_all();
    return 0;
}

/* Number of rules that fail; *named whether `rule` is among them. */
static size_t audit(const char *rule, bool *named)
{
    ev_judge j;
    ev_folder f;
    size_t failed = 99;
    if (named) *named = false;
    assert_true(ev_judge_init(&j, "test/1"));
    if (ev_folder_read(&f, dir, NULL) == GEM_OK) {
        ev_judge_manifest(&j, dir, &f, NULL);
        failed = j.n_failed;
        for (const gem_json *c = j.checks->first; named && c; c = c->next)
            if (ev_is_false(c, "holds") && gem_json_is(gem_json_get(c, "rule"), rule))
                *named = true;
    }
    ev_folder_free(&f);
    ev_judge_free(&j);
    return failed;
}

static void test_whole(void **state)
{
    char *text;
    size_t len;
    (void)state;
    assert_int_equal(audit("", NULL), 0);
    assert_true(gem_file_read(in_dir(EV_MANIFEST), 4096, &text, &len, NULL) == GEM_OK);
    /* SHA-256 of nothing; names in byte order */
    assert_non_null(
        strstr(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n"));
    assert_true(strstr(text, "a.json") < strstr(text, "empty") &&
                strstr(text, "empty") < strstr(text, "raw/one.sse"));
    free(text);
}

static void test_every_byte(void **state)
{
    static const char *const names[] = {"a.json", "raw/one.sse", EV_MANIFEST};
    static const unsigned char flips[] = {1, 0x20, 0x80, 0xff};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char *data;
        size_t len;
        assert_true(gem_file_read(in_dir(names[i]), 4096, &data, &len, NULL) == GEM_OK);
        for (size_t k = 0; k < len; k++)
            for (size_t b = 0; b < sizeof(flips); b++) {
                data[k] = (char)(data[k] ^ flips[b]);
                put(names[i], data, len);
                if (audit("", NULL) == 0) print_error("%s: byte %zu ^ %x\n", names[i], k, flips[b]);
                assert_true(audit("", NULL) > 0);
                data[k] = (char)(data[k] ^ flips[b]);
            }
        for (size_t k = 0; k < len; k++) { /* every way to cut it short */
            put(names[i], data, k);
            assert_true(audit("", NULL) > 0);
        }
        put(names[i], data, len);
        assert_int_equal(audit("", NULL), 0);
        free(data);
    }
}

static void test_files_come_and_go(void **state)
{
    bool named;
    (void)state;
    put("late.json", "{}", 2);
    assert_int_equal(audit("unlisted", &named), 1);
    assert_true(named);
    unlink(in_dir("late.json"));
    put("empty", "x", 1);
    assert_int_equal(audit("digest", &named), 1);
    assert_true(named);
    unlink(in_dir("empty"));
    assert_int_equal(audit("digest", &named), 1);
    assert_true(named);
    assert_true(symlink("a.json", in_dir("empty")) == 0);
    assert_int_equal(audit("digest", &named), 1);
    unlink(in_dir("empty"));
    put("empty", "", 0);
    assert_int_equal(audit("", NULL), 0);
    unlink(in_dir(EV_MANIFEST));
    audit("manifest", &named);
    assert_true(named);
}

static void test_what_cannot_be_sealed(void **state)
{
    gem_error err;
    (void)state;
    assert_int_equal(ev_manifest_write(dir, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "sealed already"));
    unlink(in_dir(EV_MANIFEST));
    put("raw/log.part", "x", 1);
    assert_int_equal(ev_manifest_write(dir, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "half written"));
    unlink(in_dir("raw/log.part"));
    assert_true(symlink("/etc/passwd", in_dir("link")) == 0);
    assert_int_equal(ev_manifest_write(dir, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "no regular file"));
    unlink(in_dir("link"));
    put("two\nlines", "", 0);
    assert_int_equal(ev_manifest_write(dir, &err), GEM_E_FORMAT);
    unlink(in_dir("two\nlines"));
    assert_int_equal(ev_manifest_write(dir, &err), GEM_OK);
    assert_int_equal(ev_manifest_write("/nonexistent", &err), GEM_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, begin, end),
        cmocka_unit_test_setup_teardown(test_every_byte, begin, end),
        cmocka_unit_test_setup_teardown(test_files_come_and_go, begin, end),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_sealed, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
