/* server_gate.c - see server_gate.h. */
#include "evidence/server_gate.h"

#include "evidence/gate_folder.h"
#include "evidence/stream_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char config_schema[] = "gem-long-context-server-gate";
enum { PROGRESS_STEP = 4096 };

/* Fields that every schema has, then those that came with 2, 3 and 4. */
typedef struct config {
    int schema; /* 0: not known */
    double context, prompt_tokens, max_tokens, least, interval, failures;
    const char *model, *prompt, *binary, *kv_type, *extension; /* borrowed */
    bool watched;                                              /* the host policy is enforced */
    unsigned rules;
    ev_host_policy policy;
} config;

/* Figures of all samples, cold and extended, by number of the sample. */
typedef struct samples {
    ev_stream_figures cold[EV_SERVER_GATE_SAMPLES], extended[EV_SERVER_GATE_SAMPLES];
    bool sound[EV_SERVER_GATE_SAMPLES];
} samples;

static const char *named(char out[48], const char *stem, int n, const char *ending)
{
    snprintf(out, 48, "%s%d%s", stem, n, ending);
    return out;
}

/* ---- configuration ---- */
static bool read_config(const ev_gate *g, const ev_doc *d, config *c)
{
    memset(c, 0, sizeof(*c));
    double schema = ev_number(d->root, "schema_version");
    bool known = !strcmp(ev_text(d->root, "schema"), config_schema) && schema >= 1 &&
                 schema <= EV_SERVER_GATE_SCHEMA && schema == floor(schema);
    ev_check(g->j, known, "schema", "gem-long-context-server-gate, version 1 to 4", "%s, %g",
             ev_text(d->root, "schema"), schema);
    if (!known) return false;
    c->schema = (int)schema;
    c->context = ev_number(d->root, "context");
    c->prompt_tokens = ev_number(d->root, "prompt_tokens");
    c->max_tokens = ev_number(d->root, "max_tokens"); /* NAN: not limited */
    c->model = ev_text(d->root, "model_sha256");
    c->prompt = ev_text(d->root, "prompt_sha256");
    c->binary = ev_text(d->root, "binary_sha256");
    c->kv_type = ev_text(d->root, "kv_type");
    c->extension = ev_text(d->root, "prefix_extension_text");
    if (c->schema >= 2) {
        c->least = ev_number(d->root, "host_policy.preflight_min_tokens");
        ev_gate_policy(g, d->root, &c->policy);
        c->interval = ev_number(d->root, "host_policy.monitor_seconds");
        c->failures = ev_number(d->root, "host_policy.monitor_failures");
        ev_check(g->j, c->least >= 1 && c->interval >= 1 && c->failures >= 1, "host-policy",
                 "the least prompt, the interval and the failures of the monitor",
                 "%g tokens, %g s, %g", c->least, c->interval, c->failures);
        ev_check(g->j, *ev_text(d->root, "host_policy.idle_assertion") != 0, "idle-assertion",
                 "what kept the machine awake, or that nothing did", "%s",
                 ev_text(d->root, "host_policy.idle_assertion"));
        c->watched = !(c->prompt_tokens < c->least); /* a count that is missing is watched */
        c->rules = EV_HOST_LOAD | (c->schema >= 3 ? EV_HOST_BUSY : 0) |
                   (c->schema >= 4 ? EV_HOST_STATE : 0);
    }
    return true;
}

/* ---- one sample ---- */
/* One start, one model, and no request but ours. */
static void check_process(const ev_gate *g, const char *log, size_t requests)
{
    size_t starts = 0, loads = 0, done = 0, cut = 0;
    for (const char *p = log; *p;) {
        const char *lf = strchr(p, '\n');
        size_t n = lf ? (size_t)(lf - p) : strlen(p);
        char line[1024];
        snprintf(line, sizeof(line), "%.*s", (int)GEM_MIN(n, sizeof(line) - 1), p);
        starts += strstr(line, " listening on http://") != NULL;
        loads += strstr(line, " model loaded: ") != NULL;
        done += strstr(line, " done wire=") != NULL;
        cut += !lf;
        p += n + (lf != NULL);
    }
    ev_check(g->j, starts == 1 && loads == 1 && done == requests && !cut, "fresh-process",
             "one start, one load, one line a finished request",
             "%zu starts, %zu loads, %zu requests of %zu%s", starts, loads, done, requests,
             cut ? ", the last line is cut" : "");
}

