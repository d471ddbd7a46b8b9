/* speculate.c - rounds of speculative decoding: propose, verify, settle. */
#include "runtime/speculate.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>

struct gem_speculator {
    const gem_model *model; /* borrowed */
    gem_session *session;   /* borrowed; NULL before begin */
    gem_drafter *drafter;   /* borrowed */
    int32_t max;
    int32_t *token; /* owned, [n_ctx + 1 + GEM_DRAFT_MAX]: the sequence, then a round's guesses */
    int32_t n_tokens;
    int32_t n_rows; /* of the round at hand: token[n_tokens - 1] and the guesses behind it */
    gem_draft_stats stats;
};

void gem_drafter_free(gem_drafter *d)
{
    if (d) d->free(d);
}

gem_status gem_speculator_new(gem_speculator **out, const gem_model *m, gem_drafter *d, int32_t max,
                              gem_error *err)
{
    *out = NULL;
    if (max < 1 || max > GEM_DRAFT_MAX)
        return gem_fail(err, GEM_E_ARG, "%d drafts a round, expected 1 to %d", max, GEM_DRAFT_MAX);
    gem_speculator *sp = calloc(1, sizeof(*sp));
    size_t n = (size_t)m->n_ctx + 1 + GEM_DRAFT_MAX;
    if (sp) sp->token = malloc(n * sizeof(*sp->token));
    if (!sp || !sp->token) {
        free(sp);
        return gem_fail(err, GEM_E_NOMEM, "no memory for %zu tokens", n);
    }
    sp->model = m;
    sp->drafter = d;
    sp->max = GEM_MIN(max, GEM_MIN(m->n_batch, m->n_logits) - 1);
    *out = sp;
    return GEM_OK;
}

void gem_speculator_free(gem_speculator *s)
{
    if (!s) return;
    free(s->token);
    free(s);
}

const gem_draft_stats *gem_speculator_stats(const gem_speculator *s)
{
    return &s->stats;
}

gem_status gem_speculator_begin(gem_speculator *s, gem_session *session, const int32_t *tokens,
                                size_t n_tokens, gem_error *err)
{
    int32_t pos = gem_session_position(session);
    if (session->m != s->model)
        return gem_fail(err, GEM_E_ARG, "the session belongs to another model");
    if (n_tokens != (size_t)pos)
        return gem_fail(err, GEM_E_ARG, "%zu tokens given for a session that holds %d", n_tokens,
                        pos);
    if (n_tokens) memcpy(s->token, tokens, n_tokens * sizeof(*tokens));
    s->n_tokens = pos;
    s->session = session;
    if (s->drafter->begin) s->drafter->begin(s->drafter, session);
    return GEM_OK;
}

/* ---- one round ---- */

gem_status gem_speculator_propose(gem_speculator *s, int32_t token, int32_t max_tokens,
                                  const int32_t **rows, int32_t *n_rows, gem_error *err)
{
    const gem_model *m = s->model;
    int32_t pos = s->session ? gem_session_position(s->session) : -1, n = 0;
    *n_rows = 0;
    if (s->n_tokens != pos)
        return gem_fail(err, GEM_E_ARG, "the speculator knows %d tokens, its session holds %d",
                        s->n_tokens, pos);
    if (max_tokens < 1)
        return gem_fail(err, GEM_E_ARG, "%d tokens may be emitted, expected at least 1",
                        max_tokens);
    if (pos >= m->n_ctx)
        return gem_fail(err, GEM_E_RANGE, "1 tokens do not fit: %d of %d positions are filled", pos,
                        m->n_ctx);
    int32_t *guess = s->token + pos + 1;
    int32_t max = GEM_MIN(s->max, GEM_MIN(max_tokens, m->n_ctx - pos) - 1);
    s->token[pos] = token;
    if (max > 0) {
        uint64_t start = gem_now_ns();
        gem_status st = s->drafter->draft(s->drafter, s->token, pos + 1, max, guess, &n, err);
        s->stats.draft_ns += gem_now_ns() - start;
        if (st != GEM_OK) return st;
        assert(n >= 0 && n <= max);
    }
    for (int32_t i = 0; i < n; i++)
        if (guess[i] < 0 || guess[i] >= m->plan.n_vocab) n = i;
    s->n_rows = *n_rows = n + 1;
    *rows = s->token + pos;
    return GEM_OK;
}

