/* text.c - Python's text and number forms (docs/chat.md names where each is used). */
#include "chat/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

gem_str gem_trim(gem_str s)
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

bool gem_starts_with(gem_str s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && !memcmp(s.data, text, n);
}

bool gem_ends_with(gem_str s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && !memcmp(s.data + s.len - n, text, n);
}

size_t gem_find(gem_str s, size_t from, const char *text)
{
    const char *at = from < s.len ? memmem(s.data + from, s.len - from, text, strlen(text)) : NULL;
    return at ? (size_t)(at - s.data) : SIZE_MAX;
}

bool gem_json_truthy(const gem_json *v)
{
    if (!v) return false;
    switch (v->type) {
    case GEM_JSON_NULL:
        return false;
    case GEM_JSON_BOOL:
        return v->truth;
    case GEM_JSON_NUMBER:
        return v->number != 0;
    case GEM_JSON_STRING:
        return v->len > 0;
    default:
        return v->n > 0;
    }
}

/* ---- numbers ---- */

/* Digits of the shortest decimal form and the power of ten of the first; v is finite, not 0. */
static int shortest_digits(double v, char digits[32], int *n_digits)
{
    char text[32];
    int n = 0, point = -1, e = 0, first = -1, at = 0;
    gem_json_number(text, fabs(v));
    for (const char *s = text; *s; s++) {
        if (*s == 'e') {
            e = atoi(s + 1);
            break;
        }
        if (*s == '.') {
            point = at;
            continue;
        }
        if (*s != '0' && first < 0) first = at;
        if (first >= 0) digits[n++] = *s;
        at++;
    }
    if (point < 0) point = at;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    *n_digits = n;
    return e + point - 1 - first;
}

static void put_float(gem_bytes *out, double v)
{
    char digits[32];
    int n, e;
    if (signbit(v)) gem_bytes_put(out, "-", 1);
    if (isinf(v)) {
        gem_bytes_put(out, "inf", 3);
        return;
    }
    if (v == 0) {
        gem_bytes_put(out, "0.0", 3);
        return;
    }
    e = shortest_digits(v, digits, &n);
    if (e < -4 || e >= 16) {
        gem_bytes_put(out, digits, 1);
        if (n > 1) gem_bytes_printf(out, ".%.*s", n - 1, digits + 1);
        gem_bytes_printf(out, "e%c%02d", e < 0 ? '-' : '+', abs(e));
        return;
    }
    if (e < 0) {
        gem_bytes_printf(out, "0.%.*s%.*s", -e - 1, "000", n, digits);
        return;
    }
    for (int i = 0; i <= e || i < n; i++) {
        if (i == e + 1) gem_bytes_put(out, ".", 1);
        gem_bytes_put(out, i < n ? &digits[i] : "0", 1);
    }
    if (n <= e + 1) gem_bytes_put(out, ".0", 2);
}

void gem_json_py_number(gem_bytes *out, const gem_json *v)
{
    bool whole = !memchr(v->text, '.', v->len) && !memchr(v->text, 'e', v->len) &&
                 !memchr(v->text, 'E', v->len);
    if (!whole)
        put_float(out, v->number);
    else if (v->len == 2 && !memcmp(v->text, "-0", 2))
        gem_bytes_put(out, "0", 1);
    else
        gem_bytes_put(out, v->text, v->len);
}

/* ---- json.dumps ---- */

static void dumps_number(gem_bytes *out, const gem_json *v)
{
    if (isinf(v->number) && (memchr(v->text, 'e', v->len) || memchr(v->text, 'E', v->len) ||
                             memchr(v->text, '.', v->len)))
        gem_bytes_put(out, v->number < 0 ? "-Infinity" : "Infinity", v->number < 0 ? 9 : 8);
    else
        gem_json_py_number(out, v);
}

void gem_json_dumps(gem_bytes *out, const gem_json *v)
{
    bool object = v->type == GEM_JSON_OBJECT;
    switch (v->type) {
    case GEM_JSON_NULL:
        gem_bytes_put(out, "null", 4);
        return;
    case GEM_JSON_BOOL:
        gem_bytes_put(out, v->truth ? "true" : "false", v->truth ? 4 : 5);
        return;
    case GEM_JSON_NUMBER:
        dumps_number(out, v);
        return;
    case GEM_JSON_STRING:
        gem_json_quote(out, v->text, v->len);
        return;
    default:
        break;
    }
    gem_bytes_put(out, object ? "{" : "[", 1);
    for (const gem_json *m = v->first; m; m = m->next) {
        if (object) {
            gem_json_quote(out, m->name, m->name_len);
            gem_bytes_put(out, ": ", 2);
        }
        gem_json_dumps(out, m);
        if (m->next) gem_bytes_put(out, ", ", 2);
    }
    gem_bytes_put(out, object ? "}" : "]", 1);
}

