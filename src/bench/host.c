/* host.c - what a record says about the machine: enough to see why two records differ. */
#include "bench/bench.h"
#include "gem_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

/* First line of a small file, without its newline; "" when it cannot be read. */
static void first_line(const char *path, char *out, size_t size)
{
    out[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f) return;
    if (!fgets(out, (int)size, f)) out[0] = 0;
    fclose(f);
    out[strcspn(out, "\n")] = 0;
}

/* Value of "key : value" in a file of such lines. */
static void keyed_line(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    size_t n = strlen(key);
    out[0] = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, n) != 0) continue;
        char *colon = strchr(line, ':');
        if (!colon) continue;
        colon++;
        colon += strspn(colon, " \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, size, "%s", colon);
        break;
    }
    if (f) fclose(f);
}

static json_t *text_or_null(const char *s)
{
    json_t *j = *s ? json_string(s) : NULL;
    return j ? j : json_null();
}

json_t *bench_host_json(void)
{
    char cpu[256], governor[64], huge[128], memory[64];
    struct utsname u;
    double load[3] = {-1, -1, -1};
    keyed_line("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
    if (!*cpu) keyed_line("/proc/cpuinfo", "CPU part", cpu, sizeof(cpu));
    first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof(governor));
    first_line("/sys/kernel/mm/transparent_hugepage/enabled", huge, sizeof(huge));
    keyed_line("/proc/meminfo", "MemTotal", memory, sizeof(memory));
    if (uname(&u) != 0) memset(&u, 0, sizeof(u));
    if (getloadavg(load, 3) != 3) load[0] = load[1] = load[2] = -1;
    return json_pack("{s:o, s:i, s:i, s:o, s:[f,f,f], s:s, s:s, s:s, s:o, s:o, s:{s:s, s:s, s:s, "
                     "s:s, s:s, s:s}}",
                     "cpu", text_or_null(cpu), "cpus_online", (int)sysconf(_SC_NPROCESSORS_ONLN),
                     "cpus_usable", gem_cpu_count(), "governor", text_or_null(governor),
                     "load_average", load[0], load[1], load[2], "system", u.sysname, "kernel",
                     u.release, "machine", u.machine, "memory_total", text_or_null(memory),
                     "huge_pages", text_or_null(huge), "build", "version", GEM_VERSION, "commit",
                     GEM_BUILD_COMMIT, "compiler", GEM_BUILD_COMPILER, "type", GEM_BUILD_TYPE,
                     "sanitizers", GEM_BUILD_SANITIZE, "target", GEM_BUILD_SYSTEM);
}
