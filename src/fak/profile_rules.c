/* profile_rules.c - what makes a profile bundle unusable (NPP codes). */
#include "fak/profile.h"
#include "fak/scrub.h"

#include <math.h>
#include <stdlib.h>

static void rule_execution(fak_findings *f, const gem_json *p, const gem_json *e)
{
    const gem_json *x = gem_json_get(p, "execution");
    if (strcmp(fak_str(x, "engine"), fak_str(e, "engine")) != 0)
        fak_find_in(f, "NPP-003", x, "engine", "the envelope requires \"%s\"",
                    fak_str(e, "engine"));
    if (fak_int(x, "fallback_count") != 0)
        fak_find_in(f, "NPP-003", x, "fallback_count", "must be 0");
    if (strcmp(fak_str(x, "forward_path"), fak_str(e, "forward_path")) != 0)
        fak_find_in(f, "NPP-004", x, "forward_path", "the envelope requires \"%s\"",
                    fak_str(e, "forward_path"));
}

static void rule_phases(fak_findings *f, const gem_json *p)
{
    static const char *const names[] = {"load-setup",    "prefill",      "first-token",
                                        "steady-decode", "verification", "teardown"};
    const gem_json *phases = gem_json_get(p, "phases");
    bool order = phases->n == ARRAY_LEN(names);
    double end = 0;
    for (const gem_json *m = phases->first; m; m = m->next) {
        double start = fak_num(m, "start_milliseconds"),
               duration = fak_num(m, "duration_milliseconds");
        if (order && strcmp(fak_str(m, "name"), names[m->index]) != 0) order = false;
        if (start < 0) fak_find_in(f, "NPP-006", m, "start_milliseconds", "must be 0 or more");
        if (!(duration > 0))
            fak_find_in(f, "NPP-007", m, "duration_milliseconds", "must be positive");
        if (!isfinite(start + duration))
            fak_find_in(f, "NPP-008", m, "duration_milliseconds", "the end overflows");
        if (m->index && start < end)
            fak_find_in(f, "NPP-009", m, "start_milliseconds", "starts inside the phase before");
        end = start + duration;
    }
    if (!order)
        fak_find(f, "NPP-005", phases,
                 "must be load-setup, prefill, first-token, steady-decode, verification, teardown");
}

static void domain(fak_findings *f, const gem_json *block, const char *name, double low, bool open,
                   double high)
{
    double v = fak_num(block, name);
    if (v < low || (open && v == low) || v > high)
        fak_find_in(f, "NPP-011", block, name, "outside its domain");
}

static void rule_metal(fak_findings *f, const gem_json *b)
{
    domain(f, b, "command_buffers", 0, true, INFINITY);
    domain(f, b, "encoders", 0, true, INFINITY);
    domain(f, b, "dispatch_milliseconds", 0, true, INFINITY);
    domain(f, b, "wait_milliseconds", 0, false, INFINITY);
    domain(f, b, "resident_bytes", 0, true, INFINITY);
    domain(f, b, "working_set_bytes", 0, true, INFINITY);
}

static void rule_cuda(fak_findings *f, const gem_json *b)
{
    domain(f, b, "launches", 0, true, INFINITY);
    domain(f, b, "occupancy_percent", 0, false, 100);
    domain(f, b, "achieved_bandwidth_gbs", 0, false, INFINITY);
    domain(f, b, "peak_bandwidth_gbs", 0, true, INFINITY);
    domain(f, b, "achieved_compute_tflops", 0, false, INFINITY);
    domain(f, b, "peak_compute_tflops", 0, true, INFINITY);
    domain(f, b, "synchronization_milliseconds", 0, false, INFINITY);
    if (fak_num(b, "achieved_bandwidth_gbs") > fak_num(b, "peak_bandwidth_gbs"))
        fak_find_in(f, "NPP-012", b, "achieved_bandwidth_gbs", "above the peak");
    if (fak_num(b, "achieved_compute_tflops") > fak_num(b, "peak_compute_tflops"))
        fak_find_in(f, "NPP-012", b, "achieved_compute_tflops", "above the peak");
}

static void rule_counters(fak_findings *f, const gem_json *p, const gem_json *e)
{
    const gem_json *metal = gem_json_get(p, "metal"), *cuda = gem_json_get(p, "cuda");
    const char *backend = fak_str(e, "backend");
    bool is_metal = strcmp(backend, "metal") == 0, is_cuda = strcmp(backend, "cuda") == 0;
    if (metal) rule_metal(f, metal);
    if (cuda) rule_cuda(f, cuda);
    if (!is_metal && !is_cuda) {
        fak_find_in(f, "NPP-024", p, "envelope_id", "profiles of backend \"%s\" are not defined",
                    backend);
        return;
    }
    if (is_metal ? !metal : !cuda)
        fak_find_in(f, "NPP-010", p, backend, "the counters of this backend are missing");
    if (is_metal ? cuda : metal)
        fak_find(f, "NPP-010", is_metal ? cuda : metal,
                 "counters of another backend than the envelope's");
}

