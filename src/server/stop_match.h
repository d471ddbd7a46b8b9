/* stop_match.h - stop strings over streamed text: matched on text, never on tokens. What is
 * released does not depend on how the text was cut into pieces; a tail that could still become a
 * stop is held back. */
#ifndef GEM_STOP_MATCH_H
#define GEM_STOP_MATCH_H

#include "base/base.h"

typedef struct gem_stop_match {
    const char *const *stop; /* [n] borrowed, none empty */
    size_t n;
    gem_bytes held;  /* owned */
    const char *hit; /* the stop that completed; NULL: none yet */
} gem_stop_match;

/* Add text; append what may be shown to out. True when a stop completed: out then ends where the
 * stop begins, and nothing may be pushed any more. */
bool gem_stop_match_push(gem_stop_match *m, const char *text, size_t len, gem_bytes *out);
/* The text ended: release what was held. */
void gem_stop_match_finish(gem_stop_match *m, gem_bytes *out);
void gem_stop_match_deinit(gem_stop_match *m);

#endif
