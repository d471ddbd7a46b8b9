/* page.c - the words and tables of the page. */
#include "evidence/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char style[] =
    ":root{--ink:#1c2430;--soft:#5a6675;--line:#dfe4ea;--bg:#fff;--good:#0b6b3a;--bad:#b3261e"
    ";--a:#5a6675;--b:#1663c7;--c:#8a5300;--d:#0b6b3a}@media(prefers-color-scheme:dark){:root"
    "{--ink:#e4e9f0;--soft:#9aa5b2;--line:#2b333e;--bg:#12161c;--good:#5fce94;--bad:#ff8a80;-"
    "-a:#9aa5b2;--b:#6fa8f5;--c:#e8b25a;--d:#5fce94}}body{font:15px/1.5 system-ui,sans-serif;"
    "margin:0 auto;max-width:980px;padding:1.2rem;color:var(--ink);background:var(--bg)}h1{fo"
    "nt-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.4rem;border-bottom:"
    "1px solid var(--line);padding-bottom:.25rem}table{border-collapse:collapse;width:100%;fo"
    "nt-size:.87rem;margin:.6rem 0}th,td{text-align:left;vertical-align:top;padding:.3rem .8r"
    "em .3rem 0;border-bottom:1px solid var(--line);overflow-wrap:break-word}th{font-weight:6"
    "00;color:var(--soft)}td.n{text-align:right;font-variant-numeric:tabular-nums}.wide{overf"
    "low-x:auto}.wide table{min-width:40rem}.good{color:var(--good);font-weight:600}.bad{colo"
    "r:var(--bad);font-weight:600}.soft,figcaption{color:var(--soft);font-size:.87rem}figure{"
    "margin:.8rem 0}.plot{width:100%;height:auto;font:12px system-ui,sans-serif;fill:var(--in"
    "k)}.grid{stroke:var(--line)}code{font:.8rem ui-monospace,monospace;word-break:break-all}"
    ".checks td:first-child,.checks td:last-child{white-space:nowrap}.c0{fill:var(--a)}.c1{fi"
    "ll:var(--b)}.c2{fill:var(--c)}.c3{fill:var(--d)}.m0,.m1,.m2,.m3{fill:none;stroke-width:1"
    ".5}.m0{stroke:var(--a)}.m1{stroke:var(--b)}.m2{stroke:var(--c)}.m3{stroke:var(--d)}summa"
    "ry{cursor:pointer;color:var(--soft)}";

typedef struct item {
    const ev_entry *entry; /* borrowed from the folder */
    ev_doc doc;
    const char *schema; /* "" when it is no document with one */
} item;

typedef struct page {
    gem_bytes *out;
    const char *dir;
    ev_folder folder;
    item *item; /* owned, [n]: the JSON documents */
    size_t n;
} page;

static void put(gem_bytes *out, const char *s)
{
    gem_bytes_put(out, s, strlen(s));
}

static void cell(gem_bytes *out, const char *s)
{
    put(out, "<td>");
    ev_html(out, s);
    put(out, "</td>");
}

static void number_cell(gem_bytes *out, double v)
{
    put(out, "<td class=\"n\">");
    if (isfinite(v)) ev_html_number(out, v);
    put(out, "</td>");
}

static bool is_report(const item *it)
{
    return strncmp(it->schema, "gem-analyze-", 12) == 0 && it->doc.root &&
           ev_at(it->doc.root, "checks");
}

static bool refused(const item *it)
{
    const char *v = ev_text(it->doc.root, "verdict");
    return !*v || strcmp(v, "refuse") == 0;
}

/* ---- verdicts ---- */
static void put_rules(gem_bytes *out, const gem_json *list)
{
    for (const gem_json *m = list ? list->first : NULL; m; m = m->next) {
        if (m->index) put(out, ", ");
        ev_html(out, m->type == GEM_JSON_STRING ? m->text : "");
    }
}

