/* gem_online_merge_check.c - `gem-online-merge-check`: the algebra of attention in partitions,
 * alone and on the CPU. One query over seeded keys and values; each partition folds tiles of four
 * tokens into a maximum, a sum and unnormalised values in F32 (Milakov and Gimelshein 2018; Dao et
 * al. 2022), a reducer merges the partitions, and a softmax of two passes in double is the
 * reference. It says nothing of any device, model or speed. */
#include "base/base.h"
#include "cmd/cli/cli.h"

#include <math.h>
#include <stdlib.h>

enum { TILE = 4, MAX_PARTITIONS = 4096, RUNS = 2 };

static struct {
    int32_t tokens, partitions, head_dim;
    uint64_t seed;
} opt = {.partitions = 32, .head_dim = 512, .seed = 1};

static const cli_option options[] = {
    {"tokens", 'n', CLI_INT, "N", &opt.tokens, 1, 1 << 22, "keys and values", NULL},
    {"partitions", 'p', CLI_INT, "N", &opt.partitions, 1, MAX_PARTITIONS,
     "partitions of them; default 32", NULL},
    {"head-dim", 'd', CLI_INT, "N", &opt.head_dim, 1, 4096, "values of a head; default 512", NULL},
    {"seed", 's', CLI_U64, "N", &opt.seed, 0, 0, "seed of all values; default 1", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-online-merge-check",
    .args = "",
    .summary = "check the algebra that merges partitions of attention",
    .text = "  gem-online-merge-check --tokens 8191 --partitions 32 --seed 1\n",
    .min_args = 0,
    .max_args = 0,
    .option = options,
};

/* Value i of stream s in [-1, 1): a counter through splitmix64's mixer, so that no row is stored.
 */
static float value(uint64_t s, uint64_t i)
{
    uint64_t z = (opt.seed + s) * 0x9e3779b97f4a7c15u + i;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)(int32_t)(uint32_t)((z ^ (z >> 31)) >> 32) * 0x1p-31f;
}

static void row(float *out, uint64_t stream, int32_t token)
{
    for (int32_t i = 0; i < opt.head_dim; i++)
        out[i] = value(stream, (uint64_t)token * (uint64_t)opt.head_dim + (uint64_t)i);
}

/* Scores grow in places, so that the running maximum moves in early and in late partitions. */
static float sharpness(int32_t token)
{
    return token % 1021 == 17 ? 12.0f : 6.0f;
}

typedef struct partial {
    float max, sum;
    float *v; /* borrowed, [head_dim] */
} partial;

static float score_f32(const float *q, const float *k, int32_t token)
{
    float dot = 0;
    for (int32_t i = 0; i < opt.head_dim; i++)
        dot += q[i] * k[i];
    return dot * sharpness(token) / sqrtf((float)opt.head_dim);
}

/* Fold tokens [from, to), a tile at a time. */
static void fold(partial *p, const float *q, int32_t from, int32_t to, float *k)
{
    p->max = -INFINITY;
    p->sum = 0;
    memset(p->v, 0, (size_t)opt.head_dim * sizeof(float));
    for (int32_t t = from; t < to; t += TILE) {
        int32_t n = GEM_MIN(TILE, to - t);
        float s[TILE], max = p->max;
        for (int32_t i = 0; i < n; i++) {
            row(k, 1, t + i);
            s[i] = score_f32(q, k, t + i);
            max = fmaxf(max, s[i]);
        }
        float shrink = expf(p->max - max); /* 0 at the first tile */
        p->sum *= shrink;
        for (int32_t i = 0; i < opt.head_dim; i++)
            p->v[i] *= shrink;
        for (int32_t i = 0; i < n; i++) {
            float w = expf(s[i] - max);
            p->sum += w;
            row(k, 2, t + i);
            for (int32_t d = 0; d < opt.head_dim; d++)
                p->v[d] += w * k[d];
        }
        p->max = max;
    }
}

/* Partitions in order, then normalise: the reducer. An empty partition weighs nothing. */
static void merge(const partial *p, float *out)
{
    float max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < opt.partitions; i++)
        max = fmaxf(max, p[i].max);
    memset(out, 0, (size_t)opt.head_dim * sizeof(float));
    for (int32_t i = 0; i < opt.partitions; i++) {
        float w = p[i].sum > 0 ? expf(p[i].max - max) : 0;
        sum += w * p[i].sum;
        for (int32_t d = 0; d < opt.head_dim; d++)
            out[d] += w * p[i].v[d];
    }
    for (int32_t d = 0; d < opt.head_dim; d++)
        out[d] /= sum;
}

