/* dialog.h - what was said so far in a conversation at the terminal, and its prompt. Used by run.
 */
#ifndef GEM_CMD_DIALOG_H
#define GEM_CMD_DIALOG_H

#include "base/base.h"

typedef struct dialog { /* zero-initialise; owns its strings */
    gem_message *message;
    char **thoughts; /* of each message; NULL: none */
    size_t n;
} dialog;

/* thoughts may be NULL. */
gem_status dialog_say(dialog *d, const char *role, const char *content, const char *thoughts,
                      gem_error *err);
void dialog_forget(dialog *d, size_t keep); /* all but the first `keep` */
gem_status dialog_render(const dialog *d, const gem_model *m, gem_thinking thinking,
                         gem_prompt **out, gem_error *err);

#endif
