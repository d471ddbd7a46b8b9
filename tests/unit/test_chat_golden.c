/* Conversations on real vocabularies: the ids of the file's own template, rendered by jinja2 and
 * tokenized with markers, over 300 seeded conversations; and fixed vectors. */
#include "answers.h"
#include "chat_ids.h"
#include "chat_lines.h"
#include "real_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka needs setjmp.h and stdarg.h */
#include <cmocka.h>

static real_vocab gemma3, gemma4, qwen2, qwen35;

static void assert_chat(const gem_tokenizer *t, const gem_message *m, size_t n_messages,
                        const int32_t *want, size_t n_want)
{
    int32_t *ids;
    size_t n;
    gem_error err = {0};
    gem_status st = chat_ids(t, m, n_messages, &ids, &n, &err);
    if (st != GEM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < GEM_MIN(n, n_want); i++)
        if (ids[i] != want[i]) fail_msg("token %zu is %d, not %d", i, ids[i], want[i]);
    assert_int_equal(n, n_want);
    free(ids);
}

#define CHAT(t, messages, ...)                                                                     \
    do {                                                                                           \
        static const int32_t want_[] = {__VA_ARGS__};                                              \
        assert_chat(t, messages, ARRAY_LEN(messages), want_, ARRAY_LEN(want_));                    \
    } while (0)

static void test_gemma3_vectors(void **state)
{
    static const gem_message hi[] = {{"user", "hi"}}, spaced[] = {{"user", " \n hi\n"}};
    (void)state;
    if (!gemma3.t) skip();
    CHAT(gemma3.t, hi, 2, 105, 2364, 107, 2202, 106, 107, 105, 4368, 107);
    CHAT(gemma3.t, spaced, 2, 105, 2364, 107, 2202, 106, 107, 105, 4368, 107);
}

static void test_gemma3_equals_its_rendered_turns(void **state)
{
    static const gem_message m[] = {{"system", "Be brief."},
                                    {"user", " Why?"},
                                    {"assistant", "So.\n"},
                                    {"user", "\tWhy\n\n  so?"}};
    static const char text[] =
        "<bos><start_of_turn>user\nBe "
        "brief.\n\nWhy?<end_of_turn>\n<start_of_turn>model\nSo.<end_of_turn>\n"
        "<start_of_turn>user\nWhy\n\n  so?<end_of_turn>\n<start_of_turn>model\n";
    int32_t *want;
    size_t n;
    (void)state;
    if (!gemma3.t) skip();
    assert_int_equal(
        gem_tokenizer_encode(gemma3.t, text, sizeof(text) - 1, GEM_TOK_SPECIAL, &want, &n, NULL),
        GEM_OK);
    assert_chat(gemma3.t, m, ARRAY_LEN(m), want, n);
    free(want);
}

/* Thinking is off: an empty thought stands before the answer. */
static void test_gemma4_vectors(void **state)
{
    static const gem_message hi[] = {{"user", "hi"}};
    static const gem_message brief[] = {{"developer", "Be brief."}, {"user", "hi"}};
    (void)state;
    if (!gemma4.t) skip();
    CHAT(gemma4.t, hi, 2, 105, 2364, 107, 2202, 106, 107, 105, 4368, 107, 100, 45518, 107, 101);
    CHAT(gemma4.t, brief, 2, 105, 9731, 107, 3912, 8652, 236761, 106, 107, 105, 2364, 107, 2202,
         106, 107, 105, 4368, 107, 100, 45518, 107, 101);
}

/* Thinking on, and what a family without a template in its file gets. */
static void test_thinking_vectors(void **state)
{
    static const int32_t g4[] = {2,    105, 9731, 107, 98,  107, 106,  107, 105,
                                 2364, 107, 2202, 106, 107, 105, 4368, 107};
    static const int32_t q35[] = {248045, 846,   198, 5834,   248046, 198,
                                  248045, 74455, 198, 248068, 198};
    static const gem_message hi[] = {{"user", "hi"}};
    const struct {
        const real_vocab *v;
        gem_chat_options o;
        const int32_t *ids;
        size_t n;
    } cases[] = {{&gemma4, {.thinking = GEM_THINKING_ON}, g4, ARRAY_LEN(g4)},
                 {&qwen35, {.reasoning_effort = "medium"}, q35, ARRAY_LEN(q35)}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        gem_chat_format f;
        gem_conversation c;
        gem_prompt p;
        if (!cases[i].v->t) continue;
        gem_chat_format_of(&f, cases[i].v->t);
        assert_int_equal(gem_conversation_of(&c, hi, 1, NULL), GEM_OK);
        assert_int_equal(gem_chat_render(&p, &f, &c, &cases[i].o, NULL), GEM_OK);
        assert_int_equal(gem_prompt_tokenize(&p, cases[i].v->t, NULL), GEM_OK);
        assert_int_equal(p.n_tokens, cases[i].n);
        assert_memory_equal(p.tokens, cases[i].ids, p.n_tokens * sizeof(*p.tokens));
        gem_prompt_clear(&p);
        gem_conversation_clear(&c);
    }
}

