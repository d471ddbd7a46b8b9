/* soak_acts.c - one scenario of the soak: a first prompt and six acts, drawn by a generator that
 * starts from the scenario's number and sees nothing else. */
#include "soak.h"

#include "runtime/image.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ACTS = 6,
    LONGEST = 3000, /* prompt */
    PIECE = 40      /* most prompt rows beside rows of other sessions */
};

bool soak_failed(soak *k, const char *fmt, ...)
{
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "soak_cuda: round %llu, scenario %d, step %zu: %s\n",
            (unsigned long long)k->rounds + 1, k->now, k->step, text);
    if (++k->failures >= MOST_FAILURES) k->fatal = true;
    return false;
}

bool soak_done(soak *k, gem_status st)
{
    if (st == GEM_OK) return true;
    k->fatal = true;
    return soak_failed(k, "%s (%s)", k->err.text, gem_status_name(st));
}

/* Every step is one to one, so that a single changed value cannot get lost. */
uint64_t soak_digest(const gem_model *m, const float *x, int32_t *best)
{
    uint64_t h = 0;
    uint32_t bits;
    *best = 0;
    for (int32_t i = 0; i < m->plan.n_vocab; i++) {
        memcpy(&bits, &x[i], sizeof(bits));
        h = (h ^ bits) * 0x9E3779B97F4A7C15u;
        h = h << 23 | h >> 41;
        if (x[i] > x[*best]) *best = i;
    }
    return h;
}

/* The scenario's next row of logits: the first time kept, later compared. */
static bool note(soak *k, const char *what, const float *x, int32_t *next)
{
    history *p = &k->past[k->now];
    const uint64_t h = k->bits = soak_digest(k->m, x, next);
    if (!p->whole) {
        uint64_t *more = realloc(p->step, (p->n + 1) * sizeof(*more));
        if (!more)
            return soak_done(k, gem_fail(&k->err, GEM_E_NOMEM, "no memory for %zu digests", p->n));
        p->step = more;
        p->step[p->n++] = h;
    } else if (k->step >= p->n || p->step[k->step] != h) {
        return soak_failed(k, "changed bits in %s: digest %016llx, at first %016llx", what,
                           (unsigned long long)h,
                           (unsigned long long)(k->step < p->n ? p->step[k->step] : 0));
    } else {
        k->unchanged++;
    }
    k->step++;
    return true;
}

/* ---- draws ---- */

static int32_t below(soak *k, int32_t n)
{
    return (int32_t)(gem_splitmix64(&k->random) % (uint64_t)n);
}

/* Of a prompt: few rows, and one more than the few rows' kernels take; around borders of pages, of
 * tiles; anything. */
static int32_t length(soak *k, int32_t most)
{
    int32_t tile = k->m->n_batch, n = 1 + below(k, LONGEST);
    switch (below(k, 5)) {
    case 0:
        n = 1 + below(k, 9);
        break;
    case 1:
        n = GEM_PAGE * (1 + below(k, 4)) + below(k, 3) - 1;
        break;
    case 2:
        n = tile * (1 + below(k, 3)) + below(k, 3) - 1;
        break;
    default:
        break;
    }
    return GEM_MAX(1, GEM_MIN(n, GEM_MIN(most, k->m->n_ctx - 256)));
}

const int32_t *soak_prompt(soak *k, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        k->prompt[i] = below(k, k->m->plan.n_vocab);
    return k->prompt;
}

/* ---- steps ---- */

static bool feed(soak *k, int i, const int32_t *tokens, int32_t n, const char *what)
{
    const float *x;
    k->prefilled += (uint64_t)n;
    return soak_done(k, gem_session_prefill(k->s[i], tokens, (size_t)n, NULL, NULL, &x, &k->err)) &&
           note(k, what, x, &k->next[i]);
}

