/* routes.c - the table of paths, and the small documents behind them. */
#include "server/routes.h"

#include "server/page.h"
#include "server/text_routes.h"

#include <stdlib.h>

static bool put_json(json_t *doc, gem_bytes *out, gem_fault *f)
{
    char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    if (!text)
        return gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    gem_bytes_put(out, text, strlen(text));
    free(text);
    return true;
}

static bool get_health(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)rest;
    switch (gem_server_get_state(s)) {
    case GEM_SERVER_READY:
        gem_bytes_printf(out, "{\"status\":\"ok\"}");
        return true;
    case GEM_SERVER_LOADING:
    case GEM_SERVER_FAILED:
        f->retry_after_s = gem_server_loading_s(s);
        return gem_fault_set(f, 503, "unavailable_error", "model_loading", NULL,
                             "Loading model (%d%%)", atomic_load(&s->loaded_permille) / 10);
    case GEM_SERVER_DRAINING:
        break;
    }
    f->retry_after_s = 1;
    return gem_fault_set(f, 503, "unavailable_error", "shutting_down", NULL,
                         "the server is shutting down");
}

static bool get_models(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)rest;
    return put_json(gem_admin_models(s), out, f);
}

static bool get_model(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    if (!strcmp(rest, s->id)) return put_json(gem_admin_model(s), out, f);
    return gem_fault_set(f, 404, GEM_INVALID, "model_not_found", "model",
                         "this server has no such model; it serves %s", s->id);
}

static bool get_props(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)rest;
    return put_json(gem_admin_props(s), out, f);
}

static bool get_version(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)rest;
    return put_json(gem_admin_version(s), out, f);
}

static bool get_page(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)s;
    (void)rest;
    (void)f;
    gem_page(out);
    return true;
}

static bool get_slots(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)rest;
    if (s->opt.no_slots)
        return gem_fault_set(f, 501, "not_supported_error", "not_supported", NULL,
                             "/slots is switched off");
    return put_json(gem_scheduler_slots(s->scheduler), out, f);
}

static bool get_metrics(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    (void)rest;
    if (s->opt.no_metrics)
        return gem_fault_set(f, 501, "not_supported_error", "not_supported", NULL,
                             "/metrics is switched off");
    gem_metrics_text(s, out);
    return true;
}

static bool cancel_request(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    char id[64] = "";
    size_t n = strlen(rest);
    if (n > 7 && !strcmp(rest + n - 7, "/cancel")) n -= 7;
    if (n < sizeof(id)) memcpy(id, rest, n);
    if (n >= sizeof(id) || !gem_watch_cancel_id(s, id))
        return gem_fault_set(f, 404, "not_found_error", "request_not_found", NULL,
                             "no request of this id is running or waiting");
    gem_bytes_printf(out, "{\"id\":\"%s\",\"cancelled\":true}", id);
    return true;
}

static bool post_cancel(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f)
{
    return cancel_request(s, rest, out, f);
}

static const char json[] = "application/json";

static const gem_route route[] = {
    {.method = "GET",
     .path = "/health",
     .alias = "/v1/health",
     .open = true,
     .type = json,
     .get = get_health},
    {.method = "GET", .path = "/v1/models", .alias = "/models", .type = json, .get = get_models},
    {.method = "GET", .path = "/v1/models/", .alias = "/models/", .type = json, .get = get_model},
    {.method = "GET", .path = "/props", .type = json, .get = get_props},
    {.method = "GET", .path = "/version", .type = json, .get = get_version},
    {.method = "GET",
     .path = "/",
     .open = true,
     .page = true,
     .type = "text/html; charset=utf-8",
     .get = get_page},
    {.method = "GET", .path = "/slots", .type = json, .get = get_slots},
    {.method = "GET",
     .path = "/metrics",
     .type = "text/plain; version=0.0.4; charset=utf-8",
     .get = get_metrics},
    {.method = "POST",
     .path = "/v1/chat/completions",
     .alias = "/chat/completions",
     .type = json,
     .needs_model = true,
     .wire = &gem_wire_chat},
    {.method = "POST",
     .path = "/v1/completions",
     .alias = "/completions",
     .type = json,
     .needs_model = true,
     .wire = &gem_wire_completions},
    {.method = "POST",
     .path = "/v1/messages",
     .type = json,
     .needs_model = true,
     .wire = &gem_wire_messages},
    {.method = "POST",
     .path = "/v1/messages/count_tokens",
     .type = json,
     .needs_model = true,
     .post = gem_post_count_tokens},
    {.method = "POST",
     .path = "/v1/responses",
     .alias = "/responses",
     .type = json,
     .needs_model = true,
     .wire = &gem_wire_responses},
    {.method = "POST",
     .path = "/v1/chat/completions/input_tokens",
     .alias = "/chat/completions/input_tokens",
     .type = json,
     .needs_model = true,
     .post = gem_post_input_tokens},
    {.method = "POST",
     .path = "/tokenize",
     .type = json,
     .needs_model = true,
     .post = gem_post_tokenize},
    {.method = "POST",
     .path = "/detokenize",
     .type = json,
     .needs_model = true,
     .post = gem_post_detokenize},
    {.method = "POST",
     .path = "/apply-template",
     .type = json,
     .needs_model = true,
     .post = gem_post_apply_template},
    {.method = "DELETE", .path = "/v1/requests/", .type = json, .get = cancel_request},
    {.method = "POST", .path = "/v1/requests/", .type = json, .get = post_cancel},
};
_Static_assert(ARRAY_LEN(route) < GEM_ROUTES, "metrics count every route and one row for the rest");

const gem_route *gem_route_at(int i)
{
    return i >= 0 && (size_t)i < ARRAY_LEN(route) ? &route[i] : NULL;
}

/* What follows the row's path; NULL: another path. */
static const char *match(const char *want, const char *path)
{
    size_t n = want ? strlen(want) : 0;
    if (!want) return NULL;
    if (n > 1 && want[n - 1] == '/') return !strncmp(path, want, n) && path[n] ? path + n : NULL;
    return strcmp(path, want) ? NULL : path + n;
}

int gem_route_find(const char *method, const char *path, const char **rest, const char **allow,
                   gem_fault *f)
{
    if (!strcmp(method, "HEAD")) method = "GET";
    *allow = NULL;
    for (size_t i = 0; i < ARRAY_LEN(route); i++) {
        const char *r = match(route[i].path, path);
        if (!r) r = match(route[i].alias, path);
        if (!r) continue;
        *rest = r;
        if (!strcmp(method, route[i].method)) return (int)i;
        *allow = !strcmp(route[i].method, "GET") ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
    }
    if (*allow)
        gem_fault_set(f, 405, "not_found_error", "unknown_url", NULL,
                      "this path does not take %.16s; it takes %s", method, *allow);
    else
        gem_fault_set(f, 404, "not_found_error", "unknown_url", NULL,
                      "there is nothing at this path; see GET /v1/models, POST "
                      "/v1/chat/completions");
    return -1;
}
