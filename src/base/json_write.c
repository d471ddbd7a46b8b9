/* json_write.c - the writing half of json_reader.h: numbers, the indented form, RFC 8785. */
#include "base/json_reader.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Digits and exponent of the shortest %e form that reads back equal. */
static int shortest(double v, char digits[24], int *n_digits)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int exponent = 0;
    for (int p = 1; p <= 17; p++) {
        char text[40];
        int n = 0;
        snprintf(text, sizeof(text), "%.*e", p - 1, v);
        for (char *s = text; *s && *s != 'e'; s++)
            if (*s >= '0' && *s <= '9') digits[n++] = *s;
        exponent = atoi(strchr(text, 'e') + 1);
        digits[n] = 0;
        *n_digits = n;
        /* read back from a text of our own: the decimal point of %e follows the locale */
        char back[40];
        snprintf(back, sizeof(back), "%se%d", digits, exponent - (n - 1));
        if (strtod_l(back, NULL, c) == v) break;
    }
    freelocale(c);
    while (*n_digits > 1 && digits[*n_digits - 1] == '0')
        digits[--*n_digits] = 0;
    return exponent;
}

void gem_json_number(char out[32], double v)
{
    if (v == 0) {
        memcpy(out, "0", 2);
        return;
    }
    if (!isfinite(v)) { /* a caller's mistake; JSON has no word for it */
        memcpy(out, "null", 5);
        return;
    }
    if (fabs(v) < 9007199254740992.0 && v == (double)(long long)v) {
        snprintf(out, 32, "%lld", (long long)v);
        return;
    }
    char digits[24];
    int n, e = shortest(fabs(v), digits, &n);
    char *o = out;
    if (v < 0) *o++ = '-';
    if (e >= 21 || e < -6) {
        *o++ = digits[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, digits + 1, (size_t)n - 1);
            o += n - 1;
        }
        snprintf(o, 32 - (size_t)(o - out), "e%c%d", e < 0 ? '-' : '+', abs(e));
    } else if (e < 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = -1; i > e; i--)
            *o++ = '0';
        memcpy(o, digits, (size_t)n + 1);
    } else {
        for (int i = 0; i <= e || i < n; i++) {
            if (i == e + 1) *o++ = '.';
            *o++ = i < n ? digits[i] : '0';
        }
        *o = 0;
    }
}

void gem_json_quote(gem_bytes *out, const char *text, size_t len)
{
    size_t start = 0;
    gem_bytes_put(out, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        gem_bytes_put(out, text + start, i - start);
        start = i + 1;
        switch (c) {
        case '"':
            gem_bytes_put(out, "\\\"", 2);
            break;
        case '\\':
            gem_bytes_put(out, "\\\\", 2);
            break;
        case '\b':
            gem_bytes_put(out, "\\b", 2);
            break;
        case '\t':
            gem_bytes_put(out, "\\t", 2);
            break;
        case '\n':
            gem_bytes_put(out, "\\n", 2);
            break;
        case '\f':
            gem_bytes_put(out, "\\f", 2);
            break;
        case '\r':
            gem_bytes_put(out, "\\r", 2);
            break;
        default:
            gem_bytes_printf(out, "\\u%04x", c);
        }
    }
    gem_bytes_put(out, text + start, len - start);
    gem_bytes_put(out, "\"", 1);
}

static void scalar(gem_bytes *out, const gem_json *v)
{
    char text[32];
    switch (v->type) {
    case GEM_JSON_NULL:
        gem_bytes_put(out, "null", 4);
        break;
    case GEM_JSON_BOOL:
        gem_bytes_put(out, v->truth ? "true" : "false", v->truth ? 4 : 5);
        break;
    case GEM_JSON_NUMBER:
        gem_json_number(text, v->number);
        gem_bytes_put(out, text, strlen(text));
        break;
    default:
        gem_json_quote(out, v->text, v->len);
        break;
    }
}

