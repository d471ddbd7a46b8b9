/* profile.c - classification of a valid bundle by fixed thresholds, and the lever it points to. */
#include "fak/profile.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

typedef struct result {
    const char *class, *confidence;
    gem_json_doc *d;
    gem_json *root, *evidence;
} result;

static double ratio(double a, double b)
{
    double r = a / b;
    return isfinite(r)
               ? r
               : DBL_MAX; /* a denormal denominator: larger than any threshold all the same */
}

/* Record "name=value<op>limit" and say whether the test held. */
static bool test(result *r, const char *name, double value, bool holds, const char *yes,
                 const char *no, double limit)
{
    char have[32], want[32], text[160];
    gem_json_number(have, value);
    gem_json_number(want, limit);
    snprintf(text, sizeof(text), "%s=%s%s%s", name, have, holds ? yes : no, want);
    gem_json_put_string(r->d, r->evidence, NULL, text);
    return holds;
}

static bool at_least(result *r, const char *name, double value, double limit)
{
    return test(r, name, value, value >= limit, ">=", "<", limit);
}

static void decide(result *r, const char *class, const char *confidence)
{
    r->class = class;
    r->confidence = confidence;
}

static void classify_metal(result *r, const gem_json *b, double d)
{
    double set = fak_num(b, "working_set_bytes"), resident = fak_num(b, "resident_bytes");
    if (at_least(r, "wait_milliseconds/steady-decode", ratio(fak_num(b, "wait_milliseconds"), d),
                 0.3))
        decide(r, "synchronization-bound", "medium");
    else if (at_least(r, "command_buffers", fak_num(b, "command_buffers"), 32))
        decide(r, "launch-bound", "medium");
    else if (test(r, "working_set_bytes/resident_bytes", ratio(set, resident), set > resident, ">",
                  "<=", 1))
        decide(r, "bandwidth-bound", "medium");
    else if (at_least(r, "dispatch_milliseconds/steady-decode",
                      ratio(fak_num(b, "dispatch_milliseconds"), d), 0.7))
        decide(r, "compute-bound", "low");
    else
        decide(r, "cpu-orchestration-bound", "low");
}

static void classify_cuda(result *r, const gem_json *b, double d)
{
    static const char bandwidth[] = "achieved_bandwidth_gbs/peak_bandwidth_gbs";
    static const char compute[] = "achieved_compute_tflops/peak_compute_tflops";
    double bw = ratio(fak_num(b, "achieved_bandwidth_gbs"), fak_num(b, "peak_bandwidth_gbs"));
    double fl = ratio(fak_num(b, "achieved_compute_tflops"), fak_num(b, "peak_compute_tflops"));
    if (at_least(r, "synchronization_milliseconds/steady-decode",
                 ratio(fak_num(b, "synchronization_milliseconds"), d), 0.3))
        decide(r, "synchronization-bound", "medium");
    else if (at_least(r, "launches", fak_num(b, "launches"), 64))
        decide(r, "launch-bound", "medium");
    else if (at_least(r, bandwidth, bw, 0.7) && test(r, compute, fl, fl < 0.6, "<", ">=", 0.6))
        decide(r, "bandwidth-bound", "high");
    else if (at_least(r, compute, fl, 0.7))
        decide(r, "compute-bound", "high");
    else
        decide(r, "cpu-orchestration-bound", "low");
}

/* Recommendations of the two pinned envelopes; others bring theirs in the graph. */
static const char *pinned_recommendation(const char *envelope_id, const char *class)
{
    bool metal = strcmp(envelope_id, "qwen38-27b-q4km-m3pro-p32-t64") == 0;
    if (!metal && strcmp(envelope_id, "qwen38-27b-q4k-a100-p1-decode") != 0) return "";
    if (strcmp(class, "bandwidth-bound") == 0)
        return metal ? "metal.paged-kv" : "cuda.q8_1-activation-quant";
    if (strcmp(class, "compute-bound") == 0)
        return metal ? "metal.fused-hybrid-graph-coverage" : "cuda.dp4a-q4k-mmvq";
    return metal ? "metal.command-buffer-amortization" : "cuda.default-decode-routing";
}

static const gem_json *recommended(const fak_graph *g, const gem_json *e, const char *class)
{
    const char *id = fak_str(e, "id"), *lever_id = pinned_recommendation(id, class);
    for (const gem_json *r = fak_list(g->root, "recommendations"); r; r = r->next)
        if (strcmp(fak_str(r, "envelope_id"), id) == 0 && strcmp(fak_str(r, "class"), class) == 0) {
            lever_id = fak_str(r, "lever_id");
            break;
        }
    const gem_json *lever = fak_graph_lever(g, lever_id);
    return lever && fak_lever_envelope(g, lever) == e ? lever : NULL;
}

