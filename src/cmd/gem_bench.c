/* gem_bench.c - `gem-bench`: prompt processing (pp), generation (tg) and time to first token of a
 * model, beside the machine's memory read roof. One JSON document on stdout with every sample. */
#include "base/base.h"
#include "bench/bench.h"
#include "bench/draft.h"
#include "bench/end_to_end.h"
#include "bench/subject.h"
#include "cmd/cli/cli.h"
#include "cmd/cli/draft.h"
#include "cmd/cli/measure.h"

#include <stdlib.h>

enum { TOKEN, LAYER }; /* --command-span */

static struct {
    cli_model_flags model;
    const char *path, *prompt_file;
    cli_draft draft;
    int32_t prompt_tokens, generation_tokens, repetitions, warmups, depth, roof_mib;
    int span;
    bool sha256, attention_ab, no_roof, end_to_end;
    char *command; /* owned: the scrubbed command line */
} opt = {
    .prompt_tokens = 512, .generation_tokens = 64, .repetitions = 5, .warmups = 1, .roof_mib = 512};

static const cli_option options[] = {
    {"model", 'm', CLI_TEXT, "MODEL", &opt.path, 0, 0, "path or fetched name", NULL},
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 1, INT32_MAX,
     "positions of the session; default: as many as are needed", NULL},
    {"prompt-tokens", 'p', CLI_INT, "N", &opt.prompt_tokens, 0, INT32_MAX,
     "tokens of the pp test; 0: none; default 512", NULL},
    {"generation-tokens", 'n', CLI_INT, "N", &opt.generation_tokens, 0, INT32_MAX,
     "tokens of the tg test; 0: none; default 64", NULL},
    {"depth", 'd', CLI_INT, "N", &opt.depth, 0, INT32_MAX,
     "tokens that stand in the session before each test; default 0", NULL},
    {"repetitions", 'r', CLI_INT, "N", &opt.repetitions, 1, 100000,
     "timed runs of each test; default 5", NULL},
    {"warmups", 'w', CLI_INT, "N", &opt.warmups, 0, 1000, "untimed runs before them; default 1",
     NULL},
    {"command-span", 0, CLI_CHOICE, "token|layer", &opt.span, 0, 0,
     "what one submission to the device covers, and the host waits for; default token", NULL},
    {"attention-ab", 0, CLI_FLAG, NULL, &opt.attention_ab, 0, 0,
     "attention of ref beside production's, interleaved: four rows; exit 1 when logits differ",
     NULL},
    {"sha256", 0, CLI_FLAG, NULL, &opt.sha256, 0, 0,
     "record the model's digest (reads all of it); else $GEM_MODEL_SHA256", NULL},
    {"roof-mib", 0, CLI_INT, "N", &opt.roof_mib, 256, 65536,
     "memory that the read roof streams through; default 512", NULL},
    {"end-to-end", 'e', CLI_FLAG, NULL, &opt.end_to_end, 0, 0,
     "one run is prompt and generation together: what experiment receipts need", NULL},
    CLI_DRAFT_OPTIONS(&opt.draft),
    {"prompt-file", 0, CLI_TEXT, "FILE", &opt.prompt_file, 0, 0,
     "with --draft: the prompt is this text; default: pseudo-random tokens", NULL},
    {"no-roof", 0, CLI_FLAG, NULL, &opt.no_roof, 0, 0, "do not measure the read roof", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-bench",
    .args = "",
    .summary = "measure prompt processing and generation of a model",
    .text = "Tests run interleaved, in an order in which drift of the machine cancels. Tokens are "
            "pseudo-random,\n"
            "all logits of the last position are computed, nothing is sampled inside the timing.\n"
            "\n"
            "  gem-bench --model gemma-3-270m --context 640 --prompt-tokens 512 "
            "--generation-tokens 64 --repetitions 3\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

typedef struct roof_arm {
    bench_roof *roof;
    int passes;
} roof_arm;

static gem_status run_roof(void *user, gem_error *err)
{
    roof_arm *r = user;
    (void)err;
    for (int i = 0; i < r->passes; i++)
        bench_roof_pass(r->roof);
    return GEM_OK;
}

static bool on_run(void *user, const char *arm, int round, uint64_t ns)
{
    (void)user;
    if (round < 0)
        fprintf(stderr, "%-10s warm-up %9.1f ms\n", arm, (double)ns * 1e-6);
    else
        fprintf(stderr, "%-10s %3d/%-3d %9.1f ms\n", arm, round + 1, opt.repetitions,
                (double)ns * 1e-6);
    return !cli_interrupted;
}

/* ---- the record ---- */
static double figure(const json_t *arm, const char *group, const char *name)
{
    return json_number_value(json_object_get(json_object_get(arm, group), name));
}

/* Bytes a second of decoding beside bytes a second of reading. */
static json_t *share_json(const json_t *tg, const json_t *roof, uint64_t bytes)
{
    double decode_best = figure(tg, "rate_per_s", "max") * (double)bytes,
           roof_best = figure(roof, "rate_per_s", "max");
    double decode_median = figure(tg, "rate_per_s", "median") * (double)bytes,
           roof_median = figure(roof, "rate_per_s", "median");
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "weight_bytes_per_token",
                     (json_int_t)bytes, "decode_gb_s_best", decode_best * 1e-9, "roof_gb_s_best",
                     roof_best * 1e-9, "share_of_best", decode_best / roof_best,
                     "decode_gb_s_median", decode_median * 1e-9, "roof_gb_s_median",
                     roof_median * 1e-9, "share_of_median", decode_median / roof_median);
}

