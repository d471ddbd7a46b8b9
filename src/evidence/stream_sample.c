/* stream_sample.c - server-sent events and log lines, read again. */
#include "evidence/stream_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the stream ---- */
static bool has_text(const gem_json *v, const char *name)
{
    const gem_json *m = gem_json_get(v, name);
    return m && m->type == GEM_JSON_STRING && m->len > 0;
}

static bool is_visible(const gem_json *root)
{
    const gem_json *choices = ev_at(root, "choices");
    for (const gem_json *c = choices ? choices->first : NULL; c; c = c->next) {
        const gem_json *d = gem_json_get(c, "delta"), *calls = gem_json_get(d, "tool_calls");
        if (has_text(d, "content") || has_text(d, "reasoning_content") ||
            has_text(d, "reasoning") || (calls && calls->type == GEM_JSON_ARRAY && calls->n > 0))
            return true;
    }
    return false;
}

static void read_usage(ev_stream *s, const gem_json *root)
{
    if (!ev_at(root, "usage.prompt_tokens")) return;
    s->usages++;
    s->prompt_tokens = ev_number(root, "usage.prompt_tokens");
    s->completion_tokens = ev_number(root, "usage.completion_tokens");
    s->total_tokens = ev_number(root, "usage.total_tokens");
    s->cached_tokens = ev_number(root, "usage.prompt_tokens_details.cached_tokens");
}

static void read_data(ev_stream *s, const char *text, size_t len)
{
    gem_json_error e;
    s->events++;
    s->ends_with_done = len == 6 && memcmp(text, "[DONE]", 6) == 0;
    if (s->ends_with_done) {
        s->terminators++;
        return;
    }
    gem_json_doc *d = gem_json_read(text, len, 64, &e);
    const gem_json *root = d ? gem_json_root(d) : NULL;
    if (!root || e.fault != GEM_JSON_OK || ev_at(root, "error")) {
        s->bad++;
    } else {
        const char *id = ev_text(root, "id");
        if (!*s->id) snprintf(s->id, sizeof(s->id), "%.90s", id);
        s->one_id = s->one_id && *id && strcmp(s->id, id) == 0;
        s->visible = s->visible || is_visible(root);
        read_usage(s, root);
    }
    gem_json_free(d);
}

void ev_stream_read(ev_stream *s, const char *data, size_t len)
{
    static const char accepted[] = ": gem request ";
    memset(s, 0, sizeof(*s));
    s->one_id = true;
    s->prompt_tokens = s->completion_tokens = s->total_tokens = s->cached_tokens = NAN;
    for (const char *p = data, *end = data + len, *next; p < end; p = next) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((lf ? lf : end) - p);
        next = lf ? lf + 1 : end;
        if (!lf) s->bad++; /* cut in the middle of a line */
        if (n > 0 && p[n - 1] == '\r') n--;
        if (n == 0) continue;
        if (p[0] == ':') {
            s->comments++;
            if (!*s->request && n > sizeof(accepted) &&
                strncmp(p, accepted, sizeof(accepted) - 1) == 0)
                sscanf(p + sizeof(accepted) - 1, "%63[A-Za-z0-9_-]", s->request);
        } else if (n > 6 && strncmp(p, "data: ", 6) == 0) {
            read_data(s, p + 6, n - 6);
        } else {
            s->bad++;
        }
    }
}

bool ev_stream_answer(gem_bytes *out, const char *data, size_t len)
{
    gem_bytes_put(out, "", 0);
    for (const char *p = data, *end = data + len, *next; p < end; p = next) {
        gem_json_error e;
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((lf ? lf : end) - p);
        next = lf ? lf + 1 : end;
        if (n > 0 && p[n - 1] == '\r') n--;
        if (n <= 6 || strncmp(p, "data: {", 7) != 0) continue;
        gem_json_doc *d = gem_json_read(p + 6, n - 6, 64, &e);
        const gem_json *c = d ? ev_at(gem_json_root(d), "choices.0.delta.content") : NULL;
        if (c && c->type == GEM_JSON_STRING) gem_bytes_put(out, c->text, c->len);
        gem_json_free(d);
    }
    return !out->failed;
}

/* ---- the log ---- */
void ev_stream_log_read(ev_stream_log *l, const char *log, const char *request)
{
    char name[80];
    memset(l, 0, sizeof(*l));
    if (!*request) return;
    int n = snprintf(name, sizeof(name), " %s ", request);
    for (const char *p = log; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        const char *end = strchr(p, '\n'), *at = strstr(p, name);
        double done, total, a, b;
        int percent;
        char close = 0;
        if (!at || !end || at > end) continue; /* a line without its end was cut */
        at += n;
        if (sscanf(at, "prefill %lf/%lf tokens (%d%%%c", &done, &total, &percent, &close) == 4 &&
            close == ')' && percent == 100 && done == total) {
            l->complete++;
            l->complete_tokens = done;
        }
        if (sscanf(at, "prefix hit: reused %lf tokens, appended %lf tokens", &a, &b) == 2) {
            l->hits++;
            l->reused = a;
            l->appended = b;
        }
    }
}

