/* cpu_time.h - bounds on time in tests: the processor's, so that other work on the machine fails
 * none. */
#ifndef GEM_TEST_CPU_TIME_H
#define GEM_TEST_CPU_TIME_H

#include <time.h>

/* Processor time of this process, all threads. */
static inline double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

#endif
