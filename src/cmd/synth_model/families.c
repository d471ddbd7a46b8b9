/* families.c - presets, and per family the tensors in the order of its published files.
 *
 * How weights are scaled, so that random models behave: every matrix keeps the size of what passes
 * through (standard deviation 1/sqrt(row length)), so logits spread by SYNTH_LOGIT_SPREAD whatever
 * the shape; attention scores spread by SYNTH_SCORE_SPREAD, so some positions matter and none takes
 * all; all layers together add ADDED times the embedding to the residual, each an equal share,
 * because more makes a deep random network amplify rounding errors; and the final norm has random
 * signs, because with a tied head a positive one would make every model repeat its last token. */
#include "cmd/synth_model/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ADDED 2.5f

/* name, family, about, n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, window, n_ctx,
 * n_vocab, rope_theta, tied; what only some families have is named. Sources: the published
 * configurations of each model. */
#define SHAPE(name_, arch_, about_, layers, d, ff, heads, kv, hd, win, ctx, vocab, theta, tied_)   \
    .name = name_, .arch = arch_, .about = about_, .n_layers = layers, .d_model = d, .d_ff = ff,   \
    .n_heads = heads, .n_kv_heads = kv, .head_dim = hd, .window = win, .n_ctx = ctx,               \
    .n_vocab = vocab, .rope_theta = theta, .tied = tied_
const synth_shape synth_presets[] = {
    {SHAPE("gemma3-tiny", "gemma3", "7 layers of width 256, window 32: for tests", 7, 256, 512, 4,
           1, 64, 32, 2048, 1024, 1e6f, true)},
    {SHAPE("gemma3-270m", "gemma3", "tensors and types of Gemma 3 270M", 18, 640, 2048, 4, 1, 256,
           512, 32768, 262144, 1e6f, true)},
    {SHAPE("gemma3-1b", "gemma3", "shape of Gemma 3 1B", 26, 1152, 6912, 4, 1, 256, 512, 32768,
           262144, 1e6f, true)},
    {SHAPE("gemma3-4b", "gemma3", "shape of Gemma 3 4B", 34, 2560, 10240, 8, 4, 256, 1024, 131072,
           262144, 1e6f, true),
     .rope_factor = 8.0f},
    {SHAPE("gemma3-12b", "gemma3", "shape of Gemma 3 12B", 48, 3840, 15360, 16, 8, 256, 1024,
           131072, 262144, 1e6f, true),
     .rope_factor = 8.0f},
    {SHAPE("gemma3-27b", "gemma3", "shape of Gemma 3 27B", 62, 5376, 21504, 32, 16, 128, 1024,
           131072, 262144, 1e6f, true),
     .rope_factor = 8.0f},
    {SHAPE("gemma4-tiny", "gemma4", "6 layers of width 256, window 256: for tests", 6, 256, 512, 16,
           4, 64, 256, 8192, 1024, 1e6f, true),
     .global_kv_heads = 1, .global_head_dim = 128},
    {SHAPE("gemma4-12b", "gemma4", "tensors and types of Gemma 4 12B, Q4_0", 48, 3840, 15360, 16, 8,
           256, 1024, 262144, 262144, 1e6f, true),
     .global_kv_heads = 1, .global_head_dim = 512, .suppresses = true, .quant = "q4_0"},
    {SHAPE("gemma4-31b", "gemma4", "tensors and types of Gemma 4 31B, Q4_0", 60, 5376, 21504, 32,
           16, 256, 1024, 262144, 262144, 1e6f, true),
     .global_kv_heads = 4, .global_head_dim = 512, .quant = "q4_0"},
    {SHAPE("gemma4-assistant-tiny", "gemma4-assistant", "a drafter for gemma4-tiny: for tests", 4,
           128, 256, 16, 4, 64, 256, 8192, 1024, 1e6f, true),
     .global_kv_heads = 1, .global_head_dim = 128, .target = 256},
    {SHAPE("gemma4-assistant-12b", "gemma4-assistant", "a drafter for gemma4-12b, Q4_0", 4, 1024,
           8192, 16, 8, 256, 1024, 262144, 262144, 1e6f, true),
     .global_kv_heads = 1, .global_head_dim = 512, .target = 3840, .quant = "q4_0"},
    {SHAPE("gemma4-assistant-31b", "gemma4-assistant", "a drafter for gemma4-31b, Q4_0", 4, 1024,
           8192, 32, 16, 256, 1024, 262144, 262144, 1e6f, true),
     .global_kv_heads = 4, .global_head_dim = 512, .target = 5376, .quant = "q4_0"},
    {SHAPE("qwen2-tiny", "qwen2", "4 layers of width 256: for tests", 4, 256, 512, 4, 2, 64, 0,
           2048, 1024, 1e6f, false)},
    {SHAPE("qwen2-0.5b", "qwen2", "tensors and types of a Qwen2.5 0.5B with its own head", 24, 896,
           4864, 14, 2, 64, 0, 32768, 151936, 1e6f, false)},
    {SHAPE("qwen2-1.5b", "qwen2", "shape of Qwen2.5 1.5B", 28, 1536, 8960, 12, 2, 128, 0, 32768,
           151936, 1e6f, true)},
    {SHAPE("qwen2-7b", "qwen2", "shape of Qwen2.5 7B", 28, 3584, 18944, 28, 4, 128, 0, 32768,
           152064, 1e6f, false)},
    {SHAPE("qwen35-tiny", "qwen35", "8 layers of width 256, two of attention: for tests", 8, 256,
           512, 4, 2, 128, 0, 8192, 1024, 1e7f, false),
     .k_heads = 2, .v_heads = 6, .state_dim = 64},
    {SHAPE("qwen35-9b", "qwen35", "shape of Qwen3.5 9B", 32, 4096, 12288, 16, 4, 256, 0, 262144,
           248320, 1e7f, false),
     .k_heads = 16, .v_heads = 32, .state_dim = 128},
    {SHAPE("qwen35-27b", "qwen35", "shape of Qwen3.5, 3.6 and 3.8 27B", 64, 5120, 17408, 24, 4, 256,
           0, 262144, 248320, 1e7f, false),
     .k_heads = 16, .v_heads = 48, .state_dim = 128},
    {.name = NULL},
};

