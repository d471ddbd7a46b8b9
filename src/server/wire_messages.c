/* wire_messages.c - POST /v1/messages: Anthropic's dialect. A request is rewritten as a chat
 * request and read as one; an answer is a list of blocks (thinking, text, tool_use), which streams
 * open and close one after the other. */
#include "server/params.h"
#include "server/text_routes.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- requests ---- */

static bool bad_type(gem_fault *f, const char *path, const json_t *v, const char *expected)
{
    return gem_fault_bad(f, v ? "invalid_type" : "missing_required_parameter", path,
                         "%s is %s, expected %s", path, v ? gem_json_kind(v) : "missing", expected);
}

static void append(gem_bytes *b, const char *text)
{
    gem_bytes_put(b, text, strlen(text));
}

/* Texts of a string or of blocks; other blocks are refused. */
static bool text_of(const json_t *v, const char *path, gem_bytes *out, gem_fault *f)
{
    append(out, "");
    if (!v) return true;
    if (json_is_string(v)) {
        append(out, json_string_value(v));
        return true;
    }
    if (!json_is_array(v)) return bad_type(f, path, v, "a string or an array of blocks");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i), *text = gem_field(block, "text");
        const char *type = json_string_value(gem_field(block, "type"));
        if (!type || strcmp(type, "text") || !json_is_string(text))
            return gem_fault_bad(f, "unsupported_content", path,
                                 "%s[%zu] has type \"%.40s\"; this model reads text only", path, i,
                                 type ? type : "");
        append(out, json_string_value(text));
    }
    return true;
}

/* Claude Code's first system block changes with every request and would cost the whole prefix. */
static bool read_system(const json_t *body, json_t *messages, gem_fault *f)
{
    const json_t *v = gem_field(body, "system");
    json_t *kept = json_is_array(v) ? json_array() : NULL;
    gem_bytes text = {0};
    if (!v) return true;
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *block = json_array_get(v, i);
        const char *s = json_string_value(gem_field(block, "text"));
        if (!s || strncmp(s, "x-anthropic-", 12)) json_array_append(kept, block);
    }
    bool ok = text_of(kept ? kept : v, "system", &text, f);
    if (ok && text.len)
        json_array_append_new(messages, json_pack("{s:s, s:s#}", "role", "system", "content",
                                                  text.data, (int)text.len));
    json_decref(kept);
    gem_bytes_free(&text);
    return ok;
}

typedef struct turn { /* one message of theirs, as several of ours */
    gem_bytes text, thought;
    json_t *calls, *results; /* owned */
} turn;

static void turn_deinit(turn *t)
{
    gem_bytes_free(&t->text);
    gem_bytes_free(&t->thought);
    json_decref(t->calls);
    json_decref(t->results);
}

static bool add_use(turn *t, const json_t *block, const char *path, gem_fault *f)
{
    const json_t *id = gem_field(block, "id"), *name = gem_field(block, "name");
    json_t *input = gem_field(block, "input");
    if (!json_is_string(id) || !json_is_string(name) || (input && !json_is_object(input)))
        return gem_fault_bad(f, "invalid_value", path,
                             "%s: a tool_use needs id, name and input, an object", path);
    json_array_append_new(t->calls, json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type",
                                              "function", "function", "name", name, "arguments",
                                              input ? json_incref(input) : json_object()));
    return true;
}

static bool add_result(turn *t, const json_t *block, const char *path, gem_fault *f)
{
    const json_t *id = gem_field(block, "tool_use_id");
    gem_bytes text = {0};
    if (!json_is_string(id))
        return gem_fault_bad(f, "missing_required_parameter", path,
                             "%s: a tool_result needs tool_use_id", path);
    bool ok = text_of(gem_field(block, "content"), path, &text, f);
    if (ok)
        json_array_append_new(t->results,
                              json_pack("{s:s, s:O, s:s#}", "role", "tool", "tool_call_id", id,
                                        "content", text.data, (int)text.len));
    gem_bytes_free(&text);
    return ok;
}

static bool add_block(turn *t, const json_t *block, const char *path, gem_fault *f)
{
    const char *type = json_string_value(gem_field(block, "type"));
    const json_t *text = gem_field(block, "text"), *thought = gem_field(block, "thinking");
    if (!type) return bad_type(f, path, gem_field(block, "type"), "a block with a type");
    if (!strcmp(type, "text") && json_is_string(text)) {
        append(&t->text, json_string_value(text));
        return true;
    }
    if (!strcmp(type, "thinking")) {
        if (json_is_string(thought)) append(&t->thought, json_string_value(thought));
        return true;
    }
    if (!strcmp(type, "redacted_thinking")) return true;
    if (!strcmp(type, "tool_use")) return add_use(t, block, path, f);
    if (!strcmp(type, "tool_result")) return add_result(t, block, path, f);
    return gem_fault_bad(f, "unsupported_content", path,
                         "%s has type \"%.40s\"; this model reads text only", path, type);
}

