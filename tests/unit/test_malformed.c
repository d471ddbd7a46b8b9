/* test_malformed.c - every committed broken file gives its sentence
 * (tests/data/malformed/expected.tsv), quickly and without memory. The same table is put to `gem
 * inspect` by tests/malformed. */
#include "cpu_time.h"
#include "gguf/gguf.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

#define FOLDER GEM_TEST_DIR "/data/malformed/"

static long peak_kib(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return ru.ru_maxrss;
}

static void check_row(char *row)
{
    gem_gguf *g;
    gem_error err = {0};
    char path[512], want[1024];
    char *file = strsep(&row, "\t"), *code = strsep(&row, "\t"), *kind = strsep(&row, "\t");
    assert_non_null(row);
    assert_string_equal(code, "1");
    snprintf(path, sizeof(path), FOLDER "%s", file);
    long before = peak_kib();
    double start = cpu_seconds();
    gem_status st = gem_gguf_open(&g, path, &err);
    assert_null(g);
    assert_string_equal(gem_status_name(st), kind);
    /* a very long path is shown by its end */
    snprintf(want, sizeof(want), "%s: %s", file, row);
    size_t n = strlen(err.text), m = strlen(want);
    if (n < m || strcmp(err.text + n - m, want) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", file, err.text, want);
    assert_true(cpu_seconds() - start < 1);
    assert_true(peak_kib() - before < 16 * 1024);
}

static void test_each_file_gives_its_sentence(void **state)
{
    (void)state;
    char row[2048];
    int n = 0, files = 0;
    FILE *f = fopen(FOLDER "expected.tsv", "r");
    assert_non_null(f);
    while (fgets(row, sizeof(row), f)) {
        row[strcspn(row, "\n")] = 0;
        if (row[0] == '#') continue;
        check_row(row);
        n++;
    }
    fclose(f);
    DIR *d = opendir(FOLDER);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        files += strstr(e->d_name, ".gguf") != NULL;
    closedir(d);
    assert_int_equal(n, files); /* no file without a row */
    assert_true(n >= 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_file_gives_its_sentence)};
    return cmocka_run_group_tests_name("malformed", tests, NULL, NULL);
}
