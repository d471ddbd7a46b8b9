/* snapshot.c - reading /proc: the CPU line, memory, and the census of processes. */
#include "fak/sampler.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static uint64_t system_now(void *user)
{
    (void)user;
    return gem_now_ns();
}

void fak_probe_system(fak_probe *p)
{
    long ticks = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE),
         cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *p = (fak_probe){.proc = "/proc",
                     .now = system_now,
                     .ticks_per_second = ticks > 0 ? (uint64_t)ticks : 100,
                     .page_bytes = page > 0 ? (uint64_t)page : 4096,
                     .n_cpus = cpus > 0 ? (int)cpus : 1};
}

static bool ticks_to_ns(uint64_t ticks, const fak_probe *p, uint64_t *ns)
{
    return !__builtin_mul_overflow(ticks, UINT64_C(1000000000) / p->ticks_per_second, ns);
}

/* Unsigned decimal at *s behind blanks; moves *s. */
static bool number(const char **s, uint64_t *v)
{
    const char *c = *s;
    uint64_t n = 0;
    while (*c == ' ')
        c++;
    if (!isdigit((unsigned char)*c)) return false;
    for (; isdigit((unsigned char)*c); c++)
        if (__builtin_mul_overflow(n, UINT64_C(10), &n) ||
            __builtin_add_overflow(n, (uint64_t)(*c - '0'), &n))
            return false;
    *s = c;
    *v = n;
    return true;
}

bool fak_parse_cpu(const char *text, const fak_probe *p, uint64_t *busy_ns, uint64_t *total_ns,
                   uint64_t *steal_ns)
{
    uint64_t field[8], total = 0, idle;
    if (strncmp(text, "cpu ", 4) != 0) return false;
    text += 4;
    for (int i = 0; i < 8; i++)
        if (!number(&text, &field[i]) || __builtin_add_overflow(total, field[i], &total))
            return false;
    idle = field[3] + field[4];
    return ticks_to_ns(total, p, total_ns) && ticks_to_ns(total - idle, p, busy_ns) &&
           ticks_to_ns(field[7], p, steal_ns);
}

/* proc(5): pid (comm) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime
 * stime cutime cstime priority nice threads itrealvalue starttime vsize rss. comm may hold ')' and
 * blanks. */
bool fak_parse_stat(const char *line, const fak_probe *p, fak_process *out)
{
    const char *open_ = strchr(line, '('), *close_ = strrchr(line, ')'), *s = line;
    uint64_t pid, v = 0, utime = 0, stime = 0, cpu;
    if (!open_ || !close_ || close_ < open_ || !number(&s, &pid) || pid == 0 || pid > INT32_MAX)
        return false;
    memset(out, 0, sizeof(*out));
    out->pid = (int32_t)pid;
    size_t n = GEM_MIN((size_t)(close_ - open_ - 1), sizeof(out->image) - 1);
    memcpy(out->image, open_ + 1, n);
    s = close_ + 1;
    while (*s == ' ')
        s++;
    if (!*s) return false;
    s++; /* state */
    for (int field = 2; field <= 22; field++) {
        while (*s == ' ')
            s++;
        bool negative = *s == '-'; /* tpgid, priority, nice and rss may be */
        if (negative) s++;
        if (!number(&s, &v)) return false;
        if (field == 2) {
            if (negative || v > INT32_MAX) return false;
            out->ppid = (int32_t)v;
        }
        if (field == 12) utime = v;
        if (field == 13) stime = v;
        if (field == 20) out->starttime = v;
        if (field == 22 && !negative && !__builtin_mul_overflow(v, p->page_bytes, &out->rss_bytes))
            out->rss_known = true;
    }
    return !__builtin_add_overflow(utime, stime, &cpu) && ticks_to_ns(cpu, p, &out->cpu_ns);
}

