/* gguf.h - the GGUF container: map, parse, bounds-check; knows nothing of model families.
 * Format: GGUF v2 and v3, little-endian (docs/formats.md). A split file (-00001-of-0000N) is opened
 * by its first part and reads as one. Everything returned is borrowed from the gem_gguf until
 * close. */
#ifndef GEM_GGUF_H
#define GEM_GGUF_H

#include "base/base.h"
#include "quant/quant.h"

typedef struct gem_gguf gem_gguf;

/* Values are the ids of the file format. */
typedef enum gem_kv_kind {
    GEM_GGUF_U8,
    GEM_GGUF_I8,
    GEM_GGUF_U16,
    GEM_GGUF_I16,
    GEM_GGUF_U32,
    GEM_GGUF_I32,
    GEM_GGUF_F32,
    GEM_GGUF_BOOL,
    GEM_GGUF_STRING,
    GEM_GGUF_ARRAY,
    GEM_GGUF_U64,
    GEM_GGUF_I64,
    GEM_GGUF_F64
} gem_kv_kind;

typedef struct gem_str {
    const char *data; /* no NUL */
    size_t len;
} gem_str;

static inline bool gem_str_is(gem_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

typedef struct gem_kv {
    const char *key; /* NUL-terminated copy owned by the gem_gguf */
    gem_kv_kind kind;
    gem_kv_kind elem; /* element kind when kind is ARRAY */
    uint64_t n;       /* elements of an array; 1 otherwise */
    union {
        uint64_t u; /* unsigned kinds and bool */
        int64_t i;  /* signed kinds */
        double f;
        gem_str s;
        const uint8_t *array; /* raw elements; strings: use gem_kv_string_next */
    } v;
} gem_kv;

typedef struct gem_tensor {
    const char *name; /* NUL-terminated copy owned by the gem_gguf */
    gem_dtype dtype;
    uint32_t n_dims;     /* 1..4 */
    uint64_t dim[4];     /* dim[0] is contiguous; unused ones are 1 */
    const uint8_t *data; /* into the mapping, always fully inside the file */
    size_t bytes;
    size_t row_bytes; /* bytes of dim[0] elements */
} gem_tensor;

/* GEM_E_IO, GEM_E_FORMAT (sentence names file, key or tensor, and value), GEM_E_UNSUPPORTED. */
gem_status gem_gguf_open(gem_gguf **out, const char *path, gem_error *err);
/* The same checks on bytes in memory (one part; for tests and fuzzing); `data` is borrowed. */
gem_status gem_gguf_open_memory(gem_gguf **out, const void *data, size_t size, const char *name,
                                gem_error *err);
void gem_gguf_close(gem_gguf *g);

const char *gem_gguf_path(const gem_gguf *g);
uint64_t gem_gguf_bytes(const gem_gguf *g); /* all parts */
uint32_t gem_gguf_version(const gem_gguf *g);
size_t gem_gguf_n_kv(const gem_gguf *g);
const gem_kv *gem_gguf_kv_at(const gem_gguf *g, size_t i);       /* file order */
const gem_kv *gem_gguf_find(const gem_gguf *g, const char *key); /* NULL when absent */
size_t gem_gguf_n_tensors(const gem_gguf *g);
const gem_tensor *gem_gguf_tensor_at(const gem_gguf *g, size_t i);
const gem_tensor *gem_gguf_tensor(const gem_gguf *g, const char *name); /* NULL when absent */
/* Tell the kernel that a tensor's pages are no longer needed (after it was copied elsewhere).
 * Nothing happens when t is not of this file. */
void gem_gguf_drop_pages(const gem_gguf *g, const gem_tensor *t);

/* Typed reads for manifests. A missing key leaves *out as it is and is GEM_OK when !required.
 * Integers of any width are accepted when the value fits [min, max]; a wrong kind or range is
 * GEM_E_FORMAT naming the key, the value and what was expected. */
gem_status gem_gguf_get_u32(const gem_gguf *g, const char *key, bool required, uint32_t min,
                            uint32_t max, uint32_t *out, gem_error *err);
gem_status gem_gguf_get_f32(const gem_gguf *g, const char *key, bool required, float min, float max,
                            float *out, gem_error *err);
gem_status gem_gguf_get_bool(const gem_gguf *g, const char *key, bool required, bool *out,
                             gem_error *err);
gem_status gem_gguf_get_str(const gem_gguf *g, const char *key, bool required, gem_str *out,
                            gem_error *err);
/* Array with element kind `elem`; *n its length. */
gem_status gem_gguf_get_array(const gem_gguf *g, const char *key, bool required, gem_kv_kind elem,
                              const uint8_t **data, uint64_t *n, gem_error *err);
/* Walk a string array: *pos starts at kv->v.array; returns the next string and advances. Lengths
 * were checked at open. */
gem_str gem_kv_string_next(const uint8_t **pos);

/* Strict use: a manifest marks what it explained; what is left over is refused by the caller. */
void gem_gguf_mark_kv(gem_gguf *g, const char *key); /* known key, also read by the getters above */
void gem_gguf_mark_tensor(gem_gguf *g, const char *name);
const gem_tensor *gem_gguf_first_unmarked_tensor(const gem_gguf *g);
const gem_kv *gem_gguf_first_unmarked_kv(const gem_gguf *g,
                                         const char *prefix); /* keys with that prefix */

#endif