bool ev_stream_log_steps(const char *log, const char *request, double step)
{
    char name[80];
    double before = 0, done, total = NAN;
    if (!*request) return false;
    int n = snprintf(name, sizeof(name), " %s prefill ", request);
    for (const char *p = log; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        const char *end = strchr(p, '\n'), *at = strstr(p, name);
        if (!at || !end || at > end) continue;
        if (sscanf(at + n, "%lf/%lf tokens", &done, &total) != 2) return false;
        if (!(done > before && done - before <= step)) return false;
        before = done;
    }
    return before == total;
}

/* ---- the judgement ---- */
static void check_usage(ev_judge *j, const ev_doc *d, const ev_stream *s,
                        const ev_stream_options *o)
{
    bool same = s->prompt_tokens == ev_number(d->root, "usage.prompt_tokens") &&
                s->completion_tokens == ev_number(d->root, "usage.completion_tokens") &&
                s->total_tokens == s->prompt_tokens + s->completion_tokens;
    ev_check(j, s->usages == 1 && same, "usage", "reported once, a sum that holds, as measured",
             "%zu times: %.0f + %.0f = %.0f", s->usages, s->prompt_tokens, s->completion_tokens,
             s->total_tokens);
    if (o->prompt_tokens > 0)
        ev_check(j, s->prompt_tokens == o->prompt_tokens, "prompt-tokens",
                 "what the prompt was counted as", "%.0f, counted %.0f", s->prompt_tokens,
                 o->prompt_tokens);
    double most = ev_number(d->root, "requested_max_tokens");
    ev_check(j, isnan(most) || s->completion_tokens <= most, "max-tokens",
             "no more than were asked for", "%.0f of %.0f", s->completion_tokens, most);
}

static void check_log(ev_judge *j, const ev_stream *s, const char *log, const ev_stream_options *o)
{
    ev_stream_log l;
    ev_stream_log_read(&l, log, s->request);
    ev_check(j, *s->request != 0, "request", "the request's name in the stream", "%s",
             *s->request ? s->request : "absent");
    ev_check(j, l.complete == 1 && l.complete_tokens == s->prompt_tokens, "prefill-100",
             "one record of exactly 100 % of the prompt", "%zu records, %.0f tokens", l.complete,
             l.complete_tokens);
    if (o->extends > 0)
        ev_check(j,
                 l.hits == 1 && l.reused >= o->extends && l.reused == s->cached_tokens &&
                     l.appended > 0 && l.reused + l.appended == s->prompt_tokens,
                 "prefix-hit",
                 "the whole first request reused, the rest evaluated, both counts exact",
                 "%zu records: %.0f reused (%.0f told), %.0f appended to %.0f", l.hits, l.reused,
                 s->cached_tokens, l.appended, o->extends);
    else if (!(o->extends < 0))
        ev_check(j, l.hits == 0 && s->cached_tokens == 0, "cold", "nothing reused",
                 "%zu hits, %.0f cached", l.hits, s->cached_tokens);
}

void ev_judge_stream(ev_judge *j, ev_stream_figures *out, const ev_doc *d, const char *stream,
                     size_t stream_len, const char *log, const ev_stream_options *o)
{
    ev_stream s;
    ev_stream_read(&s, stream, stream_len);
    ev_check_text(j, d, "schema", "schema", "gem.server-stream-probe");
    ev_check_equals(j, d, "schema", "version", 1);
    ev_check_equals(j, d, "http-status", "http_status", 200);
    ev_check(j, !s.bad && s.one_id && s.events > 0, "stream",
             "comments and JSON events of one answer, whole lines",
             "%zu events, %zu that cannot be read%s", s.events, s.bad,
             s.one_id ? "" : ", several answers");
    ev_check(j, s.terminators == 1 && s.ends_with_done && ev_is_true(d->root, "done"), "terminator",
             "data: [DONE], once and last", "%zu, %s", s.terminators,
             s.ends_with_done ? "last" : "not last");
    double transport = ev_number(d->root, "transport.time_starttransfer"),
           first = ev_number(d->root, "first_visible_event_seconds"),
           last = ev_number(d->root, "last_event_seconds");
    ev_check(j, s.visible, "visible", "content, reasoning or a tool call", "%s",
             s.visible ? "some" : "none");
    double whole = ev_number(d->root, "completion_seconds");
    ev_check(j, transport > 0 && transport < first && first <= last && last <= whole, "times",
             "first byte, first visible event, last one, end: in this order",
             "%.6f, %.6f, %.6f, %.6f s", transport, first, last, whole);
    ev_check(j, s.comments > 0 && (double)s.comments == ev_number(d->root, "keepalive_comments"),
             "keepalive", "comments, as many as measured", "%zu", s.comments);
    check_usage(j, d, &s, o);
    check_log(j, &s, log, o);
    *out = (ev_stream_figures){.first_visible_event_seconds = first,
                               .completion_seconds = ev_number(d->root, "completion_seconds"),
                               .prompt_tokens = s.prompt_tokens,
                               .completion_tokens = s.completion_tokens,
                               .cached_tokens = s.cached_tokens,
                               .keepalive_comments = (double)s.comments};
    memcpy(out->request, s.request, sizeof(out->request));
}
