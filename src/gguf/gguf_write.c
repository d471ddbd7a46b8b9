/* gguf_write.c - writes GGUF v3: keys and tensor entries are gathered in memory, data goes straight
 * to the file. The header is written when the first data arrives, because only then its size is
 * known. Called by gem-synth-model and by tests. */
#include "gguf/gguf_write.h"
#include "gguf/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 32 };

typedef struct declared {
    char *name;      /* owned */
    uint64_t offset; /* from the start of the data */
    size_t bytes;
} declared;

struct gem_gguf_writer {
    char *path, *temporary; /* owned; temporary NULL once renamed */
    int fd;
    gem_bytes kv, infos;
    char **keys; /* owned, for the check that none comes twice */
    size_t n_keys, cap_keys;
    declared *tensors;
    size_t n_tensors, cap_tensors;
    uint64_t data_bytes;          /* of all tensors, padding included */
    uint64_t data_start;          /* in the file; 0 until the header is written */
    size_t current, current_done; /* put_data: the tensor in work and what it has */
    _Atomic uint64_t put, wanted; /* bytes of tensors, padding left out */
};

static gem_status no_memory(const gem_gguf_writer *w, gem_error *err)
{
    return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its header", w->path);
}

static gem_status io_error(const gem_gguf_writer *w, gem_error *err)
{
    return gem_fail(err, GEM_E_IO, "%s: %s", w->path, strerror(errno));
}

gem_status gem_gguf_writer_new(gem_gguf_writer **out, const char *path, gem_error *err)
{
    gem_status st = GEM_OK;
    size_t bytes = strlen(path) + 8;
    *out = NULL;
    gem_gguf_writer *w = calloc(1, sizeof(*w));
    if (!w) return gem_fail(err, GEM_E_NOMEM, "%s: no memory to write it", path);
    w->fd = -1;
    w->path = strdup(path);
    w->temporary = malloc(bytes);
    if (!w->path || !w->temporary) {
        st = gem_fail(err, GEM_E_NOMEM, "%s: no memory to write it", path);
        goto done;
    }
    snprintf(w->temporary, bytes, "%s.XXXXXX", path);
    if ((w->fd = mkstemp(w->temporary)) < 0) {
        st = io_error(w, err);
        free(w->temporary); /* no file of ours has that name */
        w->temporary = NULL;
        goto done;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(w->fd, 0666 & ~mask);
    *out = w;
    w = NULL;
done:
    gem_gguf_writer_free(w);
    return st;
}

void gem_gguf_writer_free(gem_gguf_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary) unlink(w->temporary);
    for (size_t i = 0; i < w->n_keys; i++)
        free(w->keys[i]);
    for (size_t i = 0; i < w->n_tensors; i++)
        free(w->tensors[i].name);
    free(w->keys);
    free(w->tensors);
    gem_bytes_free(&w->kv);
    gem_bytes_free(&w->infos);
    free(w->temporary);
    free(w->path);
    free(w);
}

/* ---- keys ---- */

static void put_u32(gem_bytes *b, uint32_t v)
{
    gem_bytes_put(b, &v, sizeof(v));
}

static void put_u64(gem_bytes *b, uint64_t v)
{
    gem_bytes_put(b, &v, sizeof(v));
}

static void put_string(gem_bytes *b, const char *s, size_t len)
{
    put_u64(b, len);
    gem_bytes_put(b, s, len);
}

static gem_status put_key(gem_gguf_writer *w, const char *key, uint32_t kind, gem_error *err)
{
    size_t len = strlen(key);
    if (w->data_start)
        return gem_fail(err, GEM_E_ARG, "%s: key '%s' after the header", w->path, key);
    if (len == 0 || len > GEM_GGUF_KEY_MAX)
        return gem_fail(err, GEM_E_ARG, "%s: a key of %zu bytes", w->path, len);
    for (size_t i = 0; i < w->n_keys; i++)
        if (strcmp(w->keys[i], key) == 0)
            return gem_fail(err, GEM_E_ARG, "%s: key '%s' is put twice", w->path, key);
    if (w->n_keys == w->cap_keys) {
        size_t cap = w->cap_keys ? 2 * w->cap_keys : 64;
        char **keys = realloc(w->keys, cap * sizeof(*keys));
        if (!keys) return no_memory(w, err);
        w->keys = keys;
        w->cap_keys = cap;
    }
    if (!(w->keys[w->n_keys] = strdup(key))) return no_memory(w, err);
    w->n_keys++;
    put_string(&w->kv, key, len);
    put_u32(&w->kv, kind);
    return w->kv.failed ? no_memory(w, err) : GEM_OK;
}

static gem_status put_scalar(gem_gguf_writer *w, const char *key, gem_kv_kind kind, const void *v,
                             gem_error *err)
{
    gem_status st = put_key(w, key, kind, err);
    if (st != GEM_OK) return st;
    gem_bytes_put(&w->kv, v, gem_kv_kind_bytes(kind));
    return w->kv.failed ? no_memory(w, err) : GEM_OK;
}

