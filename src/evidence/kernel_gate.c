/* kernel_gate.c - operator microbenchmarks: two records against each other, or four in ABBA order.
 * They guide an implementation; the report's promotion.eligible is false whatever they show. */
#include "evidence/analyzers.h"
#include "evidence/speed_gate.h"
#include "evidence/statistics.h"

#include <math.h>
#include <stdio.h>

static void never_promotes(ev_judge *j, const char *why)
{
    gem_json *p = gem_json_put(j->json, j->root, "promotion", GEM_JSON_OBJECT);
    gem_json_put_bool(j->json, p, "eligible", false);
    gem_json_put_string(j->json, p, "reason", why);
}

/* ---- two records ---- */
static const char *const shape[] = {"kernel",
                                    "parameters.input",
                                    "parameters.output",
                                    "parameters.warmup",
                                    "parameters.iterations",
                                    "parameters.repetitions",
                                    "host.cpu",
                                    "host.build"};
static const char *const axes[] = {"buffer_mode", "matrix_slots", "command_span", "batch_rows",
                                   "threads",     "isa",          "variant"};

/* Members of "parameters" that differ must be one of the axes, and only one. */
static void check_axis(ev_judge *j, const ev_doc *a, const ev_doc *b)
{
    gem_json *list = gem_json_put(j->json, j->root, "changed_axes", GEM_JSON_ARRAY);
    gem_bytes names = {0};
    for (size_t i = 0; i < ARRAY_LEN(axes); i++) {
        const gem_json *x = gem_json_get(ev_at(a->root, "parameters"), axes[i]),
                       *y = gem_json_get(ev_at(b->root, "parameters"), axes[i]);
        if ((!x && !y) || (x && y && gem_json_equal(x, y))) continue;
        gem_json_put_string(j->json, list, NULL, axes[i]);
        gem_bytes_printf(&names, "%s%s", names.len ? ", " : "", axes[i]);
    }
    ev_check(j, list->n == 1, "one-axis", "exactly one changed axis", "%zu: %s", list->n,
             names.data ? names.data : "nothing was changed");
    gem_bytes_free(&names);
}

/* Matrix slots are independently backed: Q4_0 packs 32 weights into 18 bytes. */
static void check_record(ev_judge *j, const ev_doc *d)
{
    double in = ev_need_number(j, d, "parameters.input"),
           out = ev_need_number(j, d, "parameters.output"),
           slots = ev_need_number(j, d, "parameters.matrix_slots"),
           bytes = ev_need_number(j, d, "working_set_bytes"),
           asked = ev_need_number(j, d, "parameters.warmup");
    char required[64];
    snprintf(required, sizeof(required), "at least %.0f bytes of weights",
             in * out / 32 * 18 * slots);
    ev_check(j, bytes >= in * out / 32 * 18 * slots, "working-set", required, "%s: %.0f", d->name,
             bytes);
    double effective = ev_number(d->root, "effective_warmup");
    ev_check(j, effective >= asked, "warmup", "the effective warm-up, at least what was asked for",
             "%s: %g of %g", d->name, effective, asked);
}

void ev_judge_kernel_benchmarks(ev_judge *j, const ev_doc *baseline, const ev_doc *candidate)
{
    ev_series a = {0}, b = {0};
    ev_figures fa, fb;
    ev_judge_input(j, "baseline", baseline);
    ev_judge_input(j, "candidate", candidate);
    ev_check_schema(j, baseline, "gem-kernel-bench/1");
    ev_check_schema(j, candidate, "gem-kernel-bench/1");
    for (size_t i = 0; i < ARRAY_LEN(shape); i++)
        ev_check_same(j, baseline, candidate, shape[i]);
    check_axis(j, baseline, candidate);
    check_record(j, baseline);
    check_record(j, candidate);
    bool have = ev_need_series(j, baseline, "samples_ns", EV_GATE_REPETITIONS, &a);
    have = ev_need_series(j, candidate, "samples_ns", EV_GATE_REPETITIONS, &b) && have;
    if (have) {
        double n = ev_number(baseline->root, "parameters.iterations");
        ev_figures_of(&fa, a.x, a.n);
        ev_figures_of(&fb, b.x, b.n);
        double gain = ev_improvement(fa.mean, fb.mean, false), cv = fmax(fa.cv, fb.cv);
        gem_json *m = gem_json_put(j->json, j->root, "metrics", GEM_JSON_OBJECT);
        gem_json_put_number(j->json, m, "baseline_ns_per_iteration", fa.mean / n);
        gem_json_put_number(j->json, m, "candidate_ns_per_iteration", fb.mean / n);
        gem_json_put_number(j->json, m, "improvement_percent", 100 * gain);
        gem_json_put_number(j->json, m, "larger_cv_percent", 100 * cv);
        gem_json_put_bool(j->json, m, "exceeds_floor_and_variation",
                          gain > EV_GATE_FLOOR && gain > cv);
        gem_json_put_bool(j->json, m, "dominance", ev_dominates(b.x, b.n, a.x, a.n, false));
        /* below a quarter of a second a GPU may still be raising its clock */
        gem_json_put_bool(j->json, m, "short_repetitions", fmin(fa.min, fb.min) < 0.25e9);
        gem_json_put_bool(j->json, m, "streams_250_mib",
                          ev_number(baseline->root, "working_set_bytes") >= 250.0 * 1048576 &&
                              ev_number(candidate->root, "working_set_bytes") >= 250.0 * 1048576);
        ev_put_figures(j, m, "baseline", &a);
        ev_put_figures(j, m, "candidate", &b);
    }
    never_promotes(j, "an operator microbenchmark cannot replace the model's pp, tg and TTFT");
    ev_series_free(&a);
    ev_series_free(&b);
}

