/* decode_gates.c - selector 20 (score tiles of eight) against 19, and stage attribution; see
 * operator_gates.h. */
#include "evidence/analyzers.h"
#include "evidence/gate_parts.h"
#include "evidence/operator_gates.h"
#include "evidence/speed_gate.h"
#include "evidence/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- one length of the score-tile8 gate ---- */
static const char *const arm_controls[] = {"shape",    "kernel",     "selector",   "parameters",
                                           "geometry", "host.cpu",   "host.build", "seed_prefix",
                                           "route",    "prefix_mode"};
static const char *const pair_controls[] = {"shape",
                                            "parameters",
                                            "geometry.query_heads",
                                            "geometry.kv_heads",
                                            "geometry.head_dim",
                                            "geometry.kv_element_bytes",
                                            "host.cpu",
                                            "host.build",
                                            "seed_prefix"};

static void check_arms(ev_judge *j, const ev_doc d[4], double tokens, const ev_gate_scale *s)
{
    for (int i = 0; i < 4; i++) {
        bool candidate = i == 1 || i == 2;
        ev_check_schema(j, &d[i], "gem-decode-attention-profile/1");
        ev_check_text(j, &d[i], "geometry", "shape", s->shape);
        ev_check_equals(j, &d[i], "position", "parameters.tokens", tokens);
        ev_check_equals(j, &d[i], "repetitions", "parameters.iterations", 5);
        ev_check_equals(j, &d[i], "repetitions", "parameters.repetitions", 3);
        ev_check_equals(j, &d[i], "repetitions", "parameters.warmup", 3);
        ev_check_text(j, &d[i], "kernel", "kernel", candidate ? "score-tile8" : "split16");
        ev_check_equals(j, &d[i], "selector", "selector", candidate ? 20 : 19);
        ev_check(j, ev_is_true(d[i].root, "deterministic"), "deterministic",
                 "repeats give the same bits", "%s", d[i].name);
    }
    for (size_t i = 0; i < ARRAY_LEN(arm_controls); i++) {
        ev_check_same(j, &d[0], &d[3], arm_controls[i]);
        ev_check_same(j, &d[1], &d[2], arm_controls[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(pair_controls); i++)
        ev_check_same(j, &d[0], &d[1], pair_controls[i]);
    const char *a = ev_text(d[0].root, "kernel_route.ran"),
               *b = ev_text(d[1].root, "kernel_route.ran");
    ev_check(j, *a && *b && strcmp(a, b) != 0, "one-axis", "two routes that are other code", "%s",
             strcmp(a, b) ? "two" : "this backend ran the same code for both");
}

static bool pooled(ev_judge *j, const ev_doc d[4], ev_abba *out)
{
    ev_series s[4];
    const double *x[4];
    size_t n[4];
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        ok = ev_need_series(j, &d[i], "total.samples_ns", EV_GATE_REPETITIONS, &s[i]) && ok;
        x[i] = s[i].x;
        n[i] = s[i].n;
        if (ok)
            ok = ev_check(j, s[i].n == EV_GATE_REPETITIONS, "samples", "three in each arm",
                          "%s: %zu", d[i].name, s[i].n);
    }
    ok = ok && ev_abba_of(out, x, n);
    for (int i = 0; i < 4; i++)
        ev_series_free(&s[i]);
    return ok;
}

/* What a whole token would gain: the layers' saving taken off the token of the seeded profile. */
static void project(ev_judge *j, const ev_doc *token, const ev_abba *r, const ev_gate_scale *s,
                    double position, gem_json *o)
{
    ev_series step;
    ev_check_schema(j, token, "gem-decode-profile/1");
    ev_check_equals(j, token, "position", "parameters.position", position);
    ev_check_equals(j, token, "selector", "selector", 19);
    ev_check_equals(j, token, "graph", "layers.total", (double)s->layers);
    ev_check_equals(j, token, "graph", "layers.full", (double)s->full_layers);
    if (ev_need_series(j, token, "step.samples_ns", EV_GATE_REPETITIONS, &step)) {
        ev_figures f;
        ev_figures_of(&f, step.x, step.n);
        double saved = (double)s->full_layers * (r->a.mean - r->b.mean),
               all = (double)s->full_layers * r->a.mean, gain = f.mean / (f.mean - saved) - 1;
        ev_check(j, all <= f.mean, "attribution", "the layers' attention within the token",
                 "%.0f ns of %.0f ns", all, f.mean);
        ev_check(j, saved < f.mean && gain >= EV_CEILING, "projection",
                 "at least 3 % of a whole token", "%.3f %%", 100 * gain);
        gem_json_put_number(j->json, o, "token_ns", f.mean);
        gem_json_put_number(j->json, o, "projected_whole_token_gain_percent", 100 * gain);
    }
    ev_series_free(&step);
}

static void judge_length(const ev_gate *g, const ev_gate_scale *s, const char *label, double tokens,
                         gem_json *list)
{
    static const char *const arms[] = {"A1", "B1", "B2", "A2"};
    ev_doc d[4], token;
    ev_abba r;
    char name[48];
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%s-%s.json", arms[i], label);
        ok = ev_gate_doc(g, name, &d[i]) && ok;
    }
    snprintf(name, sizeof(name), "decode-%s.json", label);
    ok = ev_gate_doc(g, name, &token) && ok;
    g->j->about = label;
    if (ok) check_arms(g->j, d, tokens, s);
    if (ok && pooled(g->j, d, &r)) {
        gem_json *o = gem_json_put(g->j->json, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_number(g->j->json, o, "tokens", tokens);
        gem_json_put_number(g->j->json, o, "baseline_mean_ns", r.a.mean);
        gem_json_put_number(g->j->json, o, "candidate_mean_ns", r.b.mean);
        gem_json_put_number(g->j->json, o, "improvement_percent", 100 * r.improvement);
        gem_json_put_number(g->j->json, o, "opening_improvement_percent", 100 * r.opening);
        gem_json_put_number(g->j->json, o, "closing_improvement_percent", 100 * r.closing);
        gem_json_put_number(g->j->json, o, "baseline_drift_percent", 100 * r.drift_a);
        gem_json_put_number(g->j->json, o, "candidate_drift_percent", 100 * r.drift_b);
        gem_json_put_bool(g->j->json, o, "dominance", r.dominance);
        project(g->j, &token, &r, s, tokens, o);
    }
    g->j->about = NULL;
    for (int i = 0; i < 4; i++)
        ev_doc_free(&d[i]);
    ev_doc_free(&token);
}

/* A check that ran behind the timing: "started" after the last receipt of the host. */
static void check_behind(const ev_gate *g, const char *rule, const char *name, const char *after)
{
    ev_doc d;
    if (ev_gate_doc(g, name, &d)) {
        const char *started = ev_text(d.root, "started");
        ev_check_text(g->j, &d, "schema", "schema", "gem-gate-command/1");
        ev_check_equals(g->j, &d, rule, "exit", 0);
        ev_check(g->j, strlen(started) == 20 && *after && strcmp(started, after) >= 0,
                 "after-timing", "begun when all timing was done", "%s: %s, timing until %s", name,
                 started, after);
    }
    ev_doc_free(&d);
}

void ev_judge_score_tile8_gate(ev_judge *j, const char *dir, const ev_gate_scale *s)
{
    static const char *const labels[] = {"64k", "128k"};
    static const double tokens[] = {65536, 131072};
    const ev_gate g = {j, dir};
    ev_doc config, last;
    ev_parts_begin(&g, &config, "gem-score-tile8-gate", 2,
                   !strcmp(s->shape, "31b-full") && s->layers == EV_31B_LAYERS);
    ev_parts_print_config(&g, &config, "f32");
    gem_json *list = gem_json_put(j->json, j->root, "lengths", GEM_JSON_ARRAY);
    for (int i = 0; i < 2; i++) {
        char suffix[16];
        snprintf(suffix, sizeof(suffix), "-%s", labels[i]);
        ev_parts_host(&g, &config, suffix, 0);
        judge_length(&g, s, labels[i], tokens[i], list);
    }
    if (ev_gate_doc(&g, "host-postflight-128k.json", &last)) {
        check_behind(&g, "parity", "parity.json", ev_text(last.root, "time"));
        check_behind(&g, "oracle", "oracle.json", ev_text(last.root, "time"));
    }
    ev_parts_never(j, "an operator screen: it admits to authentic logits and a populated profile");
    ev_doc_free(&last);
    ev_doc_free(&config);
}

/* ---- stage attribution ---- */
void ev_judge_stage_attribution(ev_judge *j, const char *dir, const ev_gate_scale *s)
{
    const ev_gate g = {j, dir};
    ev_doc config, d, inventory;
    ev_parts_begin(&g, &config, "gem-prefill-stage-attribution", 1,
                   s->position == 131040 && s->layers == EV_31B_LAYERS);
    ev_parts_print_config(&g, &config, "f32");
    if (ev_gate_doc(&g, "inventory.json", &inventory)) {
        const char *schema = ev_text(inventory.root, "schema"),
                   *reason = ev_text(inventory.root, "reason");
        ev_check(j, *schema && (!ev_is_false(inventory.root, "available") || *reason), "inventory",
                 "the device's counters, or why they are not known", "%s %s", schema, reason);
    }
    ev_doc_free(&inventory);
    if (ev_gate_doc(&g, "profile.json", &d)) {
        ev_check_equals(j, &d, "position", "position", s->position);
        ev_check_text(j, &d, "kv-type", "parameters.kv_type", "f32");
        ev_check(j, !strcmp(ev_text(d.root, "prefix_mode"), "seeded-kv"), "prefix", "seeded-kv",
                 "%s", ev_text(d.root, "prefix_mode"));
        ev_gate_digest(&g, "model-digest", "profile.json", ev_text(config.root, "model_sha256"),
                       ev_text(d.root, "model.sha256"));
        ev_judge_prefill_stages(j, &d, s->layers, s->full_layers);
    }
    gem_json_put_bool(j->json, j->root, "model_quality", false);
    ev_doc_free(&d);
    ev_doc_free(&config);
}
