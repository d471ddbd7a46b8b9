/* messages.h - the conversation of a chat request: messages, tools and how to think, checked with
 * the path of what is wrong, and rendered in the model's own format. */
#ifndef GEM_MESSAGES_H
#define GEM_MESSAGES_H

#include "server/field.h"
#include "server/serve.h"

typedef enum gem_tool_mode {
    GEM_TOOLS_NONE, /* calls are not looked for */
    GEM_TOOLS_AUTO,
    GEM_TOOLS_REQUIRED
} gem_tool_mode;

typedef struct gem_dialogue {
    gem_conversation *conversation; /* owned */
    gem_prompt *prompt;             /* owned */
    gem_tool_mode tools;            /* NONE too when none are declared */
    char *tool_name;                /* owned: the one that must be called; NULL: any */
    bool parallel;                  /* more than one call an answer */
    bool replays;                   /* calls are given as the model wrote them, where known */
    struct gem_hold_rules *rules;   /* owned: what answers are held to */
} gem_dialogue;

/* From a body with messages, tools, tool_choice, parallel_tool_calls, reasoning_effort,
 * chat_template_kwargs, response_format, continue_final_message, add_generation_prompt. *out is
 * NULL after a fault.
 */
bool gem_dialogue_read(gem_server *s, const json_t *body, gem_dialogue **out, gem_fault *f);
void gem_dialogue_free(gem_dialogue *d);
/* Copy of the prompt's tokens in *p; false: out of memory. */
bool gem_dialogue_tokens(const gem_dialogue *d, gem_job_prompt *p);

#endif
