/* line.c - line editing over libedit; without it, plain lines. */
#include "cmd/gem/line.h"

#include "base/base.h"
#include "cmd/cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#ifdef GEM_HAVE_LIBEDIT
#include <histedit.h>
#endif

struct line_reader {
    const char *prompt;
    char *buf; /* owned */
    size_t cap;
#ifdef GEM_HAVE_LIBEDIT
    EditLine *el;
    History *history;
#endif
};

#ifdef GEM_HAVE_LIBEDIT
static char *get_prompt(EditLine *el)
{
    line_reader *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *)l->prompt;
}

static void open_editor(line_reader *l)
{
    HistEvent ev;
    l->el = el_init("gem", stdin, stderr, stderr);
    l->history = history_init();
    if (!l->el) return;
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, get_prompt);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_SIGNAL, 0);
    if (l->history) {
        history(l->history, &ev, H_SETSIZE, 500);
        history(l->history, &ev, H_SETUNIQUE, 1);
        el_set(l->el, EL_HIST, history, l->history);
    }
}

static const char *read_editor(line_reader *l, int *n)
{
    HistEvent ev;
    const char *s = el_gets(l->el, n);
    if (s && *n > 1 && l->history) history(l->history, &ev, H_ENTER, s);
    return s;
}
#endif

line_reader *line_open(const char *prompt)
{
    line_reader *l = calloc(1, sizeof(*l));
    if (!l) return NULL;
    l->prompt = prompt;
#ifdef GEM_HAVE_LIBEDIT
    open_editor(l);
#endif
    return l;
}

void line_close(line_reader *l)
{
    if (!l) return;
#ifdef GEM_HAVE_LIBEDIT
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
#endif
    free(l->buf);
    free(l);
}

static const char *copy(line_reader *l, const char *s, size_t n)
{
    if (n + 1 > l->cap) {
        char *grown = realloc(l->buf, n + 1);
        if (!grown) return NULL;
        l->buf = grown;
        l->cap = n + 1;
    }
    memcpy(l->buf, s, n);
    l->buf[n] = 0;
    return l->buf;
}

const char *line_read(line_reader *l, bool *interrupted)
{
    const char *s = NULL, *kept;
    char *plain = NULL;
    int n = 0;
    *interrupted = false;
    cli_clear_interrupt();
#ifdef GEM_HAVE_LIBEDIT
    if (l->el) {
        s = read_editor(l, &n);
    } else
#endif
    {
        size_t cap = 0;
        fputs(l->prompt, stderr);
        fflush(stderr);
        n = (int)getline(&plain, &cap, stdin);
        s = n > 0 ? plain : NULL;
    }
    if (!s && cli_interrupted) {
        clearerr(stdin);
        fputc('\n', stderr);
        *interrupted = true;
        cli_clear_interrupt();
        free(plain);
        return copy(l, "", 0);
    }
    if (!s) {
        free(plain);
        return NULL;
    }
    size_t len = (size_t)n;
    while (len && (s[len - 1] == '\n' || s[len - 1] == '\r'))
        len--;
    kept = copy(l, s, len);
    free(plain);
    return kept;
}
