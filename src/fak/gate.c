/* gate.c - the gate's refusals (NPQ codes), its checks and its verdict. */
#include "fak/gate.h"

#include "fak/receipt.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- refusals ---- */
static void positive(fak_findings *f, const gem_json *p, const char *name)
{
    if (!(fak_num(p, name) > 0)) fak_find_in(f, "NPQ-005", p, name, "must be positive");
}

static void not_negative(fak_findings *f, const gem_json *p, const char *name)
{
    if (fak_num(p, name) < 0) fak_find_in(f, "NPQ-005", p, name, "must be 0 or more");
}

static void attested_limit(fak_findings *f, const gem_json *p, const char *name)
{
    const gem_json *v = gem_json_get(p, name);
    if (v && !(v->number > 0 && v->number <= 100))
        fak_find(f, "NPQ-005", v, "must be above 0 and at most 100");
}

void fak_policy_validate(const fak_graph *g, const gem_json *p, fak_findings *f)
{
    static const char *const only_v2[] = {
        "require_system_baseline", "allow_sampled_system_baseline",
        "maximum_attested_non_sut_cpu_percent", "maximum_attested_sampler_duty_percent"};
    bool v1 = gem_json_is(gem_json_get(p, "schema"), fak_doc_policy_v1.schema);
    const gem_json *e = fak_graph_envelope(g, fak_str(p, "envelope_id"));
    const gem_json *lever = fak_graph_lever(g, fak_str(p, "changed_lever_id"));
    const char *engine = fak_str(p, "required_engine");
    if (!v1 && !gem_json_is(gem_json_get(p, "schema"), fak_doc_policy_v2.schema))
        fak_find_in(f, "NPQ-003", p, "schema", "must be %s or v1", fak_doc_policy_v2.schema);
    if (!e)
        fak_find_in(f, "NPQ-004", p, "envelope_id", "there is no envelope \"%s\"",
                    fak_str(p, "envelope_id"));
    if (!lever || (e && fak_lever_envelope(g, lever) != e))
        fak_find_in(f, "NPQ-004", p, "changed_lever_id", "is no lever of the envelope");
    if (fak_int(p, "minimum_repetitions") < 2)
        fak_find_in(f, "NPQ-005", p, "minimum_repetitions", "must be 2 or more");
    not_negative(f, p, "maximum_noise_percent");
    not_negative(f, p, "investigate_drop_percent");
    if (!(fak_num(p, "regression_drop_percent") > fak_num(p, "investigate_drop_percent")))
        fak_find_in(f, "NPQ-005", p, "regression_drop_percent",
                    "must be above investigate_drop_percent");
    positive(f, p, "minimum_throughput_tokens_per_second");
    positive(f, p, "maximum_peak_bytes");
    attested_limit(f, p, only_v2[2]);
    attested_limit(f, p, only_v2[3]);
    for (size_t i = 0; v1 && i < ARRAY_LEN(only_v2); i++)
        if (gem_json_get(p, only_v2[i]))
            fak_find_in(f, "NPQ-006", p, only_v2[i], "exists in a v2 policy only");
    if (fak_bool(p, only_v2[1]) && !fak_bool(p, only_v2[0]))
        fak_find_in(f, "NPQ-007", p, only_v2[1], "means nothing without require_system_baseline");
    if (e ? strcmp(engine, fak_str(e, "engine")) != 0
          : strcmp(engine, "fak-native") != 0 && strcmp(engine, "gem-native") != 0)
        fak_find_in(f, "NPQ-013", p, "required_engine",
                    "must be the native engine of the envelope");
    if (fak_blank(fak_str(p, "required_forward_path")))
        fak_find_in(f, "NPQ-013", p, "required_forward_path", "must not be blank");
}

