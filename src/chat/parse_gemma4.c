/* parse_gemma4.c - Gemma 4 answers: content, and channels by their markers and labels. Calls are
 * read by parse_gemma4_call.c. */
#include "chat/parse_gemma4.h"

enum { TEXT, LABEL, OTHER_LABEL, THOUGHT, CALL, AFTER_CALL, TURN };

#define MAX_LABEL 32u

static bool is_label_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static void begin(gem_parser *p, gem_prompt_end start)
{
    p->state = start == GEM_PROMPT_REASONING ? THOUGHT : TEXT;
}

static void start_call(gem_parser *p)
{
    gem_gemma4_call_start(p);
    p->state = CALL;
}

/* ---- channels ---- */

/* A thought loses the newline before its closer. */
static void thought(gem_parser *p, const char *s, size_t len)
{
    gem_chat_event e = {.type = GEM_EVENT_REASONING, .call = -1, .text = "\n", .len = 1};
    if (!len) return;
    if (p->held.len) p->fn(p->user, &e);
    p->held.len = 0;
    if (s[len - 1] == '\n') {
        gem_bytes_put(&p->held, "\n", 1);
        len--;
    }
    e.text = s;
    e.len = len;
    if (len) p->fn(p->user, &e);
}

/* "thought" opens a thought; a line of another word is a label too and its channel is hidden
 * reasoning; anything else is reasoning without a label. */
static void label_char(gem_parser *p, const char *s, size_t len)
{
    static const char word[] = "thought";
    const size_t n = sizeof(word) - 1;
    bool label = len == 1 && is_label_char(*s) && p->word.len < MAX_LABEL;
    if (p->state == LABEL && p->word.len == n) {
        p->state = THOUGHT;
        if (*s != '\n') thought(p, s, len);
    } else if (p->state == LABEL && *s == word[p->word.len]) {
        gem_bytes_put(&p->word, s, 1);
    } else if (*s == '\n') {
        p->state = THOUGHT;
    } else if (label) {
        p->state = OTHER_LABEL;
        gem_bytes_put(&p->word, s, 1);
    } else {
        p->state = THOUGHT;
        thought(p, p->word.data ? p->word.data : "", p->word.len);
        thought(p, s, len);
    }
}

static void start_label(gem_parser *p)
{
    p->held.len = 0;
    p->word.len = 0;
    p->state = LABEL;
}

/* "<|turn>model\n" once more at the very start is skipped; any other turn is not the model's own.
 */
static void turn_char(gem_parser *p, char c)
{
    static const char label[] = "model\n";
    if (c != label[p->word.len]) {
        p->ended = true;
        return;
    }
    gem_bytes_put(&p->word, &c, 1);
    if (p->word.len == sizeof(label) - 1) p->state = TEXT;
}

static void text(gem_parser *p, const char *s, size_t len)
{
    for (size_t at = 0; at < len && !p->ended;) {
        uint32_t cp;
        size_t rest = len - at, n;
        switch (p->state) {
        case TEXT:
            gem_parser_plain.text(p, s + at, rest);
            p->started = true;
            n = rest;
            break;
        case LABEL:
        case OTHER_LABEL:
            n = (size_t)gem_utf8_decode(s + at, rest, &cp);
            if (!n) n = 1;
            label_char(p, s + at, n);
            break;
        case THOUGHT:
            thought(p, s + at, rest);
            n = rest;
            break;
        case CALL:
            gem_gemma4_call_text(p, s + at, rest);
            n = rest;
            break;
        case TURN:
            turn_char(p, s[at]);
            n = 1;
            break;
        default: /* what follows a call is no content */
            n = rest;
        }
        at += n;
    }
}

static void mark(gem_parser *p, gem_mark m, gem_str spelled)
{
    if (p->state == CALL) {
        if (!gem_gemma4_call_mark(p, m, spelled)) return;
        p->state = p->broken ? TEXT : AFTER_CALL;
        if (m == GEM_MARK_CALL) start_call(p);
        p->started = true;
        return;
    }
    if (m == GEM_MARK_TURN && (p->started || p->state != TEXT)) {
        p->ended = true;
        return;
    }
    switch (m) {
    case GEM_MARK_THINK:
        start_label(p);
        break;
    case GEM_MARK_THINK_END:
        if (p->state == LABEL || p->state == OTHER_LABEL || p->state == THOUGHT) {
            p->held.len = 0;
            p->state = p->n_complete ? AFTER_CALL : TEXT;
        }
        break;
    case GEM_MARK_CALL:
        p->held.len = 0;
        start_call(p);
        break;
    case GEM_MARK_TURN:
        p->word.len = 0;
        p->state = TURN;
        break;
    default:
        return; /* shows nothing */
    }
    p->started = true;
}

static void finish(gem_parser *p, bool cut)
{
    if (p->state != CALL) return;
    if (gem_gemma4_call_complete(p)) {
        gem_call_end(p);
        return;
    }
    gem_call_break(p,
                   cut ? "the call is cut by the length limit" : "the answer ends inside the call");
    gem_call_report(p);
}

const gem_parser_family gem_parser_gemma4 = {begin, text, mark, finish};
