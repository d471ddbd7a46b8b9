/* chat_api.c - the public calls of conversations, prompts and parsers on an open model. */
#include "chat/parse_qwen.h"
#include "runtime/engine.h"

#include <stdlib.h>

void gem_chat_get_info(const gem_model *m, gem_chat_info *out)
{
    const gem_chat_format *f = &m->chat;
    *out = (gem_chat_info){f->name, f->thinks, f->thinks_unasked, f->tools};
}

gem_status gem_prompt_render(gem_prompt **out, const gem_model *m, const gem_conversation *c,
                             const gem_chat_options *opt, gem_error *err)
{
    gem_prompt *p = calloc(1, sizeof(*p));
    *out = NULL;
    if (!p) return gem_fail(err, GEM_E_NOMEM, "chat: no memory for the prompt");
    gem_status st = gem_chat_render(p, &m->chat, c, opt, err);
    if (st == GEM_OK) st = gem_prompt_tokenize(p, m->tok, err);
    if (st != GEM_OK) {
        gem_prompt_free(p);
        return st;
    }
    *out = p;
    return GEM_OK;
}

void gem_prompt_free(gem_prompt *p)
{
    if (!p) return;
    gem_prompt_clear(p);
    free(p);
}

const char *gem_prompt_text(const gem_prompt *p, size_t *len)
{
    *len = p->text.len;
    return p->text.data;
}

const gem_prompt_piece *gem_prompt_pieces(const gem_prompt *p, size_t *n)
{
    *n = p->n_pieces;
    return p->piece;
}

const int32_t *gem_prompt_tokens(const gem_prompt *p, size_t *n)
{
    *n = p->n_tokens;
    return p->tokens;
}

/* The plain way: role and text only, thinking off. */
gem_status gem_chat_tokens(const gem_model *m, const gem_message *messages, size_t n_messages,
                           int32_t **tokens, size_t *n_tokens, gem_error *err)
{
    static const gem_chat_options plain = {.thinking = GEM_THINKING_OFF};
    gem_conversation c;
    gem_prompt p = {0};
    *tokens = NULL;
    *n_tokens = 0;
    gem_status st = gem_conversation_of(&c, messages, n_messages, err);
    if (st != GEM_OK) return st;
    st = gem_chat_render(&p, &m->chat, &c, &plain, err);
    if (st == GEM_OK) st = gem_prompt_tokenize(&p, m->tok, err);
    if (st == GEM_OK) {
        *tokens = p.tokens;
        *n_tokens = p.n_tokens;
        p.tokens = NULL;
    }
    gem_prompt_clear(&p);
    gem_conversation_clear(&c);
    return st;
}

/* ---- answers ---- */

typedef struct known_mark {
    int32_t id;
    gem_mark mark;
    gem_str spelled; /* static */
} known_mark;

struct gem_chat_parser {
    gem_parser p;
    const gem_tokenizer *t; /* borrowed */
    known_mark known[12];
    size_t n_known;
};

static const gem_spelling gemma4_marks[] = {{"<|channel>", GEM_MARK_THINK},
                                            {"<channel|>", GEM_MARK_THINK_END},
                                            {"<|tool_call>", GEM_MARK_CALL},
                                            {"<tool_call|>", GEM_MARK_CALL_END},
                                            {"<|\"|>", GEM_MARK_QUOTE},
                                            {"<|turn>", GEM_MARK_TURN},
                                            {"<tool_response|>", GEM_MARK_HIDDEN},
                                            {NULL, GEM_MARK_HIDDEN}};
static const gem_spelling qwen_marks[] = {{"<think>", GEM_MARK_THINK},
                                          {"</think>", GEM_MARK_THINK_END},
                                          {"<tool_call>", GEM_MARK_CALL},
                                          {"</tool_call>", GEM_MARK_CALL_END},
                                          {"<tool_response>", GEM_MARK_HIDDEN},
                                          {"</tool_response>", GEM_MARK_HIDDEN},
                                          {NULL, GEM_MARK_HIDDEN}};
