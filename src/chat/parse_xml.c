/* parse_xml.c - the call notation of Qwen3.5 and later, turned into JSON as it arrives:
 *   <function=NAME> LF ( <parameter=KEY> LF VALUE LF </parameter> LF )* </function>
 * A value is verbatim but for one newline at each end. It ends at a closer that another parameter
 * or the end of the function follows; any other closer is part of it. Its JSON type comes from the
 * tool's schema: strings go on as they come, the rest when they are complete. */
#include "chat/parse_qwen.h"
#include "chat/text.h"

enum { FUNCTION, NAME, BODY, KEY, VALUE_START, VALUE, CLOSED };

#define MAX_NAME 256u
#define MAX_BLANKS 256u /* between a value's closer and what follows */

static const char open_function[] = "<function=", open_parameter[] = "<parameter=",
                  close_parameter[] = "</parameter>", close_function[] = "</function>";

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- schema ---- */

enum {
    KIND_STRING = 1,
    KIND_NUMBER = 2,
    KIND_BOOL = 4,
    KIND_OBJECT = 8,
    KIND_ARRAY = 16,
    KIND_NULL = 32,
    KIND_ANY = 63
};

static unsigned kind_of_value(const gem_json *v)
{
    static const unsigned kinds[] = {
        [GEM_JSON_NULL] = KIND_NULL,     [GEM_JSON_BOOL] = KIND_BOOL,
        [GEM_JSON_NUMBER] = KIND_NUMBER, [GEM_JSON_STRING] = KIND_STRING,
        [GEM_JSON_ARRAY] = KIND_ARRAY,   [GEM_JSON_OBJECT] = KIND_OBJECT};
    return kinds[v->type];
}

