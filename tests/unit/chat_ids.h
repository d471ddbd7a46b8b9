/* chat_ids.h - plain messages to token ids, thinking off, as gem_chat_tokens does on a model. */
#ifndef GEM_TEST_CHAT_IDS_H
#define GEM_TEST_CHAT_IDS_H

#include "chat/chat.h"

static inline gem_status chat_ids(const gem_tokenizer *t, const gem_message *m, size_t n_messages,
                                  int32_t **ids, size_t *n, gem_error *err)
{
    static const gem_chat_options options = {.thinking = GEM_THINKING_OFF};
    gem_chat_format f;
    gem_conversation c;
    gem_prompt p = {0};
    *ids = NULL;
    *n = 0;
    gem_chat_format_of(&f, t);
    gem_status st = gem_conversation_of(&c, m, n_messages, err);
    if (st != GEM_OK) return st;
    st = gem_chat_render(&p, &f, &c, &options, err);
    if (st == GEM_OK) st = gem_prompt_tokenize(&p, t, err);
    if (st == GEM_OK) {
        *ids = p.tokens;
        *n = p.n_tokens;
        p.tokens = NULL;
    }
    gem_prompt_clear(&p);
    gem_conversation_clear(&c);
    return st;
}

#endif
