/* test_quant.c - the block formats: values against an independent implementation, exactness on grid
 * points, and error bounds of quantisation. */
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Printed by tests/golden/quant_blocks.py (Python gguf 0.19.0, numpy 2.4.6), which also says how
 * the blocks are made. */
static const struct golden {
    gem_dtype dtype;
    uint64_t fnv;   /* over all values */
    float value[8]; /* elements 0 1 15 16 31, the middle one, the 17th from the end, the last */
} goldens[] = {
    {GEM_DTYPE_F32,
     0xF52C498F2FF933A5u,
     {0x1.aa6016p+117f, 0x1.d3893ep-98f, 0x1.03b96ep-51f, -0x1.2ae096p-10f, 0x1.8239eep+77f,
      0x1.2be196p-11f, -0x1.c47a3p-113f, -0x1.44fabp+16f}},
    {GEM_DTYPE_F16,
     0xB0823C8B568D925Bu,
     {0x1.02cp-3f, 0x1.954p+15f, -0x1.984p-14f, -0x1.2acp+5f, 0x1.804p-6f, 0x1.3acp-11f,
      0x1.b84p-14f, -0x1.a04p-6f}},
    {GEM_DTYPE_BF16,
     0xDA9818BC3B83D3E5u,
     {0x1.16p-31f, 0x1.aap+117f, -0x1.c2p-115f, -0x1.56p+34f, 0x1.02p-51f, 0x1.d6p-94f,
      0x1.c2p-114f, -0x1.02p-50f}},
    {GEM_DTYPE_Q4_0,
     0xC138C9D2E32645C9u,
     {-0x1.2e4p-5f, 0x1.93p-6f, -0x1.93p-4f, -0x1.2e4p-5f, 0x0p+0f, -0x1.2e4p-3f, -0x1.2e4p-3f,
      0x1.c56p-4f}},
    {GEM_DTYPE_Q4_1,
     0x6F2A5B5596845E73u,
     {0x1.d73p-3f, 0x1.844p-4f, 0x1.594p-3f, 0x1.401p-3f, 0x1.8bap-3f, -0x1.b08p-4f, 0x1.af6p-3f,
      0x1.e028p-2f}},
    {GEM_DTYPE_Q5_0,
     0x6853C3E62FFA50F1u,
     {0x1.c56p-4f, -0x1.93p-6f, -0x1.2e4p-3f, 0x1.60ap-3f, 0x1.93p-7f, -0x1.93p-6f, 0x0p+0f,
      -0x1.5408p-2f}},
    {GEM_DTYPE_Q5_1,
     0xB695E664A50F3C69u,
     {0x1.1df8p-2f, 0x1.5cfp-2f, 0x1.a88p-2f, 0x1.1df8p-2f, 0x1.b6ap-4f, -0x1.18cp-1f, 0x1.3e64p+0f,
      0x1.bfep-1f}},
    {GEM_DTYPE_Q8_0,
     0xE80EFD99D5AA8CDAu,
     {0x1.0b9ep+0f, 0x1.801cp+0f, -0x1.93p+0f, -0x1.1e82p+0f, -0x1.2e4p-1f, 0x1.63c6p+1f,
      0x1.8cb4p+1f, -0x1.b27cp+1f}},
    {GEM_DTYPE_Q4_K,
     0x9A5F428EC0013062u,
     {0x1.de5ap+0f, -0x1.29a2p+1f, -0x1.35p-5f, 0x1.de5ap+0f, -0x1.35p-5f, -0x1.c2cdp+2f,
      -0x1.9eb2p+1f, -0x1.f2cep+0f}},
    {GEM_DTYPE_Q5_K,
     0x422691CF0893CDFEu,
     {0x1.fdfe8p+2f, -0x1.29a2p+1f, -0x1.35p-5f, 0x1.fdfe8p+2f, -0x1.35p-5f, -0x1.507ep+2f,
      0x1.2e44p+3f, 0x1.4cfa8p+2f}},
    {GEM_DTYPE_Q6_K,
     0x447C07162E716B35u,
     {-0x1.1996ap+4f, 0x1.4dbcp+4f, -0x1.f49ap+1f, -0x1.5408p+2f, -0x1.2e4p+0f, 0x1.8342p+3f,
      0x1.f6f68p+5f, -0x1.2ed72p+6f}},
};

static uint64_t fnv1a(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}

static void put_half(uint8_t *p, double v)
{
    uint16_t h = gem_f32_to_f16((float)v);
    memcpy(p, &h, sizeof(h));
}

