/* blocks.c - random numbers straight in the block formats: random quants, scales spread by a
 * quarter around their mean, random signs where a format has signed scales. Nothing is quantised,
 * so a run costs little more than its random bytes. Only +, -, *, / and sqrt are used: the same
 * bits everywhere. */
#include "cmd/synth_model/synth.h"

#include <math.h>

/* ---- streams ---- */

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

void synth_rng_seed(synth_rng *r, uint64_t seed, const char *name, uint64_t run)
{
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a of the name */
    for (const char *p = name; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001B3u;
    uint64_t x = gem_splitmix64(&seed) ^ h;
    x = gem_splitmix64(&x) ^ run;
    for (int i = 0; i < 4; i++)
        r->s[i] = gem_splitmix64(&x);
}

uint64_t synth_rng_next(synth_rng *r)
{
    uint64_t *s = r->s, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

static void random_bytes(synth_rng *r, uint8_t *out, size_t n)
{
    synth_rng local = *r; /* in registers */
    for (; n >= 8; n -= 8, out += 8) {
        uint64_t v = synth_rng_next(&local);
        memcpy(out, &v, 8);
    }
    uint64_t v = n ? synth_rng_next(&local) : 0;
    memcpy(out, &v, n);
    *r = local;
}

/* ---- scales ---- */

/* Halves base * f for f = 0.75, 0.75 + 1/512, ... below 1.25. */
static void scale_table(uint16_t table[256], double base)
{
    for (int i = 0; i < 256; i++)
        table[i] = gem_f32_to_f16((float)(base * (0.75 + i / 512.0)));
}

/* Mean square of f. */
static double scale_square(void)
{
    double sum = 0;
    for (int i = 0; i < 256; i++)
        sum += (0.75 + i / 512.0) * (0.75 + i / 512.0);
    return sum / 256;
}

static void put_half(uint8_t *p, uint16_t h)
{
    memcpy(p, &h, sizeof(h));
}

/* ---- blocks ----
 * `square` is the mean square of a weight whose scale d is 1; d then has mean std / sqrt(square).
 */

/* d * (q - middle), d of random sign because the grid is not symmetric */
static void fill_centred(synth_rng *r, uint8_t *b, size_t n, size_t block_bytes, double std,
                         double square)
{
    uint16_t d[256];
    scale_table(d, std / sqrt(square * scale_square()));
    for (size_t i = 0; i < n; i++, b += block_bytes) {
        uint64_t v = synth_rng_next(r);
        put_half(b, (uint16_t)(d[v & 255] | (v >> 8 & 1) << 15));
    }
}

/* d * q + m with m = -d * middle */
static void fill_offset(synth_rng *r, uint8_t *b, size_t n, size_t block_bytes, double std,
                        double square, double middle)
{
    uint16_t d[256], m[256];
    double base = std / sqrt(square * scale_square());
    scale_table(d, base);
    scale_table(m, base * middle);
    for (size_t i = 0; i < n; i++, b += block_bytes) {
        uint64_t v = synth_rng_next(r);
        uint16_t sign = (uint16_t)((v >> 8 & 1) << 15);
        put_half(b, d[v & 255] | sign);
        put_half(b + 2, (uint16_t)(m[v & 255] | (sign ^ 0x8000u)));
    }
}

static void fill_q8_0(synth_rng *r, uint8_t *b, size_t n, double std)
{
    fill_centred(r, b, n, 34, std, 5460.5);
    for (size_t i = 0; i < n; i++, b += 34)
        for (int j = 2; j < 34; j++)
            if (b[j] == 0x80) b[j] = 0x81; /* quantisers never give -128 */
}

/* d * scale * (q - 32), scales +-32..95 */
static void fill_q6_k(synth_rng *r, uint8_t *b, size_t n, double std)
{
    uint16_t d[256];
    double square = 0;
    for (int i = 32; i < 96; i++)
        square += i * i / 64.0;
    scale_table(d, std / sqrt(341.5 * square * scale_square()));
    for (size_t i = 0; i < n; i++, b += 210) {
        for (int j = 192; j < 208; j++) {
            int magnitude = 32 + (b[j] & 63);
            b[j] = (uint8_t)(int8_t)(b[j] & 128 ? -magnitude : magnitude);
        }
        put_half(b + 208, d[synth_rng_next(r) & 255]);
    }
}

/* d * scale * q - dmin * min; scales 16..63, minima within 4 of them, dmin = d * middle: near
 * centred */
static void fill_q45_k(synth_rng *r, uint8_t *b, size_t n, size_t block_bytes, double std,
                       int levels)
{
    uint16_t d[256], dmin[256];
    double middle = (levels - 1) / 2.0, square = 0;
    for (int i = 16; i < 64; i++)
        square += i * i / 48.0;
    square = (levels * levels - 1) / 12.0 * square + middle * middle * 60.0 / 9.0;
    double base = std / sqrt(square * scale_square());
    scale_table(d, base);
    scale_table(dmin, base * middle);
    for (size_t i = 0; i < n; i++, b += block_bytes) {
        uint8_t sc[8], mn[8];
        uint64_t x = synth_rng_next(r), y = synth_rng_next(r), v = synth_rng_next(r);
        for (int s = 0; s < 8; s++) {
            sc[s] = (uint8_t)(16 + (x >> 8 * s & 255) * 48 / 256);
            int m = sc[s] + (int)((y >> 8 * s & 255) * 9 / 256) - 4;
            mn[s] = (uint8_t)GEM_MIN(m, 63);
        }
        for (int s = 0; s < 4; s++) {
            b[4 + s] = (uint8_t)(sc[s] | (sc[s + 4] >> 4) << 6);
            b[8 + s] = (uint8_t)(mn[s] | (mn[s + 4] >> 4) << 6);
            b[12 + s] = (uint8_t)((sc[s + 4] & 15) | (mn[s + 4] & 15) << 4);
        }
        put_half(b, d[v & 255]);
        put_half(b + 2, dmin[v & 255]);
    }
}

/* Sum of four uniform numbers: near Gaussian. The variance of one in 0..65535 is (2^32 - 1) / 12.
 */
static float near_gaussian(synth_rng *r, float scale)
{
    uint64_t v = synth_rng_next(r);
    int32_t sum = (int32_t)((v & 0xFFFF) + (v >> 16 & 0xFFFF) + (v >> 32 & 0xFFFF) + (v >> 48));
    return (float)(sum - 131070) * scale;
}

static void fill_plain(synth_rng *r, gem_dtype t, uint8_t *b, size_t n, double std)
{
    float scale = (float)(std / sqrt(4.0 * 4294967295.0 / 12.0));
    for (size_t i = 0; i < n; i++) {
        float f = near_gaussian(r, scale);
        if (t == GEM_DTYPE_F32)
            memcpy(b + 4 * i, &f, 4);
        else
            put_half(b + 2 * i, t == GEM_DTYPE_F16 ? gem_f32_to_f16(f) : gem_f32_to_bf16(f));
    }
}

static void fill_vector(synth_rng *r, const synth_tensor *t, uint8_t *b, size_t n)
{
    if (t->fill == SYNTH_QUARTER) {
        for (size_t i = 0; i < n; i++) {
            float f = i < n / 4 ? 1.0f : 1e30f;
            memcpy(b + 4 * i, &f, 4);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = synth_rng_next(r);
        float u = (float)(v >> 40) * 0x1p-24f;
        float f = t->scale * (t->fill == SYNTH_BIAS     ? 2.0f * u - 1.0f
                              : t->fill == SYNTH_SCALAR ? 0.87f + 0.26f * u
                              : t->fill == SYNTH_DECAY  ? -1.0f + 0.96875f * u
                              : t->fill == SYNTH_STEP   ? -6.9f + 4.6f * u
                                                        : 0.6f + 0.8f * u);
        if (t->fill == SYNTH_SIGNED && v & 1) f = -f;
        memcpy(b + 4 * i, &f, 4);
    }
}

/* ---- runs ---- */

size_t synth_run_blocks(const synth_tensor *t)
{
    return SYNTH_RUN_BYTES / gem_dtype_get((uint32_t)t->dtype)->block_bytes;
}

static uint64_t n_blocks(const synth_tensor *t)
{
    return t->dim[0] / gem_dtype_get((uint32_t)t->dtype)->block_len * t->dim[1];
}

uint64_t synth_n_runs(const synth_tensor *t)
{
    return (n_blocks(t) + synth_run_blocks(t) - 1) / synth_run_blocks(t);
}

size_t synth_fill_run(const synth_tensor *t, uint64_t seed, uint64_t run, uint8_t *out)
{
    synth_rng r;
    size_t each = gem_dtype_get((uint32_t)t->dtype)->block_bytes;
    uint64_t first = run * synth_run_blocks(t);
    size_t n = (size_t)GEM_MIN(synth_run_blocks(t), n_blocks(t) - first);
    double std = (double)t->scale;
    synth_rng_seed(&r, seed, t->name, run);
    if (t->fill == SYNTH_TAPS) {
        fill_plain(&r, t->dtype, out, n, std);
        return n * each;
    }
    if (t->fill != SYNTH_MATRIX) {
        fill_vector(&r, t, out, n);
        return n * each;
    }
    if (gem_dtype_get((uint32_t)t->dtype)->block_len > 1) random_bytes(&r, out, n * each);
    switch (t->dtype) {
    case GEM_DTYPE_F32:
    case GEM_DTYPE_F16:
    case GEM_DTYPE_BF16:
        fill_plain(&r, t->dtype, out, n, std);
        break;
    case GEM_DTYPE_Q4_0:
        fill_centred(&r, out, n, each, std, 21.5);
        break;
    case GEM_DTYPE_Q5_0:
        fill_centred(&r, out, n, each, std, 85.5);
        break;
    case GEM_DTYPE_Q4_1:
        fill_offset(&r, out, n, each, std, 21.25, 7.5);
        break;
    case GEM_DTYPE_Q5_1:
        fill_offset(&r, out, n, each, std, 85.25, 15.5);
        break;
    case GEM_DTYPE_Q8_0:
        fill_q8_0(&r, out, n, std);
        break;
    case GEM_DTYPE_Q4_K:
        fill_q45_k(&r, out, n, each, std, 16);
        break;
    case GEM_DTYPE_Q5_K:
        fill_q45_k(&r, out, n, each, std, 32);
        break;
    case GEM_DTYPE_Q6_K:
        fill_q6_k(&r, out, n, std);
        break;
    }
    return n * each;
}
