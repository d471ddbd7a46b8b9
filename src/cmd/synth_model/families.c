/* families.c - presets, and per family the tensors in the order of its published files.
 *
 * How weights are scaled, so that random models behave: every matrix keeps the size of what passes
 * through (standard deviation 1/sqrt(row length)), so logits spread by LOGIT_SPREAD whatever the
 * shape; attention scores spread by SCORE_SPREAD, so some positions matter and none takes all; all
 * layers together add ADDED times the embedding to the residual, each an equal share, because more
 * makes a deep random network amplify rounding errors; and the final norm has random signs, because
 * with a tied head a positive one would make every model repeat its last token. */
#include "cmd/synth_model/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LOGIT_SPREAD 4.0f
#define SCORE_SPREAD 2.25f
#define ADDED 2.5f
#define ATTENTION_PART 0.8f /* of an FFN's share: what attention adds is alike at all positions */

/* name, family, about, n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, window, n_ctx,
 * n_vocab, rope_theta, rope_factor, tied. Sources: the published configurations of each model. */
const synth_shape synth_presets[] = {
    {"gemma3-tiny", "gemma3", "7 layers of width 256, window 32: for tests", 7, 256, 512, 4, 1, 64,
     32, 2048, 1024, 1e6f, 1.0f, true},
    {"gemma3-270m", "gemma3", "tensors and types of Gemma 3 270M", 18, 640, 2048, 4, 1, 256, 512,
     32768, 262144, 1e6f, 1.0f, true},
    {"gemma3-1b", "gemma3", "shape of Gemma 3 1B", 26, 1152, 6912, 4, 1, 256, 512, 32768, 262144,
     1e6f, 1.0f, true},
    {"gemma3-4b", "gemma3", "shape of Gemma 3 4B", 34, 2560, 10240, 8, 4, 256, 1024, 131072, 262144,
     1e6f, 8.0f, true},
    {"gemma3-12b", "gemma3", "shape of Gemma 3 12B", 48, 3840, 15360, 16, 8, 256, 1024, 131072,
     262144, 1e6f, 8.0f, true},
    {"gemma3-27b", "gemma3", "shape of Gemma 3 27B", 62, 5376, 21504, 32, 16, 128, 1024, 131072,
     262144, 1e6f, 8.0f, true},
    {"qwen2-tiny", "qwen2", "4 layers of width 256: for tests", 4, 256, 512, 4, 2, 64, 0, 2048,
     1024, 1e6f, 1.0f, false},
    {"qwen2-0.5b", "qwen2", "tensors and types of a Qwen2.5 0.5B with its own head", 24, 896, 4864,
     14, 2, 64, 0, 32768, 151936, 1e6f, 1.0f, false},
    {"qwen2-1.5b", "qwen2", "shape of Qwen2.5 1.5B", 28, 1536, 8960, 12, 2, 128, 0, 32768, 151936,
     1e6f, 1.0f, true},
    {"qwen2-7b", "qwen2", "shape of Qwen2.5 7B", 28, 3584, 18944, 28, 4, 128, 0, 32768, 152064,
     1e6f, 1.0f, false},
    {NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false},
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
    if (s->head_dim % 2 != 0)
        return gem_fail(err, GEM_E_ARG, "heads of %d dims cannot rotate in pairs", s->head_dim);
    if (strcmp(s->arch, "qwen2") == 0 && s->n_heads * s->head_dim != s->d_model)
        return gem_fail(err, GEM_E_ARG, "a qwen2 model of width %d has no %d heads of %d dims",
                        s->d_model, s->n_heads, s->head_dim);
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

static void vector(synth_model *m, int layer, const char *name, int32_t n, synth_fill fill,
                   float scale)
{
    synth_tensor *t = add(m, layer, name, fill, scale);
    t->n_dims = 1;
    t->dim[0] = (uint64_t)n;
}

/* Rows of n_in numbers that turn inputs of size 1 into outputs of size `gain`. */
static void matrix(synth_model *m, int layer, const char *name, int32_t n_in, int32_t n_out,
                   float gain)
{
    synth_tensor *t = add(m, layer, name, SYNTH_MATRIX, gain / sqrtf((float)n_in));
    t->n_dims = 2;
    t->dim[0] = (uint64_t)n_in;
    t->dim[1] = (uint64_t)n_out;
}

/* What each of the 2 * n_layers sub-blocks adds, for an embedding of size 1. */
static float share(const synth_shape *s)
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
    float k_norm = SCORE_SPREAD * sqrtf(q_scale / (float)s->head_dim);
    vector(m, -1, "output_norm.weight", d, SYNTH_SIGNED, LOGIT_SPREAD);
    if (!s->tied) matrix(m, -1, "output.weight", d, s->n_vocab, 1.0f);
    matrix(m, -1, "token_embd.weight", d, s->n_vocab, 1.0f);
    for (int l = 0; l < s->n_layers; l++) {
        matrix(m, l, "attn_k.weight", d, kv, 1.0f);
        vector(m, l, "attn_k_norm.weight", s->head_dim, SYNTH_NORM, k_norm);
        vector(m, l, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
        matrix(m, l, "attn_output.weight", q, d, 1.0f);
        matrix(m, l, "attn_q.weight", d, q, 1.0f);
        vector(m, l, "attn_q_norm.weight", s->head_dim, SYNTH_NORM, 1.0f);
        matrix(m, l, "attn_v.weight", d, kv, 1.0f);
        matrix(m, l, "ffn_down.weight", s->d_ff, d, 1.0f);
        matrix(m, l, "ffn_gate.weight", d, s->d_ff, 1.5f);
        vector(m, l, "ffn_norm.weight", d, SYNTH_NORM, 1.0f);
        matrix(m, l, "ffn_up.weight", d, s->d_ff, 1.0f);
        vector(m, l, "post_attention_norm.weight", d, SYNTH_NORM, ATTENTION_PART * share(s));
        vector(m, l, "post_ffw_norm.weight", d, SYNTH_NORM, share(s));
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
    float q_gain = sqrtf(SCORE_SPREAD);
    int *order = malloc((size_t)s->n_layers * sizeof(*order));
    if (!order) {
        m->failed = true;
        return;
    }
    for (int i = 0; i < s->n_layers; i++)
        order[i] = i;
    qsort(order, (size_t)s->n_layers, sizeof(*order), by_text);
    if (!s->tied) matrix(m, -1, "output.weight", d, s->n_vocab, 1.0f);
    matrix(m, -1, "token_embd.weight", d, s->n_vocab, s->tied ? 1.0f : embedding);
    float added = s->tied ? share(s) / embedding : share(s); /* a tied embedding must stay small */
    for (int i = 0; i < s->n_layers; i++) {
        int l = order[i];
        vector(m, l, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
        matrix(m, l, "ffn_down.weight", s->d_ff, d, added / 0.6f);
        matrix(m, l, "ffn_gate.weight", d, s->d_ff, 1.5f);
        matrix(m, l, "ffn_up.weight", d, s->d_ff, 1.0f);
        vector(m, l, "ffn_norm.weight", d, SYNTH_NORM, 1.0f);
        vector(m, l, "attn_k.bias", kv, SYNTH_BIAS, 0.5f);
        matrix(m, l, "attn_k.weight", d, kv, q_gain);
        matrix(m, l, "attn_output.weight", d, d, ATTENTION_PART * added / 0.5f);
        vector(m, l, "attn_q.bias", d, SYNTH_BIAS, 0.5f);
        matrix(m, l, "attn_q.weight", d, d, q_gain);
        vector(m, l, "attn_v.bias", kv, SYNTH_BIAS, 0.2f);
        matrix(m, l, "attn_v.weight", d, kv, 1.0f);
    }
    vector(m, -1, "output_norm.weight", d, SYNTH_SIGNED, LOGIT_SPREAD);
    free(order);
}

/* ---- keys ---- */

typedef struct key_u32 {
    const char *key;
    int32_t value;
} key_u32;

static gem_status put_keys(gem_gguf_writer *w, const key_u32 *k, size_t n, gem_error *err)
{
    gem_status st = GEM_OK;
    for (size_t i = 0; i < n && st == GEM_OK; i++)
        st = gem_gguf_put_u32(w, k[i].key, (uint32_t)k[i].value, err);
    return st;
}

static gem_status keys_gemma3(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    gem_status st;
    const key_u32 keys[] = {
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
    if ((st = put_keys(w, keys, ARRAY_LEN(keys), err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_f32(w, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f, err)) != GEM_OK)
        return st;
    if ((st = gem_gguf_put_f32(w, "gemma3.rope.freq_base", s->rope_theta, err)) != GEM_OK)
        return st;
    if (s->rope_factor == 1.0f) return GEM_OK;
    if ((st = gem_gguf_put_str(w, "gemma3.rope.scaling.type", "linear", 6, err)) != GEM_OK)
        return st;
    return gem_gguf_put_f32(w, "gemma3.rope.scaling.factor", s->rope_factor, err);
}

static gem_status keys_qwen2(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    gem_status st;
    const key_u32 keys[] = {
        {"qwen2.block_count", s->n_layers},
        {"qwen2.context_length", s->n_ctx},
        {"qwen2.embedding_length", s->d_model},
        {"qwen2.feed_forward_length", s->d_ff},
        {"qwen2.attention.head_count", s->n_heads},
        {"qwen2.attention.head_count_kv", s->n_kv_heads},
    };
    if ((st = put_keys(w, keys, ARRAY_LEN(keys), err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_f32(w, "qwen2.rope.freq_base", s->rope_theta, err)) != GEM_OK) return st;
    return gem_gguf_put_f32(w, "qwen2.attention.layer_norm_rms_epsilon", 1e-6f, err);
}

static const struct family {
    const char *arch;
    void (*layout)(synth_model *m);
    gem_status (*keys)(gem_gguf_writer *w, const synth_shape *s, gem_error *err);
} families[] = {
    {"gemma3", layout_gemma3, keys_gemma3},
    {"qwen2", layout_qwen2, keys_qwen2},
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
