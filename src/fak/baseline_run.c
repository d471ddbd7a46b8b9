/* baseline_run.c - the two windows around one command. The child waits at a gate until the first
 * snapshot of its window is taken, so none of its time is missed; the last snapshot is taken while
 * it is a zombie, whose /proc entry still shows the final times; only then it is reaped. */
#include "fak/baseline_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BASELINE, COMMAND };

typedef struct runner {
    const fak_baseline_options *o;
    const fak_probe *probe;
    fak_baseline_run *r;
    fak_snapshot snapshot;
    pid_t child;
    int signals; /* signalfd of SIGCHLD, SIGINT, SIGTERM */
    sigset_t before;
    struct timespec wall; /* real time at the window's first snapshot */
} runner;

/* ---- time ---- */
static void stamp(char out[32], struct timespec t, uint64_t plus_ns)
{
    struct tm tm;
    uint64_t ns = (uint64_t)t.tv_nsec + plus_ns % 1000000000u;
    time_t s = t.tv_sec + (time_t)(plus_ns / 1000000000u) + (time_t)(ns / 1000000000u);
    gmtime_r(&s, &tm);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 32 - n, ".%09uZ", (unsigned)(ns % 1000000000u));
}

static uint64_t now(const runner *x)
{
    return x->probe->now(x->probe->user);
}

static void take(runner *x, fak_window *w)
{
    if (w->samples == 0) clock_gettime(CLOCK_REALTIME, &x->wall);
    fak_snapshot_take(x->probe, &x->snapshot);
    fak_window_add(w, &x->snapshot);
    if (!x->o->v2) return;
    fak_context_sample(&x->r->context);
    fak_gpus_sample(x->r->gpus, w);
    fak_exits_drain(&x->r->exits);
}

static void close_window(runner *x, int which, const fak_window *w)
{
    stamp(x->r->started[which], x->wall, 0);
    stamp(x->r->ended[which], x->wall, w->last_time - w->first_time);
}

/* v2: when one census costs more than its share, sample less often, down to a tenth of the rate. */
static uint64_t cadence(runner *x)
{
    uint64_t interval = x->o->interval_ns;
    if (!x->o->v2) return interval;
    double wanted = (double)x->snapshot.wall_ns * 1.25 / (x->o->max_duty_percent / 100);
    uint64_t next =
        wanted > (double)interval ? (uint64_t)GEM_MIN(wanted, 10.0 * (double)interval) : interval;
    if (wanted > 10.0 * (double)interval) x->r->coverage_limited = true;
    x->r->cadence_ns = GEM_MAX(x->r->cadence_ns, next);
    return next;
}

static int milliseconds_until(const runner *x, uint64_t t)
{
    uint64_t n = now(x);
    return n >= t ? 0 : (int)GEM_MIN((t - n + 999999) / 1000000, (uint64_t)60000);
}

/* ---- baseline window ---- */
static void baseline_window(runner *x)
{
    fak_window *w = &x->r->baseline;
    take(x, w);
    uint64_t end = w->first_time + x->o->baseline_ns, next = w->first_time + cadence(x);
    while (next < end) {
        struct pollfd p = {.fd = x->signals, .events = POLLIN};
        while (now(x) < next && poll(&p, 1, milliseconds_until(x, next)) == 0)
            ;
        if (p.revents & POLLIN)
            break; /* interrupted before the command began: seen by the caller */
        take(x, w);
        next = GEM_MAX(next + cadence(x), now(x));
    }
    struct pollfd p = {.fd = x->signals, .events = POLLIN};
    while (now(x) < end && poll(&p, 1, milliseconds_until(x, end)) == 0)
        ;
    take(x, w);
    close_window(x, BASELINE, w);
}

