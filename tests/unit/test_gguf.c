/* test_gguf.c - the GGUF reader and writer: what is accepted reads back exactly, and each way of
 * being wrong gives its own sentence that names the key or tensor and the bad value. */
#include "cpu_time.h"
#include "gguf/gguf.h"
#include "gguf/gguf_write.h"
#include "gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const uint64_t dims_4_2[] = {4, 2};

/* Open a copy of exactly b->len bytes, so that the sanitizer sees a read behind the end. */
static gem_status open_bytes(gem_gguf **g, uint8_t **copy, const gem_bytes *b, gem_error *err)
{
    assert_false(b->failed);
    *copy = malloc(b->len ? b->len : 1);
    assert_non_null(*copy);
    if (b->len) memcpy(*copy, b->data, b->len);
    err->text[0] = 0;
    return gem_gguf_open_memory(g, *copy, b->len, "f.gguf", err);
}

static void expect_refused(gem_bytes *b, gem_status status, const char *what, const char *value)
{
    gem_gguf *g;
    gem_error err;
    uint8_t *copy;
    gem_status st = open_bytes(&g, &copy, b, &err);
    if (st != status || !strstr(err.text, what) || !strstr(err.text, value))
        fail_msg("status %d (expected %d), sentence \"%s\" (expected \"%s\" and \"%s\")", (int)st,
                 (int)status, err.text, what, value);
    assert_null(g);
    assert_int_equal(err.status, status);
    assert_memory_equal(err.text, "f.gguf: ", 8);
    assert_null(strchr(err.text, '\n'));
    free(copy);
    gem_bytes_free(b);
}

static void expect_format(gem_bytes *b, const char *what, const char *value)
{
    expect_refused(b, GEM_E_FORMAT, what, value);
}

/* ---- accepted ---- */

static void test_control_file_opens(void **state)
{
    (void)state;
    gem_bytes b = {0};
    gem_gguf *g;
    gem_error err;
    uint8_t *copy;
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    assert_int_equal(b.len, 160);
    assert_int_equal(open_bytes(&g, &copy, &b, &err), GEM_OK);
    assert_int_equal(gem_gguf_version(g), 3);
    assert_int_equal(gem_gguf_bytes(g), 160);
    assert_string_equal(gem_gguf_path(g), "f.gguf");
    assert_int_equal(gem_gguf_n_kv(g), 1);
    assert_int_equal(gem_gguf_n_tensors(g), 1);
    const gem_kv *kv = gem_gguf_find(g, "general.architecture");
    assert_ptr_equal(kv, gem_gguf_kv_at(g, 0));
    assert_int_equal(kv->kind, GEM_GGUF_STRING);
    assert_int_equal(kv->v.s.len, 6);
    assert_memory_equal(kv->v.s.data, "gemma3", 6);
    assert_null(gem_gguf_find(g, "general.architectur"));
    assert_null(gem_gguf_find(g, "general.architecture2"));
    const gem_tensor *t = gem_gguf_tensor(g, "t.weight");
    assert_ptr_equal(t, gem_gguf_tensor_at(g, 0));
    assert_int_equal(t->dtype, GEM_DTYPE_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dim[0], 4);
    assert_int_equal(t->dim[1], 2);
    assert_int_equal(t->dim[2], 1);
    assert_int_equal(t->dim[3], 1);
    assert_int_equal(t->bytes, 32);
    assert_int_equal(t->row_bytes, 16);
    assert_ptr_equal(t->data, copy + 128);
    assert_null(gem_gguf_tensor(g, "u.weight"));
    gem_gguf_close(g);
    free(copy);
    gem_bytes_free(&b);
}

static void test_version_2_and_bigger_alignment_open(void **state)
{
    (void)state;
    for (uint32_t alignment = 8; alignment <= 128; alignment *= 2) {
        gem_bytes b = {0};
        gem_gguf *g;
        gem_error err;
        uint8_t *copy;
        b_head(&b, 2, 2, 2);
        b_kv_str(&b, "general.architecture", "gemma3");
        b_kv_u32(&b, "general.alignment", alignment);
        b_tensor(&b, "a", 2, dims_4_2, GEM_DTYPE_F32, alignment > 32 ? alignment : 32);
        b_tensor(&b, "b", 2, dims_4_2, GEM_DTYPE_F32, 0);
        b_pad(&b, alignment);
        size_t start = b.len;
        b_data(&b, alignment, alignment > 32 ? alignment + 32 : 64);
        assert_int_equal(open_bytes(&g, &copy, &b, &err), GEM_OK);
        assert_int_equal(gem_gguf_version(g), 2);
        assert_ptr_equal(gem_gguf_tensor(g, "b")->data, copy + start);
        assert_ptr_equal(gem_gguf_tensor(g, "a")->data,
                         copy + start + (alignment > 32 ? alignment : 32));
        gem_gguf_close(g);
        free(copy);
        gem_bytes_free(&b);
    }
}

