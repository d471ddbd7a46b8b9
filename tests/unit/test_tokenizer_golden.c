/* Tokenizer on real vocabularies: ids of another engine over corpus.jsonl, vectors of known faults,
 * round trips, hostile texts, time to open. tests/golden/tokenizer/make_ids.py says where the ids
 * come from; differs.jsonl lists every line where gem decides otherwise. */
#include "cpu_time.h"
#include "real_vocab.h"
#include "slow_build.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
/* cmocka needs setjmp.h and stdarg.h */
#include <cmocka.h>

enum { SLOWDOWN = SLOW_BUILD ? 20 : 1 };

enum { GEMMA3, GEMMA4, QWEN2, QWEN35, N_VOCABS };
static const char *const names[] = {"gemma3", "gemma4", "qwen2", "qwen35"};
static real_vocab vocab[N_VOCABS];

static const gem_tokenizer *need(int which)
{
    if (!vocab[which].t) skip();
    return vocab[which].t;
}

static void golden_path(char *path, size_t size, const char *file)
{
    snprintf(path, size, "%s/golden/tokenizer/%s", GEM_TEST_DIR, file);
}

static void assert_ids(const gem_tokenizer *t, const char *text, size_t len, int flags,
                       const char *want, const char *where)
{
    int32_t *ids;
    size_t n;
    gem_error err = {0};
    gem_bytes got = {0};
    if (gem_tokenizer_encode(t, text, len, flags, &ids, &n, &err) != GEM_OK)
        fail_msg("%s", err.text);
    gem_bytes_put(&got, "", 0);
    for (size_t i = 0; i < n; i++)
        gem_bytes_printf(&got, "%s%d", i ? " " : "", ids[i]);
    if (strcmp(got.data, want) != 0)
        fail_msg("%s, flags %d:\n  ids    %s\n  wanted %s", where, flags, got.data, want);
    free(ids);
    gem_bytes_free(&got);
}

/* ---- the corpus ---- */

/* What gem decides for one line; NULL: nothing of its own. The caller frees. */
static char *own_ids(const json_t *differs, const char *name, bool special, int line)
{
    size_t i, k;
    json_t *d, *id;
    json_array_foreach(differs, i, d)
    {
        if (strcmp(json_string_value(json_object_get(d, "vocabulary")), name) ||
            json_is_true(json_object_get(d, "special")) != special ||
            json_integer_value(json_object_get(d, "line")) != line)
            continue;
        gem_bytes b = {0};
        gem_bytes_put(&b, "", 0);
        json_array_foreach(json_object_get(d, "ids"), k, id)
            gem_bytes_printf(&b, "%s%d", k ? " " : "", (int)json_integer_value(id));
        return b.data;
    }
    return NULL;
}

static json_t *read_differs(void)
{
    char path[4096], *line = NULL;
    size_t cap = 0;
    json_t *all = json_array();
    golden_path(path, sizeof(path), "differs.jsonl");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0)
        json_array_append_new(all, json_loads(line, 0, NULL));
    free(line);
    fclose(f);
    return all;
}

/* A typed U+2581 comes back as a space in Gemma; everything else comes back as it was. */
static void assert_round_trip(const gem_tokenizer *t, const char *text, size_t len, int flags,
                              bool marks, int line)
{
    int32_t *ids;
    size_t n, got_len = 0;
    gem_bytes want = {0}, got = {0};
    for (size_t i = 0; i < len; i++) {
        bool mark = marks && len - i >= 3 && !memcmp(text + i, "\xE2\x96\x81", 3);
        gem_bytes_put(&want, mark ? " " : text + i, 1);
        i += mark ? 2 : 0;
    }
    assert_int_equal(gem_tokenizer_encode(t, text, len, flags, &ids, &n, NULL), GEM_OK);
    for (size_t i = 0; i < n; i++) {
        const char *bytes = gem_tokenizer_bytes(t, ids[i], true, &got_len);
        gem_bytes_put(&got, bytes, got_len);
    }
    if (got.len != want.len || (want.len && memcmp(got.data, want.data, want.len)))
        fail_msg("line %d: \"%s\" came back as \"%s\"", line, text, got.data);
    free(ids);
    gem_bytes_free(&want);
    gem_bytes_free(&got);
}

