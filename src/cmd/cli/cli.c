/* cli.c - option tables: parse, check ranges, print the help. */
#include "cmd/cli/cli.h"

#include "base/base.h"
#include "cmd/cli/config.h"
#include "cmd/cli/help.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

int cli_usage(const cli_command *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", c->program);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; see %s --help\n", c->program);
    return CLI_USAGE;
}

int cli_exit_code(gem_status st)
{
    switch (st) {
    case GEM_OK:
        return CLI_DONE;
    case GEM_E_ARG:
    case GEM_E_RANGE:
        return CLI_USAGE;
    case GEM_E_FORMAT:
        return CLI_FALSE;
    case GEM_E_IO:
    case GEM_E_NOMEM:
    case GEM_E_UNSUPPORTED:
        return CLI_CANNOT;
    case GEM_E_CANCELLED:
        return CLI_INTERRUPTED;
    case GEM_E_DEVICE:
        break;
    }
    return CLI_FAULT;
}

int cli_fail(const cli_command *c, const gem_error *err)
{
    fprintf(stderr, "%s: %s\n", c->program, err->text);
    return cli_exit_code(err->status);
}

/* Index of `word` in "a|b|c"; -1 when it is none of them. */
static int choice_index(const char *list, const char *word)
{
    size_t len = strlen(word);
    int i = 0;
    for (const char *p = list;; i++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, word, n) == 0) return i;
        if (!p[n]) return -1;
        p += n + 1;
    }
}

static bool parse_u64(const char *s, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)s[0])) return false;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    *out = v;
    return errno == 0 && *end == 0;
}

bool cli_set_value(const cli_option *o, const char *s, char needed[CLI_NEEDED])
{
    char *end = NULL;
    bool ranged = o->min != 0 || o->max != 0;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->value = true;
        return true;
    case CLI_TEXT:
    case CLI_CONFIG:
        *(const char **)o->value = s;
        return true;
    case CLI_INT: {
        double lo = ranged ? o->min : INT32_MIN, hi = ranged ? o->max : INT32_MAX;
        errno = 0;
        long long v = strtoll(s, &end, 10);
        snprintf(needed, CLI_NEEDED, "a whole number from %.0f to %.0f", lo, hi);
        if (errno || end == s || *end || (double)v < lo || (double)v > hi) return false;
        *(int32_t *)o->value = (int32_t)v;
        return true;
    }
    case CLI_U64:
        snprintf(needed, CLI_NEEDED, "a whole number from 0 to 2^64 - 1");
        return parse_u64(s, o->value);
    case CLI_FLOAT: {
        errno = 0;
        float v = strtof(s, &end);
        if (ranged)
            snprintf(needed, CLI_NEEDED, "a number from %g to %g", o->min, o->max);
        else
            snprintf(needed, CLI_NEEDED, "a number");
        if (end == s || *end || !isfinite(v) || (ranged && (v < o->min || v > o->max)))
            return false;
        *(float *)o->value = v;
        return true;
    }
    case CLI_CHOICE: {
        int i = choice_index(o->arg, s);
        snprintf(needed, CLI_NEEDED, "one of %s", o->arg);
        if (i < 0) return false;
        *(int *)o->value = i;
        return true;
    }
    }
    return false;
}

/* Returns -1 when the value is good, otherwise the usage exit code. */
static int set_value(const cli_command *c, const cli_option *o, const char *s)
{
    char needed[CLI_NEEDED];
    if (cli_set_value(o, s, needed)) return -1;
    return cli_usage(c, "--%s %s: %s is needed", o->name, s, needed);
}

enum { MAX_OPTIONS = 64, OPT_BASE = 1000, OPT_HELP = 900, OPT_HELP_AS };

/* getopt's two tables from ours; returns the number of options. */
static int build_tables(const cli_command *c, struct option *longs, char *shorts)
{
    int n = 0, s = 0;
    shorts[s++] = ':'; /* tell a missing value from an unknown option */
    for (; c->option[n].name && n < MAX_OPTIONS; n++) {
        const cli_option *o = &c->option[n];
        longs[n] = (struct option){o->name, o->kind == CLI_FLAG ? no_argument : required_argument,
                                   NULL, OPT_BASE + n};
        if (o->letter) {
            shorts[s++] = o->letter;
            if (o->kind != CLI_FLAG) shorts[s++] = ':';
        }
    }
    longs[n] = (struct option){"help", no_argument, NULL, OPT_HELP};
    longs[n + 1] = (struct option){"help-as", required_argument, NULL, OPT_HELP_AS};
    longs[n + 2] = (struct option){NULL, 0, NULL, 0};
    shorts[s++] = 'h';
    shorts[s] = 0;
    return n;
}

