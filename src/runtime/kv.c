/* kv.c - page tables, reference counts and free lists. */
#include "runtime/kv.h"

#include <assert.h>
#include <stdlib.h>

typedef struct pool {
    int32_t n_pages, n_free;
    int32_t *free; /* stack of free page numbers */
    int32_t *refs; /* [n_pages] */
} pool;

struct gem_kv_store {
    int n_layers, n_pools;
    int32_t max_pages; /* entries of a table */
    int *layer_pool;
    int32_t *window;
    pool pool[GEM_KV_MAX_POOLS];
    void (*copy_page)(void *user, int pool, int32_t dst, int32_t src);
    void *user;
};

static int32_t pages_of(int32_t n_pos)
{
    return (int32_t)(((int64_t)n_pos + GEM_PAGE - 1) / GEM_PAGE);
}

static gem_status open_pool(pool *p, int32_t n_pages, gem_error *err)
{
    size_t n = (size_t)GEM_MAX(n_pages, 1);
    p->free = malloc(n * sizeof(*p->free));
    p->refs = calloc(n, sizeof(*p->refs));
    if (!p->free || !p->refs)
        return gem_fail(err, GEM_E_NOMEM, "no memory to keep account of %d KV pages", n_pages);
    p->n_pages = p->n_free = n_pages;
    for (int32_t i = 0; i < n_pages; i++)
        p->free[i] = n_pages - 1 - i; /* page 0 goes first */
    return GEM_OK;
}

gem_status gem_kv_open(gem_kv_store **out, const gem_kv_options *opt, gem_error *err)
{
    gem_status st = GEM_OK;
    gem_kv_store *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (!s) return gem_fail(err, GEM_E_NOMEM, "no memory for the KV store");
    assert(opt->n_pools <= GEM_KV_MAX_POOLS && opt->n_layers > 0 && opt->max_positions > 0);

    size_t n = (size_t)opt->n_layers;
    s->n_layers = opt->n_layers;
    s->n_pools = opt->n_pools;
    s->max_pages = pages_of(opt->max_positions);
    s->copy_page = opt->copy_page;
    s->user = opt->user;
    s->layer_pool = malloc(n * sizeof(*s->layer_pool));
    s->window = malloc(n * sizeof(*s->window));
    if (!s->layer_pool || !s->window) {
        st = gem_fail(err, GEM_E_NOMEM, "no memory for the KV store");
        goto done;
    }
    memcpy(s->layer_pool, opt->layer_pool, n * sizeof(*s->layer_pool));
    memcpy(s->window, opt->window, n * sizeof(*s->window));
    for (int i = 0; i < s->n_pools; i++)
        if ((st = open_pool(&s->pool[i], opt->pool[i].n_pages, err)) != GEM_OK) goto done;
    *out = s;
    s = NULL;
done:
    gem_kv_close(s);
    return st;
}

void gem_kv_close(gem_kv_store *st)
{
    if (!st) return;
    for (int i = 0; i < st->n_pools; i++) {
        free(st->pool[i].free);
        free(st->pool[i].refs);
    }
    free(st->layer_pool);
    free(st->window);
    free(st);
}

int32_t gem_kv_used(const gem_kv_store *st, int i)
{
    return st->pool[i].n_pages - st->pool[i].n_free;
}

int32_t gem_kv_refs(const gem_kv_store *st, int i, int32_t page)
{
    return st->pool[i].refs[page];
}

static int32_t take(pool *p)
{
    assert(p->n_free > 0);
    int32_t page = p->free[--p->n_free];
    assert(p->refs[page] == 0);
    p->refs[page] = 1;
    return page;
}

static void drop(pool *p, int32_t page)
{
    assert(page >= 0 && p->refs[page] > 0);
    if (--p->refs[page] == 0) p->free[p->n_free++] = page;
}

/* ---- sequences ---- */

