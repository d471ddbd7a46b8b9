/* disk_index.c - entries in one array, parents first. */
#include "server/disk_index.h"

#include <stdlib.h>

static void free_entry(gem_disk_entry *e)
{
    free(e->tokens);
    free(e->first);
    free(e);
}

void gem_disk_index_deinit(gem_disk_index *x)
{
    for (size_t i = 0; i < x->n; i++)
        free_entry(x->entry[i]);
    free(x->entry);
    memset(x, 0, sizeof(*x));
}

gem_disk_entry *gem_disk_index_find(const gem_disk_index *x, const uint8_t key[32])
{
    for (size_t i = 0; i < x->n; i++)
        if (memcmp(x->entry[i]->key, key, 32) == 0) return x->entry[i];
    return NULL;
}

/* A token at position k sees a windowed layer from k - window + 1 on. */
static int32_t reach_of(const gem_model *m, const int32_t *first)
{
    int32_t reach = 0;
    for (int l = 0; l < m->plan.n_layers; l++)
        if (m->layout.window[l] && first[l])
            reach = GEM_MAX(reach, first[l] * GEM_PAGE + m->layout.window[l] - 1);
    return reach;
}

bool gem_disk_index_add(gem_disk_index *x, const gem_model *m, gem_disk_entry *parent,
                        gem_disk_head *h, int32_t *first, int64_t used)
{
    gem_disk_entry *e = calloc(1, sizeof(*e));
    if (!e) return false;
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        gem_disk_entry **grown = realloc(x->entry, cap * sizeof(gem_disk_entry *));
        if (!grown) {
            free(e);
            return false;
        }
        x->entry = grown;
        x->cap = cap;
    }
    e->parent = parent;
    if (parent) parent->n_children++;
    memcpy(e->key, h->key, sizeof(e->key));
    e->from = h->from;
    e->n = h->n;
    e->tokens = h->tokens;
    h->tokens = NULL;
    e->first = first;
    for (int l = 0; l < m->plan.n_layers; l++)
        if (!m->layout.window[l]) first[l] = 0; /* with the parents' */
    e->reach = reach_of(m, first);
    e->bytes = h->file_bytes;
    e->used = used;
    x->entry[x->n++] = e;
    x->bytes += e->bytes;
    return true;
}

void gem_disk_index_remove(gem_disk_index *x, gem_disk_entry *e)
{
    size_t i = 0;
    while (x->entry[i] != e)
        i++;
    memmove(x->entry + i, x->entry + i + 1, (x->n - i - 1) * sizeof(gem_disk_entry *));
    x->n--;
    x->bytes -= e->bytes;
    if (e->parent) e->parent->n_children--;
    free_entry(e);
}

void gem_disk_index_match(gem_disk_index *x, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < x->n; i++) {
        gem_disk_entry *e = x->entry[i];
        e->common = e->parent ? GEM_MIN(e->parent->common, e->from) : 0;
        if (e->common < e->from) continue; /* they part before its own tokens */
        while (e->common < e->n && (size_t)e->common < n &&
               e->tokens[e->common - e->from] == tokens[e->common])
            e->common++;
    }
}

gem_disk_entry *gem_disk_index_best(const gem_disk_index *x, int32_t bound, int32_t *k)
{
    gem_disk_entry *best = NULL;
    *k = 0;
    for (size_t i = 0; i < x->n; i++) {
        gem_disk_entry *e = x->entry[i];
        int32_t own = GEM_MIN(e->common, bound);
        if (own < e->reach || own <= *k) continue; /* of equals the first: a parent */
        *k = own;
        best = e;
    }
    return best;
}

gem_disk_entry *gem_disk_index_oldest(const gem_disk_index *x, const gem_disk_entry *except)
{
    gem_disk_entry *oldest = NULL;
    for (size_t i = 0; i < x->n; i++) {
        gem_disk_entry *e = x->entry[i];
        if (e != except && !e->n_children && (!oldest || e->used < oldest->used)) oldest = e;
    }
    return oldest;
}

void gem_disk_entry_text(const gem_disk_entry *e, int32_t n, int32_t *out)
{
    while (e) {
        if (n > e->from) memcpy(out + e->from, e->tokens, (size_t)(n - e->from) * sizeof(*out));
        n = GEM_MIN(n, e->from);
        e = e->parent;
    }
}
