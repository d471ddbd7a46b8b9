/* gguf_internal.h - what the files of this room share: the open container and its parser.
 * gguf_parse.c fills a part from bytes (keys: gguf_kv.c, tensors: gguf_tensors.c), gguf.c owns
 * parts and indexes, gguf_get.c reads values. */
#ifndef GEM_GGUF_INTERNAL_H
#define GEM_GGUF_INTERNAL_H

#include "gguf/gguf.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "gem reads GGUF in place and needs a little-endian machine"
#endif

enum {
    GEM_GGUF_HEADER = 24,     /* magic, version, number of tensors, number of keys */
    GEM_GGUF_MIN_KV = 13,     /* least bytes of a key: length, kind, one byte of value */
    GEM_GGUF_MIN_TENSOR = 32, /* least bytes of a tensor's entry: one dimension, empty name */
    GEM_GGUF_KEY_MAX = 65535,
    GEM_GGUF_NAME_MAX = 63,
    GEM_GGUF_ALIGN_MIN = 8,
    GEM_GGUF_ALIGN_MAX = 1 << 20,
    GEM_GGUF_PARTS_MAX = 99999, /* five digits in the file name */
    GEM_GGUF_SHOWN = 100        /* bytes that a foreign name may take in a sentence */
};

typedef struct gem_gguf_part {
    char *path;        /* owned */
    const char *label; /* for sentences: the path, of a very long one its end */
    gem_map map;       /* data NULL when the bytes are the caller's */
    const uint8_t *data;
    size_t size;
    uint32_t version;
    gem_kv *kv; /* owned, keys too; file order */
    size_t n_kv, cap_kv;
    size_t first_tensor, n_tensors; /* run in gem_gguf.tensors */
} gem_gguf_part;

struct gem_gguf {
    gem_gguf_part *part; /* owned */
    size_t n_parts;
    gem_tensor *tensors; /* owned, names too; file order, part after part */
    size_t n_tensors, cap_tensors;
    uint32_t *kv_by_key, *tensor_by_name; /* owned; indexes in order of key or name */
    uint8_t *kv_marked, *tensor_marked;   /* owned */
};

/* ---- parsing (gguf_parse.c, gguf_kv.c, gguf_tensors.c) ---- */
typedef struct gem_gguf_cursor {
    const uint8_t *data;
    size_t size, pos; /* pos <= size */
} gem_gguf_cursor;
static inline size_t gem_gguf_left(const gem_gguf_cursor *c)
{
    return c->size - c->pos;
}
/* Copy the next n bytes; false, and nothing taken, when fewer are left. */
bool gem_gguf_take(gem_gguf_cursor *c, void *out, size_t n);
/* Read a name into an owned, NUL-terminated copy. `what` and `index` say where: "key 3". */
gem_status gem_gguf_take_name(const gem_gguf_part *p, gem_gguf_cursor *c, const char *what,
                              uint64_t index, uint64_t max, char **out, gem_error *err);
/* `array` with room for element n; NULL, and the array unchanged, when there is no memory. */
void *gem_gguf_grow(void *array, size_t *cap, size_t n, size_t elem_bytes);
gem_status gem_gguf_no_memory(const gem_gguf_part *p, gem_error *err);
/* Append key number `index` to p->kv. */
gem_status gem_gguf_parse_kv(gem_gguf_part *p, gem_gguf_cursor *c, uint64_t index, gem_error *err);
/* What general.alignment says; 32 without it. */
gem_status gem_gguf_alignment(const gem_gguf_part *p, uint64_t *alignment, gem_error *err);
/* Append n entries to g->tensors and check where their data lies. */
gem_status gem_gguf_parse_tensors(gem_gguf *g, gem_gguf_part *p, gem_gguf_cursor *c, uint64_t n,
                                  uint64_t alignment, gem_error *err);

/* Parse one part: fills kv, appends to g->tensors; every check that needs one part alone.
 * What was allocated hangs off g and is freed by gem_gguf_close, also after an error. */
gem_status gem_gguf_parse_part(gem_gguf *g, gem_gguf_part *p, gem_error *err);

/* Bytes of a scalar of that kind; 0 for strings, arrays and unknown kinds. */
size_t gem_kv_kind_bytes(uint32_t kind);
/* "u32", "string", ...: for sentences. */
const char *gem_kv_kind_name(uint32_t kind);
/* A foreign name made fit for a sentence: escaped, cut to GEM_GGUF_SHOWN. Returns buf. */
const char *gem_gguf_shown(const char *s, size_t len, char buf[GEM_GGUF_SHOWN]);

#endif