gem_status gem_gguf_put_u32(gem_gguf_writer *w, const char *key, uint32_t v, gem_error *err)
{
    return put_scalar(w, key, GEM_GGUF_U32, &v, err);
}

gem_status gem_gguf_put_f32(gem_gguf_writer *w, const char *key, float v, gem_error *err)
{
    return put_scalar(w, key, GEM_GGUF_F32, &v, err);
}

gem_status gem_gguf_put_bool(gem_gguf_writer *w, const char *key, bool v, gem_error *err)
{
    uint8_t byte = v ? 1 : 0;
    return put_scalar(w, key, GEM_GGUF_BOOL, &byte, err);
}

gem_status gem_gguf_put_str(gem_gguf_writer *w, const char *key, const char *s, size_t len,
                            gem_error *err)
{
    gem_status st = put_key(w, key, GEM_GGUF_STRING, err);
    if (st != GEM_OK) return st;
    put_string(&w->kv, s, len);
    return w->kv.failed ? no_memory(w, err) : GEM_OK;
}

gem_status gem_gguf_put_array(gem_gguf_writer *w, const char *key, gem_kv_kind elem,
                              const void *elements, uint64_t n, gem_error *err)
{
    size_t each = gem_kv_kind_bytes(elem), bytes;
    if (elem != GEM_GGUF_STRING && each == 0)
        return gem_fail(err, GEM_E_ARG, "%s: key '%s': no array can hold elements of type %d",
                        w->path, key, (int)elem);
    gem_status st = put_key(w, key, GEM_GGUF_ARRAY, err);
    if (st != GEM_OK) return st;
    put_u32(&w->kv, elem);
    put_u64(&w->kv, n);
    if (elem == GEM_GGUF_STRING) {
        const gem_str *s = elements;
        for (uint64_t i = 0; i < n; i++)
            put_string(&w->kv, s[i].data, s[i].len);
    } else {
        if (n > SIZE_MAX || !gem_mul_ok((size_t)n, each, &bytes)) return no_memory(w, err);
        gem_bytes_put(&w->kv, elements, bytes);
    }
    return w->kv.failed ? no_memory(w, err) : GEM_OK;
}

gem_status gem_gguf_put_kv(gem_gguf_writer *w, const gem_kv *kv, gem_error *err)
{
    float f32 = (float)kv->v.f;
    switch (kv->kind) {
    case GEM_GGUF_STRING:
        return gem_gguf_put_str(w, kv->key, kv->v.s.data, kv->v.s.len, err);
    case GEM_GGUF_F32:
        return put_scalar(w, kv->key, kv->kind, &f32, err);
    case GEM_GGUF_ARRAY:
        break;
    default:
        return put_scalar(w, kv->key, kv->kind, &kv->v, err); /* low bytes come first */
    }
    if (kv->elem != GEM_GGUF_STRING)
        return gem_gguf_put_array(w, kv->key, kv->elem, kv->v.array, kv->n, err);
    gem_status st = put_key(w, kv->key, GEM_GGUF_ARRAY, err);
    if (st != GEM_OK) return st;
    const uint8_t *end = kv->v.array;
    for (uint64_t i = 0; i < kv->n; i++)
        gem_kv_string_next(&end);
    put_u32(&w->kv, kv->elem);
    put_u64(&w->kv, kv->n);
    gem_bytes_put(&w->kv, kv->v.array, (size_t)(end - kv->v.array));
    return w->kv.failed ? no_memory(w, err) : GEM_OK;
}

/* ---- tensors ---- */

gem_status gem_gguf_declare_tensor(gem_gguf_writer *w, const char *name, gem_dtype t,
                                   uint32_t n_dims, const uint64_t *dims, gem_error *err)
{
    const gem_dtype_info *info = gem_dtype_get((uint32_t)t);
    size_t len = strlen(name), bytes = 0;
    if (w->data_start)
        return gem_fail(err, GEM_E_ARG, "%s: tensor '%s' after the header", w->path, name);
    if (len == 0 || len > GEM_GGUF_NAME_MAX || !info || n_dims < 1 || n_dims > 4)
        return gem_fail(err, GEM_E_ARG, "%s: tensor '%s' of %zu bytes, type %d, %u dimensions",
                        w->path, name, len, (int)t, (unsigned)n_dims);
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0)
            return gem_fail(err, GEM_E_ARG, "%s: tensor '%s' is declared twice", w->path, name);
    bool ok = dims[0] > 0 && gem_dtype_row_bytes(info, dims[0], &bytes);
    for (uint32_t d = 1; ok && d < n_dims; d++)
        ok = dims[d] > 0 && dims[d] <= SIZE_MAX && gem_mul_ok(bytes, (size_t)dims[d], &bytes);
    if (!ok || bytes > INT64_MAX / 2 || w->data_bytes > INT64_MAX / 2 - bytes)
        return gem_fail(err, GEM_E_ARG, "%s: tensor '%s' has a shape that its type cannot have",
                        w->path, name);
    if (w->n_tensors == w->cap_tensors) {
        size_t cap = w->cap_tensors ? 2 * w->cap_tensors : 64;
        declared *tensors = realloc(w->tensors, cap * sizeof(*tensors));
        if (!tensors) return no_memory(w, err);
        w->tensors = tensors;
        w->cap_tensors = cap;
    }
    declared *d = &w->tensors[w->n_tensors];
    if (!(d->name = strdup(name))) return no_memory(w, err);
    w->n_tensors++;
    d->offset = w->data_bytes;
    d->bytes = bytes;
    put_string(&w->infos, name, len);
    put_u32(&w->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(&w->infos, dims[i]);
    put_u32(&w->infos, (uint32_t)t);
    put_u64(&w->infos, d->offset);
    w->data_bytes += gem_round_up(bytes, ALIGNMENT);
    w->wanted += bytes;
    return w->infos.failed ? no_memory(w, err) : GEM_OK;
}

