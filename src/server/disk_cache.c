/* disk_cache.c - the cache's folder and its threads: what waits to be written, what is being read,
 * which file goes when the size is reached. disk_scan.c looks through the folder at the start.
 *
 * Locks. d->lock guards the queues and the index. A save's and a fetch's own lock guards its use of
 * the engine's memory: whoever holds it may touch the pages, and giving up under it ends that, so
 * the engine never waits for the disk. Checkpoints and sessions are freed by the engine thread. */
#include "server/disk_cache.h"

#include "server/disk_scan.h"
#include "server/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_WAITING = 4 };

typedef struct save save;
struct save {
    save *next;
    gem_checkpoint *point; /* owned by the engine thread; NULL: given up */
    int32_t *tokens;       /* owned, [n] */
    int32_t n;
    gem_image_part state[GEM_IMAGE_STATES];
    void *data[GEM_IMAGE_STATES]; /* owned; copies of the states; NULL: not there any more */
    size_t n_states, n_copied;
    pthread_mutex_t lock;
    gem_image_part *page; /* owned; the writer's */
    size_t n_pages;
};

struct gem_disk_fetch {
    gem_disk_fetch *next;
    gem_disk_cache *d;
    gem_session *session; /* borrowed */
    int32_t *tokens;      /* owned, [n] */
    int32_t n, n_files;
    uint8_t (*key)[32];                    /* owned, [n_files], the first text's beginning first */
    int32_t *from;                         /* owned, [n_files] */
    gem_disk_head *head;                   /* owned, [n_files]; the reader's */
    int32_t file;                          /* being read */
    gem_disk_part state[GEM_IMAGE_STATES]; /* falling; layer is the file they are in */
    void *data[GEM_IMAGE_STATES];          /* owned */
    size_t n_states, n_put;
    int refs;             /* engine and reader; under d->lock */
    pthread_mutex_t lock; /* guards what follows, and the reader's writes into pages */
    bool given_up;
    gem_disk_state at;
};

struct gem_disk_cache {
    gem_server *server;
    gem_model *m; /* borrowed; set by start */
    char *dir;    /* owned */
    int fd, lock_fd;
    uint64_t max_bytes;
    uint8_t fingerprint[32];
    pthread_t writer, reader;
    bool started, failing; /* writer: the last write failed */
    save *preparing;       /* engine thread: states are being copied */
    pthread_mutex_t lock;  /* guards what follows */
    pthread_cond_t work, idle;
    bool stop;
    save *first, *last, *writing, *done;
    int n_waiting;
    gem_disk_fetch *fetch, *fetch_last;
    gem_disk_index index;
};

/* ---- open, close ---- */

static gem_status open_folder(gem_disk_cache *d, gem_error *err)
{
    if (mkdir(d->dir, 0700) != 0 && errno != EEXIST)
        return gem_fail(err, GEM_E_IO, "disk cache: %s cannot be made: %s", d->dir,
                        strerror(errno));
    d->fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0) return gem_fail(err, GEM_E_IO, "disk cache: %s: %s", d->dir, strerror(errno));
    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return gem_fail(err, GEM_E_IO, "disk cache: %s/lock: %s", d->dir, strerror(errno));
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return gem_fail(err, GEM_E_IO,
                        "disk cache: another process uses %s; every server needs its own folder",
                        d->dir);
    return GEM_OK;
}

gem_status gem_disk_cache_open(gem_disk_cache **out, gem_server *s, const char *dir,
                               uint64_t max_bytes, gem_error *err)
{
    gem_disk_cache *d = calloc(1, sizeof(*d));
    *out = NULL;
    if (!d) return gem_fail(err, GEM_E_NOMEM, "no memory for the disk cache");
    d->fd = d->lock_fd = -1;
    d->server = s;
    d->max_bytes = max_bytes;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->work, NULL);
    pthread_cond_init(&d->idle, NULL);
    d->dir = strdup(dir);
    gem_status st =
        d->dir ? open_folder(d, err) : gem_fail(err, GEM_E_NOMEM, "no memory for the disk cache");
    if (st == GEM_OK)
        *out = d;
    else
        gem_disk_cache_free(d);
    return st;
}

