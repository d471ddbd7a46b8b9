/* messages.c - messages of chat requests. */
#include "server/messages.h"

#include "server/hold.h"
#include "server/replay.h"

#include <stdio.h>
#include <stdlib.h>

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

static bool out_of_memory(gem_fault *f)
{
    return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
}

static bool copy_text(const json_t *message, const char *name, const char *as, size_t at,
                      json_t *out, gem_fault *f)
{
    char path[64];
    json_t *v = gem_field(message, name);
    gem_bytes text = {0};
    snprintf(path, sizeof(path), "messages[%zu].%s", at, name);
    if (!v) return true;
    if (!json_is_string(v))
        return gem_fault_bad(f, "invalid_type", path, "%s is %s, expected a string", path,
                             gem_json_kind(v));
    put_string(v, &text);
    json_object_set_new(out, as, json_stringn(text.data ? text.data : "", text.len));
    gem_bytes_free(&text);
    return true;
}

/* ---- calls of earlier answers ---- */

static bool copy_call(const json_t *call, const char *path, json_t *out, gem_fault *f)
{
    char param[100];
    const json_t *function = gem_field(call, "function");
    snprintf(param, sizeof(param), "%s.function", path);
    if (!json_is_object(function))
        return gem_fault_bad(f, function ? "invalid_type" : "missing_required_parameter", param,
                             "%s is needed: an object", param);
    const json_t *name = gem_field(function, "name");
    snprintf(param, sizeof(param), "%s.function.name", path);
    if (!json_is_string(name))
        return gem_fault_bad(f, name ? "invalid_type" : "missing_required_parameter", param,
                             "%s is needed: a string", param);
    json_t *arguments = gem_field(function, "arguments"), *id = gem_field(call, "id");
    snprintf(param, sizeof(param), "%s.function.arguments", path);
    if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
        return gem_fault_bad(f, "invalid_type", param, "%s is %s, expected a string", param,
                             gem_json_kind(arguments));
    json_t *copy = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    if (!copy) return out_of_memory(f);
    json_object_set_new(json_object_get(copy, "function"), "arguments",
                        arguments ? json_incref(arguments) : json_string("{}"));
    if (json_is_string(id)) json_object_set(copy, "id", id);
    json_array_append_new(out, copy);
    return true;
}

static bool copy_calls(const json_t *message, size_t at, json_t *out, gem_fault *f)
{
    char path[64];
    const json_t *list = gem_field(message, "tool_calls");
    snprintf(path, sizeof(path), "messages[%zu].tool_calls", at);
    if (!list) return true;
    if (!json_is_array(list))
        return gem_fault_bad(f, "invalid_type", path, "%s is %s, expected an array", path,
                             gem_json_kind(list));
    if (json_array_size(list) == 0) return true;
    json_t *calls = json_array();
    json_object_set_new(out, "tool_calls", calls);
    for (size_t i = 0; i < json_array_size(list); i++) {
        snprintf(path, sizeof(path), "messages[%zu].tool_calls[%zu]", at, i);
        if (!copy_call(json_array_get(list, i), path, calls, f)) return false;
    }
    return true;
}

/* ---- one message ---- */

static bool copy_message(const json_t *message, size_t at, json_t *list, gem_fault *f)
{
    const char *role = NULL;
    gem_bytes text = {0};
    if (!json_is_object(message))
        return gem_fault_bad(f, "invalid_type", "messages",
                             "messages[%zu] is %s, expected an object", at, gem_json_kind(message));
    if (!read_role(message, at, &role, f)) return false;
    json_t *out = json_object();
    json_array_append_new(list, out);
    json_object_set_new(out, "role", json_string(role));
    bool ok = put_content(message, at, &text, f);
    if (ok && text.failed) ok = out_of_memory(f);
    if (ok) json_object_set_new(out, "content", json_stringn(text.data, text.len));
    gem_bytes_free(&text);
    if (!ok) return false;
    if (!strcmp(role, "assistant"))
        return copy_text(message, "reasoning", "reasoning_content", at, out, f) &&
               copy_text(message, "reasoning_content", "reasoning_content", at, out, f) &&
               copy_calls(message, at, out, f);
    return copy_text(message, "tool_call_id", "tool_call_id", at, out, f) &&
           copy_text(message, "name", "name", at, out, f);
}

