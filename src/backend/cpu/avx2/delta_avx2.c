/* delta_avx2.c - short convolution and delta rule of simd/delta.h on AVX2 + FMA. */
#include "backend/cpu/simd/vec_avx2.h"

#include "backend/cpu/simd/delta.h"

void gem_delta_kernels_avx2(gem_cpu_kernels *t)
{
    delta_kernels_simd(t);
}
