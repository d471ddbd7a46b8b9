/* analyses.c - the table of gem-analyze: inputs, schema of the report, and who judges. */
#include "cmd/analyze/analyze.h"
#include "evidence/logit_compare.h"
#include "evidence/speed_gate.h"

#include <stdlib.h>

static const cli_option no_options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

/* ---- logits ---- */
static struct {
    float least_correlation, most_nmse;
} logits = {0.999f, 1e-3f};

static const cli_option logits_options[] = {
    {"min-correlation", 0, CLI_FLOAT, "X", &logits.least_correlation, 0, 1,
     "least correlation of a row; default 0.999", NULL},
    {"max-nmse", 0, CLI_FLOAT, "X", &logits.most_nmse, 0, 1,
     "largest normalised squared error of a row; default 0.001", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

/* The decimal the user meant, not the float nearest to it. */
static double decimal(float x)
{
    char text[32];
    snprintf(text, sizeof(text), "%.7g", (double)x);
    return strtod(text, NULL);
}

static gem_status judge_logits(ev_judge *j, const ev_doc *in, gem_error *err)
{
    const ev_logit_limits limits = {decimal(logits.least_correlation), decimal(logits.most_nmse)};
    return ev_judge_logits(j, &in[0], &in[1], &limits, err);
}

/* ---- benchmarks ---- */
static struct {
    int primary;
    bool allow_model_change;
} bench;

static const cli_option bench_options[] = {
    {"primary", 'p', CLI_CHOICE, "tg|pp", &bench.primary, 0, 0,
     "KPI that the candidate is to improve; default tg", NULL},
    {"allow-model-change", 0, CLI_FLAG, NULL, &bench.allow_model_change, 0, 0,
     "the model is the changed axis: a quantization experiment", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static gem_status judge_bench(ev_judge *j, const ev_doc *in, gem_error *err)
{
    const ev_bench_options o = {bench.primary == 1, bench.allow_model_change};
    (void)err;
    ev_judge_benchmarks(j, &in[0], &in[1], &o);
    return GEM_OK;
}

#define COMMAND(name, inputs, n, about, more, table)                                               \
    {                                                                                              \
        .program = "gem-analyze " name, .args = inputs " [OUT.json]", .summary = about,            \
        .text = more, .min_args = n, .max_args = n + 1, .option = table                            \
    }

const analysis analyses[] = {
    {COMMAND(
         "benchmarks", "BASELINE.json CANDIDATE.json", 2,
         "may the candidate of two gem-bench records be promoted",
         "The primary KPI has to gain more than 3 % and more than the larger run's variation, the\n"
         "other one may not lose more than 2 % beyond its variation, exactly one axis may "
         "differ.\n",
         bench_options),
     "gem-analyze-benchmarks/1", "promote", judge_bench},
    {COMMAND("logits", "NATIVE.f32.json REFERENCE.f32.json", 2,
             "are two vectors of logits the same model's", NULL, logits_options),
     "gem-analyze-logits/1", "equal", judge_logits},
    {COMMAND("", "", 0, NULL, NULL, no_options), NULL, NULL, NULL},
};
