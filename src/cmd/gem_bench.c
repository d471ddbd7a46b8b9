/* gem_bench.c - `gem-bench`: prompt processing (pp), generation (tg) and time to first token of a
 * model, beside the machine's memory read roof. One JSON document on stdout with every sample. */
#include "base/base.h"
#include "bench/bench.h"
#include "bench/end_to_end.h"
#include "bench/stats.h"
#include "cmd/cli/cli.h"

#include <stdlib.h>

static struct {
    cli_model_flags model;
    const char *path;
    int32_t prompt_tokens, generation_tokens, repetitions, warmups, depth, roof_mib;
    int span;
    bool span_seen, sha256, attention_ab, no_roof, end_to_end;
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
    {"command-span", 0, CLI_CHOICE, "layer|token", &opt.span, 0, 0,
     "what one submission to the device covers", &opt.span_seen},
    {"attention-ab", 0, CLI_FLAG, NULL, &opt.attention_ab, 0, 0,
     "two arms in one process, interleaved: four rows", NULL},
    {"end-to-end", 'e', CLI_FLAG, NULL, &opt.end_to_end, 0, 0,
     "one run is prompt and generation together: what experiment receipts need", NULL},
    {"sha256", 0, CLI_FLAG, NULL, &opt.sha256, 0, 0,
     "record the model's digest (reads all of it); else $GEM_MODEL_SHA256", NULL},
    {"roof-mib", 0, CLI_INT, "N", &opt.roof_mib, 256, 65536,
     "memory that the read roof streams through; default 512", NULL},
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

/* What the arms share. */
typedef struct subject {
    gem_model *model;
    gem_session *session;
    gem_checkpoint *start; /* the session at `depth`; NULL for depth 0 */
    gem_sampler *greedy;
    int32_t *prompt, *generated; /* token ids */
    const float *logits;
    uint64_t run_start;
    uint64_t *ttft_ns; /* [repetitions] */
    size_t n_ttft;
    bench_e2e e2e; /* with --end-to-end */
} subject;

typedef struct roof_arm {
    bench_roof *roof;
    int passes;
} roof_arm;

/* splitmix64: the same tokens on every machine. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int32_t *random_tokens(size_t n, int32_t n_vocab, int32_t bos, uint64_t seed)
{
    int32_t *t = malloc((n + 1) * sizeof(*t));
    for (size_t i = 0; t && i < n; i++)
        t[i] = (int32_t)(next_random(&seed) % (uint64_t)n_vocab);
    if (t && bos >= 0) t[0] = bos;
    return t;
}

static gem_status rewind_session(void *user, gem_error *err)
{
    subject *s = user;
    if (s->start) return gem_session_rollback(s->session, s->start, err);
    gem_session_free(s->session);
    s->session = NULL;
    return gem_session_new(&s->session, s->model, err);
}

static gem_status run_prompt(void *user, gem_error *err)
{
    subject *s = user;
    s->run_start = gem_now_ns();
    return gem_session_prefill(s->session, s->prompt, (size_t)opt.prompt_tokens, NULL, NULL,
                               &s->logits, err);
}

/* The first token is there once it was drawn. */
static gem_status draw_first(void *user, int round, gem_error *err)
{
    subject *s = user;
    int32_t token;
    gem_status st = gem_sampler_draw(s->greedy, s->logits, &token, err);
    if (st == GEM_OK && round >= 0) s->ttft_ns[s->n_ttft++] = gem_now_ns() - s->run_start;
    return st;
}

static gem_status run_generation(void *user, gem_error *err)
{
    subject *s = user;
    gem_status st = GEM_OK;
    for (int32_t i = 0; st == GEM_OK && i < opt.generation_tokens; i++)
        st = gem_session_decode(s->session, s->generated[i], &s->logits, err);
    return st;
}

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

static gem_status subject_init(subject *s, gem_model *m, gem_error *err)
{
    gem_model_info info;
    gem_sampler_options so;
    memset(s, 0, sizeof(*s));
    gem_model_get_info(m, &info);
    s->model = m;
    s->prompt =
        random_tokens((size_t)opt.prompt_tokens, info.n_vocab, opt.depth ? -1 : info.bos, 1);
    s->generated =
        random_tokens((size_t)opt.generation_tokens, info.n_vocab, opt.depth ? -1 : info.bos, 2);
    s->ttft_ns = calloc((size_t)opt.repetitions, sizeof(*s->ttft_ns));
    if (!s->prompt || !s->generated || !s->ttft_ns)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the tokens");
    gem_sampler_defaults(&so);
    gem_status st = gem_sampler_new(&s->greedy, info.n_vocab, &so, err);
    if (st == GEM_OK) st = gem_session_new(&s->session, m, err);
    if (st != GEM_OK || !opt.depth) return st;
    int32_t *before = random_tokens((size_t)opt.depth, info.n_vocab, info.bos, 3);
    if (!before) return gem_fail(err, GEM_E_NOMEM, "no memory for the tokens");
    fprintf(stderr, "filling %d positions\n", opt.depth);
    st = gem_session_prefill(s->session, before, (size_t)opt.depth, NULL, NULL, &s->logits, err);
    if (st == GEM_OK) st = gem_session_checkpoint(s->session, &s->start, err);
    free(before);
    return st;
}

static void subject_deinit(subject *s)
{
    bench_e2e_deinit(&s->e2e);
    gem_checkpoint_free(s->start);
    gem_session_free(s->session);
    gem_sampler_free(s->greedy);
    free(s->prompt);
    free(s->generated);
    free(s->ttft_ns);
}

/* ---- the record ---- */
static json_t *ttft_json(const subject *s)
{
    bench_stats st;
    double *x = calloc(s->n_ttft + 1, sizeof(*x));
    json_t *samples = json_array();
    for (size_t i = 0; x && i < s->n_ttft; i++) {
        x[i] = (double)s->ttft_ns[i];
        json_array_append_new(samples, json_integer((json_int_t)s->ttft_ns[i]));
    }
    bool have = x && s->n_ttft && bench_stats_of(&st, x, s->n_ttft);
    free(x);
    return json_pack("{s:o, s:o}", "samples_ns", samples, "time_ns",
                     have ? bench_stats_json(&st) : json_null());
}

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

static gem_status digest_json(const char *path, json_t **out, gem_error *err)
{
    char hex[65];
    const char *given = getenv("GEM_MODEL_SHA256");
    *out = NULL;
    if (opt.sha256) {
        gem_status st = gem_sha256_file(path, hex, err);
        if (st == GEM_OK) *out = json_string(hex);
        return st;
    }
    if (!given || !*given) return GEM_OK;
    if (strlen(given) != 64 || strspn(given, "0123456789abcdef") != 64)
        return gem_fail(
            err, GEM_E_ARG,
            "GEM_MODEL_SHA256 is no digest: 64 lower-case hexadecimal digits are needed");
    *out = json_string(given);
    return GEM_OK;
}

static json_t *parameters_json(const gem_model_info *info)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:b, s:s}", "context",
                     (int)info->n_ctx, "prompt_tokens", (int)opt.prompt_tokens, "generation_tokens",
                     (int)opt.generation_tokens, "depth", (int)opt.depth, "repetitions",
                     (int)opt.repetitions, "warmups", (int)opt.warmups, "threads", info->n_threads,
                     "batch", (int)(opt.model.batch ? opt.model.batch : 512), "kv_type",
                     cli_kv_type_names[opt.model.kv_type], "backend", info->backend, "isa",
                     info->isa, "repacked", !opt.model.no_repack, "command_span", "token");
}

