/* small_vocab.h - vocabularies of a few hundred tokens as GGUF bytes in memory, for tests and
 * fuzzers. Shaped like the real ones: byte tokens, markers of every type, merges that build up
 * words. */
#ifndef GEM_TEST_SMALL_VOCAB_H
#define GEM_TEST_SMALL_VOCAB_H

#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct vocab_spec {
    const char *model, *pre; /* pre NULL: no such key */
    struct {
        char *text;
        int32_t type;
        float score;
    } tok[640];
    uint32_t n_tok;
    const char *merge[64];
    uint32_t n_merge;
    const char *chat_template; /* NULL: none */
    int add_bos;               /* -1: no such key */
    int add_space_prefix;      /* likewise */
    int32_t bos, eos;          /* -1: none */
    bool no_scores, no_types;
} vocab_spec;

static inline uint32_t vocab_add(vocab_spec *v, const char *text, int32_t type, float score)
{
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (!copy || v->n_tok == ARRAY_LEN(v->tok)) abort();
    memcpy(copy, text, n);
    v->tok[v->n_tok].text = copy;
    v->tok[v->n_tok].type = type;
    v->tok[v->n_tok].score = score;
    return v->n_tok++;
}

static inline void vocab_clear(vocab_spec *v)
{
    for (uint32_t i = 0; i < v->n_tok; i++)
        free(v->tok[i].text);
    memset(v, 0, sizeof(*v));
}

static inline uint32_t vocab_id(const vocab_spec *v, const char *text)
{
    for (uint32_t i = 0; i < v->n_tok; i++)
        if (!strcmp(v->tok[i].text, text)) return i;
    fprintf(stderr, "no token \"%s\"\n", text);
    abort();
}

static inline void vocab_add_all(vocab_spec *v, const char *const *texts, size_t n, int32_t type)
{
    for (size_t i = 0; i < n; i++)
        vocab_add(v, texts[i], type, -(float)v->n_tok);
}

/* Characters that merge by score or rank; with markers as Gemma 3 and 4 have them. */
static inline void vocab_of_chars(vocab_spec *v, const char *model)
{
    static const char *const control[] = {"<pad>",           "<eos>",         "<bos>",   "<unk>",
                                          "<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>"};
    static const char *const user[] = {
        "\n", "\n\n", "\n\n\n",           "  ",         "   ",   "    ",
        "\t", "</s>", "<start_of_image>", "<|channel>", "<|\"|>"};
    static const char *const chars[] = {"\xE2\x96\x81",
                                        "a",
                                        "b",
                                        "c",
                                        "d",
                                        "e",
                                        "h",
                                        "l",
                                        "o",
                                        "r",
                                        "s",
                                        "t",
                                        "u",
                                        "w",
                                        "m",
                                        "<",
                                        ">",
                                        "|",
                                        "/",
                                        "_",
                                        "0",
                                        "1",
                                        "\xC3\xA9",
                                        "\xF0\x9F\x99\x82"};
    static const char *const joined[] = {"he",
                                         "ll",
                                         "ab",
                                         "bc",
                                         "hell",
                                         "hello",
                                         "\xE2\x96\x81w",
                                         "or",
                                         "ld",
                                         "\xE2\x96\x81wor",
                                         "\xE2\x96\x81world",
                                         "aa",
                                         "aaaa",
                                         "us",
                                         "user",
                                         "er",
                                         "mo",
                                         "abc"};
    static const char *const merges[] = {"h e",
                                         "l l",
                                         "a b",
                                         "b c",
                                         "he ll",
                                         "hell o",
                                         "\xE2\x96\x81 w",
                                         "o r",
                                         "l d",
                                         "\xE2\x96\x81w or",
                                         "\xE2\x96\x81wor ld",
                                         "a a",
                                         "aa aa",
                                         "u s",
                                         "us er",
                                         "e r",
                                         "m o",
                                         "ab c",
                                         "a bc"};
    char name[8];
    memset(v, 0, sizeof(*v));
    v->model = model;
    v->add_bos = v->add_space_prefix = -1;
    vocab_add_all(v, control, ARRAY_LEN(control), GEM_TOKEN_CONTROL);
    v->bos = (int32_t)vocab_id(v, "<bos>");
    v->eos = (int32_t)vocab_id(v, "<eos>");
    vocab_add_all(v, user, ARRAY_LEN(user), GEM_TOKEN_USER_DEFINED);
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)b);
        vocab_add(v, name, GEM_TOKEN_BYTE, -1000);
    }
    vocab_add_all(v, joined, ARRAY_LEN(joined), GEM_TOKEN_NORMAL);
    vocab_add_all(v, chars, ARRAY_LEN(chars), GEM_TOKEN_NORMAL);
    vocab_add(v, "<unused7>", GEM_TOKEN_UNUSED, -5);
    if (!strcmp(model, "llama")) return;
    memcpy(v->merge, merges, sizeof(merges));
    v->n_merge = ARRAY_LEN(merges);
}

