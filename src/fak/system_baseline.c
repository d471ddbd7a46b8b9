/* system_baseline.c - the command `fak bench system-baseline`: usage, --verify, and one attested
 * run. */
#include "fak/attestation.h"
#include "fak/baseline_run.h"
#include "fak/fak.h"
#include "fak/flags.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char program[] = "fak bench system-baseline";
static const char usage[] = "usage: fak bench system-baseline [FLAG...] -- COMMAND [ARG...] | "
                            "--verify FILE [--require-clean]\n";

const char fak_system_baseline_help[] =
    "usage: fak bench system-baseline [FLAG...] -- COMMAND [ARG...]\n"
    "       fak bench system-baseline --verify FILE [--require-clean]\n"
    "\n"
    "Run one benchmark repetition and attest how busy the host was before and while it ran. The "
    "attestation\n"
    "goes to standard output and, with --out, to a file of mode 0600; the command's own output "
    "goes to\n"
    "standard error. It qualifies a measurement and never corrects one.\n"
    "  --baseline-duration D   watch the host this long before the command (1s; 10ms..60s)\n"
    "  --interval D            time between samples (250ms; 10ms..10s)\n"
    "  --timeout D             end the command after this time, exit 124 (0: never; at most 24h)\n"
    "  --out FILE              write the attestation here too\n"
    "  --max-non-sut-cpu-percent X\n"
    "                          investigate above this CPU use of others (20; up to 100)\n"
    "  --max-sampler-duty-percent X\n"
    "                          investigate above this cost of sampling (10; up to 100)\n"
    "  --require-process-memory\n"
    "                          investigate when memory cannot be attributed\n"
    "  --top-consumers         name up to five other processes (local evidence: never attach it)\n"
    "  --attestation v1|v2     v2 adds control group, pressure, wait4 and GPU axes (v1)\n"
    "  --pass-stdout           with --out: the command's standard output goes to ours\n"
    "  --verify FILE           check a retained attestation\n"
    "  --require-clean         with --verify: exit 4 unless the verdict is clean\n"
    "  --help, -h              this text\n"
    "Durations: 250ms, 1.5s, 1m30s; units ns us ms s m h.\n"
    "\n"
    "Exit status: the command's own; 128+N when signal N ended it; 124 timeout; 125 this program "
    "failed;\n"
    "126 not executable; 127 not found; 2 usage. --verify: 0 valid, 1 not, 4 valid but not "
    "clean.\n";

enum {
    BASELINE_DURATION,
    INTERVAL,
    TIMEOUT,
    OUT,
    MAX_NON_SUT,
    MAX_DUTY,
    REQUIRE_MEMORY,
    TOP,
    ATTESTATION,
    PASS_STDOUT,
    VERIFY,
    REQUIRE_CLEAN,
    HELP,
    H,
    FLAGS
};

/* ([0-9]+(.[0-9]+)?(ns|us|ms|s|m|h))+ or a bare 0, into nanoseconds. */
static bool duration(const char *s, uint64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
    double sum = 0;
    *ns = 0;
    if (strcmp(s, "0") == 0) return true;
    if (!*s) return false;
    while (*s) {
        double v = 0, scale = 1;
        size_t best = ARRAY_LEN(units);
        if (!isdigit((unsigned char)*s)) return false;
        for (; isdigit((unsigned char)*s); s++)
            v = v * 10 + (*s - '0');
        if (*s == '.') {
            if (!isdigit((unsigned char)*++s)) return false;
            for (; isdigit((unsigned char)*s); s++)
                v += (*s - '0') * (scale /= 10);
        }
        for (size_t i = 0; i < ARRAY_LEN(units); i++)
            if (strncmp(s, units[i].unit, strlen(units[i].unit)) == 0 &&
                (best == ARRAY_LEN(units) || strlen(units[i].unit) > strlen(units[best].unit)))
                best = i;
        if (best == ARRAY_LEN(units)) return false;
        s += strlen(units[best].unit);
        sum += v * units[best].ns;
    }
    if (sum > 1e18) return false;
    *ns = (uint64_t)(sum + 0.5);
    return true;
}