static bool read_blocks(turn *t, const json_t *content, size_t at, gem_fault *f)
{
    char path[64];
    snprintf(path, sizeof(path), "messages[%zu].content", at);
    if (json_is_string(content)) {
        append(&t->text, json_string_value(content));
        return true;
    }
    if (!json_is_array(content))
        return bad_type(f, path, content, "a string or an array of blocks");
    for (size_t i = 0; i < json_array_size(content); i++) {
        snprintf(path, sizeof(path), "messages[%zu].content[%zu]", at, i);
        if (!add_block(t, json_array_get(content, i), path, f)) return false;
    }
    return true;
}

static void put_turn(const turn *t, const char *role, json_t *out)
{
    bool answers = !strcmp(role, "assistant");
    json_array_extend(out, t->results);
    if (!answers && !t->text.len && json_array_size(t->results)) return;
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", t->text.len ? t->text.data : "");
    if (!m) return;
    if (answers && t->thought.len)
        json_object_set_new(m, "reasoning_content", json_string(t->thought.data));
    if (answers && json_array_size(t->calls)) json_object_set(m, "tool_calls", t->calls);
    json_array_append_new(out, m);
}

static bool read_messages(const json_t *body, json_t *out, gem_fault *f)
{
    char path[64];
    const json_t *list = gem_field(body, "messages");
    if (!json_is_array(list)) return bad_type(f, "messages", list, "an array of messages");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        const char *role = json_string_value(gem_field(m, "role"));
        snprintf(path, sizeof(path), "messages[%zu].role", i);
        if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")))
            return gem_fault_bad(f, "invalid_value", path, "%s must be user or assistant", path);
        turn t = {.calls = json_array(), .results = json_array()};
        bool ok = read_blocks(&t, gem_field(m, "content"), i, f);
        if (ok) put_turn(&t, role, out);
        turn_deinit(&t);
        if (!ok) return false;
    }
    return true;
}

