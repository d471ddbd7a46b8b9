/* gem_kernel_bench.c - `gem-kernel-bench`: the product of one row with a quantised matrix, alone.
 * One JSON document on stdout with every sample; it can guide, never promote. */
#include "base/base.h"
#include "bench/linear_bench.h"
#include "cmd/cli/measure.h"

static struct {
    cli_operator_flags op;
    int buffer_mode;
    const char *quant;
    int32_t input, output, slots, span, warmup, iterations, repetitions;
    bool warmup_seen;
} opt = {.buffer_mode = 1,
         .quant = "q4_0",
         .input = 3840,
         .output = 15360,
         .slots = 1,
         .span = 1,
         .iterations = 200,
         .repetitions = 3};

static const cli_option options[] = {
    {"buffer-mode", 0, CLI_CHOICE, "copy|persistent", &opt.buffer_mode, 0, 0,
     "copy: weights stay as a file has them, each product brings them into the kernel's layout; "
     "persistent (default): that was done once",
     NULL},
    {"input", 0, CLI_INT, "N", &opt.input, 32, 1 << 20, "values of a row; default 3840", NULL},
    {"output", 0, CLI_INT, "N", &opt.output, 32, 1 << 20, "rows of a matrix; default 15360", NULL},
    {"quant", 'q', CLI_TEXT, "TYPE", &opt.quant, 0, 0, "type of the matrices; default q4_0", NULL},
    {"matrix-slots", 0, CLI_INT, "N", &opt.slots, 1, 1024,
     "matrices of their own memory, used in turn; default 1", NULL},
    {"command-span", 0, CLI_INT, "N", &opt.span, 1, 65536,
     "products of one submission to the device; default 1", NULL},
    {"warmup", 'w', CLI_INT, "N", &opt.warmup, 0, INT32_MAX,
     "untimed products, rounded up to whole submissions; default a tenth of the iterations",
     &opt.warmup_seen},
    {"iterations", 'n', CLI_INT, "N", &opt.iterations, 1, INT32_MAX,
     "products of a timed run: a multiple of --command-span; default 200", NULL},
    {"repetitions", 'r', CLI_INT, "N", &opt.repetitions, 1, 100000, "timed runs; default 3", NULL},
    CLI_OPERATOR_OPTIONS(&opt.op),
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

static bool on_run(void *user, const char *arm, int round, uint64_t ns)
{
    (void)user;
    fprintf(stderr, "%s %3d/%-3d %9.1f ms\n", arm, round + 1, opt.repetitions, (double)ns * 1e-6);
    return !cli_interrupted;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    json_t *doc = NULL;
    bool same = true;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    const gem_dtype_info *type = gem_dtype_by_name(opt.quant);
    if (!type) return cli_usage(&command, "--quant: there is no type '%s'", opt.quant);
    if (opt.input % 32 || (uint32_t)opt.input % type->block_len || opt.output % 32)
        return cli_usage(&command, "--input and --output must be multiples of 32, and the input of "
                                   "the type's blocks");
    if (opt.iterations % opt.span)
        return cli_usage(&command, "--iterations %d is no multiple of --command-span %d",
                         opt.iterations, opt.span);
    if (!opt.warmup_seen) opt.warmup = (opt.iterations + 9) / 10;
    cli_operator_finish(&opt.op);
    cli_catch_interrupt();
    const bench_linear_options lo = {
        .program = command.program,
        .op = {.backend = opt.op.backend,
               .isa = opt.op.isa,
               .n_threads = opt.op.threads,
               .rows = 1,
               .tmp_dir = cli_tmp_dir()},
        .linear = {opt.input, opt.output, opt.slots, opt.span, type->dtype},
        .copy = opt.buffer_mode == 0,
        .warmup = opt.warmup,
        .iterations = opt.iterations,
        .repetitions = opt.repetitions,
        .progress = on_run,
    };
    if (bench_linear_measure(&lo, &doc, &same, &err) != GEM_OK) return cli_fail(&command, &err);
    code = cli_print_json(&command, doc);
    return code == CLI_DONE && !same ? CLI_FALSE : code;
}
