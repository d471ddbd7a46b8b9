/* session.c - sequences: batches of rows through the backend, and the ways back (checkpoint, trim,
 * fork). A batch is checked whole before anything changes: tokens, positions, pages.
 *
 * Recurrent models cannot be cut back at any position. A session whose tape does not reach keeps
 * the position it was asked for (n_pos), but its pages and states end at the nearest kept boundary
 * (kv.n_pos); its next batch first runs the tokens between again. Equal tokens give equal bytes, so
 * nobody can tell but by the time it takes. */
#include "runtime/engine.h"
#include "runtime/sampler.h"

#include <assert.h>
#include <stdlib.h>

gem_status gem_session_new(gem_session **out, gem_model *m, gem_error *err)
{
    *out = NULL;
    if (!m->be)
        return gem_fail(err, GEM_E_ARG, "the model was opened with vocab_only: it has no sessions");
    if (m->n_open >= m->n_sessions)
        return gem_fail(err, GEM_E_RANGE, "all %d sessions are open (option n_sessions)",
                        m->n_sessions);
    gem_session *s = calloc(1, sizeof(*s));
    if (!s) return gem_fail(err, GEM_E_NOMEM, "no memory for a session");
    gem_status st = gem_kv_seq_init(&s->kv, m->kv, err);
    if (st == GEM_OK && m->states) {
        s->past = malloc((size_t)m->n_ctx * sizeof(*s->past));
        st = s->past ? gem_state_seq_init(&s->state, m->states, false, err)
                     : gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", m->n_ctx);
    }
    if (st == GEM_OK && m->plan.draft_op) {
        s->recent = malloc((size_t)GEM_RECENT * (size_t)m->plan.d_model * sizeof(*s->recent));
        if (!s->recent) st = gem_fail(err, GEM_E_NOMEM, "no memory for hidden vectors");
    }
    if (st != GEM_OK) {
        gem_kv_seq_deinit(&s->kv);
        gem_state_seq_deinit(&s->state);
        free(s->past);
        free(s);
        return st;
    }
    s->m = m;
    if (m->states) s->tape = m->free_tape[--m->n_free_tapes];
    m->n_open++;
    *out = s;
    return GEM_OK;
}

void gem_session_free(gem_session *s)
{
    if (!s) return;
    gem_kv_seq_deinit(&s->kv);
    gem_state_seq_deinit(&s->state);
    if (s->m->states) s->m->free_tape[s->m->n_free_tapes++] = s->tape;
    s->m->n_open--;
    free(s->past);
    free(s->recent);
    free(s);
}

int32_t gem_session_position(const gem_session *s)
{
    return s->n_pos;
}

static gem_status check_alive(const gem_session *s, gem_error *err)
{
    if (!s->failed) return GEM_OK;
    return gem_fail(err, GEM_E_DEVICE,
                    "the backend failed in an earlier batch of this session: free it");
}

static gem_status check_tokens(const gem_model *m, const int32_t *tokens, size_t n, gem_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= m->plan.n_vocab)
            return gem_fail(err, GEM_E_RANGE, "token %zu is %d, the vocabulary has %d", i,
                            tokens[i], m->plan.n_vocab);
    return GEM_OK;
}

static gem_status check_room(const gem_session *s, size_t n, gem_error *err)
{
    if (n <= (size_t)(s->m->n_ctx - s->n_pos)) return GEM_OK;
    return gem_fail(err, GEM_E_RANGE, "%zu tokens do not fit: %d of %d positions are filled", n,
                    s->n_pos, s->m->n_ctx);
}

/* ---- one batch ---- */

/* Where a backend keeps logits to itself, a draw starts from the largest. */
static uint8_t wanted(const gem_model *m, const gem_row *row)
{
    if (row->want == GEM_ROW_NONE) return 0;
    return row->want == GEM_ROW_DRAW && m->ops->logits ? GEM_WANT_TOP : GEM_WANT_LOGITS;
}

/* Put the rows into the model's scratch: token, position, sequence, want. Sessions get their index
 * by first appearance and count their rows. */
