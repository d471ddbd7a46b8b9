/* gem_kernel_bench.c - `gem-kernel-bench`: the product of one row with a quantised matrix, alone.
 * One JSON document on stdout with every sample; it can guide, never promote. */
#include "cmd/cli/operator.h"

static struct {
    cli_linear_flags linear;
    int buffer_mode;
} opt = {.linear = {.quant = "q4_0",
                    .input = 3840,
                    .output = 15360,
                    .slots = 1,
                    .span = 1,
                    .iterations = 200,
                    .repetitions = 3},
         .buffer_mode = 1};

static const cli_option options[] = {
    {"buffer-mode", 0, CLI_CHOICE, "copy|persistent", &opt.buffer_mode, 0, 0,
     "copy: weights stay as a file has them, each product brings them into the kernel's layout; "
     "persistent (default): that was done once",
     NULL},
    CLI_LINEAR_OPTIONS(&opt.linear, "3840", "15360", "1", "1", "200", "3"),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-kernel-bench",
    .args = "",
    .summary = "measure the product of one row with a quantised matrix",
    .text =
        "The matrices are made up, take TMPDIR while they are loaded, and run through the same "
        "plan and\n"
        "code as a model's. Exit 1 when two runs give other bits.\n"
        "\n"
        "  gem-kernel-bench --input 3840 --output 15360 --matrix-slots 8 --command-span 336 \\\n"
        "      --warmup 3360 --iterations 3360 --repetitions 7\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

int main(int argc, char **argv)
{
    char **args;
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    return cli_linear_run(&command, &opt.linear, NULL, 1, opt.buffer_mode == 0);
}
