/* profiles.c - attribution records: which stage takes the time, and what a better one could bring.
 */
#include "evidence/analyzers.h"
#include "evidence/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void attribution_only(ev_judge *j, const char *why)
{
    gem_json_put_bool(j->json, j->root, "promotion_eligible", false);
    gem_json_put_string(j->json, j->root, "evidence", why);
}

/* A prefix was evaluated once, or its KV was seeded and never built; anything else is refused. */
static void check_prefix(ev_judge *j, const ev_doc *d, bool evaluated_only)
{
    const char *mode = ev_text(d->root, "prefix_mode");
    double builds = ev_number(d->root, "prefix_builds");
    bool evaluated = strcmp(mode, "evaluated") == 0 && builds == 1,
         seeded = strcmp(mode, "seeded-kv") == 0 && builds == 0;
    ev_check(j, evaluated || (seeded && !evaluated_only), "prefix",
             evaluated_only ? "evaluated, built once"
                            : "evaluated, built once, or seeded-kv, never built",
             "%s: %s, %g builds", d->name, *mode ? mode : "absent", builds);
    gem_json_put_string(j->json, j->root, "prefix_mode", mode);
}

/* ---- prefill stages ---- */
static const char *const stage_names[EV_STAGES] = {
    "input_norm",  "qkv_projection",   "qk_norm_rope_append",
    "attention",   "attention_output", "attention_residual",
    "ffn_gate_up", "ffn_down",         "ffn_residual"};

typedef struct stage_sum {
    double ns[2][EV_STAGES]; /* mean of the samples, all layers of a kind: sliding, full */
    double total;
} stage_sum;

static bool check_graph(ev_judge *j, const ev_doc *d, size_t n_layers, size_t n_full)
{
    const gem_json *kinds = ev_at(d->root, "layer_kinds");
    size_t full = 0, sliding = 0;
    char required[96];
    for (const gem_json *m = kinds ? kinds->first : NULL; m; m = m->next) {
        full += gem_json_is(m, "full");
        sliding += gem_json_is(m, "sliding");
    }
    snprintf(required, sizeof(required), "%zu layers, %zu sliding and %zu full", n_layers,
             n_layers - n_full, n_full);
    return ev_check(j,
                    kinds && kinds->n == n_layers && full == n_full && sliding == n_layers - n_full,
                    "graph", required, "%zu sliding, %zu full", sliding, full);
}

static bool check_stages(ev_judge *j, const ev_doc *d)
{
    const gem_json *list = ev_at(d->root, "stages"), *m = list ? list->first : NULL;
    bool ok = list && list->n == EV_STAGES;
    for (size_t i = 0; ok && i < EV_STAGES; i++, m = m->next)
        ok = gem_json_is(m, stage_names[i]);
    return ev_check(j, ok, "stages", "the nine stages of a layer, in their order", "%zu",
                    list ? list->n : 0);
}

/* One matrix [layer][stage] of nanoseconds; false when it is not exactly that. */
static bool add_matrix(stage_sum *s, const gem_json *matrix, const gem_json *kinds, double weight,
                       double *sum)
{
    const gem_json *kind = kinds->first;
    *sum = 0;
    if (!matrix || matrix->type != GEM_JSON_ARRAY || matrix->n != kinds->n) return false;
    for (const gem_json *layer = matrix->first; layer; layer = layer->next, kind = kind->next) {
        if (layer->type != GEM_JSON_ARRAY || layer->n != EV_STAGES) return false;
        for (const gem_json *v = layer->first; v; v = v->next) {
            if (v->type != GEM_JSON_NUMBER || !isfinite(v->number) || v->number < 0) return false;
            s->ns[gem_json_is(kind, "full")][v->index] += v->number * weight;
            *sum += v->number;
        }
    }
    return true;
}

typedef struct rank {
    const char *kind, *stage;
    double ns;
} rank;

static int by_time(const void *a, const void *b)
{
    double x = ((const rank *)a)->ns, y = ((const rank *)b)->ns;
    return (x < y) - (x > y);
}

static void put_ranking(ev_judge *j, const stage_sum *s)
{
    rank r[2 * EV_STAGES];
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < EV_STAGES; i++)
            r[k * EV_STAGES + i] = (rank){k ? "full" : "sliding", stage_names[i], s->ns[k][i]};
    qsort(r, ARRAY_LEN(r), sizeof(*r), by_time);
    gem_json *list = gem_json_put(j->json, j->root, "ranking", GEM_JSON_ARRAY);
    for (size_t i = 0; i < ARRAY_LEN(r); i++) {
        gem_json *o = gem_json_put(j->json, list, NULL, GEM_JSON_OBJECT);
        gem_json_put_string(j->json, o, "layers", r[i].kind);
        gem_json_put_string(j->json, o, "stage", r[i].stage);
        gem_json_put_number(j->json, o, "mean_ns", r[i].ns);
        gem_json_put_number(j->json, o, "share_percent", 100 * r[i].ns / s->total);
    }
    gem_json *axis = gem_json_put(j->json, j->root, "selected_axis", GEM_JSON_OBJECT);
    gem_json_put_string(j->json, axis, "layers", r[0].kind);
    gem_json_put_string(j->json, axis, "stage", r[0].stage);
    gem_json_put_string(j->json, axis, "standing", "a hypothesis from a profile, no decision");
}

