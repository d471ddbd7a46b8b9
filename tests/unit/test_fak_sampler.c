/* The sampler on a made-up /proc and clock, where every number is known; then on real processes. */
#include "fak/attestation.h"
#include "fak/baseline_run.h"
#include "fak/fak.h"

#include <errno.h>
#include <ftw.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a made-up host ---- */
static char root[] = "/tmp/fak-proc-XXXXXX";
static uint64_t clock_ns, clock_step;

static uint64_t fake_now(void *user)
{
    (void)user;
    clock_ns += clock_step;
    return clock_ns;
}

static const fak_probe probe = {
    .proc = root, .now = fake_now, .ticks_per_second = 100, .page_bytes = 4096, .n_cpus = 2};

static void put_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void host(unsigned busy, unsigned idle)
{
    char text[200];
    snprintf(text, sizeof(text),
             "cpu  %u 0 0 %u 0 0 0 0 0 0\ncpu0 1 2 3 4\nctxt 500\nprocs_running 3\n", busy, idle);
    put_file("stat", text);
    put_file("meminfo", "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     400 kB\n");
}

static void process(int pid, const char *comm, int ppid, unsigned utime, unsigned stime,
                    unsigned start, int rss)
{
    char name[64], text[400];
    snprintf(name, sizeof(name), "%s/%d", root, pid);
    mkdir(name, 0755);
    snprintf(name, sizeof(name), "%d/stat", pid);
    snprintf(text, sizeof(text),
             "%d (%s) S %d 1 1 0 -1 4194560 1 2 3 4 %u %u 7 8 20 0 1 0 %u 1000 %d "
             "18446744073709551615 1 1",
             pid, comm, ppid, utime, stime, start, rss);
    put_file(name, text);
}

static void gone(int pid)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%d/stat", root, pid);
    unlink(path);
    snprintf(path, sizeof(path), "%s/%d", root, pid);
    rmdir(path);
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb, (void)kind, (void)ftw;
    return remove(path);
}

static int remove_host(void)
{
    if (strcmp(root + strlen(root) - 6, "XXXXXX") == 0) return 0; /* not made yet */
    int failed = nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    memcpy(root + strlen(root) - 6, "XXXXXX", 6);
    return failed;
}

static int empty_host(void **state)
{
    (void)state;
    if (remove_host() != 0) return 1;
    clock_ns = 1000000000;
    clock_step = 1000000;
    return mkdtemp(root) ? 0 : 1;
}

static void snap(fak_window *w)
{
    static fak_snapshot s;
    fak_snapshot_take(&probe, &s);
    fak_window_add(w, &s);
    clock_ns += 99000000; /* with two clock readings a census: snapshots 101 ms apart */
}

/* ---- parsing ---- */
static void test_cpu_line_leaves_guest_ticks_out(void **state)
{
    (void)state;
    uint64_t busy, total, steal;
    assert_true(fak_parse_cpu("cpu  100 20 30 40 5 1 2 3 90 10\n", &probe, &busy, &total, &steal));
    assert_int_equal(total, UINT64_C(201) * 10000000);
    assert_int_equal(total - busy, UINT64_C(45) * 10000000);
    assert_int_equal(steal, UINT64_C(3) * 10000000);
    assert_false(fak_parse_cpu("cpu  18446744073709551615 1 0 0 0 0 0 0 0 0\n", &probe, &busy,
                               &total, &steal));
    assert_false(fak_parse_cpu("cpu  9223372036854775807 0 0 0 0 0 0 0 0 0\n", &probe, &busy,
                               &total, &steal)); /* in ns */
    assert_false(fak_parse_cpu("cpu  1 2 3\n", &probe, &busy, &total, &steal));
    assert_false(fak_parse_cpu("cpu0 1 2 3 4 5 6 7 8\n", &probe, &busy, &total, &steal));
}

static void test_stat_line_survives_odd_names(void **state)
{
    (void)state;
    fak_process p;
    assert_true(fak_parse_stat("77 (a) b (c)) R 5 1 1 0 -1 0 0 0 0 0 12 30 0 0 20 0 1 0 999 1 8 1",
                               &probe, &p));
    assert_int_equal(p.pid, 77);
    assert_int_equal(p.ppid, 5);
    assert_int_equal(p.starttime, 999);
    assert_int_equal(p.cpu_ns, 420000000);
    assert_int_equal(p.rss_bytes, 8 * 4096);
    assert_string_equal(p.image, "a) b (c)");
    assert_false(fak_parse_stat("77 (short) R 5 1 1", &probe, &p));
    assert_false(fak_parse_stat("x (y) R 5", &probe, &p));
    assert_false(fak_parse_stat("", &probe, &p));
}

