/* watch.c - looks after every job that has a connection: peers that went away, peers that do not
 * read, streams that were silent too long. Runs beside the engine, so a batch that takes long keeps
 * nobody in the dark. */
#include "server/serve.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define SILENCE_NS 4000000000ull /* a comment after this; clients' limits start at 5 s */
#define SLOW_NS 20000000000ull   /* a buffer over half its cap for this long */

void gem_watch_add(gem_job *j, int fd)
{
    gem_server *s = j->server;
    pthread_mutex_lock(&s->jobs_lock);
    atomic_store(&j->fd, fd);
    j->next_job = s->jobs;
    j->prev_job = NULL;
    if (s->jobs) s->jobs->prev_job = j;
    s->jobs = j;
    pthread_mutex_unlock(&s->jobs_lock);
}

void gem_watch_remove(gem_job *j)
{
    gem_server *s = j->server;
    pthread_mutex_lock(&s->jobs_lock);
    if (atomic_exchange(&j->fd, -1) >= 0) {
        if (j->prev_job)
            j->prev_job->next_job = j->next_job;
        else
            s->jobs = j->next_job;
        if (j->next_job) j->next_job->prev_job = j->prev_job;
    }
    pthread_mutex_unlock(&s->jobs_lock);
}

bool gem_watch_cancel_id(gem_server *s, const char *id)
{
    gem_job *found = NULL;
    pthread_mutex_lock(&s->jobs_lock);
    for (gem_job *j = s->jobs; j && !found; j = j->next_job)
        if (!strcmp(j->request_id, id) || !strcmp(j->id, id)) found = j;
    if (found) gem_job_cancel(found, GEM_CANCEL_ASKED);
    pthread_mutex_unlock(&s->jobs_lock);
    return found != NULL;
}

void gem_watch_cancel_all(gem_server *s, gem_cancel why)
{
    pthread_mutex_lock(&s->jobs_lock);
    for (gem_job *j = s->jobs; j; j = j->next_job)
        gem_job_cancel(j, why);
    pthread_mutex_unlock(&s->jobs_lock);
}

size_t gem_watch_count(gem_server *s)
{
    size_t n = 0;
    pthread_mutex_lock(&s->jobs_lock);
    for (gem_job *j = s->jobs; j; j = j->next_job)
        n++;
    pthread_mutex_unlock(&s->jobs_lock);
    return n;
}

static bool peer_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

static void look_at(gem_job *j, uint64_t now)
{
    int fd = atomic_load(&j->fd);
    if (peer_gone(fd)) {
        gem_job_cancel(j, GEM_CANCEL_GONE);
        return;
    }
    pthread_mutex_lock(&j->lock);
    bool silent = !j->ended && now > j->put_ns + SILENCE_NS;
    bool slow = j->full_ns && now > j->full_ns + SLOW_NS;
    pthread_mutex_unlock(&j->lock);
    if (slow || gem_job_cancelled(j) == GEM_CANCEL_SLOW) {
        gem_job_cancel(j, GEM_CANCEL_SLOW);
        shutdown(fd, SHUT_RDWR); /* its thread may be stuck in a write */
        return;
    }
    int position = atomic_load(&j->position);
    bool moved = position != j->told_position;
    j->told_position = position;
    if (!j->p.stream || !(silent || (moved && position))) return;
    if (position)
        gem_job_comment(j, "queued position=%d", position);
    else
        gem_job_comment(j, "working on it");
}

void gem_watch_peers(gem_server *s)
{
    pthread_mutex_lock(&s->jobs_lock);
    for (gem_job *j = s->jobs; j; j = j->next_job)
        if (peer_gone(atomic_load(&j->fd))) gem_job_cancel(j, GEM_CANCEL_GONE);
    pthread_mutex_unlock(&s->jobs_lock);
}

void gem_watch_tick(gem_server *s)
{
    uint64_t now = gem_now_ns();
    pthread_mutex_lock(&s->jobs_lock);
    for (gem_job *j = s->jobs; j; j = j->next_job)
        look_at(j, now);
    pthread_mutex_unlock(&s->jobs_lock);
}
