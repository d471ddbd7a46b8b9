/* delta_neon.c - short convolution and delta rule of simd/delta.h on AArch64 NEON. */
#include "backend/cpu/simd/vec_neon.h"

#include "backend/cpu/simd/delta.h"

void gem_delta_kernels_neon(gem_cpu_kernels *t)
{
    delta_kernels_simd(t);
}
