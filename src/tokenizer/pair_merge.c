/* pair_merge.c - join neighbouring symbols, best pair first: one loop for score and rank merging.
 * A heap holds every pair that could be joined; joining two symbols makes at most two new pairs.
 * Old entries are not searched for but recognised when they come up: their first symbol is gone, or
 * it and its neighbour no longer span the same bytes. At most 2 n entries, O(n log n). */
#include "tokenizer/vocabulary.h"

#include <stdlib.h>

/* Grow an array of `size`-byte elements to hold `need`, at least doubling. */
static bool grow(void **array, size_t *cap, size_t need, size_t size)
{
    size_t n = *cap, bytes;
    if (need <= n) return true;
    if (!gem_mul_ok(n, 2, &n)) return false;
    n = GEM_MAX(GEM_MAX(n, need), 64u);
    if (!gem_mul_ok(n, size, &bytes)) return false;
    void *p = realloc(*array, bytes);
    if (!p) return false;
    *array = p;
    *cap = n;
    return true;
}

bool gem_merge_reserve(gem_merge_work *w, size_t n_sym)
{
    void *p = w->sym;
    bool ok = grow(&p, &w->cap_sym, n_sym, sizeof(*w->sym));
    w->sym = p;
    return ok;
}

void gem_merge_free(gem_merge_work *w)
{
    free(w->sym);
    free(w->heap);
}

static void sift_up(gem_merge_entry *heap, size_t i, gem_merge_entry e)
{
    for (; i > 0 && e.key < heap[(i - 1) / 2].key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static gem_merge_entry pop(gem_merge_work *w)
{
    gem_merge_entry *heap = w->heap, top = heap[0], e = heap[--w->n_heap];
    size_t n = w->n_heap, i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (e.key <= heap[child].key) break;
        heap[i] = heap[child];
    }
    heap[i] = e;
    return top;
}

/* What joining the two gives and how early it comes; false when they do not join. */
static bool joins(const gem_tokenizer *t, const char *text, const gem_symbol *l,
                  const gem_symbol *r, int32_t *id, uint32_t *prio)
{
    if (t->kind != GEM_VOCAB_SCORE) {
        const gem_merge_slot *m = gem_vocab_merge(t, l->id, r->id);
        if (!m) return false;
        *id = m->id;
        *prio = m->rank;
        return true;
    }
    if (l->id == GEM_SYMBOL_INVALID || r->id == GEM_SYMBOL_INVALID) return false;
    *id = gem_tokenizer_find(t, text + l->start, (size_t)l->len + r->len);
    if (*id < 0) return false;
    *prio = t->prio[*id];
    return *prio != GEM_NO_MERGE;
}

static bool push_pair(const gem_tokenizer *t, const char *text, gem_merge_work *w, uint32_t left)
{
    const gem_symbol *l = &w->sym[left], *r = &w->sym[l->next];
    gem_merge_entry e;
    uint32_t prio;
    if (!joins(t, text, l, r, &e.id, &prio)) return true;
    void *p = w->heap;
    if (!grow(&p, &w->cap_heap, w->n_heap + 1, sizeof(*w->heap))) return false;
    w->heap = p;
    e.key = (uint64_t)prio << 32 | left;
    e.len = l->len + r->len;
    sift_up(w->heap, w->n_heap++, e);
    return true;
}

bool gem_merge(const gem_tokenizer *t, const char *text, gem_merge_work *w)
{
    w->n_heap = 0;
    for (uint32_t i = 0; i + 1 < w->n_sym; i++)
        if (!push_pair(t, text, w, i)) return false;

    while (w->n_heap) {
        gem_merge_entry e = pop(w);
        uint32_t left = (uint32_t)e.key;
        gem_symbol *l = &w->sym[left];
        if (!l->len || l->next == UINT32_MAX || l->len + w->sym[l->next].len != e.len) continue;

        gem_symbol *r = &w->sym[l->next];
        l->id = e.id;
        l->len = e.len;
        l->next = r->next;
        r->len = 0;
        if (l->next != UINT32_MAX) w->sym[l->next].prev = left;
        if (l->prev != UINT32_MAX && !push_pair(t, text, w, l->prev)) return false;
        if (l->next != UINT32_MAX && !push_pair(t, text, w, left)) return false;
    }
    return true;
}
