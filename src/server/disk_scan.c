/* disk_scan.c - which files of the folder can be used: heads are read and checked, then each text
 * is put together along its parents and compared with the digest in the file's name. The parts'
 * digests are checked when they are read. */
#include "server/disk_scan.h"

#include "server/serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UNFINISHED, FOREIGN, DAMAGED, ORPHAN, REASONS };

typedef struct found {
    gem_disk_head head;
    int32_t *first; /* owned until entered */
    int64_t used;
    enum { UNSEEN, SEEN, ENTERED, REFUSED } at;
} found;

typedef struct scan {
    gem_disk_index *x;
    const gem_server *s;
    const gem_model *m;
    int dir;
    const uint8_t *fingerprint;
    found *file; /* owned */
    size_t n, cap;
    size_t removed[REASONS];
    char why[REASONS][512]; /* the first of each */
} scan;

static void refuse(scan *c, const char *name, int reason, const char *why)
{
    if (!c->removed[reason]++) snprintf(c->why[reason], sizeof(c->why[reason]), "%s", why);
    unlinkat(c->dir, name, 0);
}

/* 64 hex digits, .gemkv, and perhaps .tmp: nothing else is ours. */
static bool is_ours(const char *name, bool *unfinished)
{
    size_t n = strspn(name, "0123456789abcdef");
    *unfinished = strcmp(name + n, ".gemkv.tmp") == 0;
    return n == 64 && (*unfinished || strcmp(name + n, ".gemkv") == 0);
}

static gem_status add_file(scan *c, const char *name, gem_error *err)
{
    gem_error why;
    char own[GEM_DISK_NAME];
    struct stat sb;
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 64;
        found *grown = realloc(c->file, cap * sizeof(*grown));
        if (!grown) return gem_fail(err, GEM_E_NOMEM, "no memory for the disk cache");
        c->file = grown;
        c->cap = cap;
    }
    found *f = &c->file[c->n];
    memset(f, 0, sizeof(*f));
    int fd = openat(c->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    gem_status st = fd >= 0 && fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode)
                        ? gem_disk_head_read(&f->head, fd, name, c->m, c->fingerprint, &why)
                        : gem_fail(&why, GEM_E_IO, "%s: cannot be read", name);
    if (fd >= 0) close(fd);
    if (st == GEM_OK) {
        gem_disk_name(own, f->head.key);
        f->first = malloc((size_t)c->m->plan.n_layers * sizeof(*f->first));
        if (!f->first || strcmp(own, name) != 0 || !gem_disk_head_first(&f->head, c->m, f->first))
            st = gem_fail(&why, GEM_E_FORMAT, "%s: damaged", name);
    }
    if (st != GEM_OK) {
        gem_disk_head_free(&f->head);
        free(f->first);
        refuse(c, name, st == GEM_E_UNSUPPORTED ? FOREIGN : DAMAGED, why.text);
        return GEM_OK;
    }
    f->used = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
    c->n++;
    return GEM_OK;
}

static int by_key(const void *a, const void *b)
{
    return memcmp(((const found *)a)->head.key, ((const found *)b)->head.key, 32);
}

static found *find(const scan *c, const uint8_t key[32])
{
    size_t lo = 0, hi = c->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int d = memcmp(c->file[mid].head.key, key, 32);
        if (d == 0) return &c->file[mid];
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* The text as its parents tell it has the digest that names the file. */
static bool text_fits(const found *f, const gem_disk_entry *parent)
{
    const gem_disk_head *h = &f->head;
    uint8_t key[32];
    int32_t *text = malloc((size_t)h->n * sizeof(*text));
    if (!text) return false;
    if (parent) gem_disk_entry_text(parent, h->from, text);
    memcpy(text + h->from, h->tokens, (size_t)(h->n - h->from) * sizeof(*text));
    bool fits = gem_disk_digest(text, (size_t)h->n, key) && memcmp(key, h->key, 32) == 0;
    free(text);
    return fits;
}

/* Enter a file whose parent was entered, or has none. */
static void enter(scan *c, found *f)
{
    gem_disk_entry *parent = f->head.from ? gem_disk_index_find(c->x, f->head.parent) : NULL;
    f->at = REFUSED;
    if (f->head.from && (!parent || parent->n < f->head.from)) return;
    if (!text_fits(f, parent)) return;
    if (!gem_disk_index_add(c->x, c->m, parent, &f->head, f->first, f->used)) return;
    f->first = NULL;
    f->at = ENTERED;
}

/* A file after all those before it: along the parents to one that is settled, and back. */
static void resolve(scan *c, found *f)
{
    found **chain = malloc((c->n + 1) * sizeof(found *));
    size_t depth = 0;
    if (!chain) return;
    for (; f && f->at == UNSEEN; f = f->head.from ? find(c, f->head.parent) : NULL) {
        f->at = SEEN; /* a circle ends here, and its files find no parent */
        chain[depth++] = f;
    }
    while (depth)
        enter(c, chain[--depth]);
    free(chain);
}

static void report(const scan *c)
{
    static const char *const name[REASONS] = {"unfinished", "of another model, build or format",
                                              "damaged", "without the text before them"};
    for (int i = 0; i < REASONS; i++)
        if (c->removed[i])
            gem_log_line(c->s, "disk cache: removed %zu files %s: %s%s", c->removed[i], name[i],
                         c->why[i], c->removed[i] > 1 ? ", and others" : "");
}

gem_status gem_disk_scan(gem_disk_index *x, const gem_server *s, const gem_model *m, int dir,
                         const uint8_t fingerprint[32], gem_error *err)
{
    scan c = {.x = x, .s = s, .m = m, .dir = dir, .fingerprint = fingerprint};
    gem_status st = GEM_OK;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        if (fd >= 0) close(fd);
        return gem_fail(err, GEM_E_IO, "disk cache: the folder cannot be read: %s",
                        strerror(errno));
    }
    for (struct dirent *e; st == GEM_OK && (e = readdir(list));) {
        bool unfinished;
        if (!is_ours(e->d_name, &unfinished)) continue;
        if (unfinished)
            refuse(&c, e->d_name, UNFINISHED, e->d_name);
        else
            st = add_file(&c, e->d_name, err);
    }
    closedir(list);
    if (c.n) qsort(c.file, c.n, sizeof(*c.file), by_key);
    for (size_t i = 0; i < c.n; i++)
        resolve(&c, &c.file[i]);
    for (size_t i = 0; i < c.n; i++) {
        char name[GEM_DISK_NAME];
        gem_disk_name(name, c.file[i].head.key);
        if (c.file[i].at != ENTERED) refuse(&c, name, ORPHAN, name);
        gem_disk_head_free(&c.file[i].head);
        free(c.file[i].first);
    }
    free(c.file);
    report(&c);
    return st;
}
