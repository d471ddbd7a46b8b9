/* inspect.c - `gem inspect`: what is in a GGUF file and, when gem refuses it, why. Works on broken
 * files: then the sentence is all there is. */
#include "base/base.h"
#include "cmd/gem/commands.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>

static struct {
    bool json, all;
} opt;

static const cli_option options[] = {
    {"json", 'j', CLI_FLAG, NULL, &opt.json, 0, 0, "print one JSON document", NULL},
    {"all", 'a', CLI_FLAG, NULL, &opt.all, 0, 0,
     "print long texts and lists in full (up to 1 MiB of text each)", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_inspect_command = {
    .program = "gem inspect",
    .args = "MODEL",
    .summary = "show what is in a model file and, if gem refuses it, why",
    .text = "Exits 0 when gem would run the file, 1 when it refuses it, 3 when there is no such "
            "file.\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

enum { SHORT_TEXT = 72, SHORT_LIST = 6, LONG_TEXT = 1 << 20, LONG_LIST = 1 << 16 };

static const char *const kind_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};

/* Bytes as printable UTF-8: what is no character becomes U+FFFD, controls become \uXXXX, and what
 * is longer than `max` ends in "...". A file must not be able to speak to the terminal. */
static void put_safe(gem_bytes *b, gem_str s, size_t max)
{
    size_t i = 0, n = GEM_MIN(s.len, max);
    while (i < n) {
        uint32_t cp;
        int len = gem_utf8_decode(s.data + i, s.len - i, &cp);
        if (len == 0) {
            gem_bytes_put(b, "\xEF\xBF\xBD", 3);
            i++;
        } else if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            if (cp == '\n')
                gem_bytes_put(b, "\\n", 2);
            else
                gem_bytes_printf(b, "\\u%04X", (unsigned)cp);
            i += (size_t)len;
        } else {
            gem_bytes_put(b, s.data + i, (size_t)len);
            i += (size_t)len;
        }
    }
    if (n < s.len) gem_bytes_put(b, "...", 3);
}

static json_t *string_json(gem_str s, size_t max)
{
    if (s.len <= max) {
        json_t *plain = json_stringn(s.data, s.len); /* NULL when it is no valid UTF-8 */
        if (plain) return plain;
    }
    gem_bytes b = {0};
    put_safe(&b, s, max);
    json_t *j = json_string(b.data ? b.data : "");
    gem_bytes_free(&b);
    return j;
}

static json_t *real_json(double v)
{
    json_t *j = json_real(v); /* NULL for infinity and NaN, which JSON does not have */
    return j ? j : json_null();
}

/* Element i of a numeric array; elements are little-endian and need not be aligned. */
static json_t *element_json(const gem_kv *kv, uint64_t i)
{
    const uint8_t *a = kv->v.array;
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } x;
    memset(&x, 0, sizeof(x));
    switch (kv->elem) {
    case GEM_GGUF_U8:
        return json_integer(a[i]);
    case GEM_GGUF_I8:
        return json_integer((int8_t)a[i]);
    case GEM_GGUF_BOOL:
        return json_boolean(a[i]);
    case GEM_GGUF_U16:
        memcpy(&x, a + 2 * i, 2);
        return json_integer(x.u16);
    case GEM_GGUF_I16:
        memcpy(&x, a + 2 * i, 2);
        return json_integer(x.i16);
    case GEM_GGUF_U32:
        memcpy(&x, a + 4 * i, 4);
        return json_integer(x.u32);
    case GEM_GGUF_I32:
        memcpy(&x, a + 4 * i, 4);
        return json_integer(x.i32);
    case GEM_GGUF_F32:
        memcpy(&x, a + 4 * i, 4);
        return real_json((double)x.f32);
    case GEM_GGUF_U64:
        memcpy(&x, a + 8 * i, 8);
        return json_integer((json_int_t)x.u64);
    case GEM_GGUF_I64:
        memcpy(&x, a + 8 * i, 8);
        return json_integer((json_int_t)x.i64);
    case GEM_GGUF_F64:
        memcpy(&x, a + 8 * i, 8);
        return real_json(x.f64);
    case GEM_GGUF_STRING:
    case GEM_GGUF_ARRAY:
        break;
    }
    return json_null();
}

