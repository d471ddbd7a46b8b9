/* gem_decode_profile.c - `gem-decode-profile`: one decode step at a long position, by stages of the
 * model and by host phases of the ordinary path. One JSON document on stdout with every sample. */
#include "base/base.h"
#include "bench/stages.h"
#include "cmd/cli/operator.h"

#include <stdlib.h>

static struct {
    cli_prefix_flags prefix;
    const char *path, *kernel;
    int32_t position, repetitions, warmups;
} opt = {.prefix = {.rows = 1, .progress_every = 4096},
         .kernel = "split16",
         .position = 4096,
         .repetitions = 3,
         .warmups = 1};

static const cli_option options[] = {
    {"model", 'm', CLI_TEXT, "MODEL", &opt.path, 0, 0, "path or fetched name", NULL},
    {"position", 'p', CLI_INT, "N", &opt.position, 0, 1 << 24,
     "of the step's first row; default 4096", NULL},
    {"rows", 0, CLI_INT, "N", &opt.prefix.rows, 1, 64,
     "rows of a step, each with logits; default 1", NULL},
    {"repetitions", 'r', CLI_INT, "N", &opt.repetitions, 1, 100000, "timed steps; default 3", NULL},
    {"warmups", 'w', CLI_INT, "N", &opt.warmups, 0, 1000, "untimed steps before them; default 1",
     NULL},
    {"attention-kernel", 0, CLI_TEXT, "NAME", &opt.kernel, 0, 0,
     "route: split16 (default, production), dim32, dim64, score-tile8", NULL},
    CLI_SEED_PREFIX_OPTION(&opt.prefix),
    CLI_PREFIX_OPTIONS(&opt.prefix),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-decode-profile",
    .args = "",
    .summary = "profile one decode step at a long position",
    .text =
        "The prefix is evaluated once, and every step starts from the same checkpoint. With one "
        "row,\n"
        "production_execution holds the host phases of the ordinary path: they partition its "
        "wall time.\n"
        "Exit 1 when two steps give other bits, or when phases do not add up.\n"
        "\n"
        "  gem-decode-profile --model MODEL.gguf --context 131328 --position 131072 --rows 1 "
        "\\\n"
        "      --repetitions 3 --seed-prefix\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

/* Stages of a step: those of a layer, attention by kind of layer. */
enum { KV_FULL = BENCH_ALL_STAGES, KV_SLIDING, KV_RECURRENT, N_PARTS };
static const char *const part_names[] = {"kv_attention_full", "kv_attention_sliding",
                                         "recurrent_attention"};

enum { PREPARE, ENCODE, SUBMIT_WAIT, CLEANUP, READBACK, N_PHASES };
static const char *const phase_names[N_PHASES] = {"prepare_ns", "encode_ns", "submit_wait_ns",
                                                  "cleanup_ns", "logits_readback_ns"};
/* The clock's reads stand between the phases and around the call. */
enum { TOLERANCE_NS = 20000 };

typedef struct step {
    uint64_t wall_ns, device_ns, part[N_PARTS], phase[N_PHASES];
} step;

typedef struct profile {
    bench_prefix prefix;
    bench_stage *stage;
    bench_arm arm[2];
    bench_plan plan;
    step *profiled, *production; /* [repetitions] */
    size_t n_profiled, n_production;
    step last;
    const char *ran; /* the code the route led to; static */
    char digest[65];
    bool same;
} profile;

static uint64_t phase_sum(const step *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < N_PHASES; i++)
        sum += s->phase[i];
    return sum;
}

static bool adds_up(const step *s)
{
    uint64_t sum = phase_sum(s);
    return (sum > s->wall_ns ? sum - s->wall_ns : s->wall_ns - sum) <= TOLERANCE_NS;
}

static void put_parts(const profile *p, step *s)
{
    const gem_plan *plan = &p->prefix.model->plan;
    for (size_t i = 0; i < (plan->draft_op ? plan->draft_op : plan->n_ops); i++) {
        int part = (int)p->stage[i];
        if (part == BENCH_ATTENTION) {
            const gem_kv_layer *l = &plan->layer[plan->op[i].layer];
            part = l->n_kv_heads == 0 ? KV_RECURRENT : l->window ? KV_SLIDING : KV_FULL;
        }
        s->part[part] += p->prefix.op_ns[i];
    }
}

static gem_status rewind_prefix(void *user, gem_error *err)
{
    profile *p = user;
    return bench_prefix_rewind(&p->prefix, err);
}