static void indented(gem_bytes *out, const gem_json *v, int level)
{
    bool object = v->type == GEM_JSON_OBJECT;
    if (!object && v->type != GEM_JSON_ARRAY) {
        scalar(out, v);
        return;
    }
    gem_bytes_put(out, object ? "{" : "[", 1);
    for (const gem_json *m = v->first; m; m = m->next) {
        gem_bytes_printf(out, "\n%*s", 2 * (level + 1), "");
        if (object) {
            gem_json_quote(out, m->name, m->name_len);
            gem_bytes_put(out, ": ", 2);
        }
        indented(out, m, level + 1);
        if (m->next) gem_bytes_put(out, ",", 1);
    }
    if (v->first) gem_bytes_printf(out, "\n%*s", 2 * level, "");
    gem_bytes_put(out, object ? "}" : "]", 1);
}

void gem_json_write(gem_bytes *out, const gem_json *v)
{
    indented(out, v, 0);
    gem_bytes_put(out, "\n", 1);
}

/* UTF-16 order: as code points, except that U+E000..FFFF sort behind supplementary characters,
 * whose first unit is a surrogate D800..DBFF. */
static uint32_t unit_rank(uint32_t cp)
{
    return cp >= 0x10000 ? 0xD800 + ((cp - 0x10000) >> 10) : cp;
}

static int utf16_order(const char *a, size_t na, const char *b, size_t nb)
{
    while (na && nb) {
        uint32_t x = 0, y = 0;
        int ka = gem_utf8_decode(a, na, &x), kb = gem_utf8_decode(b, nb, &y);
        if (ka == 0 || kb == 0) break; /* cannot happen: the reader checked */
        if (x != y) {
            uint32_t rx = unit_rank(x), ry = unit_rank(y);
            if (rx != ry) return rx < ry ? -1 : 1;
            return x < y ? -1 : 1; /* same high surrogate: the low one decides as the code point */
        }
        a += ka, na -= (size_t)ka;
        b += kb, nb -= (size_t)kb;
    }
    return na ? 1 : nb ? -1 : 0;
}

static int by_utf16(const void *a, const void *b)
{
    const gem_json *x = *(const gem_json *const *)a, *y = *(const gem_json *const *)b;
    return utf16_order(x->name, x->name_len, y->name, y->name_len);
}

static void canonical(gem_bytes *out, const gem_json *v, const char *blank)
{
    if (v->type == GEM_JSON_ARRAY) {
        gem_bytes_put(out, "[", 1);
        for (const gem_json *m = v->first; m; m = m->next) {
            canonical(out, m, NULL);
            if (m->next) gem_bytes_put(out, ",", 1);
        }
        gem_bytes_put(out, "]", 1);
        return;
    }
    if (v->type != GEM_JSON_OBJECT) {
        scalar(out, v);
        return;
    }
    const gem_json **m = malloc((v->n + 1) * sizeof(*m));
    if (!m) {
        out->failed = true;
        return;
    }
    size_t n = 0;
    for (const gem_json *c = v->first; c; c = c->next)
        m[n++] = c;
    qsort(m, n, sizeof(*m), by_utf16);
    gem_bytes_put(out, "{", 1);
    for (size_t i = 0; i < n; i++) {
        if (i) gem_bytes_put(out, ",", 1);
        gem_json_quote(out, m[i]->name, m[i]->name_len);
        gem_bytes_put(out, ":", 1);
        if (blank && strlen(blank) == m[i]->name_len &&
            memcmp(blank, m[i]->name, m[i]->name_len) == 0)
            gem_bytes_put(out, "\"\"", 2);
        else
            canonical(out, m[i], NULL);
    }
    gem_bytes_put(out, "}", 1);
    free(m);
}

void gem_json_write_canonical(gem_bytes *out, const gem_json *v, const char *blank)
{
    canonical(out, v, blank);
}
