/* rows_neon.c - the row-wise ops of simd/rows.h on NEON. */
#include "backend/cpu/simd/vec_neon.h"

#include "backend/cpu/simd/rows.h"

void gem_rows_kernels_neon(gem_cpu_kernels *t)
{
    rows_kernels_simd(t);
}
