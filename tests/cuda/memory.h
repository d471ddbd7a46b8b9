/* memory.h - bytes that the device has given away and that this process holds, for the programs
 * here that watch them. */
#ifndef GEM_TEST_CUDA_MEMORY_H
#define GEM_TEST_CUDA_MEMORY_H

#include "base/base.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef GEM_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

/* All that is not free on the device, whoever took it; 0 on another backend than cuda. The first
 * call makes the device's context. */
static inline int64_t device_bytes(const char *backend)
{
    int64_t used = 0;
#ifdef GEM_HAVE_CUDA
    size_t left = 0, all = 0;
    if (backend && !strcmp(backend, "cuda") && !cudaMemGetInfo(&left, &all))
        used = (int64_t)(all - left);
#endif
    (void)backend;
    return used;
}

/* Resident memory that is no page of a file, once malloc has let go of what was freed; 0 where the
 * system does not say. */
static inline int64_t host_bytes(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return (int64_t)gem_process_bytes("RssAnon");
}

#endif