gem_status gem_kv_seq_init(gem_kv_seq *s, gem_kv_store *st, gem_error *err)
{
    size_t n = (size_t)st->n_layers, table = n * (size_t)st->max_pages;
    memset(s, 0, sizeof(*s));
    s->page = malloc((table + 2 * n) * sizeof(*s->page));
    if (!s->page)
        return gem_fail(err, GEM_E_NOMEM, "no memory for page tables of %d pages in %d layers",
                        st->max_pages, st->n_layers);
    s->store = st;
    s->first = s->page + table;
    s->end = s->first + n;
    for (size_t i = 0; i < table; i++)
        s->page[i] = -1;
    memset(s->first, 0, 2 * n * sizeof(*s->first));
    return GEM_OK;
}

static int32_t *row(const gem_kv_seq *s, int layer)
{
    return s->page + (size_t)layer * (size_t)s->store->max_pages;
}

static pool *pool_of(const gem_kv_seq *s, int layer)
{
    return &s->store->pool[s->store->layer_pool[layer]];
}

/* A recurrent layer keeps no pages: its table stays empty. */
static bool has_pages(const gem_kv_seq *s, int layer)
{
    return s->store->layer_pool[layer] >= 0;
}

/* Drop the pages of a layer that lie outside [first, end). */
static void keep(gem_kv_seq *s, int layer, int32_t first, int32_t end)
{
    int32_t *table = row(s, layer);
    for (int32_t i = s->first[layer]; i < s->end[layer]; i++) {
        if (i >= first && i < end) continue;
        drop(pool_of(s, layer), table[i]);
        table[i] = -1;
    }
    s->end[layer] = GEM_MIN(s->end[layer], end);
    s->first[layer] = GEM_MIN(GEM_MAX(s->first[layer], first), s->end[layer]);
}

static void clear(gem_kv_seq *s)
{
    for (int l = 0; l < s->store->n_layers; l++) {
        keep(s, l, 0, 0);
        s->first[l] = s->end[l] = 0;
    }
    s->n_pos = 0;
}

void gem_kv_seq_deinit(gem_kv_seq *s)
{
    if (!s->store) return;
    clear(s);
    free(s->page);
    memset(s, 0, sizeof(*s));
}

void gem_kv_seq_copy(gem_kv_seq *dst, const gem_kv_seq *src)
{
    assert(dst->store == src->store);
    if (dst == src) return;
    clear(dst);
    for (int l = 0; l < src->store->n_layers; l++) {
        int32_t *to = row(dst, l);
        const int32_t *from = row(src, l);
        for (int32_t i = src->first[l]; i < src->end[l]; i++) {
            to[i] = from[i];
            pool_of(src, l)->refs[from[i]]++;
        }
        dst->first[l] = src->first[l];
        dst->end[l] = src->end[l];
    }
    dst->n_pos = src->n_pos;
}

const int32_t *gem_kv_table(const gem_kv_seq *s, int layer)
{
    return row(s, layer);
}

/* ---- appending ---- */

/* The last page of a layer is partly filled and someone else holds it too. */
static bool must_copy(const gem_kv_seq *s, int layer)
{
    if (s->n_pos % GEM_PAGE == 0 || !has_pages(s, layer)) return false;
    return pool_of(s, layer)->refs[row(s, layer)[s->n_pos / GEM_PAGE]] > 1;
}

void gem_kv_need(const gem_kv_seq *s, int32_t n_new, int32_t *need)
{
    int32_t end = pages_of(s->n_pos + n_new);
    for (int l = 0; l < s->store->n_layers; l++)
        if (has_pages(s, l))
            need[s->store->layer_pool[l]] += end - s->end[l] + (must_copy(s, l) ? 1 : 0);
}

gem_status gem_kv_check(const gem_kv_store *st, const int32_t *need, gem_error *err)
{
    for (int i = 0; i < st->n_pools; i++)
        if (need[i] > st->pool[i].n_free)
            return gem_fail(err, GEM_E_NOMEM,
                            "the KV cache has %d free pages of %d and this batch needs %d: free "
                            "checkpoints or sessions, or open the model with more n_sessions",
                            st->pool[i].n_free, st->pool[i].n_pages, need[i]);
    return GEM_OK;
}

