/* report_page.c - the page: what is here and whether it holds, then one section an envelope, then
 * the comparisons, verdicts and attestations. No script, no outside resource, no clock: the same
 * folder gives the same bytes. */
#include "fak/report.h"

#include "fak/attestation.h"

#include <stdio.h>

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;margin:0 "
    "auto;max-width:1000px;padding:1.5rem;color:#1c2430;background:#fff}"
    "h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid "
    "#cfd6df;padding-bottom:.2rem}"
    "h3{font-size:1rem}table{border-collapse:collapse;width:100%;font-size:.87rem;margin:.6rem 0}"
    "th,td{text-align:left;padding:.3rem .6rem .3rem 0;vertical-align:top;border-bottom:1px solid "
    "#e3e8ee}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:.82rem "
    "ui-monospace,monospace;word-break:break-all}"
    ".wide{overflow-x:auto}.wide table{min-width:44rem}.kv "
    "td{overflow-wrap:anywhere}.ok{color:#0b6b3a}.bad{color:#b3261e;font-weight:600}.warn{color:#"
    "8a5300;font-weight:600}"
    ".none,.key{color:#5a6675;font-size:.87rem}.plot{width:100%;height:auto;font:11px "
    "system-ui,sans-serif;fill:#3b4654}"
    ".grid{stroke:#e3e8ee}.expected{fill:#c9dcf5;stroke:#6f9bd1}.witnessed{stroke:#0b6b3a;stroke-"
    "width:4}"
    ".comparison{stroke:#8a5300;stroke-dasharray:6 "
    "4;stroke-width:1.5}polyline{fill:none;stroke-width:1.5}"
    "polyline.baseline{stroke:#5a6675}polyline.candidate{stroke:#1663c7}circle.baseline{fill:#"
    "5a6675}"
    "circle.candidate{fill:#1663c7}.graph "
    "svg{max-width:100%;height:auto}pre{white-space:pre-wrap;font-size:.8rem}"
    "@media(prefers-color-scheme:dark){body{background:#12161c;color:#e4e9f0}th,td{border-color:#"
    "2b333e}"
    "h2{border-color:#2b333e}.plot{fill:#b9c3cf}.grid{stroke:#2b333e}.ok{color:#5fce94}.bad{color:#"
    "ff8a80}"
    ".warn{color:#e8b25a}.graph{background:#fff}.none,.key{color:#9aa5b2}circle.candidate{fill:#"
    "6fa8f5}"
    "polyline.candidate{stroke:#6fa8f5}.expected{fill:#23405f}.witnessed{stroke:#5fce94}}";

void fak_html(gem_bytes *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '<')
            gem_bytes_put(out, "&lt;", 4);
        else if (c == '>')
            gem_bytes_put(out, "&gt;", 4);
        else if (c == '&')
            gem_bytes_put(out, "&amp;", 5);
        else if (c == '"')
            gem_bytes_put(out, "&quot;", 6);
        else if (c < 0x20 && c != '\n')
            gem_bytes_put(out, " ", 1);
        else
            gem_bytes_put(out, s, 1);
    }
}

void fak_html_number(gem_bytes *out, double v)
{
    char text[32], rounded[40];
    snprintf(rounded, sizeof(rounded), "%.6g", v); /* the program never leaves the C locale */
    double r = 0;
    sscanf(rounded, "%lf", &r);
    gem_json_number(text, r);
    gem_bytes_put(out, text, strlen(text));
}

static void put(gem_bytes *out, const char *s)
{
    gem_bytes_put(out, s, strlen(s));
}

static void cell(gem_bytes *out, const char *s)
{
    put(out, "<td>");
    fak_html(out, s);
    put(out, "</td>");
}

static void number_cell(gem_bytes *out, const gem_json *obj, const char *name)
{
    put(out, "<td class=\"n\">");
    if (gem_json_get(obj, name)) fak_html_number(out, fak_num(obj, name));
    put(out, "</td>");
}

static void word_cell(gem_bytes *out, const char *word)
{
    bool good = !strcmp(word, "pass") || !strcmp(word, "clean"),
         warn = !strcmp(word, "investigate");
    gem_bytes_printf(out, "<td class=\"%s\">", good ? "ok" : warn ? "warn" : "bad");
    fak_html(out, word);
    put(out, "</td>");
}

