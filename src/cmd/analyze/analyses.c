/* analyses.c - the table of gem-analyze: inputs, schema of the report, and who judges. */
#include "cmd/analyze/analyze.h"
#include "evidence/analyzers.h"
#include "evidence/logit_compare.h"
#include "evidence/server_gate.h"
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

/* ---- the others ---- */
static gem_status judge_kernels(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_kernel_benchmarks(j, &in[0], &in[1]);
    return GEM_OK;
}

static gem_status judge_abba(ev_judge *j, const ev_doc *in, gem_error *err)
{
    return ev_judge_decode_abba(j, in, err);
}

static gem_status judge_traffic(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_attention_traffic(j, &in[0]);
    return GEM_OK;
}

static struct {
    int32_t layers, full;
} graph = {EV_31B_LAYERS, EV_31B_FULL};

static const cli_option graph_options[] = {
    {"layers", 0, CLI_INT, "N", &graph.layers, 1, 10000, "layers of the graph; default 60", NULL},
    {"full-layers", 0, CLI_INT, "N", &graph.full, 0, 10000,
     "full-attention layers among them; default 10", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static gem_status judge_stages(ev_judge *j, const ev_doc *in, gem_error *err)
{
    if (graph.full > graph.layers)
        return gem_fail(err, GEM_E_ARG, "--full-layers %d is more than --layers %d", graph.full,
                        graph.layers);
    ev_judge_prefill_stages(j, &in[0], (size_t)graph.layers, (size_t)graph.full);
    return GEM_OK;
}

static gem_status judge_residual(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_decode_residual(j, &in[0], &in[1]);
    return GEM_OK;
}

static gem_status judge_ceiling(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_split_kv_ceiling(j, in);
    return GEM_OK;
}

static gem_status judge_resources(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_split_kv_resources(j, &in[0]);
    return GEM_OK;
}

static gem_status judge_correctness(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_split_kv_correctness(j, in);
    return GEM_OK;
}

static gem_status judge_merge(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_online_merge(j, in);
    return GEM_OK;
}

static gem_status judge_resume(ev_judge *j, const ev_doc *in, gem_error *err)
{
    (void)err;
    ev_judge_server_resume(j, in);
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
    {COMMAND("kernel-benchmarks", "BASELINE.json CANDIDATE.json", 2,
             "compare two gem-kernel-bench records; never promotes", NULL, no_options),
     "gem-analyze-kernel-benchmarks/1", "comparable", judge_kernels},
    {COMMAND("decode-attention-abba", "A1.json B1.json B2.json A2.json", 4,
             "pool four gem-decode-attention-profile records in ABBA order", NULL, no_options),
     "gem-analyze-decode-attention-abba/1", "comparable", judge_abba},
    {COMMAND("decode-attention-traffic", "PROFILE.json", 1,
             "least logical traffic of a split-score attention record", NULL, no_options),
     "gem-analyze-decode-attention-traffic/1", "modelled", judge_traffic},
    {COMMAND("prefill-stages", "PROFILE.json", 1, "rank the stages of a long-prefill record", NULL,
             graph_options),
     "gem-analyze-prefill-stages/1", "ranked", judge_stages},
    {COMMAND("decode-residual", "MODEL_PROFILE.json OPERATOR_PROFILE.json", 2,
             "what a better value kernel could bring a whole token", NULL, no_options),
     "gem-analyze-decode-residual/1", "admissible", judge_residual},
    {COMMAND("fused-split-kv-ceiling", "MODEL_64K.json OP_64K.json MODEL_128K.json OP_128K.json", 4,
             "what a fused split-KV route could bring", NULL, no_options),
     "gem-analyze-fused-split-kv-ceiling/1", "admissible", judge_ceiling},
    {COMMAND("fused-split-kv-resources", "RECEIPT.json", 1, "compiled resources of the fused route",
             NULL, no_options),
     "gem-analyze-fused-split-kv-resources/1", "admitted", judge_resources},
    {COMMAND("fused-split-kv-correctness",
             "CPU_GATE.json RESOURCES.json OP_8191.json OP_8192.json OP_8193.json OP_65536.json "
             "OP_131072.json MODEL_8191.json MODEL_8192.json MODEL_8193.json",
             10, "correctness of the fused route against selector 19", NULL, no_options),
     "gem-analyze-fused-split-kv-correctness/1", "admitted", judge_correctness},
    {COMMAND("online-merge-boundary", "8191.json 8192.json 8193.json 65536.json 131072.json", 5,
             "the algebra of merged partitions at its boundary lengths", NULL, no_options),
     "gem-analyze-online-merge-boundary/1", "admitted", judge_merge},
    {COMMAND("long-context-resume",
             "GATE_CONFIG.json NEW_GATE_CONFIG.json PRINT_CONFIG.json NEW_PRINT_CONFIG.json", 4,
             "may a server gate go on where it stopped", NULL, no_options),
     "gem-analyze-long-context-resume/1", "resume", judge_resume},
    {COMMAND("", "", 0, NULL, NULL, no_options), NULL, NULL, NULL},
};
