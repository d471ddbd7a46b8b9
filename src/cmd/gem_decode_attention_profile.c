/* gem_decode_attention_profile.c - `gem-decode-attention-profile`: attention of one row over a
 * number of keys, alone, in its three phases: scores, normalisation, values. One JSON document on
 * stdout with every sample; it selects an axis to work on, and promotes nothing. */
#include "base/base.h"
#include "cmd/cli/operator.h"

static struct {
    cli_attention_flags attention;
    const char *kernel;
    int32_t tokens, iterations;
} opt = {.attention = {.shape = "31b-full", .repetitions = 7, .warmup = 10},
         .kernel = "split16",
         .tokens = 4096,
         .iterations = 20};

static const cli_option options[] = {
    {"kernel", 'k', CLI_TEXT, "NAME", &opt.kernel, 0, 0,
     "route: split16 (default, production), dim32, dim64, score-tile8", NULL},
    {"tokens", 'n', CLI_INT, "N", &opt.tokens, 1, 1 << 24,
     "keys that the row sees, itself included; default 4096", NULL},
    {"iterations", 'i', CLI_INT, "N", &opt.iterations, 1, 1000000,
     "dispatches of one sample, which is their mean; default 20", NULL},
    CLI_ATTENTION_OPTIONS(
        &opt.attention, "31b-full (default), 31b-sliding, 12b-full, 12b-sliding, tiny",
        "samples; default 7", "untimed samples before them; default 10",
        "sparse finite values in keys and values: always so, the option is taken for clearness"),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-decode-attention-profile",
    .args = "",
    .summary = "measure attention of one row in its phases",
    .text = "Total and phases are times of the device. Exit 1 when two runs give other bits.\n"
            "\n"
            "  gem-decode-attention-profile --shape 31b-full --kernel dim32 --tokens 65536 \\\n"
            "      --iterations 20 --repetitions 7 --warmup 10\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

static bool on_run(void *user, const char *arm, int round, uint64_t ns)
{
    (void)user;
    if (round >= 0)
        fprintf(stderr, "%-12s %3d/%-3d %9.3f ms a dispatch\n", arm, round + 1,
                opt.attention.repetitions, (double)ns * 1e-6 / opt.iterations);
    return !cli_interrupted;
}

/* How attention of a row is cut: the backend says so of itself. */
static void add_cut(json_t *geometry, const json_t *config)
{
    static const char *const keys[] = {"value_tile", "value_splits", "key_tile", "key_chunk"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *v = json_object_get(json_object_get(config, "routes"), keys[i]);
        if (v) json_object_set(geometry, keys[i], v);
    }
}

/* Null where the backend's attention is one piece that it cannot divide. */
static json_t *phases_json(const bench_attention_bench *b)
{
    uint64_t ns = 0;
    for (size_t i = 0; i < b->arm[0].n; i++)
        ns += b->arm[0].sample[i].score_ns + b->arm[0].sample[i].value_ns;
    if (ns == 0) return json_null();
    return json_pack("{s:o, s:o, s:o}", "score", bench_part_json(b, 0, bench_part_score),
                     "normalization", bench_part_json(b, 0, bench_part_normalization), "value",
                     bench_part_json(b, 0, bench_part_value));
}

static json_t *record(const bench_attention_bench *b, const bench_shape *s, json_t *host)
{
    const gem_op_route *r = b->route[0];
    json_t *config = bench_operator_config(&b->op);
    const char *ran = bench_route_ran(config, "decode-attention", 1);
    const char *form =
        json_string_value(json_object_get(json_object_get(config, "routes"), "attention_form"));
    json_t *geometry =
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "query_heads", s->n_heads, "kv_heads",
                  s->n_kv_heads, "head_dim", s->head_dim, "window", (int)s->window, "tokens",
                  (int)opt.tokens, "kv_element_bytes", opt.attention.kv_type ? 2 : 4);
    add_cut(geometry, config);
    json_t *doc = json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:o, s:{s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:s, s:I}, s:o}",
        "schema", "gem-decode-attention-profile/1", "shape", s->name, "kernel", r->name, "selector",
        r->selector ? json_integer(r->selector) : json_null(), "route", form ? form : ran,
        "kernel_route", bench_route_json(r, *b->arm[0].ran ? b->arm[0].ran : ran), "parameters",
        "tokens", (int)opt.tokens, "iterations", (int)opt.iterations, "repetitions",
        (int)opt.attention.repetitions, "warmup", (int)opt.attention.warmup, "backend",
        b->op.ops->name, "isa", b->op.isa, "threads", b->op.n_threads, "kv_type",
        opt.attention.kv_type ? "f16" : "f32", "seed", (json_int_t)opt.attention.seed, "geometry",
        geometry);
    if (!doc) return NULL;
    json_object_update_new(
        doc,
        json_pack("{s:b, s:s, s:i, s:o, s:o, s:o, s:b, s:s, s:s, s:o, s:o, s:{s:b, "
                  "s:s}}",
                  "seed_prefix", 1, "prefix_mode", "seeded-kv", "prefix_builds", 0, "total",
                  bench_part_json(b, 0, bench_part_device), "phases", phases_json(b), "timestamps",
                  bench_dispatches_json(b), "deterministic", bench_attention_deterministic(b),
                  "output_sha256", b->arm[0].digest, "route_note",
                  "routes of this backend that have the same `ran` are the same code", "host", host,
                  "config", config, "promotion", "eligible", 0, "reason",
                  "phases of one operator select an axis; they promote nothing"));
    return doc;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    bench_attention_bench b = {.progress = on_run, .phases = true, .n_routes = 1};
    if (code >= 0) return code;
    const bench_shape *s = cli_attention_shape(&command, &opt.attention, &code);
    if (!s) return code;
    b.route[0] = cli_route(&command, "--kernel", "decode-attention", opt.kernel, "", &code);
    if (!b.route[0]) return code;
    b.position = opt.tokens - 1;
    b.iterations = opt.iterations;
    const cli_attention_job job = {
        .rows = 1, .n_ctx = opt.tokens, .seeded = true, .record = record};
    return cli_attention_run(&command, &opt.attention, &job, s, &b);
}