/* ---- folding ---- */
static void test_splits_cpu_and_memory(void **state)
{
    (void)state;
    fak_window w;
    fak_totals t;
    fak_window_init(&w, &probe);
    fak_window_set_root(&w, 10);
    host(1000, 1000);
    process(1, "init", 0, 500, 0, 1, 10);
    process(10, "bench", 1, 0, 0, 50, 100);
    snap(&w);
    host(1020, 1010);
    process(10, "bench", 1, 5, 1, 50, 300);
    process(11, "worker) x", 10, 2, 0, 51, 50); /* forked meanwhile */
    snap(&w);
    host(1060, 1040);
    process(10, "bench", 1, 20, 2, 50, 200);
    process(11, "worker) x", 1, 10, 0, 51, 60); /* an orphan now: still the command's */
    snap(&w);
    fak_window_totals(&w, &t);
    assert_true(t.host_cpu_percent.available);
    assert_float_equal(t.host_cpu_percent.value, 60, 1e-9);
    assert_true(t.sut_cpu_percent.available);
    assert_float_equal(t.sut_cpu_percent.value, 30, 1e-9); /* 22 + 8 of 100 ticks */
    assert_float_equal(t.other_cpu_percent.value, 30, 1e-9);
    assert_float_equal(t.sut_rss.value, 350 * 4096, 0);
    assert_float_equal(t.other_rss.value, 10 * 4096, 0);
    assert_float_equal(t.memory_available.value, 400 * 1024, 0);
    assert_float_equal(t.process_count.value, 3, 0);
    assert_int_equal(t.duration_ns, 202000000);
    assert_int_equal(t.wall_ns, 2000000); /* two censuses of 1 ms inside the window */
    assert_float_equal(t.duty_percent.value, 2.0 / 202 * 100, 1e-12);
    fak_window_free(&w);
}

static void test_reused_pid_is_another_process(void **state)
{
    (void)state;
    fak_window w;
    fak_totals t;
    fak_window_init(&w, &probe);
    fak_window_set_root(&w, 10);
    host(0, 0);
    process(10, "bench", 1, 0, 0, 50, 1);
    process(11, "child", 10, 40, 0, 51, 1);
    snap(&w);
    host(10, 10);
    process(11, "child", 10, 44, 0, 51, 1);
    snap(&w);
    host(50, 50);
    process(11, "stranger", 1, 900, 0, 777, 1); /* same number, later start, other parent */
    process(10, "bench", 1, 6, 0, 50, 1);
    snap(&w);
    fak_window_totals(&w, &t);
    assert_true(t.sut_cpu_percent.available);
    assert_float_equal(t.sut_cpu_percent.value, 10,
                       1e-9); /* 4 + 6 ticks; the stranger's 900 are its own */
    fak_window_free(&w);
}

static void unavailable_when(void (*spoil)(void), const char *reason)
{
    fak_window w;
    fak_totals t;
    fak_window_init(&w, &probe);
    fak_window_set_root(&w, 10);
    host(0, 0);
    process(10, "bench", 1, 5, 0, 50, 1);
    snap(&w);
    host(50, 50);
    process(10, "bench", 1, 9, 0, 50, 1);
    spoil();
    snap(&w);
    fak_window_totals(&w, &t);
    assert_false(t.sut_cpu_percent.available);
    assert_string_equal(t.sut_cpu_percent.reason, reason);
    fak_window_free(&w);
}

static void spoil_unreadable(void)
{
    process(33, "odd", 1, 1, 1, 1, 1);
    put_file("33/stat", "no stat line\n");
}
static void spoil_backwards(void)
{
    process(10, "bench", 1, 4, 0, 50, 1);
}
static void spoil_once(void)
{
    process(12, "short", 10, 1, 0, 60, 1);
}
static void spoil_counters(void)
{
    host(0, 0);
}
static void spoil_busy(void)
{
    put_file("stat", "cpu  100 0 0 0 0 0 0 0 0 0\n");
    host(100, 0);
    put_file("stat", "cpu  40 0 0 0 0 0 0 0 0 0\n"); /* fewer in total than the command's own */
    process(10, "bench", 1, 95, 0, 50, 1);
}

static void test_unknown_stays_unavailable(void **state)
{
    unavailable_when(spoil_unreadable, "a process could not be read");
    empty_host(state);
    unavailable_when(spoil_backwards, "a process of the command lost CPU time");
    empty_host(state);
    unavailable_when(spoil_once, "a process of the command was seen only once");
    empty_host(state);
    unavailable_when(spoil_counters, "host CPU counters did not advance");
    empty_host(state);
    unavailable_when(spoil_busy, "the command used more CPU than the host");
}

