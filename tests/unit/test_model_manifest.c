/* Manifests: what a file of each family must hold, every refusal by name, and the plan that
 * results. */
#include "model/model.h"
#include "tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Write, open and plan; the caller closes *g when it is given. */
static gem_status plan_of(const tiny *t, gem_plan *plan, gem_gguf **g, gem_error *err)
{
    char path[128];
    memset(err, 0, sizeof(*err));
    memset(plan, 0, sizeof(*plan));
    if (!tiny_write(t, tiny_path(path, "manifest"))) fail();
    assert_int_equal(gem_gguf_open(g, path, err), GEM_OK);
    unlink(path); /* the mapping stays */
    return gem_model_plan(plan, *g, (int32_t)t->vocab, false, err);
}

static void expect(const tiny *t, gem_status want, const char *says)
{
    gem_plan plan;
    gem_gguf *g;
    gem_error err;
    gem_status st = plan_of(t, &plan, &g, &err);
    if (st != want || (says && !strstr(err.text, says)))
        fail_msg("status %s \"%s\", expected %s with \"%s\"", gem_status_name(st), err.text,
                 gem_status_name(want), says ? says : "");
    gem_plan_free(&plan);
    gem_gguf_close(g);
}

enum { N_FAMILIES = 3 };

static tiny tiny_of(int f)
{
    return f == 0 ? tiny_gemma3() : f == 1 ? tiny_gemma4() : tiny_qwen2();
}

static void test_good_files(void **state)
{
    (void)state;
    static const gem_dtype types[] = {GEM_DTYPE_F32,  GEM_DTYPE_F16,  GEM_DTYPE_BF16,
                                      GEM_DTYPE_Q4_0, GEM_DTYPE_Q4_1, GEM_DTYPE_Q5_0,
                                      GEM_DTYPE_Q5_1, GEM_DTYPE_Q8_0};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        tiny g = tiny_gemma3(), q = tiny_qwen2(), g4 = tiny_gemma4();
        g.linear = q.embd = g4.embd = types[i];
        g4.linear = types[(i + 3) % ARRAY_LEN(types)];
        g.output = i % 2;
        q.output = i % 2 == 0;
        expect(&g, GEM_OK, NULL);
        expect(&q, GEM_OK, NULL);
        expect(&g4, GEM_OK, NULL);
    }
}

static void test_every_key_and_tensor_is_needed(void **state)
{
    (void)state;
    static const char *const optional[] = {"output.weight"};
    for (int f = 0; f < N_FAMILIES; f++) {
        tiny t = tiny_of(f);
        const gem_manifest *m = gem_family_at((size_t)f)->manifest;
        assert_string_equal(m->arch, t.arch);
        for (size_t i = 0; i < m->n_keys; i++) {
            if (!m->key[i].required) continue;
            t.skip = m->key[i].name;
            expect(&t, GEM_E_FORMAT, m->key[i].name);
        }
        for (size_t i = 0; i < m->n_top; i++) {
            if (!m->top[i].required) continue;
            t.skip = m->top[i].name;
            expect(&t, GEM_E_FORMAT, m->top[i].name);
        }
        for (size_t i = 0; i < m->n_layer; i++) {
            char name[64]; /* layer 1 of gemma4 slides: it has values of its own */
            snprintf(name, sizeof(name), "blk.1.%s", m->layer[i].name);
            t.skip = name;
            expect(&t, GEM_E_FORMAT, name);
        }
        for (size_t i = 0; i < ARRAY_LEN(optional); i++) {
            t.skip = optional[i];
            expect(&t, GEM_OK, NULL);
        }
        t.skip = "attention.sliding_window";
        expect(&t, f == 1 ? GEM_E_FORMAT : GEM_OK, f == 1 ? "sliding_window' is missing" : NULL);
    }
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t dims[2];
    } bad[] = {
        {"token_embd.weight", {64, 299}},       {"token_embd.weight", {32, 300}},
        {"output_norm.weight", {32, 0}},        {"blk.0.attn_q.weight", {64, 32}},
        {"blk.2.attn_k.weight", {64, 64}},      {"blk.2.attn_v.weight", {32, 32}},
        {"blk.1.attn_output.weight", {64, 32}}, {"blk.1.ffn_down.weight", {64, 96}},
        {"blk.0.ffn_norm.weight", {64, 2}},
    };
    for (int f = 0; f < N_FAMILIES; f += 2)
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            tiny t = tiny_of(f);
            char says[96];
            t.tensor = bad[i].name;
            memcpy(t.dims, bad[i].dims, sizeof(t.dims));
            snprintf(says, sizeof(says), "%s is [%llu", bad[i].name,
                     (unsigned long long)bad[i].dims[0]);
            expect(&t, GEM_E_FORMAT, says);
        }
    tiny t = tiny_qwen2();
    t.tensor = "blk.0.attn_q.bias";
    t.dims[0] = 32;
    expect(&t, GEM_E_FORMAT, "blk.0.attn_q.bias");
}

