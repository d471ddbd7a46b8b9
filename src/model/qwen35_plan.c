/* qwen35_plan.c - one pass over the layers of a Qwen3.5 hybrid:
 *
 *   x = embed(token);  h = rms(x, attn_norm[0])
 *   full attention:  q+gate,k,v = W h;  norm, rotate, append;  a = attend * sigmoid(gate);  o = Wo
 * a recurrent:       u,z,alpha,beta = W h;  c = conv(u);  y = delta(c, z, alpha, beta);  o = Wo y
 *   each layer:      x += o;  h = rms(x, ffn_norm);  f = down(silu(gate h) * up h)
 *                    x += f;  h = rms(x, attn_norm of the next layer, or output_norm)
 *   logits = W h
 *
 * and, as a program of its own, over the block that predicts ahead (MTP): e = embed(token), g the
 * hidden vector h of the position before, one attention layer with its own keys and values:
 *
 *   x = eh_proj (rms(e, enorm) | rms(g, hnorm));  h = rms(x, attn_norm);  ... as above ...
 *   h = rms(x, shared_head_norm);  logits = W h, of the token behind `token` */
#include "model/qwen35_plan.h"

#include <math.h>
#include <stdlib.h>

typedef struct bufs {
    gem_buf x, h, q, k, v, att, out, gate, up;
    gem_buf u, c, z, alpha, beta; /* recurrent layers; most share memory with the others' */
} bufs;

static int32_t channels(const gem_recurrent *r)
{
    return (2 * r->n_k_heads + r->n_v_heads) * r->head_dim;
}

static bufs make_bufs(gem_plan *p, const gem_hybrid *m)
{
    int32_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    int32_t inner = m->recurrent.n_v_heads * m->recurrent.head_dim, conv = channels(&m->recurrent);
    int32_t heads = (int32_t)gem_round_up((uint64_t)m->recurrent.n_v_heads, 32);
    bufs b;
    b.x = gem_plan_buf(p, m->d_model);
    b.h = gem_plan_buf(p, m->d_model);
    b.q = b.z = gem_plan_buf(p, GEM_MAX(2 * q, inner));
    b.k = b.alpha = gem_plan_buf(p, GEM_MAX(kv, heads));
    b.v = b.beta = gem_plan_buf(p, GEM_MAX(kv, heads));
    b.att = gem_plan_buf(p, GEM_MAX(q, inner));
    b.out = gem_plan_buf(p, m->d_model);
    b.gate = b.u = gem_plan_buf(p, m->d_ff);
    b.up = b.c = gem_plan_buf(p, m->d_ff);
    if (conv > m->d_ff) { /* not in published shapes */
        b.u = gem_plan_buf(p, conv);
        b.c = gem_plan_buf(p, conv);
    }
    return b;
}

typedef struct part {
    const gem_tensor *w;
    gem_buf dst;
} part;

static bool add_linear(gem_plan *p, int layer, gem_buf src, const part *in, int n)
{
    gem_op *op = gem_plan_add(p, GEM_OP_LINEAR, layer);
    if (!op) return false;
    op->linear.src = src;
    op->linear.n = n;
    for (int i = 0; i < n; i++) {
        op->linear.w[i] = in[i].w;
        op->linear.dst[i] = in[i].dst;
    }
    return true;
}

static bool add_residual(gem_plan *p, int layer, const bufs *b, const gem_tensor *next_norm,
                         float eps)
{
    gem_op *op = gem_plan_add(p, GEM_OP_RESIDUAL, layer);
    if (!op) return false;
    op->residual.x = b->x;
    op->residual.src = b->out;
    op->residual.dst = b->h;
    op->residual.next_norm = gem_vector(next_norm);
    op->residual.eps = eps;
    op->residual.out_scale = 1.0f;
    return true;
}

static bool add_attention(gem_plan *p, const gem_hybrid *m, int l, const bufs *b)
{
    const gem_layer_weights *w = &m->w->layer[l];
    const part in[3] = {{w->q, b->q}, {w->k, b->k}, {w->v, b->v}}, out = {w->o, b->out};
    if (!add_linear(p, l, b->h, in, 3)) return false;

    gem_op *op = gem_plan_add(p, GEM_OP_QKV, l);
    if (!op) return false;
    op->qkv.q = b->q;
    op->qkv.k = b->k;
    op->qkv.v = b->v;
    op->qkv.n_heads = m->n_heads;
    op->qkv.q_stride = 2 * m->head_dim;
    op->qkv.q_norm = gem_vector(w->q_norm);
    op->qkv.k_norm = gem_vector(w->k_norm);
    op->qkv.eps = m->eps;
    op->qkv.q_scale = 1.0f / sqrtf((float)m->head_dim);

    if (!(op = gem_plan_add(p, GEM_OP_ATTEND, l))) return false;
    op->attend.q = b->q;
    op->attend.dst = b->att;
    op->attend.n_heads = m->n_heads;
    op->attend.q_stride = 2 * m->head_dim;
    op->attend.gated = true;
    return add_linear(p, l, b->att, &out, 1);
}

