/* table_neon.c - what NEON with the dot-product extension improves on the scalar table. */
#include "backend/cpu/kernels.h"

void gem_cpu_kernels_neon(gem_cpu_kernels *t)
{
    t->isa = "neon";
}
