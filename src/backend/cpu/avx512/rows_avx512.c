/* rows_avx512.c - the row-wise ops of simd/rows.h on AVX-512. */
#include "backend/cpu/simd/vec_avx512.h"

#include "backend/cpu/simd/rows.h"

void gem_rows_kernels_avx512(gem_cpu_kernels *t)
{
    rows_kernels_simd(t);
}
