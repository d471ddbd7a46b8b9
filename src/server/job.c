/* job.c - a job's life: references, cancellation, and the buffer between engine and client. */
#include "server/messages.h"
#include "server/serve.h"

#include <stdio.h>
#include <stdlib.h>

const char *gem_cancel_name(gem_cancel c)
{
    static const char *const name[] = {"", "client_gone", "slow_client", "asked", "shutdown"};
    return name[c];
}

void gem_params_deinit(gem_params *p)
{
    free(p->bias);
    for (size_t i = 0; i < p->n_stop; i++)
        free(p->stop[i]);
    free(p->stop);
    memset(p, 0, sizeof(*p));
}

gem_job *gem_job_new(gem_server *s, const gem_wire *w, gem_params *p, gem_job_prompt *prompt,
                     size_t n_prompts)
{
    gem_job *j = calloc(1, sizeof(*j));
    size_t n = n_prompts * (size_t)p->n;
    gem_answer *a = calloc(n, sizeof(*a));
    if (!j || !a) {
        free(j);
        free(a);
        return NULL;
    }
    j->server = s;
    j->wire = w;
    j->model = s->id;
    j->created = (int64_t)time(NULL);
    j->p = *p;
    j->prompt = prompt;
    j->n_prompts = n_prompts;
    j->answer = a;
    j->n_answers = j->n_left = n;
    for (size_t i = 0; i < n; i++) {
        a[i].job = j;
        a[i].index = (int)i;
        a[i].prompt = &prompt[i / (size_t)p->n];
    }
    atomic_init(&j->refs, 1);
    atomic_init(&j->fd, -1);
    atomic_init(&j->cancel, GEM_CANCEL_NONE);
    atomic_init(&j->position, 0);
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->more, &attr);
    pthread_condattr_destroy(&attr);
    memset(p, 0, sizeof(*p));
    return j;
}

void gem_job_hold(gem_job *j)
{
    atomic_fetch_add(&j->refs, 1);
}

static void free_answer(gem_answer *a)
{
    gem_bytes_free(&a->content);
    gem_bytes_free(&a->reasoning);
    for (size_t i = 0; i < a->n_calls; i++) {
        gem_bytes_free(&a->call[i].name);
        gem_bytes_free(&a->call[i].arguments);
    }
    free(a->call);
    free(a->logprob);
}

void gem_job_release(gem_job *j)
{
    if (!j || atomic_fetch_sub(&j->refs, 1) != 1) return;
    gem_log_job(j);
    if (j->wire->free_state) j->wire->free_state(j->wire_state);
    for (size_t i = 0; i < j->n_answers; i++) {
        free_answer(&j->answer[i]);
    }
    for (size_t i = 0; i < j->n_prompts; i++)
        free(j->prompt[i].tokens);
    free(j->prompt);
    free(j->answer);
    gem_dialogue_free(j->dialogue);
    gem_params_deinit(&j->p);
    gem_bytes_free(&j->scratch);
    gem_bytes_free(&j->out);
    pthread_cond_destroy(&j->more);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

void gem_job_cancel(gem_job *j, gem_cancel why)
{
    int none = GEM_CANCEL_NONE;
    if (!atomic_compare_exchange_strong(&j->cancel, &none, (int)why)) return;
    gem_scheduler_wake(j->server->scheduler);
    pthread_mutex_lock(&j->lock);
    pthread_cond_broadcast(&j->more);
    pthread_mutex_unlock(&j->lock);
}

gem_cancel gem_job_cancelled(gem_job *j)
{
    return (gem_cancel)atomic_load(&j->cancel);
}

/* Under the lock. */
static void put_locked(gem_job *j, const void *data, size_t len)
{
    if (j->taken && j->taken == j->out.len) j->taken = j->out.len = 0;
    if (j->taken > GEM_OUT_CAP / 4) {
        memmove(j->out.data, j->out.data + j->taken, j->out.len - j->taken);
        j->out.len -= j->taken;
        j->taken = 0;
    }
    gem_bytes_put(&j->out, data, len);
    j->n_out += len;
    j->put_ns = gem_now_ns();
    if (!j->full_ns && j->out.len - j->taken > GEM_OUT_CAP / 2) j->full_ns = j->put_ns;
    pthread_cond_broadcast(&j->more);
}

void gem_job_put(gem_job *j, const void *data, size_t len)
{
    if (!len) return;
    pthread_mutex_lock(&j->lock);
    bool over = j->out.len - j->taken + len > GEM_OUT_CAP;
    if (!over && !j->ended) put_locked(j, data, len);
    pthread_mutex_unlock(&j->lock);
    if (over) gem_job_cancel(j, GEM_CANCEL_SLOW);
}

void gem_job_put_scratch(gem_job *j)
{
    gem_job_put(j, j->scratch.data, j->scratch.len);
    j->scratch.len = 0;
}

void gem_job_comment(gem_job *j, const char *fmt, ...)
{
    char text[160] = ": gem ";
    if (!j->p.stream) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + 6, sizeof(text) - 8, fmt, ap);
    va_end(ap);
    size_t n = strlen(text);
    while (n < 16) /* smaller ones do not reset the idle timer of common clients */
        text[n++] = '.';
    text[n++] = '\n';
    text[n++] = '\n';
    gem_job_put(j, text, n);
}

void gem_job_end(gem_job *j)
{
    pthread_mutex_lock(&j->lock);
    j->ended = true;
    j->done_ns = gem_now_ns();
    pthread_cond_broadcast(&j->more);
    pthread_mutex_unlock(&j->lock);
}

static bool peer_lost(gem_job *j)
{
    gem_cancel c = gem_job_cancelled(j);
    return c == GEM_CANCEL_GONE || c == GEM_CANCEL_SLOW;
}

long gem_job_take(gem_job *j, char *out, size_t max)
{
    long n = 0;
    pthread_mutex_lock(&j->lock);
    while (j->taken == j->out.len && !j->ended && !peer_lost(j))
        pthread_cond_wait(&j->more, &j->lock);
    if (peer_lost(j)) {
        n = -1;
    } else if (j->taken < j->out.len) {
        size_t k = GEM_MIN(max, j->out.len - j->taken);
        memcpy(out, j->out.data + j->taken, k);
        j->taken += k;
        if (j->out.len - j->taken <= GEM_OUT_CAP / 2) j->full_ns = 0;
        n = (long)k;
    } else if (j->out.failed) {
        n = -1;
    }
    pthread_mutex_unlock(&j->lock);
    return n;
}

void gem_job_wait(gem_job *j)
{
    pthread_mutex_lock(&j->lock);
    while (!j->ended)
        pthread_cond_wait(&j->more, &j->lock);
    pthread_mutex_unlock(&j->lock);
}