static json_t *parameters_json(const gem_model_info *info)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:b, s:s}", "context",
                     (int)info->n_ctx, "prompt_tokens", (int)opt.prompt_tokens, "generation_tokens",
                     (int)opt.generation_tokens, "depth", (int)opt.depth, "repetitions",
                     (int)opt.repetitions, "warmups", (int)opt.warmups, "threads", info->n_threads,
                     "batch", (int)(opt.model.batch ? opt.model.batch : 512), "kv_type",
                     cli_kv_type_names[opt.model.kv_type], "backend", info->backend, "isa",
                     info->isa, "repacked", !opt.model.no_repack, "command_span",
                     opt.span == LAYER ? "layer" : "token");
}

static json_t *model_json(const char *path, const gem_model_info *info, json_t *digest)
{
    return json_pack("{s:s, s:s, s:s, s:o?, s:I, s:I, s:I}", "path", path, "family", info->family,
                     "name", info->name, "sha256", digest, "file_bytes",
                     (json_int_t)info->file_bytes, "weights_bytes", (json_int_t)info->weights_bytes,
                     "decode_bytes", (json_int_t)info->decode_bytes);
}

/* ---- the arms ---- */
/* Two models at most: with --attention-ab the oracle's attention beside the one of production. */
typedef struct trial {
    bench_subject subject[2];
    const char *arm_name[2]; /* "oracle", "candidate"; one model alone: "production" */
    const char *route[2];    /* kernels of its attention */
    size_t n_subjects;
    roof_arm roof;
    bench_arm arm[5];
    int arm_subject[5]; /* -1: the read roof */
    bench_plan plan;
    bool same_logits;
    bench_e2e e2e;     /* with --end-to-end */
    bench_draft draft; /* with --draft */
} trial;

static void add_arm(trial *t, int subject, bench_arm arm)
{
    t->arm_subject[t->plan.n_arms] = subject;
    t->arm[t->plan.n_arms++] = arm;
}

static void add_subject_arms(trial *t, bool prompt)
{
    for (size_t i = 0; i < t->n_subjects; i++) {
        bench_arm pp = {.name = "pp",
                        .prepare = bench_subject_rewind,
                        .run = bench_subject_prompt,
                        .finish = bench_subject_first,
                        .user = &t->subject[i],
                        .work = opt.prompt_tokens};
        bench_arm tg = {.name = "tg",
                        .prepare = bench_subject_rewind,
                        .run = bench_subject_generate,
                        .user = &t->subject[i],
                        .work = opt.generation_tokens};
        if (prompt ? opt.prompt_tokens : opt.generation_tokens)
            add_arm(t, (int)i, prompt ? pp : tg);
    }
}