void gem_disk_cache_free(gem_disk_cache *d)
{
    if (!d) return;
    if (d->lock_fd >= 0) close(d->lock_fd);
    if (d->fd >= 0) close(d->fd);
    gem_disk_index_deinit(&d->index);
    pthread_cond_destroy(&d->idle);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->lock);
    free(d->dir);
    free(d);
}

/* Under the lock. */
static void count(gem_disk_cache *d)
{
    atomic_store(&d->server->metrics.disk_bytes, (int64_t)d->index.bytes);
    atomic_store(&d->server->metrics.disk_files, (int64_t)d->index.n);
}

/* ---- the index, under the lock ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A file's time tells the next process how recently it was used. */
static void touch(gem_disk_cache *d, gem_disk_entry *e)
{
    char name[GEM_DISK_NAME];
    for (; e; e = e->parent) {
        e->used = now_ns();
        gem_disk_name(name, e->key);
        utimensat(d->fd, name, NULL, AT_SYMLINK_NOFOLLOW);
    }
}

static void remove_file(gem_disk_cache *d, gem_disk_entry *e)
{
    char name[GEM_DISK_NAME];
    gem_disk_name(name, e->key);
    unlinkat(d->fd, name, 0);
    gem_disk_index_remove(&d->index, e);
    count(d);
}

static bool descends(const gem_disk_entry *e, const gem_disk_entry *from)
{
    while (e && e != from)
        e = e->parent;
    return e != NULL;
}

/* A file and all that go on from it: children stand behind their parents. */
static void remove_tree(gem_disk_cache *d, const uint8_t key[32])
{
    gem_disk_entry *e = gem_disk_index_find(&d->index, key);
    for (size_t i = d->index.n; e && i-- > 0;) {
        gem_disk_entry *x = d->index.entry[i];
        bool last = x == e;
        if (descends(x, e)) remove_file(d, x);
        if (last) break;
    }
}

static bool make_room(gem_disk_cache *d, uint64_t bytes, const gem_disk_entry *keep)
{
    while (d->index.bytes + bytes > d->max_bytes) {
        gem_disk_entry *e = gem_disk_index_oldest(&d->index, keep);
        if (!e || bytes > d->max_bytes) return false;
        remove_file(d, e);
        atomic_fetch_add(&d->server->metrics.disk_evicted, 1);
    }
    return true;
}

/* ---- saves: the engine's side ---- */

static void free_save(save *v)
{
    gem_checkpoint_free(v->point);
    for (size_t i = 0; i < v->n_states; i++)
        free(v->data[i]);
    pthread_mutex_destroy(&v->lock);
    free(v->tokens);
    free(v->page);
    free(v);
}

static void free_done(gem_disk_cache *d)
{
    pthread_mutex_lock(&d->lock);
    save *v = d->done;
    d->done = NULL;
    pthread_mutex_unlock(&d->lock);
    while (v) {
        save *next = v->next;
        free_save(v);
        v = next;
    }
}

/* Take the oldest that waits out of the queue, under the lock; NULL: none. */
static save *pop(gem_disk_cache *d)
{
    save *v = d->first;
    if (!v) return NULL;
    d->first = v->next;
    if (!d->first) d->last = NULL;
    v->next = NULL;
    d->n_waiting--;
    return v;
}

static void push(gem_disk_cache *d, save *v)
{
    save *dropped = NULL;
    pthread_mutex_lock(&d->lock);
    if (d->n_waiting == MAX_WAITING) dropped = pop(d);
    if (d->last)
        d->last->next = v;
    else
        d->first = v;
    d->last = v;
    d->n_waiting++;
    pthread_cond_broadcast(&d->work);
    pthread_mutex_unlock(&d->lock);
    if (!dropped) return;
    atomic_fetch_sub(&d->server->metrics.disk_waiting, 1);
    gem_log_line(d->server, "disk cache: too slow, a text of %d tokens is not kept", dropped->n);
    free_save(dropped);
}

/* Positions that files hold already, and whether a file holds all of them. */
static int32_t held(gem_disk_cache *d, const int32_t *tokens, int32_t n, bool *whole)
{
    int32_t from = 0;
    *whole = false;
    pthread_mutex_lock(&d->lock);
    gem_disk_index_match(&d->index, tokens, (size_t)n);
    for (size_t i = 0; i < d->index.n; i++) {
        from = GEM_MAX(from, d->index.entry[i]->common);
        *whole |= d->index.entry[i]->common == n && d->index.entry[i]->n == n;
    }
    pthread_mutex_unlock(&d->lock);
    return from / GEM_PAGE * GEM_PAGE;
}