static void test_every_kind_reads_back(void **state)
{
    (void)state;
    gem_bytes b = {0};
    gem_gguf *g;
    gem_error err;
    uint8_t *copy;
    b_head(&b, 3, 0, 14);
    b_kv(&b, "u8", GEM_GGUF_U8), gem_bytes_put(&b, "\xFF", 1);
    b_kv(&b, "i8", GEM_GGUF_I8), gem_bytes_put(&b, "\x80", 1);
    b_kv(&b, "u16", GEM_GGUF_U16), gem_bytes_put(&b, "\xFE\xFF", 2);
    b_kv(&b, "i16", GEM_GGUF_I16), gem_bytes_put(&b, "\xFE\xFF", 2);
    b_kv(&b, "u32", GEM_GGUF_U32), b_u32(&b, 0xFFFFFFFEu);
    b_kv(&b, "i32", GEM_GGUF_I32), b_u32(&b, 0xFFFFFFFEu);
    float f = 1.5f;
    b_kv(&b, "f32", GEM_GGUF_F32), gem_bytes_put(&b, &f, 4);
    b_kv(&b, "bool", GEM_GGUF_BOOL), gem_bytes_put(&b, "\1", 1);
    b_kv(&b, "u64", GEM_GGUF_U64), b_u64(&b, UINT64_MAX - 1);
    b_kv(&b, "i64", GEM_GGUF_I64), b_u64(&b, UINT64_MAX - 1);
    double d = -2.25;
    b_kv(&b, "f64", GEM_GGUF_F64), gem_bytes_put(&b, &d, 8);
    b_kv_str(&b, "string", "");
    b_kv_array(&b, "strings", GEM_GGUF_STRING, 3), b_str(&b, "a"), b_str(&b, ""), b_str(&b, "bcd");
    b_kv_array(&b, "empty", GEM_GGUF_I32, 0);
    assert_int_equal(open_bytes(&g, &copy, &b, &err), GEM_OK);
    assert_int_equal(gem_gguf_find(g, "u8")->v.u, 255);
    assert_int_equal(gem_gguf_find(g, "i8")->v.i, -128);
    assert_int_equal(gem_gguf_find(g, "u16")->v.u, 65534);
    assert_int_equal(gem_gguf_find(g, "i16")->v.i, -2);
    assert_int_equal(gem_gguf_find(g, "u32")->v.u, 4294967294u);
    assert_int_equal(gem_gguf_find(g, "i32")->v.i, -2);
    assert_true(gem_gguf_find(g, "f32")->v.f == 1.5);
    assert_int_equal(gem_gguf_find(g, "bool")->v.u, 1);
    assert_true(gem_gguf_find(g, "u64")->v.u == UINT64_MAX - 1);
    assert_int_equal(gem_gguf_find(g, "i64")->v.i, -2);
    assert_true(gem_gguf_find(g, "f64")->v.f == -2.25);
    assert_int_equal(gem_gguf_find(g, "string")->v.s.len, 0);
    const gem_kv *strings = gem_gguf_find(g, "strings");
    assert_int_equal(strings->n, 3);
    assert_int_equal(strings->elem, GEM_GGUF_STRING);
    const uint8_t *pos = strings->v.array;
    gem_str s = gem_kv_string_next(&pos);
    assert_int_equal(s.len, 1);
    s = gem_kv_string_next(&pos);
    assert_int_equal(s.len, 0);
    s = gem_kv_string_next(&pos);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.data, "bcd", 3);
    assert_int_equal(gem_gguf_find(g, "empty")->n, 0);
    gem_gguf_close(g);
    free(copy);
    gem_bytes_free(&b);
}

/* ---- header ---- */

static void test_refuses_short_and_foreign_files(void **state)
{
    (void)state;
    gem_bytes b = {0};
    expect_format(&b, "0 bytes", "24");
    gem_bytes_put(&b, "GGUF\3\0\0\0", 8);
    expect_format(&b, "8 bytes", "24");
    gem_bytes_put(&b, "PK\3\4aaaaaaaaaaaaaaaaaaaaaaaaaa", 30);
    expect_format(&b, "no GGUF file", "PK\\x03\\x04");
    gem_bytes_put(&b, "version https://git-lfs.github.com/spec/v1", 40);
    expect_format(&b, "no GGUF file", "Git LFS pointer");
    gem_bytes_put(&b, "<!doctype html><html>", 21);
    expect_format(&b, "no GGUF file", "web page");
}

static void test_refuses_wrong_endianness(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 0x03000000u, 0, 0);
    expect_refused(&b, GEM_E_UNSUPPORTED, "big-endian", "50331648");
    gem_bytes_put(&b, "FUGG\0\0\0\3aaaaaaaaaaaaaaaaaaaaaaaa", 32);
    expect_format(&b, "big-endian", "FUGG");
}

static void test_refuses_other_versions(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 1, 0, 0);
    expect_refused(&b, GEM_E_UNSUPPORTED, "version 1", "2 and 3");
    b_head(&b, 4, 0, 0);
    expect_refused(&b, GEM_E_UNSUPPORTED, "version 4", "2 and 3");
    b_head(&b, 0, 0, 0);
    expect_format(&b, "version is 0", "2 or 3");
    b_head(&b, 0x12345678u, 0, 0);
    expect_format(&b, "version is 305419896", "2 or 3");
}

/* ---- sizes that no file can have ---- */

/* Peak resident memory of this process in bytes. */
static uint64_t peak_bytes(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (uint64_t)ru.ru_maxrss * 1024;
}

