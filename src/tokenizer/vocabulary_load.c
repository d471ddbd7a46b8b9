/* vocabulary_load.c - read the tokenizer.* keys of a file, check them, build the tables.
 * Two passes over the token texts: where each starts, then its decoded bytes. The open of a
 * 262,144-token vocabulary stands on the way to the first token, so nothing is allocated per token.
 */
#include "tokenizer/vocabulary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY "tokenizer.ggml."
#define MAX_VOCAB (1u << 22)

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581, how stored texts write a space */

/* Markers that a file may type as user-defined (4) but which carry a protocol. */
static const struct protocol_marker {
    const char *text;
    gem_marker_level level;
} protocol_markers[] = {
    {"<|tool_call>", GEM_MARKER_CONTROL},
    {"<tool_call|>", GEM_MARKER_CONTROL},
    {"<|tool_response>", GEM_MARKER_CONTROL},
    {"<tool_response|>", GEM_MARKER_CONTROL},
    {"<|\"|>", GEM_MARKER_CONTROL},
    {"<|channel>", GEM_MARKER_CONTROL},
    {"<channel|>", GEM_MARKER_CONTROL},
    {"<tool_call>", GEM_MARKER_TEXT},
    {"</tool_call>", GEM_MARKER_TEXT},
    {"<tool_response>", GEM_MARKER_TEXT},
    {"</tool_response>", GEM_MARKER_TEXT},
    {"<think>", GEM_MARKER_TEXT},
    {"</think>", GEM_MARKER_TEXT},
    {"<start_of_image>", GEM_MARKER_TEXT},
    {"<end_of_image>", GEM_MARKER_TEXT},
    {"[multimodal]", GEM_MARKER_TEXT},
};

/* Tokens that end a generation, by family; by text, because files disagree about ids and types. */
static const char *const gemma_ends[] = {"<eos>", "<end_of_turn>", "<turn|>", "<|tool_response>"};
static const char *const qwen_ends[] = {"<|endoftext|>", "<|im_end|>", "<|fim_pad|>",
                                        "<|repo_name|>", "<|file_sep|>"};

static gem_status no_memory(gem_error *err, const char *what)
{
    return gem_fail(err, GEM_E_NOMEM, "tokenizer: no memory for %s", what);
}

/* ---- which algorithm ---- */

static gem_status read_kind(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    gem_str model = {0}, pre = {0};
    gem_status st;
    if ((st = gem_gguf_get_str(g, KEY "model", true, &model, err)) != GEM_OK) return st;
    if ((st = gem_gguf_get_str(g, KEY "pre", false, &pre, err)) != GEM_OK) return st;
    if (gem_str_is(model, "llama")) {
        t->kind = GEM_VOCAB_SCORE; /* has no word splitter: `pre` says nothing */
    } else if (gem_str_is(model, "gemma4")) {
        t->kind = GEM_VOCAB_CHARS;
    } else if (gem_str_is(model, "gpt2")) {
        t->kind = GEM_VOCAB_WORDS;
        t->marks_in_words = gem_str_is(pre, "qwen35");
        if (!t->marks_in_words && !gem_str_is(pre, "qwen2") && !gem_str_is(pre, "deepseek-r1-qwen"))
            return gem_fail(
                err, GEM_E_UNSUPPORTED,
                KEY
                "pre is \"%.*s\"; word splitters supported are qwen2, qwen35 and deepseek-r1-qwen",
                (int)GEM_MIN(pre.len, 64u), pre.data ? pre.data : "");
    } else {
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        KEY "model is \"%.*s\"; supported are llama, gpt2 and gemma4",
                        (int)GEM_MIN(model.len, 64u), model.data);
    }
    return GEM_OK;
}

/* ---- token texts ---- */