void gem_disk_cache_save(gem_disk_cache *d, const gem_session *s, const int32_t *tokens, size_t n)
{
    gem_error err;
    bool whole;
    if (!d || !d->started || n < 2) return;
    while (d->preparing) /* one at a time */
        gem_disk_cache_step(d);
    save *v = calloc(1, sizeof(*v));
    if (!v) return;
    pthread_mutex_init(&v->lock, NULL);
    if (gem_session_checkpoint(s, &v->point, &err) != GEM_OK) {
        free_save(v);
        return;
    }
    v->n = gem_image_positions(v->point);
    v->tokens = malloc(((size_t)v->n + 1) * sizeof(*v->tokens));
    if (!v->tokens || v->n < 2) {
        free_save(v);
        return;
    }
    memcpy(v->tokens, tokens, (size_t)v->n * sizeof(*v->tokens));
    int32_t from = held(d, v->tokens, v->n, &whole);
    if (!whole) v->n_states = gem_image_states(v->point, from, v->state);
    d->preparing = v;
    atomic_fetch_add(&d->server->metrics.disk_waiting, 1);
    if (!v->n_states) gem_disk_cache_step(d);
}

bool gem_disk_cache_step(gem_disk_cache *d)
{
    if (!d) return false;
    free_done(d);
    save *v = d->preparing;
    if (!v) return false;
    if (v->n_copied < v->n_states) {
        const gem_image_part *p = &v->state[v->n_copied];
        void *data = malloc(p->bytes);
        if (data && !gem_image_read(v->point, p, data)) {
            free(data);
            data = NULL;
        }
        v->data[v->n_copied++] = data;
    }
    if (v->n_copied < v->n_states) return true;
    d->preparing = NULL;
    push(d, v);
    return false;
}

bool gem_disk_cache_yield(gem_disk_cache *d)
{
    bool any = false;
    if (!d) return false;
    free_done(d);
    save *v = d->preparing;
    d->preparing = NULL;
    pthread_mutex_lock(&d->lock);
    if (!v) v = pop(d);
    if (!v && d->writing) {
        pthread_mutex_lock(&d->writing->lock);
        any = d->writing->point != NULL;
        gem_checkpoint_free(d->writing->point);
        d->writing->point = NULL;
        pthread_mutex_unlock(&d->writing->lock);
    }
    pthread_mutex_unlock(&d->lock);
    if (v) {
        atomic_fetch_sub(&d->server->metrics.disk_waiting, 1);
        free_save(v);
    }
    return any || v;
}

/* ---- saves: the writer ---- */

/* What the new file holds and whose child it is, under the lock. False: it is held already. */
static bool settle(gem_disk_cache *d, const save *v, gem_disk_head *h, gem_disk_entry **parent)
{
    gem_disk_index_match(&d->index, v->tokens, (size_t)v->n);
    *parent = NULL;
    for (size_t i = 0; i < d->index.n; i++) {
        gem_disk_entry *e = d->index.entry[i];
        if (e->common == v->n && e->n == v->n) {
            touch(d, e);
            return false;
        }
        if (e->common >= GEM_PAGE && (!*parent || e->common > (*parent)->common)) *parent = e;
    }
    h->n = v->n;
    if (!*parent) return true;
    h->from = (*parent)->common / GEM_PAGE * GEM_PAGE;
    while ((*parent)->parent && h->from <= (*parent)->from)
        *parent = (*parent)->parent; /* nothing of this one would be used */
    memcpy(h->parent, (*parent)->key, sizeof(h->parent));
    touch(d, *parent);
    return true;
}

