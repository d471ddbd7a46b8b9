/* json_reader.c - the parser of json_reader.h: recursive descent over bytes with an explicit depth
 * limit, an arena, and duplicate detection by sorting member names when an object closes. */
#include "base/json_reader.h"

#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 1 << 14, MAX_VALUES = 1 << 20 };

typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    max_align_t data[];
} chunk;

struct gem_json_doc {
    chunk *chunks;
    gem_json *root;
    bool failed;
    gem_json spare; /* stands in for nodes that could not be allocated */
};

static void *arena(gem_json_doc *doc, size_t size)
{
    size = (size_t)gem_round_up(size, sizeof(max_align_t));
    chunk *c = doc->chunks;
    if (!c || c->size - c->used < size) {
        size_t room = GEM_MAX(size, (size_t)CHUNK_BYTES), total;
        if (!gem_add_ok(room, sizeof(chunk), &total) || !(c = malloc(total))) {
            doc->failed = true;
            return NULL;
        }
        c->used = 0;
        c->size = room;
        c->next = doc->chunks;
        doc->chunks = c;
    }
    void *p = (char *)c->data + c->used;
    c->used += size;
    return p;
}

static char *arena_text(gem_json_doc *doc, const char *text, size_t len)
{
    char *p = arena(doc, len + 1);
    if (!p) return NULL;
    if (len) memcpy(p, text, len);
    p[len] = 0;
    return p;
}

gem_json_doc *gem_json_new(void)
{
    return calloc(1, sizeof(gem_json_doc));
}

