/* disk_file.h - one file of the disk cache: a run of a prefix's positions, as parts of an image
 * (runtime/image.h). Knows the format and how to write a file whole or not at all; which files
 * there are is disk_cache.c's business.
 *
 * A file holds the positions [from, n) of one text; what lies before `from` is in its parent, which
 * may hold more than that. Layout, little-endian:
 *   8   "GEMKV01\n"
 *   32  fingerprint of model and build      32  key: SHA-256 of the tokens [0, n)
 *   32  key of the parent, zeros: none
 *   4   from, a multiple of GEM_PAGE        4   n
 *   4   number of parts                     4   zero
 *   4 * (n - from)  tokens                  8 * parts  layer (-1: recurrent state), index
 *   32  SHA-256 of all above
 *   parts, in order                         32  SHA-256 of the parts */
#ifndef GEM_DISK_FILE_H
#define GEM_DISK_FILE_H

#include "runtime/image.h"

typedef struct gem_disk_part {
    int32_t layer, index; /* as in gem_image_part */
} gem_disk_part;

typedef struct gem_disk_head {
    uint8_t fingerprint[32], key[32], parent[32];
    int32_t from, n;
    int32_t *tokens;     /* owned, [n - from] */
    gem_disk_part *part; /* owned, [n_parts] */
    size_t n_parts;
    uint64_t data_at, file_bytes; /* where the parts begin; the whole file */
} gem_disk_head;
void gem_disk_head_free(gem_disk_head *h); /* its arrays */

enum { GEM_DISK_NAME = 80 };
/* Name of a file in the cache's folder, from its key. */
void gem_disk_name(char out[GEM_DISK_NAME], const uint8_t key[32]);
/* SHA-256 of token ids as 32-bit little-endian numbers. False: no memory. */
bool gem_disk_digest(const int32_t *tokens, size_t n, uint8_t out[32]);
/* What restored pages depend on: the file's metadata, shapes, size, time and samples of every
 * tensor; this program; options that shape the numbers and their layout. GEM_E_NOMEM, GEM_E_IO. */
gem_status gem_disk_fingerprint(const gem_model *m, uint8_t out[32], gem_error *err);

/* First page of every layer's run, [n_layers]. False when the pages of a layer do not reach from
 * there (`from` where a layer sees all) to n without a gap. */
bool gem_disk_head_first(const gem_disk_head *h, const gem_model *m, int32_t *first);
/* Sizes that follow from from, n, part. */
void gem_disk_head_settle(gem_disk_head *h, const gem_model *m);
/* Read and check everything but the parts' bytes; `name` is for messages.
 * errors  GEM_E_UNSUPPORTED  another format, model or build; GEM_E_FORMAT  damaged or truncated;
 *         GEM_E_IO, GEM_E_NOMEM */
gem_status gem_disk_head_read(gem_disk_head *out, int fd, const char *name, const gem_model *m,
                              const uint8_t fingerprint[32], gem_error *err);
/* The parts in order, each to fn, which returns false to stop (GEM_E_CANCELLED). Their digest is
 * known to be right when GEM_OK comes back, not before. */
typedef bool (*gem_disk_take_fn)(void *user, const gem_disk_part *part, const void *data);
gem_status gem_disk_data_read(const gem_disk_head *h, int fd, const char *name, const gem_model *m,
                              gem_disk_take_fn fn, void *user, gem_error *err);
/* A new file with mode 0600: under a temporary name, synced, renamed, folder synced. fn fills in a
 * part's bytes, or returns false to give up (GEM_E_CANCELLED). Nothing is left on failure. */
typedef bool (*gem_disk_give_fn)(void *user, size_t part, void *out);
gem_status gem_disk_file_write(int dir, const gem_disk_head *h, const gem_model *m,
                               gem_disk_give_fn fn, void *user, gem_error *err);

#endif
