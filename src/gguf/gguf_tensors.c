/* gguf_tensors.c - tensor entries, and that the data of each lies in the file, apart from the
 * others. Called by gguf_parse.c. */
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static gem_status unknown_dtype(const gem_gguf_part *p, const char *name, uint32_t id,
                                gem_error *err)
{
    char list[128];
    size_t n = 0;
    for (const gem_dtype_info *t = gem_dtypes; t->name && n < sizeof(list); t++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n ? " " : "", t->name);
    return gem_fail(err, GEM_E_UNSUPPORTED,
                    "%s: tensor '%s': type %" PRIu32 " is not supported, only %s", p->label, name,
                    id, list);
}

/* Bytes of the whole tensor, each product checked. */
static gem_status tensor_size(const gem_gguf_part *p, gem_tensor *t, const gem_dtype_info *info,
                              const char *name, gem_error *err)
{
    if (t->dim[0] % info->block_len != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': its rows have %" PRIu64
                        " elements, no multiple of the %" PRIu32 " of a %s block",
                        p->label, name, t->dim[0], info->block_len, info->name);
    bool ok = gem_dtype_row_bytes(info, t->dim[0], &t->row_bytes);
    t->bytes = t->row_bytes;
    for (uint32_t d = 1; ok && d < t->n_dims; d++)
        ok = t->dim[d] <= SIZE_MAX && gem_mul_ok(t->bytes, (size_t)t->dim[d], &t->bytes);
    if (ok) return GEM_OK;
    return gem_fail(err, GEM_E_FORMAT,
                    "%s: tensor '%s': its size %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                    " overflows 64 bits",
                    p->label, name, t->dim[0], t->dim[1], t->dim[2], t->dim[3]);
}

/* One entry; *offset is where its data starts, counted from the start of the data. */
static gem_status parse_tensor(gem_gguf *g, const gem_gguf_part *p, gem_gguf_cursor *c,
                               uint64_t index, uint64_t alignment, uint64_t *offset, gem_error *err)
{
    gem_status st;
    char *owned_name = NULL, name[GEM_GGUF_SHOWN];
    uint32_t dtype;
    gem_tensor *list = gem_gguf_grow(g->tensors, &g->cap_tensors, g->n_tensors, sizeof(*list));
    if (!list) return gem_gguf_no_memory(p, err);
    g->tensors = list;
    if ((st = gem_gguf_take_name(p, c, "tensor", index, GEM_GGUF_NAME_MAX, &owned_name, err)) !=
        GEM_OK)
        return st;
    gem_tensor *t = &g->tensors[g->n_tensors++];
    memset(t, 0, sizeof(*t));
    t->name = owned_name; /* owned by g from here on */
    gem_gguf_shown(t->name, strlen(t->name), name);

    if (!gem_gguf_take(c, &t->n_dims, 4)) goto cut;
    if (t->n_dims < 1 || t->n_dims > 4)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': it has %" PRIu32 " dimensions; expected 1 to 4", p->label,
                        name, t->n_dims);
    for (uint32_t d = 0; d < 4; d++) {
        t->dim[d] = 1;
        if (d < t->n_dims && !gem_gguf_take(c, &t->dim[d], 8)) goto cut;
        if (t->dim[d] == 0)
            return gem_fail(err, GEM_E_FORMAT, "%s: tensor '%s': dimension %" PRIu32 " is 0",
                            p->label, name, d);
    }
    if (!gem_gguf_take(c, &dtype, 4) || !gem_gguf_take(c, offset, 8)) goto cut;
    const gem_dtype_info *info = gem_dtype_get(dtype);
    if (!info) return unknown_dtype(p, name, dtype, err);
    t->dtype = info->dtype;
    if ((st = tensor_size(p, t, info, name, err)) != GEM_OK) return st;
    if (*offset % alignment != 0)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': offset %" PRIu64
                        " is no multiple of the alignment %" PRIu64,
                        p->label, name, *offset, alignment);
    return GEM_OK;
cut:
    return gem_fail(err, GEM_E_FORMAT,
                    "%s: tensor '%s': the file ends at %zu bytes, inside its entry", p->label, name,
                    p->size);
}

