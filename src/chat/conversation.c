/* conversation.c - messages and tools out of JSON, or out of the C API's plain messages. Every
 * refusal names the place, as `messages[2].content[0]`. */
#include "chat/conversation.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    gem_chat_role role;
} roles[] = {{"system", GEM_ROLE_SYSTEM}, {"developer", GEM_ROLE_SYSTEM},
             {"user", GEM_ROLE_USER},     {"assistant", GEM_ROLE_ASSISTANT},
             {"tool", GEM_ROLE_TOOL},     {"function", GEM_ROLE_TOOL}};

static bool find_role(const char *name, gem_chat_role *out)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        if (strcmp(name, roles[i].name) != 0) continue;
        *out = roles[i].role;
        return true;
    }
    return false;
}

static gem_status bad_role(size_t i, const char *role, gem_error *err)
{
    return gem_fail(err, GEM_E_ARG,
                    "messages[%zu].role: \"%.32s\" is not one of system, developer, user, "
                    "assistant, tool",
                    i, role);
}

static gem_status no_memory(gem_error *err)
{
    return gem_fail(err, GEM_E_NOMEM, "chat: no memory for the conversation");
}

static gem_str str_of(const gem_json *v)
{
    return (gem_str){v->text, v->len};
}

/* null and absent are one thing. */
static const gem_json *get(const gem_json *v, const char *name)
{
    const gem_json *m = gem_json_get(v, name);
    return m && m->type == GEM_JSON_NULL ? NULL : m;
}

static gem_status get_string(const gem_json *v, const char *name, gem_str *out, const char *where,
                             gem_error *err)
{
    const gem_json *m = get(v, name);
    *out = (gem_str){NULL, 0};
    if (!m) return GEM_OK;
    if (m->type != GEM_JSON_STRING)
        return gem_fail(err, GEM_E_ARG, "%s.%s: expected a string", where, name);
    *out = str_of(m);
    return GEM_OK;
}

static gem_status read_doc(gem_conversation *c, const char *text, size_t len, const char *where,
                           const gem_json **root, gem_json_fault *fault, gem_error *err)
{
    gem_json_error e;
    *root = NULL;
    gem_json_doc **grown = realloc(c->doc, (c->n_docs + 1) * sizeof(*grown));
    if (!grown) return no_memory(err);
    c->doc = grown;
    gem_json_doc *doc = gem_json_read(text, len, GEM_CHAT_MAX_DEPTH, &e);
    if (!doc) return no_memory(err);
    if (e.fault != GEM_JSON_OK && fault) {
        *fault = e.fault;
        gem_json_free(doc);
        return GEM_OK;
    }
    c->doc[c->n_docs++] = doc;
    if (e.fault != GEM_JSON_OK)
        return gem_fail(err, GEM_E_ARG, "%s: line %zu, column %zu: %s", where, e.line, e.column,
                        e.text);
    *root = gem_json_root(doc);
    return GEM_OK;
}

/* ---- content ---- */

static bool is_text_part(const gem_json *type)
{
    static const char *const names[] = {"text", "input_text", "output_text", "refusal"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (gem_json_is(type, names[i])) return true;
    return false;
}

static gem_status read_part(gem_str *out, const gem_json *part, const char *where, size_t k,
                            gem_error *err)
{
    const gem_json *type = get(part, "type");
    if (part->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "%s.content[%zu]: expected an object", where, k);
    if (!type || type->type != GEM_JSON_STRING)
        return gem_fail(err, GEM_E_ARG, "%s.content[%zu].type: expected a string", where, k);
    if (!is_text_part(type))
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s.content[%zu]: this model reads text; it cannot read a part of type "
                        "%.32s",
                        where, k, type->text);
    const gem_json *text = get(part, gem_json_is(type, "refusal") ? "refusal" : "text");
    if (!text || text->type != GEM_JSON_STRING)
        return gem_fail(err, GEM_E_ARG, "%s.content[%zu].text: expected a string", where, k);
    *out = str_of(text);
    return GEM_OK;
}

