/* baseline_write.c - the attestation document of one run, judged by the same rules as --verify and
 * sealed with its digest. */
#include "fak/attestation.h"
#include "fak/baseline_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static void put_value(gem_json_doc *d, gem_json *o, const char *name, const fak_value *v,
                      const char *unit)
{
    fak_put_metric(d, o, name, v->available, v->value, unit, v->source ? v->source : "",
                   v->reason ? v->reason : "");
}

static void put_window(gem_json_doc *d, gem_json *root, const char *name,
                       const fak_baseline_options *o, const fak_baseline_run *r, int which,
                       const fak_totals *t)
{
    gem_json *w = gem_json_put(d, root, name, GEM_JSON_OBJECT);
    gem_json_put_string(d, w, "started_at_utc", r->started[which]);
    gem_json_put_string(d, w, "ended_at_utc", r->ended[which]);
    gem_json_put_int(d, w, "duration_ns", (int64_t)t->duration_ns);
    gem_json_put_int(d, w, "sample_interval_ns", (int64_t)o->interval_ns);
    gem_json_put_int(d, w, "samples", (int64_t)(which ? r->command.samples : r->baseline.samples));
}

static void put_host(gem_json_doc *d, gem_json *root, const char *name, const fak_totals *t)
{
    gem_json *h = gem_json_put(d, root, name, GEM_JSON_OBJECT);
    put_value(d, h, "cpu_percent", &t->host_cpu_percent, "percent");
    put_value(d, h, "memory_total_bytes", &t->memory_total, "bytes");
    put_value(d, h, "memory_available_bytes", &t->memory_available, "bytes");
    put_value(d, h, "process_count", &t->process_count, "processes");
}

static void put_sampler(gem_json_doc *d, gem_json *root, const char *name, const fak_window *w,
                        const fak_totals *t)
{
    gem_json *s = gem_json_put(d, root, name, GEM_JSON_OBJECT);
    gem_json_put_int(d, s, "counted_samples", w->samples ? (int64_t)w->samples - 1 : 0);
    gem_json_put_int(d, s, "wall_ns", (int64_t)t->wall_ns);
    put_value(d, s, "duty_percent", &t->duty_percent, "percent");
}

static const char *coverage_word(const fak_baseline_options *o, const fak_baseline_run *r)
{
    if (!o->v2) return "sampled_pid_ppid_tree";
    if (r->cgroup.placed && r->cgroup_cpu_ok) return "exact_cgroup_v2";
    return r->wait_ok && r->still_running == 0 ? "exact_wait4_subreaper" : "sampled_pid_ppid_tree";
}

static void put_coverage(gem_json_doc *d, gem_json *root, const fak_baseline_options *o,
                         const fak_baseline_run *r)
{
    const fak_window *w = &r->command;
    gem_json *c = gem_json_put(d, root, "coverage", GEM_JSON_OBJECT);
    gem_json_put_int(d, c, "process_snapshots", (int64_t)w->enumerated);
    gem_json_put_int(d, c, "processes_observed", (int64_t)w->observed);
    gem_json_put_int(d, c, "process_reads", (int64_t)w->reads);
    gem_json_put_int(d, c, "process_unreadable", (int64_t)w->unreadable);
    gem_json_put_int(d, c, "host_cpu_samples", (int64_t)w->host_cpu_samples);
    gem_json_put_int(d, c, "host_memory_samples", (int64_t)w->host_memory_samples);
    gem_json_put_int(d, c, "sut_root_pid", w->root_pid);
    gem_json_put_string(d, c, "descendant_attribution", coverage_word(o, r));
    if (w->enumerated != w->samples)
        gem_json_put_string(d, c, "process_enumeration_note",
                            "the process list could not be read in every snapshot");
}

