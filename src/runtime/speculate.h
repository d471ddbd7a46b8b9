/* speculate.h - speculative decoding: a drafter guesses the next tokens, the target model runs them
 * in one batch with the token they follow, and the sampler decides row by row as if it had been
 * alone. Guesses it agrees with are kept, its first other choice too, the rest is trimmed away.
 * Knows sessions and samplers; drafters know how to guess. Used by the programs of src/cmd and by
 * the server. docs/speculative.md.
 *
 * The result is that of plain decoding, token for token, with sampling as well: one draw for each
 * token that is emitted, from the same logits (a row's bits do not depend on its batch) and in the
 * same order. What a drafter does changes the speed alone. */
#ifndef GEM_SPECULATE_H
#define GEM_SPECULATE_H

#include "runtime/engine.h"

enum { GEM_DRAFT_MAX = 8 }; /* a round is at most one row more; GEM_ROLLBACK covers it */

/* Makes guesses. A new one fills in this table in front of its own fields. */
typedef struct gem_drafter gem_drafter;
struct gem_drafter {
    const char *name; /* "ngram", "model", "own": as in records */
    /* tokens  int32[n_tokens], the whole sequence; all but the last have been run by the target
     * out     at most max guesses of what follows; *n_out may be 0
     * errors  as running a model; a drafter that has no guess is no error */
    gem_status (*draft)(gem_drafter *d, const int32_t *tokens, int32_t n_tokens, int32_t max,
                        int32_t *out, int32_t *n_out, gem_error *err);
    void (*free)(gem_drafter *d);
    /* The session that the next drafts are for; NULL: the drafter needs none. */
    void (*begin)(gem_drafter *d, gem_session *s);
};
void gem_drafter_free(gem_drafter *d); /* may be NULL */

/* Prompt lookup: the longest run of tokens (2 to 8) that ends the sequence and has occurred before,
 * the latest one of equals; guesses that what followed then follows now, as many tokens as matched.
 * No model, no memory of its own. source: github.com/apoorvumang/prompt-lookup-decoding */
gem_status gem_drafter_ngram(gem_drafter **out, gem_error *err);
/* Greedy choices of another model, which must have the target's vocabulary (GEM_E_ARG names the
 * first difference) and a free session. Both are borrowed for the drafter's life. */
gem_status gem_drafter_model(gem_drafter **out, gem_model *draft, const gem_model *target,
                             gem_error *err);

/* The drafter made for the target (Qwen's block that predicts ahead, MTP; Gemma 4's assistant):
 * greedy choices from the hidden vector of the last position, each guess from the one before. The
 * target must have been opened with the option drafter or drafter_path (GEM_E_ARG). */
gem_status gem_drafter_own(gem_drafter **out, const gem_model *target, gem_error *err);

typedef struct gem_draft_stats {
    uint64_t rounds, tokens;             /* tokens: emitted by rounds; n/rounds a round */
    uint64_t drafted_at[GEM_DRAFT_MAX];  /* rounds with a guess at this place */
    uint64_t accepted_at[GEM_DRAFT_MAX]; /* and how many of them were kept */
    uint64_t draft_ns, verify_ns;
} gem_draft_stats;
/* Leave what was counted since `before`, an earlier copy. */
void gem_draft_stats_subtract(gem_draft_stats *s, const gem_draft_stats *before);
uint64_t gem_draft_stats_drafted(const gem_draft_stats *s);
uint64_t gem_draft_stats_accepted(const gem_draft_stats *s);
/* {"drafter", "max", "rounds", "tokens", "tokens_per_round", "drafted", "accepted",
 * "acceptance", "drafted_at", "accepted_at", "draft_ns", "verify_ns"}; new reference. */
struct json_t *gem_draft_stats_json(const gem_draft_stats *s, const char *drafter, int32_t max);

/* Speculation on one session at a time. Both are borrowed for the speculator's life. max: guesses
 * a round, 1 to GEM_DRAFT_MAX (else GEM_E_ARG). */
typedef struct gem_speculator gem_speculator;
gem_status gem_speculator_new(gem_speculator **out, const gem_model *m, gem_drafter *d, int32_t max,
                              gem_error *err);
void gem_speculator_free(gem_speculator *s);
const gem_draft_stats *gem_speculator_stats(const gem_speculator *s);
/* Take up a session (borrowed until the next begin) and what it holds, in order: after each
 * prefill, trim or rollback that was not this speculator's. n_tokens must be the session's position
 * (GEM_E_ARG). */
gem_status gem_speculator_begin(gem_speculator *s, gem_session *session, const int32_t *tokens,
                                size_t n_tokens, gem_error *err);

/* One round. token was drawn last and has not been run.
 * max_tokens  how many may be emitted, >= 1
 * out         int32[GEM_DRAFT_MAX + 1]: the tokens emitted, each drawn and, but for an end token,
 *             accepted by the sampler; an end token ends the round. The last one has not been run;
 *             the session holds `token` and all before it.
 * errors      GEM_E_RANGE  no position is left, or logits that cannot be drawn from; what was
 *             emitted before that stands. As gem_batch_run otherwise. Allocates nothing. */
gem_status gem_speculate(gem_speculator *s, gem_sampler *sampler, int32_t token, int32_t max_tokens,
                         int32_t *out, int32_t *n_out, gem_error *err);

/* The same in two halves, for rows that travel with those of other sessions: the rows to run (the
 * first is `token`; every row wants logits or a draw), then the draws. first: where the first of
 * them stood in the batch, after which nothing else may have run. */
gem_status gem_speculator_propose(gem_speculator *s, int32_t token, int32_t max_tokens,
                                  const int32_t **rows, int32_t *n_rows, gem_error *err);
gem_status gem_speculator_settle(gem_speculator *s, gem_sampler *sampler, int32_t first,
                                 int32_t *out, int32_t *n_out, gem_error *err);

#endif
