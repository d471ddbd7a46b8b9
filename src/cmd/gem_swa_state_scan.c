/* gem_swa_state_scan.c - `gem-swa-state-scan`: where two ways to evaluate a prompt part. One engine
 * takes the rows one by one, with the oracle's attention; the other takes tiles by the production
 * route. They advance in lockstep, and after each tile every new key and value row of every layer
 * is hashed and compared, so the first difference is named before it spreads to the logits. */
#include "base/base.h"
#include "cmd/cli/cli.h"
#include "runtime/engine.h"

#include <stdlib.h>

static struct {
    cli_model_flags model;
    const char *rowwise_isa;
    int32_t tile;
    int rowwise_kv_type;
    bool rowwise_kv_seen;
    uint64_t seed;
} opt = {.tile = 32};

static const cli_option options[] = {
    {"tile", 0, CLI_INT, "N", &opt.tile, 1, 512, "rows of the candidate's tiles; default 32", NULL},
    {"rowwise-isa", 0, CLI_TEXT, "NAME", &opt.rowwise_isa, 0, 0,
     "kernels of the row-wise engine; default: the best, with the oracle's attention (,attend=ref)",
     NULL},
    {"rowwise-kv-type", 0, CLI_CHOICE, CLI_KV_TYPES, &opt.rowwise_kv_type, 0, 0,
     "of the row-wise engine; default: as --kv-type", &opt.rowwise_kv_seen},
    {"seed", 0, CLI_U64, "N", &opt.seed, 0, 0, "of the token ids; default 0", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-swa-state-scan",
    .args = "MODEL TOKENS",
    .summary = "compare keys and values of a row-wise and a tiled evaluation, row by row",
    .text = "Exit 0 when every key and value row of every layer is the same bytes in both, 1 at\n"
            "the first tile where they differ. The weights are in memory twice.\n",
    .min_args = 2,
    .max_args = 2,
    .option = options,
};

typedef struct engine {
    gem_model *model;
    gem_session *session;
    gem_sha256 *hash; /* of the tile in hand */
    float *k, *v;     /* one row of the widest layer */
} engine;

typedef struct difference {
    bool found;
    int32_t position;
    int layer, head, dim;
    const char *part;
    float rowwise, candidate;
} difference;

static gem_status open_engine(engine *e, const char *path, bool rowwise, int32_t n_tokens,
                              gem_error *err)
{
    gem_model_options o;
    gem_status st;
    cli_model_options(&o, &opt.model);
    o.n_ctx = n_tokens;
    o.n_batch = rowwise ? 1 : opt.tile;
    o.n_sessions = 1;
    if (rowwise && opt.rowwise_kv_seen) o.kv_type = (gem_kv_type)opt.rowwise_kv_type;
    if (rowwise) o.isa = opt.rowwise_isa ? opt.rowwise_isa : ",attend=ref";
    const gem_engine_options eo = {.n_logits = 1, .ops = gem_backend_find(o.backend)};
    if (!eo.ops)
        return gem_fail(err, GEM_E_UNSUPPORTED, "no backend \"%s\"; this build has: %s", o.backend,
                        gem_backend_names());
    if (!eo.ops->read_kv)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %s cannot show its keys and values",
                        eo.ops->name);
    if ((st = gem_model_open_engine(&e->model, path, &o, &eo, err)) != GEM_OK) return st;
    cli_end_progress();
    if ((st = gem_session_new(&e->session, e->model, err)) != GEM_OK) return st;
    size_t width = 1;
    for (int l = 0; l < e->model->plan.n_layers; l++) {
        const gem_kv_layer *kl = &e->model->plan.layer[l];
        width = GEM_MAX(width, (size_t)kl->n_kv_heads * (size_t)kl->head_dim);
    }
    e->k = calloc(width, sizeof(*e->k));
    e->v = calloc(width, sizeof(*e->v));
    return e->k && e->v ? GEM_OK : gem_fail(err, GEM_E_NOMEM, "no memory for a row of %zu", width);
}

static void close_engine(engine *e)
{
    gem_session_free(e->session);
    gem_model_close(e->model);
    free(e->k);
    free(e->v);
}

/* <bos> where there is one, then seeded ids over the whole vocabulary but its first eighth, where
 * control tokens stand. */