static void check_line(int which, const json_t *differs, const char *text, size_t len, char *ids,
                       int line, int *own)
{
    const gem_tokenizer *t = vocab[which].t;
    char where[64], *marked = strchr(ids, '|');
    snprintf(where, sizeof(where), "%s, line %d", names[which], line);
    if (marked) *marked++ = 0;
    for (int special = 0; special <= 1; special++) {
        const char *theirs = special && marked ? marked : ids;
        char *ours = own_ids(differs, names[which], special, line);
        if (ours) {
            assert_string_not_equal(ours, theirs); /* else the entry is stale */
            ++*own;
        }
        assert_ids(t, text, len, special ? GEM_TOK_SPECIAL : 0, ours ? ours : theirs, where);
        free(ours);
    }
    assert_round_trip(t, text, len, 0, which < QWEN2, line);
    assert_round_trip(t, text, len, GEM_TOK_SPECIAL, which < QWEN2, line);
    assert_round_trip(t, text, len, GEM_TOK_PLAIN, which < QWEN2, line);
}

static void check_corpus(int which, int n_own)
{
    char path[4096], file[32], *line = NULL, *ids = NULL;
    size_t line_cap = 0, ids_cap = 0;
    int n = 0, own = 0;
    need(which);
    json_t *differs = read_differs();
    golden_path(path, sizeof(path), "corpus.jsonl");
    FILE *corpus = fopen(path, "r");
    snprintf(file, sizeof(file), "%s.ids", names[which]);
    golden_path(path, sizeof(path), file);
    FILE *golden = fopen(path, "r");
    assert_non_null(corpus);
    assert_non_null(golden);
    for (ssize_t len; getline(&line, &line_cap, corpus) > 0;) {
        json_t *text = json_loads(line, JSON_DECODE_ANY, NULL);
        assert_true(json_is_string(text));
        len = getline(&ids, &ids_cap, golden);
        assert_true(len > 0 && ids[len - 1] == '\n');
        ids[len - 1] = 0;
        if (n++ % (SLOW_BUILD ? 12 : 1) == 0)
            check_line(which, differs, json_string_value(text), json_string_length(text), ids, n,
                       &own);
        json_decref(text);
    }
    assert_true(getline(&ids, &ids_cap, golden) < 0);
    assert_true(n >= 2000);
    if (!SLOW_BUILD) assert_int_equal(own, n_own);
    fclose(corpus);
    fclose(golden);
    json_decref(differs);
    free(line);
    free(ids);
}

static void test_corpus_gemma3(void **state)
{
    (void)state;
    check_corpus(GEMMA3, 6); /* </s> */
}

static void test_corpus_gemma4(void **state)
{
    (void)state;
    check_corpus(GEMMA4, 35); /* channel and tool markers with markers off */
}

static void test_corpus_qwen2(void **state)
{
    (void)state;
    check_corpus(QWEN2, 6); /* </s> */
}

static void test_corpus_qwen35(void **state)
{
    (void)state;
    check_corpus(QWEN35, 6); /* </s> */
}

/* ---- single vectors ---- */

#define G3 (1 << GEMMA3)
#define G4 (1 << GEMMA4)
#define Q2 (1 << QWEN2)
#define Q35 (1 << QWEN35)
#define OFF 0
#define ON GEM_TOK_SPECIAL
#define X4(s) s s s s
#define X8(s) X4(s) X4(s)
#define X32(s) X8(s) X8(s) X8(s) X8(s)

