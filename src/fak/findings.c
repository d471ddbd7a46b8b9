/* findings.c - collecting and printing findings. */
#include "fak/findings.h"

#include <stdio.h>
#include <stdlib.h>

/* Findings are one line each: control characters that came with names or values are written \u00xx.
 */
static void put_clean(gem_bytes *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == 0x7f)
            gem_bytes_printf(out, "\\u%04x", c);
        else
            gem_bytes_put(out, &s[i], 1);
    }
}

static void add(fak_findings *f, const char *code, const gem_json *at, const char *tail,
                const char *fmt, va_list ap) GEM_PRINTF(5, 0);
static void add(fak_findings *f, const char *code, const gem_json *at, const char *tail,
                const char *fmt, va_list ap)
{
    gem_bytes line = {0}, pointer = {0};
    char text[512];
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        fak_finding *v = cap > 65536 ? NULL : realloc(f->v, cap * sizeof(*v));
        if (!v) { /* more than 65536 findings say no more than these */
            f->failed = true;
            return;
        }
        f->v = v;
        f->cap = cap;
    }
    gem_json_pointer(at, &pointer);
    if (tail) gem_bytes_printf(&pointer, "/%s", tail);
    vsnprintf(text, sizeof(text), fmt, ap);
    gem_bytes_printf(&line, "%s ", code);
    size_t start = line.len;
    if (f->prefix) gem_bytes_put(&line, f->prefix, strlen(f->prefix));
    if (pointer.len)
        put_clean(&line, pointer.data, pointer.len);
    else
        gem_bytes_put(&line, "-", 1);
    size_t pointer_len = line.len - start;
    gem_bytes_put(&line, ": ", 2);
    /* a cut in the middle of a character leaves no half of it */
    put_clean(&line, text, gem_utf8_complete(text, strlen(text)));
    gem_bytes_free(&pointer);
    if (line.failed) {
        f->failed = true;
        gem_bytes_free(&line);
        return;
    }
    f->v[f->n++] = (fak_finding){line.data, strlen(code), pointer_len};
}

void fak_find(fak_findings *f, const char *code, const gem_json *at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(f, code, at, NULL, fmt, ap);
    va_end(ap);
}

void fak_find_in(fak_findings *f, const char *code, const gem_json *at, const char *member,
                 const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add(f, code, at, member, fmt, ap);
    va_end(ap);
}

void fak_find_item(fak_findings *f, const char *code, const gem_json *at, size_t index,
                   const char *fmt, ...)
{
    char tail[24];
    va_list ap;
    snprintf(tail, sizeof(tail), "%zu", index);
    va_start(ap, fmt);
    add(f, code, at, tail, fmt, ap);
    va_end(ap);
}

static int order(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, GEM_MIN(na, nb));
    return c ? c : na < nb ? -1 : na > nb;
}

static int by_code_and_pointer(const void *a, const void *b)
{
    const fak_finding *x = a, *y = b;
    int c = order(x->line, x->code_len, y->line, y->code_len);
    if (!c)
        c = order(x->line + x->code_len + 1, x->pointer_len, y->line + y->code_len + 1,
                  y->pointer_len);
    return c ? c : strcmp(x->line, y->line);
}

void fak_findings_print(fak_findings *f, const char *program, gem_bytes *out)
{
    if (f->n) qsort(f->v, f->n, sizeof(*f->v), by_code_and_pointer);
    for (size_t i = 0; i < f->n; i++)
        if (i == 0 || strcmp(f->v[i - 1].line, f->v[i].line) != 0)
            gem_bytes_printf(out, "%s: %s\n", program, f->v[i].line);
    if (f->failed)
        gem_bytes_printf(out, "%s: NPI-001 -: out of memory, or too many findings\n", program);
}

void fak_findings_free(fak_findings *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->v[i].line);
    free(f->v);
    memset(f, 0, sizeof(*f));
}
