/* render_gemma4.c - Gemma 4 turns by the rules of the canonical template of 2026-07-09: one system
 * turn in front (thinking switch, system text, tools), answers with their thought, calls, responses
 * and text in that order, answers in a row in one turn.
 * Beyond the template: system messages that stand later move to the system turn, one text a line,
 * and a turn that the template closes after a tool response is followed by the usual opener. */
#include "chat/chat.h"
#include "chat/text.h"

/* ---- system turn ---- */

/* A list's parts are trimmed one by one, each followed by a space. */
static void put_system_text(gem_prompt *p, const gem_chat_message *m)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        gem_put_str(p, gem_trim(m->part[i]));
        if (m->list) gem_put_words(p, " ");
    }
}

static gem_status put_system_turn(gem_chat_job *j, gem_error *err)
{
    const gem_conversation *c = j->c;
    gem_status st = GEM_OK;
    bool any = j->s->thinking || c->tools, first = true;
    for (size_t i = 0; i < c->n_messages; i++)
        any |= c->message[i].role == GEM_ROLE_SYSTEM;
    if (!any) return GEM_OK;
    gem_put_marker(j->p, "<|turn>");
    gem_put_words(j->p, "system\n");
    if (j->s->thinking) {
        gem_put_marker(j->p, "<|think|>");
        gem_put_words(j->p, "\n");
    }
    for (size_t i = 0; i < c->n_messages; i++) {
        if (c->message[i].role != GEM_ROLE_SYSTEM) continue;
        if (!first) gem_put_words(j->p, "\n");
        put_system_text(j->p, &c->message[i]);
        first = false;
    }
    if (c->tools) st = gem_gemma4_tools(j->p, c->tools, err);
    gem_put_marker(j->p, "<turn|>");
    gem_put_words(j->p, "\n");
    return st;
}

/* ---- an answer ---- */

/* Old answers lose their thoughts: what stands between <|channel> and the next <channel|> or the
 * end, and closers that close nothing. Then trimmed. */
static void put_without_thoughts(gem_chat_job *j, gem_str s)
{
    gem_bytes *kept = &j->scratch;
    size_t at = 0;
    kept->len = 0;
    gem_bytes_put(kept, "", 0);
    while (at < s.len) {
        size_t end = gem_find(s, at, "<channel|>"), stop = end == SIZE_MAX ? s.len : end;
        size_t open = gem_find((gem_str){s.data, stop}, at, "<|channel>");
        gem_bytes_put(kept, s.data + at, (open == SIZE_MAX ? stop : open) - at);
        if (end == SIZE_MAX) break;
        at = end + strlen("<channel|>");
    }
    if (!kept->failed) gem_put_str(j->p, gem_trim((gem_str){kept->data, kept->len}));
}

static void put_call(gem_prompt *p, const gem_chat_call *call)
{
    gem_put_marker(p, "<|tool_call>");
    gem_put_words(p, "call:");
    gem_put_str(p, call->name);
    gem_put_words(p, "{");
    if (call->arguments)
        gem_gemma4_members(p, call->arguments, false);
    else
        gem_put_str(p, call->raw);
    gem_put_words(p, "}");
    gem_put_marker(p, "<tool_call|>");
}

/* The name of the call that a result belongs to; the last call of that id counts. */
static gem_str result_name(const gem_chat_message *answer, const gem_chat_message *result)
{
    gem_str name = result->name.len ? result->name : (gem_str){"unknown", 7};
    for (size_t i = 0; i < answer->n_calls; i++) {
        gem_str id = answer->call[i].id, want = result->call_id;
        if (!id.data != !want.data) continue;
        if (!id.data || (id.len == want.len && !memcmp(id.data, want.data, id.len)))
            name = answer->call[i].name;
    }
    return name;
}

static void put_quoted(gem_prompt *p, gem_str s)
{
    gem_put_marker(p, "<|\"|>");
    gem_put_str(p, s);
    gem_put_marker(p, "<|\"|>");
}

static void put_response(gem_chat_job *j, const gem_chat_message *answer,
                         const gem_chat_message *result)
{
    gem_put_marker(j->p, "<|tool_response>");
    gem_put_words(j->p, "response:");
    gem_put_str(j->p, result_name(answer, result));
    gem_put_words(j->p, "{");
    if (result->value && result->value->type == GEM_JSON_OBJECT) {
        gem_gemma4_members(j->p, result->value, false);
    } else {
        gem_put_words(j->p, "value:");
        if (result->value)
            gem_gemma4_value(j->p, result->value, false);
        else if (!result->n_parts && !result->list)
            gem_put_words(j->p, "null");
        else
            put_quoted(j->p, gem_message_text(result, &j->scratch));
    }
    gem_put_words(j->p, "}");
    gem_put_marker(j->p, "<tool_response|>");
}

/* ---- turns ---- */

static const gem_chat_message *next_speaker(const gem_conversation *c, size_t i)
{
    for (i++; i < c->n_messages; i++)
        if (c->message[i].role == GEM_ROLE_USER || c->message[i].role == GEM_ROLE_ASSISTANT)
            return &c->message[i];
    return NULL;
}