static bool decode(soak *k, int i, int32_t token, const char *what)
{
    const float *x;
    k->decoded++;
    return soak_done(k, gem_session_decode(k->s[i], token, &x, &k->err)) &&
           note(k, what, x, &k->next[i]);
}

static bool decode_many(soak *k, int i, int32_t n, const char *what)
{
    while (n-- > 0)
        if (!decode(k, i, k->next[i], what)) return false;
    return true;
}

static void drop(soak *k, int i)
{
    gem_session_free(k->s[i]);
    k->s[i] = NULL;
}

static bool checkpoint(soak *k)
{
    gem_checkpoint_free(k->c);
    return soak_done(k, gem_session_checkpoint(k->s[0], &k->c, &k->err));
}

static bool rollback(soak *k)
{
    k->rollbacks++;
    return soak_done(k, gem_session_rollback(k->s[0], k->c, &k->err));
}

static bool start_over(soak *k)
{
    drop(k, 0);
    return soak_done(k, gem_session_new(&k->s[0], k->m, &k->err));
}

/* Room for n positions and what the next acts decode; else from the start, behind a few tokens. */
static bool ready(soak *k, int32_t n)
{
    if (gem_session_position(k->s[0]) + n + 64 <= k->m->n_ctx) return true;
    int32_t few = 1 + below(k, 64);
    return start_over(k) && feed(k, 0, soak_prompt(k, few), few, "a prompt from the start");
}

/* ---- acts ---- */

static bool prefill(soak *k)
{
    int32_t n = length(k, LONGEST);
    return ready(k, n) && feed(k, 0, soak_prompt(k, n), n, "a prompt") &&
           decode_many(k, 0, 1 + below(k, 8), "decode behind a prompt");
}

static bool alone(soak *k)
{
    return ready(k, 0) && decode_many(k, 0, 8 + below(k, 25), "decode");
}

/* Up to 12 positions back, by checkpoint or cut, and the same tokens again, as rows of their own or
 * few at once, as a checked draft: the bits are those of the first time, in every route. */
static bool replay(soak *k)
{
    int32_t n = 1 + below(k, GEM_ROLLBACK - 1), piece = 1 + below(k, COMPANY), tokens[GEM_ROLLBACK];
    uint64_t want[GEM_ROLLBACK];
    const float *x[COMPANY];
    static const uint8_t all[COMPANY] = {1, 1, 1, 1, 1, 1, 1, 1};
    bool cut = below(k, 2);
    if (!ready(k, n) || !checkpoint(k)) return false;
    int32_t at = gem_session_position(k->s[0]);
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = k->next[0];
        if (!decode(k, 0, tokens[i], "decode behind a checkpoint")) return false;
        want[i] = k->bits;
    }
    if (cut) k->rollbacks++;
    if (cut ? !soak_done(k, gem_session_trim(k->s[0], at, &k->err)) : !rollback(k)) return false;
    for (int32_t i = 0; i < n; i++) {
        if (i % piece == 0 &&
            !soak_done(k, gem_session_run(k->s[0], tokens + i, (size_t)GEM_MIN(piece, n - i), all,
                                          x, &k->err)))
            return false;
        k->decoded++;
        if (!note(k, "the same rows again", x[i % piece], &k->next[0])) return false;
        if (k->bits != want[i])
            return soak_failed(k, "position %d %s, %d rows at once: digest %016llx, before %016llx",
                               at + i, cut ? "cut back" : "rolled back", piece,
                               (unsigned long long)k->bits, (unsigned long long)want[i]);
    }
    return true;
}

/* Back over a prompt: to its start by a checkpoint, or into it where windows still reach. */
static bool far_back(soak *k)
{
    int32_t n = length(k, LONGEST), to = 1 + below(k, n);
    if (!ready(k, n) || !checkpoint(k)) return false;
    to += gem_session_position(k->s[0]);
    if (!feed(k, 0, soak_prompt(k, n), n, "a prompt behind a checkpoint")) return false;
    if (below(k, 2)) {
        gem_status st = gem_session_trim(k->s[0], to, &k->err);
        k->rollbacks += st == GEM_OK;
        /* out of range: windows have moved on, and the session is where it was */
        if (st != GEM_E_RANGE && !soak_done(k, st)) return false;
    } else if (!rollback(k)) {
        return false;
    }
    return decode_many(k, 0, 1 + below(k, 6), "decode from far back");
}

