/* disk_index.h - which files the disk cache has, in memory: tokens, sizes, parents, last use. No
 * threads, no I/O. Parents stand before their children. */
#ifndef GEM_DISK_INDEX_H
#define GEM_DISK_INDEX_H

#include "server/disk_file.h"

typedef struct gem_disk_entry gem_disk_entry;
struct gem_disk_entry {
    gem_disk_entry *parent; /* borrowed; NULL: from is 0 */
    uint8_t key[32];
    int32_t from, n;
    int32_t *tokens; /* owned, [n - from] */
    int32_t *first;  /* owned, [n_layers]: first page of each layer's run */
    int32_t reach;   /* least position that the windowed layers' pages allow to go back to */
    uint64_t bytes;
    int64_t used; /* ns, Unix */
    int n_children;
    int32_t common; /* scratch of gem_disk_index_match */
};

typedef struct gem_disk_index {
    gem_disk_entry **entry; /* owned */
    size_t n, cap;
    uint64_t bytes;
} gem_disk_index;

void gem_disk_index_deinit(gem_disk_index *x);
gem_disk_entry *gem_disk_index_find(const gem_disk_index *x, const uint8_t key[32]);
/* Takes the head's tokens and `first` (gem_disk_head_first). The parent (NULL when h->from is 0) is
 * in the index. False: no memory, nothing was taken. */
bool gem_disk_index_add(gem_disk_index *x, const gem_model *m, gem_disk_entry *parent,
                        gem_disk_head *h, int32_t *first, int64_t used);
void gem_disk_index_remove(gem_disk_index *x, gem_disk_entry *e); /* it has no children */
/* Common prefix of every entry's text with tokens[n], into e->common. */
void gem_disk_index_match(gem_disk_index *x, const int32_t *tokens, size_t n);
/* After a match: the entry that brings the most positions, at most `bound`, and how many. NULL:
 * none. */
gem_disk_entry *gem_disk_index_best(const gem_disk_index *x, int32_t bound, int32_t *k);
/* The entry without children that was used longest ago, other than `except`; NULL: none. */
gem_disk_entry *gem_disk_index_oldest(const gem_disk_index *x, const gem_disk_entry *except);
/* Copy tokens [0, n) of an entry's text, n <= e->n. */
void gem_disk_entry_text(const gem_disk_entry *e, int32_t n, int32_t *out);

#endif
