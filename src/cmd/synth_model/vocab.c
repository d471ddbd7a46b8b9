/* vocab.c - vocabularies for synthetic models: nonsense words in the family's own kind of
 * tokenizer, with all bytes, all printable ASCII and the special tokens, at their real ids where
 * the size allows. Every word joins two earlier ones, so any text can be tokenised and every word
 * can be reached. */
#include "cmd/synth_model/synth.h"

#include <stdio.h>
#include <stdlib.h>

/* Token types of the file format. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

enum {
    GEMMA3_VOCAB = 262144,
    GEMMA3_BYTES = 238,    /* id of <0x00> */
    GEMMA3_WORDS = 494,    /* id of the first word */
    GEMMA3_BLANK = 236743, /* id of the word separator; single characters follow */
    GEMMA3_TABS = 255968,  /* ids of runs of tabs */
    GEMMA3_ASCII = 94,     /* printable ASCII without the blank */
    QWEN2_BASE = 151643,   /* bytes and words of the real vocabulary */
    QWEN35_BASE = 248044,
    MAX_WORD = 24, /* bytes */
    MAX_RUN = 31,  /* of white space in one token */
    RUN_MERGES = MAX_RUN * (MAX_RUN - 1) / 2
};

/* Gemma 4: what it has in place of unused tokens, by id. */
static const struct {
    int32_t id, type;
    const char *text;
} gemma4_special[] = {
    {5, NORMAL, "[multimodal]"},
    {46, CONTROL, "<|tool>"},
    {47, CONTROL, "<tool|>"},
    {48, USER_DEFINED, "<|tool_call>"},
    {49, USER_DEFINED, "<tool_call|>"},
    {50, USER_DEFINED, "<|tool_response>"},
    {51, USER_DEFINED, "<tool_response|>"},
    {52, USER_DEFINED, "<|\"|>"},
    {98, CONTROL, "<|think|>"},
    {100, USER_DEFINED, "<|channel>"},
    {101, USER_DEFINED, "<channel|>"},
    {105, CONTROL, "<|turn>"},
    {106, CONTROL, "<turn|>"},
    {255999, CONTROL, "<|image>"},
    {256000, CONTROL, "<|audio>"},
    {258880, CONTROL, "<|image|>"},
    {258881, CONTROL, "<|audio|>"},
    {258882, CONTROL, "<image|>"},
    {258883, CONTROL, "<audio|>"},
    {258884, CONTROL, "<|video|>"},
};

static const char *const qwen2_special[] = {
    "<|endoftext|>",      "<|im_start|>",     "<|im_end|>",     "<|object_ref_start|>",
    "<|object_ref_end|>", "<|box_start|>",    "<|box_end|>",    "<|quad_start|>",
    "<|quad_end|>",       "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>",      "<|video_pad|>",    "<tool_call>",    "</tool_call>",
    "<|fim_prefix|>",     "<|fim_middle|>",   "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>",      "<|file_sep|>"};

static const char *const qwen35_special[] = {"<|endoftext|>",
                                             "<|im_start|>",
                                             "<|im_end|>",
                                             "<|object_ref_start|>",
                                             "<|object_ref_end|>",
                                             "<|box_start|>",
                                             "<|box_end|>",
                                             "<|quad_start|>",
                                             "<|quad_end|>",
                                             "<|vision_start|>",
                                             "<|vision_end|>",
                                             "<|vision_pad|>",
                                             "<|image_pad|>",
                                             "<|video_pad|>",
                                             "<tool_call>",
                                             "</tool_call>",
                                             "<|fim_prefix|>",
                                             "<|fim_middle|>",
                                             "<|fim_suffix|>",
                                             "<|fim_pad|>",
                                             "<|repo_name|>",
                                             "<|file_sep|>",
                                             "<tool_response>",
                                             "</tool_response>",
                                             "<think>",
                                             "</think>",
                                             "<|audio_start|>",
                                             "<|audio_end|>",
                                             "<tts_pad>",
                                             "<tts_text_bos>",
                                             "<tts_text_eod>",
                                             "<tts_text_bos_single>",
                                             "<|audio_pad|>"};