/* Bytes of words that merge by rank; with markers as Qwen has them. */
static inline void vocab_of_words(vocab_spec *v, const char *pre)
{
    static const char *const joined[] = {"he",
                                         "ll",
                                         "hell",
                                         "hello",
                                         "\xC4\xA0w",
                                         "or",
                                         "ld",
                                         "\xC4\xA0wor",
                                         "\xC4\xA0world",
                                         "aa",
                                         "aaaa",
                                         "us",
                                         "user",
                                         "\xC3\x83\xC2\xA9",
                                         "\xC4\x8A\xC4\x8A",
                                         "as",
                                         "sys",
                                         "tem",
                                         "system",
                                         "te",
                                         "sy"};
    static const char *const merges[] = {"h e",
                                         "l l",
                                         "he ll",
                                         "hell o",
                                         "\xC4\xA0 w",
                                         "o r",
                                         "l d",
                                         "\xC4\xA0w or",
                                         "\xC4\xA0wor ld",
                                         "a a",
                                         "aa aa",
                                         "u s",
                                         "us er",
                                         "\xC3\x83 \xC2\xA9",
                                         "\xC4\x8A \xC4\x8A",
                                         "s y",
                                         "sy s",
                                         "t e",
                                         "te m",
                                         "sys tem"};
    static const char *const control[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    static const char *const user[] = {"<tool_call>", "</tool_call>"};
    memset(v, 0, sizeof(*v));
    v->model = "gpt2";
    v->pre = pre;
    v->add_bos = v->add_space_prefix = -1;
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char text[5] = {0};
        gem_utf8_encode(printable ? b : next++, text);
        vocab_add(v, text, GEM_TOKEN_NORMAL, 0);
    }
    vocab_add_all(v, joined, ARRAY_LEN(joined), GEM_TOKEN_NORMAL);
    vocab_add(v, "er", GEM_TOKEN_NORMAL, 0);
    memcpy(v->merge, merges, sizeof(merges));
    v->n_merge = ARRAY_LEN(merges);
    v->merge[v->n_merge++] = "e r";
    vocab_add_all(v, control, ARRAY_LEN(control), GEM_TOKEN_CONTROL);
    vocab_add_all(v, user, ARRAY_LEN(user), GEM_TOKEN_USER_DEFINED);
    vocab_add(v, "[PAD0]", GEM_TOKEN_UNUSED, 0);
    v->bos = (int32_t)vocab_id(v, "<|endoftext|>");
    v->eos = (int32_t)vocab_id(v, "<|im_end|>");
    v->add_bos = 0;
}

/* ---- as a file ---- */

static inline void gguf_u32(gem_bytes *b, uint32_t v)
{
    gem_bytes_put(b, &v, 4);
}

static inline void gguf_u64(gem_bytes *b, uint64_t v)
{
    gem_bytes_put(b, &v, 8);
}

static inline void gguf_str(gem_bytes *b, const char *s)
{
    gguf_u64(b, strlen(s));
    gem_bytes_put(b, s, strlen(s));
}

static inline void gguf_key(gem_bytes *b, const char *key, gem_kv_kind kind)
{
    gguf_str(b, key);
    gguf_u32(b, (uint32_t)kind);
}

static inline void gguf_array(gem_bytes *b, const char *key, gem_kv_kind elem, uint64_t n)
{
    gguf_key(b, key, GEM_GGUF_ARRAY);
    gguf_u32(b, (uint32_t)elem);
    gguf_u64(b, n);
}

