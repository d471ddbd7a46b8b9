/* parse_qwen.c - answers of the Qwen families: thoughts between think tags, calls between tool_call
 * tags (XML-like for Qwen3.5 and later, JSON for ChatML), and for ChatML an answer that is nothing
 * but a call's JSON, bare or in a code fence. */
#include "chat/parse_qwen.h"

enum { REASONING, CONTENT, CALL, AFTER_CALL, BARE, BARE_CALL };
enum { BARE_START, BARE_FENCE, BARE_LABEL, BARE_OBJECT, BARE_AFTER, BARE_CLOSER, BARE_END };

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void begin(gem_parser *p, gem_prompt_end start)
{
    if (start == GEM_PROMPT_REASONING)
        p->state = REASONING;
    else if (p->bare_json)
        p->state = BARE;
    else
        p->state = CONTENT;
    p->step = BARE_START;
    gem_call_json_init(&p->json);
}

/* ---- a bare call ---- */

/* It was none: everything goes on as content, unchanged. */
static void release(gem_parser *p)
{
    gem_bytes held = p->held;
    p->held = p->buf; /* content holds back white space of its own */
    p->held.len = 0;
    p->buf = held;
    p->state = CONTENT;
    if (!held.failed) gem_parser_content(p, held.data, held.len);
}

static bool object_char(gem_parser *p, char c)
{
    gem_call_json *j = &p->json;
    gem_scan r = gem_call_json_byte(j, c);
    if (r == GEM_SCAN_BAD || j->odd_member) return false;
    if (j->named && !gem_conversation_tool(p->c, j->name.data, j->name.len)) return false;
    if (r == GEM_SCAN_DONE) p->step = BARE_AFTER;
    return r == GEM_SCAN_MORE || j->args_done;
}

/* Could the answer with one more character still be a call? */
static bool bare_char(gem_parser *p, char c)
{
    switch (p->step) {
    case BARE_START:
        if (is_blank(c)) return true;
        p->step = c == '`' ? BARE_FENCE : BARE_OBJECT;
        p->fence = c == '`';
        return c == '`' || object_char(p, c);
    case BARE_FENCE:
        if (p->fence < 3) {
            p->fence++;
            return c == '`';
        }
        p->step = BARE_LABEL;
        /* fall through */
    case BARE_LABEL:
        if (c == '\n') p->step = BARE_OBJECT;
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_blank(c);
    case BARE_OBJECT:
        return object_char(p, c);
    case BARE_AFTER:
        if (is_blank(c)) return true;
        p->step = BARE_CLOSER;
        p->closer = 1;
        return c == '`' && p->fence == 3;
    case BARE_CLOSER:
        if (++p->closer == 3) p->step = BARE_END;
        return c == '`';
    default:
        return is_blank(c);
    }
}

static void bare_text(gem_parser *p, const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t cp;
        n = (size_t)GEM_MAX(gem_utf8_decode(s + i, len - i, &cp), 1);
        bool fits = gem_parser_hold(p, s + i, n), open = fits;
        for (size_t k = 0; open && k < n; k++)
            open = bare_char(p, s[i + k]);
        if (open) continue;
        release(p);
        if (fits) i += n;
        gem_parser_content(p, s + i, len - i);
        return;
    }
}

static void bare_finish(gem_parser *p, bool cut)
{
    gem_call_json *j = &p->json;
    bool call = p->step == BARE_AFTER || p->step == BARE_END;
    if (cut || !call || !j->done) {
        release(p);
        return;
    }
    gem_call_start(p);
    gem_bytes_put(&p->name, j->name.data, j->name.len);
    gem_call_begin(p);
    gem_call_args(p, j->args.data, j->args.len);
    gem_call_end(p);
    p->held.len = 0;
}

const char *gem_qwen_pending_tool(const gem_parser *p)
{
    const gem_json *tool = p->family == &gem_parser_qwen && p->state == BARE && p->json.named
                               ? gem_conversation_tool(p->c, p->json.name.data, p->json.name.len)
                               : NULL;
    return tool ? gem_json_get(tool, "name")->text : NULL;
}

