/* dense.c - one pass over the layers of a dense decoder:
 *
 *   x = embed(token) * embed_scale;  h = rms(x, attn_norm[0])
 *   each layer:  q,k,v = W h (+ bias);  norm, rotate, append;  a = attend;  o = Wo a
 *                x += [rms](o);    h = rms(x, ffn_norm)
 *                f = down(act(gate h) * up h)
 *                x = (x + [rms](f)) * out_scale;  h = rms(x, next attn_norm, or output_norm)
 *   logits = softcap(W h)
 *
 * The norm that opens a layer is fused into the residual before it, so a row's x is read once. */
#include "model/dense.h"

#include "model/ops.h"

#include <stdlib.h>

gem_status gem_dense_check_heads(const gem_gguf *g, const char *arch, uint32_t n_heads,
                                 uint32_t n_kv_heads, uint32_t head_dim, gem_error *err)
{
    if (n_kv_heads > n_heads || n_heads % n_kv_heads != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key %s.attention.head_count is %u, no multiple of head_count_kv %u",
                        gem_gguf_path(g), arch, n_heads, n_kv_heads);
    if (head_dim % 32 != 0 || head_dim > 512)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: heads of %u values; supported are multiples of 32 up to 512",
                        gem_gguf_path(g), head_dim);
    return GEM_OK;
}

gem_status gem_dense_check_vocab(const gem_gguf *g, const char *arch, uint32_t vocab_size,
                                 int32_t n_vocab, gem_error *err)
{
    if (n_vocab > 0 && vocab_size == (uint32_t)n_vocab) return GEM_OK;
    return gem_fail(err, GEM_E_FORMAT, "%s: key %s.vocab_size is %u, the tokenizer has %d tokens",
                    gem_gguf_path(g), arch, vocab_size, n_vocab);
}

gem_status gem_dense_rope_scale(const gem_gguf *g, const char *arch, gem_str type, float factor,
                                float *scale, gem_error *err)
{
    *scale = 1.0f / factor;
    /* without a type, a factor means linear scaling */
    if (type.len == 0 || gem_str_is(type, "linear")) return GEM_OK;
    if (gem_str_is(type, "none")) {
        *scale = 1.0f;
        return GEM_OK;
    }
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: key %s.rope.scaling.type is %.*s; supported are none and linear",
                    gem_gguf_path(g), arch, (int)GEM_MIN(type.len, (size_t)32), type.data);
}

static gem_bufs make_bufs(gem_plan *p, const gem_dense *m)
{
    int32_t q = 0, kv = 0;
    gem_bufs b;
    for (int l = 0; l < m->n_layers; l++) {
        const gem_dense_layer *s = &m->layer[l];
        q = GEM_MAX(q, m->n_heads * s->head_dim);
        kv = GEM_MAX(kv, s->n_kv_heads * s->head_dim);
    }
    b.x = gem_plan_buf(p, m->d_model);
    b.h = gem_plan_buf(p, m->d_model);
    b.q = gem_plan_buf(p, q);
    b.k = gem_plan_buf(p, kv);
    b.v = gem_plan_buf(p, kv);
    b.att = gem_plan_buf(p, q);
    b.out = gem_plan_buf(p, m->d_model);
    b.gate = gem_plan_buf(p, m->d_ff);
    b.up = gem_plan_buf(p, m->d_ff);
    return b;
}

static bool add_residual(gem_plan *p, int layer, const gem_bufs *b, const gem_tensor *post_norm,
                         const gem_tensor *next_norm, float eps, float out_scale)
{
    gem_op *op = gem_add_residual(p, layer, b, next_norm, eps);
    if (!op) return false;
    op->residual.post_norm = gem_vector(post_norm);
    op->residual.out_scale = out_scale;
    return true;
}

static bool add_attention(gem_plan *p, const gem_dense *m, int l, const gem_bufs *b)
{
    const gem_layer_weights *w = &m->w.layer[l];
    const gem_part in[3] = {
        {w->q, w->q_bias, b->q}, {w->k, w->k_bias, b->k}, {w->v, w->v_bias, b->v}};
    if (!gem_add_linear(p, l, b->h, in, w->v ? 3 : 2)) return false;

    gem_op *op = gem_plan_add(p, GEM_OP_QKV, l);
    if (!op) return false;
    op->qkv.q = b->q;
    op->qkv.k = b->k;
    op->qkv.v = b->v;
    op->qkv.n_heads = m->n_heads;
    op->qkv.q_norm = gem_vector(w->q_norm);
    op->qkv.k_norm = gem_vector(w->k_norm);
    op->qkv.eps = m->eps;
    op->qkv.q_scale = m->q_scale;
    op->qkv.rope = m->layer[l].rope;
    op->qkv.v_norm = m->v_norm;
    op->qkv.v_from_k = !w->v;

    if (!(op = gem_plan_add(p, GEM_OP_ATTEND, l))) return false;
    op->attend.q = b->q;
    op->attend.dst = b->att;
    op->attend.n_heads = m->n_heads;

    const gem_part o = {w->o, NULL, b->out};
    return gem_add_linear(p, l, b->att, &o, 1) &&
           add_residual(p, l, b, w->post_attn_norm, w->ffn_norm, m->eps, 1.0f);
}

static bool add_ffn(gem_plan *p, const gem_dense *m, int l, const gem_bufs *b)
{
    const gem_layer_weights *w = &m->w.layer[l];
    const gem_tensor *next = l + 1 < m->n_layers ? m->w.layer[l + 1].attn_norm : m->w.output_norm;
    return gem_add_ffn(p, l, b, w, m->act) &&
           add_residual(p, l, b, w->post_ffn_norm, next, m->eps, m->layer[l].out_scale);
}

static bool add_ops(gem_plan *p, const gem_dense *m)
{
    const gem_bufs b = make_bufs(p, m);
    if (!gem_add_embed(p, 0, m->w.token_embd, b.x, 0, m->embed_scale) ||
        !gem_add_norm(p, 0, b.x, b.h, 0, m->w.layer[0].attn_norm, m->eps))
        return false;
    for (int l = 0; l < m->n_layers; l++)
        if (!add_attention(p, m, l, &b) || !add_ffn(p, m, l, &b)) return false;
    return gem_add_head(p, m->n_layers - 1, b.h, m->w.output ? m->w.output : m->w.token_embd,
                        m->softcap); /* tied without an output of its own */
}

gem_status gem_dense_plan(gem_plan *out, const char *family, const gem_dense *m, gem_error *err)
{
    memset(out, 0, sizeof(*out));
    out->family = family;
    out->n_layers = m->n_layers;
    out->d_model = m->d_model;
    out->n_vocab = m->n_vocab;
    out->n_ctx_train = m->n_ctx_train;
    out->n_ropes = m->n_ropes;
    memcpy(out->rope, m->ropes, sizeof(out->rope));
    out->layer = calloc((size_t)m->n_layers, sizeof(*out->layer));
    if (!out->layer || !add_ops(out, m)) {
        gem_plan_free(out);
        return gem_fail(err, GEM_E_NOMEM, "no memory for the plan of %d layers", m->n_layers);
    }
    for (int l = 0; l < m->n_layers; l++) {
        const gem_dense_layer *s = &m->layer[l];
        out->layer[l] =
            (gem_kv_layer){.n_kv_heads = s->n_kv_heads,
                           .head_dim = s->head_dim,
                           .window = s->window,
                           .k_from_v = m->v_norm && !m->w.layer[l].v && m->w.layer[l].k_norm};
    }
    return GEM_OK;
}