static void check_limit(const ev_gate *g, const config *c, const ev_doc *d)
{
    double asked = ev_number(d->root, "requested_max_tokens");
    ev_check(g->j, (isnan(c->max_tokens) && isnan(asked)) || asked == c->max_tokens,
             "requested-max-tokens", "the limit of the configuration", "%g, configured %g", asked,
             c->max_tokens);
    ev_gate_digest(g, "prompt-digest", d->name, c->prompt, ev_text(d->root, "prompt_sha256"));
}

static void judge_cold(const ev_gate *g, const config *c, int n, const char *log,
                       ev_stream_figures *out)
{
    char name[48];
    ev_doc d;
    ev_text_file sse = {0};
    if (ev_gate_doc(g, named(name, "sample-", n, ".json"), &d) &&
        ev_gate_text(g, named(name, "sample-", n, ".sse"), &sse)) {
        const ev_stream_options o = {0, 0};
        ev_judge_stream(g->j, out, &d, sse.text, sse.len, log, &o);
        ev_check(g->j, out->prompt_tokens == c->prompt_tokens, "prompt-tokens",
                 "what the prompt was counted as before", "%g, counted %g", out->prompt_tokens,
                 c->prompt_tokens);
        ev_check(g->j, ev_stream_log_steps(log, out->request, PROGRESS_STEP + 2048), "progress",
                 "records in the log at every 4,096th token, and the last one", "%s",
                 *out->request ? out->request : "no request");
        check_limit(g, c, &d);
    }
    ev_doc_free(&d);
    ev_text_file_free(&sse);
}

/* The second turn asked what it should: prompt, answer of the first turn, next words. */
static void check_messages(const ev_gate *g, const config *c, int n, const ev_doc *record)
{
    char name[48];
    ev_text_file messages, prompt = {0}, sse = {0};
    gem_bytes want = {0};
    bool ok = ev_gate_text(g, named(name, "extension-messages-", n, ".json"), &messages) &&
              ev_gate_text(g, "prompt.txt", &prompt) &&
              ev_gate_text(g, named(name, "sample-", n, ".sse"), &sse) &&
              ev_messages(&want, prompt.text, prompt.len, sse.text, sse.len, c->extension) &&
              messages.len == want.len && memcmp(messages.text, want.data, want.len) == 0;
    ev_check(g->j, ok, "extension", "the first turn, its answer as streamed, the next words", "%s",
             ok ? "these" : "other messages");
    ev_check(g->j, !strcmp(ev_text(record->root, "messages_sha256"), messages.sha256), "extension",
             "the retained messages were sent", "%.12s", ev_text(record->root, "messages_sha256"));
    gem_bytes_free(&want);
    ev_text_file_free(&messages);
    ev_text_file_free(&prompt);
    ev_text_file_free(&sse);
}

static void judge_extension(const ev_gate *g, const config *c, int n, const char *log,
                            ev_stream_figures *out)
{
    char name[48];
    ev_doc d;
    ev_text_file sse = {0};
    if (ev_gate_doc(g, named(name, "extension-", n, ".json"), &d) &&
        ev_gate_text(g, named(name, "extension-", n, ".sse"), &sse)) {
        const ev_stream_options o = {0, c->prompt_tokens > 0 ? c->prompt_tokens : INFINITY};
        ev_judge_stream(g->j, out, &d, sse.text, sse.len, log, &o);
        check_limit(g, c, &d);
        check_messages(g, c, n, &d);
    }
    ev_doc_free(&d);
    ev_text_file_free(&sse);
}