static json_t *array_json(const gem_kv *kv)
{
    uint64_t n = GEM_MIN(kv->n, (uint64_t)(opt.all ? LONG_LIST : SHORT_LIST));
    json_t *list = json_array();
    const uint8_t *pos = kv->v.array;
    for (uint64_t i = 0; i < n; i++)
        json_array_append_new(list, kv->elem == GEM_GGUF_STRING
                                        ? string_json(gem_kv_string_next(&pos), SHORT_TEXT)
                                        : element_json(kv, i));
    return list;
}

static json_t *value_json(const gem_kv *kv)
{
    switch (kv->kind) {
    case GEM_GGUF_STRING:
        return string_json(kv->v.s, opt.all ? LONG_TEXT : SHORT_TEXT);
    case GEM_GGUF_ARRAY:
        return array_json(kv);
    case GEM_GGUF_BOOL:
        return json_boolean(kv->v.u);
    case GEM_GGUF_F32:
    case GEM_GGUF_F64:
        return real_json(kv->v.f);
    case GEM_GGUF_I8:
    case GEM_GGUF_I16:
    case GEM_GGUF_I32:
    case GEM_GGUF_I64:
        return json_integer((json_int_t)kv->v.i);
    case GEM_GGUF_U8:
    case GEM_GGUF_U16:
    case GEM_GGUF_U32:
    case GEM_GGUF_U64:
        break;
    }
    return json_integer((json_int_t)kv->v.u);
}

static json_t *keys_json(const gem_gguf *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gem_gguf_n_kv(g); i++) {
        const gem_kv *kv = gem_gguf_kv_at(g, i);
        json_t *row = json_pack("{s:o, s:s}", "key",
                                string_json((gem_str){kv->key, strlen(kv->key)}, LONG_TEXT), "type",
                                kind_names[kv->kind]);
        if (kv->kind == GEM_GGUF_ARRAY) {
            json_object_set_new(row, "element_type", json_string(kind_names[kv->elem]));
            json_object_set_new(row, "n", json_integer((json_int_t)kv->n));
        }
        json_object_set_new(row, kv->kind == GEM_GGUF_ARRAY ? "first" : "value", value_json(kv));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *tensors_json(const gem_gguf *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        const gem_tensor *t = gem_gguf_tensor_at(g, i);
        json_t *dims = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(dims, json_integer((json_int_t)t->dim[d]));
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:I}", "name",
                                        string_json((gem_str){t->name, strlen(t->name)}, LONG_TEXT),
                                        "type", gem_dtype_get(t->dtype)->name, "dims", dims,
                                        "bytes", (json_int_t)t->bytes));
    }
    return list;
}

/* Tensors and bytes by type. */
static json_t *types_json(const gem_gguf *g)
{
    json_t *all = json_object();
    for (size_t i = 0; i < gem_gguf_n_tensors(g); i++) {
        const gem_tensor *t = gem_gguf_tensor_at(g, i);
        const char *name = gem_dtype_get(t->dtype)->name;
        json_t *row = json_object_get(all, name);
        json_int_t n = row ? json_integer_value(json_object_get(row, "tensors")) : 0;
        json_int_t bytes = row ? json_integer_value(json_object_get(row, "bytes")) : 0;
        json_object_set_new(
            all, name,
            json_pack("{s:I, s:I}", "tensors", n + 1, "bytes", bytes + (json_int_t)t->bytes));
    }
    return all;
}

/* The whole check that opening a model makes, short of loading weights. */
static gem_status check(gem_gguf *g, json_t *doc, gem_error *err)
{
    const gem_family *family;
    gem_tokenizer *tok = NULL;
    gem_plan plan;
    gem_status st = gem_family_find(&family, g, err);
    if (st == GEM_OK) st = gem_tokenizer_open(&tok, g, err);
    if (st == GEM_OK) st = gem_model_plan(&plan, g, gem_tokenizer_n_vocab(tok), false, err);
    if (st == GEM_OK) {
        json_object_set_new(doc, "model",
                            json_pack("{s:s, s:i, s:i, s:i, s:i}", "family", plan.family,
                                      "n_layers", plan.n_layers, "d_model", plan.d_model, "n_vocab",
                                      plan.n_vocab, "n_ctx_train", plan.n_ctx_train));
        gem_plan_free(&plan);
    }
    gem_tokenizer_close(tok);
    return st;
}

