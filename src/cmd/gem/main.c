/* main.c - `gem`: pick the subcommand. */
#include "base/base.h"
#include "cmd/cli/help.h"
#include "cmd/gem/commands.h"
#include "gem_build.h"

static const struct {
    const char *name;
    const cli_command *command;
    int (*main)(int argc, char **argv);
} commands[] = {
    {"run", &gem_run_command, gem_run_main},
#ifdef GEM_HAVE_SERVER
    {"serve", &gem_serve_command, gem_serve_main},
#endif
    {"pull", &gem_pull_command, gem_pull_main},
    {"inspect", &gem_inspect_command, gem_inspect_main},
    {"tokenize", &gem_tokenize_command, gem_tokenize_main},
    {"print-config", &gem_print_config_command, gem_print_config_main},
    {"logits", &gem_logits_command, gem_logits_main},
    {"report", &gem_report_command, gem_report_main},
};

static const char summary[] = "run large language models on this machine";
static const char text[] =
    "MODEL is the path of a GGUF file, or a name that 'gem pull' has fetched (gemma-3-270m,\n"
    "qwen2.5-coder-0.5b, qwen2.5-coder-1.5b). Answers go to stdout, progress and errors to "
    "stderr.\n"
    "Exit codes: 0 done, 1 checked and it does not hold, 2 usage, 3 cannot run here, 4 fault.\n"
    "\n"
    "  gem pull qwen2.5-coder-0.5b\n"
    "  gem run qwen2.5-coder-0.5b\n"
    "  gem run gemma-3-270m -p \"The capital of France is\" -n 20\n";

static void print_help(FILE *out)
{
    fprintf(out, "usage: gem COMMAND [options] ...\n\n%s\n\ncommands:\n", summary);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].command->summary);
    fprintf(out, "  %-14s %s\n", "help COMMAND", "options of a command");
    fprintf(out, "\n%s\n", text);
}

static int find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].name, name) == 0) return (int)i;
    return -1;
}

static int no_such_command(const char *name)
{
    fprintf(stderr, "gem: there is no command '%s'; see gem --help\n", name);
    return CLI_USAGE;
}

static int help_as(const char *format)
{
    const cli_command *list[ARRAY_LEN(commands)];
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        list[i] = commands[i].command;
    if (cli_help_as_tree("gem", summary, list, ARRAY_LEN(list), text, format)) return CLI_DONE;
    fprintf(stderr, "gem: --help-as %s: man, bash, zsh or fish\n", format);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || (!strcmp(name, "help") && argc == 2)) {
        print_help(stdout);
        return CLI_DONE;
    }
    if (!strcmp(name, "--version")) {
        printf("gem %s (%s, %s)\n", gem_version(), GEM_BUILD_COMMIT, GEM_BUILD_SYSTEM);
        return CLI_DONE;
    }
    if (!strcmp(name, "--help-as") && argc == 3) return help_as(argv[2]);
    if (!strcmp(name, "help")) {
        int i = find(argv[2]);
        if (i < 0) return no_such_command(argv[2]);
        cli_help(commands[i].command, stdout);
        return CLI_DONE;
    }
    int i = find(name);
    return i < 0 ? no_such_command(name) : commands[i].main(argc - 1, argv + 1);
}
