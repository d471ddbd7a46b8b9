/* fill.c - the command `fak receipt fill`: put what gem-bench measured into a receipt template.
 * Nothing is copied by hand and nothing is overwritten in silence: where the template already says
 * something, the records must say the same, and the result is written only if it is a valid
 * receipt. */
#include "fak/fak.h"
#include "fak/flags.h"
#include "fak/receipt.h"

#include <stdlib.h>

static const char program[] = "fak receipt fill";
static const char usage[] =
    "usage: fak receipt fill TEMPLATE --bench FILE... --machine ID [--candidate] "
    "[--artifact FILE...] [--model-repository R --model-revision R --device-memory-gib N] "
    "[--graph FILE] [--out N]\n";

const char fak_receipt_fill_help[] =
    "usage: fak receipt fill TEMPLATE --bench FILE... --machine ID [OPTION...]\n"
    "\n"
    "Merge records of `gem-bench --end-to-end` into a receipt template and print the receipt. "
    "Repetitions are\n"
    "taken in the order of the files. Refused: a record of another schema, controls or identity "
    "that differ\n"
    "from the template or between records, another number of repetitions, and whatever would make "
    "the\n"
    "receipt invalid.\n"
    "  --bench FILE            a record of gem-bench; may be repeated\n"
    "  --machine ID            scrubbed name of the machine\n"
    "  --candidate             the records have the template's lever switched on\n"
    "  --artifact FILE         a profile or raw record to list with its digest; may be repeated;\n"
    "                          without any, the records themselves are listed\n"
    "  --model-repository R, --model-revision R, --device-memory-gib N\n"
    "                          identity, while the envelope is unresolved\n"
    "  --graph FILE            use this graph instead of the built-in one\n"
    "  --out FILE              write here, mode 0600, instead of standard output\n"
    "  --help, -h              this text\n"
    "\n"
    "Exit status: 0 written; 1 refused; 2 usage.\n";

enum {
    BENCH,
    MACHINE,
    CANDIDATE,
    ARTIFACT,
    REPOSITORY,
    REVISION,
    MEMORY,
    GRAPH,
    OUT,
    HELP,
    H,
    FLAGS
};
enum { MAX_FILES = 256 };

typedef struct filler {
    fak_flag flag[FLAGS + 1];
    fak_io *io;
    fak_findings f;
    const char *bench[MAX_FILES], *artifact[MAX_FILES];
    size_t n_bench, n_artifact;
    fak_doc record[MAX_FILES], template_, graph_doc;
    fak_graph graph;
    gem_json_doc *d;
    gem_json *root;
} filler;

/* ---- small steps on the receipt being built ---- */
static gem_json *member(const gem_json *obj, const char *name)
{
    return (gem_json *)gem_json_get(obj, name); /* the tree is ours: fak_shape_copy made it */
}

static bool placeholder(const gem_json *v)
{
    return v->type == GEM_JSON_STRING && strncmp(v->text, "FILL_", 5) == 0;
}

/* A text of the template: a placeholder takes the value, anything else must equal it. */
static void settle(filler *x, gem_json *at, const char *name, const char *value, const char *code)
{
    gem_json *v = member(at, name);
    if (!v) return;
    if (placeholder(v))
        gem_json_set_string(x->d, v, value);
    else if (strcmp(v->text, value) != 0)
        fak_find(&x->f, code, v, "the template says \"%s\", the records \"%s\"", v->text, value);
}

static void set_number(filler *x, gem_json *at, const char *name, double value)
{
    char text[32];
    gem_json *v = member(at, name);
    if (!v) return;
    gem_json_number(text, value);
    gem_json_set_string(x->d, v, text);
    v->number = value;
}

/* A control of the template: 0 is still open, anything else must equal the record's. */
static void settle_number(filler *x, gem_json *at, const char *name, double value)
{
    gem_json *v = member(at, name);
    if (v->number == 0 && value > 0 && strcmp(name, "temperature") != 0 &&
        strcmp(name, "warmups") != 0)
        set_number(x, at, name, value);
    else if (v->number != value)
        fak_find(&x->f, "NPF-003", v, "the records were made with another value");
}

static void clear_list(gem_json *list)
{
    list->first = list->last = NULL;
    list->n = 0;
}