static void put_verdicts(const page *p)
{
    gem_bytes *out = p->out;
    put(out, "<h2>Verdicts</h2>\n<div class=\"wide\"><table><tr><th>report</th><th>judged "
             "by</th><th>verdict</th>"
             "<th>rules that do not hold</th></tr>\n");
    for (size_t i = 0; i < p->n; i++) {
        const item *it = &p->item[i];
        if (!is_report(it)) continue;
        put(out, "<tr>");
        gem_bytes_printf(out, "<td><a href=\"#r%zu\">", i);
        ev_html(out, it->entry->name);
        put(out, "</a></td>");
        cell(out, it->schema + 12);
        gem_bytes_printf(out, "<td class=\"%s\">", refused(it) ? "bad" : "good");
        ev_html(out, ev_text(it->doc.root, "verdict"));
        put(out, "</td><td>");
        put_rules(out, ev_at(it->doc.root, "failed_rules"));
        put(out, "</td></tr>\n");
    }
    put(out, "</table></div>\n");
}

/* Rows of the checks that hold, or of those that do not. */
static void check_rows(gem_bytes *out, const gem_json *checks, bool hold)
{
    put(out, "<div "
             "class=\"wide\"><table "
             "class=\"checks\"><tr><th>rule</th><th>required</th><th>observed</th><th></th></"
             "tr>\n");
    for (const gem_json *c = checks->first; c; c = c->next) {
        if (ev_is_true(c, "holds") != hold) continue;
        put(out, "<tr>");
        cell(out, ev_text(c, "rule"));
        cell(out, ev_text(c, "required"));
        cell(out, ev_text(c, "observed"));
        put(out, hold ? "<td class=\"good\">holds</td></tr>\n"
                      : "<td class=\"bad\">does not hold</td></tr>\n");
    }
    put(out, "</table></div>\n");
}

static void put_checks(gem_bytes *out, const gem_json *checks)
{
    size_t bad = 0;
    for (const gem_json *c = checks->first; c; c = c->next)
        bad += !ev_is_true(c, "holds");
    if (bad) check_rows(out, checks, false);
    if (bad == checks->n) return;
    gem_bytes_printf(out, "<details><summary>%zu checks hold</summary>", checks->n - bad);
    check_rows(out, checks, true);
    put(out, "</details>\n");
}

/* ---- pictures of a report ---- */
/* {"baseline": figures, "candidate": figures}: both runs side by side. */
static void plot_arms(gem_bytes *out, const char *label, double unit, const gem_json *a,
                      const gem_json *b)
{
    ev_series s[2] = {{0}};
    ev_series_read(&s[0], ev_at(a, "samples"));
    ev_series_read(&s[1], ev_at(b, "samples"));
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < s[k].n; i++)
            s[k].x[i] *= unit;
    const ev_line line[] = {{"baseline", s[0].x, NULL, s[0].n, 0},
                            {"candidate", s[1].x, NULL, s[1].n, 1}};
    if (s[0].n && s[1].n) ev_plot_lines(out, label, "repetitions, in order of time", line, 2);
    ev_series_free(&s[0]);
    ev_series_free(&s[1]);
}

static void plot_metrics(gem_bytes *out, const gem_json *report)
{
    const gem_json *metrics = ev_at(report, "metrics");
    plot_arms(out, "Time of each repetition, ms", 1e-6, ev_at(metrics, "baseline"),
              ev_at(metrics, "candidate"));
    for (const gem_json *m = metrics ? metrics->first : NULL; m; m = m->next) {
        char label[128];
        if (m->type != GEM_JSON_OBJECT || !ev_at(m, "candidate.samples")) continue;
        snprintf(label, sizeof(label), "%.40s: %.40s of each repetition (%+.2f %%)", m->name,
                 ev_text(m, "unit"), ev_number(m, "improvement_percent"));
        plot_arms(out, label, 1, ev_at(m, "baseline"), ev_at(m, "candidate"));
    }
    const gem_json *lengths = ev_at(report, "lengths");
    for (const gem_json *m = lengths ? lengths->first : NULL; m; m = m->next) {
        char label[128];
        if (!ev_at(m, "candidate.samples")) continue;
        snprintf(label, sizeof(label), "Time of each run at position %.0f, ms (%+.2f %%)",
                 ev_number(m, "position"), ev_number(m, "improvement_percent"));
        plot_arms(out, label, 1e-6, ev_at(m, "baseline"), ev_at(m, "candidate"));
    }
    const gem_json *series = ev_at(report, "series");
    for (const gem_json *m = series ? series->first : NULL; m; m = m->next)
        if (ev_at(m, "a.samples"))
            plot_arms(out, ev_text(m, "at"), 1, ev_at(m, "a"), ev_at(m, "b"));
}

