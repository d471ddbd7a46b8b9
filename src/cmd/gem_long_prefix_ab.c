/* gem_long_prefix_ab.c - `gem-long-prefix-ab`: one tile behind a shared prefix by two routes in
 * turn, from the same exact checkpoint, through the whole graph and the head. One JSON document on
 * stdout: three samples or more of each route, whether repeats are the same bits, and how far the
 * routes' logits are apart. */
#include "base/base.h"
#include "cmd/cli/operator.h"
#include "evidence/logit_compare.h"
#include "evidence/statistics.h"

#include <stdlib.h>

static cli_prefix_flags opt = {.rows = 32, .progress_every = 4096};

static const cli_option options[] = {
    {"rows", 0, CLI_INT, "N", &opt.rows, 1, 512, "of the tile; default 32", NULL},
    CLI_PREFIX_OPTIONS(&opt),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-long-prefix-ab",
    .args = "MODEL POSITION [REPETITIONS]",
    .summary = "run one tile behind a shared prefix by two routes in turn",
    .text = "Without GEM_LONG_PREFIX_CANDIDATE the baseline takes the tile's rows one by one and "
            "the candidate\n"
            "takes them together. GEM_LONG_PREFIX_CANDIDATE=bq8 compares selector 22 with 19, "
            "bk128 compares\n"
            "19 with 23. GEM_LONG_PREFIX_SEED=1: the prefix is not evaluated but made up (seeded "
            "keys and\n"
            "values). Exit 1 when a route's repeats give other bits.\n",
    .min_args = 2,
    .max_args = 3,
    .option = options,
};

typedef struct arm {
    struct trial *trial;
    const char *name;
    int selector;              /* 0: none */
    const gem_op_route *route; /* NULL: rowwise or batched */
    const char *ran;           /* the code it led to; static */
    bool rowwise;
    float *logits;   /* owned, of the first run */
    json_t *digests; /* owned */
    char first[65];
    bool same;
} arm;

typedef struct trial {
    int32_t position, repetitions;
    bench_prefix prefix;
    arm arm[2];
    bench_arm timed[2];
    bench_plan plan;
} trial;

static const struct {
    const char *name;
    int baseline, candidate;
} candidates[] = {{"bq8", 22, 19}, {"bk128", 19, 23}};

static bool on_run(void *user, const char *name, int round, uint64_t ns)
{
    (void)user;
    if (!opt.no_progress)
        fprintf(stderr, "%-10s %s%3d %9.2f ms\n", name, round < 0 ? "warm-up " : "", round + 1,
                (double)ns * 1e-6);
    return !cli_interrupted;
}

static gem_status prepare(void *user, gem_error *err)
{
    arm *a = user;
    const gem_model *m = a->trial->prefix.model;
    if (a->route) a->ran = bench_choose_route(m->ops, m->be, a->route);
    return bench_prefix_rewind(&a->trial->prefix, err);
}

/* The same rows one at a time. */
static gem_status run_rowwise(bench_prefix *p, gem_error *err)
{
    gem_status st = GEM_OK;
    for (int32_t i = 0; st == GEM_OK && i < p->rows; i++)
        st = gem_session_decode(p->session, p->token[i], &p->logits[p->rows - 1], err);
    return st;
}

static gem_status run_arm(void *user, gem_error *err)
{
    arm *a = user;
    uint64_t wall;
    return a->rowwise ? run_rowwise(&a->trial->prefix, err)
                      : bench_prefix_step(&a->trial->prefix, false, NULL, false, &wall, err);
}

static gem_status keep(void *user, int round, gem_error *err)
{
    arm *a = user;
    const bench_prefix *p = &a->trial->prefix;
    size_t bytes = (size_t)p->model->plan.n_vocab * sizeof(float);
    char hex[65];
    bench_logits_digest(p, hex);
    if (!a->logits) {
        if (!(a->logits = malloc(bytes)))
            return gem_fail(err, GEM_E_NOMEM, "no memory for %zu bytes of logits", bytes);
        memcpy(a->logits, p->logits[p->rows - 1], bytes);
        memcpy(a->first, hex, sizeof(hex));
    }
    a->same = a->same && strcmp(hex, a->first) == 0;
    if (round >= 0) json_array_append_new(a->digests, json_string(hex));
    return GEM_OK;
}

