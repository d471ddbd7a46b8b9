/* seed.h - the values of a seeded KV memory, the same on every backend: a page's values in the
 * order of cpu/kernels.h (gem_page_k_at, gem_page_v_at), head behind head, follow a pattern from a
 * place that page and pool decide. */
#ifndef GEM_BACKEND_SEED_H
#define GEM_BACKEND_SEED_H

#include "base/base.h"

enum {
    GEM_SEED_PATTERN = 16411
}; /* values until they repeat: a prime, so that no two pages look
      alike */

/* One value in eight is not zero, and none is larger than a half, so that scores stay small; all
 * are exact in half precision. out: f32[GEM_SEED_PATTERN]. */
void gem_seed_pattern(uint64_t seed, float *out);

/* Where in the pattern a page begins: its value i is pattern[(start + i) % GEM_SEED_PATTERN]. */
static inline size_t gem_seed_start(int pool, int64_t page)
{
    return (size_t)((page * 7919 + pool * 104729) % GEM_SEED_PATTERN);
}

#endif
