/* json_scan.c - JSON checked one byte at a time, and calls written as JSON.
 * Strict as RFC 8259; NUL escapes and lone surrogates are refused too, since many clients' JSON
 * readers refuse them. */
#include "chat/parser.h"

enum {
    S_VALUE,
    S_FIRST_NAME, /* after { */
    S_NAME,       /* after , in an object */
    S_FIRST_ITEM, /* after [ */
    S_COLON,
    S_AFTER, /* a value is complete: , or a closer */
    S_STRING,
    S_ESCAPE,
    S_HEX,
    S_LITERAL,
    S_MINUS,
    S_ZERO,
    S_DIGITS,
    S_POINT,
    S_FRACTION,
    S_E,
    S_E_SIGN,
    S_EXPONENT,
    S_END,
    S_BAD
};

void gem_json_scan_init(gem_json_scan *s)
{
    memset(s, 0, sizeof(*s));
    s->state = S_VALUE;
}

bool gem_json_scan_in_string(const gem_json_scan *s)
{
    return s->state == S_STRING || s->state == S_ESCAPE || s->state == S_HEX;
}

bool gem_json_scan_wants_value(const gem_json_scan *s)
{
    return s->state == S_VALUE;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static gem_scan bad(gem_json_scan *s)
{
    s->state = S_BAD;
    return GEM_SCAN_BAD;
}

static gem_scan complete(gem_json_scan *s)
{
    s->state = s->depth ? S_AFTER : S_END;
    return s->depth ? GEM_SCAN_MORE : GEM_SCAN_DONE;
}

static gem_scan open_level(gem_json_scan *s, bool object)
{
    if (s->depth >= 63) return bad(s);
    s->depth++;
    s->objects &= ~((uint64_t)1 << s->depth);
    if (object) s->objects |= (uint64_t)1 << s->depth;
    s->state = object ? S_FIRST_NAME : S_FIRST_ITEM;
    return GEM_SCAN_MORE;
}

static gem_scan close_level(gem_json_scan *s, bool object)
{
    if (!s->depth || (s->objects >> s->depth & 1) != object) return bad(s);
    s->depth--;
    return complete(s);
}

static gem_scan begin_string(gem_json_scan *s, bool key)
{
    s->state = S_STRING;
    s->key = key;
    return GEM_SCAN_MORE;
}

static gem_scan begin_value(gem_json_scan *s, char c)
{
    switch (c) {
    case '{':
        return open_level(s, true);
    case '[':
        return open_level(s, false);
    case '"':
        return begin_string(s, false);
    case '-':
        s->state = S_MINUS;
        return GEM_SCAN_MORE;
    case 't':
        s->literal = "rue";
        break;
    case 'f':
        s->literal = "alse";
        break;
    case 'n':
        s->literal = "ull";
        break;
    default:
        if (c < '0' || c > '9') return bad(s);
        s->state = c == '0' ? S_ZERO : S_DIGITS;
        return GEM_SCAN_MORE;
    }
    s->state = S_LITERAL;
    return GEM_SCAN_MORE;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static gem_scan hex_byte(gem_json_scan *s, char c)
{
    int d = hex_digit(c);
    if (d < 0) return bad(s);
    s->unit = (uint16_t)(s->unit << 4 | d);
    if (++s->count < 4) return GEM_SCAN_MORE;
    bool high = s->unit >= 0xD800 && s->unit < 0xDC00, low = s->unit >= 0xDC00 && s->unit < 0xE000;
    if (low != s->surrogate || !s->unit) return bad(s);
    s->surrogate = high;
    s->state = S_STRING;
    return GEM_SCAN_MORE;
}

static gem_scan string_byte(gem_json_scan *s, char c)
{
    if (s->state == S_HEX) return hex_byte(s, c);
    if (s->state == S_ESCAPE) {
        if (c == 'u') {
            s->state = S_HEX;
            s->unit = s->count = 0;
            return GEM_SCAN_MORE;
        }
        if (!strchr("\"\\/bfnrt", c) || s->surrogate) return bad(s);
        s->state = S_STRING;
        return GEM_SCAN_MORE;
    }
    if (c == '\\') {
        s->state = S_ESCAPE;
        return GEM_SCAN_MORE;
    }
    if ((unsigned char)c < 0x20 || s->surrogate) return bad(s);
    if (c != '"') return GEM_SCAN_MORE;
    if (!s->key) return complete(s);
    s->state = S_COLON;
    return GEM_SCAN_MORE;
}

/* Inside a number: false when c does not belong to it and the number is complete. */
static bool number_byte(gem_json_scan *s, char c, gem_scan *r)
{
    bool digit = c >= '0' && c <= '9', e = c == 'e' || c == 'E';
    *r = GEM_SCAN_MORE;
    switch (s->state) {
    case S_MINUS:
        if (!digit)
            *r = bad(s);
        else
            s->state = c == '0' ? S_ZERO : S_DIGITS;
        return true;
    case S_POINT:
    case S_E:
    case S_E_SIGN:
        if (digit)
            s->state = s->state == S_POINT ? S_FRACTION : S_EXPONENT;
        else if (s->state == S_E && (c == '+' || c == '-'))
            s->state = S_E_SIGN;
        else
            *r = bad(s);
        return true;
    default:
        break;
    }
    if (digit && s->state != S_ZERO) return true;
    if (c == '.' && (s->state == S_ZERO || s->state == S_DIGITS)) {
        s->state = S_POINT;
        return true;
    }
    if (e && s->state != S_EXPONENT) {
        s->state = S_E;
        return true;
    }
    return false;
}

gem_scan gem_json_scan_byte(gem_json_scan *s, char c)
{
    gem_scan r;
    if (gem_json_scan_in_string(s)) return string_byte(s, c);
    if (s->state >= S_MINUS && s->state <= S_EXPONENT) {
        if (number_byte(s, c, &r)) return r;
        if (complete(s) == GEM_SCAN_DONE) return is_blank(c) ? GEM_SCAN_DONE : bad(s);
    }
    if (s->state == S_LITERAL) {
        if (c != *s->literal) return bad(s);
        return *++s->literal ? GEM_SCAN_MORE : complete(s);
    }
    if (is_blank(c)) return s->state == S_END ? GEM_SCAN_DONE : GEM_SCAN_MORE;
    switch (s->state) {
    case S_VALUE:
        return begin_value(s, c);
    case S_FIRST_ITEM:
        return c == ']' ? close_level(s, false) : begin_value(s, c);
    case S_FIRST_NAME:
        if (c == '}') return close_level(s, true);
        return c == '"' ? begin_string(s, true) : bad(s);
    case S_NAME:
        return c == '"' ? begin_string(s, true) : bad(s);
    case S_COLON:
        s->state = S_VALUE;
        return c == ':' ? GEM_SCAN_MORE : bad(s);
    case S_AFTER:
        if (c == ',') {
            s->state = s->objects >> s->depth & 1 ? S_NAME : S_VALUE;
            return GEM_SCAN_MORE;
        }
        return c == '}' || c == ']' ? close_level(s, c == '}') : bad(s);
    default:
        return bad(s);
    }
}

/* ---- {"name": .., "arguments": ..} ---- */

enum { M_NONE, M_OTHER, M_NAME, M_ARGS_OBJECT, M_ARGS_STRING, M_ARGS_NULL };

void gem_call_json_init(gem_call_json *j)
{
    gem_json_scan_init(&j->scan);
    j->key.len = j->name.len = j->args.len = j->string.len = 0;
    j->member = M_NONE;
    j->named = j->has_args = j->args_done = j->done = j->odd_member = false;
    j->args_object = false;
}

void gem_call_json_free(gem_call_json *j)
{
    gem_bytes_free(&j->key);
    gem_bytes_free(&j->name);
    gem_bytes_free(&j->args);
    gem_bytes_free(&j->string);
}

/* The text of a JSON string with its quotes; false when out of memory. */
static bool decode(gem_bytes *out, const gem_bytes *quoted)
{
    gem_json_error e;
    gem_json_doc *doc = gem_json_read(quoted->data, quoted->len, 2, &e);
    const gem_json *v = doc ? gem_json_root(doc) : NULL;
    bool ok = v && v->type == GEM_JSON_STRING;
    out->len = 0;
    gem_bytes_put(out, "", 0);
    if (ok) gem_bytes_put(out, v->text, v->len);
    gem_json_free(doc);
    return ok && !out->failed;
}

static bool is_key(const gem_call_json *j, const char *name)
{
    return j->key.len == strlen(name) && !memcmp(j->key.data, name, j->key.len);
}

/* A value of the top level begins with c. */
static bool begin_member(gem_call_json *j, char c)
{
    j->string.len = 0;
    if (is_key(j, "name")) {
        j->member = M_NAME;
        return c == '"' && !j->named;
    }
    if (is_key(j, "arguments") || is_key(j, "parameters")) {
        j->member = c == '{' ? M_ARGS_OBJECT : c == '"' ? M_ARGS_STRING : M_ARGS_NULL;
        if (j->has_args || !strchr("{\"n", c)) return false;
        j->has_args = true;
        j->args_object = c == '{';
        return true;
    }
    j->member = M_OTHER;
    j->odd_member = true;
    return true;
}

/* Arguments that came as a string must hold an object. */
static bool take_string_arguments(gem_call_json *j)
{
    gem_json_error e;
    if (!decode(&j->args, &j->string)) return false;
    gem_json_doc *doc = gem_json_read(j->args.data, j->args.len, GEM_CHAT_MAX_DEPTH, &e);
    const gem_json *v = doc ? gem_json_root(doc) : NULL;
    bool ok = v && v->type == GEM_JSON_OBJECT;
    gem_json_free(doc);
    return ok;
}

static bool end_member(gem_call_json *j)
{
    uint8_t member = j->member;
    j->member = M_NONE;
    if (member == M_NAME) {
        j->named = decode(&j->name, &j->string) && j->name.len;
        return j->named;
    }
    if (member == M_ARGS_STRING && !take_string_arguments(j)) return false;
    if (member == M_ARGS_NULL) gem_bytes_put(&j->args, "{}", 2);
    if (member != M_OTHER) j->args_done = true;
    return true;
}

gem_scan gem_call_json_byte(gem_call_json *j, char c)
{
    gem_json_scan *s = &j->scan;
    bool top = s->depth == 1, was_key = top && s->key && gem_json_scan_in_string(s);
    bool fresh = top && j->member == M_NONE && gem_json_scan_wants_value(s) && !is_blank(c);
    bool first = s->depth == 0 && gem_json_scan_wants_value(s);
    if (first && !is_blank(c) && c != '{') return GEM_SCAN_BAD;
    if (fresh && !begin_member(j, c)) return GEM_SCAN_BAD;
    gem_scan r = gem_json_scan_byte(s, c);
    if (r == GEM_SCAN_BAD) return r;
    if (was_key && gem_json_scan_in_string(s)) gem_bytes_put(&j->key, &c, 1);
    if (!was_key && s->depth == 1 && s->key && gem_json_scan_in_string(s)) j->key.len = 0;
    if (j->member != M_NONE) {
        bool inside = s->depth > 1 || gem_json_scan_in_string(s) || s->state == S_LITERAL ||
                      (s->state >= S_MINUS && s->state <= S_EXPONENT);
        gem_bytes *into = j->member == M_ARGS_OBJECT                          ? &j->args
                          : j->member == M_NAME || j->member == M_ARGS_STRING ? &j->string
                                                                              : NULL;
        if (into && (inside || s->state == S_AFTER)) gem_bytes_put(into, &c, 1);
        if (!inside && !end_member(j)) return GEM_SCAN_BAD;
    }
    j->done |= r == GEM_SCAN_DONE;
    return r == GEM_SCAN_DONE && !j->named ? GEM_SCAN_BAD : r;
}