static double seconds(const ev_stream_figures *f)
{
    return isfinite(f->completion_seconds) ? f->completion_seconds : 0;
}

static void judge_sample(const ev_gate *g, const config *c, int n, samples *s)
{
    char about[48], name[48];
    ev_text_file log;
    size_t failed = g->j->n_failed;
    ev_stream_figures *cold = &s->cold[n - 1], *extended = &s->extended[n - 1];
    g->j->about = named(about, "sample ", n, "");
    if (ev_gate_text(g, named(name, "server-", n, ".log"), &log)) {
        check_process(g, log.text, *c->extension ? 2 : 1);
        judge_cold(g, c, n, log.text, cold);
        g->j->about = named(about, "extension ", n, "");
        if (*c->extension) judge_extension(g, c, n, log.text, extended);
    }
    ev_text_file_free(&log);
    if (c->watched) {
        ev_gate_receipt(g, named(name, "host-preflight-", n, ".json"), &c->policy, c->rules);
        ev_gate_monitor(g, named(name, "host-monitor-", n, ".ndjson"), &c->policy, c->rules,
                        c->interval, seconds(cold) + seconds(extended));
    }
    g->j->about = NULL;
    s->sound[n - 1] = g->j->n_failed == failed;
}

void ev_judge_server_sample(ev_judge *j, const char *dir, int n)
{
    const ev_gate g = {j, dir};
    ev_doc d;
    config c;
    samples s = {0};
    if (ev_gate_doc(&g, "gate-config.json", &d) && read_config(&g, &d, &c))
        judge_sample(&g, &c, n, &s);
    ev_doc_free(&d);
}

/* ---- the whole ---- */
static double check_print_config(const ev_gate *g, const config *c)
{
    ev_doc d;
    double bytes = NAN;
    if (ev_gate_doc(g, "print-config.json", &d)) {
        ev_check_equals(g->j, &d, "context", "n_ctx", c->context);
        ev_check_text(g->j, &d, "kv-type", "kv.type", c->kv_type);
        bytes = ev_gate_kv_bytes(g, &d);
        if (ev_at(d.root, "model_sha256"))
            ev_gate_digest(g, "model-digest", "print-config.json", c->model,
                           ev_text(d.root, "model_sha256"));
        gem_json_put_number(g->j->json, g->j->root, "kv_bytes", isnan(bytes) ? 0 : bytes);
        const gem_json *model = ev_at(d.root, "model");
        if (!model) /* told only then: reports of folders that hold stay what they were */
            ev_check(g->j, false, "model", "print-config says what the model is", "nothing");
        gem_json_put_copy(g->j->json, g->j->root, "model", model);
    }
    ev_doc_free(&d);
    return bytes;
}

/* Every attempt is on record, those that were thrown away too. */
static void check_attempts(const ev_gate *g)
{
    ev_text_file t;
    size_t started = 0, kept = 0, bad = 0;
    bool has[EV_SERVER_GATE_SAMPLES] = {false};
    if (ev_gate_text(g, "attempts.ndjson", &t)) {
        if (strlen(t.text) != t.len || !t.len || t.text[t.len - 1] != '\n') bad++;
        for (const char *p = t.text, *lf; (lf = strchr(p, '\n')) != NULL; p = lf + 1) {
            gem_json_error e;
            gem_json_doc *d = gem_json_read(p, (size_t)(lf - p), 4, &e);
            const gem_json *root = d && e.fault == GEM_JSON_OK ? gem_json_root(d) : NULL;
            const char *event = ev_text(root, "event");
            double n = ev_number(root, "sample");
            bool in = n >= 1 && n <= EV_SERVER_GATE_SAMPLES && n == floor(n);
            if (in && !strcmp(event, "started"))
                started++;
            else if (in && !strcmp(event, "kept") && !has[(int)n - 1])
                kept++, has[(int)n - 1] = true;
            else if (!in || strcmp(event, "refused") != 0)
                bad++;
            gem_json_free(d);
        }
        ev_check(g->j, !bad && kept == EV_SERVER_GATE_SAMPLES && started >= kept, "attempts",
                 "each sample kept once, every attempt on record",
                 "%zu started, %zu kept, %zu unreadable", started, kept, bad);
        gem_json_put_int(g->j->json, g->j->root, "attempts", (int64_t)started);
        gem_json_put_int(g->j->json, g->j->root, "discarded_attempts",
                         (int64_t)started - (int64_t)kept);
    }
    ev_text_file_free(&t);
}

