/* operator_gates.c - BK64 against BK128, as an operator and in the graph; see operator_gates.h. */
#include "evidence/operator_gates.h"

#include "evidence/analyzers.h"
#include "evidence/gate_parts.h"
#include "evidence/speed_gate.h"
#include "evidence/statistics.h"

#include <math.h>
#include <stdio.h>

enum { RUNS = 10, TILE_ROWS = 32 };

/* ---- one length of the operator gate ---- */
/* Each arm came first as often as the other, and every pair holds both. */
static void check_order(ev_judge *j, const ev_doc *d, const char *a, const char *b, size_t pairs)
{
    const gem_json *order = ev_at(d->root, "order"), *m = order ? order->first : NULL;
    size_t first_a = 0, good = 0;
    for (; m && m->next; m = m->next->next) {
        bool ab = gem_json_is(m, a) && gem_json_is(m->next, b),
             ba = gem_json_is(m, b) && gem_json_is(m->next, a);
        good += ab || ba;
        first_a += ab;
    }
    size_t least = pairs / 2;
    ev_check(j,
             order && order->n == 2 * pairs && good == pairs && first_a >= least &&
                 first_a <= pairs - least,
             "order", "both arms in every pair, each first as often",
             "%zu pairs of %zu, %zu begin with %s", good, pairs, first_a, a);
}

/* A device time stamp for every sample, the samples being these times; in order. */
static void check_timestamps(ev_judge *j, const ev_doc *d)
{
    const gem_json *list = ev_at(d->root, "timestamps");
    size_t good = 0;
    double before = -1;
    for (const gem_json *m = list ? list->first : NULL; m; m = m->next) {
        double start = ev_number(m, "start_ns"), end = ev_number(m, "end_ns"),
               device = ev_number(m, "device_ns"), round = ev_number(m, "round");
        int arm = gem_json_is(ev_at(m, "variant"), ev_text(d->root, "arms.1.variant"));
        const gem_json *samples = ev_at(d->root, arm ? "arms.1.samples_ns" : "arms.0.samples_ns");
        const gem_json *own = round >= 0 && round < RUNS ? gem_json_at(samples, (size_t)round) : 0;
        good += start > before && end > start && device > 0 && ev_number(own, "") == device;
        before = start;
    }
    ev_check(j, list && list->n == (size_t)2 * RUNS && good == list->n, "timestamps",
             "a start, an end and a device time for each sample, in order", "%zu of %zu", good,
             list ? list->n : 0);
}

static void check_geometry(ev_judge *j, const ev_doc *d, const ev_gate_scale *s)
{
    ev_check_text(j, d, "geometry", "shape", s->shape);
    if (strcmp(s->shape, "31b") != 0) return;
    ev_check_equals(j, d, "geometry", "geometry.query_heads", EV_31B_QUERY_HEADS);
    ev_check_equals(j, d, "geometry", "geometry.kv_heads", EV_31B_KV_HEADS);
    ev_check_equals(j, d, "geometry", "geometry.head_dim", EV_31B_HEAD_DIM);
    ev_check_equals(j, d, "geometry", "geometry.window", 0);
}

static void check_parameters(ev_judge *j, const ev_doc *d, double position)
{
    ev_check_equals(j, d, "position", "parameters.position", position);
    ev_check_equals(j, d, "controls", "parameters.rows", TILE_ROWS);
    ev_check_equals(j, d, "repetitions", "parameters.repetitions", RUNS);
    ev_check_equals(j, d, "repetitions", "parameters.warmup", RUNS);
    ev_check_text(j, d, "controls", "parameters.kv_type", "f32");
    ev_check(j, ev_is_true(d->root, "seed_prefix"), "controls", "seeded data", "%s",
             ev_text(d->root, "prefix_mode"));
    ev_check_text(j, d, "one-axis", "arms.0.variant", "bq8-bk64");
    ev_check_text(j, d, "one-axis", "arms.1.variant", "bq8-bk128");
    ev_check_equals(j, d, "selector", "arms.0.selector", 19);
    ev_check_equals(j, d, "selector", "arms.1.selector", 23);
    ev_check_text(j, d, "one-axis", "arms.1.route.axis", "key_tile");
    ev_parts_other_code(j, d, "arms.0.route.ran", "arms.1.route.ran");
    ev_check(j,
             ev_is_true(d->root, "arms.0.deterministic") &&
                 ev_is_true(d->root, "arms.1.deterministic"),
             "deterministic", "repeats of a route give the same bits", "%s", d->name);
}

