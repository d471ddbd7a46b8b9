/* simulate.h - the speed gate on simulated records: how often it promotes noise (a true gain of 0),
 * and how often it sees a true gain. Deterministic for a seed. */
#ifndef GEM_EVIDENCE_SIMULATE_H
#define GEM_EVIDENCE_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Noise of one repetition. Slopes, walks and modes are the machine's: they hit both KPIs and the
 * control alike in the round where they happen; the rest is each series' own. */
typedef enum ev_noise {
    EV_NOISE_NORMAL,   /* normal, sd = cv */
    EV_NOISE_HEAVY,    /* Student's t with 3 degrees of freedom, scaled to sd = cv */
    EV_NOISE_DRIFTING, /* a slope, uniform within one cv a repetition either way, that runs on
                          through baseline and candidate; a random walk of cv / 4 a step; normal, cv
                          / 2 */
    EV_NOISE_BIMODAL,  /* one round in five lands in a mode that is 5 cv slower; normal, cv / 2 */
    EV_NOISE_KINDS
} ev_noise;
extern const char *const ev_noise_names[EV_NOISE_KINDS];

typedef struct ev_simulation {
    ev_noise noise;
    double cv;   /* of one repetition, a share */
    double gain; /* true gain of the candidate's primary KPI, a share */
    size_t repetitions, pairs;
    uint64_t seed;
} ev_simulation;

/* Pairs of a baseline run and the candidate run right behind it. Returns how many were promoted. */
size_t ev_simulate(const ev_simulation *s);

#endif