static void put_figures(ev_judge *j, const char *name, const ev_stream_figures *f, size_t member)
{
    double x[EV_SERVER_GATE_SAMPLES];
    for (int i = 0; i < EV_SERVER_GATE_SAMPLES; i++) {
        memcpy(&x[i], (const char *)&f[i] + member, sizeof(*x));
        if (!isfinite(x[i])) return;
    }
    const ev_series s = {x, EV_SERVER_GATE_SAMPLES};
    ev_put_figures(j, j->root, name, &s);
}

static void put_samples(ev_judge *j, const char *name, const ev_stream_figures *f)
{
    gem_json *list = gem_json_put(j->json, j->root, name, GEM_JSON_ARRAY);
    for (int i = 0; i < EV_SERVER_GATE_SAMPLES; i++) {
        gem_json *o = gem_json_put(j->json, list, NULL, GEM_JSON_OBJECT);
        const double evaluated = f[i].prompt_tokens - f[i].cached_tokens;
        gem_json_put_int(j->json, o, "sample", i + 1);
        gem_json_put_number(j->json, o, "first_visible_event_seconds",
                            f[i].first_visible_event_seconds);
        gem_json_put_number(j->json, o, "completion_seconds", f[i].completion_seconds);
        gem_json_put_number(j->json, o, "prompt_tokens", f[i].prompt_tokens);
        gem_json_put_number(j->json, o, "reused_tokens", f[i].cached_tokens);
        gem_json_put_number(j->json, o, "appended_tokens", evaluated);
        gem_json_put_number(j->json, o, "completion_tokens", f[i].completion_tokens);
        gem_json_put_number(j->json, o, "keepalive_comments", f[i].keepalive_comments);
        gem_json_put_number(j->json, o, "prompt_tokens_per_second_to_first_event",
                            evaluated / f[i].first_visible_event_seconds);
    }
}

static void put_config(ev_judge *j, const config *c, const ev_doc *d)
{
    static const char *const copied[] = {"context",       "kv_type",       "prompt_tokens",
                                         "max_tokens",    "model_sha256",  "model_digest_source",
                                         "prompt_sha256", "binary_sha256", "prefix_extension_text",
                                         "host_policy"};
    gem_json_put_int(j->json, j->root, "schema_version", c->schema);
    for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
        const gem_json *v = ev_at(d->root, copied[i]);
        if (v) gem_json_put_copy(j->json, j->root, copied[i], v);
    }
    if (c->schema < 2) return;
    gem_json_put_bool(j->json, j->root, "host_policy_enforced", c->watched);
    gem_json_put_bool(j->json, j->root, "host_policy_is_default",
                      ev_policy_is_default(&c->policy) && c->least == 65536 && c->interval == 30 &&
                          c->failures == 3);
}

static bool all_sound(const samples *s)
{
    bool ok = true;
    for (int i = 0; i < EV_SERVER_GATE_SAMPLES; i++)
        ok = ok && s->sound[i];
    return ok;
}