static void expect_cheap(gem_bytes *b, const char *what, const char *value)
{
    uint64_t before = peak_bytes();
    double start = cpu_seconds();
    expect_format(b, what, value);
    assert_true(cpu_seconds() - start < 1);
    assert_true(peak_bytes() - before < 16u << 20);
}

static void test_refuses_absurd_counts_cheaply(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 3, 0, (uint64_t)1 << 62);
    b_kv_str(&b, "general.architecture", "gemma3");
    expect_cheap(&b, "keys", "4611686018427387904");

    b_head(&b, 3, (uint64_t)1 << 62, 1);
    b_kv_str(&b, "general.architecture", "gemma3");
    expect_cheap(&b, "tensors", "4611686018427387904");
}

static void test_refuses_absurd_lengths_cheaply(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 3, 0, 1);
    b_kv(&b, "general.name", GEM_GGUF_STRING);
    b_u64(&b, UINT64_MAX);
    b_data(&b, 32, 64);
    expect_cheap(&b, "general.name", "18446744073709551615");

    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "x.bytes", GEM_GGUF_U8, (uint64_t)1 << 60);
    b_data(&b, 32, 64);
    expect_cheap(&b, "x.bytes", "1152921504606846976");

    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "tokenizer.ggml.tokens", GEM_GGUF_STRING, (uint64_t)1 << 40);
    b_data(&b, 32, 64);
    expect_cheap(&b, "tokenizer.ggml.tokens", "1099511627776");

    /* 8 * 2^61 wraps to 0 */
    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "x.wrap", GEM_GGUF_U64, (uint64_t)1 << 61);
    b_data(&b, 32, 64);
    expect_cheap(&b, "x.wrap", "2305843009213693952");

    b_head(&b, 3, 0, 1);
    b_u64(&b, UINT64_MAX - 7); /* the length of a key */
    b_data(&b, 32, 64);
    expect_cheap(&b, "key 0", "18446744073709551608");
}

static void test_refuses_nested_arrays_without_recursion(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "x.nested", GEM_GGUF_ARRAY, 1);
    b_u32(&b, GEM_GGUF_U8), b_u64(&b, 1), gem_bytes_put(&b, "", 1);
    expect_format(&b, "x.nested", "arrays of arrays");

    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "x.deep", GEM_GGUF_ARRAY, 1);
    for (int i = 0; i < 10000; i++)
        b_u32(&b, GEM_GGUF_ARRAY), b_u64(&b, 1);
    expect_cheap(&b, "x.deep", "element type 9");
}

/* ---- keys ---- */

static void test_refuses_broken_keys(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 3, 0, 1);
    b_kv(&b, "x.kind", 13), b_u64(&b, 0);
    expect_format(&b, "x.kind", "value type 13");

    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "x.elem", 77, 0);
    expect_format(&b, "x.elem", "element type 77");

    b_head(&b, 3, 0, 1);
    b_kv(&b, "x.flag", GEM_GGUF_BOOL), gem_bytes_put(&b, "\2", 1);
    expect_format(&b, "x.flag", "bool holds 2");

    b_head(&b, 3, 0, 1);
    b_kv_array(&b, "x.flags", GEM_GGUF_BOOL, 3), gem_bytes_put(&b, "\0\1\x80", 3);
    expect_format(&b, "x.flags", "bool holds 128");

    b_head(&b, 3, 0, 1);
    b_kv_str(&b, "", "value"), b_u64(&b, 0);
    expect_format(&b, "key 0", "length 0");

    b_head(&b, 3, 0, 1);
    b_u64(&b, 3), gem_bytes_put(&b, "a\0b", 3), b_u32(&b, GEM_GGUF_U8),
        gem_bytes_put(&b, "\1\1\1", 3);
    expect_format(&b, "key 0", "a\\x00b");

    b_head(&b, 3, 0, 2);
    b_kv_u32(&b, "x.twice", 1);
    b_kv_u32(&b, "x.twice", 1);
    expect_format(&b, "x.twice", "appears twice");
}

static void test_refuses_metadata_cut_anywhere(void **state)
{
    (void)state;
    gem_bytes whole = {0};
    b_head(&whole, 3, 1, 4);
    b_kv_str(&whole, "general.architecture", "gemma3");
    b_kv_u32(&whole, "x.number", 7);
    b_kv_array(&whole, "x.strings", GEM_GGUF_STRING, 2), b_str(&whole, "one"), b_str(&whole, "two");
    b_kv_array(&whole, "x.numbers", GEM_GGUF_I16, 2), b_u32(&whole, 0x00020001);
    b_tensor(&whole, "t.weight", 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_data(&whole, 32, 32);
    for (size_t n = 0; n < whole.len; n++) {
        gem_gguf *g;
        gem_error err;
        uint8_t *copy;
        gem_bytes cut = {.data = whole.data, .len = n};
        assert_int_equal(open_bytes(&g, &copy, &cut, &err), GEM_E_FORMAT);
        assert_null(g);
        assert_true(strlen(err.text) > 20);
        free(copy);
    }
    gem_bytes_free(&whole);
}

static void test_foreign_names_are_shown_escaped_and_short(void **state)
{
    (void)state;
    gem_bytes b = {0};
    char key[60001];
    memset(key, '\x1b', sizeof(key) - 1);
    key[sizeof(key) - 1] = 0;
    b_head(&b, 3, 0, 1);
    b_kv(&b, key, 99), b_u64(&b, 0);
    expect_format(&b, "key '\\x1b\\x1b", "...': value type 99");
}

/* ---- alignment ---- */

static void test_refuses_bad_alignment(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 33, 2147483648u, 4294967295u};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        gem_bytes b = {0};
        char value[24];
        snprintf(value, sizeof(value), " %u;", (unsigned)bad[i]);
        b_head(&b, 3, 1, 1);
        b_kv_u32(&b, "general.alignment", bad[i]);
        b_tensor(&b, "t.weight", 2, dims_4_2, GEM_DTYPE_F32, 0);
        b_data(&b, 32, 32);
        expect_format(&b, "general.alignment", value);
    }
    gem_bytes b = {0};
    b_head(&b, 3, 0, 1);
    b_kv(&b, "general.alignment", GEM_GGUF_I32), b_u32(&b, 32);
    expect_format(&b, "general.alignment", "i32");
    b_head(&b, 3, 0, 1);
    b_kv_str(&b, "general.alignment", "32");
    expect_format(&b, "general.alignment", "string");
}