/* ---- the child ---- */
static void child_main(const runner *x, int gate, int report)
{
    char go;
    ssize_t n;
    sigprocmask(SIG_SETMASK, &x->before, NULL);
    if (!x->o->pass_stdout) dup2(STDERR_FILENO, STDOUT_FILENO);
    while ((n = read(gate, &go, 1)) < 0 && errno == EINTR)
        ;
    if (n == 1) {
        execvp(x->o->argv[0], x->o->argv);
        int cause = errno;
        n = write(report, &cause, sizeof(cause));
    }
    _exit(127);
}

/* Fork and hold; the gate and report pipes are close-on-exec. */
static bool start_child(runner *x, int gate[2], int report[2])
{
    if (pipe2(gate, O_CLOEXEC) != 0) return false;
    if (pipe2(report, O_CLOEXEC) != 0) {
        close(gate[0]);
        close(gate[1]);
        return false;
    }
    x->child = fork();
    if (x->child == 0) {
        close(gate[1]);
        close(report[0]);
        child_main(x, gate[0], report[1]);
    }
    close(gate[0]);
    close(report[1]);
    if (x->child > 0) return true;
    close(gate[1]);
    close(report[0]);
    return false;
}

/* Open the gate; true once exec succeeded, else spawn_error is set. */
static bool release_child(runner *x, int gate, int report)
{
    int cause = 0;
    ssize_t n = write(gate, "g", 1);
    close(gate);
    while ((n = read(report, &cause, sizeof(cause))) < 0 && errno == EINTR)
        ;
    close(report);
    if (n == (ssize_t)sizeof(cause)) x->r->spawn_error = cause;
    return x->r->spawn_error == 0;
}

