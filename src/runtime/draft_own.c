/* draft_own.c - the drafter made for the target, out of its file or of one beside it: its program
 * on the target's backend, its layer of keys and values, if any, in the target's session. Greedy.
 */
#include "runtime/speculate.h"

#include <stdlib.h>

typedef struct own_drafter {
    gem_drafter base;
    gem_session *session; /* borrowed */
    gem_sampler *greedy;  /* owned */
} own_drafter;

static gem_status draft(gem_drafter *base, const int32_t *tokens, int32_t n_tokens, int32_t max,
                        int32_t *out, int32_t *n_out, gem_error *err)
{
    own_drafter *d = (own_drafter *)base;
    gem_status st = GEM_OK;
    int32_t token = tokens[n_tokens - 1];
    *n_out = 0;
    while (*n_out < max) {
        const float *logits;
        st = gem_session_guess(d->session, token, *n_out, &logits, err);
        if (st == GEM_OK) st = gem_sampler_draw(d->greedy, logits, &token, err);
        if (st != GEM_OK) break;
        out[(*n_out)++] = token;
    }
    gem_session_guess_end(d->session);
    /* as many as there is room for, and as can be drawn: fewer guesses are no error */
    return st == GEM_E_NOMEM || st == GEM_E_RANGE ? GEM_OK : st;
}

static void free_own(gem_drafter *base)
{
    own_drafter *d = (own_drafter *)base;
    gem_sampler_free(d->greedy);
    free(d);
}

static void begin(gem_drafter *base, gem_session *s)
{
    ((own_drafter *)base)->session = s;
}

gem_status gem_drafter_own(gem_drafter **out, const gem_model *target, gem_error *err)
{
    gem_sampler_options so;
    *out = NULL;
    if (!target->plan.draft_op)
        return gem_fail(err, GEM_E_ARG, "the model was opened without its drafter");
    own_drafter *d = calloc(1, sizeof(*d));
    if (!d) return gem_fail(err, GEM_E_NOMEM, "no memory for a drafter");
    d->base = (gem_drafter){"own", draft, free_own, begin};
    gem_sampler_defaults(&so);
    gem_status st = gem_sampler_new(&d->greedy, target->plan.n_vocab, &so, err);
    if (st != GEM_OK) {
        free_own(&d->base);
        return st;
    }
    *out = &d->base;
    return GEM_OK;
}