static bool get_messages(const json_t *body, json_t **out, gem_fault *f)
{
    *out = gem_field(body, "messages");
    if (!*out)
        return gem_fault_bad(f, "missing_required_parameter", "messages",
                             "messages is needed: an array of messages");
    if (!json_is_array(*out))
        return gem_fault_bad(f, "invalid_type", "messages", "messages is %s, expected an array",
                             gem_json_kind(*out));
    if (json_array_size(*out) == 0)
        return gem_fault_bad(f, "invalid_value", "messages", "messages is empty");
    return true;
}

static bool is_role(const json_t *list, size_t i, const char *role)
{
    return json_is_array(list) && i < json_array_size(list) &&
           !strcmp(json_string_value(json_object_get(json_array_get(list, i), "role")), role);
}

/* A last message of the assistant is one to go on with. */
static bool check_end(const json_t *list, const json_t *body, gem_chat_options *o, gem_fault *f)
{
    size_t n = json_array_size(list);
    bool go_on = false, open = true;
    char path[64];
    if (!gem_field_bool(body, "continue_final_message", &go_on, f) ||
        !gem_field_bool(body, "add_generation_prompt", &open, f))
        return false;
    if (go_on && open && gem_field(body, "add_generation_prompt"))
        return gem_fault_bad(f, "invalid_value", "continue_final_message",
                             "continue_final_message and add_generation_prompt exclude each other");
    o->no_generation_prompt = !open && !go_on;
    if (!is_role(list, n - 1, "assistant")) return true;
    snprintf(path, sizeof(path), "messages[%zu]", n - 1);
    if (n > 1 && is_role(list, n - 2, "assistant"))
        return gem_fault_bad(f, "invalid_value", path,
                             "the conversation ends with two messages of the assistant");
    if (json_object_get(json_array_get(list, n - 1), "tool_calls"))
        return gem_fault_bad(f, "invalid_value", path,
                             "the conversation ends with tool calls; their results are missing");
    o->continue_final = true;
    o->no_generation_prompt = false;
    return true;
}

/* ---- tools ---- */

static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    return n >= 1 && n <= 64 &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == n;
}

static bool check_tool(const json_t *tool, size_t i, gem_fault *f)
{
    char path[64];
    const char *type = NULL, *name = NULL;
    json_t *function = NULL;
    snprintf(path, sizeof(path), "tools[%zu]", i);
    if (!json_is_object(tool))
        return gem_fault_bad(f, "invalid_type", path, "%s is %s, expected an object", path,
                             gem_json_kind(tool));
    if (!gem_field_string(tool, "type", &type, f)) return false;
    if (!type || strcmp(type, "function"))
        return gem_fault_bad(f, "unsupported_value", path,
                             "%s.type is \"%.40s\"; only \"function\" is served", path,
                             type ? type : "");
    if (!gem_field_object(tool, "function", &function, f)) return false;
    if (function && !gem_field_string(function, "name", &name, f)) return false;
    if (!name || !name_ok(name))
        return gem_fault_bad(f, name ? "invalid_value" : "missing_required_parameter", path,
                             "%s.function.name is needed: 1 to 64 letters, digits, _, - or .",
                             path);
    const json_t *p = gem_field(function, "parameters");
    if (p && !json_is_object(p))
        return gem_fault_bad(f, "invalid_function_parameters", path,
                             "%s.function.parameters of %s is %s, expected an object", path, name,
                             gem_json_kind(p));
    return true;
}

static bool has_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!strcmp(json_string_value(json_object_get(function, "name")), name)) return true;
    }
    return false;
}

static bool choose_named(const json_t *tools, const json_t *choice, gem_dialogue *d, gem_fault *f)
{
    const json_t *function = gem_field(choice, "function");
    const json_t *name = gem_field(function ? function : choice, "name");
    if (!json_is_string(name))
        return gem_fault_bad(f, "invalid_value", "tool_choice",
                             "tool_choice.function.name is needed: a string");
    if (!has_tool(tools, json_string_value(name)))
        return gem_fault_bad(f, "invalid_value", "tool_choice",
                             "tool_choice names \"%.64s\", which is none of the tools",
                             json_string_value(name));
    d->tools = GEM_TOOLS_REQUIRED;
    d->tool_name = strdup(json_string_value(name));
    return d->tool_name ? true : out_of_memory(f);
}

