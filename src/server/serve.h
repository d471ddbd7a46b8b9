/* serve.h - inside the server: the state that its threads share, and what each file offers the
 * others. HTTP threads read and validate, one engine thread runs the model (scheduler.c), one watch
 * thread looks for peers that went away (watch.c). */
#ifndef GEM_SERVE_H
#define GEM_SERVE_H

#include "server/disk_cache.h"
#include "server/metrics.h"
#include "server/prefix_cache.h"
#include "server/server.h"
#include "server/token_order.h"
#include "server/wire.h"

#include <time.h>

typedef enum gem_server_state {
    GEM_SERVER_LOADING,
    GEM_SERVER_READY,
    GEM_SERVER_DRAINING, /* no new work; what runs may finish */
    GEM_SERVER_FAILED    /* the model did not open */
} gem_server_state;

typedef struct gem_scheduler gem_scheduler;
typedef struct gem_replay gem_replay;

struct gem_server {
    gem_server_options opt;
    char *id;         /* owned: the model's name in answers */
    gem_model *model; /* owned; set before READY, then read-only for HTTP threads */
    gem_model_info info;
    gem_token_order order;    /* set with the model */
    char *fingerprint;        /* owned: system_fingerprint */
    char manifest_sha256[65]; /* names the file's contents; set with the model */
    int n_slots;
    int64_t started; /* s, Unix */
    _Atomic int state;
    _Atomic int loaded_permille;
    uint64_t started_ns;
    _Atomic uint64_t next_id;
    gem_metrics metrics;
    gem_scheduler *scheduler;
    gem_replay *replay;   /* owned: calls as the model wrote them */
    gem_disk_cache *disk; /* owned; NULL: none */

    pthread_mutex_t jobs_lock; /* guards the list */
    gem_job *jobs;             /* every job that has a connection */

    gem_error load_error;      /* FAILED */
    uint8_t (*key_digest)[32]; /* owned, [opt.n_keys] */
    int port;
};

static inline gem_server_state gem_server_get_state(gem_server *s)
{
    return (gem_server_state)atomic_load(&s->state);
}

/* ---- serve.c ---- */
/* Seconds until the model is likely loaded, for Retry-After: 1 to 60. */
int gem_server_loading_s(gem_server *s);

/* ---- scheduler.c: the engine thread ---- */
gem_status gem_scheduler_new(gem_scheduler **out, gem_server *s, gem_error *err);
/* Once the model is open: what depends on its sizes. */
gem_status gem_scheduler_prepare(gem_scheduler *s, gem_error *err);
void gem_scheduler_free(gem_scheduler *s);
/* The engine thread's whole life; returns after gem_scheduler_stop. The model is open. */
void gem_scheduler_run(gem_scheduler *s);
void gem_scheduler_stop(gem_scheduler *s);
void gem_scheduler_wake(gem_scheduler *s);
/* Queue a job; the scheduler takes its own reference. False with 429 or 503. */
bool gem_scheduler_submit(gem_scheduler *s, gem_job *j, gem_fault *f);
/* Where a job's first prompt parts from what memory holds; false: nowhere, or the cache is not
 * used. The model is open. */
bool gem_scheduler_miss(gem_scheduler *s, const gem_job *j, gem_prefix_miss *out);
/* Array of slot objects, as llama.cpp's /slots. */
json_t *gem_scheduler_slots(gem_scheduler *s);

/* ---- watch.c ---- */
void gem_watch_add(gem_job *j, int fd);
void gem_watch_remove(gem_job *j); /* the connection ended: the socket is no longer looked at */
bool gem_watch_cancel_id(gem_server *s, const char *id); /* false: no such job */
void gem_watch_tick(gem_server *s);
/* Cancel jobs whose peer is gone: the engine looks before a long batch, so that none begins for a
 * peer that left during the last one. */
void gem_watch_peers(gem_server *s);
void gem_watch_cancel_all(gem_server *s, gem_cancel why);
size_t gem_watch_count(gem_server *s);

/* ---- prefix_miss.c ---- */
/* "token=57; of=120; entry=300": the value of X-Gem-Prefix-Miss; with opt.log_prompts also
 * "; prompt=...; held=...", percent-encoded to visible ASCII. False, and an empty text: no miss. */
bool gem_prefix_miss_text(gem_server *s, const gem_job *j, char *out, size_t cap);

/* ---- log.c ---- */
void gem_log_line(const gem_server *s, const char *fmt, ...) GEM_PRINTF(2, 3);
void gem_log_job(gem_job *j);

/* ---- http_front.c ---- */
struct MHD_Daemon;
gem_status gem_http_start(gem_server *s, struct MHD_Daemon **out, gem_error *err);

/* ---- admin.c: small documents; the caller frees with json_decref ---- */
json_t *gem_admin_models(gem_server *s);
json_t *gem_admin_model(gem_server *s);
json_t *gem_admin_props(gem_server *s);
json_t *gem_admin_version(gem_server *s);

/* ---- random.c ---- */
void gem_random_hex(char *out, size_t n_bytes); /* 2 * n_bytes digits and NUL */
uint64_t gem_random_u64(void);

#endif
