/* draft.c - see draft.h. */
#include "cmd/cli/draft.h"

gem_status cli_draft_open(cli_draft *d, const gem_model *target, const gem_model_options *opt,
                          gem_error *err)
{
    char path[4096];
    if (!d->arg) return GEM_OK;
    bool ngram = strcmp(d->arg, "ngram") == 0;
    if (!d->max) d->max = ngram ? CLI_DRAFT_NGRAM : CLI_DRAFT_MODEL;
    if (ngram) return gem_drafter_ngram(&d->drafter, err);
    gem_model_options o = *opt;
    o.n_sessions = 1;
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
