/* pack.c - GGUF rows to R16K4 panels and back. Layout: panel.h. Called at load, panel by panel. */
#include "backend/cpu/panel.h"

typedef struct panel_layout {
    int unit_k; /* k of one unit */
    int unit_bytes;
    int block_bytes; /* of one GGUF block of one row */
} panel_layout;

static const panel_layout layouts[GEM_N_PANELS] = {
    [GEM_PANEL_Q4_0] = {32, 288, 18},    [GEM_PANEL_Q4_1] = {32, 320, 20},
    [GEM_PANEL_Q5_0] = {32, 352, 22},    [GEM_PANEL_Q5_1] = {32, 384, 24},
    [GEM_PANEL_Q8_0] = {32, 544, 34},    [GEM_PANEL_Q4_K] = {256, 2368, 144},
    [GEM_PANEL_Q5_K] = {256, 2880, 176}, [GEM_PANEL_Q6_K] = {256, 3360, 210},
    [GEM_PANEL_F32] = {1, 64, 4},        [GEM_PANEL_F16] = {1, 32, 2},
    [GEM_PANEL_BF16] = {1, 32, 2},
};

gem_panel_type gem_panel_type_of(gem_dtype t)
{
    switch (t) {
    case GEM_DTYPE_Q4_0:
        return GEM_PANEL_Q4_0;
    case GEM_DTYPE_Q4_1:
        return GEM_PANEL_Q4_1;
    case GEM_DTYPE_Q5_0:
        return GEM_PANEL_Q5_0;
    case GEM_DTYPE_Q5_1:
        return GEM_PANEL_Q5_1;
    case GEM_DTYPE_Q8_0:
        return GEM_PANEL_Q8_0;
    case GEM_DTYPE_Q4_K:
        return GEM_PANEL_Q4_K;
    case GEM_DTYPE_Q5_K:
        return GEM_PANEL_Q5_K;
    case GEM_DTYPE_Q6_K:
        return GEM_PANEL_Q6_K;
    case GEM_DTYPE_F16:
        return GEM_PANEL_F16;
    case GEM_DTYPE_BF16:
        return GEM_PANEL_BF16;
    case GEM_DTYPE_F32:
        break;
    }
    return GEM_PANEL_F32;
}

size_t gem_panel_bytes(gem_panel_type t, int64_t k)
{
    return (size_t)gem_round_up((uint64_t)(k / layouts[t].unit_k) * (uint64_t)layouts[t].unit_bytes,
                                64);
}

/* The nibble of element e (0..31) in GGUF's pairing of a 16-byte nibble field, as 4-byte words:
 * word w of the field holds elements 4w..4w+3 (low) and 16+4w.. (high), which is group w and w + 4.
 */
static void put_nibbles(uint8_t *vec, int row, const uint8_t *q)
{
    for (int w = 0; w < 4; w++)
        memcpy(vec + 64 * w + 4 * row, q + 4 * w, 4);
}

/* 32 weights of five or six bits, one a byte, as lines of 64 bytes (panel.h). A group of four is
 * one word, so four bytes are shifted at a time. */
static void put_fives(uint8_t *vec, int row, const uint8_t w[32])
{
    enum { ONE = 0x01010101, THREE = 0x03030303, SEVEN = 0x07070707 };
    uint32_t g[8];
    memcpy(g, w, sizeof(g));
    const uint32_t line[5] = {
        g[0] | (g[3] & SEVEN) << 5,
        g[1] | (g[3] >> 3 & THREE) << 5 | (g[7] >> 3 & ONE) << 7,
        g[2] | (g[7] & SEVEN) << 5,
        g[4] | (g[6] & SEVEN) << 5,
        g[5] | (g[6] >> 3 & THREE) << 5 | (g[7] >> 4 & ONE) << 7,
    };
    for (int i = 0; i < 5; i++)
        memcpy(vec + 64 * i + 4 * row, &line[i], 4);
}

static void put_sixes(uint8_t *vec, int row, const uint8_t w[32])
{
    enum { THREE = 0x03030303 };
    uint32_t g[8];
    memcpy(g, w, sizeof(g));
    for (int i = 0; i < 6; i++) {
        uint32_t line = g[i + i / 3] | (g[i < 3 ? 3 : 7] >> (2 * (i % 3)) & THREE) << 6;
        memcpy(vec + 64 * i + 4 * row, &line, 4);
    }
}

