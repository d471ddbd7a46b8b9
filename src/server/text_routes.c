/* text_routes.c - shapes as llama.cpp has them, so that existing tools work. */
#include "server/text_routes.h"

#include "server/messages.h"

#include <stdlib.h>

static void put_piece(gem_server *s, int32_t id, gem_bytes *out)
{
    size_t len, n;
    const char *text = gem_token_bytes(s->model, id, true, &len);
    uint32_t cp;
    gem_bytes_printf(out, "{\"id\":%d,\"piece\":", id);
    for (n = 0; n < len;) {
        int k = gem_utf8_decode(text + n, len - n, &cp);
        if (!k) break;
        n += (size_t)k;
    }
    if (n == len) {
        gem_quote(out, text, len);
    } else { /* no whole characters: bytes */
        gem_bytes_printf(out, "[");
        for (size_t i = 0; i < len; i++)
            gem_bytes_printf(out, i ? ",%d" : "%d", (unsigned char)text[i]);
        gem_bytes_printf(out, "]");
    }
    gem_bytes_printf(out, "}");
}

bool gem_post_tokenize(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f)
{
    bool bos = false, special = true, pieces = false;
    int32_t *ids = NULL;
    size_t n = 0;
    gem_error err;
    const json_t *text = gem_field(body, "content");
    if (!text) {
        gem_bytes_printf(out, "{\"tokens\":[]}");
        return true;
    }
    if (!json_is_string(text))
        return gem_fault_bad(f, "invalid_type", "content", "content is %s, expected a string",
                             gem_json_kind(text));
    if (!gem_field_bool(body, "add_special", &bos, f) ||
        !gem_field_bool(body, "parse_special", &special, f) ||
        !gem_field_bool(body, "with_pieces", &pieces, f))
        return false;
    if (gem_tokenize(s->model, json_string_value(text), json_string_length(text),
                     (bos ? GEM_TOK_BOS : 0) | (special ? GEM_TOK_SPECIAL : 0), &ids, &n,
                     &err) != GEM_OK)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "%s", err.text);
    gem_bytes_printf(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) gem_bytes_printf(out, ",");
        if (pieces)
            put_piece(s, ids[i], out);
        else
            gem_bytes_printf(out, "%d", ids[i]);
    }
    gem_bytes_printf(out, "]}");
    free(ids);
    return true;
}

/* Text of tokens[n], control tokens included, whole characters. */
static bool put_text(gem_server *s, const int32_t *ids, size_t n, gem_bytes *text, gem_fault *f)
{
    gem_detokenizer *d = NULL;
    gem_error err;
    size_t len;
    const char *piece;
    if (gem_detokenizer_new(&d, s->model, true, &err) != GEM_OK)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "%s", err.text);
    for (size_t i = 0; i < n; i++) {
        piece = gem_detokenizer_push(d, ids[i], &len);
        gem_bytes_put(text, piece, len);
    }
    piece = gem_detokenizer_finish(d, &len);
    gem_bytes_put(text, piece, len);
    gem_detokenizer_free(d);
    return true;
}

bool gem_tokens_read(gem_server *s, const json_t *list, const char *param, int32_t *ids,
                     gem_fault *f)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v))
            return gem_fault_bad(f, "invalid_type", param, "%s[%zu] is %s, expected an integer",
                                 param, i, gem_json_kind(v));
        if (id < 0 || id >= s->info.n_vocab)
            return gem_fault_bad(f, "invalid_value", param,
                                 "%s[%zu] is %lld, the vocabulary has %d tokens", param, i,
                                 (long long)id, s->info.n_vocab);
        ids[i] = (int32_t)id;
    }
    return true;
}

bool gem_post_detokenize(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f)
{
    json_t *list = NULL;
    gem_bytes text = {0};
    if (!gem_field_array(body, "tokens", &list, f)) return false;
    if (!list) {
        gem_bytes_printf(out, "{\"content\":\"\"}");
        return true;
    }
    size_t n = json_array_size(list);
    int32_t *ids = calloc(n + 1, sizeof(*ids));
    bool ok = ids && gem_tokens_read(s, list, "tokens", ids, f) && put_text(s, ids, n, &text, f);
    if (ok) {
        gem_bytes_printf(out, "{\"content\":");
        gem_quote(out, text.data ? text.data : "", text.len);
        gem_bytes_printf(out, "}");
    }
    gem_bytes_free(&text);
    free(ids);
    return ok;
}

bool gem_post_apply_template(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f)
{
    gem_dialogue *d;
    size_t len;
    bool ok = gem_dialogue_read(s, body, &d, f);
    if (ok) {
        const char *text = gem_prompt_text(d->prompt, &len);
        gem_bytes_printf(out, "{\"prompt\":");
        gem_quote(out, text, len);
        gem_bytes_printf(out, "}");
    }
    gem_dialogue_free(d);
    return ok;
}

bool gem_post_input_tokens(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f)
{
    gem_dialogue *d;
    size_t n = 0;
    bool ok = gem_dialogue_read(s, body, &d, f);
    if (ok) {
        gem_prompt_tokens(d->prompt, &n);
        gem_bytes_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
    }
    gem_dialogue_free(d);
    return ok;
}
