/* qwen35.c - the dense Qwen3.5, 3.6 and 3.8 hybrids: manifest, checks and plan (keys:
 * docs/formats.md; gated delta rule: arXiv:2412.06464). Three layers of four are recurrent (short
 * convolution, gated delta rule), the fourth is attention over all positions with an output gate
 * and a rotation of a quarter of each head. Stored norm weights already contain the "+1" of the
 * original, except ssm_norm, which never had one; V heads stand so that head h uses K head h mod
 * n_k_heads. */
#include "model/dense.h"
#include "model/families.h"
#include "model/qwen35_plan.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct params {
    uint32_t n_ctx, d_model, n_blocks, n_nextn, d_ff, n_heads, key, value, rope_dims, interval;
    uint32_t taps, state, k_heads, v_heads, inner, experts, vocab;
    float eps, theta;
    gem_str rope_scaling;
    /* made of the above and of keys of several shapes */
    uint32_t n_layers; /* of the trunk */
    uint32_t n_kv_heads;
    bool has_nextn;
    bool recurrent[GEM_MAX_LAYERS];
} params;

#define ARCH "qwen35"
#define P(field) offsetof(params, field)
static const gem_key_spec keys[] = {
    {"context_length", GEM_KEY_U32, true, 1, 1 << 24, P(n_ctx),
     "positions the model was trained for"},
    {"embedding_length", GEM_KEY_U32, true, 1, 1 << 18, P(d_model), "d_model"},
    {"block_count", GEM_KEY_U32, true, 1, GEM_MAX_LAYERS, P(n_blocks),
     "n_layers, and one more where there is a block that predicts ahead"},
    {"nextn_predict_layers", GEM_KEY_U32, false, 0, 1, P(n_nextn),
     "blocks that predict the token after the next"},
    {"feed_forward_length", GEM_KEY_U32, true, 1, 1 << 20, P(d_ff), "d_ff"},
    {"attention.head_count", GEM_KEY_U32, true, 1, 1024, P(n_heads), "n_heads"},
    {"attention.head_count_kv", GEM_KEY_SPECIAL, true, 0, 0, 0,
     "n_kv_heads, one number, or one a layer with 0 for recurrent layers"},
    {"attention.key_length", GEM_KEY_U32, true, 1, 1024, P(key), "head_dim"},
    {"attention.value_length", GEM_KEY_U32, true, 1, 1024, P(value), "head_dim of values"},
    {"attention.layer_norm_rms_epsilon", GEM_KEY_F32, true, 1e-12, 1e-3, P(eps),
     "RMS norm epsilon, also of the recurrent layers' key norm"},
    {"attention.recurrent_layers", GEM_KEY_SPECIAL, false, 0, 0, 0,
     "one flag a block: true is recurrent"},
    {"full_attention_interval", GEM_KEY_U32, false, 1, GEM_MAX_LAYERS, P(interval),
     "the last of each so many layers is attention; 4 without the key"},
    {"rope.freq_base", GEM_KEY_F32, true, 1, 1e12, P(theta), "rope_theta"},
    {"rope.dimension_count", GEM_KEY_U32, true, 2, 1024, P(rope_dims), "dims that rotate"},
    {"rope.dimension_sections", GEM_KEY_SPECIAL, false, 0, 0, 0,
     "pairs by axis of an image's position; for text all axes are alike"},
    {"rope.scaling.type", GEM_KEY_STR, false, 0, 0, P(rope_scaling), "must be none"},
    {"ssm.conv_kernel", GEM_KEY_U32, true, 1, 64, P(taps), "taps of the short convolution: 4"},
    {"ssm.state_size", GEM_KEY_U32, true, 1, 1024, P(state), "head_dim of recurrent layers"},
    {"ssm.group_count", GEM_KEY_U32, true, 1, 1024, P(k_heads), "their key heads"},
    {"ssm.time_step_rank", GEM_KEY_U32, true, 1, 1024, P(v_heads), "their value heads"},
    {"ssm.inner_size", GEM_KEY_U32, true, 1, 1 << 20, P(inner), "value heads * head_dim"},
    {"expert_count", GEM_KEY_U32, false, 0, 1 << 16, P(experts), "must be 0"},
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
static const gem_tensor_spec every_layer[] = {
    {"attn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(attn_norm)},
    {"post_attention_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(ffn_norm)},
    {"ffn_gate.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(gate)},
    {"ffn_up.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(up)},
    {"ffn_down.weight", {GEM_DIM_FF, GEM_DIM_MODEL}, true, L(down)},
};
static const gem_tensor_spec attention[] = {
    {"attn_q.weight", {GEM_DIM_MODEL, GEM_DIM_GATED_Q}, true, L(q)},
    {"attn_k.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(k)},
    {"attn_v.weight", {GEM_DIM_MODEL, GEM_DIM_KV}, true, L(v)},
    {"attn_output.weight", {GEM_DIM_Q, GEM_DIM_MODEL}, true, L(o)},
    {"attn_q_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(q_norm)},
    {"attn_k_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(k_norm)},
};
static const gem_tensor_spec recurrent[] = {
    {"attn_qkv.weight", {GEM_DIM_MODEL, GEM_DIM_CONV}, true, L(qkv)},
    {"attn_gate.weight", {GEM_DIM_MODEL, GEM_DIM_INNER}, true, L(z)},
    {"ssm_conv1d.weight", {GEM_DIM_TAPS, GEM_DIM_CONV}, true, L(conv)},
    {"ssm_dt.bias", {GEM_DIM_V_HEADS, GEM_DIM_NONE}, true, L(dt_bias)},
    {"ssm_a", {GEM_DIM_V_HEADS, GEM_DIM_NONE}, true, L(ssm_a)},
    {"ssm_alpha.weight", {GEM_DIM_MODEL, GEM_DIM_V_HEADS}, true, L(alpha)},
    {"ssm_beta.weight", {GEM_DIM_MODEL, GEM_DIM_V_HEADS}, true, L(beta)},
    {"ssm_norm.weight", {GEM_DIM_STATE, GEM_DIM_NONE}, true, L(ssm_norm)},
    {"ssm_out.weight", {GEM_DIM_INNER, GEM_DIM_MODEL}, true, L(ssm_out)},
};
/* Beside an attention layer of its own; embedding and head are the trunk's. */
static const gem_tensor_spec nextn[] = {
    {"nextn.eh_proj.weight", {GEM_DIM_TWICE, GEM_DIM_MODEL}, true, L(eh_proj)},
    {"nextn.enorm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(e_norm)},
    {"nextn.hnorm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(h_norm)},
    {"nextn.shared_head_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(head_norm)},
};
#undef T
#undef L

static const gem_manifest manifest = {ARCH,           keys,        ARRAY_LEN(keys),       top,
                                      ARRAY_LEN(top), every_layer, ARRAY_LEN(every_layer)};

/* ---- relatives ---- */

static gem_status refuse(const gem_gguf *g, const char *what, const char *why, gem_error *err)
{
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: %s: %s; of " ARCH " the dense text models (0.8B to 27B) are supported",
                    gem_gguf_path(g), what, why);
}

/* Whether the file has any tensor of that block. */
static bool has_block(const gem_gguf *g, uint32_t block)
{
    char start[32];
    int n = snprintf(start, sizeof(start), "blk.%u.", block);
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++)
        if (strncmp(gem_gguf_tensor_at(g, i)->name, start, (size_t)n) == 0) return true;
    return false;
}

static const gem_foreign foreign[] = {
    {"^v.", "a vision tower, which belongs into a projector file"},
    {"^mm.", "a vision tower, which belongs into a projector file"},
    {".scale$", "weights with scales beside them (NVFP4)"},
    {".input_scale$", "weights with scales beside them (NVFP4)"},
    {"ffn_gate_inp", "a mixture of experts"},
    {"_exps.", "a mixture of experts"},
    {"ssm_ba.", "projections packed as in Qwen3-Next, with V heads in another order"},
    {"ssm_in.", "projections packed as in Qwen3-Next, with V heads in another order"},
};

static gem_status check_relatives(const gem_gguf *g, const params *p, gem_error *err)
{
    if (p->experts)
        return refuse(g, "key " ARCH ".expert_count is not 0", "a mixture of experts", err);
    if (!has_block(g, 0))
        return refuse(g, "no tensor of blk.0",
                      "a drafter cut out of its model: give the whole file", err);
    const char *why, *name = gem_manifest_foreign(g, foreign, ARRAY_LEN(foreign), &why);
    return name ? refuse(g, name, why, err) : GEM_OK;
}

/* Some exporters say by a key that V heads are grouped as in the original weights: head h with K
 * head h / ratio. Shapes do not show it, and with a ratio above 1 the text would be noise. */
static gem_status check_order(gem_gguf *g, const params *p, gem_error *err)
{
    for (size_t i = 0; i < gem_gguf_n_kv(g); i++) {
        const gem_kv *kv = gem_gguf_kv_at(g, i);
        if (!strstr(kv->key, "gdn_v_grouped")) continue;
        bool grouped = kv->kind == GEM_GGUF_BOOL || kv->kind <= GEM_GGUF_I32 ? kv->v.u != 0 : true;
        if (grouped && p->v_heads > p->k_heads)
            return refuse(g, kv->key, "V heads in grouped order; convert again with tiled order",
                          err);
        gem_gguf_mark_kv(g, kv->key);
    }
    return GEM_OK;
}

/* ---- keys of several shapes ---- */

static uint32_t element(const gem_kv *kv, uint64_t i)
{
    uint32_t v = 0;
    if (kv->elem == GEM_GGUF_BOOL || kv->elem == GEM_GGUF_U8) return kv->v.array[i];
    memcpy(&v, kv->v.array + 4 * i, 4);
    return v;
}

static bool is_words(const gem_kv *kv)
{
    return kv->kind == GEM_GGUF_ARRAY && (kv->elem == GEM_GGUF_U32 || kv->elem == GEM_GGUF_I32);
}

/* Trunk and block that predicts ahead: fine-tunes leave out the block and keep the count, or keep
 * the key and leave out the block; in both cases there is none. */
static gem_status count_layers(const gem_gguf *g, params *p, gem_error *err)
{
    bool last = has_block(g, p->n_blocks - 1);
    p->has_nextn = p->n_nextn && last;
    p->n_layers = p->n_blocks - (p->n_nextn || !last ? 1 : 0);
    if (p->n_layers == 0)
        return gem_fail(err, GEM_E_FORMAT, "%s: key " ARCH ".block_count is %u, and no block of it",
                        gem_gguf_path(g), p->n_blocks);
    return GEM_OK;
}

static gem_status read_kinds(const gem_gguf *g, params *p, gem_error *err)
{
    const char *key = ARCH ".attention.recurrent_layers";
    const gem_kv *kv = gem_gguf_find(g, key);
    if (kv && (kv->kind != GEM_GGUF_ARRAY || kv->elem != GEM_GGUF_BOOL ||
               (kv->n != p->n_blocks && kv->n != p->n_layers)))
        return gem_fail(err, GEM_E_FORMAT, "%s: key %s must be %u booleans, one a block",
                        gem_gguf_path(g), key, p->n_blocks);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        char a[48], q[48];
        p->recurrent[l] = kv ? kv->v.array[l] != 0 : l % p->interval != p->interval - 1;
        snprintf(a, sizeof(a), "blk.%u.ssm_a", l);
        snprintf(q, sizeof(q), "blk.%u.attn_q.weight", l);
        const char *other = p->recurrent[l] ? q : a;
        if (gem_gguf_tensor(g, other))
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor %s: by key %s layer %u %s",
                            gem_gguf_path(g), other, kv ? key : ARCH ".full_attention_interval", l,
                            p->recurrent[l] ? "is recurrent" : "is attention");
        snprintf(a, sizeof(a), "blk.%u.attn_qkv.weight", l);
        if (!p->recurrent[l] && gem_gguf_tensor(g, a))
            return refuse(g, a, "fused attention weights", err);
    }
    return GEM_OK;
}

static gem_status read_kv_heads(const gem_gguf *g, params *p, gem_error *err)
{
    const char *key = ARCH ".attention.head_count_kv";
    const gem_kv *kv = gem_gguf_find(g, key);
    if (kv->kind != GEM_GGUF_ARRAY)
        return gem_gguf_get_u32(g, key, true, 1, 1024, &p->n_kv_heads, err);
    if (!is_words(kv) || (kv->n != p->n_blocks && kv->n != p->n_layers))
        return gem_fail(err, GEM_E_FORMAT, "%s: key %s must be a number or %u numbers, one a block",
                        gem_gguf_path(g), key, p->n_blocks);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        uint32_t n = element(kv, l);
        if (p->recurrent[l] && n == 0) continue;
        if (n < 1 || n > 1024 || (p->n_kv_heads && n != p->n_kv_heads))
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "%s: key %s: layer %u has %u; all attention layers must have the same",
                            gem_gguf_path(g), key, l, n);
        p->n_kv_heads = n;
    }
    return GEM_OK;
}

static gem_status check_sections(const gem_gguf *g, const params *p, gem_error *err)
{
    const char *key = ARCH ".rope.dimension_sections";
    const gem_kv *kv = gem_gguf_find(g, key);
    uint64_t sum = 0;
    if (!kv) return GEM_OK;
    if (is_words(kv) && kv->n >= 1 && kv->n <= 4)
        for (uint64_t i = 0; i < kv->n; i++)
            sum += element(kv, i);
    if (sum == p->rope_dims / 2) return GEM_OK;
    return gem_fail(
        err, GEM_E_FORMAT,
        "%s: key %s must be 3 or 4 numbers that add up to half of rope.dimension_count, %u",
        gem_gguf_path(g), key, p->rope_dims / 2);
}

/* ---- shapes ---- */

static gem_status check_shapes(const gem_gguf *g, const params *p, gem_error *err)
{
    const char *path = gem_gguf_path(g);
    if (p->value != p->key)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: key " ARCH ".attention.value_length is %u; only %u, the keys' length, "
                        "is supported",
                        path, p->value, p->key);
    if (p->rope_dims % 2 || p->rope_dims > p->key)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key " ARCH ".rope.dimension_count is %u; an even number up to %u is "
                        "wanted",
                        path, p->rope_dims, p->key);
    if (p->rope_scaling.len &&
        !(p->rope_scaling.len == 4 && memcmp(p->rope_scaling.data, "none", 4) == 0))
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: key " ARCH ".rope.scaling.type is %.*s; only none is supported", path,
                        (int)GEM_MIN(p->rope_scaling.len, (size_t)32), p->rope_scaling.data);
    if (p->taps != GEM_CONV_TAPS)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: key " ARCH ".ssm.conv_kernel is %u; only %d is supported", path,
                        p->taps, GEM_CONV_TAPS);
    if (p->v_heads % p->k_heads)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key " ARCH ".ssm.time_step_rank is %u, no multiple of group_count %u",
                        path, p->v_heads, p->k_heads);
    if ((uint64_t)p->v_heads * p->state != p->inner)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key " ARCH
                        ".ssm.inner_size is %u; time_step_rank * state_size is %llu",
                        path, p->inner, (unsigned long long)p->v_heads * p->state);
    if (p->state % 32 || p->state > 512)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: key " ARCH ".ssm.state_size is %u; multiples of 32 up to 512 are "
                        "supported",
                        path, p->state);
    return gem_dense_check_heads(g, ARCH, p->n_heads, p->n_kv_heads, p->key, err);
}

