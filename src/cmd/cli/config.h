/* config.h - inside of src/cmd/cli: what the command line and configuration files share. */
#ifndef GEM_CLI_CONFIG_H
#define GEM_CLI_CONFIG_H

#include "cmd/cli/cli.h"

enum { CLI_NEEDED = 256 };
/* Set an option from text, which is kept for CLI_TEXT. False: `needed` says what was expected, as
 * "a whole number from 1 to 5". */
bool cli_set_value(const cli_option *o, const char *s, char needed[CLI_NEEDED]);

#endif