static bool read_tools(const json_t *body, json_t *chat, gem_fault *f)
{
    json_t *list = NULL, *tools = json_array();
    json_object_set_new(chat, "tools", tools);
    if (!gem_field_array(body, "tools", &list, f)) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *t = json_array_get(list, i);
        json_t *name = gem_field(t, "name"), *schema = gem_field(t, "input_schema");
        json_t *about = gem_field(t, "description");
        const char *type = json_string_value(gem_field(t, "type"));
        if (!schema && type && strcmp(type, "custom")) continue; /* tools of their servers */
        json_t *function = json_pack("{s:O?, s:O?}", "name", name, "parameters", schema);
        if (about) json_object_set(function, "description", about);
        json_array_append_new(tools,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return true;
}

static bool read_choice(const json_t *body, json_t *chat, gem_fault *f)
{
    json_t *choice = NULL;
    bool serial = false;
    if (!gem_field_object(body, "tool_choice", &choice, f)) return false;
    if (!choice) return true;
    const char *type = json_string_value(gem_field(choice, "type"));
    if (!gem_field_bool(choice, "disable_parallel_tool_use", &serial, f)) return false;
    if (serial) json_object_set_new(chat, "parallel_tool_calls", json_false());
    if (type && !strcmp(type, "tool"))
        json_object_set_new(chat, "tool_choice",
                            json_pack("{s:s, s:{s:O?}}", "type", "function", "function", "name",
                                      gem_field(choice, "name")));
    else if (type)
        json_object_set_new(chat, "tool_choice", json_string(type));
    return true;
}

/* A body of theirs as a body of chat; NULL with the fault. */
static json_t *to_chat(const json_t *body, gem_fault *f)
{
    static const char *const same[] = {"model", "temperature",  "top_p",
                                       "top_k", "max_tokens",   "stream",
                                       "seed",  "cache_prompt", "min_p"};
    json_t *chat = json_object(), *messages = json_array(), *thinking = NULL;
    json_object_set_new(chat, "messages", messages);
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (gem_field(body, same[i])) json_object_set(chat, same[i], gem_field(body, same[i]));
    if (gem_field(body, "stop_sequences"))
        json_object_set(chat, "stop", gem_field(body, "stop_sequences"));
    bool ok = read_system(body, messages, f) && read_messages(body, messages, f) &&
              read_tools(body, chat, f) && read_choice(body, chat, f) &&
              gem_field_object(body, "thinking", &thinking, f);
    if (ok && gem_field(body, "messages") &&
        !json_array_size(messages)) /* llama.cpp serves it, and its clients rely on that */
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", ""));
    const char *type = json_string_value(gem_field(thinking, "type"));
    if (ok && type)
        json_object_set_new(chat, "chat_template_kwargs",
                            json_pack("{s:b}", "enable_thinking", strcmp(type, "disabled") != 0));
    if (ok) return chat;
    json_decref(chat);
    return NULL;
}

/* ---- an answer's blocks ---- */

typedef enum block_kind { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_USE } block_kind;

typedef struct blocks { /* wire_state of a stream */
    block_kind open;
    int index;
} blocks;

static gem_job *read_request(gem_server *s, const json_t *body, gem_fault *f)
{
    return gem_params_chat(s, &gem_wire_messages, to_chat(body, f), calloc(1, sizeof(blocks)),
                           "msg_", f);
}

bool gem_post_count_tokens(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f)
{
    gem_dialogue *d = NULL;
    size_t n = 0;
    json_t *chat = to_chat(body, f);
    bool ok = chat && gem_dialogue_read(s, chat, &d, f);
    if (ok) {
        gem_prompt_tokens(d->prompt, &n);
        gem_bytes_printf(out, "{\"input_tokens\":%zu}", n);
    }
    gem_dialogue_free(d);
    json_decref(chat);
    return ok;
}

static const char *stop_reason(const gem_answer *a)
{
    if (a->finish == GEM_FINISH_LENGTH) return "max_tokens";
    if (a->finish == GEM_FINISH_TOOLS) return "tool_use";
    return a->stop_hit ? "stop_sequence" : "end_turn";
}

static void put_stop(const gem_answer *a, gem_bytes *b)
{
    gem_bytes_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(a));
    if (a->stop_hit)
        gem_quote_word(b, a->stop_hit);
    else
        gem_bytes_printf(b, "null");
}

static void put_usage(const gem_job *j, gem_bytes *b)
{
    size_t prompt, cached, generated;
    gem_job_counts(j, &prompt, &cached, &generated);
    gem_bytes_printf(b,
                     "{\"input_tokens\":%zu,\"cache_read_input_tokens\":%zu,"
                     "\"cache_creation_input_tokens\":0,\"output_tokens\":%zu}",
                     prompt - cached, cached, generated);
}

