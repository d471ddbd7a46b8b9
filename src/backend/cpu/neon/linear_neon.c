/* linear_neon.c - quantised and float panels on NEON with the dot-product extension.
 *
 * Idea. A quarter of an R16K4 vector is one register: 4 rows x 4 k. sdot by lane multiplies it by 4
 * bytes of a column into one int32 a row. Weights below 128 are valid signed bytes, so nibble types
 * run unsigned with the offset in the accumulator's start; Q8_0 is made signed instead. A block of
 * up to 4 columns x 16 rows keeps 16 float accumulators. Types that are dear to unpack (5 and 6
 * bits) are unpacked to bytes once when many columns come. Bound: 8 sdot, a conversion, a multiply
 * and an fma a block, 4 rows and column; one column runs at the speed of memory. Arithmetic and its
 * order: panel.h. */
#include "backend/cpu/simd/blocks.h"

#include <arm_neon.h>

#define INLINE BLOCKS_INLINE

enum { MAX_COLUMNS = 4, TILE_FROM = 12 };

/* Rows 4h..4h+3 of a block: 8 groups of signed bytes, and the scale with its minimum or second
 * scale. */
typedef struct quarter_block {
    int8x16_t w[8];
    float32x4_t a, b;
} quarter_block;

/* (v >> n) & mask */
INLINE uint8x16_t bits(uint8x16_t v, int n, uint8_t mask)
{
    return vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)-n)), vdupq_n_u8(mask));
}

INLINE void unpack_groups(gem_panel_type t, const panel_block *p, int h, int8x16_t w[8])
{
    uint8x16_t u[8];
    if (t == GEM_PANEL_Q8_0) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            w[j] =
                vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p->vec + 64 * j + 16 * h), vdupq_n_u8(0x80)));
        return;
    }
    if (panel_is_five(t)) {
        const uint8x16_t five = vdupq_n_u8(31);
        uint8x16_t line[5];
#pragma GCC unroll 5
        for (int i = 0; i < 5; i++)
            line[i] = vld1q_u8(p->vec + 64 * i + 16 * h);
        u[0] = vandq_u8(line[0], five);
        u[1] = vandq_u8(line[1], five);
        u[2] = vandq_u8(line[2], five);
        u[3] = vorrq_u8(vshrq_n_u8(line[0], 5), bits(line[1], 2, 0x18));
        u[4] = vandq_u8(line[3], five);
        u[5] = vandq_u8(line[4], five);
        u[6] = vorrq_u8(vshrq_n_u8(line[3], 5), bits(line[4], 2, 0x18));
        u[7] =
            vorrq_u8(vorrq_u8(vshrq_n_u8(line[2], 5), bits(line[1], 4, 8)), bits(line[4], 3, 16));
    } else if (t == GEM_PANEL_Q6_K) {
        const uint8x16_t six = vdupq_n_u8(63);
#pragma GCC unroll 2
        for (int g = 0; g < 8; g += 4) {
            const uint8_t *vec = p->vec + 48 * g + 16 * h;
            uint8x16_t a = vld1q_u8(vec), b = vld1q_u8(vec + 64), c = vld1q_u8(vec + 128);
            u[g] = vandq_u8(a, six);
            u[g + 1] = vandq_u8(b, six);
            u[g + 2] = vandq_u8(c, six);
            u[g + 3] = vorrq_u8(vorrq_u8(vshrq_n_u8(a, 6), bits(b, 4, 12)), bits(c, 2, 48));
        }
    } else {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            uint8x16_t v = vld1q_u8(p->vec + 64 * j + 16 * h);
            u[j] = vandq_u8(v, vdupq_n_u8(15));
            u[j + 4] = vshrq_n_u8(v, 4);
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        w[j] = vreinterpretq_s8_u8(u[j]);
}

INLINE float32x4_t halves(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

INLINE float32x4_t unsigned_bytes(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, 4);
    uint16x8_t v = vmovl_u8(vcreate_u8(four));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(v)));
}

