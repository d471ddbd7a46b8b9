/* test_synth_model.c - gem-synth-model as its users call it: the same bytes for the same arguments,
 * the tensors of real files, weights of the right size in every type, vocabularies that work. */
#include "gguf/gguf.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], out_path[128];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/gem-synth-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(out_path, sizeof(out_path), "%s/m.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(out_path);
    return rmdir(folder); /* fails when something was left behind */
}

/* Run the program; its stdout goes to *json (may be NULL). Returns the exit code. */
static int run(json_t **json, const char *fmt, ...)
{
    char args[512], line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(args, sizeof(args), fmt, ap);
    va_end(ap);
    snprintf(line, sizeof(line), "%s/gem-synth-model --quiet %s 2>%s/err", GEM_BIN_DIR, args,
             folder);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    json_t *doc = json_loadf(f, 0, NULL);
    while (fgetc(f) != EOF)
        ;
    int status = pclose(f);
    snprintf(line, sizeof(line), "%s/err", folder);
    unlink(line);
    if (json)
        *json = doc;
    else
        json_decref(doc);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void digest(char hex[65])
{
    gem_error err;
    if (gem_sha256_file(out_path, hex, &err) != GEM_OK) fail_msg("%s", err.text);
}

static gem_gguf *open_file(void)
{
    gem_gguf *g;
    gem_error err;
    if (gem_gguf_open(&g, out_path, &err) != GEM_OK) fail_msg("%s", err.text);
    return g;
}

static void test_same_arguments_give_same_bytes(void **state)
{
    (void)state;
    static const char *const presets[] = {"gemma3-tiny", "gemma4-tiny", "qwen2-tiny",
                                          "qwen35-tiny"};
    for (size_t p = 0; p < ARRAY_LEN(presets); p++) {
        char first[65], again[65];
        /* wide enough that tensors have several runs */
        const char *wide = "--d-ff 8192 --vocab 4096";
        assert_int_equal(run(NULL, "--preset %s %s --jobs 1 --out %s", presets[p], wide, out_path),
                         0);
        digest(first);
        for (int jobs = 2; jobs <= 7; jobs += 5) {
            assert_int_equal(
                run(NULL, "-p %s %s -j %d -o %s -s 0", presets[p], wide, jobs, out_path), 0);
            digest(again);
            assert_string_equal(again, first);
        }
        assert_int_equal(run(NULL, "-p %s %s -o %s -s 1", presets[p], wide, out_path), 0);
        digest(again);
        assert_string_not_equal(again, first);
    }
}

/* Bytes must not change between versions without a reason: benches name models by their arguments.
 */
static void test_bytes_are_those_of_the_first_release(void **state)
{
    (void)state;
    char hex[65];
    assert_int_equal(run(NULL, "-p gemma3-tiny -o %s", out_path), 0);
    digest(hex);
    assert_string_equal(hex, "fe7a3487adc9bdc9674cca391928dfd1b9602b4edc7f9bf1bd19edd683a0bdb7");
    assert_int_equal(run(NULL, "-p gemma4-tiny -o %s", out_path), 0);
    digest(hex);
    assert_string_equal(hex, "c2554560dc997ea30dca911f2720ba24c9e73d239d52e9f28418e8017914a5ae");
    assert_int_equal(run(NULL, "-p qwen2-tiny -o %s", out_path), 0);
    digest(hex);
    assert_string_equal(hex, "99720682651f9fc0b563b52a482d7ebdeade61c9e594f8ee63edf7c780ade554");
    assert_int_equal(run(NULL, "-p qwen35-tiny -o %s", out_path), 0);
    digest(hex);
    assert_string_equal(hex, "fe3aab641bf0cdaee61b69b7466db56e7f0d01e256c8d8af6f486fd9aebd00ad");
}

/* The published file's list, one "name type dims" a row, against --dry-run. */
static void check_list(const char *preset)
{
    char path[512], row[256], mine[256];
    json_t *doc, *t, *dim;
    size_t i, d;
    assert_int_equal(run(&doc, "--preset %s --dry-run", preset), 0);
    snprintf(path, sizeof(path), GEM_TEST_DIR "/data/synth/%s.tensors", preset);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(row, sizeof(row), f));
    assert_true(row[0] == '#');
    json_array_foreach(json_object_get(doc, "tensors"), i, t)
    {
        int n = snprintf(mine, sizeof(mine), "%s %s", json_string_value(json_object_get(t, "name")),
                         json_string_value(json_object_get(t, "type")));
        json_array_foreach(json_object_get(t, "dims"), d, dim)
        {
            n += snprintf(mine + n, sizeof(mine) - (size_t)n, " %lld",
                          (long long)json_integer_value(dim));
        }
        assert_non_null(fgets(row, sizeof(row), f));
        row[strcspn(row, "\n")] = 0;
        assert_string_equal(mine, row);
    }
    assert_null(fgets(row, sizeof(row), f));
    fclose(f);
    json_decref(doc);
}

