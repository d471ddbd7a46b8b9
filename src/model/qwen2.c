/* qwen2.c - the Qwen2 and Qwen2.5 family: manifest and plan (arXiv:2407.10671; keys:
 * docs/formats.md). Grouped-query attention over all positions, biases on queries, keys and values,
 * SiLU gate; the head is its own matrix or the embedding. */
#include "model/dense.h"
#include "model/families.h"

#include <math.h>
#include <stddef.h>

typedef struct params {
    uint32_t n_ctx, d_model, n_layers, d_ff, n_heads, n_kv_heads, key_dim, value_dim, rope_dims,
        vocab;
    float eps, theta, rope_factor;
    gem_str rope_scaling;
} params;

#define P(field) offsetof(params, field)
static const gem_key_spec keys[] = {
    {"context_length", GEM_KEY_U32, true, 1, 1 << 24, P(n_ctx),
     "positions the model was trained for"},
    {"embedding_length", GEM_KEY_U32, true, 1, 1 << 18, P(d_model), "d_model"},
    {"block_count", GEM_KEY_U32, true, 1, GEM_MAX_LAYERS, P(n_layers), "n_layers"},
    {"feed_forward_length", GEM_KEY_U32, true, 1, 1 << 20, P(d_ff), "d_ff"},
    {"attention.head_count", GEM_KEY_U32, true, 1, 1024, P(n_heads), "n_heads"},
    {"attention.head_count_kv", GEM_KEY_U32, false, 1, 1024, P(n_kv_heads), "n_kv_heads"},
    {"attention.key_length", GEM_KEY_U32, false, 1, 1024, P(key_dim), "head_dim"},
    {"attention.value_length", GEM_KEY_U32, false, 1, 1024, P(value_dim), "head_dim of values"},
    {"attention.layer_norm_rms_epsilon", GEM_KEY_F32, true, 1e-12, 1e-3, P(eps),
     "RMS norm epsilon"},
    {"rope.freq_base", GEM_KEY_F32, false, 1, 1e12, P(theta), "rope_theta"},
    {"rope.dimension_count", GEM_KEY_U32, false, 1, 1024, P(rope_dims), "dims that rotate"},
    {"rope.scaling.type", GEM_KEY_STR, false, 0, 0, P(rope_scaling), "none or linear"},
    {"rope.scaling.factor", GEM_KEY_F32, false, 1, 1e6, P(rope_factor), "positions divided by it"},
    {"vocab_size", GEM_KEY_U32, false, 1, 1 << 24, P(vocab), "n_vocab"},
};
#undef P

#define T(field) offsetof(gem_weights, field)
#define L(field) offsetof(gem_layer_weights, field)
static const gem_tensor_spec top[] = {
    {"token_embd.weight", {GEM_DIM_MODEL, GEM_DIM_VOCAB}, true, T(token_embd)},
    {"output_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, T(output_norm)},
    {"output.weight", {GEM_DIM_MODEL, GEM_DIM_VOCAB}, false, T(output)},
};
static const gem_tensor_spec layer[] = {
    {"attn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(attn_norm)},
    {"attn_q.weight", {GEM_DIM_MODEL, GEM_DIM_Q}, true, L(q)},
    {"attn_q.bias", {GEM_DIM_Q, GEM_DIM_NONE}, true, L(q_bias)},
    {"attn_k.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(k)},
    {"attn_k.bias", {GEM_DIM_KV, GEM_DIM_NONE}, true, L(k_bias)},
    {"attn_v.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(v)},
    {"attn_v.bias", {GEM_DIM_KV, GEM_DIM_NONE}, true, L(v_bias)},
    {"attn_output.weight", {GEM_DIM_Q, GEM_DIM_MODEL}, true, L(o)},
    {"ffn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(ffn_norm)},
    {"ffn_gate.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(gate)},
    {"ffn_up.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(up)},
    {"ffn_down.weight", {GEM_DIM_FF, GEM_DIM_MODEL}, true, L(down)},
};
#undef T
#undef L

static const gem_manifest manifest = {"qwen2",        keys,  ARRAY_LEN(keys), top,
                                      ARRAY_LEN(top), layer, ARRAY_LEN(layer)};

static gem_status check_params(const gem_gguf *g, params *p, gem_error *err)
{
    if (!p->n_kv_heads) p->n_kv_heads = p->n_heads;
    if (p->d_model % p->n_heads != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key qwen2.embedding_length is %u, no multiple of %u heads",
                        gem_gguf_path(g), p->d_model, p->n_heads);
    uint32_t hd = p->d_model / p->n_heads;
    if ((p->key_dim && p->key_dim != hd) || (p->value_dim && p->value_dim != hd) ||
        (p->rope_dims && p->rope_dims != hd))
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: key length %u, value length %u, rotated dims %u; qwen2 has %u for all",
                        gem_gguf_path(g), p->key_dim, p->value_dim, p->rope_dims, hd);
    p->key_dim = hd;
    return gem_dense_check_heads(g, manifest.arch, p->n_heads, p->n_kv_heads, hd, err);
}

static gem_status plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter, gem_error *err)
{
    (void)drafter; /* files of this family bring none */
    params p = {.theta = 1e6f, .rope_factor = 1.0f, .vocab = (uint32_t)n_vocab};
    gem_dense_layer layers[GEM_MAX_LAYERS];
    float rope_scale;
    gem_dense m = {0};
    gem_status st;

    if ((st = gem_manifest_read(&manifest, g, &p, err)) != GEM_OK) return st;
    if ((st = check_params(g, &p, err)) != GEM_OK) return st;
    if ((st = gem_dense_rope_scale(g, manifest.arch, p.rope_scaling, p.rope_factor, &rope_scale,
                                   err)) != GEM_OK)
        return st;
    if ((st = gem_dense_check_vocab(g, manifest.arch, p.vocab, n_vocab, err)) != GEM_OK) return st;

    const uint64_t size[GEM_DIM_COUNT] = {
        [GEM_DIM_MODEL] = p.d_model, [GEM_DIM_FF] = p.d_ff,
        [GEM_DIM_Q] = p.d_model,     [GEM_DIM_KV] = (uint64_t)p.n_kv_heads * p.key_dim,
        [GEM_DIM_HEAD] = p.key_dim,  [GEM_DIM_VOCAB] = (uint64_t)n_vocab,
    };
    if ((st = gem_manifest_bind(&manifest, g, size, NULL, p.n_layers, &m.w, err)) != GEM_OK)
        return st;

    for (uint32_t l = 0; l < p.n_layers; l++)
        layers[l] = (gem_dense_layer){
            .n_kv_heads = (int)p.n_kv_heads, .head_dim = (int)p.key_dim, .out_scale = 1.0f};
    m.n_layers = (int)p.n_layers;
    m.n_heads = (int)p.n_heads;
    m.d_model = (int32_t)p.d_model;
    m.d_ff = (int32_t)p.d_ff;
    m.n_vocab = n_vocab;
    m.n_ctx_train = (int32_t)p.n_ctx;
    m.eps = p.eps;
    m.embed_scale = 1.0f;
    m.q_scale = 1.0f / sqrtf((float)p.key_dim);
    m.act = GEM_ACT_SILU;
    m.layer = layers;
    m.n_ropes = 1;
    m.ropes[0] = (gem_rope){.theta = p.theta, .n_dims = (int)p.key_dim, .scale = rope_scale};

    st = gem_dense_plan(out, manifest.arch, &m, err);
    gem_weights_free(&m.w);
    return st;
}

const gem_family gem_family_qwen2 = {.arch = "qwen2", .plan = plan, .manifest = &manifest};
