/* prefix_miss.c - the first token at which a prompt parts from what is held, and, where prompts may
 * be shown, the text on both sides: what a client changes from turn to turn is found by it. */
#include "server/job.h"
#include "server/serve.h"

#include <stdio.h>

/* Visible ASCII stays, everything else and what the header's syntax needs becomes %XX. */
static void put_escaped(gem_bytes *b, const char *text, size_t len, size_t cap)
{
    for (size_t i = 0; i < len && b->len + 3 <= cap; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c > ' ' && c < 0x7f && c != '%' && c != ';')
            gem_bytes_put(b, &text[i], 1);
        else
            gem_bytes_printf(b, "%%%02X", c);
    }
}

/* The text of a few tokens, at most `room` bytes more in b. */
static void put_text(gem_bytes *b, gem_server *s, const int32_t *tokens, size_t n, size_t room)
{
    gem_detokenizer *d = NULL;
    gem_error err;
    size_t len, cap = b->len + room;
    if (gem_detokenizer_new(&d, s->model, true, &err) != GEM_OK) return;
    for (size_t i = 0; i < n; i++) {
        const char *text = gem_detokenizer_push(d, tokens[i], &len);
        put_escaped(b, text, len, cap);
    }
    const char *rest = gem_detokenizer_finish(d, &len);
    put_escaped(b, rest, len, cap);
    gem_detokenizer_free(d);
}

bool gem_prefix_miss_text(gem_server *s, const gem_job *j, char *out, size_t cap)
{
    const gem_job_prompt *p = &j->prompt[0];
    gem_prefix_miss m;
    gem_bytes b = {0};
    out[0] = 0;
    if (!gem_scheduler_miss(s->scheduler, j, &m)) return false;
    gem_bytes_printf(&b, "token=%zu; of=%zu; entry=%zu", m.at, p->n, m.entry_tokens);
    if (s->opt.log_prompts) { /* what is held may be somebody else's */
        gem_bytes_printf(&b, "; prompt=");
        put_text(&b, s, p->tokens + m.at, GEM_MIN(p->n - m.at, (size_t)GEM_MISS_TOKENS), cap / 3);
        gem_bytes_printf(&b, "; held=");
        put_text(&b, s, m.held, m.n_held, cap / 3);
    }
    bool ok = !b.failed && b.len < cap;
    if (ok) memcpy(out, b.data, b.len + 1);
    gem_bytes_free(&b);
    return ok;
}
