/* fuzz_gguf.c - the GGUF reader on any bytes: opens them and walks all that it hands out, so that a
 * pointer or length that leads outside the input is touched. */
#include "gguf/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum; /* keeps the reads alive */

static void read_bytes(const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        sum += b[i];
}

static void walk_kv(const gem_gguf *g, const gem_kv *kv)
{
    static const uint8_t each[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (gem_gguf_find(g, kv->key) != kv) abort();
    if (kv->kind == GEM_GGUF_STRING) read_bytes(kv->v.s.data, kv->v.s.len);
    if (kv->kind != GEM_GGUF_ARRAY) return;
    const uint8_t *pos = kv->v.array;
    if (kv->elem != GEM_GGUF_STRING) {
        read_bytes(pos, (size_t)kv->n * each[kv->elem]);
        return;
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        gem_str s = gem_kv_string_next(&pos);
        read_bytes(s.data, s.len);
    }
}

/* The getters on every key: none may fail without a sentence. */
static void read_typed(const gem_gguf *g, const char *key)
{
    gem_error err = {0};
    uint32_t u;
    float f;
    bool b;
    gem_str s;
    const uint8_t *a;
    uint64_t n;
    gem_status st[] = {
        gem_gguf_get_u32(g, key, true, 1, 1000, &u, &err),
        gem_gguf_get_f32(g, key, true, 0, 1, &f, &err),
        gem_gguf_get_bool(g, key, true, &b, &err),
        gem_gguf_get_str(g, key, true, &s, &err),
        gem_gguf_get_array(g, key, true, GEM_GGUF_STRING, &a, &n, &err),
    };
    for (size_t i = 0; i < ARRAY_LEN(st); i++)
        if (st[i] != GEM_OK && (st[i] != GEM_E_FORMAT || !err.text[0])) abort();
}

static void walk_tensor(const gem_gguf *g, const gem_tensor *t)
{
    float values[256];
    const gem_dtype_info *info = gem_dtype_get((uint32_t)t->dtype);
    if (gem_gguf_tensor(g, t->name) != t || !info || t->bytes == 0 || t->bytes % t->row_bytes != 0)
        abort();
    read_bytes(t->data, t->bytes);
    gem_dequantize_row(t->dtype, t->data, values, info->block_len);
    gem_gguf_drop_pages(g, t); /* must not touch memory that is not ours */
    read_bytes(t->data, t->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gem_gguf *g;
    gem_error err = {0};
    gem_status st = gem_gguf_open_memory(&g, data, size, "fuzz", &err);
    if (st != GEM_OK) {
        if (g || !err.text[0] || err.status != st) abort();
        return 0;
    }
    for (size_t i = 0; i < gem_gguf_n_kv(g); i++) {
        walk_kv(g, gem_gguf_kv_at(g, i));
        read_typed(g, gem_gguf_kv_at(g, i)->key);
    }
    if (gem_gguf_first_unmarked_kv(g, "")) abort(); /* the getters marked them all */
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        walk_tensor(g, gem_gguf_tensor_at(g, i));
        gem_gguf_mark_tensor(g, gem_gguf_tensor_at(g, i)->name);
    }
    if (gem_gguf_first_unmarked_tensor(g)) abort();
    gem_gguf_close(g);
    return 0;
}
