/* Answers into events: every family, well formed, cut and hostile; the same however the text is cut
 * into pieces. A line of events: C content, R reasoning, B call begins, A arguments, E call ends,
 * X broken call (reason, what was written), F finish; `?` after the name of an undeclared tool. */
#include "answers.h"
#include "chat/parse_qwen.h"
#include "count_malloc.h"

#include <setjmp.h>
#include <stdarg.h>
/* cmocka needs both */
#include <cmocka.h>

typedef enum kind {
    GEMMA4,
    GEMMA4_THOUGHT,
    QWEN35,
    QWEN35_THOUGHT,
    QWEN2,
    QWEN2_SPELLED,
    PLAIN
} kind;

static const struct {
    gem_chat_family family;
    gem_prompt_end start;
    const gem_spelling *marks;
} kinds[] = {
    [GEMMA4] = {GEM_CHAT_GEMMA4, GEM_PROMPT_CONTENT, answer_gemma4},
    [GEMMA4_THOUGHT] = {GEM_CHAT_GEMMA4, GEM_PROMPT_REASONING, answer_gemma4},
    [QWEN35] = {GEM_CHAT_QWEN35, GEM_PROMPT_CONTENT, answer_qwen},
    [QWEN35_THOUGHT] = {GEM_CHAT_QWEN35, GEM_PROMPT_REASONING, answer_qwen},
    [QWEN2] = {GEM_CHAT_CHATML, GEM_PROMPT_CONTENT, answer_qwen},
    [QWEN2_SPELLED] = {GEM_CHAT_CHATML, GEM_PROMPT_CONTENT, NULL},
    [PLAIN] = {GEM_CHAT_GEMMA3, GEM_PROMPT_CONTENT, NULL},
};

static const gem_spelling spelled_tags[] = {
    {"<tool_call>", GEM_MARK_CALL}, {"</tool_call>", GEM_MARK_CALL_END}, {NULL, GEM_MARK_HIDDEN}};

static gem_conversation *tools, *no_tools;

static void parse(answer_log *l, kind k, bool with_tools, bool cut, bool whole, const char *text,
                  size_t len, const uint8_t *cuts)
{
    gem_chat_parser_options opt = {
        .fn = log_event, .user = l, .id_seed = "test", .whole_calls = whole};
    gem_chat_format f;
    gem_parser p;
    gem_chat_format_read(&f, kinds[k].family, (gem_str){NULL, 0});
    assert_int_equal(
        gem_parser_open(&p, &f, with_tools ? tools : no_tools, kinds[k].start, &opt, NULL), GEM_OK);
    if (k == QWEN2_SPELLED) p.spelling = spelled_tags;
    feed(&p, kinds[k].marks, text, len, cuts);
    gem_parser_finish(&p, cut);
    assert_false(gem_parser_failed(&p));
    gem_parser_close(&p);
    assert_false(l->bad);
    assert_int_equal(l->last, GEM_EVENT_FINISH);
}

/* ---- pieces ---- */

static uint32_t random_bits(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x >> 32);
}

static void same_cut(kind k, bool with_tools, bool cut, const char *text, size_t len,
                     const uint8_t *cuts, const answer_log *want)
{
    answer_log l = {0};
    parse(&l, k, with_tools, cut, false, text, len, cuts);
    if (l.text.len != want->text.len || memcmp(l.text.data, want->text.data, l.text.len) != 0)
        fail_msg("%.*s\nwhole: %s\ncut:   %s", (int)len, text, want->text.data, l.text.data);
    log_clear(&l);
}

