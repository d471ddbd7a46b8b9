/* native_performance.c - the command `fak native-performance`: usage, then one mode. Usage is
 * judged before any file is read; on failure standard output stays empty. */
#include "fak/attestation.h"
#include "fak/fak.h"
#include "fak/flags.h"
#include "fak/gate.h"
#include "fak/profile.h"
#include "fak/receipt.h"
#include "fak/sign.h"
#include "fak/validate.h"

#include <stdio.h>

static const char program[] = "fak native-performance";
static const char usage[] =
    "usage: fak native-performance [--json | --next | --dot | --baseline LEVER | --compare B "
    "--candidate C | --attach-receipt R --system-baseline A [--out N] | --profile P | "
    "--profile-next P | --gate Q | --validate F | --schema NAME] [--graph FILE] [--envelope ID]\n";

const char fak_native_performance_help[] =
    "usage: fak native-performance [MODE] [MODIFIER...]\n"
    "\n"
    "The map from current baselines to the next measured optimization, and the evidence rules "
    "around it.\n"
    "Nothing here runs a model. At most one mode:\n"
    "  (none)                  the report of the graph\n"
    "  --json                  the graph as JSON\n"
    "  --next                  the next lever to measure\n"
    "  --dot                   the graph for Graphviz\n"
    "  --baseline LEVER        a receipt to fill for this lever\n"
    "  --compare B --candidate C\n"
    "                          compare a baseline with a candidate receipt\n"
    "  --attach-receipt R --system-baseline A [--out N]\n"
    "                          bind an attestation to the next repetition of a receipt\n"
    "  --profile P             which limit a profile bundle shows\n"
    "  --profile-next P        the same, and the lever it points to\n"
    "  --gate Q                judge a gate request: pass, investigate or regression\n"
    "  --validate F            check any document of this program\n"
    "  --schema NAME           print a JSON Schema: graph.v2, receipt.v1, receipt.v2, "
    "comparison.v1,\n"
    "                          gate-request.v1, gate-request.v2, gate-policy.v1, gate-policy.v2,\n"
    "                          gate-verdict.v1, bisect-packet.v1, profile.v1, bottleneck.v1,\n"
    "                          profile-next.v1, system-baseline.v1, system-baseline.v2\n"
    "Modifiers:\n"
    "  --graph FILE            use this graph instead of the built-in one\n"
    "  --envelope ID           with --next: only levers of this envelope\n"
    "  --out FILE              with --attach-receipt: write here, mode 0600, instead of standard "
    "output\n"
    "  --investigate-ok        with --gate: exit 0 for investigate\n"
    "  --sign KEY              with --validate: sign the canonical digest with an SSH key, into "
    "F.sig\n"
    "  --verify-signature ALLOWED\n"
    "                          with --validate: check F.sig against an allowed-signers file\n"
    "  --help, -h              this text\n"
    "A file name of - is standard input, once.\n"
    "\n"
    "Exit status: 0 done, gate pass; 1 refused; 2 usage; 3 gate regression; 4 gate investigate.\n";

enum {
    JSON,
    NEXT,
    DOT,
    BASELINE,
    COMPARE,
    ATTACH,
    PROFILE,
    PROFILE_NEXT,
    GATE,
    VALIDATE,
    SCHEMA,
    MODES,
    CANDIDATE = MODES,
    SYSTEM_BASELINE,
    GRAPH,
    ENVELOPE,
    OUT,
    INVESTIGATE_OK,
    SIGN,
    VERIFY_SIGNATURE,
    HELP,
    H,
    FLAGS
};

typedef struct call {
    fak_flag flag[FLAGS + 1];
    fak_io *io;
    fak_findings f;
    fak_doc graph_doc;
    fak_graph graph;
} call;

static bool on(const call *c, int i)
{
    return c->flag[i].present;
}

/* ---- usage ---- */
static void check_modes(call *c)
{
    const char *first = NULL;
    for (int i = 0; i < MODES; i++) {
        if (!on(c, i)) continue;
        if (first)
            fak_find(&c->f, "NPU-005", NULL, "--%s and --%s are two modes", first, c->flag[i].name);
        first = c->flag[i].name;
    }
    if (on(c, COMPARE) != on(c, CANDIDATE))
        fak_find(&c->f, "NPU-006", NULL, "--compare and --candidate belong together");
    if (on(c, ATTACH) != on(c, SYSTEM_BASELINE))
        fak_find(&c->f, "NPU-006", NULL, "--attach-receipt and --system-baseline belong together");
}

