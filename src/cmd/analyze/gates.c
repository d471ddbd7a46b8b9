/* gates.c - judges of whole folders: the server gates. */
#include "cmd/analyze/analyze.h"
#include "evidence/cancel_gate.h"
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
    {FOLDER("", NULL, NULL, no_options), NULL, NULL, NULL},
};