static gem_status put_rows(gem_model *m, const gem_row *rows, int32_t n_rows, int32_t *n_seqs,
                           gem_error *err)
{
    int32_t n_want = 0;
    gem_status st;
    for (int32_t i = 0; i < n_rows; i++) {
        gem_session *s = rows[i].session;
        if (!s || s->m != m)
            return gem_fail(err, GEM_E_ARG, "row %d has no session of this model", i);
        if ((st = check_alive(s, err)) != GEM_OK) return st;
        if ((st = check_tokens(m, &rows[i].token, 1, err)) != GEM_OK) return st;
        if (s->n_batch == 0) {
            s->seq = (*n_seqs)++;
            m->batch[s->seq] = s;
        }
        m->token[i] = rows[i].token;
        m->pos[i] = s->n_pos + s->n_batch;
        m->seq[i] = s->seq;
        m->want[i] = wanted(m, &rows[i]);
        m->place[i] = m->want[i] ? n_want++ : -1;
        s->n_batch++;
        if ((st = check_room(s, (size_t)s->n_batch, err)) != GEM_OK) return st;
        if (s->past) s->past[m->pos[i]] = rows[i].token; /* counts once n_pos is beyond */
    }
    if (n_want > m->n_logits)
        return gem_fail(err, GEM_E_ARG, "%d rows want logits, a batch gives at most %d", n_want,
                        m->n_logits);
    /* the hidden vectors that a drafter goes on from: each, or those a session remembers */
    for (int32_t i = 0; m->plan.draft_op && i < n_rows; i++) {
        const gem_session *s = rows[i].session;
        if (m->plan.draft_appends || m->pos[i] >= s->n_pos + s->n_batch - GEM_RECENT)
            m->want[i] |= GEM_WANT_HIDDEN;
    }
    return GEM_OK;
}

/* Pages for the batch, and for what has to be run again before it. */
static gem_status check_pages(const gem_model *m, int32_t n_seqs, gem_error *err)
{
    int32_t need[GEM_KV_MAX_POOLS] = {0};
    for (int32_t i = 0; i < n_seqs; i++) {
        const gem_session *s = m->batch[i];
        gem_kv_need(&s->kv, s->n_pos - s->kv.n_pos + s->n_batch, need);
    }
    return gem_kv_check(m->kv, need, err);
}

/* Pages and states for the next n positions of s, which is sequence `seq` of the batch. */
static void take_memory(gem_session *s, int32_t n, int32_t seq)
{
    gem_model *m = s->m;
    gem_kv_append(&s->kv, n);
    for (int l = 0; l < m->plan.n_layers; l++)
        m->table[seq * m->plan.n_layers + l] = gem_kv_table(&s->kv, l);
    if (!m->states) return;
    gem_state_append(&s->state, s->kv.n_pos, n);
    m->state[seq] = s->state.run;
    m->tape[seq] = s->tape;
}

static void commit(gem_session *s, int32_t n)
{
    if (s->m->states) gem_state_commit(&s->state, s->kv.n_pos, n);
    gem_kv_commit(&s->kv, n);
}

/* ---- a drafter of the model's own ---- */

static float *recent_at(const gem_session *s, int32_t pos)
{
    return s->recent + (size_t)(pos % GEM_RECENT) * (size_t)s->m->plan.d_model;
}

/* Beside a slot of recurrent state: the hidden vector of the position before its boundary. */
static float *edge_at(const gem_model *m, int32_t slot)
{
    return m->edge + (size_t)slot * (size_t)m->plan.d_model;
}

/* The hidden vector of the position before `pos`; zeros at the start of a text, and where the
 * session does not know it any more (one without recurrent layers went back far): then guesses are
 * worse, no more. */
static void put_input(const gem_session *s, int32_t pos, float *out)
{
    size_t bytes = (size_t)s->m->plan.d_model * sizeof(*out);
    bool kept = s->m->states && pos > 0 && pos % GEM_PAGE == 0;
    if (pos > s->recent_from && pos <= s->recent_to)
        memcpy(out, recent_at(s, pos - 1), bytes);
    else if (kept && s->state.slot[pos / GEM_PAGE] >= 0)
        memcpy(out, edge_at(s->m, s->state.slot[pos / GEM_PAGE]), bytes);
    else
        memset(out, 0, bytes);
}

