/* state.c - slots of recurrent state: reference counts, tables, and which boundary is given up. */
#include "runtime/state.h"

#include <assert.h>
#include <stdlib.h>

struct gem_state_store {
    int32_t n_slots, n_free;
    int32_t *free; /* owned, stack of free slots */
    int32_t *refs; /* inside the allocation of `free`, [n_slots] */
    float *missed; /* owned, [n_slots]: how much a slot would be missed; scratch of give_up */
    int32_t n_boundaries; /* entries of a table */
    gem_state_seq *seqs;
};

static const float KEEP = 3e38f, PINNED = 1e9f;

gem_status gem_state_open(gem_state_store **out, int32_t n_slots, int32_t max_positions,
                          gem_error *err)
{
    gem_state_store *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (!s) return gem_fail(err, GEM_E_NOMEM, "no memory for the store of recurrent state");
    assert(n_slots >= GEM_STATE_SLOTS && max_positions > 0);
    size_t n = (size_t)n_slots;
    s->n_slots = s->n_free = n_slots;
    s->n_boundaries = max_positions / GEM_PAGE + 1;
    s->free = malloc(2 * n * sizeof(*s->free));
    s->missed = malloc(n * sizeof(*s->missed));
    if (!s->free || !s->missed) {
        gem_state_close(s);
        return gem_fail(err, GEM_E_NOMEM, "no memory to keep account of %d recurrent states",
                        n_slots);
    }
    s->refs = s->free + n;
    for (int32_t i = 0; i < n_slots; i++) {
        s->free[i] = n_slots - 1 - i; /* slot 0 goes first */
        s->refs[i] = 0;
    }
    *out = s;
    return GEM_OK;
}

void gem_state_close(gem_state_store *st)
{
    if (!st) return;
    assert(!st->seqs);
    free(st->free);
    free(st->missed);
    free(st);
}

int32_t gem_state_used(const gem_state_store *st)
{
    return st->n_slots - st->n_free;
}

int32_t gem_state_refs(const gem_state_store *st, int32_t slot)
{
    return st->refs[slot];
}

static void forget(gem_state_seq *s, int32_t c)
{
    gem_state_store *st = s->store;
    int32_t slot = s->slot[c];
    if (slot < 0) return;
    assert(st->refs[slot] > 0);
    if (--st->refs[slot] == 0) st->free[st->n_free++] = slot;
    s->slot[c] = -1;
}

/* ---- sequences ---- */

gem_status gem_state_seq_init(gem_state_seq *s, gem_state_store *st, bool checkpoint,
                              gem_error *err)
{
    size_t n = (size_t)st->n_boundaries;
    memset(s, 0, sizeof(*s));
    s->slot = malloc(2 * n * sizeof(*s->slot));
    if (!s->slot)
        return gem_fail(err, GEM_E_NOMEM, "no memory for a table of %d recurrent states",
                        st->n_boundaries);
    s->run = s->slot + n;
    for (size_t i = 0; i < 2 * n; i++)
        s->slot[i] = -1;
    s->store = st;
    s->reads = s->tape_to = -1;
    s->checkpoint = checkpoint;
    s->next = st->seqs;
    if (s->next) s->next->prev = s;
    st->seqs = s;
    return GEM_OK;
}

void gem_state_seq_deinit(gem_state_seq *s)
{
    if (!s->store) return;
    for (int32_t c = 1; c <= s->end; c++)
        forget(s, c);
    if (s->prev)
        s->prev->next = s->next;
    else
        s->store->seqs = s->next;
    if (s->next) s->next->prev = s->prev;
    free(s->slot);
    memset(s, 0, sizeof(*s));
}

void gem_state_seq_copy(gem_state_seq *dst, const gem_state_seq *src)
{
    if (dst == src) return;
    for (int32_t c = 1; c <= dst->end; c++)
        forget(dst, c);
    for (int32_t c = 1; c <= src->end; c++)
        if ((dst->slot[c] = src->slot[c]) >= 0) dst->store->refs[src->slot[c]]++;
    dst->end = src->end;
    dst->tape_to = -1;
}

static bool has_state(const gem_state_seq *s, int32_t pos)
{
    return pos < GEM_PAGE || s->slot[pos / GEM_PAGE] >= 0;
}

/* The tape holds the rows from the start of pos's chunk up to pos. */
static bool on_tape(const gem_state_seq *s, int32_t pos)
{
    return s->tape_to >= pos && s->tape_to - pos <= GEM_ROLLBACK &&
           s->tape_from <= pos / GEM_PAGE * GEM_PAGE;
}

bool gem_state_covers(const gem_state_seq *s, int32_t pos)
{
    return has_state(s, pos) && (pos % GEM_PAGE == 0 || on_tape(s, pos));
}

