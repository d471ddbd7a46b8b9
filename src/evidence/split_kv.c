/* split_kv.c - admission of the fused split-KV experiment: CPU algebra at the boundary lengths,
 * compiled resources, differentials. Geometry: DK = DV = 512, 32 partitions, tiles of 4, F32, no
 * window. Every report says promotion_eligible: false. */
#include "evidence/analyzers.h"

#include <math.h>
#include <stdio.h>

enum { PARTITIONS = 32, TILE = 4 };
#define LEAST_CORRELATION 0.9999
#define MOST_NMSE 1e-4

static const double lengths[] = {8191, 8192, 8193, 65536, 131072};

static void not_promotable(ev_judge *j, const char *why)
{
    gem_json_put_bool(j->json, j->root, "promotion_eligible", false);
    gem_json_put_string(j->json, j->root, "evidence", why);
}

static void check_closeness(ev_judge *j, const ev_doc *d)
{
    double corr = ev_number(d->root, "correlation"), nmse = ev_number(d->root, "nmse");
    ev_check(j, corr >= LEAST_CORRELATION && corr <= 1.0000001, "correlation", "at least 0.9999",
             "%s: %.9f", d->name, corr);
    ev_check(j, nmse >= 0 && nmse <= MOST_NMSE, "nmse", "at most 1e-4", "%s: %.3e", d->name, nmse);
}

/* ---- CPU algebra ---- */
void ev_judge_online_merge(ev_judge *j, const ev_doc in[5])
{
    gem_json *list = gem_json_put(j->json, j->root, "tokens", GEM_JSON_ARRAY);
    for (size_t i = 0; i < 5; i++) {
        const ev_doc *d = &in[i];
        char role[32];
        snprintf(role, sizeof(role), "%.0f", lengths[i]);
        ev_judge_input(j, role, d);
        ev_check_schema(j, d, "gem-online-merge-check/1");
        ev_check_equals(j, d, "positions", "tokens", lengths[i]);
        ev_check_equals(j, d, "geometry", "head_dim", EV_31B_HEAD_DIM);
        ev_check_equals(j, d, "geometry", "partitions", PARTITIONS);
        ev_check_same(j, &in[0], d, "seed");
        const gem_json *hashes = ev_at(d->root, "hashes");
        bool same = hashes && hashes->type == GEM_JSON_ARRAY && hashes->n >= 2;
        for (const gem_json *m = same ? hashes->first : NULL; m; m = m->next)
            same = same && m->type == GEM_JSON_STRING && ev_is_digest(m->text) &&
                   gem_json_equal(m, hashes->first);
        ev_check(j, same, "deterministic", "two or more runs of one SHA-256", "%s: %zu hashes%s",
                 d->name, hashes ? hashes->n : 0, same ? "" : ", not all the same");
        check_closeness(j, d);
        gem_json_put_number(j->json, list, NULL, lengths[i]);
    }
    not_promotable(j, "CPU reduction algebra only: no device, model or timing result");
}

/* ---- compiled resources ---- */
/* Scratch: per query head and partition the unnormalised values, their maximum and their sum. */
static double scratch_bytes(void)
{
    return (double)EV_31B_QUERY_HEADS * PARTITIONS * (EV_31B_HEAD_DIM + 2) * 4;
}

static void check_pipeline(ev_judge *j, const ev_doc *d, const char *name, const char *rule,
                           double dynamic_bytes)
{
    char path[96];
    snprintf(path, sizeof(path), "pipelines.%s.threads", name);
    ev_check_equals(j, d, rule, path, 256);
    snprintf(path, sizeof(path), "pipelines.%s.dynamic_threadgroup_bytes", name);
    ev_check_equals(j, d, rule, path, dynamic_bytes);
    snprintf(path, sizeof(path), "pipelines.%s.max_threads", name);
    double most = ev_number(d->root, path);
    ev_check(j, most >= 256, rule, "a compiled limit of at least 256 threads", "%s: %g", path,
             most);
    snprintf(path, sizeof(path), "pipelines.%s.static_threadgroup_bytes", name);
    double fixed = ev_number(d->root, path);
    ev_check(j, fixed >= 0 && fixed + dynamic_bytes <= 32768, rule,
             "within 32768 bytes of threadgroup memory", "%s: %g", path, fixed + dynamic_bytes);
}

