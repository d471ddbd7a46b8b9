/* slow_build.h - whether this is a build with sanitizers, in which time counts: there a test takes
 * fewer of the same cases. The release build takes them all. */
#ifndef GEM_TEST_SLOW_BUILD_H
#define GEM_TEST_SLOW_BUILD_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW_BUILD = 1 };
#else
enum { SLOW_BUILD = 0 };
#endif

#endif
