/* draft_model.c - a smaller model of the same vocabulary as drafter: greedy, with a session of its
 * own that follows the target's sequence. */
#include "runtime/speculate.h"

#include <stdlib.h>

typedef struct model_drafter {
    gem_drafter base;
    gem_model *model;     /* borrowed */
    gem_session *session; /* owned */
    gem_sampler *greedy;  /* owned */
    int32_t *held;        /* owned, [n_ctx]: what the session holds */
    int32_t n_held;
} model_drafter;

/* Cut the session back to what it shares with the sequence, less the last token, whose logits are
 * wanted. */
static gem_status keep_common(model_drafter *d, const int32_t *tokens, int32_t n_tokens,
                              gem_error *err)
{
    int32_t same = 0;
    while (same < d->n_held && same + 1 < n_tokens && d->held[same] == tokens[same])
        same++;
    if (same == d->n_held) return GEM_OK;
    d->n_held = same;
    if (gem_session_trim(d->session, same, err) == GEM_OK) return GEM_OK;
    d->n_held = 0; /* a windowed layer has dropped those positions: start over */
    return gem_session_trim(d->session, 0, err);
}

static gem_status draft(gem_drafter *base, const int32_t *tokens, int32_t n_tokens, int32_t max,
                        int32_t *out, int32_t *n_out, gem_error *err)
{
    model_drafter *d = (model_drafter *)base;
    *n_out = 0;
    max = GEM_MIN(max, d->model->n_ctx - n_tokens);
    if (max <= 0) return GEM_OK; /* its context is shorter than the target's */
    gem_status st = keep_common(d, tokens, n_tokens, err);
    if (st != GEM_OK) return st;
    int32_t n_new = n_tokens - d->n_held;
    st = gem_session_prefill(d->session, tokens + d->n_held, (size_t)n_new, NULL, NULL, NULL, err);
    if (st != GEM_OK) return st;
    memcpy(d->held + d->n_held, tokens + d->n_held, (size_t)n_new * sizeof(*tokens));
    d->n_held = n_tokens;
    for (;;) {
        st = gem_session_draw(d->session, d->greedy, &out[*n_out], err);
        if (st == GEM_E_RANGE) return GEM_OK; /* logits that cannot be drawn from: no guess */
        if (st != GEM_OK) return st;
        int32_t token = out[(*n_out)++];
        if (*n_out == max || gem_token_is_end(d->model, token)) return GEM_OK;
        if ((st = gem_session_decode(d->session, token, NULL, err)) != GEM_OK) return st;
        d->held[d->n_held++] = token;
    }
}

static void free_model(gem_drafter *base)
{
    model_drafter *d = (model_drafter *)base;
    gem_session_free(d->session);
    gem_sampler_free(d->greedy);
    free(d->held);
    free(d);
}

gem_status gem_drafter_model(gem_drafter **out, gem_model *draft_model, const gem_model *target,
                             gem_error *err)
{
    *out = NULL;
    gem_status st = gem_tokenizer_same(draft_model->tok, target->tok, "the draft model", err);
    if (st != GEM_OK) return st;
    model_drafter *d = calloc(1, sizeof(*d));
    if (!d) return gem_fail(err, GEM_E_NOMEM, "no memory for a drafter");
    d->base = (gem_drafter){"model", draft, free_model, NULL};
    d->model = draft_model;
    gem_sampler_options so;
    gem_sampler_defaults(&so);
    d->held = malloc((size_t)draft_model->n_ctx * sizeof(*d->held));
    if (!d->held) {
        st = gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", draft_model->n_ctx);
        goto done;
    }
    if ((st = gem_sampler_new(&d->greedy, draft_model->plan.n_vocab, &so, err)) != GEM_OK)
        goto done;
    if ((st = gem_session_new(&d->session, draft_model, err)) != GEM_OK) goto done;
    *out = &d->base;
    d = NULL;
done:
    if (d) free_model(&d->base);
    return st;
}