static json_t *model_json(const char *path, const gem_model_info *info, json_t *digest)
{
    return json_pack("{s:s, s:s, s:s, s:o?, s:I, s:I, s:I}", "path", path, "family", info->family,
                     "name", info->name, "sha256", digest, "file_bytes",
                     (json_int_t)info->file_bytes, "weights_bytes", (json_int_t)info->weights_bytes,
                     "decode_bytes", (json_int_t)info->decode_bytes);
}

static json_t *order_json(const bench_plan *p)
{
    json_t *order = json_array();
    for (size_t i = 0; i < p->n_order; i++)
        json_array_append_new(order, json_string(p->order[i]));
    return order;
}

static json_t *record(const char *path, const gem_model *m, const subject *s, const bench_plan *p,
                      uint64_t load_ns, json_t *host, json_t *digest)
{
    gem_model_info info;
    json_t *rows = json_array(), *tg = NULL, *roof = NULL;
    gem_model_get_info(m, &info);
    for (size_t i = 0; i < p->n_arms; i++) {
        json_t *row = bench_arm_json(&p->arm[i]);
        if (!strcmp(p->arm[i].name, "read-roof")) {
            roof = row;
            continue;
        }
        json_object_set_new(row, "n_tokens", json_integer((json_int_t)p->arm[i].work));
        if (!strcmp(p->arm[i].name, "tg")) tg = row;
        json_array_append_new(rows, row);
    }
    json_t *share = tg && roof ? share_json(tg, roof, info.decode_bytes) : json_null();
    char *config_text = gem_model_config_json(m);
    json_t *config = config_text ? json_loads(config_text, 0, NULL) : NULL;
    free(config_text);
    json_t *doc = json_pack("{s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o?, s:o, s:o, s:o?}", "schema",
                            "gem-bench/1", "model", model_json(path, &info, digest), "parameters",
                            parameters_json(&info), "host", host, "load_ns", (json_int_t)load_ns,
                            "rows", rows, "ttft", ttft_json(s), "read_roof", roof, "decode_share",
                            share, "order", order_json(p), "config", config);
    if (opt.end_to_end)
        json_object_set_new(doc, "receipt",
                            bench_e2e_json(&s->e2e, 1, opt.command ? opt.command : "gem-bench"));
    return doc;
}

