/* text_routes.h - text, tokens and templates without a model run: /tokenize, /detokenize,
 * /apply-template, input_tokens. */
#ifndef GEM_TEXT_ROUTES_H
#define GEM_TEXT_ROUTES_H

#include "server/serve.h"

/* Ids of a JSON array into ids[size]; checked against the vocabulary. */
bool gem_tokens_read(gem_server *s, const json_t *list, const char *param, int32_t *ids,
                     gem_fault *f);

bool gem_post_tokenize(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f);
bool gem_post_detokenize(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f);
bool gem_post_apply_template(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f);
bool gem_post_input_tokens(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f);
/* wire_messages.c: {"input_tokens":N} of a Messages body */
bool gem_post_count_tokens(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f);

#endif