/* ---- records ---- */
static const gem_json *need(filler *x, const gem_json *at, const char *name, gem_json_type type,
                            const char *file)
{
    const gem_json *v = gem_json_get(at, name);
    if (v && v->type == type && !(type == GEM_JSON_NUMBER && v->number - v->number != 0)) return v;
    x->f.prefix = "bench#";
    fak_find_in(&x->f, "NPF-002", at, name, "%s has no such value", file);
    x->f.prefix = NULL;
    return NULL;
}

static bool check_record(filler *x, size_t i)
{
    static const struct {
        const char *group, *name;
        gem_json_type type;
    } wanted[] = {{"parameters", "prompt_tokens", GEM_JSON_NUMBER},
                  {"parameters", "generation_tokens", GEM_JSON_NUMBER},
                  {"parameters", "context", GEM_JSON_NUMBER},
                  {"parameters", "warmups", GEM_JSON_NUMBER},
                  {"model", "sha256", GEM_JSON_STRING},
                  {"receipt", "engine", GEM_JSON_STRING},
                  {"receipt", "backend", GEM_JSON_STRING},
                  {"receipt", "platform", GEM_JSON_STRING},
                  {"receipt", "forward_path", GEM_JSON_STRING},
                  {"receipt", "fallback_count", GEM_JSON_NUMBER},
                  {"receipt", "revision", GEM_JSON_STRING},
                  {"receipt", "sampling", GEM_JSON_STRING},
                  {"receipt", "cache_state", GEM_JSON_STRING},
                  {"receipt", "batch", GEM_JSON_NUMBER},
                  {"receipt", "temperature", GEM_JSON_NUMBER},
                  {"receipt", "command", GEM_JSON_STRING},
                  {"receipt", "memory", GEM_JSON_OBJECT},
                  {"receipt", "quality", GEM_JSON_OBJECT},
                  {"receipt", "repetitions", GEM_JSON_ARRAY}};
    const gem_json *root = x->record[i].root;
    size_t before = x->f.n;
    if (!gem_json_is(gem_json_get(root, "schema"), "gem-bench/1")) {
        fak_find(&x->f, "NPF-001", NULL, "%s is no record of gem-bench", x->bench[i]);
        return false;
    }
    if (!gem_json_get(root, "receipt")) {
        fak_find(&x->f, "NPF-002", NULL, "%s was not made with --end-to-end", x->bench[i]);
        return false;
    }
    for (size_t k = 0; k < ARRAY_LEN(wanted); k++) {
        const gem_json *group = gem_json_get(root, wanted[k].group);
        if (!group)
            fak_find(&x->f, "NPF-002", NULL, "%s has no %s", x->bench[i], wanted[k].group);
        else
            need(x, group, wanted[k].name, wanted[k].type, x->bench[i]);
    }
    return x->f.n == before;
}

/* What must not change from record to record. */
static void check_alike(filler *x, size_t i)
{
    static const char *const same[][2] = {{"model", "sha256"},
                                          {"parameters", "prompt_tokens"},
                                          {"parameters", "generation_tokens"},
                                          {"parameters", "context"},
                                          {"parameters", "threads"},
                                          {"receipt", "revision"},
                                          {"receipt", "engine"},
                                          {"receipt", "forward_path"},
                                          {"receipt", "command"},
                                          {"host", "cpu"}};
    const gem_json *a = x->record[0].root, *b = x->record[i].root;
    for (size_t k = 0; i && k < ARRAY_LEN(same); k++)
        if (!gem_json_equal(gem_json_get(gem_json_get(a, same[k][0]), same[k][1]),
                            gem_json_get(gem_json_get(b, same[k][0]), same[k][1])))
            fak_find(&x->f, "NPF-005", NULL, "%s and %s differ in %s.%s", x->bench[0], x->bench[i],
                     same[k][0], same[k][1]);
}

