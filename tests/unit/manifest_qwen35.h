/* manifest_qwen35.h - the qwen35 part of test_model_manifest.c: kinds of layers, keys of several
 * shapes, the block that predicts ahead, relatives refused by name, broken conversions. */

static void test_qwen35_plan(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) { /* with and without what may be absent or an array */
        tiny t = tiny_qwen35();
        t.nextn = way & 1;
        t.kinds = t.heads_array = way & 2;
        t.tokenizer = true;
        gem_plan p;
        gem_gguf *g;
        gem_error err = {0};
        if (plan_of(&t, &p, &g, &err) != GEM_OK) fail_msg("%s", err.text);
        assert_int_equal(p.n_ops, 2 + 3 * 9 + 9 + 1);
        assert_int_equal(p.n_layers, 4);
        assert_int_equal(p.recurrent.n_layers, 3);
        assert_int_equal(p.recurrent.n_k_heads, 2);
        assert_int_equal(p.recurrent.n_v_heads, 4);
        assert_int_equal(p.recurrent.head_dim, 32);
        assert_true(p.op[0].embed.scale == 1.0f);
        for (int l = 0; l < 4; l++) {
            const gem_op *in = &p.op[2 + l * 9], *mix = in + 1;
            assert_int_equal(p.layer[l].n_kv_heads, l == 3);
            assert_int_equal(in->linear.n, l == 3 ? 3 : 4);
            if (l == 3) {
                assert_int_equal(p.layer[l].head_dim, 128);
                assert_int_equal(mix->kind, GEM_OP_QKV);
                assert_int_equal(mix->qkv.q_stride, 256);
                assert_true(mix->qkv.q_scale == 1.0f / sqrtf(128.0f));
                assert_int_equal(mix[1].attend.q_stride, 256);
                assert_true(mix[1].attend.gated);
            } else {
                assert_int_equal(mix->kind, GEM_OP_CONV);
                assert_int_equal(mix[1].kind, GEM_OP_DELTA);
                assert_true(mix[1].delta.a[0] < 0.0f);
            }
        }
        assert_int_equal(p.rope[0].n_dims, 32);
        assert_int_equal(p.n_suppress, 0); /* the vocabulary ends with a marker */
        gem_plan_free(&p);
        gem_gguf_close(g);
    }
}

static void test_qwen35_values(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        gem_status st;
        const char *says;
    } keys[] = {
        {"attention.value_length", 64, GEM_E_UNSUPPORTED, "value_length is 64"},
        {"rope.dimension_count", 64, GEM_E_FORMAT, "dimension_sections"},
        {"rope.dimension_count", 33, GEM_E_FORMAT, "dimension_count is 33"},
        {"ssm.conv_kernel", 3, GEM_E_UNSUPPORTED, "conv_kernel is 3"},
        {"ssm.inner_size", 96, GEM_E_FORMAT,
         "inner_size is 96; time_step_rank * state_size is 128"},
        {"ssm.group_count", 3, GEM_E_FORMAT, "time_step_rank is 4, no multiple of group_count 3"},
        {"ssm.state_size", 48, GEM_E_FORMAT, "inner_size is 128"},
        {"full_attention_interval", 2, GEM_E_FORMAT, "blk.1.ssm_a: by key"},
        {"full_attention_interval", 4, GEM_OK, NULL},
        {"attention.head_count_kv", 3, GEM_E_FORMAT, "head_count_kv 3"},
        {"block_count", 6, GEM_E_FORMAT, "blk.4"},
        {"block_count", 5, GEM_OK, NULL}, /* a fine-tune that lost the block ahead */
        {"nextn_predict_layers", 2, GEM_E_FORMAT, "nextn_predict_layers"},
        {"vocab_size", 301, GEM_E_FORMAT, "vocab_size is 301"},
        {"expert_count", 0, GEM_OK, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        tiny t = tiny_qwen35();
        t.key = keys[i].key;
        t.value = keys[i].value;
        expect(&t, keys[i].st, keys[i].says);
    }
    static const char *const required[] = {
        "attention.key_length",     "attention.value_length",
        "rope.dimension_count",     "attention.head_count_kv",
        "ssm.conv_kernel",          "ssm.state_size",
        "ssm.group_count",          "ssm.time_step_rank",
        "ssm.inner_size",           "blk.0.ssm_a",
        "blk.1.ssm_dt.bias",        "blk.2.ssm_conv1d.weight",
        "blk.3.attn_q_norm.weight", "output_norm.weight",
        "blk.0.attn_gate.weight",
    };
    for (size_t i = 0; i < ARRAY_LEN(required); i++) {
        tiny t = tiny_qwen35();
        t.skip = required[i];
        expect(&t, GEM_E_FORMAT, required[i]);
    }
    tiny t = tiny_qwen35();
    t.output = false; /* tied */
    expect(&t, GEM_OK, NULL);
    t = tiny_qwen35();
    t.pattern = 1; /* sections that do not add up */
    expect(&t, GEM_E_FORMAT, "dimension_sections");
    t = tiny_qwen35();
    t.tensor = "blk.3.attn_q.weight"; /* no gate */
    t.dims[0] = 64;
    t.dims[1] = 256;
    expect(&t, GEM_E_FORMAT, "blk.3.attn_q.weight is [64, 256, 1, 1], expected [64, 512]");
    t = tiny_qwen35();
    t.as_f16 = "blk.1.ssm_conv1d.weight";
    expect(&t, GEM_E_UNSUPPORTED, "ssm_conv1d.weight is not F32");
    t = tiny_qwen35();
    t.nan_in = "blk.1.ssm_conv1d.weight";
    expect(&t, GEM_E_FORMAT, "ssm_conv1d.weight: value");
    t = tiny_qwen35();
    t.growing = true;
    expect(&t, GEM_E_FORMAT, "the state would grow without bound");
    t = tiny_qwen35();
    t.str_key = "qwen35.rope.scaling.type";
    t.str_value = "yarn";
    expect(&t, GEM_E_UNSUPPORTED, "rope.scaling.type is yarn");
    t.str_value = "none";
    expect(&t, GEM_OK, NULL);
}