static void pair(gem_bytes *out, const char *name, const char *value)
{
    put(out, "<tr><th>");
    fak_html(out, name);
    put(out, "</th>");
    cell(out, value);
    put(out, "</tr>\n");
}

/* ---- files and digests ---- */
static void files(const fak_folder *d, gem_bytes *out)
{
    size_t valid = 0, changed = 0;
    for (size_t i = 0; i < d->n; i++) {
        valid += d->entry[i].kind != NULL;
        changed += d->entry[i].listed && !d->entry[i].matches;
    }
    gem_bytes_printf(out, "<p>%zu documents, %zu valid, <span class=\"%s\">%zu refused</span>. ",
                     d->n, valid, valid == d->n ? "ok" : "bad", d->n - valid);
    if (!d->manifest)
        put(out, "There is no MANIFEST.sha256: a changed receipt would not be noticed.</p>\n");
    else
        gem_bytes_printf(
            out, "<span class=\"%s\">MANIFEST.sha256: %zu changed, %zu missing.</span></p>\n",
            changed || d->missing ? "bad" : "ok", changed, d->missing);
    put(out, "<h2>Files and digests</h2>\n<div "
             "class=\"wide\"><table><tr><th>file</th><th>document</th><th>state</th>"
             "<th>manifest</th><th>SHA-256 of the bytes</th></tr>\n");
    for (size_t i = 0; i < d->n; i++) {
        const fak_entry *e = &d->entry[i];
        put(out, "<tr>");
        cell(out, e->name);
        cell(out, e->kind ? e->kind->schema : fak_str(e->doc.root, "schema"));
        gem_bytes_printf(out, "<td class=\"%s\">%s</td>", e->kind ? "ok" : "bad",
                         e->kind ? "valid" : "refused");
        gem_bytes_printf(out, "<td class=\"%s\">%s</td>", e->listed && !e->matches ? "bad" : "",
                         !e->listed   ? "not listed"
                         : e->matches ? "matches"
                                      : "CHANGED");
        gem_bytes_printf(out, "<td><code>%s</code></td></tr>\n",
                         e->digest + (e->digest[0] ? 7 : 0));
        if (!e->kind && e->findings.len) {
            put(out, "<tr><td colspan=\"5\"><pre>");
            fak_html(out, e->findings.data);
            put(out, "</pre></td></tr>\n");
        }
    }
    put(out, "</table></div>\n");
}

/* ---- envelopes ---- */
static void levers(const fak_graph *g, const gem_json *envelope, gem_bytes *out)
{
    put(out, "<div "
             "class=\"wide\"><table><tr><th>on</th><th>lever</th><th>state</th><th>needs</"
             "th><th>conflicts</th>"
             "<th>expected (hypothesis)</th><th>witnessed</th><th>next witness</th></tr>\n");
    for (size_t i = 0; i < g->n_levers; i++) {
        const gem_json *l = g->levers[i], *w = gem_json_get(l, "witnessed");
        gem_bytes list = {0};
        if (fak_lever_envelope(g, l) != envelope) continue;
        put(out, fak_bool(l, "enabled") ? "<tr><td>on</td>" : "<tr><td>off</td>");
        cell(out, fak_str(l, "id"));
        cell(out, fak_str(l, "status"));
        fak_join(&list, gem_json_get(l, "dependency_ids"));
        cell(out, list.data ? list.data : "");
        list.len = 0;
        fak_join(&list, gem_json_get(l, "conflict_ids"));
        cell(out, list.data ? list.data : "");
        gem_bytes_free(&list);
        cell(out, fak_str(gem_json_get(l, "expected"), "summary"));
        cell(out, w->type == GEM_JSON_NULL ? "pending" : fak_str(w, "summary"));
        cell(out, fak_str(l, "next_witness"));
        put(out, "</tr>\n");
    }
    put(out, "</table></div>\n");
}

