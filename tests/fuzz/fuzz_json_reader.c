/* Any bytes: the reader returns; what it accepts survives writing and reading again, unchanged, and
 * the canonical form is a fixed point. */
#include "base/json_reader.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool finite_tree(const gem_json *v)
{
    if (v->type == GEM_JSON_NUMBER && (v->number - v->number) != 0) return false;
    for (const gem_json *m = v->first; m; m = m->next)
        if (!finite_tree(m)) return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gem_json_error err, err2;
    gem_json_doc *doc = gem_json_read((const char *)data, size, 64, &err);
    if (doc && err.fault == GEM_JSON_OK && finite_tree(gem_json_root(doc))) {
        gem_bytes a = {0}, b = {0}, c = {0};
        gem_json_write(&a, gem_json_root(doc));
        gem_json_write_canonical(&b, gem_json_root(doc), NULL);
        gem_json_doc *again = gem_json_read(a.data, a.len, 64, &err2);
        if (err2.fault != GEM_JSON_OK || !gem_json_equal(gem_json_root(doc), gem_json_root(again)))
            abort();
        gem_json_write_canonical(&c, gem_json_root(again), NULL);
        if (b.len != c.len || memcmp(b.data, c.data, b.len) != 0) abort();
        gem_json_free(again);
        gem_bytes_free(&a);
        gem_bytes_free(&b);
        gem_bytes_free(&c);
    }
    gem_json_free(doc);
    return 0;
}
