/* soak.h - what the soak (soak_cuda.c) and the scenarios it is made of (soak_acts.c) share. */
#ifndef GEM_TEST_CUDA_SOAK_H
#define GEM_TEST_CUDA_SOAK_H

#include "runtime/engine.h"

enum {
    SCENARIOS = 24,
    COMPANY = 8, /* most sessions of a scenario */
    MOST_FAILURES = 10
};

typedef struct history {
    uint64_t *step; /* owned: a digest of each row of logits, in order */
    size_t n;
    bool whole; /* it is what later rounds must give */
} history;

typedef struct soak {
    gem_model *m;
    const char *backend;
    gem_error err;
    gem_session *bystander;
    uint64_t bystander_bits;
    int32_t held_pages, held_states; /* by the bystander */
    history past[SCENARIOS];
    int32_t *prompt; /* owned, [n_ctx] */
    /* the scenario at hand */
    int now;
    size_t step;
    uint64_t random, bits; /* bits: digest of the last logits */
    gem_session *s[COMPANY];
    int32_t next[COMPANY]; /* each one's most likely token */
    gem_checkpoint *c;
    int left; /* tiles until the prefill at hand is cancelled */
    /* counts */
    uint64_t start_ns, report_ns, rounds, scenarios, prefilled, decoded, rollbacks, forks, images,
        cancels, unchanged, failures;
    int64_t device_opened, device_first, device_most; /* bytes; most: beyond it memory has grown */
    int64_t host_opened, host_first, host_most;
    bool fatal;
} soak;

/* Says where and what went wrong; returns false, so that the scenario ends. */
GEM_PRINTF(2, 3) bool soak_failed(soak *k, const char *fmt, ...);
/* A call that cannot fail did (its sentence is in k->err): there is no going on. */
bool soak_done(soak *k, gem_status st);
/* Of all bits of a row of logits. *best: the most likely token. */
uint64_t soak_digest(const gem_model *m, const float *x, int32_t *best);
/* Any n tokens, in k->prompt. */
const int32_t *soak_prompt(soak *k, int32_t n);
/* Run scenario i: false when it failed. Its sessions and its checkpoint are left to the caller. */
bool soak_scenario(soak *k, int i);

#endif
