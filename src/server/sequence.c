/* sequence.c - one answer: from logits to delivered text. */
#include "server/sequence.h"

#include "server/messages.h"
#include "server/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* At least the tokens that open an answer. A history may go on differently from there, and where a
 * session cannot be cut back to any position, one before them is remembered. */
enum { OPENER = 12 };

static bool no_memory(gem_fault *f)
{
    return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
}

static void report_prefix(gem_sequence *q)
{
    gem_server *s = q->job->server;
    atomic_fetch_add(&s->metrics.prefix_queries, 1);
    if (!q->n_run) return;
    atomic_fetch_add(&s->metrics.prefix_hits, 1);
    gem_log_line(s, "%s prefix hit: reused %zu tokens, appended %zu tokens", q->job->request_id,
                 q->n_run, q->a->prompt->n - q->n_run);
}

static void on_event(void *user, const gem_chat_event *e);

static bool open_hold(gem_sequence *q)
{
    const gem_dialogue *d = q->job->dialogue;
    if (!d || !d->rules || (!d->rules->format && !d->rules->calls)) return true;
    q->hold = gem_hold_new(d->rules, q->job->server->model, &q->job->server->order);
    return q->hold != NULL;
}

/* Who reads the answer: the conversation's parser, or nobody. */
static gem_status open_reader(gem_sequence *q, gem_error *err)
{
    gem_job *j = q->job;
    const gem_dialogue *d = j->dialogue;
    if (!d) return gem_detokenizer_new(&q->text, j->server->model, false, err);
    const gem_chat_parser_options o = {.fn = on_event, .user = q, .whole_calls = !j->p.stream};
    const gem_conversation *c = d->tools == GEM_TOOLS_NONE ? NULL : d->conversation;
    return gem_chat_parser_new(&q->parser, j->server->model, c, d->prompt, &o, err);
}

/* The session holds n_reused tokens of the prompt: go on from there. */
static void begin_at(gem_sequence *q, const gem_prefix_cache *cache, size_t n_reused)
{
    size_t n = q->a->prompt->n;
    q->n_run = q->logged = q->a->n_cached = n_reused;
    report_prefix(q);
    if (!gem_prefix_cache_trims(cache) && n > OPENER + n_reused) q->mark = n - OPENER;
}

/* More of the prompt is on disk than in memory. False: it cannot be had, and the session holds what
 * memory has. */
static bool begin_fetch(gem_sequence *q, gem_prefix_cache *cache, size_t *n_reused)
{
    gem_disk_cache *disk = q->job->server->disk;
    const gem_job_prompt *p = q->a->prompt;
    gem_error err;
    gem_status st = gem_session_trim(q->session, 0, &err);
    if (st != GEM_OK) return false;
    do
        q->fetch = gem_disk_cache_fetch(disk, q->session, p->tokens, p->n, &st);
    while (!q->fetch && st == GEM_E_NOMEM &&
           (gem_prefix_cache_evict(cache) || gem_disk_cache_yield(disk)));
    if (!q->fetch) *n_reused = gem_prefix_cache_find(cache, q->session, p->tokens, p->n);
    return q->fetch != NULL;
}

static bool start(gem_sequence *q, gem_prefix_cache *cache, gem_fault *f)
{
    gem_job *j = q->job;
    gem_server *s = j->server;
    const gem_job_prompt *p = q->a->prompt;
    gem_error err;
    gem_sampler_options so = j->p.sampler;
    so.seed += (uint64_t)(q->a->index % j->p.n);
    q->tokens = malloc((p->n + (size_t)q->a->limit + 1) * sizeof(*q->tokens));
    if (!q->tokens) return no_memory(f);
    memcpy(q->tokens, p->tokens, p->n * sizeof(*q->tokens));
    q->n_tokens = p->n;
    if (gem_sampler_new(&q->sampler, s->info.n_vocab, &so, &err) != GEM_OK ||
        open_reader(q, &err) != GEM_OK || gem_session_new(&q->session, s->model, &err) != GEM_OK)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "%s", err.text);
    if (!open_hold(q)) return no_memory(f);
    if (so.repetition_penalty != 1.0f)
        for (size_t i = 0; i < p->n; i++)
            gem_sampler_accept(q->sampler, p->tokens[i]);
    if (j->p.no_cache) return true;
    size_t n_reused = gem_prefix_cache_find(cache, q->session, p->tokens, p->n);
    if (gem_disk_cache_match(s->disk, p->tokens, p->n) > n_reused &&
        begin_fetch(q, cache, &n_reused))
        return true;
    begin_at(q, cache, n_reused);
    return true;
}

