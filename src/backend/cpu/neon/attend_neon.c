/* attend_neon.c - simd/attend.h on NEON: blocks of 6 rows x 16 keys or dims, 24 chains. */
#include "backend/cpu/simd/vec_neon.h"

#include "backend/cpu/simd/attend.h"

void gem_attend_kernels_neon(gem_cpu_kernels *t)
{
    t->attend = attend_simd;
    t->keys = keys_simd;
}