/* ---- the parts of the receipt ---- */
static void fill_identity(filler *x)
{
    const gem_json *r = x->record[0].root, *p = gem_json_get(r, "receipt");
    gem_json *machine = member(x->root, "machine"), *execution = member(x->root, "execution");
    const char *revision = fak_str(p, "revision");
    if (strstr(revision, "dirty") || strcmp(revision, "unknown") == 0)
        fak_find_in(&x->f, "NPF-004", x->root, "revision",
                    "the program was built from \"%s\", not from a commit", revision);
    settle(x, x->root, "revision", revision, "NPF-004");
    settle(x, x->root, "artifact_sha256", fak_str(gem_json_get(r, "model"), "sha256"), "NPF-004");
    settle(x, machine, "scrubbed_id", x->flag[MACHINE].value, "NPF-004");
    settle(x, machine, "backend", fak_str(p, "backend"), "NPF-004");
    /* the record knows the system, the lever also the device class behind the plus sign */
    const char *want = fak_str(machine, "platform"), *have = fak_str(p, "platform");
    size_t n = strcspn(want, "+");
    if (strlen(have) != n || strncmp(want, have, n) != 0)
        fak_find_in(&x->f, "NPF-004", machine, "platform",
                    "the template says \"%s\", the records \"%s\"", want, have);
    settle(x, execution, "engine", fak_str(p, "engine"), "NPF-004");
    settle(x, execution, "forward_path", fak_str(p, "forward_path"), "NPF-004");
    gem_json *resolved = member(x->root, "resolved_identity");
    if (!resolved) return;
    if (x->flag[REPOSITORY].present)
        settle(x, resolved, "model_repository", x->flag[REPOSITORY].value, "NPF-004");
    if (x->flag[REVISION].present)
        settle(x, resolved, "model_revision", x->flag[REVISION].value, "NPF-004");
    if (x->flag[MEMORY].present)
        set_number(x, resolved, "device_memory_gib", atof(x->flag[MEMORY].value));
}

static void fill_controls(filler *x)
{
    const gem_json *r = x->record[0].root, *k = gem_json_get(r, "parameters"),
                   *p = gem_json_get(r, "receipt");
    gem_json *c = member(x->root, "controls");
    settle_number(x, c, "prompt_tokens", fak_num(k, "prompt_tokens"));
    settle_number(x, c, "decode_tokens", fak_num(k, "generation_tokens"));
    settle_number(x, c, "context_tokens", fak_num(k, "context"));
    settle_number(x, c, "batch", fak_num(p, "batch"));
    settle_number(x, c, "warmups", fak_num(k, "warmups"));
    settle_number(x, c, "temperature", fak_num(p, "temperature"));
    settle(x, c, "sampling", fak_str(p, "sampling"), "NPF-003");
    settle(x, c, "cache_state", fak_str(p, "cache_state"), "NPF-003");
}

static void fill_measurements(filler *x)
{
    static const char *const metric[] = {"end_to_end_milliseconds", "tokens_per_second",
                                         "ttft_milliseconds", "prefill_milliseconds",
                                         "decode_milliseconds"};
    gem_json *list = member(x->root, "repetitions"), *memory = member(x->root, "memory");
    double peak = 0, resident = 0, fallback = 0;
    clear_list(list);
    for (size_t i = 0; i < x->n_bench; i++) {
        const gem_json *p = gem_json_get(x->record[i].root, "receipt"),
                       *m = gem_json_get(p, "memory");
        peak = GEM_MAX(peak, fak_num(m, "peak_bytes"));
        resident = GEM_MAX(resident, fak_num(m, "resident_bytes"));
        fallback += fak_num(p, "fallback_count");
        for (const gem_json *rep = fak_list(p, "repetitions"); rep; rep = rep->next) {
            gem_json *o = gem_json_put(x->d, list, NULL, GEM_JSON_OBJECT);
            for (size_t k = 0; k < ARRAY_LEN(metric); k++)
                if (gem_json_get(rep, metric[k]))
                    gem_json_put_number(x->d, o, metric[k], fak_num(rep, metric[k]));
        }
    }
    set_number(x, memory, "peak_bytes", peak);
    set_number(x, memory, "resident_bytes", resident);
    set_number(x, member(x->root, "execution"), "fallback_count", fallback);
    if ((int64_t)list->n != fak_int(member(x->root, "controls"), "repetitions"))
        fak_find(&x->f, "NPF-006", list,
                 "the records hold %zu repetitions, the template asks for %lld", list->n,
                 (long long)fak_int(member(x->root, "controls"), "repetitions"));
}