/* Prompt and generation as one arm, on the one model there is. */
static gem_status add_end_to_end(trial *t, gem_error *err)
{
    bench_subject *s = &t->subject[0];
    t->e2e = (bench_e2e){.model = s->model,
                         .greedy = s->greedy,
                         .prompt = s->prompt,
                         .n_prompt = opt.prompt_tokens,
                         .n_decode = opt.generation_tokens,
                         .repetitions = opt.repetitions};
    gem_status st = bench_e2e_init(&t->e2e, err);
    if (st != GEM_OK) return st;
    add_arm(t, 0,
            (bench_arm){.name = "e2e",
                        .prepare = bench_e2e_prepare,
                        .run = bench_e2e_run,
                        .finish = bench_e2e_finish,
                        .user = &t->e2e,
                        .work = opt.generation_tokens});
    return GEM_OK;
}

/* Generation by decoding and by rounds of guesses, behind a text. */
static gem_status add_draft(trial *t, const gem_model_options *mo, gem_error *err)
{
    bench_subject *s = &t->subject[0];
    int32_t *ids = NULL, n = opt.prompt_tokens;
    char *text = NULL;
    size_t len, n_ids;
    gem_status st = cli_draft_open(&opt.draft, s->model, mo, err);
    if (st == GEM_OK && opt.prompt_file) {
        st = cli_read(opt.prompt_file, &text, &len, err);
        if (st == GEM_OK) st = gem_tokenize(s->model, text, len, GEM_TOK_BOS, &ids, &n_ids, err);
        if (st == GEM_OK && (n_ids == 0 || n_ids > (size_t)n))
            st = gem_fail(err, GEM_E_ARG, "%s: %zu tokens, expected 1 to %d (--prompt-tokens)",
                          opt.prompt_file, n_ids, n);
        if (st == GEM_OK) n = (int32_t)n_ids;
    }
    if (st == GEM_OK)
        st = bench_draft_open(&t->draft, s->model, opt.draft.drafter, opt.draft.max,
                              ids ? ids : s->prompt, n, opt.generation_tokens, err);
    free(text);
    free(ids);
    if (st != GEM_OK) return st;
    bench_arm arm = {.name = "tg-plain",
                     .prepare = bench_draft_rewind,
                     .run = bench_draft_plain,
                     .user = &t->draft,
                     .work = opt.generation_tokens};
    add_arm(t, 0, arm);
    arm.name = "tg-draft";
    arm.run = bench_draft_rounds;
    arm.finish = bench_draft_finish;
    add_arm(t, 0, arm);
    return GEM_OK;
}

static int32_t needed_context(void)
{
    if (opt.end_to_end || opt.draft.arg) return opt.prompt_tokens + opt.generation_tokens;
    return opt.depth + GEM_MAX(opt.prompt_tokens, opt.generation_tokens);
}

static gem_status open_trial(trial *t, const char *path, gem_error *err)
{
    gem_model_options mo;
    gem_model_info info;
    char isa[64];
    gem_status st = GEM_OK;
    cli_model_options(&mo, &opt.model);
    if (!mo.n_ctx) mo.n_ctx = needed_context();
    st = cli_draft_options(&mo, &opt.draft, err);
    mo.n_sessions = 1 + (opt.depth > 0 || opt.end_to_end || opt.draft.arg);
    t->n_subjects = opt.attention_ab ? 2 : 1;
    for (size_t i = 0; st == GEM_OK && i < t->n_subjects; i++) {
        bool oracle = opt.attention_ab && i == 0;
        gem_model_options o = mo;
        t->arm_name[i] = !opt.attention_ab ? "production" : oracle ? "oracle" : "candidate";
        snprintf(isa, sizeof(isa), "%.40s,attend=ref", mo.isa ? mo.isa : "");
        if (oracle) o.isa = isa;
        if (opt.depth) fprintf(stderr, "filling %d positions\n", opt.depth);
        st = bench_subject_open(&t->subject[i], path, &o, opt.span == LAYER, opt.prompt_tokens,
                                opt.generation_tokens, opt.depth, (size_t)opt.repetitions, err);
        cli_end_progress();
        if (st != GEM_OK) return st;
        gem_model_get_info(t->subject[i].model, &info);
        t->route[i] = oracle ? "ref" : info.isa;
    }
    if (opt.end_to_end) return add_end_to_end(t, err);
    if (opt.draft.arg) return add_draft(t, &mo, err);
    add_subject_arms(t, true);
    if (!opt.no_roof) {
        t->roof.passes = 8;
        st = bench_roof_open(&t->roof.roof, info.n_threads, (size_t)opt.roof_mib << 20, err);
        if (st != GEM_OK) return st;
        add_arm(t, -1,
                (bench_arm){.name = "read-roof",
                            .run = run_roof,
                            .user = &t->roof,
                            .work = (double)bench_roof_bytes(t->roof.roof) * t->roof.passes});
    }
    add_subject_arms(t, false);
    return GEM_OK;
}

