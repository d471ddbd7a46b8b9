/* tiny_model.h - small files of each family, made on the spot with seeded weights, and ways to
 * break them: leave a key or tensor out, change a number, add something unknown. */
#ifndef GEM_TINY_MODEL_H
#define GEM_TINY_MODEL_H

#include "gguf/gguf_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct tiny {
    const char *arch; /* "gemma3", "gemma4", "qwen2" or "qwen35" */
    uint32_t d, ff, heads, kv_heads, hd, layers, vocab, window, ctx;
    uint32_t global_hd, global_kv; /* gemma4: of layers 2, 5, ..., which see all */
    gem_dtype linear, embd;        /* types of matrices */
    bool output;                   /* a head of its own */
    bool tokenizer;
    /* breakage; NULL: none */
    const char *skip; /* key or tensor that is left out */
    const char *key; /* u32 key that is written with `value` (instead of its own, or in addition) */
    uint32_t value;
    const char *f32_key;
    float f32_value;
    const char *str_key, *str_value;
    const char *tensor; /* tensor whose dims are `dims` (its own, or in addition) */
    uint64_t dims[2];
    const char *as_f16; /* vector stored as F16 */
    const char *nan_in; /* tensor whose last value is NaN (F32 only) */
    float rope_freqs;   /* gemma4: the factor that stops pairs, in its place; 0: 1e30 */
    bool d_ff_array, unit_scales, no_bos; /* gemma4 */
    const char *extra;                    /* a further tensor */
    float add;                            /* to every norm weight, as a broken converter would */
    /* qwen35: layers 3, 7, ... are attention, the others recurrent */
    uint32_t k_heads, v_heads, state;
    bool nextn, kinds, heads_array; /* block that predicts ahead; kinds, KV heads as arrays */
    bool growing;                   /* ssm_a above 0 */
    const char *pre;                /* tokenizer.ggml.pre; NULL: the family's */
    int pattern; /* gemma3: > 0 period key; < 0: bool array of -pattern elements; 0: no key */
} tiny;

static inline tiny tiny_gemma3(void)
{
    return (tiny){.arch = "gemma3",
                  .d = 64,
                  .ff = 96,
                  .heads = 2,
                  .kv_heads = 1,
                  .hd = 32,
                  .layers = 7,
                  .vocab = 300,
                  .window = 100,
                  .ctx = 4096,
                  .linear = GEM_DTYPE_Q8_0,
                  .embd = GEM_DTYPE_Q8_0};
}

static inline tiny tiny_gemma4(void)
{
    return (tiny){.arch = "gemma4",
                  .d = 64,
                  .ff = 96,
                  .heads = 4,
                  .kv_heads = 2,
                  .hd = 32,
                  .global_hd = 64,
                  .global_kv = 1,
                  .layers = 6,
                  .vocab = 300,
                  .window = 100,
                  .ctx = 4096,
                  .linear = GEM_DTYPE_Q8_0,
                  .embd = GEM_DTYPE_Q8_0};
}

static inline tiny tiny_qwen2(void)
{
    return (tiny){.arch = "qwen2",
                  .d = 64,
                  .ff = 96,
                  .heads = 2,
                  .kv_heads = 1,
                  .hd = 32,
                  .layers = 3,
                  .vocab = 300,
                  .ctx = 4096,
                  .linear = GEM_DTYPE_Q8_0,
                  .embd = GEM_DTYPE_F16,
                  .output = true};
}

static inline tiny tiny_qwen35(void)
{
    return (tiny){.arch = "qwen35",
                  .d = 64,
                  .ff = 96,
                  .heads = 2,
                  .kv_heads = 1,
                  .hd = 128,
                  .layers = 4,
                  .vocab = 300,
                  .ctx = 4096,
                  .k_heads = 2,
                  .v_heads = 4,
                  .state = 32,
                  .linear = GEM_DTYPE_Q8_0,
                  .embd = GEM_DTYPE_Q8_0,
                  .output = true};
}