static void remember(gem_session *s, int32_t pos, const float *hidden)
{
    size_t bytes = (size_t)s->m->plan.d_model * sizeof(*hidden);
    memcpy(recent_at(s, pos), hidden, bytes);
    if (s->m->states && (pos + 1) % GEM_PAGE == 0)
        memcpy(edge_at(s->m, s->state.run[(pos + 1) / GEM_PAGE]), hidden, bytes);
    if (pos < s->recent_from || pos > s->recent_to) s->recent_from = pos;
    s->recent_to = pos + 1;
    s->recent_from = GEM_MAX(s->recent_from, s->recent_to - GEM_RECENT);
}

static gem_status run_batch(gem_model *m, const gem_batch *b, gem_error *err)
{
    m->n_runs++;
    return m->trace ? m->ops->run_traced(m->be, b, m->logits, m->trace, err)
                    : m->ops->run(m->be, b, m->logits, err);
}

/* One pass over a batch. A drafter with a layer of its own follows it, so that keys and values are
 * there for every position. session: by sequence of the batch. */
static gem_status forward(gem_model *m, gem_batch b, gem_session *const *session, gem_error *err)
{
    b.hidden = m->hidden;
    b.top = m->top;
    gem_status st = run_batch(m, &b, err);
    if (st != GEM_OK || !m->plan.draft_op) return st;
    for (int32_t r = 0, k = 0; r < b.n_rows; r++) {
        gem_session *s = session[b.seq[r]];
        if (!(b.want[r] & GEM_WANT_HIDDEN)) continue;
        if (m->plan.draft_appends)
            put_input(s, b.pos[r], m->input + (size_t)r * (size_t)m->plan.d_model);
        remember(s, b.pos[r], m->hidden[k++]);
    }
    if (!m->plan.draft_appends) return GEM_OK;
    b.draft = true;
    b.input = m->input;
    b.want = (const uint8_t *)m->zeros;
    return run_batch(m, &b, err);
}

gem_status gem_session_guess(gem_session *s, int32_t token, int32_t ahead, const float **logits,
                             gem_error *err)
{
    gem_model *m = s->m;
    bool appends = m->plan.draft_appends;
    int32_t pos = s->n_pos + (appends ? ahead : 0), need[GEM_KV_MAX_POOLS] = {0};
    const uint8_t want = GEM_WANT_LOGITS | GEM_WANT_HIDDEN;
    assert(m->plan.draft_op);
    if (s->kv.n_pos < s->n_pos || pos >= m->n_ctx || (!appends && pos == 0))
        return gem_fail(err, GEM_E_RANGE, "no guess at position %d", pos);
    if (appends) {
        gem_kv_need(&s->kv, ahead + 1, need);
        gem_status room = gem_kv_check(m->kv, need, err);
        if (room != GEM_OK) return room;
        gem_kv_append(&s->kv, ahead + 1);
    }
    for (int l = 0; l < m->plan.n_layers; l++)
        m->table[l] = gem_kv_table(&s->kv, l);
    if (ahead == 0) put_input(s, pos, m->input);
    const gem_batch b = {.n_rows = 1,
                         .token = &token,
                         .pos = &pos,
                         .seq = m->zeros,
                         .want = &want,
                         .n_seqs = 1,
                         .table = m->table,
                         .draft = true,
                         .input = m->input,
                         .hidden = m->hidden};
    m->n_runs++;
    gem_status st = m->ops->run(m->be, &b, logits, err);
    if (st == GEM_OK)
        memcpy(m->input, m->hidden[0], (size_t)m->plan.d_model * sizeof(*m->input));
    else
        s->failed = true;
    return st;
}

void gem_session_guess_end(gem_session *s)
{
    gem_status st = gem_kv_trim(&s->kv, s->kv.n_pos, NULL); /* pages that were taken ahead */
    assert(st == GEM_OK);
    (void)st;
}

/* Run the next piece of the tokens between the pages' end and the session's position again. */
static gem_status run_again(gem_session *s, gem_error *err)
{
    gem_model *m = s->m;
    int32_t n = GEM_MIN(s->n_pos - s->kv.n_pos, m->n_batch), need[GEM_KV_MAX_POOLS] = {0};
    gem_kv_need(&s->kv, n, need);
    gem_status st = gem_kv_check(m->kv, need, err);
    if (st != GEM_OK) return st;
    for (int32_t i = 0; i < n; i++)
        m->again_pos[i] = s->kv.n_pos + i;
    take_memory(s, n, 0);
    const gem_batch b = {.n_rows = n,
                         .token = s->past + s->kv.n_pos,
                         .pos = m->again_pos,
                         .seq = m->zeros,
                         .want = m->want_hidden ? m->want_hidden : (const uint8_t *)m->zeros,
                         .n_seqs = 1,
                         .table = m->table,
                         .state = m->state,
                         .tape = m->tape};
    st = forward(m, b, &s, err);
    if (st == GEM_OK)
        commit(s, n);
    else
        s->failed = true;
    return st;
}