static bool add_recurrent(gem_plan *p, const gem_hybrid *m, int l, const bufs *b)
{
    const gem_layer_weights *w = &m->w->layer[l];
    const part in[4] = {{w->qkv, b->u}, {w->z, b->z}, {w->alpha, b->alpha}, {w->beta, b->beta}},
               out = {w->ssm_out, b->out};
    if (!add_linear(p, l, b->h, in, 4)) return false;

    gem_op *op = gem_plan_add(p, GEM_OP_CONV, l);
    if (!op) return false;
    op->conv.src = b->u;
    op->conv.dst = b->c;
    op->conv.w = gem_vector(w->conv);
    op->conv.eps = m->eps;

    if (!(op = gem_plan_add(p, GEM_OP_DELTA, l))) return false;
    op->delta.src = b->c;
    op->delta.z = b->z;
    op->delta.alpha = b->alpha;
    op->delta.beta = b->beta;
    op->delta.dst = b->att;
    op->delta.a = gem_vector(w->ssm_a);
    op->delta.dt_bias = gem_vector(w->dt_bias);
    op->delta.norm = gem_vector(w->ssm_norm);
    op->delta.eps = m->eps;
    return add_linear(p, l, b->att, &out, 1);
}

static bool add_ffn(gem_plan *p, const gem_hybrid *m, int l, const bufs *b)
{
    const gem_layer_weights *w = &m->w->layer[l];
    const part in[2] = {{w->gate, b->gate}, {w->up, b->up}}, down = {w->down, b->out};
    if (!add_linear(p, l, b->h, in, 2)) return false;

    gem_op *op = gem_plan_add(p, GEM_OP_GLU, l);
    if (!op) return false;
    op->glu.gate = b->gate;
    op->glu.up = b->up;
    op->glu.dst = b->gate;
    op->glu.act = GEM_ACT_SILU;
    return add_linear(p, l, b->gate, &down, 1);
}

static bool add_norm(gem_plan *p, int layer, gem_buf src, gem_buf dst, int32_t at,
                     const gem_tensor *w, float eps)
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

/* In the buffers of the trunk, and one for a pair of vectors. */
static bool add_drafter(gem_plan *p, const gem_hybrid *m, const bufs *b)
{
    const int l = m->n_layers;
    const gem_weights *w = m->w;
    const gem_layer_weights *lw = &w->layer[l];
    const gem_buf both = gem_plan_buf(p, 2 * m->d_model);
    const part join = {lw->eh_proj, b->x};
    p->draft_op = p->n_ops;
    gem_op *op = gem_plan_add(p, GEM_OP_EMBED, l);
    if (!op) return false;
    op->embed.w = w->token_embd;
    op->embed.dst = b->x;
    op->embed.scale = 1.0f;
    if (!(op = gem_plan_add(p, GEM_OP_INPUT, l))) return false;
    op->input.dst = b->out;
    if (!add_norm(p, l, b->x, both, 0, lw->e_norm, m->eps) ||
        !add_norm(p, l, b->out, both, m->d_model, lw->h_norm, m->eps) ||
        !add_linear(p, l, both, &join, 1) ||
        !add_norm(p, l, b->x, b->h, 0, lw->attn_norm, m->eps) || !add_attention(p, m, l, b) ||
        !add_residual(p, l, b, lw->ffn_norm, m->eps) || !add_ffn(p, m, l, b) ||
        !add_residual(p, l, b, lw->head_norm, m->eps))
        return false;
    if (!(op = gem_plan_add(p, GEM_OP_HEAD, l))) return false;
    op->head.src = b->h;
    op->head.w = w->output ? w->output : w->token_embd;
    return true;
}

static bool add_ops(gem_plan *p, const gem_hybrid *m)
{
    const gem_weights *w = m->w;
    bufs b = make_bufs(p, m);
    gem_op *op = gem_plan_add(p, GEM_OP_EMBED, 0);
    if (!op) return false;
    op->embed.w = w->token_embd;
    op->embed.dst = b.x;
    op->embed.scale = 1.0f;

    if (!(op = gem_plan_add(p, GEM_OP_NORM, 0))) return false;
    op->norm.src = b.x;
    op->norm.dst = b.h;
    op->norm.w = gem_vector(w->layer[0].attn_norm);
    op->norm.eps = m->eps;

    for (int l = 0; l < m->n_layers; l++) {
        const gem_tensor *next = l + 1 < m->n_layers ? w->layer[l + 1].attn_norm : w->output_norm;
        bool ok = m->is_recurrent[l] ? add_recurrent(p, m, l, &b) : add_attention(p, m, l, &b);
        if (!ok || !add_residual(p, l, &b, w->layer[l].ffn_norm, m->eps) || !add_ffn(p, m, l, &b) ||
            !add_residual(p, l, &b, next, m->eps))
            return false;
    }

    if (!(op = gem_plan_add(p, GEM_OP_HEAD, m->n_layers - 1))) return false;
    op->head.src = b.h;
    op->head.w = w->output ? w->output : w->token_embd; /* tied */
    return !m->drafter || add_drafter(p, m, &b);
}

gem_status gem_hybrid_plan(gem_plan *out, const char *family, const gem_hybrid *m, gem_error *err)
{
    memset(out, 0, sizeof(*out));
    out->family = family;
    out->n_layers = m->n_layers + (m->drafter ? 1 : 0);
    out->d_model = m->d_model;
    out->n_vocab = m->n_vocab;
    out->n_ctx_train = m->n_ctx_train;
    out->n_ropes = 1;
    out->rope[0] = m->rope;
    out->layer = calloc((size_t)out->n_layers, sizeof(*out->layer));
    if (!out->layer || !add_ops(out, m)) {
        gem_plan_free(out);
        return gem_fail(err, GEM_E_NOMEM, "no memory for the plan of %d layers", m->n_layers);
    }
    out->recurrent = m->recurrent;
    out->recurrent.n_layers = 0;
    for (int l = 0; l < out->n_layers; l++) {
        if (l < m->n_layers && m->is_recurrent[l]) {
            out->recurrent.n_layers++;
        } else {
            out->layer[l].n_kv_heads = m->n_kv_heads;
            out->layer[l].head_dim = m->head_dim;
        }
    }
    return GEM_OK;
}