/* The block that predicts ahead: whole, partly there, or only named. */
static void test_qwen35_block_ahead(void **state)
{
    (void)state;
    tiny t = tiny_qwen35();
    t.nextn = true;
    expect(&t, GEM_OK, NULL);
    t.skip = "blk.4.nextn.hnorm.weight";
    expect(&t, GEM_E_FORMAT, "blk.4.nextn.hnorm.weight is missing");
    t.skip = "blk.4.attn_v.weight";
    expect(&t, GEM_E_FORMAT, "blk.4.attn_v.weight is missing");
    t.skip = "blk.4";
    expect(&t, GEM_OK, NULL);
    t.skip = "blk.0";
    expect(&t, GEM_E_UNSUPPORTED, "a drafter cut out of its model");
    t.skip = "nextn_predict_layers"; /* then block 4 is one of the trunk */
    expect(&t, GEM_E_FORMAT, "blk.4");
}

static void test_qwen35_relatives(void **state)
{
    (void)state;
    static const struct {
        const char *key, *tensor, *says;
    } relatives[] = {
        {"expert_count", NULL, "mixture of experts"},
        {"gdn_v_grouped", NULL, "grouped order"},
        {NULL, "blk.0.ffn_gate_inp.weight", "mixture of experts"},
        {NULL, "blk.0.ffn_down_exps.weight", "mixture of experts"},
        {NULL, "blk.0.ssm_ba.weight", "Qwen3-Next"},
        {NULL, "blk.0.ssm_in.weight", "Qwen3-Next"},
        {NULL, "blk.3.attn_qkv.weight", "fused attention weights"},
        {NULL, "blk.0.attn_qkv.scale", "NVFP4"},
        {NULL, "blk.0.ffn_up.input_scale", "NVFP4"},
        {NULL, "v.patch_embd.weight", "vision tower"},
        {NULL, "mm.0.weight", "vision tower"},
    };
    for (size_t i = 0; i < ARRAY_LEN(relatives); i++) {
        tiny t = tiny_qwen35();
        t.key = relatives[i].key;
        t.value = 1;
        t.extra = relatives[i].tensor;
        expect(&t, GEM_E_UNSUPPORTED, relatives[i].says);
    }
    tiny t = tiny_qwen35();
    t.key = "gdn_v_grouped"; /* one V head a K head: the orders are the same */
    t.value = 1;
    t.v_heads = 2;
    expect(&t, GEM_OK, NULL);
    t = tiny_qwen35();
    t.key = "gdn_v_grouped";
    t.value = 0;
    expect(&t, GEM_OK, NULL);
    t = tiny_qwen35();
    t.extra = "blk.1.attn_q.weight";
    expect(&t, GEM_E_FORMAT, "blk.1.attn_q.weight: by key");
    t = tiny_qwen35();
    t.extra = "extra.weight";
    expect(&t, GEM_E_FORMAT, "extra.weight is not known");
}

static void qwen35_warnings(const tiny *t, int n, const char *says)
{
    gem_plan p;
    gem_gguf *g;
    gem_error err = {0};
    heard h = {0};
    const gem_log log = {hear, &h};
    if (plan_of(t, &p, &g, &err) != GEM_OK) fail_msg("%s", err.text);
    const gem_family *f;
    assert_int_equal(gem_family_find(&f, g, &err), GEM_OK);
    f->warn(g, &log);
    assert_int_equal(h.n, n);
    if (n) assert_non_null(strstr(h.text, says));
    gem_plan_free(&p);
    gem_gguf_close(g);
}

static void test_qwen35_warnings(void **state)
{
    (void)state;
    tiny t = tiny_qwen35();
    t.tokenizer = true;
    qwen35_warnings(&t, 0, NULL);
    t.add = -1.0f;
    qwen35_warnings(&t, 1, "the converter did not add 1");
    t.add = 0.0f;
    t.pre = "qwen2";
    qwen35_warnings(&t, 1, "combining marks");
    t.pre = NULL;
    t.nextn = true;
    qwen35_warnings(&t, 0, NULL);
    t.skip = "blk.4";
    qwen35_warnings(&t, 1, "block 4, which should predict ahead, has no tensors");
}
