/* table_avx2.c - what AVX2 + FMA + F16C improves on the scalar table. */
#include "backend/cpu/kernels.h"

void gem_cpu_kernels_avx2(gem_cpu_kernels *t)
{
    t->isa = "avx2";
    gem_linear_kernels_avx2(t);
    gem_token_kernels_avx2(t);
    gem_float_kernels_avx2(t);
    gem_rows_kernels_avx2(t);
    gem_attend_kernels_avx2(t);
    gem_delta_kernels_avx2(t);
}
