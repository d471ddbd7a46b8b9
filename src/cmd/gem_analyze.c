/* gem_analyze.c - `gem-analyze`: every judgement over retained files, one subcommand each. The
 * judging is in src/evidence; here documents are read, reports written and exit codes chosen. */
#include "base/base.h"
#include "cmd/analyze/analyze.h"
#include "cmd/cli/help.h"
#include "gem_build.h"

#include <stdlib.h>

static const char summary[] = "judge benchmark and evidence files";
static const char text[] =
    "Reports are JSON, on stdout or in OUT.json. Each lists its checks: the rule, what it "
    "requires,\n"
    "what was observed, and whether it holds; refusals are also named on stderr.\n"
    "Exit codes: 0 it holds, 1 refused, 2 usage, 3 a file cannot be read, 4 fault.\n";

static const struct {
    const cli_command *command;
    int (*main)(int argc, char **argv);
} others[] = {
    {&analyze_stats_command, analyze_stats_main},
    {&analyze_compare_command, analyze_compare_main},
    {&analyze_simulate_command, analyze_simulate_main},
    {&analyze_split_command, analyze_split_main},
    {&analyze_stream_command, analyze_stream_main},
    {&analyze_seal_command, analyze_seal_main},
    {&analyze_audit_command, analyze_audit_main},
    {&analyze_document_command, analyze_document_main},
    {&analyze_messages_command, analyze_messages_main},
};

enum { MAX_COMMANDS = 48 };

static const char *short_name(const cli_command *c)
{
    return strrchr(c->program, ' ') + 1;
}

static size_t all_commands(const cli_command *list[MAX_COMMANDS])
{
    size_t n = 0;
    for (const analysis *a = analyses; a->schema; a++)
        list[n++] = &a->command;
    for (const folder_analysis *a = folder_analyses; a->schema; a++)
        list[n++] = &a->command;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        list[n++] = others[i].command;
    return n;
}

static void print_help(FILE *out)
{
    const cli_command *list[MAX_COMMANDS];
    size_t n = all_commands(list);
    fprintf(out, "usage: gem-analyze COMMAND [options] FILE...\n\n%s\n\ncommands:\n", summary);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "  %-26s %s\n", short_name(list[i]), list[i]->summary);
    fprintf(out, "\n%s", text);
}

int analyze_write(const cli_command *c, const gem_json *root, const char *path)
{
    gem_bytes b = {0};
    gem_error err;
    int code = CLI_DONE;
    gem_json_write(&b, root);
    if (b.failed) {
        fprintf(stderr, "%s: no memory for the report\n", c->program);
        code = CLI_FAULT;
    } else if (path && strcmp(path, "-") != 0) {
        if (gem_file_write_atomic(path, b.data, b.len, &err) != GEM_OK) {
            fprintf(stderr, "%s: %s\n", c->program, err.text);
            code = CLI_FAULT;
        }
    } else {
        fwrite(b.data, 1, b.len, stdout);
        code = cli_flush(c);
    }
    gem_bytes_free(&b);
    return code;
}

enum { MAX_INPUTS = 16 };

int analysis_main(const analysis *a, int argc, char **argv)
{
    const cli_command *c = &a->command;
    char **args;
    int n_args;
    gem_error err;
    ev_doc in[MAX_INPUTS] = {{0}};
    ev_judge j;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    size_t n = (size_t)c->min_args;
    gem_status st = ev_judge_init(&j, a->schema)
                        ? GEM_OK
                        : gem_fail(&err, GEM_E_NOMEM, "no memory for the report");
    for (size_t i = 0; st == GEM_OK && i < n; i++)
        st = ev_doc_load(&in[i], args[i], &err);
    if (st == GEM_OK) ev_judge_options(&j, argv + 1, (size_t)(args - argv) - 1);
    if (st == GEM_OK) st = a->judge(&j, in, &err);
    if (st == GEM_OK) {
        ev_judge_finish(&j, a->yes);
        code = gem_json_failed(j.json) ? CLI_FAULT
                                       : analyze_write(c, j.root, n_args > (int)n ? args[n] : NULL);
        if (code == CLI_DONE && !ev_holds(&j)) {
            if (j.refusals.data) fputs(j.refusals.data, stderr);
            code = CLI_FALSE;
        }
    } else {
        code = cli_fail(c, &err);
    }
    for (size_t i = 0; i < n; i++)
        ev_doc_free(&in[i]);
    ev_judge_free(&j);
    return code;
}

int folder_analysis_main(const folder_analysis *a, int argc, char **argv)
{
    const cli_command *c = &a->command;
    char **args;
    int n_args;
    gem_error err;
    ev_judge j;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (!ev_judge_init(&j, a->schema)) return CLI_CANNOT;
    ev_judge_options(&j, argv + 1, (size_t)(args - argv) - 1);
    gem_status st = a->judge(&j, args[0], &err);
    if (st == GEM_OK) {
        ev_judge_finish(&j, a->yes);
        code = gem_json_failed(j.json) ? CLI_FAULT
                                       : analyze_write(c, j.root, n_args > 1 ? args[1] : NULL);
        if (code == CLI_DONE && !ev_holds(&j)) {
            if (j.refusals.data) fputs(j.refusals.data, stderr);
            code = CLI_FALSE;
        }
    } else {
        code = cli_fail(c, &err);
    }
    ev_judge_free(&j);
    return code;
}

static int run(const char *name, int argc, char **argv)
{
    for (const analysis *a = analyses; a->schema; a++)
        if (strcmp(short_name(&a->command), name) == 0) return analysis_main(a, argc, argv);
    for (const folder_analysis *a = folder_analyses; a->schema; a++)
        if (strcmp(short_name(&a->command), name) == 0) return folder_analysis_main(a, argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strcmp(short_name(others[i].command), name) == 0) return others[i].main(argc, argv);
    fprintf(stderr, "gem-analyze: there is no command '%s'; see gem-analyze --help\n", name);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    const cli_command *list[MAX_COMMANDS];
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
        print_help(stdout);
        return CLI_DONE;
    }
    if (!strcmp(name, "--version")) {
        printf("gem-analyze %s (%s)\n", gem_version(), GEM_BUILD_COMMIT);
        return CLI_DONE;
    }
    if (!strcmp(name, "--help-as") && argc == 3) {
        if (cli_help_as_tree("gem-analyze", summary, list, all_commands(list), text, argv[2]))
            return CLI_DONE;
        fprintf(stderr, "gem-analyze: --help-as %s: man, bash, zsh or fish\n", argv[2]);
        return CLI_USAGE;
    }
    return run(name, argc - 1, argv + 1);
}
