/* prompt.c - the text of a prompt, its control pieces, and its tokens. */
#include "chat/prompt.h"

#include <stdlib.h>

void gem_put(gem_prompt *p, const char *text, size_t len)
{
    gem_bytes_put(&p->text, text, len);
}

void gem_put_str(gem_prompt *p, gem_str s)
{
    if (s.len) gem_bytes_put(&p->text, s.data, s.len);
}

void gem_put_words(gem_prompt *p, const char *text)
{
    gem_bytes_put(&p->text, text, strlen(text));
}

void gem_put_tokens(gem_prompt *p, const int32_t *tokens, size_t n, const char *text, size_t len)
{
    if (p->n_cuts == p->cap_cuts) {
        size_t cap = 2 * p->cap_cuts + 32;
        gem_prompt_cut *grown = realloc(p->cut, cap * sizeof(*grown));
        if (!grown) {
            p->failed = true;
            return;
        }
        p->cut = grown;
        p->cap_cuts = cap;
    }
    p->cut[p->n_cuts++] = (gem_prompt_cut){p->text.len, len, tokens, n};
    gem_bytes_put(&p->text, text, len);
}

static void put_control(gem_prompt *p, const char *text, size_t len)
{
    gem_put_tokens(p, NULL, 0, text, len);
}

void gem_put_marker(gem_prompt *p, const char *marker)
{
    put_control(p, marker, strlen(marker));
}

void gem_put_template(gem_prompt *p, const char *const *markers, const char *text)
{
    while (*text) {
        const char *found = NULL, *marker = NULL;
        for (const char *const *m = markers; *m; m++) {
            const char *at = strstr(text, *m);
            if (at && (!found || at < found)) {
                found = at;
                marker = *m;
            }
        }
        if (!found) break;
        gem_put(p, text, (size_t)(found - text));
        gem_put_marker(p, marker);
        text = found + strlen(marker);
    }
    gem_put_words(p, text);
}

bool gem_prompt_ends_with(const gem_prompt *p, const char *tail)
{
    size_t n = strlen(tail);
    return p->text.len >= n && !memcmp(p->text.data + p->text.len - n, tail, n);
}

static gem_status no_memory(gem_error *err)
{
    return gem_fail(err, GEM_E_NOMEM, "chat: no memory for the prompt");
}

static void add_piece(gem_prompt *p, size_t from, size_t to, bool control)
{
    if (from == to) return;
    p->piece[p->n_pieces++] = (gem_prompt_piece){p->text.data + from, to - from, control};
}

gem_status gem_prompt_close(gem_prompt *p, gem_error *err)
{
    size_t at = 0;
    if (p->failed || p->text.failed) return no_memory(err);
    p->piece = calloc(2 * p->n_cuts + 1, sizeof(*p->piece));
    if (!p->piece) return no_memory(err);
    for (size_t i = 0; i < p->n_cuts; i++) {
        const gem_prompt_cut *c = &p->cut[i];
        add_piece(p, at, c->start, false);
        at = c->start + c->len;
        add_piece(p, c->start, at, true);
    }
    add_piece(p, at, p->text.len, false);
    return GEM_OK;
}

static gem_status add_tokens(gem_prompt *p, const int32_t *ids, size_t n, size_t *cap,
                             gem_error *err)
{
    if (p->n_tokens + n > *cap) {
        *cap = GEM_MAX(2 * *cap, p->n_tokens + n + 64);
        int32_t *grown = realloc(p->tokens, *cap * sizeof(*grown));
        if (!grown) return no_memory(err);
        p->tokens = grown;
    }
    if (n) memcpy(p->tokens + p->n_tokens, ids, n * sizeof(*ids));
    p->n_tokens += n;
    return GEM_OK;
}

static gem_status add_plain(gem_prompt *p, const gem_tokenizer *t, const char *text, size_t len,
                            size_t *cap, gem_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (!len) return GEM_OK;
    gem_status st = gem_tokenizer_encode(t, text, len, GEM_TOK_PLAIN, &ids, &n, err);
    if (st == GEM_OK) st = add_tokens(p, ids, n, cap, err);
    free(ids);
    return st;
}

gem_status gem_prompt_tokenize(gem_prompt *p, const gem_tokenizer *t, gem_error *err)
{
    size_t at = 0, cap = 0; /* [at, a known marker) is plain text */
    gem_status st = add_tokens(p, NULL, 0, &cap, err);
    for (size_t i = 0; i < p->n_cuts && st == GEM_OK; i++) {
        const gem_prompt_cut *c = &p->cut[i];
        int32_t id = c->tokens ? 0 : gem_tokenizer_find(t, p->text.data + c->start, c->len);
        if (id < 0) continue;
        st = add_plain(p, t, p->text.data + at, c->start - at, &cap, err);
        if (st == GEM_OK && c->tokens)
            st = add_tokens(p, c->tokens, c->n_tokens, &cap, err);
        else if (st == GEM_OK)
            st = add_tokens(p, &id, 1, &cap, err);
        at = c->start + c->len;
    }
    return st == GEM_OK ? add_plain(p, t, p->text.data + at, p->text.len - at, &cap, err) : st;
}

void gem_prompt_clear(gem_prompt *p)
{
    gem_bytes_free(&p->text);
    free(p->cut);
    free(p->piece);
    free(p->tokens);
    memset(p, 0, sizeof(*p));
}
