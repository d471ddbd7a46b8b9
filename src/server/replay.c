/* replay.c - a ring of answers with calls, found by the id of the first call. */
#include "server/replay.h"

#include "chat/conversation.h"
#include "runtime/engine.h"

#include <stdlib.h>

enum { ENTRIES = 1024, MAX_BYTES = 16 << 20 };

typedef struct entry {
    char id[40];       /* of the first call; empty: free */
    gem_bytes content; /* owned; what the client saw */
    gem_bytes calls;   /* owned; name NUL arguments NUL a call */
    size_t n_calls;
    gem_bytes text;  /* owned; what the model wrote, markers included */
    int32_t *tokens; /* owned, [n] */
    size_t n;
    uint64_t used;
} entry;

struct gem_replay {
    pthread_mutex_t lock;
    uint64_t clock;
    size_t bytes;
    entry at[ENTRIES];
};

gem_status gem_replay_new(gem_replay **out, gem_error *err)
{
    gem_replay *r = calloc(1, sizeof(*r));
    *out = r;
    if (!r) return gem_fail(err, GEM_E_NOMEM, "no memory for remembered calls");
    pthread_mutex_init(&r->lock, NULL);
    return GEM_OK;
}

static size_t size_of(const entry *e)
{
    return e->content.cap + e->calls.cap + e->text.cap + e->n * sizeof(*e->tokens);
}

static void drop(gem_replay *r, entry *e)
{
    r->bytes -= size_of(e);
    gem_bytes_free(&e->content);
    gem_bytes_free(&e->calls);
    gem_bytes_free(&e->text);
    free(e->tokens);
    memset(e, 0, sizeof(*e));
}

void gem_replay_free(gem_replay *r)
{
    if (!r) return;
    for (size_t i = 0; i < ENTRIES; i++)
        drop(r, &r->at[i]);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- adding ---- */

static void put_word(gem_bytes *b, const gem_bytes *word)
{
    if (word->len) gem_bytes_put(b, word->data, word->len);
    gem_bytes_put(b, "", 1);
}

static bool fill(entry *e, const gem_model *m, const gem_answer *a, const int32_t *tokens, size_t n)
{
    memcpy(e->id, a->call[0].id, sizeof(e->id));
    if (a->content.len) gem_bytes_put(&e->content, a->content.data, a->content.len);
    for (size_t i = 0; i < a->n_calls; i++) {
        put_word(&e->calls, &a->call[i].name);
        put_word(&e->calls, &a->call[i].arguments);
    }
    e->n_calls = a->n_calls;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *text = gem_token_bytes(m, tokens[i], true, &len);
        gem_bytes_put(&e->text, text, len);
    }
    e->tokens = malloc(n * sizeof(*tokens));
    if (!e->tokens) return false;
    memcpy(e->tokens, tokens, n * sizeof(*tokens));
    e->n = n;
    return !e->content.failed && !e->calls.failed && !e->text.failed;
}

/* A free place, or the longest unused one. */
static entry *place(gem_replay *r)
{
    entry *oldest = &r->at[0];
    for (size_t i = 0; i < ENTRIES; i++) {
        if (!r->at[i].id[0]) return &r->at[i];
        if (r->at[i].used < oldest->used) oldest = &r->at[i];
    }
    drop(r, oldest);
    return oldest;
}

static void shrink(gem_replay *r)
{
    while (r->bytes > MAX_BYTES) {
        entry *oldest = NULL;
        for (size_t i = 0; i < ENTRIES; i++)
            if (r->at[i].id[0] && (!oldest || r->at[i].used < oldest->used)) oldest = &r->at[i];
        if (!oldest) return;
        drop(r, oldest);
    }
}

void gem_replay_add(gem_replay *r, const gem_model *m, const gem_answer *a, const int32_t *tokens,
                    size_t n)
{
    entry e = {0};
    if (!a->n_calls || !n) return;
    bool whole = fill(&e, m, a, tokens, n);
    pthread_mutex_lock(&r->lock);
    entry *to = place(r);
    *to = e;
    to->used = ++r->clock;
    r->bytes += size_of(to);
    if (!whole) drop(r, to);
    shrink(r);
    pthread_mutex_unlock(&r->lock);
}

/* ---- finding ---- */

static bool same_text(gem_str s, const char *text, size_t len)
{
    return s.len == len && (len == 0 || !memcmp(s.data, text, len));
}

static bool same_arguments(const gem_chat_call *call, const char *text)
{
    gem_json_error je;
    if (!call->arguments) return same_text(call->raw, text, strlen(text));
    gem_json_doc *doc = gem_json_read(text, strlen(text), GEM_CHAT_MAX_DEPTH, &je);
    bool same = doc && gem_json_equal(gem_json_root(doc), call->arguments);
    gem_json_free(doc);
    return same;
}

static bool same_answer(const entry *e, const gem_chat_message *m)
{
    gem_bytes scratch = {0};
    const char *word = e->calls.data;
    gem_str text = gem_message_text(m, &scratch);
    bool same = m->n_calls == e->n_calls && same_text(text, e->content.data, e->content.len);
    for (size_t i = 0; same && i < m->n_calls; i++) {
        same = same_text(m->call[i].name, word, strlen(word));
        word += strlen(word) + 1;
        same = same && same_arguments(&m->call[i], word);
        word += strlen(word) + 1;
    }
    gem_bytes_free(&scratch);
    return same;
}

static void apply(gem_replay *r, gem_chat_message *m)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        entry *e = &r->at[i];
        if (!e->id[0] || !same_text(m->call[0].id, e->id, strlen(e->id))) continue;
        if (same_answer(e, m) && gem_message_replay(m, e->tokens, e->n, e->text.data, e->text.len))
            e->used = ++r->clock;
        return;
    }
}

void gem_replay_apply(gem_replay *r, struct gem_conversation *c)
{
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < c->n_messages; i++)
        if (c->message[i].role == GEM_ROLE_ASSISTANT && c->message[i].n_calls)
            apply(r, &c->message[i]);
    pthread_mutex_unlock(&r->lock);
}
