/* chat.h - the chat formats gem speaks: which one a model uses, and the renderer of each.
 * Rendering is native: a template in a file is recognised by features of its text, never run.
 * Message text is tokenized as plain text, so it can never forge a turn. docs/chat.md has the
 * rules.
 *
 *   conversation.h  what is rendered     render_*.c  one family each     prompt.h  what comes out
 *   parser.h        what the model answers, back into content, reasoning and calls */
#ifndef GEM_CHAT_H
#define GEM_CHAT_H

#include "chat/prompt.h"

typedef enum gem_chat_family {
    GEM_CHAT_NONE,
    GEM_CHAT_GEMMA3,
    GEM_CHAT_GEMMA4,
    GEM_CHAT_CHATML, /* with Hermes tool calls where the vocabulary or the template has them */
    GEM_CHAT_QWEN35  /* Qwen3.5, 3.6, 3.8 */
} gem_chat_family;

/* A family and what differs between the revisions of its template. */
typedef struct gem_chat_format {
    gem_chat_family family;
    const char *name; /* "gemma4", "qwen3.8", ... */
    bool thinks;      /* thinking can be switched */
    bool thinks_unasked;
    bool tools;
    /* Gemma 4 */
    bool empty_thought; /* thinking off: the prompt ends with an empty thought */
    /* Qwen3.5 and later */
    bool efforts;         /* reasoning effort is written into the system turn */
    bool preserve_option; /* thoughts of older turns can be kept */
    bool preserve_unasked;
    bool json_scalars;      /* true, null in call arguments; else Python's True, None */
    bool thoughts_in_text;  /* <think> in an answer's text is taken out as reasoning */
    bool empty_system_turn; /* an empty system message still makes a turn */
    /* ChatML */
    gem_str system; /* what is said when a conversation brings no system message; may be empty */
} gem_chat_format;

/* By the markers of the vocabulary, then by features of the first 64 KiB of template text. */
void gem_chat_format_of(gem_chat_format *f, const gem_tokenizer *t);
/* The same from a family and a template text ({NULL, 0}: the file has none). */
void gem_chat_format_read(gem_chat_format *f, gem_chat_family family, gem_str source);

/* Options after the defaults of a format were applied. */
typedef struct gem_chat_settings {
    bool thinking, preserve, generation, resume;
    const char *effort; /* "xhigh", "medium", "low" */
} gem_chat_settings;
gem_status gem_chat_settings_of(gem_chat_settings *s, const gem_chat_format *f,
                                const gem_chat_options *opt, gem_error *err);

/* Render into an empty prompt; clear it with gem_prompt_clear, also after an error.
 * errors GEM_E_ARG, GEM_E_UNSUPPORTED (no chat format; tools the format does not have), GEM_E_NOMEM
 */
gem_status gem_chat_render(gem_prompt *p, const gem_chat_format *f, const gem_conversation *c,
                           const gem_chat_options *opt, gem_error *err);

/* ---- the families; called by gem_chat_render with checked input ---- */
typedef struct gem_chat_job {
    gem_prompt *p;
    const gem_chat_format *f;
    const gem_conversation *c;
    const gem_chat_settings *s;
    gem_bytes scratch;
} gem_chat_job;
gem_status gem_render_gemma3(gem_chat_job *j, gem_error *err);
gem_status gem_render_gemma4(gem_chat_job *j, gem_error *err);
gem_status gem_render_chatml(gem_chat_job *j, gem_error *err);
gem_status gem_render_qwen35(gem_chat_job *j, gem_error *err);

/* Gemma 4's own notation: one <|tool>..<tool|> per tool; a value; members of an object by name. */
gem_status gem_gemma4_tools(gem_prompt *p, const gem_json *tools, gem_error *err);
void gem_gemma4_value(gem_prompt *p, const gem_json *v, bool quote_names);
void gem_gemma4_members(gem_prompt *p, const gem_json *v, bool quote_names);

#endif
