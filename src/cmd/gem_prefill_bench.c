/* gem_prefill_bench.c - `gem-prefill-bench`: the product of the rows of a verification with a
 * quantised matrix, alone, over a working set that no cache holds. One JSON document on stdout; a
 * diagnostic of caches, never a source of promotion. */
#include "base/base.h"
#include "bench/linear_bench.h"
#include "cmd/cli/measure.h"

static struct {
    cli_operator_flags op;
    const char *kernel, *quant;
    int32_t rows, input, output, slots, span, warmup, iterations, repetitions;
    bool warmup_seen;
} opt = {.kernel = "verify8-4sg",
         .quant = "q4_0",
         .rows = 8,
         .input = 5376,
         .output = 21504,
         .slots = 4,
         .span = 7,
         .iterations = 70,
         .repetitions = 5};

static const cli_option options[] = {
    {"kernel", 'k', CLI_TEXT, "NAME", &opt.kernel, 0, 0, "route; default verify8-4sg", NULL},
    {"batch-rows", 'b', CLI_INT, "N", &opt.rows, 1, 4096, "rows of a product; default 8", NULL},
    {"input", 0, CLI_INT, "N", &opt.input, 32, 1 << 20, "values of a row; default 5376", NULL},
    {"output", 0, CLI_INT, "N", &opt.output, 32, 1 << 20, "rows of a matrix; default 21504", NULL},
    {"quant", 'q', CLI_TEXT, "TYPE", &opt.quant, 0, 0, "type of the matrices; default q4_0", NULL},
    {"matrix-slots", 0, CLI_INT, "N", &opt.slots, 1, 1024,
     "matrices of their own memory, used in turn; 1 repeats one projection; default 4", NULL},
    {"command-span", 0, CLI_INT, "N", &opt.span, 1, 65536,
     "products of one submission to the device; default 7", NULL},
    {"warmup", 'w', CLI_INT, "N", &opt.warmup, 0, INT32_MAX,
     "untimed products, rounded up to whole submissions; default a tenth of the iterations",
     &opt.warmup_seen},
    {"iterations", 'n', CLI_INT, "N", &opt.iterations, 1, INT32_MAX,
     "products of a timed run: a multiple of --command-span; default 70", NULL},
    {"repetitions", 'r', CLI_INT, "N", &opt.repetitions, 1, 100000, "timed runs; default 5", NULL},
    CLI_OPERATOR_OPTIONS(&opt.op),
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

static bool on_run(void *user, const char *arm, int round, uint64_t ns)
{
    (void)user;
    fprintf(stderr, "%s %3d/%-3d %9.1f ms\n", arm, round + 1, opt.repetitions, (double)ns * 1e-6);
    return !cli_interrupted;
}

int main(int argc, char **argv)
{
    char **args, names[256] = "";
    int n_args;
    gem_error err;
    json_t *doc = NULL;
    bool same = true;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    const gem_dtype_info *type = gem_dtype_by_name(opt.quant);
    if (!type) return cli_usage(&command, "--quant: there is no type '%s'", opt.quant);
    if (!gem_op_route_find("linear", opt.kernel)) {
        gem_op_route_names("linear", names, sizeof(names));
        return cli_usage(&command, "--kernel: there is no route '%s'; there is: %s", opt.kernel,
                         names);
    }
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
        .kernel = opt.kernel,
        .op = {.backend = opt.op.backend,
               .isa = opt.op.isa,
               .n_threads = opt.op.threads,
               .rows = opt.rows,
               .tmp_dir = cli_tmp_dir()},
        .linear = {opt.input, opt.output, opt.slots, opt.span, type->dtype},
        .warmup = opt.warmup,
        .iterations = opt.iterations,
        .repetitions = opt.repetitions,
        .progress = on_run,
    };
    if (bench_linear_measure(&lo, &doc, &same, &err) != GEM_OK) return cli_fail(&command, &err);
    code = cli_print_json(&command, doc);
    return code == CLI_DONE && !same ? CLI_FALSE : code;
}
