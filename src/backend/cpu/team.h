/* team.h - the one thread pool of the CPU backend. A forward pass is one region: every thread walks
 * the op list and meets the others at barriers. Waiting is a short spin, then a futex: on a busy
 * machine endless spinning costs several times the work. */
#ifndef GEM_CPU_TEAM_H
#define GEM_CPU_TEAM_H

#include "base/base.h"

#include <stdatomic.h>

typedef struct gem_team gem_team;
typedef void (*gem_team_fn)(void *ctx, int tid);

/* n >= 1 threads, the caller's included. */
gem_status gem_team_new(gem_team **out, int n, gem_error *err);
void gem_team_free(gem_team *t);
int gem_team_size(const gem_team *t);
/* Run fn(ctx, tid) on every thread; returns when all are done. One region at a time. */
void gem_team_run(gem_team *t, gem_team_fn fn, void *ctx);
/* Inside a region: nobody passes before all have come. What was written before is seen after. */
void gem_team_barrier(gem_team *t);
/* The same; whoever waits calls idle(ctx) again and again, a short piece of work each time (about
 * 100 ns), until it returns false. */
typedef bool (*gem_team_idle_fn)(void *ctx);
void gem_team_barrier_idle(gem_team *t, gem_team_idle_fn idle, void *ctx);

/* Items [0, n) cut into one contiguous range a thread. A thread takes chunks of its own range first
 * (one memory stream), then helps with the others'. */
typedef struct gem_range {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} gem_range;
static inline void gem_ranges_set(gem_range *r, int n_threads, int64_t n)
{
    for (int i = 0; i < n_threads; i++) {
        atomic_store_explicit(&r[i].next, n * i / n_threads, memory_order_relaxed);
        r[i].end = n * (i + 1) / n_threads;
    }
}
/* Take up to `chunk` items: [*first, return value); 0 items when everything is taken. *victim
 * starts as the thread's own number and is kept by the caller between calls. */
static inline int64_t gem_range_take(gem_range *r, int n_threads, int tid, int *victim,
                                     int64_t chunk, int64_t *first)
{
    for (int tried = *victim - tid; tried < n_threads; tried++, *victim = tid + tried) {
        gem_range *v = &r[*victim % n_threads];
        if (atomic_load_explicit(&v->next, memory_order_relaxed) >= v->end) continue;
        int64_t at = atomic_fetch_add_explicit(&v->next, chunk, memory_order_relaxed);
        if (at >= v->end) continue;
        *first = at;
        return GEM_MIN(at + chunk, v->end);
    }
    *first = 0;
    return 0;
}
/* A thread's fixed share of n items. */
static inline void gem_share(int64_t n, int n_threads, int tid, int64_t *lo, int64_t *hi)
{
    *lo = n * tid / n_threads;
    *hi = n * (tid + 1) / n_threads;
}

#endif
