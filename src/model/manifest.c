/* manifest.c - reads and checks a file by a family's tables. */
#include "model/manifest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEY_MAX = 160 }; /* namespace and key name of our own tables */

static void put_tensor(void *base, size_t at, const gem_tensor *t)
{
    memcpy((char *)base + at, &t, sizeof(t));
}

gem_status gem_manifest_read(const gem_manifest *m, gem_gguf *g, void *params, gem_error *err)
{
    gem_status st = GEM_OK;
    for (size_t i = 0; i < m->n_keys && st == GEM_OK; i++) {
        const gem_key_spec *s = &m->key[i];
        char key[KEY_MAX];
        void *out = (char *)params + s->at;
        snprintf(key, sizeof(key), "%s.%s", m->arch, s->name);
        gem_gguf_mark_kv(g, key);
        switch (s->kind) {
        case GEM_KEY_U32:
            st =
                gem_gguf_get_u32(g, key, s->required, (uint32_t)s->min, (uint32_t)s->max, out, err);
            break;
        case GEM_KEY_F32:
            st = gem_gguf_get_f32(g, key, s->required, (float)s->min, (float)s->max, out, err);
            break;
        case GEM_KEY_STR:
            st = gem_gguf_get_str(g, key, s->required, out, err);
            break;
        case GEM_KEY_SPECIAL:
            if (s->required && !gem_gguf_find(g, key))
                st = gem_fail(err, GEM_E_FORMAT, "%s: key %s is missing", gem_gguf_path(g), key);
            break;
        }
    }
    return st;
}

static gem_status check_finite(const gem_gguf *g, const gem_tensor *t, gem_error *err)
{
    const float *x = gem_vector(t);
    for (uint64_t i = 0; i < t->dim[0]; i++)
        if (!isfinite(x[i]))
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor %s: value %llu is not finite",
                            gem_gguf_path(g), t->name, (unsigned long long)i);
    return GEM_OK;
}

static gem_status bind(gem_gguf *g, const gem_tensor_spec *s, const char *name,
                       const uint64_t size[GEM_DIM_COUNT], void *base, gem_error *err)
{
    const gem_tensor *t = gem_gguf_tensor(g, name);
    if (!t) {
        if (!s->required) return GEM_OK;
        return gem_fail(err, GEM_E_FORMAT, "%s: tensor %s is missing", gem_gguf_path(g), name);
    }
    bool vector = s->dim[1] == GEM_DIM_NONE;
    uint64_t want[2] = {size[s->dim[0]], vector ? 1 : size[s->dim[1]]};
    /* writers may or may not keep trailing dims of 1, so only their product is compared */
    if (t->dim[0] != want[0] || t->dim[1] != want[1] || t->dim[2] != 1 || t->dim[3] != 1)
        return gem_fail(
            err, GEM_E_FORMAT, "%s: tensor %s is [%llu, %llu, %llu, %llu], expected [%llu, %llu]",
            gem_gguf_path(g), name, (unsigned long long)t->dim[0], (unsigned long long)t->dim[1],
            (unsigned long long)t->dim[2], (unsigned long long)t->dim[3],
            (unsigned long long)want[0], (unsigned long long)want[1]);
    if (vector) {
        if (t->dtype != GEM_DTYPE_F32) {
            const gem_dtype_info *info = gem_dtype_get(t->dtype);
            return gem_fail(err, GEM_E_UNSUPPORTED, "%s: tensor %s is %s; vectors must be F32",
                            gem_gguf_path(g), name, info ? info->name : "of an unknown type");
        }
        gem_status st = check_finite(g, t, err);
        if (st != GEM_OK) return st;
    }
    gem_gguf_mark_tensor(g, name);
    put_tensor(base, s->at, t);
    return GEM_OK;
}

gem_status gem_manifest_bind_layer(const gem_tensor_spec *spec, size_t n, gem_gguf *g,
                                   const uint64_t size[GEM_DIM_COUNT], uint32_t layer,
                                   gem_layer_weights *out, gem_error *err)
{
    gem_status st = GEM_OK;
    for (size_t i = 0; i < n && st == GEM_OK; i++) {
        char name[KEY_MAX];
        snprintf(name, sizeof(name), "blk.%u.%s", layer, spec[i].name);
        st = bind(g, &spec[i], name, size, out, err);
    }
    return st;
}

gem_status gem_manifest_bind(const gem_manifest *m, gem_gguf *g, const uint64_t size[GEM_DIM_COUNT],
                             const uint64_t *const *layer_size, uint32_t n_layers, gem_weights *out,
                             gem_error *err)
{
    gem_status st = GEM_OK;
    memset(out, 0, sizeof(*out));
    out->layer = calloc(n_layers, sizeof(*out->layer));
    if (!out->layer) return gem_fail(err, GEM_E_NOMEM, "no memory for %u layers", n_layers);
    for (size_t i = 0; i < m->n_top && st == GEM_OK; i++)
        st = bind(g, &m->top[i], m->top[i].name, size, out, err);
    for (uint32_t l = 0; l < n_layers && st == GEM_OK; l++)
        st = gem_manifest_bind_layer(m->layer, m->n_layer, g, layer_size ? layer_size[l] : size, l,
                                     &out->layer[l], err);
    if (st != GEM_OK) gem_weights_free(out);
    return st;
}

void gem_weights_free(gem_weights *w)
{
    free(w->layer);
    memset(w, 0, sizeof(*w));
}

gem_status gem_manifest_leftovers(const gem_manifest *m, const gem_gguf *g, gem_error *err)
{
    char prefix[KEY_MAX];
    snprintf(prefix, sizeof(prefix), "%s.", m->arch);
    const gem_kv *kv = gem_gguf_first_unmarked_kv(g, prefix);
    if (kv)
        return gem_fail(err, GEM_E_FORMAT, "%s: key %s is not known to the family %s",
                        gem_gguf_path(g), kv->key, m->arch);
    const gem_tensor *t = gem_gguf_first_unmarked_tensor(g);
    if (t)
        return gem_fail(err, GEM_E_FORMAT, "%s: tensor %s is not known to the family %s",
                        gem_gguf_path(g), t->name, m->arch);
    return GEM_OK;
}

const gem_key_spec *gem_manifest_key(const gem_manifest *m, const char *key)
{
    size_t n = strlen(m->arch);
    if (strncmp(key, m->arch, n) != 0 || key[n] != '.') return NULL;
    for (size_t i = 0; i < m->n_keys; i++)
        if (strcmp(m->key[i].name, key + n + 1) == 0) return &m->key[i];
    return NULL;
}

const float *gem_vector(const gem_tensor *t)
{
    return t ? (const float *)(const void *)t->data : NULL;
}

static bool has_part(const char *name, const char *part)
{
    size_t n = strlen(part), len = strlen(name);
    if (part[0] == '^') return strncmp(name, part + 1, n - 1) == 0;
    if (part[n - 1] != '$') return strstr(name, part) != NULL;
    return len >= n - 1 && strncmp(name + len - (n - 1), part, n - 1) == 0;
}

const char *gem_manifest_foreign(const gem_gguf *g, const gem_foreign *table, size_t n,
                                 const char **why)
{
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        const char *name = gem_gguf_tensor_at(g, i)->name;
        for (size_t k = 0; k < n; k++)
            if (has_part(name, table[k].part)) {
                *why = table[k].why;
                return name;
            }
    }
    return NULL;
}
