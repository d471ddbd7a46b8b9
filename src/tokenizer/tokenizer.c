/* tokenizer.c - text to token ids and ids to bytes over the tables of vocabulary.h.
 * One call of gem_tokenizer_encode owns its scratch memory; a tokenizer itself is never written to,
 * so any number of threads may use it. */
#include "tokenizer/vocabulary.h"

#include <stdlib.h>

#define MAX_TEXT_BYTES (1u << 30) /* places are 32 bits wide, and a space grows to three bytes */

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, how stored texts write a space */

typedef struct encoder {
    const gem_tokenizer *t;
    gem_merge_work work;
    char *stored; /* owned: a fragment with spaces written as stored texts write them */
    size_t stored_cap;
    int32_t *ids; /* owned */
    size_t n, cap;
} encoder;

static bool push(encoder *e, int32_t id)
{
    if (e->n == e->cap) {
        size_t cap = e->cap ? 2 * e->cap : 64;
        int32_t *ids = realloc(e->ids, cap * sizeof(*ids));
        if (!ids) return false;
        e->ids = ids;
        e->cap = cap;
    }
    e->ids[e->n++] = id;
    return true;
}

/* Append a symbol at the end of the chain that gem_merge works on. */
static void add_symbol(gem_merge_work *w, size_t start, size_t len, int32_t id)
{
    uint32_t i = (uint32_t)w->n_sym++;
    w->sym[i] = (gem_symbol){.start = (uint32_t)start,
                             .len = (uint32_t)len,
                             .prev = i ? i - 1 : UINT32_MAX,
                             .next = UINT32_MAX,
                             .id = id};
    if (i) w->sym[i - 1].next = i;
}

/* A character without a token becomes the tokens of its bytes; so does a space, which by now is
 * written as U+2581, where a vocabulary has no token for that. */
static bool push_bytes(encoder *e, const char *text, size_t len)
{
    if (len == 3 && !memcmp(text, SPACE_MARK, 3)) return push(e, e->t->byte_id[' ']);
    for (size_t i = 0; i < len; i++)
        if (!push(e, e->t->byte_id[(uint8_t)text[i]])) return false;
    return true;
}

/* Merge, then write out what is left. */
static bool finish_fragment(encoder *e, const char *text)
{
    gem_merge_work *w = &e->work;
    if (!gem_merge(e->t, text, w)) return false;
    for (uint32_t i = w->n_sym ? 0 : UINT32_MAX; i != UINT32_MAX; i = w->sym[i].next) {
        const gem_symbol *s = &w->sym[i];
        bool ok = s->id >= 0 ? push(e, s->id) : push_bytes(e, text + s->start, s->len);
        if (!ok) return false;
    }
    return true;
}

/* ---- vocabularies of characters ---- */

static bool stored_form(encoder *e, const char *text, size_t len, size_t *stored_len)
{
    size_t need = len, n = 0;
    for (size_t i = 0; i < len; i++)
        need += text[i] == ' ' ? 2 : 0;
    if (need > e->stored_cap) {
        size_t cap = GEM_MAX(need, 2 * e->stored_cap);
        char *p = realloc(e->stored, cap);
        if (!p) return false;
        e->stored = p;
        e->stored_cap = cap;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] != ' ') {
            e->stored[n++] = text[i];
            continue;
        }
        memcpy(e->stored + n, SPACE_MARK, 3);
        n += 3;
    }
    *stored_len = n;
    return true;
}

static int32_t char_id(const gem_tokenizer *t, const char *c, int len)
{
    if (len == 1) return t->ascii_id[(uint8_t)*c];
    int32_t id = gem_tokenizer_find(t, c, (size_t)len);
    return id >= 0 && t->type[id] == GEM_TOKEN_NORMAL ? id : GEM_SYMBOL_NONE;
}

static bool encode_chars(encoder *e, const char *text, size_t len)
{
    size_t n;
    if (!stored_form(e, text, len, &n) || !gem_merge_reserve(&e->work, n)) return false;
    const char *s = e->stored;
    e->work.n_sym = 0;
    for (size_t pos = 0; pos < n;) {
        uint32_t cp;
        int size = gem_utf8_decode(s + pos, n - pos, &cp);
        add_symbol(&e->work, pos, size ? (size_t)size : 1,
                   size ? char_id(e->t, s + pos, size) : GEM_SYMBOL_INVALID);
        pos += size ? (size_t)size : 1;
    }
    return finish_fragment(e, s);
}

/* ---- vocabularies of words ---- */

static bool encode_words(encoder *e, const char *text, size_t len)
{
    const gem_tokenizer *t = e->t;
    for (size_t pos = 0, end; pos < len; pos = end) {
        end = gem_word_end(text, len, pos, t->marks_in_words);
        if (!gem_merge_reserve(&e->work, end - pos)) return false;
        e->work.n_sym = 0;
        for (size_t i = pos; i < end; i++)
            add_symbol(&e->work, i - pos, 1, t->byte_id[(uint8_t)text[i]]);
        if (!finish_fragment(e, text + pos)) return false;
    }
    return true;
}

