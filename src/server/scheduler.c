/* scheduler.c - the engine thread: a bounded queue in, batches through the model, events out.
 *
 * Each turn: drop what was cancelled, take answers from the queue into free slots, put a batch
 * together (one row of every answer that generates, and prompt rows beside them, shared between the
 * prompts so that a short one is not stuck behind a long one), run it, have tokens drawn. Cancel
 * flags are read before every batch. A row's result does not depend on the others, so neither does
 * an answer. */
#include "server/sequence.h"

#include "runtime/engine.h"

#include <stdlib.h>
#include <unistd.h>

/* LONG_PROMPT: tokens whose computing is kept on disk at once, not only when the answer ends.
 * FLUSH_S: how long the end waits for files to be written.
 * BATCH_NS: what a batch may take, in steps of ROWS_STEP prompt rows. */
enum {
    MAX_ENTRIES = 64,
    LOG_EVERY = 4096,
    LONG_PROMPT = 512,
    FLUSH_S = 20,
    ROWS_STEP = 64,
    BATCH_NS = 800000000
};

typedef struct slot_view { /* what /slots shows */
    bool busy;
    char id[24];
    size_t n_prompt, n_done, n_cached, n_generated;
} slot_view;

struct gem_scheduler {
    gem_server *server;
    gem_prefix_cache *cache; /* owned */
    gem_sequence **running;  /* owned, [n_slots]; NULL: free */
    int n_slots, n_running;
    gem_row *row;  /* owned, [n_batch] */
    double row_ns; /* what a row of a large batch takes; 0: unknown */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    gem_answer *first, *last; /* waiting */
    int n_waiting, n_jobs;    /* answers waiting; jobs submitted and not ended */
    bool stop, woken;
    slot_view *view; /* owned, [n_slots] */
};

gem_status gem_scheduler_new(gem_scheduler **out, gem_server *server, gem_error *err)
{
    gem_scheduler *s = calloc(1, sizeof(*s));
    *out = s;
    if (!s) return gem_fail(err, GEM_E_NOMEM, "no memory for the scheduler");
    s->server = server;
    s->n_slots = server->n_slots;
    s->running = calloc((size_t)s->n_slots, sizeof(gem_sequence *));
    s->view = calloc((size_t)s->n_slots, sizeof(*s->view));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    if (!s->running || !s->view) return gem_fail(err, GEM_E_NOMEM, "no memory for the scheduler");
    return GEM_OK;
}