/* The blocks that the golden script describes; returns the number of elements. */
static size_t golden_blocks(gem_dtype t, uint8_t *raw)
{
    const gem_dtype_info *info = gem_dtype_get((uint32_t)t);
    size_t blocks = info->block_len == 1 ? 96 : 3, bytes = blocks * info->block_bytes;
    for (size_t i = 0; i < bytes; i++)
        raw[i] = (uint8_t)(i * 37 + 11 + 97 * (i >> 8));
    for (size_t b = 0; info->block_len > 1 && b < blocks; b++) {
        uint8_t *p = raw + b * info->block_bytes;
        put_half(p + (t == GEM_DTYPE_Q6_K ? 208 : 0), 0.0123 * (b & 1 ? -1 : 1) * (double)(b + 1));
        if (t == GEM_DTYPE_Q4_1 || t == GEM_DTYPE_Q5_1 || t == GEM_DTYPE_Q4_K ||
            t == GEM_DTYPE_Q5_K)
            put_half(p + 2, 0.0456 * (double)(b + 1));
    }
    return blocks * info->block_len;
}

static void test_dequantised_blocks_equal_goldens(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goldens); i++) {
        const struct golden *g = &goldens[i];
        uint8_t raw[1024];
        float v[768];
        size_t n = golden_blocks(g->dtype, raw);
        gem_dequantize_row(g->dtype, raw, v, n);
        size_t at[] = {0, 1, 15, 16, 31, n / 2, n - 17, n - 1};
        for (size_t k = 0; k < ARRAY_LEN(at); k++)
            if (v[at[k]] != g->value[k])
                fail_msg("type %d element %zu: %a, expected %a", (int)g->dtype, at[k],
                         (double)v[at[k]], (double)g->value[k]);
        if (fnv1a(v, n * sizeof(*v)) != g->fnv)
            fail_msg("type %d: some value differs", (int)g->dtype);
    }
}

static void test_type_table(void **state)
{
    (void)state;
    size_t bytes = 0, n = 0;
    for (const gem_dtype_info *t = gem_dtypes; t->name; t++, n++) {
        assert_ptr_equal(gem_dtype_get((uint32_t)t->dtype), t);
        assert_ptr_equal(gem_dtype_by_name(t->name), t);
    }
    assert_int_equal(n, 11);
    assert_int_equal(gem_dtype_by_name("q4_k")->dtype, GEM_DTYPE_Q4_K);
    assert_null(gem_dtype_by_name("q4_x"));
    assert_null(gem_dtype_get(10));
    const gem_dtype_info *q4_k = gem_dtype_by_name("Q4_K"), *f32 = gem_dtype_by_name("f32");
    assert_true(gem_dtype_row_bytes(q4_k, 5120, &bytes));
    assert_int_equal(bytes, 2880);
    assert_true(gem_dtype_row_bytes(gem_dtype_by_name("Q6_K"), 17408, &bytes));
    assert_int_equal(bytes, 14280);
    assert_false(gem_dtype_row_bytes(q4_k, 640, &bytes));
    assert_false(gem_dtype_row_bytes(f32, (uint64_t)1 << 62, &bytes));
}

static void test_halves_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = gem_f16_to_f32(h), b = gem_bf16_to_f32(h);
        if (f != f)
            assert_true((gem_f32_to_f16(f) & 0x7FFF) > 0x7C00);
        else
            assert_int_equal(gem_f32_to_f16(f), h);
        if (b != b)
            assert_true((gem_f32_to_bf16(b) & 0x7FFF) > 0x7F80);
        else
            assert_int_equal(gem_f32_to_bf16(b), h);
    }
    assert_true(gem_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(gem_f16_to_f32(0x7BFF) == 65504.0f);
    assert_true(isinf(gem_f16_to_f32(0xFC00)) && signbit(gem_f16_to_f32(0xFC00)));
}