/* Exact CPU replaces the sampled split: what the kernel charged, against the host's ticks. */
static void exact_attribution(const fak_baseline_options *o, const fak_baseline_run *r,
                              fak_totals *t)
{
    const char *word = coverage_word(o, r);
    if (!fak_coverage_exact(word) || !t->host_cpu_percent.available) return;
    bool group = strcmp(word, "exact_cgroup_v2") == 0;
    double used = group ? (double)r->cgroup_cpu_us * 1000
                        : (double)(r->wait_user_us + r->wait_system_us) * 1000;
    double total = (double)(r->command.last_host.total - r->command.first_host.total);
    double busy = (double)(r->command.last_host.busy - r->command.first_host.busy);
    double rounding =
        2.0 * r->command.probe->n_cpus * 1e9 / (double)r->command.probe->ticks_per_second;
    if (used > busy + rounding) {
        t->sut_cpu_percent = t->other_cpu_percent =
            (fak_value){.reason = "the command used more CPU than the host"};
        return;
    }
    const char *source = group ? "cgroup-v2" : "wait4-subreaper";
    double sut = used > busy ? t->host_cpu_percent.value : used / total * 100;
    double other = used > busy ? 0 : (busy - used) / total * 100;
    t->sut_cpu_percent = (fak_value){.available = true, .value = sut, .source = source};
    t->other_cpu_percent =
        (fak_value){.available = true, .value = other, .source = "host-minus-sut"};
}

static void put_attribution(gem_json_doc *d, gem_json *root, const fak_totals *t)
{
    gem_json *a = gem_json_put(d, root, "attribution", GEM_JSON_OBJECT);
    put_value(d, a, "sut_cpu_percent_of_host", &t->sut_cpu_percent, "percent");
    put_value(d, a, "non_sut_cpu_percent_of_host", &t->other_cpu_percent, "percent");
    put_value(d, a, "sut_rss_bytes", &t->sut_rss, "bytes");
    put_value(d, a, "non_sut_rss_bytes", &t->other_rss, "bytes");
}

/* A process name as a plain word: no folders, printable ASCII. */
static void clean_image(char out[16], const char *image)
{
    const char *base = strrchr(image, '/');
    snprintf(out, 16, "%.15s", base ? base + 1 : image);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e || *c == '\\') *c = '?';
    if (out[strspn(out, " ")] == 0) snprintf(out, 16, "?");
}

static void put_consumers(gem_json_doc *d, gem_json *root, const fak_baseline_options *o,
                          const fak_baseline_run *r)
{
    fak_track top[FAK_MAX_CONSUMERS];
    gem_json *list = gem_json_put(d, root, "top_non_sut_consumers", GEM_JSON_ARRAY);
    size_t n = o->top_consumers ? fak_window_top(&r->command, top, FAK_MAX_CONSUMERS) : 0;
    for (size_t i = 0; i < n; i++) {
        char image[16];
        bool cpu = top[i].reads >= 2 && !top[i].decreased;
        gem_json *c = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
        clean_image(image, top[i].image);
        gem_json_put_string(d, c, "image", image);
        gem_json_put_int(d, c, "pid", top[i].pid);
        gem_json_put_number(d, c, "cpu_seconds",
                            cpu ? (double)(top[i].last_ns - top[i].first_ns) / 1e9 : 0);
        gem_json_put_int(d, c, "rss_bytes", top[i].rss_known ? (int64_t)top[i].rss_bytes : 0);
        gem_json_put_bool(d, c, "cpu_available", cpu);
        gem_json_put_bool(d, c, "rss_available", top[i].rss_known);
    }
}

