/* team.c - see team.h. */
#include "backend/cpu/team.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { SPIN = 2000 }; /* pauses before sleeping: some tens of microseconds */

typedef struct worker {
    gem_team *team;
    pthread_t thread;
    int tid;
} worker;

struct gem_team {
    int n;
    worker *workers; /* owned; [n], 0 unused */
    int n_started;
    gem_team_fn fn;
    void *ctx;
    bool stop;
    _Alignas(64) _Atomic uint32_t region;     /* counts regions begun */
    _Alignas(64) _Atomic uint32_t generation; /* counts barriers passed */
    _Atomic int arrived;
    _Alignas(
        64) _Atomic int sleepers; /* threads in the kernel: without any, a wake costs nothing */
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_on(gem_team *t, _Atomic uint32_t *word, uint32_t seen)
{
    atomic_fetch_add(&t->sleepers, 1); /* before the kernel compares the word: see wake_all */
#if defined(__linux__)
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
    struct timespec pause = {0, 50000};
    (void)word, (void)seen;
    nanosleep(&pause, NULL);
#endif
    atomic_fetch_sub(&t->sleepers, 1);
}

/* The word has changed already. A thread that counts itself later finds the new value. */
static void wake_all(gem_team *t, _Atomic uint32_t *word)
{
#if defined(__linux__)
    if (atomic_load(&t->sleepers) > 0)
        syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
    (void)t, (void)word;
#endif
}

static void wait_change(gem_team *t, _Atomic uint32_t *word, uint32_t seen)
{
    for (int i = 0; i < SPIN; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
        pause_cpu();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == seen)
        sleep_on(t, word, seen);
}

void gem_team_barrier(gem_team *t)
{
    gem_team_barrier_idle(t, NULL, NULL);
}

void gem_team_barrier_idle(gem_team *t, gem_team_idle_fn idle, void *ctx)
{
    if (t->n == 1) return;
    uint32_t gen = atomic_load_explicit(&t->generation, memory_order_acquire);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == t->n - 1) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_fetch_add(&t->generation, 1);
        wake_all(t, &t->generation);
        return;
    }
    while (idle && atomic_load_explicit(&t->generation, memory_order_acquire) == gen)
        if (!idle(ctx)) break;
    wait_change(t, &t->generation, gen);
}

static void *work(void *arg)
{
    worker *w = arg;
    gem_team *t = w->team;
    uint32_t seen = 0;
    for (;;) {
        wait_change(t, &t->region, seen);
        seen++;
        if (t->stop) return NULL;
        t->fn(t->ctx, w->tid);
        gem_team_barrier(t);
    }
}

void gem_team_run(gem_team *t, gem_team_fn fn, void *ctx)
{
    t->fn = fn;
    t->ctx = ctx;
    if (t->n > 1) {
        atomic_fetch_add(&t->region, 1);
        wake_all(t, &t->region);
    }
    fn(ctx, 0);
    gem_team_barrier(t);
}

int gem_team_size(const gem_team *t)
{
    return t->n;
}

gem_status gem_team_new(gem_team **out, int n, gem_error *err)
{
    *out = NULL;
    gem_team *t = aligned_alloc(64, gem_round_up(sizeof(*t), 64));
    if (!t) return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %d threads", n);
    memset(t, 0, sizeof(*t));
    t->n = n;
    t->workers = calloc((size_t)n, sizeof(*t->workers));
    if (!t->workers) {
        free(t);
        return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %d threads", n);
    }
    t->n_started = 1;
    for (int i = 1; i < n; i++) {
        t->workers[i].team = t;
        t->workers[i].tid = i;
        if (pthread_create(&t->workers[i].thread, NULL, work, &t->workers[i]) != 0) {
            gem_team_free(t);
            return gem_fail(err, GEM_E_NOMEM, "cpu: the system refused thread %d of %d", i + 1, n);
        }
        t->n_started = i + 1;
    }
    *out = t;
    return GEM_OK;
}

void gem_team_free(gem_team *t)
{
    if (!t) return;
    t->stop = true;
    atomic_fetch_add(&t->region, 1);
    wake_all(t, &t->region);
    for (int i = 1; i < t->n_started; i++)
        pthread_join(t->workers[i].thread, NULL);
    free(t->workers);
    free(t);
}
