/* gates.c - judges of whole folders: the gates. */
#include "cmd/analyze/analyze.h"
#include "evidence/analyzers.h"
#include "evidence/cancel_gate.h"
#include "evidence/operator_gates.h"
#include "evidence/server_gate.h"

static const cli_option no_options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

static struct {
    int32_t sample;
    const char *binary, *model;
} opt = {.sample = 1};

static const cli_option sample_options[] = {
    {"sample", 0, CLI_INT, "N", &opt.sample, 1, EV_SERVER_GATE_SAMPLES, "which one; default 1",
     NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};
static const cli_option audit_options[] = {
    {"binary", 'b', CLI_TEXT, "FILE", &opt.binary, 0, 0,
     "must still be the program that was frozen when the run began", NULL},
    {"model", 0, CLI_TEXT, "FILE", &opt.model, 0, 0,
     "read again: must still be the model that was frozen", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static gem_status judge_sample(ev_judge *j, const char *dir, gem_error *err)
{
    (void)err;
    ev_judge_server_sample(j, dir, opt.sample);
    return GEM_OK;
}

static gem_status judge_gate(ev_judge *j, const char *dir, gem_error *err)
{
    (void)err;
    ev_judge_server_gate(j, dir);
    return GEM_OK;
}

static gem_status judge_audit(ev_judge *j, const char *dir, gem_error *err)
{
    const ev_server_audit a = {opt.binary, opt.model};
    ev_folder f;
    gem_status st = ev_folder_read(&f, dir, err);
    if (st == GEM_OK) {
        /* paths of this machine are no part of the report, which is the same wherever it is made */
        gem_json *options = (gem_json *)gem_json_get(j->root, "options");
        options->first = options->last = NULL;
        options->n = 0;
        ev_judge_server_audit(j, dir, &f, &a);
    }
    ev_folder_free(&f);
    return st;
}

static gem_status judge_cancel(ev_judge *j, const char *dir, gem_error *err)
{
    (void)err;
    ev_judge_cancel_gate(j, dir);
    return GEM_OK;
}

/* ---- operator gates: another scale than the protocol's is recorded as an option ---- */
static struct {
    const char *shape;
    int32_t position, layers, full_layers;
} scale = {.layers = EV_31B_LAYERS, .full_layers = EV_31B_FULL};

static const cli_option shape_options[] = {
    {"shape", 0, CLI_TEXT, "NAME", &scale.shape, 0, 0, "of the operator; default 31b", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};
static const cli_option position_options[] = {
    {"position", 0, CLI_INT, "N", &scale.position, 1, 1 << 24, "of the tile; default 65536", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};
#define LAYER_OPTIONS                                                                              \
    {"layers", 0, CLI_INT, "N", &scale.layers, 1, 10000, "layers of the graph; default 60", NULL}, \
    {                                                                                              \
        "full-layers", 0, CLI_INT, "N", &scale.full_layers, 0, 10000,                              \
            "full-attention layers among them; default 10", NULL                                   \
    }
static const cli_option tile8_options[] = {
    {"shape", 0, CLI_TEXT, "NAME", &scale.shape, 0, 0, "of the operator; default 31b-full", NULL},
    LAYER_OPTIONS,
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};
static const cli_option stage_options[] = {
    {"position", 0, CLI_INT, "N", &scale.position, 1, 1 << 24, "of the tile; default 131040", NULL},
    LAYER_OPTIONS,
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static ev_gate_scale scale_of(const char *shape, int32_t position)
{
    return (ev_gate_scale){scale.shape ? scale.shape : shape,
                           scale.position ? scale.position : position, (size_t)scale.layers,
                           (size_t)scale.full_layers};
}

static gem_status judge_bq8(ev_judge *j, const char *dir, gem_error *err)
{
    const ev_gate_scale s = scale_of("31b", 0);
    (void)err;
    ev_judge_bq8_gate(j, dir, &s);
    return GEM_OK;
}

static gem_status judge_bq8_graph(ev_judge *j, const char *dir, gem_error *err)
{
    const ev_gate_scale s = scale_of("31b", 65536);
    (void)err;
    ev_judge_bq8_graph_gate(j, dir, &s);
    return GEM_OK;
}

static gem_status judge_tile8(ev_judge *j, const char *dir, gem_error *err)
{
    const ev_gate_scale s = scale_of("31b-full", 0);
    (void)err;
    ev_judge_score_tile8_gate(j, dir, &s);
    return GEM_OK;
}

static gem_status judge_attribution(ev_judge *j, const char *dir, gem_error *err)
{
    const ev_gate_scale s = scale_of("31b", 131040);
    if (scale.full_layers > scale.layers)
        return gem_fail(err, GEM_E_ARG, "--full-layers %d is more than --layers %d",
                        scale.full_layers, scale.layers);
    ev_judge_stage_attribution(j, dir, &s);
    return GEM_OK;
}

#define FOLDER(name, about, more, table)                                                           \
    {                                                                                              \
        .program = "gem-analyze " name, .args = "DIR [OUT.json]", .summary = about, .text = more,  \
        .min_args = 1, .max_args = 2, .option = table                                              \
    }

const folder_analysis folder_analyses[] = {
    {FOLDER("long-context-server-gate", "aggregates of a server gate from its raw files",
            "Reads what scripts/long-context-server-gate.sh keeps; three samples have to hold.\n",
            no_options),
     "gem-analyze-long-context-server-gate/4", "accepted", judge_gate},
    {FOLDER("long-context-sample", "one sample of a server gate", NULL, sample_options),
     "gem-analyze-long-context-sample/1", "sound", judge_sample},
    {FOLDER("long-context-audit", "a sealed server gate, recomputed from its raw files",
            "Manifest, program, model, prompt, terminators, records of 100 % and of prefix hits, "
            "bytes of keys\n"
            "and values, aggregates. DIR/audit.json may be where this report is written to.\n",
            audit_options),
     "gem-analyze-long-context-audit/1", "accepted", judge_audit},
    {FOLDER("server-prefill-cancel-gate", "a cancelled prompt and the request behind it",
            "Reads what scripts/server-prefill-cancel-gate.sh keeps.\n", no_options),
     "gem-analyze-server-prefill-cancel-gate/1", "recovered", judge_cancel},
    {FOLDER("bq8-bk128-gate", "cache tiles of 128 keys against 64, as an operator",
            "Reads what scripts/run-bq8-bk128-gate.sh keeps; never promotes.\n", shape_options),
     "gem-analyze-bq8-bk128-gate/1", "advance", judge_bq8},
    {FOLDER("bq8-bk128-graph-gate", "the same in the whole graph, with its logits",
            "Reads what scripts/run-bq8-bk128-graph-gate.sh keeps; never promotes.\n",
            position_options),
     "gem-analyze-bq8-bk128-graph-gate/1", "advance", judge_bq8_graph},
    {FOLDER("score-tile8-gate", "score tiles of eight tokens against one",
            "Reads what scripts/run-score-tile8-gate.sh keeps; never promotes.\n", tile8_options),
     "gem-analyze-score-tile8-gate/2", "admitted", judge_tile8},
    {FOLDER("prefill-stage-attribution", "a seeded stage profile with what it was made by",
            "Reads what scripts/run-prefill-stage-attribution.sh keeps; never promotes.\n",
            stage_options),
     "gem-analyze-prefill-stage-attribution/1", "ranked", judge_attribution},
    {FOLDER("", NULL, NULL, no_options), NULL, NULL, NULL},
};
