/* http_front.c - HTTP by libmicrohttpd, a thread a connection: checks, bodies, answers. Everything
 * that can fail is checked before the first byte of an answer; after it, streams report errors as
 * events. */
#include "server/field.h"
#include "server/guard.h"
#include "server/page.h"
#include "server/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_URI = 8192,
    MAX_HEADERS = 100,
    HEADER_MEMORY = 96 << 10,
    IDLE_S = 60,           /* keep-alive and half-sent requests */
    STACK_BYTES = 1 << 20, /* of a connection's thread; address space, not memory */
    ABSORB = 64 << 20,     /* a refused body up to this is read before the answer */
    SSE_BLOCK = 16 << 10
};

typedef struct exchange { /* one request and its answer */
    gem_server *s;
    char id[24];
    size_t uri_len;
    bool begun, unread; /* unread: the answer comes before the body */
    bool head, answered;
    int route, status;
    const char *rest, *allow;
    char origin[256]; /* to be reflected in CORS headers */
    char miss[768];   /* where the prompt parts from what is held; empty: nowhere */
    gem_fault fault;
    gem_bytes body;
    uint64_t started_ns;
    gem_job *job; /* one reference */
} exchange;

typedef struct MHD_Connection connection;

static const char *header(connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* ---- answers ---- */

static void put_headers(exchange *x, struct MHD_Response *r)
{
    char n[16];
    MHD_add_response_header(r, "X-Request-Id", x->id);
    if (x->miss[0]) MHD_add_response_header(r, "X-Gem-Prefix-Miss", x->miss);
    if (x->fault.retry_after_s) {
        snprintf(n, sizeof(n), "%d", x->fault.retry_after_s);
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, n);
    }
    if (x->fault.http == 401)
        MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (x->allow && x->fault.http == 405)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, x->allow);
    if (x->origin[0]) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", x->origin);
        MHD_add_response_header(r, "Vary", "Origin");
        MHD_add_response_header(r, "Access-Control-Allow-Headers",
                                "authorization, content-type, x-api-key");
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        MHD_add_response_header(r, "Access-Control-Expose-Headers",
                                "x-request-id, x-gem-prefix-miss");
    }
    if (x->unread) MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
}

