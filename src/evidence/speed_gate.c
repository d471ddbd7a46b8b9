/* speed_gate.c - the arithmetic of a promotion. */
#include "evidence/speed_gate.h"

#include <math.h>

double ev_overall_rate(const ev_series *s)
{
    double time = 0;
    for (size_t i = 0; i < s->n; i++)
        time += 1 / s->x[i];
    return (double)s->n / time;
}

static double larger_cv(const ev_series *a, const ev_series *b)
{
    ev_figures fa, fb;
    ev_figures_of(&fa, a->x, a->n);
    ev_figures_of(&fb, b->x, b->n);
    return fmax(fa.cv, fb.cv);
}

void ev_speed_judge(ev_speed *out, const ev_series base[2], const ev_series cand[2])
{
    const ev_series *b = &base[0], *c = &cand[0];
    memset(out, 0, sizeof(*out));
    double rate = ev_overall_rate(b);
    out->improvement = ev_improvement(rate, ev_overall_rate(c), true);
    out->larger_cv = larger_cv(b, c);
    ev_pooled(&out->difference, c->x, c->n, b->x, b->n, EV_GATE_LEVEL);
    out->difference.mean /= rate;
    out->difference.se /= rate;
    out->difference.lower /= rate;
    out->difference.upper /= rate;
    out->explained = fmax(0, ev_drift_explains(b->x, b->n, c->x, c->n) / rate);
    out->dominance = ev_dominates(c->x, c->n, b->x, b->n, true);
    out->ramp_baseline = ev_is_ramp(b->x, b->n, EV_GATE_RAMP);
    out->ramp_candidate = ev_is_ramp(c->x, c->n, EV_GATE_RAMP);
    out->regression = 1 - ev_overall_rate(&cand[1]) / ev_overall_rate(&base[1]);
    out->secondary_cv = larger_cv(&base[1], &cand[1]);

    unsigned f = 0; /* each rule as what must hold, so that NAN fails it */
    if (!(b->n >= EV_GATE_REPETITIONS && c->n >= EV_GATE_REPETITIONS &&
          base[1].n >= EV_GATE_REPETITIONS && cand[1].n >= EV_GATE_REPETITIONS))
        f |= EV_GATE_N;
    if (!(out->improvement > EV_GATE_FLOOR)) f |= EV_GATE_IMPROVEMENT;
    if (!(out->improvement > out->larger_cv)) f |= EV_GATE_VARIATION;
    if (!(out->difference.lower > 0)) f |= EV_GATE_LOWER;
    if (!out->dominance) f |= EV_GATE_DOMINANCE;
    if (!(out->improvement - out->explained > EV_GATE_FLOOR)) f |= EV_GATE_DRIFT;
    if (out->ramp_baseline || out->ramp_candidate) f |= EV_GATE_RAMPS;
    if (!(out->regression <= EV_GATE_SECONDARY || out->regression <= out->secondary_cv))
        f |= EV_GATE_SECOND;
    out->failed = f;
}
