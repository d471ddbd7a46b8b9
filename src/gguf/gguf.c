/* gguf.c - the open container: its parts, the order by name, and access. Parsing: gguf_parse.c. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- life ---- */

void gem_gguf_close(gem_gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_tensors; i++)
        free((char *)g->tensors[i].name);
    for (size_t i = 0; i < g->n_parts; i++) {
        gem_gguf_part *p = &g->part[i];
        for (size_t k = 0; k < p->n_kv; k++)
            free((char *)p->kv[k].key);
        free(p->kv);
        free(p->path);
        gem_map_close(&p->map);
    }
    free(g->part);
    free(g->tensors);
    free(g->kv_by_key);
    free(g->tensor_by_name);
    free(g->kv_marked);
    free(g->tensor_marked);
    free(g);
}

/* A new container with room for n_parts, of which none is there yet. */
static gem_gguf *gguf_new(size_t n_parts)
{
    gem_gguf *g = calloc(1, sizeof(*g));
    if (g && !(g->part = calloc(n_parts, sizeof(*g->part)))) {
        free(g);
        g = NULL;
    }
    return g;
}

/* ---- order by name ----
 * Sorted indexes rather than hashing: a file cannot choose names that make them slow. */

static int by_key(const void *a, const void *b, void *user)
{
    const gem_kv *kv = user;
    return strcmp(kv[*(const uint32_t *)a].key, kv[*(const uint32_t *)b].key);
}

static int by_name(const void *a, const void *b, void *user)
{
    const gem_tensor *t = user;
    return strcmp(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static uint32_t *sorted(size_t n, int (*order)(const void *, const void *, void *), void *user)
{
    uint32_t *index = malloc((n ? n : 1) * sizeof(*index));
    if (!index) return NULL;
    for (size_t i = 0; i < n; i++)
        index[i] = (uint32_t)i;
    qsort_r(index, n, sizeof(*index), order, user);
    return index;
}

static gem_status check_duplicate_keys(const gem_gguf_part *p, const uint32_t *order,
                                       gem_error *err)
{
    char shown[GEM_GGUF_SHOWN];
    for (size_t i = 1; i < p->n_kv; i++) {
        const char *key = p->kv[order[i]].key;
        if (strcmp(p->kv[order[i - 1]].key, key) == 0)
            return gem_fail(err, GEM_E_FORMAT, "%s: key '%s' appears twice", p->label,
                            gem_gguf_shown(key, strlen(key), shown));
    }
    return GEM_OK;
}

static gem_status index_all(gem_gguf *g, gem_error *err)
{
    gem_status st;
    char shown[GEM_GGUF_SHOWN];
    gem_gguf_part *p = &g->part[0];
    if (g->n_tensors > UINT32_MAX || p->n_kv > UINT32_MAX)
        return gem_fail(err, GEM_E_FORMAT, "%s: more than 2^32 keys or tensors", p->label);
    g->kv_by_key = sorted(p->n_kv, by_key, p->kv);
    g->tensor_by_name = sorted(g->n_tensors, by_name, g->tensors);
    g->kv_marked = calloc(p->n_kv ? p->n_kv : 1, 1);
    g->tensor_marked = calloc(g->n_tensors ? g->n_tensors : 1, 1);
    if (!g->kv_by_key || !g->tensor_by_name || !g->kv_marked || !g->tensor_marked)
        return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its list of keys and tensors",
                        p->label);
    if ((st = check_duplicate_keys(p, g->kv_by_key, err)) != GEM_OK) return st;
    for (size_t i = 1; i < g->n_tensors; i++) {
        const char *name = g->tensors[g->tensor_by_name[i]].name;
        if (strcmp(g->tensors[g->tensor_by_name[i - 1]].name, name) == 0)
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor '%s' appears twice", p->label,
                            gem_gguf_shown(name, strlen(name), shown));
    }
    /* What the container itself explains. */
    gem_gguf_mark_kv(g, "split.no");
    gem_gguf_mark_kv(g, "split.count");
    gem_gguf_mark_kv(g, "split.tensors.count");
    gem_gguf_mark_kv(g, "general.alignment");
    return GEM_OK;
}

/* ---- split files ---- */

static const gem_kv *part_find(const gem_gguf_part *p, const char *key)
{
    for (size_t i = 0; i < p->n_kv; i++)
        if (strcmp(p->kv[i].key, key) == 0) return &p->kv[i];
    return NULL;
}

/* An integer key of any width as u64; `fallback` when absent. */
static gem_status part_count(const gem_gguf_part *p, const char *key, uint64_t fallback,
                             uint64_t *out, gem_error *err)
{
    const gem_kv *kv = part_find(p, key);
    *out = fallback;
    if (!kv) return GEM_OK;
    switch (kv->kind) {
    case GEM_GGUF_U8:
    case GEM_GGUF_U16:
    case GEM_GGUF_U32:
    case GEM_GGUF_U64:
        *out = kv->v.u;
        return GEM_OK;
    case GEM_GGUF_I8:
    case GEM_GGUF_I16:
    case GEM_GGUF_I32:
    case GEM_GGUF_I64:
        if (kv->v.i < 0)
            return gem_fail(err, GEM_E_FORMAT, "%s: key '%s' is %" PRId64 "; expected 0 or more",
                            p->label, key, kv->v.i);
        *out = (uint64_t)kv->v.i;
        return GEM_OK;
    default:
        return gem_fail(err, GEM_E_FORMAT, "%s: key '%s' has type %s; expected an integer",
                        p->label, key, gem_kv_kind_name((uint32_t)kv->kind));
    }
}

