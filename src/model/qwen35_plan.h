/* qwen35_plan.h - the Qwen3.5 hybrid as ops of a plan; qwen35.c gives numbers and weights. */
#ifndef GEM_QWEN35_PLAN_H
#define GEM_QWEN35_PLAN_H

#include "backend/plan.h"
#include "model/manifest.h"

typedef struct gem_hybrid {
    int n_layers, n_heads, n_kv_heads, head_dim;
    int32_t d_model, d_ff, n_vocab, n_ctx_train;
    float eps;
    gem_rope rope;
    gem_recurrent recurrent;  /* n_layers is counted here */
    const bool *is_recurrent; /* [n_layers], borrowed */
    bool drafter;             /* layer[n_layers] of w becomes the drafter */
    const gem_weights *w;     /* borrowed; layer[n_layers], where the file has it, is the block that
                               * predicts ahead: an attention layer with a head of its own norms */
} gem_hybrid;

/* Write the whole plan. On failure *out holds nothing that must be freed. */
gem_status gem_hybrid_plan(gem_plan *out, const char *family, const gem_hybrid *m, gem_error *err);

#endif
