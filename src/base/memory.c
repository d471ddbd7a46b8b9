/* memory.c - how much memory there is to take: /proc/meminfo and memory cgroups, both versions. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH_BYTES = 4096 };

/* The number behind `field` at the start of a line, or of the file when field is "". */
static bool number_in(const char *path, const char *field, uint64_t *out)
{
    char line[256];
    size_t n = strlen(field);
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof(line), f)) {
        char *end;
        if (strncmp(line, field, n) != 0) continue;
        *out = strtoull(line + n, &end, 10); /* "max" is no number */
        found = end != line + n;
    }
    fclose(f);
    return found;
}

/* What one cgroup's folder leaves; UINT64_MAX: it has no limit. */
static uint64_t left_in(const char *dir, bool v2)
{
    char path[PATH_BYTES + 64];
    uint64_t limit, used, cache = 0, part;
    snprintf(path, sizeof(path), "%s/%s", dir, v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!number_in(path, "", &limit)) return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/%s", dir, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (!number_in(path, "", &used)) return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    if (number_in(path, v2 ? "inactive_file " : "total_inactive_file ", &part)) cache += part;
    if (number_in(path, v2 ? "active_file " : "total_active_file ", &part)) cache += part;
    used -= GEM_MIN(used, cache);
    return limit > used ? limit - used : 0;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The least that a group and those above it leave; cuts the group's name down. */
static uint64_t left_above(const char *mount, char *group, bool v2)
{
    char dir[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    for (;;) {
        if ((size_t)snprintf(dir, sizeof(dir), "%s%s", mount, group) < sizeof(dir))
            least = lesser(least, left_in(dir, v2));
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

static bool names_memory(const char *controllers)
{
    for (const char *p = controllers; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        if (n == 6 && memcmp(p, "memory", 6) == 0) return true;
        p += n;
    }
    return false;
}

uint64_t gem_memory_available(const char *root)
{
    char path[PATH_BYTES], mount[PATH_BYTES], line[PATH_BYTES];
    uint64_t least = UINT64_MAX, kib;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (number_in(path, "MemAvailable:", &kib)) least = kib * 1024;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) { /* number:controllers:path */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        controllers++;
        if (*controllers && !names_memory(controllers)) continue;
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root, *controllers ? "/memory" : "");
        least = lesser(least, left_above(mount, group, !*controllers));
    }
    if (f) fclose(f);
    return least;
}

uint64_t gem_process_bytes(const char *name)
{
    char key[64];
    uint64_t kib;
    snprintf(key, sizeof(key), "%s:", name);
    return number_in("/proc/self/status", key, &kib) ? kib * 1024 : 0;
}