static void put_aggregates(ev_judge *j, const config *c, const samples *s)
{
    bool ok = all_sound(s);
    ev_check(j, ok, "repetitions", "three samples that hold", "%d, %d, %d", s->sound[0],
             s->sound[1], s->sound[2]);
    if (!ok) return; /* figures of samples that do not hold are nobody's */
    put_samples(j, "samples", s->cold);
    put_figures(j, "first_visible_event_seconds", s->cold,
                offsetof(ev_stream_figures, first_visible_event_seconds));
    put_figures(j, "completion_seconds", s->cold, offsetof(ev_stream_figures, completion_seconds));
    if (!*c->extension) return;
    put_samples(j, "extension_samples", s->extended);
    put_figures(j, "extension_first_visible_event_seconds", s->extended,
                offsetof(ev_stream_figures, first_visible_event_seconds));
    put_figures(j, "extension_completion_seconds", s->extended,
                offsetof(ev_stream_figures, completion_seconds));
}

static void check_frozen(const ev_gate *g, const config *c)
{
    ev_text_file prompt;
    ev_check(g->j, ev_is_digest(c->model), "model-digest", "a SHA-256 in the configuration",
             "%.12s", c->model);
    if (ev_gate_text(g, "prompt.txt", &prompt))
        ev_gate_digest(g, "prompt-digest", "prompt.txt", c->prompt, prompt.sha256);
    ev_text_file_free(&prompt);
    ev_gate_binary(g, c->binary, NULL);
}

void ev_judge_server_gate(ev_judge *j, const char *dir)
{
    const ev_gate g = {j, dir};
    ev_doc d, run = {0};
    config c;
    samples s = {0};
    gem_json_put_bool(j->json, j->root, "folder", true);
    if (ev_gate_doc(&g, "gate-config.json", &d) && read_config(&g, &d, &c)) {
        put_config(j, &c, &d);
        check_frozen(&g, &c);
        check_print_config(&g, &c);
        if (ev_gate_doc(&g, "run.json", &run)) {
            double resumed = ev_need_number(j, &run, "resumed_samples");
            ev_check(j, resumed >= 0 && resumed <= EV_SERVER_GATE_SAMPLES, "attempts",
                     "0 to 3 resumed samples", "%g", resumed);
            gem_json_put_number(j->json, j->root, "resumed_samples", isnan(resumed) ? -1 : resumed);
        }
        check_attempts(&g);
        for (int n = 1; n <= EV_SERVER_GATE_SAMPLES; n++)
            judge_sample(&g, &c, n, &s);
        put_aggregates(j, &c, &s);
    }
    gem_json_put_bool(j->json, j->root, "model_quality", false);
    ev_doc_free(&d);
    ev_doc_free(&run);
}

/* ---- resume ---- */
static void check_field(ev_judge *j, const ev_doc in[2], const char *rule, const char *path)
{
    const gem_json *a = ev_at(in[0].root, path), *b = ev_at(in[1].root, path);
    bool same = (!a && !b) || (a && b && gem_json_equal(a, b));
    ev_check(j, same, rule, "the same as when the run began", "%s %s", path,
             same ? "is" : "was another one");
}

void ev_judge_server_resume(ev_judge *j, const ev_doc in[4])
{
    static const char *const provenance[] = {
        "model_path", "prompt_path", "prompt_tokens",         "context",    "kv_type",
        "max_tokens", "repetitions", "prefix_extension_text", "host_policy"};
    static const char *const roles[] = {"gate-config", "new gate-config", "print-config",
                                        "new print-config"};
    for (int i = 0; i < 4; i++)
        ev_judge_input(j, roles[i], &in[i]);
    ev_check_text(j, &in[0], "schema", "schema", config_schema);
    ev_check_equals(j, &in[0], "schema", "schema_version", EV_SERVER_GATE_SCHEMA);
    check_field(j, in, "binary", "binary_sha256");
    check_field(j, in, "model-digest", "model_sha256");
    check_field(j, in, "prompt-digest", "prompt_sha256");
    for (size_t i = 0; i < ARRAY_LEN(provenance); i++)
        check_field(j, in, "provenance", provenance[i]);
    /* members that this program does not know of count as well */
    ev_check(j, in[0].root->n == in[1].root->n, "provenance", "the same members", "%zu and %zu",
             in[0].root->n, in[1].root->n);
    ev_check(j, gem_json_equal(in[2].root, in[3].root), "configuration",
             "the native configuration of when the run began", "%s",
             gem_json_equal(in[2].root, in[3].root) ? "the same" : "another one");
}