static void print_array(const json_t *first, json_int_t n)
{
    printf("[%lld] ", (long long)n);
    for (size_t i = 0; i < json_array_size(first); i++) {
        char *s = json_dumps(json_array_get(first, i), JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
        printf("%s%s", i ? ", " : "", s ? s : "?");
        free(s);
    }
    puts(n > (json_int_t)json_array_size(first) ? ", ..." : "");
}

static void print_human(json_t *doc)
{
    size_t i;
    json_t *row;
    const char *key;
    printf("%s\n", json_string_value(json_object_get(doc, "path")));
    if (json_object_get(doc, "gguf_version")) {
        printf("GGUF version %lld, %.1f MiB\n\nkeys\n",
               (long long)json_integer_value(json_object_get(doc, "gguf_version")),
               (double)json_integer_value(json_object_get(doc, "bytes")) / (1 << 20));
        json_array_foreach(json_object_get(doc, "keys"), i, row)
        {
            printf("  %-44s %-7s ", json_string_value(json_object_get(row, "key")),
                   json_string_value(json_object_get(row, "type")));
            json_t *first = json_object_get(row, "first"), *value = json_object_get(row, "value");
            if (first) {
                print_array(first, json_integer_value(json_object_get(row, "n")));
                continue;
            }
            char *s = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
            printf("%s\n", s ? s : "?");
            free(s);
        }
        puts("\ntensors");
        json_array_foreach(json_object_get(doc, "tensors"), i, row)
        {
            char *dims = json_dumps(json_object_get(row, "dims"), 0);
            printf("  %-32s %-5s %-20s %12lld bytes\n",
                   json_string_value(json_object_get(row, "name")),
                   json_string_value(json_object_get(row, "type")), dims ? dims : "?",
                   (long long)json_integer_value(json_object_get(row, "bytes")));
            free(dims);
        }
        puts("\ntypes");
        json_object_foreach(json_object_get(doc, "types"), key, row)
            printf("  %-6s %5lld tensors %14lld bytes\n", key,
                   (long long)json_integer_value(json_object_get(row, "tensors")),
                   (long long)json_integer_value(json_object_get(row, "bytes")));
        puts("");
    }
    json_t *model = json_object_get(doc, "model");
    if (model)
        printf(
            "accepted: %s, %lld layers, width %lld, vocabulary %lld, trained for %lld positions\n",
            json_string_value(json_object_get(model, "family")),
            (long long)json_integer_value(json_object_get(model, "n_layers")),
            (long long)json_integer_value(json_object_get(model, "d_model")),
            (long long)json_integer_value(json_object_get(model, "n_vocab")),
            (long long)json_integer_value(json_object_get(model, "n_ctx_train")));
    else
        printf("refused: %s\n", json_string_value(json_object_get(doc, "reason")));
}

int gem_inspect_main(int argc, char **argv)
{
    const cli_command *c = &gem_inspect_command;
    char path[4096], **args;
    int n_args;
    gem_gguf *g = NULL;
    gem_error err;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (cli_model_path(args[0], path, sizeof(path), &err) != GEM_OK) return cli_fail(c, &err);

    json_t *doc = json_pack("{s:o}", "path", string_json((gem_str){path, strlen(path)}, LONG_TEXT));
    gem_status st = gem_gguf_open(&g, path, &err);
    if (st == GEM_E_IO || st == GEM_E_NOMEM) {
        json_decref(doc);
        return cli_fail(c, &err);
    }
    if (st == GEM_OK) {
        json_object_set_new(doc, "gguf_version", json_integer(gem_gguf_version(g)));
        json_object_set_new(doc, "bytes", json_integer((json_int_t)gem_gguf_bytes(g)));
        json_object_set_new(doc, "keys", keys_json(g));
        json_object_set_new(doc, "tensors", tensors_json(g));
        json_object_set_new(doc, "types", types_json(g));
        st = check(g, doc, &err);
    }
    json_object_set_new(doc, "accepted", json_boolean(st == GEM_OK));
    if (st != GEM_OK)
        json_object_set_new(doc, "reason",
                            string_json((gem_str){err.text, strlen(err.text)}, LONG_TEXT));
    gem_gguf_close(g);

    if (opt.json) {
        code = cli_print_json(c, doc);
    } else {
        print_human(doc);
        json_decref(doc);
        code = cli_flush(c);
    }
    return code != CLI_DONE ? code : st == GEM_OK ? CLI_DONE : CLI_FALSE;
}
