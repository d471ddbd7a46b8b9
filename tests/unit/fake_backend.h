/* fake_backend.h - a backend without arithmetic: a page holds a number for each position, made of
 * the token, and a row's logits are a hash of every number that the row may see through its page
 * tables. Whatever the runtime gets wrong about pages, positions or windows changes the hash; what
 * is right is computed from the tokens alone (fake_expect).
 *
 * Recurrent plans: a slot holds the hash of all tokens before its boundary, a tape the rows of two
 * chunks and, in a ring just long enough for GEM_ROLLBACK, the inputs of the short convolution. A
 * slot or tape that backend.h does not allow to be used as it is counts in n_violations. */
#ifndef GEM_FAKE_BACKEND_H
#define GEM_FAKE_BACKEND_H

#include "backend/backend.h"
#include "top_of_row.h"

#include <jansson.h>
#include <stdlib.h>

enum { FAKE_RING = 16 }; /* >= GEM_CONV_TAPS - 1 + GEM_ROLLBACK */

typedef struct fake_tape {
    int32_t pos[2 * GEM_PAGE], ring_pos[FAKE_RING]; /* whose rows these are; -1: none yet */
    uint64_t row[2 * GEM_PAGE], ring[FAKE_RING];
} fake_tape;

struct gem_backend {
    gem_backend_options opt;
    uint64_t *state;   /* [n_states] */
    int32_t *state_of; /* [n_states], the boundary a slot was written for; -1: none yet */
    fake_tape *tape;   /* [n_tapes] */
    int32_t (*refs)(int32_t slot); /* set by a test: how many tables name the slot */
    int n_violations;
    int64_t n_rows;  /* ever run */
    bool no_keys;    /* set by a test that reads no logits: skip what takes long */
    uint64_t **page; /* [n_pools]: [n_pages][GEM_PAGE] */
    float *logits;
    gem_top *top;          /* [n_logits] */
    int n_tops, n_fetched; /* rows whose top was given, whose logits were then asked for */
    int n_runs, n_copies;
    bool fail_next;
    int32_t n_missing; /* visible positions without a page */
};
static gem_backend *fake; /* the one that was opened last */

static inline uint64_t fake_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline uint64_t fake_entry(int layer, int32_t pos, int32_t token)
{
    return fake_mix(fake_mix((uint64_t)layer + 1, (uint64_t)pos), (uint64_t)token);
}

static inline float fake_logit(uint64_t h, int32_t id)
{
    return (float)(int32_t)(fake_mix(h, (uint64_t)id) >> 32) / 268435456.0f; /* [-8, 8) */
}

/* Logits behind tokens[0..n) of a model with these layers. */
static inline void fake_expect(const gem_plan *p, const int32_t *tokens, int32_t n, float *logits)
{
    uint64_t h = 1, x = 1;
    for (int l = 0; l < p->n_layers; l++) {
        if (p->layer[l].n_kv_heads == 0) continue;
        for (int32_t i = p->layer[l].window ? GEM_MAX(0, n - p->layer[l].window) : 0; i < n; i++)
            h = fake_mix(h, fake_entry(l, i, tokens[i]));
    }
    for (int32_t i = 0; p->recurrent.n_layers && i < n; i++)
        x = fake_mix(x, fake_entry(99, i, tokens[i]));
    if (p->recurrent.n_layers) h = fake_mix(h, x);
    for (int32_t id = 0; id < p->n_vocab; id++)
        logits[id] = fake_logit(h, id);
}

static gem_status fake_open(gem_backend **out, const gem_backend_options *opt, gem_error *err)
{
    (void)err;
    gem_backend *b = calloc(1, sizeof(*b));
    b->opt = *opt;
    b->page = calloc((size_t)opt->n_pools, sizeof(*b->page));
    for (int i = 0; i < opt->n_pools; i++)
        b->page[i] = calloc((size_t)opt->pool[i].n_pages * GEM_PAGE, sizeof(**b->page));
    b->state = calloc((size_t)opt->n_states + 1, sizeof(*b->state));
    b->state_of = calloc((size_t)opt->n_states + 1, sizeof(*b->state_of));
    b->tape = calloc((size_t)opt->n_tapes + 1, sizeof(*b->tape));
    for (int32_t i = 0; i < opt->n_states; i++)
        b->state_of[i] = -1;
    for (int32_t i = 0; i < opt->n_tapes; i++)
        memset(&b->tape[i], 0xff, sizeof(b->tape[i]));
    b->logits = calloc((size_t)opt->n_logits * (size_t)opt->plan->n_vocab, sizeof(*b->logits));
    b->top = calloc((size_t)opt->n_logits, sizeof(*b->top));
    *out = fake = b;
    return GEM_OK;
}

