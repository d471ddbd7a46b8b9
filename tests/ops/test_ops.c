/* test_ops.c - every kernel slot of every instruction set this CPU has, against the scalar
 * reference. usage: test_ops [LABEL]   run only the cases whose label contains LABEL
 * GEM_CPU_ISA=name restricts the run to one instruction set; unknown here: exit 77 (skipped).
 * GEM_OPS_EVERY=n runs each n-th case only: for emulators. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    gem_cpu_kernels ref, table;
    gem_cpu_isa isa[8];
    gem_error err;
    const char *only = getenv("GEM_CPU_ISA"), *every = getenv("GEM_OPS_EVERY");
    int n = gem_cpu_isas(isa, 8), n_run = 0, n_failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    gem_cpu_kernels_ref(&ref);
    for (int i = 0; i < n; i++) {
        if (!isa[i].usable || (only && strcmp(only, isa[i].name) != 0)) continue;
        if (gem_cpu_kernels_get(&table, isa[i].name, &err) != GEM_OK) {
            printf("FAIL %s: %s\n", isa[i].name, err.text);
            return 1;
        }
        check c = {.ref = &ref, .isa = &table, .program = argv[0]};
        c.filter = argc > 1 ? argv[1] : NULL;
        c.every = every && atoi(every) > 0 ? atoi(every) : 1;
        ops_linear(&c);
        ops_rows(&c);
        ops_attend(&c);
        ops_delta(&c);
        check_end(&c);
        printf("%s: %d cases, %d failed\n", isa[i].name, c.n_cases, c.n_failed);
        n_failed += c.n_failed;
        n_run++;
    }
    if (n_run == 0) {
        printf("skipped: this CPU has no %s\n", only);
        return 77;
    }
    return n_failed != 0;
}