/* Each message between markers, and the opener of the answer. */
static const char qwen2_template[] =
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* ---- a growing list of tokens ---- */

typedef struct span {
    size_t at, len; /* in vocab.text */
} span;

typedef struct vocab {
    gem_bytes text;
    span *token, *merge;
    float *score;
    int32_t *type;
    int32_t n, n_merges, cap;
    uint32_t *table; /* hash set of words: token + 1, 0 is free */
    size_t mask;
    bool failed;
} vocab;

static void vocab_free(vocab *v)
{
    gem_bytes_free(&v->text);
    free(v->token);
    free(v->merge);
    free(v->score);
    free(v->type);
    free(v->table);
}

static bool vocab_init(vocab *v, int32_t n)
{
    size_t count = (size_t)n, slots = 1024;
    memset(v, 0, sizeof(*v));
    while (slots < 2 * count)
        slots *= 2;
    v->cap = n;
    v->mask = slots - 1;
    v->token = malloc(count * sizeof(*v->token));
    v->merge = malloc((count + 3 * RUN_MERGES) * sizeof(*v->merge));
    v->score = malloc(count * sizeof(*v->score));
    v->type = malloc(count * sizeof(*v->type));
    v->table = calloc(slots, sizeof(*v->table));
    return v->token && v->merge && v->score && v->type && v->table;
}

static span put_text(vocab *v, const char *s, size_t len)
{
    span r = {v->text.len, len};
    gem_bytes_put(&v->text, s, len);
    return r;
}

static void put(vocab *v, const char *s, size_t len, int32_t type, float score)
{
    if (v->n == v->cap) { /* the layouts count; this only keeps a mistake from writing outside */
        v->failed = true;
        return;
    }
    v->token[v->n] = put_text(v, s, len);
    v->type[v->n] = type;
    v->score[v->n++] = score;
}

static void put_word(vocab *v, const char *s, int32_t type, float score)
{
    put(v, s, strlen(s), type, score);
}

/* Add a word to the hash set; false when it is there already. */
static bool remember(vocab *v, const char *s, size_t len, int32_t token)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)s[i]) * 0x100000001B3u;
    size_t slot = (size_t)(h ^ h >> 29) & v->mask;
    for (; v->table[slot]; slot = (slot + 1) & v->mask) {
        span t = v->token[v->table[slot] - 1];
        if (t.len == len && memcmp(v->text.data + t.at, s, len) == 0) return false;
    }
    v->table[slot] = (uint32_t)token + 1;
    return true;
}

/* Append `n` new words, each two pieces joined. Pieces are letters, the blank (only in front) and
 * earlier words; short early ones come up more often, as in real text. `blank` is how the kind
 * writes a space. */
static void put_words(vocab *v, int32_t n, const char *blank, uint64_t seed, bool merges)
{
    static const char letters[] = "etaoinshrdlucmfwypvbgkqjxzETAOINSHRDLUCMFWYPVBGKQJXZ";
    synth_rng r;
    char word[2 * MAX_WORD + 8];
    int32_t n_letters = (int32_t)strlen(letters), first = v->n;
    size_t blank_len = strlen(blank);
    synth_rng_seed(&r, seed, "tokenizer.ggml.tokens", 0);
    while (v->n - first < n && !v->text.failed && !v->failed) {
        size_t len[2], total = 0;
        for (int side = 0; side < 2; side++) {
            uint64_t x = synth_rng_next(&r);
            uint64_t pool = (uint64_t)n_letters + 1 + (uint64_t)(v->n - first);
            /* the product of two uniform numbers leans towards 0 */
            uint64_t pick = ((x & 0xFFFFFF) * (x >> 24 & 0xFFFFFF) >> 24) * pool >> 24;
            const char *s = letters + GEM_MIN(pick, (uint64_t)n_letters);
            len[side] = 1;
            if (pick == (uint64_t)n_letters) {
                s = blank;
                len[side] = blank_len;
            } else if (pick > (uint64_t)n_letters) {
                span t = v->token[first + (int32_t)pick - n_letters - 1];
                s = v->text.data + t.at;
                len[side] = t.len;
            }
            memcpy(word + total, s, len[side]);
            total += len[side];
        }
        bool blank_inside = len[1] >= blank_len && memcmp(word + len[0], blank, blank_len) == 0;
        if (total > MAX_WORD || blank_inside || !remember(v, word, total, v->n)) continue;
        if (merges) {
            char pair[2 * MAX_WORD + 8];
            memcpy(pair, word, len[0]);
            pair[len[0]] = ' ';
            memcpy(pair + len[0] + 1, word + len[0], len[1]);
            v->merge[v->n_merges++] = put_text(v, pair, total + 1);
        }
        put(v, word, total, NORMAL, -(float)(v->n - first));
    }
}

