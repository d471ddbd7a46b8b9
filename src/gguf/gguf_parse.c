/* gguf_parse.c - one part of a GGUF file: header, keys, tensor entries, and where the data lies.
 * Every number is compared with what is left of the file before it is used or allocated from, and
 * no loop or recursion depends on a nesting that the file chooses. Format: docs/formats.md. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cursor {
    const uint8_t *data;
    size_t size, pos; /* pos <= size */
} cursor;

static size_t left(const cursor *c)
{
    return c->size - c->pos;
}

static bool take(cursor *c, void *out, size_t n)
{
    if (n > left(c)) return false;
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

/* Room for one more element of a growing array; the array is unchanged on failure. */
static bool grow(void **array, size_t *cap, size_t n, size_t elem_bytes)
{
    size_t want, bytes;
    if (n < *cap) return true;
    if (!gem_mul_ok(*cap ? *cap : 8, 2, &want) || !gem_mul_ok(want, elem_bytes, &bytes))
        return false;
    void *p = realloc(*array, bytes);
    if (!p) return false;
    *array = p;
    *cap = want;
    return true;
}

static gem_status no_memory(const gem_gguf_part *p, gem_error *err)
{
    return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its list of keys and tensors", p->label);
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

static gem_status parse_header(gem_gguf_part *p, cursor *c, uint64_t *n_tensors, uint64_t *n_kv,
                               gem_error *err)
{
    if (p->size >= 4 && memcmp(p->data, "GGUF", 4) != 0) return bad_magic(p, err);
    if (p->size < GEM_GGUF_HEADER)
        return gem_fail(err, GEM_E_FORMAT, "%s: the file has %zu bytes, a GGUF header needs %d",
                        p->label, p->size, GEM_GGUF_HEADER);
    c->pos = 4;
    take(c, &p->version, 4);
    take(c, n_tensors, 8);
    take(c, n_kv, 8);
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
    if (*n_kv > left(c) / GEM_GGUF_MIN_KV)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: the header counts %" PRIu64 " keys, but %zu bytes hold at most %zu",
                        p->label, *n_kv, left(c), left(c) / GEM_GGUF_MIN_KV);
    if (*n_tensors > left(c) / GEM_GGUF_MIN_TENSOR)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: the header counts %" PRIu64 " tensors, but %zu bytes hold at most %zu",
                        p->label, *n_tensors, left(c), left(c) / GEM_GGUF_MIN_TENSOR);
    return GEM_OK;
}

/* ---- keys ---- */

/* Read a name into an owned, NUL-terminated copy. `what` and `index` say where: "key 3". */
static gem_status take_name(const gem_gguf_part *p, cursor *c, const char *what, uint64_t index,
                            uint64_t max, char **out, gem_error *err)
{
    uint64_t len;
    if (!take(c, &len, 8))
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: %s %" PRIu64 ": the file ends at %zu bytes, before its name", p->label,
                        what, index, p->size);
    if (len > left(c))
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: %s %" PRIu64 ": its name has length %" PRIu64
                        ", but only %zu bytes are left",
                        p->label, what, index, len, left(c));
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
    if (!copy) return no_memory(p, err);
    memcpy(copy, s, (size_t)len);
    copy[len] = 0;
    c->pos += (size_t)len;
    *out = copy;
    return GEM_OK;
}

static gem_status key_cut(const gem_gguf_part *p, const char *key, gem_error *err)
{
    return gem_fail(err, GEM_E_FORMAT, "%s: key '%s': the file ends at %zu bytes, inside its value",
                    p->label, key, p->size);
}

static gem_status check_bools(const gem_gguf_part *p, const char *key, const uint8_t *v, size_t n,
                              gem_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] > 1)
            return gem_fail(err, GEM_E_FORMAT, "%s: key '%s': a bool holds %u; expected 0 or 1",
                            p->label, key, v[i]);
    return GEM_OK;
}

static gem_status parse_scalar(const gem_gguf_part *p, cursor *c, gem_kv *kv, const char *key,
                               gem_error *err)
{
    uint8_t raw[8] = {0};
    size_t n = gem_kv_kind_bytes((uint32_t)kv->kind);
    if (!take(c, raw, n)) return key_cut(p, key, err);
    int16_t i16;
    int32_t i32;
    float f32;
    switch (kv->kind) {
    case GEM_GGUF_BOOL:
        kv->v.u = raw[0];
        return check_bools(p, key, raw, 1, err);
    case GEM_GGUF_I8:
        kv->v.i = (int8_t)raw[0];
        break;
    case GEM_GGUF_I16:
        memcpy(&i16, raw, sizeof(i16));
        kv->v.i = i16;
        break;
    case GEM_GGUF_I32:
        memcpy(&i32, raw, sizeof(i32));
        kv->v.i = i32;
        break;
    case GEM_GGUF_F32:
        memcpy(&f32, raw, sizeof(f32));
        kv->v.f = (double)f32;
        break;
    case GEM_GGUF_F64:
        memcpy(&kv->v.f, raw, 8);
        break;
    case GEM_GGUF_I64:
        memcpy(&kv->v.i, raw, 8);
        break;
    default:
        memcpy(&kv->v.u, raw, 8);
        break; /* unsigned kinds: the bytes above n are zero */
    }
    return GEM_OK;
}