static void test_halves_round_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(gem_f32_to_f16(1.0f + 0x1p-11f), 0x3C00);            /* half way, even below */
    assert_int_equal(gem_f32_to_f16(1.0f + 0x3p-11f), 0x3C02);            /* half way, even above */
    assert_int_equal(gem_f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3C01); /* just above half way */
    assert_int_equal(gem_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(gem_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(gem_f32_to_f16(-1e30f), 0xFC00);
    assert_int_equal(gem_f32_to_f16(0x1p-25f), 0x0000);
    assert_int_equal(gem_f32_to_f16(0x3p-25f), 0x0002);
    assert_int_equal(gem_f32_to_f16(-0x1.8p-25f), 0x8001);
    assert_int_equal(gem_f32_to_f16(0x1.ff8p-15f), 0x03FF); /* largest subnormal: 1023 * 2^-24 */
    assert_int_equal(gem_f32_to_f16(0x1.ffcp-15f), 0x0400); /* half way up to the least normal */
    assert_int_equal(gem_f32_to_f16(1e-45f), 0x0000);
    assert_int_equal(gem_f32_to_bf16(1.0f + 0x1p-8f), 0x3F80);
    assert_int_equal(gem_f32_to_bf16(1.0f + 0x3p-8f), 0x3F82);
    assert_int_equal(gem_f32_to_bf16(0x1.ffp127f), 0x7F80);
}

/* ---- quantise ---- */

/* Elements that lie on a grid must come back bit for bit. */
static void expect_exact(gem_dtype t, const float *x, size_t n)
{
    uint8_t raw[1024];
    float back[768];
    gem_quantize_row(t, x, raw, n);
    gem_dequantize_row(t, raw, back, n);
    for (size_t i = 0; i < n; i++)
        if (back[i] != x[i])
            fail_msg("type %d element %zu: %a became %a", (int)t, i, (double)x[i], (double)back[i]);
}

static void test_grid_points_are_exact_in_legacy_types(void **state)
{
    (void)state;
    float x[32];
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < 32; i++)
            x[i] = 0.375f * (float)sign * (float)((i * 5) % 16 - 8);
        expect_exact(GEM_DTYPE_Q4_0, x, 32);
        for (int i = 0; i < 32; i++)
            x[i] = 0.375f * (float)sign * (float)((i * 5) % 32 - 16);
        expect_exact(GEM_DTYPE_Q5_0, x, 32);
        for (int i = 0; i < 32; i++)
            x[i] = 0.0625f * (float)sign * (float)(i * 8 - 121); /* -121 .. 127 */
        expect_exact(GEM_DTYPE_Q8_0, x, 32);
    }
    for (int i = 0; i < 32; i++)
        x[i] = 0.25f * (float)((i * 7) % 16) - 1.125f;
    expect_exact(GEM_DTYPE_Q4_1, x, 32);
    for (int i = 0; i < 32; i++)
        x[i] = 0.25f * (float)((i * 7) % 32) + 3.5f;
    expect_exact(GEM_DTYPE_Q5_1, x, 32);
    for (int i = 0; i < 32; i++)
        x[i] = 1.0f / (float)(1 << i % 16);
    expect_exact(GEM_DTYPE_F32, x, 32);
    expect_exact(GEM_DTYPE_F16, x, 32);
    expect_exact(GEM_DTYPE_BF16, x, 32);
}

static void test_grid_points_are_exact_in_k_types(void **state)
{
    (void)state;
    static const int scales[8] = {63, 1, 17, 32, 5, 62, 40, 8},
                     mins[8] = {0, 63, 7, 31, 1, 16, 33, 50};
    float x[256];
    for (int top = 15; top <= 31; top += 16) {
        for (int i = 0; i < 256; i++) /* every sub-block holds its lowest and its highest level */
            x[i] = 0x1p-8f * (float)scales[i / 32] * (float)((i * 7) % (top + 1)) -
                   0x1p-7f * (float)mins[i / 32];
        expect_exact(top == 15 ? GEM_DTYPE_Q4_K : GEM_DTYPE_Q5_K, x, 256);
    }
    static const int signed_scales[16] = {-128, 127, 64, -1, 3, 90, -77, 31,
                                          5,    -6,  70, 99, 2, 1,  -33, 127};
    for (int i = 0; i < 256; i++) /* 16 levels from -32 on, -32 among them */
        x[i] = 0x1p-9f * (float)signed_scales[i / 16] * (float)((i * 3 % 16) * 4 - 32);
    expect_exact(GEM_DTYPE_Q6_K, x, 256);
}

/* Near Gaussian numbers whose size changes from block to block. */
static void noise(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float s = -2.0f;
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            s += (float)(seed >> 40) * 0x1p-24f;
        }
        x[i] = s * (1.0f + (float)(i / 32 % 7));
    }
}