static int by_data(const void *a, const void *b)
{
    const gem_tensor *x = *(const gem_tensor *const *)a, *y = *(const gem_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x < y ? -1
                 : x > y; /* equal starts in file order, so that the sentence is always the same */
}

static gem_status check_overlap(const gem_gguf *g, const gem_gguf_part *p, gem_error *err)
{
    gem_status st = GEM_OK;
    char a[GEM_GGUF_SHOWN], b[GEM_GGUF_SHOWN];
    if (p->n_tensors < 2) return GEM_OK;
    const gem_tensor **order = malloc(p->n_tensors * sizeof(*order));
    if (!order) return gem_gguf_no_memory(p, err);
    for (size_t i = 0; i < p->n_tensors; i++)
        order[i] = &g->tensors[p->first_tensor + i];
    qsort(order, p->n_tensors, sizeof(*order), by_data);
    for (size_t i = 1; i < p->n_tensors && st == GEM_OK; i++) {
        const gem_tensor *lo = order[i - 1], *hi = order[i];
        if ((size_t)(hi->data - lo->data) >= lo->bytes) continue;
        st = gem_fail(
            err, GEM_E_FORMAT,
            "%s: tensors '%s' and '%s' overlap: %zu bytes, but the second starts %zu bytes after",
            p->label, gem_gguf_shown(lo->name, strlen(lo->name), a),
            gem_gguf_shown(hi->name, strlen(hi->name), b), lo->bytes,
            (size_t)(hi->data - lo->data));
    }
    free(order);
    return st;
}

/* A tensor whose data is not in the file: say what the whole file would need, if that can be said.
 */
static gem_status out_of_file(const gem_gguf *g, const gem_gguf_part *p, const uint64_t *offsets,
                              uint64_t start, size_t bad, gem_error *err)
{
    char name[GEM_GGUF_SHOWN];
    const gem_tensor *t = &g->tensors[p->first_tensor + bad];
    uint64_t needed = 0;
    bool known = true;
    for (size_t i = 0; i < p->n_tensors; i++) {
        uint64_t end;
        if (__builtin_add_overflow(offsets[i], (uint64_t)g->tensors[p->first_tensor + i].bytes,
                                   &end) ||
            __builtin_add_overflow(end, start, &end))
            known = false;
        else
            needed = GEM_MAX(needed, end);
    }
    gem_gguf_shown(t->name, strlen(t->name), name);
    if (!known)
        return gem_fail(err, GEM_E_FORMAT,
                        "%s: tensor '%s': offset %" PRIu64
                        " with %zu bytes is beyond 64 bits; the file has %zu",
                        p->label, name, offsets[bad], t->bytes, p->size);
    return gem_fail(err, GEM_E_FORMAT,
                    "%s: the file is cut short or broken: its tensors need %" PRIu64
                    " bytes, it has %zu; tensor '%s' (offset %" PRIu64
                    ", %zu bytes) is not fully inside",
                    p->label, needed, p->size, name, offsets[bad], t->bytes);
}

gem_status gem_gguf_parse_tensors(gem_gguf *g, gem_gguf_part *p, gem_gguf_cursor *c, uint64_t n,
                                  uint64_t alignment, gem_error *err)
{
    gem_status st = GEM_OK;
    uint64_t *offsets = NULL;
    size_t cap = 0;
    p->first_tensor = g->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *list = gem_gguf_grow(offsets, &cap, (size_t)i, sizeof(*list));
        if (!list) {
            st = gem_gguf_no_memory(p, err);
            goto done;
        }
        offsets = list;
        if ((st = parse_tensor(g, p, c, i, alignment, &offsets[i], err)) != GEM_OK) goto done;
        p->n_tensors++;
    }
    uint64_t start = gem_round_up(c->pos, alignment); /* both below 2^63: no overflow */
    uint64_t room = start < p->size ? p->size - start : 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        gem_tensor *t = &g->tensors[p->first_tensor + i];
        if (t->bytes > room || offsets[i] > room - t->bytes) {
            st = out_of_file(g, p, offsets, start, i, err);
            goto done;
        }
        t->data = p->data + start + offsets[i];
    }
    st = check_overlap(g, p, err);
done:
    free(offsets);
    return st;
}