static gem_status parse_string(const gem_gguf_part *p, cursor *c, gem_kv *kv, const char *key,
                               gem_error *err)
{
    uint64_t len;
    if (!take(c, &len, 8)) return key_cut(p, key, err);
    if (len > left(c))
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s': the string has length %" PRIu64
                        ", but only %zu bytes are left",
                        p->label, key, len, left(c));
    kv->v.s.data = (const char *)c->data + c->pos;
    kv->v.s.len = (size_t)len;
    c->pos += (size_t)len;
    return GEM_OK;
}

/* Step over the strings of an array; large vocabularies make this the hot loop of opening a file.
 */
static gem_status walk_strings(const gem_gguf_part *p, cursor *c, uint64_t n, const char *key,
                               gem_error *err)
{
    const uint8_t *data = c->data;
    size_t pos = c->pos, size = c->size;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len;
        if (size - pos < 8)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: key '%s': the file ends at %zu bytes, before string %" PRIu64
                            " of %" PRIu64,
                            p->label, key, size, i, n);
        memcpy(&len, data + pos, 8);
        pos += 8;
        if (len > size - pos)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: key '%s': string %" PRIu64 " has length %" PRIu64
                            ", but only %zu bytes are left",
                            p->label, key, i, len, size - pos);
        pos += (size_t)len;
    }
    c->pos = pos;
    return GEM_OK;
}

static gem_status parse_array(const gem_gguf_part *p, cursor *c, gem_kv *kv, const char *key,
                              gem_error *err)
{
    uint32_t elem;
    uint64_t n;
    if (!take(c, &elem, 4) || !take(c, &n, 8)) return key_cut(p, key, err);
    if (elem == GEM_GGUF_ARRAY)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s': element type 9: arrays of arrays are not allowed", p->label,
                        key);
    size_t each = elem == GEM_GGUF_STRING ? 8 : gem_kv_kind_bytes(elem);
    if (each == 0)
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s': element type %" PRIu32 " does not exist",
                        p->label, key, elem);
    if (n > left(c) / each)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s': %" PRIu64
                        " elements of type %s do not fit into the %zu bytes left",
                        p->label, key, n, gem_kv_kind_name(elem), left(c));
    kv->elem = (gem_kv_kind)elem;
    kv->n = n;
    kv->v.array = c->data + c->pos;
    if (elem == GEM_GGUF_STRING) return walk_strings(p, c, n, key, err);
    c->pos += (size_t)n * each;
    return elem == GEM_GGUF_BOOL ? check_bools(p, key, kv->v.array, (size_t)n, err) : GEM_OK;
}

static gem_status parse_kv(gem_gguf_part *p, cursor *c, uint64_t index, gem_error *err)
{
    gem_status st;
    char *key = NULL, shown[GEM_GGUF_SHOWN];
    uint32_t kind;
    if (!grow((void **)&p->kv, &p->cap_kv, p->n_kv, sizeof(*p->kv))) return no_memory(p, err);
    if ((st = take_name(p, c, "key", index, GEM_GGUF_KEY_MAX, &key, err)) != GEM_OK) return st;
    gem_kv *kv = &p->kv[p->n_kv++];
    memset(kv, 0, sizeof(*kv));
    kv->key = key; /* owned by the part from here on */
    kv->n = 1;
    gem_gguf_shown(key, strlen(key), shown);
    if (!take(c, &kind, 4)) return key_cut(p, shown, err);
    kv->kind = (gem_kv_kind)kind;
    if (kind == GEM_GGUF_STRING) return parse_string(p, c, kv, shown, err);
    if (kind == GEM_GGUF_ARRAY) return parse_array(p, c, kv, shown, err);
    if (gem_kv_kind_bytes(kind) == 0)
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s': value type %" PRIu32 " does not exist",
                        p->label, shown, kind);
    return parse_scalar(p, c, kv, shown, err);
}