static const struct vector {
    int vocabs, flags;
    const char *text;
    const char *ids;
} vectors[] = {
    /* runs of blanks */
    {G3 | G4, OFF, "\t\t\t\t\t\ttest", "255973 2181"},
    {G3 | G4, OFF, "a\n\n\nb", "236746 109 236763"},
    {G3 | G4, OFF, " \n \n\n \n\n\n", "236743 107 236743 108 236743 109"},
    {G3 | G4, OFF, X32("\n"), "137 107"},
    {G3 | G4, OFF, X32("\n") X8("\n"), "137 115"},
    {G3 | G4, OFF, X32("\t"), "255998 255968"},
    {G3 | G4, OFF, X32(" ") " ", "167 138"},
    {G3 | G4, OFF, "x \n y", "236781 236743 107 570"},
    {G3 | G4, OFF, " \n \n", "236743 107 236743 107"},
    {G3 | G4, OFF, "a   b", "236746 139 236763"},
    {G3 | G4, OFF, "\t\tx", "255969 236781"},
    {G3 | G4, OFF, "\r\n", "251 107"},
    {G3 | G4, OFF, "  Hello", "138 9259"},
    {G3 | G4, OFF, " Hello", "26352"},
    {G3 | G4, OFF, "Hello world", "9259 1902"},
    {G3 | G4, OFF, "", ""},
    /* characters */
    {G3 | G4, OFF, "\xC3\xA9", "236859"},
    {G3 | G4, OFF, "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
     "243767 237243 243767 237243 244814"},
    {G3 | G4, OFF, "\xF0\x9F\xAB\xA8\xF3\xA0\x81\x81", "478 397 409 406 481 398 367 367"},
    {G3 | G4, OFF, "\xE2\x96\x81", "236743"},
    {G3 | G4, OFF, "3.14159", "236800 236761 236770 236812 236770 236810 236819"},
    {G3 | G4, OFF,
     "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xAE\xE3\x83\x86\xE3\x82\xB9\xE3\x83\x88",
     "94951 236945 88733"},
    {G3 | G4, OFF, "The quick brown fox jumps over the lazy dog.",
     "818 3823 8864 37423 38167 1024 506 31770 4799 236761"},
    /* bytes that are no UTF-8: one byte token each */
    {G3 | G4, OFF, "\xFF", "493"},
    {G3 | G4, OFF,
     "a\xFF"
     "bcd",
     "236746 493 214728"},
    /* markers */
    {G4, OFF, "<|channel><channel|>", "236820 236909 12027 1798 12027 111038"},
    {G4, OFF, "<|\"|>", "236820 153857 111038"},
    {G4, OFF, "<|tool_call>", "236820 236909 13205 236779 6639 236813"},
    {G4, OFF, "A<|turn>B", "236776 236820 236909 887 236813 236799"},
    {G3, OFF, "<end_of_turn>", "236820 643 236779 1340 236779 887 236813"},
    {Q2 | Q35, OFF, "<|im_end|>", "27 91 318 6213 91 29"},
    {G4, ON, "<|channel><channel|>", "100 101"},
    {G4, ON, "<|\"|>", "52"},
    {G4, ON, "<|tool_call>", "48"},
    {G4, ON, "A<|turn>B", "236776 105 236799"},
    {G3, ON, "<end_of_turn>", "106"},
    {Q2 | Q35, ON, "<|im_end|>", "151645"},
    {G3 | G4, OFF, "<bos>", "236820 46757 236813"},
    {G3, OFF, "<h1>x</h1>", "184 236781 191"},
    {G4, OFF, "<h1>x</h1>", "236820 236754 236770 236813 236781 954 236754 236770 236813"},
    {G3, OFF | GEM_TOK_PLAIN, "x</s>y", "236781 212 236762"},
    {G4, OFF, "x</s>y", "236781 954 236751 236813 236762"},
    {G3, ON, "<start_of_turn>user\nHi<end_of_turn>\n", "105 2364 107 10979 106 107"},
    {G4, ON, "<|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>",
     "105 2364 107 10979 106 107 105 4368 107 100 45518 107 101"},
    {G4, ON, "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|><|tool_response>",
     "48 6639 236787 828 236779 19323 236782 13319 236787 52 50429 52 236783 49 50"},
    /* begin of text: once */
    {G3 | G4, OFF | GEM_TOK_BOS, "hi", "2 2202"},
    {G3 | G4, ON | GEM_TOK_BOS, "<bos>hi", "2 2202"},
    {Q2 | Q35, OFF | GEM_TOK_BOS, "2026", "17 15 17 21"},
    /* words */
    {Q35, OFF, "\xE0\xB8\x97\xE0\xB8\xB5\xE0\xB9\x88", "123828"},
    {Q2, OFF, "\xE0\xB8\x97\xE0\xB8\xB5\xE0\xB9\x88", "35884 47171"},
    {Q35, OFF,
     "\xD8\xA7\xD9\x84\xD8\xB9\xD9\x8E\xD8\xB1\xD9\x8E\xD8\xA8\xD9\x90\xD9\x8A\xD9\x8E\xD9\x91\xD8"
     "\xA9",
     "31382 131319 131082 130750 14558 27910 73771 25871"},
    {Q2, OFF,
     "\xD8\xA7\xD9\x84\xD8\xB9\xD9\x8E\xD8\xB1\xD9\x8E\xD8\xA8\xD9\x90\xD9\x8A\xD9\x8E\xD9\x91\xD8"
     "\xA9",
     "31382 23224 27910 11071 27910 21360 52704 14558 27910 73771 25871"},
    {Q2 | Q35, OFF, "(x):\n->", "2075 982 405"},
    {Q2 | Q35, OFF, "CAN'T we'Ll", "41955 17323 582 91426 75"},
    {Q2 | Q35, OFF, "Hello  world", "9707 220 1879"},
};

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        char where[48];
        snprintf(where, sizeof(where), "vector %zu", i);
        for (int which = 0; which < N_VOCABS; which++)
            if (vocab[which].t && vectors[i].vocabs >> which & 1)
                assert_ids(vocab[which].t, vectors[i].text, strlen(vectors[i].text),
                           vectors[i].flags, vectors[i].ids, where);
    }
}