static void check_modifiers(call *c, int argc)
{
    static const int needs[][2] = {
        {ENVELOPE, NEXT}, {INVESTIGATE_OK, GATE}, {SIGN, VALIDATE}, {VERIFY_SIGNATURE, VALIDATE}};
    for (size_t i = 0; i < ARRAY_LEN(needs); i++)
        if (on(c, needs[i][0]) && !on(c, needs[i][1]))
            fak_find(&c->f, "NPU-007", NULL, "--%s needs --%s", c->flag[needs[i][0]].name,
                     c->flag[needs[i][1]].name);
    /* half a pair is NPU-006 already */
    if (on(c, OUT) && !on(c, ATTACH) && !on(c, SYSTEM_BASELINE))
        fak_find(&c->f, "NPU-007", NULL, "--out needs --attach-receipt");
    if (on(c, GRAPH) && on(c, SCHEMA))
        fak_find(&c->f, "NPU-007", NULL, "--graph has no use with --schema");
    if ((on(c, HELP) || on(c, H)) && argc != 1)
        fak_find(&c->f, "NPU-007", NULL, "--help stands alone");
    if (on(c, SIGN) && on(c, VERIFY_SIGNATURE))
        fak_find(&c->f, "NPU-007", NULL, "--sign and --verify-signature exclude each other");
}

static void check_values(call *c)
{
    static const int inputs[] = {COMPARE, CANDIDATE, ATTACH, SYSTEM_BASELINE, PROFILE, PROFILE_NEXT,
                                 GATE,    VALIDATE,  GRAPH};
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
        if (on(c, inputs[i])) n += strcmp(c->flag[inputs[i]].value, "-") == 0;
    if (n > 1) fak_find(&c->f, "NPU-009", NULL, "standard input can be read once");
    if (on(c, SCHEMA) && *c->flag[SCHEMA].value && !fak_document_by_name(c->flag[SCHEMA].value))
        fak_find(&c->f, "NPU-008", NULL, "there is no schema \"%s\"", c->flag[SCHEMA].value);
    if (on(c, OUT) && strcmp(c->flag[OUT].value, "-") == 0)
        fak_find(&c->f, "NPU-008", NULL, "--out names a file; leave it out for standard output");
    if ((on(c, SIGN) || on(c, VERIFY_SIGNATURE)) && on(c, VALIDATE) &&
        strcmp(c->flag[VALIDATE].value, "-") == 0)
        fak_find(&c->f, "NPU-008", NULL, "a signature belongs to a file, not to standard input");
}

/* ---- modes ---- */
static bool several_inputs(const call *c)
{
    return on(c, COMPARE) || on(c, ATTACH) || on(c, PROFILE) || on(c, PROFILE_NEXT) ||
           on(c, GATE) || on(c, VALIDATE);
}

static bool load_graph(call *c)
{
    bool ok;
    size_t before = c->f.n;
    c->f.prefix = on(c, GRAPH) && several_inputs(c) ? "graph#" : NULL;
    if (on(c, GRAPH))
        ok = fak_doc_load(&c->graph_doc, c->io, &c->f, c->flag[GRAPH].value, FAK_MAX_INPUT,
                          fak_doc_graph.type);
    else
        ok = fak_doc_parse(&c->graph_doc, &c->f, (const char *)fak_graph_data, fak_graph_data_len,
                           fak_doc_graph.type);
    if (ok && !fak_graph_init(&c->graph, c->graph_doc.root)) {
        c->f.failed = true;
        ok = false;
    }
    if (ok) fak_graph_validate(&c->graph, &c->f);
    c->f.prefix = NULL;
    return ok && c->f.n == before && !c->f.failed;
}

static bool load(call *c, fak_doc *d, int flag, const char *prefix, size_t limit,
                 const fak_type *type)
{
    c->f.prefix = prefix;
    bool ok = fak_doc_load(d, c->io, &c->f, c->flag[flag].value, limit, type);
    c->f.prefix = NULL;
    return ok;
}

static void mode_json(call *c)
{
    gem_json_doc *d = gem_json_new();
    if (d)
        gem_json_write(&c->io->out,
                       fak_shape_copy(d, NULL, NULL, fak_doc_graph.type, c->graph.root));
    if (gem_json_failed(d)) c->f.failed = true;
    gem_json_free(d);
}

