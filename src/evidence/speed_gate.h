/* speed_gate.h - the numbers behind a promotion: two arms of rates, one KPI declared primary. The
 * rules are plain arithmetic over samples, so that they can be run on simulated noise as well. */
#ifndef GEM_EVIDENCE_SPEED_GATE_H
#define GEM_EVIDENCE_SPEED_GATE_H

#include "evidence/judge.h"
#include "evidence/statistics.h"

/* Limits of the protocol; the last three are ours (docs/benchmarking.md says why). */
#define EV_GATE_FLOOR 0.03     /* least improvement of the primary KPI */
#define EV_GATE_SECONDARY 0.02 /* largest regression of the other one, unless it is noise */
#define EV_GATE_LEVEL 0.999    /* two-sided: 1 in 2000 of each side */
#define EV_GATE_RAMP 0.02      /* a one-way run of samples that moves more than this */
#define EV_GATE_REPETITIONS 3

enum {                               /* rules, as bits of ev_speed.failed */
       EV_GATE_N = 1 << 0,           /* repetitions */
       EV_GATE_IMPROVEMENT = 1 << 1, /* more than 3 % */
       EV_GATE_VARIATION = 1 << 2,   /* more than the larger CV */
       EV_GATE_LOWER = 1 << 3,       /* the interval's lower end is above zero */
       EV_GATE_DOMINANCE = 1 << 4,   /* every candidate sample beats every baseline sample */
       EV_GATE_DRIFT = 1 << 5, /* more than 3 % is left without what the arms' own drift explains */
       EV_GATE_RAMPS = 1 << 6, /* no arm ramps */
       EV_GATE_SECOND = 1 << 7, /* the secondary KPI did not regress */
       EV_GATE_STATE = 1 << 8,  /* the control series stayed where it was */
       EV_GATE_HALF = 1 << 9    /* no run drifts within itself by more than half the gain */
};

typedef struct ev_speed {
    double improvement, larger_cv;     /* of the primary KPI; shares */
    double explained;                  /* share that drift or the control explains, at least 0 */
    double half_run_drift;             /* the larger of both runs, as a size */
    double control_change, control_cv; /* of the control series */
    ev_interval difference; /* candidate less baseline, as a share of the baseline's mean */
    bool dominance, ramp_baseline, ramp_candidate;
    double regression, secondary_cv; /* of the secondary KPI; regression > 0 is slower */
    unsigned failed;
} ev_speed;

/* Rates (higher is better). base[0], cand[0]: the primary KPI; [1]: the other; [2]: a control that
 * no candidate can change, measured between the others (the machine's read roof). Every series has
 * at least 2 samples. */
void ev_speed_judge(ev_speed *out, const ev_series base[3], const ev_series cand[3]);

/* Total work over total time from rates of equal work: the harmonic mean. */
double ev_overall_rate(const ev_series *s);

/* ---- records of gem-bench ---- */
typedef struct ev_bench_options {
    bool primary_pp, allow_model_change;
} ev_bench_options;
/* Judge a candidate record against a baseline record. Rules: schema, model-identity, controls,
 * gem-revision, build, one-axis, rows, samples, aggregates, thermal-state, and those above by the
 * names repetitions, improvement, variation, lower-bound, dominance, drift, ramp, secondary. */
void ev_judge_benchmarks(ev_judge *j, const ev_doc *baseline, const ev_doc *candidate,
                         const ev_bench_options *opt);

#endif