void ev_judge_prefill_stages(ev_judge *j, const ev_doc *d, size_t n_layers, size_t n_full)
{
    stage_sum s = {0};
    ev_judge_input(j, "profile", d);
    ev_check_schema(j, d, "gem-long-prefill-stage-profile/1");
    bool ok = check_graph(j, d, n_layers, n_full);
    ok = check_stages(j, d) && ok;
    ev_check_equals(j, d, "rows", "rows", 32);
    check_prefix(j, d, false);
    ev_need_number(j, d, "position");
    double repetitions = ev_need_number(j, d, "repetitions"), least = INFINITY, most = 0;
    const gem_json *samples = ev_at(d->root, "samples"), *tile = ev_at(d->root, "tile_ns");
    size_t good = 0, n = samples ? samples->n : 0;
    for (size_t i = 0; ok && i < n; i++) {
        double sum, whole = ev_number(gem_json_at(tile, i), "");
        if (!add_matrix(&s, gem_json_at(samples, i), ev_at(d->root, "layer_kinds"), 1.0 / (double)n,
                        &sum))
            break;
        good++;
        double coverage = sum / whole;
        least =
            coverage >= 0 ? fmin(least, coverage) : -1; /* a tile without a time covers nothing */
        most = fmax(most, coverage);
        s.total += sum / (double)n;
    }
    ok = ok && ev_check(j, n >= 3 && good == n && (double)n == repetitions && tile && tile->n == n,
                        "samples", "three or more matrices [layer][stage] and as many tile times",
                        "%zu of %zu readable", good, n);
    if (ok &&
        ev_check(j, least >= EV_COVERAGE && most <= 1.001, "coverage",
                 "timestamps cover 95 % to 100 % of every tile", "%.3f to %.3f", least, most)) {
        gem_json_put_number(j->json, j->root, "coverage", least);
        put_ranking(j, &s);
    }
    attribution_only(j, "stage attribution: no throughput, TTFT or quality");
}

/* ---- decode: model and operator ---- */
typedef struct decode {
    double step, stages,
        attention; /* mean ns of a token: whole, all stages, KV attention of full layers */
    double total, score, normalization, value; /* mean ns of one layer's operator */
    bool ok;
} decode;

static double mean_at(ev_judge *j, const ev_doc *d, const char *path, bool *ok)
{
    ev_series s;
    ev_figures f = {.mean = NAN};
    if (ev_need_series(j, d, path, 3, &s))
        ev_figures_of(&f, s.x, s.n);
    else
        *ok = false;
    ev_series_free(&s);
    return f.mean;
}

static void check_geometry(ev_judge *j, const ev_doc *op)
{
    ev_check_equals(j, op, "geometry", "geometry.query_heads", EV_31B_QUERY_HEADS);
    ev_check_equals(j, op, "geometry", "geometry.kv_heads", EV_31B_KV_HEADS);
    ev_check_equals(j, op, "geometry", "geometry.head_dim", EV_31B_HEAD_DIM);
}

