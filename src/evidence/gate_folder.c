/* gate_folder.c - see gate_folder.h. */
#include "evidence/gate_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_TEXT = 256 << 20 };

/* ---- files ---- */
static char *path_of(const ev_gate *g, const char *name)
{
    gem_bytes b = {0};
    gem_bytes_printf(&b, "%s/%s", g->dir, name);
    return b.data;
}

bool ev_gate_has(const ev_gate *g, const char *name)
{
    char *path = path_of(g, name);
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

static bool file_fault(const ev_gate *g, const char *name, const gem_error *err)
{
    /* the sentence begins with the path, which is another one in a moved folder */
    const char *why = strstr(err->text, name);
    return ev_check(g->j, false, "files", "there and readable", "%s", why ? why : name);
}

bool ev_gate_doc(const ev_gate *g, const char *name, ev_doc *d)
{
    gem_error err = {.text = ""};
    char *path = path_of(g, name);
    memset(d, 0, sizeof(*d));
    bool ok = path && ev_doc_load(d, path, &err) == GEM_OK && d->root;
    free(path);
    if (!ok) return file_fault(g, name, &err);
    ev_judge_input(g->j, name, d);
    return true;
}

bool ev_gate_text(const ev_gate *g, const char *name, ev_text_file *t)
{
    gem_error err = {.text = ""};
    char *path = path_of(g, name);
    memset(t, 0, sizeof(*t));
    bool ok = path && gem_file_read(path, MAX_TEXT, &t->text, &t->len, &err) == GEM_OK;
    gem_sha256 *h = ok ? gem_sha256_new() : NULL;
    free(path);
    if (!h) return file_fault(g, name, &err);
    gem_sha256_update(h, t->text, t->len);
    gem_sha256_finish(h, t->sha256);
    ev_doc d = {.name = name};
    memcpy(d.sha256, t->sha256, sizeof(d.sha256));
    ev_judge_input(g->j, name, &d);
    return true;
}

void ev_text_file_free(ev_text_file *t)
{
    free(t->text);
    memset(t, 0, sizeof(*t));
}

/* ---- digests ---- */
bool ev_gate_digest(const ev_gate *g, const char *rule, const char *what, const char *want,
                    const char *have)
{
    return ev_check(g->j, ev_is_digest(want) && strcmp(want, have) == 0, rule,
                    "the digest that was frozen when the run began", "%s: %.12s, frozen %.12s",
                    what, *have ? have : "none", *want ? want : "none");
}

bool ev_gate_binary(const ev_gate *g, const char *want, char out[65])
{
    ev_text_file t;
    char hex[65] = "";
    if (ev_gate_text(g, "live-binary-sha256.txt", &t)) snprintf(hex, sizeof(hex), "%.64s", t.text);
    bool form = ev_is_digest(hex) && (t.len == 64 || t.text[64] == ' ' || t.text[64] == '\n');
    bool ok = ev_check(g->j, form && (!want || strcmp(hex, want) == 0), "binary",
                       "one SHA-256, the same everywhere", "live-binary-sha256.txt: %.12s%s%.12s",
                       hex, want ? ", told elsewhere " : "", want ? want : "");
    if (out) memcpy(out, hex, 65);
    ev_text_file_free(&t);
    return ok;
}

/* ---- host receipts ---- */
bool ev_gate_policy(const ev_gate *g, const gem_json *config, ev_host_policy *p)
{
    *p = (ev_host_policy)EV_HOST_POLICY_DEFAULT;
    double load = ev_number(config, "host_policy.max_load_per_cpu"),
           busy = ev_number(config, "host_policy.max_short_window_busy_cpu_percent");
    p->max_load_per_cpu = load;
    p->max_busy_percent = busy;
    return ev_check(g->j, load > 0 && busy > 0 && busy <= 100, "host-policy",
                    "limits above zero in the configuration", "load %g, busy %g %%", load, busy);
}

bool ev_policy_is_default(const ev_host_policy *p)
{
    const ev_host_policy d = EV_HOST_POLICY_DEFAULT;
    return p->max_load_per_cpu == d.max_load_per_cpu && p->max_busy_percent == d.max_busy_percent;
}

void ev_gate_snapshot(const ev_gate *g, const gem_json *s, const ev_host_policy *p, unsigned rules)
{
    ev_host_policy q = *p;
    if (!(rules & EV_HOST_BUSY)) q.at_work = true;
    ev_check(g->j, strcmp(ev_text(s, "schema"), "gem-host-state/1") == 0, "schema",
             "gem-host-state/1", "%s", ev_text(s, "schema"));
    if (rules & EV_HOST_STATE) {
        ev_judge_host(g->j, s, &q);
        return;
    }
    double load = ev_number(s, "load_per_cpu"), busy = ev_number(s, "busy_percent");
    ev_check(g->j, load <= p->max_load_per_cpu, "host-load", "within the recorded limit", "%.3f",
             load);
    if (!q.at_work)
        ev_check(g->j, busy <= p->max_busy_percent, "host-busy", "within the recorded limit",
                 "%.2f %%", busy);
}

void ev_gate_receipt(const ev_gate *g, const char *name, const ev_host_policy *p, unsigned rules)
{
    ev_doc d;
    const char *before = g->j->about;
    if (ev_gate_doc(g, name, &d)) {
        g->j->about = name;
        ev_gate_snapshot(g, d.root, p, rules);
        g->j->about = before;
    }
    ev_doc_free(&d);
}

/* Seconds since 1970 of "2026-01-31T12:00:00Z"; NAN when it is none. Days: Hinnant's algorithm. */
static double seconds_of(const char *text)
{
    int y, m, d, hh, mm, ss;
    char z = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%c", &y, &m, &d, &hh, &mm, &ss, &z) != 7 || z != 'Z')
        return NAN;
    y -= m <= 2;
    int era = y / 400, yoe = y - era * 400;
    int doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return (era * 146097.0 + doe - 719468) * 86400 + hh * 3600.0 + mm * 60 + ss;
}

typedef struct monitor {
    size_t n, unreadable;
    double last, widest;
} monitor;

static void record(const ev_gate *g, monitor *m, const char *line, size_t len,
                   const ev_host_policy *p, unsigned rules)
{
    gem_json_error e;
    gem_json_doc *d = gem_json_read(line, len, 16, &e);
    const gem_json *root = d && e.fault == GEM_JSON_OK ? gem_json_root(d) : NULL;
    double at = seconds_of(ev_text(root, "time"));
    if (!root || isnan(at)) {
        m->unreadable++;
    } else {
        if (m->n && at - m->last > m->widest) m->widest = at - m->last;
        if (m->n && at < m->last) m->unreadable++;
        m->last = at;
        ev_gate_snapshot(g, root, p, rules & ~(unsigned)EV_HOST_BUSY);
    }
    m->n++;
    gem_json_free(d);
}

void ev_gate_monitor(const ev_gate *g, const char *name, const ev_host_policy *p, unsigned rules,
                     double interval, double seconds)
{
    ev_text_file t;
    monitor m = {0};
    ev_host_policy q = *p;
    const char *before = g->j->about;
    q.at_work = true;
    if (ev_gate_text(g, name, &t)) {
        g->j->about = name;
        if (t.len == 0 || t.text[t.len - 1] != '\n' || strlen(t.text) != t.len) m.unreadable++;
        for (const char *s = t.text, *lf; (lf = strchr(s, '\n')) != NULL; s = lf + 1)
            record(g, &m, s, (size_t)(lf - s), &q, rules);
        double least = fmax(1, floor(seconds / (1.5 * interval + 2))); /* a busy host is late */
        ev_check(g->j, !m.unreadable && interval > 0 && (double)m.n >= least, "host-monitor",
                 "snapshots at most 1.5 intervals and 2 s apart on average, all readable, in order "
                 "of time",
                 "%zu of %.0f, %zu unreadable", m.n, least, m.unreadable);
        ev_check(g->j, m.widest <= 2 * interval + 10, "host-monitor",
                 "no gap beyond two intervals and 10 s", "%.0f s at intervals of %.0f s", m.widest,
                 interval);
        g->j->about = before;
    }
    ev_text_file_free(&t);
}

/* ---- keys and values ---- */
typedef struct shape {
    double layers, window, heads, dim;
} shape;

static bool is_shape(const gem_json *group, const shape *s)
{
    return ev_number(group, "layers") == s->layers && ev_number(group, "window") == s->window &&
           ev_number(group, "n_kv_heads") == s->heads && ev_number(group, "head_dim") == s->dim;
}

/* Gemma 4 31B is known by its family and layers; its shape is fixed. */
static void check_31b(const ev_gate *g, const gem_json *config, const gem_json *groups)
{
    static const shape sliding = {50, 1024, 16, 256}, full = {10, 0, 4, 512};
    if (strcmp(ev_text(config, "model.family"), "gemma4") != 0 ||
        ev_number(config, "model.n_layers") != 60)
        return;
    const gem_json *a = gem_json_at(groups, 0), *b = gem_json_at(groups, 1);
    bool ok = groups && groups->n == 2 &&
              ((is_shape(a, &sliding) && is_shape(b, &full)) ||
               (is_shape(a, &full) && is_shape(b, &sliding)));
    ev_check(g->j, ok, "kv-bytes",
             "50 layers of window 1024, 16 x 256, and ten growing ones, 4 x 512", "%s",
             ok ? "that" : "another shape");
}

double ev_gate_kv_bytes(const ev_gate *g, const ev_doc *d)
{
    double total = 0, context = ev_number(d->root, "n_ctx"), layers = 0;
    const gem_json *groups = ev_at(d->root, "kv.layers");
    for (const gem_json *m = groups ? groups->first : NULL; m; m = m->next) {
        double window = ev_number(m, "window"), n = ev_number(m, "layers");
        const char *type = ev_text(m, "type"), *holds = ev_text(m, "holds");
        double element = !strcmp(type, "f32") ? 4 : !strcmp(type, "f16") ? 2 : NAN;
        double both = !strcmp(holds, "keys and values") ? 2 : !strcmp(holds, "values") ? 1 : NAN;
        if (!(window >= 0)) window = NAN;
        double kept = isnan(window) ? NAN : window > 0 ? fmin(context, window) : context;
        total += n * kept * ev_number(m, "n_kv_heads") * ev_number(m, "head_dim") * element * both;
        layers += n;
    }
    double told = ev_number(d->root, "kv.context_bytes"), pools = ev_number(d->root, "kv.bytes");
    bool known = groups && groups->n > 0 && total > 0;
    ev_check(g->j, known && told == total && layers <= ev_number(d->root, "model.n_layers"),
             "kv-bytes",
             "sum over layers of min(context, window) x KV heads x dims x element, K and V",
             "%.0f bytes told, %.0f derived", told, total);
    ev_check(g->j, pools >= total, "kv-bytes", "pools that hold a full context", "%.0f bytes",
             pools);
    check_31b(g, d->root, groups);
    return known ? total : NAN;
}
