/* seed.c - the pattern; see seed.h. */
#include "backend/seed.h"

void gem_seed_pattern(uint64_t seed, float *out)
{
    static const float step = 0x1p-8f;
    uint64_t x = seed * 2 + 1;
    for (int i = 0; i < GEM_SEED_PATTERN; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int v = (int)(x >> 56) - 128;
        out[i] = x >> 40 & 7 ? 0.0f : (float)v * step;
    }
}
