/* detokenizer.h - token ids to text as they come, never half a character. Owned by one thread.
 * Bytes that are no UTF-8 become U+FFFD, one each; a character that is still incomplete at the end
 * becomes one U+FFFD. The C API's gem_detokenizer wraps this. */
#ifndef GEM_DETOKENIZER_H
#define GEM_DETOKENIZER_H

#include "tokenizer/tokenizer.h"

typedef struct gem_detok gem_detok;

/* `t` is borrowed and must outlive it. special: control tokens show as their text. */
gem_status gem_detok_new(gem_detok **out, const gem_tokenizer *t, bool special, gem_error *err);
void gem_detok_free(gem_detok *d);
/* Text that `id` completes, *len bytes and a NUL; borrowed until the next call; may be empty.
 * Allocates nothing. */
const char *gem_detok_push(gem_detok *d, int32_t id, size_t *len);
/* What is left; afterwards `d` is as new. Borrowed until the next call. */
const char *gem_detok_finish(gem_detok *d, size_t *len);

#endif
