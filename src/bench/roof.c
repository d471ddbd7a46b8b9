/* roof.c - the measured memory read roof: all threads stream through an arena that no cache holds.
 * Decode of a model can at best run as fast as its weights arrive, so its share of this figure is
 * what counts. */
#include "bench/bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, STREAMS = 4 };

typedef uint64_t vec __attribute__((vector_size(32), aligned(32), may_alias));

typedef struct reader {
    bench_roof *roof;
    pthread_t thread;
    const uint8_t *part;
    uint64_t end_ns, sum;
} reader;

struct bench_roof {
    uint8_t *arena;
    size_t bytes, part_bytes;
    int n_threads; /* reader 0 is the caller */
    reader *reader;
    pthread_barrier_t start, end;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    enum { CLOSED, OPEN, CANCELLED } gate; /* threads wait at it until all of them exist */
    bool quit;
};

/* Four streams, line by line in turn, so that several memory pages are open at once: the fastest of
 * what was tried on Zen 3 (1, 2, 8 or 16 streams and software prefetches are 2 to 40 % slower). The
 * sum keeps the loads alive. */
static inline __attribute__((always_inline)) uint64_t read_streams(const uint8_t *p, size_t bytes)
{
    size_t quarter = bytes / STREAMS;
    vec a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < quarter; i += 64) {
        a += *(const vec *)(p + i) + *(const vec *)(p + i + 32);
        b += *(const vec *)(p + quarter + i) + *(const vec *)(p + quarter + i + 32);
        c += *(const vec *)(p + 2 * quarter + i) + *(const vec *)(p + 2 * quarter + i + 32);
        d += *(const vec *)(p + 3 * quarter + i) + *(const vec *)(p + 3 * quarter + i + 32);
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3];
}

static uint64_t read_any(const uint8_t *p, size_t bytes)
{
    return read_streams(p, bytes);
}

#if defined(__x86_64__)
/* Loads of 32 bytes bring a fifth more than two of 16. */
__attribute__((target("avx2"))) static uint64_t read_avx2(const uint8_t *p, size_t bytes)
{
    return read_streams(p, bytes);
}
#endif

static uint64_t read_part(const uint8_t *p, size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return read_avx2(p, bytes);
#endif
    return read_any(p, bytes);
}

static void *read_loop(void *user)
{
    reader *r = user;
    bench_roof *roof = r->roof;
    pthread_mutex_lock(&roof->lock);
    while (roof->gate == CLOSED)
        pthread_cond_wait(&roof->opened, &roof->lock);
    bool cancelled = roof->gate == CANCELLED;
    pthread_mutex_unlock(&roof->lock);
    if (cancelled) return NULL;
    /* first touch by the thread that will read */
    memset((void *)r->part, 1, roof->part_bytes);
    pthread_barrier_wait(&roof->end);
    for (;;) {
        pthread_barrier_wait(&roof->start);
        if (roof->quit) return NULL;
        r->sum += read_part(r->part, roof->part_bytes);
        r->end_ns = gem_now_ns();
        pthread_barrier_wait(&roof->end);
    }
}

static void open_gate(bench_roof *r, bool all)
{
    pthread_mutex_lock(&r->lock);
    r->gate = all ? OPEN : CANCELLED;
    pthread_cond_broadcast(&r->opened);
    pthread_mutex_unlock(&r->lock);
}

/* Release everything; `started` threads exist beside the caller and are about to end. */
static void dispose(bench_roof *r, int started)
{
    for (int i = 1; i <= started; i++)
        pthread_join(r->reader[i].thread, NULL);
    pthread_barrier_destroy(&r->start);
    pthread_barrier_destroy(&r->end);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->opened);
    if (r->arena) munmap(r->arena, r->bytes + HUGE_PAGE);
    free(r->reader);
    free(r);
}

gem_status bench_roof_open(bench_roof **out, int n_threads, size_t bytes, gem_error *err)
{
    bench_roof *r = calloc(1, sizeof(*r));
    int started = 0;
    *out = NULL;
    if (!r) return gem_fail(err, GEM_E_NOMEM, "no memory for the read roof");
    r->n_threads = n_threads;
    r->part_bytes = (size_t)gem_round_up(bytes / (size_t)n_threads, HUGE_PAGE);
    r->bytes = r->part_bytes * (size_t)n_threads;
    pthread_barrier_init(&r->start, NULL, (unsigned)n_threads);
    pthread_barrier_init(&r->end, NULL, (unsigned)n_threads);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->opened, NULL);
    r->reader = calloc((size_t)n_threads, sizeof(*r->reader));
    void *p = mmap(NULL, r->bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    r->arena = p == MAP_FAILED ? NULL : p;
    if (!r->reader || !r->arena) {
        dispose(r, 0);
        return gem_fail(err, GEM_E_NOMEM, "no memory for a read roof of %zu bytes", bytes);
    }
    uint8_t *base = (uint8_t *)gem_round_up((uintptr_t)p, HUGE_PAGE);
    madvise(base, r->bytes, MADV_HUGEPAGE);
    for (int i = 0; i < n_threads; i++)
        r->reader[i] = (reader){.roof = r, .part = base + (size_t)i * r->part_bytes};
    while (started + 1 < n_threads && pthread_create(&r->reader[started + 1].thread, NULL,
                                                     read_loop, &r->reader[started + 1]) == 0)
        started++;
    bool all = started + 1 == n_threads;
    open_gate(r, all);
    if (!all) {
        dispose(r, started);
        return gem_fail(err, GEM_E_NOMEM, "could not start %d threads for the read roof",
                        n_threads);
    }
    memset((void *)r->reader[0].part, 1, r->part_bytes);
    pthread_barrier_wait(&r->end);
    *out = r;
    return GEM_OK;
}

void bench_roof_close(bench_roof *r)
{
    if (!r) return;
    r->quit = true;
    pthread_barrier_wait(&r->start);
    dispose(r, r->n_threads - 1);
}

size_t bench_roof_bytes(const bench_roof *r)
{
    return r->bytes;
}

uint64_t bench_roof_pass(bench_roof *r)
{
    pthread_barrier_wait(&r->start);
    uint64_t start = gem_now_ns(), last = 0;
    r->reader[0].sum += read_part(r->reader[0].part, r->part_bytes);
    r->reader[0].end_ns = gem_now_ns();
    pthread_barrier_wait(&r->end);
    for (int i = 0; i < r->n_threads; i++)
        last = GEM_MAX(last, r->reader[i].end_ns);
    return last - start;
}