static void test_presets_have_the_tensors_of_the_published_files(void **state)
{
    (void)state;
    check_list("gemma3-270m");
    check_list("qwen2-0.5b");
}

static void check_types(const char *args, int n_tensors, int f32, const char *type, int n)
{
    json_t *doc;
    assert_int_equal(run(&doc, "%s --dry-run", args), 0);
    const json_t *types = json_object_get(doc, "types");
    assert_int_equal(json_integer_value(json_object_get(doc, "n_tensors")), n_tensors);
    assert_int_equal(json_integer_value(json_object_get(types, "F32")), f32);
    assert_int_equal(json_integer_value(json_object_get(types, type)), n);
    json_decref(doc);
}

/* Gemma 4: counts that were published for 12B (Q4_K_M) and follow for both from their shapes. */
static void test_gemma4_presets_have_the_published_counts(void **state)
{
    (void)state;
    check_types("-p gemma4-12b -q q4_k_m", 667, 338, "Q4_K", 284);
    check_types("-p gemma4-12b -q q4_k_m", 667, 338, "Q6_K", 45);
    check_types("-p gemma4-12b", 667, 338, "Q6_K", 1); /* the embedding of a Q4_0 file */
    check_types("-p gemma4-31b", 833, 422, "Q4_0", 410);
    /* cut: the last layer sees all, whatever its number */
    check_types("-p gemma4-31b --layers 4", 14 * 4 - 1 + 3, 7 * 4 + 2, "Q4_0", 4 * 7 - 1);
    gem_gguf *g;
    assert_int_equal(run(NULL, "-p gemma4-tiny --layers 8 --sparse -o %s", out_path), 0);
    g = open_file();
    for (int l = 0; l < 8; l++) {
        char name[64];
        bool global = l == 5 || l == 7;
        snprintf(name, sizeof(name), "blk.%d.attn_v.weight", l);
        assert_true((gem_gguf_tensor(g, name) == NULL) == global);
        snprintf(name, sizeof(name), "blk.%d.attn_q.weight", l);
        const gem_tensor *q = gem_gguf_tensor(g, name);
        assert_int_equal(q->dim[1], 16 * (global ? 128 : 64));
        assert_int_equal(q->data[0] | q->data[q->bytes - 1], 0); /* a hole */
        snprintf(name, sizeof(name), "blk.%d.layer_output_scale.weight", l);
        float scale;
        memcpy(&scale, gem_gguf_tensor(g, name)->data, 4);
        assert_true(scale >= 0.87f && scale <= 1.13f && scale != 1.0f);
    }
    float factor[64];
    memcpy(factor, gem_gguf_tensor(g, "rope_freqs.weight")->data, sizeof(factor));
    for (int i = 0; i < 64; i++)
        assert_true(factor[i] == (i < 16 ? 1.0f : 1e30f));
    gem_gguf_close(g);
}

/* Qwen3.5 27B: tensors of the published file with its block that predicts ahead, types as a plain
 * quantiser gives them: 32 of 48 + 16 value matrices and of 64 ffn_down, and the head, are Q6_K. */
