/* report.c - the command `fak report`: read a folder of evidence, check everything in it, write a
 * page. */
#include "fak/report.h"

#include "fak/fak.h"
#include "fak/flags.h"
#include "fak/spawn.h"
#include "fak/validate.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

static const char program[] = "fak report";
static const char usage[] = "usage: fak report DIR --html FILE [--graph FILE]\n";

const char fak_report_help[] =
    "usage: fak report DIR --html FILE [--graph FILE]\n"
    "\n"
    "Check every *.json of a folder and write one self-contained page: throughput of each receipt, "
    "one plot an\n"
    "envelope and never two on one scale, expected against witnessed, levers, the graph (drawn by "
    "Graphviz\n"
    "where it is installed), comparisons, verdicts, attestations and digests. MANIFEST.sha256, as "
    "sha256sum\n"
    "writes it, is compared where it exists. No script, no outside resource; the same folder gives "
    "the same\n"
    "bytes.\n"
    "  --html FILE             the page\n"
    "  --graph FILE            use this graph instead of the built-in one\n"
    "  --help, -h              this text\n"
    "\n"
    "Exit status: 0 all documents hold; 1 some do not, or something could not be read or written "
    "(the page is\n"
    "written in the first case); 2 usage.\n";

enum { HTML, GRAPH, HELP, H, FLAGS, MAX_ENTRIES = 4096 };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fak_entry *)a)->name, ((const fak_entry *)b)->name);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}

static bool list(fak_folder *d, const char *dir, fak_findings *f)
{
    DIR *open_ = opendir(dir);
    size_t cap = 0;
    if (!open_) {
        fak_find(f, "NPI-001", NULL, "%s: %s", dir, strerror(errno));
        return false;
    }
    const struct dirent *e;
    while ((e = readdir(open_)) != NULL) {
        if (!ends_with(e->d_name, ".json") || d->n == MAX_ENTRIES) continue;
        if (d->n == cap) {
            cap = cap ? cap * 2 : 64;
            fak_entry *v = realloc(d->entry, cap * sizeof(*v));
            if (!v) break;
            d->entry = v;
        }
        memset(&d->entry[d->n], 0, sizeof(d->entry[d->n]));
        d->entry[d->n].name = strdup(e->d_name);
        if (!d->entry[d->n].name) break;
        d->n++;
    }
    closedir(open_);
    if (e) f->failed = true;
    if (d->n) qsort(d->entry, d->n, sizeof(*d->entry), by_name);
    return !f->failed;
}

static void check(fak_entry *e, const char *dir, fak_io *io, const fak_graph *g)
{
    gem_bytes path = {0};
    fak_findings f = {0};
    gem_bytes_printf(&path, "%s/%s", dir, e->name);
    if (fak_doc_load(&e->doc, io, &f, path.data ? path.data : "", FAK_MAX_INPUT, NULL)) {
        e->kind = fak_validate_document(g, &e->doc, &f);
        fak_digest_bytes(e->digest, e->doc.raw.data, e->doc.raw.len);
    }
    fak_findings_print(&f, e->name, &e->findings);
    fak_findings_free(&f);
    gem_bytes_free(&path);
}

static fak_entry *entry_of(fak_folder *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->entry[i].name, name) == 0) return &d->entry[i];
    return NULL;
}

/* Lines "<64 hex>  <name>"; names of other files than ours are not judged. */
static void manifest(fak_folder *d, const char *dir, fak_io *io)
{
    gem_bytes path = {0}, text = {0};
    gem_error err;
    gem_bytes_printf(&path, "%s/MANIFEST.sha256", dir);
    d->manifest = path.data && io->read(io, path.data, FAK_MAX_INPUT, &text, &err) == GEM_OK;
    for (char *s = d->manifest ? text.data : NULL, *next; s && *s; s = next) {
        next = s + strcspn(s, "\n");
        if (*next) *next++ = 0;
        if (strlen(s) < 67 || strspn(s, "0123456789abcdef") != 64) continue;
        const char *name = s + 66;
        if (!ends_with(name, ".json")) continue;
        fak_entry *e = entry_of(d, name);
        if (!e) {
            d->missing++;
            continue;
        }
        e->listed = true;
        e->matches = e->digest[0] && strncmp(e->digest + 7, s, 64) == 0;
    }
    gem_bytes_free(&path);
    gem_bytes_free(&text);
}