static int by_record(const void *a, const void *b)
{
    const gem_json *x = *(const gem_json *const *)a, *y = *(const gem_json *const *)b;
    int c = strcmp(fak_str(x, "name"), fak_str(y, "name"));
    if (!c) c = strcmp(fak_str(x, "lever_id"), fak_str(y, "lever_id"));
    if (c) return c;
    double dx = fak_num(x, "layer"), dy = fak_num(y, "layer");
    if (dx != dy) return dx < dy ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void rule_repeats(fak_findings *f, const gem_json *list)
{
    const gem_json **v = malloc((list->n + 1) * sizeof(*v));
    size_t n = 0;
    if (!v) {
        f->failed = true;
        return;
    }
    for (const gem_json *m = list->first; m; m = m->next)
        v[n++] = m;
    qsort(v, n, sizeof(*v), by_record);
    for (size_t i = 1; i < n; i++)
        if (strcmp(fak_str(v[i - 1], "name"), fak_str(v[i], "name")) == 0 &&
            strcmp(fak_str(v[i - 1], "lever_id"), fak_str(v[i], "lever_id")) == 0 &&
            fak_num(v[i - 1], "layer") == fak_num(v[i], "layer"))
            fak_find(f, "NPP-021", v[i], "name, layer and lever stand already in record %zu",
                     v[i - 1]->index);
    free(v);
}

static void rule_records(fak_findings *f, const fak_graph *g, const gem_json *list,
                         const gem_json *e)
{
    for (const gem_json *m = list->first; m; m = m->next) {
        const gem_json *lever = fak_graph_lever(g, fak_str(m, "lever_id"));
        if (fak_blank(fak_str(m, "name")))
            fak_find_in(f, "NPP-017", m, "name", "must not be blank");
        if (fak_int(m, "layer") < 0) fak_find_in(f, "NPP-017", m, "layer", "must be 0 or more");
        if (fak_int(m, "count") <= 0) fak_find_in(f, "NPP-017", m, "count", "must be positive");
        if (!lever)
            fak_find_in(f, "NPP-018", m, "lever_id", "there is no lever \"%s\"",
                        fak_str(m, "lever_id"));
        else if (e && fak_lever_envelope(g, lever) != e)
            fak_find_in(f, "NPP-019", m, "lever_id", "the lever belongs to another envelope");
        if (strcmp(fak_str(m, "lever_id"), fak_str(list->first, "lever_id")) != 0)
            fak_find_in(f, "NPP-020", m, "lever_id",
                        "a capture shows one lever, the first record names \"%s\"",
                        fak_str(list->first, "lever_id"));
    }
    rule_repeats(f, list);
}

static void rule_attribution(fak_findings *f, const fak_graph *g, const gem_json *p,
                             const gem_json *e)
{
    static const char *const closed[] = {"backend-does-not-expose-dispatch-attribution",
                                         "capture-tool-does-not-export-dispatch-attribution"};
    const gem_json *list = gem_json_get(p, "attributions"),
                   *none = gem_json_get(p, "attribution_unavailable");
    if (list && none) fak_find(f, "NPP-014", none, "attribution is given and unavailable at once");
    if ((!list || !list->n) && !none)
        fak_find_in(f, "NPP-013", p, "attributions", "records are needed, or why there are none");
    if (list && list->n) rule_records(f, g, list, e);
    if (!none) return;
    const char *reason = fak_str(none, "reason"), *detail = fak_str(none, "detail"),
               *why = fak_private(detail);
    if (strcmp(reason, closed[0]) != 0 && strcmp(reason, closed[1]) != 0)
        fak_find_in(f, "NPP-015", none, "reason", "\"%s\" is none of the closed reasons", reason);
    if (fak_blank(detail))
        fak_find_in(f, "NPP-016", none, "detail", "must not be blank");
    else if (why)
        fak_find_in(f, "NPP-016", none, "detail", "private syntax: %s", why);
}

static void rule_extras(fak_findings *f, const gem_json *p)
{
    const gem_json *o = gem_json_get(p, "selection_override");
    if (fak_count(p, "counter_comparisons"))
        fak_find_in(f, "NPP-022", p, "counter_comparisons",
                    "counters of unlike kinds are never compared");
    if (o) {
        const char *reason = fak_str(o, "reason"), *why = fak_private(reason);
        if (fak_int(o, "issue_number") <= 0)
            fak_find_in(f, "NPP-023", o, "issue_number", "must be positive");
        if (fak_blank(reason)) fak_find_in(f, "NPP-023", o, "reason", "must not be blank");
        if (why) fak_find_in(f, "NPP-023", o, "reason", "private syntax: %s", why);
    }
    for (const gem_json *a = fak_list(p, "profiler_artifacts"); a; a = a->next) {
        const char *path = fak_str(a, "path"), *sha = fak_str(a, "sha256"),
                   *why = fak_private(path);
        if (why) fak_find_in(f, "NPR-005", a, "path", "private syntax: %s", why);
        if (fak_blank(path) || path[0] == '/')
            fak_find_in(f, "NPR-022", a, "path", "must be a relative path");
        if (!fak_hex64(sha) || strspn(sha, "0") == 64)
            fak_find_in(f, "NPR-022", a, "sha256",
                        "must be 64 lowercase hexadecimal digits, not all zero");
    }
}

void fak_profile_validate(const fak_graph *g, const gem_json *p, fak_findings *f)
{
    const gem_json *e = fak_graph_envelope(g, fak_str(p, "envelope_id"));
    if (!gem_json_is(gem_json_get(p, "schema"), fak_doc_profile.schema))
        fak_find_in(f, "NPP-001", p, "schema", "must be %s", fak_doc_profile.schema);
    if (!e)
        fak_find_in(f, "NPP-002", p, "envelope_id", "there is no envelope \"%s\"",
                    fak_str(p, "envelope_id"));
    if (e) {
        rule_execution(f, p, e);
        rule_counters(f, p, e);
    }
    rule_phases(f, p);
    rule_attribution(f, g, p, e);
    rule_extras(f, p);
}
