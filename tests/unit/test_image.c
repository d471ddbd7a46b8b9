/* What a checkpoint holds goes out as bytes and comes back into another model of the same file: the
 * tokens behind it get the same bits as if they had been run in one go. */
#include "bits.h"
#include "runtime/image.h"
#include "tiny_model.h"

enum { N = 330, MAX_PARTS = 4096 };

typedef struct blob {
    gem_image_part part;
    void *data;
} blob;

typedef struct image {
    blob *blob;
    size_t n;
    int32_t n_pos;
} image;

static void keep_parts(image *im, const gem_checkpoint *c, const gem_image_part *part, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        blob b = {part[i], malloc(part[i].bytes)};
        assert_int_equal(part[i].bytes, gem_image_part_bytes(c->m, part[i].layer));
        assert_true(gem_image_read(c, &part[i], b.data));
        im->blob = realloc(im->blob, (im->n + 1) * sizeof(blob));
        im->blob[im->n++] = b;
    }
}

/* Add what the session holds behind `from`. */
static void export(image *im, const gem_session *s, int32_t from)
{
    gem_checkpoint *c;
    gem_error err;
    gem_image_part *part = malloc(MAX_PARTS * sizeof(*part)), state[GEM_IMAGE_STATES];
    assert_int_equal(gem_session_checkpoint(s, &c, &err), GEM_OK);
    im->n_pos = gem_image_positions(c);
    size_t n = gem_image_pages(c, from, NULL);
    assert_true(n > 0 && n < MAX_PARTS);
    assert_int_equal(gem_image_pages(c, from, part), n);
    keep_parts(im, c, part, n);
    keep_parts(im, c, state, gem_image_states(c, from, state));
    gem_checkpoint_free(c);
    free(part);
}

static void image_free(image *im)
{
    for (size_t i = 0; i < im->n; i++)
        free(im->blob[i].data);
    free(im->blob);
    memset(im, 0, sizeof(*im));
}

static void import(gem_session *s, const image *im, const int32_t *tokens)
{
    gem_model *m = s->m;
    gem_error err = {0};
    int32_t *first = calloc((size_t)m->plan.n_layers, sizeof(*first));
    for (int l = 0; l < m->plan.n_layers; l++) {
        first[l] = m->layout.window[l] ? INT32_MAX : 0;
        for (size_t i = 0; i < im->n; i++)
            if (im->blob[i].part.layer == l) /* later images hold less of a windowed layer */
                first[l] = GEM_MIN(first[l], im->blob[i].part.index);
        /* only what reaches the end without a gap */
        for (int32_t p = (im->n_pos - 1) / GEM_PAGE; m->layout.window[l] && p >= first[l]; p--) {
            bool held = false;
            for (size_t i = 0; i < im->n; i++)
                held |= im->blob[i].part.layer == l && im->blob[i].part.index == p;
            if (!held) first[l] = p + 1;
        }
    }
    if (gem_image_take(s, im->n_pos, first, &err) != GEM_OK) fail_msg("%s", err.text);
    assert_int_equal(gem_session_position(s), 0);
    for (size_t i = 0; i < im->n; i++) {
        const gem_image_part *p = &im->blob[i].part;
        int32_t place = gem_image_place(s, p->layer, p->index);
        if (place >= 0) gem_image_write(m, p->layer, place, im->blob[i].data);
    }
    for (int32_t b = im->n_pos / GEM_PAGE; b > 0; b--)
        for (size_t i = 0; i < im->n; i++)
            if (im->blob[i].part.layer < 0 && im->blob[i].part.index == b)
                gem_image_put_state(s, b, im->blob[i].data);
    gem_image_commit(s, tokens);
    assert_int_equal(gem_session_position(s), im->n_pos);
    free(first);
}

static void check_model_clean(gem_model *m)
{
    for (int i = 0; i < m->layout.n_pools; i++)
        assert_int_equal(gem_kv_used(m->kv, i), 0);
    if (m->states) assert_int_equal(gem_state_used(m->states), 0);
    gem_model_close(m);
}

