/* attestation.c - evaluation of a recorded system baseline, its digest, and the upstream hashing.
 */
#include "fak/attestation.h"

#include <math.h>

bool fak_metric_available(const gem_json *m)
{
    return fak_bool(m, "available");
}

bool fak_coverage_exact(const char *word)
{
    return strcmp(word, "exact_wait4_subreaper") == 0 || strcmp(word, "exact_cgroup_v2") == 0;
}

static bool is_v2(const gem_json *a)
{
    return gem_json_is(gem_json_get(a, "schema"), fak_doc_baseline_v2.schema);
}

bool fak_coverage_known(const gem_json *a, const char *word)
{
    return strcmp(word, "sampled_pid_ppid_tree") == 0 || (is_v2(a) && fak_coverage_exact(word));
}

/* ---- verdict ---- */
static void add(fak_verdict *v, bool hit, bool invalid, const char *code, const char *detail)
{
    if (!hit || v->n == FAK_MAX_VERDICT_CODES) return;
    v->code[v->n] = code;
    v->detail[v->n++] = detail;
    if (invalid)
        v->word = "invalid";
    else if (strcmp(v->word, "clean") == 0)
        v->word = "investigate";
}

static bool window_bad(const gem_json *w, int64_t least)
{
    return fak_int(w, "samples") < least || fak_int(w, "duration_ns") <= 0 ||
           fak_int(w, "sample_interval_ns") <= 0;
}

static bool above(const gem_json *metric, double limit)
{
    return fak_metric_available(metric) && fak_num(metric, "value") > limit;
}

static bool stalled(const gem_json *pressure, double window_us, double limit)
{
    static const char *const kind[] = {"cpu", "memory", "io"};
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        const gem_json *m = gem_json_get(gem_json_get(pressure, kind[i]), "some_total_us");
        if (window_us > 0 && fak_metric_available(m) &&
            fak_num(m, "value") / window_us * 100 > limit)
            return true;
    }
    return false;
}

/* NVML clock event reasons (nvml.h): software power cap 0x4, hardware slowdown 0x8, software
 * thermal 0x20, hardware thermal 0x40, hardware power brake 0x80. */
enum { THROTTLE_MASK = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 };

static void evaluate_v2(const gem_json *a, fak_verdict *v)
{
    const gem_json *policy = gem_json_get(a, "policy"), *cgroup = gem_json_get(a, "cgroup_v2");
    double window_us = (double)fak_int(gem_json_get(a, "command_window"), "duration_ns") / 1000;
    double limit = fak_num(policy, "maximum_stall_percent");
    bool shared = false, throttled = false;
    add(v, fak_bool(a, "coverage_limited"), true, "COVERAGE_LIMITED",
        "sampling could not keep its cadence");
    add(v,
        above(gem_json_get(gem_json_get(a, "context"), "steal_percent"),
              fak_num(policy, "maximum_steal_percent")),
        false, "STEAL_HIGH", "the hypervisor took more time than allowed");
    add(v,
        stalled(gem_json_get(a, "pressure"), window_us, limit) ||
            stalled(gem_json_get(cgroup, "pressure"), window_us, limit),
        false, "STALL_HIGH", "tasks waited for a resource longer than allowed");
    add(v, strcmp(fak_str(cgroup, "cleanup"), "failed") == 0, false, "CGROUP_CLEANUP_FAILED",
        "the command's control group could not be removed");
    for (const gem_json *g = fak_list(a, "gpu"); g; g = g->next) {
        const gem_json *reasons = gem_json_get(g, "throttle_reasons");
        shared |= above(gem_json_get(g, "non_sut_process_count"), 0);
        throttled |= fak_metric_available(reasons) &&
                     ((int64_t)fak_num(reasons, "value") & THROTTLE_MASK) != 0;
    }
    add(v, shared, false, "GPU_SHARED", "another process used the device");
    add(v, throttled, false, "GPU_THROTTLED", "a thermal or power limit slowed the device");
}