static void fake_close(gem_backend *b)
{
    for (int i = 0; i < b->opt.n_pools; i++)
        free(b->page[i]);
    free(b->page);
    free(b->state);
    free(b->state_of);
    free(b->tape);
    free(b->logits);
    free(b->top);
    free(b);
}

static uint64_t *fake_at(gem_backend *b, const gem_batch *t, int32_t row, int layer, int32_t pos)
{
    int32_t page = t->table[t->seq[row] * b->opt.plan->n_layers + layer][pos / GEM_PAGE];
    if (page < 0) return NULL;
    return &b->page[b->opt.layer_pool[layer]][(size_t)page * GEM_PAGE + (size_t)(pos % GEM_PAGE)];
}

static inline void fake_must(gem_backend *b, bool ok)
{
    b->n_violations += !ok;
}

/* A run ends chunk c - 1: its state goes into the slot of boundary c, which nobody else names and
 * no sequence of this batch starts from. */
static void fake_end_chunk(gem_backend *b, const gem_batch *t, int32_t seq, int32_t c, uint64_t x)
{
    int32_t slot = t->state[seq][c];
    fake_must(b, slot >= 0 && slot < b->opt.n_states);
    if (b->refs) fake_must(b, b->refs(slot) == 1);
    for (int32_t r = 0; r < t->n_rows; r++) {
        bool first = true;
        for (int32_t q = 0; q < r; q++)
            first &= t->seq[q] != t->seq[r];
        int32_t from = t->pos[r] / GEM_PAGE;
        if (first && from > 0) fake_must(b, t->state[t->seq[r]][from] != slot);
    }
    b->state[slot] = x;
    b->state_of[slot] = c;
}

/* The recurrent layers at row r: the chunk's state, then the chunk's rows up to this one. */
static uint64_t fake_recur(gem_backend *b, const gem_batch *t, int32_t r)
{
    int32_t pos = t->pos[r], c = pos / GEM_PAGE, seq = t->seq[r];
    fake_tape *tape = &b->tape[t->tape[seq]];
    uint64_t x = 1, own = fake_entry(99, pos, t->token[r]);
    tape->pos[pos % (2 * GEM_PAGE)] = tape->ring_pos[pos % FAKE_RING] = pos;
    tape->row[pos % (2 * GEM_PAGE)] = tape->ring[pos % FAKE_RING] = own;
    if (c > 0) {
        int32_t slot = t->state[seq][c];
        fake_must(b, slot >= 0 && slot < b->opt.n_states && b->state_of[slot] == c);
        x = b->state[slot];
    }
    for (int32_t i = c * GEM_PAGE; i <= pos; i++) {
        fake_must(b, tape->pos[i % (2 * GEM_PAGE)] == i);
        x = fake_mix(x, tape->row[i % (2 * GEM_PAGE)]);
        if (i + GEM_CONV_TAPS <= pos) continue;
        fake_must(b, tape->ring_pos[i % FAKE_RING] == i);
        fake_must(b, tape->ring[i % FAKE_RING] == tape->row[i % (2 * GEM_PAGE)]);
    }
    if ((pos + 1) % GEM_PAGE == 0) fake_end_chunk(b, t, seq, c + 1, x);
    return x;
}

