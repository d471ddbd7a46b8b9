/* doc.c - documents from files, their digests, and accessors. */
#include "fak/doc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the real file system ---- */
static gem_status read_fd(int fd, const char *path, size_t limit, gem_bytes *data, gem_error *err)
{
    char buf[16384];
    for (;;) {
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
        if (n == 0) break;
        if ((size_t)n > limit - data->len)
            return gem_fail(err, GEM_E_RANGE, "%s: larger than the %zu bytes allowed", path, limit);
        gem_bytes_put(data, buf, (size_t)n);
    }
    gem_bytes_put(data, "", 0);
    return data->failed ? gem_fail(err, GEM_E_NOMEM, "%s: no memory", path) : GEM_OK;
}

static gem_status system_read(fak_io *io, const char *path, size_t limit, gem_bytes *data,
                              gem_error *err)
{
    (void)io;
    if (strcmp(path, "-") == 0) return read_fd(STDIN_FILENO, "standard input", limit, data, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
    gem_status st = read_fd(fd, path, limit, data, err);
    close(fd);
    return st;
}

static bool write_all(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static gem_status system_write(fak_io *io, const char *path, const void *data, size_t len,
                               gem_error *err)
{
    (void)io;
    gem_bytes tmp = {0};
    gem_bytes_printf(&tmp, "%s.XXXXXX", path);
    int fd = tmp.failed ? -1 : mkstemp(tmp.data); /* mkstemp gives mode 0600 */
    bool ok = fd >= 0 && write_all(fd, data, len) && fsync(fd) == 0;
    int cause = errno;
    if (fd >= 0 && close(fd) != 0) ok = false;
    if (ok && rename(tmp.data, path) != 0) {
        ok = false;
        cause = errno;
    }
    if (!ok && fd >= 0) unlink(tmp.data);
    gem_bytes_free(&tmp);
    return ok ? GEM_OK : gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(cause));
}

static bool system_same(fak_io *io, const char *a, const char *b)
{
    struct stat x, y;
    (void)io;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void fak_io_system(fak_io *io)
{
    memset(io, 0, sizeof(*io));
    io->read = system_read;
    io->write = system_write;
    io->same = system_same;
}

void fak_io_free(fak_io *io)
{
    gem_bytes_free(&io->out);
    gem_bytes_free(&io->err);
}

/* ---- documents ---- */
static bool parse(fak_doc *d, fak_findings *f, const char *data, size_t len, const fak_type *type)
{
    static const char *const code[] = {"", "NPJ-001", "NPJ-002", "NPJ-003", "NPI-001"};
    gem_json_error err;
    size_t before = f->n;
    d->json = gem_json_read(data, len, FAK_MAX_DEPTH, &err);
    if (err.fault != GEM_JSON_OK) {
        fak_find(f, code[err.fault], err.at, "%s", err.text);
        return false;
    }
    if (type) fak_shape_check(f, type, gem_json_root(d->json));
    if (f->n != before || f->failed) return false;
    d->root = gem_json_root(d->json);
    return true;
}

bool fak_doc_parse(fak_doc *d, fak_findings *f, const char *data, size_t len, const fak_type *type)
{
    memset(d, 0, sizeof(*d));
    return parse(d, f, data, len, type);
}

bool fak_doc_load(fak_doc *d, fak_io *io, fak_findings *f, const char *path, size_t limit,
                  const fak_type *type)
{
    gem_error err;
    memset(d, 0, sizeof(*d));
    gem_status st = io->read(io, path, limit, &d->raw, &err);
    if (st != GEM_OK) {
        fak_find(f, st == GEM_E_RANGE ? "NPI-003" : "NPI-001", NULL, "%s", err.text);
        return false;
    }
    return parse(d, f, d->raw.data ? d->raw.data : "", d->raw.len, type);
}

void fak_doc_free(fak_doc *d)
{
    gem_bytes_free(&d->raw);
    gem_json_free(d->json);
    memset(d, 0, sizeof(*d));
}

const char *fak_str(const gem_json *obj, const char *name)
{
    const gem_json *v = gem_json_get(obj, name);
    return v && v->type == GEM_JSON_STRING ? v->text : "";
}

double fak_num(const gem_json *obj, const char *name)
{
    const gem_json *v = gem_json_get(obj, name);
    return v && v->type == GEM_JSON_NUMBER ? v->number : 0;
}

int64_t fak_int(const gem_json *obj, const char *name)
{
    return (int64_t)fak_num(obj, name); /* exact: the decoder keeps integers within 2^53 */
}

bool fak_bool(const gem_json *obj, const char *name)
{
    const gem_json *v = gem_json_get(obj, name);
    return v && v->type == GEM_JSON_BOOL && v->truth;
}

const gem_json *fak_list(const gem_json *obj, const char *name)
{
    const gem_json *v = gem_json_get(obj, name);
    return v ? v->first : NULL;
}

size_t fak_count(const gem_json *obj, const char *name)
{
    const gem_json *v = gem_json_get(obj, name);
    return v ? v->n : 0;
}

bool fak_blank(const char *s)
{
    return s[strspn(s, " \t\r\n\f\v")] == 0;
}

bool fak_hex64(const char *s)
{
    return strspn(s, "0123456789abcdef") == 64 && s[64] == 0;
}

bool fak_digest_bytes(char out[FAK_DIGEST_SIZE], const void *data, size_t len)
{
    gem_sha256 *h = gem_sha256_new();
    if (!h) return false;
    memcpy(out, "sha256:", 7);
    gem_sha256_update(h, data, len);
    gem_sha256_finish(h, out + 7);
    return true;
}

bool fak_digest_json(char out[FAK_DIGEST_SIZE], const gem_json *v)
{
    gem_bytes text = {0};
    gem_json_write_canonical(&text, v, "digest");
    bool ok = !text.failed && fak_digest_bytes(out, text.data, text.len);
    gem_bytes_free(&text);
    return ok;
}