/* And back: the weight at element e. */
static int five_at(const uint8_t *vec, int row, int e)
{
    const uint8_t *p = vec + 4 * row + e % 4;
    switch (e / 4) {
    case 3:
        return p[0] >> 5 | (p[64] >> 2 & 0x18);
    case 6:
        return p[192] >> 5 | (p[256] >> 2 & 0x18);
    case 7:
        return p[128] >> 5 | (p[64] >> 4 & 8) | (p[256] >> 3 & 16);
    default:
        return p[64 * (e / 4 - (e >= 16))] & 31;
    }
}

static int six_at(const uint8_t *vec, int row, int e)
{
    const uint8_t *p = vec + 192 * (e / 16) + 4 * row + e % 4;
    int j = e % 16 / 4;
    return j < 3 ? p[64 * j] & 63 : p[0] >> 6 | (p[64] >> 4 & 12) | (p[128] >> 2 & 48);
}

/* Low nibbles of 32 bytes are one sub-block, high ones the next (K types): regroup a sub-block so
 * that byte i carries element i (low) and i + 16 (high). */
static void sub_nibbles(const uint8_t *q, int shift, uint8_t out[16])
{
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)((q[i] >> shift & 15) | (q[i + 16] >> shift & 15) << 4);
}

static void pack_legacy(gem_panel_type t, const uint8_t *b, int row, uint8_t *u)
{
    bool min = t == GEM_PANEL_Q4_1 || t == GEM_PANEL_Q5_1;
    bool five = t == GEM_PANEL_Q5_0 || t == GEM_PANEL_Q5_1;
    memcpy(u + 2 * row, b, 2);
    b += 2;
    u += 32;
    if (min) {
        memcpy(u + 2 * row, b, 2);
        b += 2;
        u += 32;
    }
    if (!five) {
        put_nibbles(u, row, b);
        return;
    }
    uint32_t bits;
    uint8_t w[32];
    memcpy(&bits, b, 4);
    b += 4;
    for (int e = 0; e < 32; e++)
        w[e] = (uint8_t)((e < 16 ? b[e] & 15 : b[e - 16] >> 4) | (bits >> e & 1) << 4);
    put_fives(u, row, w);
}

static void pack_q8_0(const uint8_t *b, int row, uint8_t *u)
{
    memcpy(u + 2 * row, b, 2);
    for (int j = 0; j < 8; j++) {
        uint32_t w;
        memcpy(&w, b + 2 + 4 * j, 4);
        w ^= 0x80808080u;
        memcpy(u + 32 + 64 * j + 4 * row, &w, 4);
    }
}

static void pack_k45(bool five, const uint8_t *b, int row, uint8_t *u)
{
    memcpy(u + 2 * row, b, 2);
    memcpy(u + 32 + 2 * row, b + 2, 2);
    const uint8_t *hb = b + 16, *q = b + (five ? 48 : 16);
    for (int s = 0; s < 8; s++) {
        gem_k4_scale_min(b + 4, s, &u[64 + 16 * s + row], &u[192 + 16 * s + row]);
        uint8_t *sub = u + 320 + s * (five ? 320 : 256);
        const uint8_t *low = q + 32 * (s / 2);
        const int shift = s % 2 * 4;
        if (five) {
            uint8_t w[32];
            for (int i = 0; i < 32; i++)
                w[i] = (uint8_t)((low[i] >> shift & 15) | (hb[i] >> s & 1) << 4);
            put_fives(sub, row, w);
        } else {
            uint8_t nib[16];
            sub_nibbles(low, shift, nib);
            put_nibbles(sub, row, nib);
        }
    }
}

static void pack_q6_k(const uint8_t *b, int row, uint8_t *u)
{
    memcpy(u + 2 * row, b + 208, 2);
    for (int s = 0; s < 8; s++) { /* sub-blocks of 32: half p, quarter c */
        int p = s / 4, c = s % 4;
        const uint8_t *lo = b + 64 * p + 32 * (c & 1), *hi = b + 128 + 32 * p;
        uint8_t *sub = u + 32 + 416 * s, w[32];
        sub[row] = b[192 + 2 * s];
        sub[16 + row] = b[192 + 2 * s + 1];
        for (int i = 0; i < 32; i++)
            w[i] = (uint8_t)((lo[i] >> (c >= 2 ? 4 : 0) & 15) | (hi[i] >> (2 * c) & 3) << 4);
        put_sixes(sub + 32, row, w);
    }
}

