/* gguf_internal.h - what the files of this room share: the open container and its parser.
 * gguf_parse.c fills a part from bytes, gguf.c owns parts and indexes, gguf_get.c reads values. */
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
