/* graph_validate.c - the rules of the graph as a whole: ids, edges, states, evidence (NPG codes).
 */
#include "fak/graph_rules.h"

#include <stdlib.h>

static bool id_grammar(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-");
    return n >= 1 && n <= 128 && s[n] == 0 && !strchr("._-", s[0]);
}

/* Grammar and uniqueness of the ids of one list. */
static void rule_ids(fak_findings *f, const gem_json *const *v, size_t n,
                     const char *duplicate_code)
{
    fak_id *ids = fak_index_new(v, n);
    if (!ids) {
        f->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!id_grammar(ids[i].id))
            fak_find_in(f, "NPG-002", v[ids[i].index], "id",
                        "must match [a-z0-9][a-z0-9._-]{0,127}");
    for (size_t i = 1; i < n; i++)
        if (strcmp(ids[i - 1].id, ids[i].id) == 0)
            fak_find_in(f, duplicate_code, v[ids[i].index], "id", "\"%s\" stands twice", ids[i].id);
    free(ids);
}

static void rule_state(fak_findings *f, const gem_json *v, const char *code)
{
    const char *status = fak_str(v, "status");
    bool present = strcmp(status, "present") == 0, absent = strcmp(status, "absent") == 0;
    if (!present && !absent && strcmp(status, "partial") != 0) {
        fak_find_in(f, "NPG-019", v, "status", "must be present, partial or absent, not \"%s\"",
                    status);
        return;
    }
    if (fak_bool(v, "enabled") ? absent : present)
        fak_find_in(f, code, v, "enabled", "%s contradicts status %s",
                    fak_bool(v, "enabled") ? "enabled" : "disabled", status);
}

static void rule_rungs(const fak_graph *g, fak_findings *f)
{
    fak_id *ids = fak_index_new(g->rungs, g->n_rungs);
    if (!ids) {
        f->failed = true;
        return;
    }
    const gem_json *envelope = gem_json_get(g->root, "envelope");
    for (size_t i = 0; i < g->n_rungs; i++) {
        const gem_json *r = g->rungs[i], *w = gem_json_get(r, "witnessed");
        for (const gem_json *d = fak_list(r, "dependency_ids"); d; d = d->next)
            if (fak_index_find(ids, g->n_rungs, d->text) == SIZE_MAX)
                fak_find(f, "NPG-007", d, "there is no rung \"%s\"", d->text);
        rule_state(f, r, "NPG-022");
        fak_rule_range(f, gem_json_get(r, "expected"));
        fak_rule_issue(f, gem_json_get(r, "next_issue"));
        if (w->type == GEM_JSON_NULL) continue;
        fak_rule_throughput(f, w);
        if (strcmp(fak_str(w, "classification"), "witnessed") != 0)
            fak_find_in(f, "NPG-028", w, "classification", "must be witnessed");
        if (strcmp(fak_str(w, "engine"), fak_str(envelope, "engine")) != 0)
            fak_find_in(f, "NPG-031", w, "engine", "only %s can witness a rung",
                        fak_str(envelope, "engine"));
    }
    fak_graph_cycles(g->rungs, g->n_rungs, ids, "NPG-011", f);
    for (size_t i = 0; i < g->n_features; i++) {
        const gem_json *x = g->features[i];
        if (fak_index_find(ids, g->n_rungs, fak_str(x, "rung_id")) == SIZE_MAX)
            fak_find_in(f, "NPG-008", x, "rung_id", "there is no rung \"%s\"",
                        fak_str(x, "rung_id"));
        rule_state(f, x, "NPG-021");
        if (fak_blank(fak_str(x, "observable")))
            fak_find_in(f, "NPG-036", x, "observable", "must not be blank");
    }
    free(ids);
}

static const char *envelope_of(const gem_json *lever)
{
    return fak_str(gem_json_get(lever, "applicability"), "envelope_id");
}

static bool lists(const gem_json *list, const char *id)
{
    for (const gem_json *m = list; m; m = m->next)
        if (strcmp(m->text, id) == 0) return true;
    return false;
}

