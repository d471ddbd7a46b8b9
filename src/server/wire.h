/* wire.h - a dialect: how one API reads a request and writes answers. One const table a dialect;
 * the scheduler calls the stream slots on the engine thread, the HTTP thread the others. Stream
 * slots append whole events to job->scratch. */
#ifndef GEM_WIRE_H
#define GEM_WIRE_H

#include "server/job.h"

#include <jansson.h>

struct gem_wire {
    const char *name;
    /* Read the body; NULL with the fault. */
    gem_job *(*read)(gem_server *s, const json_t *body, gem_fault *f);
    /* ---- streams ---- */
    void (*open)(gem_job *j);                                       /* once, before the rest */
    void (*progress)(gem_job *j, const gem_answer *a, size_t done); /* prompt tokens done */
    void (*text)(gem_job *j, gem_answer *a, const char *text, size_t len, size_t first_logprob);
    void (*reasoning)(gem_job *j, gem_answer *a, const char *text, size_t len);
    void (*call)(gem_job *j, gem_answer *a, size_t i); /* name is known */
    void (*arguments)(gem_job *j, gem_answer *a, size_t i, const char *text, size_t len);
    void (*finish)(gem_job *j, gem_answer *a);
    void (*close)(gem_job *j);                        /* all answers finished */
    void (*fail)(gem_job *j, const gem_fault *fault); /* error event */
    /* ---- whole documents ---- */
    void (*document)(gem_job *j, gem_bytes *out);
    void (*error)(const gem_fault *f, gem_bytes *out); /* NULL: gem_fault_json */
    void (*free_state)(void *state);                   /* NULL: nothing to free */
};

extern const gem_wire gem_wire_chat, gem_wire_completions, gem_wire_messages, gem_wire_responses;

#endif