static void envelope(const fak_folder *d, const gem_json *e, gem_bytes *out)
{
    static const char *const members[] = {
        "model",  "model_revision", "artifact_sha256", "quantization",      "hardware",
        "engine", "backend",        "forward_path",    "throughput_metric", "comparability_rule"};
    put(out, "<h2>Envelope ");
    fak_html(out, fak_str(e, "id"));
    put(out, "</h2>\n<table class=\"kv\">");
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        pair(out, members[i], fak_str(e, members[i]));
    gem_bytes_printf(out, "<tr><th>shape</th><td>P%lld, T", (long long)fak_int(e, "prompt_tokens"));
    if (gem_json_get(e, "decode_tokens")->type == GEM_JSON_NULL)
        put(out, "unresolved");
    else
        gem_bytes_printf(out, "%lld", (long long)fak_int(e, "decode_tokens"));
    gem_bytes_printf(out, ", %lld repetitions</td></tr></table>\n",
                     (long long)fak_int(e, "repetitions"));
    if (fak_envelope_unresolved(e))
        put(out, "<p class=\"warn\">Its identity is unresolved: nothing can witness it yet.</p>\n");
    fak_plot_receipts(d, fak_str(e, "id"), out);
    if (e->index == 0) fak_plot_rungs(d->graph, out);
    levers(d->graph, e, out);
}

/* ---- judged documents ---- */
static void arm_row(gem_bytes *out, const char *name, const gem_json *arm)
{
    static const char *const columns[] = {"n",       "mean",   "median",    "minimum",
                                          "maximum", "stddev", "cv_percent"};
    put(out, "<tr>");
    cell(out, name);
    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        number_cell(out, arm, columns[i]);
    put(out, "</tr>\n");
}

static void comparison(const fak_entry *e, gem_bytes *out)
{
    const gem_json *root = e->doc.root, *s = gem_json_get(root, "statistics"),
                   *m = gem_json_get(s, "mann_whitney");
    put(out, "<h3>");
    fak_html(out, e->name);
    put(out, ": ");
    fak_html(out, fak_str(root, "changed_lever_id"));
    put(out, "</h3>\n<p>");
    fak_html(out, fak_str(s, "direction"));
    put(out, ", ");
    fak_html_number(out, fak_num(root, "delta_percent"));
    put(out, " % on ");
    fak_html(out, fak_str(root, "envelope_id"));
    if (m->type == GEM_JSON_OBJECT) {
        put(out, "; Mann-Whitney U ");
        fak_html_number(out, fak_num(m, "u"));
        put(out, ", exact two-sided p ");
        fak_html_number(out, fak_num(m, "p_two_sided"));
    }
    if (*fak_str(s, "note")) put(out, "; ");
    fak_html(out, fak_str(s, "note"));
    put(out, ". It describes the sample; only the gate accepts "
             "anything.</p>\n<table><tr><th>arm</th><th class=\"n\">n</th>"
             "<th class=\"n\">mean</th><th class=\"n\">median</th><th class=\"n\">minimum</th><th "
             "class=\"n\">maximum</th>"
             "<th class=\"n\">deviation</th><th class=\"n\">cv %</th></tr>\n");
    arm_row(out, "baseline", gem_json_get(s, "baseline"));
    arm_row(out, "candidate", gem_json_get(s, "candidate"));
    put(out, "</table>\n");
}

static void verdict(const fak_entry *e, gem_bytes *out)
{
    put(out, "<h3>");
    fak_html(out, e->name);
    put(out, "</h3>\n<table><tr><th>verdict</th>");
    word_cell(out, fak_str(e->doc.root, "classification"));
    put(out, "<td>change ");
    fak_html_number(out, fak_num(e->doc.root, "throughput_delta_percent"));
    put(out, " %</td></tr>\n");
    for (const gem_json *c = fak_list(e->doc.root, "checks"); c; c = c->next) {
        put(out, "<tr>");
        cell(out, fak_str(c, "name"));
        word_cell(out, fak_str(c, "status"));
        cell(out, fak_str(c, "detail"));
        put(out, "</tr>\n");
    }
    put(out, "</table>\n");
}

static void bottleneck(const fak_entry *e, gem_bytes *out)
{
    put(out, "<h3>");
    fak_html(out, e->name);
    put(out, "</h3>\n<p>");
    fak_html(out, fak_str(e->doc.root, "class"));
    put(out, ", confidence ");
    fak_html(out, fak_str(e->doc.root, "confidence"));
    put(out, "; points to ");
    fak_html(out, fak_str(e->doc.root, "recommended_lever_id"));
    put(out, ". A profile explains; it claims no gain.</p>\n<ul>");
    for (const gem_json *m = fak_list(e->doc.root, "evidence"); m; m = m->next) {
        put(out, "<li><code>");
        fak_html(out, m->text);
        put(out, "</code></li>");
    }
    put(out, "</ul>\n");
}

