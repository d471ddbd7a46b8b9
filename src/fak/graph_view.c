/* graph_view.c - the graph as people and Graphviz read it: report, next lever, DOT. Output depends
 * on the document alone: file order, no clock, no locale, no terminal width. */
#include "fak/graph.h"

#include <stdio.h>

void fak_put_text(gem_bytes *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f)
            gem_bytes_printf(out, "\\u%04x", c);
        else
            gem_bytes_put(out, s, 1);
    }
}

void fak_join(gem_bytes *out, const gem_json *list)
{
    if (!list->first) gem_bytes_put(out, "-", 1);
    for (const gem_json *m = list->first; m; m = m->next) {
        fak_put_text(out, m->text);
        if (m->next) gem_bytes_put(out, ",", 1);
    }
}

/* Text with %s arguments that come from data. */
static void put(gem_bytes *out, const char *s)
{
    gem_bytes_put(out, s, strlen(s));
}

static void put_member(gem_bytes *out, const gem_json *v, const char *name)
{
    fak_put_text(out, fak_str(v, name));
}

static void put_number(gem_bytes *out, const gem_json *v, const char *name)
{
    char text[32];
    gem_json_number(text, fak_num(v, name));
    put(out, text);
}

static void put_shape(gem_bytes *out, const gem_json *e)
{
    gem_bytes_printf(out, "P%lld/T", (long long)fak_int(e, "prompt_tokens"));
    if (gem_json_get(e, "decode_tokens")->type == GEM_JSON_NULL)
        put(out, "-");
    else
        gem_bytes_printf(out, "%lld", (long long)fak_int(e, "decode_tokens"));
}

static const char *box(const gem_json *v)
{
    return fak_bool(v, "enabled") ? "[x]" : "[ ]";
}

/* ---- the rung table ---- */
enum { COLUMNS = 7 };

static void rung_cell(gem_bytes *out, const gem_json *r, int column)
{
    const gem_json *e = gem_json_get(r, "expected"), *w = gem_json_get(r, "witnessed");
    switch (column) {
    case 0:
        put(out, box(r));
        break;
    case 1:
        put_member(out, r, "status");
        break;
    case 2:
        put_member(out, r, "id");
        break;
    case 3:
        fak_join(out, gem_json_get(r, "dependency_ids"));
        break;
    case 4:
        put_number(out, e, "floor_tokens_per_second");
        put(out, "..");
        put_number(out, e, "roof_tokens_per_second");
        put(out, " [");
        put_member(out, e, "classification");
        put(out, "]");
        break;
    case 5:
        if (w->type == GEM_JSON_NULL) {
            put(out, "pending");
            break;
        }
        put_number(out, w, "tokens_per_second");
        put(out, " [");
        put_member(out, w, "classification");
        put(out, "/");
        put_member(out, w, "comparability");
        put(out, "]");
        break;
    default:
        gem_bytes_printf(out, "#%lld", (long long)fak_int(gem_json_get(r, "next_issue"), "number"));
        break;
    }
}

static void rung_table(const fak_graph *g, gem_bytes *out)
{
    static const char *const head[COLUMNS] = {
        "ON", "STATUS", "RUNG", "DEPENDENCIES", "EXPECTED TOK/S", "WITNESSED TOK/S", "NEXT"};
    size_t width[COLUMNS];
    gem_bytes cell = {0};
    for (int c = 0; c < COLUMNS; c++) {
        width[c] = strlen(head[c]);
        for (size_t i = 0; i < g->n_rungs; i++) {
            cell.len = 0;
            rung_cell(&cell, g->rungs[i], c);
            width[c] = GEM_MAX(width[c], cell.len);
        }
    }
    for (size_t row = 0; row <= g->n_rungs; row++) {
        for (int c = 0; c < COLUMNS; c++) {
            cell.len = 0;
            if (row == 0)
                put(&cell, head[c]);
            else
                rung_cell(&cell, g->rungs[row - 1], c);
            gem_bytes_put(out, cell.data, cell.len);
            for (size_t pad = cell.len; c < COLUMNS - 1 && pad < width[c] + 2; pad++)
                gem_bytes_put(out, " ", 1);
        }
        gem_bytes_put(out, "\n", 1);
    }
    if (cell.failed) out->failed = true;
    gem_bytes_free(&cell);
}

