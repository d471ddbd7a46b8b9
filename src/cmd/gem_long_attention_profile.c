/* gem_long_attention_profile.c - `gem-long-attention-profile`: attention of one tile of rows at a
 * long position, alone, by one route or by two in turn. One JSON document on stdout with the time
 * stamps of every run; an operator screen, which promotes nothing. */
#include "base/base.h"
#include "cmd/cli/operator.h"

#include <stdlib.h>

static struct {
    cli_attention_flags attention;
    const char *variant;
    int32_t position, rows;
} opt = {.attention = {.shape = "31b", .repetitions = 3, .warmup = 1},
         .variant = "bq8-bk64",
         .position = 4096,
         .rows = 32};

static const cli_option options[] = {
    {"position", 'p', CLI_INT, "N", &opt.position, 0, 1 << 24,
     "of the tile's first row; default 4096", NULL},
    {"rows", 'n', CLI_INT, "N", &opt.rows, 1, 512, "of the tile; default 32", NULL},
    {"variant", 0, CLI_TEXT, "NAME", &opt.variant, 0, 0,
     "a route, or compare-bq8 (online-row2 and bq8-bk64) or compare-bq8-bk128 (bq8-bk64 and "
     "bq8-bk128), in turn; default bq8-bk64",
     NULL},
    CLI_ATTENTION_OPTIONS(
        &opt.attention,
        "31b (default: its full-attention layer), 31b-sliding, 12b-full, 12b-sliding, tiny",
        "timed runs of each route; an even number gives each the first place as often; default 3",
        "untimed runs of each before them; default 1",
        "sparse finite values in keys and values; else they are zeros"),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-long-attention-profile",
    .args = "",
    .summary = "measure attention of a tile of rows at a long position",
    .text = "The record names the code that ran for each route, and says when two routes are the "
            "same code on\n"
            "this backend. Exit 1 when two runs of a route give other bits.\n"
            "\n"
            "  gem-long-attention-profile --shape 31b --position 131040 --rows 32 --repetitions 10 "
            "\\\n"
            "      --warmup 10 --seed-prefix --variant compare-bq8-bk128\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

static const struct {
    const char *name, *first, *second;
} pairs[] = {
    {"compare-bq8", "online-row2", "bq8-bk64"},
    {"compare-bq8-bk128", "bq8-bk64", "bq8-bk128"},
};

static bool on_run(void *user, const char *arm, int round, uint64_t ns)
{
    (void)user;
    if (round < 0)
        fprintf(stderr, "%-12s warm-up %9.2f ms\n", arm, (double)ns * 1e-6);
    else
        fprintf(stderr, "%-12s %3d/%-3d %9.2f ms\n", arm, round + 1, opt.attention.repetitions,
                (double)ns * 1e-6);
    return !cli_interrupted;
}

/* False after a usage error. */
static bool choose_routes(bench_attention_bench *b, int *code)
{
    const char *op = "prefill-attention";
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (!strcmp(pairs[i].name, opt.variant)) {
            b->route[0] = gem_op_route_find(op, pairs[i].first);
            b->route[1] = gem_op_route_find(op, pairs[i].second);
            b->n_routes = 2;
            return true;
        }
    b->route[0] =
        cli_route(&command, "--variant", op, opt.variant, "compare-bq8, compare-bq8-bk128", code);
    b->n_routes = b->route[0] != NULL;
    return b->n_routes == 1;
}

static json_t *arms_json(const bench_attention_bench *b, const char *one_way)
{
    json_t *arms = json_array();
    for (size_t i = 0; i < b->n_routes; i++) {
        const gem_op_route *r = b->arm[i].route;
        json_t *arm = bench_part_json(b, i, bench_part_device);
        json_object_update_new(
            arm, json_pack("{s:s, s:o, s:o, s:s, s:b}", "variant", r->name, "selector",
                           r->selector ? json_integer(r->selector) : json_null(), "route",
                           bench_route_json(r, *b->arm[i].ran ? b->arm[i].ran : one_way),
                           "output_sha256", b->arm[i].digest, "deterministic", b->arm[i].same));
        json_array_append_new(arms, arm);
    }
    return arms;
}

static json_t *record(const bench_attention_bench *b, const bench_shape *s, json_t *host)
{
    json_t *config = bench_operator_config(&b->op), *order = json_array();
    const char *ran = bench_route_ran(config, "prefill-attention", opt.rows);
    for (size_t i = 0; i < b->plan.n_order; i++)
        json_array_append_new(order, json_string(b->plan.order[i]));
    json_t *doc = json_pack(
        "{s:s, s:s, s:s, s:{s:i, s:i, s:i, s:i, s:i}, s:{s:i, s:i, s:i, s:i, s:s, s:b, s:I, s:s, "
        "s:s, s:s, s:i}, s:b, s:s, s:i}",
        "schema", "gem-long-attention-profile/1", "shape", s->name, "variant", opt.variant,
        "geometry", "query_heads", s->n_heads, "kv_heads", s->n_kv_heads, "head_dim", s->head_dim,
        "window", (int)s->window, "rows", (int)opt.rows, "parameters", "position",
        (int)opt.position, "rows", (int)opt.rows, "repetitions", (int)opt.attention.repetitions,
        "warmup", (int)opt.attention.warmup, "variant", opt.variant, "seed_prefix",
        opt.attention.seed_prefix, "seed", (json_int_t)opt.attention.seed, "kv_type",
        opt.attention.kv_type ? "f16" : "f32", "backend", b->op.ops->name, "isa", b->op.isa,
        "threads", b->op.n_threads, "seed_prefix", opt.attention.seed_prefix, "prefix_mode",
        opt.attention.seed_prefix ? "seeded-kv" : "zero-filled", "prefix_builds", 0);
    if (!doc) return NULL;
    json_object_update_new(
        doc,
        json_pack("{s:o, s:o, s:o, s:b, s:s, s:b, s:b, s:o, s:o, s:{s:b, s:s}}", "arms",
                  arms_json(b, ran), "order", order, "timestamps", bench_dispatches_json(b),
                  "arms_identical", bench_attention_identical(b), "arms_note",
                  b->n_routes < 2 ? "one arm"
                  : bench_attention_identical(b)
                      ? "on this backend both routes are the same code: the arms differ in nothing"
                      : "two routes that are other code",
                  "deterministic", bench_attention_deterministic(b), "capture", 0, "host", host,
                  "config", config, "promotion", "eligible", 0, "reason",
                  "an operator screen can never promote a route"));
    return doc;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    bench_attention_bench b = {.progress = on_run, .iterations = 1};
    if (code >= 0) return code;
    const bench_shape *s = cli_attention_shape(&command, &opt.attention, &code);
    if (!s || !choose_routes(&b, &code)) return code;
    if (getenv("GEM_METAL_CAPTURE_PATH"))
        fprintf(stderr, "gem-long-attention-profile: GEM_METAL_CAPTURE_PATH: there is no Metal "
                        "here, nothing is captured\n");
    b.position = opt.position;
    const cli_attention_job job = {.rows = opt.rows,
                                   .n_ctx = opt.position + opt.rows,
                                   .seeded = opt.attention.seed_prefix,
                                   .record = record};
    return cli_attention_run(&command, &opt.attention, &job, s, &b);
}