/* ---- ABBA ---- */
static const char *const arm_controls[] = {"shape",      "kernel",      "selector",
                                           "parameters", "geometry",    "host.cpu",
                                           "host.build", "seed_prefix", "prefix_mode"};
/* Between the arms the kernel and what follows from it may differ, nothing else. */
static const char *const pair_controls[] = {"shape",
                                            "parameters.tokens",
                                            "parameters.iterations",
                                            "parameters.repetitions",
                                            "parameters.warmup",
                                            "geometry.query_heads",
                                            "geometry.kv_heads",
                                            "geometry.head_dim",
                                            "host.cpu",
                                            "host.build"};

static void check_arm(ev_judge *j, const ev_doc *first, const ev_doc *last)
{
    for (size_t i = 0; i < ARRAY_LEN(arm_controls); i++)
        if (ev_at(first->root, arm_controls[i]) || ev_at(last->root, arm_controls[i]))
            ev_check_same(j, first, last, arm_controls[i]);
}

static void put_abba(ev_judge *j, gem_json *parent, const char *name, const ev_abba *r)
{
    gem_json *o = gem_json_put(j->json, parent, name, GEM_JSON_OBJECT);
    gem_json_put_number(j->json, o, "baseline_mean_ns", r->a.mean);
    gem_json_put_number(j->json, o, "candidate_mean_ns", r->b.mean);
    gem_json_put_number(j->json, o, "baseline_cv_percent", 100 * r->a.cv);
    gem_json_put_number(j->json, o, "candidate_cv_percent", 100 * r->b.cv);
    gem_json_put_number(j->json, o, "improvement_percent", 100 * r->improvement);
    gem_json_put_number(j->json, o, "opening_improvement_percent", 100 * r->opening);
    gem_json_put_number(j->json, o, "closing_improvement_percent", 100 * r->closing);
    gem_json_put_number(j->json, o, "baseline_drift_percent", 100 * r->drift_a);
    gem_json_put_number(j->json, o, "candidate_drift_percent", 100 * r->drift_b);
    gem_json_put_bool(j->json, o, "every_candidate_sample_beats_every_baseline_sample",
                      r->dominance);
    gem_json_put_number(j->json, o, "lower_95_percent", 100 * r->difference.lower);
    gem_json_put_number(j->json, o, "upper_95_percent", 100 * r->difference.upper);
    gem_json_put_number(j->json, o, "degrees_of_freedom", r->difference.df);
}

/* The four samples at `path`; false when one is missing. */
static bool abba_at(ev_judge *j, const ev_doc in[4], const char *path, gem_json *metrics,
                    const char *name, gem_error *err, gem_status *st)
{
    ev_series s[4];
    const double *x[4];
    size_t n[4];
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        ok = ev_need_series(j, &in[i], path, EV_GATE_REPETITIONS, &s[i]) && ok;
        x[i] = s[i].x;
        n[i] = s[i].n;
    }
    if (ok) {
        ev_abba r;
        if (ev_abba_of(&r, x, n))
            put_abba(j, metrics, name, &r);
        else
            *st = gem_fail(err, GEM_E_NOMEM, "no memory for the pooled samples");
    }
    for (int i = 0; i < 4; i++)
        ev_series_free(&s[i]);
    return ok;
}

gem_status ev_judge_decode_abba(ev_judge *j, const ev_doc in[4], gem_error *err)
{
    static const char *const roles[] = {"A1", "B1", "B2", "A2"};
    static const char *const phases[] = {"score", "normalization", "value"};
    gem_status st = GEM_OK;
    for (int i = 0; i < 4; i++) {
        ev_judge_input(j, roles[i], &in[i]);
        ev_check_schema(j, &in[i], "gem-decode-attention-profile/1");
    }
    check_arm(j, &in[0], &in[3]);
    check_arm(j, &in[1], &in[2]);
    for (size_t i = 0; i < ARRAY_LEN(pair_controls); i++)
        ev_check_same(j, &in[0], &in[1], pair_controls[i]);
    const char *a = ev_need_text(j, &in[0], "kernel"), *b = ev_need_text(j, &in[1], "kernel");
    ev_check(j, *a && *b && strcmp(a, b) != 0, "one-axis", "the kernel is the one thing changed",
             "%s and %s", a, b);
    gem_json_put_string(j->json, j->root, "baseline_kernel", a);
    gem_json_put_string(j->json, j->root, "candidate_kernel", b);
    gem_json *metrics = gem_json_put(j->json, j->root, "metrics", GEM_JSON_OBJECT);
    abba_at(j, in, "total.samples_ns", metrics, "total", err, &st);
    for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
        char path[64];
        snprintf(path, sizeof(path), "phases.%s.samples_ns", phases[i]);
        if (ev_at(in[0].root, path) || ev_at(in[1].root, path))
            abba_at(j, in, path, metrics, phases[i], err, &st);
    }
    gem_json_put_bool(j->json, j->root, "promotion_eligible", false);
    never_promotes(j, "an ABBA operator screen is no proof for the whole model");
    return st;
}
