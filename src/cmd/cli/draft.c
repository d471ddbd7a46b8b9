/* draft.c - see draft.h. */
#include "cmd/cli/draft.h"

static bool is(const cli_draft *d, const char *word)
{
    return d->arg && strcmp(d->arg, word) == 0;
}

gem_status cli_draft_options(gem_model_options *opt, cli_draft *d, gem_error *err)
{
    gem_gguf *g = NULL;
    opt->drafter = is(d, "own");
    d->beside[0] = 0;
    if (!d->arg || is(d, "own") || is(d, "ngram")) return GEM_OK;
    gem_status st = cli_model_path(d->arg, d->beside, sizeof(d->beside), err);
    if (st == GEM_OK) st = gem_gguf_open(&g, d->beside, err);
    if (st != GEM_OK || !gem_model_is_beside(g)) d->beside[0] = 0;
    if (d->beside[0]) opt->drafter_path = d->beside;
    gem_gguf_close(g);
    return st;
}

gem_status cli_draft_open(cli_draft *d, const gem_model *target, const gem_model_options *opt,
                          gem_error *err)
{
    char path[4096];
    if (!d->arg) return GEM_OK;
    if (!d->max) d->max = is(d, "ngram") ? CLI_DRAFT_NGRAM : CLI_DRAFT_MODEL;
    if (is(d, "ngram")) return gem_drafter_ngram(&d->drafter, err);
    if (is(d, "own") || d->beside[0]) return gem_drafter_own(&d->drafter, target, err);
    gem_model_options o = *opt;
    o.n_sessions = 1;
    o.drafter = false;
    o.drafter_path = NULL;
    o.n_ctx = target->n_ctx;
    gem_status st = cli_model_path(d->arg, path, sizeof(path), err);
    if (st == GEM_OK) st = gem_model_open(&d->model, path, &o, err);
    cli_end_progress();
    if (st == GEM_OK) st = gem_drafter_model(&d->drafter, d->model, target, err);
    return st;
}

void cli_draft_close(cli_draft *d)
{
    gem_drafter_free(d->drafter);
    gem_model_close(d->model);
    d->drafter = NULL;
    d->model = NULL;
}
