/* config.c - what runs, as one JSON object: model and manifest digest, backend, sizes, KV, build.
 */
#include "gem_build.h"
#include "runtime/engine.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- manifest digest ---- */

static int by_key(const void *a, const void *b)
{
    const gem_kv *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static int by_name(const void *a, const void *b)
{
    const gem_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* One line a key: key, kind, value. Floats as their exact bits in hex notation. */
static void digest_kv(gem_sha256 *h, const gem_kv *kv)
{
    char text[512];
    int n = 0;
    switch (kv->kind) {
    case GEM_GGUF_STRING:
        n = snprintf(text, sizeof(text), "%s\tstring\t%zu\t", kv->key, kv->v.s.len);
        gem_sha256_update(h, text, (size_t)GEM_MIN(n, (int)sizeof(text) - 1));
        gem_sha256_update(h, kv->v.s.data, kv->v.s.len);
        gem_sha256_update(h, "\n", 1);
        return;
    case GEM_GGUF_ARRAY:
        n = snprintf(text, sizeof(text), "%s\tarray\t%d\t%llu\n", kv->key, (int)kv->elem,
                     (unsigned long long)kv->n);
        break;
    case GEM_GGUF_F32:
    case GEM_GGUF_F64:
        n = snprintf(text, sizeof(text), "%s\tfloat\t%a\n", kv->key, kv->v.f);
        break;
    case GEM_GGUF_I8:
    case GEM_GGUF_I16:
    case GEM_GGUF_I32:
    case GEM_GGUF_I64:
        n = snprintf(text, sizeof(text), "%s\tint\t%lld\n", kv->key, (long long)kv->v.i);
        break;
    default:
        n = snprintf(text, sizeof(text), "%s\tint\t%llu\n", kv->key, (unsigned long long)kv->v.u);
        break;
    }
    gem_sha256_update(h, text, (size_t)GEM_MIN(n, (int)sizeof(text) - 1));
}

static void digest_tensor(gem_sha256 *h, const gem_tensor *t)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "%s\t%d\t%llu\t%llu\t%llu\t%llu\n", t->name, (int)t->dtype,
                     (unsigned long long)t->dim[0], (unsigned long long)t->dim[1],
                     (unsigned long long)t->dim[2], (unsigned long long)t->dim[3]);
    gem_sha256_update(h, text, (size_t)GEM_MIN(n, (int)sizeof(text) - 1));
}

gem_status gem_manifest_digest(const gem_gguf *g, char hex[65], gem_error *err)
{
    gem_status st = GEM_OK;
    size_t n_kv = gem_gguf_n_kv(g), n_tensors = gem_gguf_n_tensors(g);
    const gem_kv **kv = calloc(n_kv + 1, sizeof(*kv));
    const gem_tensor **tensor = calloc(n_tensors + 1, sizeof(*tensor));
    gem_sha256 *h = gem_sha256_new();
    if (!kv || !tensor || !h) {
        st = gem_fail(err, GEM_E_NOMEM, "no memory for the manifest digest");
        goto done;
    }
    for (size_t i = 0; i < n_kv; i++)
        kv[i] = gem_gguf_kv_at(g, i);
    for (size_t i = 0; i < n_tensors; i++)
        tensor[i] = gem_gguf_tensor_at(g, i);
    qsort(kv, n_kv, sizeof(*kv), by_key);
    qsort(tensor, n_tensors, sizeof(*tensor), by_name);
    for (size_t i = 0; i < n_kv; i++)
        digest_kv(h, kv[i]);
    for (size_t i = 0; i < n_tensors; i++)
        digest_tensor(h, tensor[i]);
done:
    if (h) gem_sha256_finish(h, hex); /* frees h */
    free(kv);
    free(tensor);
    return st;
}

/* ---- configuration ---- */

/* JSON strings are UTF-8; names and paths come from outside and may not be. */
static json_t *text_json(const char *s)
{
    gem_bytes b = {0};
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = gem_utf8_decode(s + i, n - i, &cp);
        gem_bytes_put(&b, len ? s + i : "\xEF\xBF\xBD", len ? (size_t)len : 3);
        i += len ? (size_t)len : 1;
    }
    json_t *out = b.failed ? NULL : json_stringn(b.data ? b.data : "", b.len);
    gem_bytes_free(&b);
    return out;
}

static json_t *model_json(const gem_model *m, const gem_model_info *info)
{
    char hex[65];
    if (gem_manifest_digest(m->file, hex, NULL) != GEM_OK) return NULL;
    return json_pack("{s:o, s:o, s:o, s:s, s:I, s:i, s:i, s:i, s:i, s:s}", "name",
                     text_json(info->name), "family", text_json(info->family), "path",
                     text_json(gem_gguf_path(m->file)), "format", "gguf", "file_bytes",
                     (json_int_t)info->file_bytes, "n_vocab", (int)info->n_vocab, "n_layers",
                     (int)info->n_layers, "d_model", (int)info->d_model, "n_ctx_train",
                     (int)info->n_ctx_train, "manifest_sha256", hex);
}

/* Bytes that one sequence's keys and values take in a layer when it fills the context, without the
 * rounding to pages: what a formula over the model's shape must give. */
static json_int_t layer_bytes(const gem_model *m, int layer)
{
    const gem_kv_pool *p = &m->layout.pool[m->layout.layer_pool[layer]];
    json_int_t window = m->layout.window[layer], n = (json_int_t)m->n_ctx;
    if (window > 0) n = GEM_MIN(n, window);
    return n * p->n_kv_heads * p->head_dim * (p->values_only ? 1 : 2) * (p->f16 ? 2 : 4);
}

