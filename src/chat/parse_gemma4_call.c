/* parse_gemma4_call.c - one call in Gemma's own notation, turned into JSON as it arrives:
 *   call:NAME{KEY:VALUE,..}   VALUE: <|"|>text<|"|>, {..}, [..], number, true, false, null
 * Between two quote markers everything is text, other markers too. */
#include "chat/parse_gemma4.h"

enum { /* of a call */
       PREFIX,
       NAME,
       KEY_START,
       KEY,
       QUOTED_KEY,
       COLON,
       VALUE,
       STRING,
       WORD,
       NEXT,
       DONE
};

#define MAX_NAME 128u
#define MAX_WORD 512u /* of a number; longer ones are no number anyone means */
#define MAX_DEPTH 63

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

static bool in_object(const gem_parser *p)
{
    return p->objects >> p->depth & 1;
}

static void open_level(gem_parser *p, bool object)
{
    if (p->depth >= MAX_DEPTH) {
        gem_call_break(p, "the arguments are nested too deep");
        return;
    }
    p->depth++;
    p->objects &= ~((uint64_t)1 << p->depth);
    if (object) p->objects |= (uint64_t)1 << p->depth;
    gem_call_args(p, object ? "{" : "[", 1);
    p->first = true;
    p->step = object ? KEY_START : VALUE;
}

static void close_level(gem_parser *p)
{
    gem_call_args(p, in_object(p) ? "}" : "]", 1);
    p->depth--;
    p->step = p->depth ? NEXT : DONE;
}

static void put_key(gem_parser *p)
{
    while (p->word.len && is_blank(p->word.data[p->word.len - 1]))
        p->word.len--;
    if (!p->word.len) {
        gem_call_break(p, "an argument has no name");
        return;
    }
    gem_json_quote(&p->out, p->word.data, p->word.len);
    gem_call_args(p, ":", 1);
    p->step = VALUE;
}

/* A bare word: a number or one of the three names (Python's spelling too, which older templates
 * taught). */
static void put_word(gem_parser *p)
{
    static const struct {
        const char *word, *json;
    } words[] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                 {"True", "true"}, {"False", "false"}, {"None", "null"}};
    gem_json_scan s;
    const char *w = p->word.data;
    size_t n = p->word.len;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (n != strlen(words[i].word) || memcmp(w, words[i].word, n) != 0) continue;
        gem_call_args(p, words[i].json, strlen(words[i].json));
        return;
    }
    gem_json_scan_init(&s);
    bool ok = n > 0 && n < MAX_WORD && (w[0] == '-' || (w[0] >= '0' && w[0] <= '9'));
    for (size_t i = 0; ok && i < n; i++)
        ok = gem_json_scan_byte(&s, w[i]) == GEM_SCAN_MORE;
    if (ok && gem_json_scan_byte(&s, ' ') == GEM_SCAN_DONE)
        gem_call_args(p, w, n);
    else
        gem_call_break(p, "a value is neither a string nor JSON");
}

static void name_char(gem_parser *p, char c)
{
    if (c == '{' && p->name.len) {
        gem_call_begin(p);
        open_level(p, true);
    } else if (is_name_char(c) && p->name.len < MAX_NAME) {
        gem_bytes_put(&p->name, &c, 1);
    } else {
        gem_call_break(p, "the name of the call is malformed");
    }
}

/* Where a value or the end of a list may come. */
static void value_char(gem_parser *p, char c)
{
    if (is_blank(c)) return;
    if (c == ']' && p->first && !in_object(p)) {
        close_level(p);
    } else if (c == '{' || c == '[') {
        open_level(p, c == '{');
    } else if (is_name_char(c) || c == '+') {
        p->word.len = 0;
        gem_bytes_put(&p->word, &c, 1);
        p->step = WORD;
    } else {
        gem_call_break(p, "a value is neither a string nor JSON");
    }
}

static void next_char(gem_parser *p, char c)
{
    if (is_blank(c)) return;
    if (c == ',') {
        gem_call_args(p, ",", 1);
        p->first = false;
        p->step = in_object(p) ? KEY_START : VALUE;
    } else if (c == (in_object(p) ? '}' : ']')) {
        close_level(p);
    } else {
        gem_call_break(p, "the arguments are malformed");
    }
}