static void take_duration(const fak_flag *g, uint64_t *ns, uint64_t low, uint64_t high, bool zero,
                          fak_findings *f)
{
    uint64_t v;
    if (!g->present || !*g->value) return;
    if (!duration(g->value, &v) || ((v < low || v > high) && !(zero && v == 0)))
        fak_find(f, "SBU-003", NULL, "--%s %s is no duration in its range", g->name, g->value);
    else
        *ns = v;
}

static void take_percent(const fak_flag *g, double *percent, fak_findings *f)
{
    if (!g->present || !*g->value) return;
    size_t n = strspn(g->value, "0123456789.");
    const char *point = strchr(g->value, '.');
    double v = atof(g->value);
    if (g->value[n] || (point && strchr(point + 1, '.')) || !(v > 0 && v <= 100))
        fak_find(f, "SBU-003", NULL, "--%s %s is not above 0 and at most 100", g->name, g->value);
    else
        *percent = v;
}

static void take_options(const fak_flag *flag, fak_baseline_options *o, fak_findings *f)
{
    const uint64_t ms = 1000000, s = 1000 * ms;
    *o = (fak_baseline_options){.baseline_ns = s,
                                .interval_ns = 250 * ms,
                                .max_non_sut_percent = 20,
                                .max_duty_percent = 10};
    take_duration(&flag[BASELINE_DURATION], &o->baseline_ns, 10 * ms, 60 * s, false, f);
    take_duration(&flag[INTERVAL], &o->interval_ns, 10 * ms, 10 * s, false, f);
    take_duration(&flag[TIMEOUT], &o->timeout_ns, 1, 24 * 3600 * s, true, f);
    take_percent(&flag[MAX_NON_SUT], &o->max_non_sut_percent, f);
    take_percent(&flag[MAX_DUTY], &o->max_duty_percent, f);
    o->require_memory = flag[REQUIRE_MEMORY].present;
    o->top_consumers = flag[TOP].present;
    o->pass_stdout = flag[PASS_STDOUT].present;
    const char *kind = flag[ATTESTATION].present ? flag[ATTESTATION].value : "v1";
    o->v2 = strcmp(kind, "v2") == 0;
    if (!o->v2 && strcmp(kind, "v1") != 0 && *kind)
        fak_find(f, "SBU-003", NULL, "--attestation is v1 or v2");
    if (o->pass_stdout && !flag[OUT].present)
        fak_find(f, "SBU-005", NULL, "--pass-stdout needs --out");
}

/* ---- verify ---- */
static int verify(const fak_flag *flag, fak_io *io, fak_findings *f)
{
    fak_doc d;
    int status = 1;
    if (fak_doc_load(&d, io, f, flag[VERIFY].value, FAK_MAX_ATTESTATION, &fak_type_baseline)) {
        fak_attestation_validate(d.root, f);
        fak_hashing hashing = fak_attestation_hashing(d.root);
        /* retained byte for byte: also a changed blank shows */
        if (hashing == FAK_HASH_RFC8785 &&
            !fak_attestation_as_written(d.root, d.raw.data, d.raw.len))
            fak_find(f, "SBV-003", NULL,
                     "the bytes are not those that were written for this document");
        if (!f->n && !f->failed) {
            const char *verdict = fak_str(d.root, "verdict");
            gem_bytes_printf(&io->out, "VALID %s verdict=%s%s\n", fak_str(d.root, "digest"),
                             verdict, hashing == FAK_HASH_UPSTREAM ? " hashing=upstream" : "");
            status = flag[REQUIRE_CLEAN].present && strcmp(verdict, "clean") != 0 ? 4 : 0;
        }
    }
    fak_doc_free(&d);
    return status;
}

