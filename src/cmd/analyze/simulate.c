/* simulate.c - `gem-analyze simulate`: how often the promotion gate promotes noise, and how often
 * it sees a true gain. */
#include "evidence/simulate.h"

#include "base/base.h"
#include "cmd/analyze/analyze.h"

#include <stdlib.h>

static struct {
    int32_t pairs, power_pairs;
    uint64_t seed;
} opt = {.pairs = 10000, .power_pairs = 1000, .seed = 1};

static const cli_option options[] = {
    {"pairs", 'n', CLI_INT, "N", &opt.pairs, 1, 10000000, "A/A pairs of each cell; default 10000",
     NULL},
    {"power-pairs", 0, CLI_INT, "N", &opt.power_pairs, 0, 1000000,
     "pairs of each cell with a true gain; 0: none; default 1000", NULL},
    {"seed", 's', CLI_U64, "N", &opt.seed, 0, 0, "seed of the noise; default 1", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command analyze_simulate_command = {
    .program = "gem-analyze simulate",
    .args = "[OUT.json]",
    .summary = "false promotions and power of the promotion gate",
    .text = "Pairs of runs are drawn with normal, heavy-tailed, drifting and bimodal noise and put "
            "through\n"
            "the rules of gem-analyze benchmarks. No machine is measured.\n",
    .min_args = 0,
    .max_args = 1,
    .option = options};

static const double cvs[] = {0.0025, 0.005, 0.01, 0.02, 0.05};
static const size_t repetitions[] = {3, 5, 10};

static void put_cell(gem_json_doc *d, gem_json *list, const ev_simulation *s, size_t promoted)
{
    gem_json *o = gem_json_put(d, list, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(d, o, "noise", ev_noise_names[s->noise]);
    gem_json_put_number(d, o, "cv_percent", s->cv * 100);
    gem_json_put_int(d, o, "repetitions", (int64_t)s->repetitions);
    if (s->gain > 0) gem_json_put_number(d, o, "true_gain_percent", s->gain * 100);
    gem_json_put_int(d, o, "pairs", (int64_t)s->pairs);
    gem_json_put_int(d, o, "promoted", (int64_t)promoted);
    gem_json_put_number(d, o, "promoted_share", (double)promoted / (double)s->pairs);
}

/* All cells of A/A; returns the largest share that was promoted. */
static double false_promotions(gem_json_doc *d, gem_json *list)
{
    double worst = 0;
    for (int k = 0; k < EV_NOISE_KINDS; k++)
        for (size_t c = 0; c < ARRAY_LEN(cvs); c++)
            for (size_t r = 0; r < ARRAY_LEN(repetitions); r++) {
                ev_simulation s = {.noise = (ev_noise)k,
                                   .cv = cvs[c],
                                   .repetitions = repetitions[r],
                                   .pairs = (size_t)opt.pairs,
                                   .seed = opt.seed};
                size_t n = ev_simulate(&s);
                worst = GEM_MAX(worst, (double)n / (double)s.pairs);
                put_cell(d, list, &s, n);
            }
    return worst;
}

static void power(gem_json_doc *d, gem_json *list)
{
    for (int k = 0; opt.power_pairs && k < EV_NOISE_KINDS; k++)
        for (size_t c = 0; c < 3; c++)
            for (size_t r = 0; r < ARRAY_LEN(repetitions); r++)
                for (int gain = 1; gain <= 10; gain++) {
                    ev_simulation s = {.noise = (ev_noise)k,
                                       .cv = cvs[c],
                                       .gain = gain / 100.0,
                                       .repetitions = repetitions[r],
                                       .pairs = (size_t)opt.power_pairs,
                                       .seed = opt.seed + 1};
                    put_cell(d, list, &s, ev_simulate(&s));
                }
}

int analyze_simulate_main(int argc, char **argv)
{
    char **args;
    int n_args;
    int code = cli_parse(&analyze_simulate_command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    gem_json_doc *d = gem_json_new();
    if (!d) return CLI_CANNOT;
    gem_json *root = gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(d, root, "schema", "gem-analyze-simulate/1");
    gem_json_put_int(d, root, "seed", (int64_t)opt.seed);
    double worst = false_promotions(d, gem_json_put(d, root, "no_difference", GEM_JSON_ARRAY));
    gem_json_put_number(d, root, "largest_false_share", worst);
    power(d, gem_json_put(d, root, "power", GEM_JSON_ARRAY));
    code = analyze_write(&analyze_simulate_command, root, n_args ? args[0] : NULL);
    gem_json_free(d);
    return code;
}