static inline uint64_t vocab_optional(const vocab_spec *v, gem_bytes *b)
{
    uint64_t n = 0;
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", v->bos}, {"tokenizer.ggml.eos_token_id", v->eos}};
    const struct {
        const char *key;
        int value;
    } bools[] = {{"tokenizer.ggml.add_bos_token", v->add_bos},
                 {"tokenizer.ggml.add_space_prefix", v->add_space_prefix}};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        if (ids[i].id < 0) continue;
        gguf_key(b, ids[i].key, GEM_GGUF_U32);
        gguf_u32(b, (uint32_t)ids[i].id);
        n++;
    }
    for (size_t i = 0; i < ARRAY_LEN(bools); i++) {
        if (bools[i].value < 0) continue;
        uint8_t value = bools[i].value != 0;
        gguf_key(b, bools[i].key, GEM_GGUF_BOOL);
        gem_bytes_put(b, &value, 1);
        n++;
    }
    if (v->pre) {
        gguf_key(b, "tokenizer.ggml.pre", GEM_GGUF_STRING);
        gguf_str(b, v->pre);
        n++;
    }
    if (v->chat_template) {
        gguf_key(b, "tokenizer.chat_template", GEM_GGUF_STRING);
        gguf_str(b, v->chat_template);
        n++;
    }
    return n;
}

/* The whole file: metadata alone, no tensors. The caller frees with gem_bytes_free. */
static inline gem_bytes vocab_file(const vocab_spec *v)
{
    gem_bytes kv = {0}, file = {0};
    uint64_t n = vocab_optional(v, &kv);
    gguf_key(&kv, "general.architecture", GEM_GGUF_STRING);
    gguf_str(&kv, "test");
    gguf_key(&kv, "tokenizer.ggml.model", GEM_GGUF_STRING);
    gguf_str(&kv, v->model);
    gguf_array(&kv, "tokenizer.ggml.tokens", GEM_GGUF_STRING, v->n_tok);
    for (uint32_t i = 0; i < v->n_tok; i++)
        gguf_str(&kv, v->tok[i].text);
    n += 3;
    if (!v->no_types) {
        gguf_array(&kv, "tokenizer.ggml.token_type", GEM_GGUF_I32, v->n_tok);
        for (uint32_t i = 0; i < v->n_tok; i++)
            gguf_u32(&kv, (uint32_t)v->tok[i].type);
        n++;
    }
    if (!v->no_scores) {
        gguf_array(&kv, "tokenizer.ggml.scores", GEM_GGUF_F32, v->n_tok);
        for (uint32_t i = 0; i < v->n_tok; i++)
            gem_bytes_put(&kv, &v->tok[i].score, 4);
        n++;
    }
    if (v->n_merge) {
        gguf_array(&kv, "tokenizer.ggml.merges", GEM_GGUF_STRING, v->n_merge);
        for (uint32_t i = 0; i < v->n_merge; i++)
            gguf_str(&kv, v->merge[i]);
        n++;
    }
    gem_bytes_put(&file, "GGUF", 4);
    gguf_u32(&file, 3);
    gguf_u64(&file, 0);
    gguf_u64(&file, n);
    gem_bytes_put(&file, kv.data, kv.len);
    while (file.len % 32)
        gem_bytes_put(&file, "", 1);
    gem_bytes_free(&kv);
    return file;
}

/* An open vocabulary with the bytes it stands on. */
typedef struct small_vocab {
    gem_bytes file;
    gem_gguf *g;
    gem_tokenizer *t;
} small_vocab;

static inline gem_status small_open(small_vocab *s, const vocab_spec *v, gem_error *err)
{
    memset(s, 0, sizeof(*s));
    s->file = vocab_file(v);
    gem_status st = gem_gguf_open_memory(&s->g, s->file.data, s->file.len, "small", err);
    return st != GEM_OK ? st : gem_tokenizer_open(&s->t, s->g, err);
}

static inline void small_close(small_vocab *s)
{
    gem_tokenizer_close(s->t);
    gem_gguf_close(s->g);
    gem_bytes_free(&s->file);
}

#endif
