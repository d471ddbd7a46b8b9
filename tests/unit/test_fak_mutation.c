/* Change one thing in a valid document and see that it shows. Every member of every valid fixture
 * is dropped, duplicated, retyped and altered. Allowed answers: refused     the validator says no;
 *   equivalent  the canonical form (RFC 8785) is the same, byte for byte;
 *   free        the document is another valid one: an optional member or a free value changed. Its
 *               canonical digest differs, which a signature or a retained manifest of digests
 * shows. Attestations carry their digest: there, and inside receipts, nothing is free. A duplicated
 * member, a retyped value and a missing required member are refused in every document. */
#include "fak/attestation.h"
#include "fak/fak.h"
#include "fak/validate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- running on a buffer ---- */
static fak_doc graph_doc;
static fak_graph graph;

/* Does --validate accept this text? */
static bool accepted(const char *text, size_t len)
{
    fak_doc d;
    fak_findings f = {0};
    bool ok = fak_doc_parse(&d, &f, text, len, NULL) && fak_validate_document(&graph, &d, &f);
    fak_doc_free(&d);
    fak_findings_free(&f);
    return ok;
}

static const char *input;
static size_t input_len;

static gem_status read_input(fak_io *io, const char *path, size_t limit, gem_bytes *data,
                             gem_error *err)
{
    (void)io, (void)path, (void)limit, (void)err;
    gem_bytes_put(data, input, input_len);
    return GEM_OK;
}

static int verify(const char *text, size_t len)
{
    fak_io io;
    char *check[] = {"--verify", "MUTANT"};
    fak_io_system(&io);
    io.read = read_input;
    input = text;
    input_len = len;
    int status = fak_system_baseline(2, check, &io);
    fak_io_free(&io);
    return status;
}

static gem_bytes canonical(const char *text, size_t len)
{
    gem_json_error err;
    gem_bytes out = {0};
    gem_json_doc *d = gem_json_read(text, len, 64, &err);
    if (err.fault == GEM_JSON_OK) gem_json_write_canonical(&out, gem_json_root(d), NULL);
    gem_json_free(d);
    return out;
}

static bool same_meaning(const gem_bytes *want, const char *text, size_t len)
{
    gem_bytes have = canonical(text, len);
    bool same = have.len == want->len && have.len && memcmp(have.data, want->data, have.len) == 0;
    gem_bytes_free(&have);
    return same;
}

/* ---- mutants of a tree ---- */
typedef enum op { DROP, DUPLICATE, RETYPE, ALTER, ALTER2, OPS } op;

static void altered(gem_json_doc *d, gem_json *parent, const char *name, const gem_json *v,
                    bool second)
{
    gem_bytes s = {0};
    switch (v->type) {
    case GEM_JSON_BOOL:
        gem_json_put_bool(d, parent, name, !v->truth);
        break;
    case GEM_JSON_NUMBER:
        gem_json_put_number(d, parent, name, second ? -v->number - 1 : v->number + 1);
        break;
    case GEM_JSON_NULL:
        gem_json_put_bool(d, parent, name, second);
        break;
    case GEM_JSON_STRING: /* another last character, or one more */
        gem_bytes_put(&s, v->text, v->len);
        if (second || !v->len)
            gem_bytes_put(&s, "x", 1);
        else
            s.data[v->len - 1] = s.data[v->len - 1] == '0' ? '1' : '0';
        gem_json_put_string(d, parent, name, s.data);
        gem_bytes_free(&s);
        break;
    default: { /* a list or object with one entry more */
        gem_json *o = gem_json_put_copy(d, parent, name, v);
        if (v->type == GEM_JSON_ARRAY)
            gem_json_put_string(d, o, NULL, second ? "" : "extra");
        else
            gem_json_put_bool(d, o, second ? "" : "extra", true);
    }
    }
}

static void retyped(gem_json_doc *d, gem_json *parent, const char *name, const gem_json *v)
{
    if (v->type == GEM_JSON_NUMBER || v->type == GEM_JSON_BOOL || v->type == GEM_JSON_ARRAY)
        gem_json_put_string(d, parent, name, v->type == GEM_JSON_NUMBER ? v->text : "true");
    else if (v->type == GEM_JSON_NULL)
        gem_json_put_string(d, parent, name, "null");
    else
        gem_json_put_int(d, parent, name, 1);
}