/* for vocabularies without tokens for them; a thought is recognised by token only */
static const gem_spelling call_tags[] = {
    {"<tool_call>", GEM_MARK_CALL}, {"</tool_call>", GEM_MARK_CALL_END}, {NULL, GEM_MARK_HIDDEN}};

static void find_marks(gem_chat_parser *p, gem_chat_family family)
{
    const gem_spelling *list = family == GEM_CHAT_GEMMA4 ? gemma4_marks
                               : family == GEM_CHAT_CHATML || family == GEM_CHAT_QWEN35 ? qwen_marks
                                                                                        : NULL;
    bool calls = false;
    for (const gem_spelling *m = list; m && m->text; m++) {
        gem_str s = {m->text, strlen(m->text)};
        int32_t id = gem_tokenizer_find(p->t, s.data, s.len);
        if (id < 0) continue;
        p->known[p->n_known++] = (known_mark){id, m->mark, s};
        calls |= m->mark == GEM_MARK_CALL;
    }
    if (family == GEM_CHAT_CHATML && !calls && p->p.c && p->p.c->tools) p->p.spelling = call_tags;
}

gem_status gem_chat_parser_new(gem_chat_parser **out, const gem_model *m, const gem_conversation *c,
                               const gem_prompt *prompt, const gem_chat_parser_options *opt,
                               gem_error *err)
{
    *out = NULL;
    if (!opt || !opt->fn) return gem_fail(err, GEM_E_ARG, "chat: a parser needs an event function");
    gem_chat_parser *p = calloc(1, sizeof(*p));
    if (!p) return gem_fail(err, GEM_E_NOMEM, "chat: no memory for a parser");
    gem_status st =
        gem_parser_open(&p->p, &m->chat, c, prompt ? prompt->end : GEM_PROMPT_CONTENT, opt, err);
    if (st != GEM_OK) {
        gem_chat_parser_free(p);
        return st;
    }
    p->t = m->tok;
    find_marks(p, m->chat.family);
    *out = p;
    return GEM_OK;
}

void gem_chat_parser_free(gem_chat_parser *p)
{
    if (!p) return;
    gem_parser_close(&p->p);
    free(p);
}

static gem_status check(const gem_chat_parser *p, gem_error *err)
{
    if (!gem_parser_failed(&p->p)) return GEM_OK;
    return gem_fail(err, GEM_E_NOMEM, "chat: no memory for what the model writes");
}

gem_status gem_chat_parser_push(gem_chat_parser *p, int32_t token, gem_error *err)
{
    size_t len;
    if (token < 0 || token >= gem_tokenizer_n_vocab(p->t)) return GEM_OK;
    if (gem_tokenizer_is_end(p->t, token)) {
        gem_parser_mark(&p->p, GEM_MARK_END, (gem_str){"", 0});
        return check(p, err);
    }
    for (size_t i = 0; i < p->n_known; i++) {
        if (p->known[i].id != token) continue;
        gem_parser_mark(&p->p, p->known[i].mark, p->known[i].spelled);
        return check(p, err);
    }
    const char *s = gem_tokenizer_bytes(p->t, token, false, &len);
    if (len) {
        gem_parser_text(&p->p, s, len);
    } else {
        s = gem_tokenizer_bytes(p->t, token, true, &len);
        if (len) gem_parser_mark(&p->p, GEM_MARK_HIDDEN, (gem_str){s, len});
    }
    return check(p, err);
}

bool gem_chat_parser_ended(const gem_chat_parser *p)
{
    return p->p.ended;
}

gem_status gem_chat_parser_finish(gem_chat_parser *p, bool cut, gem_error *err)
{
    gem_parser_finish(&p->p, cut);
    return check(p, err);
}

const char *gem_chat_parser_pending_tool(const gem_chat_parser *p)
{
    return gem_qwen_pending_tool(&p->p);
}

void gem_chat_parser_commit_call(gem_chat_parser *p)
{
    gem_qwen_commit(&p->p);
}