/* The same events at every split in two, byte by byte, and in random pieces. */
static void check_splits(kind k, bool with_tools, bool cut, const char *text, size_t len,
                         const answer_log *want)
{
    uint8_t *cuts = calloc(len + 1, 1);
    assert_non_null(cuts);
    for (size_t i = 0; i < len; i++) {
        cuts[i] = 1;
        same_cut(k, with_tools, cut, text, len, cuts, want);
        cuts[i] = 0;
    }
    memset(cuts, 1, len);
    same_cut(k, with_tools, cut, text, len, cuts, want);
    for (int n = 0; n < 4; n++) {
        for (size_t i = 0; i < len; i++)
            cuts[i] = random_bits() % (3 + 4 * (uint32_t)n) == 0;
        same_cut(k, with_tools, cut, text, len, cuts, want);
    }
    free(cuts);
}

/* Calls that come whole are the same calls. */
static void check_whole(kind k, bool with_tools, bool cut, const char *text, size_t len,
                        const answer_log *want)
{
    answer_log l = {0};
    parse(&l, k, with_tools, cut, true, text, len, NULL);
    assert_int_equal(l.n_end, want->n_end);
    assert_int_equal(l.n_broken, want->n_broken);
    assert_int_equal(l.content.len, want->content.len);
    log_clear(&l);
}

/* ---- answers and their events ---- */

typedef struct answer {
    kind k;
    const char *text, *events;
    bool cut, no_tools;
} answer;

static const answer answers[] = {
#include "answers.inc"
};

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        const answer *a = &answers[i];
        answer_log l = {0};
        size_t len = strlen(a->text);
        parse(&l, a->k, !a->no_tools, a->cut, false, a->text, len, NULL);
        if (strcmp(l.text.data, a->events) != 0)
            fail_msg("%s\nwant %s\ngot  %s", a->text, a->events, l.text.data);
        check_splits(a->k, !a->no_tools, a->cut, a->text, len, &l);
        check_whole(a->k, !a->no_tools, a->cut, a->text, len, &l);
        log_clear(&l);
    }
}

/* Content holds no marker, nor a label. */
static void check_clean(const answer_log *l, const gem_spelling *marks)
{
    gem_str s = {l->content.data ? l->content.data : "", l->content.len};
    for (const gem_spelling *m = marks; m && m->text; m++)
        assert_null(memmem(s.data, s.len, m->text, strlen(m->text)));
}

/* Every answer cut short by the limit, and with one character dropped or doubled. */
static void test_cut_and_damaged_answers(void **state)
{
    size_t n = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        const answer *a = &answers[i];
        size_t len = strlen(a->text);
        for (size_t at = i % 7; at < len; at += 7) {
            for (int how = 0; how < 3; how++) {
                char text[1024];
                answer_log l = {0};
                if (len + 2 > sizeof(text)) continue;
                int size = how == 0   ? snprintf(text, sizeof(text), "%.*s", (int)at, a->text)
                           : how == 1 ? snprintf(text, sizeof(text), "%.*s%s", (int)at, a->text,
                                                 a->text + at + 1)
                                      : snprintf(text, sizeof(text), "%.*s%s", (int)at + 1, a->text,
                                                 a->text + at);
                parse(&l, a->k, !a->no_tools, how == 0, false, text, (size_t)size, NULL);
                check_clean(&l, kinds[a->k].marks);
                check_whole(a->k, !a->no_tools, how == 0, text, (size_t)size, &l);
                if (n++ % 5 == 0)
                    check_splits(a->k, !a->no_tools, how == 0, text, (size_t)size, &l);
                log_clear(&l);
            }
        }
    }
    assert_true(n >= 1000);
}

/* ---- ids, limits, what is known early ---- */

static void keep_id(void *user, const gem_chat_event *e)
{
    char(*ids)[48] = user;
    if (e->type == GEM_EVENT_CALL_BEGIN) snprintf(ids[e->call], sizeof(*ids), "%s", e->id);
}

static void ids_of(const char *seed, char ids[2][48])
{
    static const char text[] = "<|tool_call>call:sh{}<tool_call|><|tool_call>call:sh{}<tool_call|>";
    gem_chat_parser_options opt = {.fn = keep_id, .user = ids, .id_seed = seed};
    gem_chat_format f;
    gem_parser p;
    gem_chat_format_read(&f, GEM_CHAT_GEMMA4, (gem_str){NULL, 0});
    assert_int_equal(gem_parser_open(&p, &f, tools, GEM_PROMPT_CONTENT, &opt, NULL), GEM_OK);
    feed(&p, answer_gemma4, text, sizeof(text) - 1, NULL);
    gem_parser_finish(&p, false);
    gem_parser_close(&p);
}

