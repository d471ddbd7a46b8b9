/* gem_metal_startup_profile.c - `gem-metal-startup-profile`: a build without Metal says so in one
 * sentence and exits with 3. */
#include "cmd/cli/cli.h"

static const cli_option options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

static const cli_command command = {
    .program = "gem-metal-startup-profile",
    .args = "[REPETITIONS]",
    .summary = "time the parts of opening the Metal backend",
    .text = "Needs a build with Metal; any other exits with 3. gem-device-info says what the "
            "devices here expose.\n",
    .min_args = 0,
    .max_args = 1,
    .option = options,
};

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    fprintf(stderr,
            "%s: The Metal backend can only be opened on a Mac, and this build has no Metal\n",
            command.program);
    return CLI_CANNOT;
}
