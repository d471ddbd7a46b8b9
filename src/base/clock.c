/* clock.c - the one clock of all measurements; apart from the files, so that kernels alone can link it. */
#include "base/base.h"

#include <time.h>

uint64_t gem_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