/* The writer, the description and whatever tensor comes next; a failure sticks. */
typedef struct tiny_writer {
    gem_gguf_writer *w;
    const tiny *t;
    gem_status st;
    gem_error err;
    bool declare; /* first pass declares tensors, second writes their data */
    uint32_t z;
} tiny_writer;

static inline bool tiny_is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static inline void tiny_u32(tiny_writer *w, const char *name, uint32_t v)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", w->t->arch, name);
    if (w->st || tiny_is(w->t->skip, name) || tiny_is(w->t->key, name)) return;
    w->st = gem_gguf_put_u32(w->w, key, v, &w->err);
}

static inline void tiny_f32(tiny_writer *w, const char *name, float v)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", w->t->arch, name);
    if (w->st || tiny_is(w->t->skip, name) || tiny_is(w->t->f32_key, name)) return;
    w->st = gem_gguf_put_f32(w->w, key, v, &w->err);
}

static inline bool tiny_global(const tiny *t, uint32_t layer)
{
    return t->global_hd && layer % 3 == 2;
}

static inline void tiny_array(tiny_writer *w, const char *name, gem_kv_kind kind, const void *data,
                              uint64_t n)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", w->t->arch, name);
    if (w->st || tiny_is(w->t->skip, name) || tiny_is(w->t->key, name)) return;
    w->st = gem_gguf_put_array(w->w, key, kind, data, n, &w->err);
}

static inline void tiny_gemma4_keys(tiny_writer *w)
{
    const tiny *t = w->t;
    int32_t n_kv[64];
    uint8_t slides[64];
    for (uint32_t l = 0; l < t->layers && l < 64; l++) {
        n_kv[l] = (int32_t)(tiny_global(t, l) ? t->global_kv : t->kv_heads);
        slides[l] = !tiny_global(t, l);
    }
    uint64_t n = t->pattern < 0 ? (uint64_t)-t->pattern : t->layers;
    tiny_array(w, "attention.head_count_kv", GEM_GGUF_I32, n_kv, t->layers);
    tiny_array(w, "attention.sliding_window_pattern", GEM_GGUF_BOOL, slides, n);
    tiny_u32(w, "attention.key_length", t->global_hd);
    tiny_u32(w, "attention.value_length", t->global_hd);
    tiny_u32(w, "attention.key_length_swa", t->hd);
    tiny_u32(w, "attention.value_length_swa", t->hd);
    tiny_u32(w, "attention.sliding_window", t->window);
    tiny_u32(w, "rope.dimension_count", t->global_hd);
    tiny_u32(w, "rope.dimension_count_swa", t->hd);
    tiny_u32(w, "attention.shared_kv_layers", 0);
    tiny_u32(w, "embedding_length_per_layer_input", 0);
    tiny_f32(w, "rope.freq_base_swa", 1e4f);
    tiny_f32(w, "final_logit_softcapping", 30.0f);
}

static inline void tiny_qwen35_keys(tiny_writer *w)
{
    const tiny *t = w->t;
    uint8_t recurrent[64];
    int32_t n_kv[64], sections[4] = {6, 5, 5, 0};
    uint32_t blocks = t->layers + t->nextn;
    for (uint32_t l = 0; l < 64; l++) {
        recurrent[l] = l % 4 != 3 && l < t->layers;
        n_kv[l] = recurrent[l] ? 0 : (int32_t)t->kv_heads;
    }
    if (t->heads_array)
        tiny_array(w, "attention.head_count_kv", GEM_GGUF_I32, n_kv, blocks);
    else
        tiny_u32(w, "attention.head_count_kv", t->kv_heads);
    if (t->kinds) tiny_array(w, "attention.recurrent_layers", GEM_GGUF_BOOL, recurrent, blocks);
    tiny_u32(w, "attention.key_length", t->hd);
    tiny_u32(w, "attention.value_length", t->hd);
    tiny_u32(w, "rope.dimension_count", t->hd / 4);
    tiny_array(w, "rope.dimension_sections", GEM_GGUF_I32, sections, t->pattern ? 2 : 4);
    tiny_u32(w, "ssm.conv_kernel", 4);
    tiny_u32(w, "ssm.state_size", t->state);
    tiny_u32(w, "ssm.group_count", t->k_heads);
    tiny_u32(w, "ssm.time_step_rank", t->v_heads);
    tiny_u32(w, "ssm.inner_size", t->v_heads * t->state);
    if (t->nextn) tiny_u32(w, "nextn_predict_layers", 1);
}