static void close_trial(trial *t)
{
    bench_plan_deinit(&t->plan);
    bench_roof_close(t->roof.roof);
    bench_e2e_deinit(&t->e2e);
    bench_draft_close(&t->draft);
    cli_draft_close(&opt.draft);
    for (size_t i = 0; i < t->n_subjects; i++)
        bench_subject_close(&t->subject[i]);
}

/* Both routes must give the same bits: the last logits of the same tokens. */
static gem_status compare_logits(trial *t, gem_error *err)
{
    gem_model_info info;
    t->same_logits = true;
    if (t->n_subjects < 2) return GEM_OK;
    for (size_t i = 0; i < t->n_subjects; i++) {
        bench_subject *s = &t->subject[i];
        gem_status st = bench_subject_rewind(s, err);
        if (st == GEM_OK)
            st = opt.prompt_tokens ? bench_subject_prompt(s, err) : bench_subject_generate(s, err);
        if (st != GEM_OK) return st;
    }
    gem_model_get_info(t->subject[0].model, &info);
    t->same_logits = memcmp(t->subject[0].logits, t->subject[1].logits,
                            (size_t)info.n_vocab * sizeof(float)) == 0;
    return GEM_OK;
}

static json_t *order_json(const trial *t)
{
    json_t *order = json_array();
    for (int r = 0; r < opt.repetitions; r++)
        for (size_t slot = 0; slot < t->plan.n_arms; slot++) {
            size_t a = bench_arm_at(t->plan.n_arms, r, slot);
            const char *who =
                t->arm_subject[a] < 0 || t->n_subjects < 2 ? "" : t->arm_name[t->arm_subject[a]];
            json_array_append_new(order,
                                  json_sprintf("%s%s%s", t->arm[a].name, *who ? "/" : "", who));
        }
    return order;
}

static json_t *row_json(const trial *t, size_t a)
{
    int i = t->arm_subject[a];
    json_t *row = bench_arm_json(&t->arm[a]);
    if (i < 0) return row;
    json_object_set_new(row, "arm", json_string(t->arm_name[i]));
    json_object_set_new(row, "attention_route", json_string(t->route[i]));
    json_object_set_new(row, "n_tokens", json_integer((json_int_t)t->arm[a].work));
    if (!strcmp(t->arm[a].name, "tg-draft"))
        json_object_set_new(row, "draft", bench_draft_json(&t->draft));
    if (!strcmp(t->arm[a].name, "pp"))
        json_object_set_new(row, "ttft", bench_subject_ttft_json(&t->subject[i]));
    return row;
}

