/* gem_long_prefill_stage_profile.c - `gem-long-prefill-stage-profile`: one production tile of a
 * prompt at a long position, the nine stages of every layer told apart. One JSON document on
 * stdout; it attributes time, and is no measure of throughput. */
#include "base/base.h"
#include "bench/stages.h"
#include "cmd/cli/operator.h"

#include <stdlib.h>

static cli_prefix_flags opt = {.rows = 32, .progress_every = 4096};

static const cli_option options[] = {
    {"rows", 0, CLI_INT, "N", &opt.rows, 1, 512, "of the tile; default 32", NULL},
    CLI_SEED_PREFIX_OPTION(&opt),
    CLI_PREFIX_OPTIONS(&opt),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-long-prefill-stage-profile",
    .args = "MODEL POSITION [REPETITIONS]",
    .summary = "profile the stages of one tile of a prompt at a long position",
    .text = "The prefix is evaluated once; then one tile is run as a warm-up and REPETITIONS times "
            "(default 3)\n"
            "from the same checkpoint. The tile is the last one of its prompt: behind the last "
            "layer's keys\n"
            "only the row that wants logits goes on. Exit 1 when two tiles give other bits.\n",
    .min_args = 2,
    .max_args = 3,
    .option = options,
};

typedef struct profile {
    int32_t position, repetitions;
    bench_prefix prefix;
    bench_stage *stage;
    json_t *samples, *tile_ns, *device_ns, *embed_ns, *head_ns, *warmup_ns;
    json_t *coverage;
    double sum[3][BENCH_STAGES]; /* ns of all timed tiles: sliding, full, recurrent layers */
    char digest[65];
    bool same;
} profile;

static const char *const kinds[3] = {"sliding", "full", "recurrent"};

/* Adds a tile to the sums; the share of its time that stages account for. */
static double add_tile(profile *p, const bench_stage_times *t)
{
    const gem_plan *plan = &p->prefix.model->plan;
    double all = 0;
    for (int l = 0; l < plan->n_layers; l++) {
        int k = 0;
        while (strcmp(kinds[k], bench_layer_kind(plan, l)) != 0)
            k++;
        for (int s = 0; s < BENCH_STAGES; s++) {
            double ns = (double)t->ns[l * BENCH_STAGES + s];
            p->sum[k][s] += ns;
            all += ns;
        }
    }
    return all / (double)t->wall_ns;
}

/* {"sliding": {stage: ns of a tile, all layers of the kind}, ...} */
static json_t *means_json(const profile *p, int repetitions)
{
    json_t *o = json_object();
    for (int k = 0; k < 3; k++) {
        json_t *kind = json_object();
        double all = 0;
        for (int s = 0; s < BENCH_STAGES; s++) {
            json_object_set_new(kind, bench_stage_names[s], json_real(p->sum[k][s] / repetitions));
            all += p->sum[k][s];
        }
        if (all > 0)
            json_object_set_new(o, kinds[k], kind);
        else
            json_decref(kind);
    }
    return o;
}

static gem_status one_tile(profile *p, int round, gem_error *err)
{
    bench_stage_times t = {0};
    gem_trace trace;
    char hex[65];
    uint64_t wall;
    gem_status st = bench_prefix_rewind(&p->prefix, err);
    if (st == GEM_OK) st = bench_prefix_step(&p->prefix, false, &trace, true, &wall, err);
    if (st == GEM_OK)
        st = bench_stage_times_of(&t, &p->prefix.model->plan, p->stage, p->prefix.op_ns, wall, err);
    if (st != GEM_OK) return st;
    bench_logits_digest(&p->prefix, hex);
    if (!*p->digest) memcpy(p->digest, hex, sizeof(hex));
    p->same = p->same && strcmp(hex, p->digest) == 0;
    if (!opt.no_progress)
        fprintf(stderr, "tile %s %d/%d %9.2f ms\n", round < 0 ? "warm-up" : "", round + 1,
                p->repetitions, (double)wall * 1e-6);
    if (round < 0) {
        json_array_append_new(p->warmup_ns, json_integer((json_int_t)wall));
    } else {
        json_array_append_new(p->samples, bench_stage_matrix_json(&t, &p->prefix.model->plan));
        json_array_append_new(p->tile_ns, json_integer((json_int_t)wall));
        json_array_append_new(p->device_ns, json_integer((json_int_t)trace.device_ns));
        json_array_append_new(p->embed_ns, json_integer((json_int_t)t.embed_ns));
        json_array_append_new(p->head_ns, json_integer((json_int_t)t.head_ns));
        json_array_append_new(p->coverage, json_real(add_tile(p, &t)));
    }
    free(t.ns);
    return cli_interrupted ? gem_fail(err, GEM_E_CANCELLED, "interrupted") : GEM_OK;
}