static inline void tiny_keys(tiny_writer *w)
{
    const tiny *t = w->t;
    char key[128];
    w->st = gem_gguf_put_str(w->w, "general.architecture", t->arch, strlen(t->arch), &w->err);
    if (!w->st) w->st = gem_gguf_put_str(w->w, "general.name", "tiny", 4, &w->err);
    tiny_u32(w, "context_length", t->ctx);
    tiny_u32(w, "embedding_length", t->d);
    tiny_u32(w, "block_count", t->layers + t->nextn);
    const int32_t d_ff[2] = {(int32_t)t->ff, (int32_t)t->ff * 2};
    if (t->d_ff_array)
        tiny_array(w, "feed_forward_length", GEM_GGUF_I32, d_ff, 2);
    else
        tiny_u32(w, "feed_forward_length", t->ff);
    tiny_u32(w, "attention.head_count", t->heads);
    if (t->global_hd)
        tiny_gemma4_keys(w);
    else if (t->state)
        tiny_qwen35_keys(w);
    else
        tiny_u32(w, "attention.head_count_kv", t->kv_heads);
    tiny_f32(w, "attention.layer_norm_rms_epsilon", 1e-6f);
    tiny_f32(w, "rope.freq_base", 1e6f);
    if (tiny_is(t->arch, "gemma3")) {
        tiny_u32(w, "attention.key_length", t->hd);
        tiny_u32(w, "attention.value_length", t->hd);
        tiny_u32(w, "attention.sliding_window", t->window);
        if (t->pattern > 0) tiny_u32(w, "attention.sliding_window_pattern", (uint32_t)t->pattern);
        uint8_t flags[64];
        for (int i = 0; i < 64; i++)
            flags[i] = i % 2 == 0; /* every other layer slides */
        if (!w->st && t->pattern < 0)
            w->st = gem_gguf_put_array(w->w, "gemma3.attention.sliding_window_pattern",
                                       GEM_GGUF_BOOL, flags, (uint64_t)-t->pattern, &w->err);
    }
    if (!w->st && t->key) {
        snprintf(key, sizeof(key), "%s.%s", t->arch, t->key);
        w->st = gem_gguf_put_u32(w->w, key, t->value, &w->err);
    }
    if (!w->st && t->f32_key) {
        snprintf(key, sizeof(key), "%s.%s", t->arch, t->f32_key);
        w->st = gem_gguf_put_f32(w->w, key, t->f32_value, &w->err);
    }
    if (!w->st && t->str_key)
        w->st = gem_gguf_put_str(w->w, t->str_key, t->str_value, strlen(t->str_value), &w->err);
}

/* SentencePiece-like: control tokens 0..3, bytes at 4..259, then single letters. Byte-level: a
 * piece for each byte, then end markers. */