static gem_status find_alignment(const gem_gguf_part *p, uint64_t *alignment, gem_error *err)
{
    *alignment = 32; /* the format's default, for files without the key */
    for (size_t i = 0; i < p->n_kv; i++) {
        const gem_kv *kv = &p->kv[i];
        if (strcmp(kv->key, "general.alignment") != 0) continue;
        if (kv->kind != GEM_GGUF_U32)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: key 'general.alignment' has type %s; expected u32", p->label,
                            gem_kv_kind_name((uint32_t)kv->kind));
        uint64_t a = kv->v.u;
        if (a < GEM_GGUF_ALIGN_MIN || a > GEM_GGUF_ALIGN_MAX || (a & (a - 1)) != 0)
            return gem_fail(err, GEM_E_FORMAT,
                            "%s: key 'general.alignment' is %" PRIu64
                            "; expected a power of two from %d to %d",
                            p->label, a, GEM_GGUF_ALIGN_MIN, GEM_GGUF_ALIGN_MAX);
        *alignment = a;
    }
    return GEM_OK;
}

/* ---- tensors ---- */

static gem_status unknown_dtype(const gem_gguf_part *p, const char *name, uint32_t id,
                                gem_error *err)
{
    char list[128];
    size_t n = 0;
    for (const gem_dtype_info *t = gem_dtypes; t->name && n < sizeof(list); t++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n ? " " : "", t->name);
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: tensor '%s': type %" PRIu32 " is not supported, only %s", p->label, name,
                    id, list);
}

/* Bytes of the whole tensor, each product checked. */
static gem_status tensor_size(const gem_gguf_part *p, gem_tensor *t, const gem_dtype_info *info,
                              const char *name, gem_error *err)
{
    if (t->dim[0] % info->block_len != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': its rows have %" PRIu64
                        " elements, no multiple of the %" PRIu32 " of a %s block",
                        p->label, name, t->dim[0], info->block_len, info->name);
    bool ok = gem_dtype_row_bytes(info, t->dim[0], &t->row_bytes);
    t->bytes = t->row_bytes;
    for (uint32_t d = 1; ok && d < t->n_dims; d++)
        ok = t->dim[d] <= SIZE_MAX && gem_mul_ok(t->bytes, (size_t)t->dim[d], &t->bytes);
    if (ok) return GEM_OK;
    return gem_fail(err, GEM_E_FORMAT,
                    "%s: tensor '%s': its size %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                    " overflows 64 bits",
                    p->label, name, t->dim[0], t->dim[1], t->dim[2], t->dim[3]);
}

/* One entry; *offset is where its data starts, counted from the start of the data. */
static gem_status parse_tensor(gem_gguf *g, const gem_gguf_part *p, cursor *c, uint64_t index,
                               uint64_t alignment, uint64_t *offset, gem_error *err)
{
    gem_status st;
    char *owned_name = NULL, name[GEM_GGUF_SHOWN];
    uint32_t dtype;
    if (!grow((void **)&g->tensors, &g->cap_tensors, g->n_tensors, sizeof(*g->tensors)))
        return no_memory(p, err);
    if ((st = take_name(p, c, "tensor", index, GEM_GGUF_NAME_MAX, &owned_name, err)) != GEM_OK)
        return st;
    gem_tensor *t = &g->tensors[g->n_tensors++];
    memset(t, 0, sizeof(*t));
    t->name = owned_name; /* owned by g from here on */
    gem_gguf_shown(t->name, strlen(t->name), name);

    if (!take(c, &t->n_dims, 4)) goto cut;
    if (t->n_dims < 1 || t->n_dims > 4)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': it has %" PRIu32 " dimensions; expected 1 to 4", p->label,
                        name, t->n_dims);
    for (uint32_t d = 0; d < 4; d++) {
        t->dim[d] = 1;
        if (d < t->n_dims && !take(c, &t->dim[d], 8)) goto cut;
        if (t->dim[d] == 0)
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor '%s': dimension %" PRIu32 " is 0",
                            p->label, name, d);
    }
    if (!take(c, &dtype, 4) || !take(c, offset, 8)) goto cut;
    const gem_dtype_info *info = gem_dtype_get(dtype);
    if (!info) return unknown_dtype(p, name, dtype, err);
    t->dtype = info->dtype;
    if ((st = tensor_size(p, t, info, name, err)) != GEM_OK) return st;
    if (*offset % alignment != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': offset %" PRIu64
                        " is no multiple of the alignment %" PRIu64,
                        p->label, name, *offset, alignment);
    return GEM_OK;
cut:
    return gem_fail(err, GEM_E_FORMAT,
                    "%s: tensor '%s': the file ends at %zu bytes, inside its entry", p->label, name,
                    p->size);
}

