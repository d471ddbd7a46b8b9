/* gemma4_assistant.c - the drafter that comes in a file of its own beside a Gemma 4 model
 * (architecture gemma4-assistant): manifest, and its program behind the model's. Source: llama.cpp,
 * src/models/gemma4-assistant.cpp; transformers, models/gemma4_assistant.
 *
 * Given the last token t, which the model has not run yet, and the model's hidden vector g behind
 * the token before it:
 *
 *   x = pre_projection (embed_model(t) * sqrt(d_model) | g);  h = rms(x, attn_norm)
 *   layers as in gemma4.c, but with queries alone: keys and values are the model's, those of its
 *   last sliding layer or of its last layer, at all positions before t
 *   y = rms(x, output_norm);  logits = token_embd y, of the token behind t
 *   post_projection y takes the place of g for the next guess, which stands at t's position too */
#include "model/dense.h"
#include "model/families.h"
#include "model/gemma4.h"
#include "model/ops.h"

#include <math.h>
#include <stddef.h>

typedef struct params {
    uint32_t n_ctx, d_model, d_target, n_layers, d_ff, n_heads, window, vocab, nextn, shared_kv;
    uint32_t key, value, key_swa, value_swa, rope_dims, rope_dims_swa, per_layer;
    float eps, theta, theta_swa, softcap;
} params;

#define ARCH "gemma4-assistant"
#define P(field) offsetof(params, field)
static const gem_key_spec keys[] = {
    {"context_length", GEM_KEY_U32, true, 1, 1 << 24, P(n_ctx), "positions it was trained for"},
    {"embedding_length", GEM_KEY_U32, true, 1, 1 << 18, P(d_model), "width of the drafter"},
    {"embedding_length_out", GEM_KEY_U32, true, 1, 1 << 18, P(d_target),
     "d_model of the model it is made for"},
    {"block_count", GEM_KEY_U32, true, 1, GEM_MAX_LAYERS, P(n_layers), "layers"},
    {"nextn_predict_layers", GEM_KEY_U32, false, 1, GEM_MAX_LAYERS, P(nextn), "the same number"},
    {"feed_forward_length", GEM_KEY_U32, true, 1, 1 << 20, P(d_ff), "d_ff"},
    {"attention.head_count", GEM_KEY_U32, true, 1, 1024, P(n_heads), "query heads"},
    {"attention.head_count_kv", GEM_KEY_SPECIAL, true, 0, 0, 0,
     "KV heads of the model's layers that are read, one number or one a layer"},
    {"attention.key_length", GEM_KEY_U32, true, 1, 1024, P(key), "head_dim, global layers"},
    {"attention.value_length", GEM_KEY_U32, true, 1, 1024, P(value), "the same of values"},
    {"attention.key_length_swa", GEM_KEY_U32, true, 1, 1024, P(key_swa),
     "head_dim, sliding layers"},
    {"attention.value_length_swa", GEM_KEY_U32, true, 1, 1024, P(value_swa), "the same of values"},
    {"attention.layer_norm_rms_epsilon", GEM_KEY_F32, true, 1e-12, 1e-3, P(eps),
     "RMS norm epsilon"},
    {"attention.sliding_window", GEM_KEY_U32, true, 2, 1 << 24, P(window), "window"},
    {"attention.sliding_window_pattern", GEM_KEY_SPECIAL, true, 0, 0, 0,
     "one flag a layer: true slides"},
    {"attention.shared_kv_layers", GEM_KEY_U32, false, 1, GEM_MAX_LAYERS, P(shared_kv),
     "all of its layers"},
    {"rope.freq_base", GEM_KEY_F32, true, 1, 1e12, P(theta), "rope_theta of global layers"},
    {"rope.freq_base_swa", GEM_KEY_F32, false, 1, 1e12, P(theta_swa), "rope_theta, sliding layers"},
    {"rope.dimension_count", GEM_KEY_U32, false, 1, 1024, P(rope_dims), "head_dim, global layers"},
    {"rope.dimension_count_swa", GEM_KEY_U32, false, 1, 1024, P(rope_dims_swa),
     "head_dim, sliding layers"},
    {"final_logit_softcapping", GEM_KEY_F32, false, 1e-3, 1e6, P(softcap),
     "unused: it moves no maximum"},
    {"embedding_length_per_layer_input", GEM_KEY_U32, false, 0, 0, P(per_layer), "must be 0"},
    {"vocab_size", GEM_KEY_U32, false, 1, 1 << 24, P(vocab), "n_vocab"},
};
#undef P