/* The parts of the new file. False: given up, or no memory. */
static bool list_parts(save *v, gem_disk_head *h)
{
    pthread_mutex_lock(&v->lock);
    if (v->point) {
        v->n_pages = gem_image_pages(v->point, h->from, NULL);
        v->page = malloc((v->n_pages + 1) * sizeof(*v->page));
        if (v->page) gem_image_pages(v->point, h->from, v->page);
    }
    pthread_mutex_unlock(&v->lock);
    h->part = malloc((v->n_pages + v->n_states + 1) * sizeof(*h->part));
    h->tokens = malloc((size_t)(h->n - h->from + 1) * sizeof(*h->tokens));
    if (!v->page || !h->part || !h->tokens) return false;
    memcpy(h->tokens, v->tokens + h->from, (size_t)(h->n - h->from) * sizeof(*h->tokens));
    for (size_t i = 0; i < v->n_pages; i++)
        h->part[i] = (gem_disk_part){v->page[i].layer, v->page[i].index};
    h->n_parts = v->n_pages;
    size_t kept = 0; /* states move to the front where some are gone */
    for (size_t i = 0; i < v->n_states; i++) {
        void *data = v->data[i];
        v->data[i] = NULL;
        if (!data || v->state[i].index <= h->from / GEM_PAGE) {
            free(data);
            continue;
        }
        h->part[h->n_parts++] = (gem_disk_part){-1, v->state[i].index};
        v->state[kept] = v->state[i];
        v->data[kept++] = data;
    }
    return true;
}

/* One part's bytes for the file. */
static bool give(void *user, size_t part, void *out)
{
    save *v = user;
    if (part >= v->n_pages) {
        memcpy(out, v->data[part - v->n_pages], v->state[part - v->n_pages].bytes);
        return true;
    }
    pthread_mutex_lock(&v->lock);
    bool there = v->point != NULL;
    if (there) gem_image_read(v->point, &v->page[part], out);
    pthread_mutex_unlock(&v->lock);
    return there;
}

static void note_failure(gem_disk_cache *d, const gem_error *err)
{
    if (!d->failing) gem_log_line(d->server, "disk cache: cannot write: %s", err->text);
    d->failing = true; /* said once */
}

/* The file is there: let it be found, unless its parent went meanwhile. */
static void enter(gem_disk_cache *d, gem_disk_head *h, int32_t *first)
{
    pthread_mutex_lock(&d->lock);
    gem_disk_entry *parent = h->from ? gem_disk_index_find(&d->index, h->parent) : NULL;
    if ((h->from && !parent) || !gem_disk_index_add(&d->index, d->m, parent, h, first, now_ns())) {
        char name[GEM_DISK_NAME];
        gem_disk_name(name, h->key);
        unlinkat(d->fd, name, 0);
        free(first);
    }
    count(d);
    pthread_mutex_unlock(&d->lock);
}

static void write_save(gem_disk_cache *d, save *v)
{
    gem_disk_head h = {0};
    gem_disk_entry *parent;
    gem_error err;
    uint64_t start = gem_now_ns();
    pthread_mutex_lock(&d->lock);
    bool wanted = settle(d, v, &h, &parent);
    pthread_mutex_unlock(&d->lock);
    if (!wanted) return;
    memcpy(h.fingerprint, d->fingerprint, sizeof(h.fingerprint));
    int32_t *first = malloc((size_t)d->m->plan.n_layers * sizeof(*first));
    if (!first || !list_parts(v, &h) || !gem_disk_digest(v->tokens, (size_t)v->n, h.key) ||
        !gem_disk_head_first(&h, d->m, first))
        goto done;
    gem_disk_head_settle(&h, d->m);
    pthread_mutex_lock(&d->lock);
    parent = h.from ? gem_disk_index_find(&d->index, h.parent) : NULL;
    bool room = make_room(d, h.file_bytes, parent);
    pthread_mutex_unlock(&d->lock);
    gem_status st = room ? gem_disk_file_write(d->fd, &h, d->m, give, v, &err)
                         : gem_fail(&err, GEM_E_RANGE, "a file of %llu bytes does not fit",
                                    (unsigned long long)h.file_bytes);
    if (st != GEM_OK) {
        if (st != GEM_E_CANCELLED) note_failure(d, &err);
        goto done;
    }
    d->failing = false;
    atomic_fetch_add(&d->server->metrics.disk_writes, 1);
    if (d->server->opt.verbose)
        gem_log_line(d->server, "disk cache: kept %d tokens, %d of them new, %llu bytes, %.0f ms",
                     h.n, h.n - h.from, (unsigned long long)h.file_bytes,
                     (double)(gem_now_ns() - start) * 1e-6);
    enter(d, &h, first);
    first = NULL;
done:
    free(first);
    gem_disk_head_free(&h);
}

