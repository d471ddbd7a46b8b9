/* serve.c - a server's life: listen, load, serve, drain, stop. The main thread waits for signals;
 * HTTP threads, the engine and the watch do the rest. */
#include "server/serve.h"

#include "gem_build.h"
#include "runtime/engine.h"
#include "server/guard.h"
#include "server/replay.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEFAULT_CTX = 16384, WATCH_MS = 200 };
enum { RESERVE_BYTES = 64 << 20 }; /* connections, buffers, prompts */

typedef struct life {
    gem_server s;
    struct MHD_Daemon *http;
    pthread_t engine, watch;
    bool engine_started, watch_started;
    int watch_pipe[2]; /* its writing end is closed to end the watch */
    bool loaded;       /* said so */
} life;

/* ---- before listening ---- */

static char *name_of(const char *path, const char *alias)
{
    if (alias) return strdup(alias);
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    size_t n = name ? strlen(name) : 0;
    if (n > 5 && !strcmp(name + n - 5, ".gguf")) name[n - 5] = 0;
    for (char *p = name; p && *p; p++)
        if ((unsigned char)*p < 0x21 || (unsigned char)*p > 0x7e || *p == '"' || *p == '\\')
            *p = '_';
    return name;
}

/* The context must be known before the weights are: clients ask while the model loads. */
static gem_status settle_context(gem_server *s, gem_error *err)
{
    gem_gguf *file = NULL;
    gem_str arch = {0};
    char key[128];
    int64_t trained = 0;
    gem_status st = gem_gguf_open(&file, s->opt.model_path, err);
    if (st == GEM_OK) st = gem_gguf_get_str(file, "general.architecture", true, &arch, err);
    if (st == GEM_OK) {
        snprintf(key, sizeof(key), "%.*s.context_length", (int)GEM_MIN(arch.len, 64u), arch.data);
        uint32_t n = 0;
        st = gem_gguf_get_u32(file, key, false, 1, UINT32_MAX, &n, err);
        trained = n;
    }
    gem_gguf_close(file);
    if (st == GEM_OK && !s->opt.model.n_ctx)
        s->opt.model.n_ctx = trained ? (int32_t)GEM_MIN(trained, DEFAULT_CTX) : 4096;
    return st;
}

static gem_status open_disk(gem_server *s, gem_error *err)
{
    const gem_backend_ops *b = gem_backend_find(s->opt.model.backend);
    if (b && !b->read_page)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "the %s backend does not let its pages out, so there is no disk cache",
                        b->name);
    return gem_disk_cache_open(&s->disk, s, s->opt.disk_cache, s->opt.disk_bytes, err);
}

static gem_status init_server(gem_server *s, const gem_server_options *opt, gem_error *err)
{
    char print[96];
    s->opt = *opt;
    s->n_slots = opt->n_parallel;
    s->started = (int64_t)time(NULL);
    s->started_ns = gem_now_ns();
    s->opt.model.n_sessions = opt->n_parallel + opt->n_cached;
    s->id = name_of(opt->model_path, opt->alias);
    snprintf(print, sizeof(print), "gem-%s-%.12s", gem_version(), GEM_BUILD_COMMIT);
    s->fingerprint = strdup(print);
    s->key_digest = calloc(opt->n_keys + 1, sizeof(*s->key_digest));
    pthread_mutex_init(&s->jobs_lock, NULL);
    atomic_store(&s->next_id, gem_random_u64() & 0xffff);
    if (!s->id || !s->fingerprint || !s->key_digest)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the server");
    for (size_t i = 0; i < opt->n_keys; i++)
        gem_guard_digest(opt->keys[i], strlen(opt->keys[i]), s->key_digest[i]);
    gem_status st = gem_replay_new(&s->replay, err);
    if (st == GEM_OK) st = settle_context(s, err);
    if (st == GEM_OK && opt->disk_cache) st = open_disk(s, err);
    return st == GEM_OK ? gem_scheduler_new(&s->scheduler, s, err) : st;
}

/* ---- threads ---- */

int gem_server_loading_s(gem_server *s)
{
    int done = atomic_load(&s->loaded_permille);
    double t = (double)(gem_now_ns() - s->started_ns) * 1e-9;
    if (gem_server_get_state(s) != GEM_SERVER_LOADING) return 1;
    if (done < 20) return 2; /* too early to tell */
    t *= (1000.0 - done) / done;
    return t < 1 ? 1 : t > 60 ? 60 : (int)(t + 0.5);
}

static void on_progress(void *user, double done)
{
    gem_server *s = user;
    atomic_store(&s->loaded_permille, (int)(done * 1000));
}

/* What the model may plan for: all there is, but for the server's own needs. */
static uint64_t memory_for_model(void)
{
    uint64_t all = gem_memory_available("");
    return all == UINT64_MAX ? 0 : all > RESERVE_BYTES ? all - RESERVE_BYTES : 1;
}

/* Better a sentence than the system's killer half a day later. */
static void advise(const gem_server *s, gem_error *err)
{
    char why[sizeof(err->text)];
    memcpy(why, err->text, sizeof(why));
    gem_fail(err, GEM_E_NOMEM,
             "%.300s; a smaller --context (%d), --parallel (%d) or --cached (%d) or --kv-type f16 "
             "needs less, and --no-memory-check loads all the same",
             why, s->opt.model.n_ctx, s->opt.n_parallel, s->opt.n_cached);
}

