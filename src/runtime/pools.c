/* pools.c - how many KV pages of which kind a model needs. */
#include "runtime/kv.h"

#include <stdlib.h>

static int find_pool(gem_kv_layout *out, const gem_kv_layer *l, bool f16)
{
    for (int i = 0; i < out->n_pools; i++) {
        const gem_kv_pool *p = &out->pool[i];
        if (p->n_kv_heads == l->n_kv_heads && p->head_dim == l->head_dim && p->f16 == f16) return i;
    }
    if (out->n_pools == GEM_KV_MAX_POOLS) return -1;
    out->pool[out->n_pools] =
        (gem_kv_pool){.n_kv_heads = l->n_kv_heads, .head_dim = l->head_dim, .f16 = f16};
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
    return GEM_MIN(held, all) + GEM_MIN(ceil_pages(window), all) + 1;
}

gem_status gem_kv_layout_init(gem_kv_layout *out, const gem_plan *plan, gem_kv_type type,
                              int32_t n_ctx, int32_t n_batch, int n_sessions, gem_error *err)
{
    size_t n = (size_t)plan->n_layers;
    int64_t pages[GEM_KV_MAX_POOLS] = {0};
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
        bool f16 = type == GEM_KV_F16 || (type == GEM_KV_F16_FULL && kl->window == 0);
        int i = find_pool(out, kl, f16);
        if (i < 0) {
            gem_kv_layout_deinit(out);
            return gem_fail(err, GEM_E_UNSUPPORTED, "layers of more than %d KV shapes",
                            GEM_KV_MAX_POOLS);
        }
        out->layer_pool[l] = i;
        out->window[l] = kl->window;
        pages[i] += layer_pages(kl->window, n_ctx, n_batch) * n_sessions;
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