/* Length of `path` without its ending "-00001-of-0000N.gguf"; 0 when it has none that fits. */
static size_t split_stem(const char *path, uint64_t number, uint64_t count)
{
    char ending[64];
    int n = snprintf(ending, sizeof(ending), "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number, count);
    size_t len = strlen(path);
    if (n <= 0 || len <= (size_t)n || strcmp(path + len - (size_t)n, ending) != 0) return 0;
    return len - (size_t)n;
}

static gem_status check_part_number(const gem_gguf_part *p, uint64_t want_no, uint64_t want_count,
                                    gem_error *err)
{
    gem_status st;
    uint64_t no, count;
    if ((st = part_count(p, "split.no", 0, &no, err)) != GEM_OK) return st;
    if ((st = part_count(p, "split.count", 0, &count, err)) != GEM_OK) return st;
    if (no != want_no)
        return gem_fail(err, GEM_E_FORMAT, "%s: key 'split.no' is %" PRIu64 "; expected %" PRIu64,
                        p->label, no, want_no);
    if (count != want_count)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key 'split.count' is %" PRIu64 "; the first part says %" PRIu64,
                        p->label, count, want_count);
    return GEM_OK;
}

/* The part of a path that a sentence has room for. */
static const char *label_of(const char *path)
{
    size_t len = strlen(path), max = 160;
    return len > max ? path + (len - max) : path;
}

/* Map and parse the file at `path` as the next part; takes path. */
static gem_status add_part(gem_gguf *g, char *path, gem_error *err)
{
    gem_status st;
    gem_gguf_part *p = &g->part[g->n_parts];
    if (!path) return gem_fail(err, GEM_E_NOMEM, "no memory for the name of a part");
    p->path = path;
    p->label = label_of(path);
    g->n_parts++;
    if ((st = gem_map_open(&p->map, path, err)) != GEM_OK) return st;
    p->data = p->map.data;
    p->size = p->map.size;
    if (!p->data) return gem_fail(err, GEM_E_FORMAT, "%s: the file is empty", path);
    return gem_gguf_parse_part(g, p, err);
}

static gem_status open_other_parts(gem_gguf *g, uint64_t count, gem_error *err)
{
    gem_status st;
    uint64_t n_tensors, no;
    if (count > GEM_GGUF_PARTS_MAX)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key 'split.count' is %" PRIu64 "; expected at most %d",
                        g->part[0].label, count, GEM_GGUF_PARTS_MAX);
    if ((st = part_count(&g->part[0], "split.no", 0, &no, err)) != GEM_OK) return st;
    if (no != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key 'split.no' is %" PRIu64 ": this is part %" PRIu64 " of %" PRIu64
                        "; open the first part instead",
                        g->part[0].label, no, no + 1, count);
    size_t stem = split_stem(g->part[0].path, 1, count);
    if (stem == 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key 'split.count' is %" PRIu64
                        ", so the name must end in -00001-of-%05" PRIu64 ".gguf",
                        g->part[0].label, count, count);
    gem_gguf_part *parts = realloc(g->part, (size_t)count * sizeof(*parts));
    if (!parts) return gem_fail(err, GEM_E_NOMEM, "%s: no memory for its parts", g->part[0].label);
    memset(parts + 1, 0, ((size_t)count - 1) * sizeof(*parts));
    g->part = parts;
    for (uint64_t i = 1; i < count; i++) {
        size_t bytes = stem + 64;
        char *path = malloc(bytes);
        if (path)
            snprintf(path, bytes, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", (int)stem,
                     g->part[0].path, i + 1, count);
        if ((st = add_part(g, path, err)) != GEM_OK) return st;
        if ((st = check_part_number(&g->part[i], i, count, err)) != GEM_OK) return st;
    }
    if ((st = part_count(&g->part[0], "split.tensors.count", g->n_tensors, &n_tensors, err)) !=
        GEM_OK)
        return st;
    if (n_tensors != g->n_tensors)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: key 'split.tensors.count' is %" PRIu64 ", but the %" PRIu64
                        " parts hold %zu tensors",
                        g->part[0].label, n_tensors, count, g->n_tensors);
    return GEM_OK;
}

/* ---- open ---- */

gem_status gem_gguf_open(gem_gguf **out, const char *path, gem_error *err)
{
    gem_status st;
    uint64_t count;
    *out = NULL;
    gem_gguf *g = gguf_new(1);
    if (!g) return gem_fail(err, GEM_E_NOMEM, "%s: no memory to open it", path);
    if ((st = add_part(g, strdup(path), err)) != GEM_OK) goto done;
    if ((st = part_count(&g->part[0], "split.count", 1, &count, err)) != GEM_OK) goto done;
    if (count > 1 && (st = open_other_parts(g, count, err)) != GEM_OK) goto done;
    if ((st = index_all(g, err)) != GEM_OK) goto done;
    *out = g;
    g = NULL;
done:
    gem_gguf_close(g);
    return st;
}

