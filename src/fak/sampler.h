/* sampler.h - snapshots of the host and its processes from /proc, and their fold into one window:
 * host CPU and memory, CPU and memory of the command's process tree (SUT), and what is left over.
 * Everything that cannot be known stays unavailable, never zero; nothing is subtracted from
 * anything. The folder and the clock are parameters, so tests bring their own. */
#ifndef GEM_FAK_SAMPLER_H
#define GEM_FAK_SAMPLER_H

#include "base/base.h"

typedef struct fak_probe {
    const char *proc;            /* "/proc" */
    uint64_t (*now)(void *user); /* monotonic nanoseconds */
    void *user;
    uint64_t ticks_per_second; /* sysconf(_SC_CLK_TCK) */
    uint64_t page_bytes;
    int n_cpus; /* online */
} fak_probe;
void fak_probe_system(fak_probe *p);

typedef struct fak_process {
    int32_t pid, ppid;
    uint64_t starttime; /* with pid: the identity of a process */
    uint64_t cpu_ns;    /* utime + stime */
    uint64_t rss_bytes;
    bool rss_known;
    bool sut; /* set by the fold */
    char image[16];
} fak_process;

typedef struct fak_snapshot {
    uint64_t time_ns, wall_ns; /* when it began, and how long the census took */
    bool wall_known;           /* the clock did not run backwards */
    bool host_cpu, host_memory, enumerated;
    uint64_t busy_ns, total_ns, steal_ns; /* since boot, all CPUs together */
    uint64_t memory_total, memory_available;
    uint64_t context_switches, procs_running;
    fak_process *process; /* owned, sorted by pid */
    size_t n_processes, cap, unreadable;
} fak_snapshot;

/* Take one snapshot; reuses the memory of *s. */
void fak_snapshot_take(const fak_probe *p, fak_snapshot *s);
void fak_snapshot_free(fak_snapshot *s);

/* A value that may be unknown. */
typedef struct fak_value {
    bool available;
    double value;
    const char *source; /* static; when available */
    const char *reason; /* static; when not */
} fak_value;

/* One identity over the window. */
typedef struct fak_track {
    int32_t pid;
    uint64_t starttime, first_ns, last_ns, rss_bytes;
    uint32_t reads;
    bool sut, decreased, rss_known;
    char image[16];
} fak_track;

typedef struct fak_window {
    const fak_probe *probe; /* borrowed */
    int32_t root_pid;       /* 0: no command runs in this window */
    uint64_t root_starttime;
    bool root_seen;
    /* folded so far */
    size_t samples, enumerated, observed, reads, unreadable, host_cpu_samples, host_memory_samples;
    uint64_t first_time, last_time, wall_ns, pending_wall_ns;
    bool wall_bad, failed;
    struct {
        bool ok;
        uint64_t busy, total, steal, switches;
    } first_host, last_host;
    uint64_t memory_total, memory_available_least, process_count_most, procs_running_most;
    uint64_t sut_rss_most, other_rss_most;
    bool rss_incomplete;
    fak_track *track; /* owned hash table by identity */
    size_t n_track, cap_track;
} fak_window;

void fak_window_init(fak_window *w, const fak_probe *probe);
/* From here on the window is about this process (call before the first snapshot is added). */
void fak_window_set_root(fak_window *w, int32_t pid);
void fak_window_add(fak_window *w, fak_snapshot *s);
void fak_window_free(fak_window *w);

typedef struct fak_totals {
    uint64_t duration_ns;
    fak_value host_cpu_percent, memory_total, memory_available, process_count, duty_percent;
    fak_value sut_cpu_percent, other_cpu_percent, sut_rss, other_rss;
    fak_value steal_percent, context_switches, procs_running;
    uint64_t wall_ns; /* 0 when the duty is unavailable */
    uint64_t sut_cpu_ns;
} fak_totals;
void fak_window_totals(const fak_window *w, fak_totals *t);
/* At most max processes outside the tree, by CPU, then memory, then pid. Returns how many. */
size_t fak_window_top(const fak_window *w, fak_track *out, size_t max);

/* One line "pid (comm) S ppid ..." of /proc/<pid>/stat; false when it cannot be read as such. */
bool fak_parse_stat(const char *line, const fak_probe *p, fak_process *out);
/* The line "cpu ..." of /proc/stat; guest ticks are inside user and nice already. False: overflow.
 */
bool fak_parse_cpu(const char *text, const fak_probe *p, uint64_t *busy_ns, uint64_t *total_ns,
                   uint64_t *steal_ns);

#endif