static void human_lever(gem_bytes *out, const gem_json *l)
{
    const gem_json *e = gem_json_get(l, "expected"), *w = gem_json_get(l, "witnessed");
    gem_bytes_printf(out, "- %s ", box(l));
    put_member(out, l, "id");
    put(out, " (");
    put_member(out, l, "status");
    put(out, "; deps=");
    fak_join(out, gem_json_get(l, "dependency_ids"));
    put(out, "; conflicts=");
    fak_join(out, gem_json_get(l, "conflict_ids"));
    gem_bytes_printf(out, "; issue=#%lld)\n  expected [",
                     (long long)fak_int(gem_json_get(l, "owning_issue"), "number"));
    put_member(out, e, "classification");
    put(out, "]: ");
    put_member(out, e, "summary");
    put(out, " (source: ");
    put_member(out, e, "provenance");
    put(out, ")\n  witnessed: ");
    fak_put_text(out, w->type == GEM_JSON_NULL ? "pending" : fak_str(w, "summary"));
    put(out, "\n  next witness: ");
    put_member(out, l, "next_witness");
    put(out, "\n");
}

static void human_head(const fak_graph *g, gem_bytes *out)
{
    const gem_json *e = gem_json_get(g->root, "envelope"), *c = gem_json_get(g->root, "comparison");
    put(out, "NATIVE RAW-MODEL HILL CLIMB\nEnvelope: ");
    put_member(out, e, "model");
    put(out, " | ");
    put_member(out, e, "quantization");
    put(out, " ");
    put_member(out, e, "backend");
    put(out, " | ");
    put_member(out, e, "hardware");
    gem_bytes_printf(out, ", %lld GiB | ", (long long)fak_int(e, "memory_gib"));
    put_shape(out, e);
    put(out, " | ");
    put_member(out, e, "engine");
    put(out, "/");
    put_member(out, e, "forward_path");
    put(out, "\nComparison: ");
    put_number(out, c, "tokens_per_second");
    put(out, " tok/s | ");
    put_member(out, c, "engine");
    put(out, " | ");
    put_member(out, c, "classification");
    put(out, "/");
    put_member(out, c, "comparability");
    put(out, "\nLegend: [x] enabled; expected values are hypotheses, not measurements\n");
}

static void human_envelope(const fak_graph *g, gem_bytes *out, const gem_json *e)
{
    put(out, "Envelope ");
    put_member(out, e, "id");
    put(out, ": ");
    put_member(out, e, "model");
    put(out, " | ");
    put_member(out, e, "quantization");
    put(out, " ");
    put_member(out, e, "hardware");
    put(out, " | ");
    put_shape(out, e);
    put(out, " | ");
    put_member(out, e, "engine");
    put(out, "/");
    put_member(out, e, "backend");
    put(out, "\n");
    for (size_t i = 0; i < g->n_levers; i++)
        if (fak_lever_envelope(g, g->levers[i]) == e) human_lever(out, g->levers[i]);
}

void fak_graph_human(const fak_graph *g, gem_bytes *out)
{
    human_head(g, out);
    rung_table(g, out);
    put(out, "Feature stack:\n");
    for (size_t i = 0; i < g->n_features; i++) {
        const gem_json *x = g->features[i];
        gem_bytes_printf(out, "- %s ", box(x));
        put_member(out, x, "id");
        put(out, " (");
        put_member(out, x, "status");
        put(out, "; rung=");
        put_member(out, x, "rung_id");
        put(out, "): ");
        put_member(out, x, "observable");
        put(out, "\n");
    }
    put(out, "Gaps:\n");
    for (size_t i = 0; i < g->n_rungs; i++) {
        const gem_json *r = g->rungs[i];
        put(out, "- ");
        put_member(out, r, "id");
        put(out, ": ");
        put_member(out, r, "gap");
        gem_bytes_printf(out, " (next #%lld)\n",
                         (long long)fak_int(gem_json_get(r, "next_issue"), "number"));
    }
    put(out, "Independent levers (envelopes remain separate):\n");
    for (size_t i = 0; i < g->n_envelopes; i++)
        human_envelope(g, out, g->envelopes[i]);
}

/* ---- next ---- */
static void line(gem_bytes *out, const char *key, const char *value)
{
    put(out, key);
    fak_put_text(out, value);
    put(out, "\n");
}

