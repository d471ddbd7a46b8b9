/* Run the table tests/fak/fixtures/FIXTURES.json: every entry's exit status, the exact set of
 * findings and, where there is one, the golden output. `test_fak_fixtures --update` rewrites the
 * goldens, to be read before they are committed. */
#include "fak/fak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static bool update;

static fak_doc load(const char *path)
{
    fak_doc d;
    fak_findings f = {0};
    fak_io io;
    fak_io_system(&io);
    bool ok = fak_doc_load(&d, &io, &f, path, FAK_MAX_INPUT, NULL);
    fak_findings_free(&f);
    assert_true(ok);
    return d;
}

static int run(const gem_json *args, fak_io *io)
{
    char *argv[32];
    int argc = 0;
    fak_io_system(io);
    for (const gem_json *a = args->first; a; a = a->next)
        argv[argc++] = (char *)a->text;
    return fak_native_performance(argc, argv, io);
}

/* "CODE POINTER\n" of each expected finding must stand in the output, and nothing else. */
static bool findings_match(const gem_json *codes, const gem_bytes *err)
{
    size_t lines = 0;
    const char *text = err->data ? err->data : "";
    for (const char *s = text; *s; s = strchr(s, '\n') + 1)
        lines += strncmp(s, "usage:", 6) != 0;
    if (lines < codes->n) return false;
    for (const char *s = text; *s; s = strchr(s, '\n') + 1) {
        bool known = strncmp(s, "usage:", 6) == 0;
        for (const gem_json *c = codes->first; c && !known; c = c->next) {
            char want[300];
            int n = snprintf(want, sizeof(want), "fak native-performance: %s %s: ", c->first->text,
                             c->last->text);
            known = strncmp(s, want, (size_t)n) == 0;
        }
        if (!known) return false;
    }
    for (const gem_json *c = codes->first; c; c = c->next) {
        char want[300];
        snprintf(want, sizeof(want), ": %s %s: ", c->first->text, c->last->text);
        if (!strstr(text, want)) return false;
    }
    return true;
}

static bool golden_matches(const char *path, const gem_bytes *out)
{
    char *data;
    size_t len;
    gem_error err;
    if (update && strncmp(path, "golden/", 7) * strncmp(path, "cli/", 4) == 0)
        return gem_file_write_atomic(path, out->data, out->len, &err) == GEM_OK;
    if (gem_file_read(path, FAK_MAX_INPUT, &data, &len, &err) != GEM_OK) return false;
    bool same = len == out->len && memcmp(data, out->data, len) == 0;
    free(data);
    return same;
}

static void print_entry(const gem_json *e, int status, const fak_io *io)
{
    fprintf(stderr, "fak native-performance");
    for (const gem_json *a = gem_json_get(e, "args")->first; a; a = a->next)
        fprintf(stderr, " %s", a->text);
    fprintf(stderr, "\n  exit %d, wanted %s\n%s", status, gem_json_get(e, "exit")->text,
            io->err.data ? io->err.data : "");
}

static void test_every_fixture(void **state)
{
    (void)state;
    fak_doc table = load("FIXTURES.json");
    size_t wrong = 0, n = 0, accepted = 0;
    for (const gem_json *e = table.root->first; e; e = e->next, n++) {
        fak_io io;
        const gem_json *golden = gem_json_get(e, "golden");
        int want = (int)fak_int(e, "exit"), status = run(gem_json_get(e, "args"), &io);
        bool failure = want == 1 || want == 2, ok = status == want;
        ok = ok && findings_match(gem_json_get(e, "codes"), &io.err);
        ok = ok && (failure ? io.out.len == 0 : io.err.len == 0 && io.out.len > 0);
        if (ok && golden) ok = golden_matches(golden->text, &io.out);
        if (!ok) print_entry(e, status, &io);
        wrong += !ok;
        accepted += !failure;
        fak_io_free(&io);
    }
    fprintf(stderr, "%zu entries, %zu accepted, %zu refused, %zu wrong\n", n, accepted,
            n - accepted, wrong);
    fak_doc_free(&table);
    assert_int_equal(wrong, 0);
}