static void test_ids_follow_the_seed_and_differ(void **state)
{
    char a[2][48], b[2][48], c[2][48], d[2][48];
    (void)state;
    ids_of("one", a);
    ids_of("one", b);
    ids_of(NULL, c);
    ids_of(NULL, d);
    assert_int_equal(strlen(a[0]), 37);
    assert_memory_equal(a[0], "call_", 5);
    assert_string_equal(a[0], b[0]);
    assert_string_equal(a[1], b[1]);
    assert_string_not_equal(a[0], a[1]);
    assert_string_not_equal(a[0], c[0]);
    assert_string_not_equal(c[0], d[0]);
}

static void open_limited(gem_parser *p, answer_log *l, gem_chat_family family, size_t max)
{
    gem_chat_parser_options opt = {
        .fn = log_event, .user = l, .id_seed = "test", .max_call_bytes = max};
    gem_chat_format f;
    gem_chat_format_read(&f, family, (gem_str){NULL, 0});
    assert_int_equal(gem_parser_open(p, &f, tools, GEM_PROMPT_CONTENT, &opt, NULL), GEM_OK);
}

static void test_long_calls_are_broken(void **state)
{
    static const char gemma[] =
        "<|tool_call>call:sh{cmd:<|\"|>0123456789012345678901234567890<|\"|>}"
        "<tool_call|>Hi";
    static const char bare[] = "{\"name\": \"sh\", \"arguments\": {\"cmd\": \"x\"}}";
    gem_parser p;
    answer_log l = {0};
    (void)state;
    open_limited(&p, &l, GEM_CHAT_GEMMA4, 32);
    feed(&p, answer_gemma4, gemma, sizeof(gemma) - 1, NULL);
    gem_parser_finish(&p, false);
    assert_non_null(strstr(l.text.data, "|X0:the call is too long:call:sh{cmd:<|\"|>"));
    assert_non_null(strstr(l.text.data, "|C:Hi|F:stop"));
    assert_false(l.bad);
    gem_parser_close(&p);
    log_clear(&l);
    open_limited(&p, &l, GEM_CHAT_CHATML, 32);
    feed(&p, answer_qwen, bare, sizeof(bare) - 1, NULL);
    gem_parser_finish(&p, false);
    assert_memory_equal(l.content.data, bare, sizeof(bare) - 1);
    gem_parser_close(&p);
    log_clear(&l);
}

static void test_a_bare_call_is_known_by_its_name(void **state)
{
    static const char *const parts[] = {"```json\n{\"name\": \"s", "h\"", ", \"arguments\": {}}",
                                        "\n```", " no"};
    static const bool known[] = {false, true, true, true, false};
    gem_parser p;
    answer_log l = {0};
    (void)state;
    open_limited(&p, &l, GEM_CHAT_CHATML, 0);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        feed(&p, answer_qwen, parts[i], strlen(parts[i]), NULL);
        const char *name = gem_qwen_pending_tool(&p);
        assert_int_equal(name != NULL, known[i]);
        if (name) assert_string_equal(name, "sh");
    }
    gem_parser_close(&p);
    log_clear(&l);
}