const synth_shape *synth_preset(const char *name)
{
    for (const synth_shape *s = synth_presets; s->name; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}

gem_status synth_check_shape(const synth_shape *s, gem_error *err)
{
    if (s->n_heads % s->n_kv_heads != 0)
        return gem_fail(err, GEM_E_ARG, "%d heads cannot share %d heads of keys evenly", s->n_heads,
                        s->n_kv_heads);
    if (s->global_kv_heads && s->n_heads % s->global_kv_heads != 0)
        return gem_fail(err, GEM_E_ARG, "%d heads cannot share %d heads of keys evenly", s->n_heads,
                        s->global_kv_heads);
    if (s->head_dim % 2 != 0 || s->global_head_dim % 2 != 0)
        return gem_fail(err, GEM_E_ARG, "heads of %d dims cannot rotate in pairs",
                        s->head_dim % 2 ? s->head_dim : s->global_head_dim);
    if (strcmp(s->arch, "qwen2") == 0 && s->n_heads * s->head_dim != s->d_model)
        return gem_fail(err, GEM_E_ARG, "a qwen2 model of width %d has no %d heads of %d dims",
                        s->d_model, s->n_heads, s->head_dim);
    if (s->k_heads && s->v_heads % s->k_heads != 0)
        return gem_fail(err, GEM_E_ARG, "%d heads of values cannot share %d heads of keys evenly",
                        s->v_heads, s->k_heads);
    if (s->n_vocab < synth_min_vocab(s->arch))
        return gem_fail(err, GEM_E_ARG, "a vocabulary of %d tokens is too small: %s needs %d",
                        s->n_vocab, s->arch, synth_min_vocab(s->arch));
    return GEM_OK;
}

void synth_free(synth_model *m)
{
    free(m->tensors);
    m->tensors = NULL;
    m->n_tensors = m->cap_tensors = 0;
}

/* ---- tensors ---- */

static synth_tensor *add(synth_model *m, int layer, const char *name, synth_fill fill, float scale)
{
    static synth_tensor nowhere; /* written and never read once memory ran out */
    if (m->n_tensors == m->cap_tensors) {
        size_t cap = m->cap_tensors ? 2 * m->cap_tensors : 256;
        synth_tensor *t = realloc(m->tensors, cap * sizeof(*t));
        if (!t) {
            m->failed = true;
            return &nowhere;
        }
        m->tensors = t;
        m->cap_tensors = cap;
    }
    synth_tensor *t = &m->tensors[m->n_tensors++];
    memset(t, 0, sizeof(*t));
    if (layer < 0)
        snprintf(t->name, sizeof(t->name), "%s", name);
    else
        snprintf(t->name, sizeof(t->name), "blk.%d.%s", layer, name);
    t->fill = fill;
    t->scale = scale;
    t->dim[1] = 1;
    return t;
}

void synth_vector(synth_model *m, int layer, const char *name, int32_t n, synth_fill fill,
                  float scale)
{
    synth_tensor *t = add(m, layer, name, fill, scale);
    t->n_dims = 1;
    t->dim[0] = (uint64_t)n;
}

/* Rows of n_in numbers that turn inputs of size 1 into outputs of size `gain`. */
void synth_matrix(synth_model *m, int layer, const char *name, int32_t n_in, int32_t n_out,
                  float gain)
{
    synth_tensor *t = add(m, layer, name, SYNTH_MATRIX, gain / sqrtf((float)n_in));
    t->n_dims = 2;
    t->dim[0] = (uint64_t)n_in;
    t->dim[1] = (uint64_t)n_out;
}

/* What each of the 2 * n_layers sub-blocks adds, for an embedding of size 1. */
float synth_share(const synth_shape *s)
{
    return ADDED / sqrtf(2.0f * (float)s->n_layers);
}

/* Embeddings have size 1/sqrt(d_model) in the file and 1 in the model, which scales them. */
static void layout_gemma3(synth_model *m)
{
    const synth_shape *s = &m->shape;
    int32_t d = s->d_model, q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    /* queries are scaled by 1/sqrt(head_dim); in the 27B (62 layers) by 1/sqrt(d_model / n_heads)
     */
    float q_scale = s->n_layers == 62 ? (float)s->d_model / (float)s->n_heads : (float)s->head_dim;
    float k_norm = SYNTH_SCORE_SPREAD * sqrtf(q_scale / (float)s->head_dim);
    synth_vector(m, -1, "output_norm.weight", d, SYNTH_SIGNED, SYNTH_LOGIT_SPREAD);
    if (!s->tied) synth_matrix(m, -1, "output.weight", d, s->n_vocab, 1.0f);
    synth_matrix(m, -1, "token_embd.weight", d, s->n_vocab, 1.0f);
    for (int l = 0; l < s->n_layers; l++) {
        synth_matrix(m, l, "attn_k.weight", d, kv, 1.0f);
        synth_vector(m, l, "attn_k_norm.weight", s->head_dim, SYNTH_NORM, k_norm);
        synth_vector(m, l, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
        synth_matrix(m, l, "attn_output.weight", q, d, 1.0f);
        synth_matrix(m, l, "attn_q.weight", d, q, 1.0f);
        synth_vector(m, l, "attn_q_norm.weight", s->head_dim, SYNTH_NORM, 1.0f);
        synth_matrix(m, l, "attn_v.weight", d, kv, 1.0f);
        synth_matrix(m, l, "ffn_down.weight", s->d_ff, d, 1.0f);
        synth_matrix(m, l, "ffn_gate.weight", d, s->d_ff, 1.5f);
        synth_vector(m, l, "ffn_norm.weight", d, SYNTH_NORM, 1.0f);
        synth_matrix(m, l, "ffn_up.weight", d, s->d_ff, 1.0f);
        synth_vector(m, l, "post_attention_norm.weight", d, SYNTH_NORM,
                     SYNTH_ATTENTION_PART * synth_share(s));
        synth_vector(m, l, "post_ffw_norm.weight", d, SYNTH_NORM, synth_share(s));
    }
}

/* Published files of this family list the layers as text would sort them: 0, 1, 10, 11, ... 2, 20.
 */
static int by_text(const void *a, const void *b)
{
    char x[16], y[16];
    snprintf(x, sizeof(x), "%d", *(const int *)a);
    snprintf(y, sizeof(y), "%d", *(const int *)b);
    return strcmp(x, y);
}

/* No norm follows attention and FFN here, so the output matrices bring their share to size: the
 * mean of values over some positions has a size of about 0.5, a gated product about 0.6. */
static void layout_qwen2(synth_model *m)
{
    const synth_shape *s = &m->shape;
    int32_t d = s->d_model, kv = s->n_kv_heads * s->head_dim;
    float embedding = sqrtf((float)d); /* size 1: nothing scales it later */
    float q_gain = sqrtf(SYNTH_SCORE_SPREAD);
    int *order = malloc((size_t)s->n_layers * sizeof(*order));
    if (!order) {
        m->failed = true;
        return;
    }
    for (int i = 0; i < s->n_layers; i++)
        order[i] = i;
    qsort(order, (size_t)s->n_layers, sizeof(*order), by_text);
    if (!s->tied) synth_matrix(m, -1, "output.weight", d, s->n_vocab, 1.0f);
    synth_matrix(m, -1, "token_embd.weight", d, s->n_vocab, s->tied ? 1.0f : embedding);
    float added = s->tied ? synth_share(s) / embedding
                          : synth_share(s); /* a tied embedding must stay small */
    for (int i = 0; i < s->n_layers; i++) {
        int l = order[i];
        synth_vector(m, l, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
        synth_matrix(m, l, "ffn_down.weight", s->d_ff, d, added / 0.6f);
        synth_matrix(m, l, "ffn_gate.weight", d, s->d_ff, 1.5f);
        synth_matrix(m, l, "ffn_up.weight", d, s->d_ff, 1.0f);
        synth_vector(m, l, "ffn_norm.weight", d, SYNTH_NORM, 1.0f);
        synth_vector(m, l, "attn_k.bias", kv, SYNTH_BIAS, 0.5f);
        synth_matrix(m, l, "attn_k.weight", d, kv, q_gain);
        synth_matrix(m, l, "attn_output.weight", d, d, SYNTH_ATTENTION_PART * added / 0.5f);
        synth_vector(m, l, "attn_q.bias", d, SYNTH_BIAS, 0.5f);
        synth_matrix(m, l, "attn_q.weight", d, d, q_gain);
        synth_vector(m, l, "attn_v.bias", kv, SYNTH_BIAS, 0.2f);
        synth_matrix(m, l, "attn_v.weight", d, kv, 1.0f);
    }
    synth_vector(m, -1, "output_norm.weight", d, SYNTH_SIGNED, SYNTH_LOGIT_SPREAD);
    free(order);
}

/* ---- keys ---- */

gem_status synth_put_keys(gem_gguf_writer *w, const synth_key *k, size_t n, gem_error *err)
{
    gem_status st = GEM_OK;
    for (size_t i = 0; i < n && st == GEM_OK; i++)
        st = gem_gguf_put_u32(w, k[i].key, (uint32_t)k[i].value, err);
    return st;
}

static gem_status keys_gemma3(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    gem_status st;
    const synth_key keys[] = {
        {"gemma3.context_length", s->n_ctx},
        {"gemma3.embedding_length", s->d_model},
        {"gemma3.block_count", s->n_layers},
        {"gemma3.feed_forward_length", s->d_ff},
        {"gemma3.attention.head_count", s->n_heads},
        {"gemma3.attention.key_length", s->head_dim},
        {"gemma3.attention.value_length", s->head_dim},
        {"gemma3.attention.sliding_window", s->window},
        {"gemma3.attention.head_count_kv", s->n_kv_heads},
    };
    if ((st = synth_put_keys(w, keys, ARRAY_LEN(keys), err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_f32(w, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f, err)) != GEM_OK)
        return st;
    if ((st = gem_gguf_put_f32(w, "gemma3.rope.freq_base", s->rope_theta, err)) != GEM_OK)
        return st;
    if (s->rope_factor == 0.0f) return GEM_OK;
    if ((st = gem_gguf_put_str(w, "gemma3.rope.scaling.type", "linear", 6, err)) != GEM_OK)
        return st;
    return gem_gguf_put_f32(w, "gemma3.rope.scaling.factor", s->rope_factor, err);
}

static gem_status keys_qwen2(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    gem_status st;
    const synth_key keys[] = {
        {"qwen2.block_count", s->n_layers},
        {"qwen2.context_length", s->n_ctx},
        {"qwen2.embedding_length", s->d_model},
        {"qwen2.feed_forward_length", s->d_ff},
        {"qwen2.attention.head_count", s->n_heads},
        {"qwen2.attention.head_count_kv", s->n_kv_heads},
    };
    if ((st = synth_put_keys(w, keys, ARRAY_LEN(keys), err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_f32(w, "qwen2.rope.freq_base", s->rope_theta, err)) != GEM_OK) return st;
    return gem_gguf_put_f32(w, "qwen2.attention.layer_norm_rms_epsilon", 1e-6f, err);
}

static const struct family {
    const char *arch;
    void (*layout)(synth_model *m);
    gem_status (*keys)(gem_gguf_writer *w, const synth_shape *s, gem_error *err);
} families[] = {
    {"gemma3", layout_gemma3, keys_gemma3},
    {"gemma4", synth_layout_gemma4, synth_keys_gemma4},
    {"gemma4-assistant", synth_layout_gemma4, synth_keys_gemma4},
    {"qwen2", layout_qwen2, keys_qwen2},
    {"qwen35", synth_layout_qwen35, synth_keys_qwen35},
};

static const struct family *family_of(const char *arch)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strcmp(families[i].arch, arch) == 0) return &families[i];
    return NULL;
}

void synth_layout(synth_model *m)
{
    family_of(m->shape.arch)->layout(m);
}

gem_status synth_put_family_keys(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    return family_of(s->arch)->keys(w, s, err);
}
