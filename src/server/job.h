/* job.h - one generation request: what was asked, the answers being made, and the bytes on their
 * way to the client. An HTTP thread makes it and reads the bytes; the engine thread runs it; the
 * watch cancels it. Two owners hold it, the connection and the scheduler; the last one frees it. */
#ifndef GEM_JOB_H
#define GEM_JOB_H

#include "server/fault.h"
#include "server/stop_match.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct gem_server gem_server;
typedef struct gem_job gem_job;
typedef struct gem_answer gem_answer;
typedef struct gem_wire gem_wire;

enum { GEM_MAX_TOP_LOGPROBS = 20, GEM_MAX_CHOICES = 64, GEM_OUT_CAP = 4 << 20 };

typedef enum gem_finish {
    GEM_FINISH_NONE,
    GEM_FINISH_STOP, /* the model ended its turn, or a stop string came */
    GEM_FINISH_LENGTH,
    GEM_FINISH_TOOLS,
    GEM_FINISH_CANCELLED,
    GEM_FINISH_FAILED
} gem_finish;

typedef enum gem_cancel {
    GEM_CANCEL_NONE,
    GEM_CANCEL_GONE,     /* the peer closed, or a write failed */
    GEM_CANCEL_SLOW,     /* the peer does not read */
    GEM_CANCEL_ASKED,    /* by request id */
    GEM_CANCEL_SHUTDOWN, /* the server ends */
    GEM_CANCEL_KINDS
} gem_cancel;
const char *gem_cancel_name(gem_cancel c);

/* What the sampler, the stops and the limits are; every wire fills the same. */
typedef struct gem_params {
    bool stream, include_usage, return_progress, timings_per_token, logprobs, no_cache;
    bool receipt;                /* tell what made the answer */
    bool echo;                   /* completions: the prompt's text comes first */
    int n_top;                   /* top_logprobs */
    int n;                       /* answers a prompt */
    int32_t max_tokens;          /* -1: until the context is full */
    gem_sampler_options sampler; /* logit_bias points to bias */
    gem_logit_bias *bias;        /* owned */
    char **stop;                 /* owned, [n_stop], none empty */
    size_t n_stop;
} gem_params;
void gem_params_deinit(gem_params *p);

typedef struct gem_job_prompt {
    int32_t *tokens; /* owned */
    size_t n;
} gem_job_prompt;

typedef struct gem_logprob {
    int32_t token;
    float logprob;
    size_t start; /* bytes of text before this token */
    int n_top;
    struct {
        int32_t token;
        float logprob;
    } top[GEM_MAX_TOP_LOGPROBS];
} gem_logprob;

/* One tool call of an answer. */
typedef struct gem_call {
    char id[40];               /* call_ and 32 hex digits: they key what clients send back */
    gem_bytes name, arguments; /* arguments: JSON text */
} gem_call;

/* One answer. The engine thread alone writes it until the job ended. */
struct gem_answer {
    gem_job *job;
    int index;
    const gem_job_prompt *prompt; /* borrowed from the job */
    gem_finish finish;
    const char *stop_hit; /* the stop string that ended it; borrowed; NULL */

    gem_bytes content, reasoning;
    gem_call *call; /* owned, [n_calls] */
    size_t n_calls;
    size_t n_reasoning;   /* tokens */
    gem_logprob *logprob; /* owned, [n_logprobs] */
    size_t n_logprobs, cap_logprobs;
    size_t n_sent; /* logprobs whose text was released */
    size_t n_text; /* bytes of text so far, held ones included */

    size_t n_cached;                                            /* prompt tokens taken over */
    size_t n_generated;                                         /* the end token included */
    int32_t limit;                                              /* most tokens to generate */
    uint64_t start_ns, prefilled_ns, first_ns, last_ns, end_ns; /* start: taken from the queue */

    char tokens_sha256[65]; /* receipt: of prompt and answer, int32 little-endian */

    /* the running sequence: sequence.c */
    struct gem_sequence *seq;
    gem_answer *next; /* in the queue */
};

struct gem_job {
    gem_server *server; /* borrowed */
    const gem_wire *wire;
    char request_id[24]; /* X-Request-Id */
    char id[64];         /* of the answer: chatcmpl-... */
    int64_t created;     /* s, Unix */
    const char *model;   /* id, borrowed from the server */
    gem_params p;
    gem_job_prompt *prompt; /* owned, [n_prompts] */
    size_t n_prompts;
    gem_answer *answer; /* owned, [n_answers]: prompt i has those from i * p.n on */
    size_t n_answers;
    size_t n_left; /* engine thread: answers not finished */
    uint64_t queued_ns, done_ns;
    gem_bytes scratch;             /* engine thread: one event */
    struct gem_dialogue *dialogue; /* owned; NULL: the prompt is no conversation */
    void *wire_state;              /* owned by the wire; its free_state frees it */
    bool progress_sent;
    size_t last_progress;

    atomic_int cancel; /* gem_cancel */
    atomic_int refs;
    atomic_int fd;       /* the peer's socket, -1 when it is no longer ours to look at */
    atomic_int position; /* in the queue, from 1; 0: running */
    int told_position;   /* watch thread: what the client was told last */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    gem_bytes out; /* owned: bytes not taken by the connection yet, from `taken` on */
    size_t taken;
    bool ended;                   /* nothing more will come */
    gem_fault fault;              /* http != 0: the job failed */
    uint64_t put_ns;              /* last time something was put */
    uint64_t full_ns;             /* since when out is over half its cap; 0: it is not */
    size_t n_out;                 /* bytes in all */
    gem_job *prev_job, *next_job; /* the server's list */
};

/* n_answers = n_prompts * p.n. Takes params and prompts on success. NULL: out of memory. */
gem_job *gem_job_new(gem_server *s, const gem_wire *w, gem_params *p, gem_job_prompt *prompt,
                     size_t n_prompts);
void gem_job_hold(gem_job *j);
void gem_job_release(gem_job *j);
/* Ask the engine to stop; the first reason stays. */
void gem_job_cancel(gem_job *j, gem_cancel why);
gem_cancel gem_job_cancelled(gem_job *j);

/* Bytes for the client. Past its cap the job is cancelled as slow. */
void gem_job_put(gem_job *j, const void *data, size_t len);
/* Flush the scratch as one write. */
void gem_job_put_scratch(gem_job *j);
/* A comment of an event stream, at least 16 bytes; only when the job streams. */
void gem_job_comment(gem_job *j, const char *fmt, ...) GEM_PRINTF(2, 3);
/* Nothing more will come; wakes whoever waits. */
void gem_job_end(gem_job *j);
/* Take at most max bytes; waits for the first one. 0: ended; -1: ended badly, cut the connection.
 */
long gem_job_take(gem_job *j, char *out, size_t max);
/* Wait until the job ended. */
void gem_job_wait(gem_job *j);

#endif