#define T(field) offsetof(gem_weights, field)
#define L(field) offsetof(gem_layer_weights, field)
static const gem_tensor_spec top[] = {
    {"token_embd.weight", {GEM_DIM_MODEL, GEM_DIM_VOCAB}, true, T(token_embd)},
    {"output_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, T(output_norm)},
    {"nextn.pre_projection.weight", {GEM_DIM_TWICE, GEM_DIM_MODEL}, true, T(pre_projection)},
    {"nextn.post_projection.weight", {GEM_DIM_MODEL, GEM_DIM_TARGET}, true, T(post_projection)},
    {"rope_freqs.weight", {GEM_DIM_ROPE, GEM_DIM_NONE}, false, T(rope_freqs)},
};
static const gem_tensor_spec layer[] = {
    {"attn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(attn_norm)},
    {"attn_q.weight", {GEM_DIM_MODEL, GEM_DIM_Q}, true, L(q)},
    {"attn_q_norm.weight", {GEM_DIM_HEAD, GEM_DIM_NONE}, true, L(q_norm)},
    {"attn_output.weight", {GEM_DIM_Q, GEM_DIM_MODEL}, true, L(o)},
    {"post_attention_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(post_attn_norm)},
    {"ffn_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(ffn_norm)},
    {"ffn_gate.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(gate)},
    {"ffn_up.weight", {GEM_DIM_MODEL, GEM_DIM_FF}, true, L(up)},
    {"ffn_down.weight", {GEM_DIM_FF, GEM_DIM_MODEL}, true, L(down)},
    {"post_ffw_norm.weight", {GEM_DIM_MODEL, GEM_DIM_NONE}, true, L(post_ffn_norm)},
    {"layer_output_scale.weight", {GEM_DIM_ONE, GEM_DIM_NONE}, true, L(out_scale)},
};
#undef T
#undef L

static const gem_manifest manifest = {ARCH,           keys,  ARRAY_LEN(keys), top,
                                      ARRAY_LEN(top), layer, ARRAY_LEN(layer)};

static const gem_foreign foreign[] = {
    {"masked_embd_", "logits by clusters of tokens (the drafters of E2B and E4B)"},
    {".attn_k.", "keys of its own"},
    {".attn_v.", "values of its own"},
};

/* ---- checks ---- */

static gem_status equal(const gem_gguf *g, const char *key, uint32_t value, const char *what,
                        uint32_t want, gem_error *err)
{
    if (value == want) return GEM_OK;
    return gem_fail(err, GEM_E_FORMAT, "%s: key " ARCH ".%s is %u, expected %u, %s",
                    gem_gguf_path(g), key, value, want, what);
}

static gem_status check_params(const gem_gguf *g, const params *p, const gem_plan *target,
                               gem_error *err)
{
    const struct {
        const char *key;
        uint32_t value;
        const char *what;
        uint32_t want;
    } same[] = {
        {"embedding_length_out", p->d_target, "the width of the model beside it",
         (uint32_t)target->d_model},
        {"vocab_size", p->vocab, "the tokens of the model beside it", (uint32_t)target->n_vocab},
        {"nextn_predict_layers", p->nextn ? p->nextn : p->n_layers, "as block_count", p->n_layers},
        {"attention.shared_kv_layers", p->shared_kv ? p->shared_kv : p->n_layers, "as block_count",
         p->n_layers},
        {"attention.value_length", p->value, "as key_length", p->key},
        {"attention.value_length_swa", p->value_swa, "as key_length_swa", p->key_swa},
        {"rope.dimension_count", p->rope_dims ? p->rope_dims : p->key, "as key_length", p->key},
        {"rope.dimension_count_swa", p->rope_dims_swa ? p->rope_dims_swa : p->key_swa,
         "as key_length_swa", p->key_swa},
    };
    gem_status st = GEM_OK;
    for (size_t i = 0; i < ARRAY_LEN(same) && st == GEM_OK; i++)
        st = equal(g, same[i].key, same[i].value, same[i].what, same[i].want, err);
    return st;
}

/* The model's layer whose keys and values a layer of the drafter reads: its last one that slides,
 * or its last one. Head sizes, KV heads and window must be those that the drafter was made for. */
static gem_status layer_read(int *out, const gem_gguf *g, const params *p, bool sliding,
                             uint32_t n_kv, const gem_plan *target, gem_error *err)
{
    int l = target->n_layers - 1;
    while (sliding && l >= 0 && target->layer[l].window == 0)
        l--;
    if (l < 0)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "%s: no layer of the model slides, and the drafter reads one that does",
                        gem_gguf_path(g));
    const gem_kv_layer *kv = &target->layer[l];
    gem_status st = equal(g, sliding ? "attention.key_length_swa" : "attention.key_length",
                          sliding ? p->key_swa : p->key, "the head size of the layer it reads",
                          (uint32_t)kv->head_dim, err);
    if (st == GEM_OK)
        st = equal(g, "attention.head_count_kv", n_kv, "the KV heads of the layer it reads",
                   (uint32_t)kv->n_kv_heads, err);
    if (st == GEM_OK && sliding)
        st = equal(g, "attention.sliding_window", p->window, "the window of the layer it reads",
                   (uint32_t)kv->window, err);
    if (st == GEM_OK)
        st = gem_dense_check_heads(g, ARCH, p->n_heads, n_kv, (uint32_t)kv->head_dim, err);
    *out = l;
    return st;
}

static gem_status bind(gem_gguf *g, const params *p, const bool *sliding, gem_weights *w,
                       gem_error *err)
{
    uint64_t size[2][GEM_DIM_COUNT]; /* layers that see all; that slide */
    const uint64_t *of_layer[GEM_MAX_LAYERS];
    for (int s = 0; s < 2; s++) {
        const uint64_t hd = s ? p->key_swa : p->key;
        const uint64_t dims[GEM_DIM_COUNT] = {
            [GEM_DIM_MODEL] = p->d_model,
            [GEM_DIM_FF] = p->d_ff,
            [GEM_DIM_Q] = p->n_heads * hd,
            [GEM_DIM_HEAD] = hd,
            [GEM_DIM_VOCAB] = p->vocab,
            [GEM_DIM_ROPE] = p->key / 2,
            [GEM_DIM_ONE] = 1,
            [GEM_DIM_TWICE] = 2 * (uint64_t)p->d_target,
            [GEM_DIM_TARGET] = p->d_target,
        };
        memcpy(size[s], dims, sizeof(dims));
    }
    for (uint32_t l = 0; l < p->n_layers; l++)
        of_layer[l] = size[sliding[l]];
    return gem_manifest_bind(&manifest, g, size[0], of_layer, p->n_layers, w, err);
}

/* ---- program ---- */

typedef struct drafter {
    const params *p;
    gem_weights w;
    const bool *sliding;
    int reads[GEM_MAX_LAYERS]; /* layers of the target */
    int rope;                  /* of layers that see all; the next one of those that slide */
} drafter;

/* The parts of a layer that a dense decoder does not have: no keys of its own. */
static bool add_attention(gem_plan *p, const drafter *d, uint32_t l, const gem_bufs *b)
{
    const gem_layer_weights *w = &d->w.layer[l];
    const gem_part in = {w->q, NULL, b->q}, out = {w->o, NULL, b->out};
    if (!gem_add_linear(p, d->reads[l], b->h, &in, 1)) return false;

    gem_op *op = gem_plan_add(p, GEM_OP_QKV, d->reads[l]);
    if (!op) return false;
    op->qkv.q = b->q;
    op->qkv.k = op->qkv.v = -1;
    op->qkv.n_heads = (int)d->p->n_heads;
    op->qkv.q_norm = gem_vector(w->q_norm);
    op->qkv.eps = d->p->eps;
    op->qkv.q_scale = 1.0f;
    op->qkv.rope = d->rope + d->sliding[l];

    if (!(op = gem_plan_add(p, GEM_OP_ATTEND, d->reads[l]))) return false;
    op->attend.q = b->q;
    op->attend.dst = b->att;
    op->attend.n_heads = (int)d->p->n_heads;
    op->attend.earlier = true;
    return gem_add_linear(p, d->reads[l], b->att, &out, 1);
}

static bool add_layer(gem_plan *p, const drafter *d, uint32_t l, const gem_bufs *b)
{
    const gem_layer_weights *w = &d->w.layer[l];
    const gem_tensor *next = l + 1 < d->p->n_layers ? w[1].attn_norm : d->w.output_norm;
    gem_op *op;
    if (!add_attention(p, d, l, b)) return false;
    if (!(op = gem_add_residual(p, d->reads[l], b, w->ffn_norm, d->p->eps))) return false;
    op->residual.post_norm = gem_vector(w->post_attn_norm);
    if (!gem_add_ffn(p, d->reads[l], b, w, GEM_ACT_GELU_TANH)) return false;
    if (!(op = gem_add_residual(p, d->reads[l], b, next, d->p->eps))) return false;
    op->residual.post_norm = gem_vector(w->post_ffn_norm);
    op->residual.out_scale = *gem_vector(w->out_scale);
    return true;
}

static bool add_program(gem_plan *p, const drafter *d)
{
    const params *k = d->p;
    const gem_op embed = p->op[0]; /* the model's: token and scale are the same */
    const int last = p->n_layers - 1;
    const int32_t q = (int32_t)(k->n_heads * GEM_MAX(k->key, k->key_swa));
    const gem_buf both = gem_plan_buf(p, 2 * p->d_model), next = gem_plan_buf(p, p->d_model);
    gem_bufs b = {.k = -1, .v = -1};
    b.x = gem_plan_buf(p, (int32_t)k->d_model);
    b.h = gem_plan_buf(p, (int32_t)k->d_model);
    b.out = gem_plan_buf(p, (int32_t)k->d_model);
    b.q = gem_plan_buf(p, q);
    b.att = gem_plan_buf(p, q);
    b.gate = gem_plan_buf(p, (int32_t)k->d_ff);
    b.up = gem_plan_buf(p, (int32_t)k->d_ff);

    const gem_part pre = {d->w.pre_projection, NULL, b.x},
                   post = {d->w.post_projection, NULL, next};
    p->draft_op = p->n_ops;
    gem_op *op;
    if (!gem_add_embed(p, last, embed.embed.w, both, 0, embed.embed.scale) ||
        !(op = gem_plan_add(p, GEM_OP_INPUT, last)))
        return false;
    op->input.dst = both;
    op->input.at = p->d_model;
    if (!gem_add_linear(p, last, both, &pre, 1) ||
        !gem_add_norm(p, last, b.x, b.h, 0, d->w.layer[0].attn_norm, k->eps))
        return false;
    for (uint32_t l = 0; l < k->n_layers; l++)
        if (!add_layer(p, d, l, &b)) return false;
    if (!gem_add_linear(p, last, b.h, &post, 1) ||
        !gem_add_head(p, last, b.h, d->w.token_embd, 0.0f))
        return false;
    p->op[p->n_ops - 1].head.hidden = next;
    return true;
}

static gem_status attach(gem_plan *plan, gem_gguf *g, gem_error *err)
{
    params p = {.theta_swa = 1e4f, .vocab = (uint32_t)plan->n_vocab};
    bool sliding[GEM_MAX_LAYERS];
    uint32_t n_kv[GEM_MAX_LAYERS];
    drafter d = {.p = &p, .sliding = sliding, .rope = plan->n_ropes};
    gem_status st;
    if ((st = gem_manifest_read(&manifest, g, &p, err)) != GEM_OK) return st;
    const char *why, *name = gem_manifest_foreign(g, foreign, ARRAY_LEN(foreign), &why);
    if (name) return gem_fail(err, GEM_E_UNSUPPORTED, "%s: %s: %s", gem_gguf_path(g), name, why);
    if ((st = gem_gemma4_per_layer(g, ARCH, "attention.head_count_kv", p.n_layers, 1024, n_kv,
                                   err)) != GEM_OK)
        return st;
    if ((st = gem_gemma4_pattern(g, ARCH, p.n_layers, sliding, err)) != GEM_OK) return st;
    if ((st = check_params(g, &p, plan, err)) != GEM_OK) return st;
    for (uint32_t l = 0; l < p.n_layers; l++)
        if ((st = layer_read(&d.reads[l], g, &p, sliding[l], n_kv[l], plan, err)) != GEM_OK)
            return st;
    if ((st = bind(g, &p, sliding, &d.w, err)) != GEM_OK) return st;
    if ((st = gem_gemma4_factors(g, d.w.rope_freqs, err)) != GEM_OK) goto done;
    plan->rope[plan->n_ropes++] = gem_gemma4_rope(p.theta, (int)p.key, d.w.rope_freqs);
    plan->rope[plan->n_ropes++] =
        (gem_rope){.theta = p.theta_swa, .n_dims = (int)p.key_swa, .scale = 1.0f};
    if (!add_program(plan, &d))
        st = gem_fail(err, GEM_E_NOMEM, "no memory for the plan of %u layers", p.n_layers);
done:
    gem_weights_free(&d.w);
    return st;
}

const gem_beside gem_beside_gemma4_assistant = {
    .arch = ARCH, .target = "gemma4", .manifest = &manifest, .attach = attach};
