/* graph_records.c - rules over single records of the graph, and the search for loops. */
#include "fak/graph_rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

void fak_rule_envelope(fak_findings *f, const gem_json *e)
{
    static const char *const text[] = {"model",        "model_revision",    "artifact_sha256",
                                       "quantization", "hardware",          "backend",
                                       "forward_path", "throughput_metric", "comparability_rule"};
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        if (fak_blank(fak_str(e, text[i])))
            fak_find_in(f, "NPG-033", e, text[i], "must not be blank");
    const char *engine = fak_str(e, "engine");
    if (strcmp(engine, "fak-native") != 0 && strcmp(engine, "gem-native") != 0)
        fak_find_in(f, "NPG-033", e, "engine",
                    "the engine must be fak-native or gem-native, not \"%s\"", engine);
    if (fak_int(e, "memory_gib") < 0)
        fak_find_in(f, "NPG-033", e, "memory_gib", "must be 0 or more");
    if (fak_int(e, "prompt_tokens") <= 0)
        fak_find_in(f, "NPG-033", e, "prompt_tokens", "must be positive");
    if (gem_json_get(e, "decode_tokens")->type != GEM_JSON_NULL && fak_int(e, "decode_tokens") <= 0)
        fak_find_in(f, "NPG-033", e, "decode_tokens", "must be positive, or null while unresolved");
    if (fak_int(e, "repetitions") <= 0)
        fak_find_in(f, "NPG-033", e, "repetitions", "must be positive");
    if (fak_num(e, "temperature") < 0)
        fak_find_in(f, "NPG-033", e, "temperature", "must be 0 or more");
}

static bool real_date(const char *s)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (strlen(s) != 10) return false;
    for (int i = 0; i < 10; i++)
        if (i == 4 || i == 7 ? s[i] != '-' : !isdigit((unsigned char)s[i])) return false;
    int y = atoi(s), m = atoi(s + 5), d = atoi(s + 8);
    if (y < 1 || m < 1 || m > 12 || d < 1) return false;
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return d <= days[m - 1] + (m == 2 && leap);
}

void fak_rule_throughput(fak_findings *f, const gem_json *t)
{
    const char *word = fak_str(t, "comparability");
    if (!(fak_num(t, "tokens_per_second") > 0))
        fak_find_in(f, "NPG-030", t, "tokens_per_second", "must be positive");
    if (fak_blank(fak_str(t, "engine")))
        fak_find_in(f, "NPG-030", t, "engine", "must not be blank");
    if (fak_blank(fak_str(t, "provenance")))
        fak_find_in(f, "NPG-030", t, "provenance", "must not be blank");
    if (strcmp(word, "exact") != 0 && strcmp(word, "approximate") != 0)
        fak_find_in(f, "NPG-030", t, "comparability", "must be exact or approximate, not \"%s\"",
                    word);
    if (!real_date(fak_str(t, "observed_on")))
        fak_find_in(f, "NPG-030", t, "observed_on", "must be a date YYYY-MM-DD");
}

void fak_rule_range(fak_findings *f, const gem_json *r)
{
    double floor_ = fak_num(r, "floor_tokens_per_second"),
           roof = fak_num(r, "roof_tokens_per_second");
    if (strcmp(fak_str(r, "classification"), "hypothesis") != 0)
        fak_find_in(f, "NPG-026", r, "classification", "an expected range is a hypothesis");
    if (fak_blank(fak_str(r, "provenance")))
        fak_find_in(f, "NPG-026", r, "provenance", "must not be blank");
    if (!(floor_ > 0) || floor_ > roof)
        fak_find_in(f, "NPG-027", r, "floor_tokens_per_second",
                    "must be positive and at most the roof");
    if (!(roof > 0)) fak_find_in(f, "NPG-027", r, "roof_tokens_per_second", "must be positive");
}

void fak_rule_effect(fak_findings *f, const gem_json *e, const char *code,
                     const char *classification)
{
    if (strcmp(fak_str(e, "classification"), classification) != 0)
        fak_find_in(f, code, e, "classification", "must be %s", classification);
    for (const gem_json *m = e->first; m; m = m->next)
        if (m->type == GEM_JSON_STRING && fak_blank(m->text))
            fak_find(f, code, m, "must not be blank");
}