static void conflicts_line(const fak_graph *g, gem_bytes *out, const gem_json *lever)
{
    const gem_json *c = fak_list(lever, "conflict_ids");
    put(out, "Conflicts: ");
    if (!c) put(out, "-");
    for (; c; c = c->next) {
        put(out, c->text);
        if (fak_bool(fak_graph_lever(g, c->text), "enabled")) put(out, " (switch OFF)");
        if (c->next) put(out, ",");
    }
    put(out, "\n");
}

void fak_graph_print_next(const fak_graph *g, const gem_json *l, gem_bytes *out)
{
    if (!l) {
        put(out, "NEXT NATIVE-PERFORMANCE ARM: none\n");
        return;
    }
    const gem_json *a = gem_json_get(l, "applicability"), *e = gem_json_get(l, "expected");
    const gem_json *issue = gem_json_get(l, "owning_issue");
    put(out, "NEXT NATIVE-PERFORMANCE ARM\n");
    line(out, "Lever: ", fak_str(l, "id"));
    put(out, "Envelope: ");
    put_member(out, a, "envelope_id");
    put(out, " | ");
    put_member(out, a, "platform");
    put(out, " | ");
    put_member(out, a, "backend");
    gem_bytes_printf(out, "\nState: enabled=%s status=%s\nDependencies: ",
                     fak_bool(l, "enabled") ? "true" : "false", fak_str(l, "status"));
    fak_join(out, gem_json_get(l, "dependency_ids"));
    put(out, "\n");
    conflicts_line(g, out, l);
    put(out, "Expected [");
    put_member(out, e, "classification");
    line(out, "]: ", fak_str(e, "summary"));
    line(out, "Expected provenance: ", fak_str(e, "provenance"));
    gem_bytes_printf(out, "Owning issue: #%lld ", (long long)fak_int(issue, "number"));
    line(out, "", fak_str(issue, "url"));
    line(out, "Required witness: ", fak_str(l, "next_witness"));
}

/* ---- DOT ---- */
static void dot_text(gem_bytes *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') gem_bytes_put(out, "\\", 1);
        gem_bytes_put(out, s, 1);
    }
}

static void dot_cluster(const fak_graph *g, gem_bytes *out, const gem_json *e)
{
    put(out, "  subgraph cluster_");
    for (const char *s = fak_str(e, "id"); *s; s++)
        gem_bytes_put(out, strchr("-./", *s) ? "_" : s, 1);
    put(out, " {\n    label=\"");
    dot_text(out, fak_str(e, "id"));
    put(out, " | ");
    dot_text(out, fak_str(e, "backend"));
    put(out, " | ");
    dot_text(out, fak_str(e, "engine"));
    put(out, "\";\n");
    for (size_t i = 0; i < g->n_levers; i++) {
        const gem_json *l = g->levers[i];
        if (fak_lever_envelope(g, l) != e) continue;
        gem_bytes_printf(out, "    \"%s\" [label=\"%s\\n%s%s\"];\n", fak_str(l, "id"),
                         fak_str(l, "id"), fak_str(l, "status"),
                         fak_bool(l, "enabled") ? " / enabled" : "");
    }
    put(out, "  }\n");
}

void fak_graph_dot(const fak_graph *g, gem_bytes *out)
{
    put(out, "digraph native_performance {\n  rankdir=LR;\n");
    for (size_t i = 0; i < g->n_envelopes; i++)
        dot_cluster(g, out, g->envelopes[i]);
    for (size_t i = 0; i < g->n_levers; i++) {
        const gem_json *l = g->levers[i];
        const char *id = fak_str(l, "id");
        for (const gem_json *d = fak_list(l, "dependency_ids"); d; d = d->next)
            gem_bytes_printf(out, "  \"%s\" -> \"%s\" [label=\"depends\"];\n", d->text, id);
        for (const gem_json *c = fak_list(l, "conflict_ids"); c; c = c->next)
            if (strcmp(c->text, id) > 0)
                gem_bytes_printf(
                    out,
                    "  \"%s\" -> \"%s\" [dir=both,style=dashed,color=red,label=\"conflicts\"];\n",
                    id, c->text);
    }
    put(out, "}\n");
}
