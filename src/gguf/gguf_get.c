/* gguf_get.c - typed reads of keys for manifests: each marks its key as known and names the key,
 * the value and what was expected when they do not fit. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* Find and mark; *kv NULL when absent, which is an error only when required. */
static gem_status find(const gem_gguf *g, const char *key, bool required, const gem_kv **kv,
                       gem_error *err)
{
    *kv = gem_gguf_find(g, key);
    if (*kv)
        g->kv_marked[*kv - g->part[0].kv] = 1;
    else if (required)
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s' is missing", g->part[0].label, key);
    return GEM_OK;
}

/* "u32", "array of string" */
static const char *kind_text(const gem_kv *kv, char buf[32])
{
    if (kv->kind == GEM_GGUF_ARRAY)
        snprintf(buf, 32, "array of %s", gem_kv_kind_name((uint32_t)kv->elem));
    else
        snprintf(buf, 32, "%s", gem_kv_kind_name((uint32_t)kv->kind));
    return buf;
}

static gem_status wrong_kind(const gem_gguf *g, const gem_kv *kv, const char *expected,
                             gem_error *err)
{
    char buf[32];
    return gem_fail(err, GEM_E_FORMAT, "%s: key '%s' has type %s; expected %s", g->part[0].label,
                    kv->key, kind_text(kv, buf), expected);
}

gem_status gem_gguf_get_u32(const gem_gguf *g, const char *key, bool required, uint32_t min,
                            uint32_t max, uint32_t *out, gem_error *err)
{
    const gem_kv *kv;
    gem_status st = find(g, key, required, &kv, err);
    if (st != GEM_OK || !kv) return st;
    switch (kv->kind) {
    case GEM_GGUF_U8:
    case GEM_GGUF_U16:
    case GEM_GGUF_U32:
    case GEM_GGUF_U64:
        if (kv->v.u >= min && kv->v.u <= max) break;
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s' is %" PRIu64 "; expected %" PRIu32 " to %" PRIu32,
                        g->part[0].label, key, kv->v.u, min, max);
    case GEM_GGUF_I8:
    case GEM_GGUF_I16:
    case GEM_GGUF_I32:
    case GEM_GGUF_I64:
        if (kv->v.i >= (int64_t)min && kv->v.i <= (int64_t)max) break;
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key '%s' is %" PRId64 "; expected %" PRIu32 " to %" PRIu32,
                        g->part[0].label, key, kv->v.i, min, max);
    default:
        return wrong_kind(g, kv, "an integer", err);
    }
    *out = (uint32_t)kv->v.u; /* the value is in [0, 2^32), where both members agree */
    return GEM_OK;
}

gem_status gem_gguf_get_f32(const gem_gguf *g, const char *key, bool required, float min, float max,
                            float *out, gem_error *err)
{
    const gem_kv *kv;
    gem_status st = find(g, key, required, &kv, err);
    if (st != GEM_OK || !kv) return st;
    if (kv->kind != GEM_GGUF_F32 && kv->kind != GEM_GGUF_F64) return wrong_kind(g, kv, "f32", err);
    if (!(kv->v.f >= (double)min && kv->v.f <= (double)max)) /* also refuses NaN */
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s' is %g; expected %g to %g",
                        g->part[0].label, key, kv->v.f, (double)min, (double)max);
    *out = (float)kv->v.f;
    return GEM_OK;
}

gem_status gem_gguf_get_bool(const gem_gguf *g, const char *key, bool required, bool *out,
                             gem_error *err)
{
    const gem_kv *kv;
    gem_status st = find(g, key, required, &kv, err);
    if (st != GEM_OK || !kv) return st;
    if (kv->kind != GEM_GGUF_BOOL) return wrong_kind(g, kv, "bool", err);
    *out = kv->v.u != 0;
    return GEM_OK;
}

gem_status gem_gguf_get_str(const gem_gguf *g, const char *key, bool required, gem_str *out,
                            gem_error *err)
{
    const gem_kv *kv;
    gem_status st = find(g, key, required, &kv, err);
    if (st != GEM_OK || !kv) return st;
    if (kv->kind != GEM_GGUF_STRING) return wrong_kind(g, kv, "string", err);
    *out = kv->v.s;
    return GEM_OK;
}

gem_status gem_gguf_get_array(const gem_gguf *g, const char *key, bool required, gem_kv_kind elem,
                              const uint8_t **data, uint64_t *n, gem_error *err)
{
    const gem_kv *kv;
    char expected[32];
    gem_status st = find(g, key, required, &kv, err);
    if (st != GEM_OK || !kv) return st;
    if (kv->kind != GEM_GGUF_ARRAY || kv->elem != elem) {
        snprintf(expected, sizeof(expected), "array of %s", gem_kv_kind_name((uint32_t)elem));
        return wrong_kind(g, kv, expected, err);
    }
    *data = kv->v.array;
    *n = kv->n;
    return GEM_OK;
}

gem_str gem_kv_string_next(const uint8_t **pos)
{
    uint64_t len;
    memcpy(&len, *pos, sizeof(len));
    gem_str s = {(const char *)*pos + 8, (size_t)len};
    *pos += 8 + len;
    return s;
}
