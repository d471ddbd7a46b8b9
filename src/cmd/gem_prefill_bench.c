/* gem_prefill_bench.c - `gem-prefill-bench`: the product of the rows of a verification with a
 * quantised matrix, alone, over a working set that no cache holds. One JSON document on stdout; a
 * diagnostic of caches, never a source of promotion. */
#include "cmd/cli/operator.h"

static struct {
    cli_linear_flags linear;
    const char *kernel;
    int32_t rows;
} opt = {.linear = {.quant = "q4_0",
                    .input = 5376,
                    .output = 21504,
                    .slots = 4,
                    .span = 7,
                    .iterations = 70,
                    .repetitions = 5},
         .kernel = "verify8-4sg",
         .rows = 8};

static const cli_option options[] = {
    {"kernel", 'k', CLI_TEXT, "NAME", &opt.kernel, 0, 0, "route; default verify8-4sg", NULL},
    {"batch-rows", 'b', CLI_INT, "N", &opt.rows, 1, 4096, "rows of a product; default 8", NULL},
    CLI_LINEAR_OPTIONS(&opt.linear, "5376", "21504", "4", "7", "70", "5"),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-prefill-bench",
    .args = "",
    .summary = "measure the product of a few rows with a quantised matrix",
    .text = "As gem-kernel-bench, and its record is of the same kind. The record names the code "
            "that ran for\n"
            "the kernel asked for.\n"
            "\n"
            "  gem-prefill-bench --kernel verify8-4sg --batch-rows 8 --matrix-slots 4 "
            "--command-span 7 \\\n"
            "      --iterations 70 --repetitions 5\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

int main(int argc, char **argv)
{
    char **args;
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (!cli_route(&command, "--kernel", "linear", opt.kernel, "", &code)) return code;
    return cli_linear_run(&command, &opt.linear, opt.kernel, opt.rows, false);
}
