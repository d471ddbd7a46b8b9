/* chat.c - conversations to tokens: Gemma 3 and 4 turns, and ChatML.
 * A conversation is control tokens with text between them. Text of one stretch (role name, newline,
 * message) is tokenized in one go, so ids equal those of the rendered template, but as plain text:
 * whatever a message spells, no marker comes of it. Called through gem_chat_tokens and the server.
 */
#include "chat/chat.h"

#include <stdlib.h>

typedef enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT } role;

typedef struct builder {
    const gem_tokenizer *t;
    gem_bytes text; /* since the last marker; not tokenized yet */
    int32_t *ids;   /* owned until handed out */
    size_t n, cap;
    gem_status st; /* first failure; later calls do nothing */
    gem_error *err;
} builder;

static void put_ids(builder *b, const int32_t *ids, size_t n)
{
    if (b->st != GEM_OK) return;
    if (b->n + n > b->cap) {
        size_t cap = GEM_MAX(2 * b->cap, b->n + n + 64);
        int32_t *p = realloc(b->ids, cap * sizeof(*p));
        if (!p) {
            b->st = gem_fail(b->err, GEM_E_NOMEM, "chat: no memory for %zu tokens", cap);
            return;
        }
        b->ids = p;
        b->cap = cap;
    }
    if (n) memcpy(b->ids + b->n, ids, n * sizeof(*ids));
    b->n += n;
}

static void put_text(builder *b, const char *text, size_t len)
{
    gem_bytes_put(&b->text, text, len);
}

static void put_words(builder *b, const char *text)
{
    put_text(b, text, strlen(text));
}

static void flush(builder *b)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (b->st != GEM_OK) return;
    if (b->text.failed) {
        b->st = gem_fail(b->err, GEM_E_NOMEM, "chat: no memory for the text of the conversation");
        return;
    }
    if (!b->text.len) return;
    b->st = gem_tokenizer_encode(b->t, b->text.data, b->text.len, GEM_TOK_PLAIN, &ids, &n, b->err);
    put_ids(b, ids, n);
    free(ids);
    b->text.len = 0;
}

static void put_marker(builder *b, const char *text)
{
    int32_t id = gem_tokenizer_find(b->t, text, strlen(text));
    flush(b);
    if (b->st == GEM_OK && id < 0)
        b->st = gem_fail(b->err, GEM_E_UNSUPPORTED, "chat: the vocabulary has no %s", text);
    put_ids(b, &id, 1);
}

/* ---- messages ---- */

static bool find_role(const gem_message *m, role *out)
{
    static const struct {
        const char *name;
        role role;
    } roles[] = {{"system", ROLE_SYSTEM},
                 {"developer", ROLE_SYSTEM},
                 {"user", ROLE_USER},
                 {"assistant", ROLE_ASSISTANT}};
    for (size_t i = 0; m->role && i < ARRAY_LEN(roles); i++) {
        if (strcmp(m->role, roles[i].name) != 0) continue;
        *out = roles[i].role;
        return true;
    }
    return false;
}

static role role_of(const gem_message *m)
{
    role r = ROLE_USER;
    find_role(m, &r); /* known since check_messages */
    return r;
}

/* Roles must be known before anything is written; a conversation needs someone who asks. */
static gem_status check_messages(const gem_message *messages, size_t n, gem_error *err)
{
    bool asked = false;
    for (size_t i = 0; i < n; i++) {
        role r;
        if (!find_role(&messages[i], &r))
            return gem_fail(
                err, GEM_E_ARG,
                "message %zu: role \"%.32s\" is not one of system, developer, user, assistant", i,
                messages[i].role ? messages[i].role : "");
        asked |= r == ROLE_USER;
    }
    return asked ? GEM_OK : gem_fail(err, GEM_E_ARG, "the conversation has no user message");
}

static gem_str content_of(const gem_message *m)
{
    gem_str s = {m->content ? m->content : "", 0};
    s.len = strlen(s.data);
    return s;
}

/* White space as the templates' trim has it: Unicode's, and the four separators U+001C..U+001F. */
static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static gem_str trimmed(gem_str s)
{
    uint32_t cp;
    for (int n; s.len && (n = gem_utf8_decode(s.data, s.len, &cp)) && is_space(cp); s.data += n)
        s.len -= (size_t)n;
    while (s.len) {
        size_t at = s.len - 1; /* start of the last character */
        while (at > 0 && s.len - at < 4 && ((uint8_t)s.data[at] & 0xC0) == 0x80)
            at--;
        if (gem_utf8_decode(s.data + at, s.len - at, &cp) != (int)(s.len - at) || !is_space(cp))
            break;
        s.len = at;
    }
    return s;
}