/* Layers of one shape together, in order of first appearance; window 0: all positions are kept. */
static json_t *kv_layers_json(const gem_model *m, json_int_t *bytes)
{
    json_t *groups = json_array();
    *bytes = 0;
    for (int l = 0; l < m->plan.n_layers; l++) {
        int i = m->layout.layer_pool[l], n = 0, first = -1;
        if (i < 0) continue;
        for (int k = 0; k < m->plan.n_layers; k++) {
            if (m->layout.layer_pool[k] != i || m->layout.window[k] != m->layout.window[l])
                continue;
            if (first < 0) first = k;
            n++;
        }
        *bytes += layer_bytes(m, l);
        if (first != l) continue;
        const gem_kv_pool *p = &m->layout.pool[i];
        json_array_append_new(groups,
                              json_pack("{s:i, s:i, s:i, s:i, s:s, s:s}", "layers", n, "window",
                                        (int)m->layout.window[l], "n_kv_heads", p->n_kv_heads,
                                        "head_dim", p->head_dim, "type", p->f16 ? "f16" : "f32",
                                        "holds", p->values_only ? "values" : "keys and values"));
    }
    return groups;
}

static json_t *kv_json(const gem_model *m)
{
    static const char *const types[] = {"f32", "f16", "f16-full", "f32-values"};
    json_t *pools = json_array();
    for (int i = 0; i < m->layout.n_pools; i++) {
        const gem_kv_pool *p = &m->layout.pool[i];
        size_t bytes = gem_kv_page_bytes(p);
        int n_layers = 0, n_windowed = 0;
        for (int l = 0; l < m->plan.n_layers; l++) {
            if (m->layout.layer_pool[l] != i) continue;
            n_layers++;
            n_windowed += m->layout.window[l] > 0;
        }
        json_array_append_new(
            pools, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:I}", "type",
                             p->f16 ? "f16" : "f32", "holds",
                             p->values_only ? "values" : "keys and values", "layers", n_layers,
                             "windowed_layers", n_windowed, "n_kv_heads", p->n_kv_heads, "head_dim",
                             p->head_dim, "pages", (int)p->n_pages, "page_bytes", (json_int_t)bytes,
                             "bytes", (json_int_t)bytes * p->n_pages));
    }
    json_int_t one_context;
    json_t *layers = kv_layers_json(m, &one_context);
    return json_pack("{s:s, s:I, s:i, s:o, s:o, s:I}", "type", types[m->kv_type], "bytes",
                     (json_int_t)gem_kv_layout_bytes(&m->layout), "page_positions", GEM_PAGE,
                     "pools", pools, "layers", layers, "context_bytes", one_context);
}

/* Null without recurrent layers. */
static json_t *recurrent_json(const gem_model *m)
{
    const gem_recurrent *r = &m->plan.recurrent;
    if (r->n_layers == 0) return json_null();
    gem_backend_stats stats = {0};
    m->ops->stats(m->be, &stats);
    json_int_t bytes = (json_int_t)gem_recurrent_bytes(r);
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:i, s:i, s:I, s:I, s:i, s:I}", "type", "f32",
                     "layers", r->n_layers, "n_k_heads", r->n_k_heads, "n_v_heads", r->n_v_heads,
                     "head_dim", r->head_dim, "state_bytes", bytes, "page_positions", GEM_PAGE,
                     "states", (int)m->n_states, "bytes", bytes * m->n_states, "snapshot_bytes",
                     bytes * (m->n_states - GEM_STATE_SLOTS * m->n_sessions), "tapes",
                     m->n_sessions, "tape_bytes", (json_int_t)stats.tape_bytes);
}

static json_t *build_json(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "version", gem_version(), "commit",
                     GEM_BUILD_COMMIT, "compiler", GEM_BUILD_COMPILER, "type", GEM_BUILD_TYPE,
                     "sanitize", GEM_BUILD_SANITIZE, "system", GEM_BUILD_SYSTEM);
}

static json_t *memory_json(const gem_model_info *info)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "weights_bytes", (json_int_t)info->weights_bytes,
                     "kv_bytes", (json_int_t)info->kv_bytes, "recurrent_bytes",
                     (json_int_t)info->recurrent_bytes, "workspace_bytes",
                     (json_int_t)info->workspace_bytes, "decode_bytes",
                     (json_int_t)info->decode_bytes);
}

char *gem_model_config_json(const gem_model *m)
{
    gem_model_info info;
    gem_model_get_info(m, &info);
    json_t *root = json_pack("{s:o, s:o}", "model", model_json(m, &info), "build", build_json());
    if (!root) return NULL;
    if (m->be) {
        int bad = json_object_update_missing_new(
            root,
            json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:o, s:o, s:o, s:o}",
                      "backend", info.backend, "isa", info.isa, "threads", info.n_threads, "n_ctx",
                      (int)m->n_ctx, "n_batch", (int)m->n_batch, "n_sessions", m->n_sessions,
                      "n_logits", (int)m->n_logits, "exact", m->exact, "no_repack", m->no_repack,
                      "kv", kv_json(m), "recurrent", recurrent_json(m), "memory",
                      memory_json(&info), "backend_config", m->ops->config(m->be)));
        if (bad) {
            json_decref(root);
            return NULL;
        }
    }
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return text;
}
