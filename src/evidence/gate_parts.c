/* gate_parts.c - see gate_parts.h. */
#include "evidence/gate_parts.h"

#include "evidence/speed_gate.h"

#include <math.h>
#include <stdio.h>

/* Every line of live-binary-sha256.txt is a digest and a name. */
static void check_programs(const ev_gate *g)
{
    ev_text_file t;
    size_t lines = 0, bad = 0;
    if (ev_gate_text(g, "live-binary-sha256.txt", &t)) {
        if (!t.len || t.text[t.len - 1] != '\n' || strlen(t.text) != t.len) bad++;
        for (const char *p = t.text, *lf; (lf = strchr(p, '\n')) != NULL; p = lf + 1) {
            char hex[65];
            snprintf(hex, sizeof(hex), "%.*s", (int)GEM_MIN(lf - p, 64), p);
            bad += !ev_is_digest(hex) || lf - p < 67 || p[64] != ' ';
            lines++;
        }
        ev_check(g->j, lines > 0 && !bad, "binary", "a digest and a name for every program",
                 "%zu lines, %zu of another form", lines, bad);
    }
    ev_text_file_free(&t);
}

void ev_parts_begin(const ev_gate *g, ev_doc *config, const char *schema, int version, bool frozen)
{
    ev_text_file linkage;
    gem_json_put_bool(g->j->json, g->j->root, "folder", true);
    gem_json_put_bool(g->j->json, g->j->root, "frozen_protocol", frozen);
    if (!ev_gate_doc(g, "gate-config.json", config)) return;
    ev_check_text(g->j, config, "schema", "schema", schema);
    ev_check_equals(g->j, config, "schema", "schema_version", version);
    check_programs(g);
    if (ev_gate_text(g, "linkage.txt", &linkage))
        ev_check(g->j, !strcmp(ev_text(config->root, "linkage_sha256"), linkage.sha256),
                 "provenance", "the linkage that was recorded", "%.12s, recorded %.12s",
                 linkage.sha256, ev_text(config->root, "linkage_sha256"));
    ev_text_file_free(&linkage);
    const char *source = ev_text(config->root, "source_sha256");
    ev_check(g->j, ev_is_digest(source), "provenance", "a digest of the sources", "%.12s", source);
    gem_json_put_copy(g->j->json, g->j->root, "configuration", config->root);
}

void ev_parts_host(const ev_gate *g, const ev_doc *config, const char *suffix, double seconds)
{
    ev_host_policy p;
    char name[96];
    double interval = ev_number(config->root, "host_policy.monitor_seconds");
    if (!ev_gate_policy(g, config->root, &p)) return;
    ev_check(g->j, *ev_text(config->root, "host_policy.idle_assertion") != 0, "idle-assertion",
             "what kept the machine awake, or that nothing did", "%s",
             ev_text(config->root, "host_policy.idle_assertion"));
    snprintf(name, sizeof(name), "host-preflight%s.json", suffix);
    ev_gate_receipt(g, name, &p, EV_HOST_ALL);
    snprintf(name, sizeof(name), "host-monitor%s.ndjson", suffix);
    ev_gate_monitor(g, name, &p, EV_HOST_ALL, interval, seconds);
    snprintf(name, sizeof(name), "host-postflight%s.json", suffix);
    ev_gate_receipt(g, name, &p, EV_HOST_ALL);
    if (!*suffix || !ev_at(g->j->root, "host_policy_is_default"))
        gem_json_put_bool(g->j->json, g->j->root, "host_policy_is_default",
                          ev_policy_is_default(&p));
}

void ev_parts_print_config(const ev_gate *g, const ev_doc *config, const char *kv_type)
{
    ev_doc d;
    const char *model = ev_text(config->root, "model_sha256");
    ev_check(g->j, ev_is_digest(model), "model-digest", "a SHA-256 in the configuration", "%.12s",
             model);
    if (ev_gate_doc(g, "print-config.json", &d)) {
        ev_check_text(g->j, &d, "kv-type", "kv.type", kv_type);
        ev_gate_kv_bytes(g, &d);
        if (ev_at(d.root, "model_sha256"))
            ev_gate_digest(g, "model-digest", "print-config.json", model,
                           ev_text(d.root, "model_sha256"));
    }
    ev_doc_free(&d);
}

void ev_parts_other_code(ev_judge *j, const ev_doc *d, const char *a, const char *b)
{
    const char *x = ev_text(d->root, a), *y = ev_text(d->root, b);
    ev_check(j, *x && *y && strcmp(x, y) != 0, "one-axis", "two routes that are other code", "%s",
             !*x || !*y          ? "it is not said what ran"
             : strcmp(x, y) == 0 ? "this backend ran the same code for both"
                                 : "two");
}

void ev_parts_gain(ev_judge *j, double gain, double cv, double lower)
{
    ev_check(j, gain > EV_GATE_FLOOR, "improvement", "more than 3 %", "%.3f %%", 100 * gain);
    ev_check(j, gain > cv, "variation", "more than the larger coefficient of variation",
             "%.3f %%, varies by %.3f %%", 100 * gain, 100 * cv);
    ev_check(j, lower > 0, "lower-bound", "a paired 95 % interval above zero", "from %.3f %%",
             100 * lower);
}

void ev_parts_same_host(ev_judge *j, const ev_doc *a, const ev_doc *b)
{
    static const char *const same[] = {"host.cpu", "host.build", "parameters.backend",
                                       "parameters.isa", "parameters.threads"};
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        ev_check_same(j, a, b, same[i]);
}

void ev_parts_never(ev_judge *j, const char *why)
{
    gem_json_put_bool(j->json, j->root, "promotion_eligible", false);
    gem_json_put_string(j->json, j->root, "evidence", why);
    gem_json_put_bool(j->json, j->root, "model_quality", false);
}