/* Copy with the target changed. */
static void mutate(gem_json_doc *d, gem_json *parent, const gem_json *v, const gem_json *target,
                   op what)
{
    if (v == target) {
        if (what == DROP) return;
        if (what == DUPLICATE) {
            gem_json_put_copy(d, parent, v->name, v);
            gem_json_put_copy(d, parent, v->name, v);
        } else if (what == RETYPE) {
            retyped(d, parent, v->name, v);
        } else {
            altered(d, parent, v->name, v, what == ALTER2);
        }
        return;
    }
    if (v->type != GEM_JSON_OBJECT && v->type != GEM_JSON_ARRAY) {
        gem_json_put_copy(d, parent, v->name, v);
        return;
    }
    gem_json *o = gem_json_put(d, parent, v->name, v->type);
    for (const gem_json *m = v->first; m; m = m->next)
        mutate(d, o, m, target, what);
}

typedef struct tally {
    size_t mutants, refused, equivalent, free_, undetected, structural;
    size_t free_by[OPS];
} tally;

static bool optional_member(const gem_json *v)
{
    static const char *const names[] = {"ttft_milliseconds",
                                        "prefill_milliseconds",
                                        "decode_milliseconds",
                                        "selection_override",
                                        "profiler_artifacts",
                                        "recommendations",
                                        "require_system_baseline",
                                        "allow_sampled_system_baseline",
                                        "process_enumeration_note",
                                        "system_baselines",
                                        "reason",
                                        "counter_comparisons"};
    for (size_t i = 0; v->name && i < ARRAY_LEN(names); i++)
        if (strcmp(v->name, names[i]) == 0) return true;
    return false;
}

static bool inside_attestation(const gem_json *v)
{
    for (; v; v = v->parent)
        if (gem_json_get(v, "command_window")) return true;
    return false;
}

static void complain(const char *what, const gem_json *v, op o)
{
    static const char *const ops[] = {"drop", "duplicate", "retype", "alter", "alter2"};
    gem_bytes pointer = {0};
    gem_json_pointer(v, &pointer);
    fprintf(stderr, "  %s: %s %s\n", what, ops[o], pointer.data ? pointer.data : "-");
    gem_bytes_free(&pointer);
}

static void judge(const gem_json *root, const gem_json *v, op what, const gem_bytes *want, tally *t)
{
    gem_json_doc *d = gem_json_new();
    gem_bytes text = {0};
    mutate(d, NULL, root, v, what);
    gem_json_write(&text, gem_json_root(d));
    t->mutants++;
    if (!accepted(text.data, text.len)) {
        t->refused++;
    } else if (same_meaning(want, text.data, text.len)) {
        t->equivalent++;
    } else {
        bool list_item = v->parent && v->parent->type == GEM_JSON_ARRAY;
        bool must = inside_attestation(v) || what == RETYPE || (what == DUPLICATE && !list_item) ||
                    (what == DROP && !list_item && !optional_member(v));
        if (must) {
            complain("undetected", v, what);
            t->undetected++;
        } else {
            t->free_++;
            t->free_by[what]++;
        }
    }
    gem_bytes_free(&text);
    gem_json_free(d);
}

static void every_value(const gem_json *root, const gem_json *v, const gem_bytes *want, tally *t)
{
    for (const gem_json *m = v->first; m; m = m->next) {
        for (op o = DROP; o < OPS; o++)
            judge(root, m, o, want, t);
        every_value(root, m, want, t);
    }
}

static const char *const fixtures[] = {"../../../data/native-performance/graph.json",
                                       "../../../data/native-performance/gem-h200.json",
                                       "receipt/synthetic-metal-baseline.json",
                                       "receipt/synthetic-metal-candidate.json",
                                       "receipt/synthetic-cuda-baseline.json",
                                       "receipt/synthetic-v1-candidate.json",
                                       "receipt/synthetic-attested-candidate.json",
                                       "baseline/synthetic-clean.json",
                                       "baseline/synthetic-clean-top-consumers.json",
                                       "baseline/synthetic-investigate-busy.json",
                                       "baseline/synthetic-investigate-host-unknown.json",
                                       "baseline/synthetic-invalid-timeout.json",
                                       "gate/synthetic-pass.json",
                                       "gate/synthetic-v1.json",
                                       "profile/synthetic-metal-launch-bound.json",
                                       "profile/synthetic-metal-bandwidth-override.json",
                                       "profile/synthetic-metal-attribution-unavailable.json",
                                       "profile/synthetic-cuda-bandwidth-bound.json"};

