/* disk_file.c - reading, checking and writing one file of the disk cache. */
#include "server/disk_file.h"

#include "gem_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 8, DIGEST = 32, FIXED = MAGIC + 3 * DIGEST + 16, BUFFER = 1 << 20 };
static const char magic[MAGIC + 1] = "GEMKV01\n";

void gem_disk_head_free(gem_disk_head *h)
{
    free(h->tokens);
    free(h->part);
    h->tokens = NULL;
    h->part = NULL;
}

void gem_disk_name(char out[GEM_DISK_NAME], const uint8_t key[32])
{
    for (int i = 0; i < DIGEST; i++)
        snprintf(out + 2 * i, 3, "%02x", key[i]);
    memcpy(out + 2 * DIGEST, ".gemkv", 7);
}

/* ---- digests ---- */

static int nibble(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void finish(gem_sha256 *h, uint8_t out[DIGEST])
{
    char hex[65];
    gem_sha256_finish(h, hex);
    for (int i = 0; i < DIGEST; i++)
        out[i] = (uint8_t)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
}

static void put32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

bool gem_disk_digest(const int32_t *tokens, size_t n, uint8_t out[32])
{
    gem_sha256 *h = gem_sha256_new();
    uint8_t block[1024];
    if (!h) return false;
    for (size_t i = 0; i < n;) {
        size_t k = GEM_MIN(n - i, sizeof(block) / 4);
        for (size_t j = 0; j < k; j++)
            put32(block + 4 * j, (uint32_t)tokens[i + j]);
        gem_sha256_update(h, block, 4 * k);
        i += k;
    }
    finish(h, out);
    return true;
}

/* The first bytes of every tensor: two files that differ in their weights differ there. */
static void digest_samples(gem_sha256 *h, const gem_gguf *file)
{
    enum { SAMPLE = 4096 };
    for (size_t i = 0; i < gem_gguf_n_tensors(file); i++) {
        const gem_tensor *t = gem_gguf_tensor_at(file, i);
        gem_sha256_update(h, t->data, GEM_MIN((size_t)t->bytes, (size_t)SAMPLE));
    }
}

gem_status gem_disk_fingerprint(const gem_model *m, uint8_t out[32], gem_error *err)
{
    char manifest[65], program[65], text[512];
    struct stat sb;
    gem_status st = gem_manifest_digest(m->file, manifest, err);
    if (st != GEM_OK) return st;
    if ((st = gem_sha256_file("/proc/self/exe", program, err)) != GEM_OK) return st;
    if (stat(gem_gguf_path(m->file), &sb) != 0)
        return gem_fail(err, GEM_E_IO, "%s: %s", gem_gguf_path(m->file), strerror(errno));
    gem_sha256 *h = gem_sha256_new();
    if (!h) return gem_fail(err, GEM_E_NOMEM, "no memory for the fingerprint of the model");
    int n = snprintf(text, sizeof(text),
                     "%s\n%s %s %s\n%s %s\n%llu %lld.%09ld\nkv %d exact %d mapped %d draft %d\n",
                     manifest, gem_version(), GEM_BUILD_COMMIT, program, m->ops->name, m->isa,
                     (unsigned long long)gem_gguf_bytes(m->file), (long long)sb.st_mtim.tv_sec,
                     sb.st_mtim.tv_nsec, (int)m->kv_type, m->exact, m->no_repack,
                     m->plan.draft_op != 0);
    gem_sha256_update(h, text, (size_t)n);
    for (int l = -1; l < m->plan.n_layers; l++) {
        n = snprintf(text, sizeof(text), "%d %zu %d\n", l, gem_image_part_bytes(m, l),
                     l < 0 ? 0 : (int)m->layout.window[l]);
        gem_sha256_update(h, text, (size_t)n);
    }
    digest_samples(h, m->file);
    finish(h, out);
    return GEM_OK;
}

/* ---- heads ---- */

static size_t head_bytes(const gem_disk_head *h)
{
    return FIXED + 4 * (size_t)(h->n - h->from) + 8 * h->n_parts + DIGEST;
}

void gem_disk_head_settle(gem_disk_head *h, const gem_model *m)
{
    h->data_at = h->file_bytes = head_bytes(h);
    for (size_t i = 0; i < h->n_parts; i++)
        h->file_bytes += gem_image_part_bytes(m, h->part[i].layer);
    h->file_bytes += DIGEST;
}

static bool digest_bytes(const void *data, size_t len, uint8_t out[DIGEST])
{
    gem_sha256 *h = gem_sha256_new();
    if (!h) return false;
    gem_sha256_update(h, data, len);
    finish(h, out);
    return true;
}

/* Read exactly len bytes; false: the file ends, or an error (errno is not 0). */
static bool read_all(int fd, void *out, size_t len, uint64_t at)
{
    char *to = out;
    errno = 0;
    while (len) {
        ssize_t n = pread(fd, to, len, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        to += n;
        len -= (size_t)n;
        at += (uint64_t)n;
    }
    return true;
}

static gem_status cut(const char *name, gem_error *err)
{
    if (errno) return gem_fail(err, GEM_E_IO, "%s: %s", name, strerror(errno));
    return gem_fail(err, GEM_E_FORMAT, "%s: truncated", name);
}

bool gem_disk_head_first(const gem_disk_head *h, const gem_model *m, int32_t *first)
{
    int32_t end = (h->n + GEM_PAGE - 1) / GEM_PAGE;
    for (int l = 0; l < m->plan.n_layers; l++)
        first[l] = end;
    for (size_t i = 0; i < h->n_parts; i++)
        if (h->part[i].layer >= 0)
            first[h->part[i].layer] = GEM_MIN(first[h->part[i].layer], h->part[i].index);
    for (int l = 0; l < m->plan.n_layers; l++) {
        int32_t n = 0, due = m->layout.window[l] ? first[l] : h->from / GEM_PAGE;
        if (!gem_image_part_bytes(m, l)) continue;
        for (size_t i = 0; i < h->n_parts; i++) /* pages of a layer stand in rising order */
            n += h->part[i].layer == l && h->part[i].index == due + n;
        if (due + n != end) return false;
    }
    return true;
}

static bool part_fits(const gem_disk_head *h, const gem_disk_part *p, const gem_model *m)
{
    if (p->layer < -1 || p->layer >= m->plan.n_layers) return false;
    if (!gem_image_part_bytes(m, p->layer)) return false;
    if (p->layer < 0) return p->index > h->from / GEM_PAGE && p->index <= h->n / GEM_PAGE;
    int32_t end = (h->n + GEM_PAGE - 1) / GEM_PAGE;
    int32_t first = m->layout.window[p->layer] ? 0 : h->from / GEM_PAGE;
    return p->index >= first && p->index < end;
}

/* The variable fields, from a head whose digest was right. */
static gem_status parse(gem_disk_head *h, const uint8_t *at, const char *name, const gem_model *m,
                        gem_error *err)
{
    size_t n = (size_t)(h->n - h->from);
    h->tokens = malloc((n + 1) * sizeof(*h->tokens));
    h->part = malloc((h->n_parts + 1) * sizeof(*h->part));
    if (!h->tokens || !h->part) return gem_fail(err, GEM_E_NOMEM, "%s: no memory for it", name);
    for (size_t i = 0; i < n; i++, at += 4) {
        h->tokens[i] = (int32_t)get32(at);
        if (h->tokens[i] < 0 || h->tokens[i] >= m->plan.n_vocab)
            return gem_fail(err, GEM_E_FORMAT, "%s: token %zu is %d", name, i, h->tokens[i]);
    }
    for (size_t i = 0; i < h->n_parts; i++, at += 8) {
        h->part[i] = (gem_disk_part){(int32_t)get32(at), (int32_t)get32(at + 4)};
        if (!part_fits(h, &h->part[i], m))
            return gem_fail(err, GEM_E_FORMAT, "%s: part %zu is of layer %d, place %d", name, i,
                            h->part[i].layer, h->part[i].index);
    }
    gem_disk_head_settle(h, m);
    return GEM_OK;
}

static gem_status read_fixed(gem_disk_head *h, const uint8_t *b, const char *name,
                             const gem_model *m, const uint8_t *fingerprint, gem_error *err)
{
    if (memcmp(b, magic, MAGIC) != 0)
        return gem_fail(err, GEM_E_UNSUPPORTED, "%s: not of this format", name);
    uint8_t *const digest[] = {h->fingerprint, h->key, h->parent};
    for (size_t i = 0; i < ARRAY_LEN(digest); i++)
        memcpy(digest[i], b + MAGIC + i * DIGEST, DIGEST);
    if (memcmp(h->fingerprint, fingerprint, DIGEST) != 0)
        return gem_fail(err, GEM_E_UNSUPPORTED, "%s: of another model or build", name);
    b += MAGIC + 3 * DIGEST;
    uint32_t from = get32(b), n = get32(b + 4), parts = get32(b + 8);
    if (n < 1 || n > (1 << 24) || from > n || from % GEM_PAGE ||
        !from != !memcmp(h->parent, (uint8_t[DIGEST]){0}, DIGEST) || get32(b + 12) ||
        parts > (n / GEM_PAGE + 2) * ((uint32_t)m->plan.n_layers + 1))
        return gem_fail(err, GEM_E_FORMAT, "%s: %u parts of positions %u to %u", name, parts, from,
                        n);
    h->from = (int32_t)from;
    h->n = (int32_t)n;
    h->n_parts = parts;
    return GEM_OK;
}

gem_status gem_disk_head_read(gem_disk_head *out, int fd, const char *name, const gem_model *m,
                              const uint8_t fingerprint[32], gem_error *err)
{
    uint8_t fixed[FIXED], got[DIGEST], *all = NULL;
    struct stat sb;
    memset(out, 0, sizeof(*out));
    if (!read_all(fd, fixed, FIXED, 0)) return cut(name, err);
    gem_status st = read_fixed(out, fixed, name, m, fingerprint, err);
    if (st != GEM_OK) return st;
    size_t len = head_bytes(out);
    if (!(all = malloc(len))) return gem_fail(err, GEM_E_NOMEM, "%s: no memory for it", name);
    if (!read_all(fd, all, len, 0))
        st = cut(name, err);
    else if (!digest_bytes(all, len - DIGEST, got))
        st = gem_fail(err, GEM_E_NOMEM, "%s: no memory for its digest", name);
    else if (memcmp(got, all + len - DIGEST, DIGEST) != 0)
        st = gem_fail(err, GEM_E_FORMAT, "%s: damaged", name);
    else
        st = parse(out, all + FIXED, name, m, err);
    free(all);
    if (st == GEM_OK && (fstat(fd, &sb) != 0 || (uint64_t)sb.st_size != out->file_bytes))
        st = gem_fail(err, GEM_E_FORMAT, "%s: %lld bytes, expected %llu", name,
                      (long long)sb.st_size, (unsigned long long)out->file_bytes);
    if (st != GEM_OK) gem_disk_head_free(out);
    return st;
}

/* ---- parts ---- */

static size_t largest_part(const gem_disk_head *h, const gem_model *m)
{
    size_t max = 1;
    for (size_t i = 0; i < h->n_parts; i++)
        max = GEM_MAX(max, gem_image_part_bytes(m, h->part[i].layer));
    return max;
}

gem_status gem_disk_data_read(const gem_disk_head *h, int fd, const char *name, const gem_model *m,
                              gem_disk_take_fn fn, void *user, gem_error *err)
{
    gem_status st = GEM_OK;
    uint64_t at = h->data_at;
    uint8_t want[DIGEST], got[DIGEST];
    gem_sha256 *sum = gem_sha256_new();
    char *buf = malloc(largest_part(h, m));
    if (!sum || !buf) st = gem_fail(err, GEM_E_NOMEM, "%s: no memory for its parts", name);
    for (size_t i = 0; st == GEM_OK && i < h->n_parts; i++) {
        size_t len = gem_image_part_bytes(m, h->part[i].layer);
        if (!read_all(fd, buf, len, at)) {
            st = cut(name, err);
            break;
        }
        at += len;
        gem_sha256_update(sum, buf, len);
        if (!fn(user, &h->part[i], buf)) st = gem_fail(err, GEM_E_CANCELLED, "%s: given up", name);
    }
    if (st == GEM_OK && !read_all(fd, want, DIGEST, at)) st = cut(name, err);
    if (sum) finish(sum, got);
    if (st == GEM_OK && memcmp(want, got, DIGEST) != 0)
        st = gem_fail(err, GEM_E_FORMAT, "%s: damaged", name);
    free(buf);
    return st;
}

/* ---- writing ---- */

typedef struct sink {
    int fd;
    uint8_t *buf; /* owned, [BUFFER] */
    size_t len;
    gem_sha256 *sum; /* of what is put; NULL: none at the moment */
    bool failed;     /* errno says why */
} sink;

static void drain(sink *s)
{
    const uint8_t *p = s->buf;
    while (s->len && !s->failed) {
        ssize_t n = write(s->fd, p, s->len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            s->failed = true;
            break;
        }
        p += n;
        s->len -= (size_t)n;
    }
    s->len = 0;
}

static void put(sink *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    if (s->sum) gem_sha256_update(s->sum, data, len);
    while (len) {
        size_t n = GEM_MIN(len, BUFFER - s->len);
        memcpy(s->buf + s->len, p, n);
        s->len += n;
        p += n;
        len -= n;
        if (s->len == BUFFER) drain(s);
    }
}

static void put_u32(sink *s, uint32_t v)
{
    uint8_t b[4];
    put32(b, v);
    put(s, b, 4);
}

/* The digest of what was put since begin_sum. */
static bool begin_sum(sink *s)
{
    return (s->sum = gem_sha256_new()) != NULL;
}

static void end_sum(sink *s)
{
    uint8_t sum[DIGEST];
    finish(s->sum, sum);
    s->sum = NULL;
    put(s, sum, DIGEST);
}

static void put_head(sink *s, const gem_disk_head *h)
{
    put(s, magic, MAGIC);
    put(s, h->fingerprint, DIGEST);
    put(s, h->key, DIGEST);
    put(s, h->parent, DIGEST);
    put_u32(s, (uint32_t)h->from);
    put_u32(s, (uint32_t)h->n);
    put_u32(s, (uint32_t)h->n_parts);
    put_u32(s, 0);
    for (int32_t i = 0; i < h->n - h->from; i++)
        put_u32(s, (uint32_t)h->tokens[i]);
    for (size_t i = 0; i < h->n_parts; i++) {
        put_u32(s, (uint32_t)h->part[i].layer);
        put_u32(s, (uint32_t)h->part[i].index);
    }
}

static gem_status put_file(sink *s, const gem_disk_head *h, const gem_model *m, gem_disk_give_fn fn,
                           void *user, gem_error *err)
{
    gem_status st = GEM_OK;
    char *part = malloc(largest_part(h, m));
    if (!part || !begin_sum(s)) {
        free(part);
        return gem_fail(err, GEM_E_NOMEM, "no memory to write a file of the disk cache");
    }
    put_head(s, h);
    end_sum(s);
    if (!begin_sum(s)) st = gem_fail(err, GEM_E_NOMEM, "no memory for a digest");
    for (size_t i = 0; st == GEM_OK && i < h->n_parts && !s->failed; i++) {
        if (fn(user, i, part))
            put(s, part, gem_image_part_bytes(m, h->part[i].layer));
        else
            st = gem_fail(err, GEM_E_CANCELLED, "given up");
    }
    if (s->sum) end_sum(s);
    drain(s);
    free(part);
    return st;
}

gem_status gem_disk_file_write(int dir, const gem_disk_head *h, const gem_model *m,
                               gem_disk_give_fn fn, void *user, gem_error *err)
{
    char name[GEM_DISK_NAME], tmp[GEM_DISK_NAME + 4];
    gem_disk_name(name, h->key);
    snprintf(tmp, sizeof(tmp), "%s.tmp", name);
    sink s = {.buf = malloc(BUFFER)};
    if (!s.buf) return gem_fail(err, GEM_E_NOMEM, "no memory to write a file of the disk cache");
    s.fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s.fd < 0) {
        free(s.buf);
        return gem_fail(err, GEM_E_IO, "%s: %s", tmp, strerror(errno));
    }
    gem_status st = put_file(&s, h, m, fn, user, err);
    if (st == GEM_OK && (s.failed || fsync(s.fd) != 0))
        st = gem_fail(err, GEM_E_IO, "%s: %s", tmp, strerror(errno));
    if (close(s.fd) != 0 && st == GEM_OK)
        st = gem_fail(err, GEM_E_IO, "%s: %s", tmp, strerror(errno));
    if (st == GEM_OK && renameat(dir, tmp, dir, name) != 0)
        st = gem_fail(err, GEM_E_IO, "%s: %s", name, strerror(errno));
    if (st == GEM_OK)
        fsync(dir); /* a name lost in a crash is a file not found: no harm */
    else
        unlinkat(dir, tmp, 0);
    free(s.buf);
    return st;
}
