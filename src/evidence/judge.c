/* judge.c - reading documents, and the list of checks. */
#include "evidence/judge.h"

#include "evidence/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- documents ---- */
gem_status ev_doc_load(ev_doc *d, const char *path, gem_error *err)
{
    char *data = NULL;
    gem_json_error je;
    memset(d, 0, sizeof(*d));
    d->path = strdup(path);
    if (!d->path) return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its name", path);
    d->name = strrchr(d->path, '/') ? strrchr(d->path, '/') + 1 : d->path;
    gem_status st = gem_file_read(path, EV_MAX_DOCUMENT, &data, &d->size, err);
    if (st != GEM_OK) return st;
    gem_sha256 *h = gem_sha256_new();
    if (h) {
        gem_sha256_update(h, data, d->size);
        gem_sha256_finish(h, d->sha256);
    }
    d->json = h ? gem_json_read(data, d->size, 64, &je) : NULL;
    if (!d->json)
        st = gem_fail(err, GEM_E_NOMEM, "%s: no memory for the document", path);
    else if (je.fault != GEM_JSON_OK)
        st = gem_fail(err, GEM_E_FORMAT, "%s: line %zu, column %zu: %s", path, je.line, je.column,
                      je.text);
    else
        d->root = gem_json_root(d->json);
    free(data);
    return st;
}

void ev_doc_free(ev_doc *d)
{
    gem_json_free(d->json);
    free(d->path);
    memset(d, 0, sizeof(*d));
}

const gem_json *ev_at(const gem_json *v, const char *path)
{
    char part[96];
    while (v && *path) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof(part)) return NULL;
        memcpy(part, path, n);
        part[n] = 0;
        if (v->type == GEM_JSON_ARRAY) {
            char *end;
            unsigned long i = strtoul(part, &end, 10);
            v = end != part && !*end ? gem_json_at(v, i) : NULL;
        } else {
            v = gem_json_get(v, part);
        }
        path += n + (path[n] == '.');
    }
    return v;
}

double ev_number(const gem_json *v, const char *path)
{
    v = ev_at(v, path);
    return v && v->type == GEM_JSON_NUMBER && isfinite(v->number) ? v->number : NAN;
}

const char *ev_text(const gem_json *v, const char *path)
{
    v = ev_at(v, path);
    return v && v->type == GEM_JSON_STRING ? v->text : "";
}

bool ev_is_true(const gem_json *v, const char *path)
{
    v = ev_at(v, path);
    return v && v->type == GEM_JSON_BOOL && v->truth;
}

bool ev_is_false(const gem_json *v, const char *path)
{
    v = ev_at(v, path);
    return v && v->type == GEM_JSON_BOOL && !v->truth;
}

