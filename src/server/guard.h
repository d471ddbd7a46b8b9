/* guard.h - who may ask: Host, Origin and keys. Pure functions, so that tests can ask them too. */
#ifndef GEM_GUARD_H
#define GEM_GUARD_H

#include "base/base.h"

/* "127.0.0.1", "127.9.9.9:80", "[::1]:8080", "LocalHost." and the names of a comma-separated list
 * (may be NULL), any port. */
bool gem_guard_host(const char *host, const char *allowed);
/* One of the comma-separated origins; the word localhost allows every port of a loopback name. */
bool gem_guard_origin(const char *origin, const char *allowed);
/* Does the origin name this very server, as its Host header does? */
bool gem_guard_same(const char *origin, const char *host);

void gem_guard_digest(const char *key, size_t len, uint8_t out[32]);
/* Constant time in the key's content. */
bool gem_guard_key(const char *key, size_t len, const uint8_t (*digest)[32], size_t n);

#endif