static void key_start_char(gem_parser *p, char c)
{
    if (is_blank(c)) return;
    p->word.len = 0;
    p->quoted_mark = false;
    if (c == '}' && p->first) {
        close_level(p);
    } else if (c == '"') {
        p->step = QUOTED_KEY;
    } else if (c == '}' || c == ',' || c == ':') {
        gem_call_break(p, "an argument has no name");
    } else {
        gem_bytes_put(&p->word, &c, 1);
        p->step = KEY;
    }
}

static void call_char(gem_parser *p, char c)
{
    static const char prefix[] = "call:";
    switch (p->step) {
    case PREFIX:
        if (is_blank(c) && !p->word.len) return;
        if (c != prefix[p->word.len]) {
            gem_call_break(p, "the call does not begin with call:");
            return;
        }
        gem_bytes_put(&p->word, &c, 1);
        if (p->word.len == sizeof(prefix) - 1) p->step = NAME;
        return;
    case NAME:
        name_char(p, c);
        return;
    case KEY_START:
        key_start_char(p, c);
        return;
    case KEY:
        if (c == ':')
            put_key(p);
        else if (c == '}')
            gem_call_break(p, "an argument has no value");
        else
            gem_bytes_put(&p->word, &c, 1);
        return;
    case QUOTED_KEY:
        if (c == '"' && !p->quoted_mark)
            p->step = COLON;
        else
            gem_bytes_put(&p->word, &c, 1);
        return;
    case COLON:
        if (c == ':')
            put_key(p);
        else if (!is_blank(c))
            gem_call_break(p, "an argument has no value");
        return;
    case VALUE:
        value_char(p, c);
        return;
    case WORD:
        if (is_name_char(c) || c == '+') {
            if (p->word.len < MAX_WORD) gem_bytes_put(&p->word, &c, 1);
            return;
        }
        p->step = NEXT;
        put_word(p);
        next_char(p, c);
        return;
    case NEXT:
        next_char(p, c);
        return;
    default:
        if (!is_blank(c)) gem_call_break(p, "something follows the arguments");
    }
}

void gem_gemma4_call_text(gem_parser *p, const char *s, size_t len)
{
    size_t fits = gem_call_raw(p, s, len);
    for (size_t at = 0; at < fits && !p->broken;) {
        size_t n = 1;
        if (p->step == STRING) {
            n = fits - at;
            gem_call_escaped(p, s + at, n);
        } else {
            call_char(p, s[at]);
        }
        at += n;
    }
    if (p->full) gem_call_break(p, "the call is too long");
    gem_call_flush(p);
}

static void quote_mark(gem_parser *p)
{
    switch (p->step) {
    case VALUE:
        gem_call_args(p, "\"", 1);
        p->step = STRING;
        break;
    case STRING:
        gem_call_args(p, "\"", 1);
        p->step = NEXT;
        break;
    case KEY_START:
        p->word.len = 0;
        p->quoted_mark = true;
        p->step = QUOTED_KEY;
        break;
    case QUOTED_KEY:
        if (p->quoted_mark)
            p->step = COLON;
        else
            gem_call_break(p, "an argument's name is malformed");
        break;
    default:
        gem_call_break(p, "a quote marker stands where none may");
    }
    gem_call_flush(p);
}

void gem_gemma4_call_start(gem_parser *p)
{
    gem_call_start(p);
    p->first = true;
}

bool gem_gemma4_call_mark(gem_parser *p, gem_mark mark, gem_str spelled)
{
    bool in_string = p->step == STRING || (p->step == QUOTED_KEY && p->quoted_mark);
    if (p->broken) {
        if (mark != GEM_MARK_CALL_END && mark != GEM_MARK_CALL) {
            gem_call_marker(p, spelled);
            return false;
        }
        gem_call_report(p);
        return true;
    }
    if (mark == GEM_MARK_QUOTE) {
        gem_call_marker(p, spelled);
        if (!p->broken) quote_mark(p);
        return false;
    }
    if (in_string) {
        gem_gemma4_call_text(p, spelled.data, spelled.len);
        return false;
    }
    if (mark == GEM_MARK_CALL_END && p->step == DONE) {
        gem_call_end(p);
        return true;
    }
    gem_call_break(p, mark == GEM_MARK_CALL_END ? "the call ends before its arguments do"
                                                : "a marker stands inside the call");
    if (mark != GEM_MARK_CALL_END && mark != GEM_MARK_CALL) {
        gem_call_marker(p, spelled);
        return false;
    }
    gem_call_report(p);
    return true;
}

bool gem_gemma4_call_complete(const gem_parser *p)
{
    return !p->broken && p->step == DONE;
}
