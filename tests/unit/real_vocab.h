/* real_vocab.h - vocabularies of real model files, for tests that need them. The folder is
 * $GEM_MODEL_DIR, else $XDG_CACHE_HOME/gem, else ~/.cache/gem (scripts/fetch-model.sh fills it). */
#ifndef GEM_TEST_REAL_VOCAB_H
#define GEM_TEST_REAL_VOCAB_H

#include "gguf/gguf_write.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define REAL_GEMMA3 "gemma-3-270m-q4_k_m.gguf"
#define REAL_QWEN2 "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
#define REAL_QWEN35 "qwen3.5-vocab.gguf"      /* see make_qwen35_vocab.py */
#define REAL_GEMMA4 "ggml-vocab-gemma-4.gguf" /* metadata only; of llama.cpp's sources */

typedef struct real_vocab {
    gem_gguf *g;
    gem_tokenizer *t; /* NULL: the file is not there */
} real_vocab;

static inline void real_path(char *path, size_t size, const char *file)
{
    const char *dir = getenv("GEM_MODEL_DIR"), *cache = getenv("XDG_CACHE_HOME");
    if (dir && *dir)
        snprintf(path, size, "%s/%s", dir, file);
    else if (cache && *cache)
        snprintf(path, size, "%s/gem/%s", cache, file);
    else
        snprintf(path, size, "%s/.cache/gem/%s", getenv("HOME") ? getenv("HOME") : "", file);
}

/* False, with a line on stderr, when the file is absent; a file that does not open ends the test.
 */
static inline bool real_open(real_vocab *v, const char *file)
{
    char path[4096];
    gem_error err = {0};
    memset(v, 0, sizeof(*v));
    real_path(path, sizeof(path), file);
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "%s is not there; what needs it is skipped\n", path);
        return false;
    }
    gem_status st = gem_gguf_open(&v->g, path, &err);
    if (st == GEM_OK) st = gem_tokenizer_open(&v->t, v->g, &err);
    if (st == GEM_OK) return true;
    fprintf(stderr, "%s: %s\n", path, err.text);
    exit(1);
}

static inline void real_close(real_vocab *v)
{
    gem_tokenizer_close(v->t);
    gem_gguf_close(v->g);
    memset(v, 0, sizeof(*v));
}

/* The words of `from` under another splitter: a file with its vocabulary and the given
 * tokenizer.ggml.pre, under /tmp; open until real_close. */
static inline bool real_open_as(real_vocab *v, const real_vocab *from, const char *pre)
{
    char path[64];
    gem_error err = {0};
    gem_gguf_writer *w = NULL;
    gem_status st = GEM_OK;
    uint64_t n_tok, n_types, n_merges;
    const uint8_t *tokens, *types, *merges;
    gem_str *text = NULL;
    memset(v, 0, sizeof(*v));
    snprintf(path, sizeof(path), "/tmp/gem-vocab-%ld.gguf", (long)getpid());
    st = gem_gguf_get_array(from->g, "tokenizer.ggml.tokens", true, GEM_GGUF_STRING, &tokens,
                            &n_tok, &err);
    if (!st)
        st = gem_gguf_get_array(from->g, "tokenizer.ggml.token_type", true, GEM_GGUF_I32, &types,
                                &n_types, &err);
    if (!st)
        st = gem_gguf_get_array(from->g, "tokenizer.ggml.merges", true, GEM_GGUF_STRING, &merges,
                                &n_merges, &err);
    if (!st) text = calloc((size_t)(n_tok > n_merges ? n_tok : n_merges), sizeof(*text));
    if (!st) st = gem_gguf_writer_new(&w, path, &err);
    if (!st) st = gem_gguf_put_str(w, "general.architecture", "test", 4, &err);
    if (!st) st = gem_gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4, &err);
    if (!st) st = gem_gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre), &err);
    if (!st)
        st = gem_gguf_put_array(w, "tokenizer.ggml.token_type", GEM_GGUF_I32, types, n_types, &err);
    for (uint64_t i = 0; !st && i < n_tok; i++)
        text[i] = gem_kv_string_next(&tokens);
    if (!st)
        st = gem_gguf_put_array(w, "tokenizer.ggml.tokens", GEM_GGUF_STRING, text, n_tok, &err);
    for (uint64_t i = 0; !st && i < n_merges; i++)
        text[i] = gem_kv_string_next(&merges);
    if (!st)
        st = gem_gguf_put_array(w, "tokenizer.ggml.merges", GEM_GGUF_STRING, text, n_merges, &err);
    if (!st) st = gem_gguf_writer_finish(w, &err);
    gem_gguf_writer_free(w);
    free(text);
    if (!st) st = gem_gguf_open(&v->g, path, &err);
    if (!st) st = gem_tokenizer_open(&v->t, v->g, &err);
    unlink(path);
    if (st) fprintf(stderr, "%s\n", err.text);
    return st == GEM_OK;
}

#endif
