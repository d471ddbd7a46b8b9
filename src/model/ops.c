/* ops.c - see ops.h. */
#include "model/ops.h"

bool gem_add_embed(gem_plan *p, int layer, const gem_tensor *w, gem_buf dst, int32_t at,
                   float scale)
{
    gem_op *op = gem_plan_add(p, GEM_OP_EMBED, layer);
    if (!op) return false;
    op->embed.w = w;
    op->embed.dst = dst;
    op->embed.at = at;
    op->embed.scale = scale;
    return true;
}

bool gem_add_norm(gem_plan *p, int layer, gem_buf src, gem_buf dst, int32_t at, const gem_tensor *w,
                  float eps)
{
    gem_op *op = gem_plan_add(p, GEM_OP_NORM, layer);
    if (!op) return false;
    op->norm.src = src;
    op->norm.dst = dst;
    op->norm.w = gem_vector(w);
    op->norm.eps = eps;
    op->norm.at = at;
    return true;
}

bool gem_add_linear(gem_plan *p, int layer, gem_buf src, const gem_part *part, int n)
{
    gem_op *op = gem_plan_add(p, GEM_OP_LINEAR, layer);
    if (!op) return false;
    op->linear.src = src;
    op->linear.n = n;
    for (int i = 0; i < n; i++) {
        op->linear.w[i] = part[i].w;
        op->linear.bias[i] = gem_vector(part[i].bias);
        op->linear.dst[i] = part[i].dst;
    }
    return true;
}

bool gem_add_ffn(gem_plan *p, int layer, const gem_bufs *b, const gem_layer_weights *w, gem_act act)
{
    const gem_part in[2] = {{w->gate, NULL, b->gate}, {w->up, NULL, b->up}},
                   down = {w->down, NULL, b->out};
    if (!gem_add_linear(p, layer, b->h, in, 2)) return false;
    gem_op *op = gem_plan_add(p, GEM_OP_GLU, layer);
    if (!op) return false;
    op->glu.gate = b->gate;
    op->glu.up = b->up;
    op->glu.dst = b->gate;
    op->glu.act = act;
    return gem_add_linear(p, layer, b->gate, &down, 1);
}

gem_op *gem_add_residual(gem_plan *p, int layer, const gem_bufs *b, const gem_tensor *next,
                         float eps)
{
    gem_op *op = gem_plan_add(p, GEM_OP_RESIDUAL, layer);
    if (!op) return NULL;
    op->residual.x = b->x;
    op->residual.src = b->out;
    op->residual.dst = b->h;
    op->residual.next_norm = gem_vector(next);
    op->residual.eps = eps;
    op->residual.out_scale = 1.0f;
    return op;
}

bool gem_add_head(gem_plan *p, int layer, gem_buf src, const gem_tensor *w, float softcap)
{
    gem_op *op = gem_plan_add(p, GEM_OP_HEAD, layer);
    if (!op) return false;
    op->head.src = src;
    op->head.hidden = src;
    op->head.w = w;
    op->head.softcap = softcap;
    return true;
}