void gem_panel_pack(gem_panel_type t, const uint8_t *rows, size_t row_bytes, int64_t n_rows,
                    int64_t row0, int64_t k, uint8_t *panel)
{
    const panel_layout *l = &layouts[t];
    int64_t units = k / l->unit_k;
    int n = (int)GEM_MIN((int64_t)GEM_PANEL_ROWS, n_rows - row0);
    if (n < GEM_PANEL_ROWS) {
        memset(panel, 0, gem_panel_bytes(t, k));
        /* Zero scales make a row zero; Q8_0's zero byte is -128, harmless under d = 0. */
    }
    for (int r = 0; r < n; r++) {
        const uint8_t *b = rows + (size_t)(row0 + r) * row_bytes;
        uint8_t *u = panel;
        for (int64_t i = 0; i < units; i++, b += l->block_bytes, u += l->unit_bytes) {
            switch (t) {
            case GEM_PANEL_Q8_0:
                pack_q8_0(b, r, u);
                break;
            case GEM_PANEL_Q4_K:
                pack_k45(false, b, r, u);
                break;
            case GEM_PANEL_Q5_K:
                pack_k45(true, b, r, u);
                break;
            case GEM_PANEL_Q6_K:
                pack_q6_k(b, r, u);
                break;
            case GEM_PANEL_F32:
                memcpy(u + 4 * r, b, 4);
                break;
            case GEM_PANEL_F16:
            case GEM_PANEL_BF16:
                memcpy(u + 2 * r, b, 2);
                break;
            default:
                pack_legacy(t, b, r, u);
            }
        }
    }
}

static float half_at(const uint8_t *p, int i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return gem_f16_to_f32(h);
}

static int nibble_at(const uint8_t *vec, int row, int e)
{
    return vec[64 * (e / 4 & 3) + 4 * row + e % 4] >> (e < 16 ? 0 : 4) & 15;
}

static void row_k(gem_panel_type t, const uint8_t *u, int row, float *dst)
{
    float d = half_at(u, row);
    for (int s = 0; s < 8; s++) {
        if (t == GEM_PANEL_Q6_K) {
            const uint8_t *sub = u + 32 + 416 * s;
            for (int e = 0; e < 32; e++) {
                float ds = d * (float)(int8_t)sub[(e < 16 ? 0 : 16) + row];
                dst[32 * s + e] = ds * (float)(six_at(sub + 32, row, e) - 32);
            }
            continue;
        }
        bool five = t == GEM_PANEL_Q5_K;
        const uint8_t *sub = u + 320 + s * (five ? 320 : 256);
        float ds = d * (float)u[64 + 16 * s + row];
        float dm = half_at(u + 32, row) * (float)u[192 + 16 * s + row];
        for (int e = 0; e < 32; e++)
            dst[32 * s + e] =
                ds * (float)(five ? five_at(sub, row, e) : nibble_at(sub, row, e)) - dm;
    }
}

static void row_legacy(gem_panel_type t, const uint8_t *u, int row, float *dst)
{
    bool min = t == GEM_PANEL_Q4_1 || t == GEM_PANEL_Q5_1;
    bool five = t == GEM_PANEL_Q5_0 || t == GEM_PANEL_Q5_1;
    float d = half_at(u, row), m = min ? half_at(u + 32, row) : 0.0f;
    const uint8_t *vec = u + (min ? 64 : 32);
    int offset = min ? 0 : five ? 16 : 8;
    for (int e = 0; e < 32; e++) {
        float v = d * (float)((five ? five_at(vec, row, e) : nibble_at(vec, row, e)) - offset);
        dst[e] = min ? v + m : v;
    }
}

void gem_panel_row(gem_panel_type t, const uint8_t *panel, int row, int64_t k, float *dst)
{
    const panel_layout *l = &layouts[t];
    for (int64_t i = 0; i < k; i += l->unit_k, panel += l->unit_bytes, dst += l->unit_k) {
        uint16_t h;
        switch (t) {
        case GEM_PANEL_F32:
            memcpy(dst, panel + 4 * row, 4);
            break;
        case GEM_PANEL_F16:
            *dst = half_at(panel, row);
            break;
        case GEM_PANEL_BF16:
            memcpy(&h, panel + 2 * row, 2);
            *dst = gem_bf16_to_f32(h);
            break;
        case GEM_PANEL_Q8_0: {
            float d = half_at(panel, row);
            for (int e = 0; e < 32; e++)
                dst[e] = d * (float)((int)panel[32 + 64 * (e / 4) + 4 * row + e % 4] - 128);
            break;
        }
        case GEM_PANEL_Q4_K:
        case GEM_PANEL_Q5_K:
        case GEM_PANEL_Q6_K:
            row_k(t, panel, row, dst);
            break;
        default:
            row_legacy(t, panel, row, dst);
        }
    }
}