static void test_vectors(void **state)
{
    (void)state;
    tiny t = tiny_gemma3();
    t.as_f16 = "blk.3.post_ffw_norm.weight";
    expect(&t, GEM_E_UNSUPPORTED, "blk.3.post_ffw_norm.weight is F16");
    t = tiny_gemma3();
    t.nan_in = "output_norm.weight";
    expect(&t, GEM_E_FORMAT, "output_norm.weight: value 63 is not finite");
    t = tiny_qwen2();
    t.nan_in = "blk.2.attn_k.bias";
    expect(&t, GEM_E_FORMAT, "blk.2.attn_k.bias: value 31 is not finite");
}

static void test_nothing_unexplained(void **state)
{
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        tiny t = tiny_of(f);
        t.tensor = "extra.weight";
        t.dims[0] = 32;
        expect(&t, GEM_E_FORMAT, "extra.weight");
        t = tiny_of(f);
        t.key = "expert_count";
        t.value = 8;
        expect(&t, f == 1 ? GEM_E_UNSUPPORTED : GEM_E_FORMAT, "expert_count");
        t = tiny_of(f);
        t.str_key = "general.url"; /* informative: accepted */
        t.str_value = "x";
        expect(&t, GEM_OK, NULL);
    }
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        gem_status st;
        const char *says;
    } gemma[] = {
        {"block_count", 0, GEM_E_FORMAT, "block_count"},
        {"block_count", 8, GEM_E_FORMAT, "blk.7."},
        {"block_count", 6, GEM_E_FORMAT, "blk.6."},
        {"block_count", 4000000000u, GEM_E_FORMAT, "block_count"},
        {"attention.head_count", 3, GEM_E_FORMAT, "attn_q.weight"},
        {"attention.head_count_kv", 0, GEM_E_FORMAT, "head_count_kv"},
        {"attention.head_count_kv", 3, GEM_E_FORMAT, "head_count_kv 3"},
        {"attention.key_length", 48, GEM_E_UNSUPPORTED, "48"},
        {"attention.value_length", 64, GEM_E_UNSUPPORTED, "value_length is 64"},
        {"attention.key_length_swa", 64, GEM_E_UNSUPPORTED, "key_length_swa"},
        {"rope.dimension_count", 16, GEM_E_UNSUPPORTED, "rope.dimension_count"},
        {"vocab_size", 301, GEM_E_FORMAT, "vocab_size is 301"},
        {"vocab_size", 300, GEM_OK, NULL},
        {"rope.dimension_count", 32, GEM_OK, NULL},
        {"attention.sliding_window_pattern", 0, GEM_E_FORMAT, "sliding_window_pattern"},
    };
    for (size_t i = 0; i < ARRAY_LEN(gemma); i++) {
        tiny t = tiny_gemma3();
        t.key = gemma[i].key;
        t.value = gemma[i].value;
        expect(&t, gemma[i].st, gemma[i].says);
    }
    static const struct {
        const char *key;
        float value;
        gem_status st;
    } reals[] = {
        {"attention.layer_norm_rms_epsilon", 0.0f, GEM_E_FORMAT},
        {"attention.layer_norm_rms_epsilon", NAN, GEM_E_FORMAT},
        {"attention.layer_norm_rms_epsilon", 0.1f, GEM_E_FORMAT},
        {"rope.freq_base", 0.0f, GEM_E_FORMAT},
        {"final_logit_softcapping", -1.0f, GEM_E_FORMAT},
        {"attn_logit_softcapping", 50.0f, GEM_E_UNSUPPORTED},
        {"rope.scaling.factor", 0.0f, GEM_E_FORMAT},
    };
    for (size_t i = 0; i < ARRAY_LEN(reals); i++) {
        tiny t = tiny_gemma3();
        t.f32_key = reals[i].key;
        t.f32_value = reals[i].value;
        expect(&t, reals[i].st, reals[i].key);
    }
    tiny t = tiny_gemma3();
    t.pattern = -6; /* an array for 6 of 7 layers */
    expect(&t, GEM_E_FORMAT, "sliding_window_pattern has 6");
    t = tiny_qwen2();
    t.str_key = "qwen2.rope.scaling.type";
    t.str_value = "yarn";
    expect(&t, GEM_E_UNSUPPORTED, "yarn");
    t = tiny_qwen2();
    t.key = "attention.head_count";
    t.value = 3;
    expect(&t, GEM_E_FORMAT, "embedding_length is 64");
}