static void metric_cell(gem_bytes *out, const gem_json *m)
{
    put(out, "<td class=\"n\">");
    if (fak_metric_available(m))
        fak_html_number(out, fak_num(m, "value"));
    else
        put(out, "unknown");
    put(out, "</td>");
}

static void attestation_row(gem_bytes *out, const char *where, const gem_json *a)
{
    const gem_json *at = gem_json_get(a, "attribution");
    put(out, "<tr>");
    cell(out, where);
    word_cell(out, fak_str(a, "verdict"));
    metric_cell(out, gem_json_get(gem_json_get(a, "baseline_host_totals"), "cpu_percent"));
    metric_cell(out, gem_json_get(at, "sut_cpu_percent_of_host"));
    metric_cell(out, gem_json_get(at, "non_sut_cpu_percent_of_host"));
    metric_cell(out, gem_json_get(gem_json_get(a, "command_sampler"), "duty_percent"));
    cell(out, fak_str(gem_json_get(a, "coverage"), "descendant_attribution"));
    gem_bytes_printf(out, "<td><code>%.23s&hellip;</code></td></tr>\n", fak_str(a, "digest"));
}

static bool is_attestation(const fak_entry *e)
{
    return e->kind == &fak_doc_baseline_v1 || e->kind == &fak_doc_baseline_v2;
}

static void attestations(const fak_folder *d, gem_bytes *out)
{
    put(out,
        "<h2>Attestations</h2>\n<div class=\"wide\"><table><tr><th>where</th><th>verdict</th><th "
        "class=\"n\">host before %</th>"
        "<th class=\"n\">command %</th><th class=\"n\">others %</th><th class=\"n\">sampler "
        "%</th><th>coverage</th>"
        "<th>digest</th></tr>\n");
    for (size_t i = 0; i < d->n; i++) {
        const fak_entry *e = &d->entry[i];
        if (is_attestation(e)) attestation_row(out, e->name, e->doc.root);
        if (e->kind != &fak_doc_receipt_v2) continue;
        for (const gem_json *a = fak_list(e->doc.root, "system_baselines"); a; a = a->next) {
            gem_bytes where = {0};
            gem_bytes_printf(&where, "%s, repetition %zu", e->name, a->index + 1);
            attestation_row(out, where.data ? where.data : "", a);
            gem_bytes_free(&where);
        }
    }
    put(out, "</table></div>\n");
}

/* A heading before the first document of a kind, then each of them. */
static void each(const fak_folder *d, const fak_document *kind, const char *title,
                 void (*show)(const fak_entry *, gem_bytes *), gem_bytes *out)
{
    bool any = false;
    for (size_t i = 0; i < d->n; i++) {
        if (d->entry[i].kind != kind) continue;
        if (!any) gem_bytes_printf(out, "<h2>%s</h2>\n", title);
        any = true;
        show(&d->entry[i], out);
    }
}

void fak_report_page(const fak_folder *d, gem_bytes *out)
{
    put(out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width\"><title>Native performance evidence</title><style>");
    put(out, style);
    put(out, "</style></head><body>\n<h1>Native performance evidence</h1>\n");
    files(d, out);
    for (size_t i = 0; i < d->graph->n_envelopes; i++)
        envelope(d, d->graph->envelopes[i], out);
    put(out, "<h2>Graph</h2>\n<div class=\"graph wide\">");
    if (d->dot_svg.len) {
        gem_bytes_put(out, d->dot_svg.data, d->dot_svg.len);
    } else {
        gem_bytes dot = {0};
        put(out, "<p class=\"none\">Graphviz is not installed; its input is:</p><pre>");
        fak_graph_dot(d->graph, &dot);
        fak_html(out, dot.data ? dot.data : "");
        put(out, "</pre>");
        gem_bytes_free(&dot);
    }
    put(out, "</div>\n");
    each(d, &fak_doc_comparison, "Comparisons", comparison, out);
    each(d, &fak_doc_verdict, "Gate verdicts", verdict, out);
    each(d, &fak_doc_bottleneck, "Profiles", bottleneck, out);
    attestations(d, out);
    put(out, "</body></html>\n");
}
