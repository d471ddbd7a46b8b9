/* parser.c - the front of the answer readers: bytes to whole characters, spelled markers where a
 * vocabulary has no tokens for them, and the events. */
#include "chat/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ---- events ---- */

static void send(gem_parser *p, const gem_chat_event *e)
{
    p->fn(p->user, e);
}

static void send_text(gem_parser *p, gem_chat_event_type type, const char *s, size_t len)
{
    gem_chat_event e = {.type = type, .call = -1, .text = s, .len = len};
    if (len) send(p, &e);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t count_leading(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && is_blank(s[n]))
        n++;
    return n;
}

static size_t count_trailing(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && is_blank(s[len - 1 - n]))
        n++;
    return n;
}

/* Text with its trailing white space held back: dropped if the stretch ends, else sent on. What is
 * held beyond a bound goes first. */
static void send_trimmed(gem_parser *p, gem_chat_event_type type, const char *s, size_t len)
{
    size_t blanks = count_trailing(s, len);
    if (blanks < len) {
        send_text(p, type, p->held.data, p->held.len);
        p->held.len = 0;
        send_text(p, type, s, len - blanks);
    }
    gem_bytes_put(&p->held, s + len - blanks, blanks);
    if (p->held.len > GEM_HELD_BLANKS && !p->held.failed) {
        size_t over = p->held.len - GEM_HELD_BLANKS;
        send_text(p, type, p->held.data, over);
        memmove(p->held.data, p->held.data + over, GEM_HELD_BLANKS);
        p->held.len = GEM_HELD_BLANKS;
    }
}

void gem_parser_content(gem_parser *p, const char *s, size_t len)
{
    if (!len) return;
    if (p->drop_leading) {
        size_t n = count_leading(s, len);
        s += n;
        len -= n;
        p->drop_leading &= len == 0;
    }
    if (len) p->started = true;
    send_trimmed(p, GEM_EVENT_CONTENT, s, len);
}

void gem_parser_reasoning(gem_parser *p, const char *s, size_t len)
{
    if (!len) return;
    if (!p->started) {
        size_t n = count_leading(s, len);
        s += n;
        len -= n;
        p->started = len > 0;
    }
    send_trimmed(p, GEM_EVENT_REASONING, s, len);
}

bool gem_parser_hold(gem_parser *p, const char *s, size_t len)
{
    if (p->held.len + len > p->max_call) return false;
    gem_bytes_put(&p->held, s, len);
    return true;
}

/* ---- calls ---- */

void gem_call_start(gem_parser *p)
{
    p->begun = p->broken = p->full = p->any_argument = p->value_open = false;
    p->why = NULL;
    p->step = 0;
    p->depth = 0;
    p->raw.len = p->name.len = p->word.len = p->out.len = p->whole.len = 0;
    p->value.len = p->buf.len = 0;
}

size_t gem_call_raw(gem_parser *p, const char *s, size_t len)
{
    size_t n = p->full ? 0 : GEM_MIN(len, p->max_call - GEM_MIN(p->raw.len, p->max_call));
    while (n && n < len && ((uint8_t)s[n] & 0xC0) == 0x80)
        n--;
    gem_bytes_put(&p->raw, s, n);
    p->full |= n < len;
    return n;
}

void gem_call_marker(gem_parser *p, gem_str spelled)
{
    gem_call_raw(p, spelled.data, spelled.len);
    if (p->full) gem_call_break(p, "the call is too long");
}

static void send_begin(gem_parser *p)
{
    char text[128], hex[65];
    gem_sha256 *h = gem_sha256_new();
    if (!h) {
        p->failed = true;
        return;
    }
    snprintf(text, sizeof(text), "%s/%d", p->seed, p->n_calls);
    gem_sha256_update(h, text, strlen(text));
    gem_sha256_finish(h, hex);
    snprintf(p->id, sizeof(p->id), "call_%.32s", hex);
    p->n_calls++;
    gem_chat_event e = {.type = GEM_EVENT_CALL_BEGIN,
                        .call = p->n_calls - 1,
                        .id = p->id,
                        .name = p->name.data,
                        .declared = gem_conversation_tool(p->c, p->name.data, p->name.len) != NULL};
    send(p, &e);
}

void gem_call_begin(gem_parser *p)
{
    if (p->broken) return;
    if (!p->c || !p->c->tools) {
        gem_call_break(p, "no tools were declared");
        return;
    }
    if (p->name.failed) return;
    p->begun = true;
    if (!p->whole_calls) send_begin(p);
}

void gem_call_args(gem_parser *p, const char *json, size_t len)
{
    if (!p->broken) gem_bytes_put(&p->out, json, len);
}

