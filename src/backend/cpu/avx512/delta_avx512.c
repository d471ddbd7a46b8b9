/* delta_avx512.c - short convolution and delta rule of simd/delta.h on AVX-512. */
#include "backend/cpu/simd/vec_avx512.h"

#include "backend/cpu/simd/delta.h"

void gem_delta_kernels_avx512(gem_cpu_kernels *t)
{
    delta_kernels_simd(t);
}
