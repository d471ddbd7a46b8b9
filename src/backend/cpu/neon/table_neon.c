/* table_neon.c - what NEON with the dot-product extension improves on the scalar table: all of it.
 */
#include "backend/cpu/kernels.h"

void gem_cpu_kernels_neon(gem_cpu_kernels *t)
{
    t->isa = "neon";
    gem_linear_kernels_neon(t);
    gem_rows_kernels_neon(t);
    gem_attend_kernels_neon(t);
    gem_delta_kernels_neon(t);
}
