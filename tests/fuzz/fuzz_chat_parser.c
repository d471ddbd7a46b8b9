/* fuzz_chat_parser.c - any answer: no crash, no event against its contract, and the same events in
 * one piece, byte by byte and cut by the input itself. The first byte chooses the family and its
 * options, the second where the pieces end. Conversations are read and rendered with it too. */
#include "../unit/answers.h"

static const gem_spelling tags[] = {
    {"<tool_call>", GEM_MARK_CALL}, {"</tool_call>", GEM_MARK_CALL_END}, {NULL, GEM_MARK_HIDDEN}};

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

static void run(answer_log *l, unsigned how, const char *text, size_t len, const uint8_t *cuts)
{
    static gem_conversation *with, *without;
    static const gem_chat_family families[] = {GEM_CHAT_GEMMA4, GEM_CHAT_QWEN35, GEM_CHAT_CHATML,
                                               GEM_CHAT_GEMMA3};
    if (!with) {
        with = answer_conversation(true);
        without = answer_conversation(false);
    }
    gem_chat_family family = families[how & 3];
    gem_chat_parser_options opt = {
        .fn = log_event, .user = l, .id_seed = "fuzz", .max_call_bytes = how & 64 ? 64 : 0};
    const gem_spelling *marks = family == GEM_CHAT_GEMMA4   ? answer_gemma4
                                : family == GEM_CHAT_GEMMA3 ? NULL
                                                            : answer_qwen;
    gem_chat_format f;
    gem_parser p;
    gem_chat_format_read(&f, family, (gem_str){NULL, 0});
    check(gem_parser_open(&p, &f, how & 4 ? without : with,
                          how & 8 ? GEM_PROMPT_REASONING : GEM_PROMPT_CONTENT, &opt,
                          NULL) == GEM_OK,
          "a parser opens");
    if (family == GEM_CHAT_CHATML && how & 16) {
        p.spelling = tags;
        marks = NULL;
    }
    feed(&p, marks, text, len, cuts);
    gem_parser_finish(&p, how & 32);
    gem_parser_close(&p);
    check(!l->bad && l->last == GEM_EVENT_FINISH, "an event is not as promised");
}

static void same(const answer_log *a, const answer_log *b)
{
    check(a->text.len == b->text.len && !memcmp(a->text.data, b->text.data, a->text.len),
          "the events depend on the pieces");
}

/* The input as messages, as tools, and as the text of a message. */
static void conversations(const char *text, size_t len)
{
    static const gem_chat_family families[] = {GEM_CHAT_GEMMA3, GEM_CHAT_GEMMA4, GEM_CHAT_CHATML,
                                               GEM_CHAT_QWEN35};
    static const char one[] = "[{\"role\":\"user\",\"content\":\"?\"}]";
    const char *tab = memchr(text, '\t', len);
    size_t n = tab ? (size_t)(tab - text) : len;
    gem_conversation *c;
    if (gem_conversation_read(&c, n ? text : one, n ? n : sizeof(one) - 1, tab ? tab + 1 : NULL,
                              tab ? len - n - 1 : 0, NULL) != GEM_OK)
        return;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        gem_chat_format f;
        gem_prompt p;
        gem_chat_format_read(&f, families[i], (gem_str){NULL, 0});
        if (gem_chat_render(&p, &f, c, NULL, NULL) == GEM_OK) check(p.n_pieces > 0, "no piece");
        gem_prompt_clear(&p);
    }
    gem_conversation_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 4096) return 0;
    const char *text = (const char *)data + 2;
    size_t len = size - 2;
    if (data[0] == 255) {
        conversations(text, len);
        return 0;
    }
    answer_log whole = {0}, bytes = {0}, pieces = {0};
    uint8_t *cuts = malloc(len + 1);
    check(cuts != NULL, "memory");
    run(&whole, data[0], text, len, NULL);
    memset(cuts, 1, len + 1);
    run(&bytes, data[0], text, len, cuts);
    for (size_t i = 0; i < len; i++)
        cuts[i] = (uint8_t)(data[i + 2] + i) % (data[1] % 7u + 2u) == 0;
    run(&pieces, data[0], text, len, cuts);
    same(&whole, &bytes);
    same(&whole, &pieces);
    free(cuts);
    log_clear(&whole);
    log_clear(&bytes);
    log_clear(&pieces);
    return 0;
}
