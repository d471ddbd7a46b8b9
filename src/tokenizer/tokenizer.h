/* tokenizer.h - text <-> token ids, exact. Three algorithms by tokenizer.ggml.model: SentencePiece-style
 * score merging (llama: gemma3), rank BPE over characters (gemma4), and byte-level rank BPE with a word
 * splitter (gpt2, by tokenizer.ggml.pre: qwen2, qwen35).
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
 * of `g`, which must outlive the tokenizer. Token texts must differ; every one of the 256 bytes needs its
 * token (<0x00>.. of type 6; for gpt2 the byte alphabet's characters), and merges must be among the tokens.
 * errors GEM_E_FORMAT naming key and entry, GEM_E_UNSUPPORTED naming what is supported, GEM_E_NOMEM */
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
/* tokenizer.chat_template as the file has it, never run; {NULL, 0} when absent. Borrowed from the file. */
gem_str gem_tokenizer_chat_template(const gem_tokenizer *t);

/* A flag beside gem_tokenize_flags, for text that must not spell any marker of a chat protocol. Without
 * it, and without GEM_TOK_SPECIAL, control tokens stay plain text, while tags that a vocabulary holds as
 * user-defined (Qwen's <tool_call>, Gemma 3's <start_of_image>) match; Gemma 4's tool and channel
 * markers count as control tokens whatever their type. Wins over GEM_TOK_SPECIAL. */
#define GEM_TOK_PLAIN (1 << 8)

/* flags: gem_tokenize_flags and GEM_TOK_PLAIN. *ids is malloc'd, the caller frees it.
 * Each byte that is no UTF-8 becomes the token of that byte (in a byte-level vocabulary it takes part in
 * merging). A BOS that the text itself starts with (GEM_TOK_SPECIAL) is not put a second time.
 * Time and memory grow linearly with the text up to a logarithm, whatever it holds.
 * errors GEM_E_RANGE (text over 1 GiB), GEM_E_NOMEM */
gem_status gem_tokenizer_encode(const gem_tokenizer *t, const char *text, size_t len, int flags,
                                int32_t **ids, size_t *n, gem_error *err);
/* Decoded bytes of one token, borrowed; control, unknown and unused tokens give "" unless special, ids
 * outside the vocabulary always. */
const char *gem_tokenizer_bytes(const gem_tokenizer *t, int32_t id, bool special, size_t *len);
/* Equal ids mean equal bytes, as far as both vocabularies reach: padding at the end may differ in
 * length. GEM_E_ARG names the first token that differs; `what` is t in the sentence. */
gem_status gem_tokenizer_same(const gem_tokenizer *t, const gem_tokenizer *target, const char *what,
                              gem_error *err);
size_t gem_tokenizer_max_bytes(const gem_tokenizer *t); /* of any one token */

#endif
