/* chat_template.c - does a file say how it wants to be talked to? */
#include "cmd/cli/cli.h"
#include "runtime/engine.h"

bool cli_has_chat_template(const gem_model *m)
{
    return m->chat.family != GEM_CHAT_NONE && gem_tokenizer_chat_template(m->tok).len > 0;
}