static void *engine_main(void *arg)
{
    gem_server *s = &((life *)arg)->s;
    gem_error err;
    gem_model_options mo = s->opt.model;
    mo.progress = on_progress;
    mo.progress_user = s;
    if (!s->opt.no_memory_check) mo.max_bytes = memory_for_model();
    gem_status st = gem_model_open(&s->model, s->opt.model_path, &mo, &err);
    if (st == GEM_E_NOMEM) advise(s, &err);
    if (st == GEM_OK) {
        gem_model_get_info(s->model, &s->info);
        st = gem_manifest_digest(s->model->file, s->manifest_sha256, &err);
        if (st == GEM_OK) st = gem_token_order_init(&s->order, s->model, s->info.n_vocab, &err);
        if (st == GEM_OK) st = gem_scheduler_prepare(s->scheduler, &err);
    }
    if (st != GEM_OK) {
        s->load_error = err;
        atomic_store(&s->state, GEM_SERVER_FAILED);
        return NULL;
    }
    int loading = GEM_SERVER_LOADING;
    atomic_compare_exchange_strong(&s->state, &loading, GEM_SERVER_READY);
    gem_scheduler_run(s->scheduler);
    return NULL;
}

static void *watch_main(void *arg)
{
    life *l = arg;
    struct pollfd end = {.fd = l->watch_pipe[0], .events = POLLIN};
    while (poll(&end, 1, WATCH_MS) <= 0) /* early behind a signal: one look more */
        gem_watch_tick(&l->s);
    return NULL;
}

static void end_watch(life *l)
{
    if (l->watch_pipe[1] < 0) return;
    close(l->watch_pipe[1]);
    if (l->watch_started) pthread_join(l->watch, NULL);
    close(l->watch_pipe[0]);
}

static gem_status start_threads(life *l, gem_error *err)
{
    gem_status st = gem_http_start(&l->s, &l->http, err);
    if (st != GEM_OK) return st;
    if (pipe(l->watch_pipe) != 0) {
        l->watch_pipe[1] = -1;
        return gem_fail(err, GEM_E_IO, "no pipe to be had: %s", strerror(errno));
    }
    l->engine_started = pthread_create(&l->engine, NULL, engine_main, l) == 0;
    l->watch_started = pthread_create(&l->watch, NULL, watch_main, l) == 0;
    if (l->engine_started && l->watch_started) return GEM_OK;
    return gem_fail(err, GEM_E_NOMEM, "no threads to be had: %s", strerror(errno));
}

/* ---- the main thread ---- */

static void say_loaded(life *l)
{
    gem_server *s = &l->s;
    if (l->loaded || gem_server_get_state(s) != GEM_SERVER_READY) return;
    l->loaded = true;
    gem_log_line(s, "model loaded: family=%s isa=%s threads=%d ctx=%d slots=%d kv_bytes=%llu",
                 s->info.family, s->info.isa, s->info.n_threads, s->info.n_ctx, s->n_slots,
                 (unsigned long long)s->info.kv_bytes);
}

/* Until the first signal; false when the model did not open. */
static bool wait_for_signal(life *l, const sigset_t *set)
{
    for (;;) {
        struct timespec t = {0, 100000000};
        if (sigtimedwait(set, NULL, &t) > 0) return true;
        if (gem_server_get_state(&l->s) == GEM_SERVER_FAILED) return false;
        say_loaded(l);
    }
}

/* No new work; what runs may end by itself for a while, then it is told to. */
static void drain(life *l, const sigset_t *set)
{
    gem_server *s = &l->s;
    uint64_t start = gem_now_ns();
    bool told = false;
    atomic_store(&s->state, GEM_SERVER_DRAINING);
    gem_log_line(s, "shutting down: %zu requests to finish", gem_watch_count(s));
    while (gem_watch_count(s)) {
        struct timespec t = {0, 50000000};
        double waited = (double)(gem_now_ns() - start) * 1e-9;
        if (sigtimedwait(set, NULL, &t) > 0) _exit(130); /* the second signal means it */
        if (waited > s->opt.drain_s && !told) {
            gem_watch_cancel_all(s, GEM_CANCEL_SHUTDOWN);
            told = true;
        }
        if (waited > s->opt.drain_s + 10) break;
    }
}

static void stop(life *l)
{
    gem_server *s = &l->s;
    if (s->scheduler) gem_scheduler_stop(s->scheduler);
    gem_watch_cancel_all(s, GEM_CANCEL_SHUTDOWN);
    if (l->engine_started) pthread_join(l->engine, NULL);
    if (l->http) MHD_stop_daemon(l->http);
    end_watch(l);
    gem_scheduler_free(s->scheduler);
    gem_disk_cache_free(s->disk);
    gem_replay_free(s->replay);
    gem_token_order_deinit(&s->order);
    gem_model_close(s->model);
    pthread_mutex_destroy(&s->jobs_lock);
    free(s->id);
    free(s->fingerprint);
    free(s->key_digest);
}

gem_status gem_server_run(const gem_server_options *opt, gem_error *err)
{
    sigset_t set;
    life *l = calloc(1, sizeof(*l));
    if (!l) return gem_fail(err, GEM_E_NOMEM, "no memory for the server");
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* threads inherit it */
    signal(SIGPIPE, SIG_IGN);
    l->watch_pipe[1] = -1;

    gem_status st = init_server(&l->s, opt, err);
    if (st == GEM_OK) st = start_threads(l, err);
    if (st == GEM_OK) {
        const char *host = opt->host ? opt->host : "127.0.0.1";
        gem_log_line(&l->s, "listening on http://%s%s%s:%d model=%s ctx=%d slots=%d",
                     strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "", l->s.port,
                     l->s.id, l->s.opt.model.n_ctx, l->s.n_slots);
        if (wait_for_signal(l, &set)) {
            drain(l, &set);
        } else {
            st = l->s.load_error.status;
            if (err) *err = l->s.load_error;
        }
    }
    stop(l);
    free(l);
    return st;
}