static void test_qwen35_presets_have_the_published_counts(void **state)
{
    (void)state;
    check_types("-p qwen35-27b", 851, 353, "Q6_K", 65);
    check_types("-p qwen35-27b", 851, 353, "Q4_K", 433);
    check_types("-p qwen35-27b --nextn", 866, 360, "Q6_K", 67);
    check_types("-p qwen35-27b --layers 4", 3 * 14 + 11 + 3, 3 * 6 + 4 + 1, "Q4_K", 28);
    gem_gguf *g;
    assert_int_equal(run(NULL, "-p qwen35-tiny -q q8_0 -o %s", out_path), 0);
    g = open_file();
    const gem_tensor *a = gem_gguf_tensor(g, "blk.1.ssm_a"),
                     *dt = gem_gguf_tensor(g, "blk.1.ssm_dt.bias"),
                     *taps = gem_gguf_tensor(g, "blk.1.ssm_conv1d.weight");
    assert_int_equal(taps->dtype, GEM_DTYPE_F32);
    assert_int_equal(taps->dim[0], 4);
    assert_int_equal(taps->dim[1], (2 * 2 + 6) * 64);
    for (size_t i = 0; i < 6; i++) {
        float x, y;
        memcpy(&x, a->data + 4 * i, 4);
        memcpy(&y, dt->data + 4 * i, 4);
        assert_true(x <= -0.5f && x >= -16.0f);
        assert_true(y >= -6.9f && y <= -2.3f);
    }
    assert_null(gem_gguf_tensor(g, "blk.3.ssm_a"));
    assert_non_null(gem_gguf_tensor(g, "blk.3.attn_q.weight"));
    gem_gguf_close(g);
}

/* Mean and standard deviation of a tensor's values. */
static void moments(const gem_tensor *t, double *mean, double *std)
{
    size_t n_rows = t->bytes / t->row_bytes, n = (size_t)t->dim[0];
    double sum = 0, square = 0;
    float *row = malloc(n * sizeof(*row));
    assert_non_null(row);
    for (size_t r = 0; r < n_rows; r++) {
        gem_dequantize_row(t->dtype, t->data + r * t->row_bytes, row, n);
        for (size_t i = 0; i < n; i++) {
            sum += (double)row[i];
            square += (double)row[i] * (double)row[i];
        }
    }
    free(row);
    *mean = sum / (double)(n * n_rows);
    *std = sqrt(square / (double)(n * n_rows) - *mean * *mean);
}

static void test_weights_have_their_size_in_every_type(void **state)
{
    (void)state;
    static const struct {
        const char *mix;
        gem_dtype type; /* of attn_q of layer 0 */
    } mixes[] = {{"f32", GEM_DTYPE_F32},     {"f16", GEM_DTYPE_F16},   {"bf16", GEM_DTYPE_BF16},
                 {"q4_0", GEM_DTYPE_Q4_0},   {"q4_1", GEM_DTYPE_Q4_1}, {"q5_0", GEM_DTYPE_Q5_0},
                 {"q5_1", GEM_DTYPE_Q5_1},   {"q8_0", GEM_DTYPE_Q8_0}, {"q4_k_m", GEM_DTYPE_Q4_K},
                 {"q5_k_m", GEM_DTYPE_Q5_K}, {"Q6_K", GEM_DTYPE_Q6_K}};
    for (size_t i = 0; i < ARRAY_LEN(mixes); i++) {
        assert_int_equal(run(NULL, "-p gemma3-tiny -q %s -o %s", mixes[i].mix, out_path), 0);
        gem_gguf *g = open_file();
        assert_int_equal(gem_gguf_tensor(g, "blk.0.attn_q.weight")->dtype, mixes[i].type);
        for (size_t k = 0; k < gem_gguf_n_tensors(g); k++) {
            const gem_tensor *t = gem_gguf_tensor_at(g, k);
            double mean, std, gain = strstr(t->name, "ffn_gate") ? 1.5 : 1.0;
            if (t->n_dims < 2) continue;
            moments(t, &mean, &std);
            double want = gain / sqrt((double)t->dim[0]);
            /* Scales spread by 14 % over blocks of 256 and by another 33 % over sub-blocks of 32,
             * so the deviation of n / 256 blocks is known to 0.19 / sqrt(n / 256); four times that.
             */
            double bound = 0.76 / sqrt((double)(t->dim[0] * t->dim[1]) / 256);
            if (fabs(std / want - 1) > bound || fabs(mean) > 0.05 * want)
                fail_msg("%s %s: mean %g, deviation %g, expected 0 and %g", mixes[i].mix, t->name,
                         mean, std, want);
        }
        gem_gguf_close(g);
    }
}

