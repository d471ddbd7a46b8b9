/* gemma3.c - the Gemma 3 text family: manifest and plan (arXiv:2503.19786; keys: docs/formats.md).
 * Five layers of six slide over a window with rotary base 1e4, the sixth sees all with base 1e6;
 * norms before and after attention and FFN; queries and keys normed per head. Stored norm weights
 * already contain the "+1" of the original. */
#include "model/dense.h"
#include "model/families.h"

#include <math.h>
#include <stddef.h>

typedef struct params {
    uint32_t n_ctx, d_model, n_layers, d_ff, n_heads, n_kv_heads, head_dim, value_dim, window;
    uint32_t key_swa, value_swa, rope_dims, rope_dims_swa, vocab;
    float eps, theta, theta_swa, rope_factor, softcap, attn_softcap;
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
    {"attention.head_count_kv", GEM_KEY_U32, true, 1, 1024, P(n_kv_heads), "n_kv_heads"},
    {"attention.key_length", GEM_KEY_U32, true, 1, 1024, P(head_dim), "head_dim"},
    {"attention.value_length", GEM_KEY_U32, true, 1, 1024, P(value_dim), "head_dim of values"},
    {"attention.key_length_swa", GEM_KEY_U32, false, 1, 1024, P(key_swa),
     "head_dim, sliding layers"},
    {"attention.value_length_swa", GEM_KEY_U32, false, 1, 1024, P(value_swa), "the same of values"},
    {"attention.layer_norm_rms_epsilon", GEM_KEY_F32, true, 1e-12, 1e-3, P(eps),
     "RMS norm epsilon"},
    {"attention.sliding_window", GEM_KEY_U32, false, 0, 1 << 24, P(window), "window; 0: none"},
    {"attention.sliding_window_pattern", GEM_KEY_SPECIAL, false, 0, 0, 0,
     "period (last of each is global) or one flag a layer (true slides)"},
    {"rope.freq_base", GEM_KEY_F32, true, 1, 1e12, P(theta), "rope_theta of global layers"},
    {"rope.freq_base_swa", GEM_KEY_F32, false, 1, 1e12, P(theta_swa), "rope_theta, sliding layers"},
    {"rope.dimension_count", GEM_KEY_U32, false, 1, 1024, P(rope_dims), "dims that rotate"},
    {"rope.dimension_count_swa", GEM_KEY_U32, false, 1, 1024, P(rope_dims_swa),
     "the same, sliding"},
    {"rope.scaling.type", GEM_KEY_STR, false, 0, 0, P(rope_scaling),
     "none or linear (global layers)"},
    {"rope.scaling.factor", GEM_KEY_F32, false, 1, 1e6, P(rope_factor), "positions divided by it"},
    {"final_logit_softcapping", GEM_KEY_F32, false, 0, 1e6, P(softcap), "softcap; 0: none"},
    {"attn_logit_softcapping", GEM_KEY_F32, false, 0, 1e6, P(attn_softcap), "must be 0"},
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
    {"attn_k.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(k)},
    {"attn_v.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(v)},
    {"attn_q_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(q_norm)},
    {"attn_k_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(k_norm)},
    {"attn_output.weight", {GEM_DIM_Q, GEM_DIM_MODEL}, true, L(o)},
    {"post_attention_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(post_attn_norm)},
    {"ffn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(ffn_norm)},
    {"ffn_gate.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(gate)},
    {"ffn_up.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(up)},
    {"ffn_down.weight", {GEM_DIM_FF, GEM_DIM_MODEL}, true, L(down)},
    {"post_ffw_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(post_ffn_norm)},
};
#undef T
#undef L

static const gem_manifest manifest = {"gemma3",       keys,  ARRAY_LEN(keys), top,
                                      ARRAY_LEN(top), layer, ARRAY_LEN(layer)};

/* sliding[l] for every layer: without a key, the last of each six is global. */
static gem_status read_pattern(const gem_gguf *g, uint32_t n_layers, bool *sliding, gem_error *err)
{
    const char *key = "gemma3.attention.sliding_window_pattern";
    const gem_kv *kv = gem_gguf_find(g, key);
    uint32_t period = 6;
    if (kv && kv->kind == GEM_GGUF_ARRAY) {
        if (kv->elem != GEM_GGUF_BOOL || kv->n != n_layers)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: key %s has %llu elements, expected %u booleans, one a layer",
                            gem_gguf_path(g), key, (unsigned long long)kv->n, n_layers);
        for (uint32_t l = 0; l < n_layers; l++)
            sliding[l] = kv->v.array[l] != 0;
        return GEM_OK;
    }
    gem_status st = gem_gguf_get_u32(g, key, false, 1, 1 << 16, &period, err);
    if (st != GEM_OK) return st;
    for (uint32_t l = 0; l < n_layers; l++)
        sliding[l] = l % period != period - 1;
    return GEM_OK;
}

static gem_status same(const gem_gguf *g, const char *key, uint32_t value, uint32_t want,
                       gem_error *err)
{
    if (value == want) return GEM_OK;
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: key gemma3.%s is %u; only %u, as the keys' length, is supported",
                    gem_gguf_path(g), key, value, want);
}

static gem_status check_params(const gem_gguf *g, params *p, gem_error *err)
{
    gem_status st;
    uint32_t hd = p->head_dim;
    if (!p->key_swa) p->key_swa = hd;
    if (!p->value_swa) p->value_swa = hd;
    if (!p->rope_dims) p->rope_dims = hd;
    if (!p->rope_dims_swa) p->rope_dims_swa = hd;
    if ((st = same(g, "attention.value_length", p->value_dim, hd, err)) != GEM_OK) return st;
    if ((st = same(g, "attention.key_length_swa", p->key_swa, hd, err)) != GEM_OK) return st;
    if ((st = same(g, "attention.value_length_swa", p->value_swa, hd, err)) != GEM_OK) return st;
    if ((st = same(g, "rope.dimension_count", p->rope_dims, hd, err)) != GEM_OK) return st;
    if ((st = same(g, "rope.dimension_count_swa", p->rope_dims_swa, hd, err)) != GEM_OK) return st;
    if (p->attn_softcap != 0.0f)
        return gem_fail(
            err, GEM_E_UNSUPPORTED,
            "%s: key gemma3.attn_logit_softcapping is %g; capped attention is not supported",
            gem_gguf_path(g), (double)p->attn_softcap);
    return gem_dense_check_heads(g, manifest.arch, p->n_heads, p->n_kv_heads, hd, err);
}

static gem_status plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter, gem_error *err)
{
    (void)drafter; /* files of this family bring none */
    params p = {.theta_swa = 1e4f, .rope_factor = 1.0f, .vocab = (uint32_t)n_vocab};
    bool sliding[GEM_MAX_LAYERS];
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
    if ((st = read_pattern(g, p.n_layers, sliding, err)) != GEM_OK) return st;

    const uint64_t size[GEM_DIM_COUNT] = {
        [GEM_DIM_MODEL] = p.d_model,
        [GEM_DIM_FF] = p.d_ff,
        [GEM_DIM_Q] = (uint64_t)p.n_heads * p.head_dim,
        [GEM_DIM_KV] = (uint64_t)p.n_kv_heads * p.head_dim,
        [GEM_DIM_HEAD] = p.head_dim,
        [GEM_DIM_VOCAB] = (uint64_t)n_vocab,
    };
    if ((st = gem_manifest_bind(&manifest, g, size, NULL, p.n_layers, &m.w, err)) != GEM_OK)
        return st;

    for (uint32_t l = 0; l < p.n_layers; l++) {
        bool slides = sliding[l] && p.window > 0;
        layers[l] = (gem_dense_layer){.n_kv_heads = (int)p.n_kv_heads,
                                      .head_dim = (int)p.head_dim,
                                      .window = slides ? (int32_t)p.window : 0,
                                      .rope = slides ? 1 : 0,
                                      .out_scale = 1.0f};
    }
    m.n_layers = (int)p.n_layers;
    m.n_heads = (int)p.n_heads;
    m.d_model = (int32_t)p.d_model;
    m.d_ff = (int32_t)p.d_ff;
    m.n_vocab = n_vocab;
    m.n_ctx_train = (int32_t)p.n_ctx;
    m.eps = p.eps;
    m.embed_scale = sqrtf((float)p.d_model);
    /* the 27B (62 layers) scales by d_model / n_heads = 168, all others by the head size: field
     * query_pre_attn_scalar of the published configurations, which GGUF files do not carry */
    m.q_scale =
        1.0f / sqrtf(p.n_layers == 62 ? (float)p.d_model / (float)p.n_heads : (float)p.head_dim);
    m.softcap = p.softcap;
    m.act = GEM_ACT_GELU_TANH;
    m.layer = layers;
    m.n_ropes = 2;
    m.ropes[0] = (gem_rope){.theta = p.theta, .n_dims = (int)p.head_dim, .scale = rope_scale};
    m.ropes[1] = (gem_rope){.theta = p.theta_swa, .n_dims = (int)p.head_dim, .scale = 1.0f};

    st = gem_dense_plan(out, manifest.arch, &m, err);
    gem_weights_free(&m.w);
    return st;
}

const gem_family gem_family_gemma3 = {.arch = "gemma3", .plan = plan, .manifest = &manifest};
