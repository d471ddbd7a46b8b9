/* wire_responses.c - POST /v1/responses: OpenAI's items. A request is rewritten as a chat request
 * and read as one; an answer is a list of items (reasoning, message, function_call), which streams
 * open, fill and close one after the other. Nothing is stored: clients send the whole input. */
#include "server/params.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- requests ---- */

static json_t *last_answer(json_t *messages)
{
    json_t *m = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && !strcmp(role, "assistant") ? m : NULL;
}

/* The assistant's message that calls and thoughts belong to; made when the last one is not his. */
static json_t *answer_of(json_t *messages, bool calls)
{
    json_t *m = last_answer(messages);
    if (m && (calls || !json_object_get(m, "tool_calls"))) return m;
    m = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    json_array_append_new(messages, m);
    return m;
}

static bool add_call(json_t *messages, const json_t *item, const char *path, gem_fault *f)
{
    const json_t *id = gem_field(item, "call_id"), *name = gem_field(item, "name");
    const json_t *arguments = gem_field(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return gem_fault_bad(f, "invalid_value", path,
                             "%s: a function_call needs call_id, name and arguments", path);
    json_t *m = answer_of(messages, true), *calls = json_object_get(m, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments", arguments));
    return true;
}

static bool add_output(json_t *messages, const json_t *item, const char *path, gem_fault *f)
{
    const json_t *id = gem_field(item, "call_id");
    json_t *output = gem_field(item, "output");
    if (!json_is_string(id))
        return gem_fault_bad(f, "missing_required_parameter", path,
                             "%s: a function_call_output needs call_id", path);
    json_array_append_new(messages,
                          json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id,
                                    "content", output ? json_incref(output) : json_string("")));
    return true;
}

/* Texts of a reasoning item: its content, else its summary. */
static void add_reasoning(json_t *messages, const json_t *item)
{
    gem_bytes text = {0};
    const json_t *parts = gem_field(item, "content");
    if (!json_array_size(parts)) parts = gem_field(item, "summary");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *s = json_string_value(gem_field(json_array_get(parts, i), "text"));
        if (s) gem_bytes_put(&text, s, strlen(s));
    }
    if (text.len)
        json_object_set_new(answer_of(messages, false), "reasoning_content",
                            json_stringn(text.data, text.len));
    gem_bytes_free(&text);
}

static bool add_message(json_t *messages, const json_t *item, const char *path, gem_fault *f)
{
    json_t *role = gem_field(item, "role"), *content = gem_field(item, "content");
    if (!json_is_string(role))
        return gem_fault_bad(f, "missing_required_parameter", path, "%s.role is needed: a string",
                             path);
    json_t *open = last_answer(messages);
    bool answer = !strcmp(json_string_value(role), "assistant");
    if (answer && open && json_object_get(open, "reasoning_content") &&
        !*json_string_value(json_object_get(open, "content"))) {
        if (content) json_object_set(open, "content", content); /* a thought came before */
        return true;
    }
    json_t *m = json_pack("{s:O}", "role", role);
    if (content) json_object_set(m, "content", content);
    json_array_append_new(messages, m);
    return true;
}

static bool add_item(json_t *messages, const json_t *item, size_t at, gem_fault *f)
{
    char path[64];
    const char *type = json_string_value(gem_field(item, "type"));
    snprintf(path, sizeof(path), "input[%zu]", at);
    if (!json_is_object(item))
        return gem_fault_bad(f, "invalid_type", path, "%s is %s, expected an object", path,
                             gem_json_kind(item));
    if (!type || !strcmp(type, "message")) return add_message(messages, item, path, f);
    if (!strcmp(type, "function_call")) return add_call(messages, item, path, f);
    if (!strcmp(type, "function_call_output")) return add_output(messages, item, path, f);
    if (!strcmp(type, "reasoning")) {
        add_reasoning(messages, item);
        return true;
    }
    return gem_fault_bad(f, "unsupported_content", path,
                         "%s has type \"%.40s\", which is not "
                         "served",
                         path, type);
}

static bool read_input(const json_t *body, json_t *messages, gem_fault *f)
{
    const char *instructions = NULL;
    json_t *input = gem_field(body, "input");
    if (!gem_field_string(body, "instructions", &instructions, f)) return false;
    if (instructions)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return true;
    }
    if (!json_is_array(input))
        return gem_fault_bad(f, input ? "invalid_type" : "missing_required_parameter", "input",
                             "input is needed: a string or an array of items");
    for (size_t i = 0; i < json_array_size(input); i++)
        if (!add_item(messages, json_array_get(input, i), i, f)) return false;
    return true;
}