/* ---- the record ---- */

static json_t *ids(const size_t *id, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)id[i]));
    return list;
}

static json_t *arm_json(const trial *t, int i, const char *one_way, const size_t *top, size_t n_top)
{
    const arm *a = &t->arm[i];
    json_t *j = bench_arm_json(&t->timed[i]);
    json_object_update_new(
        j, json_pack("{s:o, s:o, s:o, s:b, s:s, s:o, s:o}", "selector",
                     a->selector ? json_integer(a->selector) : json_null(), "route",
                     a->route ? bench_route_json(a->route, *a->ran ? a->ran : one_way)
                              : json_pack("{s:s, s:s}", "name", a->name, "ran",
                                          a->rowwise ? "one row a pass" : "all rows in one pass"),
                     "logits_sha256", json_incref(a->digests), "bit_identical_repeats", a->same,
                     "output_sha256", a->first, "argmax",
                     n_top ? json_integer((json_int_t)top[0]) : json_null(), "top10",
                     ids(top, n_top)));
    return j;
}

static json_t *real(double x)
{
    json_t *j = json_real(x); /* NULL for what JSON cannot say */
    return j ? j : json_null();
}

static json_t *metrics_json(const trial *t)
{
    ev_figures f[2];
    ev_interval d;
    size_t n = t->timed[0].n;
    double *x = calloc(2 * n + 1, sizeof(*x)), *y = x + n;
    for (size_t i = 0; x && i < n; i++) {
        x[i] = (double)t->timed[0].ns[i];
        y[i] = (double)t->timed[1].ns[i];
    }
    if (!x || n == 0) {
        free(x);
        return json_null();
    }
    ev_figures_of(&f[0], x, n);
    ev_figures_of(&f[1], y, n);
    json_t *j =
        json_pack("{s:f, s:f, s:o, s:o}", "mean_tile_delta_ns", f[0].mean - f[1].mean,
                  "improvement_percent", 100 * (f[0].mean / f[1].mean - 1), "baseline_cv_percent",
                  real(100 * f[0].cv), "candidate_cv_percent", real(100 * f[1].cv));
    if (n >= 2) {
        ev_paired(&d, x, y, n, 0.95);
        json_object_set_new(j, "paired_95_lower_ns", real(d.lower));
        json_object_set_new(j, "paired_95_upper_ns", real(d.upper));
        json_object_set_new(j, "degrees_of_freedom", real(d.df));
    }
    free(x);
    return j;
}

static json_t *order_json(const trial *t)
{
    json_t *order = json_array();
    for (size_t i = 0; i < t->plan.n_order; i++)
        json_array_append_new(order, json_string(t->plan.order[i]));
    return order;
}

static json_t *record(void *user, const char *path, const char *digest, json_t *host)
{
    const trial *t = user;
    gem_model_info info;
    ev_logit_difference d;
    const arm *a = t->arm;
    json_t *prefix = bench_prefix_json(&t->prefix, path, digest);
    const char *ran =
        bench_route_ran(json_object_get(json_object_get(prefix, "config"), "backend_config"),
                        "prefill-attention", opt.rows);
    bool identical = a[0].route && strcmp(a[0].ran, a[1].ran) == 0;
    gem_model_get_info(t->prefix.model, &info);
    ev_logits_compare(&d, a[1].logits, a[0].logits, (size_t)t->prefix.model->plan.n_vocab);
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:i, s:{s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:s}, s:s, s:o, s:o, s:o, s:b, "
        "s:s, s:o}",
        "schema", "gem-long-prefix-ab/1", "position", (int)t->prefix.position, "rows",
        (int)t->prefix.rows, "repetitions", t->plan.repetitions, "parameters", "context",
        (int)info.n_ctx, "position", (int)t->prefix.position, "rows", (int)t->prefix.rows,
        "repetitions", t->plan.repetitions, "backend", info.backend, "isa", info.isa, "threads",
        info.n_threads, "kv_type", cli_kv_type_names[opt.model.kv_type], "candidate_name",
        a[1].name, "baseline", arm_json(t, 0, ran, d.top_reference, d.finite ? d.n_top : 0),
        "candidate", arm_json(t, 1, ran, d.top_ours, d.finite ? d.n_top : 0), "order",
        order_json(t), "arms_identical", identical, "arms_note",
        identical    ? "on this backend both routes are the same code: the arms differ in nothing"
        : a[0].route ? "two routes that are other code"
                     : "rows one by one, and together",
        "host", host);
    if (!doc) return NULL;
    json_object_update_new(
        doc, json_pack("{s:b, s:{s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:b}, s:o, s:{s:b, s:s}}",
                       "bit_identical_repeats", a[0].same && a[1].same, "logits", "finite",
                       d.finite, "same_argmax", d.finite && d.same_argmax, "same_top10_set",
                       d.finite && d.same_top_set, "same_top10_order", d.finite && d.same_top_order,
                       "correlation", d.finite ? real(d.correlation) : json_null(), "nmse",
                       d.finite ? real(d.nmse) : json_null(), "largest_difference",
                       d.finite ? real(d.largest) : json_null(), "bit_identical",
                       strcmp(a[0].first, a[1].first) == 0, "metrics", metrics_json(t), "promotion",
                       "eligible", 0, "reason",
                       t->prefix.seeded ? "made-up keys and values: attribution and screening only"
                                        : "a graph screen; server gates must follow"));
    json_object_update_new(doc, prefix);
    return doc;
}