static void test_f32_twin_has_the_exact_values(void **state)
{
    (void)state;
    char twin[128];
    gem_gguf *a, *b;
    gem_error err;
    snprintf(twin, sizeof(twin), "%s/twin.gguf", folder);
    assert_int_equal(run(NULL, "-p gemma3-tiny --d-ff 8192 -q q5_k_m -o %s", out_path), 0);
    assert_int_equal(run(NULL, "-p gemma3-tiny --d-ff 8192 -q q5_k_m --expand-f32 -o %s", twin), 0);
    a = open_file();
    assert_int_equal(gem_gguf_open(&b, twin, &err), GEM_OK);
    for (size_t i = 0; i < gem_gguf_n_tensors(a); i++) {
        const gem_tensor *x = gem_gguf_tensor_at(a, i), *y = gem_gguf_tensor_at(b, i);
        size_t n = (size_t)(x->dim[0] * x->dim[1]);
        assert_string_equal(x->name, y->name);
        assert_int_equal(y->dtype, GEM_DTYPE_F32);
        assert_int_equal(y->bytes, 4 * n);
        float *v = malloc(4 * n);
        assert_non_null(v);
        gem_dequantize_row(x->dtype, x->data, v, n);
        assert_memory_equal(v, y->data, 4 * n);
        free(v);
    }
    gem_gguf_close(a);
    gem_gguf_close(b);
    unlink(twin);
}

/* ---- vocabularies ---- */

static int by_string(const void *a, const void *b)
{
    const gem_str *x = a, *y = b;
    int c = memcmp(x->data, y->data, GEM_MIN(x->len, y->len));
    return c ? c : x->len < y->len ? -1 : x->len > y->len;
}

typedef struct words {
    gem_str *by_id, *sorted;
    uint64_t n;
} words;

static words read_words(const gem_gguf *g)
{
    const gem_kv *kv = gem_gguf_find(g, "tokenizer.ggml.tokens");
    const uint8_t *pos = kv->v.array;
    words w = {malloc((size_t)kv->n * sizeof(gem_str)), malloc((size_t)kv->n * sizeof(gem_str)),
               kv->n};
    assert_non_null(w.by_id);
    assert_non_null(w.sorted);
    for (uint64_t i = 0; i < w.n; i++)
        w.by_id[i] = gem_kv_string_next(&pos);
    memcpy(w.sorted, w.by_id, (size_t)w.n * sizeof(gem_str));
    qsort(w.sorted, (size_t)w.n, sizeof(gem_str), by_string);
    for (uint64_t i = 1; i < w.n; i++)
        if (by_string(&w.sorted[i - 1], &w.sorted[i]) == 0)
            fail_msg("token %llu twice", (unsigned long long)i);
    return w;
}

static void free_words(words *w)
{
    free(w->by_id);
    free(w->sorted);
}

static bool has(const words *w, const char *s, size_t len)
{
    gem_str key = {s, len};
    return bsearch(&key, w->sorted, (size_t)w->n, sizeof(key), by_string) != NULL;
}

static void expect_token(const words *w, uint64_t id, const char *text)
{
    assert_true(id < w->n);
    if (w->by_id[id].len != strlen(text) || memcmp(w->by_id[id].data, text, strlen(text)) != 0)
        fail_msg("token %llu is '%.*s', expected '%s'", (unsigned long long)id,
                 (int)w->by_id[id].len, w->by_id[id].data, text);
}

static int32_t type_at(const gem_gguf *g, uint64_t i)
{
    int32_t v;
    memcpy(&v, gem_gguf_find(g, "tokenizer.ggml.token_type")->v.array + 4 * i, 4);
    return v;
}

