/* gemma4.c - the dense Gemma 4 text family (12B, 31B): manifest and plan (keys: docs/formats.md).
 * As gemma3, and beside it: layers that see all have larger heads, fewer of them, and no values of
 * their own (the k projection serves, before its norm); values are normed without a weight; scores
 * are not scaled; a quarter of the global heads' pairs rotate; each layer ends in a scalar that
 * multiplies the whole residual. Norm weights are plain multipliers: nothing is added to them. */
#include "model/gemma4.h"

#include "model/dense.h"
#include "model/families.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct params {
    uint32_t n_ctx, d_model, n_layers, d_ff, n_heads, window, vocab;
    uint32_t key, value, key_swa, value_swa, rope_dims, rope_dims_swa;
    uint32_t per_layer, shared_kv, experts, experts_used, expert_ff;
    float eps, theta, theta_swa, softcap;
} params;

#define ARCH "gemma4"
#define P(field) offsetof(params, field)
static const gem_key_spec keys[] = {
    {"context_length", GEM_KEY_U32, true, 1, 1 << 24, P(n_ctx),
     "positions the model was trained for"},
    {"embedding_length", GEM_KEY_U32, true, 1, 1 << 18, P(d_model), "d_model"},
    {"block_count", GEM_KEY_U32, true, 1, GEM_MAX_LAYERS, P(n_layers), "n_layers"},
    {"feed_forward_length", GEM_KEY_SPECIAL, true, 0, 0, 0, "d_ff, the same in all layers"},
    {"attention.head_count", GEM_KEY_U32, true, 1, 1024, P(n_heads), "n_heads"},
    {"attention.head_count_kv", GEM_KEY_SPECIAL, true, 0, 0, 0,
     "n_kv_heads, one number or one a layer"},
    {"attention.key_length", GEM_KEY_U32, true, 1, 1024, P(key), "head_dim, global layers"},
    {"attention.value_length", GEM_KEY_U32, true, 1, 1024, P(value), "the same of values"},
    {"attention.key_length_swa", GEM_KEY_U32, true, 1, 1024, P(key_swa),
     "head_dim, sliding layers"},
    {"attention.value_length_swa", GEM_KEY_U32, true, 1, 1024, P(value_swa), "the same of values"},
    {"attention.layer_norm_rms_epsilon", GEM_KEY_F32, true, 1e-12, 1e-3, P(eps),
     "RMS norm epsilon"},
    {"attention.sliding_window", GEM_KEY_U32, true, 1, 1 << 24, P(window), "window"},
    {"attention.sliding_window_pattern", GEM_KEY_SPECIAL, true, 0, 0, 0,
     "one flag a layer: true slides"},
    {"attention.shared_kv_layers", GEM_KEY_U32, false, 0, GEM_MAX_LAYERS, P(shared_kv),
     "must be 0"},
    {"rope.freq_base", GEM_KEY_F32, true, 1, 1e12, P(theta), "rope_theta of global layers"},
    {"rope.freq_base_swa", GEM_KEY_F32, false, 1, 1e12, P(theta_swa), "rope_theta, sliding layers"},
    {"rope.dimension_count", GEM_KEY_U32, false, 1, 1024, P(rope_dims),
     "head_dim of global layers, though rope_freqs stops most pairs"},
    {"rope.dimension_count_swa", GEM_KEY_U32, false, 1, 1024, P(rope_dims_swa),
     "head_dim of sliding layers"},
    /* required: engines disagree on what its absence means */
    {"final_logit_softcapping", GEM_KEY_F32, true, 1e-3, 1e6, P(softcap), "softcap"},
    {"embedding_length_per_layer_input", GEM_KEY_U32, false, 0, 1 << 18, P(per_layer), "must be 0"},
    {"expert_count", GEM_KEY_U32, false, 0, 1 << 16, P(experts), "must be 0"},
    {"expert_used_count", GEM_KEY_U32, false, 0, 1 << 16, P(experts_used), "unused"},
    {"expert_feed_forward_length", GEM_KEY_U32, false, 0, 1 << 20, P(expert_ff), "unused"},
    {"vocab_size", GEM_KEY_U32, false, 1, 1 << 24, P(vocab), "n_vocab"},
};
#undef P