gem_status gem_batch_run(gem_model *m, const gem_row *rows, size_t n_rows, const float **logits_out,
                         gem_error *err)
{
    int32_t n_seqs = 0, n = (int32_t)n_rows;
    if (!m->be || n_rows == 0 || n_rows > (size_t)m->n_batch)
        return gem_fail(err, GEM_E_ARG, "a batch of %zu rows, expected 1 to %d", n_rows,
                        m->n_batch);

    gem_status st = put_rows(m, rows, n, &n_seqs, err);
    if (st == GEM_OK) st = check_pages(m, n_seqs, err);
    for (int32_t i = 0; i < n_seqs; i++)
        while (st == GEM_OK && m->batch[i]->kv.n_pos < m->batch[i]->n_pos)
            st = run_again(m->batch[i], err);
    if (st == GEM_OK) {
        const gem_batch b = {.n_rows = n,
                             .token = m->token,
                             .pos = m->pos,
                             .seq = m->seq,
                             .want = m->want,
                             .n_seqs = n_seqs,
                             .table = m->table,
                             .state = m->state,
                             .tape = m->tape};
        for (int32_t i = 0; i < n_seqs; i++)
            take_memory(m->batch[i], m->batch[i]->n_batch, i);
        st = forward(m, b, m->batch, err);
    }
    for (int32_t i = 0; i < n_seqs; i++) {
        gem_session *s = m->batch[i];
        if (st == GEM_OK) {
            commit(s, s->n_batch);
            s->n_pos += s->n_batch;
        }
        if (st == GEM_E_DEVICE) s->failed = true;
        s->n_batch = 0;
    }
    if (st != GEM_OK) return st;
    for (int32_t i = 0; i < n; i++) {
        if (logits_out)
            logits_out[i] = rows[i].want == GEM_ROW_LOGITS ? m->logits[m->place[i]] : NULL;
        if (m->place[i] < 0) continue;
        rows[i].session->run = m->n_runs;
        rows[i].session->place = m->place[i];
    }
    return GEM_OK;
}

/* ---- logits of the last batch ---- */

static gem_status logits_at(gem_model *m, int32_t place, gem_error *err)
{
    return m->logits[place] ? GEM_OK : m->ops->logits(m->be, place, &m->logits[place], err);
}

static gem_status draw_at(gem_model *m, int32_t place, gem_sampler *sampler, int32_t *token,
                          gem_error *err)
{
    if (!m->logits[place] && !gem_sampler_needs_all(sampler))
        return gem_sampler_draw_top(sampler, m->top[place], token, err);
    gem_status st = logits_at(m, place, err);
    return st == GEM_OK ? gem_sampler_draw(sampler, m->logits[place], token, err) : st;
}

static gem_status check_run(const gem_session *s, gem_error *err)
{
    if (s->run && s->run == s->m->n_runs) return GEM_OK;
    return gem_fail(err, GEM_E_RANGE,
                    "no logits of this session are there: it asked for none in the last batch");
}

gem_status gem_row_draw(gem_model *m, int32_t i, gem_sampler *sampler, int32_t *token,
                        gem_error *err)
{
    assert(m->place[i] >= 0);
    return draw_at(m, m->place[i], sampler, token, err);
}

gem_status gem_session_draw(const gem_session *s, gem_sampler *sampler, int32_t *token,
                            gem_error *err)
{
    gem_status st = check_run(s, err);
    return st == GEM_OK ? draw_at(s->m, s->place, sampler, token, err) : st;
}

gem_status gem_session_logits(const gem_session *s, const float **logits, gem_error *err)
{
    gem_status st = check_run(s, err);
    if (st == GEM_OK) st = logits_at(s->m, s->place, err);
    *logits = st == GEM_OK ? s->m->logits[s->place] : NULL;
    return st;
}

/* ---- one session ---- */

