/* token_order.c - see token_order.h. */
#include "server/token_order.h"

#include <stdlib.h>

typedef struct text {
    const char *bytes; /* borrowed from the model */
    size_t len;
    int32_t id;
} text;

static int by_bytes(const void *pa, const void *pb)
{
    const text *a = pa, *b = pb;
    size_t n = GEM_MIN(a->len, b->len);
    int c = n ? memcmp(a->bytes, b->bytes, n) : 0;
    if (c) return c;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint8_t shared(const text *a, const text *b)
{
    size_t n = GEM_MIN(GEM_MIN(a->len, b->len), (size_t)UINT8_MAX), i = 0;
    while (i < n && a->bytes[i] == b->bytes[i])
        i++;
    return (uint8_t)i;
}

gem_status gem_token_order_init(gem_token_order *o, const gem_model *m, int32_t n_vocab,
                                gem_error *err)
{
    size_t n = (size_t)n_vocab;
    text *t = calloc(n, sizeof(*t));
    o->id = calloc(n, sizeof(*o->id));
    o->shared = calloc(n, sizeof(*o->shared));
    if (!t || !o->id || !o->shared) {
        free(t);
        gem_token_order_deinit(o);
        return gem_fail(err, GEM_E_NOMEM, "no memory to order %d tokens", n_vocab);
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        t[i].bytes = gem_token_bytes(m, i, false, &t[i].len);
        if (gem_token_is_end(m, i)) t[i].len = 0;
        t[i].id = i;
    }
    qsort(t, n, sizeof(*t), by_bytes);
    for (size_t i = 0; i < n; i++) {
        o->id[i] = t[i].id;
        o->shared[i] = i ? shared(&t[i], &t[i - 1]) : 0;
    }
    o->n = n_vocab;
    free(t);
    return GEM_OK;
}

void gem_token_order_deinit(gem_token_order *o)
{
    free(o->id);
    free(o->shared);
    *o = (gem_token_order){0};
}
