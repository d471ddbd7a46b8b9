/* graph.c - the index of the evidence graph, lookups and the selection of the next lever. */
#include "fak/graph.h"

#include "fak/graph_rules.h"

#include <stdlib.h>

static int by_id(const void *a, const void *b)
{
    const fak_id *x = a, *y = b;
    int c = strcmp(x->id, y->id);
    return c ? c : x->index < y->index ? -1 : x->index > y->index;
}

fak_id *fak_index_new(const gem_json *const *v, size_t n)
{
    fak_id *ids = malloc((n + 1) * sizeof(*ids));
    if (!ids) return NULL;
    for (size_t i = 0; i < n; i++)
        ids[i] = (fak_id){fak_str(v[i], "id"), i};
    qsort(ids, n, sizeof(*ids), by_id);
    return ids;
}

size_t fak_index_find(const fak_id *ids, size_t n, const char *id)
{
    size_t lo = 0, hi = n; /* first entry >= id: the lowest index among equal ids */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(ids[mid].id, id) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && strcmp(ids[lo].id, id) == 0 ? ids[lo].index : SIZE_MAX;
}

static const gem_json **items(const gem_json *list, size_t *n)
{
    const gem_json **v = malloc((list->n + 1) * sizeof(*v));
    *n = 0;
    if (!v) return NULL;
    for (const gem_json *m = list->first; m; m = m->next)
        v[(*n)++] = m;
    return v;
}

bool fak_graph_init(fak_graph *g, const gem_json *root)
{
    memset(g, 0, sizeof(*g));
    g->root = root;
    g->envelopes = items(gem_json_get(root, "envelopes"), &g->n_envelopes);
    g->levers = items(gem_json_get(root, "levers"), &g->n_levers);
    g->rungs = items(gem_json_get(root, "rungs"), &g->n_rungs);
    g->features = items(gem_json_get(root, "features"), &g->n_features);
    if (!g->envelopes || !g->levers || !g->rungs || !g->features) return false;
    g->lever_index = fak_index_new(g->levers, g->n_levers);
    g->envelope_index = fak_index_new(g->envelopes, g->n_envelopes);
    return g->lever_index && g->envelope_index;
}

void fak_graph_free(fak_graph *g)
{
    free(g->envelopes);
    free(g->levers);
    free(g->rungs);
    free(g->features);
    free(g->lever_index);
    free(g->envelope_index);
    memset(g, 0, sizeof(*g));
}

const gem_json *fak_graph_lever(const fak_graph *g, const char *id)
{
    size_t i = fak_index_find(g->lever_index, g->n_levers, id);
    return i == SIZE_MAX ? NULL : g->levers[i];
}

const gem_json *fak_graph_envelope(const fak_graph *g, const char *id)
{
    size_t i = fak_index_find(g->envelope_index, g->n_envelopes, id);
    return i == SIZE_MAX ? NULL : g->envelopes[i];
}

const gem_json *fak_lever_envelope(const fak_graph *g, const gem_json *lever)
{
    return fak_graph_envelope(g, fak_str(gem_json_get(lever, "applicability"), "envelope_id"));
}

bool fak_issue_placeholder(const char *s, const char *what)
{
    if (strncmp(s, "issue-", 6) != 0) return false;
    s += 6;
    size_t n = strspn(s, "0123456789");
    if (n == 0 || s[0] == '0' || strncmp(s + n, "-pinned-", 8) != 0) return false;
    return strcmp(s + n + 8, what) == 0;
}

bool fak_envelope_unresolved(const gem_json *e)
{
    const char *rev = fak_str(e, "model_revision"), *sha = fak_str(e, "artifact_sha256");
    return fak_issue_placeholder(rev, "revision") || fak_issue_placeholder(rev, "artifact") ||
           fak_issue_placeholder(sha, "artifact") || fak_issue_placeholder(sha, "revision") ||
           fak_int(e, "memory_gib") == 0 || gem_json_get(e, "decode_tokens")->type == GEM_JSON_NULL;
}

bool fak_bottleneck_class(const char *s)
{
    static const char *const words[] = {"synchronization-bound", "launch-bound", "bandwidth-bound",
                                        "compute-bound", "cpu-orchestration-bound"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(words[i], s) == 0) return true;
    return false;
}

static bool dependencies_enabled(const fak_graph *g, const gem_json *lever)
{
    for (const gem_json *d = fak_list(lever, "dependency_ids"); d; d = d->next)
        if (!fak_bool(fak_graph_lever(g, d->text), "enabled")) return false;
    return true;
}

const gem_json *fak_graph_next(const fak_graph *g, const char *envelope_id)
{
    for (size_t i = 0; i < g->n_levers; i++) {
        const gem_json *l = g->levers[i];
        if (envelope_id &&
            strcmp(fak_str(gem_json_get(l, "applicability"), "envelope_id"), envelope_id) != 0)
            continue;
        if (!fak_bool(l, "enabled") && gem_json_get(l, "witnessed")->type == GEM_JSON_NULL &&
            dependencies_enabled(g, l))
            return l;
    }
    return NULL;
}
