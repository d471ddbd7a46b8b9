/* disk_scan.h - looking through the disk cache's folder at the start. */
#ifndef GEM_DISK_SCAN_H
#define GEM_DISK_SCAN_H

#include "server/disk_index.h"

typedef struct gem_server gem_server;

/* Fill an empty index with the files of the folder that fit; remove the cache's files that do not:
 * unfinished, damaged, of another model or build, without the text before them. One log line a
 * reason. Other files are left alone. GEM_E_IO, GEM_E_NOMEM. */
gem_status gem_disk_scan(gem_disk_index *x, const gem_server *s, const gem_model *m, int dir,
                         const uint8_t fingerprint[32], gem_error *err);

#endif