static unsigned kind_of_name(const gem_json *v)
{
    static const struct {
        const char *name;
        unsigned kind;
    } names[] = {{"string", KIND_STRING}, {"integer", KIND_NUMBER}, {"number", KIND_NUMBER},
                 {"boolean", KIND_BOOL},  {"object", KIND_OBJECT},  {"array", KIND_ARRAY},
                 {"null", KIND_NULL}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (gem_json_is(v, names[i].name)) return names[i].kind;
    return KIND_ANY;
}

/* JSON types that a schema allows; 0: it does not say. */
static unsigned kinds_of(const gem_json *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const gem_json *type = gem_json_get(schema, "type"), *list = gem_json_get(schema, "enum"),
                   *only = gem_json_get(schema, "const");
    unsigned kinds = 0;
    if (depth > 8) return KIND_ANY;
    if (type && type->type == GEM_JSON_ARRAY)
        for (const gem_json *m = type->first; m; m = m->next)
            kinds |= kind_of_name(m);
    else if (type)
        kinds = kind_of_name(type);
    for (size_t i = 0; !kinds && i < ARRAY_LEN(unions); i++) {
        const gem_json *u = gem_json_get(schema, unions[i]);
        for (const gem_json *m = u ? u->first : NULL; m; m = m->next) {
            unsigned k = kinds_of(m, depth + 1);
            kinds |= k ? k : KIND_ANY;
        }
    }
    if (!kinds && list && list->type == GEM_JSON_ARRAY)
        for (const gem_json *m = list->first; m; m = m->next)
            kinds |= kind_of_value(m);
    if (!kinds && only) kinds = kind_of_value(only);
    if (kinds && gem_json_truthy(gem_json_get(schema, "nullable"))) kinds |= KIND_NULL;
    return kinds;
}

static unsigned kinds_of_argument(const gem_parser *p, const char *key, size_t len)
{
    const gem_json *tool = gem_conversation_tool(p->c, p->name.data, p->name.len),
                   *list = gem_json_get(gem_json_get(tool, "parameters"), "properties");
    for (const gem_json *m = list && list->type == GEM_JSON_OBJECT ? list->first : NULL; m;
         m = m->next)
        if (m->name_len == len && !memcmp(m->name, key, len)) {
            unsigned k = kinds_of(m, 0);
            return k ? k : KIND_ANY;
        }
    return KIND_ANY;
}

/* ---- values ---- */

static void begin_value(gem_parser *p)
{
    p->value.len = 0;
    p->value_open = true;
    if (p->kinds == KIND_STRING) gem_call_args(p, "\"", 1);
}

static void value_text(gem_parser *p, const char *s, size_t len)
{
    if (p->kinds == KIND_STRING)
        gem_call_escaped(p, s, len);
    else
        gem_bytes_put(&p->value, s, len);
}

static bool is_word(gem_str s, const char *word)
{
    return s.len == strlen(word) && !memcmp(s.data, word, s.len);
}

/* A value that may be other than a string: as JSON if it is, of an allowed type, else as a string.
 */
static void put_typed(gem_parser *p)
{
    gem_json_error e;
    gem_str s = gem_trim((gem_str){p->value.data ? p->value.data : "", p->value.len});
    if (is_word(s, "True")) s = (gem_str){"true", 4};
    if (is_word(s, "False")) s = (gem_str){"false", 5};
    if (is_word(s, "None")) s = (gem_str){"null", 4};
    gem_json_doc *doc = gem_json_read(s.data, s.len, GEM_CHAT_MAX_DEPTH, &e);
    const gem_json *v = doc && e.fault == GEM_JSON_OK ? gem_json_root(doc) : NULL;
    if (v && (p->kinds & kind_of_value(v)))
        gem_call_args(p, s.data, s.len);
    else if (!p->out.failed && !p->broken)
        gem_json_quote(&p->out, p->value.data ? p->value.data : "", p->value.len);
    gem_json_free(doc);
}

static void end_value(gem_parser *p)
{
    p->value_open = false;
    if (p->kinds == KIND_STRING)
        gem_call_args(p, "\"", 1);
    else
        put_typed(p);
    p->step = BODY;
}

/* ---- grammar ----
 * p->buf holds what is not used yet; each step uses some of it or wants more. */

static void use(gem_parser *p, size_t n)
{
    p->buf.len -= n;
    memmove(p->buf.data, p->buf.data + n, p->buf.len);
}

/* How the buffer goes on at `at`: 1 with this text, 0 perhaps, -1 not. */
static int goes_on(const gem_parser *p, size_t at, const char *text)
{
    size_t n = strlen(text), have = p->buf.len - at;
    if (memcmp(p->buf.data + at, text, GEM_MIN(n, have)) != 0) return -1;
    return have >= n;
}

static size_t skip_blanks(const gem_parser *p, size_t at)
{
    while (at < p->buf.len && is_blank(p->buf.data[at]))
        at++;
    return at;
}

/* Blanks, then `text`: used and true when there. Breaks the call when it cannot come. */
static bool expect(gem_parser *p, const char *text, const char *why)
{
    use(p, skip_blanks(p, 0));
    int r = goes_on(p, 0, text);
    if (r < 0) gem_call_break(p, why);
    if (r > 0) use(p, strlen(text));
    return r > 0;
}

/* Text up to '>' into `out`. */
static bool take_name(gem_parser *p, gem_bytes *out, const char *why)
{
    const char *end = memchr(p->buf.data, '>', p->buf.len);
    size_t n = end ? (size_t)(end - p->buf.data) : p->buf.len;
    if (n > MAX_NAME || (end && !n) || memchr(p->buf.data, '\n', n) ||
        memchr(p->buf.data, '<', n)) {
        gem_call_break(p, why);
        return false;
    }
    if (!end) return false;
    out->len = 0;
    gem_bytes_put(out, p->buf.data, n);
    use(p, n + 1);
    return true;
}

static bool body(gem_parser *p)
{
    use(p, skip_blanks(p, 0));
    int parameter = goes_on(p, 0, open_parameter), end = goes_on(p, 0, close_function);
    if (parameter > 0) {
        use(p, strlen(open_parameter));
        p->step = KEY;
    } else if (end > 0) {
        use(p, strlen(close_function));
        gem_call_args(p, p->any_argument ? "}" : "{}", p->any_argument ? 1 : 2);
        p->step = CLOSED;
    } else {
        if (parameter < 0 && end < 0)
            gem_call_break(p, "a parameter or the end of the function was expected");
        return false;
    }
    return true;
}

static bool key(gem_parser *p)
{
    if (!take_name(p, &p->word, "the name of a parameter is malformed")) return false;
    gem_call_args(p, p->any_argument ? "," : "{", 1);
    p->any_argument = true;
    if (!p->broken) gem_json_quote(&p->out, p->word.data, p->word.len);
    gem_call_args(p, ":", 1);
    p->kinds = kinds_of_argument(p, p->word.data, p->word.len);
    begin_value(p);
    p->step = VALUE_START;
    return true;
}

/* What stands at the closer at `at`: 1 it ends the value, 0 wants more, -1 it is part of it. */
static int ends_value(const gem_parser *p, size_t at)
{
    size_t after = at + strlen(close_parameter), next = skip_blanks(p, after);
    if (next - after > MAX_BLANKS) return 1;
    if (next == p->buf.len) return 0;
    int parameter = goes_on(p, next, open_parameter), end = goes_on(p, next, close_function);
    return parameter > 0 || end > 0 ? 1 : parameter == 0 || end == 0 ? 0 : -1;
}

static bool value(gem_parser *p)
{
    size_t at = 0;
    for (;;) {
        const char *lt = memchr(p->buf.data + at, '<', p->buf.len - at);
        int closer = lt ? goes_on(p, at = (size_t)(lt - p->buf.data), close_parameter) : 0;
        if (!lt) at = p->buf.len;
        if (closer < 0) {
            at++;
            continue;
        }
        int ends = closer > 0 ? ends_value(p, at) : 0;
        if (ends < 0) {
            at += strlen(close_parameter);
            continue;
        }
        bool newline = at && p->buf.data[at - 1] == '\n';
        value_text(p, p->buf.data, at - newline);
        if (ends > 0) {
            use(p, at + strlen(close_parameter));
            end_value(p);
            return true;
        }
        use(p, at - newline);
        return false;
    }
}

static bool advance(gem_parser *p)
{
    switch (p->step) {
    case FUNCTION:
        if (!expect(p, open_function, "the call does not begin with <function=")) return false;
        p->step = NAME;
        return true;
    case NAME:
        if (!take_name(p, &p->name, "the name of the call is malformed")) return false;
        gem_call_begin(p);
        p->step = BODY;
        return true;
    case BODY:
        return body(p);
    case KEY:
        return key(p);
    case VALUE_START:
        if (!p->buf.len) return false;
        if (p->buf.data[0] == '\n') use(p, 1);
        p->step = VALUE;
        return true;
    case VALUE:
        return value(p);
    default:
        use(p, skip_blanks(p, 0));
        if (p->buf.len) gem_call_break(p, "something follows the function");
        return false;
    }
}

void gem_call_xml_text(gem_parser *p, const char *s, size_t len)
{
    gem_bytes_put(&p->buf, s, len);
    while (!p->broken && !p->buf.failed && advance(p))
        ;
}

bool gem_call_xml_complete(const gem_parser *p)
{
    return p->step == CLOSED;
}

bool gem_call_xml_takes_mark(gem_parser *p, gem_mark mark)
{
    if (p->step != VALUE && p->step != VALUE_START) return false;
    if (mark != GEM_MARK_CALL_END) return true;
    /* held back: a closer and blanks after it. Then the call ends here, without </function> */
    size_t at = p->buf.len && p->buf.data[0] == '\n';
    return !p->buf.len || goes_on(p, at, close_parameter) <= 0 ||
           skip_blanks(p, at + strlen(close_parameter)) != p->buf.len;
}