static void mode_next(call *c)
{
    const char *id = on(c, ENVELOPE) ? c->flag[ENVELOPE].value : NULL;
    if (id && !fak_graph_envelope(&c->graph, id)) {
        fak_find(&c->f, "NPN-001", NULL, "there is no envelope \"%s\"", id);
        return;
    }
    fak_graph_print_next(&c->graph, fak_graph_next(&c->graph, id), &c->io->out);
}

static void mode_baseline(call *c)
{
    const gem_json *lever = fak_graph_lever(&c->graph, c->flag[BASELINE].value);
    if (!lever)
        fak_find(&c->f, "NPR-003", NULL, "there is no lever \"%s\"", c->flag[BASELINE].value);
    else
        fak_receipt_template(lever, fak_lever_envelope(&c->graph, lever), &c->io->out);
}

static void mode_compare(call *c)
{
    fak_doc b, k;
    bool ok_b = load(c, &b, COMPARE, "baseline#", FAK_MAX_INPUT, &fak_type_receipt);
    bool ok_k = load(c, &k, CANDIDATE, "candidate#", FAK_MAX_INPUT, &fak_type_receipt);
    c->f.prefix = "baseline#";
    if (ok_b) fak_receipt_validate(&c->graph, b.root, 0, &c->f);
    c->f.prefix = "candidate#";
    if (ok_k) fak_receipt_validate(&c->graph, k.root, 0, &c->f);
    if (ok_b && ok_k) fak_receipt_compare(b.root, k.root, &c->io->out, &c->f);
    fak_doc_free(&b);
    fak_doc_free(&k);
}

static void mode_attach(call *c)
{
    fak_doc r, a;
    const char *out = on(c, OUT) ? c->flag[OUT].value : NULL;
    if (out && (c->io->same(c->io, out, c->flag[ATTACH].value) ||
                c->io->same(c->io, out, c->flag[SYSTEM_BASELINE].value)))
        fak_find(&c->f, "NPA-004", NULL, "--out is one of the inputs");
    bool ok_r = load(c, &r, ATTACH, "receipt#", FAK_MAX_INPUT, &fak_type_receipt);
    bool ok_a =
        load(c, &a, SYSTEM_BASELINE, "attestation#", FAK_MAX_ATTESTATION, &fak_type_baseline);
    gem_bytes text = {0};
    if (ok_r && ok_a && fak_receipt_attach(&c->graph, r.root, a.root, &text, &c->f) && !c->f.n) {
        gem_error err;
        c->f.prefix = NULL;
        if (!out)
            gem_bytes_put(&c->io->out, text.data, text.len);
        else if (c->io->write(c->io, out, text.data, text.len, &err) != GEM_OK)
            fak_find(&c->f, "NPI-002", NULL, "%s", err.text);
        if (!c->f.n && fak_attestation_hashing(a.root) == FAK_HASH_UPSTREAM)
            gem_bytes_printf(&c->io->err, "%s: attestation hashing=upstream\n", program);
    }
    gem_bytes_free(&text);
    fak_doc_free(&r);
    fak_doc_free(&a);
}

static void mode_profile(call *c, int flag)
{
    fak_doc p;
    if (load(c, &p, flag, NULL, FAK_MAX_INPUT, fak_doc_profile.type)) {
        if (flag == PROFILE)
            fak_profile_classify(&c->graph, p.root, &c->io->out, &c->f);
        else
            fak_profile_next(&c->graph, p.root, &c->io->out, &c->f);
    }
    fak_doc_free(&p);
}

/* The shape of a gate request follows its schema; an unknown one is read as v2 and refused by
 * NPQ-001. */
static const fak_document *request_document(const gem_json *root)
{
    return gem_json_is(gem_json_get(root, "schema"), fak_doc_request_v1.schema)
               ? &fak_doc_request_v1
               : &fak_doc_request_v2;
}

static int mode_gate(call *c)
{
    fak_doc q;
    fak_gate_class class = FAK_GATE_REFUSED;
    if (load(c, &q, GATE, NULL, FAK_MAX_INPUT, NULL)) {
        size_t before = c->f.n;
        fak_shape_check(&c->f, request_document(q.root)->type, q.root);
        if (c->f.n == before) class = fak_gate(&c->graph, q.root, &c->io->out, &c->f);
    }
    fak_doc_free(&q);
    if (class == FAK_GATE_REGRESSION) return 3;
    return class == FAK_GATE_INVESTIGATE && !on(c, INVESTIGATE_OK) ? 4 : 0;
}

