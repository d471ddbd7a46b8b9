/* kv.h - KV pages: keys and values of past tokens, one page a run of GEM_PAGE positions of one
 * layer. Hands out page numbers and counts references; the memory is the backend's. Knows nothing
 * of prompts or sampling. The session appends, shares, trims and drops pages; attention reads them
 * through a sequence's page tables.
 *
 * Rules. A page is written only while one sequence holds it; a partly filled page that is shared is
 * copied before the first write (copy on write). A windowed layer drops pages after each batch that
 * no query sees any more, even when the sequence goes back GEM_ROLLBACK positions. Nothing here
 * allocates after gem_kv_open and gem_kv_seq_init. */
#ifndef GEM_KV_H
#define GEM_KV_H

#include "backend/backend.h"

typedef struct gem_kv_store gem_kv_store;

typedef struct gem_kv_options {
    int n_layers, n_pools;
    const int *layer_pool;   /* [n_layers]; -1: the layer keeps no pages */
    const int32_t *window;   /* [n_layers]; 0: the layer keeps everything */
    const gem_kv_pool *pool; /* [n_pools] */
    int32_t max_positions;   /* of a sequence */
    void (*copy_page)(void *user, int pool, int32_t dst, int32_t src);
    void *user;
} gem_kv_options;

/* Arrays are copied. GEM_E_NOMEM. */
gem_status gem_kv_open(gem_kv_store **out, const gem_kv_options *opt, gem_error *err);
void gem_kv_close(gem_kv_store *st); /* every sequence must be gone */
int32_t gem_kv_used(const gem_kv_store *st, int pool);
int32_t gem_kv_refs(const gem_kv_store *st, int pool, int32_t page); /* 0: free */

/* The pages of one sequence. Layer l holds the pages [first[l], end[l]) of its table; page i covers
 * the positions i * GEM_PAGE and on. */
typedef struct gem_kv_seq {
    gem_kv_store *store;  /* borrowed; NULL: nothing to free */
    int32_t n_pos;        /* positions filled */
    int32_t *page;        /* owned, [n_layers][max_pages]; -1: not held */
    int32_t *first, *end; /* inside the allocation of `page`, [n_layers] */
} gem_kv_seq;

gem_status gem_kv_seq_init(gem_kv_seq *s, gem_kv_store *st, gem_error *err);
void gem_kv_seq_deinit(gem_kv_seq *s); /* drops its pages */
/* Make dst hold what src holds, sharing the pages. */
void gem_kv_seq_copy(gem_kv_seq *dst, const gem_kv_seq *src);
const int32_t *gem_kv_table(const gem_kv_seq *s, int layer);

/* Add to need[n_pools] the pages that n_new further positions take, copies of shared pages
 * included. When two sequences of a batch share a partly filled page both copies are counted,
 * though the second then turns out unnecessary: never too few. */
void gem_kv_need(const gem_kv_seq *s, int32_t n_new, int32_t *need);
/* GEM_E_NOMEM with the numbers when a pool has fewer free pages. */
gem_status gem_kv_check(const gem_kv_store *st, const int32_t *need, gem_error *err);
/* Take the pages; the need was checked. The rows may then be written. */
void gem_kv_append(gem_kv_seq *s, int32_t n_new);
/* The rows were written: advance, and drop what left the windows. */
void gem_kv_commit(gem_kv_seq *s, int32_t n_new);
/* Cut back to n_pos: GEM_ROLLBACK positions before the end of the last batch are always possible.
 * GEM_E_RANGE when a windowed layer has dropped a page that the next token there
 * would see, or n_pos is not in [0, s->n_pos]; nothing changed then. */
gem_status gem_kv_trim(gem_kv_seq *s, int32_t n_pos, gem_error *err);

/* Make an empty sequence hold pages for the positions [0, n_pos), of layer l from its page first[l]
 * on, for contents that come from outside (runtime/image.h).
 * errors  GEM_E_NOMEM  no free pages; GEM_E_RANGE  first[l] is not 0 in a layer that sees all, or
 *         lies behind what a token at n_pos sees; nothing changed then */
gem_status gem_kv_restore(gem_kv_seq *s, int32_t n_pos, const int32_t *first, gem_error *err);

/* ---- how many pages: pools.c ---- */

enum { GEM_KV_MAX_POOLS = 8 };

typedef struct gem_kv_layout {
    int n_pools;
    gem_kv_pool pool[GEM_KV_MAX_POOLS];
    int *layer_pool; /* owned, [n_layers]; -1: a layer without keys and values */
    int32_t *window; /* owned, [n_layers] */
} gem_kv_layout;

/* Group the plan's layers by page kind and size the pools for n_sessions sessions of n_ctx
 * positions run in batches of n_batch rows. Pages of a layer and session: sees all   ceil(n_ctx /
 * GEM_PAGE), and 1 to copy a shared last page into windowed   the window and a whole batch, 2 more
 * for their borders and GEM_ROLLBACK (not above the line before), and as many as the window and
 * GEM_ROLLBACK cover, 1 more, for one checkpoint that lags behind So each session can always fill
 * its context, with one checkpoint that is not older than its last trim; more checkpoints share
 * what the others leave. GEM_E_NOMEM, GEM_E_UNSUPPORTED. */
gem_status gem_kv_layout_init(gem_kv_layout *out, const gem_plan *plan, gem_kv_type type,
                              int32_t n_ctx, int32_t n_batch, int n_sessions, gem_error *err);
void gem_kv_layout_deinit(gem_kv_layout *l);
uint64_t gem_kv_layout_bytes(const gem_kv_layout *l);

#endif