static json_t *record(const char *path, const trial *t, json_t *host, json_t *digest)
{
    gem_model_info info;
    const bench_subject *s = &t->subject[t->n_subjects - 1]; /* production */
    json_t *rows = json_array(), *tg = NULL, *roof = NULL;
    gem_model_get_info(s->model, &info);
    for (size_t a = 0; a < t->plan.n_arms; a++) {
        json_t *row = row_json(t, a);
        if (t->arm_subject[a] < 0) {
            roof = row;
            continue;
        }
        if (!strcmp(t->arm[a].name, "tg")) tg = row;
        json_array_append_new(rows, row);
    }
    json_t *share = tg && roof ? share_json(tg, roof, info.decode_bytes) : json_null();
    char *config_text = gem_model_config_json(s->model);
    json_t *config = config_text ? json_loads(config_text, 0, NULL) : NULL;
    free(config_text);
    json_t *doc =
        json_pack("{s:s, s:o, s:o, s:o, s:I, s:o, s:o?, s:o, s:o, s:o?}", "schema", "gem-bench/1",
                  "model", model_json(path, &info, digest), "parameters", parameters_json(&info),
                  "host", host, "load_ns", (json_int_t)s->load_ns, "rows", rows, "read_roof", roof,
                  "decode_share", share, "order", order_json(t), "config", config);
    if (doc && opt.end_to_end)
        json_object_set_new(doc, "receipt",
                            bench_e2e_json(&t->e2e, 1, opt.command ? opt.command : "gem-bench"));
    if (doc && opt.draft.arg)
        json_object_set_new(doc, "tokens_identical", json_boolean(t->draft.same));
    if (doc && opt.attention_ab)
        json_object_set_new(doc, "logits_identical", json_boolean(t->same_logits));
    return doc;
}

static gem_status measure(const char *path, json_t **out, gem_error *err)
{
    trial t = {
        .plan = {.repetitions = opt.repetitions, .warmups = opt.warmups, .progress = on_run}};
    json_t *digest = NULL,
           *host = bench_host_json(); /* before our own load raises the load average */
    t.plan.arm = t.arm;
    char hex[65];
    gem_status st = cli_model_digest(path, opt.sha256, hex, err);
    if (st == GEM_OK && *hex) digest = json_string(hex);
    if (st == GEM_OK) st = open_trial(&t, path, err);
    if (st == GEM_OK) st = bench_run(&t.plan, err);
    if (st == GEM_OK) st = compare_logits(&t, err);
    if (st == GEM_OK) {
        *out = record(path, &t, host, digest);
        host = digest = NULL;
    }
    close_trial(&t);
    json_decref(host);
    json_decref(digest);
    return st;
}

int main(int argc, char **argv)
{
    char path[4096], **args;
    int n_args;
    gem_error err;
    json_t *doc = NULL;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (!opt.path) return cli_usage(&command, "--model is needed");
    if (!opt.prompt_tokens && !opt.generation_tokens)
        return cli_usage(&command, "nothing to measure: both token counts are 0");
    if ((int64_t)opt.depth + GEM_MAX(opt.prompt_tokens, opt.generation_tokens) >
        (opt.model.ctx ? opt.model.ctx : INT32_MAX))
        return cli_usage(&command, "--context %d is less than depth and tokens need",
                         opt.model.ctx);
    if (opt.end_to_end && (opt.depth || !opt.prompt_tokens || !opt.generation_tokens))
        return cli_usage(&command, "--end-to-end needs prompt and generation, and no depth");
    if (opt.prompt_file && !opt.draft.arg)
        return cli_usage(&command, "--prompt-file goes with --draft");
    if (opt.draft.arg && (opt.end_to_end || opt.attention_ab || opt.depth || !opt.prompt_tokens ||
                          !opt.generation_tokens))
        return cli_usage(&command, "--draft needs prompt and generation, and excludes --depth, "
                                   "--end-to-end and --attention-ab");
    if (opt.end_to_end && opt.attention_ab)
        return cli_usage(&command, "--end-to-end and --attention-ab exclude each other");
    if ((opt.end_to_end || opt.draft.arg) && opt.model.ctx &&
        (int64_t)opt.prompt_tokens + opt.generation_tokens > opt.model.ctx)
        return cli_usage(&command, "--context %d is less than prompt and generation need",
                         opt.model.ctx);
    cli_catch_interrupt();
    gem_status st = cli_model_path(opt.path, path, sizeof(path), &err);
    opt.command = bench_scrubbed_command(argc, argv);
    if (st == GEM_OK) st = measure(path, &doc, &err);
    free(opt.command);
    if (st != GEM_OK) return cli_fail(&command, &err);
    bool differ = json_is_false(json_object_get(doc, "logits_identical")) ||
                  json_is_false(json_object_get(doc, "tokens_identical"));
    code = cli_print_json(&command, doc);
    return code == CLI_DONE && differ ? CLI_FALSE : code;
}