/* 2 to 8 sessions a batch, forks and strangers; for one step, a piece of a prompt beside them. */
static bool company(soak *k)
{
    int n = 2 + below(k, COMPANY - 1), steps = 4 + below(k, 12), mixed = below(k, 2 * steps);
    gem_row row[COMPANY + PIECE];
    const float *x[COMPANY + PIECE];
    bool ok = ready(k, steps + PIECE);
    for (int i = 1; i < n && ok; i++) {
        int32_t len = 1 + below(k, 200);
        k->next[i] = below(k, k->m->plan.n_vocab);
        k->forks += len % 2;
        ok = len % 2 ? soak_done(k, gem_session_fork(&k->s[i], k->s[0], &k->err))
                     : soak_done(k, gem_session_new(&k->s[i], k->m, &k->err)) &&
                           feed(k, i, soak_prompt(k, len), len, "a short prompt");
    }
    for (int t = 0; t < steps && ok; t++) {
        size_t rows = 0;
        int32_t whose[COMPANY + PIECE];
        for (int i = 0; i < n; i++) {
            int32_t more = t == mixed && i == n / 2 ? 1 + below(k, PIECE) : 0;
            for (int32_t r = 0; r <= more; r++) {
                whose[rows] = i;
                row[rows++] =
                    (gem_row){k->s[i], r ? below(k, k->m->plan.n_vocab) : k->next[i], r == more};
            }
        }
        ok = soak_done(k, gem_batch_run(k->m, row, rows, x, &k->err));
        for (size_t r = 0; r < rows && ok; r++) {
            k->decoded += row[r].want != GEM_ROW_NONE;
            k->prefilled += row[r].want == GEM_ROW_NONE;
            if (x[r]) ok = note(k, "a batch of sessions", x[r], &k->next[whose[r]]);
        }
    }
    for (int i = 1; i < n; i++)
        drop(k, i);
    return ok;
}

static bool until_left(void *user, size_t n_done, size_t n_total)
{
    soak *k = user;
    (void)n_total;
    return n_done == 0 || --k->left > 0;
}

/* A prompt, and again from where it began, stopped at a border of tiles. Then on with its rest,
 * which ends in the same bits; or with something else. */
static bool cancel(soak *k)
{
    int32_t tile = k->m->n_batch, n = tile * (1 + below(k, 3)) + 1 + below(k, tile);
    n = GEM_MIN(n, k->m->n_ctx - 256);
    int32_t tiles = (n + tile - 1) / tile, left = tiles > 1 ? 1 + below(k, tiles - 1) : 1;
    bool from_start = below(k, 2), finish = below(k, 2);
    const float *x;
    if (from_start ? !start_over(k) : !ready(k, n)) return false;
    if (!checkpoint(k) || !feed(k, 0, soak_prompt(k, n), n, "a prompt to be cancelled"))
        return false;
    int32_t at = gem_session_position(k->s[0]) - n;
    uint64_t want = k->bits;
    if (!rollback(k)) return false;
    if (tiles == 1) return true;
    k->left = left;
    gem_status st = gem_session_prefill(k->s[0], k->prompt, (size_t)n, until_left, k, &x, &k->err);
    k->cancels++;
    k->prefilled += (uint64_t)(left * tile);
    if (st != GEM_E_CANCELLED || gem_session_position(k->s[0]) != at + left * tile)
        return soak_failed(k, "a prompt cancelled after %d of %d tiles: %s, at position %d of %d",
                           left, tiles, gem_status_name(st), gem_session_position(k->s[0]) - at, n);
    if (!finish) return decode_many(k, 0, 1 + below(k, 6), "decode behind a cancelled prompt");
    if (!feed(k, 0, k->prompt + left * tile, n - left * tile, "the rest of a cancelled prompt"))
        return false;
    /* a hybrid's start may have been run again in other pieces */
    if (k->bits == want || (k->m->states && at > 0)) return true;
    return soak_failed(
        k, "cancelled after %d of %d tiles and finished: digest %016llx, at once %016llx", left,
        tiles, (unsigned long long)k->bits, (unsigned long long)want);
}

