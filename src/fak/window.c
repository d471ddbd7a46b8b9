/* window.c - folding snapshots into one window. The command's tree is its root and whatever
 * descends from it; an identity that was once in the tree stays in it, so orphans are not lost. */
#include "fak/sampler.h"

#include <stdlib.h>

void fak_window_init(fak_window *w, const fak_probe *probe)
{
    memset(w, 0, sizeof(*w));
    w->probe = probe;
}

void fak_window_set_root(fak_window *w, int32_t pid)
{
    w->root_pid = pid;
}

void fak_window_free(fak_window *w)
{
    free(w->track);
    memset(w, 0, sizeof(*w));
}

/* ---- identities ---- */
static size_t slot_of(const fak_window *w, int32_t pid, uint64_t starttime)
{
    uint64_t h = ((uint64_t)(uint32_t)pid << 32 ^ starttime) * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(h >> 20) & (w->cap_track - 1);
    while (w->track[i].pid && (w->track[i].pid != pid || w->track[i].starttime != starttime))
        i = (i + 1) & (w->cap_track - 1);
    return i;
}

static bool grow(fak_window *w)
{
    fak_window bigger = *w;
    bigger.cap_track = w->cap_track ? w->cap_track * 2 : 1024;
    bigger.track = calloc(bigger.cap_track, sizeof(*bigger.track));
    if (!bigger.track) return false;
    for (size_t i = 0; i < w->cap_track; i++)
        if (w->track[i].pid)
            bigger.track[slot_of(&bigger, w->track[i].pid, w->track[i].starttime)] = w->track[i];
    free(w->track);
    *w = bigger;
    return true;
}

/* The record of an identity, made when new; NULL when out of memory. */
static fak_track *track(fak_window *w, const fak_process *p)
{
    if (2 * (w->n_track + 1) > w->cap_track && !grow(w)) return NULL;
    fak_track *t = &w->track[slot_of(w, p->pid, p->starttime)];
    if (!t->pid) {
        t->pid = p->pid;
        t->starttime = p->starttime;
        memcpy(t->image, p->image, sizeof(t->image));
        w->n_track++;
    }
    return t;
}

static fak_process *find(fak_snapshot *s, int32_t pid)
{
    size_t lo = 0, hi = s->n_processes;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->process[mid].pid < pid)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n_processes && s->process[lo].pid == pid ? &s->process[lo] : NULL;
}

/* ---- one snapshot ---- */
static void mark_tree(fak_window *w, fak_snapshot *s)
{
    fak_process *root = find(s, w->root_pid);
    if (root && !w->root_seen) {
        w->root_seen = true;
        w->root_starttime = root->starttime;
    }
    if (root && root->starttime == w->root_starttime) root->sut = true;
    for (size_t i = 0; i < s->n_processes && w->cap_track; i++)
        if (w->track[slot_of(w, s->process[i].pid, s->process[i].starttime)].sut)
            s->process[i].sut = true;
    for (bool again = true; again;) { /* children of members are members */
        again = false;
        for (size_t i = 0; i < s->n_processes; i++) {
            if (s->process[i].sut) continue;
            const fak_process *parent = find(s, s->process[i].ppid);
            if (parent && parent->sut) again = s->process[i].sut = true;
        }
    }
}

static void add_process(fak_window *w, const fak_process *p)
{
    fak_track *t = track(w, p);
    if (!t) {
        w->failed = true;
        return;
    }
    if (t->reads == 0)
        t->first_ns = p->cpu_ns;
    else if (p->cpu_ns < t->last_ns)
        t->decreased = true;
    t->last_ns = p->cpu_ns;
    t->reads++;
    t->sut |= p->sut;
    t->rss_known = p->rss_known;
    t->rss_bytes = p->rss_bytes;
}

static void add_host(fak_window *w, const fak_snapshot *s)
{
    w->last_host.ok = s->host_cpu;
    w->last_host.busy = s->busy_ns;
    w->last_host.total = s->total_ns;
    w->last_host.steal = s->steal_ns;
    w->last_host.switches = s->context_switches;
    if (w->samples == 0) w->first_host.ok = false;
    if (w->samples == 0 && s->host_cpu) {
        w->first_host.ok = true;
        w->first_host.busy = s->busy_ns;
        w->first_host.total = s->total_ns;
        w->first_host.steal = s->steal_ns;
        w->first_host.switches = s->context_switches;
    }
    w->host_cpu_samples += s->host_cpu;
    w->procs_running_most = GEM_MAX(w->procs_running_most, s->procs_running);
    if (!s->host_memory) return;
    if (w->host_memory_samples == 0 || s->memory_available < w->memory_available_least)
        w->memory_available_least = s->memory_available;
    w->memory_total = s->memory_total;
    w->host_memory_samples++;
}

void fak_window_add(fak_window *w, fak_snapshot *s)
{
    uint64_t sut_rss = 0, other_rss = 0;
    add_host(w, s);
    if (w->samples == 0) w->first_time = s->time_ns;
    w->last_time = s->time_ns;
    w->wall_ns += w->pending_wall_ns; /* the last census is not inside the window */
    w->pending_wall_ns = s->wall_ns;
    w->wall_bad |= !s->wall_known;
    w->samples++;
    w->enumerated += s->enumerated;
    w->observed += s->n_processes + s->unreadable;
    w->reads += s->n_processes;
    w->unreadable += s->unreadable;
    w->process_count_most = GEM_MAX(w->process_count_most, s->n_processes + s->unreadable);
    if (w->root_pid) mark_tree(w, s);
    for (size_t i = 0; i < s->n_processes; i++) {
        const fak_process *p = &s->process[i];
        add_process(w, p);
        w->rss_incomplete |= !p->rss_known;
        if (p->sut)
            sut_rss += p->rss_bytes;
        else
            other_rss += p->rss_bytes;
    }
    w->sut_rss_most = GEM_MAX(w->sut_rss_most, sut_rss);
    w->other_rss_most = GEM_MAX(w->other_rss_most, other_rss);
}

