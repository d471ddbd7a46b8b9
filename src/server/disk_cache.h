/* disk_cache.h - prefixes that outlive the process: what the prefix cache remembers is also written
 * to a folder, and read back when a prompt begins with more of it than memory holds.
 *
 * The engine thread asks and tells; a writer thread and a reader thread do the work, so neither a
 * slow disk nor a digest holds up a batch. A text's positions lie in a chain of files, each holding
 * what its parent lacks (disk_file.h), so a conversation that grows by a turn costs the turn. Every
 * token of a prompt is compared with the files' own before pages are taken. Files go least recently
 * used first when the size is reached; one process at a time uses a folder. */
#ifndef GEM_DISK_CACHE_H
#define GEM_DISK_CACHE_H

#include "base/base.h"

typedef struct gem_server gem_server;
typedef struct gem_disk_cache gem_disk_cache;
typedef struct gem_disk_fetch gem_disk_fetch;

/* Make the folder (mode 0700) where there is none, and lock it. The server is borrowed.
 * errors  GEM_E_IO  the folder cannot be used, or another process uses it; GEM_E_NOMEM */
gem_status gem_disk_cache_open(gem_disk_cache **out, gem_server *s, const char *dir,
                               uint64_t max_bytes, gem_error *err);
/* The model is open: look through the files, remove those that do not fit (one log line a reason),
 * start the threads. */
gem_status gem_disk_cache_start(gem_disk_cache *d, gem_model *m, gem_error *err);
/* Write what waits, for at most this long, and end the threads. Before the model is closed. */
void gem_disk_cache_stop(gem_disk_cache *d, double seconds);
void gem_disk_cache_free(gem_disk_cache *d); /* after stop; may be NULL */

/* ---- engine thread; d may be NULL ---- */

/* Remember the session, which holds exactly tokens[n]. Never waits; drops the oldest that waits
 * when the disk cannot keep up. */
void gem_disk_cache_save(gem_disk_cache *d, const gem_session *s, const int32_t *tokens, size_t n);
/* A slice of the engine's share: one recurrent state copied. False: nothing is left to do. */
bool gem_disk_cache_step(gem_disk_cache *d);
/* Give up a save that waits or runs, for its pages; false: there is none. */
bool gem_disk_cache_yield(gem_disk_cache *d);

/* How many of tokens[n], at most n - 1, a fetch would bring. */
size_t gem_disk_cache_match(gem_disk_cache *d, const int32_t *tokens, size_t n);
/* Bring a session at position 0 to what gem_disk_cache_match said, in the background; tokens are
 * borrowed until the fetch is freed. *st GEM_E_NOMEM: there are no free pages now. NULL: cannot. */
gem_disk_fetch *gem_disk_cache_fetch(gem_disk_cache *d, gem_session *s, const int32_t *tokens,
                                     size_t n, gem_status *st);
typedef enum gem_disk_state { GEM_DISK_RUNNING, GEM_DISK_DONE, GEM_DISK_FAILED } gem_disk_state;
/* Look at it, and take a slice of its end. DONE: the session holds the tokens. FAILED: it is at
 * position 0 again. */
gem_disk_state gem_disk_fetch_poll(gem_disk_fetch *f);
/* At any time; before the session is freed. */
void gem_disk_fetch_free(gem_disk_fetch *f);

#endif