void fak_attestation_evaluate(const gem_json *a, fak_verdict *v)
{
    const gem_json *bw = gem_json_get(a, "baseline_window"),
                   *cw = gem_json_get(a, "command_window");
    const gem_json *bh = gem_json_get(gem_json_get(a, "baseline_host_totals"), "cpu_percent");
    const gem_json *ch = gem_json_get(gem_json_get(a, "host_totals"), "cpu_percent");
    const gem_json *at = gem_json_get(a, "attribution"), *policy = gem_json_get(a, "policy");
    const gem_json *sut = gem_json_get(at, "sut_cpu_percent_of_host");
    const gem_json *non = gem_json_get(at, "non_sut_cpu_percent_of_host");
    const gem_json *bd = gem_json_get(gem_json_get(a, "baseline_sampler"), "duty_percent");
    const gem_json *cd = gem_json_get(gem_json_get(a, "command_sampler"), "duty_percent");
    double max_non = fak_num(policy, "maximum_non_sut_cpu_percent");
    double max_duty = fak_num(policy, "maximum_sampler_duty_percent");
    bool need_host = fak_bool(policy, "require_host_cpu");
    memset(v, 0, sizeof(*v));
    v->word = "clean";
    if (fak_int(cw, "samples") <= 0) {
        add(v, true, true, "NO_SAMPLES", "no snapshot was taken while the command ran");
        return;
    }
    add(v, window_bad(bw, fak_int(policy, "minimum_baseline_samples")), true,
        "INVALID_BASELINE_WINDOW", "too few samples, or no duration or interval");
    add(v,
        window_bad(cw, fak_int(policy, "minimum_samples")) ||
            fak_int(gem_json_get(a, "coverage"), "sut_root_pid") <= 0,
        true, "INVALID_WINDOW", "too few samples, no duration or interval, or no root process");
    add(v, need_host && !fak_metric_available(bh), false, "BASELINE_HOST_CPU_UNKNOWN",
        "host CPU of the baseline window");
    add(v, need_host && !fak_metric_available(ch), false, "HOST_CPU_UNKNOWN",
        "host CPU of the command window");
    add(v,
        fak_bool(policy, "require_sut_cpu") &&
            (!fak_metric_available(sut) || !fak_metric_available(non)),
        false, "SUT_CPU_UNKNOWN", "CPU could not be attributed to the command");
    add(v,
        fak_bool(policy, "require_process_memory") &&
            (!fak_metric_available(gem_json_get(at, "sut_rss_bytes")) ||
             !fak_metric_available(gem_json_get(at, "non_sut_rss_bytes"))),
        false, "PROCESS_MEMORY_UNKNOWN", "memory could not be attributed");
    add(v, !fak_metric_available(bd) || !fak_metric_available(cd), false, "SAMPLER_DUTY_UNKNOWN",
        "the sampler's own cost is unknown");
    add(v, above(bd, max_duty), false, "BASELINE_SAMPLER_DUTY_HIGH",
        "sampling took too large a share of the window");
    add(v, above(cd, max_duty), false, "COMMAND_SAMPLER_DUTY_HIGH",
        "sampling took too large a share of the window");
    add(v, above(bh, max_non), false, "BASELINE_HOST_CPU_HIGH",
        "the host was busy before the command");
    add(v, above(non, max_non), false, "NON_SUT_CPU_HIGH",
        "other processes used more CPU than allowed");
    add(v, fak_int(a, "command_exit_code") != 0, true, "COMMAND_FAILED",
        "the command did not exit 0");
    add(v, fak_bool(a, "timed_out"), true, "COMMAND_TIMEOUT", "the command ran past its limit");
    if (is_v2(a)) evaluate_v2(a, v);
}