static void put_policy(gem_json_doc *d, gem_json *root, const fak_baseline_options *o)
{
    gem_json *p = gem_json_put(d, root, "policy", GEM_JSON_OBJECT);
    gem_json_put_int(d, p, "minimum_baseline_samples", 2);
    gem_json_put_int(d, p, "minimum_samples", 2);
    gem_json_put_number(d, p, "maximum_non_sut_cpu_percent", o->max_non_sut_percent);
    gem_json_put_number(d, p, "maximum_sampler_duty_percent", o->max_duty_percent);
    gem_json_put_bool(d, p, "require_host_cpu", true);
    gem_json_put_bool(d, p, "require_sut_cpu", true);
    gem_json_put_bool(d, p, "require_process_memory", o->require_memory);
    gem_json_put_bool(d, p, "include_top_consumers", o->top_consumers);
    if (!o->v2) return;
    gem_json_put_number(d, p, "maximum_stall_percent", 5);
    gem_json_put_number(d, p, "maximum_steal_percent", 1);
}

/* ---- v2 members ---- */
static void put_binding(gem_json_doc *d, gem_json *root, const fak_baseline_options *o)
{
    gem_json_doc *args = gem_json_new();
    gem_bytes text = {0};
    char digest[FAK_DIGEST_SIZE] = "sha256:", nonce[33] = "";
    unsigned char random[16] = {0};
    if (args) {
        gem_json *list = gem_json_put(args, NULL, NULL, GEM_JSON_ARRAY);
        for (char **a = o->argv; *a; a++)
            gem_json_put_string(args, list, NULL, *a);
        gem_json_write_canonical(&text, list, NULL);
        fak_digest_bytes(digest, text.data ? text.data : "", text.len);
    }
    if (getrandom(random, sizeof(random), 0) == (ssize_t)sizeof(random))
        for (size_t i = 0; i < sizeof(random); i++)
            snprintf(nonce + 2 * i, 3, "%02x", random[i]);
    gem_json_put_string(d, root, "command_sha256", digest + 7);
    gem_json_put_string(d, root, "nonce", nonce);
    gem_bytes_free(&text);
    gem_json_free(args);
}

static void put_wait4(gem_json_doc *d, gem_json *root, const fak_baseline_run *r)
{
    gem_json *w = gem_json_put(d, root, "wait4", GEM_JSON_OBJECT);
    fak_put_metric(d, w, "user_usec", r->wait_ok, (double)r->wait_user_us, "microseconds", "wait4",
                   "not waited");
    fak_put_metric(d, w, "system_usec", r->wait_ok, (double)r->wait_system_us, "microseconds",
                   "wait4", "not waited");
    fak_put_metric(d, w, "reaped", r->wait_ok, (double)r->reaped, "processes", "wait4",
                   "not waited");
    fak_put_metric(d, w, "still_running", r->wait_ok, (double)r->still_running, "processes",
                   "wait4", "not waited");
}

static void put_context(gem_json_doc *d, gem_json *root, const fak_baseline_run *r,
                        const fak_totals *t)
{
    const fak_context *c = &r->context;
    gem_json *o = gem_json_put(d, root, "context", GEM_JSON_OBJECT);
    put_value(d, o, "steal_percent", &t->steal_percent, "percent");
    put_value(d, o, "context_switches", &t->context_switches, "switches");
    put_value(d, o, "procs_running_peak", &t->procs_running, "processes");
    fak_put_metric(d, o, "cpu_mhz_min", c->mhz_ok, c->mhz_min, "megahertz", "cpufreq",
                   "no cpufreq driver");
    fak_put_metric(d, o, "cpu_mhz_mean", c->mhz_ok, c->n_mhz ? c->mhz_sum / (double)c->n_mhz : 0,
                   "megahertz", "cpufreq", "no cpufreq driver");
    bool throttle = c->throttle_ok && c->throttle_last >= c->throttle_first;
    fak_put_metric(d, o, "thermal_throttle_events", throttle,
                   throttle ? (double)(c->throttle_last - c->throttle_first) : 0, "events",
                   "thermal-throttle", "no thermal counters");
}

