/* cancel_gate.c - see cancel_gate.h. */
#include "evidence/cancel_gate.h"

#include "evidence/gate_folder.h"
#include "evidence/stream_sample.h"

#include <math.h>
#include <stdio.h>

static void check_config(const ev_gate *g, const ev_doc *d)
{
    ev_doc p;
    ev_check_text(g->j, d, "schema", "schema", "gem-server-prefill-cancel-gate");
    ev_check_equals(g->j, d, "schema", "schema_version", 1);
    double tokens = ev_number(d->root, "prompt_tokens"),
           after = ev_number(d->root, "cancel_after_seconds"),
           limit = ev_number(d->root, "recovery_limit_seconds");
    ev_check(g->j, tokens >= EV_CANCEL_LEAST_TOKENS, "prompt-tokens",
             "at least 128 canonical chat tokens", "%g", tokens);
    ev_check(g->j, after > 0 && limit > 0, "field", "when to cancel and how long recovery may take",
             "%g s, %g s", after, limit);
    const char *model = ev_text(d->root, "model_sha256");
    ev_check(g->j, ev_is_digest(model), "model-digest", "a SHA-256 in the configuration", "%.12s",
             model);
    ev_gate_binary(g, ev_text(d->root, "binary_sha256"), NULL);
    if (ev_gate_doc(g, "print-config.json", &p)) {
        ev_check_equals(g->j, &p, "context", "n_ctx", ev_number(d->root, "context"));
        ev_check_text(g->j, &p, "kv-type", "kv.type", ev_text(d->root, "kv_type"));
        ev_gate_kv_bytes(g, &p);
        if (ev_at(p.root, "model_sha256"))
            ev_gate_digest(g, "model-digest", "print-config.json", model,
                           ev_text(p.root, "model_sha256"));
    }
    ev_doc_free(&p);
}

/* The request asked for a stream of the whole prompt, and nothing else. */
static void check_request(const ev_gate *g, const ev_doc *config)
{
    ev_doc d;
    ev_text_file prompt;
    if (ev_gate_text(g, "prompt.txt", &prompt))
        ev_gate_digest(g, "prompt-digest", "prompt.txt", ev_text(config->root, "prompt_sha256"),
                       prompt.sha256);
    if (ev_gate_doc(g, "request.json", &d)) {
        const gem_json *text = ev_at(d.root, "messages.0.content"),
                       *all = ev_at(d.root, "messages");
        bool same = all && all->n == 1 && text && text->type == GEM_JSON_STRING && prompt.text &&
                    text->len == prompt.len && memcmp(text->text, prompt.text, prompt.len) == 0;
        ev_check(g->j, same && ev_is_true(d.root, "stream"), "request",
                 "a streamed chat of the prompt, one message", "%s",
                 same ? "the prompt" : "another text");
    }
    ev_doc_free(&d);
    ev_text_file_free(&prompt);
}

/* Curl gave up by the clock while the stream was open and had said that the server was at work. */
static void check_curl(const ev_gate *g, const ev_doc *config)
{
    ev_doc d;
    ev_text_file said;
    if (ev_gate_doc(g, "curl-status.json", &d)) {
        ev_check_equals(g->j, &d, "curl-status", "exit", 28);
        ev_check_equals(g->j, &d, "curl-status", "http_status", 200);
        double took = ev_number(d.root, "time_total"),
               after = ev_number(config->root, "cancel_after_seconds");
        ev_check(g->j, took >= 0.9 * after, "curl-status", "the whole time before it gave up",
                 "%.3f s of %g s", took, after);
        gem_json_put_number(g->j->json, g->j->root, "cancelled_after_seconds",
                            isnan(took) ? 0 : took);
    }
    if (ev_gate_text(g, "curl-error.txt", &said))
        ev_check(g->j, strstr(said.text, "(28)") != NULL, "curl-status", "curl: (28) as it said it",
                 "%.80s", said.text);
    ev_doc_free(&d);
    ev_text_file_free(&said);
}

