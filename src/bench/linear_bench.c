/* linear_bench.c - two operators in turn: one with outputs, whose digests must agree, and one
 * without, which is timed. */
#include "bench/linear_bench.h"

#include <ctype.h>
#include <stdio.h>

typedef struct subject {
    bench_operator op;
    int32_t submissions; /* of one timed run */
} subject;

static gem_status run(void *user, gem_error *err)
{
    subject *s = user;
    gem_status st = GEM_OK;
    for (int32_t i = 0; st == GEM_OK && i < s->submissions; i++)
        st = bench_operator_run(&s->op, 0, NULL, err);
    return st;
}

/* Every slot once, twice over. */
static gem_status check_outputs(const bench_linear_options *opt, char hex[65], bool *same,
                                gem_error *err)
{
    bench_operator o = {0};
    bench_operator_options oo = opt->op;
    bench_linear l = opt->linear;
    char again[65];
    oo.outputs = true;
    oo.no_repack = opt->copy;
    l.span = l.slots;
    gem_status st = bench_operator_linear(&o, &oo, &l, err);
    if (st == GEM_OK) st = bench_operator_run(&o, 0, NULL, err);
    if (st == GEM_OK) {
        bench_operator_digest(&o, hex);
        st = bench_operator_run(&o, 0, NULL, err);
    }
    if (st == GEM_OK) {
        bench_operator_digest(&o, again);
        *same = strcmp(hex, again) == 0;
    }
    bench_operator_close(&o);
    return st;
}

static json_t *record(const bench_linear_options *opt, const subject *s, const bench_arm *arm,
                      int32_t warm, const char *hex, bool same, json_t *host)
{
    const bench_linear *l = &opt->linear;
    const gem_dtype_info *type = gem_dtype_get(l->dtype);
    const gem_op_route *route = opt->kernel ? gem_op_route_find("linear", opt->kernel) : NULL;
    char name[32];
    snprintf(name, sizeof(name), "linear_%s", type->name);
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    json_t *row = bench_arm_json(arm), *config = bench_operator_config(&s->op);
    const char *ran = bench_route_ran(config, "linear", s->op.rows);
    double n = opt->iterations, per_product = (double)s->op.weight_bytes / l->slots;
    double mean = json_number_value(json_object_get(json_object_get(row, "time_ns"), "mean")) / n;
    json_t *doc = json_pack(
        "{s:s, s:s, s:s, s:o, s:{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}}",
        "schema", "gem-kernel-bench/1", "program", opt->program, "kernel",
        opt->kernel ? opt->kernel : name, "route",
        route ? bench_route_json(route, ran) : json_pack("{s:s, s:s}", "name", name, "ran", ran),
        "parameters", "backend", s->op.ops->name, "isa", s->op.isa, "quant", type->name,
        "buffer_mode", opt->copy ? "copy" : "persistent", "threads", s->op.n_threads, "input",
        (int)l->input, "output", (int)l->output, "batch_rows", (int)s->op.rows, "matrix_slots",
        (int)l->slots, "command_span", (int)l->span, "warmup", (int)opt->warmup, "iterations",
        (int)opt->iterations, "repetitions", (int)opt->repetitions);
    if (!doc) return NULL;
    json_object_update_new(
        doc,
        json_pack(
            "{s:s, s:I, s:i, s:f, s:f, s:f, s:b, s:s, s:o, s:o, s:{s:b, s:s}}", "buffer_mode_means",
            opt->copy ? "weights stay as a file has them; every product brings them into the "
                        "kernel's layout"
                      : "weights were brought into the kernel's layout once, before",
            "working_set_bytes", (json_int_t)s->op.weight_bytes, "effective_warmup", (int)warm,
            "ns_per_iteration", mean, "weight_gb_per_s", per_product / mean, "gflop_per_s",
            2.0 * l->input * l->output * s->op.rows / mean, "deterministic", same, "output_sha256",
            hex, "host", host, "config", config, "promotion", "eligible", 0, "reason",
            "an operator microbenchmark cannot replace the model's pp, tg and TTFT"));
    json_object_update_missing(doc, row); /* samples_ns, warmup_ns, time_ns, rates */
    json_object_del(doc, "name");
    json_decref(row);
    return doc;
}

gem_status bench_linear_measure(const bench_linear_options *opt, json_t **out, bool *same,
                                gem_error *err)
{
    subject s = {.submissions = opt->iterations / opt->linear.span};
    char hex[65] = "";
    int32_t span = opt->linear.span, warm = (opt->warmup + span - 1) / span * span;
    json_t *host = bench_host_json();
    bench_operator_options oo = opt->op;
    bench_arm arm = {.name = "products", .run = run, .user = &s, .work = opt->iterations};
    bench_plan plan = {
        .arm = &arm,
        .n_arms = 1,
        .repetitions = opt->repetitions,
        .progress = opt->progress,
        .progress_user = opt->progress_user,
    };
    *out = NULL;
    oo.no_repack = opt->copy;
    gem_status st = check_outputs(opt, hex, same, err);
    if (st == GEM_OK) st = bench_operator_linear(&s.op, &oo, &opt->linear, err);
    for (int32_t i = 0; st == GEM_OK && i < warm / span; i++)
        st = bench_operator_run(&s.op, 0, NULL, err);
    if (st == GEM_OK) st = bench_run(&plan, err);
    if (st == GEM_OK) {
        *out = record(opt, &s, &arm, warm, hex, *same, host);
        host = NULL;
    }
    json_decref(host);
    bench_plan_deinit(&plan);
    bench_operator_close(&s.op);
    return st;
}
