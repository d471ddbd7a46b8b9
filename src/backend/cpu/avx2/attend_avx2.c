/* attend_avx2.c - simd/attend.h on AVX2 + FMA + F16C: blocks of 6 rows x 16 keys or dims, 12
 * chains. */
#include "backend/cpu/simd/vec_avx2.h"

#include "backend/cpu/simd/attend.h"

void gem_attend_kernels_avx2(gem_cpu_kernels *t)
{
    t->attend = attend_simd;
    t->keys = keys_simd;
}