/* Spread, drift and shape of one arm. */
static void check_arm(ev_judge *j, const char *arm, const ev_series *s)
{
    ev_figures f;
    ev_figures_of(&f, s->x, s->n);
    ev_check(j, f.cv <= EV_SPREAD_MOST, "cv", "at most 3 %", "%s: %.2f %%", arm, 100 * f.cv);
    ev_check(j, fabs(f.half_run_drift) <= EV_SPREAD_MOST, "drift", "halves at most 3 % apart",
             "%s: %.2f %%", arm, 100 * f.half_run_drift);
    ev_check(j, !ev_is_ramp(s->x, s->n, EV_SHAPE_FLOOR), "ramp", "no run that moves one way", "%s",
             arm);
    ev_check(j, !ev_is_discontinuous(s->x, s->n, EV_SHAPE_FLOOR, NULL), "discontinuity",
             "no step in the run", "%s", arm);
}

static void judge_gain(ev_judge *j, const ev_series *a, const ev_series *b, bool long_one,
                       gem_json *into)
{
    ev_figures fa, fb;
    ev_interval d;
    ev_figures_of(&fa, a->x, a->n);
    ev_figures_of(&fb, b->x, b->n);
    ev_paired(&d, a->x, b->x, a->n, 0.95);
    double gain = ev_improvement(fa.mean, fb.mean, false), cv = fmax(fa.cv, fb.cv);
    gem_json_put_number(j->json, into, "improvement_percent", 100 * gain);
    gem_json_put_number(j->json, into, "larger_cv_percent", 100 * cv);
    gem_json_put_number(j->json, into, "paired_95_lower_percent", 100 * d.lower / fa.mean);
    gem_json_put_number(j->json, into, "paired_95_upper_percent", 100 * d.upper / fa.mean);
    gem_json_put_number(j->json, into, "degrees_of_freedom", d.df);
    if (!long_one) {
        ev_check(j, gain >= -EV_REGRESSION_MOST, "regression", "no more than 2 % lost at 4K",
                 "%.3f %%", 100 * gain);
        return;
    }
    ev_parts_gain(j, gain, cv, d.lower / fa.mean);
}

