/* parser.h - what a model answers, token by token, into events: content, reasoning, tool calls.
 * One parser reads one answer. Text comes in pieces of any size; events do not depend on where it
 * was cut. parser.c is the front (whole characters, markers by id or by spelling, events); the
 * families' states are in parse_gemma4.c and parse_qwen.c. docs/chat.md has the rules. */
#ifndef GEM_CHAT_PARSER_H
#define GEM_CHAT_PARSER_H

#include "chat/chat.h"

#define GEM_CALL_BYTES ((size_t)1 << 20) /* of one call, unless the options say otherwise */
#define GEM_HELD_BLANKS 4096             /* trailing white space held back at most */

typedef enum gem_mark {                     /* what a control token means here */
                        GEM_MARK_HIDDEN,    /* shows nothing */
                        GEM_MARK_END,       /* ends the answer */
                        GEM_MARK_TURN,      /* <|turn> */
                        GEM_MARK_THINK,     /* <|channel>, <think> */
                        GEM_MARK_THINK_END, /* <channel|>, </think> */
                        GEM_MARK_CALL,      /* <|tool_call>, <tool_call> */
                        GEM_MARK_CALL_END,  /* <tool_call|>, </tool_call> */
                        GEM_MARK_QUOTE      /* <|"|> */
} gem_mark;

typedef struct gem_parser gem_parser;

/* A family's states. Text is whole UTF-8 characters, no NUL; `spelled` is a marker's own text. */
typedef struct gem_parser_family {
    void (*begin)(gem_parser *p, gem_prompt_end start); /* may be NULL */
    void (*text)(gem_parser *p, const char *s, size_t len);
    void (*mark)(gem_parser *p, gem_mark mark, gem_str spelled);
    void (*finish)(gem_parser *p, bool cut); /* let go of what is held, report what is cut; `cut`:
                                                by a limit */
} gem_parser_family;
extern const gem_parser_family gem_parser_plain, gem_parser_gemma4, gem_parser_qwen;

/* Incremental check of one JSON value, byte by byte; nesting is bounded by the bits of `objects`.
 */
typedef struct gem_json_scan {
    uint8_t state, depth, count;
    bool key;       /* the string being read is the name of a member */
    uint16_t unit;  /* \u escape so far */
    bool surrogate; /* a high surrogate wants its low one */
    uint64_t objects;
    const char *literal;
} gem_json_scan;
typedef enum gem_scan { GEM_SCAN_MORE, GEM_SCAN_DONE, GEM_SCAN_BAD } gem_scan;
void gem_json_scan_init(gem_json_scan *s);
/* DONE with the byte that closes the value (an object, array or string; numbers and words are
 * complete one byte later, which is not consumed then: give it again to whoever is next). After
 * DONE only blanks are accepted. */
gem_scan gem_json_scan_byte(gem_json_scan *s, char c);
bool gem_json_scan_in_string(const gem_json_scan *s);
bool gem_json_scan_wants_value(const gem_json_scan *s);

/* {"name": .., "arguments": {..}} as it arrives, for calls written as JSON. */
typedef struct gem_call_json {
    gem_json_scan scan;
    gem_bytes key, name, args,
        string;     /* name: decoded; args: JSON, may be taken away while it grows */
    uint8_t member; /* of the top level that is being read */
    bool named, has_args, args_done, done, odd_member;
    bool args_object; /* args is part of the object itself, as it comes */
} gem_call_json;
void gem_call_json_init(gem_call_json *j); /* keeps memory */
void gem_call_json_free(gem_call_json *j);
gem_scan gem_call_json_byte(gem_call_json *j, char c);

struct gem_parser {
    const gem_parser_family *family;
    const gem_conversation *c; /* borrowed; NULL: no tools */
    gem_chat_event_fn fn;
    void *user;
    bool whole_calls, failed, ended, finished;
    size_t max_call;
    char seed[64];
    int n_calls, n_complete; /* calls begun, calls complete */

    /* characters and spelled markers */
    char tail[4];
    size_t n_tail;
    const struct gem_spelling *spelling; /* NULL: markers have ids */
    char partial[24];
    size_t n_partial;

    /* text */
    int state;
    bool xml;          /* calls are written with tags, else as JSON */
    bool bare_json;    /* an answer that is one JSON call counts as a call */
    bool started;      /* something of this stretch of text was passed on */
    bool drop_leading; /* white space before content is not wanted */
    gem_bytes held;    /* white space, a label, or a bare call held back */

    /* the call being read */
    int step; /* of the call's grammar */
    bool begun, broken, full;
    const char *why; /* broken: the reason */
    gem_bytes raw;   /* all of its text */
    gem_bytes name, word, out, whole, value, buf;
    char id[48];
    uint64_t objects; /* Gemma 4: bit d: level d is an object */
    int depth;
    bool first, quoted_mark;
    unsigned kinds; /* Qwen: JSON types that the schema allows a value */
    bool value_open, any_argument;
    int fence, closer; /* bare call: back ticks seen before and after it */
    gem_call_json json;
};

typedef struct gem_spelling {
    const char *text;
    gem_mark mark;
} gem_spelling;

/* start: where the prompt ended. opt->fn must be set. */
gem_status gem_parser_open(gem_parser *p, const gem_chat_format *f, const gem_conversation *c,
                           gem_prompt_end start, const gem_chat_parser_options *opt,
                           gem_error *err);
void gem_parser_close(gem_parser *p);
bool gem_parser_failed(const gem_parser *p); /* out of memory; events are incomplete */
/* Any bytes; what is no UTF-8 becomes U+FFFD, as NUL does. */
void gem_parser_text(gem_parser *p, const char *s, size_t len);
void gem_parser_mark(gem_parser *p, gem_mark mark, gem_str spelled);
/* cut: a limit ended the answer, not the model. Once; afterwards everything is ignored. */
void gem_parser_finish(gem_parser *p, bool cut);

/* ---- for the families ---- */
void gem_parser_content(gem_parser *p, const char *s, size_t len);
void gem_parser_reasoning(gem_parser *p, const char *s, size_t len);
/* Put text into p->held, bounded by max_call; false when it no longer fits. */
bool gem_parser_hold(gem_parser *p, const char *s, size_t len);

void gem_call_start(gem_parser *p);
/* Keep what the model wrote; how much of it still belongs to the call: all, unless it is too long.
 */
size_t gem_call_raw(gem_parser *p, const char *s, size_t len);
void gem_call_marker(gem_parser *p, gem_str spelled); /* a marker's text inside a call */
void gem_call_begin(gem_parser *p);                   /* p->name is complete */
void gem_call_args(gem_parser *p, const char *json, size_t len);
void gem_call_escaped(gem_parser *p, const char *text, size_t len); /* inside a JSON string */
void gem_call_flush(gem_parser *p); /* give on what gem_call_args gathered */
void gem_call_end(gem_parser *p);
void gem_call_break(gem_parser *p, const char *why); /* noted; the first reason counts */
void gem_call_report(gem_parser *p);                 /* the event of a broken call */

#endif