/* The same quality in every record; the worst score counts. */
static void fill_quality(filler *x)
{
    gem_json *q = member(x->root, "quality");
    const gem_json *first = gem_json_get(gem_json_get(x->record[0].root, "receipt"), "quality");
    bool higher = fak_bool(first, "higher_is_better");
    double score = fak_num(first, "score");
    for (size_t i = 1; i < x->n_bench; i++) {
        const gem_json *o = gem_json_get(gem_json_get(x->record[i].root, "receipt"), "quality");
        double s = fak_num(o, "score");
        if (strcmp(fak_str(o, "name"), fak_str(first, "name")) != 0 ||
            fak_bool(o, "higher_is_better") != higher)
            fak_find(&x->f, "NPF-005", NULL, "%s and %s judge quality differently", x->bench[0],
                     x->bench[i]);
        score = higher ? GEM_MIN(score, s) : GEM_MAX(score, s);
    }
    /* records of one program must also have produced one text */
    for (size_t i = 1; i < x->n_bench; i++)
        if (strcmp(fak_str(gem_json_get(x->record[i].root, "receipt"), "output_sha256"),
                   fak_str(gem_json_get(x->record[0].root, "receipt"), "output_sha256")) != 0)
            score = higher ? GEM_MIN(score, 0) : score;
    settle(x, q, "name", fak_str(first, "name"), "NPF-004");
    set_number(x, q, "score", score);
    member(q, "higher_is_better")->truth = higher;
}

static void fill_provenance(filler *x)
{
    const gem_json *p = gem_json_get(x->record[0].root, "receipt");
    gem_json *modules = member(x->root, "module_versions"), *commands = member(x->root, "commands");
    gem_json *artifacts = member(x->root, "profiler_artifacts");
    const char *const *files = x->n_artifact ? x->artifact : x->bench;
    size_t n = x->n_artifact ? x->n_artifact : x->n_bench;
    clear_list(modules);
    gem_json *o = gem_json_put(x->d, modules, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(x->d, o, "module", "gem");
    gem_json_put_string(x->d, o, "revision", fak_str(p, "revision"));
    clear_list(commands);
    gem_json_put_string(x->d, commands, NULL, fak_str(p, "command"));
    clear_list(artifacts);
    for (size_t i = 0; i < n; i++) {
        gem_bytes data = {0};
        gem_error err;
        char digest[FAK_DIGEST_SIZE] = "sha256:";
        if (x->io->read(x->io, files[i], (size_t)1 << 30, &data, &err) != GEM_OK)
            fak_find(&x->f, "NPI-001", NULL, "%s", err.text);
        else if (!fak_digest_bytes(digest, data.data, data.len))
            x->f.failed = true;
        gem_bytes_free(&data);
        o = gem_json_put(x->d, artifacts, NULL, GEM_JSON_OBJECT);
        gem_json_put_string(x->d, o, "path", files[i]);
        gem_json_put_string(x->d, o, "sha256", digest + 7);
    }
}

static void make_candidate(filler *x)
{
    gem_json *axes = member(x->root, "changed_axes");
    gem_bytes axis = {0};
    gem_json_set_string(x->d, member(x->root, "role"), "candidate");
    gem_bytes_printf(&axis, "lever:%s", fak_str(x->root, "changed_lever_id"));
    clear_list(axes);
    gem_json_put_string(x->d, axes, NULL, axis.data ? axis.data : "");
    gem_bytes_free(&axis);
}

/* ---- command ---- */
static bool load(filler *x, const char *template_path)
{
    bool ok;
    if (x->flag[GRAPH].present) {
        x->f.prefix = "graph#";
        ok = fak_doc_load(&x->graph_doc, x->io, &x->f, x->flag[GRAPH].value, FAK_MAX_INPUT,
                          fak_doc_graph.type);
    } else {
        ok = fak_doc_parse(&x->graph_doc, &x->f, (const char *)fak_graph_data, fak_graph_data_len,
                           fak_doc_graph.type);
    }
    ok = ok && fak_graph_init(&x->graph, x->graph_doc.root);
    if (ok) fak_graph_validate(&x->graph, &x->f);
    x->f.prefix = "receipt#";
    ok = ok &&
         fak_doc_load(&x->template_, x->io, &x->f, template_path, FAK_MAX_INPUT, &fak_type_receipt);
    x->f.prefix = "bench#";
    for (size_t i = 0; i < x->n_bench; i++)
        ok = fak_doc_load(&x->record[i], x->io, &x->f, x->bench[i], FAK_MAX_INPUT, NULL) && ok;
    x->f.prefix = NULL;
    ok = ok && !x->f.n && !x->f.failed;
    for (size_t i = 0; ok && i < x->n_bench; i++)
        ok = check_record(x, i);
    for (size_t i = 0; ok && i < x->n_bench; i++)
        check_alike(x, i);
    return ok && !x->f.n && !x->f.failed;
}

static void fill(filler *x)
{
    x->d = gem_json_new();
    if (!x->d) {
        x->f.failed = true;
        return;
    }
    x->root = fak_shape_copy(x->d, NULL, NULL, &fak_type_receipt, x->template_.root);
    if (gem_json_failed(x->d)) {
        x->f.failed = true;
        return;
    }
    x->f.prefix = "receipt#";
    if (x->flag[CANDIDATE].present) make_candidate(x);
    fill_identity(x);
    fill_controls(x);
    fill_measurements(x);
    fill_quality(x);
    fill_provenance(x);
    if (gem_json_failed(x->d)) x->f.failed = true;
    if (!x->f.n && !x->f.failed) fak_receipt_validate(&x->graph, x->root, 0, &x->f);
    x->f.prefix = NULL;
    if (x->f.n || x->f.failed) return;
    gem_bytes text = {0};
    gem_error err;
    gem_json_write(&text, x->root);
    if (!x->flag[OUT].present)
        gem_bytes_put(&x->io->out, text.data, text.len);
    else if (x->io->write(x->io, x->flag[OUT].value, text.data, text.len, &err) != GEM_OK)
        fak_find(&x->f, "NPI-002", NULL, "%s", err.text);
    gem_bytes_free(&text);
}

/* Values of a flag that may be repeated, in order. */
static void collect(int argc, char **argv, const char *name, const char **v, size_t *n,
                    fak_findings *f)
{
    size_t len = strlen(name);
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i] + strspn(argv[i], "-");
        if (a == argv[i] || strncmp(a, name, len) != 0 || (a[len] && a[len] != '=')) continue;
        if (*n == MAX_FILES) {
            fak_find(f, "NPU-008", NULL, "more than %d files", MAX_FILES);
            return;
        }
        v[(*n)++] = a[len] == '=' ? a + len + 1 : i + 1 < argc ? argv[i + 1] : "";
    }
}