bool ev_messages(gem_bytes *out, const char *prompt, size_t prompt_len, const char *stream,
                 size_t stream_len, const char *text)
{
    gem_bytes answer = {0};
    bool ok = !text || ev_stream_answer(&answer, stream, stream_len);
    gem_bytes_printf(out, "[{\"role\":\"user\",\"content\":");
    gem_json_quote(out, prompt, prompt_len);
    if (ok && text) {
        gem_bytes_printf(out, "},{\"role\":\"assistant\",\"content\":");
        gem_json_quote(out, answer.data, answer.len);
        gem_bytes_printf(out, "},{\"role\":\"user\",\"content\":");
        gem_json_quote(out, text, strlen(text));
    }
    gem_bytes_printf(out, "}]\n");
    gem_bytes_free(&answer);
    return ok && !out->failed;
}

/* ---- audit ---- */
/* A file of the folder is the very bytes that `root` is written as. */
static bool same_bytes(const char *dir, const char *name, const gem_json *root, bool *empty)
{
    gem_bytes path = {0}, want = {0};
    char *text = NULL;
    size_t len = 0;
    gem_bytes_printf(&path, "%s/%s", dir, name);
    gem_json_write(&want, root);
    bool read = path.data && gem_file_read(path.data, EV_MAX_DOCUMENT, &text, &len, NULL) == GEM_OK;
    bool same = read && !want.failed && len == want.len && memcmp(text, want.data, len) == 0;
    if (empty) *empty = !read || len == 0;
    free(text);
    gem_bytes_free(&path);
    gem_bytes_free(&want);
    return same;
}

static void check_summary(ev_judge *j, const char *dir)
{
    ev_judge again;
    bool same = false;
    if (ev_judge_init(&again, "gem-analyze-long-context-server-gate/4")) {
        ev_judge_options(&again, NULL, 0);
        ev_judge_server_gate(&again, dir);
        ev_judge_finish(&again, "accepted");
        same = ev_holds(&again) && same_bytes(dir, "summary.json", again.root, NULL);
    }
    ev_judge_free(&again);
    ev_check(j, same, "summary", "what follows from the raw files, byte for byte",
             "summary.json %s", same ? "is the same" : "says something else");
}

static void check_live(ev_judge *j, const char *rule, const char *path, const char *frozen)
{
    char hex[65] = "";
    bool same = gem_sha256_file(path, hex, NULL) == GEM_OK && !strcmp(hex, frozen);
    ev_check(j, same, rule, "the file that was frozen when the run began", "%s",
             same   ? "the same"
             : *hex ? "another one"
                    : "it cannot be read");
}

void ev_judge_server_audit(ev_judge *j, const char *dir, const ev_folder *f,
                           const ev_server_audit *a)
{
    char binary[65] = "";
    const ev_gate g = {j, dir};
    ev_doc d;
    bool empty;
    ev_judge_manifest(j, dir, f, "audit.json");
    ev_judge_server_gate(j, dir);
    check_summary(j, dir);
    ev_gate_binary(&g, NULL, binary);
    if (a->binary) check_live(j, "binary", a->binary, binary);
    if (a->model && ev_gate_doc(&g, "gate-config.json", &d)) {
        check_live(j, "model-digest", a->model, ev_text(d.root, "model_sha256"));
        ev_doc_free(&d);
    }
    ev_judge_finish(j, "accepted");
    /* the audit's own report may lie in the folder: empty while it is being made, the same later */
    if (ev_folder_find(f, "audit.json") && !same_bytes(dir, "audit.json", j->root, &empty) &&
        !empty)
        ev_check(j, false, "audit", "the report of this audit, or empty", "audit.json differs");
    ev_judge_finish(j, "accepted");
}