/* ---- run ---- */
static int run(const fak_flag *flag, const fak_baseline_options *o, fak_io *io, fak_findings *f)
{
    fak_probe probe;
    fak_baseline_run r;
    char digest[FAK_DIGEST_SIZE] = "";
    const char *verdict = "";
    gem_bytes text = {0};
    gem_error err;
    int status = 125;
    fak_probe_system(&probe);
    fak_baseline_execute(o, &probe, &r);
    if (r.failure) {
        fak_find(f, "NPI-001", NULL, "%s", r.failure);
    } else if (r.spawn_error) {
        gem_bytes_printf(&io->err, "%s: %s: %s\n", program, o->argv[0], strerror(r.spawn_error));
        status = r.spawn_error == ENOENT || r.spawn_error == ENOTDIR ? 127 : 126;
    } else if (!fak_baseline_write(o, &r, &text, digest, &verdict)) {
        fak_find(f, "NPI-001", NULL, "out of memory");
    } else if (flag[OUT].present &&
               io->write(io, flag[OUT].value, text.data, text.len, &err) != GEM_OK) {
        fak_find(f, "NPI-002", NULL, "%s", err.text);
    } else {
        status = r.exit_code;
        if (!o->pass_stdout) gem_bytes_put(&io->out, text.data, text.len);
        gem_bytes_printf(&io->err, "%s: verdict=%s digest=%s child_exit=%d\n", program, verdict,
                         digest, r.exit_code);
    }
    gem_bytes_free(&text);
    fak_baseline_run_free(&r);
    return status;
}

int fak_system_baseline(int argc, char **argv, fak_io *io)
{
    static const fak_flag_codes codes = {"SBU-004", "SBU-004", "SBU-004", "SBU-001", "SBU-004"};
    fak_flag flag[FLAGS + 1] = {{.name = "baseline-duration", .takes_value = true},
                                {.name = "interval", .takes_value = true},
                                {.name = "timeout", .takes_value = true},
                                {.name = "out", .takes_value = true},
                                {.name = "max-non-sut-cpu-percent", .takes_value = true},
                                {.name = "max-sampler-duty-percent", .takes_value = true},
                                {.name = "require-process-memory"},
                                {.name = "top-consumers"},
                                {.name = "attestation", .takes_value = true},
                                {.name = "pass-stdout"},
                                {.name = "verify", .takes_value = true},
                                {.name = "require-clean"},
                                {.name = "help"},
                                {.name = "h"}};
    fak_findings f = {0};
    fak_baseline_options o;
    int status = 2, rest = fak_flags_parse(flag, argc, argv, &codes, NULL, NULL, &f);
    bool sampling = false,
         separator = rest > 0 && rest <= argc && strcmp(argv[rest - 1], "--") == 0;
    for (int i = 0; i < VERIFY; i++)
        sampling |= flag[i].present;
    take_options(flag, &o, &f);
    o.argv = argv + rest;
    bool help = flag[HELP].present || flag[H].present;
    if (help && argc != 1) fak_find(&f, "SBU-004", NULL, "--help stands alone");
    if (flag[VERIFY].present && (sampling || separator))
        fak_find(&f, "SBU-002", NULL, "--verify takes neither a command nor sampling flags");
    if (flag[REQUIRE_CLEAN].present && !flag[VERIFY].present)
        fak_find(&f, "SBU-002", NULL, "--require-clean needs --verify");
    if (!help && !flag[VERIFY].present && (!separator || rest >= argc))
        fak_find(&f, "SBU-001", NULL, "a command is needed behind --");
    if (!f.n && !f.failed) {
        if (help) {
            gem_bytes_put(&io->out, fak_system_baseline_help, strlen(fak_system_baseline_help));
            status = 0;
        } else {
            status = flag[VERIFY].present ? verify(flag, io, &f) : run(flag, &o, io, &f);
        }
    }
    if (f.n || f.failed) {
        io->out.len = 0;
        fak_findings_print(&f, program, &io->err);
        if (status == 2) gem_bytes_put(&io->err, usage, strlen(usage));
    }
    fak_findings_free(&f);
    return status;
}