INLINE float32x4_t signed_bytes(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, 4);
    int16x8_t v = vmovl_s8(vcreate_s8(four));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(v)));
}

INLINE void unpack_scales(gem_panel_type t, const panel_block *p, int h, float32x4_t *a,
                          float32x4_t *b)
{
    float32x4_t d = halves(p->unit + 8 * h);
    *a = d;
    *b = vdupq_n_f32(0.0f);
    if (t == GEM_PANEL_Q4_1 || t == GEM_PANEL_Q5_1) *b = halves(p->unit + 32 + 8 * h);
    if (t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K) {
        *a = vmulq_f32(d, unsigned_bytes(p->scale + 4 * h));
        *b = vmulq_f32(halves(p->unit + 32 + 8 * h), unsigned_bytes(p->min + 4 * h));
    }
    if (t == GEM_PANEL_Q6_K) {
        *a = vmulq_f32(d, signed_bytes(p->scale + 4 * h));
        *b = vmulq_f32(d, signed_bytes(p->scale + 16 + 4 * h));
    }
}

INLINE quarter_block unpack_quarter(gem_panel_type t, const uint8_t *panel, int64_t i, int h)
{
    quarter_block r;
    panel_block p = panel_block_at(t, panel, i);
    unpack_groups(t, &p, h, r.w);
    unpack_scales(t, &p, h, &r.a, &r.b);
    return r;
}

/* A quarter as unpack_panel left it: [block][quarter][8 groups][16 bytes]; [block][quarter][a, b].
 */
INLINE quarter_block read_quarter(const uint8_t *bytes, const float *scales, int64_t i, int h)
{
    quarter_block r;
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        r.w[j] = vreinterpretq_s8_u8(vld1q_u8(bytes + 512 * i + 128 * h + 16 * j));
    r.a = vld1q_f32(scales + 32 * i + 8 * h);
    r.b = vld1q_f32(scales + 32 * i + 8 * h + 4);
    return r;
}

/* -offset * sum(q): what the accumulator starts from, so that weights may stay unsigned. */
INLINE int32x4_t start(gem_panel_type t, const int32_t *nsum)
{
    switch (t) {
    case GEM_PANEL_Q4_0:
        return vshlq_n_s32(vdupq_n_s32(*nsum), 3);
    case GEM_PANEL_Q5_0:
        return vshlq_n_s32(vdupq_n_s32(*nsum), 4);
    case GEM_PANEL_Q6_K:
        return vshlq_n_s32(vdupq_n_s32(*nsum), 5);
    default:
        return vdupq_n_s32(0);
    }
}

/* Four groups against 16 bytes of a column. */
INLINE int32x4_t dot16(int32x4_t t, const int8x16_t *w, int8x16_t x)
{
    t = vdotq_laneq_s32(t, w[0], x, 0);
    t = vdotq_laneq_s32(t, w[1], x, 1);
    t = vdotq_laneq_s32(t, w[2], x, 2);
    return vdotq_laneq_s32(t, w[3], x, 3);
}

/* The canonical step of block i for one column and 4 rows. */
INLINE float32x4_t block_step(gem_panel_type t, const quarter_block *blk, const block_column *x,
                              int64_t i, float32x4_t acc)
{
    const bool two = t == GEM_PANEL_Q6_K; /* a scale for each half of the block */
    int32x4_t t0 = start(t, two ? x->nsum16 + 2 * i : x->nsum + i);
    int32x4_t t1 = two ? start(t, x->nsum16 + 2 * i + 1) : vdupq_n_s32(0);
    t0 = dot16(t0, blk->w, vld1q_s8(x->q + 32 * i));
    t1 = dot16(t1, blk->w + 4, vld1q_s8(x->q + 32 * i + 16));
    float32x4_t xs = vdupq_n_f32(x->xs[i]);
    if (two) {
        float32x4_t v = vmulq_f32(blk->a, vcvtq_f32_s32(t0));
        return vfmaq_f32(acc, vfmaq_f32(v, blk->b, vcvtq_f32_s32(t1)), xs);
    }
    float32x4_t f = vcvtq_f32_s32(vaddq_s32(t0, t1));
    if (!panel_has_min(t)) return vfmaq_f32(acc, f, vmulq_f32(blk->a, xs));
    float32x4_t v = vmulq_f32(blk->a, f), xsum = vdupq_n_f32(x->xsum[i]);
    bool minus = t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K;
    v = minus ? vfmsq_f32(v, blk->b, xsum) : vfmaq_f32(v, blk->b, xsum);
    return vfmaq_f32(acc, v, xs);
}

