/* plan.c - growing a plan: ops in order, activation buffers by width. */
#include "backend/plan.h"

#include <assert.h>
#include <stdlib.h>

gem_op *gem_plan_add(gem_plan *p, gem_op_kind kind, int layer)
{
    if (p->n_ops == p->cap_ops) {
        size_t cap = p->cap_ops ? p->cap_ops * 2 : 64, bytes;
        if (!gem_mul_ok(cap, sizeof(*p->op), &bytes)) return NULL;
        gem_op *op = realloc(p->op, bytes);
        if (!op) return NULL;
        p->op = op;
        p->cap_ops = cap;
    }
    gem_op *op = &p->op[p->n_ops++];
    memset(op, 0, sizeof(*op));
    op->kind = kind;
    op->layer = layer;
    return op;
}

gem_buf gem_plan_buf(gem_plan *p, int32_t width)
{
    assert(p->n_bufs < GEM_PLAN_MAX_BUFS && width > 0);
    p->buf_width[p->n_bufs] = width;
    return p->n_bufs++;
}

void gem_plan_free(gem_plan *p)
{
    if (!p) return;
    free(p->op);
    free(p->layer);
    free(p->suppress);
    memset(p, 0, sizeof(*p));
}