static gem_status write_all(const gem_gguf_writer *w, const void *data, size_t bytes,
                            uint64_t offset, gem_error *err)
{
    const uint8_t *p = data;
    while (bytes) {
        ssize_t n = pwrite(w->fd, p, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return io_error(w, err);
        p += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return GEM_OK;
}

static uint64_t header_bytes(const gem_gguf_writer *w)
{
    return gem_round_up(GEM_GGUF_HEADER + w->kv.len + w->infos.len, ALIGNMENT);
}

uint64_t gem_gguf_writer_file_bytes(const gem_gguf_writer *w)
{
    return header_bytes(w) + w->data_bytes;
}

gem_status gem_gguf_writer_begin(gem_gguf_writer *w, gem_error *err)
{
    gem_status st;
    uint8_t head[GEM_GGUF_HEADER];
    uint32_t version = 3;
    uint64_t n_tensors = w->n_tensors, n_kv = w->n_keys;
    if (w->data_start) return GEM_OK;
    memcpy(head, "GGUF", 4);
    memcpy(head + 4, &version, 4);
    memcpy(head + 8, &n_tensors, 8);
    memcpy(head + 16, &n_kv, 8);
    /* The file takes its full size at once: what nobody writes, the padding, is zero. */
    if (ftruncate(w->fd, (off_t)gem_gguf_writer_file_bytes(w)) != 0) return io_error(w, err);
    if ((st = write_all(w, head, sizeof(head), 0, err)) != GEM_OK) return st;
    if ((st = write_all(w, w->kv.data, w->kv.len, sizeof(head), err)) != GEM_OK) return st;
    if ((st = write_all(w, w->infos.data, w->infos.len, sizeof(head) + w->kv.len, err)) != GEM_OK)
        return st;
    w->data_start = header_bytes(w);
    return GEM_OK;
}

gem_status gem_gguf_put_at(gem_gguf_writer *w, size_t tensor, size_t offset, const void *data,
                           size_t bytes, gem_error *err)
{
    if (!w->data_start || tensor >= w->n_tensors || offset > w->tensors[tensor].bytes ||
        bytes > w->tensors[tensor].bytes - offset)
        return gem_fail(err, GEM_E_ARG, "%s: %zu bytes at %zu are outside tensor %zu", w->path,
                        bytes, offset, tensor);
    gem_status st =
        write_all(w, data, bytes, w->data_start + w->tensors[tensor].offset + offset, err);
    if (st == GEM_OK) w->put += bytes;
    return st;
}

gem_status gem_gguf_put_nothing(gem_gguf_writer *w, size_t tensor, gem_error *err)
{
    if (!w->data_start || tensor >= w->n_tensors)
        return gem_fail(err, GEM_E_ARG, "%s: there is no tensor %zu", w->path, tensor);
    w->put += w->tensors[tensor].bytes;
    return GEM_OK;
}

gem_status gem_gguf_put_data(gem_gguf_writer *w, const void *data, size_t bytes, gem_error *err)
{
    const uint8_t *p = data;
    gem_status st = gem_gguf_writer_begin(w, err);
    while (st == GEM_OK && bytes) {
        if (w->current == w->n_tensors)
            return gem_fail(err, GEM_E_ARG, "%s: %zu bytes more than its tensors hold", w->path,
                            bytes);
        size_t n = GEM_MIN(bytes, w->tensors[w->current].bytes - w->current_done);
        st = gem_gguf_put_at(w, w->current, w->current_done, p, n, err);
        p += n;
        bytes -= n;
        w->current_done += n;
        if (w->current_done == w->tensors[w->current].bytes) {
            w->current++;
            w->current_done = 0;
        }
    }
    return st;
}

gem_status gem_gguf_writer_finish(gem_gguf_writer *w, gem_error *err)
{
    gem_status st = gem_gguf_writer_begin(w, err); /* a file without tensors */
    if (st != GEM_OK) return st;
    if (w->put != w->wanted)
        return gem_fail(err, GEM_E_ARG, "%s: %llu bytes of tensors were put, %llu declared",
                        w->path, (unsigned long long)w->put, (unsigned long long)w->wanted);
    if (fsync(w->fd) != 0) return io_error(w, err);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 || rename(w->temporary, w->path) != 0) return io_error(w, err);
    free(w->temporary);
    w->temporary = NULL;
    return GEM_OK;
}
