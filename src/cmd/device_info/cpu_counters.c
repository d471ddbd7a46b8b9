/* cpu_counters.c - the CPU: its instruction sets as the kernels see them, its caches, and which of its
 * counters this process may read. */
#include "backend/cpu/kernels.h"
#include "bench/bench.h"
#include "cmd/device_info/device_info.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <dirent.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#endif

static json_t *first_line(const char *path)
{
    char line[128];
    FILE *f = fopen(path, "re");
    if (!f) return json_null();
    bool ok = fgets(line, sizeof(line), f) != NULL;
    fclose(f);
    if (!ok) return json_null();
    line[strcspn(line, "\n")] = 0;
    json_t *j = json_string(line);
    return j ? j : json_null();
}

static json_t *caches(void)
{
    json_t *list = json_array();
    for (int i = 0; i < 8; i++) {
        static const char *const what[] = {"level", "type", "size", "coherency_line_size",
                                           "shared_cpu_list"};
        char path[128];
        json_t *o = json_object();
        bool any = false;
        for (size_t k = 0; k < ARRAY_LEN(what); k++) {
            snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i,
                     what[k]);
            json_t *v = first_line(path);
            any = any || json_is_string(v);
            json_object_set_new(o, what[k], v);
        }
        if (any)
            json_array_append_new(list, o);
        else
            json_decref(o);
    }
    return list;
}

json_t *device_cpu_json(void)
{
    gem_cpu_isa isa[8];
    json_t *isas = json_array();
    int n = gem_cpu_isas(isa, 8);
    for (int i = 0; i < n; i++)
        json_array_append_new(
            isas, json_pack("{s:s, s:b}", "name", isa[i].name, "usable", isa[i].usable));
    return json_pack("{s:o, s:o}", "instruction_sets", isas, "caches", caches());
}

#ifdef __linux__

static const struct {
    const char *name;
    uint32_t type;
    uint64_t config;
} counters[] = {
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    {"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    {"stalled-cycles-frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
    {"stalled-cycles-backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
    {"ref-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES},
    {"llc-read-misses", PERF_TYPE_HW_CACHE,
     PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_OP_READ << 8 |
         PERF_COUNT_HW_CACHE_RESULT_MISS << 16},
    {"dtlb-read-misses", PERF_TYPE_HW_CACHE,
     PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
         PERF_COUNT_HW_CACHE_RESULT_MISS << 16},
    {"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
    {"cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS},
};

/* Some work that every counter but the rare ones sees. */
static unsigned spin(void)
{
    volatile unsigned x = 1;
    for (int i = 0; i < 100000; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

static json_t *try_counter(size_t i)
{
    struct perf_event_attr a = {.size = sizeof(a),
                                .type = counters[i].type,
                                .config = counters[i].config,
                                .disabled = 1,
                                .exclude_kernel = 1,
                                .exclude_hv = 1};
    uint64_t value = 0;
    int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return json_pack("{s:s, s:b, s:s}", "name", counters[i].name, "available", 0, "reason",
                         strerror(errno));
    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    spin();
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    bool read_ok = read(fd, &value, sizeof(value)) == (ssize_t)sizeof(value);
    close(fd);
    if (!read_ok)
        return json_pack("{s:s, s:b, s:s}", "name", counters[i].name, "available", 0, "reason",
                         "it was opened and could not be read");
    return json_pack("{s:s, s:b, s:I}", "name", counters[i].name, "available", 1, "probe_value",
                     (json_int_t)value);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static json_t *pmus(void)
{
    struct dirent **entry;
    json_t *list = json_array();
    int n = scandir("/sys/bus/event_source/devices", &entry, NULL, by_name);
    for (int i = 0; i < n; i++) {
        if (entry[i]->d_name[0] != '.') json_array_append_new(list, json_string(entry[i]->d_name));
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return list;
}

json_t *device_counters_json(void)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ARRAY_LEN(counters); i++)
        json_array_append_new(list, try_counter(i));
    return json_pack("{s:s, s:o, s:o, s:o}", "interface", "perf_event", "perf_event_paranoid",
                     first_line("/proc/sys/kernel/perf_event_paranoid"), "counters", list, "pmus",
                     pmus());
}

#else

json_t *device_counters_json(void)
{
    return json_pack("{s:s, s:[]}", "unavailable", "perf_event is a part of Linux", "counters");
}

#endif