void fak_rule_issue(fak_findings *f, const gem_json *issue)
{
    char tail[40];
    const char *url = fak_str(issue, "url");
    int64_t n = fak_int(issue, "number");
    if (n <= 0) fak_find_in(f, "NPG-035", issue, "number", "must be positive");
    snprintf(tail, sizeof(tail), "/issues/%lld", (long long)n);
    size_t want = strlen(tail), len = strlen(url);
    if (len < want || strcmp(url + len - want, tail) != 0)
        fak_find_in(f, "NPG-035", issue, "url", "must end with %s", tail);
}

static bool contains_nocase(const char *text, const char *part)
{
    size_t n = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && text[i] &&
               tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == n) return true;
    }
    return false;
}

static bool platform_fits(const char *platform, const char *backend, const char *hardware)
{
    bool amd64 = strncmp(platform, "linux/amd64", 11) == 0,
         arm64 = strncmp(platform, "linux/arm64", 11) == 0;
    if (strcmp(backend, "metal") == 0) return strcmp(platform, "darwin/arm64") == 0;
    if (strcmp(backend, "cpu") == 0) return (amd64 || arm64) && platform[11] == 0;
    if (strcmp(backend, "cuda") != 0 || (!amd64 && !arm64)) return false;
    return strncmp(platform + 11, "+nvidia-", 8) == 0 && platform[19] &&
           contains_nocase(hardware, platform + 19);
}

void fak_rule_platform(fak_findings *f, const gem_json *lever, const gem_json *envelope)
{
    const gem_json *a = gem_json_get(lever, "applicability");
    const char *backend = fak_str(envelope, "backend"), *platform = fak_str(a, "platform");
    if (strcmp(fak_str(a, "backend"), backend) != 0)
        fak_find_in(f, "NPG-018", a, "backend", "the envelope's backend is \"%s\"", backend);
    if (!platform_fits(platform, backend, fak_str(envelope, "hardware")))
        fak_find_in(f, "NPG-018", a, "platform", "\"%s\" is no platform of the %s envelope",
                    platform, backend);
}

/* ---- loops ---- */
typedef struct walk {
    const gem_json *const *v;
    const fak_id *index;
    size_t n;
    size_t *stack;         /* path from the root of the walk */
    const gem_json **edge; /* next dependency to follow, for each place on the stack */
    size_t *place;         /* place on the stack + 1; 0: not on it */
    bool *done;
    size_t depth;
} walk;

static void report_loop(const walk *w, size_t from, const char *code, fak_findings *f)
{
    size_t first = from, len = w->depth - from;
    char text[400] = "";
    size_t used = 0;
    for (size_t i = from; i < w->depth; i++)
        if (w->stack[i] < w->stack[first]) first = i;
    for (size_t i = 0; i <= len && used < sizeof(text) - 1; i++) {
        const gem_json *m = w->v[w->stack[from + (first - from + i) % len]];
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? " -> " : "",
                                 fak_str(m, "id"));
    }
    fak_find_in(f, code, w->v[w->stack[first]], "dependency_ids", "dependency loop: %s", text);
}

static void push(walk *w, size_t i)
{
    w->stack[w->depth] = i;
    w->edge[w->depth] = fak_list(w->v[i], "dependency_ids");
    w->place[i] = ++w->depth;
}

void fak_graph_cycles(const gem_json *const *v, size_t n, const fak_id *index, const char *code,
                      fak_findings *f)
{
    walk w = {.v = v, .index = index, .n = n};
    w.stack = calloc(n + 1, sizeof(*w.stack));
    w.edge = calloc(n + 1, sizeof(*w.edge));
    w.place = calloc(n + 1, sizeof(*w.place));
    w.done = calloc(n + 1, sizeof(*w.done));
    if (!w.stack || !w.edge || !w.place || !w.done) f->failed = true;
    for (size_t root = 0; root < n && !f->failed; root++) {
        if (!w.done[root]) push(&w, root);
        while (w.depth) {
            const gem_json *d = w.edge[w.depth - 1];
            if (!d) { /* all dependencies followed */
                size_t i = w.stack[--w.depth];
                w.place[i] = 0;
                w.done[i] = true;
                continue;
            }
            w.edge[w.depth - 1] = d->next;
            size_t to = fak_index_find(index, n, d->text);
            if (to == SIZE_MAX || w.done[to]) continue;
            if (w.place[to])
                report_loop(&w, w.place[to] - 1, code, f);
            else
                push(&w, to);
        }
    }
    free(w.stack);
    free(w.edge);
    free(w.place);
    free(w.done);
}