/* Read and bind one model record and one operator record. */
static decode bind_decode(ev_judge *j, const ev_doc *model, const ev_doc *op, bool evaluated_only)
{
    decode r = {.ok = true};
    ev_check_schema(j, model, "gem-decode-profile/1");
    ev_check_schema(j, op, "gem-decode-attention-profile/1");
    ev_check_equals(j, model, "graph", "layers.total", EV_31B_LAYERS);
    ev_check_equals(j, model, "graph", "layers.sliding", EV_31B_SLIDING);
    ev_check_equals(j, model, "graph", "layers.full", EV_31B_FULL);
    ev_check_equals(j, model, "rows", "parameters.rows", 1);
    check_prefix(j, model, evaluated_only);
    check_geometry(j, op);
    double position = ev_number(model->root, "parameters.position"),
           tokens = ev_number(op->root, "parameters.tokens"),
           context = ev_number(model->root, "parameters.context");
    ev_check(j, position == tokens && position > 0, "position",
             "the operator ran at the model's position", "%.0f and %.0f", position, tokens);
    ev_check(j, context > position, "context", "a context that holds the position", "%.0f",
             context);
    r.step = mean_at(j, model, "step.samples_ns", &r.ok);
    r.attention = mean_at(j, model, "stages.kv_attention_full.samples_ns", &r.ok);
    const gem_json *stages = ev_at(model->root, "stages");
    for (const gem_json *m = stages ? stages->first : NULL; m; m = m->next) {
        char path[128];
        snprintf(path, sizeof(path), "stages.%.64s.samples_ns", m->name);
        r.stages += mean_at(j, model, path, &r.ok);
    }
    r.total = mean_at(j, op, "total.samples_ns", &r.ok);
    r.score = mean_at(j, op, "phases.score.samples_ns", &r.ok);
    r.normalization = mean_at(j, op, "phases.normalization.samples_ns", &r.ok);
    r.value = mean_at(j, op, "phases.value.samples_ns", &r.ok);
    double coverage = r.stages / r.step, phases = r.score + r.normalization + r.value;
    ev_check(j, coverage >= EV_COVERAGE && coverage <= 1.001, "coverage",
             "stages cover 95 % to 100 % of a token", "%.4f", coverage);
    ev_check(j, phases / r.total >= EV_COVERAGE && phases / r.total <= 1.001, "coverage",
             "phases cover 95 % to 100 % of the operator", "%.4f", phases / r.total);
    ev_check(j, EV_31B_FULL * r.total <= r.attention, "attribution",
             "ten operators within the model's own KV attention of full layers",
             "%.0f ns of %.0f ns", EV_31B_FULL * r.total, r.attention);
    return r;
}

/* What a whole token would gain if this much of it took no time at all; and the share of the stage
 * that must go to gain 3 %. */
static double ceiling_of(ev_judge *j, gem_json *parent, const char *name, double stage, double step)
{
    double share = stage / step, ceiling = 1 / (1 - share) - 1;
    gem_json *o = gem_json_put(j->json, parent, name, GEM_JSON_OBJECT);
    gem_json_put_number(j->json, o, "stage_ns", stage);
    gem_json_put_number(j->json, o, "share_of_token_percent", 100 * share);
    gem_json_put_number(j->json, o, "whole_token_ceiling_percent", 100 * ceiling);
    double needed = EV_CEILING / (1 + EV_CEILING) / share;
    gem_json_put_number(j->json, o, "stage_time_to_remove_for_3_percent", 100 * needed);
    return ceiling;
}

void ev_judge_decode_residual(ev_judge *j, const ev_doc *model, const ev_doc *op)
{
    ev_judge_input(j, "model", model);
    ev_judge_input(j, "operator", op);
    decode r = bind_decode(j, model, op, false);
    if (r.ok) {
        double c = ceiling_of(j, j->root, "value", EV_31B_FULL * r.value, r.step);
        ev_check(j, c >= EV_CEILING, "ceiling", "at least 3 % of a whole token", "%.3f %%",
                 100 * c);
        gem_json_put_number(j->json, j->root, "residual_ns", r.attention - EV_31B_FULL * r.total);
    }
    attribution_only(j, "allows a one-axis operator screen, promotes nothing");
}

void ev_judge_split_kv_ceiling(ev_judge *j, const ev_doc in[4])
{
    static const double position[] = {65536, 131072};
    static const char *const roles[] = {"model-64k", "operator-64k", "model-128k", "operator-128k"};
    gem_json *lengths = gem_json_put(j->json, j->root, "lengths", GEM_JSON_ARRAY);
    for (int i = 0; i < 4; i++)
        ev_judge_input(j, roles[i], &in[i]);
    for (int i = 0; i < 2; i++) {
        const ev_doc *model = &in[2 * i], *op = &in[2 * i + 1];
        ev_check_equals(j, model, "position", "parameters.position", position[i]);
        ev_check_equals(j, model, "selector", "selector", 19);
        ev_check_text(j, op, "kernel", "kernel", "split16");
        decode r = bind_decode(j, model, op, true);
        if (!r.ok) continue;
        gem_json *o = gem_json_put(j->json, lengths, NULL, GEM_JSON_OBJECT);
        gem_json_put_number(j->json, o, "position", position[i]);
        double all = ceiling_of(j, o, "complete_global_attention", EV_31B_FULL * r.total, r.step);
        ceiling_of(j, o, "score_only", EV_31B_FULL * r.score, r.step);
        ev_check(j, all >= EV_CEILING, "ceiling", "at least 3 % of a whole token", "%.0f: %.3f %%",
                 position[i], 100 * all);
    }
    ev_check_same(j, &in[0], &in[2], "model.sha256");
    ev_check_same(j, &in[0], &in[2], "host.build");
    ev_check_same(j, &in[1], &in[3], "geometry");
    attribution_only(j, "admits research, promotes nothing");
}

/* ---- traffic ---- */
typedef struct traffic {
    double tokens, q, kv, dim, bytes;
    double scores, vectors; /* bytes of all scores, of all keys or all values */
    double total, unavoidable;
    gem_json *list;
} traffic;