/* Functions; tools that their servers would run are passed over. */
static bool read_tools(const json_t *body, json_t *chat, gem_fault *f)
{
    json_t *list = NULL, *tools = json_array();
    json_object_set_new(chat, "tools", tools);
    if (!gem_field_array(body, "tools", &list, f)) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *t = json_array_get(list, i);
        const char *type = json_string_value(gem_field(t, "type"));
        if (!type || strcmp(type, "function")) continue;
        json_t *function =
            gem_field(t, "function") ? json_deep_copy(gem_field(t, "function")) : json_deep_copy(t);
        json_object_del(function, "type");
        json_array_append_new(tools,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return true;
}

static bool read_format(const json_t *body, json_t *chat, gem_fault *f)
{
    json_t *text = NULL, *format = NULL, *reasoning = NULL;
    if (!gem_field_object(body, "text", &text, f) ||
        !gem_field_object(body, "reasoning", &reasoning, f))
        return false;
    if (text && !gem_field_object(text, "format", &format, f)) return false;
    if (format) { /* flat here, nested there */
        const json_t *type = gem_field(format, "type");
        json_object_set_new(chat, "response_format",
                            json_pack("{s:O?, s:O}", "type", type, "json_schema", format));
    }
    if (reasoning) json_object_set(chat, "reasoning", reasoning);
    return true;
}

static json_t *to_chat(const json_t *body, gem_fault *f)
{
    static const char *const same[] = {"model",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "max_output_tokens",
                                       "stream",
                                       "seed",
                                       "tool_choice",
                                       "cache_prompt",
                                       "parallel_tool_calls",
                                       "return_progress",
                                       "timings_per_token"};
    json_t *chat = json_object(), *messages = json_array();
    json_object_set_new(chat, "messages", messages);
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (gem_field(body, same[i])) json_object_set(chat, same[i], gem_field(body, same[i]));
    bool ok =
        read_input(body, messages, f) && read_tools(body, chat, f) && read_format(body, chat, f);
    if (ok && gem_field(body, "previous_response_id"))
        ok = gem_fault_bad(f, "previous_response_not_found", "previous_response_id",
                           "responses are not stored: send the whole input again");
    if (ok) return chat;
    json_decref(chat);
    return NULL;
}

/* ---- an answer's items ---- */

typedef enum item_kind { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL } item_kind;

typedef struct items { /* wire_state */
    item_kind open;
    int sequence, index; /* of events; of the open item */
    size_t from, call;   /* where the open item's text begins; which call it is */
    char tail[28];       /* random digits that ids end in */
} items;

static gem_job *read_request(gem_server *s, const json_t *body, gem_fault *f)
{
    items *it = calloc(1, sizeof(*it));
    if (it) gem_random_hex(it->tail, 12);
    return gem_params_chat(s, &gem_wire_responses, to_chat(body, f), it, "resp_", f);
}

/* ---- items as JSON ---- */

static void put_bytes(gem_bytes *b, const gem_bytes *text, size_t from)
{
    gem_quote(b, text->data ? text->data + from : "", text->len - GEM_MIN(from, text->len));
}

static void put_item(const gem_answer *a, item_kind kind, size_t call, size_t from, bool done,
                     gem_bytes *b)
{
    const items *it = a->job->wire_state;
    const char *status = done ? "completed" : "in_progress";
    if (kind == ITEM_MESSAGE) {
        gem_bytes_printf(b,
                         "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\","
                         "\"status\":\"%s\",\"content\":[",
                         it->tail, status);
        if (done) {
            gem_bytes_printf(b, "{\"type\":\"output_text\",\"annotations\":[],\"text\":");
            put_bytes(b, &a->content, from);
            gem_bytes_printf(b, "}");
        }
        gem_bytes_printf(b, "]}");
    } else if (kind == ITEM_REASONING) {
        gem_bytes_printf(b,
                         "{\"id\":\"rs_%s\",\"type\":\"reasoning\",\"summary\":[],"
                         "\"status\":\"%s\",\"content\":[",
                         it->tail, status);
        if (done) {
            gem_bytes_printf(b, "{\"type\":\"reasoning_text\",\"text\":");
            put_bytes(b, &a->reasoning, from);
            gem_bytes_printf(b, "}");
        }
        gem_bytes_printf(b, "]}");
    } else {
        const gem_call *c = &a->call[call];
        gem_bytes_printf(b,
                         "{\"id\":\"fc_%s_%zu\",\"type\":\"function_call\",\"status\":\"%s\","
                         "\"call_id\":\"%s\",\"name\":",
                         it->tail, call, status, c->id);
        put_bytes(b, &c->name, 0);
        gem_bytes_printf(b, ",\"arguments\":");
        put_bytes(b, &c->arguments, done ? 0 : c->arguments.len);
        gem_bytes_printf(b, "}");
    }
}

static void put_usage(const gem_job *j, gem_bytes *b)
{
    size_t prompt, cached, generated;
    gem_job_counts(j, &prompt, &cached, &generated);
    gem_bytes_printf(b,
                     "{\"input_tokens\":%zu,\"input_tokens_details\":{\"cached_tokens\":%zu},"
                     "\"output_tokens\":%zu,\"output_tokens_details\":{\"reasoning_tokens\":%zu},"
                     "\"total_tokens\":%zu}",
                     prompt, cached, generated, j->answer[0].n_reasoning, prompt + generated);
}

static void put_output(const gem_answer *a, gem_bytes *b)
{
    const char *comma = "";
    gem_bytes_printf(b, "[");
    if (a->reasoning.len) {
        put_item(a, ITEM_REASONING, 0, 0, true, b);
        comma = ",";
    }
    if (a->content.len) {
        gem_bytes_printf(b, "%s", comma);
        put_item(a, ITEM_MESSAGE, 0, 0, true, b);
        comma = ",";
    }
    for (size_t i = 0; i < a->n_calls; i++) {
        gem_bytes_printf(b, "%s", comma);
        put_item(a, ITEM_CALL, i, 0, true, b);
        comma = ",";
    }
    gem_bytes_printf(b, "]");
}

static void put_response(const gem_job *j, const char *status, bool done, gem_bytes *b)
{
    const gem_answer *a = &j->answer[0];
    gem_bytes_printf(b,
                     "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,"
                     "\"status\":\"%s\",\"error\":null,\"instructions\":null,"
                     "\"metadata\":{},\"parallel_tool_calls\":%s,\"tool_choice\":\"auto\","
                     "\"tools\":[],\"temperature\":%.3g,\"top_p\":%.3g,\"store\":false,"
                     "\"previous_response_id\":null,\"model\":",
                     j->id, (long long)j->created, status, j->dialogue->parallel ? "true" : "false",
                     (double)j->p.sampler.temperature, (double)j->p.sampler.top_p);
    gem_quote_word(b, j->model);
    gem_bytes_printf(b, ",\"incomplete_details\":%s,\"output\":",
                     !strcmp(status, "incomplete") ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (done)
        put_output(a, b);
    else
        gem_bytes_printf(b, "[]");
    gem_bytes_printf(b, ",\"usage\":");
    if (done)
        put_usage(j, b);
    else
        gem_bytes_printf(b, "null");
    gem_bytes_printf(b, "}");
}

/* ---- stream ---- */

static void begin(gem_job *j, const char *type)
{
    items *it = j->wire_state;
    gem_bytes_printf(&j->scratch, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", type,
                     type, it->sequence++);
}

static void end(gem_job *j)
{
    gem_bytes_printf(&j->scratch, "}\n\n");
}

static void end_delta(gem_job *j)
{
    if (j->p.timings_per_token) {
        gem_bytes_printf(&j->scratch, ",\"timings\":");
        gem_put_timings(j, &j->scratch);
    }
    end(j);
}

static void put_id(gem_job *j)
{
    const items *it = j->wire_state;
    gem_bytes_printf(&j->scratch, ",\"output_index\":%d,\"item_id\":\"", it->index);
    if (it->open == ITEM_CALL)
        gem_bytes_printf(&j->scratch, "fc_%s_%zu\"", it->tail, it->call);
    else
        gem_bytes_printf(&j->scratch, "%s_%s\",\"content_index\":0",
                         it->open == ITEM_MESSAGE ? "msg" : "rs", it->tail);
}

static void open_responses(gem_job *j)
{
    static const char *const type[] = {"response.created", "response.in_progress"};
    for (size_t i = 0; i < ARRAY_LEN(type); i++) {
        begin(j, type[i]);
        gem_bytes_printf(&j->scratch, ",\"response\":");
        put_response(j, "in_progress", false, &j->scratch);
        end(j);
    }
}

/* Another response.in_progress, as llama.cpp has it; without return_progress comments tell it. */
static void progress_responses(gem_job *j, const gem_answer *a, size_t done)
{
    if (j->progress_sent && done <= j->last_progress) return;
    j->progress_sent = true;
    j->last_progress = done;
    begin(j, "response.in_progress");
    gem_bytes_printf(&j->scratch, ",\"response\":");
    put_response(j, "in_progress", false, &j->scratch);
    gem_put_progress(a, done, &j->scratch);
    end(j);
}

/* What closes a message's text: the text's own end, then its part's. */
static void close_text(gem_job *j, gem_answer *a)
{
    const items *it = j->wire_state;
    bool message = it->open == ITEM_MESSAGE;
    const gem_bytes *text = message ? &a->content : &a->reasoning;
    begin(j, message ? "response.output_text.done" : "response.reasoning_text.done");
    put_id(j);
    gem_bytes_printf(&j->scratch, ",\"text\":");
    put_bytes(&j->scratch, text, it->from);
    if (message) gem_bytes_printf(&j->scratch, ",\"logprobs\":[]");
    end(j);
    if (!message) return;
    begin(j, "response.content_part.done");
    put_id(j);
    gem_bytes_printf(&j->scratch,
                     ",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":");
    put_bytes(&j->scratch, text, it->from);
    gem_bytes_printf(&j->scratch, "}");
    end(j);
}

static void close_item(gem_job *j, gem_answer *a)
{
    items *it = j->wire_state;
    if (it->open == ITEM_NONE) return;
    if (it->open == ITEM_CALL) {
        begin(j, "response.function_call_arguments.done");
        put_id(j);
        gem_bytes_printf(&j->scratch, ",\"name\":");
        put_bytes(&j->scratch, &a->call[it->call].name, 0);
        gem_bytes_printf(&j->scratch, ",\"arguments\":");
        put_bytes(&j->scratch, &a->call[it->call].arguments, 0);
        end(j);
    } else {
        close_text(j, a);
    }
    begin(j, "response.output_item.done");
    gem_bytes_printf(&j->scratch, ",\"output_index\":%d,\"item\":", it->index++);
    put_item(a, it->open, it->call, it->from, true, &j->scratch);
    end(j);
    it->open = ITEM_NONE;
}

static void open_item(gem_job *j, gem_answer *a, item_kind kind, size_t call, size_t from)
{
    items *it = j->wire_state;
    if (it->open == kind && kind != ITEM_CALL) return;
    close_item(j, a);
    it->open = kind;
    it->call = call;
    it->from = from;
    begin(j, "response.output_item.added");
    gem_bytes_printf(&j->scratch, ",\"output_index\":%d,\"item\":", it->index);
    put_item(a, kind, call, from, false, &j->scratch);
    end(j);
    if (kind != ITEM_MESSAGE) return;
    begin(j, "response.content_part.added");
    put_id(j);
    gem_bytes_printf(&j->scratch,
                     ",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"\"}");
    end(j);
}

static void delta(gem_job *j, const char *type, const char *text, size_t len)
{
    begin(j, type);
    put_id(j);
    gem_bytes_printf(&j->scratch, ",\"delta\":");
    gem_quote(&j->scratch, text, len);
    end_delta(j);
}

static void text_responses(gem_job *j, gem_answer *a, const char *text, size_t len, size_t first)
{
    (void)first;
    open_item(j, a, ITEM_MESSAGE, 0, a->content.len - len);
    begin(j, "response.output_text.delta");
    put_id(j);
    gem_bytes_printf(&j->scratch, ",\"logprobs\":[],\"delta\":");
    gem_quote(&j->scratch, text, len);
    end_delta(j);
}

static void reasoning_responses(gem_job *j, gem_answer *a, const char *text, size_t len)
{
    open_item(j, a, ITEM_REASONING, 0, a->reasoning.len - len);
    delta(j, "response.reasoning_text.delta", text, len);
}

static void call_responses(gem_job *j, gem_answer *a, size_t i)
{
    open_item(j, a, ITEM_CALL, i, 0);
}

static void arguments_responses(gem_job *j, gem_answer *a, size_t i, const char *text, size_t len)
{
    (void)a;
    (void)i;
    delta(j, "response.function_call_arguments.delta", text, len);
}

static void finish_responses(gem_job *j, gem_answer *a)
{
    close_item(j, a);
}

static const char *status_of(const gem_job *j)
{
    return j->answer[0].finish == GEM_FINISH_LENGTH ? "incomplete" : "completed";
}

static void close_responses(gem_job *j)
{
    char type[40];
    snprintf(type, sizeof(type), "response.%s", status_of(j));
    begin(j, type);
    gem_bytes_printf(&j->scratch, ",\"response\":");
    put_response(j, status_of(j), true, &j->scratch);
    end_delta(j);
}

static void fail_responses(gem_job *j, const gem_fault *f)
{
    begin(j, "response.failed");
    gem_bytes_printf(&j->scratch,
                     ",\"response\":{\"id\":\"%s\",\"object\":\"response\","
                     "\"status\":\"failed\",\"error\":{\"code\":\"%s\",\"message\":",
                     j->id, f->code);
    gem_quote_word(&j->scratch, f->message);
    gem_bytes_printf(&j->scratch, "}}");
    end(j);
}

/* ---- whole ---- */

static void document_responses(gem_job *j, gem_bytes *out)
{
    put_response(j, status_of(j), true, out);
}

const gem_wire gem_wire_responses = {
    .name = "responses",
    .read = read_request,
    .open = open_responses,
    .progress = progress_responses,
    .text = text_responses,
    .reasoning = reasoning_responses,
    .call = call_responses,
    .arguments = arguments_responses,
    .finish = finish_responses,
    .close = close_responses,
    .fail = fail_responses,
    .document = document_responses,
    .free_state = free,
};