gem_status gem_session_run(gem_session *s, const int32_t *tokens, size_t n_tokens,
                           const uint8_t *want, const float **logits_out, gem_error *err)
{
    gem_model *m = s->m;
    if (n_tokens == 0 || n_tokens > (size_t)m->n_batch)
        return gem_fail(err, GEM_E_ARG, "a batch of %zu rows, expected 1 to %d", n_tokens,
                        m->n_batch);
    for (size_t i = 0; i < n_tokens; i++) {
        gem_row_want last = i + 1 == n_tokens ? GEM_ROW_LOGITS : GEM_ROW_NONE;
        m->row[i] = (gem_row){s, tokens[i], want ? (gem_row_want)want[i] : last};
    }
    return gem_batch_run(m, m->row, n_tokens, logits_out, err);
}

gem_status gem_session_prefill(gem_session *s, const int32_t *tokens, size_t n_tokens,
                               gem_prefill_fn progress, void *user, const float **logits,
                               gem_error *err)
{
    gem_model *m = s->m;
    gem_status st;
    if (logits) *logits = NULL;
    if (n_tokens == 0) return gem_fail(err, GEM_E_ARG, "a prompt of 0 tokens");
    if ((st = check_alive(s, err)) != GEM_OK) return st;
    if ((st = check_tokens(m, tokens, n_tokens, err)) != GEM_OK) return st;
    if ((st = check_room(s, n_tokens, err)) != GEM_OK) return st;

    while (s->kv.n_pos < s->n_pos) {
        if ((st = run_again(s, err)) != GEM_OK) return st;
        if (progress && !progress(user, 0, n_tokens))
            return gem_fail(err, GEM_E_CANCELLED, "cancelled before the first of %zu tokens",
                            n_tokens);
    }
    for (size_t done = 0; done < n_tokens;) {
        size_t n = GEM_MIN(n_tokens - done, (size_t)m->n_batch);
        bool last = done + n == n_tokens;
        for (size_t i = 0; i < n; i++) {
            gem_row_want want = logits ? GEM_ROW_LOGITS : GEM_ROW_DRAW;
            m->row[i] = (gem_row){s, tokens[done + i], last && i + 1 == n ? want : GEM_ROW_NONE};
        }
        if ((st = gem_batch_run(m, m->row, n, m->row_logits, err)) != GEM_OK) return st;
        done += n;
        if (last && logits) *logits = m->row_logits[n - 1];
        if (progress && !progress(user, done, n_tokens) && !last)
            return gem_fail(err, GEM_E_CANCELLED, "cancelled after %zu of %zu tokens", done,
                            n_tokens);
    }
    return GEM_OK;
}

gem_status gem_session_decode(gem_session *s, int32_t token, const float **logits, gem_error *err)
{
    return gem_session_prefill(s, &token, 1, NULL, NULL, logits, err);
}

gem_status gem_session_seed(gem_session *s, int32_t position, uint64_t seed, gem_error *err)
{
    gem_model *m = s->m;
    gem_status st;
    if (m->states)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "a seeded past is not offered for models with recurrent layers");
    if (!m->ops->seed_kv)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %s cannot seed its KV cache",
                        m->ops->name);
    if (s->n_pos != 0)
        return gem_fail(err, GEM_E_ARG, "only a fresh session can be given a seeded past");
    if (position > 0 && (st = check_room(s, (size_t)position, err)) != GEM_OK) return st;
    while (s->n_pos <
           position) { /* as prefill does, so that windowed layers drop what they would */
        int32_t n = GEM_MIN(position - s->n_pos, m->n_batch), need[GEM_KV_MAX_POOLS] = {0};
        gem_kv_need(&s->kv, n, need);
        if ((st = gem_kv_check(m->kv, need, err)) != GEM_OK) return st;
        gem_kv_append(&s->kv, n);
        gem_kv_commit(&s->kv, n);
        s->n_pos += n;
    }
    return m->ops->seed_kv(m->be, seed, err);
}

/* ---- the ways back ---- */

/* The session is at s->n_pos: cut pages and states back to where its next batch can start. */
void gem_session_settle(gem_session *s)
{
    int32_t pos = s->n_pos;
    if (s->m->states) {
        if (!gem_state_covers(&s->state, pos) || s->kv.n_pos < pos)
            pos = gem_state_base(&s->state, pos);
        gem_state_cut(&s->state, pos);
    }
    gem_status st = gem_kv_trim(&s->kv, pos, NULL);
    assert(st == GEM_OK); /* no layer of a recurrent model has a window */
    (void)st;
}