static const item *by_digest(const page *p, const char *sha256)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->item[i].entry->sha256, sha256) == 0) return &p->item[i];
    return NULL;
}

/* The four arms of an ABBA report, from the records that it names. */
static void plot_abba(const page *p, const gem_json *report)
{
    ev_series s[4] = {{0}};
    ev_line line[4];
    bool all = true;
    for (size_t i = 0; i < 4; i++) {
        const gem_json *in = gem_json_at(ev_at(report, "inputs"), i);
        const item *it = by_digest(p, ev_text(in, "sha256"));
        all = it && ev_series_read(&s[i], ev_at(it->doc.root, "total.samples_ns")) && all;
        for (size_t k = 0; k < s[i].n; k++)
            s[i].x[k] *= 1e-3;
        line[i] = (ev_line){ev_text(in, "role"), s[i].x, NULL, s[i].n, i == 1 || i == 2};
    }
    if (all)
        ev_plot_lines(p->out, "Operator time of each repetition, microseconds, in A/B/B/A order",
                      "order of time", line, 4);
    for (size_t i = 0; i < 4; i++)
        ev_series_free(&s[i]);
}

static void plot_ranking(gem_bytes *out, const gem_json *report)
{
    enum { MOST = 32 };
    ev_bar bar[MOST];
    char name[MOST][96];
    size_t n = 0;
    const gem_json *list = ev_at(report, "ranking");
    for (const gem_json *m = list ? list->first : NULL; m && n < MOST; m = m->next, n++) {
        const char *kind = ev_text(m, "layers");
        snprintf(name[n], sizeof(name[n]), "%.30s: %.40s", kind, ev_text(m, "stage"));
        bar[n] = (ev_bar){name[n], ev_number(m, "mean_ns") / 1e3, strcmp(kind, "full") == 0};
    }
    if (n)
        ev_plot_bars(out, "Stages of one tile, microseconds, all layers of a kind together", bar,
                     n);
}

static void plot_traffic(gem_bytes *out, const gem_json *report)
{
    enum { MOST = 16 };
    ev_bar bar[MOST];
    size_t n = 0;
    const gem_json *t = ev_at(report, "traffic");
    for (const gem_json *m = t ? t->first : NULL; m && n < MOST; m = m->next, n++)
        bar[n] = (ev_bar){m->name, ev_number(m, "bytes") / 1048576, 1};
    if (n) ev_plot_bars(out, "Least logical traffic, MiB", bar, n);
}

static void put_report(const page *p, size_t i)
{
    const item *it = &p->item[i];
    gem_bytes *out = p->out;
    gem_bytes_printf(out, "<h2 id=\"r%zu\">", i);
    ev_html(out, it->entry->name);
    gem_bytes_printf(out, " <span class=\"%s\">", refused(it) ? "bad" : "good");
    ev_html(out, ev_text(it->doc.root, "verdict"));
    put(out, "</span></h2>\n<p class=\"soft\">");
    ev_html(out, it->schema);
    put(out, ev_is_true(it->doc.root, "promotion.eligible") ? ", eligible for promotion"
                                                            : ", promotes nothing");
    const char *axis = ev_text(it->doc.root, "promotion.axis");
    if (*axis) {
        put(out, "; changed axis: ");
        ev_html(out, axis);
    }
    put(out, "</p>\n");
    plot_metrics(out, it->doc.root);
    if (strcmp(it->schema, "gem-analyze-decode-attention-abba/1") == 0) plot_abba(p, it->doc.root);
    plot_ranking(out, it->doc.root);
    plot_traffic(out, it->doc.root);
    put_checks(out, ev_at(it->doc.root, "checks"));
}