static void test_refuses_misaligned_tensor(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, 16);
    b_data(&b, 32, 64);
    expect_format(&b, "t.weight", "offset 16");
}

/* ---- tensors ---- */

static void test_refuses_zero_dimensions(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_control(&b, 2, (const uint64_t[]){4, 0}, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "dimension 1 is 0");
    b_control(&b, 1, (const uint64_t[]){0}, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "dimension 0 is 0");
}

static void test_refuses_dimension_counts(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_control(&b, 0, NULL, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "0 dimensions");
    b_control(&b, 5, (const uint64_t[]){4, 2, 1, 1, 1}, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "5 dimensions");
    b_control(&b, 4294967295u, (const uint64_t[8]){1}, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "4294967295 dimensions");
}

static void test_refuses_products_that_overflow(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_control(&b, 2, (const uint64_t[]){(uint64_t)1 << 62, 8}, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "4611686018427387904");
    b_control(&b, 4, (const uint64_t[]){1 << 20, 1 << 20, 1 << 20, 1 << 20}, GEM_DTYPE_Q8_0, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "1048576 x 1048576");
    /* fits 64 bits but not the file */
    b_control(&b, 2, (const uint64_t[]){1 << 20, 1 << 20}, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "4398046511104 bytes");
}

static void test_refuses_types(void **state)
{
    (void)state;
    gem_bytes b = {0};
    static const uint32_t unknown[] = {4, 5, 9, 10, 16, 31, 39, 4294967295u};
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        char text[32];
        snprintf(text, sizeof(text), "type %u is not", (unsigned)unknown[i]);
        b_control(&b, 2, dims_4_2, unknown[i], 0);
        b_data(&b, 32, 32);
        expect_refused(&b, GEM_E_UNSUPPORTED, "tensor 't.weight'", text);
    }
    b_control(&b, 2, (const uint64_t[]){48, 2}, GEM_DTYPE_Q4_0, 0);
    b_data(&b, 32, 64);
    expect_format(&b, "t.weight", "48 elements");
    b_control(&b, 2, (const uint64_t[]){384, 2}, GEM_DTYPE_Q6_K, 0);
    b_data(&b, 32, 1024);
    expect_format(&b, "t.weight", "384 elements");
}

static void test_refuses_data_outside_the_file(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 31);
    expect_format(&b, "need 160 bytes, it has 159", "t.weight");
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, 0);
    expect_format(&b, "need 160 bytes", "t.weight");            /* not even the padding */
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, UINT64_MAX - 31); /* the sum wraps to 0 */
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "18446744073709551584");
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, (uint64_t)1 << 40);
    b_data(&b, 32, 32);
    expect_format(&b, "t.weight", "1099511627776");
    b_control(&b, 2, dims_4_2, GEM_DTYPE_F32, 32);
    b_data(&b, 32, 32);
    expect_format(&b, "need 192 bytes, it has 160", "offset 32");
}