gem_status gem_gguf_open_memory(gem_gguf **out, const void *data, size_t size, const char *name,
                                gem_error *err)
{
    gem_status st;
    uint64_t count;
    *out = NULL;
    gem_gguf *g = gguf_new(1);
    if (!g) return gem_fail(err, GEM_E_NOMEM, "%s: no memory to open it", name);
    gem_gguf_part *p = &g->part[0];
    g->n_parts = 1;
    p->data = data;
    p->size = size;
    if (!(p->path = strdup(name))) {
        st = gem_fail(err, GEM_E_NOMEM, "%s: no memory to open it", name);
        goto done;
    }
    p->label = label_of(p->path);
    if ((st = gem_gguf_parse_part(g, p, err)) != GEM_OK) goto done;
    if ((st = part_count(p, "split.count", 1, &count, err)) != GEM_OK) goto done;
    if (count > 1) {
        st = gem_fail(err, GEM_E_UNSUPPORTED,
                      "%s: key 'split.count' is %" PRIu64 "; one part alone is no model", name,
                      count);
        goto done;
    }
    if ((st = index_all(g, err)) != GEM_OK) goto done;
    *out = g;
    g = NULL;
done:
    gem_gguf_close(g);
    return st;
}

/* ---- access ---- */

const char *gem_gguf_path(const gem_gguf *g)
{
    return g->part[0].path;
}

uint64_t gem_gguf_bytes(const gem_gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_parts; i++)
        n += g->part[i].size;
    return n;
}

uint32_t gem_gguf_version(const gem_gguf *g)
{
    return g->part[0].version;
}

size_t gem_gguf_n_kv(const gem_gguf *g)
{
    return g->part[0].n_kv;
}

const gem_kv *gem_gguf_kv_at(const gem_gguf *g, size_t i)
{
    return &g->part[0].kv[i];
}

size_t gem_gguf_n_tensors(const gem_gguf *g)
{
    return g->n_tensors;
}

const gem_tensor *gem_gguf_tensor_at(const gem_gguf *g, size_t i)
{
    return &g->tensors[i];
}

const gem_kv *gem_gguf_find(const gem_gguf *g, const char *key)
{
    size_t lo = 0, hi = g->part[0].n_kv;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const gem_kv *kv = &g->part[0].kv[g->kv_by_key[mid]];
        int c = strcmp(key, kv->key);
        if (c == 0) return kv;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const gem_tensor *gem_gguf_tensor(const gem_gguf *g, const char *name)
{
    size_t lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const gem_tensor *t = &g->tensors[g->tensor_by_name[mid]];
        int c = strcmp(name, t->name);
        if (c == 0) return t;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

void gem_gguf_drop_pages(const gem_gguf *g, const gem_tensor *t)
{
    /* Only on our own file mappings: the same advice would erase a caller's memory. */
    if ((uintptr_t)t < (uintptr_t)g->tensors ||
        (uintptr_t)t >= (uintptr_t)(g->tensors + g->n_tensors))
        return;
    size_t i = (size_t)(t - g->tensors);
    for (size_t k = 0; k < g->n_parts; k++) {
        const gem_gguf_part *p = &g->part[k];
        if (i < p->first_tensor || i - p->first_tensor >= p->n_tensors || !p->map.data) continue;
        long page = sysconf(_SC_PAGESIZE);
        if (page <= 0) return;
        uintptr_t first =
            ((uintptr_t)t->data + (uintptr_t)page - 1) / (uintptr_t)page * (uintptr_t)page;
        uintptr_t end = ((uintptr_t)t->data + t->bytes) / (uintptr_t)page * (uintptr_t)page;
        if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
    }
}

/* ---- marks ---- */

void gem_gguf_mark_kv(gem_gguf *g, const char *key)
{
    const gem_kv *kv = gem_gguf_find(g, key);
    if (kv) g->kv_marked[kv - g->part[0].kv] = 1;
}

void gem_gguf_mark_tensor(gem_gguf *g, const char *name)
{
    const gem_tensor *t = gem_gguf_tensor(g, name);
    if (t) g->tensor_marked[t - g->tensors] = 1;
}

const gem_tensor *gem_gguf_first_unmarked_tensor(const gem_gguf *g)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!g->tensor_marked[i]) return &g->tensors[i];
    return NULL;
}

const gem_kv *gem_gguf_first_unmarked_kv(const gem_gguf *g, const char *prefix)
{
    const gem_gguf_part *p = &g->part[0];
    size_t len = strlen(prefix);
    for (size_t i = 0; i < p->n_kv; i++)
        if (!g->kv_marked[i] && strncmp(p->kv[i].key, prefix, len) == 0) return &p->kv[i];
    return NULL;
}
