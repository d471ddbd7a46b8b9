/* manifest.c - walking a folder, writing and judging its manifest. */
#include "evidence/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 100000, MAX_LEVELS = 16, MAX_MANIFEST = 64 << 20 };

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ev_entry *)a)->name, ((const ev_entry *)b)->name);
}

void ev_folder_free(ev_folder *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->v[i].name);
    free(f->v);
    memset(f, 0, sizeof(*f));
}

static gem_status add(ev_folder *f, const char *path, const char *name, gem_error *err)
{
    struct stat sb;
    if (f->n == MAX_FILES)
        return gem_fail(err, GEM_E_RANGE, "%s: more than %d files", path, MAX_FILES);
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 64;
        ev_entry *v = realloc(f->v, cap * sizeof(*v));
        if (!v) return gem_fail(err, GEM_E_NOMEM, "no memory for %zu names", cap);
        f->v = v;
        f->cap = cap;
    }
    ev_entry *e = &f->v[f->n];
    memset(e, 0, sizeof(*e));
    if (lstat(path, &sb) != 0) return gem_fail(err, GEM_E_IO, "%s: %s", path, strerror(errno));
    e->name = strdup(name);
    if (!e->name) return gem_fail(err, GEM_E_NOMEM, "no memory for a name");
    f->n++;
    e->regular = S_ISREG(sb.st_mode);
    return e->regular ? gem_sha256_file(path, e->sha256, err) : GEM_OK;
}

static gem_status walk(ev_folder *f, const char *dir, const char *below, int level, gem_error *err)
{
    gem_status st = GEM_OK;
    DIR *d = opendir(dir);
    if (!d) return gem_fail(err, GEM_E_IO, "%s: %s", dir, strerror(errno));
    if (level > MAX_LEVELS)
        st = gem_fail(err, GEM_E_RANGE, "%s: more than %d levels", dir, MAX_LEVELS);
    for (const struct dirent *e; st == GEM_OK && (e = readdir(d)) != NULL;) {
        gem_bytes path = {0}, name = {0};
        struct stat sb;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (!*below && !strcmp(e->d_name, EV_MANIFEST)) continue;
        gem_bytes_printf(&path, "%s/%s", dir, e->d_name);
        gem_bytes_printf(&name, "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (path.failed || name.failed)
            st = gem_fail(err, GEM_E_NOMEM, "no memory for a name");
        else if (lstat(path.data, &sb) == 0 && S_ISDIR(sb.st_mode))
            st = walk(f, path.data, name.data, level + 1, err);
        else
            st = add(f, path.data, name.data, err);
        gem_bytes_free(&path);
        gem_bytes_free(&name);
    }
    closedir(d);
    return st;
}

gem_status ev_folder_read(ev_folder *f, const char *dir, gem_error *err)
{
    memset(f, 0, sizeof(*f));
    gem_status st = walk(f, dir, "", 0, err);
    if (f->n) qsort(f->v, f->n, sizeof(*f->v), by_name);
    return st;
}

const ev_entry *ev_folder_find(const ev_folder *f, const char *name)
{
    ev_entry key = {.name = (char *)name};
    return f->n ? bsearch(&key, f->v, f->n, sizeof(*f->v), by_name) : NULL;
}

/* Names that a line of the manifest can carry: no control character, no backslash. */
static bool plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f || *name == '\\') return false;
    return true;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

