/* messages.h - the conversation of a chat request, checked with the path of what is wrong. */
#ifndef GEM_MESSAGES_H
#define GEM_MESSAGES_H

#include "server/field.h"
#include "server/serve.h"

/* Tokens of body.messages in the model's format. The caller frees *tokens. */
bool gem_messages_tokens(gem_server *s, const json_t *body, int32_t **tokens, size_t *n,
                         gem_fault *f);

#endif
