/* test_gate_folder.c - bytes of keys and values by formula, against the figures worked out by hand
 * for Gemma 4 31B, and a monitor's records by their times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "evidence/gate_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Layers of Gemma 4 31B; the second group's heads can be changed. */
static void config(ev_doc *d, int context, const char *type, double told, int heads)
{
    char text[1024];
    gem_json_error e;
    int n = snprintf(
        text, sizeof(text),
        "{\"n_ctx\": %d, \"model\": {\"family\": \"gemma4\", \"n_layers\": 60}, \"kv\": "
        "{\"bytes\": 1e15, \"context_bytes\": %.0f, \"layers\": ["
        "{\"layers\": 50, \"window\": 1024, \"n_kv_heads\": 16, \"head_dim\": 256, \"type\": "
        "\"f32\", \"holds\": \"keys and values\"},"
        "{\"layers\": 10, \"window\": 0, \"n_kv_heads\": %d, \"head_dim\": 512, \"type\": \"%s\", "
        "\"holds\": \"keys and values\"}]}}",
        context, told, heads, type);
    memset(d, 0, sizeof(*d));
    d->name = "print-config.json";
    d->json = gem_json_read(text, (size_t)n, 16, &e);
    d->root = gem_json_root(d->json);
    assert_non_null(d->root);
}

static double bytes_of(int context, const char *type, double told, int heads, size_t *failed)
{
    ev_doc d;
    ev_judge j;
    const ev_gate g = {&j, "."};
    assert_true(ev_judge_init(&j, "test/1"));
    config(&d, context, type, told, heads);
    double bytes = ev_gate_kv_bytes(&g, &d);
    *failed = j.n_failed;
    ev_judge_free(&j);
    ev_doc_free(&d);
    return bytes;
}

static void test_bytes_of_31b(void **state)
{
    static const struct {
        int context;
        double sliding, full; /* F32, keys and values */
    } want[] = {
        {512, 50.0 * 512 * 4096 * 8, 10.0 * 512 * 2048 * 8},
        {1024, 1677721600, 167772160},
        {8192, 1677721600, 1342177280},
        {131072, 1677721600, 21474836480},
    };
    size_t failed;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        double all = want[i].sliding + want[i].full, half = want[i].sliding + want[i].full / 2;
        assert_true(bytes_of(want[i].context, "f32", all, 4, &failed) == all);
        assert_int_equal(failed, 0);
        assert_true(bytes_of(want[i].context, "f16", half, 4, &failed) == half); /* f16-full */
        assert_int_equal(failed, 0);
        bytes_of(want[i].context, "f32", all + 1, 4, &failed);
        assert_int_equal(failed, 1);
    }
    bytes_of(1024, "f32", 1677721600 + 2 * 167772160.0, 8, &failed); /* adds up, but is no 31B */
    assert_int_equal(failed, 1);
    assert_true(isnan(bytes_of(1024, "q8", 1, 4, &failed)));
    assert_true(failed >= 1);
}

static char dir[64];

static size_t monitor_fails(const char *const *times, size_t n, double interval, double seconds)
{
    char path[128];
    ev_judge j;
    const ev_gate g = {&j, dir};
    const ev_host_policy p = EV_HOST_POLICY_DEFAULT;
    snprintf(path, sizeof(path), "%s/m.ndjson", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        fprintf(f, "{\"schema\":\"gem-host-state/1\",\"time\":\"%s\",\"load_per_cpu\":0.5}\n",
                times[i]);
    assert_int_equal(fclose(f), 0);
    assert_true(ev_judge_init(&j, "test/1"));
    ev_gate_monitor(&g, "m.ndjson", &p, EV_HOST_LOAD, interval, seconds);
    size_t failed = j.n_failed;
    ev_judge_free(&j);
    unlink(path);
    return failed;
}

static void test_monitor_has_no_gaps(void **state)
{
    /* over midnight at the end of February of a leap year, and of a year */
    static const char *const good[] = {"2028-02-29T23:59:40Z", "2028-03-01T00:00:10Z",
                                       "2028-03-01T00:00:41Z"};
    static const char *const year[] = {"2027-12-31T23:59:59Z", "2028-01-01T00:00:29Z"};
    static const char *const gap[] = {"2027-02-28T23:59:00Z", "2027-03-01T00:00:41Z"};
    static const char *const back[] = {"2027-03-01T00:00:41Z", "2027-03-01T00:00:11Z"};
    static const char *const none[] = {"yesterday"};
    (void)state;
    strcpy(dir, "/tmp/gem-gate-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(monitor_fails(good, 3, 30, 91), 0);
    assert_int_equal(monitor_fails(good, 3, 30, 187), 0);
    assert_int_equal(monitor_fails(good, 3, 30, 188), 1); /* four times 47 s: one is missing */
    assert_int_equal(monitor_fails(year, 2, 30, 60), 0);
    assert_int_equal(monitor_fails(gap, 2, 30, 60), 1); /* 101 s; 70 may be */
    assert_int_equal(monitor_fails(back, 2, 30, 60), 1);
    assert_int_equal(monitor_fails(none, 1, 30, 1), 1);
    assert_int_equal(monitor_fails(good, 0, 30, 1), 1);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_31b),
        cmocka_unit_test(test_monitor_has_no_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
