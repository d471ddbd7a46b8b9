/* base.h - what every room may use: errors, checked sizes, bytes, UTF-8, clock, digests, files.
 * Depends on libc, OpenSSL (SHA-256) and nothing of gem above it. */
#ifndef GEM_BASE_H
#define GEM_BASE_H

#include "gem/gem.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define GEM_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GEM_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Write one sentence into err (may be NULL) and return st. */
gem_status gem_fail(gem_error *err, gem_status st, const char *fmt, ...) GEM_PRINTF(3, 4);

/* Log through a callback that may be NULL. */
typedef struct gem_log {
    gem_log_fn fn;
    void *user;
} gem_log;
void gem_logf(const gem_log *log, gem_log_level level, const char *fmt, ...) GEM_PRINTF(3, 4);

static inline bool gem_text_ends(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* Sizes that came from outside are added and multiplied with these; false on overflow. */
static inline bool gem_mul_ok(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool gem_add_ok(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
/* SplitMix64: the next number of a stream; any state is a good seed. Steele, Lea, Flood, "Fast
 * splittable pseudorandom number generators", OOPSLA 2014. */
static inline uint64_t gem_splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static inline uint64_t gem_round_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* ---- bytes: a growing buffer ---- */
typedef struct gem_bytes {
    char *data; /* owned; always NUL-terminated once anything was put */
    size_t len, cap;
    bool failed; /* an allocation failed: contents are incomplete */
} gem_bytes;
void gem_bytes_put(gem_bytes *b, const void *data, size_t len);
void gem_bytes_printf(gem_bytes *b, const char *fmt, ...) GEM_PRINTF(2, 3);
void gem_bytes_free(gem_bytes *b);

/* ---- UTF-8 ---- */
/* Length of the valid character at s[0..n): 1..4; 0 when the bytes there are no valid character
 * (overlong forms, surrogates and > U+10FFFF are invalid). *cp gets the code point. */
int gem_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Bytes written to out[4]; cp must be a valid scalar value. */
int gem_utf8_encode(uint32_t cp, char *out);
/* Length of the longest prefix of s[0..n) that does not end inside a character that further bytes
 * could complete. */
size_t gem_utf8_complete(const char *s, size_t n);

/* ---- clock ---- */
uint64_t gem_now_ns(void); /* monotonic */

/* ---- SHA-256 ---- */
typedef struct gem_sha256 gem_sha256;
gem_sha256 *gem_sha256_new(void); /* NULL when out of memory */
void gem_sha256_update(gem_sha256 *h, const void *data, size_t len);
/* Lower-case hex with NUL into hex[65]; frees h. */
void gem_sha256_finish(gem_sha256 *h, char hex[65]);
gem_status gem_sha256_file(const char *path, char hex[65], gem_error *err);

/* ---- files ---- */
typedef struct gem_map {
    const uint8_t *data; /* read-only mapping; NULL for an empty file */
    size_t size;
} gem_map;
/* Map a regular file read-only. GEM_E_IO with the path and the system's reason. */
gem_status gem_map_open(gem_map *out, const char *path, gem_error *err);
void gem_map_close(gem_map *m);
/* Whole file into memory, NUL added behind it; at most max_bytes. The caller frees *data. */
gem_status gem_file_read(const char *path, size_t max_bytes, char **data, size_t *len, gem_error *err);
/* Write through a temporary name in the same folder and rename: never half a file. */
gem_status gem_file_write_atomic(const char *path, const void *data, size_t len, gem_error *err);

/* Bytes this process may still take without pushing others out or being killed: what the system
 * calls available, and what every memory cgroup above the process leaves, its page cache counted as
 * free. root: "" for this machine, or a folder with its /proc and /sys (tests). UINT64_MAX when
 * nothing is known. */
uint64_t gem_memory_available(const char *root);
/* A size of this process by its name in /proc/self/status ("VmRSS", "RssAnon"), in bytes; 0 where
 * the system does not say. */
uint64_t gem_process_bytes(const char *name);

/* Cores this process may use: affinity mask, capped by the cgroup CPU quota; at least 1. */
int gem_cpu_count(void);

#endif