static void rule_arms(fak_findings *f, const gem_json *policy, const gem_json *receipt)
{
    static const char *const same[] = {"envelope_id", "changed_lever_id"};
    const gem_json *reps = gem_json_get(receipt, "repetitions");
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (strcmp(fak_str(policy, same[i]), fak_str(receipt, same[i])) != 0)
            fak_find_in(f, "NPQ-010", receipt, same[i], "the policy says \"%s\"",
                        fak_str(policy, same[i]));
    if ((int64_t)reps->n < fak_int(policy, "minimum_repetitions"))
        fak_find(f, "NPQ-012", reps, "the policy asks for %lld",
                 (long long)fak_int(policy, "minimum_repetitions"));
}

void fak_request_validate(const fak_graph *g, const gem_json *q, fak_findings *f)
{
    const gem_json *policy = gem_json_get(q, "policy"), *a = gem_json_get(q, "last_accepted");
    const gem_json *c = gem_json_get(q, "candidate");
    bool v1 = gem_json_is(gem_json_get(q, "schema"), fak_doc_request_v1.schema);
    unsigned skip = fak_bool(policy, "require_system_baseline") ? FAK_SKIP_BASELINES : 0;
    if (!v1 && !gem_json_is(gem_json_get(q, "schema"), fak_doc_request_v2.schema))
        fak_find_in(f, "NPQ-001", q, "schema", "must be %s or v1", fak_doc_request_v2.schema);
    if (v1 && gem_json_is(gem_json_get(policy, "schema"), fak_doc_policy_v2.schema))
        fak_find_in(f, "NPQ-002", policy, "schema", "a v1 request needs a v1 policy");
    fak_policy_validate(g, policy, f);
    if (strcmp(fak_str(policy, "accepted_revision"), fak_str(a, "revision")) != 0)
        fak_find_in(f, "NPQ-008", policy, "accepted_revision", "the accepted receipt says \"%s\"",
                    fak_str(a, "revision"));
    if (strcmp(fak_str(a, "role"), "baseline") != 0)
        fak_find_in(f, "NPQ-009", a, "role", "must be baseline");
    if (strcmp(fak_str(c, "role"), "candidate") != 0)
        fak_find_in(f, "NPQ-009", c, "role", "must be candidate");
    rule_arms(f, policy, a);
    rule_arms(f, policy, c);
    fak_receipt_drift(a, c, FAK_SKIP_EXECUTION, "NPQ-011", f);
    fak_receipt_validate(g, a, skip, f);
    fak_receipt_validate(g, c, skip | FAK_SKIP_EXECUTION, f);
}

/* ---- checks ---- */
typedef struct verdict {
    gem_json_doc *d;
    gem_json *checks;
    bool failed; /* any check but the throughput floor */
    bool floor_failed;
    bool investigate; /* system_baseline */
} verdict;

static void check(verdict *v, const char *name, const char *status, const char *fmt, ...)
    GEM_PRINTF(4, 5);
