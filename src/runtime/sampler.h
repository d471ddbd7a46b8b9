/* sampler.h - inside the runtime: drawing from the largest logits of a row alone. Called by the
 * session for rows whose logits stay with the backend; everything else of a sampler is in gem.h. */
#ifndef GEM_SAMPLER_H
#define GEM_SAMPLER_H

#include "backend/backend.h"

/* The token that gem_sampler_draw draws from the row that `top` is of, with the same errors; the
 * sampler goes on from there the same way. It must not need all logits (gem_sampler_needs_all). */
gem_status gem_sampler_draw_top(gem_sampler *s, const gem_top *top, int32_t *token, gem_error *err);

#endif
