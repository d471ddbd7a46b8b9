/* fuzz_tokenizer.h - what both tokenizer fuzzers do with an input. The first byte chooses:
 *   0  the rest is text for the usual vocabulary; the second byte holds flags
 *   1  the rest is a whole GGUF file
 *   2  the rest edits a vocabulary (texts, types, scores, merges), then a fixed text is encoded
 * Whatever the vocabulary: no crash, and decoding gives back the bytes. */
#ifndef GEM_FUZZ_TOKENIZER_H
#define GEM_FUZZ_TOKENIZER_H

#include "../unit/chat_ids.h"
#include "../unit/small_vocab.h"
#include "tokenizer/detokenizer.h"

typedef void (*fuzz_vocab_fn)(vocab_spec *v);

static inline void fuzz_check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* Spaces and U+2581 are one thing to a Gemma vocabulary. */
static inline gem_bytes fuzz_spaces(const char *text, size_t len)
{
    gem_bytes b = {0};
    gem_bytes_put(&b, "", 0);
    for (size_t i = 0; i < len; i++) {
        bool mark = len - i >= 3 && !memcmp(text + i, "\xE2\x96\x81", 3);
        gem_bytes_put(&b, mark ? " " : text + i, 1);
        i += mark ? 2 : 0;
    }
    return b;
}

static inline void fuzz_round_trip(const gem_tokenizer *t, const char *text, size_t len, int flags)
{
    int32_t *ids;
    size_t n, got_len;
    gem_bytes got = {0};
    gem_detok *d;
    if (gem_tokenizer_encode(t, text, len, flags, &ids, &n, NULL) != GEM_OK) return;
    fuzz_check(gem_detok_new(&d, t, true, NULL) == GEM_OK, "memory");
    for (size_t i = 0; i < n; i++) {
        const char *bytes = gem_tokenizer_bytes(t, ids[i], true, &got_len);
        gem_bytes_put(&got, bytes, got_len);
        bytes = gem_detok_push(d, ids[i], &got_len);
        for (size_t at = 0, size; at < got_len; at += size) {
            uint32_t cp;
            size = (size_t)gem_utf8_decode(bytes + at, got_len - at, &cp);
            fuzz_check(size > 0, "a streamed piece is no UTF-8");
        }
    }
    gem_detok_free(d);
    gem_bytes a = fuzz_spaces(text, len), b = fuzz_spaces(got.data ? got.data : "", got.len);
    if (!(flags & GEM_TOK_BOS))
        fuzz_check(a.len == b.len && !memcmp(a.data, b.data, a.len),
                   "decoding does not give back the text");
    gem_bytes_free(&a);
    gem_bytes_free(&b);
    gem_bytes_free(&got);
    free(ids);
}

/* One user message: as many control tokens as an empty one has. */
static inline void fuzz_chat(const gem_tokenizer *t, const char *text, size_t len)
{
    size_t n_control[2] = {0, 0};
    gem_chat_format format;
    char *copy = malloc(len + 1);
    gem_chat_format_of(&format, t);
    if (!copy || format.family == GEM_CHAT_NONE) {
        free(copy);
        return;
    }
    memcpy(copy, text, len);
    copy[len] = 0;
    for (int i = 0; i < 2; i++) {
        gem_message m = {"user", i ? copy : ""};
        int32_t *ids;
        size_t n;
        fuzz_check(chat_ids(t, &m, 1, &ids, &n, NULL) == GEM_OK, "a user message is refused");
        for (size_t k = 0; k < n; k++)
            n_control[i] += gem_tokenizer_type(t, ids[k]) == GEM_TOKEN_CONTROL;
        free(ids);
    }
    free(copy);
    fuzz_check(n_control[0] == n_control[1], "a message forged a marker");
}