/* ---- the two kinds ---- */

static void put_unused(vocab *v, int *number)
{
    char name[24];
    snprintf(name, sizeof(name), "<unused%d>", (*number)++);
    put_word(v, name, CONTROL, -1000.0f);
}

static void put_runs(vocab *v, char c, int from, int to)
{
    char run[32];
    memset(run, c, sizeof(run));
    for (int n = from; n <= to; n++)
        put(v, run, (size_t)n, USER_DEFINED, -1000.0f);
}

/* Ids below GEMMA3_WORDS: control tokens, turn markers, runs of white space, bytes. */
static void put_gemma3_head(vocab *v, int *unused)
{
    static const char *const first[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"};
    char name[16];
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        put_word(v, first[i], CONTROL, -1000.0f);
    put_word(v, "[multimodal]", USER_DEFINED, -1000.0f);
    while (v->n < 105)
        put_unused(v, unused);
    put_word(v, "<start_of_turn>", CONTROL, -1000.0f);
    put_word(v, "<end_of_turn>", CONTROL, -1000.0f);
    put_runs(v, '\n', 1, 31);
    put_runs(v, ' ', 2, 31);
    while (v->n < GEMMA3_BYTES)
        put_unused(v, unused);
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", b);
        put_word(v, name, BYTE, 0.0f);
    }
}

/* A single character; its score continues that of the words. */
static void put_character(vocab *v, uint32_t cp)
{
    char s[4];
    put(v, s, (size_t)gem_utf8_encode(cp, s), NORMAL, -(float)(v->n - GEMMA3_WORDS));
}

/* SentencePiece: scores fall with the id, so that the word made first is joined first. */
static void make_gemma3(vocab *v, int32_t n, uint64_t seed)
{
    int unused = 0;
    bool full = n >= GEMMA3_VOCAB;
    int32_t blank = full ? GEMMA3_BLANK : n - 1 - GEMMA3_ASCII;
    put_gemma3_head(v, &unused);
    put_words(v, blank - GEMMA3_WORDS, "\xE2\x96\x81", seed, false);
    put_character(v, 0x2581);
    for (uint32_t cp = 0x21; cp < 0x7F; cp++)
        put_character(v, cp);
    if (!full) return;
    for (uint32_t cp = 0xA1; v->n < GEMMA3_TABS; cp++)
        if (cp != 0x2581) put_character(v, cp);
    put_runs(v, '\t', 1, 31);
    put_word(v, "<start_of_image>", USER_DEFINED, -1000.0f);
    put_word(v, "<end_of_image>", USER_DEFINED, -1000.0f);
    while (v->n < n)
        put_unused(v, &unused);
}

/* ---- Gemma 4: the same ids, other markers, merges instead of scores ---- */

static void put_mark(vocab *v, int *unused)
{
    for (size_t i = 0; i < ARRAY_LEN(gemma4_special); i++)
        if (gemma4_special[i].id == v->n) {
            put_word(v, gemma4_special[i].text, gemma4_special[i].type, -1000.0f);
            return;
        }
    char name[24];
    snprintf(name, sizeof(name), "<unused%d>", (*unused)++);
    put_word(v, name, NORMAL, -1000.0f);
}