static enum MHD_Result queue(exchange *x, connection *c, int status, struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    put_headers(x, r);
    x->status = status;
    x->answered = true;
    enum MHD_Result ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static void put_page_headers(struct MHD_Response *r)
{
    char policy[GEM_PAGE_POLICY];
    gem_page_policy(policy);
    MHD_add_response_header(r, "Content-Security-Policy", policy);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(r, "Vary", "Accept");
}

/* Takes the bytes. */
static enum MHD_Result answer(exchange *x, connection *c, int status, const char *type,
                              gem_bytes *b)
{
    if (b->failed || !b->data) {
        gem_bytes_free(b);
        return MHD_NO;
    }
    struct MHD_Response *r =
        MHD_create_response_from_buffer(b->len, b->data, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        gem_bytes_free(b);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (gem_route_at(x->route) && gem_route_at(x->route)->page) put_page_headers(r);
    return queue(x, c, status, r);
}

static enum MHD_Result answer_fault(exchange *x, connection *c)
{
    gem_bytes b = {0};
    const gem_route *route = gem_route_at(x->route);
    if (route && route->wire && route->wire->error)
        route->wire->error(&x->fault, &b);
    else
        gem_fault_json(&x->fault, &b);
    return answer(x, c, x->fault.http, "application/json", &b);
}

/* ---- checks before the body ---- */

static bool check_host(exchange *x, connection *c, const char *version)
{
    const char *host = header(c, MHD_HTTP_HEADER_HOST);
    if (!host)
        return strcmp(version, MHD_HTTP_VERSION_1_1) != 0 ||
               gem_fault_bad(&x->fault, "missing_host", NULL, "the Host header is missing");
    const gem_server_options *o = &x->s->opt;
    if (o->insecure && !o->allowed_hosts) return true;
    if (gem_guard_host(host, o->allowed_hosts)) return true;
    return gem_fault_set(&x->fault, 403, "permission_error", "forbidden_host", NULL,
                         "this Host is not served; see --allowed-host");
}

static bool check_origin(exchange *x, connection *c)
{
    const char *origin = header(c, MHD_HTTP_HEADER_ORIGIN);
    if (!origin || gem_guard_same(origin, header(c, MHD_HTTP_HEADER_HOST))) return true;
    if (gem_guard_origin(origin, x->s->opt.cors_origins) && strlen(origin) < sizeof(x->origin)) {
        memcpy(x->origin, origin, strlen(origin) + 1);
        return true;
    }
    return gem_fault_set(&x->fault, 403, "permission_error", "forbidden_origin", NULL,
                         "pages of this origin are not served; see --cors-origin");
}

static bool check_key(exchange *x, connection *c)
{
    const char *key = header(c, "x-api-key"), *auth = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!x->s->opt.n_keys) return true;
    if (auth && !strncasecmp(auth, "bearer ", 7)) key = auth + 7 + strspn(auth + 7, " ");
    if (key &&
        gem_guard_key(key, strlen(key), (const uint8_t(*)[32])x->s->key_digest, x->s->opt.n_keys))
        return true;
    return gem_fault_set(&x->fault, 401, "authentication_error", "invalid_api_key", NULL,
                         key ? "this API key is not valid" : "an API key is needed");
}

typedef struct header_facts {
    int n;
    const char *length;
    bool two_lengths, chunked, odd_coding;
} header_facts;

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                 const char *value)
{
    header_facts *h = cls;
    (void)kind;
    h->n++;
    if (!strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        h->two_lengths |= h->length && strcmp(h->length, value) != 0;
        h->length = value;
    }
    if (!strcasecmp(key, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        h->chunked = true;
        h->odd_coding |= strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

static bool check_framing(exchange *x, connection *c, header_facts *h)
{
    gem_fault *f = &x->fault;
    MHD_get_connection_values(c, MHD_HEADER_KIND, on_header, h);
    if (x->uri_len > MAX_URI)
        return gem_fault_set(f, 414, GEM_INVALID, "uri_too_long", NULL,
                             "the URI is longer than %d bytes", MAX_URI);
    if (h->n > MAX_HEADERS)
        return gem_fault_set(f, 431, GEM_INVALID, "headers_too_large", NULL, "more than %d headers",
                             MAX_HEADERS);
    if ((h->chunked && h->length) || h->two_lengths)
        return gem_fault_bad(f, "ambiguous_length", NULL, "the length of the body is given twice");
    if (h->odd_coding)
        return gem_fault_set(f, 501, GEM_INVALID, "unsupported_transfer_encoding", NULL,
                             "of transfer codings only chunked is served");
    if (h->length && strspn(h->length, "0123456789") != strlen(h->length))
        return gem_fault_bad(f, "bad_length", NULL, "Content-Length is no number");
    if (h->length && strtoull(h->length, NULL, 10) > x->s->opt.max_body)
        return gem_fault_set(f, 413, GEM_INVALID, "request_too_large", NULL,
                             "request_too_large: the body is larger than %zu bytes",
                             x->s->opt.max_body);
    return true;
}

static bool check_loaded(exchange *x, const gem_route *r)
{
    gem_server *s = x->s;
    if (!r->needs_model || gem_server_get_state(s) == GEM_SERVER_READY) return true;
    x->fault.retry_after_s = gem_server_loading_s(s);
    if (gem_server_get_state(s) == GEM_SERVER_DRAINING)
        return gem_fault_set(&x->fault, 503, "unavailable_error", "shutting_down", NULL,
                             "the server is shutting down");
    return gem_fault_set(&x->fault, 503, "unavailable_error", "model_loading", NULL,
                         "Loading model (%d%%)", atomic_load(&s->loaded_permille) / 10);
}

/* Browsers say that they take HTML; programs get a small document at the same path. */
static bool wants_page(connection *c)
{
    const char *accept = header(c, MHD_HTTP_HEADER_ACCEPT);
    return accept && strstr(accept, "text/html");
}

static bool check_request(exchange *x, connection *c, const char *url, const char *method,
                          const char *version, header_facts *h)
{
    x->head = !strcmp(method, "HEAD");
    if (!check_framing(x, c, h) || !check_host(x, c, version) || !check_origin(x, c)) return false;
    if (!strcmp(method, "OPTIONS")) return true;
    if (!strcmp(url, "/") && !wants_page(c)) url = "/version";
    gem_fault missing = {0};
    x->route = gem_route_find(method, url, &x->rest, &x->allow, &missing);
    const gem_route *r = gem_route_at(x->route);
    if (!(r && r->open) && !check_key(x, c)) return false;
    if (!r) {
        x->fault = missing;
        return false;
    }
    return check_loaded(x, r);
}

/* ---- the answer ---- */

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    gem_job *j = cls;
    (void)pos;
    long n = gem_job_take(j, buf, max);
    if (n > 0) return n;
    return n == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void free_stream(void *cls)
{
    gem_job_release(cls);
}

static enum MHD_Result answer_stream(exchange *x, connection *c)
{
    gem_job_hold(x->job);
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SSE_BLOCK,
                                                               read_stream, x->job, free_stream);
    if (!r) {
        gem_job_release(x->job);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return queue(x, c, 200, r);
}

static enum MHD_Result answer_whole(exchange *x, connection *c)
{
    gem_bytes b = {0};
    gem_job *j = x->job;
    gem_job_wait(j);
    gem_cancel why = gem_job_cancelled(j);
    if (why == GEM_CANCEL_GONE || why == GEM_CANCEL_SLOW) return MHD_NO;
    if (j->fault.http) {
        x->fault = j->fault;
        return answer_fault(x, c);
    }
    j->wire->document(j, &b);
    j->n_out = b.len;
    return answer(x, c, 200, "application/json", &b);
}

static enum MHD_Result run_job(exchange *x, connection *c, const gem_route *r, const json_t *body)
{
    x->job = r->wire->read(x->s, body, &x->fault);
    if (!x->job) return answer_fault(x, c);
    memcpy(x->job->request_id, x->id, sizeof(x->id));
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    gem_watch_add(x->job, info ? info->connect_fd : -1);
    gem_job_comment(x->job, "request %s accepted", x->id);
    if (gem_prefix_miss_text(x->s, x->job, x->miss, sizeof(x->miss)) && x->s->opt.verbose)
        gem_log_line(x->s, "%s prefix miss: %s", x->id, x->miss);
    if (!gem_scheduler_submit(x->s->scheduler, x->job, &x->fault)) {
        gem_watch_remove(x->job);
        return answer_fault(x, c);
    }
    /* our own silence while the model works is no reason to hang up */
    MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    return x->job->p.stream ? answer_stream(x, c) : answer_whole(x, c);
}

static enum MHD_Result dispatch(exchange *x, connection *c)
{
    gem_bytes out = {0};
    const gem_route *r = gem_route_at(x->route);
    if (x->fault.http) return answer_fault(x, c);
    if (!r) { /* OPTIONS */
        struct MHD_Response *none =
            MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        return queue(x, c, 204, none);
    }
    bool ok = true;
    json_t *body = NULL;
    if (r->get) {
        ok = r->get(x->s, x->rest, &out, &x->fault);
    } else if (!(body = gem_body_parse(x->body.data ? x->body.data : "", x->body.len, &x->fault))) {
        ok = false;
    } else if (r->wire) {
        enum MHD_Result done = run_job(x, c, r, body);
        json_decref(body);
        return done;
    } else {
        ok = r->post(x->s, body, &out, &x->fault);
    }
    json_decref(body);
    if (ok) return answer(x, c, 200, r->type, &out);
    gem_bytes_free(&out);
    return answer_fault(x, c);
}

/* ---- libmicrohttpd's callbacks ---- */

static void *on_uri(void *cls, const char *uri, connection *c)
{
    gem_server *s = cls;
    exchange *x = calloc(1, sizeof(*x));
    (void)c;
    if (!x) return NULL;
    x->s = s;
    x->route = -1;
    x->uri_len = strlen(uri);
    x->started_ns = gem_now_ns();
    snprintf(x->id, sizeof(x->id), "req-%06llx",
             (unsigned long long)atomic_fetch_add(&s->next_id, 1));
    return x;
}

/* First call of a request: headers are known, the body is not. */
static enum MHD_Result begin(exchange *x, connection *c, const char *url, const char *method,
                             const char *version)
{
    header_facts h = {0};
    x->begun = true;
    if (check_request(x, c, url, method, version, &h)) return MHD_YES;
    bool large = h.chunked || (h.length && strtoull(h.length, NULL, 10) > ABSORB);
    if (!large && !header(c, MHD_HTTP_HEADER_EXPECT)) return MHD_YES; /* answered after the body */
    x->unread = true;
    return answer_fault(x, c);
}

/* A byte a millisecond at least, after a grace of 30 s. */
static bool too_slow(const exchange *x)
{
    uint64_t ms = (gem_now_ns() - x->started_ns) / 1000000;
    return ms > 30000 + x->body.len;
}

static enum MHD_Result on_body(exchange *x, const char *data, size_t *size)
{
    size_t n = *size;
    *size = 0;
    if (x->fault.http) return MHD_YES;
    if (too_slow(x)) return MHD_NO;
    if (x->body.len + n > x->s->opt.max_body) {
        gem_bytes_free(&x->body);
        gem_fault_set(&x->fault, 413, GEM_INVALID, "request_too_large", NULL,
                      "request_too_large: the body is larger than %zu bytes", x->s->opt.max_body);
        return MHD_YES;
    }
    gem_bytes_put(&x->body, data, n);
    return x->body.failed ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *cls, connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **con)
{
    exchange *x = *con;
    (void)cls;
    if (!x) return MHD_NO;
    if (!x->begun) return begin(x, c, url, method, version);
    if (*size) return on_body(x, data, size);
    return x->answered ? MHD_YES : dispatch(x, c);
}

static void on_done(void *cls, connection *c, void **con, enum MHD_RequestTerminationCode code)
{
    exchange *x = *con;
    (void)cls;
    if (!x) return;
    *con = NULL;
    if (x->job) {
        gem_watch_remove(x->job);
        if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) gem_job_cancel(x->job, GEM_CANCEL_GONE);
        gem_job_release(x->job);
    }
    if (x->begun) {
        gem_metrics_request(&x->s->metrics, x->route, x->status);
        if (x->fault.http)
            gem_log_line(x->s, "%s refused status=%d code=%s: %s", x->id, x->fault.http,
                         x->fault.code, x->fault.message);
    }
    gem_bytes_free(&x->body);
    free(x);
    MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)IDLE_S);
}