void gem_json_free(gem_json_doc *doc)
{
    if (!doc) return;
    for (chunk *c = doc->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(doc);
}

const gem_json *gem_json_root(const gem_json_doc *doc)
{
    return doc ? doc->root : NULL;
}

bool gem_json_failed(const gem_json_doc *doc)
{
    return !doc || doc->failed;
}

static gem_json *node(gem_json_doc *doc, gem_json_type type)
{
    gem_json *v = arena(doc, sizeof(*v));
    if (!v) {
        memset(&doc->spare, 0, sizeof(doc->spare));
        v = &doc->spare;
    }
    memset(v, 0, sizeof(*v));
    v->type = type;
    v->text = "";
    return v;
}

static void link_child(gem_json_doc *doc, gem_json *parent, gem_json *v)
{
    if (v == &doc->spare || parent == &doc->spare) return;
    v->parent = parent;
    if (!parent) {
        doc->root = v;
        return;
    }
    v->index = parent->n++;
    if (parent->last)
        parent->last->next = v;
    else
        parent->first = v;
    parent->last = v;
}

/* ---- parser ---- */
typedef struct parser {
    gem_json_doc *doc;
    const char *s;
    size_t n, pos;
    int depth, max_depth;
    size_t values;
    gem_bytes scratch;
    gem_json_error *err;
    locale_t c_locale;
} parser;

static bool fault(parser *p, gem_json_fault kind, const char *text)
{
    if (p->err->fault != GEM_JSON_OK) return false;
    p->err->fault = kind;
    p->err->line = 1;
    size_t bol = 0;
    for (size_t i = 0; i < p->pos && i < p->n; i++)
        if (p->s[i] == '\n') {
            p->err->line++;
            bol = i + 1;
        }
    p->err->column = p->pos - bol + 1;
    snprintf(p->err->text, sizeof(p->err->text), "line %zu, column %zu: %s", p->err->line,
             p->err->column, text);
    return false;
}

static void blanks(parser *p)
{
    while (p->pos < p->n && (p->s[p->pos] == ' ' || p->s[p->pos] == '\t' || p->s[p->pos] == '\n' ||
                             p->s[p->pos] == '\r'))
        p->pos++;
}

static int peek(const parser *p)
{
    return p->pos < p->n ? (unsigned char)p->s[p->pos] : -1;
}

static int hex4(const parser *p, size_t at)
{
    int v = 0;
    if (at > p->n || p->n - at < 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        char c = p->s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* p->pos stands on the backslash. */
static bool escape(parser *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p->pos + 1 >= p->n) return fault(p, GEM_JSON_SYNTAX, "the string does not end");
    char c = p->s[p->pos + 1];
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        gem_bytes_put(&p->scratch, &to[hit - from], 1);
        p->pos += 2;
        return true;
    }
    if (c != 'u') return fault(p, GEM_JSON_SYNTAX, "unknown escape in a string");
    int u = hex4(p, p->pos + 2);
    if (u < 0) return fault(p, GEM_JSON_SYNTAX, "\\u needs four hexadecimal digits");
    uint32_t cp = (uint32_t)u;
    size_t used = 6;
    if (cp >= 0xD800 && cp <= 0xDFFF) {
        int low = cp < 0xDC00 && p->n - p->pos >= 12 && p->s[p->pos + 6] == '\\' &&
                          p->s[p->pos + 7] == 'u'
                      ? hex4(p, p->pos + 8)
                      : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return fault(p, GEM_JSON_SYNTAX, "lone surrogate in a string");
        cp = 0x10000 + ((cp - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
        used = 12;
    }
    char utf8[4];
    gem_bytes_put(&p->scratch, utf8, (size_t)gem_utf8_encode(cp, utf8));
    p->pos += used;
    return true;
}

/* A string at p->pos (on the quote) into the arena. */
static bool string(parser *p, const char **text, size_t *len)
{
    p->scratch.len = 0;
    p->pos++;
    for (;;) {
        size_t start = p->pos;
        while (p->pos < p->n && (unsigned char)p->s[p->pos] >= 0x20 &&
               (unsigned char)p->s[p->pos] < 0x80 && p->s[p->pos] != '"' && p->s[p->pos] != '\\')
            p->pos++;
        gem_bytes_put(&p->scratch, p->s + start, p->pos - start);
        int c = peek(p);
        if (c < 0) return fault(p, GEM_JSON_SYNTAX, "the string does not end");
        if (c == '"') break;
        if (c < 0x20) return fault(p, GEM_JSON_SYNTAX, "control character in a string");
        if (c == '\\') {
            if (!escape(p)) return false;
            continue;
        }
        uint32_t cp;
        int n = gem_utf8_decode(p->s + p->pos, p->n - p->pos, &cp);
        if (n == 0) return fault(p, GEM_JSON_SYNTAX, "invalid UTF-8");
        gem_bytes_put(&p->scratch, p->s + p->pos, (size_t)n);
        p->pos += (size_t)n;
    }
    p->pos++;
    *len = p->scratch.len;
    *text = p->scratch.failed ? NULL : arena_text(p->doc, p->scratch.data, p->scratch.len);
    return *text ? true : fault(p, GEM_JSON_NOMEM, "no memory");
}

static bool digits(parser *p)
{
    size_t start = p->pos;
    while (peek(p) >= '0' && peek(p) <= '9')
        p->pos++;
    return p->pos > start;
}

static bool number(parser *p, gem_json *v)
{
    size_t start = p->pos;
    if (peek(p) == '-') p->pos++;
    if (peek(p) == '0') {
        p->pos++;
        if (peek(p) >= '0' && peek(p) <= '9')
            return fault(p, GEM_JSON_SYNTAX, "leading zero in a number");
    } else if (!digits(p))
        return fault(p, GEM_JSON_SYNTAX, "a value was expected");
    if (peek(p) == '.') {
        p->pos++;
        if (!digits(p)) return fault(p, GEM_JSON_SYNTAX, "digits must follow the decimal point");
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->pos++;
        if (peek(p) == '+' || peek(p) == '-') p->pos++;
        if (!digits(p)) return fault(p, GEM_JSON_SYNTAX, "digits must follow the exponent");
    }
    v->len = p->pos - start;
    v->text = arena_text(p->doc, p->s + start, v->len);
    if (!v->text) return fault(p, GEM_JSON_NOMEM, "no memory");
    v->number = strtod_l(v->text, NULL, p->c_locale);
    return true;
}

static int by_name(const void *a, const void *b)
{
    const gem_json *x = *(gem_json *const *)a, *y = *(gem_json *const *)b;
    int c = memcmp(x->name, y->name, GEM_MIN(x->name_len, y->name_len));
    if (c) return c;
    if (x->name_len != y->name_len) return x->name_len < y->name_len ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool same_name(const gem_json *a, const gem_json *b)
{
    return a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0;
}

/* The first member, in document order, whose name stood before in the same object. */
static bool find_duplicate(parser *p, gem_json *obj)
{
    const gem_json *dup = NULL;
    if (obj->n < 2) return true;
    gem_json **v = malloc(obj->n * sizeof(*v));
    if (!v) return fault(p, GEM_JSON_NOMEM, "no memory");
    size_t n = 0;
    for (gem_json *m = obj->first; m; m = m->next)
        v[n++] = m;
    qsort(v, n, sizeof(*v), by_name);
    for (size_t i = 1; i < n; i++)
        if (same_name(v[i - 1], v[i]) && (!dup || v[i]->index < dup->index)) dup = v[i];
    free(v);
    if (!dup) return true;
    p->err->at = dup;
    return fault(p, GEM_JSON_DUPLICATE, "a member of this name stands already in the object");
}

static gem_json *value(parser *p, gem_json *parent, const char *name, size_t name_len);

static bool members(parser *p, gem_json *obj)
{
    p->pos++;
    blanks(p);
    if (peek(p) == '}') {
        p->pos++;
        return true;
    }
    for (;;) {
        const char *name;
        size_t name_len;
        blanks(p);
        if (peek(p) != '"') return fault(p, GEM_JSON_SYNTAX, "a member name was expected");
        if (!string(p, &name, &name_len)) return false;
        blanks(p);
        if (peek(p) != ':') return fault(p, GEM_JSON_SYNTAX, "':' was expected");
        p->pos++;
        if (!value(p, obj, name, name_len)) return false;
        blanks(p);
        int c = peek(p);
        p->pos++;
        if (c == '}') return find_duplicate(p, obj);
        if (c != ',') {
            p->pos--;
            return fault(p, GEM_JSON_SYNTAX, "',' or '}' was expected");
        }
    }
}

static bool items(parser *p, gem_json *arr)
{
    p->pos++;
    blanks(p);
    if (peek(p) == ']') {
        p->pos++;
        return true;
    }
    for (;;) {
        if (!value(p, arr, NULL, 0)) return false;
        blanks(p);
        int c = peek(p);
        p->pos++;
        if (c == ']') return true;
        if (c != ',') {
            p->pos--;
            return fault(p, GEM_JSON_SYNTAX, "',' or ']' was expected");
        }
    }
}

static bool word(parser *p, const char *text)
{
    size_t n = strlen(text);
    if (p->n - p->pos < n || memcmp(p->s + p->pos, text, n) != 0)
        return fault(p, GEM_JSON_SYNTAX, "a value was expected");
    p->pos += n;
    return true;
}

static gem_json *value(parser *p, gem_json *parent, const char *name, size_t name_len)
{
    blanks(p);
    int c = peek(p);
    gem_json_type type = c == '{'               ? GEM_JSON_OBJECT
                         : c == '['             ? GEM_JSON_ARRAY
                         : c == '"'             ? GEM_JSON_STRING
                         : c == 't' || c == 'f' ? GEM_JSON_BOOL
                         : c == 'n'             ? GEM_JSON_NULL
                                                : GEM_JSON_NUMBER;
    if (++p->values > MAX_VALUES) {
        fault(p, GEM_JSON_SYNTAX, "more than 1048576 values");
        return NULL;
    }
    gem_json *v = node(p->doc, type);
    if (p->doc->failed) {
        fault(p, GEM_JSON_NOMEM, "no memory");
        return NULL;
    }
    v->name = name;
    v->name_len = name_len;
    link_child(p->doc, parent, v);
    bool ok = true;
    switch (type) {
    case GEM_JSON_OBJECT:
    case GEM_JSON_ARRAY:
        if (++p->depth > p->max_depth) {
            ok = fault(p, GEM_JSON_SYNTAX, "nested too deeply");
            break;
        }
        ok = type == GEM_JSON_OBJECT ? members(p, v) : items(p, v);
        p->depth--;
        break;
    case GEM_JSON_STRING:
        ok = string(p, &v->text, &v->len);
        break;
    case GEM_JSON_NUMBER:
        ok = number(p, v);
        break;
    case GEM_JSON_BOOL:
        v->truth = c == 't';
        ok = word(p, c == 't' ? "true" : "false");
        break;
    case GEM_JSON_NULL:
        ok = word(p, "null");
        break;
    }
    return ok ? v : NULL;
}

gem_json_doc *gem_json_read(const char *data, size_t len, int max_depth, gem_json_error *err)
{
    memset(err, 0, sizeof(*err));
    parser p = {.doc = gem_json_new(), .s = data, .n = len, .max_depth = max_depth, .err = err};
    if (!p.doc) {
        err->fault = GEM_JSON_NOMEM;
        snprintf(err->text, sizeof(err->text), "no memory");
        return NULL;
    }
    p.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    gem_bytes_put(&p.scratch, "", 0);
    if (value(&p, NULL, NULL, 0)) {
        blanks(&p);
        if (p.pos < len) fault(&p, GEM_JSON_TRAILING, "data follows the document");
    }
    if (err->fault != GEM_JSON_OK && err->fault != GEM_JSON_DUPLICATE) p.doc->root = NULL;
    gem_bytes_free(&p.scratch);
    freelocale(p.c_locale);
    return p.doc;
}

/* ---- looking ---- */
const gem_json *gem_json_get(const gem_json *v, const char *name)
{
    if (!v || v->type != GEM_JSON_OBJECT) return NULL;
    size_t n = strlen(name);
    for (const gem_json *m = v->first; m; m = m->next)
        if (m->name_len == n && memcmp(m->name, name, n) == 0) return m;
    return NULL;
}

const gem_json *gem_json_at(const gem_json *v, size_t index)
{
    if (!v || (v->type != GEM_JSON_ARRAY && v->type != GEM_JSON_OBJECT)) return NULL;
    const gem_json *m = v->first;
    while (m && index--)
        m = m->next;
    return m;
}

bool gem_json_is(const gem_json *v, const char *s)
{
    return v && v->type == GEM_JSON_STRING && v->len == strlen(s) &&
           memcmp(v->text, s, v->len) == 0;
}

static const gem_json *find(const gem_json *obj, const gem_json *like)
{
    for (const gem_json *m = obj->first; m; m = m->next)
        if (same_name(m, like)) return m;
    return NULL;
}

bool gem_json_equal(const gem_json *a, const gem_json *b)
{
    if (!a || !b) return a == b;
    if (a->type != b->type || a->n != b->n) return false;
    switch (a->type) {
    case GEM_JSON_NULL:
        return true;
    case GEM_JSON_BOOL:
        return a->truth == b->truth;
    case GEM_JSON_NUMBER:
        return a->number == b->number;
    case GEM_JSON_STRING:
        return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
    case GEM_JSON_ARRAY:
        for (const gem_json *x = a->first, *y = b->first; x && y; x = x->next, y = y->next)
            if (!gem_json_equal(x, y)) return false;
        return true;
    case GEM_JSON_OBJECT:
        for (const gem_json *x = a->first; x; x = x->next) {
            const gem_json *y = find(b, x);
            if (!y || !gem_json_equal(x, y)) return false;
        }
        return true;
    }
    return false;
}

void gem_json_pointer(const gem_json *v, gem_bytes *out)
{
    if (!v || !v->parent) return;
    gem_json_pointer(v->parent, out);
    gem_bytes_put(out, "/", 1);
    if (!v->name) {
        gem_bytes_printf(out, "%zu", v->index);
        return;
    }
    for (size_t i = 0; i < v->name_len; i++) {
        if (v->name[i] == '~')
            gem_bytes_put(out, "~0", 2);
        else if (v->name[i] == '/')
            gem_bytes_put(out, "~1", 2);
        else
            gem_bytes_put(out, &v->name[i], 1);
    }
}

/* ---- building ---- */
static void set_name(gem_json_doc *doc, gem_json *v, const char *name)
{
    if (!name || v == &doc->spare) return;
    v->name_len = strlen(name);
    v->name = arena_text(doc, name, v->name_len);
    if (!v->name) {
        v->name = "";
        v->name_len = 0;
    }
}

gem_json *gem_json_put(gem_json_doc *doc, gem_json *parent, const char *name, gem_json_type type)
{
    gem_json *v = node(doc, type);
    set_name(doc, v, name);
    link_child(doc, parent, v);
    return v;
}

void gem_json_set_string(gem_json_doc *doc, gem_json *v, const char *text)
{
    size_t len = strlen(text);
    char *copy = arena_text(doc, text, len);
    if (!copy) return;
    v->text = copy;
    v->len = len;
}

gem_json *gem_json_put_string(gem_json_doc *doc, gem_json *parent, const char *name,
                              const char *text)
{
    gem_json *v = gem_json_put(doc, parent, name, GEM_JSON_STRING);
    gem_json_set_string(doc, v, text);
    return v;
}

gem_json *gem_json_put_number(gem_json_doc *doc, gem_json *parent, const char *name, double value_)
{
    char text[32];
    gem_json *v = gem_json_put(doc, parent, name, GEM_JSON_NUMBER);
    gem_json_number(text, value_);
    gem_json_set_string(doc, v, text);
    v->number = value_;
    return v;
}

gem_json *gem_json_put_int(gem_json_doc *doc, gem_json *parent, const char *name, int64_t value_)
{
    char text[32];
    gem_json *v = gem_json_put(doc, parent, name, GEM_JSON_NUMBER);
    snprintf(text, sizeof(text), "%lld", (long long)value_);
    gem_json_set_string(doc, v, text);
    v->number = (double)value_;
    return v;
}

gem_json *gem_json_put_bool(gem_json_doc *doc, gem_json *parent, const char *name, bool value_)
{
    gem_json *v = gem_json_put(doc, parent, name, GEM_JSON_BOOL);
    v->truth = value_;
    return v;
}

/* name_len counts, because copied names may hold U+0000. */
static gem_json *copy_tree(gem_json_doc *doc, gem_json *parent, const char *name, size_t name_len,
                           const gem_json *src)
{
    gem_json *v = node(doc, src->type);
    if (name) {
        v->name = arena_text(doc, name, name_len);
        v->name_len = v->name ? name_len : 0;
        if (!v->name) v->name = "";
    }
    v->truth = src->truth;
    v->number = src->number;
    if (src->len) {
        char *text = arena_text(doc, src->text, src->len);
        v->text = text ? text : "";
        v->len = text ? src->len : 0;
    }
    link_child(doc, parent, v);
    for (const gem_json *m = src->first; m; m = m->next)
        copy_tree(doc, v, m->name, m->name_len, m);
    return v;
}

gem_json *gem_json_put_copy(gem_json_doc *doc, gem_json *parent, const char *name,
                            const gem_json *v)
{
    if (!v) {
        memset(&doc->spare, 0, sizeof(doc->spare));
        return &doc->spare;
    }
    return copy_tree(doc, parent, name, name ? strlen(name) : 0, v);
}

gem_json *gem_json_insert_copy(gem_json_doc *doc, gem_json *parent, const gem_json *after,
                               const char *name, const gem_json *src)
{
    gem_json *before_last = parent->last;
    gem_json *v = gem_json_put_copy(doc, parent, name, src);
    if (v == &doc->spare || after == before_last) return v;
    before_last->next = NULL; /* v is taken off the end ... */
    parent->last = before_last;
    if (after) { /* ... and linked behind `after` */
        gem_json *prev = parent->first;
        while (prev != after)
            prev = prev->next;
        v->next = prev->next;
        prev->next = v;
    } else {
        v->next = parent->first;
        parent->first = v;
    }
    size_t i = 0;
    for (gem_json *m = parent->first; m; m = m->next)
        m->index = i++;
    return v;
}