void gem_scheduler_free(gem_scheduler *s)
{
    if (!s) return;
    gem_prefix_cache_free(s->cache);
    free(s->running);
    free(s->view);
    free(s->row);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- from other threads ---- */

void gem_scheduler_wake(gem_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void gem_scheduler_stop(gem_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* Seconds until a place is likely free: what is ahead, at the mean duration so far. */
static int retry_after(gem_scheduler *s)
{
    gem_histogram *h = &s->server->metrics.duration;
    uint64_t n = 0;
    for (int i = 0; i <= GEM_BUCKETS; i++)
        n += atomic_load(&h->count[i]);
    double mean = n ? (double)atomic_load(&h->sum_ns) * 1e-9 / (double)n : 2.0;
    double t = mean / s->n_slots;
    return t < 1 ? 1 : t > 60 ? 60 : (int)t;
}

bool gem_scheduler_submit(gem_scheduler *s, gem_job *j, gem_fault *f)
{
    pthread_mutex_lock(&s->lock);
    int n_jobs = s->n_jobs;
    bool full = n_jobs >= s->n_slots + s->server->opt.n_queue;
    bool closed = s->stop || gem_server_get_state(s->server) != GEM_SERVER_READY;
    if (!full && !closed) {
        gem_job_hold(j);
        s->n_jobs++;
        j->queued_ns = gem_now_ns();
        for (size_t i = 0; i < j->n_answers; i++) {
            gem_answer *a = &j->answer[i];
            if (s->last)
                s->last->next = a;
            else
                s->first = a;
            s->last = a;
            s->n_waiting++;
        }
        atomic_store(&s->server->metrics.queued, s->n_waiting);
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (closed) {
        f->retry_after_s = 1;
        return gem_fault_set(f, 503, "unavailable_error", "shutting_down", NULL,
                             "the server is shutting down");
    }
    if (full) {
        f->retry_after_s = retry_after(s);
        return gem_fault_set(f, 429, "rate_limit_error", "queue_full", NULL,
                             "the queue is full: %d requests are running or waiting", n_jobs);
    }
    return true;
}

bool gem_scheduler_miss(gem_scheduler *s, const gem_job *j, gem_prefix_miss *out)
{
    const gem_job_prompt *p = &j->prompt[0];
    return !j->p.no_cache && gem_prefix_cache_miss(s->cache, p->tokens, p->n, out);
}

json_t *gem_scheduler_slots(gem_scheduler *s)
{
    json_t *out = json_array();
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_slots; i++) {
        const slot_view *v = &s->view[i];
        json_array_append_new(
            out, json_pack("{s:i, s:s, s:i, s:b, s:I, s:I, s:I, s:[{s:b, s:I, s:I}]}", "id", i,
                           "id_task", v->id, "n_ctx", (int)s->server->info.n_ctx, "is_processing",
                           v->busy, "n_prompt_tokens", (json_int_t)v->n_prompt,
                           "n_prompt_tokens_processed", (json_int_t)(v->n_done - v->n_cached),
                           "n_prompt_tokens_cache", (json_int_t)v->n_cached, "next_token",
                           "has_next_token", v->busy, "n_remain", (json_int_t)-1, "n_decoded",
                           (json_int_t)v->n_generated));
    }
    pthread_mutex_unlock(&s->lock);
    return out;
}

static void show(gem_scheduler *s, int slot, const gem_sequence *q)
{
    slot_view *v = &s->view[slot];
    pthread_mutex_lock(&s->lock);
    if (q) {
        *v = (slot_view){.busy = true,
                         .n_prompt = q->a->prompt->n,
                         .n_done = GEM_MIN(q->n_run, q->a->prompt->n),
                         .n_cached = q->a->n_cached,
                         .n_generated = q->a->n_generated};
        memcpy(v->id, q->job->request_id, sizeof(v->id));
    } else {
        v->busy = false;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- the end of an answer ---- */

static void end_job(gem_scheduler *s, gem_job *j)
{
    gem_cancel c = gem_job_cancelled(j);
    gem_metrics *m = &s->server->metrics;
    if (c) atomic_fetch_add(&m->cancelled[c], 1);
    if (j->p.stream && !j->fault.http && !c) {
        j->wire->close(j);
        gem_job_put_scratch(j);
    }
    gem_histogram_add(&m->duration, gem_now_ns() - j->queued_ns);
    pthread_mutex_lock(&s->lock);
    s->n_jobs--;
    pthread_mutex_unlock(&s->lock);
    gem_job_end(j);
    gem_job_release(j);
}

/* Error event and fault of a job; its other answers end when they are looked at next. */
static void fail_job(gem_job *j, const gem_fault *f)
{
    if (j->fault.http) return;
    pthread_mutex_lock(&j->lock);
    j->fault = *f;
    pthread_mutex_unlock(&j->lock);
    if (j->p.stream) {
        j->scratch.len = 0;
        j->wire->fail(j, f);
        gem_job_put_scratch(j);
    }
}

static void finish_answer(gem_scheduler *s, gem_answer *a, gem_finish why)
{
    gem_job *j = a->job;
    a->finish = why;
    a->end_ns = gem_now_ns();
    if (j->p.stream && why < GEM_FINISH_CANCELLED) {
        j->wire->finish(j, a);
        gem_job_put_scratch(j);
    }
    if (--j->n_left == 0) end_job(s, j);
}

/* Keep what the sequence has run; on disk only what is worth a file. */
static void remember(gem_scheduler *s, gem_sequence *q, bool file)
{
    gem_prefix_cache_add(s->cache, q->session, q->tokens, q->n_run);
    if (file) gem_disk_cache_save(s->server->disk, q->session, q->tokens, q->n_run);
}

static void release_slot(gem_scheduler *s, gem_sequence *q, gem_finish why)
{
    gem_answer *a = q->a;
    if (why < GEM_FINISH_CANCELLED) why = gem_sequence_end(q, why);
    if (why != GEM_FINISH_FAILED && !q->job->p.no_cache) remember(s, q, true);
    s->running[q->slot] = NULL;
    s->n_running--;
    atomic_store(&s->server->metrics.running, s->n_running);
    show(s, q->slot, NULL);
    gem_sequence_free(q);
    finish_answer(s, a, why);
}

static void cancel_fault(gem_job *j)
{
    gem_fault f = {0};
    switch (gem_job_cancelled(j)) {
    case GEM_CANCEL_ASKED:
        gem_fault_bad(&f, "request_cancelled", NULL, "the request was cancelled");
        break;
    case GEM_CANCEL_SHUTDOWN:
        gem_fault_set(&f, 503, "unavailable_error", "shutting_down", NULL,
                      "the server is shutting down");
        f.retry_after_s = 1;
        break;
    default:
        return; /* nobody listens */
    }
    fail_job(j, &f);
}

static bool over_deadline(const gem_scheduler *s, const gem_job *j)
{
    double limit = s->server->opt.request_timeout_s;
    return limit > 0 && (double)(gem_now_ns() - j->queued_ns) * 1e-9 > limit;
}

/* Ended by someone else than the model? */
static gem_finish ended(const gem_scheduler *s, gem_job *j)
{
    if (gem_job_cancelled(j)) {
        cancel_fault(j);
        return GEM_FINISH_CANCELLED;
    }
    if (j->fault.http) return GEM_FINISH_CANCELLED;
    return over_deadline(s, j) ? GEM_FINISH_LENGTH : GEM_FINISH_NONE;
}

static void drop_cancelled(gem_scheduler *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        gem_sequence *q = s->running[i];
        gem_finish why = q ? ended(s, q->job) : GEM_FINISH_NONE;
        if (why) release_slot(s, q, why);
    }
}

/* ---- from the queue ---- */

/* Answers beside the first of a prompt wait until that one's prompt is cached. */
static bool ready(const gem_answer *a)
{
    const gem_answer *lead = &a->job->answer[a->index - a->index % a->job->p.n];
    return a == lead || lead->prefilled_ns || lead->finish || a->job->p.no_cache;
}

/* The first answer that can start, or that ended while it waited; NULL: none. */
static gem_answer *take_waiting(gem_scheduler *s, bool free_slot)
{
    gem_answer *a, *before = NULL;
    pthread_mutex_lock(&s->lock);
    for (a = s->first; a; before = a, a = a->next) {
        gem_job *j = a->job;
        if (gem_job_cancelled(j) || j->fault.http || over_deadline(s, j)) break;
        if (free_slot && ready(a)) break;
    }
    if (a) {
        if (before)
            before->next = a->next;
        else
            s->first = a->next;
        if (s->last == a) s->last = before;
        a->next = NULL;
        s->n_waiting--;
    }
    int position = 0;
    const gem_job *last = NULL; /* answers of one job stand together */
    for (const gem_answer *w = s->first; w; last = w->job, w = w->next)
        if (w->job != last) atomic_store(&w->job->position, ++position);
    pthread_mutex_unlock(&s->lock);
    return a;
}

static int free_slot(const gem_scheduler *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (!s->running[i]) return i;
    return -1;
}

/* It is known how much of the prompt is held. */
static void announce(gem_scheduler *s, gem_sequence *q)
{
    gem_answer *a = q->a;
    gem_job *j = q->job;
    atomic_fetch_add(&s->server->metrics.cached_tokens, a->n_cached);
    show(s, q->slot, q);
    if (!j->p.stream || a->index != 0) return;
    gem_job_comment(j, "prefill %zu/%zu cached %zu", q->n_run, a->prompt->n, a->n_cached);
    j->wire->open(j);
    if (j->p.return_progress) j->wire->progress(j, a, q->n_run);
    gem_job_put_scratch(j);
}

static void start_answer(gem_scheduler *s, gem_answer *a, int slot)
{
    gem_job *j = a->job;
    gem_fault f = {0};
    atomic_store(&j->position, 0);
    a->start_ns = gem_now_ns();
    gem_histogram_add(&s->server->metrics.queue_wait, a->start_ns - j->queued_ns);
    gem_sequence *q = gem_sequence_new(a, s->cache, &f);
    if (!q) {
        fail_job(j, &f);
        finish_answer(s, a, GEM_FINISH_FAILED);
        return;
    }
    q->slot = slot;
    s->running[slot] = q;
    s->n_running++;
    atomic_store(&s->server->metrics.running, s->n_running);
    if (!q->fetch) announce(s, q);
}

/* Only behind the number of those that run: an answer that starts is never in neither. */
static void count_waiting(gem_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->server->metrics.queued, s->n_waiting);
    pthread_mutex_unlock(&s->lock);
}

static void admit(gem_scheduler *s)
{
    gem_answer *a;
    for (;;) {
        int slot = free_slot(s);
        if (!(a = take_waiting(s, slot >= 0))) return;
        gem_finish why = ended(s, a->job);
        if (why)
            finish_answer(s, a, why);
        else
            start_answer(s, a, slot);
        count_waiting(s);
    }
}

/* ---- one batch ---- */

static size_t pending(const gem_sequence *q)
{
    return q->fetch ? 0 : q->n_tokens - q->n_run;
}

/* Prompts whose beginning came from disk meanwhile. True: some are still being read. */
static bool look_at_fetches(gem_scheduler *s)
{
    bool reading = false;
    for (int i = 0; i < s->n_slots; i++) {
        gem_sequence *q = s->running[i];
        if (!q || !q->fetch) continue;
        if (gem_sequence_fetched(q, s->cache))
            announce(s, q);
        else
            reading = true;
    }
    return reading;
}

/* Rows it may take now: up to the next position that is remembered or logged. */
static size_t takes(const gem_sequence *q)
{
    size_t n = q->n_run < q->mark ? q->mark - q->n_run : pending(q);
    return GEM_MIN(n, LOG_EVERY - q->n_run % LOG_EVERY);
}

/* Prompt rows that a batch may have and still end in time: whoever cancels or comes next waits for
 * it. Unknown before the first one. */
static size_t timely_rows(const gem_scheduler *s, size_t n_batch)
{
    if (s->row_ns <= 0) return (size_t)s->server->opt.chunk;
    double rows = (double)BATCH_NS / s->row_ns;
    if (rows >= (double)n_batch) return n_batch;
    return GEM_MAX((size_t)rows / ROWS_STEP * ROWS_STEP, ROWS_STEP);
}

static void note_speed(gem_scheduler *s, size_t n, uint64_t took)
{
    if (n < ROWS_STEP) return; /* reading the weights counts more there */
    double ns = (double)took / (double)n;
    s->row_ns = s->row_ns > 0 ? s->row_ns + (ns - s->row_ns) / 2 : ns;
}

/* Prompt rows for those whose share ends their prompt (quick), or for all, up to `part` each.
 * Returns how many were given. */
static size_t give_rows(gem_scheduler *s, size_t room, size_t part, bool quick)
{
    size_t given = 0;
    for (int i = 0; i < s->n_slots && given < room; i++) {
        gem_sequence *q = s->running[i];
        if (!q || pending(q) <= 1 || takes(q) == q->n_rows) continue;
        if (quick && pending(q) > part) continue;
        size_t more = GEM_MIN(takes(q) - q->n_rows, GEM_MIN(part, room - given));
        q->n_rows += more;
        given += more;
    }
    return given;
}

/* How many rows each sequence gets. While others generate, and while a short prompt stands beside a
 * long one, batches are small: who waits for a token waits for one of those. Short prompts go
 * first. */
static size_t share_rows(gem_scheduler *s)
{
    size_t n = 0, n_prefill = 0, n_quick = 0, n_batch = (size_t)s->server->model->n_batch;
    size_t chunk = (size_t)s->server->opt.chunk;
    for (int i = 0; i < s->n_slots; i++) {
        gem_sequence *q = s->running[i];
        if (!q) continue;
        q->n_rows = pending(q) == 1;
        n += q->n_rows;
        n_prefill += pending(q) > 1;
        n_quick += pending(q) > 1 && pending(q) <= chunk;
    }
    if (!n_prefill) return n;
    size_t room = GEM_MIN(n_batch - n, timely_rows(s, n_batch));
    if (n || (n_quick && n_quick < n_prefill)) room = GEM_MIN(room, chunk);
    size_t given = give_rows(s, room, chunk, true);
    given += give_rows(s, room - given, GEM_MAX(room / n_prefill, 1), false);
    given += give_rows(s, room - given, room, false);
    return n + given;
}

static size_t put_rows(gem_scheduler *s)
{
    size_t n = 0;
    for (int i = 0; i < s->n_slots; i++) {
        gem_sequence *q = s->running[i];
        for (size_t k = 0; q && k < q->n_rows; k++) {
            size_t at = q->n_run + k;
            gem_row_want want = GEM_ROW_NONE;
            if (at + 1 == q->n_tokens)
                want = gem_sequence_needs_all(q) ? GEM_ROW_LOGITS : GEM_ROW_DRAW;
            s->row[n++] = (gem_row){q->session, q->tokens[at], want};
        }
    }
    return n;
}

static gem_status run_rows(gem_scheduler *s, size_t n, gem_error *err)
{
    gem_status st;
    do
        st = gem_batch_run(s->server->model, s->row, n, NULL, err);
    while (st == GEM_E_NOMEM &&
           (gem_prefix_cache_evict(s->cache) || gem_disk_cache_yield(s->server->disk)));
    return st;
}

static void note_prefill(gem_scheduler *s, gem_sequence *q)
{
    gem_job *j = q->job;
    gem_answer *a = q->a;
    size_t total = a->prompt->n, done = q->n_run;
    if (done == total || done / LOG_EVERY != q->logged / LOG_EVERY) {
        gem_log_line(s->server, "%s prefill %zu/%zu tokens (%zu%%)", j->request_id, done, total,
                     done * 100 / total);
        q->logged = done;
    }
    gem_job_comment(j, "prefill %zu/%zu cached %zu", done, total, a->n_cached);
    if (j->p.stream && j->p.return_progress && a->index == 0) {
        j->wire->progress(j, a, done);
        gem_job_put_scratch(j);
    }
    if (done == q->mark) remember(s, q, true);
    if (done < total) return;
    a->prefilled_ns = gem_now_ns();
    if (!j->p.no_cache) remember(s, q, done - a->n_cached >= LONG_PROMPT);
}

/* After a batch: rows counted, logits drawn from. */
static void deliver(gem_scheduler *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        gem_sequence *q = s->running[i];
        if (!q || !q->n_rows) continue;
        bool prefill = gem_sequence_prefilling(q);
        q->n_run += q->n_rows;
        q->n_rows = 0;
        if (prefill) note_prefill(s, q);
        gem_fault f = {0};
        gem_finish why = GEM_FINISH_NONE;
        if (pending(q) == 0) why = gem_sequence_advance(q, &f);
        if (why == GEM_FINISH_FAILED) fail_job(q->job, &f);
        if (why)
            release_slot(s, q, why);
        else
            show(s, i, q);
    }
}

/* The sessions of a failed batch may only be freed; their jobs fail. */
static void fail_batch(gem_scheduler *s, const gem_error *err)
{
    gem_fault f = {0};
    gem_fault_set(&f, 500, "server_error", "internal_error", NULL, "%s", err->text);
    for (int i = 0; i < s->n_slots; i++) {
        gem_sequence *q = s->running[i];
        if (!q || !q->n_rows) continue;
        fail_job(q->job, &f);
        release_slot(s, q, GEM_FINISH_FAILED);
    }
}

/* False: there was nothing to run. */
static bool run_batch(gem_scheduler *s)
{
    gem_metrics *m = &s->server->metrics;
    gem_error err;
    if (!share_rows(s)) return false;
    size_t n = put_rows(s), n_prompt = 0;
    for (int i = 0; i < s->n_slots; i++)
        if (s->running[i] && gem_sequence_prefilling(s->running[i]))
            n_prompt += s->running[i]->n_rows;
    uint64_t start = gem_now_ns();
    gem_status st = run_rows(s, n, &err);
    uint64_t took = gem_now_ns() - start;
    note_speed(s, n, took);
    atomic_fetch_add(n_prompt ? &m->prefill_ns : &m->decode_ns, took);
    atomic_fetch_add(&m->batches, 1);
    atomic_fetch_add(&m->batch_rows, n);
    atomic_fetch_add(&m->prompt_tokens, n_prompt);
    if (st == GEM_OK)
        deliver(s);
    else
        fail_batch(s, &err);
    return true;
}

/* ---- life ---- */

/* The next batch may be a long one. */
static bool reads_prompts(const gem_scheduler *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->running[i] && pending(s->running[i]) > 1) return true;
    return false;
}

static void count_pages(gem_scheduler *s)
{
    const gem_model *m = s->server->model;
    int64_t used = 0, all = 0;
    for (int i = 0; i < m->layout.n_pools; i++) {
        used += gem_kv_used(m->kv, i);
        all += m->layout.pool[i].n_pages;
    }
    atomic_store(&s->server->metrics.kv_used, used);
    atomic_store(&s->server->metrics.kv_pages, all);
}

/* Wait for work; false: stop. */
static bool wait_for_work(gem_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !s->n_running && !s->n_waiting && !s->woken)
        pthread_cond_wait(&s->wake, &s->lock);
    s->woken = false;
    bool go = !s->stop || s->n_running || s->n_waiting;
    pthread_mutex_unlock(&s->lock);
    return go;
}

gem_status gem_scheduler_prepare(gem_scheduler *s, gem_error *err)
{
    size_t n = (size_t)s->server->model->n_batch;
    s->cache = gem_prefix_cache_new(s->server->model, MAX_ENTRIES);
    s->row = calloc(n, sizeof(*s->row));
    if (!s->cache || !s->row)
        return gem_fail(err, GEM_E_NOMEM, "no memory for batches of %zu rows", n);
    count_pages(s);
    return s->server->disk ? gem_disk_cache_start(s->server->disk, s->server->model, err) : GEM_OK;
}

void gem_scheduler_run(gem_scheduler *s)
{
    while (wait_for_work(s)) {
        if (reads_prompts(s)) gem_watch_peers(s->server);
        drop_cancelled(s);
        admit(s);
        bool reading = look_at_fetches(s), ran = run_batch(s);
        bool more = gem_disk_cache_step(s->server->disk);
        while (more && !s->n_running)
            more = gem_disk_cache_step(s->server->disk);
        count_pages(s);
        if (reading && !ran) usleep(1000); /* the disk is all that is waited for */
    }
    gem_disk_cache_stop(s->server->disk, FLUSH_S);
    gem_prefix_cache_clear(s->cache); /* checkpoints go before the model */
}
