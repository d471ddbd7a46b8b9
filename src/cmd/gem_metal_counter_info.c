/* gem_metal_counter_info.c - `gem-metal-counter-info`: a build without Metal says so in one
 * sentence and exits with 3. */
#include "cmd/cli/cli.h"

static const cli_option options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

static const cli_command command = {
    .program = "gem-metal-counter-info",
    .args = "",
    .summary = "list the counter sets and sampling boundaries of the Metal device",
    .text = "Needs a build with Metal; any other exits with 3. gem-device-info says what the "
            "devices here expose.\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    fprintf(
        stderr,
        "%s: Counters of a Metal device can only be asked on a Mac, and this build has no Metal\n",
        command.program);
    return CLI_CANNOT;
}
