/* kv_page.c - the sizes of a KV page and of a recurrent state, which every backend shares. */
#include "backend/backend.h"

size_t gem_kv_page_bytes(const gem_kv_pool *p)
{
    /* keys and values: GEM_PAGE positions of n_kv_heads * head_dim numbers each */
    return (size_t)(p->values_only ? 1 : 2) * GEM_PAGE * (size_t)p->n_kv_heads * (size_t)p->head_dim * (p->f16 ? 2 : 4);
}

size_t gem_recurrent_bytes(const gem_recurrent *r)
{
    size_t dim = (size_t)r->head_dim, v = (size_t)r->n_v_heads, k = (size_t)r->n_k_heads;
    size_t conv = (GEM_CONV_TAPS - 1) * (2 * k + v) * dim; /* raw q, k, v of the last positions */
    return (size_t)r->n_layers * (v * dim * dim + conv) * sizeof(float);
}
