/* gguf_parse.c - one part of a GGUF file: its header and the order of what follows, and what the
 * parsers of keys (gguf_kv.c) and tensors (gguf_tensors.c) share. Every number is compared with
 * what is left of the file before it is used or allocated from. Format: docs/formats.md. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool gem_gguf_take(gem_gguf_cursor *c, void *out, size_t n)
{
    if (n > gem_gguf_left(c)) return false;
    memcpy(out, c->data + c->pos, n);
    c->pos += n;
    return true;
}

size_t gem_kv_kind_bytes(uint32_t kind)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < ARRAY_LEN(bytes) ? bytes[kind] : 0;
}

const char *gem_kv_kind_name(uint32_t kind)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return kind < ARRAY_LEN(names) ? names[kind] : "unknown";
}

const char *gem_gguf_shown(const char *s, size_t len, char buf[GEM_GGUF_SHOWN])
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (n + 8 > GEM_GGUF_SHOWN) { /* room for an escape, "..." and NUL */
            memcpy(buf + n, "...", 3);
            n += 3;
            break;
        }
        if (c >= 0x20 && c < 0x7F)
            buf[n++] = (char)c;
        else
            n += (size_t)snprintf(buf + n, GEM_GGUF_SHOWN - n, "\\x%02x", c);
    }
    buf[n] = 0;
    return buf;
}

void *gem_gguf_grow(void *array, size_t *cap, size_t n, size_t elem_bytes)
{
    size_t want, bytes;
    if (n < *cap) return array;
    if (!gem_mul_ok(*cap ? *cap : 8, 2, &want) || !gem_mul_ok(want, elem_bytes, &bytes))
        return NULL;
    void *p = realloc(array, bytes);
    if (p) *cap = want;
    return p;
}

gem_status gem_gguf_no_memory(const gem_gguf_part *p, gem_error *err)
{
    return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its list of keys and tensors", p->label);
}

gem_status gem_gguf_take_name(const gem_gguf_part *p, gem_gguf_cursor *c, const char *what,
                              uint64_t index, uint64_t max, char **out, gem_error *err)
{
    uint64_t len;
    if (!gem_gguf_take(c, &len, 8))
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: %s %" PRIu64 ": the file ends at %zu bytes, before its name", p->label,
                        what, index, p->size);
    if (len > gem_gguf_left(c))
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: %s %" PRIu64 ": its name has length %" PRIu64
                        ", but only %zu bytes are left",
                        p->label, what, index, len, gem_gguf_left(c));
    const char *s = (const char *)c->data + c->pos;
    char shown[GEM_GGUF_SHOWN];
    if (len == 0 || len > max)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: %s %" PRIu64 ": its name has length %" PRIu64
                        "; expected 1 to %" PRIu64,
                        p->label, what, index, len, max);
    if (memchr(s, 0, (size_t)len))
        return gem_fail(err, GEM_E_FORMAT, "%s: %s %" PRIu64 ": its name '%s' contains a zero byte",
                        p->label, what, index, gem_gguf_shown(s, (size_t)len, shown));
    char *copy = malloc((size_t)len + 1);
    if (!copy) return gem_gguf_no_memory(p, err);
    memcpy(copy, s, (size_t)len);
    copy[len] = 0;
    c->pos += (size_t)len;
    *out = copy;
    return GEM_OK;
}

/* ---- header ---- */

static gem_status bad_magic(const gem_gguf_part *p, gem_error *err)
{
    char buf[GEM_GGUF_SHOWN];
    static const struct {
        const char *start, *what;
    } known[] = {
        {"FUGG", "a big-endian GGUF file; only little-endian files can be read"},
        {"vers", "perhaps a Git LFS pointer in place of the model"},
        {"<!do", "perhaps a web page saved in place of the model"},
        {"<!DO", "perhaps a web page saved in place of the model"},
        {"<htm", "perhaps a web page saved in place of the model"},
        {"ggjt", "a GGML file from before GGUF"},
        {"tjgg", "a GGML file from before GGUF"},
        {"lmgg", "a GGML file from before GGUF"},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (memcmp(p->data, known[i].start, 4) == 0)
            return gem_fail(err, GEM_E_FORMAT, "%s: no GGUF file: it starts with '%.4s' (%s)",
                            p->label, known[i].start, known[i].what);
    return gem_fail(err, GEM_E_FORMAT, "%s: no GGUF file: it starts with '%s', not 'GGUF'",
                    p->label, gem_gguf_shown((const char *)p->data, 4, buf));
}

static gem_status parse_header(gem_gguf_part *p, gem_gguf_cursor *c, uint64_t *n_tensors,
                               uint64_t *n_kv, gem_error *err)
{
    if (p->size >= 4 && memcmp(p->data, "GGUF", 4) != 0) return bad_magic(p, err);
    if (p->size < GEM_GGUF_HEADER)
        return gem_fail(err, GEM_E_FORMAT, "%s: the file has %zu bytes, a GGUF header needs %d",
                        p->label, p->size, GEM_GGUF_HEADER);
    c->pos = 4;
    gem_gguf_take(c, &p->version, 4);
    gem_gguf_take(c, n_tensors, 8);
    gem_gguf_take(c, n_kv, 8);
    uint32_t v = p->version;
    if (v != 0 && (v & 0xFFFFu) == 0)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: version reads as %" PRIu32
                        ": a big-endian GGUF file; only little-endian files can be read",
                        p->label, v);
    if (v == 0 || v > 0xFFFF)
        return gem_fail(err, GEM_E_FORMAT, "%s: version is %" PRIu32 "; expected 2 or 3", p->label,
                        v);
    if (v != 2 && v != 3)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: GGUF version %" PRIu32 " is not supported, only 2 and 3", p->label, v);
    if (*n_kv > gem_gguf_left(c) / GEM_GGUF_MIN_KV)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: the header counts %" PRIu64 " keys, but %zu bytes hold at most %zu",
                        p->label, *n_kv, gem_gguf_left(c), gem_gguf_left(c) / GEM_GGUF_MIN_KV);
    if (*n_tensors > gem_gguf_left(c) / GEM_GGUF_MIN_TENSOR)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: the header counts %" PRIu64 " tensors, but %zu bytes hold at most %zu",
                        p->label, *n_tensors, gem_gguf_left(c),
                        gem_gguf_left(c) / GEM_GGUF_MIN_TENSOR);
    return GEM_OK;
}

gem_status gem_gguf_parse_part(gem_gguf *g, gem_gguf_part *p, gem_error *err)
{
    gem_status st;
    uint64_t n_tensors = 0, n_kv = 0, alignment;
    gem_gguf_cursor c = {.data = p->data, .size = p->size, .pos = 0};
    if ((st = parse_header(p, &c, &n_tensors, &n_kv, err)) != GEM_OK) return st;
    for (uint64_t i = 0; i < n_kv; i++)
        if ((st = gem_gguf_parse_kv(p, &c, i, err)) != GEM_OK) return st;
    if ((st = gem_gguf_alignment(p, &alignment, err)) != GEM_OK) return st;
    return gem_gguf_parse_tensors(g, p, &c, n_tensors, alignment, err);
}
