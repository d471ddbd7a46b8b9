/* draft_ngram.c - prompt lookup: what followed the same tokens before. Text that repeats its source
 * (edits, summaries, code) is guessed well, other text not at all, and nothing is lost but the
 * search: one pass over the token ids. */
#include "runtime/speculate.h"

#include <stdlib.h>

enum { SHORTEST = 2, LONGEST = GEM_DRAFT_MAX };

/* How many tokens before `a` and before `b` are equal, up to LONGEST; a < b. */
static int32_t match(const int32_t *tokens, int32_t a, int32_t b)
{
    int32_t n = 0;
    while (n < LONGEST && n < a && tokens[a - 1 - n] == tokens[b - 1 - n])
        n++;
    return n;
}

static gem_status draft(gem_drafter *d, const int32_t *tokens, int32_t n_tokens, int32_t max,
                        int32_t *out, int32_t *n_out, gem_error *err)
{
    int32_t best = 0, at = 0;
    (void)d;
    (void)err;
    for (int32_t i = n_tokens - 1; i >= SHORTEST && best < LONGEST; i--) {
        if (tokens[i - 1] != tokens[n_tokens - 1]) continue;
        int32_t n = match(tokens, i, n_tokens);
        if (n > best) {
            best = n;
            at = i;
        }
    }
    *n_out = 0;
    if (best < SHORTEST) return GEM_OK;
    /* the guess may run into what it guessed: a period goes on */
    for (int32_t i = 0; i < GEM_MIN(max, best); i++)
        out[(*n_out)++] = at + i < n_tokens ? tokens[at + i] : out[at + i - n_tokens];
    return GEM_OK;
}

static void free_ngram(gem_drafter *d)
{
    free(d);
}

gem_status gem_drafter_ngram(gem_drafter **out, gem_error *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out) return gem_fail(err, GEM_E_NOMEM, "no memory for a drafter");
    **out = (gem_drafter){"ngram", draft, free_ngram, NULL};
    return GEM_OK;
}
