/* detokenizer.c - see detokenizer.h. The buffers are sized at open by the longest token, so a push
 * can neither fail nor allocate. */
#include "tokenizer/detokenizer.h"

#include <stdlib.h>

struct gem_detok {
    const gem_tokenizer *t; /* borrowed */
    bool special;
    size_t n_held; /* bytes of an incomplete character at the start of `in` */
    char *in;      /* owned: held bytes, then those of the token */
    char *out;     /* owned: at worst U+FFFD, three bytes, for each byte of `in`, and a NUL */
};

gem_status gem_detok_new(gem_detok **out, const gem_tokenizer *t, bool special, gem_error *err)
{
    size_t in_bytes = gem_tokenizer_max_bytes(t) + 4;
    gem_detok *d = calloc(1, sizeof(*d));
    *out = NULL;
    if (d) {
        d->t = t;
        d->special = special;
        d->in = malloc(in_bytes);
        d->out = malloc(3 * in_bytes + 1);
    }
    if (!d || !d->in || !d->out) {
        gem_detok_free(d);
        return gem_fail(err, GEM_E_NOMEM, "detokenizer: no memory for %zu bytes", 4 * in_bytes);
    }
    *out = d;
    return GEM_OK;
}

void gem_detok_free(gem_detok *d)
{
    if (!d) return;
    free(d->in);
    free(d->out);
    free(d);
}

static size_t put_replacement(char *out)
{
    gem_utf8_encode(0xFFFD, out);
    return 3;
}

const char *gem_detok_push(gem_detok *d, int32_t id, size_t *len)
{
    size_t n, n_out = 0;
    const char *bytes = gem_tokenizer_bytes(d->t, id, d->special, &n);
    if (n) memcpy(d->in + d->n_held, bytes, n);
    n += d->n_held;

    size_t complete = gem_utf8_complete(d->in, n);
    for (size_t i = 0; i < complete;) {
        uint32_t cp;
        int size = gem_utf8_decode(d->in + i, complete - i, &cp);
        if (size) {
            memcpy(d->out + n_out, d->in + i, (size_t)size);
            n_out += (size_t)size;
            i += (size_t)size;
        } else {
            n_out += put_replacement(d->out + n_out);
            i++;
        }
    }
    d->n_held = n - complete;
    memmove(d->in, d->in + complete, d->n_held);
    d->out[n_out] = 0;
    *len = n_out;
    return d->out;
}

const char *gem_detok_finish(gem_detok *d, size_t *len)
{
    *len = d->n_held ? put_replacement(d->out) : 0;
    d->n_held = 0;
    d->out[*len] = 0;
    return d->out;
}