void gem_kv_append(gem_kv_seq *s, int32_t n_new)
{
    int32_t end = pages_of(s->n_pos + n_new);
    assert(end <= s->store->max_pages);
    for (int l = 0; l < s->store->n_layers; l++) {
        if (!has_pages(s, l)) continue;
        int32_t *table = row(s, l);
        pool *p = pool_of(s, l);
        if (must_copy(s, l)) {
            int32_t i = s->n_pos / GEM_PAGE, shared = table[i];
            table[i] = take(p);
            s->store->copy_page(s->store->user, s->store->layer_pool[l], table[i], shared);
            drop(p, shared);
        }
        for (; s->end[l] < end; s->end[l]++)
            table[s->end[l]] = take(p);
    }
}

/* The first page that a query at position n_pos or later can see. */
static int32_t first_visible(int32_t window, int32_t n_pos)
{
    int32_t oldest = n_pos - window + 1; /* visible: t - p < window */
    return window == 0 || oldest <= 0 ? 0 : oldest / GEM_PAGE;
}

void gem_kv_commit(gem_kv_seq *s, int32_t n_new)
{
    s->n_pos += n_new;
    for (int l = 0; l < s->store->n_layers; l++)
        keep(s, l, first_visible(s->store->window[l], s->n_pos - GEM_ROLLBACK), s->end[l]);
}

gem_status gem_kv_trim(gem_kv_seq *s, int32_t n_pos, gem_error *err)
{
    if (n_pos < 0 || n_pos > s->n_pos)
        return gem_fail(err, GEM_E_RANGE, "cannot trim to position %d: %d are filled", n_pos,
                        s->n_pos);
    for (int l = 0; l < s->store->n_layers; l++)
        if (n_pos > 0 && s->first[l] > first_visible(s->store->window[l], n_pos))
            return gem_fail(
                err, GEM_E_RANGE,
                "cannot trim to position %d: layer %d keeps a window of %d and has dropped "
                "positions below %d",
                n_pos, l, s->store->window[l], s->first[l] * GEM_PAGE);
    if (n_pos == 0) {
        clear(s);
        return GEM_OK;
    }
    for (int l = 0; l < s->store->n_layers; l++)
        keep(s, l, s->first[l], pages_of(n_pos));
    s->n_pos = n_pos;
    return GEM_OK;
}

/* ---- contents from outside ---- */

gem_status gem_kv_restore(gem_kv_seq *s, int32_t n_pos, const int32_t *first, gem_error *err)
{
    int32_t end = pages_of(n_pos), need[GEM_KV_MAX_POOLS] = {0};
    assert(s->n_pos == 0);
    if (n_pos < 0 || end > s->store->max_pages)
        return gem_fail(err, GEM_E_RANGE, "%d positions do not fit a sequence of %d pages", n_pos,
                        s->store->max_pages);
    for (int l = 0; l < s->store->n_layers; l++) {
        if (!has_pages(s, l)) continue;
        if (first[l] < 0 || first[l] > first_visible(s->store->window[l], n_pos))
            return gem_fail(err, GEM_E_RANGE, "layer %d: page %d is too late for position %d", l,
                            first[l], n_pos);
        need[s->store->layer_pool[l]] += end - GEM_MIN(first[l], end);
    }
    gem_status st = gem_kv_check(s->store, need, err);
    if (st != GEM_OK) return st;
    for (int l = 0; l < s->store->n_layers; l++) {
        if (!has_pages(s, l)) continue;
        for (int32_t i = first[l]; i < end; i++)
            row(s, l)[i] = take(pool_of(s, l));
        s->first[l] = GEM_MIN(first[l], end);
        s->end[l] = end;
    }
    s->n_pos = n_pos;
    return GEM_OK;
}