static gem_status read_params(gem_gguf *g, params *p, int32_t n_vocab, gem_error *err)
{
    gem_status st;
    if ((st = gem_manifest_read(&manifest, g, p, err)) != GEM_OK) return st;
    if ((st = check_relatives(g, p, err)) != GEM_OK) return st;
    if ((st = check_order(g, p, err)) != GEM_OK) return st;
    if ((st = count_layers(g, p, err)) != GEM_OK) return st;
    if ((st = read_kinds(g, p, err)) != GEM_OK) return st;
    if ((st = read_kv_heads(g, p, err)) != GEM_OK) return st;
    if ((st = check_sections(g, p, err)) != GEM_OK) return st;
    if ((st = check_shapes(g, p, err)) != GEM_OK) return st;
    return gem_dense_check_vocab(g, ARCH, p->vocab, n_vocab, err);
}

/* ---- weights ---- */

/* Taps are small and read as they are; decays must shrink the state. */
static gem_status check_layer(const gem_gguf *g, const gem_layer_weights *w, gem_error *err)
{
    const float *a = gem_vector(w->ssm_a), *taps = gem_vector(w->conv);
    if (w->conv->dtype != GEM_DTYPE_F32)
        return gem_fail(err, GEM_E_UNSUPPORTED, "%s: tensor %s is not F32, as it must be",
                        gem_gguf_path(g), w->conv->name);
    for (uint64_t i = 0; i < w->conv->dim[0] * w->conv->dim[1]; i++)
        if (!isfinite(taps[i]))
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor %s: value %llu is not finite",
                            gem_gguf_path(g), w->conv->name, (unsigned long long)i);
    for (uint64_t i = 0; i < w->ssm_a->dim[0]; i++)
        if (a[i] > 0.0f)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: tensor %s: value %llu is %g, above 0, so the state would grow "
                            "without bound: the converter stored A_log itself, or converted twice",
                            gem_gguf_path(g), w->ssm_a->name, (unsigned long long)i, (double)a[i]);
    return GEM_OK;
}