static gem_status run_step(profile *p, bool with_ops, gem_error *err)
{
    gem_trace t;
    step *s = &p->last;
    memset(s, 0, sizeof(*s));
    gem_status st = bench_prefix_step(&p->prefix, true, &t, with_ops, &s->wall_ns, err);
    if (st != GEM_OK) return st;
    s->device_ns = t.device_ns;
    const uint64_t phase[N_PHASES] = {t.prepare_ns, t.encode_ns, t.wait_ns, t.cleanup_ns,
                                      t.readback_ns};
    memcpy(s->phase, phase, sizeof(phase));
    if (with_ops) put_parts(p, s);
    return GEM_OK;
}

static gem_status run_profiled(void *user, gem_error *err)
{
    return run_step(user, true, err);
}

static gem_status run_production(void *user, gem_error *err)
{
    return run_step(user, false, err);
}

static void check_logits(profile *p)
{
    char hex[65];
    bench_logits_digest(&p->prefix, hex);
    if (!*p->digest) memcpy(p->digest, hex, sizeof(hex));
    p->same = p->same && strcmp(hex, p->digest) == 0;
}

static gem_status keep_profiled(void *user, int round, gem_error *err)
{
    profile *p = user;
    (void)err;
    check_logits(p);
    if (round >= 0) p->profiled[p->n_profiled++] = p->last;
    return GEM_OK;
}

static gem_status keep_production(void *user, int round, gem_error *err)
{
    profile *p = user;
    (void)err;
    check_logits(p);
    if (round >= 0) p->production[p->n_production++] = p->last;
    return GEM_OK;
}

static bool on_run(void *user, const char *arm, int round, uint64_t ns)
{
    (void)user;
    if (!opt.prefix.no_progress)
        fprintf(stderr, "%-10s %s%3d/%-3d %9.3f ms\n", arm, round < 0 ? "warm-up " : "", round + 1,
                opt.repetitions, (double)ns * 1e-6);
    return !cli_interrupted;
}

/* ---- the record ---- */

static json_t *series(const step *s, size_t n, size_t offset)
{
    double *x = calloc(n + 1, sizeof(*x));
    for (size_t i = 0; x && i < n; i++) {
        uint64_t v;
        memcpy(&v, (const char *)&s[i] + offset, sizeof(v));
        x[i] = (double)v;
    }
    json_t *j = x ? bench_samples_json(x, n) : NULL;
    free(x);
    return j;
}

static json_t *stages_json(const profile *p)
{
    json_t *o = json_object();
    for (int i = 0; i < N_PARTS; i++) {
        bool any = false;
        for (size_t k = 0; k < p->n_profiled; k++)
            any = any || p->profiled[k].part[i] > 0;
        if (any)
            json_object_set_new(
                o, i < BENCH_ALL_STAGES ? bench_stage_names[i] : part_names[i - BENCH_ALL_STAGES],
                series(p->profiled, p->n_profiled,
                       offsetof(step, part) + (size_t)i * sizeof(uint64_t)));
    }
    return o;
}

static bool production_adds_up(const profile *p)
{
    for (size_t i = 0; i < p->n_production; i++)
        if (!adds_up(&p->production[i])) return false;
    return true;
}

static json_t *production_json(const profile *p)
{
    json_t *samples = json_array(), *means = json_object();
    double wall = 0, device = 0, n = (double)p->n_production, phase[N_PHASES] = {0};
    for (size_t i = 0; i < p->n_production; i++) {
        const step *s = &p->production[i];
        json_t *j = json_pack("{s:I, s:I, s:I}", "wall_ns", (json_int_t)s->wall_ns, "gpu_ns",
                              (json_int_t)s->device_ns, "phase_sum_ns", (json_int_t)phase_sum(s));
        for (int k = 0; k < N_PHASES; k++) {
            json_object_set_new(j, phase_names[k], json_integer((json_int_t)s->phase[k]));
            phase[k] += (double)s->phase[k];
        }
        json_array_append_new(samples, j);
        wall += (double)s->wall_ns;
        device += (double)s->device_ns;
    }
    for (int k = 0; k < N_PHASES; k++)
        json_object_set_new(means, phase_names[k], json_real(phase[k] / n));
    return json_pack(
        "{s:o, s:o, s:o, s:f, s:f, s:f, s:b, s:i, s:s}", "samples", samples, "wall",
        series(p->production, p->n_production, offsetof(step, wall_ns)), "mean_phases_ns", means,
        "mean_wall_seconds", wall / n * 1e-9, "mean_gpu_seconds", device / n * 1e-9,
        "mean_wall_minus_gpu_seconds", (wall - device) / n * 1e-9, "phase_sum_matches_wall",
        production_adds_up(p), "tolerance_ns", TOLERANCE_NS, "note",
        "gpu_ns is the device's own time inside submit_wait_ns; on a CPU backend the device is the "
        "thread pool");
}

