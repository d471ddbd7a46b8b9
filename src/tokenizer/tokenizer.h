/* tokenizer.h - text <-> token ids, exact. Two algorithms: SentencePiece-style score merging
 * (tokenizer.ggml.model = llama: gemma3) and byte-level rank BPE with a word splitter (gpt2: qwen2).
 * Read-only once built; used from any thread. Owned by the model. */
#ifndef GEM_TOKENIZER_H
#define GEM_TOKENIZER_H

#include "gguf/gguf.h"

typedef struct gem_tokenizer gem_tokenizer;

typedef enum gem_token_type { /* tokenizer.ggml.token_type */
    GEM_TOKEN_NORMAL = 1, GEM_TOKEN_UNKNOWN = 2, GEM_TOKEN_CONTROL = 3, GEM_TOKEN_USER_DEFINED = 4,
    GEM_TOKEN_UNUSED = 5, GEM_TOKEN_BYTE = 6
} gem_token_type;

/* Reads and checks every tokenizer.* key and marks them (gem_gguf_mark_kv). Keeps borrowed strings
 * of `g`, which must outlive the tokenizer. */
gem_status gem_tokenizer_open(gem_tokenizer **out, gem_gguf *g, gem_error *err);
void gem_tokenizer_close(gem_tokenizer *t);

int32_t gem_tokenizer_n_vocab(const gem_tokenizer *t);
int32_t gem_tokenizer_bos(const gem_tokenizer *t); /* -1: none; likewise eos, pad, unk */
int32_t gem_tokenizer_eos(const gem_tokenizer *t);
bool gem_tokenizer_add_bos(const gem_tokenizer *t);
bool gem_tokenizer_is_end(const gem_tokenizer *t, int32_t id); /* end-of-generation set, by token text */
gem_token_type gem_tokenizer_type(const gem_tokenizer *t, int32_t id);
/* Id of a token whose stored text is exactly this; -1 when none. */
int32_t gem_tokenizer_find(const gem_tokenizer *t, const char *text, size_t len);

/* flags: gem_tokenize_flags. *ids is malloc'd, the caller frees it. */
gem_status gem_tokenizer_encode(const gem_tokenizer *t, const char *text, size_t len, int flags,
                                int32_t **ids, size_t *n, gem_error *err);
/* Decoded bytes of one token, borrowed; control tokens give "" unless special. */
const char *gem_tokenizer_bytes(const gem_tokenizer *t, int32_t id, bool special, size_t *len);

#endif