static gem_status bind_weights(gem_gguf *g, const params *p, int32_t n_vocab, gem_weights *w,
                               gem_error *err)
{
    const uint64_t q = (uint64_t)p->n_heads * p->key;
    const uint64_t size[GEM_DIM_COUNT] = {
        [GEM_DIM_MODEL] = p->d_model,
        [GEM_DIM_FF] = p->d_ff,
        [GEM_DIM_Q] = q,
        [GEM_DIM_GATED_Q] = 2 * q,
        [GEM_DIM_KV] = (uint64_t)p->n_kv_heads * p->key,
        [GEM_DIM_HEAD] = p->key,
        [GEM_DIM_VOCAB] = (uint64_t)n_vocab,
        [GEM_DIM_TAPS] = p->taps,
        [GEM_DIM_CONV] = 2 * (uint64_t)p->k_heads * p->state + p->inner,
        [GEM_DIM_INNER] = p->inner,
        [GEM_DIM_V_HEADS] = p->v_heads,
        [GEM_DIM_STATE] = p->state,
        [GEM_DIM_TWICE] = 2 * (uint64_t)p->d_model,
    };
    uint32_t n = p->n_layers + (p->has_nextn ? 1 : 0);
    gem_status st = gem_manifest_bind(&manifest, g, size, NULL, n, w, err);
    if (st != GEM_OK) return st;
    for (uint32_t l = 0; l < n && st == GEM_OK; l++) {
        gem_layer_weights *layer = &w->layer[l];
        if (l < p->n_layers && p->recurrent[l]) {
            st = gem_manifest_bind_layer(recurrent, ARRAY_LEN(recurrent), g, size, l, layer, err);
            if (st == GEM_OK) st = check_layer(g, layer, err);
        } else {
            st = gem_manifest_bind_layer(attention, ARRAY_LEN(attention), g, size, l, layer, err);
        }
        if (st == GEM_OK && l == p->n_layers)
            st = gem_manifest_bind_layer(nextn, ARRAY_LEN(nextn), g, size, l, layer, err);
    }
    if (st != GEM_OK) gem_weights_free(w);
    return st;
}

