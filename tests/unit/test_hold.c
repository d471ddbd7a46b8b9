/* test_hold.c - a token drawn under a grammar is the best of those that fit, one by one, whichever
 * way it was found: by trying, or by a mask over the vocabulary in the order of its bytes. */
#include "server/hold.h"

#include "tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char schema_text[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
    "\"kind\":{\"enum\":[\"red\",\"green\",\"reddish\"]},"
    "\"n\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":250},"
    "\"list\":{\"type\":\"array\",\"maxItems\":4,\"items\":{\"type\":[\"number\",\"null\"]}}},"
    "\"required\":[\"name\",\"kind\",\"n\",\"list\"],\"additionalProperties\":false}";

static gem_model *open_model(void)
{
    char path[128], line[512];
    gem_model *m;
    gem_error err = {0};
    const gem_model_options o = {.n_ctx = 64, .n_threads = 1};
    tiny_path(path, "hold");
    snprintf(line, sizeof(line),
             "%s/gem-synth-model -p qwen35-tiny -q q8_0 --quiet -o %s >/dev/null", GEM_BIN_DIR,
             path);
    assert_int_equal(system(line), 0);
    if (gem_model_open(&m, path, &o, &err) != GEM_OK) fail_msg("%s", err.text);
    unlink(path);
    return m;
}

static void check_order(const gem_model *m, const gem_token_order *o)
{
    char *seen = calloc((size_t)o->n, 1);
    const char *before = "";
    size_t len, before_len = 0;
    for (int32_t i = 0; i < o->n; i++) {
        const char *text = gem_token_bytes(m, o->id[i], false, &len);
        if (gem_token_is_end(m, o->id[i])) len = 0;
        size_t k = 0, n = GEM_MIN(len, before_len);
        while (k < n && text[k] == before[k])
            k++;
        assert_int_equal(o->shared[i], GEM_MIN(k, 255));
        assert_true(k == before_len ||
                    (k < len && (unsigned char)text[k] > (unsigned char)before[k]));
        assert_int_equal(seen[o->id[i]]++, 0);
        before = text;
        before_len = len;
    }
    free(seen);
}

static bool fits(const gem_model *m, gem_grammar *g, int32_t token)
{
    size_t len;
    const char *text = gem_token_bytes(m, token, false, &len);
    if (gem_token_is_end(m, token)) return gem_grammar_done(g);
    return gem_grammar_allows(g, text, len);
}

/* Answers of random logits; each token against a search through the whole vocabulary. */
static void test_the_best_that_fits(void **state)
{
    (void)state;
    gem_model *m = open_model();
    gem_model_info info;
    gem_token_order order;
    gem_error err = {0};
    gem_fault f = {0};
    gem_model_get_info(m, &info);
    assert_int_equal(gem_token_order_init(&order, m, info.n_vocab, &err), GEM_OK);
    assert_int_equal(order.n, info.n_vocab);
    check_order(m, &order);
    json_t *v = json_loads(schema_text, 0, NULL);
    gem_schema *schema = gem_schema_new(GEM_SCHEMA_VALUE, v, NULL, false, "schema", &f);
    assert_non_null(schema);
    const gem_hold_rules rules = {.format = schema, .open_tag = -1};
    float *x = malloc((size_t)info.n_vocab * sizeof(*x));
    uint32_t z = 7;
    int drawn = 0, complete = 0;
    for (int answer = 0; answer < 6; answer++) {
        gem_sampler *sampler;
        gem_sampler_options so;
        gem_hold *h = gem_hold_new(&rules, m, &order);
        gem_grammar *g = gem_grammar_new(schema);
        gem_sampler_defaults(&so);
        so.temperature = 0;
        assert_int_equal(gem_sampler_new(&sampler, info.n_vocab, &so, &err), GEM_OK);
        for (int i = 0; i < 200 && !gem_hold_ended(h); i++, drawn++) {
            int32_t token, best = -1;
            size_t len;
            for (int32_t k = 0; k < info.n_vocab; k++) {
                z = z * 1664525u + 1013904223u;
                x[k] = (float)(z >> 8) * 0x1p-20f; /* hardly ever equal, and the lower id counts */
            }
            for (int32_t k = 0; k < info.n_vocab; k++)
                if ((best < 0 || x[k] > x[best]) && fits(m, g, k)) best = k;
            if (gem_hold_draw(h, sampler, x, &token, &err) != GEM_OK) fail_msg("%s", err.text);
            assert_int_equal(token, best);
            gem_hold_take(h, token, NULL);
            if (gem_token_is_end(m, token)) break;
            const char *text = gem_token_bytes(m, token, false, &len);
            assert_int_equal(gem_grammar_accepts(g, text, len), len);
            assert_true(gem_grammar_push(g, text, len));
        }
        complete += gem_grammar_done(g);
        gem_sampler_free(sampler);
        gem_grammar_free(g);
        gem_hold_free(h);
    }
    print_message("%d tokens, %d answers complete\n", drawn, complete);
    assert_true(drawn > 100 && complete > 0);
    free(x);
    gem_schema_free(schema);
    json_decref(v);
    gem_token_order_deinit(&order);
    gem_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_best_that_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
