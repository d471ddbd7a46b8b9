/* attend_avx512.c - simd/attend.h on AVX-512: blocks of 8 rows x 32 keys or dims, 16 chains. */
#include "backend/cpu/simd/vec_avx512.h"

#include "backend/cpu/simd/attend.h"

void gem_attend_kernels_avx512(gem_cpu_kernels *t)
{
    t->attend = attend_simd;
    t->keys = keys_simd;
}