static void test_refuses_tensor_names(void **state)
{
    (void)state;
    gem_bytes b = {0};
    char name[65];
    memset(name, 'n', 64);
    name[64] = 0;
    b_head(&b, 3, 1, 0);
    b_tensor(&b, name, 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "tensor 0", "length 64");
    b_head(&b, 3, 1, 0);
    b_tensor(&b, "", 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_data(&b, 32, 32);
    expect_format(&b, "tensor 0", "length 0");
    b_head(&b, 3, 2, 0);
    b_tensor(&b, "same", 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_tensor(&b, "same", 2, dims_4_2, GEM_DTYPE_F32, 32);
    b_data(&b, 32, 64);
    expect_format(&b, "'same'", "appears twice");
}

static void test_refuses_overlapping_tensors(void **state)
{
    (void)state;
    gem_bytes b = {0};
    b_head(&b, 3, 3, 0);
    b_tensor(&b, "late", 2, (const uint64_t[]){4, 4}, GEM_DTYPE_F32, 64);
    b_tensor(&b, "early", 2, (const uint64_t[]){4, 5}, GEM_DTYPE_F32, 0);
    b_tensor(&b, "inside", 2, dims_4_2, GEM_DTYPE_F32, 96);
    b_data(&b, 32, 128);
    expect_format(&b, "'early' and 'late' overlap", "80 bytes");
}

/* ---- typed reads and marks ---- */

static void test_getters_check_kind_and_range(void **state)
{
    (void)state;
    gem_bytes b = {0};
    gem_gguf *g;
    gem_error err;
    uint8_t *copy;
    b_head(&b, 3, 0, 8);
    b_kv(&b, "small", GEM_GGUF_U8), gem_bytes_put(&b, "\7", 1);
    b_kv(&b, "minus", GEM_GGUF_I32), b_u32(&b, 0xFFFFFFFFu);
    b_kv(&b, "huge", GEM_GGUF_U64), b_u64(&b, (uint64_t)1 << 32);
    float f = 0.5f, nan = 0.0f;
    memcpy(&nan, &(uint32_t){0x7FC00000u}, 4);
    b_kv(&b, "half", GEM_GGUF_F32), gem_bytes_put(&b, &f, 4);
    b_kv(&b, "nan", GEM_GGUF_F32), gem_bytes_put(&b, &nan, 4);
    b_kv(&b, "yes", GEM_GGUF_BOOL), gem_bytes_put(&b, "\1", 1);
    b_kv_str(&b, "text", "abc");
    b_kv_array(&b, "list", GEM_GGUF_I32, 2), b_u64(&b, 0);
    assert_int_equal(open_bytes(&g, &copy, &b, &err), GEM_OK);

    uint32_t u = 42;
    assert_int_equal(gem_gguf_get_u32(g, "small", true, 1, 7, &u, &err), GEM_OK);
    assert_int_equal(u, 7);
    assert_int_equal(gem_gguf_get_u32(g, "small", true, 1, 6, &u, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'small' is 7; expected 1 to 6"));
    assert_int_equal(gem_gguf_get_u32(g, "minus", true, 0, 10, &u, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'minus' is -1"));
    assert_int_equal(gem_gguf_get_u32(g, "huge", true, 0, UINT32_MAX, &u, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'huge' is 4294967296"));
    assert_int_equal(gem_gguf_get_u32(g, "half", true, 0, 10, &u, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'half' has type f32; expected an integer"));
    assert_int_equal(gem_gguf_get_u32(g, "list", true, 0, 10, &u, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'list' has type array of i32"));
    assert_int_equal(gem_gguf_get_u32(g, "none", true, 0, 10, &u, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'none' is missing"));
    assert_int_equal(gem_gguf_get_u32(g, "none", false, 0, 10, &u, &err), GEM_OK);
    assert_int_equal(u, 7); /* untouched by every failure */

    float v = 9;
    assert_int_equal(gem_gguf_get_f32(g, "half", true, 0, 1, &v, &err), GEM_OK);
    assert_true(v == 0.5f);
    assert_int_equal(gem_gguf_get_f32(g, "half", true, 1, 2, &v, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'half' is 0.5; expected 1 to 2"));
    assert_int_equal(gem_gguf_get_f32(g, "nan", true, 0, 1, &v, &err), GEM_E_FORMAT);
    assert_int_equal(gem_gguf_get_f32(g, "small", true, 0, 10, &v, &err), GEM_E_FORMAT);
    bool flag = false;
    assert_int_equal(gem_gguf_get_bool(g, "yes", true, &flag, &err), GEM_OK);
    assert_true(flag);
    assert_int_equal(gem_gguf_get_bool(g, "small", true, &flag, &err), GEM_E_FORMAT);
    gem_str s;
    assert_int_equal(gem_gguf_get_str(g, "text", true, &s, &err), GEM_OK);
    assert_int_equal(s.len, 3);
    assert_int_equal(gem_gguf_get_str(g, "yes", true, &s, &err), GEM_E_FORMAT);
    const uint8_t *data;
    uint64_t n;
    assert_int_equal(gem_gguf_get_array(g, "list", true, GEM_GGUF_I32, &data, &n, &err), GEM_OK);
    assert_int_equal(n, 2);
    assert_int_equal(gem_gguf_get_array(g, "list", true, GEM_GGUF_U32, &data, &n, &err),
                     GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "'list' has type array of i32; expected array of u32"));
    gem_gguf_close(g);
    free(copy);
    gem_bytes_free(&b);
}

static void test_marks_leave_what_nobody_explained(void **state)
{
    (void)state;
    gem_bytes b = {0};
    gem_gguf *g;
    gem_error err;
    uint8_t *copy;
    uint32_t u;
    b_head(&b, 3, 2, 4);
    b_kv_u32(&b, "general.alignment", 32);
    b_kv_u32(&b, "fam.a", 1);
    b_kv_u32(&b, "fam.b", 2);
    b_kv_u32(&b, "other.c", 3);
    b_tensor(&b, "one", 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_tensor(&b, "two", 2, dims_4_2, GEM_DTYPE_F32, 32);
    b_data(&b, 32, 64);
    assert_int_equal(open_bytes(&g, &copy, &b, &err), GEM_OK);
    assert_null(
        gem_gguf_first_unmarked_kv(g, "general.")); /* the container explains its own keys */
    assert_string_equal(gem_gguf_first_unmarked_kv(g, "fam.")->key, "fam.a");
    assert_int_equal(gem_gguf_get_u32(g, "fam.a", true, 0, 9, &u, &err), GEM_OK);
    assert_string_equal(gem_gguf_first_unmarked_kv(g, "fam.")->key, "fam.b");
    gem_gguf_mark_kv(g, "fam.b");
    gem_gguf_mark_kv(g, "no such key");
    assert_null(gem_gguf_first_unmarked_kv(g, "fam."));
    assert_string_equal(gem_gguf_first_unmarked_kv(g, "")->key, "other.c");
    assert_string_equal(gem_gguf_first_unmarked_tensor(g)->name, "one");
    gem_gguf_mark_tensor(g, "one");
    assert_string_equal(gem_gguf_first_unmarked_tensor(g)->name, "two");
    gem_gguf_mark_tensor(g, "two");
    assert_null(gem_gguf_first_unmarked_tensor(g));
    gem_gguf_close(g);
    free(copy);
    gem_bytes_free(&b);
}

/* ---- files on disk ---- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/gem-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a test or the writer left something behind */
}

static const char *in_folder(char *buf, const char *name)
{
    snprintf(buf, 256, "%s/%s", folder, name);
    return buf;
}

static void save(const char *path, gem_bytes *b)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    assert_int_equal(fclose(f), 0);
    gem_bytes_free(b);
}

static void split_part(gem_bytes *b, const char *tensor, uint16_t no, uint16_t count, int32_t total)
{
    b_head(b, 3, 1, 3);
    b_kv(b, "split.no", GEM_GGUF_U16), gem_bytes_put(b, &no, 2);
    b_kv(b, "split.count", GEM_GGUF_U16), gem_bytes_put(b, &count, 2);
    b_kv(b, "split.tensors.count", GEM_GGUF_I32), gem_bytes_put(b, &total, 4);
    b_tensor(b, tensor, 2, dims_4_2, GEM_DTYPE_F32, 0);
    b_data(b, 32, 32);
}

/* Write two parts, open the first; NULL for a part: it is not there. */
static gem_status open_split(gem_gguf **g, gem_bytes *first, gem_bytes *second, gem_error *err)
{
    char a[256], b[256];
    save(in_folder(a, "m-00001-of-00002.gguf"), first);
    in_folder(b, "m-00002-of-00002.gguf");
    if (second) save(b, second);
    gem_status st = gem_gguf_open(g, a, err);
    unlink(a);
    if (second) unlink(b);
    return st;
}

static void test_split_file_reads_as_one(void **state)
{
    (void)state;
    gem_bytes a = {0}, b = {0};
    gem_gguf *g;
    gem_error err;
    split_part(&a, "one", 0, 2, 2);
    split_part(&b, "two", 1, 2, 2);
    uint64_t bytes = a.len + b.len;
    if (open_split(&g, &a, &b, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal(gem_gguf_n_tensors(g), 2);
    assert_int_equal(gem_gguf_bytes(g), bytes);
    assert_int_equal(gem_gguf_tensor(g, "one")->data[5], 5);
    assert_int_equal(gem_gguf_tensor(g, "two")->data[31], 31);
    assert_null(gem_gguf_first_unmarked_kv(g, "split."));
    gem_gguf_drop_pages(g, gem_gguf_tensor(g, "two"));
    assert_int_equal(gem_gguf_tensor(g, "two")->data[31], 31);
    gem_gguf_close(g);
}

static void expect_split_refused(gem_bytes *a, gem_bytes *b, gem_status status, const char *text)
{
    gem_gguf *g;
    gem_error err;
    gem_status st = open_split(&g, a, b, &err);
    if (st != status || !strstr(err.text, text)) fail_msg("status %d: %s", (int)st, err.text);
    assert_null(g);
}

static void test_split_file_with_faults_is_refused(void **state)
{
    (void)state;
    gem_bytes a = {0}, b = {0};
    split_part(&a, "one", 0, 2, 2);
    expect_split_refused(&a, NULL, GEM_E_IO, "m-00002-of-00002.gguf");
    split_part(&a, "one", 0, 2, 3), split_part(&b, "two", 1, 2, 3);
    expect_split_refused(&a, &b, GEM_E_FORMAT,
                         "'split.tensors.count' is 3, but the 2 parts hold 2");
    split_part(&a, "one", 0, 2, 2), split_part(&b, "two", 0, 2, 2);
    expect_split_refused(&a, &b, GEM_E_FORMAT, "'split.no' is 0; expected 1");
    split_part(&a, "one", 0, 2, 2), split_part(&b, "two", 1, 3, 2);
    expect_split_refused(&a, &b, GEM_E_FORMAT, "'split.count' is 3; the first part says 2");
    split_part(&a, "one", 0, 2, 2), split_part(&b, "one", 1, 2, 2);
    expect_split_refused(&a, &b, GEM_E_FORMAT, "'one' appears twice");
    split_part(&a, "one", 1, 2, 2);
    expect_split_refused(&a, NULL, GEM_E_FORMAT, "this is part 2 of 2; open the first part");
    split_part(&a, "one", 0, 7, 2);
    expect_split_refused(&a, NULL, GEM_E_FORMAT, "-00001-of-00007.gguf");
    split_part(&a, "one", 0, 2, 2), split_part(&b, "two", 1, 2, 2);
    b.len -= 1;
    expect_split_refused(&a, &b, GEM_E_FORMAT, "cut short");
    split_part(&a, "one", 0, 2, 2);
    expect_refused(&a, GEM_E_UNSUPPORTED, "split.count", "is 2");
}

static void test_missing_and_empty_files_are_refused(void **state)
{
    (void)state;
    gem_gguf *g;
    gem_error err;
    gem_bytes empty = {0};
    char path[256];
    in_folder(path, "none.gguf");
    assert_int_equal(gem_gguf_open(&g, path, &err), GEM_E_IO);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(gem_gguf_open(&g, folder, &err), GEM_E_IO);
    gem_bytes_put(&empty, "", 0);
    save(path, &empty);
    assert_int_equal(gem_gguf_open(&g, path, &err), GEM_E_FORMAT);
    assert_non_null(strstr(err.text, "empty"));
    unlink(path);
}

/* ---- writer ---- */

static void test_written_file_reads_back(void **state)
{
    (void)state;
    gem_gguf_writer *w;
    gem_gguf *g;
    gem_error err;
    char path[256];
    in_folder(path, "w.gguf");
    uint8_t data[64 + 18];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    static const gem_str words[] = {{"one", 3}, {"", 0}, {"t\0o", 3}};
    static const int32_t numbers[] = {-1, 0, 7};
    assert_int_equal(gem_gguf_writer_new(&w, path, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_str(w, "s", "text", 4, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_u32(w, "u", 17, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_f32(w, "f", 0.25f, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_bool(w, "b", true, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_array(w, "words", GEM_GGUF_STRING, words, 3, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_array(w, "numbers", GEM_GGUF_I32, numbers, 3, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_u32(w, "u", 18, &err), GEM_E_ARG); /* twice */
    assert_int_equal(
        gem_gguf_declare_tensor(w, "q", GEM_DTYPE_Q4_0, 1, (const uint64_t[]){32}, &err), GEM_OK);
    assert_int_equal(
        gem_gguf_declare_tensor(w, "m", GEM_DTYPE_F32, 2, (const uint64_t[]){8, 2}, &err), GEM_OK);
    assert_int_equal(gem_gguf_declare_tensor(w, "m", GEM_DTYPE_F32, 2, dims_4_2, &err), GEM_E_ARG);
    assert_int_equal(
        gem_gguf_declare_tensor(w, "x", GEM_DTYPE_Q4_0, 1, (const uint64_t[]){33}, &err),
        GEM_E_ARG);
    assert_int_equal(gem_gguf_put_data(w, data, 5, &err), GEM_OK); /* pieces across both tensors */
    assert_int_equal(gem_gguf_writer_finish(w, &err), GEM_E_ARG);
    assert_non_null(strstr(err.text, "5 bytes of tensors were put, 82 declared"));
    assert_int_equal(gem_gguf_put_data(w, data + 5, 50, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_data(w, data + 55, 27, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_data(w, data, 1, &err), GEM_E_ARG);
    assert_int_equal(access(path, F_OK), -1); /* nothing under the final name before finish */
    uint64_t bytes = gem_gguf_writer_file_bytes(w);
    assert_int_equal(gem_gguf_writer_finish(w, &err), GEM_OK);
    gem_gguf_writer_free(w);

    if (gem_gguf_open(&g, path, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal(gem_gguf_bytes(g), bytes);
    assert_int_equal(gem_gguf_find(g, "u")->v.u, 17);
    assert_true(gem_gguf_find(g, "f")->v.f == 0.25);
    assert_int_equal(gem_gguf_find(g, "b")->v.u, 1);
    const uint8_t *pos = gem_gguf_find(g, "words")->v.array;
    gem_kv_string_next(&pos);
    gem_kv_string_next(&pos);
    assert_memory_equal(gem_kv_string_next(&pos).data, "t\0o", 3);
    assert_memory_equal(gem_gguf_find(g, "numbers")->v.array, numbers, sizeof(numbers));
    assert_memory_equal(gem_gguf_tensor(g, "q")->data, data, 18);
    assert_memory_equal(gem_gguf_tensor(g, "m")->data, data + 18, 64);
    gem_gguf_close(g);
    unlink(path);
}

static void test_keys_copy_unchanged(void **state)
{
    (void)state;
    gem_bytes b = {0};
    gem_gguf *g, *h;
    gem_gguf_writer *w;
    gem_error err;
    uint8_t *copy;
    char path[256];
    in_folder(path, "copy.gguf");
    float f = 0.1f;
    double d = 0.1;
    b_head(&b, 3, 0, 6);
    b_kv(&b, "i16", GEM_GGUF_I16), gem_bytes_put(&b, "\xFE\xFF", 2);
    b_kv(&b, "f32", GEM_GGUF_F32), gem_bytes_put(&b, &f, 4);
    b_kv(&b, "f64", GEM_GGUF_F64), gem_bytes_put(&b, &d, 8);
    b_kv_str(&b, "s", "text");
    b_kv_array(&b, "strings", GEM_GGUF_STRING, 2), b_str(&b, "one"), b_str(&b, "");
    b_kv_array(&b, "u16", GEM_GGUF_U16, 2), b_u32(&b, 0x00020001);
    size_t len = b.len;
    assert_int_equal(open_bytes(&g, &copy, &b, &err), GEM_OK);
    assert_int_equal(gem_gguf_writer_new(&w, path, &err), GEM_OK);
    for (size_t i = 0; i < gem_gguf_n_kv(g); i++)
        assert_int_equal(gem_gguf_put_kv(w, gem_gguf_kv_at(g, i), &err), GEM_OK);
    assert_int_equal(gem_gguf_writer_finish(w, &err), GEM_OK);
    gem_gguf_writer_free(w);
    gem_map m;
    assert_int_equal(gem_map_open(&m, path, &err), GEM_OK);
    assert_memory_equal(m.data, copy, len); /* the same bytes, then padding */
    gem_map_close(&m);
    assert_int_equal(gem_gguf_open(&h, path, &err), GEM_OK);
    gem_gguf_close(h);
    gem_gguf_close(g);
    unlink(path);
    free(copy);
    gem_bytes_free(&b);
}

static void test_writer_takes_runs_in_any_order(void **state)
{
    (void)state;
    gem_gguf_writer *w;
    gem_gguf *g;
    gem_error err;
    char path[256];
    in_folder(path, "at.gguf");
    assert_int_equal(gem_gguf_writer_new(&w, path, &err), GEM_OK);
    assert_int_equal(gem_gguf_declare_tensor(w, "a", GEM_DTYPE_F32, 2, dims_4_2, &err), GEM_OK);
    assert_int_equal(gem_gguf_declare_tensor(w, "b", GEM_DTYPE_F32, 2, dims_4_2, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_at(w, 0, 0, "x", 1, &err), GEM_E_ARG); /* before begin */
    assert_int_equal(gem_gguf_writer_begin(w, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_u32(w, "late", 1, &err), GEM_E_ARG);
    assert_int_equal(gem_gguf_put_at(w, 1, 8, "bbbbbbbbbbbbbbbbbbbbbbbb", 24, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_at(w, 1, 0, "BBBBBBBB", 8, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_at(w, 0, 0, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32, &err),
                     GEM_OK);
    assert_int_equal(gem_gguf_put_at(w, 0, 1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32, &err),
                     GEM_E_ARG);
    assert_int_equal(gem_gguf_put_at(w, 2, 0, "x", 1, &err), GEM_E_ARG);
    assert_int_equal(gem_gguf_writer_finish(w, &err), GEM_OK);
    gem_gguf_writer_free(w);
    assert_int_equal(gem_gguf_open(&g, path, &err), GEM_OK);
    assert_memory_equal(gem_gguf_tensor(g, "b")->data, "BBBBBBBBbbbb", 12);
    assert_memory_equal(gem_gguf_tensor(g, "a")->data, "aaaa", 4);
    gem_gguf_close(g);
    unlink(path);
}

static void test_abandoned_writer_leaves_nothing(void **state)
{
    (void)state;
    gem_gguf_writer *w;
    gem_error err;
    char path[256];
    in_folder(path, "half.gguf");
    assert_int_equal(gem_gguf_writer_new(&w, path, &err), GEM_OK);
    assert_int_equal(gem_gguf_put_u32(w, "u", 1, &err), GEM_OK);
    gem_gguf_writer_free(w); /* the teardown sees a file that was left behind */
    in_folder(path, "no/such/folder.gguf");
    assert_int_equal(gem_gguf_writer_new(&w, path, &err), GEM_E_IO);
    assert_null(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_file_opens),
        cmocka_unit_test(test_version_2_and_bigger_alignment_open),
        cmocka_unit_test(test_every_kind_reads_back),
        cmocka_unit_test(test_refuses_short_and_foreign_files),
        cmocka_unit_test(test_refuses_wrong_endianness),
        cmocka_unit_test(test_refuses_other_versions),
        cmocka_unit_test(test_refuses_absurd_counts_cheaply),
        cmocka_unit_test(test_refuses_absurd_lengths_cheaply),
        cmocka_unit_test(test_refuses_nested_arrays_without_recursion),
        cmocka_unit_test(test_refuses_broken_keys),
        cmocka_unit_test(test_refuses_metadata_cut_anywhere),
        cmocka_unit_test(test_foreign_names_are_shown_escaped_and_short),
        cmocka_unit_test(test_refuses_bad_alignment),
        cmocka_unit_test(test_refuses_misaligned_tensor),
        cmocka_unit_test(test_refuses_zero_dimensions),
        cmocka_unit_test(test_refuses_dimension_counts),
        cmocka_unit_test(test_refuses_products_that_overflow),
        cmocka_unit_test(test_refuses_types),
        cmocka_unit_test(test_refuses_data_outside_the_file),
        cmocka_unit_test(test_refuses_tensor_names),
        cmocka_unit_test(test_refuses_overlapping_tensors),
        cmocka_unit_test(test_getters_check_kind_and_range),
        cmocka_unit_test(test_marks_leave_what_nobody_explained),
        cmocka_unit_test(test_split_file_reads_as_one),
        cmocka_unit_test(test_split_file_with_faults_is_refused),
        cmocka_unit_test(test_missing_and_empty_files_are_refused),
        cmocka_unit_test(test_written_file_reads_back),
        cmocka_unit_test(test_keys_copy_unchanged),
        cmocka_unit_test(test_writer_takes_runs_in_any_order),
        cmocka_unit_test(test_abandoned_writer_leaves_nothing),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