static void put_v2(gem_json_doc *d, gem_json *root, const fak_baseline_options *o,
                   const fak_baseline_run *r, const fak_totals *t)
{
    const fak_exits *x = &r->exits;
    bool watched = x->fd >= 0;
    put_binding(d, root, o);
    put_wait4(d, root, r);
    fak_cgroup group = r->cgroup;
    gem_json *g = fak_cgroup_put(&group, d, root);
    fak_cgroup_close(&group); /* removed here, so that the document can say whether it could be */
    gem_json_put_string(d, g, "cleanup", group.cleanup);
    fak_pressure_put(d, root, &r->pressure_from, &r->pressure_to);
    gem_json *e = gem_json_put(d, root, "exits", GEM_JSON_OBJECT);
    fak_put_metric(d, e, "count", watched, (double)x->count, "processes", "proc-connector",
                   x->reason ? x->reason : "");
    fak_put_metric(d, e, "cpu_usec", false, 0, "microseconds", "",
                   "exit records carry no CPU time here; see wait4");
    fak_put_metric(d, e, "lost_messages", watched, (double)x->lost, "messages", "proc-connector",
                   x->reason ? x->reason : "");
    gem_json_put_int(d, root, "effective_cadence_ns", (int64_t)r->cadence_ns);
    gem_json_put_bool(d, root, "coverage_limited", r->coverage_limited);
    put_context(d, root, r, t);
    gem_json *axis = gem_json_put(d, root, "gpu_axis", GEM_JSON_OBJECT);
    gem_json_put_bool(d, axis, "available", r->gpus != NULL);
    if (!r->gpus) gem_json_put_string(d, axis, "reason", r->no_gpu);
    fak_gpus_put(r->gpus, d, gem_json_put(d, root, "gpu", GEM_JSON_ARRAY));
}

static void put_findings(gem_json_doc *d, gem_json *list, gem_json *word, const fak_verdict *v)
{
    gem_json_set_string(d, word, v->word);
    for (size_t i = 0; i < v->n; i++) {
        gem_json *f = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_string(d, f, "code", v->code[i]);
        gem_json_put_string(d, f, "detail", v->detail[i]);
    }
}

bool fak_baseline_write(const fak_baseline_options *o, const fak_baseline_run *r, gem_bytes *out,
                        char *digest, const char **verdict)
{
    fak_totals before, during;
    fak_verdict v;
    gem_json_doc *d = gem_json_new();
    if (!d) return false;
    fak_window_totals(&r->baseline, &before);
    fak_window_totals(&r->command, &during);
    exact_attribution(o, r, &during);
    gem_json *root = gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(d, root, "schema",
                        o->v2 ? fak_doc_baseline_v2.schema : fak_doc_baseline_v1.schema);
    gem_json *word = gem_json_put_string(d, root, "verdict", "");
    put_window(d, root, "baseline_window", o, r, 0, &before);
    put_window(d, root, "command_window", o, r, 1, &during);
    put_host(d, root, "baseline_host_totals", &before);
    put_host(d, root, "host_totals", &during);
    put_sampler(d, root, "baseline_sampler", &r->baseline, &before);
    put_sampler(d, root, "command_sampler", &r->command, &during);
    put_coverage(d, root, o, r);
    put_attribution(d, root, &during);
    put_consumers(d, root, o, r);
    if (o->v2) put_v2(d, root, o, r, &during);
    put_policy(d, root, o);
    gem_json *list = gem_json_put(d, root, "findings", GEM_JSON_ARRAY);
    gem_json_put_int(d, root, "command_exit_code", r->exit_code);
    gem_json_put_bool(d, root, "timed_out", r->timed_out);
    gem_json *seal = gem_json_put_string(d, root, "digest", "");
    fak_attestation_evaluate(root, &v);
    put_findings(d, list, word, &v);
    bool ok = fak_digest_json(digest, root);
    gem_json_set_string(d, seal, ok ? digest : "");
    gem_json_write(out, root);
    *verdict = v.word;
    ok = ok && !gem_json_failed(d) && !out->failed;
    gem_json_free(d);
    return ok;
}