static void test_ends_of_generation(void **state)
{
    static const struct {
        int which;
        int32_t ends[6];
    } cases[] = {{GEMMA3, {1, 106, -1}},
                 {GEMMA4, {1, 50, 106, -1}},
                 {QWEN2, {151643, 151645, 151662, 151663, 151664, -1}}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const gem_tokenizer *t = vocab[cases[i].which].t;
        size_t next = 0;
        for (int32_t id = 0; t && id < gem_tokenizer_n_vocab(t); id++) {
            bool end = id == cases[i].ends[next];
            assert_int_equal(gem_tokenizer_is_end(t, id), end);
            next += end;
        }
        assert_true(!t || cases[i].ends[next] == -1);
    }
}

/* Every marker of a vocabulary: its own id when markers are asked for, text when it must be plain.
 */
static void test_every_marker(void **state)
{
    (void)state;
    for (int which = 0; which < N_VOCABS; which++) {
        const gem_tokenizer *t = vocab[which].t;
        int n_markers = 0, n_never = 0;
        for (int32_t id = 0; t && id < gem_tokenizer_n_vocab(t); id++) {
            gem_token_type type = gem_tokenizer_type(t, id);
            size_t len, n_on, n_plain;
            const char *bytes = gem_tokenizer_bytes(t, id, true, &len);
            int32_t *on, *plain;
            char text[300];
            bool control = type == GEM_TOKEN_CONTROL;
            if (!control && type != GEM_TOKEN_USER_DEFINED) continue;
            int size = snprintf(text, sizeof(text), "(%.*s)", (int)len, bytes);
            assert_int_equal(
                gem_tokenizer_encode(t, text, (size_t)size, GEM_TOK_SPECIAL, &on, &n_on, NULL),
                GEM_OK);
            assert_int_equal(
                gem_tokenizer_encode(t, text, (size_t)size, GEM_TOK_PLAIN, &plain, &n_plain, NULL),
                GEM_OK);
            if (n_on != 3 || on[1] != id) fail_msg("%s: %s is not one token", names[which], text);
            bool found = false;
            for (size_t i = 0; i < n_plain; i++)
                found |= plain[i] == id;
            assert_false(control && found);
            n_markers++;
            n_never += !found;
            free(on);
            free(plain);
        }
        if (t)
            fprintf(stderr, "%s: %d markers, %d never plain\n", names[which], n_markers, n_never);
        assert_true(!t || n_markers >= 20);
    }
}

/* Every token that merging can make comes back to itself or to other tokens with the same bytes. */
static void test_every_token_round_trips(void **state)
{
    (void)state;
    for (int which = 0; which < N_VOCABS; which++) {
        const gem_tokenizer *t = vocab[which].t;
        for (int32_t id = 0; t && id < gem_tokenizer_n_vocab(t); id++) {
            size_t len;
            const char *bytes = gem_tokenizer_bytes(t, id, true, &len);
            char text[256] = "";
            assert_true(len < sizeof(text));
            memcpy(text, bytes, len);
            if (gem_tokenizer_type(t, id) == GEM_TOKEN_NORMAL)
                assert_round_trip(t, text, len, 0, which < QWEN2, id);
        }
    }
}