void gem_call_escaped(gem_parser *p, const char *text, size_t len)
{
    size_t start = p->out.len;
    if (p->broken || !len) return;
    gem_json_quote(&p->out, text, len);
    if (p->out.failed) return;
    memmove(p->out.data + start, p->out.data + start + 1, p->out.len - start - 2);
    p->out.len -= 2;
}

void gem_call_flush(gem_parser *p)
{
    if (!p->out.len || p->out.failed) return;
    if (p->whole_calls) {
        gem_bytes_put(&p->whole, p->out.data, p->out.len);
    } else if (p->begun && !p->broken) {
        gem_chat_event e = {.type = GEM_EVENT_CALL_ARGUMENTS,
                            .call = p->n_calls - 1,
                            .text = p->out.data,
                            .len = p->out.len};
        send(p, &e);
    }
    p->out.len = 0;
}

void gem_call_end(gem_parser *p)
{
    gem_call_flush(p);
    if (p->whole_calls && !p->whole.failed) {
        send_begin(p);
        gem_chat_event e = {.type = GEM_EVENT_CALL_ARGUMENTS,
                            .call = p->n_calls - 1,
                            .text = p->whole.data,
                            .len = p->whole.len};
        send(p, &e);
    }
    gem_chat_event e = {.type = GEM_EVENT_CALL_END, .call = p->n_calls - 1};
    send(p, &e);
    p->n_complete++;
}

void gem_call_break(gem_parser *p, const char *why)
{
    if (p->broken) return;
    gem_call_flush(p);
    p->broken = true;
    p->why = why;
}

void gem_call_report(gem_parser *p)
{
    gem_chat_event e = {.type = GEM_EVENT_CALL_BROKEN,
                        .call = p->begun && !p->whole_calls ? p->n_calls - 1 : -1,
                        .text = p->raw.data ? p->raw.data : "",
                        .len = p->raw.len,
                        .reason = p->why};
    send(p, &e);
}

/* ---- spelled markers ---- */

static void deliver(gem_parser *p, const char *s, size_t len)
{
    if (len && !p->ended) p->family->text(p, s, len);
}

/* Longest marker that `s` could begin: whole 1, part 0, none -1. */
static int match_marker(const gem_parser *p, const char *s, size_t len,
                        const struct gem_spelling **found)
{
    int best = -1;
    for (const struct gem_spelling *m = p->spelling; m->text; m++) {
        size_t n = strlen(m->text);
        if (memcmp(s, m->text, GEM_MIN(n, len)) != 0) continue;
        if (len >= n) {
            *found = m;
            return 1;
        }
        best = 0;
    }
    return best;
}

/* One character of text; markers are ASCII and begin with '<'. */
static void spell_byte(gem_parser *p, char c)
{
    const struct gem_spelling *m;
    p->partial[p->n_partial++] = c;
    while (p->n_partial) {
        int r = match_marker(p, p->partial, p->n_partial, &m);
        if (r == 0) return;
        if (r == 1) {
            p->n_partial = 0;
            if (!p->ended) p->family->mark(p, m->mark, (gem_str){m->text, strlen(m->text)});
            return;
        }
        size_t n = 1;
        while (n < p->n_partial && p->partial[n] != '<')
            n++;
        deliver(p, p->partial, n);
        p->n_partial -= n;
        memmove(p->partial, p->partial + n, p->n_partial);
    }
}

static void spell(gem_parser *p, const char *s, size_t len)
{
    size_t at = 0;
    while (at < len) {
        size_t run = at;
        while (run < len && s[run] != '<' && !p->n_partial)
            run++;
        deliver(p, s + at, run - at);
        at = run;
        if (at == len) break;
        if (p->n_partial && ((uint8_t)s[at] & 0x80)) { /* no marker goes on like this */
            deliver(p, p->partial, p->n_partial);
            p->n_partial = 0;
            continue;
        }
        spell_byte(p, s[at++]);
    }
}

/* ---- characters ---- */

static void characters(gem_parser *p, const char *s, size_t len)
{
    if (!p->spelling)
        deliver(p, s, len);
    else
        spell(p, s, len);
}

/* The bytes of an unfinished character and one more. */
static void feed_tail(gem_parser *p, char c)
{
    uint32_t cp;
    p->tail[p->n_tail++] = c;
    while (p->n_tail) {
        if (gem_utf8_decode(p->tail, p->n_tail, &cp)) {
            size_t n = p->n_tail;
            p->n_tail = 0;
            if (cp)
                characters(p, p->tail, n);
            else
                characters(p, replacement, 3);
            return;
        }
        if (p->n_tail < 4 && gem_utf8_complete(p->tail, p->n_tail) == 0) return;
        characters(p, replacement, 3);
        memmove(p->tail, p->tail + 1, --p->n_tail);
        /* what is left may be whole characters of its own */
        size_t whole = 0;
        int n;
        while (whole < p->n_tail &&
               (n = gem_utf8_decode(p->tail + whole, p->n_tail - whole, &cp)) > 0) {
            characters(p, cp ? p->tail + whole : replacement, cp ? (size_t)n : 3);
            whole += (size_t)n;
        }
        memmove(p->tail, p->tail + whole, p->n_tail -= whole);
    }
}

