/* conversation.h - what a renderer reads: messages and tools, checked, in one form for all
 * families. Built from the JSON of an OpenAI-style chat request or from the C API's plain messages;
 * borrowed by prompts while they are rendered and by parsers for the schemas of its tools.
 * Read-only once built. */
#ifndef GEM_CHAT_CONVERSATION_H
#define GEM_CHAT_CONVERSATION_H

#include "base/json_reader.h"
#include "gguf/gguf.h" /* gem_str */

#define GEM_CHAT_MAX_DEPTH 64 /* of JSON, everywhere in this room */

typedef enum gem_chat_role {
    GEM_ROLE_SYSTEM, /* also "developer" */
    GEM_ROLE_USER,
    GEM_ROLE_ASSISTANT,
    GEM_ROLE_TOOL /* also "function" */
} gem_chat_role;

typedef struct gem_chat_call {
    gem_str id, name;          /* id.data NULL: none was given */
    const gem_json *arguments; /* OBJECT; NULL when the text given is no JSON object */
    gem_str raw;               /* the text given, for when arguments is NULL */
} gem_chat_call;

typedef struct gem_chat_message {
    gem_chat_role role;
    gem_str *part; /* owned; texts in order; a plain string is one part */
    size_t n_parts;
    bool list;           /* content came as a list of parts */
    gem_str reasoning;   /* data NULL: none was given */
    gem_chat_call *call; /* owned */
    size_t n_calls;
    gem_str call_id, name; /* of a tool result; data NULL: not given */
    int32_t *replay;       /* owned, [n_replay]: an answer with calls as the model wrote it; NULL */
    size_t n_replay;
    gem_bytes replay_text; /* owned: the text of those tokens */
    const gem_json *value; /* a tool result that is JSON other than text and null; else NULL */
} gem_chat_message;

struct gem_conversation {
    gem_chat_message *message; /* owned */
    size_t n_messages;
    const gem_json *tools; /* ARRAY of objects, each with function.name; NULL: none */
    size_t n_tools;
    gem_json_doc **doc; /* owned; the documents that the texts above live in */
    size_t n_docs;
};

/* Plain messages; their strings are borrowed and must outlive *c, which gem_conversation_clear
 * empties. errors GEM_E_ARG (unknown role), GEM_E_NOMEM; *c is empty then. */
gem_status gem_conversation_of(struct gem_conversation *c, const gem_message *messages, size_t n,
                               gem_error *err);
void gem_conversation_clear(struct gem_conversation *c);
/* Has it a user message? Every family needs one. */
gem_status gem_conversation_check(const struct gem_conversation *c, gem_error *err);

/* The declared tool of this name: its "function" object; NULL when none. */
const gem_json *gem_conversation_tool(const struct gem_conversation *c, const char *name,
                                      size_t len);
/* All text parts of a message in order, nothing between. Borrowed when there is one part, else
 * built in `scratch`, which is emptied first. */
gem_str gem_message_text(const gem_chat_message *m, gem_bytes *scratch);
/* This answer is to be rendered as these tokens, where the family can; copies. False: no memory. */
bool gem_message_replay(gem_chat_message *m, const int32_t *tokens, size_t n, const char *text,
                        size_t len);

#endif
