/* rows_avx2.c - the row-wise ops of simd/rows.h on AVX2 + FMA + F16C. */
#include "backend/cpu/simd/vec_avx2.h"

#include "backend/cpu/simd/rows.h"

void gem_rows_kernels_avx2(gem_cpu_kernels *t)
{
    rows_kernels_simd(t);
}
