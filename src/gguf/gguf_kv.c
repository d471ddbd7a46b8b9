/* gguf_kv.c - keys and their values. No loop or recursion depends on a nesting that the file
 * chooses: arrays of arrays are refused. Called by gguf_parse.c. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>

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

static gem_status parse_scalar(const gem_gguf_part *p, gem_gguf_cursor *c, gem_kv *kv,
                               const char *key, gem_error *err)
{
    uint8_t raw[8] = {0};
    size_t n = gem_kv_kind_bytes((uint32_t)kv->kind);
    if (!gem_gguf_take(c, raw, n)) return key_cut(p, key, err);
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

static gem_status parse_string(const gem_gguf_part *p, gem_gguf_cursor *c, gem_kv *kv,
                               const char *key, gem_error *err)
{
    uint64_t len;
    if (!gem_gguf_take(c, &len, 8)) return key_cut(p, key, err);
    if (len > gem_gguf_left(c))
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s': the string has length %" PRIu64
                        ", but only %zu bytes are left",
                        p->label, key, len, gem_gguf_left(c));
    kv->v.s.data = (const char *)c->data + c->pos;
    kv->v.s.len = (size_t)len;
    c->pos += (size_t)len;
    return GEM_OK;
}

/* Step over the strings of an array; large vocabularies make this the hot loop of opening a file.
 */
static gem_status walk_strings(const gem_gguf_part *p, gem_gguf_cursor *c, uint64_t n,
                               const char *key, gem_error *err)
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

static gem_status parse_array(const gem_gguf_part *p, gem_gguf_cursor *c, gem_kv *kv,
                              const char *key, gem_error *err)
{
    uint32_t elem;
    uint64_t n;
    if (!gem_gguf_take(c, &elem, 4) || !gem_gguf_take(c, &n, 8)) return key_cut(p, key, err);
    if (elem == GEM_GGUF_ARRAY)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s': element type 9: arrays of arrays are not allowed", p->label,
                        key);
    size_t each = elem == GEM_GGUF_STRING ? 8 : gem_kv_kind_bytes(elem);
    if (each == 0)
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s': element type %" PRIu32 " does not exist",
                        p->label, key, elem);
    if (n > gem_gguf_left(c) / each)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s': %" PRIu64
                        " elements of type %s do not fit into the %zu bytes left",
                        p->label, key, n, gem_kv_kind_name(elem), gem_gguf_left(c));
    kv->elem = (gem_kv_kind)elem;
    kv->n = n;
    kv->v.array = c->data + c->pos;
    if (elem == GEM_GGUF_STRING) return walk_strings(p, c, n, key, err);
    c->pos += (size_t)n * each;
    return elem == GEM_GGUF_BOOL ? check_bools(p, key, kv->v.array, (size_t)n, err) : GEM_OK;
}

gem_status gem_gguf_parse_kv(gem_gguf_part *p, gem_gguf_cursor *c, uint64_t index, gem_error *err)
{
    gem_status st;
    char *key = NULL, shown[GEM_GGUF_SHOWN];
    uint32_t kind;
    gem_kv *list = gem_gguf_grow(p->kv, &p->cap_kv, p->n_kv, sizeof(*list));
    if (!list) return gem_gguf_no_memory(p, err);
    p->kv = list;
    if ((st = gem_gguf_take_name(p, c, "key", index, GEM_GGUF_KEY_MAX, &key, err)) != GEM_OK)
        return st;
    gem_kv *kv = &p->kv[p->n_kv++];
    memset(kv, 0, sizeof(*kv));
    kv->key = key; /* owned by the part from here on */
    kv->n = 1;
    gem_gguf_shown(key, strlen(key), shown);
    if (!gem_gguf_take(c, &kind, 4)) return key_cut(p, shown, err);
    kv->kind = (gem_kv_kind)kind;
    if (kind == GEM_GGUF_STRING) return parse_string(p, c, kv, shown, err);
    if (kind == GEM_GGUF_ARRAY) return parse_array(p, c, kv, shown, err);
    if (gem_kv_kind_bytes(kind) == 0)
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s': value type %" PRIu32 " does not exist",
                        p->label, shown, kind);
    return parse_scalar(p, c, kv, shown, err);
}

gem_status gem_gguf_alignment(const gem_gguf_part *p, uint64_t *alignment, gem_error *err)
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