static void make_tokens(const gem_model *m, int32_t *token, int32_t n)
{
    gem_model_info info;
    uint64_t x = opt.seed * 2 + 1;
    gem_model_get_info(m, &info);
    int32_t first = info.n_vocab / 8;
    for (int32_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        token[i] = first + (int32_t)((x >> 33) % (uint64_t)(info.n_vocab - first));
    }
    if (info.bos >= 0) token[0] = info.bos;
}

static void read_row(engine *e, int layer, int32_t pos)
{
    const int32_t *table = gem_kv_table(&e->session->kv, layer);
    e->model->ops->read_kv(e->model->be, layer, table[pos / GEM_PAGE], pos, e->k, e->v);
}

static void compare_part(const float *a, const float *b, const char *part, int32_t pos, int layer,
                         const gem_kv_layer *kl, difference *d)
{
    int n = kl->n_kv_heads * kl->head_dim;
    if (d->found || memcmp(a, b, (size_t)n * sizeof(*a)) == 0) return;
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof(*a)) != 0) {
            *d = (difference){.found = true,
                              .position = pos,
                              .layer = layer,
                              .head = i / kl->head_dim,
                              .dim = i % kl->head_dim,
                              .part = part,
                              .rowwise = a[i],
                              .candidate = b[i]};
            return;
        }
}

static json_t *real(float x)
{
    json_t *j = json_real((double)x); /* NULL for what JSON cannot say */
    return j ? j : json_null();
}

/* Positions [from, to) of every layer of both; a record of the tile. New reference. */
static json_t *compare_tile(engine *rowwise, engine *candidate, int32_t from, int32_t to,
                            bool same_logits, difference *d)
{
    const gem_plan *p = &candidate->model->plan;
    engine *both[2] = {rowwise, candidate};
    char hex[2][65] = {"", ""};
    json_int_t rows = 0;
    for (int i = 0; i < 2; i++)
        both[i]->hash = gem_sha256_new();
    if (!rowwise->hash || !candidate->hash) return NULL;
    for (int32_t pos = from; pos < to; pos++)
        for (int l = 0; l < p->n_layers; l++) {
            const gem_kv_layer *kl = &p->layer[l];
            size_t bytes = (size_t)kl->n_kv_heads * (size_t)kl->head_dim * sizeof(float);
            if (kl->n_kv_heads == 0) continue;
            for (int i = 0; i < 2; i++) {
                read_row(both[i], l, pos);
                gem_sha256_update(both[i]->hash, both[i]->k, bytes);
                gem_sha256_update(both[i]->hash, both[i]->v, bytes);
            }
            compare_part(rowwise->k, candidate->k, "k", pos, l, kl, d);
            compare_part(rowwise->v, candidate->v, "v", pos, l, kl, d);
            rows += 2;
        }
    for (int i = 0; i < 2; i++)
        gem_sha256_finish(both[i]->hash, hex[i]);
    return json_pack("{s:i, s:i, s:I, s:s, s:s, s:b, s:b}", "first", from, "rows", to - from,
                     "kv_rows", rows, "rowwise_sha256", hex[0], "candidate_sha256", hex[1],
                     "kv_exact", !d->found, "logits_exact", same_logits);
}

/* Both engines through tokens [from, to); *same: the last row's logits are the same bytes. */
static gem_status advance(engine *rowwise, engine *candidate, const int32_t *token, int32_t from,
                          int32_t to, bool *same, gem_error *err)
{
    const float *a = NULL, *b = NULL;
    gem_status st = GEM_OK;
    for (int32_t i = from; i < to && st == GEM_OK; i++)
        st = gem_session_decode(rowwise->session, token[i], &a, err);
    if (st == GEM_OK)
        st = gem_session_prefill(candidate->session, token + from, (size_t)(to - from), NULL, NULL,
                                 &b, err);
    if (st == GEM_OK)
        *same = memcmp(a, b, (size_t)candidate->model->plan.n_vocab * sizeof(*a)) == 0;
    return st;
}

static json_t *engine_json(const engine *e)
{
    gem_model_info info;
    gem_model_get_info(e->model, &info);
    return json_pack("{s:s, s:s, s:i, s:i, s:s}", "backend", info.backend, "isa",
                     e->model->n_batch == 1 && !opt.rowwise_isa ? "best, attention by the oracle"
                                                                : info.isa,
                     "rows_at_once", (int)e->model->n_batch, "threads", info.n_threads, "kv_type",
                     cli_kv_type_names[e->model->kv_type]);
}