/* Runs of n times c are plain tokens here. Merges of all splits, longest first, keep runs whole. */
static void put_merged_runs(vocab *v, const char *c, int from)
{
    char run[3 * MAX_RUN + 1], pair[3 * MAX_RUN + 2];
    size_t len = strlen(c);
    for (int n = 0; n < MAX_RUN; n++)
        memcpy(run + (size_t)n * len, c, len);
    for (int n = from; n <= MAX_RUN; n++)
        put(v, run, (size_t)n * len, NORMAL, -1000.0f);
    for (int left = MAX_RUN - 1; left >= 1; left--)
        for (int right = MAX_RUN - left; right >= 1; right--) {
            memcpy(pair, run, (size_t)left * len);
            pair[(size_t)left * len] = ' ';
            memcpy(pair + (size_t)left * len + 1, run, (size_t)right * len);
            v->merge[v->n_merges++] = put_text(v, pair, (size_t)(left + right) * len + 1);
        }
}

static void make_gemma4(vocab *v, int32_t n, uint64_t seed)
{
    static const char *const first[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"};
    int unused = 0;
    bool full = n >= GEMMA3_VOCAB;
    int32_t blank = full ? GEMMA3_BLANK : n - 1 - GEMMA3_ASCII;
    char name[16];
    for (size_t i = 0; i < ARRAY_LEN(first); i++)
        put_word(v, first[i], CONTROL, -1000.0f);
    while (v->n < 107)
        put_mark(v, &unused);
    put_merged_runs(v, "\n", 1);
    put_merged_runs(v, "\xE2\x96\x81", 2);
    while (v->n < GEMMA3_BYTES)
        put_mark(v, &unused);
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof(name), "<0x%02X>", b);
        put_word(v, name, BYTE, -1000.0f);
    }
    put_words(v, blank - GEMMA3_WORDS, "\xE2\x96\x81", seed, true);
    put_word(v, "\xE2\x96\x81", NORMAL, -1000.0f);
    for (uint32_t cp = 0x21; cp < 0x7F; cp++)
        put_character(v, cp);
    if (full) {
        for (uint32_t cp = 0xA1; v->n < GEMMA3_TABS; cp++)
            if (cp != 0x2581) put_character(v, cp);
        put_merged_runs(v, "\t", 1);
        while (v->n < n)
            put_mark(v, &unused);
    }
    for (int32_t i = 0; i < v->n; i++)
        v->score[i] = -1000.0f; /* unused, as in the published files */
}

/* Byte-level BPE: bytes as printable characters, words with their merges, markers, padding. */
static void make_qwen(vocab *v, int32_t n, uint64_t seed, bool qwen35)
{
    const char *const *special = qwen35 ? qwen35_special : qwen2_special;
    const int32_t n_special =
        (int32_t)(qwen35 ? ARRAY_LEN(qwen35_special) : ARRAY_LEN(qwen2_special));
    const int32_t full = qwen35 ? QWEN35_BASE : QWEN2_BASE;
    int32_t base = n >= full + n_special ? full : n - n_special;
    char s[32];
    for (int pass = 0; pass < 2; pass++) /* bytes that print as themselves come first */
        for (uint32_t b = 0, extra = 0; b < 256; b++) {
            bool prints = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
            if (prints == (pass == 0))
                put(v, s, (size_t)gem_utf8_encode(prints ? b : 256 + extra, s), NORMAL, 0.0f);
            extra += !prints;
        }
    put_words(v, base - 256, "\xC4\xA0", seed, true); /* U+0120 stands for byte 0x20 */
    for (int32_t i = 0; i < n_special; i++)
        put_word(v, special[i],
                 special[i][1] == '|' || strncmp(special[i], "<tts", 4) == 0 ? CONTROL
                                                                             : USER_DEFINED,
                 0.0f);
    while (v->n < n) {
        snprintf(s, sizeof(s), "[PAD%d]", v->n);
        put_word(v, s, UNUSED, 0.0f);
    }
}

