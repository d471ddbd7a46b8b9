/* gguf_write.h - write a GGUF v3 file: metadata in memory, tensor data streamed in order. */
#ifndef GEM_GGUF_WRITE_H
#define GEM_GGUF_WRITE_H

#include "gguf/gguf.h"

typedef struct gem_gguf_writer gem_gguf_writer;
/* Data goes to a temporary name beside `path`; `finish` renames it: never half a file. */
gem_status gem_gguf_writer_new(gem_gguf_writer **out, const char *path, gem_error *err);
void gem_gguf_writer_free(gem_gguf_writer *w); /* unfinished: the temporary file is removed */
/* Keys and names must be new and fit the format (keys 1..65535 bytes, names 1..63), else GEM_E_ARG.
 */
gem_status gem_gguf_put_u32(gem_gguf_writer *w, const char *key, uint32_t v, gem_error *err);
gem_status gem_gguf_put_f32(gem_gguf_writer *w, const char *key, float v, gem_error *err);
gem_status gem_gguf_put_bool(gem_gguf_writer *w, const char *key, bool v, gem_error *err);
gem_status gem_gguf_put_str(gem_gguf_writer *w, const char *key, const char *s, size_t len,
                            gem_error *err);
/* elements: raw little-endian for numeric kinds; gem_str[n] for GEM_GGUF_STRING */
gem_status gem_gguf_put_array(gem_gguf_writer *w, const char *key, gem_kv_kind elem,
                              const void *elements, uint64_t n, gem_error *err);
/* Any key as it was read from another file. */
gem_status gem_gguf_put_kv(gem_gguf_writer *w, const gem_kv *kv, gem_error *err);
/* Declare tensors in file order, all before the first data call. */
gem_status gem_gguf_declare_tensor(gem_gguf_writer *w, const char *name, gem_dtype t,
                                   uint32_t n_dims, const uint64_t *dims, gem_error *err);
/* Append bytes of the declared tensors, in order; may be called many times per tensor. */
gem_status gem_gguf_put_data(gem_gguf_writer *w, const void *data, size_t bytes, gem_error *err);
/* For writers in several threads. `begin` ends the declarations and gives the file its full size;
 * then put_at may be called from any thread, for any run of bytes inside a declared tensor, each
 * once. A file is written either with put_data or with begin and put_at. */
gem_status gem_gguf_writer_begin(gem_gguf_writer *w, gem_error *err);
gem_status gem_gguf_put_at(gem_gguf_writer *w, size_t tensor, size_t offset, const void *data,
                           size_t bytes, gem_error *err);
/* Count a tensor as put and leave it unwritten: it reads as zeros and takes no room on most disks.
 */
gem_status gem_gguf_put_nothing(gem_gguf_writer *w, size_t tensor, gem_error *err);
/* Size of the whole file; final once all is declared. */
uint64_t gem_gguf_writer_file_bytes(const gem_gguf_writer *w);
/* GEM_E_ARG when the bytes put differ from the bytes declared. */
gem_status gem_gguf_writer_finish(gem_gguf_writer *w, gem_error *err);

#endif