static json_t *difference_json(const difference *d)
{
    if (!d->found) return json_null();
    return json_pack("{s:i, s:i, s:s, s:i, s:i, s:o, s:o}", "position", (int)d->position, "layer",
                     d->layer, "part", d->part, "head", d->head, "dim", d->dim, "rowwise",
                     real(d->rowwise), "candidate", real(d->candidate));
}

static json_t *document(const char *path, const engine *rowwise, const engine *candidate,
                        int32_t n_tokens, json_t *tiles, const difference *d, int32_t exact_through)
{
    const gem_plan *p = &candidate->model->plan;
    int windowed = 0, full = 0;
    bool logits = true;
    size_t i;
    json_t *tile;
    json_array_foreach(tiles, i, tile)
    {
        logits = logits && json_is_true(json_object_get(tile, "logits_exact"));
    }
    for (int l = 0; l < p->n_layers; l++) {
        windowed += p->layer[l].n_kv_heads > 0 && p->layer[l].window > 0;
        full += p->layer[l].n_kv_heads > 0 && p->layer[l].window == 0;
    }
    json_t *empty = json_copy(json_array_get(tiles, 0));
    return json_pack("{s:s, s:s, s:{s:i, s:i, s:I}, s:o, s:o, s:i, s:i, s:o, s:o, s:i, s:o, "
                     "s:b, s:b}",
                     "schema", "gem-swa-state-scan/1", "model", path, "parameters", "tokens",
                     (int)n_tokens, "tile", (int)opt.tile, "seed", (json_int_t)opt.seed, "rowwise",
                     engine_json(rowwise), "candidate", engine_json(candidate), "windowed_layers",
                     windowed, "full_layers", full, "empty_cache_tile", empty ? empty : json_null(),
                     "tiles", tiles, "exact_through", (int)exact_through, "first_difference",
                     difference_json(d), "kv_exact", !d->found, "logits_exact", logits);
}

static gem_status scan(engine *rowwise, engine *candidate, int32_t n_tokens, json_t *tiles,
                       difference *d, int32_t *exact_through, gem_error *err)
{
    gem_status st = GEM_OK;
    int32_t *token = malloc((size_t)n_tokens * sizeof(*token));
    if (!token) return gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", n_tokens);
    make_tokens(candidate->model, token, n_tokens);
    /* the first tile, on an empty cache, is one like the others here and reported apart */
    for (int32_t from = 0; from < n_tokens && !d->found; from += opt.tile) {
        int32_t to = GEM_MIN(from + opt.tile, n_tokens);
        bool same = false;
        if (cli_interrupted) st = gem_fail(err, GEM_E_CANCELLED, "stopped at position %d", from);
        if (st == GEM_OK) st = advance(rowwise, candidate, token, from, to, &same, err);
        if (st != GEM_OK) break;
        json_array_append_new(tiles, compare_tile(rowwise, candidate, from, to, same, d));
        if (!d->found) *exact_through = to;
    }
    free(token);
    return st;
}

int main(int argc, char **argv)
{
    char **args, path[4096], *end;
    int n_args;
    gem_error err;
    engine rowwise = {0}, candidate = {0};
    difference d = {0};
    int32_t exact_through = 0;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    long n = strtol(args[1], &end, 10);
    if (*end || n < 1 || n > 1 << 24)
        return cli_usage(&command, "TOKENS is '%s', expected 1 to %d", args[1], 1 << 24);
    if (opt.model.batch) return cli_usage(&command, "--batch: use --tile");

    cli_catch_interrupt();
    json_t *tiles = json_array();
    gem_status st = cli_model_path(args[0], path, sizeof(path), &err);
    if (st == GEM_OK) st = open_engine(&rowwise, path, true, (int32_t)n, &err);
    if (st == GEM_OK) st = open_engine(&candidate, path, false, (int32_t)n, &err);
    if (st == GEM_OK) st = scan(&rowwise, &candidate, (int32_t)n, tiles, &d, &exact_through, &err);
    if (st == GEM_OK) {
        json_t *doc = document(path, &rowwise, &candidate, (int32_t)n, tiles, &d, exact_through);
        bool exact = doc && !d.found && json_is_true(json_object_get(doc, "logits_exact"));
        tiles = NULL;
        code = cli_print_json(&command, doc);
        if (code == CLI_DONE && !exact) code = CLI_FALSE;
    } else {
        code = cli_fail(&command, &err);
    }
    json_decref(tiles);
    close_engine(&rowwise);
    close_engine(&candidate);
    return code;
}