/* Takes the lists. */
static json_t *record(void *user, const char *path, const char *digest, json_t *host)
{
    profile *p = user;
    gem_model_info info;
    gem_model_get_info(p->prefix.model, &info);
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:i, s:{s:i, s:i, s:i, s:s, s:s, s:i, s:s, s:b}, s:o, s:O, s:O, s:O, s:O, "
        "s:O, s:O, s:b, s:s, s:o, s:s, s:{s:b, s:s}}",
        "schema", "gem-long-prefill-stage-profile/1", "position", (int)p->prefix.position, "rows",
        (int)p->prefix.rows, "repetitions", (int)p->repetitions, "parameters", "context",
        (int)info.n_ctx, "position", (int)p->prefix.position, "rows", (int)p->prefix.rows,
        "backend", info.backend, "isa", info.isa, "threads", info.n_threads, "kv_type",
        cli_kv_type_names[opt.model.kv_type], "seed_prefix", p->prefix.seeded, "stages",
        bench_stages_json(), "samples", p->samples, "tile_ns", p->tile_ns, "device_ns",
        p->device_ns, "embed_ns", p->embed_ns, "head_ns", p->head_ns, "warmup_ns", p->warmup_ns,
        "deterministic", p->same, "logits_sha256", p->digest, "host", host, "stages_note",
        "input_norm of every layer but the first is part of ffn_residual of the layer before it",
        "promotion", "eligible", 0, "reason",
        "stage profiling attributes time; it measures no throughput");
    json_object_update_new(doc, bench_prefix_json(&p->prefix, path, digest));
    json_object_set(doc, "timestamp_coverage", p->coverage);
    json_object_set_new(doc, "stage_mean_ns", means_json(p, p->repetitions));
    return doc;
}

static gem_status measure(void *user, const char *path, gem_error *err)
{
    profile *p = user;
    gem_status st = cli_prefix_open(&p->prefix, &opt, path, p->position, true, err);
    if (st != GEM_OK) return st;
    p->stage = calloc(p->prefix.model->plan.n_ops, sizeof(*p->stage));
    if (!p->stage) return gem_fail(err, GEM_E_NOMEM, "no memory for the stages");
    if (!bench_stages_of(&p->prefix.model->plan, p->stage))
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "the layers of this family are not made of the nine stages");
    for (int r = -1; st == GEM_OK && r < p->repetitions; r++)
        st = one_tile(p, r, err);
    return st;
}

static bool same_bits(const void *user)
{
    return ((const profile *)user)->same;
}

static void close_profile(profile *p)
{
    json_decref(p->samples);
    json_decref(p->tile_ns);
    json_decref(p->device_ns);
    json_decref(p->embed_ns);
    json_decref(p->head_ns);
    json_decref(p->coverage);
    json_decref(p->warmup_ns);
    free(p->stage);
    bench_prefix_close(&p->prefix);
}

int main(int argc, char **argv)
{
    char **args;
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    profile p = {.repetitions = 3, .same = true};
    const cli_prefix_job job = {
        .measure = measure, .record = record, .holds = same_bits, .user = &p};
    if (code < 0) code = cli_prefix_arguments(&command, args, n_args, &p.position, &p.repetitions);
    if (code >= 0) return code;
    p.samples = json_array();
    p.tile_ns = json_array();
    p.device_ns = json_array();
    p.embed_ns = json_array();
    p.head_ns = json_array();
    p.coverage = json_array();
    p.warmup_ns = json_array();
    code = cli_prefix_run(&command, &opt, args[0], &job);
    close_profile(&p);
    return code;
}