static int32_t needed_context(void)
{
    if (opt.end_to_end) return opt.prompt_tokens + opt.generation_tokens;
    return opt.depth + GEM_MAX(opt.prompt_tokens, opt.generation_tokens);
}

static gem_status measure(const char *path, json_t **out, gem_error *err)
{
    gem_model *m = NULL;
    gem_model_options mo;
    gem_model_info info;
    subject s = {0};
    roof_arm roof = {NULL, 8};
    bench_arm arm[3];
    bench_plan plan = {
        .arm = arm, .repetitions = opt.repetitions, .warmups = opt.warmups, .progress = on_run};
    json_t *digest = NULL,
           *host = bench_host_json(); /* before our own load raises the load average */
    gem_status st = digest_json(path, &digest, err);
    memset(arm, 0, sizeof(arm));
    if (st != GEM_OK) goto done;
    cli_model_options(&mo, &opt.model);
    if (!mo.n_ctx) mo.n_ctx = needed_context();
    mo.n_sessions = 1 + (opt.depth > 0 || opt.end_to_end);
    uint64_t start = gem_now_ns();
    if ((st = gem_model_open(&m, path, &mo, err)) != GEM_OK) goto done;
    uint64_t load_ns = gem_now_ns() - start;
    gem_model_get_info(m, &info);
    if ((st = subject_init(&s, m, err)) != GEM_OK) goto done;
    if (opt.end_to_end) {
        bench_e2e *e = &s.e2e;
        *e = (bench_e2e){.model = m,
                         .greedy = s.greedy,
                         .prompt = s.prompt,
                         .n_prompt = opt.prompt_tokens,
                         .n_decode = opt.generation_tokens,
                         .repetitions = opt.repetitions};
        if ((st = bench_e2e_init(e, err)) != GEM_OK) goto done;
        arm[plan.n_arms++] = (bench_arm){.name = "e2e",
                                         .prepare = bench_e2e_prepare,
                                         .run = bench_e2e_run,
                                         .finish = bench_e2e_finish,
                                         .user = e,
                                         .work = opt.generation_tokens};
    }
    if (opt.prompt_tokens && !opt.end_to_end)
        arm[plan.n_arms++] = (bench_arm){.name = "pp",
                                         .prepare = rewind_session,
                                         .run = run_prompt,
                                         .finish = draw_first,
                                         .user = &s,
                                         .work = opt.prompt_tokens};
    if (!opt.no_roof && !opt.end_to_end) {
        st = bench_roof_open(&roof.roof, info.n_threads, (size_t)opt.roof_mib << 20, err);
        if (st != GEM_OK) goto done;
        arm[plan.n_arms++] = (bench_arm){.name = "read-roof",
                                         .run = run_roof,
                                         .user = &roof,
                                         .work = (double)bench_roof_bytes(roof.roof) * roof.passes};
    }
    if (opt.generation_tokens && !opt.end_to_end)
        arm[plan.n_arms++] = (bench_arm){.name = "tg",
                                         .prepare = rewind_session,
                                         .run = run_generation,
                                         .user = &s,
                                         .work = opt.generation_tokens};
    st = bench_run(&plan, err);
    if (st == GEM_OK) {
        *out = record(path, m, &s, &plan, load_ns, host, digest);
        host = digest = NULL;
    }
done:
    bench_plan_deinit(&plan);
    bench_roof_close(roof.roof);
    subject_deinit(&s);
    gem_model_close(m);
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
    if (opt.end_to_end && (opt.depth || !opt.prompt_tokens || !opt.generation_tokens))
        return cli_usage(&command, "--end-to-end needs prompt and generation, and no depth");
    if (opt.end_to_end && opt.model.ctx &&
        (int64_t)opt.prompt_tokens + opt.generation_tokens > opt.model.ctx)
        return cli_usage(&command, "--context %d is less than prompt and generation need",
                         opt.model.ctx);
    if ((int64_t)opt.depth + GEM_MAX(opt.prompt_tokens, opt.generation_tokens) >
        (opt.model.ctx ? opt.model.ctx : INT32_MAX))
        return cli_usage(&command, "--context %d is less than depth and tokens need",
                         opt.model.ctx);
    if (opt.span_seen && opt.span == 0)
        fprintf(stderr, "gem-bench: the cpu backend always runs a whole token as one submission; "
                        "recorded as such\n");
    cli_catch_interrupt();
    opt.command = bench_scrubbed_command(argc, argv);
    gem_status st = cli_model_path(opt.path, path, sizeof(path), &err);
    if (st == GEM_OK) st = measure(path, &doc, &err);
    free(opt.command);
    return st == GEM_OK ? cli_print_json(&command, doc) : cli_fail(&command, &err);
}
