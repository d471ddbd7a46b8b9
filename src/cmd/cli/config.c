/* config.c - options from a file: a line a setting, checked with the table that the command line is
 * checked with. */
#include "cmd/cli/config.h"

#include "base/base.h"

#include <ctype.h>
#include <stdlib.h>

enum { MAX_BYTES = 1 << 20, MAX_SETTINGS = 128 };

typedef struct reader {
    const cli_command *c;
    const char *path;
    int line;
    int set_in[MAX_SETTINGS]; /* line by option; 0: not set */
    int arg_in;
    char **arg;
} reader;

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n && isspace((unsigned char)s[n - 1]))
        s[--n] = 0;
    return s;
}

static gem_status set_twice(const reader *r, const char *key, int before, gem_error *err)
{
    return gem_fail(err, GEM_E_ARG, "%s:%d: %.64s is set a second time, after line %d", r->path,
                    r->line, key, before);
}

static gem_status set_flag(const reader *r, const cli_option *o, const char *value, gem_error *err)
{
    bool on = strcmp(value, "true") == 0;
    if (!on && strcmp(value, "false") != 0)
        return gem_fail(err, GEM_E_ARG, "%s:%d: %s is '%.64s', expected true or false", r->path,
                        r->line, o->name, value);
    *(bool *)o->value = on;
    return GEM_OK;
}

static gem_status set_option(reader *r, size_t i, char *value, gem_error *err)
{
    const cli_option *o = &r->c->option[i];
    char needed[CLI_NEEDED];
    if (r->set_in[i]) return set_twice(r, o->name, r->set_in[i], err);
    r->set_in[i] = r->line;
    if (o->kind == CLI_CONFIG)
        return gem_fail(err, GEM_E_ARG, "%s:%d: %s: a file cannot name another one", r->path,
                        r->line, o->name);
    if (o->kind == CLI_FLAG) {
        gem_status st = set_flag(r, o, value, err);
        if (st != GEM_OK) return st;
    } else if (!cli_set_value(o, value, needed) || !*value) {
        if (o->kind == CLI_TEXT) snprintf(needed, sizeof(needed), "%s", o->arg);
        return gem_fail(err, GEM_E_ARG, "%s:%d: %s is '%.64s', expected %s", r->path, r->line,
                        o->name, value, needed);
    }
    if (o->seen) *o->seen = true;
    return GEM_OK;
}

static gem_status set(reader *r, char *key, char *value, gem_error *err)
{
    if (strcmp(key, "model") == 0 && r->c->max_args > 0) {
        if (r->arg_in) return set_twice(r, key, r->arg_in, err);
        r->arg_in = r->line;
        if (!*value)
            return gem_fail(err, GEM_E_ARG, "%s:%d: model is '', expected a file or a name",
                            r->path, r->line);
        *r->arg = value;
        return GEM_OK;
    }
    for (size_t i = 0; r->c->option[i].name && i < MAX_SETTINGS; i++)
        if (strcmp(r->c->option[i].name, key) == 0) return set_option(r, i, value, err);
    return gem_fail(err, GEM_E_ARG,
                    "%s:%d: there is no option '%.64s'; expected the long name of one in %s --help",
                    r->path, r->line, key, r->c->program);
}

static gem_status read_line(reader *r, char *line, gem_error *err)
{
    char *s = trim(line), *equals;
    if (!*s || *s == '#') return GEM_OK;
    if (!(equals = strchr(s, '=')))
        return gem_fail(err, GEM_E_ARG, "%s:%d: '%.64s', expected name = value", r->path, r->line,
                        s);
    *equals = 0;
    return set(r, trim(s), trim(equals + 1), err);
}

gem_status cli_config_read(const cli_command *c, const char *path, char **arg, gem_error *err)
{
    static char *kept; /* values point into it */
    reader r = {.c = c, .path = path, .arg = arg};
    size_t len;
    free(kept);
    kept = NULL;
    gem_status st = gem_file_read(path, MAX_BYTES, &kept, &len, err);
    if (st != GEM_OK) return st;
    if (memchr(kept, 0, len))
        return gem_fail(err, GEM_E_ARG, "%s: not a text file, expected lines of name = value",
                        path);
    for (char *line = kept; st == GEM_OK && line;) {
        char *end = strchr(line, '\n');
        if (end) *end++ = 0;
        r.line++;
        st = read_line(&r, line, err);
        line = end;
    }
    return st;
}