bool gem_sequence_fetched(gem_sequence *q, gem_prefix_cache *cache)
{
    const gem_job_prompt *p = q->a->prompt;
    gem_disk_state at = gem_disk_fetch_poll(q->fetch);
    if (at == GEM_DISK_RUNNING) return false;
    gem_disk_fetch_free(q->fetch);
    q->fetch = NULL;
    begin_at(q, cache,
             at == GEM_DISK_DONE ? (size_t)gem_session_position(q->session)
                                 : gem_prefix_cache_find(cache, q->session, p->tokens, p->n));
    return true;
}

gem_sequence *gem_sequence_new(gem_answer *a, gem_prefix_cache *cache, gem_fault *f)
{
    gem_sequence *q = calloc(1, sizeof(*q));
    if (!q) {
        no_memory(f);
        return NULL;
    }
    q->a = a;
    q->job = a->job;
    q->stop.stop = (const char *const *)a->job->p.stop;
    q->stop.n = a->job->p.n_stop;
    a->seq = q;
    if (start(q, cache, f)) return q;
    gem_sequence_free(q);
    return NULL;
}

void gem_sequence_free(gem_sequence *q)
{
    if (!q) return;
    q->a->seq = NULL;
    gem_disk_fetch_free(q->fetch);
    gem_session_free(q->session);
    gem_sampler_free(q->sampler);
    gem_chat_parser_free(q->parser);
    gem_detokenizer_free(q->text);
    gem_hold_free(q->hold);
    gem_stop_match_deinit(&q->stop);
    gem_bytes_free(&q->piece);
    free(q->tokens);
    free(q);
}

bool gem_sequence_prefilling(const gem_sequence *q)
{
    return q->n_run < q->a->prompt->n;
}

/* ---- log probabilities: of the model's own distribution, before bias, penalties and cuts ---- */

static bool grow_logprobs(gem_answer *a)
{
    if (a->n_logprobs < a->cap_logprobs) return true;
    size_t cap = a->cap_logprobs ? 2 * a->cap_logprobs : 32;
    gem_logprob *p = realloc(a->logprob, cap * sizeof(*p));
    if (!p) return false;
    a->logprob = p;
    a->cap_logprobs = cap;
    return true;
}

/* The n_top largest in order; ties by id. */
static void put_top(gem_logprob *lp, int n_top, const float *logits, int32_t n_vocab, double norm)
{
    for (int32_t i = 0; i < n_vocab && n_top > 0; i++) {
        if (lp->n_top == n_top && !(logits[i] > lp->top[n_top - 1].logprob)) continue;
        int at = lp->n_top < n_top ? lp->n_top++ : n_top - 1;
        for (; at > 0 && lp->top[at - 1].logprob < logits[i]; at--)
            lp->top[at] = lp->top[at - 1];
        lp->top[at].token = i;
        lp->top[at].logprob = logits[i];
    }
    for (int i = 0; i < lp->n_top; i++)
        lp->top[i].logprob = (float)GEM_MIN((double)lp->top[i].logprob - norm, 0.0);
}

static void put_logprob(gem_sequence *q, const float *logits, int32_t token)
{
    gem_answer *a = q->a;
    int32_t n = q->job->server->info.n_vocab;
    double max = -INFINITY, sum = 0;
    if (!grow_logprobs(a)) return;
    for (int32_t i = 0; i < n; i++)
        max = GEM_MAX(max, (double)logits[i]);
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    double norm = max + log(sum);
    gem_logprob *lp = &a->logprob[a->n_logprobs++];
    memset(lp, 0, sizeof(*lp));
    lp->token = token;
    lp->start = a->n_text;
    lp->logprob = (float)GEM_MAX(GEM_MIN((double)logits[token] - norm, 0.0), -9999.0);
    put_top(lp, q->job->p.n_top, logits, n, norm);
    for (int i = 0; i < lp->n_top; i++)
        lp->top[i].logprob = GEM_MAX(lp->top[i].logprob, -9999.0f);
}