/* ---- hashing ---- */
/* The upstream program hashes compact JSON in declaration order, with HTML-safe escapes. */
static void upstream_string(gem_bytes *out, const gem_json *v)
{
    gem_bytes plain = {0};
    gem_json_quote(&plain, v->text, v->len);
    for (size_t i = 0; i < plain.len; i++) {
        const char *s = plain.data + i;
        if (*s == '<' || *s == '>' || *s == '&') {
            gem_bytes_printf(out, "\\u%04x", (unsigned)*s);
        } else if (plain.len - i >= 3 && memcmp(s, "\xe2\x80", 2) == 0 &&
                   (s[2] == '\xa8' || s[2] == '\xa9')) {
            gem_bytes_printf(out, "\\u202%c", s[2] == '\xa8' ? '8' : '9');
            i += 2;
        } else {
            gem_bytes_put(out, s, 1);
        }
    }
    if (plain.failed) out->failed = true;
    gem_bytes_free(&plain);
}

static void upstream_value(gem_bytes *out, const gem_json *v)
{
    bool object = v->type == GEM_JSON_OBJECT;
    if (v->type == GEM_JSON_STRING) {
        upstream_string(out, v);
    } else if (object || v->type == GEM_JSON_ARRAY) {
        gem_bytes_put(out, object ? "{" : "[", 1);
        for (const gem_json *m = v->first; m; m = m->next) {
            if (object) gem_bytes_printf(out, "\"%s\":", m->name);
            upstream_value(out, m);
            if (m->next) gem_bytes_put(out, ",", 1);
        }
        gem_bytes_put(out, object ? "}" : "]", 1);
    } else {
        gem_json_write_canonical(out, v, NULL);
    }
}

static bool upstream_digest(char out[FAK_DIGEST_SIZE], const gem_json *a)
{
    static const char *const order[] = {"schema",
                                        "verdict",
                                        "baseline_window",
                                        "baseline_host_totals",
                                        "baseline_sampler",
                                        "command_window",
                                        "command_sampler",
                                        "coverage",
                                        "host_totals",
                                        "attribution",
                                        "top_non_sut_consumers",
                                        "policy",
                                        "findings",
                                        "command_exit_code",
                                        "timed_out"};
    gem_json_doc *doc = gem_json_new();
    gem_bytes text = {0};
    if (!doc) return false;
    gem_json *copy =
        fak_shape_copy(doc, NULL, NULL, &fak_type_baseline, a); /* inner members in table order */
    gem_bytes_put(&text, "{", 1);
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        gem_bytes_printf(&text, "\"%s\":", order[i]);
        upstream_value(&text, gem_json_get(copy, order[i]));
        gem_bytes_put(&text, ",", 1);
    }
    gem_bytes_printf(&text, "\"digest\":\"\"}");
    bool ok = !text.failed && !gem_json_failed(doc) && fak_digest_bytes(out, text.data, text.len);
    gem_bytes_free(&text);
    gem_json_free(doc);
    return ok;
}

fak_hashing fak_attestation_hashing(const gem_json *a)
{
    char digest[FAK_DIGEST_SIZE];
    const char *recorded = fak_str(a, "digest");
    if (fak_digest_json(digest, a) && strcmp(digest, recorded) == 0) return FAK_HASH_RFC8785;
    if (gem_json_is(gem_json_get(a, "schema"), fak_doc_baseline_v1.schema) &&
        upstream_digest(digest, a) && strcmp(digest, recorded) == 0)
        return FAK_HASH_UPSTREAM;
    return FAK_HASH_NONE;
}

bool fak_attestation_as_written(const gem_json *a, const char *data, size_t len)
{
    gem_json_doc *doc = gem_json_new();
    gem_bytes text = {0};
    if (!doc) return false;
    gem_json_write(&text, fak_shape_copy(doc, NULL, NULL, &fak_type_baseline, a));
    bool ok = !text.failed && !gem_json_failed(doc);
    bool same = ok && text.len == len && memcmp(text.data, data, len) == 0;
    if (ok && !same) {
        text.len = 0;
        gem_json_write_canonical(&text, a, NULL);
        same = !text.failed && text.len == len && memcmp(text.data, data, len) == 0;
    }
    gem_bytes_free(&text);
    gem_json_free(doc);
    return same;
}