/* The file that the command line names, if the command has such an option; what is wrong on the
 * command line is told when it is parsed. Returns -1 to go on. */
static int read_config(const cli_command *c, int argc, char **argv, char **arg)
{
    struct option longs[MAX_OPTIONS + 3];
    char shorts[2 * MAX_OPTIONS + 4];
    const char *path = NULL;
    gem_error err;
    build_tables(c, longs, shorts);
    opterr = 0;
    optind = 0;
    for (int ch; (ch = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (ch == 'h' || ch == OPT_HELP || ch == OPT_HELP_AS || ch == ':' || ch == '?') return -1;
        if (ch >= OPT_BASE && c->option[ch - OPT_BASE].kind == CLI_CONFIG) path = optarg;
    }
    if (!path || cli_config_read(c, path, arg, &err) == GEM_OK) return -1;
    return cli_fail(c, &err);
}

int cli_parse(const cli_command *c, int argc, char **argv, char ***args, int *n_args)
{
    static char *config_arg[1];
    struct option longs[MAX_OPTIONS + 3];
    char shorts[2 * MAX_OPTIONS + 4];
    int n = build_tables(c, longs, shorts);
    config_arg[0] = NULL;
    int bad = read_config(c, argc, argv, config_arg);
    if (bad >= 0) return bad;
    opterr = 0;
    optind = 0; /* start over: a program may parse twice (gem, then its subcommand) */
    for (int ch; (ch = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const cli_option *o = NULL;
        if (ch == 'h' || ch == OPT_HELP) {
            cli_help(c, stdout);
            return cli_flush(c);
        }
        if (ch == OPT_HELP_AS)
            return cli_help_as(c, optarg)
                       ? cli_flush(c)
                       : cli_usage(c, "--help-as %s: man, bash, zsh or fish", optarg);
        if (ch == ':') return cli_usage(c, "%s needs a value", argv[optind - 1]);
        if (ch == '?') {
            if (optopt &&
                optopt < OPT_HELP) /* a letter; long options leave 0 or their own number */
                return cli_usage(c, "there is no option -%c", optopt);
            return cli_usage(c, "%s is no option, is ambiguous, or takes no value",
                             argv[optind - 1]);
        }
        for (int i = 0; i < n; i++)
            if (ch == OPT_BASE + i || (c->option[i].letter && ch == c->option[i].letter))
                o = &c->option[i];
        if (!o) return cli_usage(c, "unknown option");
        int code = set_value(c, o, optarg);
        if (code >= 0) return code;
        if (o->seen) *o->seen = true;
    }
    *args = argv + optind;
    *n_args = argc - optind;
    if (*n_args == 0 && config_arg[0]) {
        *args = config_arg;
        *n_args = 1;
    }
    if (*n_args < c->min_args)
        return cli_usage(c, "%s is needed", *n_args == 0 ? c->args : "one more argument");
    if (*n_args > c->max_args)
        return cli_usage(c, "'%s' is one argument too many", argv[optind + c->max_args]);
    return -1;
}

int cli_flush(const cli_command *c)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_DONE;
    fprintf(stderr, "%s: standard output: %s\n", c->program, strerror(errno));
    return CLI_FAULT;
}

int cli_print_json(const cli_command *c, json_t *doc)
{
    if (!doc) {
        fprintf(stderr, "%s: no memory for the answer\n", c->program);
        return CLI_FAULT;
    }
    int bad = json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(doc);
    putchar('\n');
    if (bad) {
        fprintf(stderr, "%s: the answer could not be written\n", c->program);
        return CLI_FAULT;
    }
    return cli_flush(c);
}

void cli_log(void *verbose, gem_log_level level, const char *text)
{
    if (level > GEM_LOG_WARN && !(verbose && *(bool *)verbose)) return;
    fprintf(stderr, "%s%s\n", level == GEM_LOG_WARN ? "warning: " : "", text);
}

/* ---- Ctrl-C ---- */
volatile sig_atomic_t cli_interrupted;

static void on_interrupt(int sig)
{
    cli_interrupted = 1;
    signal(sig, SIG_DFL); /* the second one means it */
}

void cli_clear_interrupt(void)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof(sa));
    sa.sa_handler = on_interrupt; /* no SA_RESTART: a read at the prompt must return */
    sigemptyset(&sa.sa_mask);
    cli_interrupted = 0;
    sigaction(SIGINT, &sa, NULL);
}

void cli_catch_interrupt(void)
{
    cli_clear_interrupt();
}
