/* dense.h - the dense pre-norm decoder that gemma3, gemma4 and qwen2 share, as ops of a plan. A
 * family gives numbers and weights; what it lacks (biases, query/key norms, post norms) is NULL. */
#ifndef GEM_DENSE_H
#define GEM_DENSE_H

#include "backend/plan.h"
#include "model/manifest.h"

typedef struct gem_dense_layer {
    int n_kv_heads, head_dim;
    int32_t window;  /* 0: sees all */
    int rope;        /* index into ropes */
    float out_scale; /* the residual behind the layer is multiplied by it */
} gem_dense_layer;

typedef struct gem_dense {
    int n_layers, n_heads;
    int32_t d_model, d_ff, n_vocab, n_ctx_train;
    float eps, embed_scale, q_scale, softcap;
    gem_act act;
    bool v_norm;   /* values are normed per head, without a weight */
    gem_weights w; /* a layer without v takes its values from k, as it is before k_norm */
    const gem_dense_layer *layer; /* [n_layers], borrowed */
    gem_rope ropes[GEM_PLAN_MAX_ROPES];
    int n_ropes;
} gem_dense;

/* Checks that families share; GEM_E_FORMAT or GEM_E_UNSUPPORTED names key and value.
 * heads: a group of query heads per KV head; head sizes that kernels can cut into vectors. */
gem_status gem_dense_check_heads(const gem_gguf *g, const char *arch, uint32_t n_heads,
                                 uint32_t n_kv_heads, uint32_t head_dim, gem_error *err);
gem_status gem_dense_check_vocab(const gem_gguf *g, const char *arch, uint32_t vocab_size,
                                 int32_t n_vocab, gem_error *err);
/* What positions are multiplied by: 1, or 1/factor for linear scaling. */
gem_status gem_dense_rope_scale(const gem_gguf *g, const char *arch, gem_str type, float factor,
                                float *scale, gem_error *err);

/* Write the whole plan. On failure *out holds nothing that must be freed. */
gem_status gem_dense_plan(gem_plan *out, const char *family, const gem_dense *m, gem_error *err);

#endif
