/* replay.h - answers with tool calls in the model's own syntax, remembered as it wrote them. Clients send calls back
 * as JSON of their own making; rendered anew they are other tokens than the ones that were
 * computed, and the prefix ends there. An answer that comes back with the same content and the same
 * calls is given to the model token by token as it was. Bounded; the longest unused go first.
 * Thread-safe. */
#ifndef GEM_REPLAY_H
#define GEM_REPLAY_H

#include "server/serve.h"

gem_status gem_replay_new(gem_replay **out, gem_error *err);
void gem_replay_free(gem_replay *r);
/* Remember the answer, which has calls; tokens[n] are what was drawn, without the end. */
void gem_replay_add(gem_replay *r, const gem_model *m, const gem_answer *a, const int32_t *tokens,
                    size_t n);
/* Mark what is known in a conversation that is about to be rendered. */
void gem_replay_apply(gem_replay *r, struct gem_conversation *c);

#endif
