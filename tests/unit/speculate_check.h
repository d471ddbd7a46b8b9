/* speculate_check.h - speculative decoding beside plain decoding: the same tokens, the same
 * positions, and logits behind both that are equal bit for bit. */
#ifndef GEM_SPECULATE_CHECK_H
#define GEM_SPECULATE_CHECK_H

#include "runtime/speculate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { CHECK_TOKENS = 400 };

/* What plain decoding gives behind a prompt. */
typedef struct plain_run {
    const int32_t *prompt;
    int32_t n_prompt, n;
    int32_t token[CHECK_TOKENS];
    float *last; /* owned, f32[n_vocab] behind the last token that was run */
} plain_run;

static inline gem_session *check_session(gem_model *m, const int32_t *prompt, int32_t n,
                                         const float **x)
{
    gem_session *s;
    gem_error err = {0};
    if (gem_session_new(&s, m, &err) != GEM_OK) fail_msg("%s", err.text);
    if (gem_session_prefill(s, prompt, (size_t)n, NULL, NULL, x, &err) != GEM_OK)
        fail_msg("%s", err.text);
    return s;
}

static inline gem_sampler *check_sampler(const gem_model *m, const gem_sampler_options *so,
                                         const int32_t *prompt, int32_t n)
{
    gem_sampler *sampler;
    assert_int_equal(gem_sampler_new(&sampler, m->plan.n_vocab, so, NULL), GEM_OK);
    for (int32_t i = 0; i < n; i++)
        gem_sampler_accept(sampler, prompt[i]);
    return sampler;
}

/* Draw up to max tokens one by one; an end token ends it. */
static inline void check_plain(plain_run *p, gem_model *m, const gem_sampler_options *so,
                               const int32_t *prompt, int32_t n_prompt, int32_t max)
{
    const float *x;
    gem_error err = {0};
    gem_session *s = check_session(m, prompt, n_prompt, &x);
    gem_sampler *sampler = check_sampler(m, so, prompt, n_prompt);
    *p = (plain_run){.prompt = prompt, .n_prompt = n_prompt};
    p->last = malloc((size_t)m->plan.n_vocab * sizeof(*p->last));
    for (;;) {
        int32_t *token = &p->token[p->n++];
        memcpy(p->last, x, (size_t)m->plan.n_vocab * sizeof(*x));
        assert_int_equal(gem_sampler_draw(sampler, x, token, &err), GEM_OK);
        if (gem_token_is_end(m, *token) || p->n == max) break;
        gem_sampler_accept(sampler, *token);
        if (gem_session_decode(s, *token, &x, &err) != GEM_OK) fail_msg("%s", err.text);
    }
    gem_sampler_free(sampler);
    gem_session_free(s);
}

/* The same by rounds of up to `drafts` guesses of d. */
static inline gem_draft_stats check_speculation(const plain_run *p, gem_model *m,
                                                const gem_sampler_options *so, gem_drafter *d,
                                                int32_t drafts, const char *what)
{
    const float *x;
    gem_error err = {0};
    gem_session *s = check_session(m, p->prompt, p->n_prompt, &x);
    gem_sampler *sampler = check_sampler(m, so, p->prompt, p->n_prompt);
    gem_speculator *sp;
    int32_t token, n = 1;
    size_t bytes = (size_t)m->plan.n_vocab * sizeof(*x);
    if (gem_speculator_new(&sp, m, d, drafts, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal(gem_speculator_begin(sp, s, p->prompt, (size_t)p->n_prompt, &err), GEM_OK);
    assert_int_equal(gem_sampler_draw(sampler, x, &token, &err), GEM_OK);
    assert_int_equal(token, p->token[0]);
    if (!gem_token_is_end(m, token)) gem_sampler_accept(sampler, token);
    while (n < p->n) {
        int32_t out[GEM_DRAFT_MAX + 1], n_out, before = n;
        if (gem_speculate(sp, sampler, token, p->n - n, out, &n_out, &err) != GEM_OK)
            fail_msg("%s: %s", what, err.text);
        assert_in_range(n_out, 1, GEM_MIN(drafts + 1, p->n - n));
        for (int32_t i = 0; i < n_out; i++)
            if (out[i] != p->token[n++])
                fail_msg("%s: token %d is %d, plain decoding gives %d", what, n - 1, out[i],
                         p->token[n - 1]);
        token = out[n_out - 1];
        /* the session holds what plain decoding holds: the token before the round, and what it
         * emitted but the last */
        assert_int_equal(gem_session_position(s), p->n_prompt + before + n_out - 1);
    }
    gem_draft_stats stats = *gem_speculator_stats(sp);
    assert_int_equal(stats.tokens, p->n - 1);
    /* once more from behind the last token that was run */
    if (p->n > 1) {
        assert_int_equal(gem_session_trim(s, p->n_prompt + p->n - 2, &err), GEM_OK);
        assert_int_equal(gem_session_decode(s, p->token[p->n - 2], &x, &err), GEM_OK);
        if (memcmp(x, p->last, bytes) != 0) fail_msg("%s: other logits at the end", what);
    }
    gem_speculator_free(sp);
    gem_sampler_free(sampler);
    gem_session_free(s);
    return stats;
}

/* A drafter that knows the answer: `right` guesses from it, then wrong ones. */
typedef struct knowing_drafter {
    gem_drafter base;
    const plain_run *plain;
    int32_t right, n_vocab;
} knowing_drafter;

static inline gem_status knowing_draft(gem_drafter *base, const int32_t *tokens, int32_t n_tokens,
                                       int32_t max, int32_t *out, int32_t *n_out, gem_error *err)
{
    const knowing_drafter *d = (knowing_drafter *)base;
    int32_t at = n_tokens - d->plain->n_prompt;
    (void)err;
    assert_int_equal(tokens[n_tokens - 1], d->plain->token[at - 1]);
    for (int32_t i = 0; i < max; i++) {
        int32_t next = at + i < d->plain->n ? d->plain->token[at + i] : 0;
        out[i] = i < d->right ? next : (next + 1 + i) % d->n_vocab;
    }
    *n_out = max;
    return GEM_OK;
}

static inline void knowing_free(gem_drafter *base)
{
    (void)base;
}

/* Every acceptance length, 0 to GEM_DRAFT_MAX, for every number of drafts. */
static inline void check_acceptance_lengths(const plain_run *p, gem_model *m,
                                            const gem_sampler_options *so, int32_t step)
{
    for (int32_t drafts = GEM_DRAFT_MAX; drafts >= 1; drafts -= step)
        for (int32_t right = 0; right <= drafts; right++) {
            char what[64];
            snprintf(what, sizeof(what), "%d of %d drafts right", right, drafts);
            knowing_drafter d = {
                {"knowing", knowing_draft, knowing_free, NULL}, p, right, m->plan.n_vocab};
            gem_draft_stats s = check_speculation(p, m, so, &d.base, drafts, what);
            assert_int_equal(s.rounds, (p->n - 1 + right) / (right + 1)); /* exactly so many kept */
            for (int32_t i = 0; i < drafts; i++)
                assert_true(i < right ? s.accepted_at[i] > 0 || s.drafted_at[i] == 0
                                      : s.accepted_at[i] == 0);
        }
}

#endif
