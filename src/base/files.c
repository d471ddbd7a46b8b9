/* files.c - mapping, reading and atomic writing of files; SHA-256; how many cores we may use. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- SHA-256 ---- */
struct gem_sha256 {
    EVP_MD_CTX *ctx;
};

gem_sha256 *gem_sha256_new(void)
{
    gem_sha256 *h = malloc(sizeof(*h));
    if (!h) return NULL;
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(h->ctx);
        free(h);
        return NULL;
    }
    return h;
}

void gem_sha256_update(gem_sha256 *h, const void *data, size_t len)
{
    EVP_DigestUpdate(h->ctx, data, len);
}

void gem_sha256_finish(gem_sha256 *h, char hex[65])
{
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    EVP_DigestFinal_ex(h->ctx, md, &n);
    for (unsigned i = 0; i < 32; i++) {
        hex[2 * i] = "0123456789abcdef"[md[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[md[i] & 15];
    }
    hex[64] = 0;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

gem_status gem_sha256_file(const char *path, char hex[65], gem_error *err)
{
    gem_status st = GEM_OK;
    enum { CHUNK = 1 << 20 };
    char *buf = malloc(CHUNK);
    gem_sha256 *h = gem_sha256_new();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!buf || !h) {
        st = gem_fail(err, GEM_E_NOMEM, "%s: no memory for its digest", path);
        goto done;
    }
    if (fd < 0) {
        st = gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
        goto done;
    }
    for (;;) {
        ssize_t n = read(fd, buf, CHUNK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            st = gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
            goto done;
        }
        if (n == 0) break;
        gem_sha256_update(h, buf, (size_t)n);
    }
done:
    if (fd >= 0) close(fd);
    free(buf);
    if (h) gem_sha256_finish(h, hex);
    if (st != GEM_OK) hex[0] = 0;
    return st;
}

/* ---- files ---- */
gem_status gem_map_open(gem_map *out, const char *path, gem_error *err)
{
    gem_status st = GEM_OK;
    struct stat sb;
    memset(out, 0, sizeof(*out));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &sb) != 0) {
        st = gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(sb.st_mode)) {
        st = gem_fail(err, GEM_E_IO, "%s: not a regular file", path);
    } else if (sb.st_size > 0) {
        void *p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            st = gem_fail(err, GEM_E_IO, "%s: cannot map %lld bytes: %s", path,
                          (long long)sb.st_size, strerror(errno));
        } else {
            out->data = p;
            out->size = (size_t)sb.st_size;
        }
    }
    close(fd);
    return st;
}

void gem_map_close(gem_map *m)
{
    if (m->data) munmap((void *)m->data, m->size);
    memset(m, 0, sizeof(*m));
}

gem_status gem_file_read(const char *path, size_t max_bytes, char **data, size_t *len, gem_error *err)
{
    gem_status st = GEM_OK;
    gem_bytes b = {0};
    char buf[16384];
    *data = NULL;
    *len = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(buf, 1, sizeof(buf), f)) > 0;) {
        if (n > max_bytes - b.len) {
            st = gem_fail(err, GEM_E_RANGE, "%s: larger than the %zu bytes allowed", path, max_bytes);
            goto done;
        }
        gem_bytes_put(&b, buf, n);
    }
    if (ferror(f)) {
        st = gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
        goto done;
    }
    gem_bytes_put(&b, "", 0);
    if (b.failed) {
        st = gem_fail(err, GEM_E_NOMEM, "%s: no memory for its contents", path);
        goto done;
    }
    *data = b.data;
    *len = b.len;
    b.data = NULL;
done:
    fclose(f);
    gem_bytes_free(&b);
    return st;
}

gem_status gem_file_write_atomic(const char *path, const void *data, size_t len, gem_error *err)
{
    gem_status st = GEM_OK;
    gem_bytes tmp = {0};
    gem_bytes_printf(&tmp, "%s.XXXXXX", path);
    if (tmp.failed) {
        gem_bytes_free(&tmp);
        return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its name", path);
    }
    int fd = mkstemp(tmp.data);
    if (fd < 0) {
        st = gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
        gem_bytes_free(&tmp);
        return st;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        p += n;
        len -= (size_t)n;
    }
    bool ok = len == 0 && fsync(fd) == 0;
    int cause = errno;
    if (close(fd) != 0) ok = false;
    if (ok && rename(tmp.data, path) != 0) {
        ok = false;
        cause = errno;
    }
    if (!ok) {
        unlink(tmp.data);
        st = gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(cause));
    }
    gem_bytes_free(&tmp);
    return st;
}

int gem_cpu_count(void)
{
    int n = 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) n = CPU_COUNT(&set);
    /* cgroup v2 quota: "max 100000" or "150000 100000" (microseconds a period) */
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        long long quota, period;
        if (fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
            long long cap = (quota + period - 1) / period;
            if (cap >= 1 && cap < n) n = (int)cap;
        }
        fclose(f);
    }
    return n < 1 ? 1 : n;
}
