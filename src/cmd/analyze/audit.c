/* audit.c - `gem-analyze seal` and `audit`: a retained folder is closed by its manifest; an audit
 * checks it, makes every report in it again from its inputs, and compares the frozen binary. */
#include "cmd/analyze/analyze.h"
#include "evidence/manifest.h"
#include "fak/spawn.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
    const char *binary;
} opt;

static const cli_option seal_options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};
static const cli_option audit_options[] = {
    {"binary", 'b', CLI_TEXT, "FILE", &opt.binary, 0, 0,
     "must still be the program whose digest live-binary-sha256.txt holds", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command analyze_seal_command = {
    .program = "gem-analyze seal",
    .args = "DIR",
    .summary = "close a folder of evidence: write its manifest of digests, last",
    .text = "MANIFEST.sha256 lists every file below DIR; `sha256sum --check` reads it too. A "
            "folder is\n"
            "sealed once.\n",
    .min_args = 1,
    .max_args = 1,
    .option = seal_options};
const cli_command analyze_audit_command = {
    .program = "gem-analyze audit",
    .args = "DIR [OUT.json]",
    .summary = "check a sealed folder and make its reports again from their inputs",
    .text = "OUT.json should lie outside DIR: the manifest does not list it. Keep "
            "`manifest_sha256` of the\n"
            "report elsewhere: whoever can write the folder can also seal it anew.\n",
    .min_args = 1,
    .max_args = 2,
    .option = audit_options};

int analyze_seal_main(int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    int code = cli_parse(&analyze_seal_command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (ev_manifest_write(args[0], &err) != GEM_OK) return cli_fail(&analyze_seal_command, &err);
    fprintf(stderr, "sealed: %s/%s\n", args[0], EV_MANIFEST);
    return CLI_DONE;
}

/* ---- reports made again ---- */
enum { MAX_ARGUMENTS = 64 };

typedef struct rerun {
    char *argv[MAX_ARGUMENTS]; /* owned strings */
    int n;
} rerun;

static bool push(rerun *r, const char *s)
{
    if (r->n + 1 >= MAX_ARGUMENTS) return false;
    r->argv[r->n] = strdup(s);
    return r->argv[r->n] && ++r->n;
}

/* The file of the folder with this digest and this last part of its name. */
static const ev_entry *input_of(const ev_folder *f, const char *name, const char *sha256)
{
    for (size_t i = 0; i < f->n; i++) {
        const char *slash = strrchr(f->v[i].name, '/'), *last = slash ? slash + 1 : f->v[i].name;
        if (strcmp(last, name) == 0 && strcmp(f->v[i].sha256, sha256) == 0) return &f->v[i];
    }
    return NULL;
}

/* gem-analyze NAME OPTIONS INPUTS; NULL when all is there, else what is not. */
static const char *arguments(rerun *r, const char *self, const char *dir, const ev_folder *f,
                             const gem_json *report)
{
    char name[64];
    const char *schema = ev_text(report, "schema");
    size_t n = strcspn(schema, "/");
    const gem_json *options = ev_at(report, "options"), *inputs = ev_at(report, "inputs");
    bool whole = ev_is_true(report, "folder"); /* its input is the folder it lies in */
    if (n < 12 || n >= sizeof(name) || !options || !inputs || !inputs->n)
        return "it names no inputs";
    snprintf(name, sizeof(name), "%.*s", (int)(n - strlen("gem-analyze-")),
             schema + strlen("gem-analyze-"));
    if (!push(r, self) || !push(r, name)) return "no memory";
    for (const gem_json *o = options->first; o; o = o->next)
        if (o->type != GEM_JSON_STRING || !push(r, o->text)) return "its options cannot be read";
    if (whole && !push(r, dir)) return "no memory";
    for (const gem_json *m = whole ? NULL : inputs->first; m; m = m->next) {
        const ev_entry *e = input_of(f, ev_text(m, "file"), ev_text(m, "sha256"));
        gem_bytes path = {0};
        if (!e) return "an input is not in the folder";
        gem_bytes_printf(&path, "%s/%s", dir, e->name);
        bool ok = path.data && push(r, path.data);
        gem_bytes_free(&path);
        if (!ok) return "too many inputs";
    }
    if (!push(r, "-"))
        return "too many inputs"; /* its place: no option can turn an input into it */
    r->argv[r->n] = NULL;
    return NULL;
}

/* NULL when the report comes out the same, else why not. */
static const char *made_again(const char *dir, const ev_folder *f, const ev_doc *d)
{
    char self[4096];
    rerun r = {.n = 0};
    gem_bytes out = {0};
    gem_json_error je;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0) return "this program does not find itself";
    self[n] = 0;
    const char *why = arguments(&r, self, dir, f, d->root);
    if (!why) {
        int code = fak_spawn(r.argv, NULL, 0, &out, EV_MAX_DOCUMENT);
        gem_json_doc *again =
            code == 0 || code == 1 ? gem_json_read(out.data, out.len, 64, &je) : NULL;
        if (!again || !gem_json_root(again))
            why = "it cannot be made again";
        else if (!gem_json_equal(gem_json_root(again), d->root))
            why = "made again it says something else";
        gem_json_free(again);
    }
    for (int i = 0; i < r.n; i++)
        free(r.argv[i]);
    gem_bytes_free(&out);
    return why;
}

static bool is_report(const ev_doc *d)
{
    const char *schema = d->root ? ev_text(d->root, "schema") : "";
    return strncmp(schema, "gem-analyze-", 12) == 0 &&
           strcmp(schema, "gem-analyze-simulate/1") != 0 &&
           strcmp(schema, "gem-analyze-audit/1") != 0 &&
           strcmp(schema, "gem-analyze-long-context-audit/1") != 0;
}

static void check_reports(ev_judge *j, const char *dir, const ev_folder *f)
{
    size_t n = 0, refused = 0;
    for (size_t i = 0; i < f->n; i++) {
        ev_doc d = {0};
        gem_bytes path = {0};
        size_t len = strlen(f->v[i].name);
        if (len < 6 || strcmp(f->v[i].name + len - 5, ".json") != 0 || !f->v[i].regular) continue;
        gem_bytes_printf(&path, "%s/%s", dir, f->v[i].name);
        if (path.data && ev_doc_load(&d, path.data, NULL) == GEM_OK && is_report(&d)) {
            const char *why = made_again(dir, f, &d);
            n++;
            refused += strcmp(ev_text(d.root, "verdict"), "refuse") == 0;
            ev_check(j, !why, "report", "the same when made again from its inputs", "%s: %s",
                     f->v[i].name, why ? why : "the same");
        }
        ev_doc_free(&d);
        gem_bytes_free(&path);
    }
    gem_json_put_int(j->json, j->root, "reports", (int64_t)n);
    gem_json_put_int(j->json, j->root, "reports_that_refuse", (int64_t)refused);
}

/* live-binary-sha256.txt: the digest, then anything. */
static void check_binary(ev_judge *j, const char *dir)
{
    gem_bytes path = {0};
    char *text = NULL, hex[65] = "";
    size_t len = 0;
    gem_bytes_printf(&path, "%s/live-binary-sha256.txt", dir);
    bool there = path.data && gem_file_read(path.data, 4096, &text, &len, NULL) == GEM_OK;
    bool same = there && gem_sha256_file(opt.binary, hex, NULL) == GEM_OK && len >= 64 &&
                strncmp(text, hex, 64) == 0 && (len == 64 || text[64] == ' ' || text[64] == '\n');
    ev_check(j, same, "binary", "the program that was frozen when the run began", "%s",
             !there ? "live-binary-sha256.txt is absent"
             : same ? "the same"
                    : "another one, or it cannot be read");
    free(text);
    gem_bytes_free(&path);
}

int analyze_audit_main(int argc, char **argv)
{
    const cli_command *c = &analyze_audit_command;
    char **args;
    int n_args;
    gem_error err;
    ev_judge j;
    ev_folder f;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (ev_folder_read(&f, args[0], &err) != GEM_OK) {
        ev_folder_free(&f);
        return cli_fail(c, &err);
    }
    if (!ev_judge_init(&j, "gem-analyze-audit/1")) {
        ev_folder_free(&f);
        return CLI_CANNOT;
    }
    ev_judge_manifest(&j, args[0], &f, NULL);
    check_reports(&j, args[0], &f);
    if (opt.binary) check_binary(&j, args[0]);
    ev_judge_finish(&j, "intact");
    code = analyze_write(c, j.root, n_args > 1 ? args[1] : NULL);
    if (code == CLI_DONE && !ev_holds(&j)) {
        fputs(j.refusals.data ? j.refusals.data : "", stderr);
        code = CLI_FALSE;
    }
    ev_judge_free(&j);
    ev_folder_free(&f);
    return code;
}