static void put_message_head(gem_job *j, gem_bytes *b)
{
    gem_bytes_printf(
        b, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", j->id);
    gem_quote_word(b, j->model);
}

/* ---- stream ---- */

static void begin(gem_job *j, const char *type)
{
    gem_bytes_printf(&j->scratch, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end(gem_job *j)
{
    gem_bytes_printf(&j->scratch, "}\n\n");
}

static void open_messages(gem_job *j)
{
    begin(j, "message_start");
    gem_bytes_printf(&j->scratch, ",\"message\":");
    put_message_head(j, &j->scratch);
    gem_bytes_printf(&j->scratch, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,"
                                  "\"usage\":");
    put_usage(j, &j->scratch);
    gem_bytes_printf(&j->scratch, "}");
    end(j);
}

static void progress_messages(gem_job *j, const gem_answer *a, size_t done)
{
    (void)j;
    (void)a;
    (void)done; /* comments tell it */
}

static void close_block(gem_job *j)
{
    blocks *b = j->wire_state;
    if (b->open == BLOCK_NONE) return;
    if (b->open == BLOCK_THINKING) { /* clients expect one; there is nothing to sign */
        begin(j, "content_block_delta");
        gem_bytes_printf(
            &j->scratch,
            ",\"index\":%d,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}", b->index);
        end(j);
    }
    begin(j, "content_block_stop");
    gem_bytes_printf(&j->scratch, ",\"index\":%d", b->index++);
    end(j);
    b->open = BLOCK_NONE;
}

static void open_block(gem_job *j, block_kind kind, const char *start)
{
    blocks *b = j->wire_state;
    if (b->open == kind && kind != BLOCK_USE) return;
    close_block(j);
    b->open = kind;
    begin(j, "content_block_start");
    gem_bytes_printf(&j->scratch, ",\"index\":%d,\"content_block\":%s", b->index, start);
    end(j);
}

static void delta(gem_job *j, const char *type, const char *member, const char *text, size_t len)
{
    const blocks *b = j->wire_state;
    begin(j, "content_block_delta");
    gem_bytes_printf(&j->scratch, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", b->index,
                     type, member);
    gem_quote(&j->scratch, text, len);
    gem_bytes_printf(&j->scratch, "}");
    end(j);
}

static void text_messages(gem_job *j, gem_answer *a, const char *text, size_t len, size_t first)
{
    (void)a;
    (void)first;
    open_block(j, BLOCK_TEXT, "{\"type\":\"text\",\"text\":\"\"}");
    delta(j, "text_delta", "text", text, len);
}

static void reasoning_messages(gem_job *j, gem_answer *a, const char *text, size_t len)
{
    (void)a;
    open_block(j, BLOCK_THINKING, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    delta(j, "thinking_delta", "thinking", text, len);
}

static void put_use(const gem_call *c, const char *input, gem_bytes *b)
{
    gem_bytes_printf(b, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", c->id);
    gem_quote(b, c->name.data ? c->name.data : "", c->name.len);
    gem_bytes_printf(b, ",\"input\":%s}", input);
}

static void call_messages(gem_job *j, gem_answer *a, size_t i)
{
    gem_bytes start = {0};
    put_use(&a->call[i], "{}", &start);
    open_block(j, BLOCK_USE, start.data ? start.data : "{}");
    gem_bytes_free(&start);
}

static void arguments_messages(gem_job *j, gem_answer *a, size_t i, const char *text, size_t len)
{
    (void)a;
    (void)i;
    delta(j, "input_json_delta", "partial_json", text, len);
}

static void finish_messages(gem_job *j, gem_answer *a)
{
    close_block(j);
    begin(j, "message_delta");
    gem_bytes_printf(&j->scratch, ",\"delta\":{");
    put_stop(a, &j->scratch);
    gem_bytes_printf(&j->scratch, "},\"usage\":");
    put_usage(j, &j->scratch);
    end(j);
}

static void close_messages(gem_job *j)
{
    begin(j, "message_stop");
    end(j);
}

static const char *error_type(const gem_fault *f)
{
    switch (f->http) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 500:
        return "api_error";
    case 503:
        return "overloaded_error";
    default:
        return "invalid_request_error";
    }
}

static void put_error(const gem_fault *f, gem_bytes *b)
{
    gem_bytes_printf(b,
                     "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(f));
    gem_quote_word(b, f->message);
    gem_bytes_printf(b, "}}");
}

static void fail_messages(gem_job *j, const gem_fault *f)
{
    gem_bytes_printf(&j->scratch, "event: error\ndata: ");
    put_error(f, &j->scratch);
    gem_bytes_printf(&j->scratch, "\n\n");
}

/* ---- whole ---- */

static void document_messages(gem_job *j, gem_bytes *out)
{
    const gem_answer *a = &j->answer[0];
    const char *comma = "";
    put_message_head(j, out);
    gem_bytes_printf(out, ",\"content\":[");
    if (a->reasoning.len) {
        gem_bytes_printf(out, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
        gem_quote(out, a->reasoning.data, a->reasoning.len);
        gem_bytes_printf(out, "}");
        comma = ",";
    }
    if (a->content.len) {
        gem_bytes_printf(out, "%s{\"type\":\"text\",\"text\":", comma);
        gem_quote(out, a->content.data, a->content.len);
        gem_bytes_printf(out, "}");
        comma = ",";
    }
    for (size_t i = 0; i < a->n_calls; i++) {
        const gem_call *c = &a->call[i];
        gem_bytes_printf(out, "%s", comma);
        put_use(c, c->arguments.len ? c->arguments.data : "{}", out);
        comma = ",";
    }
    gem_bytes_printf(out, "],");
    put_stop(a, out);
    gem_bytes_printf(out, ",\"usage\":");
    put_usage(j, out);
    gem_bytes_printf(out, "}");
}

const gem_wire gem_wire_messages = {
    .name = "messages",
    .read = read_request,
    .open = open_messages,
    .progress = progress_messages,
    .text = text_messages,
    .reasoning = reasoning_messages,
    .call = call_messages,
    .arguments = arguments_messages,
    .finish = finish_messages,
    .close = close_messages,
    .fail = fail_messages,
    .document = document_messages,
    .error = put_error,
    .free_state = free,
};
