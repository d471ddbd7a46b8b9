/* keys.c - layers that keep values alone (KV type f32-values): a key is its value times k_norm,
 * rotated, and is made again whenever a chunk of a page is attended to. The same numbers in the
 * same order as QKV makes them, so the logits are the same bytes as with keys kept. What it saves
 * is memory and its traffic; what it costs is about a cycle a value and pass. The angles of every
 * position are kept, of the pairs that move: 512 bytes a position for all layers of Gemma 4. */
#include "backend/cpu/angles.h"
#include "backend/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

static size_t positions(const gem_backend *be)
{
    return (size_t)gem_round_up((uint64_t)be->opt.n_ctx, GEM_PAGE);
}

static size_t table_bytes(const gem_backend *be, int rope)
{
    return 2 * positions(be) * (size_t)be->key_pairs[rope] * sizeof(float);
}

bool gem_cpu_values_only(const gem_backend *be)
{
    for (int i = 0; i < be->opt.n_pools; i++)
        if (be->opt.pool[i].values_only) return true;
    return false;
}

gem_status gem_cpu_open_keys(gem_backend *be, gem_error *err)
{
    const gem_plan *plan = be->plan;
    if (!gem_cpu_values_only(be)) return GEM_OK;
    be->key_op = calloc((size_t)plan->n_layers, sizeof(*be->key_op));
    if (!be->key_op)
        return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %d layers", plan->n_layers);
    for (size_t i = 0; i < plan->n_ops; i++) {
        const gem_op *op = &plan->op[i];
        if (op->kind != GEM_OP_QKV || op->qkv.k < 0) continue;
        int pool = be->opt.layer_pool[op->layer], r = op->qkv.rope;
        if (pool < 0 || !be->opt.pool[pool].values_only) continue;
        be->key_op[op->layer] = op;
        for (int k = 0; k < plan->rope[r].n_dims / 2; k++)
            if (be->freq[r][k] != 0.0)
                be->key_pairs[r] =
                    GEM_MAX(be->key_pairs[r], (int)gem_round_up((uint64_t)k + 1, 16));
    }
    for (int r = 0; r < plan->n_ropes; r++) {
        if (!be->key_pairs[r]) continue;
        float *map = gem_cpu_map(table_bytes(be, r));
        if (!map)
            return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for the angles of %zu positions",
                            positions(be));
        be->key_cos[r] = map;
        be->key_sin[r] = be->key_cos[r] + positions(be) * (size_t)be->key_pairs[r];
        be->work_bytes_apart += table_bytes(be, r);
    }
    return GEM_OK;
}

void gem_cpu_close_keys(gem_backend *be)
{
    for (int r = 0; r < GEM_PLAN_MAX_ROPES; r++)
        if (be->key_cos[r]) munmap(be->key_cos[r], table_bytes(be, r));
    free(be->key_op);
}

void gem_cpu_key_angles(gem_backend *be, const gem_batch *b)
{
    if (!be->key_op) return;
    int32_t end = be->key_positions;
    for (int32_t r = 0; r < b->n_rows; r++)
        end = GEM_MAX(end, b->pos[r] + 1);
    for (int32_t pos = be->key_positions; pos < end; pos++)
        for (int r = 0; r < be->plan->n_ropes; r++) {
            size_t at = (size_t)pos * (size_t)be->key_pairs[r];
            for (int i = 0; i < be->key_pairs[r]; i++)
                gem_sincos((double)pos * be->freq[r][i], &be->key_sin[r][at + (size_t)i],
                           &be->key_cos[r][at + (size_t)i]);
        }
    be->key_positions = end;
}

void gem_cpu_append_value(uint8_t *page, int head_dim, int32_t slot, const float *v)
{
    float *out = (float *)(void *)page + (size_t)slot * 16;
    for (int d = 0; d < head_dim; d++)
        out[(size_t)(d / 16) * 16 * GEM_PAGE + (size_t)(d % 16)] =
            fabsf(v[d]) <= FLT_MAX ? v[d] : 0.0f;
}

static void make(const gem_backend *be, int layer, const float *values, int32_t first, int n_keys,
                 float *keys)
{
    const gem_op *op = be->key_op[layer];
    int rope = op->qkv.rope;
    size_t at = (size_t)first * (size_t)be->key_pairs[rope];
    const gem_keys_args a = {
        .head_dim = be->plan->layer[layer].head_dim,
        .half = be->plan->rope[rope].n_dims / 2,
        .n_keys = n_keys,
        .n_pairs = be->key_pairs[rope],
        .value = values,
        .norm = op->qkv.k_norm,
        .cos = be->key_cos[rope] + at,
        .sin = be->key_sin[rope] + at,
        .keys = keys,
    };
    be->k.keys(&a);
}

const uint8_t *gem_cpu_make_keys(const gem_backend *be, int tid, int layer, const uint8_t *values,
                                 int32_t first, int32_t last, int which)
{
    size_t hd = (size_t)be->plan->layer[layer].head_dim;
    float *keys = be->scratch[tid].keys + (size_t)which * GEM_PAGE * hd;
    int n = (int)gem_round_up((uint64_t)GEM_MIN(last + 1 - first, GEM_PAGE), 16);
    make(be, layer, (const float *)(const void *)values, first, n, keys);
    return (const uint8_t *)keys;
}

/* By the scalar kernel's formula for one key: for comparisons. The page's number of a position is
 * not known here, so the caller gives the position. */
void gem_cpu_key_of_value(const gem_backend *be, int layer, int32_t pos, const float *v, float *k)
{
    const gem_op *op = be->key_op[layer];
    int rope = op->qkv.rope, half = be->plan->rope[rope].n_dims / 2,
        hd = be->plan->layer[layer].head_dim, n = be->key_pairs[rope];
    const float *cs = be->key_cos[rope] + (size_t)pos * (size_t)n;
    const float *sn = be->key_sin[rope] + (size_t)pos * (size_t)n;
    for (int d = 0; d < hd; d++)
        k[d] = v[d] * op->qkv.k_norm[d];
    for (int i = 0; i < n; i++) {
        float p = k[i], q = k[i + half];
        k[i] = fmaf(-q, sn[i], p * cs[i]);
        k[i + half] = fmaf(q, cs[i], p * sn[i]);
    }
}