/* Three attachments, each fed with the output of the one before; the inputs stay as they are. */
static void test_attach_chain(void **state)
{
    (void)state;
    static const char *const att[] = {"baseline/synthetic-clean.json",
                                      "attach/synthetic-second.json",
                                      "baseline/synthetic-investigate-busy.json",
                                      "baseline/synthetic-clean-equal-threshold.json"};
    char path[] = "/tmp/fak-chain-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    char current[64] = "receipt/synthetic-v1-baseline.json";
    for (int i = 0; i < 4; i++) {
        fak_io io;
        char next[64];
        snprintf(next, sizeof(next), "%s.%d", path, i);
        char *argv[] = {"--attach-receipt", current, "--system-baseline",
                        (char *)att[i],     "--out", next};
        fak_io_system(&io);
        int status = fak_native_performance(6, argv, &io);
        assert_int_equal(status, i < 3 ? 0 : 1);
        assert_int_equal(io.out.len, 0);
        if (i == 3) assert_non_null(strstr(io.err.data, "NPA-001 receipt#/system_baselines"));
        fak_io_free(&io);
        if (i < 3) snprintf(current, sizeof(current), "%s", next);
    }
    fak_doc d = load(current);
    assert_int_equal(fak_count(d.root, "system_baselines"), 3);
    assert_string_equal(fak_str(d.root, "schema"), "fak-native-performance-receipt/v2");
    const gem_json *rep = gem_json_at(gem_json_get(d.root, "repetitions"), 2);
    assert_string_equal(
        fak_str(rep, "system_baseline_digest"),
        fak_str(gem_json_at(gem_json_get(d.root, "system_baselines"), 2), "digest"));
    fak_doc_free(&d);
    unlink(path);
    for (int i = 0; i < 3; i++) {
        char next[64];
        snprintf(next, sizeof(next), "%s.%d", path, i);
        assert_int_equal(unlink(next), 0);
    }
}

/* The committed JSON Schemas are what the decoder's tables say. */
static void test_schemas_are_current(void **state)
{
    (void)state;
    for (const fak_document *const *d = fak_documents; *d; d++) {
        char path[200];
        gem_bytes text = {0};
        gem_error err;
        char *data = NULL;
        size_t len;
        snprintf(path, sizeof(path), "../../../data/native-performance/schemas/%s.json",
                 (*d)->name);
        fak_schema_write(&text, *d);
        if (update)
            assert_int_equal(gem_file_write_atomic(path, text.data, text.len, &err), GEM_OK);
        assert_int_equal(gem_file_read(path, FAK_MAX_INPUT, &data, &len, &err), GEM_OK);
        assert_string_equal(data, text.data);
        free(data);
        gem_bytes_free(&text);
    }
}

/* The embedded bytes are the committed file's, and --json prints them back. */
static void test_embedded_graph_is_the_committed_file(void **state)
{
    (void)state;
    extern const unsigned char fak_graph_data[];
    extern const size_t fak_graph_data_len;
    char *data;
    size_t len;
    gem_error err;
    assert_int_equal(gem_file_read("../../../data/native-performance/graph.json", FAK_MAX_INPUT,
                                   &data, &len, &err),
                     GEM_OK);
    assert_int_equal(len, fak_graph_data_len);
    assert_memory_equal(data, fak_graph_data, len);
    fak_io io;
    char *argv[] = {"--json"};
    fak_io_system(&io);
    assert_int_equal(fak_native_performance(1, argv, &io), 0);
    assert_string_equal(io.out.data, data);
    fak_io_free(&io);
    free(data);
}

int main(int argc, char **argv)
{
    update = argc > 1 && strcmp(argv[1], "--update") == 0;
    if (chdir(GEM_TEST_DIR "/fak/fixtures") != 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_fixture),
                                       cmocka_unit_test(test_attach_chain),
                                       cmocka_unit_test(test_schemas_are_current),
                                       cmocka_unit_test(test_embedded_graph_is_the_committed_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
