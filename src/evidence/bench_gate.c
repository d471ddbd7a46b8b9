/* bench_gate.c - records of gem-bench against each other: same controls, one axis, honest
 * aggregates, then the speed gate. */
#include "evidence/speed_gate.h"

#include <math.h>
#include <stdio.h>

static const char *const controls[] = {
    "parameters.context",
    "parameters.prompt_tokens",
    "parameters.generation_tokens",
    "parameters.depth",
    "parameters.backend",
    "parameters.warmups",
    "host.cpu",
    "host.cpus_online",
    "host.cpus_usable",
    "host.machine",
    "host.kernel",
    "host.memory_total",
    "host.governor",
    "host.huge_pages",
};
/* Compiled differently is not a kernel improvement either. */
static const char *const revision[] = {"host.build.version", "host.build.commit"};
static const char *const build[] = {"host.build.compiler", "host.build.type",
                                    "host.build.sanitizers", "host.build.target"};
/* Members of "parameters" that are no axis: controls above, and what is checked by counting. */
static bool is_axis(const char *name)
{
    char path[96];
    snprintf(path, sizeof(path), "parameters.%.60s", name);
    for (size_t i = 0; i < ARRAY_LEN(controls); i++)
        if (strcmp(controls[i], path) == 0) return false;
    return strcmp(name, "repetitions") != 0;
}

static const char *text_of(char out[128], const gem_json *v)
{
    gem_bytes b = {0};
    if (!v) return "absent";
    gem_json_write_canonical(&b, v, NULL);
    snprintf(out, 128, "%.120s", b.data ? b.data : "");
    gem_bytes_free(&b);
    return out;
}

/* ---- identity ---- */
static bool same_text(const ev_doc *a, const ev_doc *b, const char *path)
{
    const gem_json *x = ev_at(a->root, path), *y = ev_at(b->root, path);
    return x && y && gem_json_equal(x, y);
}

/* True when the model is the same one; says so by digest where both records have it. */
static void check_model(ev_judge *j, const ev_doc *a, const ev_doc *b, const ev_bench_options *opt,
                        gem_json *axes)
{
    const char *da = ev_text(a->root, "model.sha256"), *db = ev_text(b->root, "model.sha256");
    bool digests = ev_is_digest(da) && ev_is_digest(db), mixed = !*da != !*db;
    bool same = same_text(a, b, "model.family") && same_text(a, b, "model.name") &&
                same_text(a, b, "model.file_bytes") && same_text(a, b, "model.weights_bytes");
    bool manifest = ev_at(a->root, "config.model.manifest_sha256") ||
                    ev_at(b->root, "config.model.manifest_sha256");
    same = same && (!manifest || same_text(a, b, "config.model.manifest_sha256"));
    same = same && !mixed && (!*da || (digests && strcmp(da, db) == 0));
    gem_json_put_string(j->json, j->root, "model_identity",
                        digests ? "sha256 of both files" : "name, sizes and manifest; no digest");
    if (!same && opt->allow_model_change && !mixed) {
        gem_json_put_string(j->json, axes, NULL, "model");
        gem_json_put_string(j->json, j->root, "experiment",
                            "another model or quantization: allowed by --allow-model-change");
        ev_check(j, true, "model-identity", "the same model, or --allow-model-change",
                 "another model, allowed");
        return;
    }
    ev_check(j, same, "model-identity", "the same model, or --allow-model-change",
             "%s (%s) and %s (%s)", ev_text(a->root, "model.name"), *da ? da : "no digest",
             ev_text(b->root, "model.name"), *db ? db : "no digest");
}

