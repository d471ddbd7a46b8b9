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

static double larger_drift(const ev_series *a, const ev_series *b)
{
    ev_figures fa, fb;
    ev_figures_of(&fa, a->x, a->n);
    ev_figures_of(&fb, b->x, b->n);
    return fmax(fabs(fa.half_run_drift), fabs(fb.half_run_drift));
}

void ev_speed_judge(ev_speed *out, const ev_series base[3], const ev_series cand[3])
{
    const ev_series *b = &base[0], *c = &cand[0];
    memset(out, 0, sizeof(*out));
    double rate = ev_overall_rate(b);
    out->improvement = ev_improvement(rate, ev_overall_rate(c), true);
    out->larger_cv = larger_cv(b, c);
    out->half_run_drift = larger_drift(b, c);
    ev_pooled(&out->difference, c->x, c->n, b->x, b->n, EV_GATE_LEVEL);
    out->difference.mean /= rate;
    out->difference.se /= rate;
    out->difference.lower /= rate;
    out->difference.upper /= rate;
    out->control_change = ev_overall_rate(&cand[2]) / ev_overall_rate(&base[2]) - 1;
    out->control_cv = larger_cv(&base[2], &cand[2]);
    out->explained = fmax(0, ev_drift_explains(b->x, b->n, c->x, c->n) / rate);
    out->explained = fmax(out->explained, out->control_change);
    out->dominance = ev_dominates(c->x, c->n, b->x, b->n, true);
    out->ramp_baseline = ev_is_ramp(b->x, b->n, EV_GATE_RAMP);
    out->ramp_candidate = ev_is_ramp(c->x, c->n, EV_GATE_RAMP);
    out->regression = 1 - ev_overall_rate(&cand[1]) / ev_overall_rate(&base[1]);
    out->secondary_cv = larger_cv(&base[1], &cand[1]);

    unsigned f = 0; /* each rule as what must hold, so that NAN fails it */
    for (int i = 0; i < 3; i++)
        if (!(base[i].n >= EV_GATE_REPETITIONS && cand[i].n >= EV_GATE_REPETITIONS)) f |= EV_GATE_N;
    if (!(out->improvement > EV_GATE_FLOOR)) f |= EV_GATE_IMPROVEMENT;
    if (!(out->improvement > out->larger_cv)) f |= EV_GATE_VARIATION;
    if (!(out->difference.lower > 0)) f |= EV_GATE_LOWER;
    if (!out->dominance) f |= EV_GATE_DOMINANCE;
    if (!(out->improvement - out->explained > EV_GATE_FLOOR)) f |= EV_GATE_DRIFT;
    if (out->ramp_baseline || out->ramp_candidate) f |= EV_GATE_RAMPS;
    if (!(out->regression <= EV_GATE_SECONDARY || out->regression <= out->secondary_cv))
        f |= EV_GATE_SECOND;
    if (!(out->half_run_drift <= out->improvement / 2)) f |= EV_GATE_HALF;
    double change = fabs(out->control_change);
    if (!(change <= EV_GATE_SECONDARY || change <= out->control_cv)) f |= EV_GATE_STATE;
    out->failed = f;
}
