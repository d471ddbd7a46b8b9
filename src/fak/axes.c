/* axes.c - control group, pressure and host context of attestation v2. */
#include "fak/axes.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

gem_json *fak_put_metric(gem_json_doc *d, gem_json *parent, const char *name, bool available,
                         double value, const char *unit, const char *source, const char *reason)
{
    gem_json *m = gem_json_put(d, parent, name, GEM_JSON_OBJECT);
    gem_json_put_bool(d, m, "available", available);
    if (available) gem_json_put_number(d, m, "value", value);
    gem_json_put_string(d, m, "unit", unit);
    gem_json_put_string(d, m, available ? "source" : "reason", available ? source : reason);
    return m;
}

static bool read_text(const char *folder, const char *name, char *buf, size_t size)
{
    char path[640];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t n = fread(buf, 1, size - 1, f);
    buf[n] = 0;
    fclose(f);
    return n > 0;
}

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[640];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && ok;
}

static bool key_value(const char *text, const char *key, uint64_t *v)
{
    size_t n = strlen(key);
    for (const char *s = text; s && *s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
        if (strncmp(s, key, n) == 0 && s[n] == ' ') {
            *v = strtoull(s + n + 1, NULL, 10);
            return true;
        }
    return false;
}

/* ---- control group ---- */
/* The unified hierarchy: alone at /sys/fs/cgroup, or beside v1 at .../unified. */
static const char *hierarchy(void)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s/cgroup.procs", roots[i]);
        if (access(path, F_OK) == 0) return roots[i];
    }
    return NULL;
}

void fak_cgroup_open(fak_cgroup *c)
{
    char text[4096], own[400] = "";
    const char *root = hierarchy();
    memset(c, 0, sizeof(*c));
    c->cleanup = "none";
    if (!root || !read_text("/proc/self", "cgroup", text, sizeof(text))) {
        c->reason = "no cgroup v2 hierarchy";
        return;
    }
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (line) sscanf(line + (*line == '\n') + 3, "%399[^\n]", own);
    int n = snprintf(c->path, sizeof(c->path), "%s%s%sgem-evidence-%ld", root, own,
                     strcmp(own, "/") == 0 ? "" : "/", (long)getpid());
    if (!line || n < 0 || (size_t)n >= sizeof(c->path) || mkdir(c->path, 0755) != 0) {
        c->path[0] = 0;
        c->reason = "no own control group could be made";
    }
}

void fak_cgroup_place(fak_cgroup *c, int32_t pid)
{
    char text[16];
    if (!c->path[0]) return;
    snprintf(text, sizeof(text), "%d", (int)pid);
    c->placed = write_text(c->path, "cgroup.procs", text);
    if (!c->placed) c->reason = "the command could not be placed in its control group";
}

bool fak_cgroup_cpu(const fak_cgroup *c, uint64_t *usage_usec)
{
    char text[2048];
    return c->placed && read_text(c->path, "cpu.stat", text, sizeof(text)) &&
           key_value(text, "usage_usec", usage_usec);
}

static void put_number_file(const fak_cgroup *c, gem_json_doc *d, gem_json *o, const char *name,
                            const char *file, const char *unit)
{
    char text[64] = "";
    bool ok = c->placed && read_text(c->path, file, text, sizeof(text));
    fak_put_metric(d, o, name, ok, ok ? (double)strtoull(text, NULL, 10) : 0, unit, "cgroup-v2",
                   c->placed ? "controller not delegated" : c->reason);
}