/* Validate, classify and build the bottleneck document below parent; its lever, or NULL and
 * findings. */
static const gem_json *classify(const fak_graph *g, const gem_json *p, gem_json_doc *d,
                                gem_json *parent, const char *name, fak_findings *f)
{
    size_t before = f->n;
    fak_profile_validate(g, p, f);
    if (f->n != before || f->failed) return NULL;
    const gem_json *e = fak_graph_envelope(g, fak_str(p, "envelope_id"));
    double steady = fak_num(gem_json_at(gem_json_get(p, "phases"), 3), "duration_milliseconds");
    result r = {.d = d};
    r.root = gem_json_put(d, parent, name, GEM_JSON_OBJECT);
    gem_json_put_string(d, r.root, "schema", fak_doc_bottleneck.schema);
    gem_json_put_string(d, r.root, "envelope_id", fak_str(p, "envelope_id"));
    gem_json *class = gem_json_put_string(d, r.root, "class", "");
    gem_json *confidence = gem_json_put_string(d, r.root, "confidence", "");
    r.evidence = gem_json_put(d, r.root, "evidence", GEM_JSON_ARRAY);
    if (gem_json_get(p, "metal"))
        classify_metal(&r, gem_json_get(p, "metal"), steady);
    else
        classify_cuda(&r, gem_json_get(p, "cuda"), steady);
    gem_json_set_string(d, class, r.class);
    gem_json_set_string(d, confidence, r.confidence);
    const gem_json *lever = recommended(g, e, r.class);
    if (!lever) {
        fak_find_in(f, "NPP-025", p, "envelope_id", "the graph recommends no lever for %s",
                    r.class);
        return NULL;
    }
    gem_json_put_string(d, r.root, "recommended_lever_id", fak_str(lever, "id"));
    return lever;
}

bool fak_profile_classify(const fak_graph *g, const gem_json *p, gem_bytes *out, fak_findings *f)
{
    gem_json_doc *d = gem_json_new();
    bool ok = d && classify(g, p, d, NULL, NULL, f);
    if (ok) gem_json_write(out, gem_json_root(d));
    if (gem_json_failed(d) || out->failed) f->failed = true;
    gem_json_free(d);
    return ok && !f->failed;
}

static bool ready(const fak_graph *g, const gem_json *lever, fak_findings *f)
{
    const char *id = fak_str(lever, "id");
    size_t before = f->n;
    if (fak_bool(lever, "enabled"))
        fak_find(f, "NPP-040", NULL, "the recommended lever %s is enabled already", id);
    if (gem_json_get(lever, "witnessed")->type != GEM_JSON_NULL)
        fak_find(f, "NPP-040", NULL, "the recommended lever %s is witnessed already", id);
    for (const gem_json *m = fak_list(lever, "dependency_ids"); m; m = m->next)
        if (!fak_bool(fak_graph_lever(g, m->text), "enabled"))
            fak_find(f, "NPP-040", NULL, "the recommended lever %s waits for its dependency %s", id,
                     m->text);
    return f->n == before;
}

bool fak_profile_next(const fak_graph *g, const gem_json *p, gem_bytes *out, fak_findings *f)
{
    gem_json_doc *d = gem_json_new();
    if (!d) {
        f->failed = true;
        return false;
    }
    gem_json *root = gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT);
    const gem_json *override = gem_json_get(p, "selection_override");
    const gem_json *lever = classify(g, p, d, root, "classification", f);
    bool ok = lever && ready(g, lever, f);
    if (ok) {
        const gem_json *first = fak_graph_next(g, fak_str(p, "envelope_id"));
        if (first && first != lever && !override) {
            fak_find_in(f, "NPP-041", p, "selection_override",
                        "the graph's next lever is %s, the profile points to %s",
                        fak_str(first, "id"), fak_str(lever, "id"));
            ok = false;
        }
    }
    if (ok) {
        gem_json_put_copy(d, root, "lever", lever);
        if (override) gem_json_put_copy(d, root, "selection_override", override);
        gem_bytes text = {0};
        gem_json_doc *ordered = gem_json_new();
        if (ordered)
            gem_json_write(&text,
                           fak_shape_copy(ordered, NULL, NULL, fak_doc_profile_next.type, root));
        gem_bytes_put(out, text.data, text.len);
        if (gem_json_failed(ordered) || text.failed) f->failed = true;
        gem_bytes_free(&text);
        gem_json_free(ordered);
    }
    if (gem_json_failed(d) || out->failed) f->failed = true;
    gem_json_free(d);
    return ok && !f->failed;
}