/* Columns [c, c + N) of a panel, packed or (bytes not NULL) unpacked. */
INLINE void columns(gem_panel_type t, int N, const gem_panel_args *a, const uint8_t *bytes,
                    size_t c)
{
    const float *scales = (const float *)(const void *)(a->scratch + 16 * a->k);
    block_column x[MAX_COLUMNS];
    float32x4_t acc[MAX_COLUMNS][4];
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
        x[n] = block_column_at(&a->x, c + (size_t)n);
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
            acc[n][h] = vdupq_n_f32(0.0f);
    }
    for (int64_t i = 0; i < a->k / 32; i++) {
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++) {
            quarter_block blk =
                bytes ? read_quarter(bytes, scales, i, h) : unpack_quarter(t, a->panel, i, h);
#pragma GCC unroll 4
            for (int n = 0; n < N; n++)
                acc[n][h] = block_step(t, &blk, &x[n], i, acc[n][h]);
        }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
            vst1q_f32(a->y + (c + (size_t)n) * a->ldy + 4 * h, acc[n][h]);
    }
}

INLINE void all_columns(gem_panel_type t, const gem_panel_args *a, const uint8_t *bytes)
{
    size_t c = 0;
    for (; c + MAX_COLUMNS <= (size_t)a->n; c += MAX_COLUMNS)
        columns(t, MAX_COLUMNS, a, bytes, c);
    switch ((size_t)a->n - c) {
    case 1:
        columns(t, 1, a, bytes, c);
        break;
    case 2:
        columns(t, 2, a, bytes, c);
        break;
    case 3:
        columns(t, 3, a, bytes, c);
        break;
    }
}

INLINE void linear(gem_panel_type t, const gem_panel_args *a)
{
    all_columns(t, a, NULL);
}

INLINE void unpack_panel(gem_panel_type t, const gem_panel_args *a, uint8_t *bytes, float *scales)
{
    for (int64_t i = 0; i < a->k / 32; i++) {
        for (int h = 0; h < 4; h++) {
            quarter_block blk = unpack_quarter(t, a->panel, i, h);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                vst1q_u8(bytes + 512 * i + 128 * h + 16 * j, vreinterpretq_u8_s8(blk.w[j]));
            vst1q_f32(scales + 32 * i + 8 * h, blk.a);
            vst1q_f32(scales + 32 * i + 8 * h + 4, blk.b);
        }
    }
}

INLINE void linear_unpacked(gem_panel_type t, const gem_panel_args *a)
{
    if (a->n < TILE_FROM) {
        linear(t, a);
        return;
    }
    unpack_panel(t, a, a->scratch, (float *)(void *)(a->scratch + 16 * a->k));
    all_columns(t, a, a->scratch);
}

static void linear_q4_0_neon(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q4_0, a);
}

static void linear_q4_1_neon(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q4_1, a);
}

static void linear_q5_0_neon(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q5_0, a);
}

static void linear_q5_1_neon(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q5_1, a);
}

static void linear_q8_0_neon(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q8_0, a);
}

static void linear_q4_k_neon(const gem_panel_args *a)
{
    linear(GEM_PANEL_Q4_K, a);
}

