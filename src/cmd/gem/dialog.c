/* dialog.c - messages that grow, with the thoughts that families keep while a turn lasts. */
#include "cmd/gem/dialog.h"
#include "chat/conversation.h"

#include <stdlib.h>

static gem_status grow(dialog *d, gem_error *err)
{
    gem_message *message = realloc(d->message, (d->n + 1) * sizeof(*message));
    if (message) d->message = message;
    char **thoughts = realloc(d->thoughts, (d->n + 1) * sizeof(*thoughts));
    if (thoughts) d->thoughts = thoughts;
    if (message && thoughts) return GEM_OK;
    return gem_fail(err, GEM_E_NOMEM, "no memory for the conversation");
}

gem_status dialog_say(dialog *d, const char *role, const char *content, const char *thoughts,
                      gem_error *err)
{
    gem_status st = grow(d, err);
    if (st != GEM_OK) return st;
    char *text = strdup(content), *thought = thoughts ? strdup(thoughts) : NULL;
    if (!text || (thoughts && !thought)) {
        free(text);
        free(thought);
        return gem_fail(err, GEM_E_NOMEM, "no memory for the conversation");
    }
    d->message[d->n] = (gem_message){role, text};
    d->thoughts[d->n++] = thought;
    return GEM_OK;
}

void dialog_forget(dialog *d, size_t keep)
{
    while (d->n > keep) {
        d->n--;
        free((void *)d->message[d->n].content);
        free(d->thoughts[d->n]);
    }
    if (keep) return;
    free(d->message);
    free(d->thoughts);
    memset(d, 0, sizeof(*d));
}

gem_status dialog_render(const dialog *d, const gem_model *m, gem_thinking thinking,
                         gem_prompt **out, gem_error *err)
{
    gem_conversation c;
    const gem_chat_options options = {.thinking = thinking};
    *out = NULL;
    gem_status st = gem_conversation_of(&c, d->message, d->n, err);
    if (st != GEM_OK) return st;
    for (size_t i = 0; i < d->n; i++)
        if (d->thoughts[i])
            c.message[i].reasoning = (gem_str){d->thoughts[i], strlen(d->thoughts[i])};
    st = gem_prompt_render(out, m, &c, &options, err);
    gem_conversation_clear(&c);
    return st;
}
