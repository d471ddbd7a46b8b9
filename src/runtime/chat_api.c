/* chat_api.c - the public calls of conversations, prompts and parsers on an open model. */
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
