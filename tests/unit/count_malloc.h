/* count_malloc.h - counts the allocations of the test program it is included in: malloc, calloc and
 * realloc are defined here and pass on to glibc's own. Not under sanitizers, which bring their own.
 */
#ifndef GEM_COUNT_MALLOC_H
#define GEM_COUNT_MALLOC_H

#include <stdatomic.h>
#include <stdlib.h> /* also says whether this is glibc */

#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BRINGS_ITS_OWN_MALLOC 1
#endif
#endif
#if defined(__GLIBC__) && !defined(BRINGS_ITS_OWN_MALLOC) && !defined(__SANITIZE_ADDRESS__) &&     \
    !defined(__SANITIZE_THREAD__)
#define COUNTS_MALLOC 1
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t m);
extern void *__libc_realloc(void *p, size_t n);
static atomic_size_t n_allocations;
void *malloc(size_t n)
{
    n_allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    n_allocations++;
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    n_allocations++;
    return __libc_realloc(p, n);
}
#endif

#endif
