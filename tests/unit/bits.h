/* bits.h - runs of a model whose logits are compared bit for bit: whatever the tiles, threads,
 * batch mates and ways back, a row's logits are the same bytes. Rows are compared by a 64-bit hash.
 */
#ifndef GEM_TEST_BITS_H
#define GEM_TEST_BITS_H

#include "runtime/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* FNV-1a over words, in four streams: a vocabulary is long and the chain of products slow. */
static inline uint64_t bits_hash(const float *x, int32_t n)
{
    enum { STREAMS = 4 };
    uint64_t h[STREAMS] = {14695981039346656037u, 1, 2, 3};
    for (int32_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, &x[i], sizeof(b));
        h[i % STREAMS] = (h[i % STREAMS] ^ b) * 1099511628211u;
    }
    for (int k = 1; k < STREAMS; k++)
        h[0] = (h[0] ^ h[k]) * 1099511628211u;
    return h[0];
}

static inline gem_model *bits_open(const char *path, gem_model_options o, int32_t n_logits)
{
    gem_model *m;
    gem_error err = {0};
    const gem_engine_options e = {.n_logits = n_logits, .ops = gem_backend_find(NULL)};
    if (gem_model_open_engine(&m, path, &o, &e, &err) != GEM_OK) fail_msg("%s", err.text);
    return m;
}

static inline gem_session *bits_session(gem_model *m)
{
    gem_session *s;
    gem_error err = {0};
    if (gem_session_new(&s, m, &err) != GEM_OK) fail_msg("%s", err.text);
    return s;
}

/* Run tokens[0..n) in pieces of the sizes given (repeated) and put the hash of every row into out.
 */
static inline void bits_run(gem_session *s, const int32_t *tokens, int32_t n, const int32_t *pieces,
                            int n_pieces, uint64_t *out)
{
    gem_error err = {0};
    int32_t cap = s->m->n_batch;
    uint8_t *want = malloc((size_t)cap);
    const float **x = malloc((size_t)cap * sizeof(*x));
    memset(want, 1, (size_t)cap);
    for (int32_t done = 0, p = 0; done < n; p++) {
        int32_t len = GEM_MIN(pieces[p % n_pieces], n - done);
        if (gem_session_run(s, tokens + done, (size_t)len, want, x, &err) != GEM_OK)
            fail_msg("%s", err.text);
        for (int32_t i = 0; i < len; i++) {
            for (int32_t k = 0; k < s->m->plan.n_vocab; k++)
                if (!isfinite(x[i][k]))
                    fail_msg("row %d: logit %d is %g", done + i, k, (double)x[i][k]);
            out[done + i] = bits_hash(x[i], s->m->plan.n_vocab);
        }
        done += len;
    }
    free(want);
    free(x);
}

static inline void bits_compare(const char *what, const uint64_t *a, const uint64_t *b, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (a[i] != b[i]) fail_msg("%s: the logits of row %d differ", what, i);
}

/* The same rows in one batch, in odd pieces, one by one, and with 1 to max_threads threads. */
static inline void bits_check_tiles_and_threads(const char *path, gem_model_options o,
                                                const int32_t *tokens, int32_t n, int max_threads,
                                                const uint64_t *base)
{
    static const int32_t odd[] = {1, 7, 31, 64, 3, 100, 2, 33}, one[] = {1}, all[] = {1 << 20};
    uint64_t *got = malloc((size_t)n * sizeof(*got));
    for (int threads = 1; threads <= max_threads; threads++) {
        o.n_batch = n;
        o.n_threads = threads;
        o.n_sessions = 1;
        gem_model *m = bits_open(path, o, n);
        const struct {
            const char *what;
            const int32_t *pieces;
            int n_pieces;
        } ways[] = {{"one batch", all, 1},
                    {"odd pieces", odd, (int)ARRAY_LEN(odd)},
                    {"one by one", one, 1}};
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            if (w == 2 && threads > 2) continue;
            char what[64];
            gem_session *s = bits_session(m);
            bits_run(s, tokens, n, ways[w].pieces, ways[w].n_pieces, got);
            snprintf(what, sizeof(what), "%s, %d threads", ways[w].what, threads);
            bits_compare(what, base, got, n);
            gem_session_free(s);
        }
        gem_model_close(m);
    }
    free(got);
}