static void check_axes(ev_judge *j, const ev_doc *a, const ev_doc *b, gem_json *axes)
{
    char x[128], y[128];
    gem_bytes list = {0};
    const gem_json *pa = ev_at(a->root, "parameters"), *pb = ev_at(b->root, "parameters");
    gem_json *changes = gem_json_put(j->json, j->root, "axis_values", GEM_JSON_OBJECT);
    for (int side = 0; side < 2; side++) /* members of the first, then those only the second has */
        for (const gem_json *m = side ? (pb ? pb->first : NULL) : (pa ? pa->first : NULL); m;
             m = m->next) {
            const gem_json *other = gem_json_get(side ? pa : pb, m->name);
            if (!is_axis(m->name) || (side && other) || (other && gem_json_equal(m, other)))
                continue;
            gem_json_put_string(j->json, axes, NULL, m->name);
            gem_json *o = gem_json_put(j->json, changes, m->name, GEM_JSON_OBJECT);
            gem_json_put_string(j->json, o, "baseline", text_of(x, side ? other : m));
            gem_json_put_string(j->json, o, "candidate", text_of(y, side ? m : other));
        }
    const char *ra = ev_text(a->root, "rows.0.attention_route"),
               *rb = ev_text(b->root, "rows.0.attention_route");
    if (same_text(a, b, "parameters.isa") &&
        strcmp(ra, rb) != 0) { /* else it follows from the ISA */
        gem_json_put_string(j->json, axes, NULL, "attention_route");
        gem_json *o = gem_json_put(j->json, changes, "attention_route", GEM_JSON_OBJECT);
        gem_json_put_string(j->json, o, "baseline", ra);
        gem_json_put_string(j->json, o, "candidate", rb);
    }
    for (const gem_json *m = axes->first; m; m = m->next)
        gem_bytes_printf(&list, "%s%s", m->index ? ", " : "", m->text);
    ev_check(j, pa && pb && axes->n == 1, "one-axis", "exactly one changed axis", "%zu: %s",
             axes->n, list.data ? list.data : "nothing was changed");
    gem_bytes_free(&list);
}