static void draw(fak_folder *d)
{
    gem_bytes dot = {0}, svg = {0};
    char *const argv[] = {"dot", "-Tsvg", NULL};
    fak_graph_dot(d->graph, &dot);
    const char *from = NULL;
    if (!dot.failed && fak_spawn(argv, dot.data, dot.len, &svg, 4 << 20) == 0 && svg.data)
        from = strstr(svg.data, "<svg");
    if (from) gem_bytes_put(&d->dot_svg, from, strlen(from));
    gem_bytes_free(&dot);
    gem_bytes_free(&svg);
}

static int run(const fak_flag *flag, const char *dir, fak_io *io, fak_findings *f)
{
    fak_doc doc;
    fak_graph g = {0};
    fak_folder d = {.graph = &g};
    gem_bytes page = {0};
    gem_error err;
    bool holds = true;
    f->prefix = flag[GRAPH].present ? "graph#" : NULL;
    bool ok = flag[GRAPH].present
                  ? fak_doc_load(&doc, io, f, flag[GRAPH].value, FAK_MAX_INPUT, fak_doc_graph.type)
                  : fak_doc_parse(&doc, f, (const char *)fak_graph_data, fak_graph_data_len,
                                  fak_doc_graph.type);
    ok = ok && fak_graph_init(&g, doc.root);
    if (ok) fak_graph_validate(&g, f);
    f->prefix = NULL;
    if (ok && !f->n && list(&d, dir, f)) {
        for (size_t i = 0; i < d.n; i++)
            check(&d.entry[i], dir, io, &g);
        manifest(&d, dir, io);
        draw(&d);
        fak_report_page(&d, &page);
        for (size_t i = 0; i < d.n; i++) {
            holds = holds && d.entry[i].kind && (!d.entry[i].listed || d.entry[i].matches);
            gem_bytes_put(&io->err, d.entry[i].findings.data, d.entry[i].findings.len);
        }
        holds = holds && !d.missing;
        if (page.failed)
            f->failed = true;
        else if (io->write(io, flag[HTML].value, page.data, page.len, &err) != GEM_OK)
            fak_find(f, "NPI-002", NULL, "%s", err.text);
    }
    for (size_t i = 0; i < d.n; i++) {
        free(d.entry[i].name);
        fak_doc_free(&d.entry[i].doc);
        gem_bytes_free(&d.entry[i].findings);
    }
    free(d.entry);
    gem_bytes_free(&d.dot_svg);
    gem_bytes_free(&page);
    fak_graph_free(&g);
    fak_doc_free(&doc);
    return holds ? 0 : 1;
}

int fak_report(int argc, char **argv, fak_io *io)
{
    static const fak_flag_codes codes = {"NPU-001", "NPU-002", "NPU-003", "NPU-004", "NPU-008"};
    fak_flag flag[FLAGS + 1] = {{.name = "html", .takes_value = true},
                                {.name = "graph", .takes_value = true},
                                {.name = "help"},
                                {.name = "h"}};
    const char **positional = calloc((size_t)argc + 1, sizeof(*positional));
    int n = 0, status = 2;
    fak_findings f = {0};
    if (!positional) return 1;
    fak_flags_parse(flag, argc, argv, &codes, positional, &n, &f);
    bool help = flag[HELP].present || flag[H].present;
    if (help && argc != 1) fak_find(&f, "NPU-007", NULL, "--help stands alone");
    if (!help && n != 1) fak_find(&f, "NPU-004", NULL, "exactly one folder is needed");
    if (!help && !flag[HTML].present) fak_find(&f, "NPU-006", NULL, "--html is needed");
    if (!f.n && help) {
        gem_bytes_put(&io->out, fak_report_help, strlen(fak_report_help));
        status = 0;
    } else if (!f.n) {
        status = run(flag, positional[0], io, &f);
    }
    if (f.n || f.failed) {
        if (status == 0) status = 1;
        fak_findings_print(&f, program, &io->err);
        if (status == 2) gem_bytes_put(&io->err, usage, strlen(usage));
    }
    fak_findings_free(&f);
    free(positional);
    return status;
}
