/* others.c - macOS' own tools, and recordings in a folder. */
#include "cmd/host_state/collect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a command prints; NULL when it fails. */
static char *output(const char *command)
{
    char buf[4096];
    gem_bytes b = {0};
    FILE *f = popen(command, "r");
    if (!f) return NULL;
    for (size_t n; (n = fread(buf, 1, sizeof(buf), f)) > 0 && b.len < (1u << 20);)
        gem_bytes_put(&b, buf, n);
    if (pclose(f) != 0 || b.failed) gem_bytes_free(&b);
    return b.data;
}

void host_collect_macos(ev_host_recording *r)
{
    static const struct {
        ev_host_text text;
        const char *command;
    } asked[] = {
        {EV_HOST_LOADAVG, "/usr/sbin/sysctl -n vm.loadavg"},
        {EV_HOST_CPUS, "/usr/sbin/sysctl -n hw.logicalcpu"},
        {EV_HOST_BATT, "/usr/bin/pmset -g batt"},
        {EV_HOST_THERM, "/usr/bin/pmset -g therm"},
        {EV_HOST_ASSERTIONS, "/usr/bin/pmset -g assertions"},
        {EV_HOST_PROCESSES, "/bin/ps -Aceo pid,pcpu,comm -r"},
        {EV_HOST_TOP, "/usr/bin/top -l 2 -n 0 -s 1"},
    };
    r->macos = true;
    for (size_t i = 0; i < ARRAY_LEN(asked); i++)
        r->text[asked[i].text] = output(asked[i].command);
}

gem_status host_collect_folder(ev_host_recording *r, const char *folder, gem_error *err)
{
    struct stat sb;
    if (stat(folder, &sb) != 0) return gem_fail(err, GEM_E_IO, "%s: %s", folder, strerror(errno));
    for (size_t i = 0; i < EV_HOST_TEXTS; i++) {
        gem_bytes path = {0};
        gem_error ignored;
        size_t len;
        gem_bytes_printf(&path, "%s/%s", folder, ev_host_text_names[i]);
        if (path.data && access(path.data, R_OK) == 0)
            gem_file_read(path.data, 1 << 20, &r->text[i], &len, &ignored);
        gem_bytes_free(&path);
    }
    return GEM_OK;
}

gem_status host_save_folder(const ev_host_recording *r, const char *folder, gem_error *err)
{
    if (mkdir(folder, 0777) != 0) return gem_fail(err, GEM_E_IO, "%s: %s", folder, strerror(errno));
    gem_status st = GEM_OK;
    for (size_t i = 0; st == GEM_OK && i < EV_HOST_TEXTS; i++) {
        gem_bytes path = {0};
        gem_bytes_printf(&path, "%s/%s", folder, ev_host_text_names[i]);
        if (r->text[i] && path.data)
            st = gem_file_write_atomic(path.data, r->text[i], strlen(r->text[i]), err);
        gem_bytes_free(&path);
    }
    return st;
}