static bool ended(const runner *x)
{
    siginfo_t info;
    info.si_pid = 0;
    return waitid(P_PID, (id_t)x->child, &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
           info.si_pid == x->child;
}

static void drain_signals(runner *x, bool *forward)
{
    struct signalfd_siginfo s;
    while (read(x->signals, &s, sizeof(s)) == (ssize_t)sizeof(s))
        if (s.ssi_signo != SIGCHLD && *forward) kill(x->child, (int)s.ssi_signo);
}

/* End everything of the command that the last snapshot still showed with its identity. */
static void kill_tree(runner *x, int sig)
{
    for (size_t i = 0; i < x->snapshot.n_processes; i++) {
        const fak_process *p = &x->snapshot.process[i];
        if (p->sut && p->pid != x->child) kill(p->pid, sig);
    }
    kill(x->child, sig);
}

static void command_window(runner *x)
{
    fak_window *w = &x->r->command;
    uint64_t begin = w->first_time, next = begin + cadence(x), kill_at = 0;
    bool forward = true;
    while (!ended(x)) {
        uint64_t t = now(x), deadline = x->o->timeout_ns ? begin + x->o->timeout_ns : UINT64_MAX;
        if (!x->r->timed_out && t >= deadline) {
            take(x, w); /* the census of this moment says whom to end */
            kill_tree(x, SIGTERM);
            x->r->timed_out = true;
            kill_at = t + UINT64_C(2000000000);
        } else if (x->r->timed_out && t >= kill_at) {
            take(x, w);
            kill_tree(x, SIGKILL);
            kill_at = t + UINT64_C(2000000000);
        } else if (t >= next) {
            take(x, w);
            next = GEM_MAX(next + cadence(x), now(x));
        }
        uint64_t wake = GEM_MIN(next, x->r->timed_out ? kill_at : deadline);
        struct pollfd p[2] = {{.fd = x->signals, .events = POLLIN},
                              {.fd = x->r->exits.fd, .events = POLLIN}};
        poll(p, x->o->v2 && x->r->exits.fd >= 0 ? 2 : 1, milliseconds_until(x, wake));
        if (p[0].revents & POLLIN) drain_signals(x, &forward);
        if (x->o->v2) fak_exits_drain(&x->r->exits);
    }
    take(x, w); /* the root is a zombie now */
}

static void add_usage(fak_baseline_run *r, const struct rusage *u)
{
    r->wait_user_us += (uint64_t)u->ru_utime.tv_sec * 1000000u + (uint64_t)u->ru_utime.tv_usec;
    r->wait_system_us += (uint64_t)u->ru_stime.tv_sec * 1000000u + (uint64_t)u->ru_stime.tv_usec;
    r->reaped++;
}

static void reap(runner *x)
{
    int status = 0;
    struct rusage u;
    while (wait4(x->child, &status, 0, &u) < 0 && errno == EINTR)
        ;
    add_usage(x->r, &u);
    x->r->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (x->r->timed_out) x->r->exit_code = 124;
    if (!x->o->v2) return;
    pid_t pid; /* orphans came to us; what is still running stays */
    while ((pid = wait4(-1, &status, WNOHANG, &u)) > 0)
        add_usage(x->r, &u);
    x->r->wait_ok = true;
    if (pid == 0) { /* children remain: count what of the tree is left */
        fak_window rest = x->r->command;
        rest.track = malloc((rest.cap_track + 1) * sizeof(*rest.track));
        x->r->still_running = 1;
        if (!rest.track) return;
        memcpy(rest.track, x->r->command.track, rest.cap_track * sizeof(*rest.track));
        fak_snapshot_take(x->probe, &x->snapshot);
        fak_window_add(&rest, &x->snapshot);
        uint64_t n = 0;
        for (size_t i = 0; i < x->snapshot.n_processes; i++)
            n += x->snapshot.process[i].sut;
        x->r->still_running = GEM_MAX(n, UINT64_C(1));
        fak_window_free(&rest);
    }
}

static void run_command(runner *x)
{
    int gate[2], report[2];
    fak_baseline_run *r = x->r;
    if (!start_child(x, gate, report)) {
        r->failure = "the command's process could not be made";
        return;
    }
    if (x->o->v2) {
        fak_cgroup_place(&r->cgroup, x->child);
        fak_exits_set_root(&r->exits, x->child);
        fak_pressure_read(&r->pressure_from, "/proc/pressure", "");
    }
    fak_window_set_root(&r->command, x->child);
    take(x, &r->command);
    if (release_child(x, gate[1], report[0])) {
        command_window(x);
        if (x->o->v2) {
            fak_pressure_read(&r->pressure_to, "/proc/pressure", "");
            r->cgroup_cpu_ok = fak_cgroup_cpu(&r->cgroup, &r->cgroup_cpu_us);
        }
        close_window(x, COMMAND, &r->command);
    }
    reap(x);
}

void fak_baseline_execute(const fak_baseline_options *o, const fak_probe *probe,
                          fak_baseline_run *r)
{
    runner x = {.o = o, .probe = probe, .r = r};
    sigset_t watched;
    memset(r, 0, sizeof(*r));
    r->exits.fd = -1;
    r->cgroup.cleanup = "none";
    fak_window_init(&r->baseline, probe);
    fak_window_init(&r->command, probe);
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &watched, &x.before);
    x.signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (x.signals < 0) {
        r->failure = "signals could not be watched";
        sigprocmask(SIG_SETMASK, &x.before, NULL);
        return;
    }
    if (o->v2) {
        r->gpus = fak_gpus_open(&r->no_gpu);
        fak_cgroup_open(&r->cgroup);
        fak_exits_open(&r->exits);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    }
    baseline_window(&x);
    struct pollfd p = {.fd = x.signals, .events = POLLIN};
    if (poll(&p, 1, 0) > 0)
        r->failure = "interrupted before the command began";
    else
        run_command(&x);
    if (r->baseline.failed || r->command.failed) r->failure = "out of memory";
    fak_snapshot_free(&x.snapshot);
    close(x.signals);
    sigprocmask(SIG_SETMASK, &x.before, NULL);
}

void fak_baseline_run_free(fak_baseline_run *r)
{
    fak_window_free(&r->baseline);
    fak_window_free(&r->command);
    fak_exits_close(&r->exits);
    fak_gpus_close(r->gpus);
    fak_cgroup_close(&r->cgroup);
    memset(r, 0, sizeof(*r));
    r->exits.fd = -1;
}