static void linear_q5_k_neon(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q5_K, a);
}

static void linear_q6_k_neon(const gem_panel_args *a)
{
    linear_unpacked(GEM_PANEL_Q6_K, a);
}

/* ---- float panels: one chain of fma per 32 k, added to the sum ---- */

INLINE float32x4_t load_value(gem_panel_type t, const uint8_t *panel, int64_t k, int h)
{
    if (t == GEM_PANEL_F32) return vreinterpretq_f32_u8(vld1q_u8(panel + 64 * k + 16 * h));
    if (t == GEM_PANEL_F16) return halves(panel + 32 * k + 8 * h);
    uint16x4_t v = vreinterpret_u16_u8(vld1_u8(panel + 32 * k + 8 * h));
    return vreinterpretq_f32_u32(vshll_n_u16(v, 16));
}

INLINE void float_columns(gem_panel_type t, int N, const gem_panel_args *a, size_t c)
{
    const float *x[MAX_COLUMNS];
    float32x4_t acc[MAX_COLUMNS][4];
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
        x[n] = a->xf + (c + (size_t)n) * a->ldx;
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
            acc[n][h] = vdupq_n_f32(0.0f);
    }
    for (int64_t k = 0; k < a->k; k += 32) {
        int64_t end = GEM_MIN(k + 32, a->k);
        float32x4_t chain[MAX_COLUMNS][4];
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) {
#pragma GCC unroll 4
            for (int h = 0; h < 4; h++)
                chain[n][h] = vdupq_n_f32(0.0f);
        }
        for (int64_t j = k; j < end; j++) {
#pragma GCC unroll 4
            for (int h = 0; h < 4; h++) {
                float32x4_t w = load_value(t, a->panel, j, h);
#pragma GCC unroll 4
                for (int n = 0; n < N; n++)
                    chain[n][h] = vfmaq_n_f32(chain[n][h], w, x[n][j]);
            }
        }
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) {
#pragma GCC unroll 4
            for (int h = 0; h < 4; h++)
                acc[n][h] = vaddq_f32(acc[n][h], chain[n][h]);
        }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
            vst1q_f32(a->y + (c + (size_t)n) * a->ldy + 4 * h, acc[n][h]);
    }
}

INLINE void floats(gem_panel_type t, const gem_panel_args *a)
{
    size_t c = 0, n = (size_t)a->n;
    for (; c + 4 <= n; c += 4)
        float_columns(t, 4, a, c);
    for (; c < n; c++)
        float_columns(t, 1, a, c);
}

static void linear_f32_neon(const gem_panel_args *a)
{
    floats(GEM_PANEL_F32, a);
}

static void linear_f16_neon(const gem_panel_args *a)
{
    floats(GEM_PANEL_F16, a);
}

static void linear_bf16_neon(const gem_panel_args *a)
{
    floats(GEM_PANEL_BF16, a);
}

void gem_linear_kernels_neon(gem_cpu_kernels *t)
{
    t->linear[GEM_PANEL_Q4_0] = linear_q4_0_neon;
    t->linear[GEM_PANEL_Q4_1] = linear_q4_1_neon;
    t->linear[GEM_PANEL_Q5_0] = linear_q5_0_neon;
    t->linear[GEM_PANEL_Q5_1] = linear_q5_1_neon;
    t->linear[GEM_PANEL_Q8_0] = linear_q8_0_neon;
    t->linear[GEM_PANEL_Q4_K] = linear_q4_k_neon;
    t->linear[GEM_PANEL_Q5_K] = linear_q5_k_neon;
    t->linear[GEM_PANEL_Q6_K] = linear_q6_k_neon;
    t->linear[GEM_PANEL_F32] = linear_f32_neon;
    t->linear[GEM_PANEL_F16] = linear_f16_neon;
    t->linear[GEM_PANEL_BF16] = linear_bf16_neon;
}