static gem_status fake_run(gem_backend *b, const gem_batch *t, const float **logits, gem_error *err)
{
    const gem_plan *p = b->opt.plan;
    int32_t k = 0;
    b->n_runs++;
    b->n_rows += t->n_rows;
    if (b->fail_next) {
        b->fail_next = false;
        return gem_fail(err, GEM_E_DEVICE, "the fake backend was told to fail");
    }
    for (int32_t r = 0; r < t->n_rows; r++) {
        uint64_t h = 1;
        for (int l = 0; l < p->n_layers; l++) {
            if (p->layer[l].n_kv_heads == 0 || b->no_keys) continue;
            int32_t pos = t->pos[r], window = p->layer[l].window;
            uint64_t *own = fake_at(b, t, r, l, pos);
            if (own) *own = fake_entry(l, pos, t->token[r]);
            for (int32_t i = window ? GEM_MAX(0, pos - window + 1) : 0; i <= pos; i++) {
                const uint64_t *e = fake_at(b, t, r, l, i);
                if (!e)
                    b->n_missing++;
                else
                    h = fake_mix(h, *e);
            }
        }
        if (p->recurrent.n_layers) h = fake_mix(h, fake_recur(b, t, r));
        if (!t->want[r]) continue;
        float *out = b->logits + (size_t)k * (size_t)p->n_vocab;
        for (int32_t id = 0; id < p->n_vocab; id++)
            out[id] = fake_logit(h, id);
        logits[k++] = out;
    }
    return GEM_OK;
}

/* The same by a backend that keeps logits to itself (fake_keeping_ops). */
static inline gem_status fake_run_keeping(gem_backend *b, const gem_batch *t, const float **logits,
                                          gem_error *err)
{
    gem_status st = fake_run(b, t, logits, err);
    for (int32_t r = 0, k = 0; st == GEM_OK && r < t->n_rows; r++) {
        if (!(t->want[r] & (GEM_WANT_LOGITS | GEM_WANT_TOP))) continue;
        t->top[k] = NULL;
        if (t->want[r] & GEM_WANT_TOP) {
            b->n_tops++;
            top_of_row(logits[k], b->opt.plan->n_vocab, &b->top[k]);
            t->top[k] = &b->top[k];
        }
        if (!(t->want[r] & GEM_WANT_LOGITS)) logits[k] = NULL;
        k++;
    }
    return st;
}

static inline gem_status fake_logits(gem_backend *b, int32_t k, const float **logits,
                                     gem_error *err)
{
    b->n_fetched++;
    if (b->fail_next) {
        b->fail_next = false;
        return gem_fail(err, GEM_E_DEVICE, "the fake backend was told to fail");
    }
    *logits = b->logits + (size_t)k * (size_t)b->opt.plan->n_vocab;
    return GEM_OK;
}

static void fake_copy_page(gem_backend *b, int pool, int32_t dst, int32_t src)
{
    b->n_copies++;
    memcpy(b->page[pool] + (size_t)dst * GEM_PAGE, b->page[pool] + (size_t)src * GEM_PAGE,
           GEM_PAGE * sizeof(**b->page));
}

static void fake_stats(const gem_backend *b, gem_backend_stats *out)
{
    *out = (gem_backend_stats){.weights_bytes = 1,
                               .kv_bytes = 2,
                               .workspace_bytes = 3,
                               .decode_bytes = 4,
                               .state_bytes = (uint64_t)b->opt.n_states *
                                              gem_recurrent_bytes(&b->opt.plan->recurrent),
                               .tape_bytes = (uint64_t)b->opt.n_tapes * 5,
                               .isa = "none",
                               .n_threads = b->opt.n_threads};
}

static json_t *fake_config(const gem_backend *b)
{
    return json_pack("{s:i}", "runs", b->n_runs);
}

static const gem_backend_ops fake_ops = {.name = "fake",
                                         .open = fake_open,
                                         .close = fake_close,
                                         .run = fake_run,
                                         .copy_page = fake_copy_page,
                                         .stats = fake_stats,
                                         .config = fake_config};

static inline const gem_backend_ops *fake_keeping_ops(void)
{
    static gem_backend_ops ops;
    ops = fake_ops;
    ops.run = fake_run_keeping;
    ops.logits = fake_logits;
    return &ops;
}

/* A change_plan: every other layer keeps recurrent state instead of keys and values. */
static inline void fake_hybrid(gem_plan *p)
{
    p->recurrent = (gem_recurrent){.n_k_heads = 1, .n_v_heads = 2, .head_dim = 32};
    for (int l = 0; l < p->n_layers; l++) {
        p->layer[l].window = 0;
        if (l % 2 == 0) continue;
        p->layer[l].n_kv_heads = 0;
        p->recurrent.n_layers++;
    }
}

#endif