static inline void tiny_tokens(tiny_writer *w)
{
    const tiny *t = w->t;
    bool gemma4 = tiny_is(t->arch, "gemma4"), spm = gemma4 || tiny_is(t->arch, "gemma3");
    static const char *const control[4] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    char(*text)[24] = calloc(t->vocab, sizeof(*text));
    gem_str *tokens = calloc(t->vocab, sizeof(*tokens));
    float *scores = calloc(t->vocab, sizeof(*scores));
    int32_t *types = calloc(t->vocab, sizeof(*types));
    uint32_t extra = 0;
    for (uint32_t i = 0; i < t->vocab; i++) {
        uint32_t byte = spm ? i - 4 : i;
        types[i] = 1;
        scores[i] = -(float)i;
        if (spm && i < 4) {
            snprintf(text[i], sizeof(text[i]), "%s", control[i]);
            types[i] = i == 3 ? 2 : 3;
        } else if (byte < 256 && spm) {
            snprintf(text[i], sizeof(text[i]), "<0x%02X>", byte);
            types[i] = 6;
        } else if (byte < 256) {
            /* printable bytes stand for themselves, the others for U+0100 and up, in order */
            bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
            text[i][gem_utf8_encode(plain ? byte : 256 + extra++, text[i])] = 0;
        } else if (i == t->vocab - 1) {
            snprintf(text[i], sizeof(text[i]), "%s",
                     gemma4 ? "<turn|>"
                     : spm  ? "<end_of_turn>"
                            : "<|im_end|>");
            types[i] = 3;
        } else if (spm && byte - 256 < 26) {
            snprintf(text[i], sizeof(text[i]), "%c", 'a' + (int)(byte - 256));
        } else {
            snprintf(text[i], sizeof(text[i]), "<unused%u>", i);
            types[i] = 5;
        }
        tokens[i] = (gem_str){text[i], strlen(text[i])};
    }
    const char *model = gemma4 ? "gemma4" : spm ? "llama" : "gpt2";
    const char *pre = t->pre ? t->pre : spm ? "default" : t->state ? "qwen35" : "qwen2";
    gem_gguf_writer *g = w->w;
    if (!w->st) w->st = gem_gguf_put_str(g, "tokenizer.ggml.model", model, strlen(model), &w->err);
    if (!w->st) w->st = gem_gguf_put_str(g, "tokenizer.ggml.pre", pre, strlen(pre), &w->err);
    if (!w->st)
        w->st = gem_gguf_put_array(g, "tokenizer.ggml.tokens", GEM_GGUF_STRING, tokens, t->vocab,
                                   &w->err);
    if (!w->st && spm)
        w->st =
            gem_gguf_put_array(g, "tokenizer.ggml.scores", GEM_GGUF_F32, scores, t->vocab, &w->err);
    if (!w->st)
        w->st = gem_gguf_put_array(g, "tokenizer.ggml.token_type", GEM_GGUF_I32, types, t->vocab,
                                   &w->err);
    static const gem_str no_merges[1];
    if (!w->st && (gemma4 || !spm))
        w->st =
            gem_gguf_put_array(g, "tokenizer.ggml.merges", GEM_GGUF_STRING, no_merges, 0, &w->err);
    if (!w->st)
        w->st = gem_gguf_put_u32(g, "tokenizer.ggml.bos_token_id", spm ? 2 : t->vocab - 1, &w->err);
    if (!w->st)
        w->st = gem_gguf_put_u32(g, "tokenizer.ggml.eos_token_id", spm ? 1 : t->vocab - 1, &w->err);
    if (!w->st && spm) w->st = gem_gguf_put_u32(g, "tokenizer.ggml.unknown_token_id", 3, &w->err);
    if (!w->st)
        w->st =
            gem_gguf_put_u32(g, "tokenizer.ggml.padding_token_id", spm ? 0 : t->vocab - 1, &w->err);
    if (!w->st)
        w->st = gem_gguf_put_bool(g, "tokenizer.ggml.add_bos_token", spm && !t->no_bos, &w->err);
    if (!w->st && spm)
        w->st = gem_gguf_put_bool(g, "tokenizer.ggml.add_space_prefix", false, &w->err);
    free(text);
    free(tokens);
    free(scores);
    free(types);
}