static void test_legacy_errors_stay_within_half_a_step(void **state)
{
    (void)state;
    enum { N = 32 * 500 };
    static float x[N], back[N];
    static uint8_t raw[N * 4];
    noise(x, N, 1);
    for (const gem_dtype_info *t = gem_dtypes; t->name; t++) {
        if (t->block_len != 32) continue;
        gem_quantize_row(t->dtype, x, raw, N);
        gem_dequantize_row(t->dtype, raw, back, N);
        for (size_t b = 0; b < N; b += 32) {
            double lo = 0, hi = 0, top = 0;
            for (size_t i = b; i < b + 32; i++) {
                lo = i == b || x[i] < lo ? (double)x[i] : lo;
                hi = i == b || x[i] > hi ? (double)x[i] : hi;
                top = fmax(top, fabs((double)x[i]));
            }
            /* Half a step; a whole one where the grid lacks the top (+8 of -8..7). Rounding d and m
             * to half precision moves a value by at most 2^-11 of itself and of m. */
            double step = t->dtype == GEM_DTYPE_Q4_0   ? top / 8
                          : t->dtype == GEM_DTYPE_Q5_0 ? top / 16
                          : t->dtype == GEM_DTYPE_Q8_0 ? top / 127 / 2
                          : t->dtype == GEM_DTYPE_Q4_1 ? (hi - lo) / 15 / 2
                                                       : (hi - lo) / 31 / 2;
            double bound = step + 3 * 0x1p-11 * top + 1e-7;
            for (size_t i = b; i < b + 32; i++)
                if (fabs((double)(x[i] - back[i])) > bound)
                    fail_msg("%s element %zu: %g became %g, bound %g", t->name, i, (double)x[i],
                             (double)back[i], bound);
        }
    }
}

static double relative_rms(gem_dtype t, const float *x, size_t n)
{
    static float back[256 * 100];
    static uint8_t raw[256 * 400];
    double e = 0, s = 0;
    gem_quantize_row(t, x, raw, n);
    gem_dequantize_row(t, raw, back, n);
    for (size_t i = 0; i < n; i++) {
        e += ((double)x[i] - (double)back[i]) * ((double)x[i] - (double)back[i]);
        s += (double)x[i] * (double)x[i];
    }
    return sqrt(e / s);
}

static void test_k_types_beat_what_plain_rounding_gives(void **state)
{
    (void)state;
    static float x[256 * 100];
    noise(x, ARRAY_LEN(x), 2);
    /* A uniform quantiser of L levels over the range R of 32 such numbers (about 4.1 sigma) has a
     * relative error of R/(L-1)/sqrt(12): 0.079 for 16 levels, 0.038 for 32. The search must do
     * better although its scales have 6 bits; Q6_K (16 numbers, 3.5 sigma) 0.016, scales of 8 bits.
     */
    assert_true(relative_rms(GEM_DTYPE_Q4_K, x, ARRAY_LEN(x)) < 0.079);
    assert_true(relative_rms(GEM_DTYPE_Q5_K, x, ARRAY_LEN(x)) < 0.040);
    assert_true(relative_rms(GEM_DTYPE_Q6_K, x, ARRAY_LEN(x)) < 0.0185);
    assert_true(relative_rms(GEM_DTYPE_Q4_K, x, ARRAY_LEN(x)) <
                relative_rms(GEM_DTYPE_Q4_1, x, ARRAY_LEN(x)));
}

static void test_degenerate_blocks(void **state)
{
    (void)state;
    float x[256] = {0};
    uint8_t raw[1024];
    for (const gem_dtype_info *t = gem_dtypes; t->name; t++) {
        memset(x, 0, sizeof(x));
        expect_exact(t->dtype, x, 256);
        for (int i = 0; i < 256; i++)
            x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
        gem_quantize_row(t->dtype, x, raw, 256); /* must be defined: the sanitizer watches */
        for (int i = 0; i < 256; i++)
            x[i] = 1e-42f * (float)(i % 5 - 2); /* steps below the least half: zeros, not garbage */
        gem_quantize_row(t->dtype, x, raw, 256);
        float back[256];
        gem_dequantize_row(t->dtype, raw, back, 256);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(back[i]) <= 4e-42f);
    }
    for (int i = 0; i < 256; i++)
        x[i] = 5.0f; /* all alike and positive: K types can only subtract a minimum */
    expect_exact(GEM_DTYPE_Q4_1, x, 256);
    float back[256];
    gem_quantize_row(GEM_DTYPE_Q4_K, x, raw, 256);
    gem_dequantize_row(GEM_DTYPE_Q4_K, raw, back, 256);
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(back[i] - 5.0f) < 0.01f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantised_blocks_equal_goldens),
        cmocka_unit_test(test_type_table),
        cmocka_unit_test(test_halves_round_trip),
        cmocka_unit_test(test_halves_round_to_nearest_even),
        cmocka_unit_test(test_grid_points_are_exact_in_legacy_types),
        cmocka_unit_test(test_grid_points_are_exact_in_k_types),
        cmocka_unit_test(test_legacy_errors_stay_within_half_a_step),
        cmocka_unit_test(test_k_types_beat_what_plain_rounding_gives),
        cmocka_unit_test(test_degenerate_blocks),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