gem_status gem_speculator_settle(gem_speculator *s, gem_sampler *sampler, int32_t first,
                                 int32_t *out, int32_t *n_out, gem_error *err)
{
    int32_t pos = s->n_tokens, n_guesses = s->n_rows - 1, kept = 0;
    const int32_t *guess = s->token + pos + 1;
    gem_status st = GEM_OK, trimmed;
    assert(s->n_rows > 0 && gem_session_position(s->session) == pos + s->n_rows);
    *n_out = 0;
    for (;;) {
        st = gem_row_draw(s->session->m, first + kept, sampler, &out[kept], err);
        if (st != GEM_OK) break;
        ++*n_out;
        if (gem_token_is_end(s->model, out[kept])) break;
        gem_sampler_accept(sampler, out[kept]);
        if (kept == n_guesses || out[kept] != guess[kept]) break;
        kept++;
    }
    s->stats.rounds++;
    s->stats.tokens += (uint64_t)*n_out;
    for (int32_t i = 0; i < n_guesses; i++) {
        s->stats.drafted_at[i]++;
        s->stats.accepted_at[i] += i < kept;
    }
    s->n_tokens = pos + 1 + kept;
    s->n_rows = 0;
    trimmed = gem_session_trim(s->session, s->n_tokens, st == GEM_OK ? err : NULL);
    return st == GEM_OK ? trimmed : st;
}

gem_status gem_speculate(gem_speculator *s, gem_sampler *sampler, int32_t token, int32_t max_tokens,
                         int32_t *out, int32_t *n_out, gem_error *err)
{
    uint8_t want[GEM_DRAFT_MAX + 1];
    const int32_t *rows = NULL;
    int32_t n;
    *n_out = 0;
    memset(want, gem_sampler_needs_all(sampler) ? GEM_ROW_LOGITS : GEM_ROW_DRAW, sizeof(want));
    gem_status st = gem_speculator_propose(s, token, max_tokens, &rows, &n, err);
    if (st != GEM_OK) return st;
    uint64_t start = gem_now_ns();
    st = gem_session_run(s->session, rows, (size_t)n, want, NULL, err);
    s->stats.verify_ns += gem_now_ns() - start;
    return st == GEM_OK ? gem_speculator_settle(s, sampler, 0, out, n_out, err) : st;
}

/* ---- statistics ---- */

void gem_draft_stats_subtract(gem_draft_stats *s, const gem_draft_stats *before)
{
    s->rounds -= before->rounds;
    s->tokens -= before->tokens;
    s->draft_ns -= before->draft_ns;
    s->verify_ns -= before->verify_ns;
    for (int i = 0; i < GEM_DRAFT_MAX; i++) {
        s->drafted_at[i] -= before->drafted_at[i];
        s->accepted_at[i] -= before->accepted_at[i];
    }
}

static uint64_t sum(const uint64_t *at)
{
    uint64_t n = 0;
    for (int i = 0; i < GEM_DRAFT_MAX; i++)
        n += at[i];
    return n;
}

uint64_t gem_draft_stats_drafted(const gem_draft_stats *s)
{
    return sum(s->drafted_at);
}

uint64_t gem_draft_stats_accepted(const gem_draft_stats *s)
{
    return sum(s->accepted_at);
}

static json_t *ratio(uint64_t a, uint64_t b)
{
    return b ? json_real((double)a / (double)b) : json_null();
}

static json_t *places(const uint64_t *at, int32_t max)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < max; i++)
        json_array_append_new(a, json_integer((json_int_t)at[i]));
    return a;
}

json_t *gem_draft_stats_json(const gem_draft_stats *s, const char *drafter, int32_t max)
{
    uint64_t drafted = gem_draft_stats_drafted(s), accepted = gem_draft_stats_accepted(s);
    return json_pack("{s:s, s:i, s:I, s:I, s:o, s:I, s:I, s:o, s:o, s:o, s:I, s:I}", "drafter",
                     drafter, "max", (int)max, "rounds", (json_int_t)s->rounds, "tokens",
                     (json_int_t)s->tokens, "tokens_per_round", ratio(s->tokens, s->rounds),
                     "drafted", (json_int_t)drafted, "accepted", (json_int_t)accepted, "acceptance",
                     ratio(accepted, drafted), "drafted_at", places(s->drafted_at, max),
                     "accepted_at", places(s->accepted_at, max), "draft_ns",
                     (json_int_t)s->draft_ns, "verify_ns", (json_int_t)s->verify_ns);
}
