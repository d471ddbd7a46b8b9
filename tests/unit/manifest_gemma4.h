/* manifest_gemma4.h - the gemma4 part of test_model_manifest.c: per-layer shapes, values taken from
 * keys, relatives refused by the feature's name, and warnings about broken conversions. */
#include "backend/cpu/angles.h"

static void test_gemma4_plan(void **state)
{
    (void)state;
    tiny t = tiny_gemma4();
    gem_plan p;
    gem_gguf *g;
    gem_error err;
    assert_int_equal(plan_of(&t, &p, &g, &err), GEM_OK);
    assert_int_equal(p.n_ops, 2 + 6 * 9 + 1);
    assert_true(p.op[0].embed.scale == 8.0f); /* sqrt(64) */
    assert_true(p.op[p.n_ops - 1].head.softcap == 30.0f);
    for (int l = 0; l < 6; l++) {
        bool global = l % 3 == 2;
        const gem_op *in = &p.op[2 + l * 9], *qkv = in + 1, *end = in + 8;
        const gem_rope *r = &p.rope[qkv->qkv.rope];
        char name[64];
        assert_int_equal(p.layer[l].head_dim, global ? 64 : 32);
        assert_int_equal(p.layer[l].n_kv_heads, global ? 1 : 2);
        assert_int_equal(p.layer[l].window, global ? 0 : 100);
        assert_int_equal(in->linear.n, global ? 2 : 3);
        assert_int_equal(in->linear.w[0]->dim[1], global ? 256 : 128);
        assert_true(qkv->qkv.q_scale == 1.0f); /* whatever the head size */
        assert_true(qkv->qkv.v_norm);
        assert_int_equal(qkv->qkv.v_from_k, global);
        assert_true(r->theta == (global ? 1e6f : 1e4f));
        assert_int_equal(r->n_dims, global ? 64 : 32);
        assert_true((r->freq_factors != NULL) == global);
        snprintf(name, sizeof(name), "blk.%d.layer_output_scale.weight", l);
        assert_true(end->residual.out_scale == *gem_vector(gem_gguf_tensor(g, name)));
        assert_true((in + 4)->residual.out_scale == 1.0f);
        assert_int_equal(qkv->qkv.n_heads, 4);
    }
    assert_int_equal(p.buf_width[p.op[3].qkv.q], 256); /* the widest layer's */
    assert_int_equal(p.buf_width[p.op[3].qkv.v], 64);
    gem_plan_free(&p);
    gem_gguf_close(g);
}

static void test_gemma4_values(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        gem_status st;
        const char *says;
    } keys[] = {
        {"attention.head_count_kv", 2, GEM_E_FORMAT, "blk.2.attn_k.weight"}, /* one for all */
        {"attention.head_count_kv", 3, GEM_E_FORMAT, "head_count_kv 3"},
        {"attention.sliding_window_pattern", 3, GEM_E_FORMAT, "sliding_window_pattern"},
        {"attention.value_length", 32, GEM_E_UNSUPPORTED, "value_length is 32"},
        {"attention.value_length_swa", 64, GEM_E_UNSUPPORTED, "value_length_swa is 64"},
        {"rope.dimension_count", 16, GEM_E_UNSUPPORTED, "rope.dimension_count is 16"},
        {"rope.dimension_count_swa", 16, GEM_E_UNSUPPORTED, "dimension_count_swa is 16"},
        {"attention.sliding_window", 0, GEM_E_FORMAT, "sliding_window"},
        {"feed_forward_length", 128, GEM_E_FORMAT, "ffn_gate.weight"},
        {"vocab_size", 301, GEM_E_FORMAT, "vocab_size is 301"},
        {"vocab_size", 300, GEM_OK, NULL},
        {"expert_count", 0, GEM_OK, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        tiny t = tiny_gemma4();
        t.key = keys[i].key;
        t.value = keys[i].value;
        expect(&t, keys[i].st, keys[i].says);
    }
    tiny t = tiny_gemma4();
    t.skip = "final_logit_softcapping"; /* no default that engines agree on */
    expect(&t, GEM_E_FORMAT, "final_logit_softcapping' is missing");
    t = tiny_gemma4();
    t.pattern = -5;
    expect(&t, GEM_E_FORMAT, "sliding_window_pattern has 5 elements, expected 6");
    t = tiny_gemma4();
    t.layers = 5;
    expect(&t, GEM_E_FORMAT, "the last layer slides");
    t = tiny_gemma4();
    t.skip = "blk.1.attn_v.weight";
    expect(&t, GEM_E_FORMAT, "blk.1.attn_v.weight is missing");
    t = tiny_gemma4();
    t.tensor = "blk.0.layer_output_scale.weight";
    t.dims[0] = 2;
    expect(&t, GEM_E_FORMAT, "layer_output_scale.weight is [2");
    t = tiny_gemma4();
    t.tensor = "blk.2.attn_q.weight"; /* the sliding layers' width on a global one */
    t.dims[0] = 64;
    t.dims[1] = 128;
    expect(&t, GEM_E_FORMAT, "blk.2.attn_q.weight is [64, 128, 1, 1], expected [64, 256]");
    t = tiny_gemma4();
    t.nan_in = "rope_freqs.weight";
    expect(&t, GEM_E_FORMAT, "rope_freqs.weight: value 31 is not finite");
    t = tiny_gemma4();
    t.rope_freqs = 1e-4f;
    expect(&t, GEM_E_FORMAT, "rope_freqs.weight: value 8");
    t = tiny_gemma4();
    t.tensor = "attn_v"; /* values of their own on every global layer are as good */
    expect(&t, GEM_OK, NULL);
    t.skip = "blk.2.attn_v.weight";
    expect(&t, GEM_E_FORMAT, "blk.2.attn_v.weight is missing");
    t.skip = "blk.5.attn_v.weight";
    expect(&t, GEM_E_FORMAT, "blk.2.attn_v.weight: other global layers have none");
}