static bool encode_all(encoder *e, const char *text, size_t len, gem_marker_level level)
{
    const gem_marker *m = NULL;
    for (size_t pos = 0, at = 0; pos < len; pos = at + m->len) {
        bool found = gem_special_next(e->t, text, len, pos, level, &at, &m);
        size_t end = found ? at : len;
        if (end > pos) {
            bool ok = e->t->kind == GEM_VOCAB_WORDS ? encode_words(e, text + pos, end - pos)
                                                    : encode_chars(e, text + pos, end - pos);
            if (!ok) return false;
        }
        if (!found) break;
        if (!push(e, m->id)) return false;
    }
    return true;
}

gem_status gem_tokenizer_encode(const gem_tokenizer *t, const char *text, size_t len, int flags,
                                int32_t **ids, size_t *n, gem_error *err)
{
    encoder e = {.t = t};
    gem_marker_level level = flags & GEM_TOK_PLAIN     ? GEM_MARKER_ALWAYS
                             : flags & GEM_TOK_SPECIAL ? GEM_MARKER_CONTROL
                                                       : GEM_MARKER_TEXT;
    *ids = NULL;
    *n = 0;
    if (len > MAX_TEXT_BYTES)
        return gem_fail(err, GEM_E_RANGE,
                        "tokenizer: a text of %zu bytes; at most %u are taken at once", len,
                        MAX_TEXT_BYTES);

    bool bos = (flags & GEM_TOK_BOS) && t->add_bos;
    bool ok = (!bos || push(&e, t->bos)) && encode_all(&e, text, len, level);
    gem_merge_free(&e.work);
    free(e.stored);
    if (ok && bos && e.n > 1 && e.ids[1] == t->bos) /* the text brought its own */
        memmove(e.ids, e.ids + 1, --e.n * sizeof(*e.ids));
    if (ok && !e.ids)
        ok = (e.ids = malloc(sizeof(*e.ids))) != NULL; /* no tokens: still something to free */
    if (!ok) {
        free(e.ids);
        return gem_fail(err, GEM_E_NOMEM, "tokenizer: no memory for the tokens of %zu bytes", len);
    }
    *ids = e.ids;
    *n = e.n;
    return GEM_OK;
}

const char *gem_tokenizer_bytes(const gem_tokenizer *t, int32_t id, bool special, size_t *len)
{
    *len = 0;
    if (id < 0 || id >= t->n_vocab) return "";
    uint8_t type = t->type[id];
    if (!special &&
        (type == GEM_TOKEN_CONTROL || type == GEM_TOKEN_UNKNOWN || type == GEM_TOKEN_UNUSED))
        return "";
    *len = t->bytes_at[id + 1] - t->bytes_at[id];
    return t->arena + t->bytes_at[id];
}

gem_status gem_tokenizer_same(const gem_tokenizer *t, const gem_tokenizer *target, const char *what,
                              gem_error *err)
{
    int32_t n = GEM_MIN(t->n_vocab, target->n_vocab);
    for (int32_t id = 0; id < n; id++) {
        size_t la, lb;
        const char *a = gem_tokenizer_bytes(t, id, true, &la),
                   *b = gem_tokenizer_bytes(target, id, true, &lb);
        if (la != lb || memcmp(a, b, la) != 0)
            return gem_fail(err, GEM_E_ARG,
                            "%s has another vocabulary: token %d is \"%.*s\", in the target "
                            "\"%.*s\"",
                            what, id, (int)GEM_MIN(la, (size_t)64), a, (int)GEM_MIN(lb, (size_t)64),
                            b);
    }
    return GEM_OK;
}

size_t gem_tokenizer_max_bytes(const gem_tokenizer *t)
{
    return t->max_bytes;
}

int32_t gem_tokenizer_n_vocab(const gem_tokenizer *t)
{
    return t->n_vocab;
}

int32_t gem_tokenizer_bos(const gem_tokenizer *t)
{
    return t->bos;
}

int32_t gem_tokenizer_eos(const gem_tokenizer *t)
{
    return t->eos;
}

bool gem_tokenizer_add_bos(const gem_tokenizer *t)
{
    return t->add_bos;
}

bool gem_tokenizer_is_end(const gem_tokenizer *t, int32_t id)
{
    for (int i = 0; i < t->n_end; i++)
        if (t->end[i] == id) return true;
    return false;
}

gem_token_type gem_tokenizer_type(const gem_tokenizer *t, int32_t id)
{
    return id < 0 || id >= t->n_vocab ? GEM_TOKEN_UNKNOWN : (gem_token_type)t->type[id];
}

gem_str gem_tokenizer_chat_template(const gem_tokenizer *t)
{
    return t->chat_template;
}