static void *writer_main(void *arg)
{
    gem_disk_cache *d = arg;
    /* what is written now is needed later; what is computed now is waited for */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->stop && !d->first)
            pthread_cond_wait(&d->work, &d->lock);
        if (!d->first) break;
        save *v = d->writing = pop(d);
        pthread_mutex_unlock(&d->lock);
        write_save(d, v);
        pthread_mutex_lock(&d->lock);
        d->writing = NULL;
        v->next = d->done;
        d->done = v;
        atomic_fetch_sub(&d->server->metrics.disk_waiting, 1);
        pthread_cond_broadcast(&d->idle);
        pthread_mutex_unlock(&d->lock);
        gem_scheduler_wake(d->server->scheduler); /* it frees the checkpoint */
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- fetches: the engine's side ---- */

static void release_fetch(gem_disk_fetch *f)
{
    gem_disk_cache *d = f->d;
    pthread_mutex_lock(&d->lock);
    bool last = --f->refs == 0;
    pthread_mutex_unlock(&d->lock);
    if (!last) return;
    for (size_t i = 0; i < f->n_states; i++)
        free(f->data[i]);
    for (int32_t i = 0; f->head && i < f->n_files; i++)
        gem_disk_head_free(&f->head[i]);
    pthread_mutex_destroy(&f->lock);
    free(f->head);
    free(f->tokens);
    free(f->key);
    free(f->from);
    free(f);
}

void gem_disk_fetch_free(gem_disk_fetch *f)
{
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->given_up = true;
    pthread_mutex_unlock(&f->lock);
    release_fetch(f);
}

size_t gem_disk_cache_match(gem_disk_cache *d, const int32_t *tokens, size_t n)
{
    int32_t k = 0;
    if (!d || !d->started || n < 2) return 0;
    pthread_mutex_lock(&d->lock);
    gem_disk_index_match(&d->index, tokens, n);
    gem_disk_index_best(&d->index, (int32_t)n - 1, &k);
    pthread_mutex_unlock(&d->lock);
    return (size_t)k;
}

/* The chain of files, root first, under the lock. */
static bool put_chain(gem_disk_fetch *f, const gem_disk_entry *leaf)
{
    for (const gem_disk_entry *e = leaf; e; e = e->parent)
        f->n_files++;
    f->key = calloc((size_t)f->n_files, sizeof(*f->key));
    f->from = calloc((size_t)f->n_files, sizeof(*f->from));
    f->head = calloc((size_t)f->n_files, sizeof(*f->head));
    if (!f->key || !f->from || !f->head) return false;
    int32_t i = f->n_files;
    for (const gem_disk_entry *e = leaf; e; e = e->parent) {
        memcpy(f->key[--i], e->key, sizeof(f->key[i]));
        f->from[i] = e->from;
    }
    return true;
}

gem_disk_fetch *gem_disk_cache_fetch(gem_disk_cache *d, gem_session *s, const int32_t *tokens,
                                     size_t n, gem_status *st)
{
    gem_error err;
    gem_disk_fetch *f = calloc(1, sizeof(*f));
    *st = GEM_E_NOMEM;
    if (!f) return NULL;
    f->d = d;
    f->session = s;
    f->refs = 1;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_lock(&d->lock);
    gem_disk_index_match(&d->index, tokens, n);
    gem_disk_entry *leaf = gem_disk_index_best(&d->index, (int32_t)n - 1, &f->n);
    *st = leaf ? gem_image_take(s, f->n, leaf->first, &err) : GEM_E_RANGE;
    bool ok = *st == GEM_OK && put_chain(f, leaf);
    if (ok && (f->tokens = malloc((size_t)f->n * sizeof(*f->tokens)))) {
        memcpy(f->tokens, tokens, (size_t)f->n * sizeof(*f->tokens));
        f->refs = 2;
        if (d->fetch_last)
            d->fetch_last->next = f;
        else
            d->fetch = f;
        d->fetch_last = f;
        pthread_cond_broadcast(&d->work);
        pthread_mutex_unlock(&d->lock);
        return f;
    }
    pthread_mutex_unlock(&d->lock);
    if (*st == GEM_OK) {
        *st = GEM_E_RANGE; /* trying again is of no use */
        if (gem_session_trim(s, 0, &err) != GEM_OK) *st = GEM_E_DEVICE;
    }
    release_fetch(f);
    return NULL;
}