int fak_receipt_fill(int argc, char **argv, fak_io *io)
{
    static const fak_flag_codes codes = {"NPU-001", "NPU-002", "NPU-003", "NPU-004", "NPU-008"};
    const char **positional = calloc((size_t)argc + 1, sizeof(*positional));
    filler *x = calloc(1, sizeof(*x));
    int n_positional = 0, status = 2;
    if (!positional || !x) {
        free(positional);
        free(x);
        return 1;
    }
    const fak_flag table[FLAGS + 1] = {{.name = "bench", .takes_value = true, .many = true},
                                       {.name = "machine", .takes_value = true},
                                       {.name = "candidate"},
                                       {.name = "artifact", .takes_value = true, .many = true},
                                       {.name = "model-repository", .takes_value = true},
                                       {.name = "model-revision", .takes_value = true},
                                       {.name = "device-memory-gib", .takes_value = true},
                                       {.name = "graph", .takes_value = true},
                                       {.name = "out", .takes_value = true},
                                       {.name = "help"},
                                       {.name = "h"}};
    memcpy(x->flag, table, sizeof(table));
    x->io = io;
    fak_flags_parse(x->flag, argc, argv, &codes, positional, &n_positional, &x->f);
    collect(argc, argv, "bench", x->bench, &x->n_bench, &x->f);
    collect(argc, argv, "artifact", x->artifact, &x->n_artifact, &x->f);
    bool help = x->flag[HELP].present || x->flag[H].present;
    if (help && argc != 1) fak_find(&x->f, "NPU-007", NULL, "--help stands alone");
    if (!help && n_positional != 1)
        fak_find(&x->f, "NPU-004", NULL, "exactly one template is needed");
    if (!help && (!x->flag[BENCH].present || !x->flag[MACHINE].present))
        fak_find(&x->f, "NPU-006", NULL, "--bench and --machine are needed");
    if (!x->f.n && help) {
        gem_bytes_put(&io->out, fak_receipt_fill_help, strlen(fak_receipt_fill_help));
        status = 0;
    } else if (!x->f.n) {
        if (load(x, positional[0])) fill(x);
        status = x->f.n || x->f.failed ? 1 : 0;
    }
    if (x->f.n || x->f.failed) {
        io->out.len = 0;
        fak_findings_print(&x->f, program, &io->err);
        if (status == 2) gem_bytes_put(&io->err, usage, strlen(usage));
    }
    for (size_t i = 0; i < x->n_bench; i++)
        fak_doc_free(&x->record[i]);
    fak_doc_free(&x->template_);
    fak_graph_free(&x->graph);
    fak_doc_free(&x->graph_doc);
    gem_json_free(x->d);
    fak_findings_free(&x->f);
    free(x);
    free(positional);
    return status;
}