/* ---- Gemma 3 ---- */

/* There is no system turn: system texts, wherever they stand, open the first user turn. */
static void put_system_texts(builder *b, const gem_message *messages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        gem_str s = content_of(&messages[i]);
        if (role_of(&messages[i]) != ROLE_SYSTEM) continue;
        put_text(b, s.data, s.len);
        put_words(b, "\n\n");
    }
}

static void render_gemma3(builder *b, const gem_message *messages, size_t n)
{
    bool first_user = true;
    put_marker(b, "<bos>");
    for (size_t i = 0; i < n; i++) {
        role r = role_of(&messages[i]);
        gem_str s = trimmed(content_of(&messages[i]));
        if (r == ROLE_SYSTEM) continue;
        put_marker(b, "<start_of_turn>");
        put_words(b, r == ROLE_USER ? "user\n" : "model\n");
        if (r == ROLE_USER && first_user) {
            put_system_texts(b, messages, n);
            first_user = false;
        }
        put_text(b, s.data, s.len);
        put_marker(b, "<end_of_turn>");
        put_words(b, "\n");
    }
    put_marker(b, "<start_of_turn>");
    put_words(b, "model\n");
}

/* ---- Gemma 4 ---- */

static size_t starts_with(gem_str s, size_t at, const char *text)
{
    size_t len = strlen(text);
    return s.len - at >= len && !memcmp(s.data + at, text, len) ? len : 0;
}

/* Old answers lose their thoughts: what stands between <|channel> and the next <channel|> or the
 * end, and closers that close nothing. */
static void put_without_thoughts(builder *b, gem_str s)
{
    gem_bytes kept = {0};
    bool thought = false;
    for (size_t i = 0, len; i < s.len; i += len ? len : 1) {
        if ((len = starts_with(s, i, "<|channel>")))
            thought = true;
        else if ((len = starts_with(s, i, "<channel|>")))
            thought = false;
        else if (!thought)
            gem_bytes_put(&kept, s.data + i, 1);
    }
    s = trimmed((gem_str){kept.data ? kept.data : "", kept.len});
    b->text.failed |= kept.failed;
    put_text(b, s.data, s.len);
    gem_bytes_free(&kept);
}

/* One system turn in front holds all system texts, one a line. */
static void put_gemma4_system(builder *b, const gem_message *messages, size_t n)
{
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        if (role_of(&messages[i]) != ROLE_SYSTEM) continue;
        gem_str s = trimmed(content_of(&messages[i]));
        if (first) {
            put_marker(b, "<|turn>");
            put_words(b, "system\n");
        } else {
            put_words(b, "\n");
        }
        put_text(b, s.data, s.len);
        first = false;
    }
    if (first) return;
    put_marker(b, "<turn|>");
    put_words(b, "\n");
}

static void render_gemma4(builder *b, const gem_message *messages, size_t n)
{
    bool open = false; /* answers in a row share one turn */
    put_marker(b, "<bos>");
    put_gemma4_system(b, messages, n);
    for (size_t i = 0; i < n; i++) {
        role r = role_of(&messages[i]);
        if (r == ROLE_SYSTEM) continue;
        if (open && r == ROLE_USER) {
            put_marker(b, "<turn|>");
            put_words(b, "\n");
        }
        if (!open || r == ROLE_USER) {
            put_marker(b, "<|turn>");
            put_words(b, r == ROLE_USER ? "user\n" : "model\n");
        }
        open = r == ROLE_ASSISTANT;
        if (open) {
            put_without_thoughts(b, content_of(&messages[i]));
            continue;
        }
        gem_str s = trimmed(content_of(&messages[i]));
        put_text(b, s.data, s.len);
        put_marker(b, "<turn|>");
        put_words(b, "\n");
    }
    if (open) {
        put_marker(b, "<turn|>");
        put_words(b, "\n");
    }
    put_marker(b, "<|turn>");
    put_words(b, "model\n");
    put_marker(b, "<|channel>");
    put_words(b, "thought\n");
    put_marker(b, "<channel|>");
}