/* ---- time ---- */

static void hostile(char *text, size_t size, const char *unit)
{
    uint32_t x = 20260;
    for (size_t i = 0, n = strlen(unit); i < size; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = n ? unit[i % n] : (char)(x >> 24);
    }
}

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void test_a_megabyte_takes_two_seconds_and_little_memory(void **state)
{
    static const char *const units[] = {" ",
                                        "a",
                                        "\xF0\x9F\x99\x82",
                                        "",
                                        "\n",
                                        "7",
                                        "\xE4\xB8\xAD",
                                        "ab",
                                        "\t \n",
                                        "<",
                                        "<|im_start",
                                        "'",
                                        "\xCC\x81",
                                        "\xC2\xA0",
                                        "Aa1 ",
                                        "\xE2\x96\x81"};
    enum { SIZE = SLOW_BUILD ? 1 << 17 : 1 << 20 };
    char *text = malloc(SIZE);
    double slowest = 0;
    long before = peak_kib();
    (void)state;
    assert_non_null(text);
    for (int which = 0; which < N_VOCABS; which++) {
        for (size_t u = 0; vocab[which].t && u < ARRAY_LEN(units); u++) {
            int32_t *ids;
            size_t n;
            hostile(text, SIZE, units[u]);
            double start = cpu_seconds();
            assert_int_equal(
                gem_tokenizer_encode(vocab[which].t, text, SIZE, GEM_TOK_SPECIAL, &ids, &n, NULL),
                GEM_OK);
            double seconds = cpu_seconds() - start;
            free(ids);
            slowest = seconds > slowest ? seconds : slowest;
            if (seconds > 2.0 * SLOWDOWN)
                fail_msg("%s, text %zu: %.2f s", names[which], u, seconds);
        }
    }
    long grown = peak_kib() - before;
    fprintf(stderr, "slowest megabyte: %.2f s; memory grew by at most %ld KiB\n", slowest, grown);
    if (SLOWDOWN == 1) assert_true(grown < 128 * 1024);
    free(text);
}

/* A bound for slow machines; the figure itself is printed. */
static void test_opens_quickly(void **state)
{
    static const int which[] = {GEMMA3, QWEN2};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(which); i++) {
        double best = 1e9;
        for (int run = 0; vocab[which[i]].t && run < 5; run++) {
            gem_tokenizer *t;
            double start = cpu_seconds();
            assert_int_equal(gem_tokenizer_open(&t, vocab[which[i]].g, NULL), GEM_OK);
            double ms = 1e3 * (cpu_seconds() - start);
            gem_tokenizer_close(t);
            best = ms < best ? ms : best;
        }
        if (!vocab[which[i]].t) continue;
        fprintf(stderr, "%s: vocabulary opens in %.1f ms\n", names[which[i]], best);
        assert_true(best < 250.0 * SLOWDOWN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus_gemma3),
        cmocka_unit_test(test_corpus_gemma4),
        cmocka_unit_test(test_corpus_qwen2),
        cmocka_unit_test(test_corpus_qwen35),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_ends_of_generation),
        cmocka_unit_test(test_every_marker),
        cmocka_unit_test(test_every_token_round_trips),
        cmocka_unit_test(test_a_megabyte_takes_two_seconds_and_little_memory),
        cmocka_unit_test(test_opens_quickly),
    };
    bool gemma3 = real_open(&vocab[GEMMA3], REAL_GEMMA3),
         qwen2 = real_open(&vocab[QWEN2], REAL_QWEN2);
    real_open(&vocab[GEMMA4], REAL_GEMMA4);
    if (!gemma3 && !qwen2) return 77;
    if (qwen2 && !real_open_as(&vocab[QWEN35], &vocab[QWEN2], "qwen35")) return 1;
    int failed = cmocka_run_group_tests_name("tokenizer_golden", tests, NULL, NULL);
    for (int i = 0; i < N_VOCABS; i++)
        real_close(&vocab[i]);
    return failed;
}
