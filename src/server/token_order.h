/* token_order.h - the vocabulary in the order of its bytes, like the leaves of a trie: behind a
 * prefix that does not fit, all tokens that share it are skipped without a look. */
#ifndef GEM_TOKEN_ORDER_H
#define GEM_TOKEN_ORDER_H

#include "base/base.h"

typedef struct gem_token_order {
    int32_t *id; /* owned, [n]: by bytes; first those without text, and those that end an answer */
    uint8_t
        *shared; /* owned, [n]: first bytes that a token shares with the one before, at most 255 */
    int32_t n;
} gem_token_order;

gem_status gem_token_order_init(gem_token_order *o, const gem_model *m, int32_t n_vocab,
                                gem_error *err);
void gem_token_order_deinit(gem_token_order *o);

#endif
