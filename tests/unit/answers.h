/* answers.h - answers of models as text, fed to a parser in pieces; the events as one line of text.
 * For tests and the fuzzer: markers in the text are recognised by spelling before it is cut, as
 * token ids would be. */
#ifndef GEM_TEST_ANSWERS_H
#define GEM_TEST_ANSWERS_H

#include "chat/parser.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct answer_log {
    gem_bytes text;
    gem_bytes content, args; /* all content; arguments of the call being read */
    gem_chat_event_type last;
    bool any, bad; /* bad: an event broke its contract */
    int n_end, n_broken;
} answer_log;

static inline void log_event(void *user, const gem_chat_event *e)
{
    static const char *const names[] = {"C", "R", "B", "A", "E", "X", "F"};
    answer_log *l = user;
    bool text = e->type == GEM_EVENT_CONTENT || e->type == GEM_EVENT_REASONING ||
                e->type == GEM_EVENT_CALL_ARGUMENTS;
    bool again = text && l->any && l->last == e->type;
    l->bad |= l->any && l->last == GEM_EVENT_FINISH;
    l->bad |= text && !e->len;
    if (text && gem_utf8_complete(e->text, e->len) != e->len) l->bad = true;
    if (!again) gem_bytes_printf(&l->text, "%s%s", l->any ? "|" : "", names[e->type]);
    if (e->type == GEM_EVENT_CALL_BEGIN) {
        gem_bytes_printf(&l->text, "%d:%s%s", e->call, e->name, e->declared ? "" : "?");
        l->args.len = 0;
    }
    if (e->type == GEM_EVENT_CALL_BROKEN) {
        gem_bytes_printf(&l->text, "%d:%s:", e->call, e->reason);
        gem_bytes_put(&l->text, e->text, e->len);
        l->n_broken++;
    }
    if (e->type == GEM_EVENT_FINISH) gem_bytes_printf(&l->text, ":%s", e->reason);
    if (e->type == GEM_EVENT_CALL_ARGUMENTS) gem_bytes_put(&l->args, e->text, e->len);
    if (e->type == GEM_EVENT_CONTENT) gem_bytes_put(&l->content, e->text, e->len);
    if (e->type == GEM_EVENT_CALL_END) {
        gem_json_error je;
        gem_json_doc *doc = gem_json_read(l->args.data ? l->args.data : "", l->args.len, 200, &je);
        const gem_json *v = doc ? gem_json_root(doc) : NULL;
        l->bad |= !v || v->type != GEM_JSON_OBJECT;
        gem_json_free(doc);
        l->n_end++;
    }
    if (text) {
        if (!again) gem_bytes_put(&l->text, ":", 1);
        gem_bytes_put(&l->text, e->text, e->len);
    }
    l->last = e->type;
    l->any = true;
}

static inline void log_clear(answer_log *l)
{
    gem_bytes_free(&l->text);
    gem_bytes_free(&l->content);
    gem_bytes_free(&l->args);
    memset(l, 0, sizeof(*l));
}

static const gem_spelling answer_gemma4[] = {{"<|channel>", GEM_MARK_THINK},
                                             {"<channel|>", GEM_MARK_THINK_END},
                                             {"<|tool_call>", GEM_MARK_CALL},
                                             {"<tool_call|>", GEM_MARK_CALL_END},
                                             {"<|\"|>", GEM_MARK_QUOTE},
                                             {"<|turn>", GEM_MARK_TURN},
                                             {"<turn|>", GEM_MARK_END},
                                             {"<|tool_response>", GEM_MARK_END},
                                             {"<tool_response|>", GEM_MARK_HIDDEN},
                                             {"<|image>", GEM_MARK_HIDDEN},
                                             {NULL, GEM_MARK_HIDDEN}};
static const gem_spelling answer_qwen[] = {{"<think>", GEM_MARK_THINK},
                                           {"</think>", GEM_MARK_THINK_END},
                                           {"<tool_call>", GEM_MARK_CALL},
                                           {"</tool_call>", GEM_MARK_CALL_END},
                                           {"<tool_response>", GEM_MARK_HIDDEN},
                                           {"<|im_end|>", GEM_MARK_END},
                                           {NULL, GEM_MARK_HIDDEN}};

/* Feed text, each stretch between markers cut after the places where `cuts` (one byte a place of
 * the text; NULL: never) is not 0. */
static inline void feed(gem_parser *p, const gem_spelling *marks, const char *text, size_t len,
                        const uint8_t *cuts)
{
    size_t from = 0;
    for (size_t at = 0; at < len;) {
        const gem_spelling *found = NULL;
        for (const gem_spelling *m = marks; m && m->text && !found; m++)
            if (len - at >= strlen(m->text) && !memcmp(text + at, m->text, strlen(m->text)))
                found = m;
        if (!found) {
            at++;
            if (!cuts || !cuts[at - 1]) continue;
            gem_parser_text(p, text + from, at - from);
            from = at;
            continue;
        }
        gem_parser_text(p, text + from, at - from);
        gem_parser_mark(p, found->mark, (gem_str){found->text, strlen(found->text)});
        from = at += strlen(found->text);
    }
    gem_parser_text(p, text + from, len - from);
}

static const char answer_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"zip\":{\"type\":\"string\"},\"timeout\":{\"type\":\"integer\"},\"flag\":{"
    "\"type\":\"boolean\"},\"day\":{\"type\":\"integer\"},\"note\":{\"type\":\"string\"},\"opts\":{"
    "\"type\":\"object\"},\"u\":{\"type\":[\"string\",\"null\"]},\"e\":{\"enum\":[\"1\",\"2\"]},"
    "\"any\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"number\"}]},\"free\":{}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"sh\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"cmd\":{\"type\":\"string\"}}}}}]";

static inline gem_conversation *answer_conversation(bool with_tools)
{
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"?\"}]";
    gem_conversation *c;
    if (gem_conversation_read(&c, messages, sizeof(messages) - 1, with_tools ? answer_tools : NULL,
                              sizeof(answer_tools) - 1, NULL) != GEM_OK)
        abort();
    return c;
}

#endif