static bool choose_mode(const char *mode, gem_dialogue *d, gem_fault *f)
{
    if (!strcmp(mode, "none"))
        d->tools = GEM_TOOLS_NONE;
    else if (!strcmp(mode, "auto"))
        d->tools = GEM_TOOLS_AUTO;
    else if (!strcmp(mode, "required") || !strcmp(mode, "any"))
        d->tools = GEM_TOOLS_REQUIRED;
    else
        return gem_fault_bad(f, "invalid_value", "tool_choice",
                             "tool_choice is \"%.32s\", expected none, auto or required", mode);
    return true;
}

static bool read_choice(const json_t *body, const json_t *tools, gem_dialogue *d, gem_fault *f)
{
    const json_t *choice = gem_field(body, "tool_choice");
    d->tools = tools ? GEM_TOOLS_AUTO : GEM_TOOLS_NONE;
    d->parallel = true;
    if (!gem_field_bool(body, "parallel_tool_calls", &d->parallel, f)) return false;
    if (!choice) return true;
    if (json_is_string(choice)) {
        if (!choose_mode(json_string_value(choice), d, f)) return false;
        if (tools) return true;
        if (d->tools == GEM_TOOLS_REQUIRED)
            return gem_fault_bad(f, "invalid_value", "tool_choice",
                                 "tool_choice requires a call, but no tools are declared");
        d->tools = GEM_TOOLS_NONE;
        return true;
    }
    if (!json_is_object(choice))
        return gem_fault_bad(f, "invalid_type", "tool_choice",
                             "tool_choice is %s, expected a string or an object",
                             gem_json_kind(choice));
    const json_t *type = gem_field(choice, "type");
    if (json_is_string(type) && !strcmp(json_string_value(type), "function"))
        return choose_named(tools, choice, d, f);
    return gem_fault_bad(f, "unsupported_value", "tool_choice",
                         "tool_choice.type: only \"function\" is served");
}

static bool read_tools(const json_t *body, json_t **tools, gem_dialogue *d, gem_fault *f)
{
    *tools = NULL;
    if (!gem_field_array(body, "tools", tools, f)) return false;
    if (json_array_size(*tools) == 0) *tools = NULL;
    for (size_t i = 0; i < json_array_size(*tools); i++)
        if (!check_tool(json_array_get(*tools, i), i, f)) return false;
    if (gem_field(body, "functions") || gem_field(body, "function_call"))
        return gem_fault_bad(f, "unsupported_parameter", "functions",
                             "functions and function_call are not served; use tools");
    return read_choice(body, *tools, d, f);
}

/* ---- thinking ---- */

static bool read_thinking(const json_t *body, gem_chat_options *o, gem_fault *f)
{
    static const char *const effort[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};
    json_t *kwargs = NULL, *nested = NULL;
    bool on = true;
    if (!gem_field_string(body, "reasoning_effort", &o->reasoning_effort, f) ||
        !gem_field_object(body, "chat_template_kwargs", &kwargs, f) ||
        !gem_field_object(body, "reasoning", &nested, f))
        return false;
    if (nested && !gem_field_string(nested, "effort", &o->reasoning_effort, f)) return false;
    bool known = !o->reasoning_effort;
    for (size_t i = 0; i < ARRAY_LEN(effort) && !known; i++)
        known = !strcmp(o->reasoning_effort, effort[i]);
    if (!known)
        return gem_fault_bad(f, "invalid_value", "reasoning_effort",
                             "reasoning_effort is \"%.32s\", expected none, minimal, low, medium, "
                             "high, xhigh or max",
                             o->reasoning_effort);
    if (kwargs && gem_field(kwargs, "enable_thinking")) {
        if (!gem_field_bool(kwargs, "enable_thinking", &on, f)) return false;
        o->thinking = on ? GEM_THINKING_ON : GEM_THINKING_OFF;
    }
    return true;
}

/* ---- all of it ---- */