static gem_status read_content(gem_chat_message *m, const gem_json *v, const char *where,
                               gem_error *err)
{
    const gem_json *content = get(v, "content");
    size_t n = !content                           ? 0
               : content->type == GEM_JSON_ARRAY  ? content->n
               : content->type == GEM_JSON_STRING ? 1
                                                  : 0;
    if (!content) return GEM_OK;
    if (content->type != GEM_JSON_ARRAY && content->type != GEM_JSON_STRING) {
        if (m->role != GEM_ROLE_TOOL)
            return gem_fail(err, GEM_E_ARG, "%s.content: expected a string or a list of parts",
                            where);
        m->value = content;
        return GEM_OK;
    }
    m->part = calloc(n + 1, sizeof(*m->part));
    if (!m->part) return no_memory(err);
    m->n_parts = n;
    if (content->type == GEM_JSON_STRING) {
        m->part[0] = str_of(content);
        return GEM_OK;
    }
    m->list = true;
    size_t k = 0;
    for (const gem_json *p = content->first; p; p = p->next, k++) {
        gem_status st = read_part(&m->part[k], p, where, k, err);
        if (st != GEM_OK) return st;
    }
    return GEM_OK;
}

/* ---- calls ---- */

static gem_status read_arguments(gem_conversation *c, gem_chat_call *call, const gem_json *v,
                                 const char *where, gem_error *err)
{
    static const char blanks[] = " \t\r\n";
    gem_json_fault fault = GEM_JSON_OK;
    const gem_json *root;
    if (v && v->type == GEM_JSON_OBJECT) {
        call->arguments = v;
        return GEM_OK;
    }
    if (v && v->type != GEM_JSON_STRING)
        return gem_fail(err, GEM_E_ARG, "%s.arguments: expected a string or an object", where);
    const char *text = v ? v->text : "";
    size_t len = v ? v->len : 0;
    if (strspn(text, blanks) == len) {
        text = "{}";
        len = 2;
    }
    gem_status st = read_doc(c, text, len, where, &root, &fault, err);
    if (st != GEM_OK) return st;
    if (root && root->type == GEM_JSON_OBJECT)
        call->arguments = root;
    else
        call->raw = (gem_str){text, len};
    return GEM_OK;
}

static gem_status read_call(gem_conversation *c, gem_chat_call *call, const gem_json *v,
                            const char *where, gem_error *err)
{
    const gem_json *f = get(v, "function"), *type = get(v, "type");
    if (v->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "%s: expected an object", where);
    if (type && !gem_json_is(type, "function"))
        return gem_fail(err, GEM_E_UNSUPPORTED, "%s.type: only \"function\" calls are known",
                        where);
    if (!f) f = v; /* the bare form, name and arguments without a wrapper */
    if (f->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "%s.function: expected an object", where);
    gem_status st = get_string(v, "id", &call->id, where, err);
    if (st == GEM_OK) st = get_string(f, "name", &call->name, where, err);
    if (st == GEM_OK && !call->name.len)
        st = gem_fail(err, GEM_E_ARG, "%s.function.name: missing or empty", where);
    return st == GEM_OK ? read_arguments(c, call, get(f, "arguments"), where, err) : st;
}

static gem_status read_calls(gem_conversation *c, gem_chat_message *m, const gem_json *v,
                             const char *where, gem_error *err)
{
    const gem_json *calls = get(v, "tool_calls");
    if (!calls) return GEM_OK;
    if (calls->type != GEM_JSON_ARRAY)
        return gem_fail(err, GEM_E_ARG, "%s.tool_calls: expected a list", where);
    if (calls->n && m->role != GEM_ROLE_ASSISTANT)
        return gem_fail(err, GEM_E_ARG, "%s.tool_calls: only an assistant message has calls",
                        where);
    m->call = calloc(calls->n + 1, sizeof(*m->call));
    if (!m->call) return no_memory(err);
    for (const gem_json *k = calls->first; k; k = k->next) {
        char place[96];
        snprintf(place, sizeof(place), "%s.tool_calls[%zu]", where, m->n_calls);
        gem_status st = read_call(c, &m->call[m->n_calls++], k, place, err);
        if (st != GEM_OK) return st;
    }
    return GEM_OK;
}

