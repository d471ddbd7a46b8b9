/* operator.c - the fronts of the measuring programs. */
#include "cmd/cli/operator.h"

#include "base/base.h"

/* ---- products ---- */

static bool on_product(void *user, const char *arm, int round, uint64_t ns)
{
    const cli_linear_flags *f = user;
    fprintf(stderr, "%s %3d/%-3d %9.1f ms\n", arm, round + 1, f->repetitions, (double)ns * 1e-6);
    return !cli_interrupted;
}

int cli_linear_run(const cli_command *c, cli_linear_flags *f, const char *kernel, int32_t rows,
                   bool copy)
{
    gem_error err;
    json_t *doc = NULL;
    bool same = true;
    const gem_dtype_info *type = gem_dtype_by_name(f->quant);
    if (!type) return cli_usage(c, "--quant: there is no type '%s'", f->quant);
    if (f->input % 32 || (uint32_t)f->input % type->block_len || f->output % 32)
        return cli_usage(c, "--input and --output must be multiples of 32, and the input of the "
                            "type's blocks");
    if (f->iterations % f->span)
        return cli_usage(c, "--iterations %d is no multiple of --command-span %d", f->iterations,
                         f->span);
    if (!f->warmup_seen) f->warmup = (f->iterations + 9) / 10;
    cli_operator_finish(&f->op);
    cli_catch_interrupt();
    const bench_linear_options lo = {
        .program = c->program,
        .kernel = kernel,
        .op = {.backend = f->op.backend,
               .isa = f->op.isa,
               .n_threads = f->op.threads,
               .rows = rows,
               .tmp_dir = cli_tmp_dir()},
        .linear = {f->input, f->output, f->slots, f->span, type->dtype},
        .copy = copy,
        .warmup = f->warmup,
        .iterations = f->iterations,
        .repetitions = f->repetitions,
        .progress = on_product,
        .progress_user = f,
    };
    if (bench_linear_measure(&lo, &doc, &same, &err) != GEM_OK) return cli_fail(c, &err);
    int code = cli_print_json(c, doc);
    return code == CLI_DONE && !same ? CLI_FALSE : code;
}

/* ---- attention alone ---- */

const bench_shape *cli_attention_shape(const cli_command *c, const cli_attention_flags *f,
                                       int *code)
{
    char names[256] = "";
    const bench_shape *s = bench_shape_find(f->shape);
    if (s) return s;
    bench_shape_names(names, sizeof(names));
    *code = cli_usage(c, "--shape: there is no '%s'; there is: %s", f->shape, names);
    return NULL;
}

const gem_op_route *cli_route(const cli_command *c, const char *option, const char *op,
                              const char *name, const char *also, int *code)
{
    char names[256] = "";
    const gem_op_route *r = gem_op_route_find(op, name);
    if (r) return r;
    gem_op_route_names(op, names, sizeof(names));
    *code = cli_usage(c, "%s: there is no route '%s'; there is: %s%s%s", option, name, names,
                      *also ? ", " : "", also);
    return NULL;
}

int cli_attention_run(const cli_command *c, cli_attention_flags *f, const cli_attention_job *job,
                      const bench_shape *s, bench_attention_bench *b)
{
    gem_error err;
    int code;
    cli_operator_finish(&f->op);
    cli_catch_interrupt();
    json_t *host = bench_host_json();
    const bench_operator_options oo = {.backend = f->op.backend,
                                       .isa = f->op.isa,
                                       .n_threads = f->op.threads,
                                       .rows = job->rows,
                                       .tmp_dir = cli_tmp_dir(),
                                       .outputs = true};
    const bench_attention shape = {s->n_heads, s->n_kv_heads,   s->head_dim,
                                   s->window,  f->kv_type == 1, job->n_ctx};
    b->repetitions = f->repetitions;
    b->warmup = f->warmup;
    gem_status st = bench_operator_attention(&b->op, &oo, &shape, &err);
    if (st == GEM_OK && job->seeded) st = bench_operator_seed(&b->op, f->seed, &err);
    if (st == GEM_OK) st = bench_attention_run(b, &err);
    if (st == GEM_OK) {
        code = cli_print_json(c, job->record(b, s, host));
        host = NULL;
        if (code == CLI_DONE && !bench_attention_deterministic(b)) code = CLI_FALSE;
    } else {
        code = cli_fail(c, &err);
    }
    json_decref(host);
    bench_attention_close(b);
    return code;
}

/* ---- a model at a long position ---- */

int cli_prefix_arguments(const cli_command *c, char *const *args, int n_args, int32_t *position,
                         int32_t *repetitions)
{
    if (!cli_count(args[1], 0, 1 << 24, position))
        return cli_usage(c, "POSITION is '%s', expected 0 to %d", args[1], 1 << 24);
    if (n_args > 2 && !cli_count(args[2], 1, 100000, repetitions))
        return cli_usage(c, "REPETITIONS is '%s', expected 1 to 100000", args[2]);
    return -1;
}

static void on_prefix(void *user, int32_t done, int32_t total, uint64_t ns)
{
    double s = (double)ns * 1e-9;
    (void)user;
    fprintf(stderr, "prefix %d/%d, %.1f tokens/s, %.0f s to go\n", done, total, done / s,
            (total - done) * s / done);
}

gem_status cli_prefix_open(bench_prefix *p, const cli_prefix_flags *f, const char *path,
                           int32_t position, bool traced, gem_error *err)
{
    gem_model_options mo;
    cli_model_options(&mo, &f->model);
    const bench_prefix_options po = {
        .path = path,
        .model = &mo,
        .position = position,
        .rows = f->rows,
        .seeded = f->seed_prefix,
        .traced = traced,
        .seed = f->seed,
        .progress_every = f->no_progress ? 0 : f->progress_every,
        .progress = on_prefix,
        .stop = &cli_interrupted,
    };
    gem_status st = bench_prefix_open(p, &po, err);
    cli_end_progress();
    return st;
}

int cli_prefix_run(const cli_command *c, cli_prefix_flags *f, const char *model,
                   const cli_prefix_job *job)
{
    char path[4096], digest[65];
    gem_error err;
    int code;
    cli_catch_interrupt();
    json_t *host = bench_host_json();
    gem_status st = cli_kv_type_from_env(&f->model, &err);
    if (st == GEM_OK) st = cli_model_path(model, path, sizeof(path), &err);
    if (st == GEM_OK) st = cli_model_digest(path, f->sha256, digest, &err);
    if (st == GEM_OK) st = job->measure(job->user, path, &err);
    if (st == GEM_OK) {
        code = cli_print_json(c, job->record(job->user, path, digest, host));
        host = NULL;
        if (code == CLI_DONE && !job->holds(job->user)) code = CLI_FALSE;
    } else {
        code = cli_fail(c, &err);
    }
    json_decref(host);
    return code;
}
