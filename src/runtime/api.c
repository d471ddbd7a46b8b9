/* api.c - public calls that only pass on: opening by backend name, text to tokens and back. */
#include "runtime/engine.h"
#include "tokenizer/detokenizer.h"

#include <stdlib.h>

gem_status gem_model_open(gem_model **out, const char *path, const gem_model_options *opt,
                          gem_error *err)
{
    gem_engine_options e = {0};
    const char *name = opt ? opt->backend : NULL;
    *out = NULL;
    e.ops = gem_backend_find(name);
    if (!e.ops)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %.64s is not in this build; it has: %s",
                        name, gem_backend_names());
    return gem_model_open_engine(out, path, opt, &e, err);
}

gem_status gem_tokenize(const gem_model *m, const char *text, size_t text_len, int flags,
                        int32_t **tokens, size_t *n_tokens, gem_error *err)
{
    return gem_tokenizer_encode(m->tok, text, text_len, flags, tokens, n_tokens, err);
}

const char *gem_token_bytes(const gem_model *m, int32_t token, bool special, size_t *len)
{
    if (token < 0 || token >= gem_tokenizer_n_vocab(m->tok)) {
        *len = 0;
        return "";
    }
    return gem_tokenizer_bytes(m->tok, token, special, len);
}

bool gem_token_is_end(const gem_model *m, int32_t token)
{
    return token >= 0 && token < gem_tokenizer_n_vocab(m->tok) &&
           gem_tokenizer_is_end(m->tok, token);
}

/* ---- streaming text ---- */

struct gem_detokenizer {
    gem_detok *d; /* owned */
};

gem_status gem_detokenizer_new(gem_detokenizer **out, const gem_model *m, bool special,
                               gem_error *err)
{
    *out = NULL;
    gem_detokenizer *d = calloc(1, sizeof(*d));
    if (!d) return gem_fail(err, GEM_E_NOMEM, "no memory for a detokenizer");
    gem_status st = gem_detok_new(&d->d, m->tok, special, err);
    if (st != GEM_OK) {
        free(d);
        return st;
    }
    *out = d;
    return GEM_OK;
}

void gem_detokenizer_free(gem_detokenizer *d)
{
    if (!d) return;
    gem_detok_free(d->d);
    free(d);
}

const char *gem_detokenizer_push(gem_detokenizer *d, int32_t token, size_t *len)
{
    return gem_detok_push(d->d, token, len);
}

const char *gem_detokenizer_finish(gem_detokenizer *d, size_t *len)
{
    return gem_detok_finish(d->d, len);
}