/* Results that follow message i directly (system messages have moved away). */
static size_t put_responses(gem_chat_job *j, size_t i)
{
    const gem_conversation *c = j->c;
    const gem_chat_message *m = &c->message[i];
    size_t n = 0;
    for (size_t k = i + 1; m->n_calls && k < c->n_messages; k++) {
        if (c->message[k].role == GEM_ROLE_SYSTEM) continue;
        if (c->message[k].role != GEM_ROLE_TOOL) break;
        put_response(j, m, &c->message[k]);
        n++;
    }
    return n;
}

static void put_thought(gem_prompt *p, gem_str reasoning)
{
    gem_put_marker(p, "<|channel>");
    gem_put_words(p, "thought\n");
    gem_put_str(p, reasoning);
    gem_put_words(p, "\n");
    gem_put_marker(p, "<channel|>");
}

typedef enum tail { TAIL_CLOSED, TAIL_CALL, TAIL_RESPONSE } tail; /* what was written last */

static tail put_answer(gem_chat_job *j, size_t i, size_t last_user)
{
    const gem_chat_message *m = &j->c->message[i], *next = next_speaker(j->c, i);
    gem_prompt *p = j->p;
    if (m->reasoning.len && (i > last_user || (j->s->preserve && m->n_calls)))
        put_thought(p, m->reasoning);
    for (size_t k = 0; k < m->n_calls; k++)
        put_call(p, &m->call[k]);
    size_t n_responses = put_responses(j, i), before = p->text.len;
    for (size_t k = 0; k < m->n_parts; k++)
        put_without_thoughts(j, m->part[k]);
    bool content = p->text.len > before;
    tail t = n_responses ? TAIL_RESPONSE : m->n_calls ? TAIL_CALL : TAIL_CLOSED;
    if (t == TAIL_CALL) {
        gem_put_marker(p, "<|tool_response>"); /* the model's cue: now the tool answers */
    } else if (!(next && next->role == GEM_ROLE_ASSISTANT) && (!n_responses || content || next)) {
        gem_put_marker(p, "<turn|>");
        gem_put_words(p, "\n");
    }
    return t;
}

static void put_user_turn(gem_prompt *p, const gem_chat_message *m)
{
    gem_put_marker(p, "<|turn>");
    gem_put_words(p, "user\n");
    for (size_t k = 0; k < m->n_parts; k++)
        gem_put_str(p, gem_trim(m->part[k]));
    gem_put_marker(p, "<turn|>");
    gem_put_words(p, "\n");
}

static void put_opener(gem_chat_job *j, bool empty_thought)
{
    gem_put_marker(j->p, "<|turn>");
    gem_put_words(j->p, "model\n");
    if (!empty_thought || j->s->thinking || !j->f->empty_thought) return;
    gem_put_marker(j->p, "<|channel>");
    gem_put_words(j->p, "thought\n");
    gem_put_marker(j->p, "<channel|>");
}

/* The start of an answer that the caller has, for the model to go on with. */
static void put_begun(gem_chat_job *j, const gem_chat_message *m, bool turn_is_open)
{
    gem_prompt *p = j->p;
    gem_str text = gem_message_text(m, &j->scratch);
    if (!turn_is_open) put_opener(j, !m->reasoning.len);
    if (m->reasoning.len) {
        gem_put_marker(p, "<|channel>");
        gem_put_words(p, "thought\n");
        gem_put_str(p, m->reasoning);
        if (!text.len) {
            p->end = GEM_PROMPT_REASONING;
            return;
        }
        gem_put_words(p, "\n");
        gem_put_marker(p, "<channel|>");
    }
    gem_put_str(p, text);
}

gem_status gem_render_gemma4(gem_chat_job *j, gem_error *err)
{
    const gem_conversation *c = j->c;
    gem_prompt *p = j->p;
    size_t last_user = 0, n = c->n_messages - (j->s->resume ? 1 : 0);
    gem_chat_role before = GEM_ROLE_USER; /* of the last message that was written */
    tail t = TAIL_CLOSED;
    gem_put_marker(p, "<bos>");
    gem_status st = put_system_turn(j, err);
    if (st != GEM_OK) return st;
    for (size_t i = 0; i < n; i++)
        if (c->message[i].role == GEM_ROLE_USER) last_user = i;
    for (size_t i = 0; i < n; i++) {
        const gem_chat_message *m = &c->message[i];
        if (m->role == GEM_ROLE_SYSTEM || m->role == GEM_ROLE_TOOL) continue;
        t = TAIL_CLOSED;
        if (m->role == GEM_ROLE_USER) {
            put_user_turn(p, m);
        } else {
            if (before != GEM_ROLE_ASSISTANT) {
                gem_put_marker(p, "<|turn>");
                gem_put_words(p, "model\n");
            }
            t = put_answer(j, i, last_user);
        }
        before = m->role;
    }
    if (j->s->resume) {
        put_begun(j, &c->message[n], before == GEM_ROLE_ASSISTANT);
    } else if (j->s->generation) {
        if (t == TAIL_CLOSED || gem_prompt_ends_with(p, "<turn|>\n")) {
            put_opener(j, true);
        } else if (t == TAIL_RESPONSE && j->s->thinking) {
            gem_put_marker(p, "<|channel>");
            gem_put_words(p, "thought\n");
            p->end = GEM_PROMPT_REASONING;
        }
    }
    return GEM_OK;
}