static void put_traffic(ev_judge *j, traffic *t, const char *name, const char *formula,
                        double bytes, bool unavoidable)
{
    gem_json *m = gem_json_put(j->json, t->list, name, GEM_JSON_OBJECT);
    gem_json_put_number(j->json, m, "bytes", bytes);
    gem_json_put_string(j->json, m, "formula", formula);
    t->total += bytes;
    t->unavoidable += unavoidable ? bytes : 0;
}

/* Scores go through memory: written, normalised there, read again by every group of value dims. */
static void split_score_traffic(ev_judge *j, traffic *t, double tile, double splits)
{
    double groups = t->dim / tile, partials = splits * t->q * t->dim * 4;
    put_traffic(j, t, "k_read_bytes", "tokens * kv_heads * head_dim * element", t->vectors, true);
    put_traffic(j, t, "score_write_bytes", "tokens * query_heads * 4", t->scores, false);
    put_traffic(j, t, "normalization_read_bytes", "3 passes * tokens * query_heads * 4",
                3 * t->scores, false);
    put_traffic(j, t, "normalization_write_bytes",
                "2 passes (exponent, scale) * tokens * query_heads * 4", 2 * t->scores, false);
    put_traffic(j, t, "v_read_bytes", "tokens * kv_heads * head_dim * element", t->vectors, true);
    put_traffic(j, t, "score_read_bytes", "head_dim / value_tile groups * tokens * query_heads * 4",
                groups * t->scores, false);
    put_traffic(j, t, "value_partial_bytes",
                "written and read: 2 * value_splits * query_heads * head_dim * 4", 2 * partials,
                true);
}

/* Scores stay in the tile: what is left beside keys and values is a partial result a chunk. */
static void flash_traffic(ev_judge *j, traffic *t, double chunk)
{
    double partials = ceil(t->tokens / chunk) * t->q * (t->dim + 2) * 4;
    put_traffic(j, t, "k_read_bytes", "tokens * kv_heads * head_dim * element", t->vectors, true);
    put_traffic(j, t, "v_read_bytes", "tokens * kv_heads * head_dim * element", t->vectors, true);
    put_traffic(j, t, "value_partial_bytes",
                "written and read: 2 * ceil(tokens / key_chunk) * query_heads * (head_dim + 2) * 4",
                2 * partials, true);
}

void ev_judge_attention_traffic(ev_judge *j, const ev_doc *d)
{
    const char *route = ev_text(d->root, "route");
    bool flash = strcmp(route, "flash-chunks") == 0;
    ev_judge_input(j, "profile", d);
    ev_check_schema(j, d, "gem-decode-attention-profile/1");
    traffic t = {.tokens = ev_need_number(j, d, "parameters.tokens"),
                 .q = ev_need_number(j, d, "geometry.query_heads"),
                 .kv = ev_need_number(j, d, "geometry.kv_heads"),
                 .dim = ev_need_number(j, d, "geometry.head_dim"),
                 .bytes = ev_need_number(j, d, "geometry.kv_element_bytes")};
    double tile = flash ? 1 : ev_need_number(j, d, "geometry.value_tile"),
           splits = flash ? 1 : ev_need_number(j, d, "geometry.value_splits"),
           chunk = flash ? ev_need_number(j, d, "geometry.key_chunk") : 1;
    ev_check(j, flash || strcmp(route, "split-score") == 0, "route",
             "split-score, or flash-chunks where nothing is left to fuse", "%s", route);
    bool whole = t.tokens >= 1 && t.q >= 1 && t.kv >= 1 && t.dim >= 1 && tile >= 1 && splits >= 1 &&
                 chunk >= 1 && t.bytes >= 1 && fmod(t.q, t.kv) == 0 && fmod(t.dim, tile) == 0;
    ev_check(j, whole, "geometry",
             "query heads a multiple of KV heads, the head a multiple of the value tile",
             "%g/%g heads, %g/%g dims", t.q, t.kv, t.dim, tile);
    if (whole) {
        t.scores = t.tokens * t.q * 4;
        t.vectors = t.tokens * t.kv * t.dim * t.bytes;
        t.list = gem_json_put(j->json, j->root, "traffic", GEM_JSON_OBJECT);
        if (flash)
            flash_traffic(j, &t, chunk);
        else
            split_score_traffic(j, &t, tile, splits);
        gem_json_put_number(j->json, j->root, "total_bytes", t.total);
        gem_json_put_number(j->json, j->root, "avoidable_by_fusion_bytes", t.total - t.unavoidable);
        gem_json_put_number(j->json, j->root, "avoidable_share_percent",
                            100 * (t.total - t.unavoidable) / t.total);
    }
    attribution_only(j, "a model of addresses, no measured bandwidth: caches may serve part of it");
}