/* ---- messages ---- */

static gem_status read_message(gem_conversation *c, gem_chat_message *m, const gem_json *v,
                               size_t i, gem_error *err)
{
    char where[48];
    gem_str role;
    snprintf(where, sizeof(where), "messages[%zu]", i);
    if (v->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "%s: expected an object", where);
    gem_status st = get_string(v, "role", &role, where, err);
    if (st != GEM_OK) return st;
    if (!role.data) return gem_fail(err, GEM_E_ARG, "%s.role: missing", where);
    if (!find_role(role.data, &m->role)) return bad_role(i, role.data, err);
    st = read_content(m, v, where, err);
    if (st == GEM_OK) st = get_string(v, "reasoning_content", &m->reasoning, where, err);
    if (st == GEM_OK && !m->reasoning.data)
        st = get_string(v, "reasoning", &m->reasoning, where, err);
    if (st == GEM_OK) st = get_string(v, "tool_call_id", &m->call_id, where, err);
    if (st == GEM_OK) st = get_string(v, "name", &m->name, where, err);
    return st == GEM_OK ? read_calls(c, m, v, where, err) : st;
}

static gem_status read_messages(gem_conversation *c, const gem_json *list, gem_error *err)
{
    gem_status st = GEM_OK;
    if (list->type != GEM_JSON_ARRAY) return gem_fail(err, GEM_E_ARG, "messages: expected a list");
    c->message = calloc(list->n + 1, sizeof(*c->message));
    if (!c->message) return no_memory(err);
    for (const gem_json *v = list->first; v && st == GEM_OK; v = v->next) {
        size_t i = c->n_messages++;
        st = read_message(c, &c->message[i], v, i, err);
    }
    return st;
}

static gem_status check_tool(const gem_json *tool, size_t i, gem_error *err)
{
    const gem_json *f = get(tool, "function"), *type = get(tool, "type"), *name, *parameters;
    if (tool->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "tools[%zu]: expected an object", i);
    if (type && !gem_json_is(type, "function"))
        return gem_fail(err, GEM_E_UNSUPPORTED, "tools[%zu].type: only \"function\" is known", i);
    if (!f || f->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "tools[%zu].function: expected an object", i);
    name = get(f, "name");
    if (!name || name->type != GEM_JSON_STRING || !name->len)
        return gem_fail(err, GEM_E_ARG, "tools[%zu].function.name: expected a name", i);
    parameters = get(f, "parameters");
    if (parameters && parameters->type != GEM_JSON_OBJECT)
        return gem_fail(err, GEM_E_ARG, "tools[%zu].function.parameters: expected a schema object",
                        i);
    return GEM_OK;
}

static gem_status read_tools(gem_conversation *c, const gem_json *list, gem_error *err)
{
    size_t i = 0;
    if (list->type == GEM_JSON_NULL) return GEM_OK;
    if (list->type != GEM_JSON_ARRAY) return gem_fail(err, GEM_E_ARG, "tools: expected a list");
    for (const gem_json *t = list->first; t; t = t->next) {
        gem_status st = check_tool(t, i++, err);
        if (st != GEM_OK) return st;
    }
    c->tools = list->n ? list : NULL;
    c->n_tools = list->n;
    return GEM_OK;
}

gem_status gem_conversation_read(gem_conversation **out, const char *messages, size_t messages_len,
                                 const char *tools, size_t tools_len, gem_error *err)
{
    const gem_json *root;
    gem_conversation *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (!c) return no_memory(err);
    gem_status st = read_doc(c, messages, messages_len, "messages", &root, NULL, err);
    if (st == GEM_OK) st = read_messages(c, root, err);
    if (st == GEM_OK && tools) st = read_doc(c, tools, tools_len, "tools", &root, NULL, err);
    if (st == GEM_OK && tools) st = read_tools(c, root, err);
    if (st == GEM_OK) st = gem_conversation_check(c, err);
    if (st != GEM_OK) {
        gem_conversation_free(c);
        return st;
    }
    *out = c;
    return GEM_OK;
}

