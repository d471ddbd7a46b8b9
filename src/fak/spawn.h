/* spawn.h - run another program with a text on its standard input and take its standard output. */
#ifndef GEM_FAK_SPAWN_H
#define GEM_FAK_SPAWN_H

#include "base/base.h"

/* argv NULL-terminated, found through PATH; its standard error is dropped. Its exit status, or -1
 * when it could not run, was killed, or wrote more than limit bytes. */
int fak_spawn(char *const argv[], const void *input, size_t input_len, gem_bytes *out,
              size_t limit);

#endif