static inline float tiny_random(tiny_writer *w)
{
    w->z = w->z * 1664525u + 1013904223u;
    return (float)(int32_t)(w->z >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
}

/* One tensor: declared in the first pass, its rows written in the second. n1 0: a vector. */
static inline void tiny_tensor(tiny_writer *w, const char *name, gem_dtype type, uint64_t n0,
                               uint64_t n1)
{
    const tiny *t = w->t;
    if (w->st || tiny_is(t->skip, name)) return;
    uint64_t dims[2] = {n0, n1};
    if (tiny_is(t->tensor, name)) memcpy(dims, t->dims, sizeof(dims));
    if (tiny_is(t->as_f16, name)) type = GEM_DTYPE_F16;
    uint32_t n_dims = dims[1] ? 2 : 1;
    if (w->declare) {
        w->st = gem_gguf_declare_tensor(w->w, name, type, n_dims, dims, &w->err);
        return;
    }
    size_t row_bytes;
    gem_dtype_row_bytes(gem_dtype_get(type), dims[0], &row_bytes);
    float *row = malloc(dims[0] * sizeof(*row));
    char *packed = malloc(row_bytes);
    uint64_t n_rows = GEM_MAX(dims[1], 1);
    for (uint64_t r = 0; r < n_rows && !w->st; r++) {
        for (uint64_t i = 0; i < dims[0]; i++)
            row[i] = n_dims == 1 ? 1.0f + 0.2f * tiny_random(w) + t->add
                                 : tiny_random(w) * 1.7f / sqrtf((float)dims[0]);
        for (uint64_t i = 0; i < dims[0] && tiny_is(name, "rope_freqs.weight"); i++)
            row[i] = i < dims[0] / 4 ? 1.0f : t->rope_freqs ? t->rope_freqs : 1e30f;
        for (uint64_t i = 0; i < dims[0] && strstr(name, "ssm_a") && n_dims == 1; i++)
            row[i] = t->growing ? fabsf(row[i]) : -fabsf(row[i]);
        if (t->unit_scales && strstr(name, "layer_output_scale")) row[0] = 1.0f;
        if (tiny_is(t->nan_in, name) && r == n_rows - 1) row[dims[0] - 1] = NAN;
        gem_quantize_row(type, row, packed, dims[0]);
        w->st = gem_gguf_put_data(w->w, packed, row_bytes, &w->err);
    }
    free(row);
    free(packed);
}

static inline void tiny_layer(tiny_writer *w, uint32_t l)
{
    const tiny *t = w->t;
    bool gemma = !tiny_is(t->arch, "qwen2"), global = tiny_global(t, l);
    uint32_t hd = global ? t->global_hd : t->hd, q = t->heads * hd,
             kv = (global ? t->global_kv : t->kv_heads) * hd;
    const struct {
        const char *name;
        uint64_t n0, n1;
        int only; /* 1: gemma3 and 4, 2: qwen2, 3: gemma4, 4: not on its global layers */
    } list[] = {
        {"attn_norm.weight", t->d, 0, 0},
        {"attn_q.weight", t->d, q, 0},
        {"attn_k.weight", t->d, kv, 0},
        {"attn_v.weight", t->d, kv, 4},
        {"attn_q.bias", q, 0, 2},
        {"attn_k.bias", kv, 0, 2},
        {"attn_v.bias", kv, 0, 2},
        {"attn_q_norm.weight", hd, 0, 1},
        {"attn_k_norm.weight", hd, 0, 1},
        {"attn_output.weight", q, t->d, 0},
        {"ffn_norm.weight", t->d, 0, 0},
        {"post_attention_norm.weight", t->d, 0, 1},
        {"ffn_gate.weight", t->d, t->ff, 0},
        {"ffn_up.weight", t->d, t->ff, 0},
        {"ffn_down.weight", t->ff, t->d, 0},
        {"post_ffw_norm.weight", t->d, 0, 1},
        {"layer_output_scale.weight", 1, 0, 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        char name[64];
        if (list[i].only == (gemma ? 2 : 1) || (list[i].only == 3 && !t->global_hd)) continue;
        if (list[i].only == 4 && global && !tiny_is(t->tensor, "attn_v")) continue;
        snprintf(name, sizeof(name), "blk.%u.%s", l, list[i].name);
        tiny_tensor(w, name, list[i].n1 ? t->linear : GEM_DTYPE_F32, list[i].n0, list[i].n1);
    }
}

/* Layer number t->layers is the block that predicts ahead. */
static inline void tiny_hybrid_layer(tiny_writer *w, uint32_t l)
{
    const tiny *t = w->t;
    uint32_t q = t->heads * t->hd, kv = t->kv_heads * t->hd, inner = t->v_heads * t->state,
             conv = 2 * t->k_heads * t->state + inner;
    int kind = l == t->layers ? 4 : l % 4 == 3 ? 2 : 1;
    const struct {
        const char *name;
        uint64_t n0, n1;
        int kinds; /* sum of 1: recurrent, 2: attention, 4: block that predicts ahead */
        bool f32;
    } list[] = {
        {"attn_norm.weight", t->d, 0, 7, false},
        {"post_attention_norm.weight", t->d, 0, 7, false},
        {"ffn_gate.weight", t->d, t->ff, 7, false},
        {"ffn_up.weight", t->d, t->ff, 7, false},
        {"ffn_down.weight", t->ff, t->d, 7, false},
        {"attn_q.weight", t->d, 2 * q, 6, false},
        {"attn_k.weight", t->d, kv, 6, false},
        {"attn_v.weight", t->d, kv, 6, false},
        {"attn_output.weight", q, t->d, 6, false},
        {"attn_q_norm.weight", t->hd, 0, 6, false},
        {"attn_k_norm.weight", t->hd, 0, 6, false},
        {"attn_qkv.weight", t->d, conv, 1, false},
        {"attn_gate.weight", t->d, inner, 1, false},
        {"ssm_conv1d.weight", 4, conv, 1, true},
        {"ssm_dt.bias", t->v_heads, 0, 1, false},
        {"ssm_a", t->v_heads, 0, 1, false},
        {"ssm_alpha.weight", t->d, t->v_heads, 1, true},
        {"ssm_beta.weight", t->d, t->v_heads, 1, false},
        {"ssm_norm.weight", t->state, 0, 1, false},
        {"ssm_out.weight", inner, t->d, 1, false},
        {"nextn.eh_proj.weight", 2 * t->d, t->d, 4, false},
        {"nextn.enorm.weight", t->d, 0, 4, false},
        {"nextn.hnorm.weight", t->d, 0, 4, false},
        {"nextn.shared_head_norm.weight", t->d, 0, 4, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        char name[64];
        if (!(list[i].kinds & kind)) continue;
        snprintf(name, sizeof(name), "blk.%u.%s", l, list[i].name);
        tiny_tensor(w, name, list[i].n1 && !list[i].f32 ? t->linear : GEM_DTYPE_F32, list[i].n0,
                    list[i].n1);
    }
}

static inline void tiny_tensors(tiny_writer *w)
{
    const tiny *t = w->t;
    tiny_tensor(w, "token_embd.weight", t->embd, t->d, t->vocab);
    tiny_tensor(w, "output_norm.weight", GEM_DTYPE_F32, t->d, 0);
    if (t->output) tiny_tensor(w, "output.weight", t->linear, t->d, t->vocab);
    for (uint32_t l = 0; l < t->layers + t->nextn; l++) {
        char block[16];
        snprintf(block, sizeof(block), "blk.%u", l);
        if (tiny_is(t->skip, block)) continue; /* a whole block */
        if (t->state)
            tiny_hybrid_layer(w, l);
        else
            tiny_layer(w, l);
    }
    if (t->global_hd) tiny_tensor(w, "rope_freqs.weight", GEM_DTYPE_F32, t->global_hd / 2, 0);
    if (t->extra) tiny_tensor(w, t->extra, GEM_DTYPE_F32, 32, 0);
    if (tiny_is(t->tensor, "extra.weight")) tiny_tensor(w, "extra.weight", GEM_DTYPE_F32, 32, 0);
}

/* Writes `path`; false with the reason on stderr. */
static inline bool tiny_write(const tiny *t, const char *path)
{
    tiny_writer w = {.t = t, .z = 12345, .declare = true};
    w.st = gem_gguf_writer_new(&w.w, path, &w.err);
    if (!w.st) tiny_keys(&w);
    if (!w.st && t->tokenizer) tiny_tokens(&w);
    tiny_tensors(&w);
    w.declare = false;
    tiny_tensors(&w);
    if (!w.st) w.st = gem_gguf_writer_finish(w.w, &w.err);
    gem_gguf_writer_free(w.w);
    if (w.st) fprintf(stderr, "tiny model: %s\n", w.err.text);
    return w.st == GEM_OK;
}

/* A name of its own in the current folder. */
static inline const char *tiny_path(char buf[128], const char *what)
{
    snprintf(buf, 128, "tiny-%s-%ld.gguf", what, (long)getpid());
    return buf;
}

#endif