static void test_relatives_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma",         "gemma2", "gemma3n", "gemma4-assistant",
                                        "gemma4_mtp",    "llama",  "qwen3",   "clip",
                                        "no-such-family"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        tiny t = tiny_gemma3();
        char says[64];
        t.arch = names[i];
        snprintf(says, sizeof(says), "architecture %s is not supported", names[i]);
        expect(&t, GEM_E_UNSUPPORTED, says);
        expect(&t, GEM_E_UNSUPPORTED, "supported: gemma3, gemma4, qwen2");
    }
    tiny t = tiny_gemma3();
    t.str_key = "general.type";
    t.str_value = "mmproj";
    expect(&t, GEM_E_UNSUPPORTED, "general.type is mmproj");
}

static void check_gemma_op_order(const gem_plan *p)
{
    static const gem_op_kind layer[] = {GEM_OP_LINEAR, GEM_OP_QKV,      GEM_OP_ATTEND,
                                        GEM_OP_LINEAR, GEM_OP_RESIDUAL, GEM_OP_LINEAR,
                                        GEM_OP_GLU,    GEM_OP_LINEAR,   GEM_OP_RESIDUAL};
    assert_int_equal(p->n_ops, 2 + 7 * ARRAY_LEN(layer) + 1);
    assert_int_equal(p->op[0].kind, GEM_OP_EMBED);
    assert_int_equal(p->op[1].kind, GEM_OP_NORM);
    assert_int_equal(p->op[p->n_ops - 1].kind, GEM_OP_HEAD);
    for (size_t i = 2; i < p->n_ops - 1; i++) {
        assert_int_equal(p->op[i].kind, layer[(i - 2) % ARRAY_LEN(layer)]);
        assert_int_equal(p->op[i].layer, (int)((i - 2) / ARRAY_LEN(layer)));
    }
}

static void test_gemma3_plan(void **state)
{
    (void)state;
    tiny t = tiny_gemma3();
    gem_plan p;
    gem_gguf *g;
    gem_error err;
    t.f32_key = "rope.scaling.factor";
    t.f32_value = 8.0f;
    assert_int_equal(plan_of(&t, &p, &g, &err), GEM_OK);
    check_gemma_op_order(&p);
    assert_true(p.op[0].embed.scale == 8.0f); /* sqrt(64) */
    assert_int_equal(p.n_layers, 7);
    assert_int_equal(p.n_ctx_train, 4096);
    for (int l = 0; l < 7; l++) { /* no key: the sixth sees all */
        const gem_op *qkv = &p.op[2 + l * 9 + 1];
        const gem_rope *r = &p.rope[qkv->qkv.rope];
        assert_int_equal(p.layer[l].window, l == 5 ? 0 : 100);
        assert_true(r->theta == (l == 5 ? 1e6f : 1e4f));
        assert_true(r->scale == (l == 5 ? 0.125f : 1.0f)); /* only global layers are stretched */
        assert_int_equal(r->n_dims, 32);
        assert_true(qkv->qkv.q_scale == 1.0f / sqrtf(32.0f));
        assert_non_null(qkv->qkv.q_norm);
    }
    const gem_op *last = &p.op[p.n_ops - 2], *head = &p.op[p.n_ops - 1];
    assert_ptr_equal(last->residual.next_norm, gem_gguf_tensor(g, "output_norm.weight")->data);
    assert_ptr_equal(last->residual.post_norm,
                     gem_gguf_tensor(g, "blk.6.post_ffw_norm.weight")->data);
    assert_ptr_equal(head->head.w, gem_gguf_tensor(g, "token_embd.weight")); /* tied */
    assert_true(head->head.softcap == 0.0f);
    assert_int_equal(p.op[2 + 6].glu.act, GEM_ACT_GELU_TANH);
    gem_plan_free(&p);
    gem_gguf_close(g);

    t = tiny_gemma3();
    t.pattern = 2;
    t.output = true;
    t.f32_key = "final_logit_softcapping";
    t.f32_value = 30.0f;
    assert_int_equal(plan_of(&t, &p, &g, &err), GEM_OK);
    for (int l = 0; l < 7; l++)
        assert_int_equal(p.layer[l].window, l % 2 ? 0 : 100);
    assert_ptr_equal(p.op[p.n_ops - 1].head.w, gem_gguf_tensor(g, "output.weight"));
    assert_true(p.op[p.n_ops - 1].head.softcap == 30.0f);
    gem_plan_free(&p);
    gem_gguf_close(g);

    t = tiny_gemma3();
    t.pattern = -7; /* the array that the writer makes: even layers slide */
    assert_int_equal(plan_of(&t, &p, &g, &err), GEM_OK);
    for (int l = 0; l < 7; l++)
        assert_int_equal(p.layer[l].window, l % 2 ? 0 : 100);
    gem_plan_free(&p);
    gem_gguf_close(g);

    t = tiny_gemma3();
    t.skip = "attention.sliding_window"; /* no window: every layer sees all, with the global base */
    assert_int_equal(plan_of(&t, &p, &g, &err), GEM_OK);
    for (int l = 0; l < 7; l++) {
        assert_int_equal(p.layer[l].window, 0);
        assert_true(p.rope[p.op[2 + l * 9 + 1].qkv.rope].theta == 1e6f);
    }
    gem_plan_free(&p);
    gem_gguf_close(g);
}