/* ---- ChatML ---- */

#define CHATML_DEFAULT_SYSTEM "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

/* Of a stretch of template source: does it stand for itself, or is there an expression in it? */
static bool is_literal(gem_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (strchr("'\"{}\\", s.data[i])) return false;
    return s.len > 0;
}

/* The system text that a template puts when a conversation brings none: the first literal between
 * the opener of a system turn and its end. Template source is only searched, in its first 64 KiB.
 */
static gem_str default_system(gem_str source)
{
    static const char opener[] = "<|im_start|>system", closer[] = "<|im_end|>";
    const gem_str none = {"", 0},
                  usual = {CHATML_DEFAULT_SYSTEM, sizeof(CHATML_DEFAULT_SYSTEM) - 1};
    if (!source.data) return usual;
    const char *p = source.data, *end = p + GEM_MIN(source.len, 65536u);
    while ((p = memmem(p, (size_t)(end - p), opener, sizeof(opener) - 1))) {
        p += sizeof(opener) - 1;
        if (end - p >= 2 && p[0] == '\\' && p[1] == 'n')
            p += 2;
        else if (end - p >= 1 && p[0] == '\n')
            p += 1;
        else
            continue;
        const char *stop = memmem(p, (size_t)(end - p), closer, sizeof(closer) - 1);
        if (!stop) break;
        gem_str s = {p, (size_t)(stop - p)};
        if (is_literal(s)) return s;
    }
    return none;
}

static void put_chatml_turn(builder *b, const char *name, gem_str text)
{
    put_marker(b, "<|im_start|>");
    put_words(b, name);
    put_words(b, "\n");
    put_text(b, text.data, text.len);
    put_marker(b, "<|im_end|>");
    put_words(b, "\n");
}

static void render_chatml(builder *b, const gem_message *messages, size_t n)
{
    static const char *const names[] = {"system", "user", "assistant"};
    gem_str system = default_system(gem_tokenizer_chat_template(b->t));
    if (role_of(&messages[0]) != ROLE_SYSTEM && system.len) put_chatml_turn(b, "system", system);
    for (size_t i = 0; i < n; i++)
        put_chatml_turn(b, names[role_of(&messages[i])], content_of(&messages[i]));
    put_marker(b, "<|im_start|>");
    put_words(b, "assistant\n");
}

/* ---- entry ---- */

static bool has(const gem_tokenizer *t, const char *text)
{
    return gem_tokenizer_find(t, text, strlen(text)) >= 0;
}

gem_chat_family gem_chat_detect(const gem_tokenizer *t)
{
    if (has(t, "<|turn>") && has(t, "<turn|>") && has(t, "<|channel>") && has(t, "<channel|>") &&
        has(t, "<bos>"))
        return GEM_CHAT_GEMMA4;
    if (has(t, "<start_of_turn>") && has(t, "<end_of_turn>") && has(t, "<bos>"))
        return GEM_CHAT_GEMMA3;
    if (has(t, "<|im_start|>") && has(t, "<|im_end|>")) return GEM_CHAT_CHATML;
    return GEM_CHAT_NONE;
}

gem_status gem_chat_render(const gem_tokenizer *t, gem_chat_family f, const gem_message *messages,
                           size_t n_messages, int32_t **ids, size_t *n, gem_error *err)
{
    builder b = {.t = t, .err = err};
    *ids = NULL;
    *n = 0;
    if (f != GEM_CHAT_GEMMA3 && f != GEM_CHAT_GEMMA4 && f != GEM_CHAT_CHATML)
        return gem_fail(
            err, GEM_E_UNSUPPORTED,
            "chat: the vocabulary has neither Gemma turns nor ChatML; use the model without chat");
    gem_status st = check_messages(messages, n_messages, err);
    if (st != GEM_OK) return st;

    if (f == GEM_CHAT_GEMMA3)
        render_gemma3(&b, messages, n_messages);
    else if (f == GEM_CHAT_GEMMA4)
        render_gemma4(&b, messages, n_messages);
    else
        render_chatml(&b, messages, n_messages);
    flush(&b);
    gem_bytes_free(&b.text);
    if (b.st != GEM_OK) {
        free(b.ids);
        return b.st;
    }
    *ids = b.ids;
    *n = b.n;
    return GEM_OK;
}