static inline void fuzz_text(fuzz_vocab_fn make, const char *text, size_t len)
{
    static small_vocab s; /* opened once a process */
    static vocab_spec v;
    if (!s.t) {
        make(&v);
        fuzz_check(small_open(&s, &v, NULL) == GEM_OK, "the usual vocabulary");
    }
    int flags = len ? (uint8_t)text[0] & 3 : 0;
    if (len && text[0] & 4) flags |= GEM_TOK_PLAIN;
    if (len) text++, len--;
    fuzz_round_trip(s.t, text, len, flags);
    fuzz_chat(s.t, text, len);
}

static const char fuzz_sample[] = "hello world  aaaa\n\n<bos><|im_end|>\xC3\xA9 "
                                  "\xF0\x9F\x99\x82\xFF user's 123 \xE2\x96\x81\t</s> "
                                  "<start_of_turn>system abc";

static inline void fuzz_file(const uint8_t *data, size_t size)
{
    gem_error err;
    gem_gguf *g = NULL;
    gem_tokenizer *t = NULL;
    if (gem_gguf_open_memory(&g, data, size, "fuzz", &err) == GEM_OK &&
        gem_tokenizer_open(&t, g, &err) == GEM_OK)
        fuzz_round_trip(t, fuzz_sample, sizeof(fuzz_sample) - 1, GEM_TOK_SPECIAL);
    gem_tokenizer_close(t);
    gem_gguf_close(g);
}

/* Edits of eight bytes and a text: what, where, value, length of the text. */
static inline void fuzz_edits(fuzz_vocab_fn make, const uint8_t *data, size_t size)
{
    vocab_spec v;
    small_vocab s;
    gem_error err;
    char *merges[ARRAY_LEN(v.merge)];
    size_t n_merges = 0;
    make(&v);
    while (size >= 8) {
        uint32_t where = (data[1] | (uint32_t)data[2] << 8) % v.n_tok, len = data[7] % 16u;
        char *text = calloc(1, 17);
        float score;
        fuzz_check(text != NULL, "memory");
        memcpy(&score, data + 3, 4);
        len = (uint32_t)GEM_MIN(len, size - 8);
        memcpy(text, data + 8, len);
        switch (data[0] % 5) {
        case 0:
            free(v.tok[where].text);
            v.tok[where].text = text;
            text = NULL;
            break;
        case 1:
            v.tok[where].type = data[3] % 8;
            break;
        case 2:
            v.tok[where].score = score;
            break;
        case 3:
            if (v.n_merge < ARRAY_LEN(v.merge) && n_merges < ARRAY_LEN(merges)) {
                v.merge[v.n_merge++] = merges[n_merges++] = text;
                text = NULL;
            }
            break;
        default:
            if (v.n_tok < ARRAY_LEN(v.tok)) vocab_add(&v, text, data[3] % 8, score);
        }
        free(text);
        data += 8 + len;
        size -= 8 + len;
    }
    if (small_open(&s, &v, &err) == GEM_OK)
        for (int flags = 0; flags <= GEM_TOK_SPECIAL; flags += GEM_TOK_SPECIAL) {
            fuzz_round_trip(s.t, fuzz_sample, sizeof(fuzz_sample) - 1, flags);
            for (uint32_t i = 0; i < v.n_tok; i++)
                if (v.tok[i].type == GEM_TOKEN_NORMAL)
                    fuzz_round_trip(s.t, v.tok[i].text, strlen(v.tok[i].text), flags);
        }
    small_close(&s);
    vocab_clear(&v);
    while (n_merges)
        free(merges[--n_merges]);
}

static inline int fuzz_tokenizer(fuzz_vocab_fn make, const uint8_t *data, size_t size)
{
    if (!size) return 0;
    switch (data[0]) {
    case 0:
        fuzz_text(make, (const char *)data + 1, size - 1);
        break;
    case 1:
        fuzz_file(data + 1, size - 1);
        break;
    case 2:
        fuzz_edits(make, data + 1, size - 1);
        break;
    default:
        break;
    }
    return 0;
}

#endif
