/* commands.h - the subcommands of `gem`: one file each, a table row and a main. */
#ifndef GEM_CMD_COMMANDS_H
#define GEM_CMD_COMMANDS_H

#include "cmd/cli/cli.h"

extern const cli_command gem_run_command, gem_tokenize_command, gem_inspect_command,
    gem_print_config_command, gem_pull_command, gem_logits_command, gem_serve_command,
    gem_report_command;

int gem_run_main(int argc, char **argv);
int gem_tokenize_main(int argc, char **argv);
int gem_inspect_main(int argc, char **argv);
int gem_print_config_main(int argc, char **argv);
int gem_pull_main(int argc, char **argv);
int gem_logits_main(int argc, char **argv);
int gem_serve_main(int argc, char **argv);
int gem_report_main(int argc, char **argv);

#endif
