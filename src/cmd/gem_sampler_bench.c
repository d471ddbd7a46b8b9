/* gem_sampler_bench.c - `gem-sampler-bench`: what drawing a token costs on the CPU, apart from the
 * model, and whether a seed gives the same sequence again. One JSON document on stdout with every
 * sample. */
#include "base/base.h"
#include "bench/bench.h"
#include "cmd/cli/cli.h"

#include <stdlib.h>

static struct {
    int32_t vocab, draws, repetitions, warmups;
    gem_sampler_options sampler;
} opt = {.vocab = 262144, .draws = 100, .repetitions = 3, .warmups = 1};

static const cli_option options[] = {
    {"vocab", 0, CLI_INT, "N", &opt.vocab, 1, 16777216, "logits of a row; default 262144", NULL},
    {"draws", 'n', CLI_INT, "N", &opt.draws, 1, 1000000, "tokens a run draws; default 100", NULL},
    {"repetitions", 'r', CLI_INT, "N", &opt.repetitions, 1, 100000, "timed runs; default 3", NULL},
    {"warmups", 'w', CLI_INT, "N", &opt.warmups, 0, 1000, "untimed runs before them; default 1",
     NULL},
    {"temperature", 'T', CLI_FLOAT, "X", &opt.sampler.temperature, 0, 100, "default 1", NULL},
    {"top-k", 0, CLI_INT, "N", &opt.sampler.top_k, 0, INT32_MAX, "default 64", NULL},
    {"top-p", 0, CLI_FLOAT, "X", &opt.sampler.top_p, 0, 1, "default 0.95", NULL},
    {"min-p", 0, CLI_FLOAT, "X", &opt.sampler.min_p, 0, 1, "default 0", NULL},
    {"repetition-penalty", 0, CLI_FLOAT, "X", &opt.sampler.repetition_penalty, 0, 100, "default 1",
     NULL},
    {"seed", 0, CLI_U64, "N", &opt.sampler.seed, 0, 0, "default 0", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-sampler-bench",
    .args = "",
    .summary = "measure the sampler apart from the model",
    .text = "Each run draws from the same rows of synthetic logits with a fresh sampler of the "
            "same seed; exit 1\n"
            "when two runs do not draw the same tokens.\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

enum { ROWS = 8 };

typedef struct subject {
    float *logits;   /* f32[ROWS][vocab] */
    int32_t *tokens; /* of the run in hand, [draws] */
    int32_t *first;  /* of the first run */
    bool have_first, same;
    gem_sampler *sampler;
} subject;

/* Logits as a model's: most of them near a normal distribution, a few far above. */
static void fill(float *row, int32_t n, uint64_t seed)
{
    for (int32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4;
             k++) { /* four uniform draws: near enough to normal, and the same everywhere */
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(seed >> 40) * 0x1p-24f - 0.5f;
        }
        row[i] = sum * 3.5f;
        if (i % 4099 == 17) row[i] += 8.0f;
    }
}

static gem_status fresh_sampler(void *user, gem_error *err)
{
    subject *s = user;
    gem_sampler_free(s->sampler);
    s->sampler = NULL;
    return gem_sampler_new(&s->sampler, opt.vocab, &opt.sampler, err);
}

static gem_status draw_all(void *user, gem_error *err)
{
    subject *s = user;
    gem_status st = GEM_OK;
    for (int32_t i = 0; st == GEM_OK && i < opt.draws; i++) {
        st = gem_sampler_draw(s->sampler, s->logits + (size_t)(i % ROWS) * (size_t)opt.vocab,
                              &s->tokens[i], err);
        if (st == GEM_OK) gem_sampler_accept(s->sampler, s->tokens[i]);
    }
    return st;
}

static gem_status compare(void *user, int round, gem_error *err)
{
    subject *s = user;
    size_t bytes = (size_t)opt.draws * sizeof(*s->tokens);
    (void)round;
    (void)err;
    if (!s->have_first) memcpy(s->first, s->tokens, bytes);
    s->have_first = true;
    if (memcmp(s->first, s->tokens, bytes) != 0) s->same = false;
    return GEM_OK;
}

static json_t *record(const subject *s, const bench_arm *arm, json_t *host)
{
    char hex[65] = "";
    json_t *first = json_array();
    gem_sha256 *h = gem_sha256_new();
    if (h) {
        gem_sha256_update(h, s->first, (size_t)opt.draws * sizeof(*s->first));
        gem_sha256_finish(h, hex);
    }
    for (int32_t i = 0; i < GEM_MIN(opt.draws, 16); i++)
        json_array_append_new(first, json_integer(s->first[i]));
    json_t *row = bench_arm_json(arm);
    double ns =
        json_number_value(json_object_get(json_object_get(row, "time_ns"), "median")) / opt.draws;
    const gem_sampler_options *o = &opt.sampler;
    return json_pack(
        "{s:s, s:{s:i, s:i, s:i, s:i, s:f, s:i, s:f, s:f, s:f, s:I}, s:o, s:o, s:f, s:{s:b, s:s, "
        "s:o}}",
        "schema", "gem-sampler-bench/1", "parameters", "vocab", (int)opt.vocab, "draws",
        (int)opt.draws, "repetitions", (int)opt.repetitions, "warmups", (int)opt.warmups,
        "temperature", (double)o->temperature, "top_k", (int)o->top_k, "top_p", (double)o->top_p,
        "min_p", (double)o->min_p, "repetition_penalty", (double)o->repetition_penalty, "seed",
        (json_int_t)o->seed, "host", host, "row", row, "ns_per_draw_median", ns, "parity",
        "same_tokens_in_every_run", s->same, "tokens_sha256", hex, "first_tokens", first);
}

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    subject s = {.same = true};
    gem_sampler_defaults(&opt.sampler);
    opt.sampler.temperature = 1;
    opt.sampler.top_k = 64;
    opt.sampler.top_p = 0.95f;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;

    json_t *host = bench_host_json();
    bench_arm arm = {.name = "sample",
                     .prepare = fresh_sampler,
                     .run = draw_all,
                     .finish = compare,
                     .user = &s,
                     .work = opt.draws};
    bench_plan plan = {
        .arm = &arm, .n_arms = 1, .repetitions = opt.repetitions, .warmups = opt.warmups};
    s.logits = malloc((size_t)ROWS * (size_t)opt.vocab * sizeof(float));
    s.tokens = calloc((size_t)opt.draws, sizeof(*s.tokens));
    s.first = calloc((size_t)opt.draws, sizeof(*s.first));
    gem_status st = s.logits && s.tokens && s.first
                        ? GEM_OK
                        : gem_fail(&err, GEM_E_NOMEM, "no memory for the logits");
    for (int r = 0; st == GEM_OK && r < ROWS; r++)
        fill(s.logits + (size_t)r * (size_t)opt.vocab, opt.vocab, (uint64_t)r + 1);
    if (st == GEM_OK) st = bench_run(&plan, &err);
    if (st == GEM_OK) {
        code = cli_print_json(&command, record(&s, &arm, host));
        host = NULL;
        if (code == CLI_DONE && !s.same) code = CLI_FALSE;
    } else {
        code = cli_fail(&command, &err);
    }
    bench_plan_deinit(&plan);
    gem_sampler_free(s.sampler);
    json_decref(host);
    free(s.logits);
    free(s.tokens);
    free(s.first);
    return code;
}
