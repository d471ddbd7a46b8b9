/* gemma4.h - what the files of Gemma 4 models and of their drafters have in common: keys of several
 * shapes, rotary factors. `arch` is the namespace of the keys. */
#ifndef GEM_MODEL_GEMMA4_H
#define GEM_MODEL_GEMMA4_H

#include "backend/plan.h"

/* One number for all layers, or an array of one a layer, each 1 to max; out[n_layers]. GEM_E_FORMAT
 * names the key. */
gem_status gem_gemma4_per_layer(const gem_gguf *g, const char *arch, const char *name,
                                uint32_t n_layers, uint32_t max, uint32_t *out, gem_error *err);
/* Which layers slide; the last one never does. GEM_E_FORMAT. */
gem_status gem_gemma4_pattern(const gem_gguf *g, const char *arch, uint32_t n_layers, bool *sliding,
                              gem_error *err);
/* Angles are divided by the factors (t may be NULL): none may be near 0. GEM_E_FORMAT. */
gem_status gem_gemma4_factors(const gem_gguf *g, const gem_tensor *t, gem_error *err);
/* Rotation in layers that see all; without factors the first quarter of the pairs rotates. */
gem_rope gem_gemma4_rope(float theta, int head_dim, const gem_tensor *factors);

#endif