static void check_gemma3_vocab(uint64_t n)
{
    gem_gguf *g = open_file();
    words w = read_words(g);
    assert_int_equal(w.n, n);
    assert_int_equal(gem_gguf_find(g, "tokenizer.ggml.scores")->n, n);
    assert_int_equal(gem_gguf_find(g, "tokenizer.ggml.token_type")->n, n);
    expect_token(&w, 0, "<pad>");
    expect_token(&w, 1, "<eos>");
    expect_token(&w, 2, "<bos>");
    expect_token(&w, 105, "<start_of_turn>");
    expect_token(&w, 106, "<end_of_turn>");
    expect_token(&w, 109, "\n\n\n");
    expect_token(&w, 138, "  ");
    expect_token(&w, 238, "<0x00>");
    expect_token(&w, 493, "<0xFF>");
    assert_int_equal(type_at(g, 2), 3);
    assert_int_equal(type_at(g, 107), 4);
    assert_int_equal(type_at(g, 300), 6);
    assert_int_equal(type_at(g, 494), 1);
    for (char c = 0x21; c < 0x7F; c++)
        assert_true(has(&w, &c, 1));
    uint64_t step = n > 10000 ? 11 : 1;        /* a sample of a large vocabulary */
    for (uint64_t i = 494; i < n; i += step) { /* every word is two tokens joined */
        bool found =
            type_at(g, i) != 1 || w.by_id[i].len == 1 || (unsigned char)w.by_id[i].data[0] >= 0xC0;
        for (size_t cut = 1; cut < w.by_id[i].len && !found; cut++)
            found = has(&w, w.by_id[i].data, cut) &&
                    has(&w, w.by_id[i].data + cut, w.by_id[i].len - cut);
        if (!found) fail_msg("token %llu cannot be reached", (unsigned long long)i);
    }
    if (n == 262144) { /* ids of the real vocabulary */
        expect_token(&w, 236743, "\xE2\x96\x81");
        expect_token(&w, 255968, "\t");
        expect_token(&w, 255999, "<start_of_image>");
    }
    free_words(&w);
    gem_gguf_close(g);
}

static void test_gemma3_vocabulary(void **state)
{
    (void)state;
    assert_int_equal(run(NULL, "-p gemma3-tiny -o %s", out_path), 0);
    check_gemma3_vocab(1024);
    assert_int_equal(run(NULL, "-p gemma3-tiny --vocab 589 -o %s", out_path), 0);
    check_gemma3_vocab(589);
    assert_int_equal(run(NULL,
                         "-p gemma3-270m --layers 1 --d-model 32 --d-ff 32 --heads 1 --head-dim 32 "
                         "-q q4_0 -o %s",
                         out_path),
                     0);
    check_gemma3_vocab(262144);
}

/* Merges join two tokens into a third, and markers stand at their real ids. */
static void check_gemma4_vocab(uint64_t n)
{
    gem_gguf *g = open_file();
    words w = read_words(g);
    assert_int_equal(w.n, n);
    expect_token(&w, 46, "<|tool>");
    expect_token(&w, 52, "<|\"|>");
    expect_token(&w, 100, "<|channel>");
    expect_token(&w, 106, "<turn|>");
    expect_token(&w, 109, "\n\n\n");
    expect_token(&w, 138, "\xE2\x96\x81\xE2\x96\x81");
    expect_token(&w, 493, "<0xFF>");
    assert_int_equal(type_at(g, 105), 3);
    assert_int_equal(type_at(g, 101), 4);
    assert_int_equal(type_at(g, 107), 1);
    if (n == 262144) {
        expect_token(&w, 236743, "\xE2\x96\x81");
        expect_token(&w, 255968, "\t");
        expect_token(&w, 255999, "<|image>");
        expect_token(&w, 258882, "<image|>");
    }
    const gem_kv *merges = gem_gguf_find(g, "tokenizer.ggml.merges");
    const uint8_t *pos = merges->v.array;
    assert_true(merges->n > (n == 262144 ? 200000 : n - 600));
    for (uint64_t i = 0; i < merges->n; i++) {
        gem_str m = gem_kv_string_next(&pos);
        const char *gap = memchr(m.data, ' ', m.len);
        char made[256];
        assert_non_null(gap);
        size_t left = (size_t)(gap - m.data), right = m.len - left - 1;
        memcpy(made, m.data, left);
        memcpy(made + left, gap + 1, right);
        assert_true(has(&w, m.data, left) && has(&w, gap + 1, right) &&
                    has(&w, made, left + right));
    }
    free_words(&w);
    gem_gguf_close(g);
}