gem_status ev_manifest_write(const char *dir, gem_error *err)
{
    ev_folder f;
    gem_bytes path = {0}, text = {0};
    gem_bytes_printf(&path, "%s/%s", dir, EV_MANIFEST);
    gem_status st = ev_folder_read(&f, dir, err);
    if (st == GEM_OK && path.data && access(path.data, F_OK) == 0)
        st = gem_fail(err, GEM_E_FORMAT, "%s: the folder is sealed already", path.data);
    if (st == GEM_OK && !f.n) st = gem_fail(err, GEM_E_FORMAT, "%s: nothing to seal", dir);
    for (size_t i = 0; st == GEM_OK && i < f.n; i++) {
        const ev_entry *e = &f.v[i];
        if (!e->regular)
            st = gem_fail(err, GEM_E_FORMAT, "%s/%s: no regular file", dir, e->name);
        else if (!plain(e->name))
            st = gem_fail(err, GEM_E_FORMAT,
                          "%s: holds a name with a control character or backslash", dir);
        else if (ends_with(e->name, ".part") || ends_with(e->name, ".tmp"))
            st = gem_fail(err, GEM_E_FORMAT, "%s/%s: was left half written", dir, e->name);
        gem_bytes_printf(&text, "%s  %s\n", e->sha256, e->name);
    }
    if (st == GEM_OK)
        st = path.failed || text.failed
                 ? gem_fail(err, GEM_E_NOMEM, "no memory for the manifest")
                 : gem_file_write_atomic(path.data, text.data, text.len, err);
    ev_folder_free(&f);
    gem_bytes_free(&path);
    gem_bytes_free(&text);
    return st;
}

/* One line: splits it; false when it is not of the strict form. */
static bool split(char *line, const char **digest, const char **name)
{
    if (strlen(line) < 67 || line[64] != ' ' || line[65] != ' ') return false;
    line[64] = 0;
    *digest = line;
    *name = line + 66;
    return ev_is_digest(line) && plain(*name) && **name != '/' && !strstr(*name, "..");
}

typedef struct manifest {
    size_t lines, bad, changed;
    char changed_name[256];
    bool *listed; /* owned: [folder's n] */
} manifest;

static void read_lines(manifest *m, char *text, size_t len, const ev_folder *f)
{
    const char *digest, *name, *before = "";
    if (len == 0 || text[len - 1] != '\n' || strlen(text) != len) m->bad++;
    for (char *p = text, *next; *p; p = next) {
        next = strchr(p, '\n');
        if (!next) break; /* counted above */
        *next++ = 0;
        m->lines++;
        if (!split(p, &digest, &name) || strcmp(before, name) >= 0) {
            m->bad++;
            continue;
        }
        before = name;
        const ev_entry *e = ev_folder_find(f, name);
        if (e) m->listed[e - f->v] = true;
        if (e && strcmp(e->sha256, digest) == 0) continue;
        if (!m->changed++)
            snprintf(m->changed_name, sizeof(m->changed_name), "%.200s %s", name,
                     e ? "changed" : "is missing");
    }
}

void ev_judge_manifest(ev_judge *j, const char *dir, const ev_folder *f, const char *except)
{
    gem_bytes path = {0};
    char *text = NULL, hex[65];
    size_t len = 0, unlisted = 0, n = f->n;
    const char *stranger = "";
    manifest m = {.listed = calloc(f->n + 1, sizeof(bool))};
    gem_bytes_printf(&path, "%s/%s", dir, EV_MANIFEST);
    bool there = m.listed && path.data &&
                 gem_file_read(path.data, MAX_MANIFEST, &text, &len, NULL) == GEM_OK;
    if (there && gem_sha256_file(path.data, hex, NULL) == GEM_OK)
        gem_json_put_string(j->json, j->root, "manifest_sha256", hex);
    if (there) read_lines(&m, text, len, f);
    ev_check(j, there && !m.bad && m.lines > 0, "manifest",
             "a manifest: digest, two blanks, name; sorted, each once",
             "%s, %zu lines, %zu of another form", there ? "there" : "absent", m.lines, m.bad);
    ev_check(j, there && !m.changed, "digest", "every listed file as it was sealed",
             "%zu differ%s%s", m.changed, m.changed ? ": " : "", m.changed_name);
    for (size_t i = 0; m.listed && i < f->n; i++) {
        if (m.listed[i]) continue;
        if (except && !strcmp(f->v[i].name, except)) {
            n--;
            continue;
        }
        if (!unlisted++) stranger = f->v[i].name;
    }
    ev_check(j, there && !unlisted, "unlisted", "no file that the manifest does not list",
             "%zu%s%s", unlisted, unlisted ? ": " : "", stranger);
    gem_json_put_int(j->json, j->root, "files", (int64_t)n);
    free(m.listed);
    free(text);
    gem_bytes_free(&path);
}