static int by_text(const void *a, const void *b)
{
    const gem_json *x = *(const gem_json *const *)a, *y = *(const gem_json *const *)b;
    int c = strcmp(x->text, y->text);
    if (c) return c;
    if (x->parent != y->parent) return strcmp(x->parent->name, y->parent->name) > 0 ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The same id twice among dependencies and conflicts of one lever. */
static void rule_repeats(fak_findings *f, const gem_json *lever)
{
    size_t n = 0, max = fak_count(lever, "dependency_ids") + fak_count(lever, "conflict_ids");
    const gem_json **v = malloc((max + 1) * sizeof(*v));
    if (!v) {
        f->failed = true;
        return;
    }
    for (const gem_json *d = fak_list(lever, "dependency_ids"); d; d = d->next)
        v[n++] = d;
    for (const gem_json *c = fak_list(lever, "conflict_ids"); c; c = c->next)
        v[n++] = c;
    qsort(v, n, sizeof(*v), by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(v[i - 1]->text, v[i]->text) == 0)
            fak_find(f, "NPG-014", v[i]->parent, "\"%s\" is named twice", v[i]->text);
    free(v);
}

enum { MAX_EDGES = 1024 }; /* of one lever: both sides of each conflict are searched */

static void rule_edges(const fak_graph *g, fak_findings *f, const gem_json *l)
{
    const char *id = fak_str(l, "id");
    bool enabled = fak_bool(l, "enabled");
    if (fak_count(l, "dependency_ids") + fak_count(l, "conflict_ids") > MAX_EDGES) {
        fak_find_in(f, "NPG-014", l, "conflict_ids", "more than %d dependencies and conflicts",
                    MAX_EDGES);
        return;
    }
    rule_repeats(f, l);
    for (int conflicts = 0; conflicts < 2; conflicts++) {
        for (const gem_json *d = fak_list(l, conflicts ? "conflict_ids" : "dependency_ids"); d;
             d = d->next) {
            const gem_json *other = fak_graph_lever(g, d->text);
            if (!other) {
                fak_find(f, "NPG-009", d, "there is no lever \"%s\"", d->text);
                continue;
            }
            if (strcmp(envelope_of(other), envelope_of(l)) != 0)
                fak_find(f, "NPG-017", d, "\"%s\" belongs to another envelope", d->text);
            if (!conflicts) {
                if (enabled && !fak_bool(other, "enabled"))
                    fak_find_in(f, "NPG-023", l, "enabled",
                                "enabled while its dependency \"%s\" is not", d->text);
                continue;
            }
            if (strcmp(d->text, id) == 0) {
                fak_find(f, "NPG-013", d, "the lever conflicts with itself");
                continue;
            }
            if (!lists(fak_list(other, "conflict_ids"), id))
                fak_find_in(f, "NPG-015", other, "conflict_ids",
                            "\"%s\" names this conflict, this side does not", id);
            if (enabled && fak_bool(other, "enabled") && l->index < other->index)
                fak_find_in(f, "NPG-016", l, "enabled",
                            "enabled together with the conflicting \"%s\"", d->text);
        }
    }
}

static void rule_levers(const fak_graph *g, fak_findings *f)
{
    const char **platform =
        calloc(g->n_envelopes + 1, sizeof(*platform)); /* of each envelope's first lever */
    if (!platform) {
        f->failed = true;
        return;
    }
    for (size_t i = 0; i < g->n_levers; i++) {
        const gem_json *l = g->levers[i], *w = gem_json_get(l, "witnessed");
        const gem_json *a = gem_json_get(l, "applicability"), *e = fak_lever_envelope(g, l);
        if (!e) {
            fak_find_in(f, "NPG-010", a, "envelope_id", "there is no envelope \"%s\"",
                        envelope_of(l));
        } else {
            fak_rule_platform(f, l, e);
            if (!platform[e->index])
                platform[e->index] = fak_str(a, "platform");
            else if (strcmp(platform[e->index], fak_str(a, "platform")) != 0)
                fak_find_in(f, "NPG-018", a, "platform", "other levers of this envelope say \"%s\"",
                            platform[e->index]);
        }
        rule_state(f, l, "NPG-020");
        rule_edges(g, f, l);
        fak_rule_effect(f, gem_json_get(l, "expected"), "NPG-024", "hypothesis");
        if (w->type != GEM_JSON_NULL) {
            fak_rule_effect(f, w, "NPG-025", "witnessed");
            if (e && fak_envelope_unresolved(e))
                fak_find(f, "NPG-032", w, "the identity of envelope \"%s\" is unresolved",
                         envelope_of(l));
        }
        fak_rule_issue(f, gem_json_get(l, "owning_issue"));
        if (fak_blank(fak_str(l, "next_witness")))
            fak_find_in(f, "NPG-035", l, "next_witness", "must not be blank");
    }
    free(platform);
    fak_graph_cycles(g->levers, g->n_levers, g->lever_index, "NPG-012", f);
}

/* Envelopes that differ in nothing but the id, found by the digest of the rest. */
typedef struct twin {
    char digest[FAK_DIGEST_SIZE];
    size_t index;
} twin;

static int by_digest(const void *a, const void *b)
{
    const twin *x = a, *y = b;
    int c = strcmp(x->digest, y->digest);
    return c ? c : x->index < y->index ? -1 : x->index > y->index;
}

static void rule_twins(const fak_graph *g, fak_findings *f)
{
    twin *t = calloc(g->n_envelopes + 1, sizeof(*t));
    bool ok = t != NULL;
    for (size_t i = 0; ok && i < g->n_envelopes; i++) {
        gem_bytes text = {0};
        gem_json_write_canonical(&text, g->envelopes[i], "id");
        t[i].index = i;
        ok = !text.failed && fak_digest_bytes(t[i].digest, text.data, text.len);
        gem_bytes_free(&text);
    }
    if (!ok) {
        f->failed = true;
        free(t);
        return;
    }
    qsort(t, g->n_envelopes, sizeof(*t), by_digest);
    for (size_t i = 1; i < g->n_envelopes; i++)
        if (strcmp(t[i - 1].digest, t[i].digest) == 0 &&
            strcmp(fak_str(g->envelopes[t[i - 1].index], "id"),
                   fak_str(g->envelopes[t[i].index], "id")) != 0)
            fak_find(f, "NPG-037", g->envelopes[t[i].index],
                     "equals envelope %zu in all but the id", t[i - 1].index);
    free(t);
}

static void rule_recommendations(const fak_graph *g, fak_findings *f)
{
    for (const gem_json *r = fak_list(g->root, "recommendations"); r; r = r->next) {
        const char *env = fak_str(r, "envelope_id"), *class = fak_str(r, "class");
        const gem_json *lever = fak_graph_lever(g, fak_str(r, "lever_id"));
        if (!fak_graph_envelope(g, env))
            fak_find_in(f, "NPG-038", r, "envelope_id", "there is no envelope \"%s\"", env);
        if (!fak_bottleneck_class(class))
            fak_find_in(f, "NPG-038", r, "class", "\"%s\" is no bottleneck class", class);
        if (!lever)
            fak_find_in(f, "NPG-038", r, "lever_id", "there is no lever \"%s\"",
                        fak_str(r, "lever_id"));
        else if (strcmp(envelope_of(lever), env) != 0)
            fak_find_in(f, "NPG-038", r, "lever_id", "the lever belongs to another envelope");
        size_t seen = 0;
        for (const gem_json *q = fak_list(g->root, "recommendations"); q != r && seen < 4096;
             q = q->next, seen++)
            if (strcmp(fak_str(q, "envelope_id"), env) == 0 &&
                strcmp(fak_str(q, "class"), class) == 0)
                fak_find(f, "NPG-038", r, "envelope and class stand already in entry %zu",
                         q->index);
        if (seen == 4096) fak_find(f, "NPG-038", r, "more than 4096 recommendations");
    }
}

void fak_graph_validate(const fak_graph *g, fak_findings *f)
{
    const gem_json *comparison = gem_json_get(g->root, "comparison");
    if (!gem_json_is(gem_json_get(g->root, "schema"), fak_doc_graph.schema))
        fak_find_in(f, "NPG-001", g->root, "schema", "must be %s", fak_doc_graph.schema);
    rule_ids(f, g->envelopes, g->n_envelopes, "NPG-003");
    rule_ids(f, g->levers, g->n_levers, "NPG-004");
    rule_ids(f, g->rungs, g->n_rungs, "NPG-005");
    rule_ids(f, g->features, g->n_features, "NPG-006");
    for (size_t i = 0; i < g->n_envelopes; i++)
        fak_rule_envelope(f, g->envelopes[i]);
    if (!g->n_envelopes)
        fak_find_in(f, "NPG-034", g->root, "envelopes", "must hold at least one envelope");
    else if (!gem_json_equal(gem_json_get(g->root, "envelope"), g->envelopes[0]))
        fak_find_in(f, "NPG-034", g->root, "envelope", "must equal envelopes[0] in every member");
    if (strcmp(fak_str(comparison, "classification"), "comparison") != 0)
        fak_find_in(f, "NPG-029", comparison, "classification", "must be comparison");
    fak_rule_throughput(f, comparison);
    rule_rungs(g, f);
    rule_levers(g, f);
    rule_twins(g, f);
    rule_recommendations(g, f);
}
