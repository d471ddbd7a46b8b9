/* gguf_build.h - GGUF bytes put together by hand for tests: deliberately without gguf_write.h, so
 * that reader and writer are judged by a third description of the format, and so that files can be
 * wrong. */
#ifndef GGUF_BUILD_H
#define GGUF_BUILD_H

#include "gguf/gguf.h"

static inline void b_u32(gem_bytes *b, uint32_t v)
{
    gem_bytes_put(b, &v, 4);
}
static inline void b_u64(gem_bytes *b, uint64_t v)
{
    gem_bytes_put(b, &v, 8);
}
static inline void b_str(gem_bytes *b, const char *s)
{
    b_u64(b, strlen(s));
    gem_bytes_put(b, s, strlen(s));
}
static inline void b_head(gem_bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    gem_bytes_put(b, "GGUF", 4);
    b_u32(b, version);
    b_u64(b, n_tensors);
    b_u64(b, n_kv);
}
static inline void b_kv(gem_bytes *b, const char *key, uint32_t kind)
{
    b_str(b, key);
    b_u32(b, kind);
}
static inline void b_kv_str(gem_bytes *b, const char *key, const char *value)
{
    b_kv(b, key, GEM_GGUF_STRING);
    b_str(b, value);
}
static inline void b_kv_u32(gem_bytes *b, const char *key, uint32_t v)
{
    b_kv(b, key, GEM_GGUF_U32);
    b_u32(b, v);
}
static inline void b_kv_array(gem_bytes *b, const char *key, uint32_t elem, uint64_t n)
{
    b_kv(b, key, GEM_GGUF_ARRAY);
    b_u32(b, elem);
    b_u64(b, n);
}
static inline void b_tensor(gem_bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                            uint32_t type, uint64_t offset)
{
    b_str(b, name);
    b_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++)
        b_u64(b, dims[i]);
    b_u32(b, type);
    b_u64(b, offset);
}
static inline void b_pad(gem_bytes *b, size_t alignment)
{
    while (b->len % alignment)
        gem_bytes_put(b, "", 1);
}
/* n bytes 0, 1, 2, ... behind padding */
static inline void b_data(gem_bytes *b, size_t alignment, size_t n)
{
    b_pad(b, alignment);
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)i;
        gem_bytes_put(b, &byte, 1);
    }
}
/* Header, architecture and one tensor entry "t.weight"; padding and data are up to the caller. */
static inline void b_control(gem_bytes *b, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                             uint64_t offset)
{
    b_head(b, 3, 1, 1);
    b_kv_str(b, "general.architecture", "gemma3");
    b_tensor(b, "t.weight", n_dims, dims, type, offset);
}

#endif
