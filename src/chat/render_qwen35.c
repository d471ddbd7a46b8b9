/* render_qwen35.c - Qwen3.5, 3.6 and 3.8: ChatML turns with thoughts between <think> tags and calls
 * in an XML-like form. The revisions differ by flags of the format (chat.h).
 * Beyond the templates: system messages anywhere move to the one system turn, one text a line. */
#include "chat/chat.h"
#include "chat/text.h"

static const char *const markers[] = {"<|im_start|>",    "<|im_end|>",       "<think>",
                                      "</think>",        "<tool_call>",      "</tool_call>",
                                      "<tool_response>", "</tool_response>", NULL};

static void put(gem_chat_job *j, const char *text)
{
    gem_put_template(j->p, markers, text);
}

static gem_str trimmed_text(gem_chat_job *j, const gem_chat_message *m)
{
    return gem_trim(gem_message_text(m, &j->scratch));
}

/* ---- system turn ---- */

static const char *effort_text(const gem_chat_job *j)
{
    if (!j->f->efforts || !j->s->thinking) return NULL;
    if (!strcmp(j->s->effort, "xhigh"))
        return "Reasoning effort is set to xhigh. Please think carefully through the task, "
               "validate key assumptions, consider plausible alternatives, and prioritize "
               "correctness, consistency, and clarity in the final answer.";
    if (!strcmp(j->s->effort, "low"))
        return "Reasoning effort is set to low. Keep your thinking brief and focused, moving "
               "directly to the conclusion without unnecessary elaboration.";
    return NULL;
}

static void put_tools(gem_chat_job *j)
{
    put(j, "# Tools\n\nYou have access to the following functions:\n\n<tools>");
    for (const gem_json *t = j->c->tools->first; t; t = t->next) {
        gem_put_words(j->p, "\n");
        gem_json_dumps(&j->p->text, t);
    }
    put(j, "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format "
           "with NO suffix:\n\n<tool_call>\n<function=example_function_name>\n"
           "<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
           "<parameter=example_parameter_2>\nThis is the value for the second parameter\n"
           "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
           "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
           "<function=...></function> block must be nested within <tool_call></tool_call> XML "
           "tags\n- Required parameters MUST be specified\n- You may provide optional reasoning "
           "for your function call in natural language BEFORE the function call, but NOT after\n"
           "- If there is no function call available, answer the question like normal with your "
           "current knowledge and do not tell the user about function calls\n</IMPORTANT>");
}

/* All system texts, trimmed, one a line, into `out`. */
static void join_system(gem_chat_job *j, gem_bytes *out, bool *any)
{
    *any = false;
    for (size_t i = 0; i < j->c->n_messages; i++) {
        if (j->c->message[i].role != GEM_ROLE_SYSTEM) continue;
        if (*any) gem_bytes_put(out, "\n", 1);
        gem_str s = trimmed_text(j, &j->c->message[i]);
        gem_bytes_put(out, s.data, s.len);
        *any = true;
    }
}

/* Effort, tools and system text, an empty line between them. */
static void put_system_turn(gem_chat_job *j)
{
    gem_bytes system = {0};
    const char *effort = effort_text(j), *gap = "";
    bool any;
    join_system(j, &system, &any);
    if (effort || j->c->tools || system.len || (any && j->f->empty_system_turn)) {
        put(j, "<|im_start|>system\n");
        if (effort) {
            gem_put_words(j->p, effort);
            gap = "\n\n";
        }
        if (j->c->tools) {
            gem_put_words(j->p, gap);
            put_tools(j);
            gap = "\n\n";
        }
        if (system.len) {
            gem_put_words(j->p, gap);
            gem_put(j->p, system.data, system.len);
        }
        put(j, "<|im_end|>\n");
    }
    j->p->failed |= system.failed;
    gem_bytes_free(&system);
}

/* ---- answers ---- */

static gem_str without_newlines(gem_str s, bool start, bool end)
{
    while (start && s.len && s.data[0] == '\n')
        s.data++, s.len--;
    while (end && s.len && s.data[s.len - 1] == '\n')
        s.len--;
    return s;
}

/* Reasoning that came as part of the text: from the last <think> before the first </think>. */
static void split_thoughts(gem_str *reasoning, gem_str *text)
{
    size_t end = gem_find(*text, 0, "</think>"), last = end;
    if (end == SIZE_MAX) return;
    *reasoning = without_newlines((gem_str){text->data, end}, false, true);
    for (size_t at; (at = gem_find(*reasoning, 0, "<think>")) != SIZE_MAX;) {
        at += strlen("<think>");
        *reasoning = (gem_str){reasoning->data + at, reasoning->len - at};
    }
    *reasoning = without_newlines(*reasoning, true, false);
    for (size_t at = end; at != SIZE_MAX; at = gem_find(*text, at + 1, "</think>"))
        last = at;
    last += strlen("</think>");
    *text = without_newlines((gem_str){text->data + last, text->len - last}, true, false);
}

