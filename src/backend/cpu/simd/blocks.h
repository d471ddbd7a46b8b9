/* blocks.h - where the parts of a 32-k block lie in a quantised panel (layout: panel.h), and what a
 * column brings to it. Shared by the linear kernels of wide ISAs; `t` is a constant at every call.
 */
#ifndef GEM_CPU_BLOCKS_H
#define GEM_CPU_BLOCKS_H

#include "backend/cpu/kernels.h"

#define BLOCKS_INLINE static inline __attribute__((always_inline))

typedef struct panel_block {
    const uint8_t *unit; /* starts with 16 f16 d; then 16 f16 minima or dmin, where there are any */
    const uint8_t *vec;  /* 4 lines of nibbles, 5 of five bits, 6 of six bits, 8 of bytes (Q8_0) */
    const uint8_t *scale; /* K types: 16 scale bytes of this block (Q6_K: 16 + 16) */
    const uint8_t *min;   /* Q4_K, Q5_K: 16 minimum bytes */
} panel_block;

BLOCKS_INLINE bool panel_has_min(gem_panel_type t)
{
    return t == GEM_PANEL_Q4_1 || t == GEM_PANEL_Q5_1 || t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K;
}

BLOCKS_INLINE bool panel_is_five(gem_panel_type t)
{
    return t == GEM_PANEL_Q5_0 || t == GEM_PANEL_Q5_1 || t == GEM_PANEL_Q5_K;
}

/* Blocks of one unit: they share d. */
BLOCKS_INLINE int panel_unit_blocks(gem_panel_type t)
{
    return t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K || t == GEM_PANEL_Q6_K ? 8 : 1;
}

/* Lines of 64 bytes that hold a block's weights. */
BLOCKS_INLINE int panel_lines(gem_panel_type t)
{
    return t == GEM_PANEL_Q8_0 ? 8 : t == GEM_PANEL_Q6_K ? 6 : panel_is_five(t) ? 5 : 4;
}

/* Bytes of a block, its part of the unit's scales included. */
BLOCKS_INLINE size_t panel_block_bytes(gem_panel_type t)
{
    static const uint16_t bytes[GEM_N_QPANELS] = {
        [GEM_PANEL_Q4_0] = 288,      [GEM_PANEL_Q4_1] = 320,      [GEM_PANEL_Q5_0] = 352,
        [GEM_PANEL_Q5_1] = 384,      [GEM_PANEL_Q8_0] = 544,      [GEM_PANEL_Q4_K] = 2368 / 8,
        [GEM_PANEL_Q5_K] = 2880 / 8, [GEM_PANEL_Q6_K] = 3360 / 8,
    };
    return bytes[t];
}

BLOCKS_INLINE panel_block panel_block_at(gem_panel_type t, const uint8_t *panel, int64_t b)
{
    panel_block r = {0};
    if (t == GEM_PANEL_Q6_K) {
        r.unit = panel + b / 8 * 3360;
        r.scale = r.unit + 32 + b % 8 * 416;
        r.vec = r.scale + 32;
    } else if (t == GEM_PANEL_Q4_K || t == GEM_PANEL_Q5_K) {
        const int step = t == GEM_PANEL_Q5_K ? 320 : 256;
        r.unit = panel + b / 8 * (320 + 8 * step);
        r.scale = r.unit + 64 + b % 8 * 16;
        r.min = r.scale + 128;
        r.vec = r.unit + 320 + b % 8 * step;
    } else {
        r.unit = panel + (size_t)b * panel_block_bytes(t);
        r.vec = r.unit + (panel_has_min(t) ? 64 : 32);
    }
    return r;
}

/* One column of activations. */
typedef struct block_column {
    const int8_t *q;
    const float *xs, *xsum;
    const int32_t *nsum, *nsum16;
} block_column;

BLOCKS_INLINE block_column block_column_at(const gem_qrows *x, size_t c)
{
    gem_qrows r = gem_qrows_at(x, c);
    return (block_column){r.q, r.xs, r.xsum, r.nsum, r.nsum16};
}

#endif