static void test_gemma4_relatives(void **state)
{
    (void)state;
    static const struct {
        const char *key, *tensor, *says;
    } relatives[] = {
        {"embedding_length_per_layer_input", NULL, "per-layer embeddings (E2B, E4B)"},
        {"attention.shared_kv_layers", NULL, "share keys and values (E2B, E4B)"},
        {"expert_count", NULL, "mixture of experts (26B-A4B)"},
        {NULL, "per_layer_token_embd.weight", "per-layer embeddings"},
        {NULL, "per_layer_model_proj.weight", "per-layer embeddings"},
        {NULL, "per_layer_proj_norm.weight", "per-layer embeddings"},
        {NULL, "blk.0.inp_gate.weight", "per-layer embeddings"},
        {NULL, "blk.0.proj.weight", "per-layer embeddings"},
        {NULL, "blk.0.post_norm.weight", "per-layer embeddings"},
        {NULL, "blk.0.ffn_gate_inp.weight", "mixture of experts"},
        {NULL, "blk.0.ffn_gate_inp.scale", "mixture of experts"},
        {NULL, "blk.0.ffn_gate_up_exps.weight", "mixture of experts"},
        {NULL, "blk.0.ffn_down_exps.scale", "mixture of experts"},
        {NULL, "blk.0.pre_ffw_norm_2.weight", "mixture of experts"},
        {NULL, "blk.0.attn_qkv.weight", "fused attention weights"},
        {NULL, "blk.0.attn_q.scale", "NVFP4"},
        {NULL, "blk.0.ffn_up.input_scale", "NVFP4"},
        {NULL, "nextn.pre_projection.weight", "a drafter"},
        {NULL, "v.patch_embd.weight", "vision tower"},
        {NULL, "mm.input_projection.weight", "multimodal projector"},
    };
    for (size_t i = 0; i < ARRAY_LEN(relatives); i++) {
        tiny t = tiny_gemma4();
        t.key = relatives[i].key;
        t.value = 1;
        t.extra = relatives[i].tensor;
        expect(&t, GEM_E_UNSUPPORTED, relatives[i].says);
        expect(&t, GEM_E_UNSUPPORTED, "the dense text models (12B, 31B) are supported");
    }
    tiny t = tiny_gemma4();
    t.layers = 2; /* as many as the array has; refused before its layers are looked at */
    t.d_ff_array = true;
    expect(&t, GEM_E_UNSUPPORTED, "layers of different width (E2B)");
}

typedef struct heard {
    int n;
    char text[1024];
} heard;

static void hear(void *user, gem_log_level level, const char *text)
{
    heard *h = user;
    assert_int_equal(level, GEM_LOG_WARN);
    h->n++;
    snprintf(h->text, sizeof(h->text), "%s", text);
}

static void warned(const tiny *t, const char *says)
{
    gem_plan p;
    gem_gguf *g;
    gem_error err;
    const gem_family *f;
    heard h = {0};
    const gem_log log = {hear, &h};
    assert_int_equal(plan_of(t, &p, &g, &err), GEM_OK);
    assert_int_equal(gem_family_find(&f, g, &err), GEM_OK);
    f->warn(g, &log);
    if (h.n != (says ? 1 : 0) || (says && !strstr(h.text, says)))
        fail_msg("%d warnings, \"%s\", expected \"%s\"", h.n, h.text, says ? says : "");
    gem_plan_free(&p);
    gem_gguf_close(g);
}

static void test_gemma4_warnings(void **state)
{
    (void)state;
    tiny t = tiny_gemma4();
    warned(&t, NULL);
    t.skip = "rope_freqs.weight";
    warned(&t, "repeat themselves");
    t = tiny_gemma4();
    t.rope_freqs = 1.0f; /* all pairs rotate */
    warned(&t, "degrades into repetition");
    t = tiny_gemma4();
    t.add = 1.0f;
    warned(&t, "may have added 1");
    t = tiny_gemma4();
    t.unit_scales = true;
    warned(&t, "every layer_output_scale is 1");
    t = tiny_gemma4();
    t.tokenizer = true;
    t.no_bos = true;
    warned(&t, "add_bos_token is false");
}

/* Global layers: 64 of 256 pairs rotate, and the exponent's denominator is the whole head size. */
static void test_gemma4_frequencies(void **state)
{
    (void)state;
    float factors[256];
    double with[256], without[256];
    for (int i = 0; i < 256; i++)
        factors[i] = i < 64 ? 1.0f : 1e30f;
    const gem_rope file = {.theta = 1e6f, .n_dims = 512, .scale = 1.0f, .freq_factors = factors};
    const gem_rope built_in = {.theta = 1e6f, .n_dims = 512, .scale = 1.0f, .n_pairs = 64};
    gem_rope_frequencies(&file, with);
    gem_rope_frequencies(&built_in, without);
    assert_true(with[0] == 1.0);
    assert_true(fabs(with[1] - 0.94746353) < 1e-8);
    assert_true(fabs(with[63] - 0.03337625) < 1e-8);
    for (int i = 0; i < 256; i++) {
        assert_true(with[i] == without[i]);
        assert_true((with[i] == 0.0) == (i >= 64));
    }
    float sn, cs; /* the unit vector 1 at position 1 goes to (1, 257) */
    gem_sincos(with[1], &sn, &cs);
    assert_true(fabsf(cs - 0.5837444f) < 1e-6f);
    assert_true(fabsf(sn - 0.8119375f) < 1e-6f);
    gem_sincos(262143 * with[64], &sn, &cs);
    assert_true(cs == 1.0f && sn == 0.0f);
}