/* The image after `early` tokens, and what `at` tokens add to it, into a fresh model. */
static void check_at(const char *path, gem_model_options o, const int32_t *tokens,
                     const uint64_t *base, int32_t early, int32_t at)
{
    static const int32_t pieces[] = {48, 1, 77};
    uint64_t got[N];
    gem_error err;
    image im = {0};
    gem_model *m = bits_open(path, o, o.n_batch);
    gem_session *s = bits_session(m);
    if (early) {
        bits_run(s, tokens, early, pieces, 3, got);
        export(&im, s, 0);
    }
    bits_run(s, tokens + early, at - early, pieces, 3, got);
    export(&im, s, early / GEM_PAGE * GEM_PAGE);
    gem_session_free(s);
    check_model_clean(m);

    m = bits_open(path, o, o.n_batch);
    s = bits_session(m);
    gem_session *other = bits_session(m);
    bits_run(other, tokens + 5, 70, pieces, 3, got); /* places differ from those before */
    import(s, &im, tokens);
    bits_run(s, tokens + at, N - at, pieces, 3, got);
    bits_compare("restored", base + at, got, N - at);
    assert_int_equal(gem_session_trim(s, N - 13, &err), GEM_OK);
    bits_run(s, tokens + N - 13, 13, pieces, 3, got);
    bits_compare("restored, cut back", base + N - 13, got, 13);
    /* cut back inside of what came from outside */
    gem_session_free(s);
    s = bits_session(m);
    import(s, &im, tokens);
    if (gem_session_trim(s, at - 9, &err) == GEM_OK) {
        bits_run(s, tokens + at - 9, 30, pieces, 3, got);
        bits_compare("cut back in the restored part", base + at - 9, got, 30);
    }
    gem_session_free(s);
    /* given up half-way */
    s = bits_session(m);
    int32_t *first = calloc((size_t)m->plan.n_layers, sizeof(*first));
    assert_int_equal(gem_image_take(s, 64, first, &err), GEM_OK);
    assert_int_equal(gem_session_trim(s, 0, &err), GEM_OK);
    bits_run(s, tokens, 70, pieces, 3, got);
    bits_compare("given up", base, got, 70);
    free(first);
    gem_session_free(s);
    gem_session_free(other);
    check_model_clean(m);
    image_free(&im);
}

static void check(const char *path, gem_model_options o, int32_t max_vocab)
{
    static const int32_t all[] = {64};
    int32_t tokens[N];
    uint64_t base[N];
    for (int32_t i = 0; i < N; i++)
        tokens[i] = (i * i + 3 * i) % (max_vocab - 1);
    o.n_ctx = 512;
    o.n_batch = 128;
    o.n_sessions = 3;
    o.n_threads = 2;
    gem_model *m = bits_open(path, o, o.n_batch);
    assert_true(gem_image_offered(m));
    gem_session *s = bits_session(m);
    bits_run(s, tokens, N, all, 1, base);
    gem_session_free(s);
    check_model_clean(m);
    check_at(path, o, tokens, base, 0, 64);
    check_at(path, o, tokens, base, 0, 251);
    check_at(path, o, tokens, base, 150, 300);
}

static void check_tiny(tiny t, gem_model_options o)
{
    char path[128];
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "image"))) fail();
    check(path, o, 300);
    unlink(path);
}

static void test_full_attention(void **state)
{
    (void)state;
    check_tiny(tiny_qwen2(), (gem_model_options){0});
    check_tiny(tiny_qwen2(), (gem_model_options){.kv_type = GEM_KV_F16});
}

static void test_windows(void **state)
{
    (void)state;
    check_tiny(tiny_gemma3(), (gem_model_options){0});
    check_tiny(tiny_gemma4(), (gem_model_options){.kv_type = GEM_KV_F32_VALUES});
}

static void test_recurrent(void **state)
{
    (void)state;
    char path[128], line[512];
    tiny_path(path, "image");
    snprintf(line, sizeof(line), "%s/gem-synth-model -p qwen35-tiny --quiet -o %s >/dev/null",
             GEM_BIN_DIR, path);
    assert_int_equal(system(line), 0);
    check(path, (gem_model_options){0}, 1024);
    check(path, (gem_model_options){.state_bytes = -1}, 1024); /* only what a session is owed */
    unlink(path);
}

/* What cannot be: a window's pages that begin too late, more than a context. */
static void test_refused(void **state)
{
    (void)state;
    char path[128];
    tiny t = tiny_gemma3(); /* a window of 100 */
    gem_error err;
    int32_t first[7] = {0};
    t.tokenizer = true;
    if (!tiny_write(&t, tiny_path(path, "image"))) fail();
    gem_model *m =
        bits_open(path, (gem_model_options){.n_ctx = 2048, .n_batch = 64, .n_sessions = 1}, 0);
    unlink(path);
    gem_session *s = bits_session(m);
    for (int l = 0; l < m->plan.n_layers; l++)
        first[l] = m->layout.window[l] ? 3 : 0;
    assert_int_equal(gem_image_take(s, 256, first, &err), GEM_E_RANGE); /* 157 is needed: page 2 */
    assert_int_equal(gem_image_take(s, 2049, first, &err), GEM_E_RANGE);
    memset(first, 0, sizeof(first));
    first[0] = first[6] = 1;
    assert_int_equal(gem_image_take(s, 80, first, &err), GEM_E_RANGE);
    memset(first, 0, sizeof(first));
    assert_int_equal(gem_image_take(s, 2048, first, &err), GEM_E_NOMEM); /* all of every window */
    assert_int_equal(gem_image_place(s, 0, 0), -1);
    gem_session_free(s);
    check_model_clean(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_attention),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
