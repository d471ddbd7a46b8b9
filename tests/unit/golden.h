/* golden.h - committed logits of another engine (tests/golden/logits, made by make_golden.py there)
 * and runs of the real models over the same token ids. The instruction set is GEM_CPU_ISA's when
 * that is set, else the best one. */
#ifndef GEM_TEST_GOLDEN_H
#define GEM_TEST_GOLDEN_H

#include "real_vocab.h"
#include "runtime/engine.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { GOLDEN_BATCH = 128 };

typedef struct golden {
    json_t *root; /* owned */
    int32_t *ids; /* owned, [n] */
    int32_t n, n_vocab;
} golden;

static inline json_t *golden_json(const char *folder, const char *name)
{
    char path[4096];
    json_error_t err;
    snprintf(path, sizeof(path), "%s/golden/%s/%s.json", GEM_TEST_DIR, folder, name);
    json_t *root = json_load_file(path, 0, &err);
    if (!root) fail_msg("%s: line %d: %s", path, err.line, err.text);
    return root;
}

static inline double golden_number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) fail_msg("golden: no number %s", key);
    return json_number_value(v);
}

static inline golden golden_read(const char *folder, const char *name)
{
    golden g = {0};
    size_t i;
    json_t *id;
    g.root = golden_json(folder, name);
    const json_t *tokens = json_object_get(g.root, "tokens");
    g.n = (int32_t)json_array_size(tokens);
    g.n_vocab = (int32_t)golden_number(g.root, "n_vocab");
    g.ids = malloc((size_t)g.n * sizeof(*g.ids));
    assert_non_null(g.ids);
    json_array_foreach(tokens, i, id) g.ids[i] = (int32_t)json_integer_value(id);
    return g;
}

static inline golden golden_open(const char *family, const char *text)
{
    char name[64];
    snprintf(name, sizeof(name), "%s-%s", family, text);
    return golden_read("logits", name);
}

static inline void golden_close(golden *g)
{
    json_decref(g->root);
    free(g->ids);
}

/* Open for runs of g: false when this build or CPU does not have the instruction set. */
static inline bool golden_model(gem_model **m, const char *path, const golden *g, bool exact,
                                const char *isa)
{
    gem_error err = {0};
    const gem_model_options o = {
        .isa = isa, .n_ctx = g->n, .n_batch = GOLDEN_BATCH, .n_sessions = 1, .exact = exact};
    const gem_engine_options e = {.n_logits = GOLDEN_BATCH, .ops = gem_backend_find(NULL)};
    gem_status st = gem_model_open_engine(m, path, &o, &e, &err);
    if (st == GEM_E_UNSUPPORTED && isa) return false;
    if (st != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal((*m)->plan.n_vocab, g->n_vocab);
    return true;
}

typedef void (*golden_row_fn)(void *user, int32_t pos, const float *logits);

/* Run the ids and hand each row with want[pos] (NULL: every row) to fn, in order. Ends with the
 * last wanted row. */
static inline void golden_run(gem_model *m, const golden *g, const uint8_t *want, golden_row_fn fn,
                              void *user)
{
    gem_row rows[GOLDEN_BATCH];
    const float *x[GOLDEN_BATCH];
    gem_session *s;
    gem_error err = {0};
    int32_t n = g->n;
    while (want && n > 0 && !want[n - 1])
        n--;
    if (gem_session_new(&s, m, &err) != GEM_OK) fail_msg("%s", err.text);
    for (int32_t at = 0; at < n; at += (int32_t)ARRAY_LEN(rows)) {
        int32_t k = GEM_MIN((int32_t)ARRAY_LEN(rows), n - at);
        for (int32_t i = 0; i < k; i++)
            rows[i] = (gem_row){s, g->ids[at + i], !want || want[at + i]};
        if (gem_batch_run(m, rows, (size_t)k, x, &err) != GEM_OK) fail_msg("%s", err.text);
        for (int32_t i = 0; i < k; i++)
            if (rows[i].want) fn(user, at + i, x[i]);
    }
    gem_session_free(s);
}

#endif
