/* chat_template.c - does a file say how it wants to be talked to? */
#include "cmd/cli/cli.h"
#include "gguf/gguf.h"

bool cli_has_chat_template(const char *path)
{
    gem_gguf *g = NULL;
    if (gem_gguf_open(&g, path, NULL) != GEM_OK) return false;
    const gem_kv *kv = gem_gguf_find(g, "tokenizer.chat_template");
    bool has = kv && kv->kind == GEM_GGUF_STRING && kv->v.s.len > 0;
    gem_gguf_close(g);
    return has;
}