/* ---- measurements ---- */
static const gem_json *row_of(const gem_json *bench, const char *name)
{
    const gem_json *rows = ev_at(bench, "rows");
    for (const gem_json *m = rows ? rows->first : NULL; m; m = m->next)
        if (gem_json_is(gem_json_get(m, "name"), name)) return m;
    return NULL;
}

static void bench_rows(const page *p)
{
    gem_bytes *out = p->out;
    put(out,
        "<div class=\"wide\"><table><tr><th>record</th><th>model</th><th>prompt</th><th>depth</th>"
        "<th>prompt tok/s</th><th>generation tok/s</th><th>larger CV %</th><th>TTFT "
        "ms</th></tr>\n");
    for (size_t i = 0; i < p->n; i++) {
        const gem_json *d = p->item[i].doc.root;
        if (strcmp(p->item[i].schema, "gem-bench/1") != 0) continue;
        const gem_json *pp = row_of(d, "pp"), *tg = row_of(d, "tg");
        put(out, "<tr>");
        cell(out, p->item[i].entry->name);
        cell(out, ev_text(d, "model.name"));
        number_cell(out, ev_number(d, "parameters.prompt_tokens"));
        number_cell(out, ev_number(d, "parameters.depth"));
        number_cell(out, ev_number(pp, "rate_per_s.overall"));
        number_cell(out, ev_number(tg, "rate_per_s.overall"));
        number_cell(out,
                    100 * fmax(ev_number(pp, "rate_per_s.cv"), ev_number(tg, "rate_per_s.cv")));
        number_cell(out, ev_number(pp, "ttft.time_ns.mean") / 1e6);
        put(out, "</tr>\n");
    }
    put(out, "</table></div>\n");
}

static void plot_bench(gem_bytes *out, const char *file, const gem_json *d)
{
    static const char *const kinds[] = {"pp", "tg"};
    for (int k = 0; k < 2; k++) {
        char label[256];
        ev_series s = {0};
        if (!ev_series_read(&s, ev_at(row_of(d, kinds[k]), "samples_per_s"))) continue;
        snprintf(label, sizeof(label), "%.120s: %s, tokens per second of each repetition", file,
                 k ? "generation" : "prompt");
        const ev_line line = {kinds[k], s.x, NULL, s.n, k};
        ev_plot_lines(out, label, "repetitions, in order of time", &line, 1);
        ev_series_free(&s);
    }
}

typedef struct point {
    double x, pp, tg, ttft;
} point;

static int by_x(const void *a, const void *b)
{
    double x = ((const point *)a)->x, y = ((const point *)b)->x;
    return (x > y) - (x < y);
}

/* One curve over tokens in the context: prompt of the test and what stood before it. */
static void plot_curve(gem_bytes *out, const char *label, const point *pt, size_t n, size_t member,
                       int colour)
{
    double *x = calloc(2 * n, sizeof(*x)), *y = x ? x + n : NULL;
    size_t k = 0;
    for (size_t i = 0; x && i < n; i++) {
        double v;
        memcpy(&v, (const char *)&pt[i] + member, sizeof(v));
        if (!isfinite(v)) continue;
        x[k] = pt[i].x;
        y[k++] = v;
    }
    const ev_line line = {"", y, x, k, colour};
    if (k > 1) ev_plot_lines(out, label, "tokens in the context", &line, 1);
    free(x);
}