void gem_parser_text(gem_parser *p, const char *s, size_t len)
{
    size_t at = 0, run = 0;
    uint32_t cp;
    if (p->ended) return;
    while (at < len && p->n_tail)
        feed_tail(p, s[at++]);
    run = at;
    while (at < len) {
        int n = gem_utf8_decode(s + at, len - at, &cp);
        if (n && cp) {
            at += (size_t)n;
            continue;
        }
        characters(p, s + run, at - run);
        feed_tail(p, s[at++]);
        while (at < len && p->n_tail)
            feed_tail(p, s[at++]);
        run = at;
    }
    characters(p, s + run, at - run);
}

/* Nothing can complete what is pending. */
static void flush_pending(gem_parser *p)
{
    if (p->n_tail) characters(p, replacement, 3);
    p->n_tail = 0;
    if (p->n_partial) deliver(p, p->partial, p->n_partial);
    p->n_partial = 0;
}

void gem_parser_mark(gem_parser *p, gem_mark mark, gem_str spelled)
{
    if (p->ended) return;
    flush_pending(p);
    if (mark == GEM_MARK_END)
        p->ended = true;
    else
        p->family->mark(p, mark, spelled);
}

void gem_parser_finish(gem_parser *p, bool cut)
{
    if (p->finished) return;
    bool ended = p->ended;
    p->ended = false;
    flush_pending(p);
    p->family->finish(p, cut && !ended);
    p->ended = p->finished = true;
    gem_chat_event e = {.type = GEM_EVENT_FINISH,
                        .call = -1,
                        .reason = cut && !ended   ? "length"
                                  : p->n_complete ? "tool_calls"
                                                  : "stop"};
    send(p, &e);
}

/* ---- plain answers ---- */

static void plain_text(gem_parser *p, const char *s, size_t len)
{
    send_text(p, GEM_EVENT_CONTENT, s, len);
}

static void plain_mark(gem_parser *p, gem_mark mark, gem_str spelled)
{
    (void)p, (void)mark, (void)spelled;
}

static void plain_finish(gem_parser *p, bool cut)
{
    (void)p, (void)cut;
}

const gem_parser_family gem_parser_plain = {NULL, plain_text, plain_mark, plain_finish};

/* ---- life ---- */

static gem_status make_seed(gem_parser *p, const char *seed, gem_error *err)
{
    uint8_t bytes[16];
    if (seed) {
        snprintf(p->seed, sizeof(p->seed), "%s", seed);
        return GEM_OK;
    }
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return gem_fail(err, GEM_E_IO, "chat: the system gives no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(p->seed + 2 * i, 3, "%02x", bytes[i]);
    return GEM_OK;
}

gem_status gem_parser_open(gem_parser *p, const gem_chat_format *f, const gem_conversation *c,
                           gem_prompt_end start, const gem_chat_parser_options *opt, gem_error *err)
{
    memset(p, 0, sizeof(*p));
    p->c = c;
    p->fn = opt->fn;
    p->user = opt->user;
    p->whole_calls = opt->whole_calls;
    p->max_call = opt->max_call_bytes ? opt->max_call_bytes : GEM_CALL_BYTES;
    switch (f->family) {
    case GEM_CHAT_GEMMA4:
        p->family = &gem_parser_gemma4;
        break;
    case GEM_CHAT_CHATML:
        p->bare_json = c && c->tools;
        p->family = &gem_parser_qwen;
        break;
    case GEM_CHAT_QWEN35:
        p->xml = true;
        p->family = &gem_parser_qwen;
        break;
    default:
        p->family = &gem_parser_plain;
    }
    if (p->family->begin) p->family->begin(p, start);
    return make_seed(p, opt->id_seed, err);
}

bool gem_parser_failed(const gem_parser *p)
{
    return p->failed || p->held.failed || p->raw.failed || p->name.failed || p->word.failed ||
           p->out.failed || p->whole.failed || p->value.failed || p->buf.failed ||
           p->json.key.failed || p->json.name.failed || p->json.args.failed ||
           p->json.string.failed;
}

void gem_parser_close(gem_parser *p)
{
    gem_bytes *all[] = {&p->held, &p->raw,   &p->name,  &p->word,
                        &p->out,  &p->whole, &p->value, &p->buf};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        gem_bytes_free(all[i]);
    gem_call_json_free(&p->json);
    memset(p, 0, sizeof(*p));
}