/* Once the caller holds the rest to the schema, a bare call's arguments go on as they come. */
static void test_a_committed_bare_call_is_streamed(void **state)
{
    static const char *const parts[] = {"```json\n{\"name\": \"sh\"",
                                        ", \"arguments\": {\"cmd\": ", "\"x", "\"}}"};
    gem_parser p;
    answer_log l = {0};
    (void)state;
    open_limited(&p, &l, GEM_CHAT_CHATML, 0);
    gem_qwen_commit(&p); /* nothing is pending */
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        feed(&p, answer_qwen, parts[i], strlen(parts[i]), NULL);
        if (i == 0) gem_qwen_commit(&p);
        assert_int_equal(strstr(l.text.data, "\"x") != NULL, i >= 2);
    }
    gem_parser_finish(&p, false);
    assert_string_equal(l.text.data, "B0:sh|A:{\"cmd\": \"x\"}|E|F:tool_calls");
    gem_parser_close(&p);
    log_clear(&l);
    open_limited(&p, &l, GEM_CHAT_CHATML, 0);
    feed(&p, answer_qwen, parts[0], strlen(parts[0]), NULL);
    gem_qwen_commit(&p);
    feed(&p, answer_qwen, parts[1], strlen(parts[1]), NULL);
    gem_parser_finish(&p, true);
    assert_non_null(strstr(l.text.data, "|A:{\"cmd\": |X0:the call is cut by the length limit:"));
    assert_false(l.bad);
    gem_parser_close(&p);
    log_clear(&l);
}

/* White space held back before a call is bounded, not lost. */
static void test_long_white_space_goes_on(void **state)
{
    gem_parser p;
    answer_log l = {0};
    (void)state;
    open_limited(&p, &l, GEM_CHAT_QWEN35, 0);
    gem_parser_text(&p, "a", 1);
    for (int i = 0; i < 3000; i++)
        gem_parser_text(&p, "  ", 2);
    assert_int_equal(l.content.len, 1 + 6000 - GEM_HELD_BLANKS);
    gem_parser_text(&p, "b", 1);
    gem_parser_finish(&p, false);
    assert_int_equal(l.content.len, 6002);
    gem_parser_close(&p);
    log_clear(&l);
}

#ifdef COUNTS_MALLOC
static void count_event(void *user, const gem_chat_event *e)
{
    *(size_t *)user += e->len;
}

static void test_text_takes_no_memory(void **state)
{
    static const struct {
        gem_chat_family family;
        gem_prompt_end start;
    } cases[] = {{GEM_CHAT_GEMMA4, GEM_PROMPT_CONTENT},
                 {GEM_CHAT_GEMMA4, GEM_PROMPT_REASONING},
                 {GEM_CHAT_QWEN35, GEM_PROMPT_CONTENT},
                 {GEM_CHAT_QWEN35, GEM_PROMPT_REASONING},
                 {GEM_CHAT_GEMMA3, GEM_PROMPT_CONTENT}};
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        size_t n = 0;
        gem_chat_parser_options opt = {.fn = count_event, .user = &n};
        gem_chat_format f;
        gem_parser p;
        gem_chat_format_read(&f, cases[k].family, (gem_str){NULL, 0});
        assert_int_equal(gem_parser_open(&p, &f, NULL, cases[k].start, &opt, NULL), GEM_OK);
        gem_parser_text(&p, "go\n\n", 4);
        size_t before = n_allocations;
        for (int i = 0; i < 1000; i++)
            gem_parser_text(&p, " \xC3\xA9 word\n", 9);
        assert_int_equal(n_allocations, before);
        assert_true(n > 8000);
        gem_parser_close(&p);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_cut_and_damaged_answers),
        cmocka_unit_test(test_ids_follow_the_seed_and_differ),
        cmocka_unit_test(test_long_calls_are_broken),
        cmocka_unit_test(test_a_bare_call_is_known_by_its_name),
        cmocka_unit_test(test_a_committed_bare_call_is_streamed),
        cmocka_unit_test(test_long_white_space_goes_on),
#ifdef COUNTS_MALLOC
        cmocka_unit_test(test_text_takes_no_memory),
#endif
    };
    tools = answer_conversation(true);
    no_tools = answer_conversation(false);
    int failed = cmocka_run_group_tests_name("chat_parser", tests, NULL, NULL);
    gem_conversation_free(tools);
    gem_conversation_free(no_tools);
    return failed;
}