static json_t *record(void *user, const char *path, const char *digest, json_t *host)
{
    const profile *p = user;
    gem_model_info info;
    const gem_op_route *r = gem_op_route_find("decode-attention", opt.kernel);
    json_t *order = json_array(), *prefix = bench_prefix_json(&p->prefix, path, digest);
    const char *ran =
        bench_route_ran(json_object_get(json_object_get(prefix, "config"), "backend_config"),
                        "decode-attention", opt.prefix.rows);
    gem_model_get_info(p->prefix.model, &info);
    for (size_t i = 0; i < p->plan.n_order; i++)
        json_array_append_new(order, json_string(p->plan.order[i]));
    json_t *doc = json_pack(
        "{s:s, s:o, s:s, s:o, s:{s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:s, s:s, s:i, s:s}, s:o, s:o, "
        "s:o, s:b, s:s, s:o, s:{s:b, s:s}}",
        "schema", "gem-decode-profile/1", "selector",
        r->selector ? json_integer(r->selector) : json_null(), "attention_kernel", r->name,
        "attention_route", bench_route_json(r, *p->ran ? p->ran : ran), "parameters", "context",
        (int)info.n_ctx, "position", (int)opt.position, "rows", (int)opt.prefix.rows, "repetitions",
        (int)opt.repetitions, "warmups", (int)opt.warmups, "seed_prefix", opt.prefix.seed_prefix,
        "attention_kernel", r->name, "backend", info.backend, "isa", info.isa, "threads",
        info.n_threads, "kv_type", cli_kv_type_names[opt.prefix.model.kv_type], "step",
        series(p->profiled, p->n_profiled, offsetof(step, wall_ns)), "stages", stages_json(p),
        "order", order, "deterministic", p->same, "logits_sha256", p->digest, "host", host,
        "promotion", "eligible", 0, "reason",
        opt.prefix.seed_prefix ? "made-up keys and values: attribution and screening only"
                               : "a profile attributes time, it promotes nothing");
    if (doc && opt.prefix.rows == 1)
        json_object_set_new(doc, "production_execution", production_json(p));
    json_object_update_new(doc, prefix);
    return doc;
}

static gem_status measure(void *user, const char *path, gem_error *err)
{
    profile *p = user;
    const size_t n = (size_t)opt.repetitions;
    gem_status st = cli_prefix_open(&p->prefix, &opt.prefix, path, opt.position, true, err);
    if (st != GEM_OK) return st;
    p->stage = calloc(p->prefix.model->plan.n_ops, sizeof(*p->stage));
    p->profiled = calloc(n, sizeof(*p->profiled));
    p->production = calloc(n, sizeof(*p->production));
    if (!p->stage || !p->profiled || !p->production)
        return gem_fail(err, GEM_E_NOMEM, "no memory for %zu samples", n);
    if (!bench_stages_of(&p->prefix.model->plan, p->stage))
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "the layers of this family are not made of the nine stages");
    p->ran = bench_choose_route(p->prefix.model->ops, p->prefix.model->be,
                                gem_op_route_find("decode-attention", opt.kernel));
    p->arm[0] = (bench_arm){.name = "profiled",
                            .prepare = rewind_prefix,
                            .run = run_profiled,
                            .finish = keep_profiled,
                            .user = p,
                            .work = opt.prefix.rows};
    p->arm[1] = (bench_arm){.name = "production",
                            .prepare = rewind_prefix,
                            .run = run_production,
                            .finish = keep_production,
                            .user = p,
                            .work = opt.prefix.rows};
    p->plan = (bench_plan){.arm = p->arm,
                           .n_arms = opt.prefix.rows == 1 ? 2 : 1,
                           .repetitions = opt.repetitions,
                           .warmups = opt.warmups,
                           .progress = on_run};
    return bench_run(&p->plan, err);
}

static bool holds(const void *user)
{
    const profile *p = user;
    return p->same && production_adds_up(p);
}

int main(int argc, char **argv)
{
    char **args;
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    profile p = {.same = true};
    const cli_prefix_job job = {.measure = measure, .record = record, .holds = holds, .user = &p};
    if (code >= 0) return code;
    if (!opt.path) return cli_usage(&command, "--model is needed");
    if (!cli_route(&command, "--attention-kernel", "decode-attention", opt.kernel, "", &code))
        return code;
    code = cli_prefix_run(&command, &opt.prefix, opt.path, &job);
    bench_plan_deinit(&p.plan);
    free(p.stage);
    free(p.profiled);
    free(p.production);
    bench_prefix_close(&p.prefix);
    return code;
}