/* A small file below dir into buf; the length, or -1 with errno. */
static ssize_t slurp(int dir, const char *name, char *buf, size_t size)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t len = 0;
    ssize_t n = 0;
    while (len < size - 1) {
        n = read(fd, buf + len, size - 1 - len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        len += (size_t)n;
        /* one record of procfs comes whole: a short read is its end, and saves a call a process */
        if (len < size - 1) break;
    }
    int cause = errno;
    close(fd);
    errno = cause;
    buf[len] = 0;
    return n < 0 ? -1 : (ssize_t)len;
}

static bool field_of(const char *text, const char *key, uint64_t *v)
{
    const char *s = strncmp(text, key, strlen(key)) == 0 ? text : NULL;
    char line[40];
    if (!s) {
        snprintf(line, sizeof(line), "\n%s", key);
        s = strstr(text, line);
        if (!s) return false;
        s++;
    }
    s += strlen(key);
    return number(&s, v);
}

static void read_host(const fak_probe *p, int dir, fak_snapshot *s)
{
    char buf[65536];
    uint64_t total, available;
    if (slurp(dir, "stat", buf, sizeof(buf)) > 0) {
        s->host_cpu = fak_parse_cpu(buf, p, &s->busy_ns, &s->total_ns, &s->steal_ns);
        if (!field_of(buf, "ctxt", &s->context_switches)) s->context_switches = 0;
        if (!field_of(buf, "procs_running", &s->procs_running)) s->procs_running = 0;
    }
    if (slurp(dir, "meminfo", buf, sizeof(buf)) > 0 && field_of(buf, "MemTotal:", &total) &&
        field_of(buf, "MemAvailable:", &available))
        s->host_memory = !__builtin_mul_overflow(total, UINT64_C(1024), &s->memory_total) &&
                         !__builtin_mul_overflow(available, UINT64_C(1024), &s->memory_available);
}

static bool room(fak_snapshot *s)
{
    if (s->n_processes < s->cap) return true;
    size_t cap = s->cap ? s->cap * 2 : 256;
    fak_process *v = realloc(s->process, cap * sizeof(*v));
    if (!v) return false;
    s->process = v;
    s->cap = cap;
    return true;
}

static void read_process(const fak_probe *p, int dir, const char *pid, fak_snapshot *s)
{
    char name[40], buf[1024];
    snprintf(name, sizeof(name), "%.20s/stat", pid);
    ssize_t n = slurp(dir, name, buf, sizeof(buf));
    if (n < 0 && (errno == ENOENT || errno == ESRCH)) return; /* it ended meanwhile */
    if (n <= 0 || !room(s) || !fak_parse_stat(buf, p, &s->process[s->n_processes])) {
        s->unreadable++;
        return;
    }
    s->n_processes++;
}

static int by_pid(const void *a, const void *b)
{
    const fak_process *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

void fak_snapshot_take(const fak_probe *p, fak_snapshot *s)
{
    fak_process *keep = s->process;
    size_t cap = s->cap;
    memset(s, 0, sizeof(*s));
    s->process = keep;
    s->cap = cap;
    s->time_ns = p->now(p->user);
    int dir = open(p->proc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = NULL;
    if (dir >= 0) {
        read_host(p, dir, s);
        int again = dup(dir); /* readdir owns one, openat uses the other */
        list = again >= 0 ? fdopendir(again) : NULL;
        if (!list && again >= 0) close(again);
    }
    if (list) {
        const struct dirent *d;
        errno = 0;
        while ((d = readdir(list)) != NULL) {
            if (isdigit((unsigned char)d->d_name[0])) read_process(p, dir, d->d_name, s);
            errno = 0;
        }
        s->enumerated = errno == 0;
        closedir(list);
        if (s->n_processes) qsort(s->process, s->n_processes, sizeof(*s->process), by_pid);
    }
    if (dir >= 0) close(dir);
    uint64_t end = p->now(p->user);
    s->wall_known = end >= s->time_ns;
    s->wall_ns = s->wall_known ? end - s->time_ns : 0;
}

void fak_snapshot_free(fak_snapshot *s)
{
    free(s->process);
    memset(s, 0, sizeof(*s));
}
