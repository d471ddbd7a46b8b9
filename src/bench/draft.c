/* draft.c - see draft.h. */
#include "bench/draft.h"

#include <stdlib.h>

gem_status bench_draft_open(bench_draft *d, gem_model *model, gem_drafter *drafter, int32_t max,
                            const int32_t *prompt, int32_t n_prompt, int32_t n_generated,
                            gem_error *err)
{
    gem_model_info info;
    gem_sampler_options so;
    gem_status st;
    *d = (bench_draft){.model = model,
                       .drafter = drafter,
                       .n_generated = n_generated,
                       .max = max,
                       .n_prompt = n_prompt,
                       .same = true};
    gem_model_get_info(model, &info);
    gem_sampler_defaults(&so);
    size_t n = (size_t)n_generated + 1 + GEM_DRAFT_MAX;
    d->prompt = malloc((size_t)n_prompt * sizeof(*d->prompt));
    d->plain = malloc(n * sizeof(*d->plain));
    d->drafted = malloc(n * sizeof(*d->drafted));
    if (!d->prompt || !d->plain || !d->drafted)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the tokens");
    memcpy(d->prompt, prompt, (size_t)n_prompt * sizeof(*prompt));
    if ((st = gem_sampler_new(&d->greedy, info.n_vocab, &so, err)) != GEM_OK) return st;
    if ((st = gem_speculator_new(&d->speculator, model, drafter, max, err)) != GEM_OK) return st;
    if ((st = gem_session_new(&d->session, model, err)) != GEM_OK) return st;
    st = gem_session_prefill(d->session, prompt, (size_t)n_prompt, NULL, NULL, NULL, err);
    if (st == GEM_OK) st = gem_session_draw(d->session, d->greedy, &d->plain[0], err);
    if (st == GEM_OK) st = gem_session_checkpoint(d->session, &d->start, err);
    d->drafted[0] = d->plain[0];
    return st;
}

void bench_draft_close(bench_draft *d)
{
    gem_checkpoint_free(d->start);
    gem_session_free(d->session);
    gem_speculator_free(d->speculator);
    gem_sampler_free(d->greedy);
    free(d->prompt);
    free(d->plain);
    free(d->drafted);
    memset(d, 0, sizeof(*d));
}

gem_status bench_draft_rewind(void *user, gem_error *err)
{
    bench_draft *d = user;
    return gem_session_rollback(d->session, d->start, err);
}

/* End tokens are run on, as any other: both arms give as many tokens as were asked for. */
gem_status bench_draft_plain(void *user, gem_error *err)
{
    bench_draft *d = user;
    gem_status st = GEM_OK;
    d->ran_plain = true;
    for (int32_t i = 0; st == GEM_OK && i < d->n_generated; i++) {
        st = gem_session_decode(d->session, d->plain[i], NULL, err);
        if (st == GEM_OK) st = gem_session_draw(d->session, d->greedy, &d->plain[i + 1], err);
    }
    return st;
}

gem_status bench_draft_rounds(void *user, gem_error *err)
{
    bench_draft *d = user;
    gem_status st =
        gem_speculator_begin(d->speculator, d->session, d->prompt, (size_t)d->n_prompt, err);
    for (int32_t i = 0, n; st == GEM_OK && i < d->n_generated; i += n)
        st = gem_speculate(d->speculator, d->greedy, d->drafted[i], d->n_generated - i,
                           d->drafted + i + 1, &n, err);
    return st;
}

gem_status bench_draft_finish(void *user, int round, gem_error *err)
{
    bench_draft *d = user;
    (void)err;
    if (round < 0)
        d->before = *gem_speculator_stats(d->speculator);
    else if (d->ran_plain)
        d->same &=
            memcmp(d->plain, d->drafted, ((size_t)d->n_generated + 1) * sizeof(*d->plain)) == 0;
    return GEM_OK;
}

json_t *bench_draft_json(const bench_draft *d)
{
    gem_draft_stats s = *gem_speculator_stats(d->speculator);
    gem_draft_stats_subtract(&s, &d->before);
    return gem_draft_stats_json(&s, d->drafter->name, d->max);
}
