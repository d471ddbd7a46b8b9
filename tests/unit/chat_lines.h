/* chat_lines.h - the generated conversations of tests/golden/chat, one a line. */
#ifndef GEM_TEST_CHAT_LINES_H
#define GEM_TEST_CHAT_LINES_H

#include "chat/chat.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct chat_line {
    bool plain, clean; /* user and assistant take turns; no text spells a marker */
    gem_chat_options options;
    gem_conversation *c;
    gem_json_doc *doc; /* of the options */
} chat_line;

typedef struct chat_lines {
    char *data, *next;
} chat_lines;

static inline gem_status chat_lines_open(chat_lines *l, gem_error *err)
{
    size_t len;
    gem_status st = gem_file_read(GEM_TEST_DIR "/golden/chat/conversations.tsv", (size_t)1 << 24,
                                  &l->data, &len, err);
    l->next = l->data;
    return st;
}

static inline const char *chat_word(const gem_json *options, const char *name)
{
    const gem_json *v = gem_json_get(options, name);
    return v && v->len ? v->text : NULL;
}

/* False at the end; a line that cannot be read ends the test. */
static inline bool chat_lines_next(chat_lines *l, chat_line *out)
{
    gem_error err = {0};
    gem_json_error je;
    char *line = l->next, *messages, *tools, *end;
    if (!line || !*line) return false;
    if (!(messages = strchr(line, '\t')) || !(tools = strchr(messages + 1, '\t')) ||
        !(end = strchr(tools + 1, '\n'))) {
        fprintf(stderr, "conversations.tsv: a line without its fields\n");
        exit(1);
    }
    memset(out, 0, sizeof(*out));
    out->doc = gem_json_read(line, (size_t)(messages - line), 8, &je);
    const gem_json *o = gem_json_root(out->doc);
    const char *thinking = chat_word(o, "thinking");
    out->plain = gem_json_is(gem_json_get(o, "kind"), "plain");
    out->clean = gem_json_get(o, "clean")->truth;
    out->options.thinking = !thinking                 ? GEM_THINKING_DEFAULT
                            : !strcmp(thinking, "on") ? GEM_THINKING_ON
                                                      : GEM_THINKING_OFF;
    out->options.reasoning_effort = chat_word(o, "effort");
    out->options.preserve_thinking = (int)gem_json_get(o, "preserve")->number;
    out->options.no_generation_prompt = !gem_json_get(o, "generation")->truth;
    if (gem_conversation_read(&out->c, messages + 1, (size_t)(tools - messages - 1), tools + 1,
                              (size_t)(end - tools - 1), &err) != GEM_OK) {
        fprintf(stderr, "conversations.tsv: %s\n", err.text);
        exit(1);
    }
    l->next = end + 1;
    return true;
}

static inline void chat_line_free(chat_line *l)
{
    gem_conversation_free(l->c);
    gem_json_free(l->doc);
}

#endif