static void test_vanished_process_is_no_fault(void **state)
{
    (void)state;
    fak_window w;
    fak_totals t;
    fak_window_init(&w, &probe);
    fak_window_set_root(&w, 10);
    host(0, 0);
    process(10, "bench", 1, 0, 0, 50, 1);
    process(20, "other", 1, 3, 0, 40, 1);
    snap(&w);
    gone(20);
    char path[200];
    snprintf(path, sizeof(path), "%s/21", root); /* a folder whose stat is gone already */
    mkdir(path, 0755);
    host(10, 90);
    snap(&w);
    fak_window_totals(&w, &t);
    assert_int_equal(w.unreadable, 0);
    assert_true(t.sut_cpu_percent.available);
    fak_window_free(&w);
}

static void test_rounding_of_two_ticks_a_cpu(void **state)
{
    (void)state;
    for (int over = 4; over <= 5; over++) { /* 2 ticks x 2 CPUs are rounding, 5 are not */
        fak_window w;
        fak_totals t;
        fak_window_init(&w, &probe);
        fak_window_set_root(&w, 10);
        host(0, 0);
        process(10, "bench", 1, 0, 0, 50, 1);
        snap(&w);
        host(50, 50);
        process(10, "bench", 1, 50 + (unsigned)over, 0, 50, 1);
        snap(&w);
        fak_window_totals(&w, &t);
        assert_int_equal(t.sut_cpu_percent.available, over == 4);
        if (over == 4) {
            assert_float_equal(t.sut_cpu_percent.value, 50, 0);
            assert_float_equal(t.other_cpu_percent.value, 0, 0);
        }
        fak_window_free(&w);
        empty_host(state);
    }
}

static void test_clock_that_runs_backwards(void **state)
{
    (void)state;
    fak_window w;
    fak_totals t;
    fak_snapshot s = {0};
    fak_window_init(&w, &probe);
    host(0, 0);
    snap(&w);
    clock_step = (uint64_t)-1000;
    fak_snapshot_take(&probe, &s);
    clock_step = 1000000;
    fak_window_add(&w, &s);
    snap(&w);
    fak_window_totals(&w, &t);
    assert_false(t.duty_percent.available);
    assert_string_equal(t.duty_percent.reason, "negative census time");
    assert_int_equal(t.wall_ns, 0);
    fak_snapshot_free(&s);
    fak_window_free(&w);
}

static void test_no_reader_leaves_every_axis_unknown(void **state)
{
    (void)state;
    fak_probe nothing = probe;
    nothing.proc = "/nonexistent";
    fak_window w;
    fak_totals t;
    fak_snapshot s = {0};
    fak_window_init(&w, &nothing);
    for (int i = 0; i < 3; i++) {
        fak_snapshot_take(&nothing, &s);
        fak_window_add(&w, &s);
    }
    fak_window_totals(&w, &t);
    assert_false(t.host_cpu_percent.available || t.memory_total.available ||
                 t.process_count.available || t.sut_cpu_percent.available || t.sut_rss.available);
    assert_string_equal(t.host_cpu_percent.reason, "no platform reader");
    fak_window_free(&w);
}

/* ---- real processes ---- */
static void execute(char **argv, bool v2, uint64_t timeout_ms, fak_baseline_run *r)
{
    fak_probe p;
    fak_baseline_options o = {.baseline_ns = 30000000,
                              .interval_ns = 10000000,
                              .timeout_ns = timeout_ms * 1000000,
                              .max_non_sut_percent = 100,
                              .max_duty_percent = 100,
                              .v2 = v2,
                              .argv = argv};
    fak_probe_system(&p);
    fak_baseline_execute(&o, &p, r);
    if (r->spawn_error || r->failure) return;
    gem_bytes text = {0};
    char digest[FAK_DIGEST_SIZE];
    const char *verdict;
    fak_doc d;
    fak_findings f = {0};
    assert_true(fak_baseline_write(&o, r, &text, digest, &verdict));
    assert_true(fak_doc_parse(&d, &f, text.data, text.len,
                              &fak_type_baseline)); /* whatever happened, it verifies */
    fak_attestation_validate(d.root, &f);
    assert_int_equal(f.n, 0);
    assert_true(fak_attestation_as_written(d.root, text.data, text.len));
    fak_doc_free(&d);
    fak_findings_free(&f);
    gem_bytes_free(&text);
}

