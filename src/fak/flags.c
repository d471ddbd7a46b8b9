/* flags.c - see flags.h. */
#include "fak/flags.h"

static fak_flag *find(fak_flag *flags, const char *name, size_t n)
{
    for (fak_flag *g = flags; g->name; g++)
        if (strlen(g->name) == n && memcmp(g->name, name, n) == 0) return g;
    return NULL;
}

/* One flag at argv[i]; returns the number of arguments used. */
static int take(fak_flag *flags, int argc, char **argv, int i, const fak_flag_codes *codes,
                fak_findings *f)
{
    const char *name = argv[i] + (argv[i][1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    fak_flag *g = find(flags, name, n);
    if (!g) {
        fak_find(f, codes->unknown, NULL, "unknown flag %s", argv[i]);
        return 1;
    }
    if (g->present && !g->many) fak_find(f, codes->repeated, NULL, "--%s stands twice", g->name);
    g->present = true;
    if (!g->takes_value) {
        if (equals) fak_find(f, codes->bad, NULL, "--%s takes no value", g->name);
        return 1;
    }
    int used = 1;
    const char *value = equals ? equals + 1 : NULL;
    if (!equals && i + 1 < argc && (argv[i + 1][0] != '-' || argv[i + 1][1] == 0)) {
        value = argv[i + 1];
        used = 2;
    }
    if (!value || !*value) fak_find(f, codes->value, NULL, "--%s needs a value", g->name);
    g->value = value ? value : "";
    return used;
}

int fak_flags_parse(fak_flag *flags, int argc, char **argv, const fak_flag_codes *codes,
                    const char **positional, int *n_positional, fak_findings *f)
{
    for (int i = 0; i < argc;) {
        if (strcmp(argv[i], "--") == 0) return i + 1;
        if (argv[i][0] == '-' && argv[i][1]) {
            i += take(flags, argc, argv, i, codes, f);
            continue;
        }
        if (positional)
            positional[(*n_positional)++] = argv[i];
        else
            fak_find(f, codes->positional, NULL, "unexpected argument \"%s\"", argv[i]);
        i++;
    }
    return argc;
}
