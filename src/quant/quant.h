/* quant.h - GGUF tensor types: block layouts and the scalar dequantise/quantise that every kernel
 * is judged by. Layouts: docs/formats.md. Callers: gguf (sizes), backends (packers, exact mode),
 * synth. */
#ifndef GEM_QUANT_H
#define GEM_QUANT_H

#include "base/base.h"

/* Values are the type ids of the GGUF file format. */
typedef enum gem_dtype {
    GEM_DTYPE_F32 = 0,
    GEM_DTYPE_F16 = 1,
    GEM_DTYPE_Q4_0 = 2,
    GEM_DTYPE_Q4_1 = 3,
    GEM_DTYPE_Q5_0 = 6,
    GEM_DTYPE_Q5_1 = 7,
    GEM_DTYPE_Q8_0 = 8,
    GEM_DTYPE_Q4_K = 12,
    GEM_DTYPE_Q5_K = 13,
    GEM_DTYPE_Q6_K = 14,
    GEM_DTYPE_BF16 = 30
} gem_dtype;

typedef struct gem_dtype_info {
    gem_dtype dtype;
    const char *name;   /* "Q4_K" */
    uint32_t block_len; /* elements a block */
    uint32_t block_bytes;
} gem_dtype_info;
/* NULL for an id gem does not know. */
const gem_dtype_info *gem_dtype_get(uint32_t id);
/* Table of all supported types, ends with name == NULL. */
extern const gem_dtype_info gem_dtypes[];
/* By name, any case ("q4_k", "Q4_0"); NULL when unknown. */
const gem_dtype_info *gem_dtype_by_name(const char *name);

/* Bytes of a row of n elements; false when n is no multiple of the block or the product overflows.
 */
bool gem_dtype_row_bytes(const gem_dtype_info *t, uint64_t n, size_t *bytes);

/* Exact dequantisation of n elements (a multiple of block_len): f32 products in the order of
 * docs/formats.md, no contraction. */
void gem_dequantize_row(gem_dtype t, const void *src, float *dst, size_t n);
/* Reference quantisation: round to nearest on the format's own grid (K types: least-squares
 * search). */
void gem_quantize_row(gem_dtype t, const float *src, void *dst, size_t n);

float gem_f16_to_f32(uint16_t h);
uint16_t gem_f32_to_f16(float f); /* round to nearest even; overflow gives infinity */
float gem_bf16_to_f32(uint16_t h);
uint16_t gem_f32_to_bf16(float f);

/* Unpack the 6-bit scale and minimum of sub-block b (0..7) of a Q4_K/Q5_K scale field. */
static inline void gem_k4_scale_min(const uint8_t *s, int b, uint8_t *scale, uint8_t *min)
{
    if (b < 4) {
        *scale = s[b] & 63;
        *min = s[b + 4] & 63;
    } else {
        *scale = (uint8_t)((s[b + 4] & 15) | (s[b - 4] >> 6) << 4);
        *min = (uint8_t)((s[b + 4] >> 4) | (s[b] >> 6) << 4);
    }
}

#endif
