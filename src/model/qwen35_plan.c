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

#include "model/ops.h"

#include <math.h>
#include <stdlib.h>

typedef struct bufs {
    gem_bufs d;
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
    b.d.x = gem_plan_buf(p, m->d_model);
    b.d.h = gem_plan_buf(p, m->d_model);
    b.d.q = b.z = gem_plan_buf(p, GEM_MAX(2 * q, inner));
    b.d.k = b.alpha = gem_plan_buf(p, GEM_MAX(kv, heads));
    b.d.v = b.beta = gem_plan_buf(p, GEM_MAX(kv, heads));
    b.d.att = gem_plan_buf(p, GEM_MAX(q, inner));
    b.d.out = gem_plan_buf(p, m->d_model);
    b.d.gate = b.u = gem_plan_buf(p, m->d_ff);
    b.d.up = b.c = gem_plan_buf(p, m->d_ff);
    if (conv > m->d_ff) { /* not in published shapes */
        b.u = gem_plan_buf(p, conv);
        b.c = gem_plan_buf(p, conv);
    }
    return b;
}

static bool add_attention(gem_plan *p, const gem_hybrid *m, int l, const gem_bufs *b)
{
    const gem_layer_weights *w = &m->w->layer[l];
    const gem_part in[3] = {{w->q, NULL, b->q}, {w->k, NULL, b->k}, {w->v, NULL, b->v}},
                   out = {w->o, NULL, b->out};
    if (!gem_add_linear(p, l, b->h, in, 3)) return false;

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
    return gem_add_linear(p, l, b->att, &out, 1);
}

static bool add_recurrent(gem_plan *p, const gem_hybrid *m, int l, const bufs *b)
{
    const gem_layer_weights *w = &m->w->layer[l];
    const gem_part in[4] = {{w->qkv, NULL, b->u},
                            {w->z, NULL, b->z},
                            {w->alpha, NULL, b->alpha},
                            {w->beta, NULL, b->beta}},
                   out = {w->ssm_out, NULL, b->d.out};
    if (!gem_add_linear(p, l, b->d.h, in, 4)) return false;

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
    op->delta.dst = b->d.att;
    op->delta.a = gem_vector(w->ssm_a);
    op->delta.dt_bias = gem_vector(w->dt_bias);
    op->delta.norm = gem_vector(w->ssm_norm);
    op->delta.eps = m->eps;
    return gem_add_linear(p, l, b->d.att, &out, 1);
}

/* From the last projection of a layer's first half to the norm that opens the next one. */
static bool add_rest(gem_plan *p, const gem_hybrid *m, int l, const gem_bufs *b,
                     const gem_tensor *next)
{
    const gem_layer_weights *w = &m->w->layer[l];
    return gem_add_residual(p, l, b, w->ffn_norm, m->eps) &&
           gem_add_ffn(p, l, b, w, GEM_ACT_SILU) && gem_add_residual(p, l, b, next, m->eps);
}

/* In the buffers of the trunk, and one for a pair of vectors. */
static bool add_drafter(gem_plan *p, const gem_hybrid *m, const gem_bufs *b, const gem_tensor *head)
{
    const int l = m->n_layers;
    const gem_layer_weights *w = &m->w->layer[l];
    const gem_buf both = gem_plan_buf(p, 2 * m->d_model);
    const gem_part join = {w->eh_proj, NULL, b->x};
    p->draft_op = p->n_ops;
    p->draft_appends = true;
    if (!gem_add_embed(p, l, m->w->token_embd, b->x, 0, 1.0f)) return false;
    gem_op *op = gem_plan_add(p, GEM_OP_INPUT, l);
    if (!op) return false;
    op->input.dst = b->out;
    return gem_add_norm(p, l, b->x, both, 0, w->e_norm, m->eps) &&
           gem_add_norm(p, l, b->out, both, m->d_model, w->h_norm, m->eps) &&
           gem_add_linear(p, l, both, &join, 1) &&
           gem_add_norm(p, l, b->x, b->h, 0, w->attn_norm, m->eps) && add_attention(p, m, l, b) &&
           add_rest(p, m, l, b, w->head_norm) && gem_add_head(p, l, b->h, head, 0.0f);
}

static bool add_ops(gem_plan *p, const gem_hybrid *m)
{
    const gem_weights *w = m->w;
    const gem_tensor *head = w->output ? w->output : w->token_embd; /* tied */
    const bufs b = make_bufs(p, m);
    if (!gem_add_embed(p, 0, w->token_embd, b.d.x, 0, 1.0f) ||
        !gem_add_norm(p, 0, b.d.x, b.d.h, 0, w->layer[0].attn_norm, m->eps))
        return false;
    for (int l = 0; l < m->n_layers; l++) {
        const gem_tensor *next = l + 1 < m->n_layers ? w->layer[l + 1].attn_norm : w->output_norm;
        bool ok = m->is_recurrent[l] ? add_recurrent(p, m, l, &b) : add_attention(p, m, l, &b.d);
        if (!ok || !add_rest(p, m, l, &b.d, next)) return false;
    }
    return gem_add_head(p, m->n_layers - 1, b.d.h, head, 0.0f) &&
           (!m->drafter || add_drafter(p, m, &b.d, head));
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