/* False: GEM_LONG_PREFIX_CANDIDATE names nothing there is. */
static bool choose_arms(trial *t)
{
    const char *name = getenv("GEM_LONG_PREFIX_CANDIDATE");
    t->arm[0] = (arm){.trial = t, .name = "rowwise", .rowwise = true, .same = true};
    t->arm[1] = (arm){.trial = t, .name = "batched-swa", .same = true};
    if (!name || !*name || !strcmp(name, "batched-swa")) return true;
    for (size_t i = 0; i < ARRAY_LEN(candidates); i++) {
        if (strcmp(candidates[i].name, name) != 0) continue;
        const int selector[2] = {candidates[i].baseline, candidates[i].candidate};
        for (int k = 0; k < 2; k++) {
            const gem_op_route *r = gem_op_route_by_selector("prefill-attention", selector[k]);
            t->arm[k] = (arm){.trial = t,
                              .name = r->name,
                              .selector = selector[k],
                              .route = r,
                              .ran = "",
                              .same = true};
        }
        return true;
    }
    return false;
}

static gem_status measure(void *user, const char *path, gem_error *err)
{
    trial *t = user;
    gem_status st = cli_prefix_open(&t->prefix, &opt, path, t->position, false, err);
    if (st != GEM_OK) return st;
    for (int i = 0; i < 2; i++) {
        t->arm[i].digests = json_array();
        t->timed[i] = (bench_arm){.name = t->arm[i].name,
                                  .prepare = prepare,
                                  .run = run_arm,
                                  .finish = keep,
                                  .user = &t->arm[i],
                                  .work = opt.rows};
    }
    t->plan = (bench_plan){.arm = t->timed,
                           .n_arms = 2,
                           .repetitions = t->repetitions,
                           .warmups = 1,
                           .progress = on_run};
    return bench_run(&t->plan, err);
}

static bool same_bits(const void *user)
{
    const trial *t = user;
    return t->arm[0].same && t->arm[1].same;
}

int main(int argc, char **argv)
{
    char **args;
    const char *seed = getenv("GEM_LONG_PREFIX_SEED");
    int n_args, code = cli_parse(&command, argc, argv, &args, &n_args);
    trial t = {.repetitions = 3};
    const cli_prefix_job job = {
        .measure = measure, .record = record, .holds = same_bits, .user = &t};
    if (code < 0) code = cli_prefix_arguments(&command, args, n_args, &t.position, &t.repetitions);
    if (code >= 0) return code;
    if (!choose_arms(&t))
        return cli_usage(&command,
                         "GEM_LONG_PREFIX_CANDIDATE is '%s'; there is: bq8, bk128, batched-swa",
                         getenv("GEM_LONG_PREFIX_CANDIDATE"));
    opt.seed_prefix = seed && *seed && strcmp(seed, "0") != 0;
    code = cli_prefix_run(&command, &opt, args[0], &job);
    bench_plan_deinit(&t.plan);
    for (int i = 0; i < 2; i++) {
        free(t.arm[i].logits);
        json_decref(t.arm[i].digests);
    }
    bench_prefix_close(&t.prefix);
    return code;
}