static void on_connection(void *cls, connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    gem_server *s = cls;
    (void)c;
    (void)socket_context;
    atomic_fetch_add(&s->metrics.connections, code == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1);
}

static void quiet(void *cls, const char *fmt, va_list ap)
{
    (void)cls;
    (void)fmt;
    (void)ap; /* a peer's malformed bytes are not our log's business */
}

/* ---- the socket ---- */

static bool is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
}

static gem_status parse_address(const gem_server_options *o, struct sockaddr_storage *a,
                                socklen_t *len, gem_error *err)
{
    const char *host = o->host ? o->host : "127.0.0.1";
    struct sockaddr_in *v4 = (struct sockaddr_in *)a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;
    memset(a, 0, sizeof(*a));
    if (!strcmp(host, "localhost")) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)o->port);
        *len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)o->port);
        *len = sizeof(*v6);
    } else {
        return gem_fail(err, GEM_E_ARG, "--host %.64s is no numeric address", host);
    }
    if (is_loopback(a) || o->n_keys || o->insecure) return GEM_OK;
    return gem_fail(err, GEM_E_ARG,
                    "--host %.64s can be reached from other machines: give --api-key-file, or "
                    "--insecure to serve without a key",
                    host);
}

static gem_status open_socket(const gem_server_options *o, int *out, gem_error *err)
{
    struct sockaddr_storage a;
    socklen_t len = 0;
    int on = 1;
    gem_status st = parse_address(o, &a, &len, err);
    if (st != GEM_OK) return st;
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return gem_fail(err, GEM_E_IO, "no socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, 1024) != 0) {
        int why = errno;
        close(fd);
        return gem_fail(err, GEM_E_IO, "cannot listen on %s port %d: %s",
                        o->host ? o->host : "127.0.0.1", o->port, strerror(why));
    }
    *out = fd;
    return GEM_OK;
}

static int bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

gem_status gem_http_start(gem_server *s, struct MHD_Daemon **out, gem_error *err)
{
    int fd = -1;
    *out = NULL;
    gem_status st = open_socket(&s->opt, &fd, err);
    if (st != GEM_OK) return st;
    s->port = bound_port(fd);
    *out = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                                MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG,
                            0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL,
                            MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, s,
                            MHD_OPTION_NOTIFY_COMPLETED, on_done, s, MHD_OPTION_NOTIFY_CONNECTION,
                            on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)s->opt.n_connections, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)HEADER_MEMORY, MHD_OPTION_THREAD_STACK_SIZE,
                            (size_t)STACK_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (*out) return GEM_OK;
    close(fd);
    return gem_fail(err, GEM_E_IO, "the HTTP server did not start: %s", strerror(errno));
}