static int by_data(const void *a, const void *b)
{
    const gem_tensor *x = *(const gem_tensor *const *)a, *y = *(const gem_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x < y ? -1
                 : x > y; /* equal starts in file order, so that the sentence is always the same */
}

static gem_status check_overlap(const gem_gguf *g, const gem_gguf_part *p, gem_error *err)
{
    gem_status st = GEM_OK;
    char a[GEM_GGUF_SHOWN], b[GEM_GGUF_SHOWN];
    if (p->n_tensors < 2) return GEM_OK;
    const gem_tensor **order = malloc(p->n_tensors * sizeof(*order));
    if (!order) return no_memory(p, err);
    for (size_t i = 0; i < p->n_tensors; i++)
        order[i] = &g->tensors[p->first_tensor + i];
    qsort(order, p->n_tensors, sizeof(*order), by_data);
    for (size_t i = 1; i < p->n_tensors && st == GEM_OK; i++) {
        const gem_tensor *lo = order[i - 1], *hi = order[i];
        if ((size_t)(hi->data - lo->data) >= lo->bytes) continue;
        st = gem_fail(
            err, GEM_E_FORMAT,
            "%s: tensors '%s' and '%s' overlap: %zu bytes, but the second starts %zu bytes after",
            p->label, gem_gguf_shown(lo->name, strlen(lo->name), a),
            gem_gguf_shown(hi->name, strlen(hi->name), b), lo->bytes,
            (size_t)(hi->data - lo->data));
    }
    free(order);
    return st;
}

/* A tensor whose data is not in the file: say what the whole file would need, if that can be said.
 */
static gem_status out_of_file(const gem_gguf *g, const gem_gguf_part *p, const uint64_t *offsets,
                              uint64_t start, size_t bad, gem_error *err)
{
    char name[GEM_GGUF_SHOWN];
    const gem_tensor *t = &g->tensors[p->first_tensor + bad];
    uint64_t needed = 0;
    bool known = true;
    for (size_t i = 0; i < p->n_tensors; i++) {
        uint64_t end;
        if (__builtin_add_overflow(offsets[i], (uint64_t)g->tensors[p->first_tensor + i].bytes,
                                   &end) ||
            __builtin_add_overflow(end, start, &end))
            known = false;
        else
            needed = GEM_MAX(needed, end);
    }
    gem_gguf_shown(t->name, strlen(t->name), name);
    if (!known)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': offset %" PRIu64
                        " with %zu bytes is beyond 64 bits; the file has %zu",
                        p->label, name, offsets[bad], t->bytes, p->size);
    return gem_fail(err, GEM_E_FORMAT,
                    "%s: the file is cut short or broken: its tensors need %" PRIu64
                    " bytes, it has %zu; tensor '%s' (offset %" PRIu64
                    ", %zu bytes) is not fully inside",
                    p->label, needed, p->size, name, offsets[bad], t->bytes);
}

static gem_status parse_tensors(gem_gguf *g, gem_gguf_part *p, cursor *c, uint64_t n,
                                uint64_t alignment, gem_error *err)
{
    gem_status st = GEM_OK;
    uint64_t *offsets = NULL;
    size_t cap = 0;
    p->first_tensor = g->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        if (!grow((void **)&offsets, &cap, (size_t)i, sizeof(*offsets))) {
            st = no_memory(p, err);
            goto done;
        }
        if ((st = parse_tensor(g, p, c, i, alignment, &offsets[i], err)) != GEM_OK) goto done;
        p->n_tensors++;
    }
    uint64_t start = gem_round_up(c->pos, alignment); /* both below 2^63: no overflow */
    uint64_t room = start < p->size ? p->size - start : 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        gem_tensor *t = &g->tensors[p->first_tensor + i];
        if (t->bytes > room || offsets[i] > room - t->bytes) {
            st = out_of_file(g, p, offsets, start, i, err);
            goto done;
        }
        t->data = p->data + start + offsets[i];
    }
    st = check_overlap(g, p, err);
done:
    free(offsets);
    return st;
}

gem_status gem_gguf_parse_part(gem_gguf *g, gem_gguf_part *p, gem_error *err)
{
    gem_status st;
    uint64_t n_tensors = 0, n_kv = 0, alignment;
    cursor c = {.data = p->data, .size = p->size, .pos = 0};
    if ((st = parse_header(p, &c, &n_tensors, &n_kv, err)) != GEM_OK) return st;
    for (uint64_t i = 0; i < n_kv; i++)
        if ((st = parse_kv(p, &c, i, err)) != GEM_OK) return st;
    if ((st = find_alignment(p, &alignment, err)) != GEM_OK) return st;
    return parse_tensors(g, p, &c, n_tensors, alignment, err);
}