static void check(verdict *v, const char *name, const char *status, const char *fmt, ...)
{
    gem_bytes text = {0};
    char detail[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    gem_bytes_put(&text, detail, gem_utf8_complete(detail, strlen(detail)));
    gem_json *o = gem_json_put(v->d, v->checks, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(v->d, o, "name", name);
    gem_json_put_string(v->d, o, "status", status);
    gem_json_put_string(v->d, o, "detail", text.data ? text.data : "");
    gem_bytes_free(&text);
    if (strcmp(status, "fail") == 0) {
        if (strcmp(name, "throughput_floor") == 0)
            v->floor_failed = true;
        else
            v->failed = true;
    }
    if (strcmp(status, "investigate") == 0) v->investigate = true;
}

static const char *word(bool ok)
{
    return ok ? "pass" : "fail";
}

static void check_quality(verdict *v, const gem_json *policy, const gem_json *candidate)
{
    const gem_json *q = gem_json_get(candidate, "quality");
    bool higher = fak_bool(policy, "quality_higher_is_better");
    double score = fak_num(q, "score"), bound = fak_num(policy, "minimum_quality_score");
    char have[32], want[32];
    gem_json_number(have, score);
    gem_json_number(want, bound);
    if (strcmp(fak_str(q, "name"), fak_str(policy, "quality_metric")) != 0)
        check(v, "quality", "fail", "metric %s, required %s", fak_str(q, "name"),
              fak_str(policy, "quality_metric"));
    else if (fak_bool(q, "higher_is_better") != higher)
        check(v, "quality", "fail", "the direction of %s differs from the policy",
              fak_str(q, "name"));
    else
        check(v, "quality", word(higher ? score >= bound : score <= bound), "%s %s, required %s %s",
              fak_str(q, "name"), have, higher ? ">=" : "<=", want);
}

static void run_checks(verdict *v, const gem_json *q, double candidate_mean)
{
    const gem_json *policy = gem_json_get(q, "policy"), *c = gem_json_get(q, "candidate");
    const gem_json *x = gem_json_get(c, "execution");
    const char *engine = fak_str(x, "engine"), *want_engine = fak_str(policy, "required_engine");
    const char *path = fak_str(x, "forward_path"),
               *want_path = fak_str(policy, "required_forward_path");
    int64_t fallback = fak_int(x, "fallback_count"),
            peak = fak_int(gem_json_get(c, "memory"), "peak_bytes");
    int64_t max_peak = fak_int(policy, "maximum_peak_bytes");
    double least = fak_num(policy, "minimum_throughput_tokens_per_second");
    char have[32], want[32];
    check(v, "engine", word(strcmp(engine, want_engine) == 0), "%s, required %s", engine,
          want_engine);
    check(v, "forward_path", word(strcmp(path, want_path) == 0), "%s, required %s", path,
          want_path);
    check(v, "fallback", word(fallback == 0), "%lld, required 0", (long long)fallback);
    check(v, "memory", word(peak <= max_peak), "peak_bytes %lld, required <= %lld", (long long)peak,
          (long long)max_peak);
    check_quality(v, policy, c);
    gem_json_number(have, candidate_mean);
    gem_json_number(want, least);
    check(v, "throughput_floor", word(candidate_mean >= least), "mean %s tok/s, required >= %s",
          have, want);
    if (fak_bool(policy, "require_system_baseline")) {
        gem_bytes detail = {0};
        bool ok = fak_gate_evidence(policy, gem_json_get(q, "last_accepted"), c, &detail);
        check(v, "system_baseline", ok ? "pass" : "investigate", "%s",
              detail.data ? detail.data : "");
        gem_bytes_free(&detail);
    }
}

/* ---- verdict ---- */
static int by_module(const void *a, const void *b)
{
    return strcmp(fak_str(*(const gem_json *const *)a, "module"),
                  fak_str(*(const gem_json *const *)b, "module"));
}

static void put_suspects(gem_json_doc *d, gem_json *parent, const gem_json *accepted,
                         const gem_json *candidate)
{
    gem_json *list = gem_json_put(d, parent, "suspect_modules", GEM_JSON_ARRAY);
    const gem_json *mods = gem_json_get(candidate, "module_versions");
    const gem_json **v = malloc((mods->n + 1) * sizeof(*v));
    size_t n = 0;
    for (const gem_json *m = mods->first; v && m; m = m->next)
        v[n++] = m;
    if (n) qsort(v, n, sizeof(*v), by_module);
    for (size_t i = 0; i < n; i++)
        for (const gem_json *a = fak_list(accepted, "module_versions"); a; a = a->next) {
            if (strcmp(fak_str(a, "module"), fak_str(v[i], "module")) != 0) continue;
            if (strcmp(fak_str(a, "revision"), fak_str(v[i], "revision")) == 0) continue;
            gem_json *o = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
            gem_json_put_string(d, o, "module", fak_str(a, "module"));
            gem_json_put_string(d, o, "accepted_revision", fak_str(a, "revision"));
            gem_json_put_string(d, o, "candidate_revision", fak_str(v[i], "revision"));
        }
    free(v);
}

static void put_bisect(gem_json_doc *d, gem_json *root, const gem_json *accepted,
                       const gem_json *candidate)
{
    const char *good = fak_str(accepted, "revision"), *bad = fak_str(candidate, "revision");
    gem_bytes start = {0};
    gem_json *b = gem_json_put(d, root, "bisect", GEM_JSON_OBJECT);
    gem_json_put_string(d, b, "schema", fak_doc_bisect.schema);
    gem_json_put_string(d, b, "envelope_id", fak_str(candidate, "envelope_id"));
    gem_json_put_string(d, b, "good_revision", good);
    gem_json_put_string(d, b, "bad_revision", bad);
    put_suspects(d, b, accepted, candidate);
    gem_bytes_printf(&start, "git bisect start %s %s", bad, good);
    gem_json *commands = gem_json_put(d, b, "guarded_commands", GEM_JSON_ARRAY);
    gem_json_put_string(d, commands, NULL, start.data ? start.data : "");
    gem_json_put_string(d, commands, NULL, "fak native-performance --gate gate-request.json");
    gem_json_put_string(d, b, "stop_condition",
                        "the first revision that the same policy classifies regression");
    gem_bytes_free(&start);
}

static fak_gate_class classify(const verdict *v, const gem_json *policy, double drop, double noise,
                               bool *by_evidence)
{
    *by_evidence = false;
    if (v->failed) return FAK_GATE_REGRESSION;
    if (v->investigate) {
        *by_evidence = true;
        return FAK_GATE_INVESTIGATE;
    }
    if (v->floor_failed || drop >= fak_num(policy, "regression_drop_percent"))
        return FAK_GATE_REGRESSION;
    if (noise > fak_num(policy, "maximum_noise_percent") ||
        drop >= fak_num(policy, "investigate_drop_percent"))
        return FAK_GATE_INVESTIGATE;
    return FAK_GATE_PASS;
}

fak_gate_class fak_gate(const fak_graph *g, const gem_json *q, gem_bytes *out, fak_findings *f)
{
    static const char *const words[] = {"", "pass", "regression", "investigate"};
    size_t before = f->n;
    fak_request_validate(g, q, f);
    if (f->n != before || f->failed) return FAK_GATE_REFUSED;
    const gem_json *policy = gem_json_get(q, "policy"), *a = gem_json_get(q, "last_accepted");
    const gem_json *c = gem_json_get(q, "candidate");
    fak_stats sa, sc;
    verdict v = {.d = gem_json_new()};
    if (!v.d || !fak_stats_of(a, &sa) || !fak_stats_of(c, &sc)) {
        gem_json_free(v.d);
        f->failed = true;
        return FAK_GATE_REFUSED;
    }
    double drop = (sa.mean - sc.mean) / sa.mean * 100;
    bool by_evidence;
    gem_json *root = gem_json_put(v.d, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(v.d, root, "schema", fak_doc_verdict.schema);
    gem_json_put_string(v.d, root, "envelope_id", fak_str(policy, "envelope_id"));
    gem_json *class = gem_json_put_string(v.d, root, "classification", "");
    gem_json_put_string(v.d, root, "accepted_revision", fak_str(a, "revision"));
    gem_json_put_string(v.d, root, "candidate_revision", fak_str(c, "revision"));
    gem_json_put_number(v.d, root, "accepted_mean_tokens_per_second", sa.mean);
    gem_json_put_number(v.d, root, "candidate_mean_tokens_per_second", sc.mean);
    gem_json_put_number(v.d, root, "throughput_delta_percent", -drop);
    gem_json_put_number(v.d, root, "accepted_noise_percent", sa.cv_percent);
    gem_json_put_number(v.d, root, "candidate_noise_percent", sc.cv_percent);
    v.checks = gem_json_put(v.d, root, "checks", GEM_JSON_ARRAY);
    run_checks(&v, q, sc.mean);
    fak_gate_class result =
        classify(&v, policy, drop, GEM_MAX(sa.cv_percent, sc.cv_percent), &by_evidence);
    gem_json_set_string(v.d, class, words[result]);
    if (result != FAK_GATE_PASS && !by_evidence) {
        put_suspects(v.d, root, a, c);
        put_bisect(v.d, root, a, c);
    }
    gem_json_write(out, root);
    if (gem_json_failed(v.d) || out->failed) {
        f->failed = true;
        result = FAK_GATE_REFUSED;
    }
    gem_json_free(v.d);
    return result;
}