int32_t gem_state_base(const gem_state_seq *s, int32_t pos)
{
    int32_t c = pos / GEM_PAGE;
    while (c > 0 && s->slot[c] < 0)
        c--;
    return c * GEM_PAGE;
}

void gem_state_cut(gem_state_seq *s, int32_t pos)
{
    int32_t end = pos / GEM_PAGE;
    for (int32_t c = end + 1; c <= s->end; c++)
        forget(s, c);
    s->end = end;
    if (!has_state(s, pos) || !on_tape(s, pos)) s->tape_to = -1;
}

/* ---- which boundary is given up ---- */

/* How much each boundary of a sequence would be missed, into the store's scratch; a slot that
 * several share counts as where it is missed most. */
static void rate(const gem_state_seq *s)
{
    float *missed = s->store->missed;
    int32_t before = 0, at = 0; /* kept boundaries; 0 is always there */
    for (int32_t c = 1; c <= s->end + 1; c++) {
        if (c <= s->end && s->slot[c] < 0) continue;
        if (at > 0) {
            float v = (float)(c - before) / (float)(s->end - at + 1);
            if (s->checkpoint && c > s->end) v += PINNED;
            if (!s->checkpoint && (at + 1 >= s->end || at == s->reads)) v = KEEP;
            missed[s->slot[at]] = GEM_MAX(missed[s->slot[at]], v);
        }
        before = at;
        at = c;
    }
}

/* What a sequence of the batch at hand passes through and does not keep may have become another's:
 * it passes through its last two instead, in turns, and writes them again when it comes to them,
 * since its chunks follow each other. */
static void pass_through_own(gem_state_seq *s)
{
    for (int32_t c = s->reads + 1; s->reads >= 0 && c + 1 < s->end; c++)
        if (s->slot[c] < 0) s->run[c] = s->run[s->end - ((s->end - c) & 1)];
}

/* Free the slot that will be missed least, in every table that names it. `taker`: who appends. */
static void give_up(gem_state_store *st, const gem_state_seq *taker)
{
    int32_t least = 0;
    for (int32_t i = 0; i < st->n_slots; i++)
        st->missed[i] = 0;
    for (const gem_state_seq *s = st->seqs; s; s = s->next)
        rate(s);
    for (int32_t i = 1; i < st->n_slots; i++)
        if (st->missed[i] < st->missed[least]) least = i;
    assert(st->missed[least] < KEEP);
    for (gem_state_seq *s = st->seqs; s; s = s->next) {
        for (int32_t c = 1; c <= s->end; c++)
            if (s->slot[c] == least) forget(s, c);
        if (s != taker) pass_through_own(s);
    }
    assert(st->n_free == 1);
}

/* ---- appending ---- */

void gem_state_append(gem_state_seq *s, int32_t pos, int32_t n)
{
    gem_state_store *st = s->store;
    assert(gem_state_covers(s, pos) && s->end == pos / GEM_PAGE);
    s->reads = s->end;
    s->run[s->end] = s->slot[s->end];
    for (int32_t last = (pos + n) / GEM_PAGE; s->end < last;) {
        s->end++;
        if (st->n_free == 0) give_up(st, s); /* not what is read, nor the one before */
        int32_t slot = st->free[--st->n_free];
        assert(st->refs[slot] == 0);
        st->refs[slot] = 1;
        s->slot[s->end] = s->run[s->end] = slot;
    }
}

void gem_state_commit(gem_state_seq *s, int32_t pos, int32_t n)
{
    s->reads = -1;
    if (on_tape(s, pos)) { /* what was written beyond, and taken back, still counts */
        s->tape_to = GEM_MAX(s->tape_to, pos + n);
    } else {
        s->tape_from = pos;
        s->tape_to = pos + n;
    }
    s->tape_from = GEM_MAX(s->tape_from, (s->tape_to / GEM_PAGE - 1) * GEM_PAGE);
}

/* ---- contents from outside ---- */

void gem_state_restore(gem_state_seq *s, int32_t n_pos)
{
    assert(s->end == 0 && s->reads == -1);
    s->end = n_pos / GEM_PAGE;
    s->tape_to = -1;
}

int32_t gem_state_put(gem_state_seq *s, int32_t c)
{
    gem_state_store *st = s->store;
    assert(c > 0 && c <= s->end && s->slot[c] < 0);
    if (st->n_free == 0) {
        if (c + 1 < s->end) return -1; /* only the last two are owed to a sequence */
        give_up(st, s);
    }
    int32_t slot = st->free[--st->n_free];
    st->refs[slot] = 1;
    s->slot[c] = slot;
    return slot;
}
