/* bytes.c - a growing byte buffer and strict UTF-8. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

static bool reserve(gem_bytes *b, size_t extra)
{
    size_t need;
    if (b->failed) return false;
    if (!gem_add_ok(b->len, extra, &need) || !gem_add_ok(need, 1, &need)) goto fail;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            if (!gem_mul_ok(cap, 2, &cap)) goto fail;
        char *data = realloc(b->data, cap);
        if (!data) goto fail;
        b->data = data;
        b->cap = cap;
    }
    return true;
fail:
    b->failed = true;
    return false;
}

void gem_bytes_put(gem_bytes *b, const void *data, size_t len)
{
    if (!reserve(b, len)) return;
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

void gem_bytes_printf(gem_bytes *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) return;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void gem_bytes_free(gem_bytes *b)
{
    free(b->data);
    memset(b, 0, sizeof(*b));
}

int gem_utf8_decode(const char *str, size_t n, uint32_t *cp)
{
    const uint8_t *s = (const uint8_t *)str;
    if (n < 1) return 0;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (s[0] >= 0xC2 && s[0] <= 0xDF && n >= 2 && (s[1] & 0xC0) == 0x80) {
        *cp = (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F);
        return 2;
    }
    if ((s[0] & 0xF0) == 0xE0 && n >= 3 && (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80) {
        uint32_t c = (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F);
        if (c < 0x800 || (c >= 0xD800 && c <= 0xDFFF)) return 0;
        *cp = c;
        return 3;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4 && n >= 4 && (s[1] & 0xC0) == 0x80 && (s[2] & 0xC0) == 0x80 &&
        (s[3] & 0xC0) == 0x80) {
        uint32_t c = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 |
                     (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F);
        if (c < 0x10000 || c > 0x10FFFF) return 0;
        *cp = c;
        return 4;
    }
    return 0;
}

int gem_utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Could the bytes s[0..n), n < 4, be the start of a valid character that is not complete yet? */
static bool could_continue(const uint8_t *s, size_t n)
{
    size_t want = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : 0;
    if (n >= want) return false;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return false;
    if (n >= 2) {
        if (s[0] == 0xE0 && s[1] < 0xA0) return false;
        if (s[0] == 0xED && s[1] > 0x9F) return false;
        if (s[0] == 0xF0 && s[1] < 0x90) return false;
        if (s[0] == 0xF4 && s[1] > 0x8F) return false;
    }
    return true;
}

size_t gem_utf8_complete(const char *str, size_t n)
{
    const uint8_t *s = (const uint8_t *)str;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = s[n - back];
        if ((c & 0xC0) == 0x80) continue;
        return c >= 0xC2 && could_continue(s + n - back, back) ? n - back : n;
    }
    return n;
}
