/* table_avx512.c - what AVX-512 (F, BW, VL, DQ, VNNI) improves on the AVX2 table. */
#include "backend/cpu/kernels.h"

void gem_cpu_kernels_avx512(gem_cpu_kernels *t)
{
    gem_cpu_kernels_avx2(t);
    t->isa = "avx512";
}