gem_status gem_session_checkpoint(const gem_session *s, gem_checkpoint **out, gem_error *err)
{
    gem_status st = check_alive(s, err);
    *out = NULL;
    if (st != GEM_OK) return st;
    gem_checkpoint *c = calloc(1, sizeof(*c));
    if (!c) return gem_fail(err, GEM_E_NOMEM, "no memory for a checkpoint");
    if ((st = gem_kv_seq_init(&c->kv, s->m->kv, err)) != GEM_OK) goto done;
    gem_kv_seq_copy(&c->kv, &s->kv);
    c->m = s->m;
    c->n_pos = s->n_pos;
    if (s->m->states) {
        if ((st = gem_state_seq_init(&c->state, s->m->states, true, err)) != GEM_OK) goto done;
        gem_state_seq_copy(&c->state, &s->state);
        size_t n = (size_t)GEM_MAX(s->n_pos, 1);
        if (!(c->past = malloc(n * sizeof(*c->past)))) {
            st = gem_fail(err, GEM_E_NOMEM, "no memory for %zu tokens", n);
            goto done;
        }
        memcpy(c->past, s->past, (size_t)s->n_pos * sizeof(*c->past));
    }
    *out = c;
    c = NULL;
done:
    gem_checkpoint_free(c);
    return st;
}

/* The session holds what the checkpoint names, and its tape reaches there: no token is run again.
 */
static bool still_holds(const gem_session *s, const gem_checkpoint *c)
{
    return c->n_pos <= s->kv.n_pos && gem_state_covers(&s->state, c->n_pos) &&
           memcmp(s->past, c->past, (size_t)c->n_pos * sizeof(*s->past)) == 0;
}

gem_status gem_session_rollback(gem_session *s, const gem_checkpoint *c, gem_error *err)
{
    gem_status st = check_alive(s, err);
    if (st != GEM_OK) return st;
    if (c->m != s->m) return gem_fail(err, GEM_E_ARG, "the checkpoint belongs to another model");
    if (!s->m->states) {
        gem_kv_seq_copy(&s->kv, &c->kv);
        s->recent_from = s->recent_to = 0; /* perhaps of another text */
    } else if (!still_holds(s, c)) {
        gem_kv_seq_copy(&s->kv, &c->kv);
        gem_state_seq_copy(&s->state, &c->state);
        memcpy(s->past, c->past, (size_t)c->n_pos * sizeof(*s->past));
        s->recent_from = s->recent_to = 0;
    }
    s->n_pos = c->n_pos;
    if (s->m->states) gem_session_settle(s);
    return GEM_OK;
}

void gem_checkpoint_free(gem_checkpoint *c)
{
    if (!c) return;
    gem_kv_seq_deinit(&c->kv);
    gem_state_seq_deinit(&c->state);
    free(c->past);
    free(c);
}

gem_status gem_session_trim(gem_session *s, int32_t position, gem_error *err)
{
    gem_status st = check_alive(s, err);
    if (st != GEM_OK) return st;
    if (!s->m->states) {
        if ((st = gem_kv_trim(&s->kv, position, err)) != GEM_OK) return st;
    } else if (position < 0 || position > s->n_pos) {
        return gem_fail(err, GEM_E_RANGE, "cannot trim to position %d: %d are filled", position,
                        s->n_pos);
    }
    s->n_pos = position;
    if (s->m->states && position < s->kv.n_pos) gem_session_settle(s);
    return GEM_OK;
}

gem_status gem_session_fork(gem_session **out, const gem_session *s, gem_error *err)
{
    gem_status st = check_alive(s, err);
    *out = NULL;
    if (st != GEM_OK) return st;
    gem_session *f;
    if ((st = gem_session_new(&f, s->m, err)) != GEM_OK) return st;
    gem_kv_seq_copy(&f->kv, &s->kv);
    f->n_pos = s->n_pos;
    if (s->m->states) {
        gem_state_seq_copy(&f->state, &s->state);
        memcpy(f->past, s->past, (size_t)s->n_pos * sizeof(*f->past));
        gem_session_settle(f); /* the tape stays with s */
    }
    *out = f;
    return GEM_OK;
}
