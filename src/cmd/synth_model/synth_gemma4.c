/* synth_gemma4.c - what a dense Gemma 4 file holds: every sixth layer and the last one see all,
 * with larger heads, fewer of them, and no values of their own; a factor for each rotary pair, of
 * which three quarters stand still; a scalar behind each layer. Scores are not scaled by the head
 * size, so the key norms carry that. A drafter for such a model (gemma4-assistant) has layers of
 * the same kind without keys and values, and projections from and to the model's width. */
#include "cmd/synth_model/synth.h"

#include <math.h>
#include <stdio.h>

static bool global(const synth_shape *s, int layer)
{
    return layer % 6 == 5 || layer == s->n_layers - 1;
}

void synth_layout_gemma4(synth_model *m)
{
    const synth_shape *s = &m->shape;
    int32_t d = s->d_model;
    if (s->target) {
        synth_matrix(m, -1, "nextn.post_projection.weight", d, s->target, 1.0f);
        synth_matrix(m, -1, "nextn.pre_projection.weight", 2 * s->target, d, 1.0f);
    }
    synth_vector(m, -1, "output_norm.weight", d, SYNTH_SIGNED, SYNTH_LOGIT_SPREAD);
    if (!s->tied) synth_matrix(m, -1, "output.weight", d, s->n_vocab, 1.0f);
    synth_vector(m, -1, "rope_freqs.weight", s->global_head_dim / 2, SYNTH_QUARTER, 1.0f);
    synth_matrix(m, -1, "token_embd.weight", d, s->n_vocab, 1.0f);
    for (int l = 0; l < s->n_layers; l++) {
        int32_t hd = global(s, l) ? s->global_head_dim : s->head_dim, q = s->n_heads * hd;
        int32_t kv = hd * (global(s, l) ? s->global_kv_heads : s->n_kv_heads);
        float k_norm = SYNTH_SCORE_SPREAD / sqrtf((float)hd);
        if (!s->target) synth_matrix(m, l, "attn_k.weight", d, kv, 1.0f);
        if (!s->target) synth_vector(m, l, "attn_k_norm.weight", hd, SYNTH_NORM, k_norm);
        synth_vector(m, l, "attn_norm.weight", d, SYNTH_NORM, 1.0f);
        synth_matrix(m, l, "attn_output.weight", q, d, 1.0f);
        synth_matrix(m, l, "attn_q.weight", d, q, 1.0f);
        synth_vector(m, l, "attn_q_norm.weight", hd, SYNTH_NORM, 1.0f);
        if (!s->target && !global(s, l)) synth_matrix(m, l, "attn_v.weight", d, kv, 1.0f);
        synth_matrix(m, l, "ffn_down.weight", s->d_ff, d, 1.0f);
        synth_matrix(m, l, "ffn_gate.weight", d, s->d_ff, 1.5f);
        synth_vector(m, l, "ffn_norm.weight", d, SYNTH_NORM, 1.0f);
        synth_matrix(m, l, "ffn_up.weight", d, s->d_ff, 1.0f);
        synth_vector(m, l, "layer_output_scale.weight", 1, SYNTH_SCALAR, 1.0f);
        synth_vector(m, l, "post_attention_norm.weight", d, SYNTH_NORM,
                     SYNTH_ATTENTION_PART * synth_share(s));
        synth_vector(m, l, "post_ffw_norm.weight", d, SYNTH_NORM, synth_share(s));
    }
}

static const char *key_of(char out[96], const synth_shape *s, const char *name)
{
    snprintf(out, 96, "%s.%s", s->arch, name);
    return out;
}

static gem_status put_arrays(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    char key[96];
    int32_t n_kv[1024];
    uint8_t slides[1024];
    gem_status st;
    for (int l = 0; l < s->n_layers; l++) { /* the option stops at 1,024 */
        n_kv[l] = global(s, l) ? s->global_kv_heads : s->n_kv_heads;
        slides[l] = !global(s, l);
    }
    st = gem_gguf_put_array(w, key_of(key, s, "attention.head_count_kv"), GEM_GGUF_I32, n_kv,
                            (uint64_t)s->n_layers, err);
    if (st != GEM_OK) return st;
    return gem_gguf_put_array(w, key_of(key, s, "attention.sliding_window_pattern"), GEM_GGUF_BOOL,
                              slides, (uint64_t)s->n_layers, err);
}

gem_status synth_keys_gemma4(gem_gguf_writer *w, const synth_shape *s, gem_error *err)
{
    char key[96];
    gem_status st = GEM_OK;
    static const int32_t suppressed[] = {258883, 258882};
    const synth_key keys[] = {
        {"block_count", s->n_layers},
        {"context_length", s->n_ctx},
        {"embedding_length", s->d_model},
        {"feed_forward_length", s->d_ff},
        {"attention.head_count", s->n_heads},
        {"attention.key_length", s->global_head_dim},
        {"attention.value_length", s->global_head_dim},
        {"attention.key_length_swa", s->head_dim},
        {"attention.value_length_swa", s->head_dim},
        {"attention.sliding_window", s->window},
        {"attention.shared_kv_layers", s->target ? s->n_layers : 0},
        {"embedding_length_per_layer_input", 0},
        {"rope.dimension_count", s->global_head_dim},
        {"rope.dimension_count_swa", s->head_dim},
        /* drafters only */
        {"embedding_length_out", s->target},
        {"nextn_predict_layers", s->n_layers},
    };
    const struct {
        const char *key;
        float value;
    } reals[] = {{"attention.layer_norm_rms_epsilon", 1e-6f},
                 {"rope.freq_base", s->rope_theta},
                 {"rope.freq_base_swa", 1e4f},
                 {"final_logit_softcapping", 30.0f}};
    for (size_t i = 0; i < ARRAY_LEN(keys) - (s->target ? 0 : 2) && st == GEM_OK; i++)
        st = gem_gguf_put_u32(w, key_of(key, s, keys[i].key), (uint32_t)keys[i].value, err);
    for (size_t i = 0; i < ARRAY_LEN(reals) - (s->target != 0) && st == GEM_OK; i++)
        st = gem_gguf_put_f32(w, key_of(key, s, reals[i].key), reals[i].value, err);
    if (st == GEM_OK) st = put_arrays(w, s, err);
    if (st != GEM_OK || !s->suppresses || s->n_vocab <= suppressed[0]) return st;
    return gem_gguf_put_array(w, "tokenizer.ggml.suppress_tokens", GEM_GGUF_I32, suppressed,
                              ARRAY_LEN(suppressed), err);
}
