/* gem_determinism_gate.c - `gem-determinism-gate`: what must hold before a faster route is
 * believed. The same prompt twice gives the same bytes of logits, at each of a few lengths; and a
 * tile that crosses a boundary where routing changes agrees with the same rows taken one by one. */
#include "base/base.h"
#include "cmd/cli/cli.h"
#include "evidence/logit_compare.h"
#include "runtime/engine.h"

#include <stdlib.h>

enum { MAX_LENGTHS = 8, MAX_TILE = 512 };

static struct {
    cli_model_flags model;
    const char *lengths;
    int32_t boundary, tile, repetitions;
    uint64_t seed;
} opt = {.lengths = "2048,4096", .boundary = 4096, .tile = 32, .repetitions = 2};

static const cli_option options[] = {
    {"lengths", 0, CLI_TEXT, "N,N", &opt.lengths, 0, 0,
     "prompts that are evaluated again and again; default 2048,4096", NULL},
    {"repetitions", 'r', CLI_INT, "N", &opt.repetitions, 2, 100, "of each; default 2", NULL},
    {"boundary", 0, CLI_INT, "N", &opt.boundary, 1, 1 << 24,
     "position where routing changes; default 4096", NULL},
    {"tile", 0, CLI_INT, "N", &opt.tile, 2, MAX_TILE,
     "rows of the tile that crosses it, half of them behind; default 32", NULL},
    {"seed", 0, CLI_U64, "N", &opt.seed, 0, 0, "of the token ids; default 0", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-determinism-gate",
    .args = "MODEL",
    .summary = "repeated logits bit for bit, and a tile across a boundary beside its rows",
    .text =
        "Exit 0 when all holds, 1 when something does not. Limits of the tile: equal argmax and\n"
        "top 10, correlation at least 0.9999, NMSE at most 1e-4, row by row.\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

typedef struct gate {
    gem_model *model;
    int32_t length[MAX_LENGTHS];
    int n_lengths;
    int32_t longest, *token; /* [longest] */
    bool holds;
} gate;

static gem_status parse_lengths(gate *g, gem_error *err)
{
    for (const char *p = opt.lengths; *p;) {
        char *end;
        long n = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || n < 1 || n > 1 << 24 ||
            g->n_lengths == MAX_LENGTHS)
            return gem_fail(err, GEM_E_ARG,
                            "--lengths %s: up to %d numbers of 1 to %d, commas between",
                            opt.lengths, MAX_LENGTHS, 1 << 24);
        g->length[g->n_lengths++] = (int32_t)n;
        g->longest = GEM_MAX(g->longest, (int32_t)n);
        p = *end ? end + 1 : end;
    }
    if (opt.boundary < opt.tile / 2)
        return gem_fail(err, GEM_E_ARG, "--boundary %d: half a tile of %d does not fit before it",
                        opt.boundary, opt.tile);
    g->longest = GEM_MAX(g->longest, opt.boundary + opt.tile);
    return GEM_OK;
}

static gem_status open_model(gate *g, const char *arg, gem_error *err)
{
    char path[4096];
    gem_model_options o;
    gem_model_info info;
    gem_status st = cli_model_path(arg, path, sizeof(path), err);
    if (st != GEM_OK) return st;
    cli_model_options(&o, &opt.model);
    o.n_ctx = g->longest;
    o.n_sessions = 1;
    const gem_engine_options e = {.n_logits = opt.tile, .ops = gem_backend_find(o.backend)};
    if (!e.ops)
        return gem_fail(err, GEM_E_UNSUPPORTED, "no backend \"%s\"; this build has: %s", o.backend,
                        gem_backend_names());
    if (o.n_batch && o.n_batch < opt.tile)
        return gem_fail(err, GEM_E_ARG, "--batch %d is less than a tile of %d", o.n_batch,
                        opt.tile);
    if ((st = gem_model_open_engine(&g->model, path, &o, &e, err)) != GEM_OK) return st;
    cli_end_progress();
    gem_model_get_info(g->model, &info);
    g->token = malloc((size_t)g->longest * sizeof(*g->token));
    if (!g->token) return gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", g->longest);
    uint64_t x = opt.seed * 2 + 1;
    int32_t first = info.n_vocab / 8; /* control tokens stand at the start */
    for (int32_t i = 0; i < g->longest; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        g->token[i] = first + (int32_t)((x >> 33) % (uint64_t)(info.n_vocab - first));
    }
    if (info.bos >= 0) g->token[0] = info.bos;
    return GEM_OK;
}

static bool keep_going(void *user, size_t done, size_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return !cli_interrupted;
}

/* One length, evaluated `repetitions` times in fresh sessions. */
static gem_status repeat(gate *g, int32_t n, json_t *list, gem_error *err)
{
    char first[65] = "";
    bool same = true;
    json_t *digests = json_array();
    gem_status st = GEM_OK;
    for (int r = 0; r < opt.repetitions && st == GEM_OK; r++) {
        const float *x = NULL;
        char hex[65] = "";
        gem_session *s = NULL;
        if ((st = gem_session_new(&s, g->model, err)) != GEM_OK) break;
        st = gem_session_prefill(s, g->token, (size_t)n, keep_going, NULL, &x, err);
        gem_sha256 *h = st == GEM_OK ? gem_sha256_new() : NULL;
        if (h) {
            gem_sha256_update(h, x, (size_t)g->model->plan.n_vocab * sizeof(*x));
            gem_sha256_finish(h, hex);
        }
        gem_session_free(s);
        if (r == 0) memcpy(first, hex, sizeof(first));
        same = same && hex[0] && strcmp(hex, first) == 0;
        json_array_append_new(digests, json_string(hex));
    }
    if (st != GEM_OK) {
        json_decref(digests);
        return st;
    }
    g->holds = g->holds && same;
    json_array_append_new(list, json_pack("{s:i, s:o, s:b}", "tokens", (int)n, "logits_sha256",
                                          digests, "bit_identical", same));
    return GEM_OK;
}

static json_t *row_json(gate *g, int32_t pos, const float *tile, const float *alone)
{
    ev_logit_difference d;
    size_t n = (size_t)g->model->plan.n_vocab;
    bool same = memcmp(tile, alone, n * sizeof(*tile)) == 0;
    ev_logits_compare(&d, tile, alone, n);
    /* suppressed tokens are -inf in both: such rows are judged by their bytes */
    bool holds = same || (d.finite && d.same_argmax && d.same_top_set && d.correlation >= 0.9999 &&
                          d.nmse <= 1e-4);
    g->holds = g->holds && holds;
    if (!d.finite)
        return json_pack("{s:i, s:b, s:b, s:b}", "position", (int)pos, "bit_identical", same,
                         "finite", 0, "holds", holds);
    return json_pack("{s:i, s:b, s:b, s:b, s:b, s:f, s:f, s:f, s:b}", "position", (int)pos,
                     "bit_identical", same, "finite", 1, "same_argmax", d.same_argmax,
                     "same_top_10", d.same_top_set, "correlation", d.correlation, "nmse", d.nmse,
                     "largest_difference", d.largest, "holds", holds);
}

/* The tile in one batch, then, from a checkpoint before it, its rows one by one. */
static gem_status cross(gate *g, json_t *rows, gem_error *err)
{
    int32_t from = opt.boundary - opt.tile / 2;
    size_t n_vocab = (size_t)g->model->plan.n_vocab;
    uint8_t want[MAX_TILE];
    const float *x[MAX_TILE], *alone;
    gem_session *s = NULL;
    gem_checkpoint *c = NULL;
    float *tile = malloc((size_t)opt.tile * n_vocab * sizeof(*tile));
    gem_status st = tile ? GEM_OK : gem_fail(err, GEM_E_NOMEM, "no memory for %d rows", opt.tile);
    memset(want, 1, sizeof(want));
    if (st == GEM_OK) st = gem_session_new(&s, g->model, err);
    if (st == GEM_OK && from > 0)
        st = gem_session_prefill(s, g->token, (size_t)from, keep_going, NULL, &alone, err);
    if (st == GEM_OK) st = gem_session_checkpoint(s, &c, err);
    if (st == GEM_OK) st = gem_session_run(s, g->token + from, (size_t)opt.tile, want, x, err);
    for (int32_t r = 0; r < opt.tile && st == GEM_OK; r++)
        memcpy(tile + (size_t)r * n_vocab, x[r], n_vocab * sizeof(*tile));
    if (st == GEM_OK) st = gem_session_rollback(s, c, err);
    for (int32_t r = 0; r < opt.tile && st == GEM_OK; r++) {
        st = gem_session_decode(s, g->token[from + r], &alone, err);
        if (st == GEM_OK)
            json_array_append_new(rows, row_json(g, from + r, tile + (size_t)r * n_vocab, alone));
    }
    gem_checkpoint_free(c);
    gem_session_free(s);
    free(tile);
    return st;
}

int main(int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    gate g = {.holds = true};
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    cli_catch_interrupt();
    json_t *lengths = json_array(), *rows = json_array();
    gem_status st = parse_lengths(&g, &err);
    if (st == GEM_OK) st = open_model(&g, args[0], &err);
    for (int i = 0; i < g.n_lengths && st == GEM_OK; i++)
        st = repeat(&g, g.length[i], lengths, &err);
    if (st == GEM_OK) st = cross(&g, rows, &err);
    if (st == GEM_OK) {
        gem_model_info info;
        gem_model_get_info(g.model, &info);
        json_t *doc = json_pack(
            "{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:{s:i, s:i, s:i, s:o}, s:b}", "schema",
            "gem-determinism-gate/1", "model", args[0], "backend", info.backend, "isa", info.isa,
            "kv_type", cli_kv_type_names[opt.model.kv_type], "batch", (int)g.model->n_batch, "seed",
            (json_int_t)opt.seed, "repeated", lengths, "boundary_tile", "boundary",
            (int)opt.boundary, "first", (int)(opt.boundary - opt.tile / 2), "rows", (int)opt.tile,
            "row", rows, "holds", g.holds);
        lengths = rows = NULL;
        code = cli_print_json(&command, doc);
        if (code == CLI_DONE && !g.holds) code = CLI_FALSE;
    } else {
        code = cli_fail(&command, &err);
    }
    json_decref(lengths);
    json_decref(rows);
    gem_model_close(g.model);
    free(g.token);
    return code;
}