static void put_curves(const page *p)
{
    point *pt = calloc(p->n + 1, sizeof(*pt));
    size_t n = 0;
    for (size_t i = 0; pt && i < p->n; i++) {
        const gem_json *d = p->item[i].doc.root, *pp = row_of(d, "pp");
        if (strcmp(p->item[i].schema, "gem-bench/1") != 0) continue;
        pt[n++] = (point){
            ev_number(d, "parameters.depth") + ev_number(d, "parameters.prompt_tokens"),
            ev_number(pp, "rate_per_s.overall"), ev_number(row_of(d, "tg"), "rate_per_s.overall"),
            ev_number(pp, "ttft.time_ns.mean") / 1e6};
    }
    if (n > 1) {
        qsort(pt, n, sizeof(*pt), by_x);
        if (pt[0].x < pt[n - 1].x) { /* records of one length make no curve */
            plot_curve(p->out, "Prompt, tokens per second by context", pt, n, offsetof(point, pp),
                       0);
            plot_curve(p->out, "Generation, tokens per second by context", pt, n,
                       offsetof(point, tg), 1);
            plot_curve(p->out, "Time to first token, ms by context", pt, n, offsetof(point, ttft),
                       2);
        }
    }
    free(pt);
}

static void put_measurements(const page *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += strcmp(p->item[i].schema, "gem-bench/1") == 0;
    if (!n) return;
    put(p->out, "<h2>Measurements</h2>\n");
    bench_rows(p);
    put_curves(p);
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->item[i].schema, "gem-bench/1") == 0)
            plot_bench(p->out, p->item[i].entry->name, p->item[i].doc.root);
}

static void put_streams(const page *p)
{
    ev_stream_point *pt = calloc(p->n + 1, sizeof(*pt));
    size_t n = 0;
    for (size_t i = 0; pt && i < p->n; i++) {
        const gem_json *d = p->item[i].doc.root;
        if (strcmp(p->item[i].schema, "gem.server-stream-probe") != 0) continue;
        const double reused = ev_number(d, "usage.prompt_tokens_details.cached_tokens");
        pt[n++] = (ev_stream_point){p->item[i].entry->name, ev_number(d, "usage.prompt_tokens"),
                                    isfinite(reused) ? reused : 0,
                                    ev_number(d, "first_visible_event_seconds"),
                                    ev_number(d, "completion_seconds")};
    }
    ev_page_streams(p->out, pt, n);
    free(pt);
}

/* Snapshots of gem-host-state, a line each: how busy the host was while it was watched. */
static void put_host(const page *p, const ev_entry *e)
{
    enum { MOST = 4096 };
    gem_bytes path = {0};
    char *text = NULL;
    size_t len, n = 0;
    gem_json_error je;
    double *y = calloc(2 * MOST, sizeof(*y));
    gem_bytes_printf(&path, "%s/%s", p->dir, e->name);
    if (y && path.data && gem_file_read(path.data, EV_MAX_DOCUMENT, &text, &len, NULL) == GEM_OK)
        for (char *line = text, *next; *line && n < MOST; line = next) {
            next = line + strcspn(line, "\n");
            gem_json_doc *d = gem_json_read(line, (size_t)(next - line), 16, &je);
            const gem_json *root = d ? gem_json_root(d) : NULL;
            if (strcmp(ev_text(root, "schema"), "gem-host-state/1") == 0) {
                y[n] = ev_number(root, "busy_percent");
                y[MOST + n] = ev_number(root, "load_per_cpu");
                n += isfinite(y[n]) && isfinite(y[MOST + n]);
            }
            gem_json_free(d);
            if (*next) next++;
        }
    if (n) {
        const ev_line busy = {"busy", y, NULL, n, 0}, load = {"load", y + MOST, NULL, n, 1};
        put(p->out, "<h2>Host: ");
        ev_html(p->out, e->name);
        put(p->out, "</h2>\n");
        ev_plot_lines(p->out, "Busy share of all CPUs, percent", "snapshots", &busy, 1);
        ev_plot_lines(p->out, "One-minute load a logical CPU", "snapshots", &load, 1);
    }
    free(y);
    free(text);
    gem_bytes_free(&path);
}

static void put_files(const page *p)
{
    gem_bytes *out = p->out;
    put(out, "<h2>Files</h2>\n<div "
             "class=\"wide\"><table><tr><th>file</th><th>document</th><th>SHA-256</th></tr>\n");
    for (size_t i = 0; i < p->folder.n; i++) {
        const ev_entry *e = &p->folder.v[i];
        const char *schema = "";
        for (size_t k = 0; k < p->n; k++)
            if (p->item[k].entry == e) schema = p->item[k].schema;
        put(out, "<tr>");
        cell(out, e->name);
        cell(out, schema);
        gem_bytes_printf(out, "<td><code>%s</code></td></tr>\n", e->sha256);
    }
    put(out, "</table></div>\n");
}