static void test_every_change_shows(void **state)
{
    (void)state;
    tally all = {0};
    for (size_t i = 0; i < ARRAY_LEN(fixtures); i++) {
        char *data;
        size_t len;
        gem_error err;
        gem_json_error jerr;
        tally t = {0};
        if (gem_file_read(fixtures[i], FAK_MAX_INPUT, &data, &len, &err) != GEM_OK)
            fail_msg("%s", err.text);
        assert_true(accepted(data, len));
        gem_json_doc *d = gem_json_read(data, len, 64, &jerr);
        gem_bytes want = canonical(data, len);
        every_value(gem_json_root(d), gem_json_root(d), &want, &t);
        fprintf(stderr, "%s: %zu mutants, %zu refused, %zu equivalent, %zu free\n", fixtures[i],
                t.mutants, t.refused, t.equivalent, t.free_);
        all.mutants += t.mutants, all.refused += t.refused, all.equivalent += t.equivalent,
            all.free_ += t.free_;
        all.undetected += t.undetected;
        if (strncmp(fixtures[i], "baseline/", 9) == 0) assert_int_equal(t.free_, 0);
        gem_bytes_free(&want);
        gem_json_free(d);
        free(data);
    }
    fprintf(stderr,
            "all: %zu mutants, %zu refused, %zu equivalent, %zu free (seen by digest), %zu "
            "undetected\n",
            all.mutants, all.refused, all.equivalent, all.free_, all.undetected);
    assert_int_equal(all.undetected, 0);
    assert_true(all.mutants > 5000);
}

/* Any single byte of a retained attestation, replaced by each of several others. */
static void test_any_byte_of_an_attestation(void **state)
{
    (void)state;
    static const char other[] = "0 x";
    char *data;
    size_t len, n = 0;
    gem_error err;
    if (gem_file_read("baseline/synthetic-clean.json", FAK_MAX_INPUT, &data, &len, &err) != GEM_OK)
        fail_msg("%s", err.text);
    assert_int_equal(verify(data, len), 0);
    for (size_t i = 0; i < len; i++) {
        char keep = data[i];
        for (size_t k = 0; k <= sizeof(other); k++) {
            data[i] = k < sizeof(other) ? other[k] : (char)(keep ^ 1);
            if (data[i] == keep) continue;
            n++;
            if (verify(data, len) != 1)
                fail_msg("byte %zu: '%c' for '%c' still verifies", i, data[i], keep);
        }
        data[i] = keep;
    }
    fprintf(stderr, "%zu changed bytes, all refused by --verify\n", n);
    free(data);
}

/* The same inside a receipt: refused, or the document still means the same (a changed blank). */
static void test_any_byte_of_an_embedded_attestation(void **state)
{
    (void)state;
    char *data;
    size_t len, refused = 0, equivalent = 0;
    gem_error err;
    if (gem_file_read("receipt/synthetic-attested-baseline.json", FAK_MAX_INPUT, &data, &len,
                      &err) != GEM_OK)
        fail_msg("%s", err.text);
    gem_bytes want = canonical(data, len);
    const char *from = strstr(data, "\"system_baselines\"");
    assert_non_null(from);
    from = strchr(from, '{');
    size_t end = (size_t)(strstr(from, "\"digest\"") - data) + 90;
    for (size_t i = (size_t)(from - data); i < end; i++) {
        char keep = data[i];
        for (int k = 0; k < 3; k++) {
            data[i] = k == 0 ? (char)(keep ^ 1) : k == 1 ? '0' : ' ';
            if (data[i] == keep) continue;
            if (!accepted(data, len))
                refused++;
            else if (same_meaning(&want, data, len))
                equivalent++;
            else
                fail_msg("byte %zu: '%c' for '%c' is not seen", i, data[i], keep);
        }
        data[i] = keep;
    }
    fprintf(stderr, "%zu changed bytes refused, %zu equivalent\n", refused, equivalent);
    gem_bytes_free(&want);
    free(data);
}

int main(void)
{
    if (chdir(GEM_TEST_DIR "/fak/fixtures") != 0) return 1;
    fak_findings f = {0};
    if (!fak_doc_parse(&graph_doc, &f, (const char *)fak_graph_data, fak_graph_data_len,
                       fak_doc_graph.type) ||
        !fak_graph_init(&graph, graph_doc.root))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_change_shows),
                                       cmocka_unit_test(test_any_byte_of_an_attestation),
                                       cmocka_unit_test(test_any_byte_of_an_embedded_attestation)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fak_graph_free(&graph);
    fak_doc_free(&graph_doc);
    return failed;
}
