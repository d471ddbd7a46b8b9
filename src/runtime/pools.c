/* pools.c - how many KV pages of which kind a model needs, and how many recurrent states. */
#include "runtime/kv.h"
#include "runtime/state.h"

#include <stdlib.h>

static int find_pool(gem_kv_layout *out, const gem_kv_layer *l, bool f16, bool values_only)
{
    for (int i = 0; i < out->n_pools; i++) {
        const gem_kv_pool *p = &out->pool[i];
        if (p->n_kv_heads == l->n_kv_heads && p->head_dim == l->head_dim && p->f16 == f16 &&
            p->values_only == values_only)
            return i;
    }
    if (out->n_pools == GEM_KV_MAX_POOLS) return -1;
    out->pool[out->n_pools] = (gem_kv_pool){.n_kv_heads = l->n_kv_heads,
                                            .head_dim = l->head_dim,
                                            .f16 = f16,
                                            .values_only = values_only};
    return out->n_pools++;
}

static int64_t ceil_pages(int64_t positions)
{
    return (positions + GEM_PAGE - 1) / GEM_PAGE;
}

static int64_t layer_pages(int32_t window, int32_t n_ctx, int32_t n_batch)
{
    int64_t all = ceil_pages(n_ctx);
    if (window == 0) return all + 1;
    int64_t held = ceil_pages(window) + ceil_pages(n_batch) + 2;
    return GEM_MIN(held, all) + GEM_MIN(ceil_pages((int64_t)window + GEM_ROLLBACK), all) + 1;
}

gem_status gem_kv_layout_init(gem_kv_layout *out, const gem_plan *plan, gem_kv_type type,
                              int32_t n_ctx, int32_t n_batch, int n_sessions, gem_error *err)
{
    size_t n = (size_t)plan->n_layers;
    int64_t pages[GEM_KV_MAX_POOLS] = {0};
    bool any_values = false;
    memset(out, 0, sizeof(*out));
    out->layer_pool = malloc(n * sizeof(*out->layer_pool));
    out->window = malloc(n * sizeof(*out->window));
    if (!out->layer_pool || !out->window) {
        gem_kv_layout_deinit(out);
        return gem_fail(err, GEM_E_NOMEM, "no memory for the KV layout of %d layers",
                        plan->n_layers);
    }
    for (int l = 0; l < plan->n_layers; l++) {
        const gem_kv_layer *kl = &plan->layer[l];
        out->window[l] = kl->window;
        out->layer_pool[l] = -1;
        if (kl->n_kv_heads == 0) continue; /* recurrent: no keys and values */
        if (kl->window && plan->recurrent.n_layers) {
            /* going back to a kept state needs the keys there, which a window has dropped */
            gem_kv_layout_deinit(out);
            return gem_fail(err, GEM_E_UNSUPPORTED,
                            "layer %d sees a window of %d beside recurrent layers", l, kl->window);
        }
        bool values_only = type == GEM_KV_F32_VALUES && kl->k_from_v;
        any_values = any_values || values_only;
        bool f16 = type == GEM_KV_F16 || (type == GEM_KV_F16_FULL && kl->window == 0);
        int i = find_pool(out, kl, f16, values_only);
        if (i < 0) {
            gem_kv_layout_deinit(out);
            return gem_fail(err, GEM_E_UNSUPPORTED, "layers of more than %d KV shapes",
                            GEM_KV_MAX_POOLS);
        }
        out->layer_pool[l] = i;
        pages[i] += layer_pages(kl->window, n_ctx, n_batch) * n_sessions;
    }
    if (type == GEM_KV_F32_VALUES && !any_values) {
        gem_kv_layout_deinit(out);
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "KV type f32-values: no layer of a %s model makes its keys of its values",
                        plan->family ? plan->family : "such");
    }
    for (int i = 0; i < out->n_pools; i++) {
        size_t bytes;
        if (pages[i] > INT32_MAX ||
            !gem_mul_ok((size_t)pages[i], gem_kv_page_bytes(&out->pool[i]), &bytes)) {
            gem_kv_layout_deinit(out);
            return gem_fail(err, GEM_E_NOMEM, "n_ctx %d and n_sessions %d need %lld KV pages",
                            n_ctx, n_sessions, (long long)pages[i]);
        }
        out->pool[i].n_pages = (int32_t)pages[i];
    }
    return GEM_OK;
}

void gem_kv_layout_deinit(gem_kv_layout *l)
{
    free(l->layer_pool);
    free(l->window);
    memset(l, 0, sizeof(*l));
}

uint64_t gem_kv_layout_bytes(const gem_kv_layout *l)
{
    uint64_t bytes = 0;
    for (int i = 0; i < l->n_pools; i++)
        bytes += (uint64_t)l->pool[i].n_pages * gem_kv_page_bytes(&l->pool[i]);
    return bytes;
}

gem_status gem_state_slots(int32_t *n_slots, const gem_recurrent *r, int64_t state_bytes,
                           int32_t n_ctx, int n_sessions, gem_error *err)
{
    *n_slots = 0;
    if (r->n_layers == 0) return GEM_OK;
    int64_t budget = state_bytes < 0 ? 0 : state_bytes ? state_bytes : GEM_STATE_DEFAULT_BYTES;
    int64_t bytes = (int64_t)gem_recurrent_bytes(r), always = (int64_t)GEM_STATE_SLOTS * n_sessions;
    int64_t n = always + GEM_MIN(budget / bytes, (int64_t)(n_ctx / GEM_PAGE) * n_sessions);
    size_t all;
    if (n > INT32_MAX || !gem_mul_ok((size_t)n, (size_t)bytes, &all))
        return gem_fail(err, GEM_E_NOMEM,
                        "n_sessions %d and state_bytes %lld need %lld recurrent states of %lld "
                        "bytes",
                        n_sessions, (long long)budget, (long long)n, (long long)bytes);
    *n_slots = (int32_t)n;
    return GEM_OK;
}