static void judge_length(ev_judge *j, const ev_doc *d, const ev_gate_scale *s, double position,
                         gem_json *list)
{
    ev_series a = {0}, b = {0};
    ev_check_schema(j, d, "gem-long-attention-profile/1");
    check_geometry(j, d, s);
    check_parameters(j, d, position);
    check_order(j, d, "bq8-bk64", "bq8-bk128", RUNS);
    check_timestamps(j, d);
    bool have = ev_need_series(j, d, "arms.0.samples_ns", RUNS, &a);
    have = ev_need_series(j, d, "arms.1.samples_ns", RUNS, &b) && have;
    if (have && a.n == b.n) {
        gem_json *o = gem_json_put(j->json, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_number(j->json, o, "position", position);
        check_arm(j, "bq8-bk64", &a);
        check_arm(j, "bq8-bk128", &b);
        judge_gain(j, &a, &b, position > 4096, o);
        ev_put_figures(j, o, "baseline", &a);
        ev_put_figures(j, o, "candidate", &b);
    }
    ev_series_free(&a);
    ev_series_free(&b);
}

/* On Metal the compiled memory of a threadgroup is known; elsewhere the receipt says that it is
 * not. */
static void check_resources(const ev_gate *g, const ev_doc *record)
{
    ev_doc d;
    if (ev_gate_doc(g, "resources.json", &d)) {
        bool metal = strcmp(ev_text(record->root, "parameters.backend"), "metal") == 0;
        const char *reason = ev_text(d.root, "reason");
        if (metal) {
            ev_check_equals(g->j, &d, "resources", "threadgroup_bytes.limit", 32768);
            ev_check_equals(g->j, &d, "resources", "threadgroup_bytes.bq8-bk64", 18496);
            ev_check_equals(g->j, &d, "resources", "threadgroup_bytes.bq8-bk128", 20544);
        } else {
            ev_check(g->j, ev_is_false(d.root, "available") && *reason, "resources",
                     "a receipt, or why there is none", "%s", reason);
        }
        gem_json_put_copy(g->j->json, g->j->root, "resources", d.root);
    }
    ev_doc_free(&d);
}

void ev_judge_bq8_gate(ev_judge *j, const char *dir, const ev_gate_scale *s)
{
    static const char *const names[] = {"attention-4k.json", "attention-64k.json",
                                        "attention-128k.json"};
    static const double positions[] = {4064, 65504, 131040};
    const ev_gate g = {j, dir};
    ev_doc config, d[3];
    bool ok = true;
    ev_parts_begin(&g, &config, "gem-bq8-bk128-gate", 1, strcmp(s->shape, "31b") == 0);
    ev_parts_host(&g, &config, "", 0);
    gem_json *list = gem_json_put(j->json, j->root, "lengths", GEM_JSON_ARRAY);
    for (int i = 0; i < 3; i++) {
        bool there = ev_gate_doc(&g, names[i], &d[i]);
        j->about = names[i];
        if (there) judge_length(j, &d[i], s, positions[i], list);
        j->about = NULL;
        ok = ok && there;
    }
    for (int i = 1; ok && i < 3; i++)
        ev_parts_same_host(j, &d[0], &d[i]);
    if (ok) check_resources(&g, &d[0]);
    ev_parts_never(j, "an operator screen: it admits to the evaluated graph and its logits");
    for (int i = 0; i < 3; i++)
        ev_doc_free(&d[i]);
    ev_doc_free(&config);
}

/* ---- the graph gate ---- */
static void check_repeats(ev_judge *j, const ev_doc *d, const char *arm)
{
    char path[64];
    snprintf(path, sizeof(path), "%s.logits_sha256", arm);
    const gem_json *list = ev_at(d->root, path);
    bool same = list && list->type == GEM_JSON_ARRAY && list->n >= 3;
    for (const gem_json *m = same ? list->first : NULL; m; m = m->next)
        same = same && m->type == GEM_JSON_STRING && ev_is_digest(m->text) &&
               gem_json_equal(m, list->first);
    snprintf(path, sizeof(path), "%s.bit_identical_repeats", arm);
    ev_check(j, same && ev_is_true(d->root, path), "bit-identical",
             "three or more repeats of the same bits", "%s: %zu digests", arm, list ? list->n : 0);
}

static void check_logits(ev_judge *j, const ev_doc *d)
{
    double corr = ev_number(d->root, "logits.correlation"),
           nmse = ev_number(d->root, "logits.nmse");
    ev_check(j, ev_is_true(d->root, "logits.finite"), "finite", "every logit", "%s", d->name);
    ev_check(j, ev_is_true(d->root, "logits.same_argmax"), "argmax", "the same", "%g and %g",
             ev_number(d->root, "baseline.argmax"), ev_number(d->root, "candidate.argmax"));
    ev_check(j, ev_is_true(d->root, "logits.same_top10_set"), "top-10", "the same ten ids", "%s",
             d->name);
    ev_check(j, corr >= 0.9999 && corr <= 1.0000001, "correlation", "at least 0.9999", "%.9f",
             corr);
    ev_check(j, nmse >= 0 && nmse <= 1e-4, "nmse", "at most 1e-4", "%.3e", nmse);
}

static void check_operator_gate(const ev_gate *g)
{
    ev_doc d;
    if (ev_gate_doc(g, "operator-report.json", &d)) {
        const gem_json *failed = ev_at(d.root, "report.failed_rules");
        const char *schema = ev_text(d.root, "report.schema"),
                   *verdict = ev_text(d.root, "report.verdict");
        bool passed = !strcmp(schema, "gem-analyze-bq8-bk128-gate/1") &&
                      !strcmp(verdict, "advance") && failed && failed->n == 0 &&
                      ev_is_digest(ev_text(d.root, "manifest_sha256"));
        ev_check(g->j, passed, "operator-gate", "the operator gate's own report, advancing BK128",
                 "%s: %s", schema, verdict);
    }
    ev_doc_free(&d);
}

static void judge_pairs(ev_judge *j, const ev_doc *d)
{
    ev_series a = {0}, b = {0};
    bool have = ev_need_series(j, d, "baseline.samples_ns", EV_GATE_REPETITIONS, &a);
    have = ev_need_series(j, d, "candidate.samples_ns", EV_GATE_REPETITIONS, &b) && have;
    ev_check(j, have && a.n == b.n && (double)a.n == ev_number(d->root, "repetitions"),
             "repetitions", "as many samples of each route as repetitions", "%zu and %zu", a.n,
             b.n);
    if (have && a.n == b.n) {
        gem_json *m = gem_json_put(j->json, j->root, "metrics", GEM_JSON_OBJECT);
        check_order(j, d, ev_text(d->root, "baseline.name"), ev_text(d->root, "candidate.name"),
                    a.n);
        judge_gain(j, &a, &b, true, m);
        ev_put_figures(j, m, "baseline", &a);
        ev_put_figures(j, m, "candidate", &b);
    }
    ev_series_free(&a);
    ev_series_free(&b);
}

void ev_judge_bq8_graph_gate(ev_judge *j, const char *dir, const ev_gate_scale *s)
{
    const ev_gate g = {j, dir};
    ev_doc config, d;
    ev_parts_begin(&g, &config, "gem-bq8-bk128-graph-gate", 1, s->position == 65536);
    ev_parts_host(&g, &config, "", 0);
    ev_parts_print_config(&g, &config, "f32");
    check_operator_gate(&g);
    if (ev_gate_doc(&g, "prefix-ab.json", &d)) {
        ev_check_schema(j, &d, "gem-long-prefix-ab/1");
        ev_check_equals(j, &d, "position", "position", s->position);
        ev_check_equals(j, &d, "controls", "rows", TILE_ROWS);
        ev_check_text(j, &d, "controls", "parameters.kv_type", "f32");
        ev_check_equals(j, &d, "selector", "baseline.selector", 19);
        ev_check_equals(j, &d, "selector", "candidate.selector", 23);
        ev_parts_other_code(j, &d, "baseline.route.ran", "candidate.route.ran");
        ev_check(j,
                 !strcmp(ev_text(d.root, "prefix_mode"), "evaluated") &&
                     ev_number(d.root, "prefix_builds") == 1,
                 "prefix", "evaluated, built once", "%s, %g builds", ev_text(d.root, "prefix_mode"),
                 ev_number(d.root, "prefix_builds"));
        ev_gate_digest(&g, "model-digest", "prefix-ab.json", ev_text(config.root, "model_sha256"),
                       ev_text(d.root, "model.sha256"));
        check_repeats(j, &d, "baseline");
        check_repeats(j, &d, "candidate");
        check_logits(j, &d);
        judge_pairs(j, &d);
    }
    gem_json_put_bool(j->json, j->root, "production_eligible", false);
    ev_parts_never(j,
                   "selector 23 is never production's: passing permits changing what selector 19 "
                   "dispatches, after which correctness and the server gates run again");
    ev_doc_free(&d);
    ev_doc_free(&config);
}