static gem_status read_texts(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    uint64_t n = 0;
    gem_status st = gem_gguf_get_array(g, KEY "tokens", true, GEM_GGUF_STRING, &t->array, &n, err);
    if (st != GEM_OK) return st;
    if (n < 1 || n > MAX_VOCAB)
        return gem_fail(err, GEM_E_FORMAT, KEY "tokens has %llu entries; 1 to %u are read",
                        (unsigned long long)n, MAX_VOCAB);
    t->n_vocab = (int32_t)n;
    t->at = malloc((size_t)n * sizeof(*t->at));
    if (!t->at) return no_memory(err, "the places of the tokens");

    const uint8_t *pos = t->array;
    for (uint64_t i = 0; i < n; i++) {
        size_t offset = (size_t)(pos - t->array);
        gem_str s = gem_kv_string_next(&pos);
        if (s.len > UINT16_MAX || offset > UINT32_MAX - (1u << 20))
            return gem_fail(err, GEM_E_FORMAT,
                            KEY "tokens: entry %llu is %zu bytes long; at most 65535 are read",
                            (unsigned long long)i, s.len);
        t->at[i] = (uint32_t)offset;
        t->max_text = GEM_MAX(t->max_text, (uint32_t)s.len);
    }
    t->arena = malloc((size_t)(pos - t->array)); /* decoding never lengthens a text */
    t->bytes_at = malloc(((size_t)n + 1) * sizeof(*t->bytes_at));
    if (!t->arena || !t->bytes_at) return no_memory(err, "the bytes of the tokens");
    return GEM_OK;
}

static gem_status read_types(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    const uint8_t *types = NULL;
    uint64_t n = 0;
    gem_status st = gem_gguf_get_array(g, KEY "token_type", true, GEM_GGUF_I32, &types, &n, err);
    if (st != GEM_OK) return st;
    if (n != (uint64_t)t->n_vocab)
        return gem_fail(err, GEM_E_FORMAT, KEY "token_type has %llu entries for %d tokens",
                        (unsigned long long)n, (int)t->n_vocab);
    t->type = malloc((size_t)n);
    if (!t->type) return no_memory(err, "the types of the tokens");
    for (size_t i = 0; i < n; i++) {
        int32_t type;
        memcpy(&type, types + 4 * i, 4);
        if (type < GEM_TOKEN_NORMAL || type > GEM_TOKEN_BYTE)
            return gem_fail(err, GEM_E_FORMAT, KEY "token_type: entry %zu is %d; types are 1 to 6",
                            i, (int)type);
        t->type[i] = (uint8_t)type;
    }
    return GEM_OK;
}

/* Higher scores merge first: map a float to an integer that sorts the other way round. */
static uint32_t prio_of(float score)
{
    uint32_t u;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&u, &score, 4);
    u = u >> 31 ? ~u : u | 0x80000000u; /* now ascending with the score */
    return ~u;
}

/* Only normal tokens come out of merging: not the markers, whose text must not be forged by plain
 * text, and not unused tokens or the names of bytes. */
static gem_status read_scores(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    const uint8_t *scores = NULL;
    uint64_t n = 0;
    gem_status st = gem_gguf_get_array(g, KEY "scores", true, GEM_GGUF_F32, &scores, &n, err);
    if (st != GEM_OK) return st;
    if (n != (uint64_t)t->n_vocab)
        return gem_fail(err, GEM_E_FORMAT, KEY "scores has %llu entries for %d tokens",
                        (unsigned long long)n, (int)t->n_vocab);
    t->prio = malloc((size_t)n * sizeof(*t->prio));
    if (!t->prio) return no_memory(err, "the scores of the tokens");
    for (size_t i = 0; i < n; i++) {
        float score;
        memcpy(&score, scores + 4 * i, 4);
        if (!isfinite(score))
            return gem_fail(err, GEM_E_FORMAT, KEY "scores: entry %zu is not a finite number", i);
        t->prio[i] = t->type[i] == GEM_TOKEN_NORMAL ? prio_of(score) : GEM_NO_MERGE;
    }
    return GEM_OK;
}

/* ---- decoded bytes ---- */