gem_json *fak_cgroup_put(const fak_cgroup *c, gem_json_doc *d, gem_json *parent)
{
    static const char *const keys[] = {"usage_usec", "user_usec", "system_usec"};
    static const fak_pressure zero = {.ok = {{true, true}, {true, true}, {true, true}}};
    char text[2048] = "";
    uint64_t v = 0;
    fak_pressure pressure = {0};
    gem_json *o = gem_json_put(d, parent, "cgroup_v2", GEM_JSON_OBJECT);
    gem_json_put_string(d, o, "state", c->placed ? "observed" : "unavailable");
    gem_json_put_string(d, o, "membership", c->placed ? "before-exec" : "none");
    gem_json *stat = gem_json_put(d, o, "cpu_stat", GEM_JSON_OBJECT);
    if (c->placed) read_text(c->path, "cpu.stat", text, sizeof(text));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        bool ok = key_value(text, keys[i], &v);
        fak_put_metric(d, stat, keys[i], ok, (double)v, "microseconds", "cgroup-v2",
                       c->placed ? "cpu.stat has no such line" : c->reason);
    }
    gem_json *memory = gem_json_put(d, o, "memory", GEM_JSON_OBJECT);
    put_number_file(c, d, memory, "peak_bytes", "memory.peak", "bytes");
    text[0] = 0;
    bool ok = c->placed && read_text(c->path, "memory.events", text, sizeof(text)) &&
              key_value(text, "oom_kill", &v);
    fak_put_metric(d, memory, "oom_kills", ok, (double)v, "events", "cgroup-v2",
                   c->placed ? "controller not delegated" : c->reason);
    put_number_file(c, d, o, "pids_peak", "pids.peak", "processes");
    if (c->placed) fak_pressure_read(&pressure, c->path, ".pressure"); /* a new group starts at 0 */
    fak_pressure_put(d, o, &zero, &pressure);
    return o;
}

void fak_cgroup_close(fak_cgroup *c)
{
    if (!c->path[0]) return;
    struct timespec pause = {.tv_nsec = 20000000};
    c->cleanup = "failed";
    for (int i = 0; i < 100; i++) {
        if (rmdir(c->path) == 0 || errno == ENOENT) {
            c->cleanup = "removed";
            break;
        }
        if (i == 0) write_text(c->path, "cgroup.kill", "1");
        nanosleep(&pause, NULL);
    }
    c->path[0] = 0;
}

/* ---- pressure ---- */
static const char *const resources[] = {"cpu", "memory", "io"};

void fak_pressure_read(fak_pressure *p, const char *folder, const char *suffix)
{
    static const char *const kinds[] = {"some", "full"};
    memset(p, 0, sizeof(*p));
    for (size_t i = 0; i < ARRAY_LEN(resources); i++) {
        char name[32], text[512];
        snprintf(name, sizeof(name), "%s%s", resources[i], suffix);
        if (!read_text(folder, name, text, sizeof(text))) continue;
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            const char *line = strstr(text, kinds[k]),
                       *total = line ? strstr(line, "total=") : NULL;
            p->ok[i][k] = total != NULL;
            if (total) p->total_us[i][k] = strtoull(total + 6, NULL, 10);
        }
    }
}

void fak_pressure_put(gem_json_doc *d, gem_json *parent, const fak_pressure *from,
                      const fak_pressure *to)
{
    static const char *const names[] = {"some_total_us", "full_total_us"};
    gem_json *o = gem_json_put(d, parent, "pressure", GEM_JSON_OBJECT);
    for (size_t i = 0; i < ARRAY_LEN(resources); i++) {
        gem_json *r = gem_json_put(d, o, resources[i], GEM_JSON_OBJECT);
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            bool ok = from->ok[i][k] && to->ok[i][k] && to->total_us[i][k] >= from->total_us[i][k];
            fak_put_metric(d, r, names[k], ok,
                           ok ? (double)(to->total_us[i][k] - from->total_us[i][k]) : 0,
                           "microseconds", "psi", "no pressure information");
        }
    }
}

/* ---- host context ---- */
static size_t sum_files(const char *pattern, double *sum, double *least)
{
    glob_t g;
    size_t n = 0;
    if (glob(pattern, 0, NULL, &g) != 0) return 0;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        FILE *f = fopen(g.gl_pathv[i], "re");
        double v;
        if (!f) continue;
        if (fscanf(f, "%lf", &v) == 1) {
            if (n == 0 || v < *least) *least = v;
            *sum += v;
            n++;
        }
        fclose(f);
    }
    globfree(&g);
    return n;
}

void fak_context_sample(fak_context *c)
{
    double khz = 0, khz_least = 0, events = 0, ignored = 0;
    size_t n =
        sum_files("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq", &khz, &khz_least);
    if (n) {
        if (!c->mhz_ok || khz_least / 1000 < c->mhz_min) c->mhz_min = khz_least / 1000;
        c->mhz_sum += khz / 1000;
        c->n_mhz += n;
        c->mhz_ok = true;
    }
    if (sum_files("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count", &events,
                  &ignored)) {
        c->throttle_last = (uint64_t)events;
        if (!c->throttle_ok) c->throttle_first = c->throttle_last;
        c->throttle_ok = true;
    }
    c->samples++;
}