/* ---- the whole ---- */
static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}

static gem_status load(page *p, gem_error *err)
{
    p->item = calloc(p->folder.n + 1, sizeof(*p->item));
    if (!p->item) return gem_fail(err, GEM_E_NOMEM, "no memory for %zu documents", p->folder.n);
    for (size_t i = 0; i < p->folder.n; i++) {
        const ev_entry *e = &p->folder.v[i];
        gem_bytes path = {0};
        if (!e->regular || !ends_with(e->name, ".json")) continue;
        item *it = &p->item[p->n++];
        it->entry = e;
        it->schema = "";
        gem_bytes_printf(&path, "%s/%s", p->dir, e->name);
        /* a document that cannot be read is listed as a file and judged nowhere */
        if (path.data && ev_doc_load(&it->doc, path.data, NULL) == GEM_OK)
            it->schema = ev_text(it->doc.root, "schema");
        gem_bytes_free(&path);
    }
    return GEM_OK;
}

static void put_head(const page *p, const char *title, ev_page_counts *c)
{
    ev_judge j;
    gem_bytes *out = p->out;
    put(out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\"><title>Evidence: ");
    ev_html(out, title);
    gem_bytes_printf(out, "</title><style>%s</style></head><body>\n<h1>Evidence: ", style);
    ev_html(out, title);
    put(out, "</h1>\n");
    if (ev_judge_init(&j, "page/1")) {
        ev_judge_manifest(&j, p->dir, &p->folder, "audit.json");
        c->sealed = *ev_text(j.root, "manifest_sha256") != 0;
        c->intact = ev_holds(&j);
    }
    ev_judge_free(&j);
    gem_bytes_printf(
        out,
        "<p>%zu files, %zu reports, <span class=\"%s\">%zu refused</span>. Manifest: <span "
        "class=\"%s\">%s</span>.</p>\n",
        c->files, c->reports, c->refused ? "bad" : "good", c->refused, c->intact ? "good" : "bad",
        !c->sealed  ? "none, a change would not be noticed"
        : c->intact ? "every file as it was sealed"
                    : "broken: files differ from what was sealed");
}

gem_status ev_page(gem_bytes *out, const char *dir, const char *title, ev_page_counts *c,
                   gem_error *err)
{
    page p = {.out = out, .dir = dir};
    memset(c, 0, sizeof(*c));
    gem_status st = ev_folder_read(&p.folder, dir, err);
    if (st == GEM_OK) st = load(&p, err);
    if (st == GEM_OK) {
        c->files = p.folder.n;
        c->documents = p.n;
        for (size_t i = 0; i < p.n; i++) {
            c->reports += is_report(&p.item[i]);
            c->refused += is_report(&p.item[i]) && refused(&p.item[i]);
        }
        put_head(&p, title, c);
        if (c->reports) put_verdicts(&p);
        for (size_t i = 0; i < p.n; i++)
            if (is_report(&p.item[i])) put_report(&p, i);
        put_measurements(&p);
        put_streams(&p);
        for (size_t i = 0; i < p.n; i++)
            ev_page_profile(out, p.item[i].entry->name, p.item[i].schema, p.item[i].doc.root);
        for (size_t i = 0; i < p.folder.n; i++)
            if (p.folder.v[i].regular && ends_with(p.folder.v[i].name, ".ndjson"))
                put_host(&p, &p.folder.v[i]);
        put_files(&p);
        put(out, "</body></html>\n");
        if (out->failed) st = gem_fail(err, GEM_E_NOMEM, "no memory for the page");
    }
    for (size_t i = 0; i < p.n; i++)
        ev_doc_free(&p.item[i].doc);
    free(p.item);
    ev_folder_free(&p.folder);
    return st;
}