gem_disk_state gem_disk_fetch_poll(gem_disk_fetch *f)
{
    gem_error err;
    pthread_mutex_lock(&f->lock);
    gem_disk_state at = f->at;
    pthread_mutex_unlock(&f->lock);
    if (at == GEM_DISK_FAILED && gem_session_trim(f->session, 0, &err) != GEM_OK) return at;
    if (at != GEM_DISK_DONE) return at;
    if (f->n_put < f->n_states) {
        size_t i = f->n_put++;
        gem_image_put_state(f->session, f->state[i].index, f->data[i]);
        return GEM_DISK_RUNNING;
    }
    gem_image_commit(f->session, f->tokens);
    atomic_fetch_add(&f->d->server->metrics.disk_hits, 1);
    return at;
}

/* ---- fetches: the reader ---- */

static int open_file(const gem_disk_cache *d, const uint8_t key[32], char name[GEM_DISK_NAME])
{
    gem_disk_name(name, key);
    return openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static gem_status gone(const char *name, gem_error *err)
{
    return gem_fail(err, GEM_E_IO, "%s: %s", name, strerror(errno));
}

/* Positions that are taken from a file of the chain: those below its child's. */
static int32_t taken_to(const gem_disk_fetch *f, int32_t i)
{
    return i + 1 < f->n_files ? GEM_MIN(f->from[i + 1], f->n) : f->n;
}

/* The head again, and its tokens against the prompt's. */
static gem_status check_file(gem_disk_fetch *f, int32_t i, gem_error *err)
{
    char name[GEM_DISK_NAME];
    gem_disk_head *h = &f->head[i];
    int fd = open_file(f->d, f->key[i], name);
    if (fd < 0) return gone(name, err);
    gem_status st = gem_disk_head_read(h, fd, name, f->d->m, f->d->fingerprint, err);
    close(fd);
    if (st != GEM_OK) return st;
    int32_t end = taken_to(f, i);
    if (h->from != f->from[i] || h->n < end ||
        (end > h->from &&
         memcmp(h->tokens, f->tokens + h->from, (size_t)(end - h->from) * sizeof(*h->tokens)) != 0))
        return gem_fail(err, GEM_E_FORMAT, "%s: holds another text than it did", name);
    return GEM_OK;
}

/* Which states to bring, from the last one down. */
static void choose_states(gem_disk_fetch *f)
{
    int32_t end = f->n / GEM_PAGE, last = end + 1;
    for (int32_t i = f->n_files; i-- > 0;)
        for (int32_t b = taken_to(f, i) / GEM_PAGE; b > f->from[i] / GEM_PAGE; b--)
            for (size_t k = 0; k < f->head[i].n_parts; k++) {
                const gem_disk_part *p = &f->head[i].part[k];
                if (p->layer >= 0 || p->index != b || b >= last ||
                    !gem_image_wants_state(end, b, f->n_states, last))
                    continue;
                f->state[f->n_states++] = (gem_disk_part){i, b};
                last = b;
            }
}

static bool take_state(gem_disk_fetch *f, int32_t index, const void *data)
{
    size_t bytes = gem_image_part_bytes(f->d->m, -1);
    for (size_t i = 0; i < f->n_states; i++) {
        if (f->state[i].layer != f->file || f->state[i].index != index || f->data[i]) continue;
        if (!(f->data[i] = malloc(bytes))) return false;
        memcpy(f->data[i], data, bytes);
    }
    return true;
}

/* One part from a file into the session's memory. */
static bool take(void *user, const gem_disk_part *p, const void *data)
{
    gem_disk_fetch *f = user;
    gem_model *m = f->d->m;
    if (p->layer < 0) return take_state(f, p->index, data);
    bool leaf = f->file + 1 == f->n_files;
    if (m->layout.window[p->layer] ? !leaf : p->index * GEM_PAGE >= taken_to(f, f->file))
        return true;
    pthread_mutex_lock(&f->lock);
    bool go = !f->given_up;
    if (go) {
        int32_t place = gem_image_place(f->session, p->layer, p->index);
        if (place >= 0) gem_image_write(m, p->layer, place, data);
    }
    pthread_mutex_unlock(&f->lock);
    return go;
}

static gem_status read_chain(gem_disk_fetch *f, gem_error *err)
{
    gem_status st = GEM_OK;
    for (f->file = 0; st == GEM_OK && f->file < f->n_files; f->file++)
        if ((st = check_file(f, f->file, err)) != GEM_OK) return st;
    choose_states(f);
    for (f->file = 0; st == GEM_OK && f->file < f->n_files; f->file++) {
        char name[GEM_DISK_NAME];
        int fd = open_file(f->d, f->key[f->file], name);
        if (fd < 0) return gone(name, err);
        st = gem_disk_data_read(&f->head[f->file], fd, name, f->d->m, take, f, err);
        close(fd);
        if (st != GEM_OK) return st;
    }
    return st;
}

static void serve_fetch(gem_disk_cache *d, gem_disk_fetch *f)
{
    gem_error err;
    gem_status st = read_chain(f, &err);
    pthread_mutex_lock(&d->lock);
    if (st == GEM_OK) touch(d, gem_disk_index_find(&d->index, f->key[f->n_files - 1]));
    bool bad = st == GEM_E_FORMAT || st == GEM_E_UNSUPPORTED || st == GEM_E_IO;
    bad = bad && gem_disk_index_find(&d->index, f->key[f->file]); /* else it made room */
    if (bad) remove_tree(d, f->key[f->file]);
    pthread_mutex_unlock(&d->lock);
    if (bad) {
        atomic_fetch_add(&d->server->metrics.disk_damaged, 1);
        gem_log_line(d->server, "disk cache: removed with all that goes on from it: %s", err.text);
    }
    pthread_mutex_lock(&f->lock);
    f->at = st == GEM_OK ? GEM_DISK_DONE : GEM_DISK_FAILED;
    pthread_mutex_unlock(&f->lock);
    release_fetch(f);
}

static void *reader_main(void *arg)
{
    gem_disk_cache *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->stop && !d->fetch)
            pthread_cond_wait(&d->work, &d->lock);
        gem_disk_fetch *f = d->fetch;
        if (!f) break;
        d->fetch = f->next;
        if (!d->fetch) d->fetch_last = NULL;
        pthread_mutex_unlock(&d->lock);
        serve_fetch(d, f);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- life ---- */

gem_status gem_disk_cache_start(gem_disk_cache *d, gem_model *m, gem_error *err)
{
    d->m = m;
    gem_status st = gem_disk_fingerprint(m, d->fingerprint, err);
    if (st == GEM_OK) st = gem_disk_scan(&d->index, d->server, m, d->fd, d->fingerprint, err);
    if (st != GEM_OK) return st;
    make_room(d, 0, NULL);
    count(d);
    gem_log_line(d->server, "disk cache: %s has %zu files, %llu bytes of at most %llu", d->dir,
                 d->index.n, (unsigned long long)d->index.bytes, (unsigned long long)d->max_bytes);
    if (pthread_create(&d->writer, NULL, writer_main, d) != 0)
        return gem_fail(err, GEM_E_NOMEM, "no thread for the disk cache");
    if (pthread_create(&d->reader, NULL, reader_main, d) != 0) {
        pthread_mutex_lock(&d->lock);
        d->stop = true;
        pthread_cond_broadcast(&d->work);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->writer, NULL);
        return gem_fail(err, GEM_E_NOMEM, "no thread for the disk cache");
    }
    d->started = true;
    return GEM_OK;
}

void gem_disk_cache_stop(gem_disk_cache *d, double seconds)
{
    struct timespec until;
    if (!d || !d->started) return;
    while (gem_disk_cache_step(d))
        ;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&d->lock);
    while ((d->first || d->writing) &&
           pthread_cond_timedwait(&d->idle, &d->lock, &until) != ETIMEDOUT)
        ;
    d->stop = true;
    pthread_cond_broadcast(&d->work);
    pthread_mutex_unlock(&d->lock);
    while (gem_disk_cache_yield(d)) /* what is still there */
        ;
    pthread_join(d->writer, NULL);
    pthread_join(d->reader, NULL);
    free_done(d);
    d->started = false;
}