static void mode_validate(call *c)
{
    fak_doc d;
    const char *path = c->flag[VALIDATE].value;
    char digest[FAK_DIGEST_SIZE];
    if (load(c, &d, VALIDATE, NULL, FAK_MAX_INPUT, NULL)) {
        const fak_document *kind = fak_validate_document(&c->graph, &d, &c->f);
        bool ok = kind != NULL;
        if (ok && on(c, SIGN)) ok = fak_sign(path, c->flag[SIGN].value, d.root, &c->f);
        if (ok && on(c, VERIFY_SIGNATURE))
            ok = fak_verify_signature(path, c->flag[VERIFY_SIGNATURE].value, d.root, &c->f);
        if (ok && fak_digest_bytes(digest, d.raw.data, d.raw.len))
            gem_bytes_printf(&c->io->out, "VALID %s %s%s\n", kind->schema, digest,
                             on(c, VERIFY_SIGNATURE) ? " signature=good"
                             : on(c, SIGN)           ? " signature=written"
                                                     : "");
        else if (ok)
            c->f.failed = true;
    }
    fak_doc_free(&d);
}

static int run_mode(call *c)
{
    if (on(c, SCHEMA)) {
        fak_schema_write(&c->io->out, fak_document_by_name(c->flag[SCHEMA].value));
        return 0;
    }
    if (!load_graph(c)) return 1;
    if (on(c, JSON))
        mode_json(c);
    else if (on(c, NEXT))
        mode_next(c);
    else if (on(c, DOT))
        fak_graph_dot(&c->graph, &c->io->out);
    else if (on(c, BASELINE))
        mode_baseline(c);
    else if (on(c, COMPARE))
        mode_compare(c);
    else if (on(c, ATTACH))
        mode_attach(c);
    else if (on(c, PROFILE))
        mode_profile(c, PROFILE);
    else if (on(c, PROFILE_NEXT))
        mode_profile(c, PROFILE_NEXT);
    else if (on(c, GATE))
        return mode_gate(c);
    else if (on(c, VALIDATE))
        mode_validate(c);
    else
        fak_graph_human(&c->graph, &c->io->out);
    return 0;
}

int fak_native_performance(int argc, char **argv, fak_io *io)
{
    static const fak_flag_codes codes = {"NPU-001", "NPU-002", "NPU-003", "NPU-004", "NPU-008"};
    call c = {.flag = {{.name = "json"},
                       {.name = "next"},
                       {.name = "dot"},
                       {.name = "baseline", .takes_value = true},
                       {.name = "compare", .takes_value = true},
                       {.name = "attach-receipt", .takes_value = true},
                       {.name = "profile", .takes_value = true},
                       {.name = "profile-next", .takes_value = true},
                       {.name = "gate", .takes_value = true},
                       {.name = "validate", .takes_value = true},
                       {.name = "schema", .takes_value = true},
                       {.name = "candidate", .takes_value = true},
                       {.name = "system-baseline", .takes_value = true},
                       {.name = "graph", .takes_value = true},
                       {.name = "envelope", .takes_value = true},
                       {.name = "out", .takes_value = true},
                       {.name = "investigate-ok"},
                       {.name = "sign", .takes_value = true},
                       {.name = "verify-signature", .takes_value = true},
                       {.name = "help"},
                       {.name = "h"}},
              .io = io};
    int status, stop = fak_flags_parse(c.flag, argc, argv, &codes, NULL, NULL, &c.f);
    if (stop < argc || (argc && strcmp(argv[argc - 1], "--") == 0 && stop == argc))
        fak_find(&c.f, "NPU-004", NULL, "there are no positional arguments");
    check_modes(&c);
    check_modifiers(&c, argc);
    check_values(&c);
    if (c.f.n || c.f.failed) {
        status = 2;
    } else if (on(&c, HELP) || on(&c, H)) {
        gem_bytes_put(&io->out, fak_native_performance_help, strlen(fak_native_performance_help));
        status = 0;
    } else {
        status = run_mode(&c);
        if (io->out.failed) c.f.failed = true;
        if (c.f.n || c.f.failed) status = 1;
    }
    if (c.f.n || c.f.failed) {
        io->out.len = 0;
        fak_findings_print(&c.f, program, &io->err);
        if (status == 2) gem_bytes_put(&io->err, usage, strlen(usage));
    }
    fak_findings_free(&c.f);
    fak_graph_free(&c.graph);
    fak_doc_free(&c.graph_doc);
    return status;
}
