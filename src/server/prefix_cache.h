/* prefix_cache.h - which token prefixes are held, so that a prompt runs only what is new. An entry
 * is a token list and a checkpoint; pages are shared between entries and sequences by the runtime.
 * Least recently used entries go first: when there are too many, and when a batch finds no free
 * pages. Engine thread only, but for gem_prefix_cache_miss. */
#ifndef GEM_PREFIX_CACHE_H
#define GEM_PREFIX_CACHE_H

#include "base/base.h"

typedef struct gem_prefix_cache gem_prefix_cache;

gem_prefix_cache *gem_prefix_cache_new(gem_model *m, size_t max_entries); /* NULL: no memory */
void gem_prefix_cache_free(gem_prefix_cache *c);
/* Drop all entries. */
void gem_prefix_cache_clear(gem_prefix_cache *c);

/* Bring a fresh session to the longest stored prefix of tokens[n], leaving at least one token to
 * run; returns how many tokens it holds then. An entry that cannot be cut back far enough (a
 * windowed layer let go of its pages) gives way to the next best. */
size_t gem_prefix_cache_find(gem_prefix_cache *c, gem_session *s, const int32_t *tokens, size_t n);
/* Remember the session, which holds exactly tokens[n]. Quietly does nothing when out of memory. */
void gem_prefix_cache_add(gem_prefix_cache *c, const gem_session *s, const int32_t *tokens,
                          size_t n);
/* Drop the least recently used entry; false when there is none. */
bool gem_prefix_cache_evict(gem_prefix_cache *c);
size_t gem_prefix_cache_entries(const gem_prefix_cache *c);
/* True when a session of this model can be cut back to any position. */
bool gem_prefix_cache_trims(const gem_prefix_cache *c);

enum { GEM_MISS_TOKENS = 6 };
typedef struct gem_prefix_miss {
    size_t at;                     /* the first token that differs */
    size_t entry_tokens;           /* of the entry that was followed up to there */
    int32_t held[GEM_MISS_TOKENS]; /* its tokens from there on, n_held of them */
    size_t n_held;
} gem_prefix_miss;

/* Where tokens[n] part from the entry that they follow furthest. False when nothing is stored or
 * the prompt only goes on from what is, or ends in it. Any thread. */
bool gem_prefix_cache_miss(gem_prefix_cache *c, const int32_t *tokens, size_t n,
                           gem_prefix_miss *out);

#endif