/* ---- str and repr ---- */

static bool is_printable(uint32_t cp)
{
    if (cp == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return false;
    default:
        return true;
    }
}

static void repr_string(gem_bytes *out, const char *text, size_t len)
{
    char quote = memchr(text, '\'', len) && !memchr(text, '"', len) ? '"' : '\'';
    uint32_t cp;
    gem_bytes_put(out, &quote, 1);
    for (size_t i = 0, n; i < len; i += n) {
        n = (size_t)gem_utf8_decode(text + i, len - i, &cp);
        if (!n) cp = (uint8_t)text[i], n = 1;
        if (cp == (uint8_t)quote || cp == '\\')
            gem_bytes_printf(out, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            gem_bytes_put(out, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t", 2);
        else if (is_printable(cp))
            gem_bytes_put(out, text + i, n);
        else if (cp < 0x100)
            gem_bytes_printf(out, "\\x%02x", cp);
        else
            gem_bytes_printf(out, cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    gem_bytes_put(out, &quote, 1);
}

static void repr(gem_bytes *out, const gem_json *v)
{
    bool object = v->type == GEM_JSON_OBJECT;
    if (v->type == GEM_JSON_STRING) {
        repr_string(out, v->text, v->len);
        return;
    }
    if (!object && v->type != GEM_JSON_ARRAY) {
        gem_json_str(out, v);
        return;
    }
    gem_bytes_put(out, object ? "{" : "[", 1);
    for (const gem_json *m = v->first; m; m = m->next) {
        if (object) {
            repr_string(out, m->name, m->name_len);
            gem_bytes_put(out, ": ", 2);
        }
        repr(out, m);
        if (m->next) gem_bytes_put(out, ", ", 2);
    }
    gem_bytes_put(out, object ? "}" : "]", 1);
}

void gem_json_str(gem_bytes *out, const gem_json *v)
{
    if (!v) return;
    switch (v->type) {
    case GEM_JSON_NULL:
        gem_bytes_put(out, "None", 4);
        break;
    case GEM_JSON_BOOL:
        gem_bytes_put(out, v->truth ? "True" : "False", v->truth ? 4 : 5);
        break;
    case GEM_JSON_NUMBER:
        gem_json_py_number(out, v);
        break;
    case GEM_JSON_STRING:
        gem_bytes_put(out, v->text, v->len);
        break;
    default:
        repr(out, v);
        break;
    }
}

void gem_upper(gem_bytes *out, const char *text, size_t len)
{
    uint32_t cp;
    for (size_t i = 0, n; i < len; i += n) {
        char up[4];
        n = (size_t)gem_utf8_decode(text + i, len - i, &cp);
        if (!n) {
            gem_bytes_put(out, text + i, n = 1);
            continue;
        }
        int m = gem_utf8_encode((uint32_t)utf8proc_toupper((utf8proc_int32_t)cp), up);
        gem_bytes_put(out, up, (size_t)m);
    }
}

/* ---- dictsort ---- */

static uint32_t next_lower(const char **s, size_t *len)
{
    uint32_t cp;
    int n = gem_utf8_decode(*s, *len, &cp);
    if (!n) n = 1, cp = (uint8_t) * *s;
    *s += n;
    *len -= (size_t)n;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

static int compare_names(const void *pa, const void *pb)
{
    const gem_json *a = *(const gem_json *const *)pa, *b = *(const gem_json *const *)pb;
    const char *s = a->name, *t = b->name;
    size_t n = a->name_len, m = b->name_len;
    while (n && m) {
        uint32_t x = next_lower(&s, &n), y = next_lower(&t, &m);
        if (x != y) return x < y ? -1 : 1;
    }
    if (n || m) return n ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

const gem_json **gem_json_sorted(const gem_json *v)
{
    const gem_json **list = calloc(v->n + 1, sizeof(*list));
    size_t n = 0;
    if (!list) return NULL;
    for (const gem_json *m = v->first; m; m = m->next)
        list[n++] = m;
    qsort(list, n, sizeof(*list), compare_names);
    return list;
}