/* ---- text ---- */

static void release(gem_sequence *q)
{
    gem_answer *a = q->a;
    if (!q->piece.len) return;
    size_t first = a->n_sent;
    gem_bytes_put(&a->content, q->piece.data, q->piece.len);
    while (a->n_sent < a->n_logprobs && a->logprob[a->n_sent].start < a->content.len)
        a->n_sent++;
    if (q->job->p.stream) {
        q->job->wire->text(q->job, a, q->piece.data, q->piece.len, first);
        gem_job_put_scratch(q->job);
    }
    q->piece.len = 0;
}

static void put_content(gem_sequence *q, const char *text, size_t len)
{
    if (q->stopped) return;
    q->a->n_text += len;
    q->stopped = gem_stop_match_push(&q->stop, text, len, &q->piece);
    if (q->stopped) q->a->stop_hit = q->stop.hit;
    release(q);
}

static void put_reasoning(gem_sequence *q, const char *text, size_t len)
{
    q->thought = true;
    gem_bytes_put(&q->a->reasoning, text, len);
    if (!q->job->p.stream) return;
    q->job->wire->reasoning(q->job, q->a, text, len);
    gem_job_put_scratch(q->job);
}

static void begin_call(gem_sequence *q, const gem_chat_event *e)
{
    gem_answer *a = q->a;
    gem_call *grown = realloc(a->call, (a->n_calls + 1) * sizeof(*grown));
    if (!grown) return;
    a->call = grown;
    gem_call *c = &a->call[a->n_calls];
    memset(c, 0, sizeof(*c));
    snprintf(c->id, sizeof(c->id), "%s", e->id);
    gem_bytes_put(&c->name, e->name, strlen(e->name));
    a->n_calls++;
    gem_stop_match_finish(&q->stop, &q->piece); /* what was held cannot become a stop any more */
    release(q);
    if (!q->job->p.stream) return;
    q->job->wire->call(q->job, a, a->n_calls - 1);
    gem_job_put_scratch(q->job);
}

static void put_arguments(gem_sequence *q, const gem_chat_event *e)
{
    gem_answer *a = q->a;
    if (e->call < 0 || (size_t)e->call >= a->n_calls) return;
    gem_bytes_put(&a->call[e->call].arguments, e->text, e->len);
    if (!q->job->p.stream) return;
    q->job->wire->arguments(q->job, a, (size_t)e->call, e->text, e->len);
    gem_job_put_scratch(q->job);
}

/* From the parser, while a token is pushed or the answer ends. */
static void on_event(void *user, const gem_chat_event *e)
{
    gem_sequence *q = user;
    switch (e->type) {
    case GEM_EVENT_CONTENT:
        put_content(q, e->text, e->len);
        break;
    case GEM_EVENT_REASONING:
        put_reasoning(q, e->text, e->len);
        break;
    case GEM_EVENT_CALL_BEGIN:
        begin_call(q, e);
        break;
    case GEM_EVENT_CALL_ARGUMENTS:
        put_arguments(q, e);
        break;
    case GEM_EVENT_CALL_END:
        q->one_call = !q->job->dialogue->parallel;
        break;
    case GEM_EVENT_CALL_BROKEN: /* a call that cannot be read is text; one that began stays cut */
        gem_log_line(q->job->server, "%s broken tool call: %s", q->job->request_id, e->reason);
        if (e->call < 0) put_content(q, e->text, e->len);
        break;
    case GEM_EVENT_FINISH:
        if (!strcmp(e->reason, "tool_calls")) q->a->finish = GEM_FINISH_TOOLS;
        break;
    }
}

static void digest_tokens(gem_sequence *q)
{
    gem_sha256 *h = gem_sha256_new();
    if (!h) return;
    for (size_t i = 0; i < q->n_tokens; i++) {
        uint32_t id = (uint32_t)q->tokens[i];
        uint8_t b[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16), (uint8_t)(id >> 24)};
        gem_sha256_update(h, b, sizeof(b));
    }
    gem_sha256_finish(h, q->a->tokens_sha256);
}

/* Did the model call in its own syntax? A call written otherwise is better shown to it in that one:
 * small models that see their bare JSON again go on calling for ever. */
