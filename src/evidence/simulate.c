/* simulate.c - noise as machines make it, through the gate. */
#include "evidence/simulate.h"

#include "evidence/speed_gate.h"

#include <math.h>

const char *const ev_noise_names[EV_NOISE_KINDS] = {"normal", "heavy-tailed", "drifting",
                                                    "bimodal"};

enum { MAX_REPETITIONS = 64 };

static double uniform(uint64_t *s) /* in (0, 1) */
{
    return ((double)(gem_splitmix64(s) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *s) /* Box and Muller 1958 */
{
    double r = sqrt(-2 * log(uniform(s)));
    return r * cos(6.283185307179586 * uniform(s));
}

static double student3(uint64_t *s) /* its variance is 3: scaled to 1 */
{
    double z = normal(s), a = normal(s), b = normal(s), c = normal(s);
    return z / sqrt((a * a + b * b + c * c) / 3) / sqrt(3.0);
}

/* What the machine does to every series: 2n rounds, the baseline's, then the candidate's. */
static void draw_machine(const ev_simulation *sim, double *x, size_t n, uint64_t *s)
{
    double slope = (2 * uniform(s) - 1) * sim->cv, walk = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        x[i] = 0;
        if (sim->noise == EV_NOISE_DRIFTING) x[i] = walk += slope + sim->cv / 4 * normal(s);
        if (sim->noise == EV_NOISE_BIMODAL && uniform(s) < 0.2) x[i] = -5 * sim->cv;
    }
}

/* 2n rates of one series around 1. */
static void draw(const ev_simulation *sim, const double *machine, double *x, size_t n, uint64_t *s)
{
    for (size_t i = 0; i < 2 * n; i++) {
        double own = sim->noise == EV_NOISE_HEAVY    ? sim->cv * student3(s)
                     : sim->noise == EV_NOISE_NORMAL ? sim->cv * normal(s)
                                                     : sim->cv / 2 * normal(s);
        x[i] = fmax(1 + machine[i] + own, 0.01);
    }
}

size_t ev_simulate(const ev_simulation *sim)
{
    double machine[2 * MAX_REPETITIONS], x[3][2 * MAX_REPETITIONS];
    size_t n = GEM_MIN(sim->repetitions, (size_t)MAX_REPETITIONS), promoted = 0;
    uint64_t state = sim->seed;
    for (size_t p = 0; p < sim->pairs; p++) {
        ev_series base[3], cand[3];
        ev_speed speed;
        draw_machine(sim, machine, n, &state);
        for (int k = 0; k < 3; k++) {
            draw(sim, machine, x[k], n, &state);
            base[k] = (ev_series){x[k], n};
            cand[k] = (ev_series){x[k] + n, n};
        }
        for (size_t i = n; i < 2 * n; i++)
            x[0][i] *= 1 + sim->gain;
        /* the interval costs most: a pair that fails the first rule needs none */
        if (!(ev_overall_rate(&cand[0]) / ev_overall_rate(&base[0]) - 1 > EV_GATE_FLOOR)) continue;
        ev_speed_judge(&speed, base, cand);
        promoted += speed.failed == 0;
    }
    return promoted;
}