/* For formats without tools: calls of earlier answers become the text that spells them, results
 * messages of the user. */
static void spell_calls(json_t *list)
{
    size_t i, k;
    json_t *m, *call;
    json_array_foreach(list, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        json_t *calls = json_object_get(m, "tool_calls");
        gem_bytes text = {0};
        if (!strcmp(role, "tool") || !strcmp(role, "function"))
            json_object_set_new(m, "role", json_string("user"));
        if (!calls) continue;
        gem_bytes_printf(&text, "%s", json_string_value(json_object_get(m, "content")));
        json_array_foreach(calls, k, call)
        {
            char *spelled = json_dumps(json_object_get(call, "function"), JSON_COMPACT);
            gem_bytes_printf(&text, "%s%s", text.len ? "\n" : "", spelled ? spelled : "");
            free(spelled);
        }
        json_object_set_new(m, "content", json_stringn(text.data ? text.data : "", text.len));
        json_object_del(m, "tool_calls");
        gem_bytes_free(&text);
    }
}

static bool render(gem_server *s, json_t *messages, const json_t *tools, const gem_chat_options *o,
                   gem_dialogue *d, gem_fault *f)
{
    gem_error err;
    gem_chat_info info;
    gem_chat_get_info(s->model, &info);
    if (!info.tools) spell_calls(messages);
    char *m = json_dumps(messages, JSON_COMPACT);
    char *t = tools ? json_dumps(tools, JSON_COMPACT) : NULL;
    bool ok = m && (t || !tools);
    if (!ok) out_of_memory(f);
    if (ok && tools && !info.tools && d->tools != GEM_TOOLS_NONE)
        ok = gem_fault_bad(f, "unsupported_value", "tools",
                           "the chat format of this model (%s) has no tools", info.format);
    if (!info.tools) { /* tool_choice none: nothing is to be called, so nothing is declared */
        free(t);
        t = NULL;
    }
    if (ok &&
        gem_conversation_read(&d->conversation, m, strlen(m), t, t ? strlen(t) : 0, &err) != GEM_OK)
        ok = gem_fault_bad(f, "invalid_value", "messages", "%s", err.text);
    if (ok && d->replays) gem_replay_apply(s->replay, d->conversation);
    if (ok && gem_prompt_render(&d->prompt, s->model, d->conversation, o, &err) != GEM_OK)
        ok = gem_fault_bad(f, "invalid_value", "messages", "%s", err.text);
    free(m);
    free(t);
    return ok;
}

bool gem_dialogue_read(gem_server *s, const json_t *body, gem_dialogue **out, gem_fault *f)
{
    json_t *list = NULL, *tools = NULL, *copy = json_array();
    gem_chat_options o = {0};
    gem_dialogue *d = calloc(1, sizeof(*d));
    bool ok = d && copy ? get_messages(body, &list, f) : out_of_memory(f);
    if (d) d->replays = !json_is_false(gem_field(body, "cache_prompt"));
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = copy_message(json_array_get(list, i), i, copy, f);
    ok = ok && check_end(copy, body, &o, f) && read_tools(body, &tools, d, f) &&
         read_thinking(body, &o, f) && gem_hold_rules_read(s, body, d, f);
    if (ok && (d->rules->format || d->rules->must_call)) o.thinking = GEM_THINKING_OFF;
    ok = ok && render(s, copy, tools, &o, d, f);
    json_decref(copy);
    if (!ok) {
        gem_dialogue_free(d);
        d = NULL;
    }
    *out = d;
    return ok;
}

void gem_dialogue_free(gem_dialogue *d)
{
    if (!d) return;
    gem_prompt_free(d->prompt);
    gem_conversation_free(d->conversation);
    gem_hold_rules_free(d->rules);
    free(d->tool_name);
    free(d);
}

bool gem_dialogue_tokens(const gem_dialogue *d, gem_job_prompt *p)
{
    const int32_t *ids = gem_prompt_tokens(d->prompt, &p->n);
    p->tokens = malloc((p->n + 1) * sizeof(*p->tokens));
    if (p->tokens && p->n) memcpy(p->tokens, ids, p->n * sizeof(*ids));
    return p->tokens != NULL;
}