/* What a checkpoint holds, by way of the host into a session of its own. */
static bool copy_image(soak *k, gem_image_part *part, size_t n)
{
    bool ok = true;
    int32_t n_pos = gem_image_positions(k->c);
    gem_session *to = k->s[1];
    if (!soak_done(k, gem_image_take(to, n_pos, k->c->kv.first, &k->err))) return false;
    for (size_t i = 0; i < n && ok; i++) {
        void *bytes = malloc(part[i].bytes);
        ok = bytes && gem_image_read(k->c, &part[i], bytes);
        if (!ok)
            k->fatal = true,
            soak_failed(k, "an image's part of %zu bytes was not read", part[i].bytes);
        else if (part[i].layer < 0)
            gem_image_put_state(to, part[i].index, bytes);
        else
            gem_image_write(k->m, part[i].layer, gem_image_place(to, part[i].layer, part[i].index),
                            bytes);
        free(bytes);
    }
    if (ok) gem_image_commit(to, k->c->past);
    k->images += ok;
    return ok;
}

static bool image(soak *k)
{
    if (!gem_image_offered(k->m)) return true;
    if (gem_session_position(k->s[0]) > 700) { /* pages of a large model are gigabytes */
        int32_t n = length(k, 600);
        if (!start_over(k) || !feed(k, 0, soak_prompt(k, n), n, "a prompt for an image"))
            return false;
    }
    if (!ready(k, 8) || !decode_many(k, 0, 1, "decode before an image") || !checkpoint(k) ||
        !soak_done(k, gem_session_new(&k->s[1], k->m, &k->err)))
        return false;
    size_t n = gem_image_pages(k->c, 0, NULL);
    gem_image_part *part = malloc((n + GEM_IMAGE_STATES) * sizeof(*part));
    if (!part) return soak_done(k, gem_fail(&k->err, GEM_E_NOMEM, "no memory for %zu parts", n));
    gem_image_pages(k->c, 0, part);
    bool ok = copy_image(k, part, n + gem_image_states(k->c, 0, part + n));
    free(part);
    for (int32_t t = 0; t < 4 && ok; t++) {
        int32_t token = k->next[0];
        ok = decode(k, 0, token, "decode beside an image");
        uint64_t want = k->bits;
        ok = ok && decode(k, 1, token, "decode behind an image");
        if (ok && k->bits != want && !k->m->states) /* a hybrid's may have run again */
            ok = soak_failed(k, "token %d behind an image: digest %016llx, in the original %016llx",
                             t, (unsigned long long)k->bits, (unsigned long long)want);
    }
    drop(k, 1);
    return ok;
}

static bool (*const act[])(soak *k) = {prefill, alone, replay, far_back, company, cancel, image};

bool soak_scenario(soak *k, int i)
{
    k->now = i;
    k->step = 0;
    k->random = (uint64_t)i + 1;
    int32_t n = length(k, LONGEST);
    bool ok = start_over(k) && feed(k, 0, soak_prompt(k, n), n, "the first prompt");
    for (int a = 0; a < ACTS && ok; a++)
        ok = act[a ? below(k, ARRAY_LEN(act)) : i % (int)ARRAY_LEN(act)](k);
    if (ok) k->past[i].whole = true;
    if (!k->past[i].whole) k->past[i].n = 0;
    return ok;
}