/* ---- totals ---- */
static fak_value known(double v, const char *source)
{
    return (fak_value){.available = true, .value = v, .source = source};
}

static fak_value unknown(const char *reason)
{
    return (fak_value){.reason = reason};
}

static void cpu_totals(const fak_window *w, fak_totals *t)
{
    bool ends = w->first_host.ok && w->last_host.ok && w->samples >= 2;
    uint64_t total = w->last_host.total - w->first_host.total,
             busy = w->last_host.busy - w->first_host.busy, sut = 0;
    const char *why = NULL;
    if (!ends)
        why = w->host_cpu_samples ? "a window endpoint has no host CPU" : "no platform reader";
    else if (w->last_host.total <= w->first_host.total || w->last_host.busy < w->first_host.busy ||
             busy > total)
        why = "host CPU counters did not advance";
    t->host_cpu_percent =
        why ? unknown(why) : known((double)busy / (double)total * 100, "proc-stat");
    t->steal_percent =
        why ? unknown(why)
            : known((double)(w->last_host.steal - w->first_host.steal) / (double)total * 100,
                    "proc-stat");
    if (!why && w->last_host.steal < w->first_host.steal)
        t->steal_percent = unknown("steal went backwards");
    t->context_switches =
        why ? unknown(why)
            : known((double)(w->last_host.switches - w->first_host.switches), "proc-stat");
    t->procs_running = why ? unknown(why) : known((double)w->procs_running_most, "proc-stat");

    if (!why && (w->enumerated != w->samples || w->failed)) why = "a process census failed";
    if (!why && w->unreadable) why = "a process could not be read";
    if (!why && !w->root_seen) why = "the command's process was not seen";
    for (size_t i = 0; i < w->cap_track; i++) {
        const fak_track *k = &w->track[i];
        if (!k->pid || !k->sut) continue;
        if (!why && k->reads < 2) why = "a process of the command was seen only once";
        if (!why && k->decreased) why = "a process of the command lost CPU time";
        sut += k->last_ns - k->first_ns;
    }
    t->sut_cpu_ns = sut;
    double rounding = 2.0 * w->probe->n_cpus * 1e9 / (double)w->probe->ticks_per_second;
    if (!why && sut > busy && (double)(sut - busy) > rounding)
        why = "the command used more CPU than the host";
    if (why) {
        t->sut_cpu_percent = t->other_cpu_percent = unknown(why);
    } else if (sut > busy) { /* precise process times against tick-based host times */
        t->sut_cpu_percent = known(t->host_cpu_percent.value, "pid-tree");
        t->other_cpu_percent = known(0, "host-minus-sut");
    } else {
        t->sut_cpu_percent = known((double)sut / (double)total * 100, "pid-tree");
        t->other_cpu_percent = known((double)(busy - sut) / (double)total * 100, "host-minus-sut");
    }
}

void fak_window_totals(const fak_window *w, fak_totals *t)
{
    memset(t, 0, sizeof(*t));
    t->duration_ns = w->last_time > w->first_time ? w->last_time - w->first_time : 0;
    cpu_totals(w, t);
    bool memory = w->samples && w->host_memory_samples == w->samples;
    t->memory_total =
        memory ? known((double)w->memory_total, "proc-meminfo") : unknown("no platform reader");
    t->memory_available = memory ? known((double)w->memory_available_least, "proc-meminfo")
                                 : unknown("no platform reader");
    t->process_count = w->enumerated ? known((double)w->process_count_most, "proc-census")
                                     : unknown("no platform reader");
    bool rss = w->enumerated == w->samples && !w->unreadable && !w->rss_incomplete && w->root_seen;
    t->sut_rss = rss ? known((double)w->sut_rss_most, "pid-tree-peak")
                     : unknown("memory attribution incomplete");
    t->other_rss = rss ? known((double)w->other_rss_most, "census-peak")
                       : unknown("memory attribution incomplete");
    if (w->wall_bad || t->duration_ns == 0) {
        t->duty_percent =
            unknown(w->wall_bad ? "negative census time" : "the window has no duration");
    } else {
        t->wall_ns = w->wall_ns;
        t->duty_percent = known((double)w->wall_ns / (double)t->duration_ns * 100, "census-wall");
    }
}

static int by_use(const void *a, const void *b)
{
    const fak_track *x = a, *y = b;
    uint64_t cx = x->last_ns - x->first_ns, cy = y->last_ns - y->first_ns;
    if (cx != cy) return cx > cy ? -1 : 1;
    if (x->rss_bytes != y->rss_bytes) return x->rss_bytes > y->rss_bytes ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

size_t fak_window_top(const fak_window *w, fak_track *out, size_t max)
{
    fak_track *all = malloc((w->n_track + 1) * sizeof(*all));
    size_t n = 0;
    if (!all) return 0;
    for (size_t i = 0; i < w->cap_track; i++)
        if (w->track[i].pid && !w->track[i].sut) {
            all[n] = w->track[i];
            if (all[n].reads < 2 || all[n].decreased)
                all[n].first_ns = all[n].last_ns; /* CPU unknown */
            n++;
        }
    qsort(all, n, sizeof(*all), by_use);
    n = GEM_MIN(n, max);
    memcpy(out, all, n * sizeof(*out));
    free(all);
    return n;
}