static void test_gemma4_vocabulary(void **state)
{
    (void)state;
    assert_int_equal(run(NULL, "-p gemma4-tiny --sparse -o %s", out_path), 0);
    check_gemma4_vocab(1024);
    assert_int_equal(run(NULL, "-p gemma4-12b --layers 1 --d-model 32 --sparse -o %s", out_path),
                     0);
    check_gemma4_vocab(262144);
}

static void check_qwen2_vocab(uint64_t n, uint64_t special)
{
    gem_gguf *g = open_file();
    words w = read_words(g);
    assert_int_equal(w.n, n);
    expect_token(&w, 0, "!");
    expect_token(&w, 188, "\xC4\x80"); /* byte 0 */
    expect_token(&w, 220, "\xC4\xA0"); /* the space */
    expect_token(&w, special, "<|endoftext|>");
    expect_token(&w, special + 1, "<|im_start|>");
    expect_token(&w, special + 2, "<|im_end|>");
    assert_int_equal(type_at(g, special + 1), 3);
    assert_int_equal(gem_gguf_find(g, "tokenizer.ggml.eos_token_id")->v.u, special + 2);
    const gem_kv *merges = gem_gguf_find(g, "tokenizer.ggml.merges");
    assert_int_equal(merges->n, special - 256);
    const uint8_t *pos = merges->v.array;
    for (uint64_t i = 0; i < merges->n; i++) { /* merge i makes token 256 + i of two earlier ones */
        gem_str m = gem_kv_string_next(&pos), made = w.by_id[256 + i];
        const char *gap = memchr(m.data, ' ', m.len);
        assert_non_null(gap);
        size_t left = (size_t)(gap - m.data), right = m.len - left - 1;
        assert_int_equal(made.len, left + right);
        assert_memory_equal(made.data, m.data, left);
        assert_memory_equal(made.data + left, gap + 1, right);
        assert_true(has(&w, m.data, left) && has(&w, gap + 1, right));
    }
    free_words(&w);
    gem_gguf_close(g);
}

static void test_qwen2_vocabulary(void **state)
{
    (void)state;
    assert_int_equal(run(NULL, "-p qwen2-tiny -o %s", out_path), 0);
    check_qwen2_vocab(1024, 1002);
    assert_int_equal(
        run(NULL,
            "-p qwen2-0.5b --layers 1 --d-model 32 --d-ff 32 --heads 1 --kv-heads 1 -q q4_0 -o %s",
            out_path),
        0);
    check_qwen2_vocab(151936, 151643);
}

static void test_vocabulary_of_another_file(void **state)
{
    (void)state;
    char source[128];
    snprintf(source, sizeof(source), "%s/source.gguf", folder);
    assert_int_equal(run(NULL, "-p gemma3-tiny --vocab 700 --seed 9 -o %s", source), 0);
    assert_int_equal(run(NULL, "-p gemma3-tiny --vocab-from %s -o %s", source, out_path), 0);
    gem_gguf *a = open_file(), *b;
    gem_error err;
    assert_int_equal(gem_gguf_open(&b, source, &err), GEM_OK);
    assert_int_equal(gem_gguf_tensor(a, "token_embd.weight")->dim[1], 700);
    static const char *const keys[] = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        assert_memory_equal(gem_gguf_find(a, keys[i])->v.array, gem_gguf_find(b, keys[i])->v.array,
                            4 * 700);
    words x = read_words(a), y = read_words(b);
    for (uint64_t i = 0; i < 700; i++)
        assert_true(by_string(&x.by_id[i], &y.by_id[i]) == 0);
    assert_int_equal(gem_gguf_find(a, "tokenizer.ggml.bos_token_id")->v.u, 2);
    free_words(&x);
    free_words(&y);
    gem_gguf_close(a);
    gem_gguf_close(b);
    assert_int_equal(run(NULL, "-p qwen2-tiny --vocab-from %s -o %s", source, out_path), 1);
    unlink(source);
}