/* Rows behind the vocabulary, which fill it up to a round size and were never trained: the tokens
 * of type unused (5) at its end. */
static gem_status suppress_padding(gem_plan *out, const gem_gguf *g, int32_t n_vocab,
                                   gem_error *err)
{
    const char *key = "tokenizer.ggml.token_type";
    const gem_kv *kv = gem_gguf_find(g, key);
    int32_t first = n_vocab;
    if (!kv || !is_words(kv) || kv->n != (uint64_t)n_vocab) return GEM_OK;
    while (first > 0 && element(kv, (uint64_t)first - 1) == 5)
        first--;
    if (first == n_vocab || first == 0) return GEM_OK;
    out->n_suppress = (size_t)(n_vocab - first);
    out->suppress = malloc(out->n_suppress * sizeof(*out->suppress));
    if (!out->suppress) return gem_fail(err, GEM_E_NOMEM, "no memory for %s", key);
    for (int32_t i = first; i < n_vocab; i++)
        out->suppress[i - first] = i;
    return GEM_OK;
}

static gem_status plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter, gem_error *err)
{
    params p = {.interval = 4, .vocab = (uint32_t)n_vocab};
    gem_weights w;
    gem_status st;
    if ((st = read_params(g, &p, n_vocab, err)) != GEM_OK) return st;
    if (drafter && !p.has_nextn)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: the file has no block that predicts ahead, so no drafter",
                        gem_gguf_path(g));
    if ((st = bind_weights(g, &p, n_vocab, &w, err)) != GEM_OK) return st;
    const gem_hybrid m = {
        .n_layers = (int)p.n_layers,
        .n_heads = (int)p.n_heads,
        .n_kv_heads = (int)p.n_kv_heads,
        .head_dim = (int)p.key,
        .d_model = (int32_t)p.d_model,
        .d_ff = (int32_t)p.d_ff,
        .n_vocab = n_vocab,
        .n_ctx_train = (int32_t)p.n_ctx,
        .eps = p.eps,
        .rope = {.theta = p.theta, .n_dims = (int)p.rope_dims, .scale = 1.0f},
        .recurrent = {.n_k_heads = (int)p.k_heads,
                      .n_v_heads = (int)p.v_heads,
                      .head_dim = (int)p.state},
        .is_recurrent = p.recurrent,
        .drafter = drafter,
        .w = &w,
    };
    st = gem_hybrid_plan(out, ARCH, &m, err);
    gem_weights_free(&w);
    if (st != GEM_OK) return st;
    if ((st = suppress_padding(out, g, n_vocab, err)) != GEM_OK) gem_plan_free(out);
    return st;
}