static void test_cpu_agrees_with_the_kernel(void **state)
{
    (void)state;
    fak_baseline_run r;
    fak_totals t;
    char *spin[] = {"sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done", NULL};
    execute(spin, false, 0, &r);
    fak_window_totals(&r.command, &t);
    double kernel = (double)(r.wait_user_us + r.wait_system_us) * 1000,
           tick = 1e9 / (double)sysconf(_SC_CLK_TCK);
    fprintf(stderr, "sampled %.0f ms, kernel %.0f ms\n", (double)t.sut_cpu_ns / 1e6, kernel / 1e6);
    assert_true(kernel > 5 * tick);
    assert_true((double)t.sut_cpu_ns >= kernel - 2 * tick &&
                (double)t.sut_cpu_ns <= kernel + 2 * tick);
    fak_baseline_run_free(&r);
}

static void test_exits_and_signals_pass_through(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int code;
    } cases[] = {{"exit 0", 0},
                 {"exit 7", 7},
                 {"kill -TERM $$", 128 + SIGTERM},
                 {"kill -KILL $$", 128 + SIGKILL},
                 {"exec sh -c 'exit 3'", 3},
                 {"(exit 9) & wait $!", 9}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fak_baseline_run r;
        char *argv[] = {"sh", "-c", (char *)cases[i].script, NULL};
        execute(argv, i % 2, 0, &r);
        assert_int_equal(r.exit_code, cases[i].code);
        fak_baseline_run_free(&r);
    }
    fak_baseline_run r;
    char *missing[] = {"/nonexistent/program", NULL}, *plain[] = {"/etc/passwd", NULL};
    execute(missing, false, 0, &r);
    assert_int_equal(r.spawn_error, ENOENT);
    fak_baseline_run_free(&r);
    execute(plain, false, 0, &r);
    assert_int_equal(r.spawn_error, EACCES);
    fak_baseline_run_free(&r);
}

static void test_timeout_ends_the_tree(void **state)
{
    (void)state;
    fak_baseline_run r;
    char *argv[] = {"sh", "-c", "sleep 60 & sleep 60", NULL};
    uint64_t t = gem_now_ns();
    execute(argv, false, 150, &r);
    assert_true(gem_now_ns() - t < UINT64_C(30000000000)); /* neither sleep came to its end */
    assert_int_equal(r.exit_code, 124);
    assert_true(r.timed_out);
    fak_baseline_run_free(&r);
}

/* An orphan's time is lost to the sampled tree only if it was too short to be seen; v2 counts it.
 */
static void test_v2_counts_short_lived_descendants(void **state)
{
    (void)state;
    fak_baseline_run r;
    char *argv[] = {"sh", "-c",
                    "i=0; while [ $i -lt 20 ]; do sh -c 'j=0; while [ $j -lt 3000 ]; do "
                    "j=$((j+1)); done'; i=$((i+1)); done",
                    NULL};
    execute(argv, true, 0, &r);
    double waited = (double)(r.wait_user_us + r.wait_system_us);
    assert_true(r.wait_ok);
    assert_int_equal(r.still_running, 0);
    assert_true(waited > 0);
    if (r.cgroup_cpu_ok) { /* both are the kernel's: they agree within a tenth */
        fprintf(stderr, "wait4 %.1f ms, cgroup %.1f ms\n", waited / 1e3,
                (double)r.cgroup_cpu_us / 1e3);
        assert_true((double)r.cgroup_cpu_us > waited * 0.9 - 2000 &&
                    (double)r.cgroup_cpu_us < waited * 1.1 + 2000);
    }
    if (r.exits.fd >= 0 && r.exits.lost == 0) assert_int_equal(r.exits.count, 21);
    fak_baseline_run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_cpu_line_leaves_guest_ticks_out, empty_host),
        cmocka_unit_test_setup(test_stat_line_survives_odd_names, empty_host),
        cmocka_unit_test_setup(test_splits_cpu_and_memory, empty_host),
        cmocka_unit_test_setup(test_reused_pid_is_another_process, empty_host),
        cmocka_unit_test_setup(test_unknown_stays_unavailable, empty_host),
        cmocka_unit_test_setup(test_vanished_process_is_no_fault, empty_host),
        cmocka_unit_test_setup(test_rounding_of_two_ticks_a_cpu, empty_host),
        cmocka_unit_test_setup(test_clock_that_runs_backwards, empty_host),
        cmocka_unit_test_setup(test_no_reader_leaves_every_axis_unknown, empty_host),
        cmocka_unit_test(test_cpu_agrees_with_the_kernel),
        cmocka_unit_test(test_exits_and_signals_pass_through),
        cmocka_unit_test(test_timeout_ends_the_tree),
        cmocka_unit_test(test_v2_counts_short_lived_descendants),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return remove_host() != 0 || failed;
}