/* A model must be worth running: logits finite and spread as the scaling promises (4), no token
 * that wins everywhere, and no echo of the input. */
static void check_runs(const char *preset, const char *mix)
{
    enum { N = 48 };
    gem_model *m;
    gem_session *s;
    gem_error err;
    gem_model_info info;
    int n_echoes = 0, n_repeats = 0;
    int32_t last_best = -1;
    assert_int_equal(run(NULL, "-p %s -q %s -o %s", preset, mix, out_path), 0);
    gem_model_options opt = {.n_threads = 1, .n_sessions = 1, .n_ctx = 64};
    if (gem_model_open(&m, out_path, &opt, &err) != GEM_OK) fail_msg("%s", err.text);
    gem_model_get_info(m, &info);
    if (gem_session_new(&s, m, &err) != GEM_OK) fail_msg("%s", err.text);
    for (int32_t i = 0; i < N; i++) {
        const float *logits;
        int32_t token = 500 + i * 7 % 400, best = 0;
        double sum = 0, square = 0;
        if (gem_session_decode(s, token, &logits, &err) != GEM_OK) fail_msg("%s", err.text);
        for (int32_t v = 0; v < info.n_vocab; v++) {
            assert_true(isfinite(logits[v]));
            sum += (double)logits[v];
            square += (double)logits[v] * (double)logits[v];
            if (logits[v] > logits[best]) best = v;
        }
        double mean = sum / info.n_vocab, std = sqrt(square / info.n_vocab - mean * mean);
        if (std < 3 || std > 5)
            fail_msg("%s: logits of position %d spread by %g", preset, (int)i, std);
        n_echoes += best == token;
        n_repeats += best == last_best;
        last_best = best;
    }
    assert_true(n_echoes < N / 8);
    assert_true(n_repeats < N / 4);
    gem_session_free(s);
    gem_model_close(m);
}

static void test_models_run_and_behave(void **state)
{
    (void)state;
    check_runs("gemma3-tiny", "q4_k_m");
    check_runs("gemma3-tiny", "q8_0");
    check_runs("qwen2-tiny", "q4_k_m");
    check_runs("qwen2-tiny --tied", "f32");
    check_runs("qwen35-tiny", "q4_k_m");
    check_runs("qwen35-tiny --tied --v-heads 2 --nextn", "q8_0");
}

static void test_impossible_requests_are_refused(void **state)
{
    (void)state;
    unlink(out_path);
    assert_int_equal(run(NULL, "-p gemma3-tiny"), 2); /* no --out */
    assert_int_equal(run(NULL, "-o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p gemma9-tiny -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-a llama -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p gemma3-tiny -a qwen2 -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p gemma3-tiny -q q9 -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p gemma3-tiny --heads 3 --kv-heads 2 -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p gemma3-tiny --vocab 588 -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p qwen2-tiny --window 8 -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p qwen2-tiny --head-dim 32 -o %s", out_path), 2);
    assert_int_equal(run(NULL, "-p gemma3-tiny -o %s/none/m.gguf", folder), 3);
    assert_int_equal(
        run(NULL, "-p gemma3-tiny --layers 1024 --d-model 262144 --d-ff 1048576 -o %s", out_path),
        3);
    assert_int_equal(access(out_path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_arguments_give_same_bytes),
        cmocka_unit_test(test_bytes_are_those_of_the_first_release),
        cmocka_unit_test(test_presets_have_the_tensors_of_the_published_files),
        cmocka_unit_test(test_weights_have_their_size_in_every_type),
        cmocka_unit_test(test_f32_twin_has_the_exact_values),
        cmocka_unit_test(test_gemma3_vocabulary),
        cmocka_unit_test(test_gemma4_vocabulary),
        cmocka_unit_test(test_gemma4_presets_have_the_published_counts),
        cmocka_unit_test(test_qwen35_presets_have_the_published_counts),
        cmocka_unit_test(test_qwen2_vocabulary),
        cmocka_unit_test(test_vocabulary_of_another_file),
        cmocka_unit_test(test_models_run_and_behave),
        cmocka_unit_test(test_impossible_requests_are_refused),
    };
    return cmocka_run_group_tests_name("synth_model", tests, make_folder, remove_folder);
}