static void check_cancelled(const ev_gate *g, const char *log, double prompt_tokens)
{
    ev_text_file sse;
    ev_stream s;
    ev_stream_log l;
    if (ev_gate_text(g, "cancelled.sse", &sse)) {
        ev_stream_read(&s, sse.text, sse.len);
        ev_stream_log_read(&l, log, s.request);
        ev_check(g->j, s.comments > 0 && *s.request, "keepalive",
                 "at least one comment, with the request's name", "%zu of %s", s.comments,
                 *s.request ? s.request : "nothing");
        ev_check(g->j, !s.terminators && !s.visible && !s.usages, "cancelled",
                 "a stream that ended before its first visible event", "%zu terminators, %s",
                 s.terminators, s.visible ? "visible" : "nothing visible");
        ev_check(g->j, *s.request && l.complete == 0, "cancelled",
                 "no record of 100 % of the cancelled prompt", "%zu of %.0f tokens", l.complete,
                 prompt_tokens);
        char line[96];
        snprintf(line, sizeof(line), " %s done ", s.request);
        const char *at = strstr(log, line), *end = at ? strchr(at, '\n') : NULL,
                   *gone = at ? strstr(at, "end=client_gone") : NULL;
        ev_check(g->j, gone && (!end || gone < end), "cancelled",
                 "the log ends the request as client_gone", "%s", gone ? "it does" : "it does not");
        gem_json_put_int(g->j->json, g->j->root, "cancelled_keepalive_comments",
                         (int64_t)s.comments);
    }
    ev_text_file_free(&sse);
}

static void check_recovery(const ev_gate *g, const ev_doc *config, const char *log)
{
    ev_doc d;
    size_t starts = 0;
    if (ev_gate_doc(g, "recovery.json", &d)) {
        double took = ev_number(d.root, "recovery_seconds"),
               limit = ev_number(config->root, "recovery_limit_seconds"),
               before = ev_number(d.root, "server_pid_before"),
               after = ev_number(d.root, "server_pid_after");
        ev_check_equals(g->j, &d, "recovery", "health_status", 200);
        ev_check(g->j, took >= 0 && took <= limit, "recovery", "healthy again within the limit",
                 "%.3f s of %g s", took, limit);
        for (const char *p = log; (p = strstr(p, " listening on http://")) != NULL; p++)
            starts++;
        ev_check(g->j, before > 0 && before == after && starts == 1, "same-process",
                 "one process from the first request to the end", "%.0f, then %.0f; %zu starts",
                 before, after, starts);
        gem_json_put_number(g->j->json, g->j->root, "recovery_seconds", isnan(took) ? -1 : took);
    }
    ev_doc_free(&d);
}

static void check_second(const ev_gate *g, const char *log)
{
    ev_doc d;
    ev_text_file sse = {0}, prompt;
    ev_stream_figures f = {.prompt_tokens = NAN};
    if (ev_gate_doc(g, "second.json", &d) && ev_gate_text(g, "second.sse", &sse)) {
        const ev_stream_options o = {0, -1};
        g->j->about = "second request";
        ev_judge_stream(g->j, &f, &d, sse.text, sse.len, log, &o);
        ev_check_equals(g->j, &d, "second", "requested_max_tokens", EV_CANCEL_SECOND_TOKENS);
        if (ev_gate_text(g, "second-prompt.txt", &prompt))
            ev_check(g->j, !strcmp(ev_text(d.root, "prompt_sha256"), prompt.sha256),
                     "prompt-digest", "of the retained second prompt", "%.12s",
                     ev_text(d.root, "prompt_sha256"));
        ev_text_file_free(&prompt);
        g->j->about = NULL;
        if (f.first_visible_event_seconds > 0)
            gem_json_put_number(g->j->json, g->j->root, "second_first_visible_event_seconds",
                                f.first_visible_event_seconds);
    }
    ev_doc_free(&d);
    ev_text_file_free(&sse);
}

void ev_judge_cancel_gate(ev_judge *j, const char *dir)
{
    static const char *const copied[] = {"context",       "kv_type",
                                         "prompt_tokens", "model_sha256",
                                         "prompt_sha256", "cancel_after_seconds",
                                         "binary_sha256", "recovery_limit_seconds"};
    const ev_gate g = {j, dir};
    ev_doc config;
    ev_text_file log = {0};
    gem_json_put_bool(j->json, j->root, "folder", true);
    if (ev_gate_doc(&g, "gate-config.json", &config)) {
        for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
            const gem_json *v = ev_at(config.root, copied[i]);
            if (v) gem_json_put_copy(j->json, j->root, copied[i], v);
        }
        check_config(&g, &config);
        check_request(&g, &config);
        check_curl(&g, &config);
        if (ev_gate_text(&g, "server.log", &log)) {
            check_cancelled(&g, log.text, ev_number(config.root, "prompt_tokens"));
            check_recovery(&g, &config, log.text);
            check_second(&g, log.text);
        }
    }
    gem_json_put_bool(j->json, j->root, "model_quality", false);
    ev_doc_free(&config);
    ev_text_file_free(&log);
}
