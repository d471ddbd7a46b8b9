/* detokenizer.c - tokens to text as they come. A token may end inside a character: those bytes wait
 * for the next one. Bytes that can never become a character leave as U+FFFD. */
#include "runtime/engine.h"

#include <stdlib.h>

enum { RESERVE = 1024 }; /* longer than any token of the supported vocabularies */

struct gem_detokenizer {
    const gem_model *m; /* borrowed */
    bool special;
    gem_bytes wait; /* bytes of a character that is not complete */
    gem_bytes out;
};

static void reserve(gem_bytes *b)
{
    static const char zeros[RESERVE];
    gem_bytes_put(b, zeros, sizeof(zeros));
    b->len = 0;
}

gem_status gem_detokenizer_new(gem_detokenizer **out, const gem_model *m, bool special,
                               gem_error *err)
{
    gem_detokenizer *d = calloc(1, sizeof(*d));
    *out = NULL;
    if (!d) return gem_fail(err, GEM_E_NOMEM, "no memory for a detokenizer");
    d->m = m;
    d->special = special;
    reserve(&d->wait);
    reserve(&d->out);
    if (d->wait.failed || d->out.failed) {
        gem_detokenizer_free(d);
        return gem_fail(err, GEM_E_NOMEM, "no memory for a detokenizer");
    }
    *out = d;
    return GEM_OK;
}

void gem_detokenizer_free(gem_detokenizer *d)
{
    if (!d) return;
    gem_bytes_free(&d->wait);
    gem_bytes_free(&d->out);
    free(d);
}

/* Move the first n waiting bytes to the output, whatever is invalid as U+FFFD. */
static void release(gem_detokenizer *d, size_t n)
{
    const char *s = d->wait.data;
    d->out.len = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = gem_utf8_decode(s + i, n - i, &cp);
        if (len > 0)
            gem_bytes_put(&d->out, s + i, (size_t)len);
        else
            gem_bytes_put(&d->out, "\xEF\xBF\xBD", 3);
        i += len > 0 ? (size_t)len : 1;
    }
    memmove(d->wait.data, d->wait.data + n, d->wait.len - n);
    d->wait.len -= n;
}

static const char *text(const gem_detokenizer *d, size_t *len)
{
    *len = d->out.len;
    return d->out.len ? d->out.data : "";
}

const char *gem_detokenizer_push(gem_detokenizer *d, int32_t token, size_t *len)
{
    size_t n;
    const char *bytes = gem_token_bytes(d->m, token, d->special, &n);
    gem_bytes_put(&d->wait, bytes, n);
    release(d, gem_utf8_complete(d->wait.data, d->wait.len));
    return text(d, len);
}

const char *gem_detokenizer_finish(gem_detokenizer *d, size_t *len)
{
    /* the tail is the beginning of one character: one replacement for it */
    bool tail = d->wait.len > 0;
    d->wait.len = 0;
    d->out.len = 0;
    if (tail) gem_bytes_put(&d->out, "\xEF\xBF\xBD", 3);
    return text(d, len);
}