/* What was held so far opens the call; the rest goes on as it comes. */
void gem_qwen_commit(gem_parser *p)
{
    gem_call_json *j = &p->json;
    if (!gem_qwen_pending_tool(p)) return;
    p->state = BARE_CALL;
    gem_call_start(p);
    gem_call_raw(p, p->held.data, p->held.len);
    p->held.len = 0;
    gem_bytes_put(&p->name, j->name.data, j->name.len);
    gem_call_begin(p);
    gem_call_hermes_args(p); /* they may stand before the name */
    gem_call_flush(p);
}

/* ---- calls between tags ---- */

static void start_call(gem_parser *p)
{
    p->held.len = 0; /* white space before a call is not content */
    p->state = CALL;
    gem_call_start(p);
    gem_call_json_init(&p->json);
}

static void call_text(gem_parser *p, const char *s, size_t len)
{
    size_t n = gem_call_raw(p, s, len);
    if (!p->broken) (p->xml ? gem_call_xml_text : gem_call_hermes_text)(p, s, n);
    if (p->full) gem_call_break(p, "the call is too long");
    gem_call_flush(p);
}

static bool is_complete(const gem_parser *p)
{
    return p->xml ? gem_call_xml_complete(p) : p->json.done;
}

static void close_call(gem_parser *p, const char *why)
{
    if (!p->broken && is_complete(p)) {
        gem_call_end(p);
    } else {
        gem_call_break(p, why);
        gem_call_report(p);
    }
    p->state = AFTER_CALL;
}

static void call_mark(gem_parser *p, gem_mark m, gem_str spelled)
{
    if (!p->broken && p->xml && gem_call_xml_takes_mark(p, m)) {
        call_text(p, spelled.data, spelled.len);
        return;
    }
    if (m == GEM_MARK_CALL_END) {
        close_call(p, "the call ends before its arguments do");
    } else if (m == GEM_MARK_CALL) {
        close_call(p, "another call begins inside it");
        start_call(p);
    } else {
        gem_call_break(p, "a marker stands inside the call");
        gem_call_marker(p, spelled);
    }
}

/* ---- the answer ---- */

static void text(gem_parser *p, const char *s, size_t len)
{
    size_t n = 0;
    switch (p->state) {
    case REASONING:
        gem_parser_reasoning(p, s, len);
        break;
    case BARE:
        bare_text(p, s, len);
        break;
    case CALL:
    case BARE_CALL:
        call_text(p, s, len);
        break;
    case AFTER_CALL:
        while (n < len && is_blank(s[n]))
            n++;
        if (n == len) break;
        p->state = CONTENT;
        s += n;
        len -= n;
        /* fall through */
    default:
        gem_parser_content(p, s, len);
    }
}

static void mark(gem_parser *p, gem_mark m, gem_str spelled)
{
    if (p->state == CALL) {
        call_mark(p, m, spelled);
        return;
    }
    if (p->state == BARE_CALL) {
        gem_call_break(p, "a marker stands inside the call");
        gem_call_marker(p, spelled);
        return;
    }
    if (m != GEM_MARK_THINK && m != GEM_MARK_THINK_END && m != GEM_MARK_CALL) return;
    if (p->state == BARE) {
        if (p->step == BARE_START)
            p->held.len = 0;
        else
            release(p);
        p->state = CONTENT;
    }
    if (m == GEM_MARK_CALL) {
        start_call(p);
    } else if (m == GEM_MARK_THINK && p->state != REASONING) {
        p->held.len = 0;
        p->started = false;
        p->state = REASONING;
    } else if (m == GEM_MARK_THINK_END && p->state == REASONING) {
        p->held.len = 0;
        p->started = false;
        p->drop_leading = true;
        p->state = p->bare_json && !p->n_calls ? BARE : CONTENT;
        p->step = BARE_START;
    }
}

static void finish(gem_parser *p, bool cut)
{
    if (p->state == BARE) bare_finish(p, cut);
    if (p->state == CALL || p->state == BARE_CALL)
        close_call(p,
                   cut ? "the call is cut by the length limit" : "the answer ends inside the call");
    gem_chat_event e = {
        .type = GEM_EVENT_CONTENT, .call = -1, .text = p->held.data, .len = p->held.len};
    if (p->state == CONTENT && p->held.len && !p->held.failed) p->fn(p->user, &e);
}

const gem_parser_family gem_parser_qwen = {begin, text, mark, finish};