bool ev_is_digest(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

/* ---- samples ---- */
bool ev_series_read(ev_series *s, const gem_json *list)
{
    memset(s, 0, sizeof(*s));
    if (!list || list->type != GEM_JSON_ARRAY || !list->n) return false;
    s->x = calloc(list->n, sizeof(*s->x));
    for (const gem_json *m = list->first; s->x && m; m = m->next) {
        if (m->type != GEM_JSON_NUMBER || !isfinite(m->number) || m->number <= 0) {
            ev_series_free(s);
            return false;
        }
        s->x[s->n++] = m->number;
    }
    return s->x != NULL;
}

void ev_series_free(ev_series *s)
{
    free(s->x);
    memset(s, 0, sizeof(*s));
}

/* ---- the judgement ---- */
bool ev_judge_init(ev_judge *j, const char *schema)
{
    memset(j, 0, sizeof(*j));
    j->json = gem_json_new();
    if (!j->json) return false;
    j->root = gem_json_put(j->json, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(j->json, j->root, "schema", schema);
    gem_json_put_string(j->json, j->root, "verdict", "refuse");
    j->inputs = gem_json_put(j->json, j->root, "inputs", GEM_JSON_ARRAY);
    j->checks = gem_json_put(j->json, j->root, "checks", GEM_JSON_ARRAY);
    return !gem_json_failed(j->json);
}

void ev_judge_free(ev_judge *j)
{
    gem_json_free(j->json);
    gem_bytes_free(&j->refusals);
    memset(j, 0, sizeof(*j));
}

void ev_judge_input(ev_judge *j, const char *role, const ev_doc *d)
{
    gem_json *o = gem_json_put(j->json, j->inputs, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(j->json, o, "role", role);
    gem_json_put_string(j->json, o, "file", d->name);
    gem_json_put_string(j->json, o, "sha256", d->sha256);
}

bool ev_check(ev_judge *j, bool holds, const char *rule, const char *required, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n = j->about ? snprintf(line, sizeof(line), "%.100s: ", j->about) : 0;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    gem_json *o = gem_json_put(j->json, j->checks, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(j->json, o, "rule", rule);
    gem_json_put_bool(j->json, o, "holds", holds);
    gem_json_put_string(j->json, o, "required", required);
    gem_json_put_string(j->json, o, "observed", line);
    j->n_checks++;
    if (!holds) {
        j->n_failed++;
        gem_bytes_printf(&j->refusals, "refused: %s: %s; required: %s\n", rule, line, required);
    }
    return holds;
}

bool ev_check_schema(ev_judge *j, const ev_doc *d, const char *schema)
{
    const char *have = ev_text(d->root, "schema");
    return ev_check(j, strcmp(have, schema) == 0, "schema", schema, "%s: %s", d->name,
                    *have ? have : "no schema");
}

/* A value as people read it, short. */
static const char *shown(char out[160], const gem_json *v)
{
    gem_bytes b = {0};
    if (!v) return "absent";
    gem_json_write_canonical(&b, v, NULL);
    snprintf(out, 160, "%.140s", b.data ? b.data : "");
    gem_bytes_free(&b);
    return out;
}

bool ev_check_same(ev_judge *j, const ev_doc *a, const ev_doc *b, const char *path)
{
    char x[160], y[160];
    const gem_json *va = ev_at(a->root, path), *vb = ev_at(b->root, path);
    return ev_check(j, va && vb && gem_json_equal(va, vb), "controls", "the same in both",
                    "%s: %s and %s", path, shown(x, va), shown(y, vb));
}

double ev_need_number(ev_judge *j, const ev_doc *d, const char *path)
{
    double v = ev_number(d->root, path);
    if (isnan(v))
        ev_check(j, false, "field", "a number", "%s: %s is absent or no number", d->name, path);
    return v;
}

const char *ev_need_text(ev_judge *j, const ev_doc *d, const char *path)
{
    const char *s = ev_text(d->root, path);
    if (!*s) ev_check(j, false, "field", "a text", "%s: %s is absent or empty", d->name, path);
    return s;
}

bool ev_need_series(ev_judge *j, const ev_doc *d, const char *path, size_t least, ev_series *s)
{
    char required[64];
    snprintf(required, sizeof(required), "at least %zu finite samples above zero", least);
    bool ok = ev_series_read(s, ev_at(d->root, path));
    return ev_check(j, ok && s->n >= least, "samples", required, "%s: %s: %zu", d->name, path,
                    s->n);
}

bool ev_check_equals(ev_judge *j, const ev_doc *d, const char *rule, const char *path, double want)
{
    char required[32], seen[160];
    gem_json_number(required, want);
    return ev_check(j, ev_number(d->root, path) == want, rule, required, "%s: %s is %s", d->name,
                    path, shown(seen, ev_at(d->root, path)));
}

bool ev_check_text(ev_judge *j, const ev_doc *d, const char *rule, const char *path,
                   const char *want)
{
    char seen[160];
    return ev_check(j, strcmp(ev_text(d->root, path), want) == 0, rule, want, "%s: %s is %s",
                    d->name, path, shown(seen, ev_at(d->root, path)));
}

bool ev_holds(const ev_judge *j)
{
    return j->n_checks > 0 && j->n_failed == 0 && !gem_json_failed(j->json);
}

void ev_judge_finish(ev_judge *j, const char *yes)
{
    gem_json *verdict = (gem_json *)gem_json_get(j->root, "verdict");
    gem_json_set_string(j->json, verdict, ev_holds(j) ? yes : "refuse");
    gem_json *list = (gem_json *)gem_json_get(j->root, "failed_rules");
    if (!list) list = gem_json_put(j->json, j->root, "failed_rules", GEM_JSON_ARRAY);
    for (const gem_json *c = j->checks->first; c; c = c->next) {
        if (!ev_is_false(c, "holds")) continue;
        bool known = false;
        for (const gem_json *m = list->first; m; m = m->next)
            known = known || gem_json_is(m, ev_text(c, "rule"));
        if (!known) gem_json_put_string(j->json, list, NULL, ev_text(c, "rule"));
    }
}

void ev_judge_options(ev_judge *j, char *const *options, size_t n)
{
    gem_json *list = gem_json_put(j->json, j->root, "options", GEM_JSON_ARRAY);
    for (size_t i = 0; i < n; i++)
        gem_json_put_string(j->json, list, NULL, options[i]);
}

void ev_put_samples(ev_judge *j, gem_json *parent, const char *name, const double *x, size_t n)
{
    gem_json *list = gem_json_put(j->json, parent, name, GEM_JSON_ARRAY);
    for (size_t i = 0; i < n; i++)
        gem_json_put_number(j->json, list, NULL, x[i]);
}

void ev_put_figures(ev_judge *j, gem_json *parent, const char *name, const ev_series *s)
{
    ev_figures f;
    gem_json *o = gem_json_put(j->json, parent, name, GEM_JSON_OBJECT);
    ev_figures_of(&f, s->x, s->n);
    gem_json_put_int(j->json, o, "n", (int64_t)s->n);
    gem_json_put_number(j->json, o, "mean", f.mean);
    gem_json_put_number(j->json, o, "min", f.min);
    gem_json_put_number(j->json, o, "max", f.max);
    if (s->n > 1) {
        gem_json_put_number(j->json, o, "sd", f.sd);
        gem_json_put_number(j->json, o, "cv_percent", f.cv * 100);
        gem_json_put_number(j->json, o, "half_run_drift_percent", f.half_run_drift * 100);
        gem_json_put_bool(j->json, o, "ramp", ev_is_ramp(s->x, s->n, EV_SHAPE_FLOOR));
        gem_json_put_bool(j->json, o, "discontinuity",
                          ev_is_discontinuous(s->x, s->n, EV_SHAPE_FLOOR, NULL));
    }
    ev_put_samples(j, o, "samples", s->x, s->n);
}
