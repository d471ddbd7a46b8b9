/* Prompts of every family against the official templates: the digests of the rendered conversations
 * (tests/golden/chat, made by Jinja), and the texts themselves when GEM_CHAT_TEMPLATES names a
 * folder of templates and python3 has jinja2. */
#include "chat_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka needs setjmp.h and stdarg.h */
#include <cmocka.h>

#define LITERAL(s)                                                                                 \
    {                                                                                              \
        s, sizeof(s) - 1                                                                           \
    }
#define IN_TEXT "'</think>' in content "
#define JSON_SCALARS "if args_value is string else args_value | tojson "
#define ONLY_IF_ON "enable_thinking is defined and enable_thinking is true "

/* The features that tell the revisions apart stand for their templates. */
static const struct {
    const char *name, *family_name;
    gem_chat_family family;
    gem_str features;
} formats[] = {
    {"gemma3", "gemma3", GEM_CHAT_GEMMA3, {NULL, 0}},
    {"gemma4", "gemma4", GEM_CHAT_GEMMA4, {NULL, 0}},
    {"gemma4-small", "gemma4", GEM_CHAT_GEMMA4, LITERAL("<|turn>")},
    {"qwen2", "chatml", GEM_CHAT_CHATML, {NULL, 0}},
    {"qwen3.5", "qwen35", GEM_CHAT_QWEN35, LITERAL(IN_TEXT)},
    {"qwen3.5-small", "qwen35", GEM_CHAT_QWEN35, LITERAL(IN_TEXT ONLY_IF_ON)},
    {"qwen3.6", "qwen35", GEM_CHAT_QWEN35, LITERAL(IN_TEXT JSON_SCALARS "preserve_thinking")},
    {"qwen3.6-unsloth", "qwen35", GEM_CHAT_QWEN35,
     LITERAL(IN_TEXT "merged_system preserve_thinking")},
    {"qwen3.8", "qwen35", GEM_CHAT_QWEN35, {NULL, 0}},
};

static void digest(char hex[65], const char *text, size_t len)
{
    gem_sha256 *h = gem_sha256_new();
    assert_non_null(h);
    gem_sha256_update(h, text, len);
    gem_sha256_finish(h, hex);
}

static void render(gem_prompt *p, const gem_chat_format *f, const chat_line *l)
{
    gem_error err = {0};
    if (gem_chat_render(p, f, l->c, &l->options, &err) != GEM_OK) fail_msg("%s", err.text);
}

static void check_pieces(const gem_prompt *p)
{
    size_t at = 0;
    for (size_t i = 0; i < p->n_pieces; i++) {
        assert_ptr_equal(p->piece[i].text, p->text.data + at);
        at += p->piece[i].len;
    }
    assert_int_equal(at, p->text.len);
}

static void test_digests_of_rendered_conversations(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(formats); k++) {
        chat_lines lines;
        chat_line l;
        gem_chat_format f;
        gem_error err = {0};
        char path[512], *want, hex[65];
        size_t len, n = 0;
        gem_chat_format_read(&f, formats[k].family, formats[k].features);
        snprintf(path, sizeof(path), GEM_TEST_DIR "/golden/chat/%s.sha256", formats[k].name);
        if (gem_file_read(path, 1 << 20, &want, &len, &err)) fail_msg("%s", err.text);
        assert_int_equal(chat_lines_open(&lines, &err), GEM_OK);
        for (size_t line = 1; chat_lines_next(&lines, &l); line++) {
            gem_prompt p;
            if (f.family != GEM_CHAT_GEMMA3 || l.plain) {
                render(&p, &f, &l);
                digest(hex, p.text.data, p.text.len);
                assert_true(17 * n + 16 <= len);
                if (memcmp(hex, want + 17 * n, 16) != 0)
                    fail_msg("%s, line %zu renders as\n%s", formats[k].name, line, p.text.data);
                check_pieces(&p);
                gem_prompt_clear(&p);
                n++;
            }
            chat_line_free(&l);
        }
        assert_int_equal(17 * n, len);
        assert_true(n >= 300);
        free(want);
        free(lines.data);
    }
}

/* ---- the templates themselves ---- */

static void compare_line(const char *name, size_t line, const gem_prompt *p, const char *json)
{
    gem_json_error e;
    gem_json_doc *doc = gem_json_read(json, strlen(json), 4, &e);
    const gem_json *want = gem_json_root(doc);
    assert_non_null(want);
    if (want->len != p->text.len || memcmp(want->text, p->text.data, want->len) != 0)
        fail_msg("%s, line %zu\nwant %s\ngot  %s", name, line, want->text, p->text.data);
    gem_json_free(doc);
}

/* False: no jinja2. */
static bool compare(size_t k, const char *path)
{
    chat_lines lines;
    chat_line l;
    gem_chat_format f;
    gem_error err = {0};
    char command[2048], *text = NULL, *source;
    size_t cap = 0, n = 0, len;
    if (gem_file_read(path, 1 << 20, &source, &len, &err)) fail_msg("%s", err.text);
    gem_chat_format_read(&f, formats[k].family, (gem_str){source, len});
    snprintf(command, sizeof(command), "python3 '%s/golden/chat/render.py' %s '%s'", GEM_TEST_DIR,
             formats[k].family_name, path);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    assert_int_equal(chat_lines_open(&lines, &err), GEM_OK);
    for (size_t line = 1; chat_lines_next(&lines, &l); line++) {
        gem_prompt p;
        if (f.family != GEM_CHAT_GEMMA3 || l.plain) {
            if (getline(&text, &cap, in) <= 0) {
                chat_line_free(&l);
                break;
            }
            render(&p, &f, &l);
            compare_line(formats[k].name, line, &p, text);
            gem_prompt_clear(&p);
            n++;
        }
        chat_line_free(&l);
    }
    int rc = pclose(in);
    free(lines.data);
    free(source);
    free(text);
    if (WIFEXITED(rc) && (WEXITSTATUS(rc) == 77 || WEXITSTATUS(rc) == 127)) return false;
    assert_int_equal(rc, 0);
    assert_true(n >= 300);
    return true;
}

static void test_equals_the_templates_themselves(void **state)
{
    const char *dir = getenv("GEM_CHAT_TEMPLATES");
    size_t n = 0;
    (void)state;
    if (!dir || !*dir) {
        fprintf(stderr, "GEM_CHAT_TEMPLATES names no folder of templates; only digests compared\n");
        skip();
    }
    for (size_t k = 0; k < ARRAY_LEN(formats); k++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s.jinja", dir, formats[k].name);
        if (access(path, R_OK) != 0) {
            fprintf(stderr, "%s is not there\n", path);
            continue;
        }
        if (!compare(k, path)) {
            fprintf(stderr, "python3 with jinja2 is not there; no template is rendered\n");
            skip();
        }
        n++;
    }
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests_of_rendered_conversations),
        cmocka_unit_test(test_equals_the_templates_themselves),
    };
    return cmocka_run_group_tests_name("chat_render", tests, NULL, NULL);
}
