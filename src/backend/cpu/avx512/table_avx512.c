/* table_avx512.c - what AVX-512 (F, BW, VL, DQ, VNNI) improves on the scalar table: all of it. */
#include "backend/cpu/kernels.h"

void gem_cpu_kernels_avx512(gem_cpu_kernels *t)
{
    t->isa = "avx512";
    gem_linear_kernels_avx512(t);
    gem_rows_kernels_avx512(t);
    gem_attend_kernels_avx512(t);
    gem_delta_kernels_avx512(t);
}
