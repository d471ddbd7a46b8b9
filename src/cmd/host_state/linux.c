/* linux.c - /proc and /sys. */
#include "cmd/host_state/collect.h"

#include "fak/sampler.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char *whole(const char *path)
{
    char *data = NULL;
    size_t len;
    gem_error err;
    return gem_file_read(path, 1 << 20, &data, &len, &err) == GEM_OK ? data : NULL;
}

static void first_word(const char *folder, const char *name, char out[64])
{
    gem_bytes path = {0};
    gem_bytes_printf(&path, "%s/%s", folder, name);
    char *text = path.data ? whole(path.data) : NULL;
    snprintf(out, 64, "%.63s", text && *text ? text : "-");
    out[strcspn(out, " \n")] = 0;
    if (!*out) snprintf(out, 64, "-");
    free(text);
    gem_bytes_free(&path);
}

static char *supplies(void)
{
    glob_t g;
    gem_bytes b = {0};
    gem_bytes_put(&b, "", 0);
    if (glob("/sys/class/power_supply/*", 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            char type[64], online[64], status[64], scope[64];
            first_word(g.gl_pathv[i], "type", type);
            first_word(g.gl_pathv[i], "online", online);
            first_word(g.gl_pathv[i], "status", status);
            first_word(g.gl_pathv[i], "scope", scope); /* "Device": a mouse's battery */
            if (strcmp(scope, "Device") != 0)
                gem_bytes_printf(&b, "%s %s %s\n", type, online, status);
        }
        globfree(&g);
    }
    return b.data;
}

/* Sum of all counters; NULL when the machine has none. */
static char *throttle(void)
{
    glob_t g;
    gem_bytes b = {0};
    if (glob("/sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count", 0, NULL, &g) != 0)
        return NULL;
    double sum = 0;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char *text = whole(g.gl_pathv[i]);
        if (text) sum += strtod(text, NULL);
        free(text);
    }
    globfree(&g);
    gem_bytes_printf(&b, "%.0f\n", sum);
    return b.data;
}

static char *governors(void)
{
    glob_t g;
    gem_bytes b = {0};
    if (glob("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", 0, NULL, &g) != 0)
        return NULL;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char *text = whole(g.gl_pathv[i]);
        if (text) gem_bytes_put(&b, text, strlen(text));
        free(text);
    }
    globfree(&g);
    return b.data;
}

/* The busiest processes of the window, in the form of macOS' ps. */
static char *busiest(const fak_window *w)
{
    fak_track top[16];
    gem_bytes b = {0};
    double window = (double)(w->last_time - w->first_time);
    size_t n = window > 0 ? fak_window_top(w, top, ARRAY_LEN(top)) : 0;
    gem_bytes_put(&b, "", 0);
    for (size_t i = 0; i < n; i++)
        gem_bytes_printf(&b, "%d %.1f %s\n", (int)top[i].pid,
                         100 * (double)(top[i].last_ns - top[i].first_ns) / window, top[i].image);
    return b.data;
}

void host_collect_linux(ev_host_recording *r, int interval_ms)
{
    fak_probe probe;
    fak_snapshot snapshot = {0};
    fak_window window;
    gem_bytes cpus = {0};
    struct timespec pause = {interval_ms / 1000, (long)(interval_ms % 1000) * 1000000};
    r->macos = false;
    r->text[EV_HOST_LOADAVG] = whole("/proc/loadavg"); /* before our own work */
    r->text[EV_HOST_SUPPLIES] = supplies();
    r->text[EV_HOST_GOVERNORS] = governors();
    fak_probe_system(&probe);
    fak_window_init(&window, &probe);
    fak_snapshot_take(&probe, &snapshot);
    fak_window_add(&window, &snapshot);
    r->text[EV_HOST_THROTTLE_BEFORE] = throttle();
    r->text[EV_HOST_STAT_BEFORE] = whole("/proc/stat");
    nanosleep(&pause, NULL);
    r->text[EV_HOST_STAT_AFTER] = whole("/proc/stat");
    r->text[EV_HOST_THROTTLE_AFTER] = throttle();
    fak_snapshot_take(&probe, &snapshot);
    fak_window_add(&window, &snapshot);
    r->text[EV_HOST_PROCESSES] = busiest(&window);
    gem_bytes_printf(&cpus, "%ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    r->text[EV_HOST_CPUS] = cpus.data;
    fak_window_free(&window);
    fak_snapshot_free(&snapshot);
}
