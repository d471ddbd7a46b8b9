/* panel.h - R16K4, the weight layout of the CPU backend, and the 8-bit activation rows it meets.
 *
 * A weight of M rows is cut into panels of 16 rows (the last one padded with zero rows). Inside a
 * panel, k runs in groups of 4; group j of a block of 32 k is one 64-byte vector: byte 4*r + e
 * holds row r, element 4*j + e. So a 32-bit lane is one row's 4 elements: the unit of every int8
 * dot-product instruction (vpdpbusd, vpmaddubsw + vpmaddwd, sdot), and a row never leaves its lane:
 * no horizontal sums, and one f32 chain per (row, token) whatever the ISA, batch or thread.
 *
 * Bytes of one unit (16 rows x 32 k for the legacy types, 16 rows x 256 k for K types), in order:
 *   Q8_0   544  16 f16 d | 8 vectors of q + 128
 *   Q4_0   288  16 f16 d | 4 lines of nibbles: low = group j, high = group j + 4
 *   Q4_1   320  16 f16 d | 16 f16 m | 4 lines of nibbles
 *   Q5_0   352  16 f16 d | 5 lines of five bits
 *   Q5_1   384  16 f16 d | 16 f16 m | 5 lines of five bits
 *   Q4_K  2368  16 f16 d | 16 f16 dmin | 8x16 scale bytes | 8x16 min bytes | 8 x 4 lines of nibbles
 *   Q5_K  2880  the same, with 8 x 5 lines of five bits
 *   Q6_K  3360  16 f16 d | 8 x (16 int8 scales of the first 16 k, 16 of the second, 6 lines of six
 *               bits)
 *   F32 / F16 / BF16: [k][16] values
 * A line is one vector of 64 bytes. Same size as the GGUF blocks but for Q4_K and Q5_K, whose 6-bit
 * scales become bytes (+2.8 %, +2.3 %).
 *
 * Lines of five bits a..e hold groups 0 1 2 4 5 in their low 5 bits. Their upper 3 bits hold, low
 * bits first: a 3 of group 3; b 2 more of group 3, then bit 3 of group 7; c 3 of group 7; d 3 of
 * group 6; e 2 more of group 6, then bit 4 of group 7. Lines of six bits a..f hold groups 0 1 2 4 5
 * 6 in their low 6 bits; the upper 2 of a, b, c are group 3, of d, e, f group 7, low bits first. So
 * most groups cost one `and`.
 *
 * Canonical arithmetic (all ISAs, bit for bit), blocks b of 32 k ascending, t exact int32:
 *   Q4_0 Q5_0 Q8_0   acc = fma(t, d*xs, acc)
 *   Q4_1 Q5_1        acc = fma(fma(m, xsum, d*t), xs, acc)
 *   Q4_K Q5_K        acc = fma(fma(-(dmin*min), xsum, (d*scale)*t), xs, acc)
 *   Q6_K             acc = fma(fma(d*sc1, t1, (d*sc0)*t0), xs, acc)
 *   F32 F16 BF16     acc = acc + c, c = chain of fma over the block's 32 k from 0 (the last may be
 * shorter) with t over the signed quants (offset removed), xs and xsum of the activation block. */
#ifndef GEM_CPU_PANEL_H
#define GEM_CPU_PANEL_H

#include "quant/quant.h"

enum { GEM_PANEL_ROWS = 16, GEM_QBLOCK = 32 };

typedef enum gem_panel_type {
    GEM_PANEL_Q4_0,
    GEM_PANEL_Q4_1,
    GEM_PANEL_Q5_0,
    GEM_PANEL_Q5_1,
    GEM_PANEL_Q8_0,
    GEM_PANEL_Q4_K,
    GEM_PANEL_Q5_K,
    GEM_PANEL_Q6_K,
    GEM_N_QPANELS, /* quantised ones end here */
    GEM_PANEL_F32 = GEM_N_QPANELS,
    GEM_PANEL_F16,
    GEM_PANEL_BF16,
    GEM_N_PANELS
} gem_panel_type;

gem_panel_type gem_panel_type_of(gem_dtype t);
/* Bytes of one panel of K columns, rounded up to 64. */
size_t gem_panel_bytes(gem_panel_type t, int64_t k);
/* Pack rows [row0, row0 + 16) of a tensor (rows behind n_rows are zero) into one panel. */
void gem_panel_pack(gem_panel_type t, const uint8_t *rows, size_t row_bytes, int64_t n_rows,
                    int64_t row0, int64_t k, uint8_t *panel);
/* Dequantise one row of a panel: the inverse, equal to gem_dequantize_row of the packed row. */
void gem_panel_row(gem_panel_type t, const uint8_t *panel, int row, int64_t k, float *dst);

/* Activation rows in int8, blocks of 32 with an f32 scale: a = max|x|, xs = a/127, q =
 * rint(x*(127/a)), all 0 when a is 0. Row r starts at q + r*ld, xs + r*ld/32, ... (ld: a multiple
 * of 32). */
typedef struct gem_qrows {
    int8_t *q;
    float *xs;
    float *xsum;     /* (float) sum of a block's q */
    int32_t *nsum;   /* -(sum of a block's q) */
    int32_t *nsum16; /* the same of each half block: [ld/16] a row */
    size_t ld;
} gem_qrows;
static inline gem_qrows gem_qrows_at(const gem_qrows *x, size_t row)
{
    gem_qrows r = {
        x->q + row * x->ld,           x->xs + row * (x->ld / 32),     x->xsum + row * (x->ld / 32),
        x->nsum + row * (x->ld / 32), x->nsum16 + row * (x->ld / 16), x->ld};
    return r;
}

#endif