gem_status gem_conversation_of(gem_conversation *c, const gem_message *messages, size_t n,
                               gem_error *err)
{
    gem_status st = GEM_OK;
    memset(c, 0, sizeof(*c));
    c->message = calloc(n + 1, sizeof(*c->message));
    if (!c->message) return no_memory(err);
    for (size_t i = 0; i < n && st == GEM_OK; i++) {
        gem_chat_message *m = &c->message[c->n_messages++];
        const char *role = messages[i].role ? messages[i].role : "";
        m->part = calloc(1, sizeof(*m->part));
        if (!m->part)
            st = no_memory(err);
        else if (!find_role(role, &m->role) || m->role == GEM_ROLE_TOOL)
            st = gem_fail(err, GEM_E_ARG,
                          "message %zu: role \"%.32s\" is not one of system, developer, user, "
                          "assistant",
                          i, role);
        if (st != GEM_OK) break;
        m->part[0].data = messages[i].content ? messages[i].content : "";
        m->part[0].len = strlen(m->part[0].data);
        m->n_parts = 1;
    }
    if (st == GEM_OK) st = gem_conversation_check(c, err);
    if (st != GEM_OK) gem_conversation_clear(c);
    return st;
}

gem_status gem_conversation_check(const gem_conversation *c, gem_error *err)
{
    for (size_t i = 0; i < c->n_messages; i++)
        if (c->message[i].role == GEM_ROLE_USER) return GEM_OK;
    return gem_fail(err, GEM_E_ARG, "messages: the conversation has no user message");
}

void gem_conversation_clear(gem_conversation *c)
{
    for (size_t i = 0; i < c->n_messages; i++) {
        free(c->message[i].part);
        free(c->message[i].call);
        free(c->message[i].replay);
        gem_bytes_free(&c->message[i].replay_text);
    }
    for (size_t i = 0; i < c->n_docs; i++)
        gem_json_free(c->doc[i]);
    free(c->message);
    free(c->doc);
    memset(c, 0, sizeof(*c));
}

void gem_conversation_free(gem_conversation *c)
{
    if (!c) return;
    gem_conversation_clear(c);
    free(c);
}

const gem_json *gem_conversation_tool(const gem_conversation *c, const char *name, size_t len)
{
    for (const gem_json *t = c && c->tools ? c->tools->first : NULL; t; t = t->next) {
        const gem_json *f = gem_json_get(t, "function"), *n = gem_json_get(f, "name");
        if (n->len == len && !memcmp(n->text, name, len)) return f;
    }
    return NULL;
}

gem_str gem_message_text(const gem_chat_message *m, gem_bytes *scratch)
{
    if (m->n_parts == 0) return (gem_str){"", 0};
    if (m->n_parts == 1) return m->part[0];
    scratch->len = 0;
    for (size_t i = 0; i < m->n_parts; i++)
        gem_bytes_put(scratch, m->part[i].data, m->part[i].len);
    return (gem_str){scratch->data ? scratch->data : "", scratch->len};
}

bool gem_message_replay(gem_chat_message *m, const int32_t *tokens, size_t n, const char *text,
                        size_t len)
{
    free(m->replay);
    m->replay = malloc(GEM_MAX(n, 1) * sizeof(*tokens));
    m->replay_text.len = 0;
    gem_bytes_put(&m->replay_text, text, len);
    if (m->replay && !m->replay_text.failed) {
        memcpy(m->replay, tokens, n * sizeof(*tokens));
        m->n_replay = n;
        return true;
    }
    free(m->replay);
    m->replay = NULL;
    return false;
}
