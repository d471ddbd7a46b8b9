/* admin.c - what the server says of itself: models, props, version. */
#include "gem_build.h"
#include "server/serve.h"

#include "runtime/engine.h"

static bool ready(gem_server *s)
{
    gem_server_state st = gem_server_get_state(s);
    return st == GEM_SERVER_READY || st == GEM_SERVER_DRAINING;
}

/* Clients read the context under different names; all state what runs, not what was trained. */
json_t *gem_admin_model(gem_server *s)
{
    int n_ctx = s->opt.model.n_ctx;
    json_t *m = json_pack("{s:s, s:s, s:I, s:s, s:[s], s:i, s:i, s:{s:i}, s:{s:[s], s:[s]}}", "id",
                          s->id, "object", "model", "created", (json_int_t)s->started, "owned_by",
                          "gem", "aliases", s->id, "context_length", n_ctx, "max_model_len", n_ctx,
                          "meta", "n_ctx", n_ctx, "architecture", "input_modalities", "text",
                          "output_modalities", "text");
    if (m && ready(s)) {
        json_t *meta = json_object_get(m, "meta");
        json_object_set_new(meta, "n_ctx_train", json_integer(s->info.n_ctx_train));
        json_object_set_new(meta, "n_vocab", json_integer(s->info.n_vocab));
        json_object_set_new(meta, "n_embd", json_integer(s->info.d_model));
        json_object_set_new(meta, "size", json_integer((json_int_t)s->info.file_bytes));
        json_object_set_new(meta, "family", json_string(s->info.family));
    }
    return m;
}

json_t *gem_admin_models(gem_server *s)
{
    return json_pack("{s:s, s:[o]}", "object", "list", "data", gem_admin_model(s));
}

static const char *token_text(const gem_server *s, int32_t id, size_t *len)
{
    *len = 0;
    return id < 0 ? "" : gem_token_bytes(s->model, id, true, len);
}

json_t *gem_admin_props(gem_server *s)
{
    json_t *p = json_pack(
        "{s:{s:i}, s:i, s:s, s:s, s:{s:b, s:b}, s:s}", "default_generation_settings", "n_ctx",
        (int)s->opt.model.n_ctx, "total_slots", s->n_slots, "model_alias", s->id, "model_path",
        s->opt.model_path, "modalities", "vision", 0, "audio", 0, "build_info", s->fingerprint);
    if (!p) /* the path may be no UTF-8 */
        p = json_pack("{s:{s:i}, s:i, s:s, s:{s:b, s:b}, s:s}", "default_generation_settings",
                      "n_ctx", (int)s->opt.model.n_ctx, "total_slots", s->n_slots, "model_alias",
                      s->id, "modalities", "vision", 0, "audio", 0, "build_info", s->fingerprint);
    if (p && ready(s)) {
        size_t len;
        const char *text = token_text(s, s->info.bos, &len);
        json_object_set_new(p, "bos_token", json_stringn(text, len));
        text = token_text(s, s->info.eos, &len);
        json_object_set_new(p, "eos_token", json_stringn(text, len));
        gem_str t = gem_tokenizer_chat_template(s->model->tok);
        if (t.data && t.len <= 1 << 20)
            json_object_set_new(p, "chat_template", json_stringn(t.data, t.len));
    }
    return p;
}

json_t *gem_admin_version(gem_server *s)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", "gem", "version", gem_version(), "commit",
                     GEM_BUILD_COMMIT, "system", GEM_BUILD_SYSTEM, "model", s->id);
}
