/* help.h - an option table as text for people, manual pages and shells. Inside cli/ and for gem's
 * main. */
#ifndef GEM_CLI_HELP_H
#define GEM_CLI_HELP_H

#include "cmd/cli/cli.h"

/* format: man, bash, zsh or fish; false for anything else. Written to stdout. */
bool cli_help_as(const cli_command *c, const char *format);
/* The same for a program made of subcommands (program is its name; sub[i].program is "NAME SUB").
 */
bool cli_help_as_tree(const char *program, const char *summary, const cli_command *const *sub,
                      size_t n_sub, const char *text, const char *format);

#endif