/* ---- signs of a broken conversion ---- */

/* Mean of all attn_norm weights: published models are far from 0. */
static double mean_norm(const gem_gguf *g)
{
    double sum = 0.0, n = 0.0;
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        const gem_tensor *t = gem_gguf_tensor_at(g, i);
        if (!gem_text_ends(t->name, ".attn_norm.weight")) continue;
        for (uint64_t k = 0; k < t->dim[0]; k++)
            sum += (double)gem_vector(t)[k];
        n += (double)t->dim[0];
    }
    return n > 0 ? sum / n : 1.0;
}

static void warn(const gem_gguf *g, const gem_log *log)
{
    const char *path = gem_gguf_path(g);
    uint32_t blocks = 1, ahead = 0;
    gem_str pre = {0};
    if (fabs(mean_norm(g)) < 0.1)
        gem_logf(log, GEM_LOG_WARN,
                 "%s: the norm weights are centred on 0: the converter did not add 1 to them; the "
                 "text would be noise",
                 path);
    gem_gguf_get_u32(g, ARCH ".block_count", false, 1, GEM_MAX_LAYERS, &blocks, NULL);
    gem_gguf_get_u32(g, ARCH ".nextn_predict_layers", false, 0, 1, &ahead, NULL);
    if (!has_block(g, blocks - 1))
        gem_logf(log, GEM_LOG_WARN,
                 "%s: block %u, which should predict ahead, has no tensors: speculation cannot use "
                 "it; all else works",
                 path, blocks - 1);
    if (gem_gguf_get_str(g, "tokenizer.ggml.pre", false, &pre, NULL) == GEM_OK &&
        !(pre.len == 6 && memcmp(pre.data, ARCH, 6) == 0))
        gem_logf(log, GEM_LOG_WARN,
                 "%s: key tokenizer.ggml.pre is %.*s, not " ARCH ": words with combining marks are "
                 "split otherwise than in training",
                 path, (int)GEM_MIN(pre.len, (size_t)32), pre.data);
}

const gem_family gem_family_qwen35 = {
    .arch = ARCH, .plan = plan, .drafts = true, .manifest = &manifest, .warn = warn};