static void test_qwen2_plan(void **state)
{
    (void)state;
    tiny t = tiny_qwen2();
    gem_plan p;
    gem_gguf *g;
    gem_error err;
    assert_int_equal(plan_of(&t, &p, &g, &err), GEM_OK);
    assert_int_equal(p.n_ops, 2 + 3 * 9 + 1);
    assert_true(p.op[0].embed.scale == 1.0f);
    const gem_op *qkv_linear = &p.op[2], *qkv = &p.op[3], *o = &p.op[5], *residual = &p.op[6];
    assert_ptr_equal(qkv_linear->linear.bias[0], gem_gguf_tensor(g, "blk.0.attn_q.bias")->data);
    assert_ptr_equal(qkv_linear->linear.bias[2], gem_gguf_tensor(g, "blk.0.attn_v.bias")->data);
    assert_null(o->linear.bias[0]);
    assert_null(qkv->qkv.q_norm);
    assert_true(qkv->qkv.q_scale == 1.0f / sqrtf(32.0f));
    assert_null(residual->residual.post_norm);
    assert_ptr_equal(residual->residual.next_norm,
                     gem_gguf_tensor(g, "blk.0.ffn_norm.weight")->data);
    assert_true(residual->residual.out_scale == 1.0f);
    assert_int_equal(p.op[8].glu.act, GEM_ACT_SILU);
    assert_int_equal(p.layer[2].window, 0);
    assert_ptr_equal(p.op[p.n_ops - 1].head.w, gem_gguf_tensor(g, "output.weight"));
    gem_plan_free(&p);
    gem_gguf_close(g);
}

static void test_keys_are_described(void **state)
{
    (void)state;
    const gem_manifest *m = gem_family_at(0)->manifest;
    assert_string_equal(gem_manifest_key(m, "gemma3.embedding_length")->means, "d_model");
    assert_null(gem_manifest_key(m, "gemma3.embedding"));
    assert_null(gem_manifest_key(m, "gemma3"));
    assert_null(gem_manifest_key(m, "qwen2.embedding_length"));
}

#include "manifest_gemma4.h"
#include "manifest_qwen35.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_every_key_and_tensor_is_needed),
        cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_nothing_unexplained),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_relatives_are_refused_by_name),
        cmocka_unit_test(test_gemma3_plan),
        cmocka_unit_test(test_qwen2_plan),
        cmocka_unit_test(test_keys_are_described),
        cmocka_unit_test(test_gemma4_plan),
        cmocka_unit_test(test_gemma4_values),
        cmocka_unit_test(test_gemma4_relatives),
        cmocka_unit_test(test_gemma4_warnings),
        cmocka_unit_test(test_gemma4_frequencies),
        cmocka_unit_test(test_qwen35_plan),
        cmocka_unit_test(test_qwen35_values),
        cmocka_unit_test(test_qwen35_block_ahead),
        cmocka_unit_test(test_qwen35_relatives),
        cmocka_unit_test(test_qwen35_warnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
