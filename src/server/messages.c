/* messages.c - messages of chat requests. */
#include "server/messages.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct text_list {
    gem_message *m; /* owned; contents owned */
    size_t n;
} text_list;

static void text_list_deinit(text_list *t)
{
    for (size_t i = 0; i < t->n; i++)
        free((void *)t->m[i].content);
    free(t->m);
}

/* ---- content ---- */

static bool is_text_part(const char *type)
{
    return !strcmp(type, "text") || !strcmp(type, "input_text") || !strcmp(type, "output_text") ||
           !strcmp(type, "refusal");
}

static bool put_string(const json_t *v, gem_bytes *out)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    for (size_t i = 0; i < n; i++) {
        if (s[i])
            gem_bytes_put(out, s + i, 1);
        else
            gem_bytes_put(out, "\xEF\xBF\xBD", 3);
    }
    return true;
}

static bool put_part(const json_t *part, const char *path, gem_bytes *out, gem_fault *f)
{
    char param[100];
    if (json_is_string(part)) return put_string(part, out);
    if (!json_is_object(part))
        return gem_fault_bad(f, "invalid_type", path, "%s is %s, expected an object", path,
                             gem_json_kind(part));
    const json_t *type = gem_field(part, "type");
    if (!json_is_string(type)) {
        snprintf(param, sizeof(param), "%s.type", path);
        return gem_fault_bad(f, type ? "invalid_type" : "missing_required_parameter", param,
                             "%s is needed: a string", param);
    }
    const char *name = json_string_value(type);
    if (!is_text_part(name))
        return gem_fault_bad(f, "unsupported_content", path,
                             "%s has type \"%.40s\"; this model reads text only", path, name);
    const json_t *text = gem_field(part, strcmp(name, "refusal") ? "text" : "refusal");
    snprintf(param, sizeof(param), "%s.text", path);
    if (!json_is_string(text))
        return gem_fault_bad(f, text ? "invalid_type" : "missing_required_parameter", param,
                             "%s is needed: a string", param);
    return put_string(text, out);
}

static bool put_content(const json_t *message, size_t at, gem_bytes *out, gem_fault *f)
{
    char path[64];
    const json_t *v = gem_field(message, "content");
    gem_bytes_put(out, "", 0);
    if (!v) return true;
    if (json_is_string(v)) return put_string(v, out);
    snprintf(path, sizeof(path), "messages[%zu].content", at);
    if (!json_is_array(v))
        return gem_fault_bad(f, "invalid_type", path,
                             "%s is %s, expected a string or an array of parts", path,
                             gem_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        snprintf(path, sizeof(path), "messages[%zu].content[%zu]", at, i);
        if (!put_part(json_array_get(v, i), path, out, f)) return false;
    }
    return true;
}

/* ---- messages ---- */

static bool read_role(const json_t *message, size_t at, const char **role, gem_fault *f)
{
    static const char *const known[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    char path[64];
    const json_t *v = gem_field(message, "role");
    snprintf(path, sizeof(path), "messages[%zu].role", at);
    if (!json_is_string(v))
        return gem_fault_bad(f, v ? "invalid_type" : "missing_required_parameter", path,
                             "%s is needed: a string", path);
    *role = json_string_value(v);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (!strcmp(*role, known[i])) return true;
    return gem_fault_bad(f, "invalid_value", path,
                         "%s is \"%.32s\", expected system, developer, user, assistant or tool",
                         path, *role);
}

static bool add_message(text_list *t, const json_t *message, size_t at, gem_fault *f)
{
    const char *role = NULL;
    gem_bytes text = {0};
    if (!json_is_object(message))
        return gem_fault_bad(f, "invalid_type", "messages",
                             "messages[%zu] is %s, expected an "
                             "object",
                             at, gem_json_kind(message));
    if (!read_role(message, at, &role, f)) return false;
    if (!put_content(message, at, &text, f) || text.failed) {
        gem_bytes_free(&text);
        return f->http
                   ? false
                   : gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    }
    t->m[t->n++] = (gem_message){role, text.data};
    return true;
}

static bool get_messages(const json_t *body, json_t **out, gem_fault *f)
{
    *out = gem_field(body, "messages");
    if (!*out)
        return gem_fault_bad(f, "missing_required_parameter", "messages",
                             "messages is needed: an "
                             "array of messages");
    if (!json_is_array(*out))
        return gem_fault_bad(f, "invalid_type", "messages", "messages is %s, expected an array",
                             gem_json_kind(*out));
    if (json_array_size(*out) == 0)
        return gem_fault_bad(f, "invalid_value", "messages", "messages is empty");
    return true;
}

bool gem_messages_tokens(gem_server *s, const json_t *body, int32_t **tokens, size_t *n,
                         gem_fault *f)
{
    json_t *list;
    gem_error err;
    text_list t = {0};
    if (!get_messages(body, &list, f)) return false;
    size_t count = json_array_size(list);
    t.m = calloc(count, sizeof(*t.m));
    bool ok = t.m != NULL;
    for (size_t i = 0; ok && i < count; i++)
        ok = add_message(&t, json_array_get(list, i), i, f);
    if (ok && gem_chat_tokens(s->model, t.m, t.n, tokens, n, &err) != GEM_OK)
        ok = gem_fault_bad(f, "invalid_value", "messages", "%s", err.text);
    text_list_deinit(&t);
    return ok;
}
