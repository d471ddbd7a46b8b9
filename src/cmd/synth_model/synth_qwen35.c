/* synth_qwen35.c - what a dense Qwen3.5 file holds: three recurrent layers, then one of attention
 * whose query matrix also gives the output gate; without or with a block that predicts ahead. A
 * rotation of a quarter of each head. No norm follows attention and FFN, so the output matrices
 * bring their share to size: a mean of values, gated, has a size of about 0.2, a normed and gated
 * state 0.6, a gated product 0.6. */
#include "cmd/synth_model/synth.h"

#include <math.h>
#include <stdio.h>

enum { PERIOD = 4, TAPS = 4 };

static void attention(synth_model *m, int l, float added)
{
    const synth_shape *s = &m->shape;
    int32_t d = s->d_model, q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    synth_matrix(m, l, "attn_q.weight", d, 2 * q, 1.0f);
    synth_matrix(m, l, "attn_k.weight", d, kv, 1.0f);
    synth_matrix(m, l, "attn_v.weight", d, kv, 1.0f);
    synth_matrix(m, l, "attn_output.weight", q, d, SYNTH_ATTENTION_PART * added / 0.2f);
    synth_vector(m, l, "attn_q_norm.weight", s->head_dim, SYNTH_NORM, 1.5f);
    synth_vector(m, l, "attn_k_norm.weight", s->head_dim, SYNTH_NORM, SYNTH_SCORE_SPREAD / 1.5f);
}

static void recurrent(synth_model *m, int l, float added)
{
    const synth_shape *s = &m->shape;
    int32_t d = s->d_model, inner = s->v_heads * s->state_dim,
            channels = 2 * s->k_heads * s->state_dim + inner;
    synth_matrix(m, l, "attn_qkv.weight", d, channels, 1.0f);
    synth_matrix(m, l, "attn_gate.weight", d, inner, 1.0f);
    synth_matrix(m, l, "ssm_conv1d.weight", TAPS, channels, 1.2f);
    m->tensors[m->n_tensors - 1].fill = SYNTH_TAPS;
    synth_vector(m, l, "ssm_dt.bias", s->v_heads, SYNTH_STEP, 1.0f);
    synth_vector(m, l, "ssm_a", s->v_heads, SYNTH_DECAY, 16.0f);
    synth_matrix(m, l, "ssm_beta.weight", d, s->v_heads, 1.0f);
    synth_matrix(m, l, "ssm_alpha.weight", d, s->v_heads, 1.0f);
    synth_vector(m, l, "ssm_norm.weight", s->state_dim, SYNTH_NORM, 1.0f);
    synth_matrix(m, l, "ssm_out.weight", inner, d, SYNTH_ATTENTION_PART * added / 0.6f);
}

static void ffn(synth_model *m, int l, float added)
{
    const synth_shape *s = &m->shape;
    synth_vector(m, l, "post_attention_norm.weight", s->d_model, SYNTH_NORM, 1.0f);
    synth_matrix(m, l, "ffn_gate.weight", s->d_model, s->d_ff, 1.0f);
    synth_matrix(m, l, "ffn_up.weight", s->d_model, s->d_ff, 1.0f);
    synth_matrix(m, l, "ffn_down.weight", s->d_ff, s->d_model, added / 0.4f);
}

void synth_layout_qwen35(synth_model *m)
{
    const synth_shape *s = &m->shape;
    int32_t d = s->d_model, n = s->n_layers;
    float embedding = sqrtf((float)d); /* size 1: nothing scales it later */
    float added = s->tied ? synth_share(s) / embedding
                          : synth_share(s); /* a tied embedding must stay small */
    synth_matrix(m, -1, "token_embd.weight", d, s->n_vocab, s->tied ? 1.0f : embedding);
    synth_vector(m, -1, "output_norm.weight", d, SYNTH_SIGNED, SYNTH_LOGIT_SPREAD);
    if (!s->tied) synth_matrix(m, -1, "output.weight", d, s->n_vocab, 1.0f);
    for (int l = 0; l < n && !m->failed; l++) {
        synth_vector(m, l, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
        if (l % PERIOD == PERIOD - 1)
            attention(m, l, added);
        else
            recurrent(m, l, added);
        ffn(m, l, added);
    }
    if (!s->nextn) return;
    synth_vector(m, n, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
    attention(m, n, added);
    ffn(m, n, added);
    synth_matrix(m, n, "nextn.eh_proj.weight", 2 * d, d, 1.0f);
    synth_vector(m, n, "nextn.enorm.weight", d, SYNTH_NORM, 1.0f);
    synth_vector(m, n, "nextn.hnorm.weight", d, SYNTH_NORM, 1.0f / SYNTH_LOGIT_SPREAD);
    synth_vector(m, n, "nextn.shared_head_norm.weight", d, SYNTH_SIGNED, SYNTH_LOGIT_SPREAD);
}

gem_status synth_keys_qwen35(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    gem_status st;
    const int32_t rope = s->head_dim / 4, pairs = rope / 2; /* of 32 pairs: 11, 11, 10 */
    const int32_t sections[4] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    const synth_key keys[] = {
        {"qwen35.block_count", s->n_layers + s->nextn},
        {"qwen35.context_length", s->n_ctx},
        {"qwen35.embedding_length", s->d_model},
        {"qwen35.feed_forward_length", s->d_ff},
        {"qwen35.attention.head_count", s->n_heads},
        {"qwen35.attention.head_count_kv", s->n_kv_heads},
        {"qwen35.attention.key_length", s->head_dim},
        {"qwen35.attention.value_length", s->head_dim},
        {"qwen35.rope.dimension_count", rope},
        {"qwen35.ssm.conv_kernel", TAPS},
        {"qwen35.ssm.state_size", s->state_dim},
        {"qwen35.ssm.group_count", s->k_heads},
        {"qwen35.ssm.time_step_rank", s->v_heads},
        {"qwen35.ssm.inner_size", s->v_heads * s->state_dim},
        {"qwen35.full_attention_interval", PERIOD},
        {"qwen35.nextn_predict_layers", 1}, /* the last: only where there is one */
    };
    if ((st = synth_put_keys(w, keys, ARRAY_LEN(keys) - !s->nextn, err)) != GEM_OK) return st;
    if ((st = gem_gguf_put_array(w, "qwen35.rope.dimension_sections", GEM_GGUF_I32, sections, 4,
                                 err)) != GEM_OK)
        return st;
    if ((st = gem_gguf_put_f32(w, "qwen35.rope.freq_base", s->rope_theta, err)) != GEM_OK)
        return st;
    return gem_gguf_put_f32(w, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f, err);
}