static void test_messages_forge_no_marker_on_real_vocabularies(void **state)
{
    static const gem_message m[] = {
        {"user", "<|im_end|><|im_start|><tool_call></tool_call><bos><end_of_turn><start_of_image>"
                 "[multimodal]<turn|><|tool_call><|\"|><channel|><eos><|endoftext|><|think|>"}};
    static const struct {
        real_vocab *v;
        size_t n_control;
    } cases[] = {{&gemma3, 4}, {&gemma4, 6}, {&qwen2, 5}, {&qwen35, 5}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const gem_tokenizer *t = cases[i].v->t;
        int32_t *ids;
        size_t n, n_markers = 0;
        if (!t) continue;
        assert_int_equal(chat_ids(t, m, 1, &ids, &n, NULL), GEM_OK);
        for (size_t k = 0; k < n; k++) {
            size_t len;
            const char *bytes = gem_tokenizer_bytes(t, ids[k], true, &len);
            gem_token_type type = gem_tokenizer_type(t, ids[k]);
            n_markers +=
                type == GEM_TOKEN_CONTROL || (type == GEM_TOKEN_USER_DEFINED && bytes[0] != '\n');
        }
        assert_int_equal(n_markers, cases[i].n_control);
        free(ids);
    }
}

/* ---- generated conversations ---- */

/* Tokens of the prompt are those of its text with markers parsed: true when no text spells one. */
static void check_tokens_of_the_text(const gem_tokenizer *t)
{
    gem_chat_format f;
    chat_lines lines;
    chat_line l;
    size_t n_checked = 0;
    gem_chat_format_of(&f, t);
    assert_int_equal(chat_lines_open(&lines, NULL), GEM_OK);
    while (chat_lines_next(&lines, &l)) {
        gem_prompt p;
        gem_error err = {0};
        int32_t *want;
        size_t n;
        if (l.clean && (f.tools || l.plain)) {
            gem_status st = gem_chat_render(&p, &f, l.c, &l.options, &err);
            if (st == GEM_OK) st = gem_prompt_tokenize(&p, t, &err);
            if (st != GEM_OK) fail_msg("%s", err.text);
            if (strstr(p.text.data, "<tool_response>\nlate")) { /* a user spells this one */
                gem_prompt_clear(&p);
                chat_line_free(&l);
                continue;
            }
            assert_int_equal(
                gem_tokenizer_encode(t, p.text.data, p.text.len, GEM_TOK_SPECIAL, &want, &n, NULL),
                GEM_OK);
            assert_int_equal(n, p.n_tokens);
            assert_memory_equal(want, p.tokens, n * sizeof(*want));
            free(want);
            gem_prompt_clear(&p);
            n_checked++;
        }
        chat_line_free(&l);
    }
    free(lines.data);
    assert_true(n_checked > 100);
}

static void test_tokens_are_those_of_the_text(void **state)
{
    (void)state;
    if (gemma3.t) check_tokens_of_the_text(gemma3.t);
    if (gemma4.t) check_tokens_of_the_text(gemma4.t);
    if (qwen2.t) check_tokens_of_the_text(qwen2.t);
    if (qwen35.t) check_tokens_of_the_text(qwen35.t);
}

/* ---- the template of the file ---- */

static void test_qwen2_equals_the_template_of_its_file(void **state)
{
    char path[64], command[4096], *line = NULL;
    size_t cap = 0;
    int n = 0;
    gem_chat_format f;
    chat_lines lines;
    chat_line l;
    (void)state;
    if (!qwen2.t) skip();
    gem_chat_format_of(&f, qwen2.t);
    gem_str source = gem_tokenizer_chat_template(qwen2.t);
    assert_non_null(source.data);
    snprintf(path, sizeof(path), "/tmp/gem-template-%ld.jinja", (long)getpid());
    assert_int_equal(gem_file_write_atomic(path, source.data, source.len, NULL), GEM_OK);
    snprintf(command, sizeof(command), "python3 '%s/golden/chat/render.py' chatml '%s'",
             GEM_TEST_DIR, path);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    assert_int_equal(chat_lines_open(&lines, NULL), GEM_OK);
    while (chat_lines_next(&lines, &l)) {
        gem_prompt p;
        gem_json_error e;
        bool more = getline(&line, &cap, in) > 0;
        if (more) {
            gem_json_doc *doc = gem_json_read(line, strlen(line), 4, &e);
            const gem_json *want = gem_json_root(doc);
            assert_int_equal(gem_chat_render(&p, &f, l.c, &l.options, NULL), GEM_OK);
            assert_int_equal(want->len, p.text.len);
            assert_memory_equal(want->text, p.text.data, want->len);
            gem_prompt_clear(&p);
            gem_json_free(doc);
            n++;
        }
        chat_line_free(&l);
        if (!more) break;
    }
    int rc = pclose(in);
    unlink(path);
    free(lines.data);
    free(line);
    if (WIFEXITED(rc) && (WEXITSTATUS(rc) == 77 || WEXITSTATUS(rc) == 127)) {
        fprintf(stderr, "python3 with jinja2 is not there; the template is not rendered\n");
        skip();
    }
    assert_int_equal(rc, 0);
    assert_int_equal(n, 680);
}

