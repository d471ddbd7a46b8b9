/* kv_page.c - the size of a KV page, which the pools of every backend share. */
#include "backend/backend.h"

size_t gem_kv_page_bytes(const gem_kv_pool *p)
{
    /* keys and values: GEM_PAGE positions of n_kv_heads * head_dim numbers each */
    return (size_t)2 * GEM_PAGE * (size_t)p->n_kv_heads * (size_t)p->head_dim * (p->f16 ? 2 : 4);
}