static bool is_gemma4(const char *arch) /* or a drafter for one */
{
    return strncmp(arch, "gemma4", 6) == 0;
}

int32_t synth_min_vocab(const char *arch)
{
    if (strncmp(arch, "gemma", 5) == 0) return GEMMA3_WORDS + 1 + GEMMA3_ASCII;
    return 256 + (int32_t)(strcmp(arch, "qwen35") == 0 ? ARRAY_LEN(qwen35_special)
                                                       : ARRAY_LEN(qwen2_special));
}

/* ---- keys ---- */

static gem_status put_strings(gem_gguf_writer *w, const char *key, const vocab *v, const span *list,
                              int32_t n, gem_error *err)
{
    gem_str *s = malloc(((size_t)n + 1) * sizeof(*s));
    if (!s) return gem_fail(err, GEM_E_NOMEM, "no memory for a vocabulary of %d tokens", n);
    for (int32_t i = 0; i < n; i++)
        s[i] = (gem_str){v->text.data + list[i].at, list[i].len};
    gem_status st = gem_gguf_put_array(w, key, GEM_GGUF_STRING, s, (uint64_t)n, err);
    free(s);
    return st;
}

#define TOKENIZER "tokenizer.ggml."

/* Both Gemma kinds. */
static gem_status put_gemma(gem_gguf_writer *w, const vocab *v, bool gemma4, gem_error *err)
{
    static const struct {
        const char *key;
        uint32_t id;
    } ids[] = {{TOKENIZER "bos_token_id", 2},
               {TOKENIZER "eos_token_id", 1},
               {TOKENIZER "unknown_token_id", 3},
               {TOKENIZER "padding_token_id", 0}};
    static const struct {
        const char *key;
        bool on;
    } flags[] = {{TOKENIZER "add_bos_token", true},
                 {TOKENIZER "add_sep_token", false},
                 {TOKENIZER "add_eos_token", false},
                 {TOKENIZER "add_space_prefix", false}};
    gem_status st;
    uint64_t n = (uint64_t)v->n;
    const char *model = gemma4 ? "gemma4" : "llama";
    if ((st = gem_gguf_put_str(w, TOKENIZER "model", model, strlen(model), err)) != GEM_OK)
        return st;
    if (!gemma4 && (st = gem_gguf_put_str(w, TOKENIZER "pre", "default", 7, err)) != GEM_OK)
        return st;
    if ((st = put_strings(w, TOKENIZER "tokens", v, v->token, v->n, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_array(w, TOKENIZER "scores", GEM_GGUF_F32, v->score, n, err)) != GEM_OK)
        return st;
    if ((st = gem_gguf_put_array(w, TOKENIZER "token_type", GEM_GGUF_I32, v->type, n, err)) !=
        GEM_OK)
        return st;
    if (gemma4) {
        st = put_strings(w, TOKENIZER "merges", v, v->merge, v->n_merges, err);
        if (st == GEM_OK) st = gem_gguf_put_u32(w, TOKENIZER "mask_token_id", 4, err);
    }
    for (size_t i = 0; i < ARRAY_LEN(ids) && st == GEM_OK; i++)
        st = gem_gguf_put_u32(w, ids[i].key, ids[i].id, err);
    for (size_t i = 0; i < ARRAY_LEN(flags) && st == GEM_OK; i++)
        st = gem_gguf_put_bool(w, flags[i].key, flags[i].on, err);
    return st;
}

static gem_status put_qwen(gem_gguf_writer *w, const vocab *v, const char *pre, gem_error *err)
{
    gem_status st;
    uint32_t special = 256 + (uint32_t)v->n_merges; /* <|endoftext|>; two further on: <|im_end|> */
    if ((st = gem_gguf_put_str(w, TOKENIZER "model", "gpt2", 4, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_str(w, TOKENIZER "pre", pre, strlen(pre), err)) != GEM_OK) return st;
    if ((st = put_strings(w, TOKENIZER "tokens", v, v->token, v->n, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_array(w, TOKENIZER "token_type", GEM_GGUF_I32, v->type, (uint64_t)v->n,
                                 err)) != GEM_OK)
        return st;
    if ((st = put_strings(w, TOKENIZER "merges", v, v->merge, v->n_merges, err)) != GEM_OK)
        return st;
    if ((st = gem_gguf_put_u32(w, TOKENIZER "eos_token_id", special + 2, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_u32(w, TOKENIZER "padding_token_id", special, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_u32(w, TOKENIZER "bos_token_id", special, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_bool(w, TOKENIZER "add_bos_token", false, err)) != GEM_OK) return st;
    return gem_gguf_put_str(w, "tokenizer.chat_template", qwen2_template, strlen(qwen2_template),
                            err);
}

gem_status synth_put_vocab(gem_gguf_writer *w, const synth_shape *s, uint64_t seed, gem_error *err)
{
    gem_status st;
    vocab v;
    bool gemma3 = strcmp(s->arch, "gemma3") == 0, gemma4 = is_gemma4(s->arch);
    if (!vocab_init(&v, s->n_vocab)) {
        st = gem_fail(err, GEM_E_NOMEM, "no memory for a vocabulary of %d tokens", s->n_vocab);
        goto done;
    }
    if (gemma3)
        make_gemma3(&v, s->n_vocab, seed);
    else if (gemma4)
        make_gemma4(&v, s->n_vocab, seed);
    else
        make_qwen(&v, s->n_vocab, seed, strcmp(s->arch, "qwen35") == 0);
    if (v.text.failed || v.failed || v.n != s->n_vocab) {
        st = gem_fail(err, GEM_E_NOMEM, "no memory for a vocabulary of %d tokens", s->n_vocab);
        goto done;
    }
    st = gemma3 || gemma4 ? put_gemma(w, &v, gemma4, err) : put_qwen(w, &v, s->arch, err);
done:
    vocab_free(&v);
    return st;
}

/* ---- another file's vocabulary ---- */

gem_status synth_vocab_size(const gem_gguf *from, const char *arch, int32_t *n_vocab,
                            gem_error *err)
{
    const char *want = strcmp(arch, "gemma3") == 0 ? "llama" : is_gemma4(arch) ? "gemma4" : "gpt2";
    gem_str model;
    const uint8_t *tokens;
    uint64_t n;
    gem_status st = gem_gguf_get_str(from, TOKENIZER "model", true, &model, err);
    if (st != GEM_OK) return st;
    if (model.len != strlen(want) || memcmp(model.data, want, model.len) != 0)
        return gem_fail(
            err, GEM_E_FORMAT, "%s: key 'tokenizer.ggml.model' is '%.*s'; a %s model needs '%s'",
            gem_gguf_path(from), (int)GEM_MIN(model.len, (size_t)40), model.data, arch, want);
    if ((st = gem_gguf_get_array(from, TOKENIZER "tokens", true, GEM_GGUF_STRING, &tokens, &n,
                                 err)) != GEM_OK)
        return st;
    if (n < 1 || n > 1 << 24)
        return gem_fail(err, GEM_E_FORMAT, "%s: key 'tokenizer.ggml.tokens' has %llu elements",
                        gem_gguf_path(from), (unsigned long long)n);
    *n_vocab = (int32_t)n;
    return GEM_OK;
}

gem_status synth_copy_vocab(gem_gguf_writer *w, const gem_gguf *from, gem_error *err)
{
    for (size_t i = 0; i < gem_gguf_n_kv(from); i++) {
        const gem_kv *kv = gem_gguf_kv_at(from, i);
        if (strncmp(kv->key, "tokenizer.", 10) != 0) continue;
        gem_status st = gem_gguf_put_kv(w, kv, err);
        if (st != GEM_OK) return st;
    }
    return GEM_OK;
}
