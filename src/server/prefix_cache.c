/* prefix_cache.c - entries in one array; a request compares itself with each, which at tens of
 * entries costs less than one row of a batch. */
#include "server/prefix_cache.h"

#include "runtime/engine.h"

#include <pthread.h>
#include <stdlib.h>

enum { MIN_TOKENS = 2 };

typedef struct entry {
    int32_t *tokens; /* owned */
    size_t n;
    gem_checkpoint *point; /* owned */
    uint64_t used;         /* clock of the last use */
} entry;

struct gem_prefix_cache {
    gem_model *m;
    pthread_mutex_t
        lock;     /* the engine thread holds it to add and remove entries, others to read them */
    entry *entry; /* owned, [max] */
    size_t n, max;
    uint64_t clock;
    bool trims;
};

gem_prefix_cache *gem_prefix_cache_new(gem_model *m, size_t max_entries)
{
    gem_prefix_cache *c = calloc(1, sizeof(*c));
    entry *e = calloc(max_entries ? max_entries : 1, sizeof(*e));
    if (!c || !e) {
        free(c);
        free(e);
        return NULL;
    }
    c->m = m;
    c->entry = e;
    c->max = max_entries;
    c->trims = true;
    pthread_mutex_init(&c->lock, NULL);
    for (int l = 0; l < m->plan.n_layers; l++)
        c->trims &= m->layout.window[l] == 0;
    return c;
}

static void drop(gem_prefix_cache *c, size_t i)
{
    entry old = c->entry[i];
    pthread_mutex_lock(&c->lock);
    c->entry[i] = c->entry[--c->n];
    pthread_mutex_unlock(&c->lock);
    free(old.tokens);
    gem_checkpoint_free(old.point);
}

void gem_prefix_cache_clear(gem_prefix_cache *c)
{
    while (c->n)
        drop(c, c->n - 1);
}

void gem_prefix_cache_free(gem_prefix_cache *c)
{
    if (!c) return;
    gem_prefix_cache_clear(c);
    pthread_mutex_destroy(&c->lock);
    free(c->entry);
    free(c);
}

static size_t common(const int32_t *a, size_t na, const int32_t *b, size_t nb)
{
    size_t n = GEM_MIN(na, nb), i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Session to entry e, cut to n tokens. */
static bool restore(gem_session *s, const entry *e, size_t n)
{
    gem_error err;
    if (gem_session_rollback(s, e->point, &err) != GEM_OK) return false;
    if (e->n == n || gem_session_trim(s, (int32_t)n, &err) == GEM_OK) return true;
    return false;
}

size_t gem_prefix_cache_find(gem_prefix_cache *c, gem_session *s, const int32_t *tokens, size_t n)
{
    size_t bound = n - 1; /* at least one token is left to run */
    uint64_t failed = 0;  /* entries tried in vain, as bits; there are at most 64 */
    for (;;) {
        size_t best = 0, at = c->n;
        for (size_t i = 0; i < c->n; i++) {
            size_t k = GEM_MIN(common(c->entry[i].tokens, c->entry[i].n, tokens, n), bound);
            if (k < MIN_TOKENS || k < best || (failed >> i & 1)) continue;
            /* of equals the shorter one: it needs the smaller cut */
            if (at < c->n && k == best && c->entry[i].n >= c->entry[at].n) continue;
            best = k;
            at = i;
        }
        if (at == c->n) break;
        if (restore(s, &c->entry[at], best)) {
            c->entry[at].used = ++c->clock;
            return best;
        }
        failed |= (uint64_t)1 << at;
    }
    /* a failed attempt may have left the session at an entry's point; at 0 nothing can be missing
     */
    gem_error err;
    if (gem_session_position(s) != 0 && gem_session_trim(s, 0, &err) != GEM_OK) return 0;
    return 0;
}

bool gem_prefix_cache_miss(gem_prefix_cache *c, const int32_t *tokens, size_t n,
                           gem_prefix_miss *out)
{
    const entry *best = NULL;
    *out = (gem_prefix_miss){0};
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n; i++) {
        const entry *e = &c->entry[i];
        size_t k = common(e->tokens, e->n, tokens, n);
        if (best && (k < out->at || (k == out->at && e->n > k))) continue;
        best = e;
        out->at = k;
    }
    if (best) {
        out->entry_tokens = best->n;
        out->n_held = GEM_MIN(best->n - out->at, (size_t)GEM_MISS_TOKENS);
        memcpy(out->held, best->tokens + out->at, out->n_held * sizeof(*out->held));
    }
    pthread_mutex_unlock(&c->lock);
    return out->n_held && out->at < n;
}

static size_t least_recent(const gem_prefix_cache *c)
{
    size_t at = 0;
    for (size_t i = 1; i < c->n; i++)
        if (c->entry[i].used < c->entry[at].used) at = i;
    return at;
}

bool gem_prefix_cache_evict(gem_prefix_cache *c)
{
    if (!c->n) return false;
    drop(c, least_recent(c));
    return true;
}

void gem_prefix_cache_add(gem_prefix_cache *c, const gem_session *s, const int32_t *tokens,
                          size_t n)
{
    gem_error err;
    if (n < MIN_TOKENS || c->max == 0) return;
    for (size_t i = 0; i < c->n;) {
        entry *e = &c->entry[i];
        size_t k = common(e->tokens, e->n, tokens, n);
        if (k == n && e->n == n) {
            e->used = ++c->clock;
            return;
        }
        if (c->trims && k == n) { /* a longer entry holds it already */
            e->used = ++c->clock;
            return;
        }
        if (c->trims && k == e->n)
            drop(c, i);
        else
            i++;
    }
    entry e = {.tokens = malloc(n * sizeof(*e.tokens)), .n = n, .used = ++c->clock};
    if (!e.tokens || gem_session_checkpoint(s, &e.point, &err) != GEM_OK) {
        free(e.tokens);
        return;
    }
    memcpy(e.tokens, tokens, n * sizeof(*e.tokens));
    if (c->n == c->max) gem_prefix_cache_evict(c);
    pthread_mutex_lock(&c->lock);
    c->entry[c->n++] = e;
    pthread_mutex_unlock(&c->lock);
}

size_t gem_prefix_cache_entries(const gem_prefix_cache *c)
{
    return c->n;
}

bool gem_prefix_cache_trims(const gem_prefix_cache *c)
{
    return c->trims;
}