static void merged(const float *q, partial *p, float *k, float *out)
{
    for (int32_t i = 0; i < opt.partitions; i++) {
        int64_t n = opt.tokens;
        fold(&p[i], q, (int32_t)(n * i / opt.partitions), (int32_t)(n * (i + 1) / opt.partitions),
             k);
    }
    merge(p, out);
}

/* The same by definition: all scores, their maximum, one weighted sum, in double. */
static void reference(const float *q, float *k, double *score, double *out)
{
    double max = -INFINITY, sum = 0;
    for (int32_t t = 0; t < opt.tokens; t++) {
        double dot = 0;
        row(k, 1, t);
        for (int32_t i = 0; i < opt.head_dim; i++)
            dot += (double)q[i] * (double)k[i];
        score[t] = dot * (double)sharpness(t) / sqrt((double)opt.head_dim);
        max = fmax(max, score[t]);
    }
    memset(out, 0, (size_t)opt.head_dim * sizeof(double));
    for (int32_t t = 0; t < opt.tokens; t++) {
        double w = exp(score[t] - max);
        sum += w;
        row(k, 2, t);
        for (int32_t d = 0; d < opt.head_dim; d++)
            out[d] += w * (double)k[d];
    }
    for (int32_t d = 0; d < opt.head_dim; d++)
        out[d] /= sum;
}

static json_t *record(const float *out, const double *want, json_t *hashes)
{
    double ma = 0, mb = 0, aa = 0, bb = 0, ab = 0, error = 0, energy = 0, most = 0;
    size_t n = (size_t)opt.head_dim;
    for (size_t i = 0; i < n; i++) {
        ma += (double)out[i] / (double)n;
        mb += want[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        double a = (double)out[i], b = want[i];
        aa += (a - ma) * (a - ma);
        bb += (b - mb) * (b - mb);
        ab += (a - ma) * (b - mb);
        error += (a - b) * (a - b);
        energy += b * b;
        most = fmax(most, fabs(a - b));
    }
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:o, s:f, s:f, s:f, s:s}", "schema",
                     "gem-online-merge-check/1", "tokens", (int)opt.tokens, "partitions",
                     (int)opt.partitions, "head_dim", (int)opt.head_dim, "tile", (int)TILE, "seed",
                     (json_int_t)opt.seed, "hashes", hashes, "correlation", ab / sqrt(aa * bb),
                     "nmse", error / energy, "largest_difference", most, "evidence",
                     "CPU reduction algebra only");
}

static gem_status check(json_t **doc, gem_error *err)
{
    size_t d = (size_t)opt.head_dim, p = (size_t)opt.partitions;
    float *f32 = calloc(d * (3 + p), sizeof(*f32));
    double *f64 = calloc(d + (size_t)opt.tokens, sizeof(*f64));
    partial *part = calloc(p, sizeof(*part));
    gem_status st = f32 && f64 && part
                        ? GEM_OK
                        : gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", opt.tokens);
    if (st == GEM_OK) {
        float *q = f32, *k = q + d, *out = k + d;
        json_t *hashes = json_array();
        for (size_t i = 0; i < p; i++)
            part[i].v = out + d + i * d;
        row(q, 0, 0);
        for (int run = 0; run < RUNS; run++) {
            char hex[65] = "";
            merged(q, part, k, out);
            gem_sha256 *h = gem_sha256_new();
            if (h) {
                gem_sha256_update(h, out, d * sizeof(*out));
                gem_sha256_finish(h, hex);
            }
            json_array_append_new(hashes, json_string(hex));
        }
        reference(q, k, f64 + d, f64);
        *doc = record(out, f64, hashes);
    }
    free(part);
    free(f64);
    free(f32);
    return st;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    json_t *doc = NULL;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (!opt.tokens) return cli_usage(&command, "--tokens is needed");
    if (opt.head_dim < 2) return cli_usage(&command, "--head-dim of at least 2 is needed");
    if (check(&doc, &err) != GEM_OK) return cli_fail(&command, &err);
    return cli_print_json(&command, doc);
}