/* The 256 bytes as the code points of printable characters: those that are printable themselves
 * stay, the others are numbered from U+0100 on in order. */
static void byte_alphabet(int16_t byte_of[0x144], uint16_t char_of[256])
{
    uint16_t next = 0x100;
    memset(byte_of, 0xFF, 0x144 * sizeof(*byte_of));
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char_of[b] = printable ? (uint16_t)b : next++;
        byte_of[char_of[b]] = (int16_t)b;
    }
}

static size_t decode_words(gem_str s, const int16_t byte_of[0x144], char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        uint32_t cp = 0;
        int len = gem_utf8_decode(s.data + i, s.len - i, &cp);
        if (len && cp < 0x144 && byte_of[cp] >= 0) {
            out[n++] = (char)byte_of[cp];
        } else { /* not of the alphabet: as it stands */
            len = len ? len : 1;
            memcpy(out + n, s.data + i, (size_t)len);
            n += (size_t)len;
        }
        i += (size_t)len;
    }
    return n;
}

static size_t decode_spaces(gem_str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        if (s.data[i] == space_mark[0] && s.len - i >= 3 && !memcmp(s.data + i, space_mark, 3)) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = s.data[i++];
        }
    }
    return n;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x1F>" -> 31; -1 when the text is something else. */
static int byte_name(gem_str s)
{
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static gem_status decode_texts(gem_tokenizer *t, gem_error *err)
{
    int16_t byte_of[0x144];
    uint16_t char_of[256];
    size_t n = 0;
    byte_alphabet(byte_of, char_of);
    for (int32_t id = 0; id < t->n_vocab; id++) {
        gem_str s = gem_vocab_text(t, id);
        char *out = t->arena + n;
        size_t len = s.len;
        t->bytes_at[id] = (uint32_t)n;
        if (t->type[id] == GEM_TOKEN_BYTE) {
            int byte = byte_name(s);
            if (byte < 0)
                return gem_fail(err, GEM_E_FORMAT,
                                KEY "tokens: entry %d has type 6 (byte) and no name such as <0x1F>",
                                (int)id);
            *out = (char)byte;
            len = 1;
        } else if (t->type[id] != GEM_TOKEN_NORMAL) {
            if (len) memcpy(out, s.data, len);
        } else {
            len =
                t->kind == GEM_VOCAB_WORDS ? decode_words(s, byte_of, out) : decode_spaces(s, out);
        }
        t->max_bytes = GEM_MAX(t->max_bytes, (uint32_t)len);
        n += len;
    }
    t->bytes_at[t->n_vocab] = (uint32_t)n;
    return GEM_OK;
}

/* The token of every single byte, and for characters those of ASCII. */
static gem_status find_bytes(gem_tokenizer *t, gem_error *err)
{
    int16_t byte_of[0x144];
    uint16_t char_of[256];
    byte_alphabet(byte_of, char_of);
    for (int b = 0; b < 256; b++) {
        bool words = t->kind == GEM_VOCAB_WORDS;
        char name[8];
        int len = words ? gem_utf8_encode(char_of[b], name)
                        : snprintf(name, sizeof(name), "<0x%02X>", (unsigned)b);
        int32_t id = gem_tokenizer_find(t, name, (size_t)len);
        if (id < 0 || t->type[id] != (words ? GEM_TOKEN_NORMAL : GEM_TOKEN_BYTE))
            return gem_fail(err, GEM_E_FORMAT,
                            KEY "tokens has no token for byte %d (\"%.*s\" of type %d)", b, len,
                            name, words ? GEM_TOKEN_NORMAL : GEM_TOKEN_BYTE);
        t->byte_id[b] = id;
        if (b < 128) {
            char c = (char)b;
            id = gem_tokenizer_find(t, &c, 1);
            t->ascii_id[b] = id >= 0 && t->type[id] == GEM_TOKEN_NORMAL ? id : GEM_SYMBOL_NONE;
        }
    }
    return GEM_OK;
}

/* ---- markers ---- */

static gem_marker_level level_of(gem_token_type type, gem_str s)
{
    if (type != GEM_TOKEN_USER_DEFINED) return GEM_MARKER_CONTROL;
    for (size_t i = 0; i < ARRAY_LEN(protocol_markers); i++)
        if (gem_str_is(s, protocol_markers[i].text)) return protocol_markers[i].level;
    return GEM_MARKER_ALWAYS;
}

static bool is_marker(const gem_tokenizer *t, int32_t id)
{
    return t->type[id] == GEM_TOKEN_UNKNOWN || t->type[id] == GEM_TOKEN_CONTROL ||
           t->type[id] == GEM_TOKEN_USER_DEFINED;
}

static gem_status collect_markers(gem_tokenizer *t, gem_error *err)
{
    size_t n = 0;
    for (int32_t id = 0; id < t->n_vocab; id++)
        n += is_marker(t, id);
    t->markers = malloc((n ? n : 1) * sizeof(*t->markers));
    if (!t->markers) return no_memory(err, "the markers");
    for (int32_t id = 0; id < t->n_vocab; id++) {
        gem_str s = gem_vocab_text(t, id);
        if (!is_marker(t, id) || !s.len) continue;
        t->markers[t->n_markers++] =
            (gem_marker){.text = s.data,
                         .len = (uint32_t)s.len,
                         .id = id,
                         .level = level_of((gem_token_type)t->type[id], s)};
    }
    gem_special_index(t);
    return GEM_OK;
}

/* ---- ids and switches ---- */

static gem_status read_id(const gem_tokenizer *t, gem_gguf *g, const char *key, int32_t *id,
                          gem_error *err)
{
    uint32_t u = UINT32_MAX;
    gem_status st = gem_gguf_get_u32(g, key, false, 0, (uint32_t)t->n_vocab - 1, &u, err);
    *id = st == GEM_OK && u != UINT32_MAX ? (int32_t)u : -1;
    return st;
}

static void add_end(gem_tokenizer *t, int32_t id)
{
    if (id < 0 || gem_tokenizer_is_end(t, id) || t->n_end == GEM_MAX_ENDS) return;
    t->end[t->n_end++] = id;
}

static gem_status read_ids(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    static const char *const others[] = {KEY "separator_token_id", KEY "seperator_token_id",
                                         KEY "cls_token_id",       KEY "mask_token_id",
                                         KEY "fim_pre_token_id",   KEY "fim_suf_token_id",
                                         KEY "fim_mid_token_id",   KEY "fim_pad_token_id",
                                         KEY "fim_rep_token_id",   KEY "fim_sep_token_id"};
    const struct {
        const char *key;
        int32_t *id;
    } named[] = {{KEY "bos_token_id", &t->bos},
                 {KEY "eos_token_id", &t->eos},
                 {KEY "padding_token_id", &t->pad},
                 {KEY "unknown_token_id", &t->unk}};
    gem_status st;
    int32_t eot, eom, ignored;
    for (size_t i = 0; i < ARRAY_LEN(named); i++)
        if ((st = read_id(t, g, named[i].key, named[i].id, err)) != GEM_OK) return st;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if ((st = read_id(t, g, others[i], &ignored, err)) != GEM_OK) return st;
    if ((st = read_id(t, g, KEY "eot_token_id", &eot, err)) != GEM_OK) return st;
    if ((st = read_id(t, g, KEY "eom_token_id", &eom, err)) != GEM_OK) return st;

    bool words = t->kind == GEM_VOCAB_WORDS;
    const char *const *ends = words ? qwen_ends : gemma_ends;
    for (size_t i = 0; i < (words ? ARRAY_LEN(qwen_ends) : ARRAY_LEN(gemma_ends)); i++)
        add_end(t, gem_tokenizer_find(t, ends[i], strlen(ends[i])));
    add_end(t, t->eos);
    add_end(t, eot);
    add_end(t, eom);
    return GEM_OK;
}

static gem_status read_switches(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    bool space_prefix = false;
    gem_status st;
    t->add_bos = t->kind != GEM_VOCAB_WORDS && t->bos >= 0;
    if ((st = gem_gguf_get_bool(g, KEY "add_bos_token", false, &t->add_bos, err)) != GEM_OK)
        return st;
    if (t->kind == GEM_VOCAB_CHARS)
        t->add_bos = t->bos >= 0; /* early files say false, and are wrong */
    if (t->add_bos && t->bos < 0)
        return gem_fail(err, GEM_E_FORMAT,
                        KEY "add_bos_token is true and " KEY "bos_token_id is missing");
    if ((st = gem_gguf_get_bool(g, KEY "add_space_prefix", false, &space_prefix, err)) != GEM_OK)
        return st;
    if (space_prefix)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        KEY "add_space_prefix is true; the supported families never add a space");
    return gem_gguf_get_str(g, "tokenizer.chat_template", false, &t->chat_template, err);
}

