/* dtype.c - the tensor types of GGUF: names, block sizes, and the half-precision conversions. */
#include "quant/quant.h"

#include <strings.h>

const gem_dtype_info gem_dtypes[] = {
    {GEM_DTYPE_F32, "F32", 1, 4},       {GEM_DTYPE_F16, "F16", 1, 2},
    {GEM_DTYPE_BF16, "BF16", 1, 2},     {GEM_DTYPE_Q4_0, "Q4_0", 32, 18},
    {GEM_DTYPE_Q4_1, "Q4_1", 32, 20},   {GEM_DTYPE_Q5_0, "Q5_0", 32, 22},
    {GEM_DTYPE_Q5_1, "Q5_1", 32, 24},   {GEM_DTYPE_Q8_0, "Q8_0", 32, 34},
    {GEM_DTYPE_Q4_K, "Q4_K", 256, 144}, {GEM_DTYPE_Q5_K, "Q5_K", 256, 176},
    {GEM_DTYPE_Q6_K, "Q6_K", 256, 210}, {0, NULL, 0, 0},
};

const gem_dtype_info *gem_dtype_get(uint32_t id)
{
    for (const gem_dtype_info *t = gem_dtypes; t->name; t++)
        if ((uint32_t)t->dtype == id) return t;
    return NULL;
}

const gem_dtype_info *gem_dtype_by_name(const char *name)
{
    for (const gem_dtype_info *t = gem_dtypes; t->name; t++)
        if (strcasecmp(t->name, name) == 0) return t;
    return NULL;
}

bool gem_dtype_row_bytes(const gem_dtype_info *t, uint64_t n, size_t *bytes)
{
    if (n % t->block_len != 0) return false;
    uint64_t blocks = n / t->block_len;
    return blocks <= SIZE_MAX && gem_mul_ok((size_t)blocks, t->block_bytes, bytes);
}

static float bits_to_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static uint32_t f32_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

float gem_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 31u, mantissa = h & 0x3FFu;
    if (exponent == 31) return bits_to_f32(sign | 0x7F800000u | mantissa << 13);
    if (exponent != 0) return bits_to_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
    return bits_to_f32(sign | f32_to_bits(f));
}

uint16_t gem_f32_to_f16(float f)
{
    uint32_t u = f32_to_bits(f), sign = u >> 16 & 0x8000u, magnitude = u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) /* NaN stays one: quiet, with what fits of its payload */
        return (uint16_t)(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7C00u); /* 65536 and above */
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 the grid is fixed at 2^-24; adding 2^23 makes the FPU round to it. */
        float shifted = bits_to_f32(magnitude) * 0x1p24f + 0x1p23f;
        return (uint16_t)(sign | (f32_to_bits(shifted) & 0x7FFFFFu));
    }
    /* Round half to even on the 13 dropped bits; a carry goes into the exponent, up to infinity. */
    uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | rounded >> 13);
}

float gem_bf16_to_f32(uint16_t h)
{
    return bits_to_f32((uint32_t)h << 16);
}

uint16_t gem_f32_to_bf16(float f)
{
    uint32_t u = f32_to_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