/* Rollback, trim, fork and prefix reuse: equal to never having gone elsewhere. */
static inline void bits_check_ways_back(gem_model *m, const int32_t *tokens, int32_t n,
                                        const uint64_t *base)
{
    static const int32_t pieces[] = {29, 1, 64};
    uint64_t *got = malloc((size_t)n * sizeof(*got));
    int32_t *wrong = malloc((size_t)n * sizeof(*wrong));
    gem_session *s = bits_session(m), *f;
    gem_checkpoint *c;
    gem_error err = {0};
    int32_t mark = n / 2 + 5, detour = GEM_MIN(90, n - mark);
    for (int32_t i = 0; i < n; i++)
        wrong[i] = tokens[n - 1 - i];

    bits_run(s, tokens, mark, pieces, 3, got);
    assert_int_equal(gem_session_checkpoint(s, &c, &err), GEM_OK);
    bits_run(s, wrong, detour, pieces, 3, got + mark);
    assert_int_equal(gem_session_rollback(s, c, &err), GEM_OK);
    bits_run(s, tokens + mark, n - mark, pieces, 3, got + mark);
    bits_compare("rollback", base, got, n);

    assert_int_equal(gem_session_rollback(s, c, &err),
                     GEM_OK); /* a second time, then a fork goes astray */
    assert_int_equal(gem_session_fork(&f, s, &err), GEM_OK);
    bits_run(f, wrong, detour, pieces, 3, got + mark);
    bits_run(s, tokens + mark, n - mark, pieces, 3, got + mark);
    bits_compare("beside a fork", base, got, n);
    gem_session_free(f);
    gem_checkpoint_free(c);

    for (int32_t back = 3; back <= GEM_ROLLBACK; back += GEM_ROLLBACK - 3) {
        if (gem_session_trim(s, n - back, &err) != GEM_OK) fail_msg("%s", err.text);
        bits_run(s, tokens + n - back, back, pieces, 3, got);
        bits_compare("trim", base + n - back, got, back);
    }
    /* farther, each time for a few rows: a recurrent model runs some again, a window may refuse */
    const int32_t far[] = {n - 70, n / 2 + 3, 65, 64, 2, 0};
    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        int32_t rows = GEM_MIN(7, n - far[i]);
        if (far[i] < 0 || far[i] > gem_session_position(s)) continue;
        if (gem_session_trim(s, far[i], &err) != GEM_OK) {
            assert_int_equal(err.status, GEM_E_RANGE);
            continue;
        }
        bits_run(s, tokens + far[i], rows, pieces, 3, got);
        bits_compare("far trim", base + far[i], got, rows);
    }
    gem_session_free(s);
    free(got);
    free(wrong);
}

/* Rows of three sessions in one batch, each at its own place in the text. */
static inline void bits_check_batch_mates(gem_model *m, const int32_t *tokens, int32_t n,
                                          const uint64_t *base)
{
    enum { N = 3, ROWS = 12 };
    gem_session *s[N];
    uint32_t z = 77;
    for (int i = 0; i < N; i++)
        s[i] = bits_session(m);
    for (;;) {
        gem_row rows[ROWS];
        const float *x[ROWS];
        int32_t at[ROWS], pos[N], n_rows = 0;
        gem_error err = {0};
        for (int i = 0; i < N; i++)
            pos[i] = gem_session_position(s[i]);
        for (int r = 0; r < ROWS; r++) {
            z = z * 1664525u + 1013904223u;
            int i = (int)(z >> 24) % 7; /* the first session gets most rows */
            i = i < N ? i : 0;
            if (pos[i] == n) continue;
            rows[n_rows] = (gem_row){s[i], tokens[pos[i]], true};
            at[n_rows++] = pos[i]++;
        }
        if (n_rows == 0) break;
        if (gem_batch_run(m, rows, (size_t)n_rows, x, &err) != GEM_OK) fail_msg("%s", err.text);
        for (int32_t r = 0; r < n_rows; r++)
            if (bits_hash(x[r], m->plan.n_vocab) != base[at[r]])
                fail_msg("batch mates: row %d differs", at[r]);
        if (pos[0] == n) break;
    }
    for (int i = 0; i < N; i++)
        gem_session_free(s[i]);
}

#endif