/* Keys that say nothing more about the supported families: an end token is never added to a prompt,
 * and templates are not run. */
static void mark_the_rest(gem_gguf *g)
{
    static const char *const known[] = {KEY "add_eos_token",
                                        KEY "add_sep_token",
                                        KEY "token_type_count",
                                        KEY "remove_extra_whitespaces",
                                        KEY "scores",
                                        KEY "merges",
                                        KEY "suppress_tokens",
                                        "tokenizer.chat_templates",
                                        "tokenizer.huggingface.json"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        gem_gguf_mark_kv(g, known[i]);
    for (size_t i = 0; i < gem_gguf_n_kv(g); i++) {
        const char *key = gem_gguf_kv_at(g, i)->key;
        if (!strncmp(key, "tokenizer.chat_template.", 24)) gem_gguf_mark_kv(g, key);
    }
}

static gem_status read_merging(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    const uint8_t *merges = NULL;
    uint64_t n = 0;
    if (t->kind == GEM_VOCAB_SCORE) return read_scores(t, g, err);
    gem_status st = gem_gguf_get_array(g, KEY "merges", true, GEM_GGUF_STRING, &merges, &n, err);
    return st != GEM_OK ? st : gem_vocab_merges(t, merges, n, err);
}

static gem_status load(gem_tokenizer *t, gem_gguf *g, gem_error *err)
{
    gem_status st;
    if ((st = read_kind(t, g, err)) != GEM_OK) return st;
    if ((st = read_texts(t, g, err)) != GEM_OK) return st;
    if ((st = read_types(t, g, err)) != GEM_OK) return st;
    if ((st = decode_texts(t, err)) != GEM_OK) return st;
    if ((st = gem_vocab_index(t, err)) != GEM_OK) return st;
    if ((st = find_bytes(t, err)) != GEM_OK) return st;
    if ((st = read_merging(t, g, err)) != GEM_OK) return st;
    if ((st = collect_markers(t, err)) != GEM_OK) return st;
    if ((st = read_ids(t, g, err)) != GEM_OK) return st;
    if ((st = read_switches(t, g, err)) != GEM_OK) return st;
    mark_the_rest(g);
    return GEM_OK;
}

gem_status gem_tokenizer_open(gem_tokenizer **out, gem_gguf *g, gem_error *err)
{
    gem_tokenizer *t = calloc(1, sizeof(*t));
    *out = NULL;
    if (!t) return no_memory(err, "the tokenizer");
    t->seed = gem_now_ns() ^ (uint64_t)(uintptr_t)t;
    gem_status st = load(t, g, err);
    if (st != GEM_OK) {
        gem_tokenizer_close(t);
        return st;
    }
    *out = t;
    return GEM_OK;
}

void gem_tokenizer_close(gem_tokenizer *t)
{
    if (!t) return;
    free(t->at);
    free(t->type);
    free(t->arena);
    free(t->bytes_at);
    free(t->by_text);
    free(t->prio);
    free(t->merges);
    free(t->markers);
    free(t);
}
