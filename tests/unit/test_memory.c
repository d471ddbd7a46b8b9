/* How much memory there is, on made-up machines; and a model that would not fit is refused before
 * it is loaded, by a forecast that is what opening then takes. */
#include "bits.h"
#include "tiny_model.h"

#include <sys/mman.h>
#include <sys/stat.h>

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512], dir[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + 1; (p = strchr(p, '/')); p++) {
        snprintf(dir, sizeof(dir), "%.*s", (int)(p - full), full);
        mkdir(dir, 0700);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void fresh(void)
{
    char line[128];
    snprintf(root, sizeof(root), "/tmp/gem-test-memory-%d", (int)getpid());
    snprintf(line, sizeof(line), "rm -rf %s", root);
    assert_int_equal(system(line), 0);
}

static void test_available(void **state)
{
    (void)state;
    fresh();
    assert_true(gem_memory_available(root) == UINT64_MAX); /* nothing is known */
    put("/proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:    5000 kB\n");
    assert_true(gem_memory_available(root) == 5000 * 1024);
    /* version 2: a limit above the process, with page cache that can go */
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "1000000\n");
    assert_true(gem_memory_available(root) == 5000 * 1024);
    put("/sys/fs/cgroup/a/memory.max", "3000000\n");
    put("/sys/fs/cgroup/a/memory.current", "2500000\n");
    assert_true(gem_memory_available(root) == 500000);
    put("/sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 300000\nactive_file 100000\n");
    assert_true(gem_memory_available(root) == 900000);
    put("/sys/fs/cgroup/a/memory.current", "3500000\n"); /* over it */
    assert_true(gem_memory_available(root) == 0);
    /* version 1 */
    put("/proc/self/cgroup", "9:name=systemd:/\n8:pids:/x\n4:cpu,memory:/g/p\n0::/\n");
    assert_true(gem_memory_available(root) == 5000 * 1024);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "123\n");
    assert_true(gem_memory_available(root) == 5000 * 1024);
    put("/sys/fs/cgroup/memory/g/p/memory.limit_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/g/p/memory.usage_in_bytes", "500000\n");
    put("/sys/fs/cgroup/memory/g/p/memory.stat", "inactive_file 9\ntotal_inactive_file 100000\n");
    assert_true(gem_memory_available(root) == 1600000);
    assert_true(gem_memory_available("") > 1 << 20); /* this machine */
    fresh();
}

static void check_forecast(const char *path, gem_model_options o)
{
    gem_model *m = bits_open(path, o, 0);
    gem_model_info info;
    gem_error err;
    const gem_engine_options e = {.ops = gem_backend_find(NULL)};
    gem_model_get_info(m, &info);
    gem_model_close(m);
    o.max_bytes = info.weights_bytes + info.kv_bytes + info.workspace_bytes + info.recurrent_bytes;
    assert_int_equal(gem_model_open_engine(&m, path, &o, &e, &err), GEM_OK);
    gem_model_close(m);
    o.max_bytes -= o.max_bytes / 100;
    assert_int_equal(gem_model_open_engine(&m, path, &o, &e, &err), GEM_E_NOMEM);
    assert_null(m);
    assert_non_null(strstr(err.text, "MiB of memory are needed (weights "));
    assert_non_null(strstr(err.text, ", keys and values "));
}

/* What this process holds: 64 MiB that it has written show, and go again. */
static void test_own(void **state)
{
    (void)state;
    const size_t size = 64 << 20, some = 8 << 20;
    uint64_t before = gem_process_bytes("RssAnon");
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    memset(p, 1, size);
    uint64_t with = gem_process_bytes("RssAnon");
    assert_true(with >= before + size - some && with <= before + size + some);
    assert_true(gem_process_bytes("VmRSS") >= with);
    munmap(p, size);
    assert_true(gem_process_bytes("RssAnon") <= before + some);
    assert_true(gem_process_bytes("Rss") == 0); /* no whole name */
}

static void test_forecast(void **state)
{
    (void)state;
    char path[128], line[512];
    tiny all[] = {tiny_qwen2(), tiny_gemma3(), tiny_gemma4()};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        all[i].tokenizer = true;
        if (!tiny_write(&all[i], tiny_path(path, "memory"))) fail();
        check_forecast(path, (gem_model_options){.n_ctx = 2048, .n_batch = 256, .n_threads = 2});
        check_forecast(path,
                       (gem_model_options){
                           .n_ctx = 512, .n_sessions = 2, .n_threads = 1, .kv_type = GEM_KV_F16});
        unlink(path);
    }
    tiny_path(path, "memory");
    snprintf(line, sizeof(line), "%s/gem-synth-model -p qwen35-tiny --quiet -o %s >/dev/null",
             GEM_BIN_DIR, path);
    assert_int_equal(system(line), 0);
    check_forecast(path, (gem_model_options){.n_ctx = 1024, .n_threads = 2});
    check_forecast(path, (gem_model_options){.n_ctx = 1024, .no_repack = true});
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_available),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_forecast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