void ev_judge_split_kv_resources(ev_judge *j, const ev_doc *d)
{
    ev_judge_input(j, "receipt", d);
    ev_check_schema(j, d, "gem-split-kv-resources/1");
    ev_check_text(j, d, "device", "device.name", "Apple M4 Max");
    ev_check_text(j, d, "device", "device.family", "apple9");
    ev_check_equals(j, d, "geometry", "geometry.head_dim", EV_31B_HEAD_DIM);
    ev_check_equals(j, d, "geometry", "geometry.partitions", PARTITIONS);
    ev_check_equals(j, d, "geometry", "geometry.tile", TILE);
    ev_check_equals(j, d, "geometry", "geometry.window", 0);
    ev_check_text(j, d, "geometry", "geometry.kv_type", "f32");
    ev_check_equals(j, d, "scratch", "scratch_bytes", scratch_bytes());
    check_pipeline(j, d, "first_pass", "first-pass", 16384);
    ev_check_equals(j, d, "first-pass", "pipelines.first_pass.simd_groups", 8);
    check_pipeline(j, d, "reducer", "reducer", 0);
    const char *source = ev_text(d->root, "source_sha256"),
               *binary = ev_text(d->root, "binary_sha256");
    ev_check(j, ev_is_digest(source), "digest", "SHA-256 of the assembled Metal source", "%s",
             source);
    ev_check(j, ev_is_digest(binary), "digest", "SHA-256 of the native binary", "%s", binary);
    gem_json_put_string(j->json, j->root, "source_sha256", source);
    gem_json_put_string(j->json, j->root, "binary_sha256", binary);
    not_promotable(j, "compilation and resources only: occupancy, timing and differentials remain");
}

/* ---- correctness ---- */
static void check_gate(ev_judge *j, const ev_doc *d, const char *rule, const char *schema)
{
    bool right = strcmp(ev_text(d->root, "schema"), schema) == 0;
    bool passed = strcmp(ev_text(d->root, "verdict"), "admitted") == 0 &&
                  ev_at(d->root, "failed_rules") && ev_at(d->root, "failed_rules")->n == 0;
    ev_check(j, right && passed, rule, "the report of that gate, admitted", "%s: %s, %s", d->name,
             ev_text(d->root, "schema"), ev_text(d->root, "verdict"));
}

static void check_route(ev_judge *j, const ev_doc *d, double tokens)
{
    ev_check_equals(j, d, "positions", "tokens", tokens);
    ev_check_equals(j, d, "selector", "baseline_selector", 19);
    ev_check_text(j, d, "selector", "candidate_route", "fused-split-kv");
    ev_check(j, ev_is_true(d->root, "finite"), "finite", "every value finite", "%s", d->name);
    check_closeness(j, d);
}

static bool same_ids(const gem_json *a, const gem_json *b, size_t least)
{
    bool ok = a && b && a->type == GEM_JSON_ARRAY && b->type == GEM_JSON_ARRAY && a->n >= least;
    for (const gem_json *m = ok ? a->first : NULL; m; m = m->next)
        ok = ok && m->type == GEM_JSON_NUMBER;
    return ok && gem_json_equal(a, b);
}

static void check_model(ev_judge *j, const ev_doc *d)
{
    ev_check(j,
             strcmp(ev_text(d->root, "prefix_mode"), "evaluated") == 0 &&
                 ev_number(d->root, "prefix_builds") == 1,
             "prefix", "an evaluated prompt, built once", "%s: %s", d->name,
             ev_text(d->root, "prefix_mode"));
    double a = ev_number(d->root, "baseline.argmax"), b = ev_number(d->root, "candidate.argmax");
    ev_check(j, a == b, "argmax", "the same", "%s: %g and %g", d->name, a, b);
    ev_check(j, same_ids(ev_at(d->root, "baseline.top10"), ev_at(d->root, "candidate.top10"), 10),
             "top-10", "the same ten ids in the same order", "%s", d->name);
    ev_check(j,
             same_ids(ev_at(d->root, "baseline.continuation"),
                      ev_at(d->root, "candidate.continuation"), 8),
             "continuation", "at least eight greedy tokens, the same", "%s", d->name);
}

void ev_judge_split_kv_correctness(ev_judge *j, const ev_doc in[10])
{
    static const char *const roles[] = {"cpu-gate",   "resources", "op-8191",   "op-8192",
                                        "op-8193",    "op-65536",  "op-131072", "model-8191",
                                        "model-8192", "model-8193"};
    for (int i = 0; i < 10; i++)
        ev_judge_input(j, roles[i], &in[i]);
    check_gate(j, &in[0], "cpu-gate", "gem-analyze-online-merge-boundary/1");
    check_gate(j, &in[1], "resources", "gem-analyze-fused-split-kv-resources/1");
    for (int i = 0; i < 5; i++) {
        ev_check_schema(j, &in[2 + i], "gem-decode-attention-differential/1");
        check_route(j, &in[2 + i], lengths[i]);
    }
    for (int i = 0; i < 3; i++) {
        ev_check_schema(j, &in[7 + i], "gem-decode-continuation/1");
        check_route(j, &in[7 + i], lengths[i]);
        check_model(j, &in[7 + i]);
    }
    not_promotable(j, "correctness only: whole-token gates on a clean host must follow");
}
