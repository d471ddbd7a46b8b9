/* ops.h - steps that the plans of several families share. Each appends ops to a plan; false or NULL
 * when out of memory. */
#ifndef GEM_MODEL_OPS_H
#define GEM_MODEL_OPS_H

#include "backend/plan.h"
#include "model/manifest.h"

/* Activation buffers of a decoder: the residual x, its norm h, what a sub-block adds, and what lies
 * between. */
typedef struct gem_bufs {
    gem_buf x, h, q, k, v, att, out, gate, up;
} gem_bufs;

typedef struct gem_part {
    const gem_tensor *w, *bias; /* bias may be NULL */
    gem_buf dst;
} gem_part;

bool gem_add_embed(gem_plan *p, int layer, const gem_tensor *w, gem_buf dst, int32_t at,
                   float scale);
bool gem_add_norm(gem_plan *p, int layer, gem_buf src, gem_buf dst, int32_t at, const gem_tensor *w,
                  float eps);
/* Up to GEM_LINEAR_MAX weights that share an input. */
bool gem_add_linear(gem_plan *p, int layer, gem_buf src, const gem_part *part, int n);
/* out = down(act(gate h) * up h) */
bool gem_add_ffn(gem_plan *p, int layer, const gem_bufs *b, const gem_layer_weights *w,
                 gem_act act);
/* x += out; h = rms(x, next). Norm behind the sub-block and scale are for the caller to set. */
gem_op *gem_add_residual(gem_plan *p, int layer, const gem_bufs *b, const gem_tensor *next,
                         float eps);
bool gem_add_head(gem_plan *p, int layer, gem_buf src, const gem_tensor *w, float softcap);

#endif