/* ---- rates ---- */
/* The one row of this name; NULL when there is none or several. */
static const gem_json *row_of(const ev_doc *d, const char *name)
{
    const gem_json *rows = ev_at(d->root, "rows"), *found = NULL;
    for (const gem_json *m = rows ? rows->first : NULL; m; m = m->next) {
        if (!gem_json_is(gem_json_get(m, "name"), name)) continue;
        if (found) return NULL;
        found = m;
    }
    return found;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Rates from raw nanoseconds; what the record says of them must agree. */
static bool rates(ev_judge *j, const ev_doc *d, const char *name, ev_series *out)
{
    ev_figures f;
    ev_series told = {0};
    const gem_json *row = row_of(d, name);
    memset(out, 0, sizeof(*out));
    if (!ev_check(j, row != NULL, "rows", "exactly one row of each KPI", "%s: %s: %s", d->name,
                  name, row ? "one" : "none or several"))
        return false;
    double n_tokens = ev_number(row, "n_tokens"),
           repetitions = ev_number(d->root, "parameters.repetitions");
    bool ok = ev_series_read(out, ev_at(row, "samples_ns")) && n_tokens > 0;
    ok = ev_check(j, ok && (double)out->n == repetitions, "samples",
                  "as many samples above zero as repetitions", "%s: %s: %zu for %g", d->name, name,
                  out->n, repetitions);
    if (!ok) return false;
    for (size_t i = 0; i < out->n; i++)
        out->x[i] = n_tokens * 1e9 / out->x[i];
    ok = ev_series_read(&told, ev_at(row, "samples_per_s")) && told.n == out->n;
    for (size_t i = 0; ok && i < out->n; i++)
        ok = near(told.x[i], out->x[i]);
    ev_figures_of(&f, out->x, out->n);
    ok = ok && near(ev_number(row, "rate_per_s.mean"), f.mean);
    ok = ok && near(ev_number(row, "rate_per_s.overall"), ev_overall_rate(out));
    ok = ok && (out->n < 2 || fabs(ev_number(row, "rate_per_s.cv") - f.cv) <= 1e-9);
    ev_series_free(&told);
    ev_check(j, ok, "aggregates", "what the record says of its samples, recomputed", "%s: %s: %s",
             d->name, name, ok ? "agrees" : "does not follow from the raw samples");
    return true;
}

/* The read roof ran between the generation runs of each record: what else slowed the machine down
 * slowed it too. Without it nobody knows what state the machine was in. */
static bool read_control(ev_judge *j, const ev_doc *d, ev_series *s)
{
    bool ok = ev_series_read(s, ev_at(d->root, "read_roof.samples_ns"));
    for (size_t i = 0; i < s->n; i++)
        s->x[i] = 1e9 / s->x[i];
    return ev_check(j, ok && s->n > 1, "thermal-state", "a read roof measured in the same run",
                    "%s: %zu samples", d->name, s->n);
}

/* ---- the verdict ---- */
static void put_metric(ev_judge *j, gem_json *metrics, const char *name, const ev_series *base,
                       const ev_series *cand)
{
    gem_json *o = gem_json_put(j->json, metrics, name, GEM_JSON_OBJECT);
    gem_json_put_string(j->json, o, "unit", "tokens per second");
    gem_json_put_number(j->json, o, "baseline_overall", ev_overall_rate(base));
    gem_json_put_number(j->json, o, "candidate_overall", ev_overall_rate(cand));
    gem_json_put_number(j->json, o, "improvement_percent",
                        100 * ev_improvement(ev_overall_rate(base), ev_overall_rate(cand), true));
    ev_put_figures(j, o, "baseline", base);
    ev_put_figures(j, o, "candidate", cand);
}

static void check_speed(ev_judge *j, const ev_speed *s)
{
    unsigned f = s->failed;
    gem_json *o = gem_json_put(j->json, j->root, "interval", GEM_JSON_OBJECT);
    gem_json_put_number(j->json, o, "two_sided_level", EV_GATE_LEVEL);
    gem_json_put_number(j->json, o, "degrees_of_freedom", s->difference.df);
    gem_json_put_number(j->json, o, "t", s->difference.t);
    gem_json_put_number(j->json, o, "lower_percent", 100 * s->difference.lower);
    gem_json_put_number(j->json, o, "upper_percent", 100 * s->difference.upper);
    ev_check(j, !(f & EV_GATE_N), "repetitions",
             "at least 3 of each KPI and of the read roof in each run", "%s",
             f & EV_GATE_N ? "fewer" : "enough");
    ev_check(j, !(f & EV_GATE_IMPROVEMENT), "improvement", "more than 3 % of the primary KPI",
             "%.3f %%", 100 * s->improvement);
    ev_check(j, !(f & EV_GATE_VARIATION), "variation", "more than the larger run's CV",
             "%.3f %% beside a CV of %.3f %%", 100 * s->improvement, 100 * s->larger_cv);
    ev_check(j, !(f & EV_GATE_LOWER), "lower-bound",
             "above 0 at 99.95 % (Student's t, one-sided, pooled variance)", "%.3f %%",
             100 * s->difference.lower);
    ev_check(j, !(f & EV_GATE_DOMINANCE), "dominance",
             "every candidate sample faster than every baseline sample", "%s",
             s->dominance ? "so" : "not so");
    ev_check(j, !(f & EV_GATE_DRIFT), "drift",
             "more than 3 % without what the runs' own drift, or the read roof's, explains",
             "%.3f %% less %.3f %%", 100 * s->improvement, 100 * s->explained);
    ev_check(j, !(f & EV_GATE_RAMPS), "ramp", "no run that moves one way by more than 2 %", "%s%s",
             s->ramp_baseline ? "the baseline ramps " : "",
             s->ramp_candidate  ? "the candidate ramps"
             : s->ramp_baseline ? ""
                                : "none");
    ev_check(j, !(f & EV_GATE_SECOND), "secondary",
             "no regression of the other KPI over 2 % and over its variation",
             "%.3f %% slower, CV %.3f %%", 100 * s->regression, 100 * s->secondary_cv);
    ev_check(j, !(f & EV_GATE_HALF), "half-run-drift",
             "no run whose halves differ by more than half the gain", "%.3f %%",
             100 * s->half_run_drift);
    ev_check(j, !(f & EV_GATE_STATE), "thermal-state",
             "the read roof of both runs within 2 % or its own variation", "%+.3f %%, CV %.3f %%",
             100 * s->control_change, 100 * s->control_cv);
}

void ev_judge_benchmarks(ev_judge *j, const ev_doc *baseline, const ev_doc *candidate,
                         const ev_bench_options *opt)
{
    const char *kpi[2] = {opt->primary_pp ? "pp" : "tg", opt->primary_pp ? "tg" : "pp"};
    ev_series base[3] = {{0}}, cand[3] = {{0}};
    ev_speed speed;
    ev_judge_input(j, "baseline", baseline);
    ev_judge_input(j, "candidate", candidate);
    gem_json_put_string(j->json, j->root, "primary", kpi[0]);
    ev_check_schema(j, baseline, "gem-bench/1");
    ev_check_schema(j, candidate, "gem-bench/1");
    for (size_t i = 0; i < ARRAY_LEN(controls); i++)
        ev_check_same(j, baseline, candidate, controls[i]);
    bool same = true, built = true;
    for (size_t i = 0; i < ARRAY_LEN(revision); i++)
        same = same && same_text(baseline, candidate, revision[i]);
    ev_check(j, same, "gem-revision", "one revision of gem", "%s and %s",
             ev_text(baseline->root, "host.build.commit"),
             ev_text(candidate->root, "host.build.commit"));
    for (size_t i = 0; i < ARRAY_LEN(build); i++)
        built = built && same_text(baseline, candidate, build[i]);
    built = built && ev_at(baseline->root, "host.build.sanitizers") &&
            !*ev_text(baseline->root, "host.build.sanitizers");
    ev_check(j, built, "build", "one build, without sanitizers", "%s and %s",
             ev_text(baseline->root, "host.build.type"),
             ev_text(candidate->root, "host.build.type"));
    gem_json *axes = gem_json_put(j->json, j->root, "changed_axes", GEM_JSON_ARRAY);
    check_model(j, baseline, candidate, opt, axes);
    check_axes(j, baseline, candidate, axes);

    bool have = read_control(j, baseline, &base[2]);
    have = read_control(j, candidate, &cand[2]) && have;
    for (int i = 0; i < 2; i++) {
        have = rates(j, baseline, kpi[i], &base[i]) && have;
        have = rates(j, candidate, kpi[i], &cand[i]) && have;
    }
    gem_json *metrics = gem_json_put(j->json, j->root, "metrics", GEM_JSON_OBJECT);
    for (int i = 0; have && i < 2; i++)
        put_metric(j, metrics, kpi[i], &base[i], &cand[i]);
    have = have && base[0].n > 1 && base[1].n > 1 && cand[0].n > 1 && cand[1].n > 1;
    if (have) {
        ev_speed_judge(&speed, base, cand);
        check_speed(j, &speed);
    } else {
        ev_check(j, false, "repetitions", "at least 3 of each KPI in each run",
                 "no usable samples");
    }
    gem_json *promotion = gem_json_put(j->json, j->root, "promotion", GEM_JSON_OBJECT);
    gem_json_put_bool(j->json, promotion, "eligible", ev_holds(j));
    gem_json_put_string(j->json, promotion, "primary", kpi[0]);
    gem_json_put_string(j->json, promotion, "axis", axes->first ? axes->first->text : "none");
    for (int i = 0; i < 3; i++) {
        ev_series_free(&base[i]);
        ev_series_free(&cand[i]);
    }
}