static void put_argument(gem_chat_job *j, const gem_json *v)
{
    put(j, "<parameter=");
    gem_put(j->p, v->name, v->name_len);
    put(j, ">\n");
    if (v->type == GEM_JSON_STRING)
        gem_put(j->p, v->text, v->len);
    else if (j->f->json_scalars || v->type == GEM_JSON_OBJECT || v->type == GEM_JSON_ARRAY)
        gem_json_dumps(&j->p->text, v);
    else
        gem_json_str(&j->p->text, v);
    put(j, "\n</parameter>\n");
}

static void put_call(gem_chat_job *j, const gem_chat_call *call, const char *gap)
{
    gem_put_words(j->p, gap);
    put(j, "<tool_call>\n<function=");
    gem_put_str(j->p, call->name);
    put(j, ">\n");
    for (const gem_json *v = call->arguments ? call->arguments->first : NULL; v; v = v->next)
        put_argument(j, v);
    if (!call->arguments) {
        gem_put_str(j->p, call->raw);
        gem_put_words(j->p, "\n");
    }
    put(j, "</function>\n</tool_call>");
}

static void put_answer(gem_chat_job *j, const gem_chat_message *m, bool with_thoughts)
{
    gem_str reasoning = m->reasoning, text = trimmed_text(j, m);
    if (!reasoning.data && j->f->thoughts_in_text) split_thoughts(&reasoning, &text);
    put(j, "<|im_start|>assistant\n");
    if (with_thoughts) {
        put(j, "<think>\n");
        if (reasoning.data) gem_put_str(j->p, gem_trim(reasoning));
        put(j, "\n</think>\n\n");
    }
    gem_put_str(j->p, text);
    for (size_t k = 0; k < m->n_calls; k++)
        put_call(j, &m->call[k], k ? "\n" : gem_trim(text).len ? "\n\n" : "");
    put(j, "<|im_end|>\n");
}

/* ---- turns ---- */

static gem_chat_role role_near(const gem_conversation *c, size_t i, int step)
{
    for (size_t k = i + (size_t)step; k < c->n_messages; k += (size_t)step) /* below 0 wraps */
        if (c->message[k].role != GEM_ROLE_SYSTEM) return c->message[k].role;
    return GEM_ROLE_SYSTEM; /* there is none */
}

static void put_result(gem_chat_job *j, size_t i)
{
    const gem_chat_message *m = &j->c->message[i];
    gem_chat_role before = role_near(j->c, i, -1);
    if (before != GEM_ROLE_TOOL) put(j, "<|im_start|>user");
    put(j, "\n<tool_response>\n");
    if (m->value)
        gem_json_dumps(&j->p->text, m->value);
    else
        gem_put_str(j->p, trimmed_text(j, m));
    put(j, "\n</tool_response>");
    if (role_near(j->c, i, 1) != GEM_ROLE_TOOL) put(j, "<|im_end|>\n");
}

/* The last message of a user that is no tool result in disguise. */
static size_t last_query(gem_chat_job *j)
{
    for (size_t i = j->c->n_messages; i-- > 0;) {
        if (j->c->message[i].role != GEM_ROLE_USER) continue;
        gem_str s = trimmed_text(j, &j->c->message[i]);
        if (!gem_starts_with(s, "<tool_response>") || !gem_ends_with(s, "</tool_response>"))
            return i;
    }
    return SIZE_MAX;
}

/* The start of an answer that the caller has, for the model to go on with. */
static void put_begun(gem_chat_job *j, const gem_chat_message *m)
{
    gem_str text = gem_message_text(m, &j->scratch);
    put(j, "<|im_start|>assistant\n<think>\n");
    if (m->reasoning.len) gem_put_str(j->p, m->reasoning);
    if (!text.len && m->reasoning.len) {
        j->p->end = GEM_PROMPT_REASONING;
        return;
    }
    put(j, "\n</think>\n\n");
    gem_put_str(j->p, text);
}

gem_status gem_render_qwen35(gem_chat_job *j, gem_error *err)
{
    const gem_conversation *c = j->c;
    size_t query = last_query(j), n = c->n_messages - (j->s->resume ? 1 : 0);
    if (query == SIZE_MAX)
        return gem_fail(err, GEM_E_ARG, "messages: the conversation has no user message that asks");
    put_system_turn(j);
    for (size_t i = 0; i < n; i++) {
        const gem_chat_message *m = &c->message[i];
        if (m->role == GEM_ROLE_TOOL) {
            put_result(j, i);
        } else if (m->role == GEM_ROLE_ASSISTANT) {
            put_answer(j, m, i > query || (j->f->preserve_option && j->s->preserve));
        } else if (m->role == GEM_ROLE_USER) {
            put(j, "<|im_start|>user\n");
            gem_put_str(j->p, trimmed_text(j, m));
            put(j, "<|im_end|>\n");
        }
    }
    if (j->s->resume) {
        put_begun(j, &c->message[n]);
    } else if (j->s->generation) {
        put(j, "<|im_start|>assistant\n<think>\n");
        if (j->s->thinking)
            j->p->end = GEM_PROMPT_REASONING;
        else
            put(j, "\n</think>\n\n");
    }
    return GEM_OK;
}
