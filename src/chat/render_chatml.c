/* render_chatml.c - ChatML turns, with tools in the Hermes form (Qwen2.5): declarations as JSON
 * lines in the system turn, calls as JSON between <tool_call> tags, results in user turns. */
#include "chat/chat.h"
#include "chat/text.h"

static const char *const markers[] = {
    "<|im_start|>",    "<|im_end|>",       "<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>", NULL};

static void put(gem_chat_job *j, const char *text)
{
    gem_put_template(j->p, markers, text);
}

static void put_tools(gem_chat_job *j)
{
    put(j, "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
           "You are provided with function signatures within <tools></tools> XML tags:\n<tools>");
    for (const gem_json *t = j->c->tools->first; t; t = t->next) {
        gem_put_words(j->p, "\n");
        gem_json_dumps(&j->p->text, t);
    }
    put(j, "\n</tools>\n\nFor each function call, return a json object with function name and "
           "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
           "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
}

static void put_text(gem_chat_job *j, const gem_chat_message *m)
{
    gem_put_str(j->p, gem_message_text(m, &j->scratch));
}

static void put_first_system(gem_chat_job *j)
{
    const gem_chat_message *first = &j->c->message[0];
    bool own = first->role == GEM_ROLE_SYSTEM;
    if (!own && !j->c->tools && !j->f->system.len) return;
    put(j, "<|im_start|>system\n");
    if (own)
        put_text(j, first);
    else
        gem_put_str(j->p, j->f->system);
    if (j->c->tools) put_tools(j);
    put(j, "<|im_end|>\n");
}

static void put_call(gem_chat_job *j, const gem_chat_call *call)
{
    put(j, "\n<tool_call>\n");
    gem_put_words(j->p, "{\"name\": \"");
    gem_put_str(j->p, call->name);
    gem_put_words(j->p, "\", \"arguments\": ");
    if (call->arguments)
        gem_json_dumps(&j->p->text, call->arguments);
    else
        gem_put_str(j->p, call->raw);
    gem_put_words(j->p, "}");
    put(j, "\n</tool_call>");
}

static void put_answer(gem_chat_job *j, const gem_chat_message *m)
{
    put(j, "<|im_start|>assistant");
    if (m->replay) {
        gem_put_words(j->p, "\n");
        gem_put_tokens(j->p, m->replay, m->n_replay, m->replay_text.data, m->replay_text.len);
        put(j, "<|im_end|>\n");
        return;
    }
    size_t before = j->p->text.len;
    gem_put_words(j->p, "\n");
    put_text(j, m);
    if (m->n_calls && j->p->text.len == before + 1) j->p->text.len = before;
    for (size_t k = 0; k < m->n_calls; k++)
        put_call(j, &m->call[k]);
    put(j, "<|im_end|>\n");
}

/* Results in a row share one user turn. */
static void put_result(gem_chat_job *j, size_t i)
{
    const gem_conversation *c = j->c;
    bool first = i == 0 || c->message[i - 1].role != GEM_ROLE_TOOL;
    bool last = i + 1 == c->n_messages || c->message[i + 1].role != GEM_ROLE_TOOL;
    if (first) put(j, "<|im_start|>user");
    put(j, "\n<tool_response>\n");
    if (c->message[i].value)
        gem_json_dumps(&j->p->text, c->message[i].value);
    else
        put_text(j, &c->message[i]);
    put(j, "\n</tool_response>");
    if (last) put(j, "<|im_end|>\n");
}

gem_status gem_render_chatml(gem_chat_job *j, gem_error *err)
{
    const gem_conversation *c = j->c;
    (void)err;
    put_first_system(j);
    for (size_t i = c->message[0].role == GEM_ROLE_SYSTEM; i < c->n_messages; i++) {
        const gem_chat_message *m = &c->message[i];
        if (m->role == GEM_ROLE_TOOL) {
            put_result(j, i);
        } else if (m->role == GEM_ROLE_ASSISTANT && j->s->resume && i + 1 == c->n_messages) {
            put(j, "<|im_start|>assistant\n");
            put_text(j, m);
        } else if (m->role == GEM_ROLE_ASSISTANT) {
            put_answer(j, m);
        } else {
            put(j, m->role == GEM_ROLE_USER ? "<|im_start|>user\n" : "<|im_start|>system\n");
            put_text(j, m);
            put(j, "<|im_end|>\n");
        }
    }
    if (j->s->generation) put(j, "<|im_start|>assistant\n");
    return GEM_OK;
}
