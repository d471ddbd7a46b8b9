/* manifest.h - what a family's file must hold, as data. A family declares its keys and tensors
 * once; the same tables read and check a file, mark what is explained, and describe it to `gem
 * inspect`. */
#ifndef GEM_MANIFEST_H
#define GEM_MANIFEST_H

#include "gguf/gguf.h"

typedef enum gem_key_kind {
    GEM_KEY_U32,    /* uint32_t at `at` */
    GEM_KEY_F32,    /* float */
    GEM_KEY_STR,    /* gem_str */
    GEM_KEY_SPECIAL /* of several shapes: the family reads it itself; `at` unused */
} gem_key_kind;

typedef struct gem_key_spec {
    const char *name; /* behind "<arch>." */
    gem_key_kind kind;
    bool required;
    double min, max; /* inclusive, for numbers */
    size_t at;       /* offset in the family's parameter struct, which holds the default */
    const char *means;
} gem_key_spec;

/* Symbolic sizes of tensor dims; the family gives their values after it has read its keys. */
typedef enum gem_dim {
    GEM_DIM_NONE,  /* second dim of a vector */
    GEM_DIM_MODEL, /* d_model */
    GEM_DIM_FF,    /* d_ff */
    GEM_DIM_Q,     /* n_heads * head_dim */
    GEM_DIM_KV,    /* n_kv_heads * head_dim */
    GEM_DIM_HEAD,  /* head_dim */
    GEM_DIM_VOCAB, /* n_vocab */
    GEM_DIM_ROPE,  /* pairs that rotary factors are given for */
    GEM_DIM_ONE,   /* 1 */
    /* hybrids */
    GEM_DIM_GATED_Q, /* queries and their gates: 2 * n_heads * head_dim */
    GEM_DIM_TAPS,    /* of the short convolution */
    GEM_DIM_CONV,    /* its channels: q, k and v of the recurrent heads */
    GEM_DIM_INNER,   /* n_v_heads * their head_dim */
    GEM_DIM_V_HEADS, /* n_v_heads */
    GEM_DIM_STATE,   /* head_dim of recurrent heads */
    GEM_DIM_TWICE,   /* two vectors side by side: 2 * d_model; of a drafter in a file of its own
                      * that of the model it is made for */
    GEM_DIM_TARGET,  /* d_model of that model */
    GEM_DIM_COUNT
} gem_dim;

typedef struct gem_tensor_spec {
    const char *name; /* whole, or behind "blk.N." for tensors of a layer */
    gem_dim dim[2];   /* contiguous one first; {x, GEM_DIM_NONE}: a vector, F32 */
    bool required;
    size_t at; /* offset of the const gem_tensor * in gem_weights or gem_layer_weights */
} gem_tensor_spec;

typedef struct gem_manifest {
    const char *arch; /* general.architecture and the namespace of its keys */
    const gem_key_spec *key;
    size_t n_keys;
    const gem_tensor_spec *top; /* once a file */
    size_t n_top;
    const gem_tensor_spec *layer; /* once a layer */
    size_t n_layer;
} gem_manifest;

/* Tensors by role; NULL where a family has none. Borrowed from the file. */
typedef struct gem_layer_weights {
    const gem_tensor *attn_norm, *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm, *o;
    const gem_tensor *post_attn_norm, *ffn_norm, *gate, *up, *down, *post_ffn_norm, *out_scale;
    /* recurrent layers */
    const gem_tensor *qkv, *z, *conv, *dt_bias, *ssm_a, *alpha, *beta, *ssm_norm, *ssm_out;
    /* block that predicts the token after the next */
    const gem_tensor *eh_proj, *e_norm, *h_norm, *head_norm;
} gem_layer_weights;

typedef struct gem_weights {
    const gem_tensor *token_embd, *output_norm, *output, *rope_freqs;
    const gem_tensor *pre_projection, *post_projection; /* of a drafter in a file of its own */
    gem_layer_weights *layer;                           /* owned, [n_layers] */
} gem_weights;

/* Read and mark every key of the table into `params`. GEM_E_FORMAT names key, value and range. */
gem_status gem_manifest_read(const gem_manifest *m, gem_gguf *g, void *params, gem_error *err);

/* Find, check and mark every tensor. size[] by gem_dim; layer_size[n_layers], each by gem_dim,
 * where layers differ (NULL: all as size). Vectors must be F32 and finite.
 * GEM_E_FORMAT names the tensor, its shape and the expected one. Free with gem_weights_free. */
gem_status gem_manifest_bind(const gem_manifest *m, gem_gguf *g, const uint64_t size[GEM_DIM_COUNT],
                             const uint64_t *const *layer_size, uint32_t n_layers, gem_weights *out,
                             gem_error *err);
/* The same for one layer and a table of its own, where layers are of several kinds. */
gem_status gem_manifest_bind_layer(const gem_tensor_spec *spec, size_t n, gem_gguf *g,
                                   const uint64_t size[GEM_DIM_COUNT], uint32_t layer,
                                   gem_layer_weights *out, gem_error *err);
void gem_weights_free(gem_weights *w); /* contents */

/* GEM_E_FORMAT when a key of the family's namespace or any tensor was not explained. */
gem_status gem_manifest_leftovers(const gem_manifest *m, const gem_gguf *g, gem_error *err);

/* A feature of a relative that a family does not run, known by a tensor's name: `part` stands
 * anywhere in it, at its start (^...) or at its end (...$). */
typedef struct gem_foreign {
    const char *part, *why;
} gem_foreign;
/* The first tensor that has one of the n parts, and which; the table's order counts for one tensor.
 * NULL: none. */
const char *gem_manifest_foreign(const gem_gguf *g, const gem_foreign *table, size_t n,
                                 const char **why);

/* What a key of a file means, for people: NULL when the manifest does not know it. */
const gem_key_spec *gem_manifest_key(const gem_manifest *m, const char *key);

/* Data of a vector, NULL for NULL. */
const float *gem_vector(const gem_tensor *t);

#endif