#define T(field) offsetof(gem_weights, field)
#define L(field) offsetof(gem_layer_weights, field)
static const gem_tensor_spec top[] = {
    {"token_embd.weight", {GEM_DIM_MODEL, GEM_DIM_VOCAB}, true, T(token_embd)},
    {"output_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, T(output_norm)},
    {"output.weight", {GEM_DIM_MODEL, GEM_DIM_VOCAB}, false, T(output)},
    {"rope_freqs.weight", {GEM_DIM_ROPE, GEM_DIM_NONE}, false, T(rope_freqs)},
};
static const gem_tensor_spec layer[] = {
    {"attn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(attn_norm)},
    {"attn_q.weight", {GEM_DIM_MODEL, GEM_DIM_Q}, true, L(q)},
    {"attn_k.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(k)},
    {"attn_v.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, false, L(v)}, /* check_values */
    {"attn_q_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(q_norm)},
    {"attn_k_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(k_norm)},
    {"attn_output.weight", {GEM_DIM_Q, GEM_DIM_MODEL}, true, L(o)},
    {"post_attention_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(post_attn_norm)},
    {"ffn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(ffn_norm)},
    {"ffn_gate.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(gate)},
    {"ffn_up.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(up)},
    {"ffn_down.weight", {GEM_DIM_FF, GEM_DIM_MODEL}, true, L(down)},
    {"post_ffw_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(post_ffn_norm)},
    {"layer_output_scale.weight", {GEM_DIM_ONE, GEM_DIM_NONE}, true, L(out_scale)},
};
#undef T
#undef L

static const gem_manifest manifest = {ARCH,           keys,  ARRAY_LEN(keys), top,
                                      ARRAY_LEN(top), layer, ARRAY_LEN(layer)};

/* ---- relatives ---- */

static gem_status refuse(const gem_gguf *g, const char *what, const char *why, gem_error *err)
{
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: %s: %s; of gemma4 the dense text models (12B, 31B) are supported",
                    gem_gguf_path(g), what, why);
}

/* Known by its tensors, so that the feature is named even where a key was left out. */
static const gem_foreign foreign[] = {
    {"per_layer_", "per-layer embeddings (E2B, E4B)"},
    {".inp_gate.", "per-layer embeddings (E2B, E4B)"},
    {".proj.weight", "per-layer embeddings (E2B, E4B)"},
    {".post_norm.", "per-layer embeddings (E2B, E4B)"},
    {"ffn_gate_inp", "a mixture of experts (26B-A4B)"},
    {"_exps.", "a mixture of experts (26B-A4B)"},
    {".pre_ffw_norm_2.", "a mixture of experts (26B-A4B)"},
    {".post_ffw_norm_1.", "a mixture of experts (26B-A4B)"},
    {".post_ffw_norm_2.", "a mixture of experts (26B-A4B)"},
    {".scale$", "weights with scales beside them (NVFP4)"},
    {".input_scale$", "weights with scales beside them (NVFP4)"},
    {".attn_qkv.", "fused attention weights"},
    {"nextn.", "a drafter, which runs only beside its target model"},
    {"masked_embd_", "a drafter, which runs only beside its target model"},
    {"^v.", "a vision tower, which belongs into a projector file"},
    {"^a.", "an audio tower, which belongs into a projector file"},
    {"^mm.", "a multimodal projector"},
};

static gem_status check_relatives(const gem_gguf *g, const params *p, gem_error *err)
{
    if (p->per_layer)
        return refuse(g, "key " ARCH ".embedding_length_per_layer_input is not 0",
                      "per-layer embeddings (E2B, E4B)", err);
    if (p->shared_kv)
        return refuse(g, "key " ARCH ".attention.shared_kv_layers is not 0",
                      "layers that share keys and values (E2B, E4B)", err);
    if (p->experts)
        return refuse(g, "key " ARCH ".expert_count is not 0", "a mixture of experts (26B-A4B)",
                      err);
    const char *why, *name = gem_manifest_foreign(g, foreign, ARRAY_LEN(foreign), &why);
    return name ? refuse(g, name, why, err) : GEM_OK;
}

/* ---- keys of several shapes ---- */

gem_status gem_gemma4_per_layer(const gem_gguf *g, const char *arch, const char *name,
                                uint32_t n_layers, uint32_t max, uint32_t *out, gem_error *err)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.%s", arch, name);
    const gem_kv *kv = gem_gguf_find(g, key);
    if (!kv || kv->kind != GEM_GGUF_ARRAY) {
        gem_status st = gem_gguf_get_u32(g, key, true, 1, max, out, err);
        for (uint32_t l = 1; l < n_layers && st == GEM_OK; l++)
            out[l] = out[0];
        return st;
    }
    if ((kv->elem != GEM_GGUF_I32 && kv->elem != GEM_GGUF_U32) || kv->n != n_layers)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key %s has %llu elements, expected %u integers, one a layer",
                        gem_gguf_path(g), key, (unsigned long long)kv->n, n_layers);
    for (uint32_t l = 0; l < n_layers; l++) {
        memcpy(&out[l], kv->v.array + 4 * (size_t)l, 4);
        if (out[l] < 1 || out[l] > max)
            return gem_fail(
                err, GEM_E_FORMAT, "%s: key %s: layer %u has %lld, expected 1 to %u",
                gem_gguf_path(g), key, l,
                kv->elem == GEM_GGUF_I32 ? (long long)(int32_t)out[l] : (long long)out[l], max);
    }
    return GEM_OK;
}

static gem_status read_d_ff(const gem_gguf *g, params *p, gem_error *err)
{
    uint32_t d_ff[GEM_MAX_LAYERS] = {0};
    gem_status st =
        gem_gemma4_per_layer(g, ARCH, "feed_forward_length", p->n_layers, 1 << 20, d_ff, err);
    for (uint32_t l = 1; l < p->n_layers && st == GEM_OK; l++)
        if (d_ff[l] != d_ff[0])
            return refuse(g, "key " ARCH ".feed_forward_length has several values",
                          "layers of different width (E2B)", err);
    p->d_ff = d_ff[0];
    return st;
}

gem_status gem_gemma4_pattern(const gem_gguf *g, const char *arch, uint32_t n_layers, bool *sliding,
                              gem_error *err)
{
    char key[96];
    snprintf(key, sizeof(key), "%s.attention.sliding_window_pattern", arch);
    const uint8_t *flags = NULL;
    uint64_t n = 0;
    gem_status st = gem_gguf_get_array(g, key, true, GEM_GGUF_BOOL, &flags, &n, err);
    if (st != GEM_OK) return st;
    if (n != n_layers)
        return gem_fail(err, GEM_E_FORMAT, "%s: key %s has %llu elements, expected %u, one a layer",
                        gem_gguf_path(g), key, (unsigned long long)n, n_layers);
    for (uint32_t l = 0; l < n_layers; l++)
        sliding[l] = flags[l] != 0;
    if (sliding[n_layers - 1])
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key %s: the last layer slides; it sees all in every model of the "
                        "family",
                        gem_gguf_path(g), key);
    return GEM_OK;
}

/* ---- values ---- */

static gem_status same(const gem_gguf *g, const char *key, uint32_t value, const char *other,
                       uint32_t want, gem_error *err)
{
    if (value == want) return GEM_OK;
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: key " ARCH ".%s is %u; only %u, as %s, is possible", gem_gguf_path(g), key,
                    value, want, other);
}

static gem_status check_params(const gem_gguf *g, params *p, const uint32_t *n_kv, gem_error *err)
{
    const struct {
        const char *key;
        uint32_t value;
        const char *other;
        uint32_t want;
    } equal[] = {
        {"attention.value_length", p->value, "the keys' length", p->key},
        {"attention.value_length_swa", p->value_swa, "the keys' length", p->key_swa},
        {"rope.dimension_count", p->rope_dims ? p->rope_dims : p->key, "attention.key_length",
         p->key},
        {"rope.dimension_count_swa", p->rope_dims_swa ? p->rope_dims_swa : p->key_swa,
         "attention.key_length_swa", p->key_swa},
    };
    gem_status st = GEM_OK;
    for (size_t i = 0; i < ARRAY_LEN(equal) && st == GEM_OK; i++)
        st = same(g, equal[i].key, equal[i].value, equal[i].other, equal[i].want, err);
    for (uint32_t l = 0; l < p->n_layers && st == GEM_OK; l++)
        st = gem_dense_check_heads(g, ARCH, p->n_heads, n_kv[l], p->key, err);
    if (st == GEM_OK) st = gem_dense_check_heads(g, ARCH, p->n_heads, n_kv[0], p->key_swa, err);
    return st;
}

/* Values of their own: every sliding layer, and of the global ones all or none. */
static gem_status check_values(const gem_gguf *g, const gem_weights *w, uint32_t n_layers,
                               const bool *sliding, gem_error *err)
{
    const gem_tensor *last = w->layer[n_layers - 1].v; /* a global one */
    for (uint32_t l = 0; l < n_layers; l++) {
        const gem_tensor *v = w->layer[l].v;
        if (!v && (sliding[l] || last))
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor blk.%u.attn_v.weight is missing",
                            gem_gguf_path(g), l);
        if (v && !sliding[l] && !last)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: tensor blk.%u.attn_v.weight: other global layers have none",
                            gem_gguf_path(g), l);
        float scale = *gem_vector(w->layer[l].out_scale);
        if (scale == 0.0f)
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor blk.%u.layer_output_scale.weight is 0",
                            gem_gguf_path(g), l);
    }
    return GEM_OK;
}

gem_status gem_gemma4_factors(const gem_gguf *g, const gem_tensor *t, gem_error *err)
{
    const float *f = gem_vector(t);
    for (uint64_t i = 0; t && i < t->dim[0]; i++)
        if (!(f[i] >= 1e-3f))
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: tensor rope_freqs.weight: value %llu is %g; angles are divided by "
                            "it",
                            gem_gguf_path(g), (unsigned long long)i, (double)f[i]);
    return GEM_OK;
}

/* Tokens that the model must never produce; the file may name none. */
static gem_status read_suppressed(gem_plan *out, const gem_gguf *g, int32_t n_vocab, gem_error *err)
{
    const char *key = "tokenizer.ggml.suppress_tokens";
    const uint8_t *ids = NULL;
    uint64_t n = 0;
    gem_status st = gem_gguf_get_array(g, key, false, GEM_GGUF_I32, &ids, &n, err);
    if (st != GEM_OK || n == 0) return st;
    if (n >= (uint64_t)n_vocab)
        return gem_fail(err, GEM_E_FORMAT, "%s: key %s has %llu elements for %d tokens",
                        gem_gguf_path(g), key, (unsigned long long)n, n_vocab);
    out->suppress = malloc((size_t)n * sizeof(*out->suppress));
    if (!out->suppress) return gem_fail(err, GEM_E_NOMEM, "no memory for %s", key);
    memcpy(out->suppress, ids, (size_t)n * sizeof(*out->suppress));
    for (uint64_t i = 0; i < n; i++)
        if (out->suppress[i] < 0 || out->suppress[i] >= n_vocab)
            return gem_fail(err, GEM_E_FORMAT, "%s: key %s: %d is no token of %d", gem_gguf_path(g),
                            key, out->suppress[i], n_vocab);
    out->n_suppress = (size_t)n;
    return GEM_OK;
}

/* ---- plan ---- */

gem_rope gem_gemma4_rope(float theta, int head_dim, const gem_tensor *factors)
{
    return (gem_rope){.theta = theta,
                      .n_dims = head_dim,
                      .scale = 1.0f,
                      .freq_factors = gem_vector(factors),
                      /* a quarter of the pairs; warn() says that the file should */
                      .n_pairs = factors ? 0 : head_dim / 8};
}

static void fill(gem_dense *m, const params *p, const uint32_t *n_kv, const bool *sliding,
                 gem_dense_layer *layers)
{
    for (uint32_t l = 0; l < p->n_layers; l++)
        layers[l] = (gem_dense_layer){.n_kv_heads = (int)n_kv[l],
                                      .head_dim = (int)(sliding[l] ? p->key_swa : p->key),
                                      .window = sliding[l] ? (int32_t)p->window : 0,
                                      .rope = sliding[l] ? 1 : 0,
                                      .out_scale = *gem_vector(m->w.layer[l].out_scale)};
    m->layer = layers;
    m->n_layers = (int)p->n_layers;
    m->n_heads = (int)p->n_heads;
    m->d_model = (int32_t)p->d_model;
    m->d_ff = (int32_t)p->d_ff;
    m->n_vocab = (int32_t)p->vocab;
    m->n_ctx_train = (int32_t)p->n_ctx;
    m->eps = p->eps;
    m->embed_scale = sqrtf((float)p->d_model);
    m->q_scale = 1.0f;
    m->softcap = p->softcap;
    m->act = GEM_ACT_GELU_TANH;
    m->v_norm = true;
    m->n_ropes = 2;
    m->ropes[0] = gem_gemma4_rope(p->theta, (int)p->key, m->w.rope_freqs);
    m->ropes[1] = (gem_rope){.theta = p->theta_swa, .n_dims = (int)p->key_swa, .scale = 1.0f};
}

static gem_status bind(gem_gguf *g, const params *p, const uint32_t *n_kv, const bool *sliding,
                       gem_weights *w, gem_error *err)
{
    gem_status st = GEM_OK;
    uint64_t(*size)[GEM_DIM_COUNT] = calloc(p->n_layers, sizeof(*size));
    const uint64_t **layer_size = calloc(p->n_layers, sizeof(*layer_size));
    if (!size || !layer_size) {
        st = gem_fail(err, GEM_E_NOMEM, "no memory for the shapes of %u layers", p->n_layers);
        goto done;
    }
    for (uint32_t l = 0; l < p->n_layers; l++) {
        uint64_t hd = sliding[l] ? p->key_swa : p->key;
        const uint64_t dims[GEM_DIM_COUNT] = {
            [GEM_DIM_MODEL] = p->d_model, [GEM_DIM_FF] = p->d_ff, [GEM_DIM_Q] = p->n_heads * hd,
            [GEM_DIM_KV] = n_kv[l] * hd,  [GEM_DIM_HEAD] = hd,    [GEM_DIM_VOCAB] = p->vocab,
            [GEM_DIM_ROPE] = p->key / 2,  [GEM_DIM_ONE] = 1,
        };
        memcpy(size[l], dims, sizeof(dims));
        layer_size[l] = size[l];
    }
    st = gem_manifest_bind(&manifest, g, size[0], layer_size, p->n_layers, w, err);
done:
    free(size);
    free(layer_size);
    return st;
}

static gem_status plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter, gem_error *err)
{
    (void)drafter; /* files of this family bring none */
    params p = {.theta_swa = 1e4f, .vocab = (uint32_t)n_vocab};
    bool sliding[GEM_MAX_LAYERS];
    uint32_t n_kv[GEM_MAX_LAYERS];
    gem_dense_layer layers[GEM_MAX_LAYERS];
    gem_dense m = {0};
    gem_status st;

    if ((st = gem_manifest_read(&manifest, g, &p, err)) != GEM_OK) return st;
    if ((st = check_relatives(g, &p, err)) != GEM_OK) return st;
    if ((st = gem_dense_check_vocab(g, ARCH, p.vocab, n_vocab, err)) != GEM_OK) return st;
    if ((st = read_d_ff(g, &p, err)) != GEM_OK) return st;
    if ((st = gem_gemma4_per_layer(g, ARCH, "attention.head_count_kv", p.n_layers, 1024, n_kv,
                                   err)) != GEM_OK)
        return st;
    if ((st = gem_gemma4_pattern(g, ARCH, p.n_layers, sliding, err)) != GEM_OK) return st;
    if ((st = check_params(g, &p, n_kv, err)) != GEM_OK) return st;
    if ((st = bind(g, &p, n_kv, sliding, &m.w, err)) != GEM_OK) return st;
    if ((st = check_values(g, &m.w, p.n_layers, sliding, err)) != GEM_OK) goto done;
    if ((st = gem_gemma4_factors(g, m.w.rope_freqs, err)) != GEM_OK) goto done;
    fill(&m, &p, n_kv, sliding, layers);
    if ((st = gem_dense_plan(out, ARCH, &m, err)) != GEM_OK) goto done;
    if ((st = read_suppressed(out, g, n_vocab, err)) != GEM_OK) gem_plan_free(out);
done:
    gem_weights_free(&m.w);
    return st;
}

/* ---- signs of a broken conversion ---- */

/* Published rope_freqs: 1 for the pairs that rotate, the first quarter, and 1e30 for the others. */
static bool usual_factors(const gem_tensor *t)
{
    const float *f = gem_vector(t);
    for (uint64_t i = 0; i < t->dim[0]; i++)
        if (i < t->dim[0] / 4 ? f[i] != 1.0f : f[i] < 1e29f) return false;
    return true;
}

/* Norm weights are plain multipliers, many below 1; after a wrong "+1" none is. */
static bool norms_above_one(const gem_gguf *g)
{
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        const gem_tensor *t = gem_gguf_tensor_at(g, i);
        if (!gem_text_ends(t->name, "norm.weight")) continue;
        for (uint64_t k = 0; k < t->dim[0]; k++)
            if (gem_vector(t)[k] < 1.0f) return false;
    }
    return true;
}