static bool wrote_tag(const gem_sequence *q)
{
    const gem_hold_rules *r = q->job->dialogue->rules;
    for (size_t i = q->a->prompt->n; r && r->calls && i < q->n_tokens; i++)
        if (q->tokens[i] == r->open_tag) return true;
    return false;
}

gem_finish gem_sequence_end(gem_sequence *q, gem_finish why)
{
    gem_error err;
    if (q->job->p.receipt) digest_tokens(q);
    if (q->parser && gem_chat_parser_finish(q->parser, why == GEM_FINISH_LENGTH, &err) != GEM_OK)
        gem_log_line(q->job->server, "%s %s", q->job->request_id, err.text);
    if (!q->stopped) gem_stop_match_finish(&q->stop, &q->piece);
    release(q);
    if (q->a->finish != GEM_FINISH_TOOLS || why != GEM_FINISH_STOP) return why;
    size_t n = q->a->prompt->n;
    if (!q->job->p.no_cache && wrote_tag(q))
        gem_replay_add(q->job->server->replay, q->job->server->model, q->a, q->tokens + n,
                       q->n_tokens - n);
    return GEM_FINISH_TOOLS;
}

static void note_first(gem_sequence *q)
{
    gem_answer *a = q->a;
    gem_metrics *m = &q->job->server->metrics;
    uint64_t now = gem_now_ns();
    if (!a->first_ns) {
        a->first_ns = now;
        gem_histogram_add(&m->first_token, now - q->job->queued_ns);
    } else {
        gem_histogram_add(&m->inter_token, now - a->last_ns);
    }
    a->last_ns = now;
}

/* The token's text, to whoever reads the answer. */
static bool read_token(gem_sequence *q, int32_t token, bool end, gem_fault *f)
{
    size_t len;
    gem_error err;
    q->thought = false;
    if (q->parser) {
        if (gem_chat_parser_push(q->parser, token, &err) != GEM_OK)
            return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "%s", err.text);
        q->a->n_reasoning += q->thought;
        return true;
    }
    if (end) return true;
    const char *text = gem_detokenizer_push(q->text, token, &len);
    put_content(q, text, len);
    return true;
}

bool gem_sequence_needs_all(const gem_sequence *q)
{
    return q->job->p.logprobs || (q->hold && gem_hold_holds(q->hold)) ||
           gem_sampler_needs_all(q->sampler);
}

gem_finish gem_sequence_advance(gem_sequence *q, gem_fault *f)
{
    gem_answer *a = q->a;
    gem_server *s = q->job->server;
    const float *logits = NULL;
    int32_t token;
    gem_error err;
    gem_status st = GEM_OK;
    if (a->limit == 0) return GEM_FINISH_LENGTH;
    if (gem_sequence_needs_all(q)) st = gem_session_logits(q->session, &logits, &err);
    if (st == GEM_OK)
        st = q->hold && gem_hold_holds(q->hold)
                 ? gem_hold_draw(q->hold, q->sampler, logits, &token, &err)
                 : gem_session_draw(q->session, q->sampler, &token, &err);
    if (st != GEM_OK) {
        gem_fault_set(f, 500, "server_error", "internal_error", NULL, "%s", err.text);
        return GEM_FINISH_FAILED;
    }
    a->n_generated++;
    atomic_fetch_add(&s->metrics.generated_tokens, 1);
    note_first(q);
    bool end = gem_token_is_end(s->model, token);
    if (!end) {
        gem_sampler_accept(q->sampler, token);
        if (q->job->p.logprobs) put_logprob(q, logits, token);
        q->tokens[q->n_tokens++] = token;
    }
    if (!read_token(q, token, end, f)) return GEM_FINISH_FAILED;
    if (q->hold) {
        gem_hold_take(q->hold, token, q->parser ? gem_chat_parser_pending_tool(q->parser) : NULL);
        if (q->parser && gem_hold_certain(q->hold)) gem_chat_parser_commit_call(q->parser);
    }
    if (end || q->stopped || q->one_call || (q->hold && gem_hold_ended(q->hold)) ||
        (q->parser && gem_chat_parser_ended(q->parser)))
        return GEM_FINISH_STOP;
    return a->n_generated >= (size_t)a->limit ? GEM_FINISH_LENGTH : GEM_FINISH_NONE;
}
