/* detokenizer.c - the C API's streaming detokenizer: a model's tokenizer with the core of
 * src/tokenizer, which holds back what is not yet a whole character. */
#include "runtime/engine.h"
#include "tokenizer/detokenizer.h"

#include <stdlib.h>

struct gem_detokenizer {
    gem_detok *core; /* owned */
};

gem_status gem_detokenizer_new(gem_detokenizer **out, const gem_model *m, bool special,
                               gem_error *err)
{
    gem_detokenizer *d = calloc(1, sizeof(*d));
    *out = NULL;
    if (!d) return gem_fail(err, GEM_E_NOMEM, "no memory for a detokenizer");
    gem_status st = gem_detok_new(&d->core, m->tok, special, err);
    if (st != GEM_OK) {
        gem_detokenizer_free(d);
        return st;
    }
    *out = d;
    return GEM_OK;
}

void gem_detokenizer_free(gem_detokenizer *d)
{
    if (!d) return;
    gem_detok_free(d->core);
    free(d);
}

const char *gem_detokenizer_push(gem_detokenizer *d, int32_t token, size_t *len)
{
    return gem_detok_push(d->core, token, len);
}

const char *gem_detokenizer_finish(gem_detokenizer *d, size_t *len)
{
    return gem_detok_finish(d->core, len);
}