static bool scales_are_one(const gem_gguf *g)
{
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        const gem_tensor *t = gem_gguf_tensor_at(g, i);
        if (gem_text_ends(t->name, "layer_output_scale.weight") && *gem_vector(t) != 1.0f)
            return false;
    }
    return true;
}

static void warn(const gem_gguf *g, const gem_log *log)
{
    const char *path = gem_gguf_path(g);
    const gem_tensor *factors = gem_gguf_tensor(g, "rope_freqs.weight");
    bool bos = true;
    if (!factors)
        gem_logf(log, GEM_LOG_WARN,
                 "%s: rope_freqs.weight is missing: engines that rotate every pair of the global "
                 "layers repeat themselves the more the longer the text; the first quarter is "
                 "rotated here, as in the published models",
                 path);
    else if (!usual_factors(factors))
        gem_logf(log, GEM_LOG_WARN,
                 "%s: rope_freqs.weight is not a quarter of ones and then 1e30: if the file was "
                 "converted wrongly, text degrades into repetition with its length",
                 path);
    if (norms_above_one(g))
        gem_logf(log, GEM_LOG_WARN,
                 "%s: no norm weight is below 1: a converter may have added 1, as Gemma 3 needs "
                 "and Gemma 4 does not; the answers would be fluent nonsense",
                 path);
    if (scales_are_one(g))
        gem_logf(log, GEM_LOG_WARN,
                 "%s: every layer_output_scale is 1: a converter may have left the real ones out; "
                 "the residual then grows without bound and the logits are noise",
                 path);
    if (gem_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", false, &bos, NULL) == GEM_OK && !bos)
        gem_logf(log, GEM_LOG_WARN,
                 "%s: add_bos_token is false, as in early files: without <bos> the model rambles; "
                 "it is added all the same",
                 path);
}

const gem_family gem_family_gemma4 = {
    .arch = ARCH, .plan = plan, .manifest = &manifest, .warn = warn};