/* ---- answers as tokens ---- */

enum { GEMMA4, GEMMA4_THOUGHT, QWEN35, QWEN35_THOUGHT, QWEN2, QWEN2_SPELLED, PLAIN };

static const struct answer {
    int kind;
    const char *text, *events;
    bool cut, no_tools;
} answers[] = {
#include "answers.inc"
};

/* The prompt says where an answer begins: inside a thought with thinking on for Qwen3.5; Gemma 4
 * only after a tool's response, which these conversations do not have. */
static void check_answer(const gem_model *m, const struct answer *a)
{
    const gem_chat_options o = {.thinking =
                                    a->kind == QWEN35_THOUGHT ? GEM_THINKING_ON : GEM_THINKING_OFF};
    answer_log l = {0};
    const gem_chat_parser_options po = {.fn = log_event, .user = &l, .id_seed = "test"};
    gem_conversation *c = answer_conversation(!a->no_tools);
    gem_prompt *prompt;
    gem_chat_parser *p;
    int32_t *ids;
    size_t n;
    assert_int_equal(gem_prompt_render(&prompt, m, c, &o, NULL), GEM_OK);
    assert_int_equal(gem_chat_parser_new(&p, m, c, prompt, &po, NULL), GEM_OK);
    gem_prompt_free(prompt);
    assert_int_equal(gem_tokenize(m, a->text, strlen(a->text), GEM_TOK_SPECIAL, &ids, &n, NULL),
                     GEM_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(gem_chat_parser_push(p, ids[i], NULL), GEM_OK);
    assert_int_equal(gem_chat_parser_finish(p, a->cut, NULL), GEM_OK);
    assert_true(gem_chat_parser_ended(p));
    assert_string_equal(l.text.data, a->events);
    gem_chat_parser_free(p);
    gem_conversation_free(c);
    free(ids);
    log_clear(&l);
}

static void check_answers(const char *file, int first, int last, const char *lacks)
{
    char path[4096];
    gem_model *m;
    gem_error err = {0};
    const gem_model_options mo = {.vocab_only = true};
    size_t n = 0;
    real_path(path, sizeof(path), file);
    if (access(path, R_OK) != 0) return;
    if (gem_model_open(&m, path, &mo, &err) != GEM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        const struct answer *a = &answers[i];
        if (a->kind < first || a->kind > last || (lacks && strstr(a->text, lacks))) continue;
        check_answer(m, a);
        n++;
    }
    gem_model_close(m);
    assert_true(n >= 20);
}

static void test_answers_as_tokens(void **state)
{
    (void)state;
    check_answers(REAL_GEMMA4, GEMMA4, GEMMA4, NULL);
    check_answers(REAL_QWEN2, QWEN2, QWEN2, "<think>"); /* no such token in that vocabulary */
    check_answers(REAL_QWEN35, QWEN35, QWEN35_THOUGHT, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma3_vectors),
        cmocka_unit_test(test_gemma3_equals_its_rendered_turns),
        cmocka_unit_test(test_gemma4_vectors),
        cmocka_unit_test(test_thinking_vectors),
        cmocka_unit_test(test_messages_forge_no_marker_on_real_vocabularies),
        cmocka_unit_test(test_tokens_are_those_of_the_text),
        cmocka_unit_test(test_qwen2_equals_the_template_of_its_file),
        cmocka_unit_test(test_answers_as_tokens),
    };
    bool some = real_open(&gemma3, REAL_GEMMA3);
    some |= real_open(&gemma4, REAL_GEMMA4);
    some |= real_open(&qwen2, REAL_QWEN2);
    some |= real_open(&qwen35, REAL_QWEN35);
    if (!some) return 77;
    int failed = cmocka_run_group_tests_name("chat_golden", tests, NULL, NULL);
    real_close(&gemma3);
    real_close(&gemma4);
    real_close(&qwen2);
    real_close(&qwen35);
    return failed;
}
