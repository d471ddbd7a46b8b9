/* help.c - one option table, five readers: --help, manual pages, and completion for bash, zsh and
 * fish. */
#include "cmd/cli/help.h"

#include "base/base.h"

#include <ctype.h>

static const cli_option standard_options[] = {
    {"help", 'h', CLI_FLAG, NULL, NULL, 0, 0, "print this text", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

/* The i-th option, the standard ones last; NULL behind the end. */
static const cli_option *option_at(const cli_command *c, size_t i)
{
    size_t n = 0;
    while (c->option[n].name)
        n++;
    if (i < n) return &c->option[i];
    return standard_options[i - n].name ? &standard_options[i - n] : NULL;
}

/* Words of `text` wrapped to `width` columns; following lines start with `indent` spaces. */
static void put_wrapped(FILE *out, const char *text, int column, int indent, int width)
{
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (!first && column + 1 + (int)n > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, n, out);
        column += (int)n;
        text += n;
        while (*text == ' ' || *text == '\n')
            text++;
        first = false;
    }
    fputc('\n', out);
}

static void put_text(FILE *out, const char *text)
{
    /* Lines that start with two blanks are examples and stay as they are. */
    while (*text) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "%.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

void cli_help(const cli_command *c, FILE *out)
{
    enum { COLUMN = 30, WIDTH = 100 };
    fprintf(out, "usage: %s [options]%s%s\n\n", c->program, *c->args ? " " : "", c->args);
    put_wrapped(out, c->summary, 0, 0, WIDTH);
    fprintf(out, "\noptions:\n");
    const cli_option *o;
    for (size_t i = 0; (o = option_at(c, i)); i++) {
        char left[128], letter[8] = "    ";
        if (o->letter) snprintf(letter, sizeof(letter), "-%c, ", o->letter);
        int n = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, o->name, o->arg ? " " : "",
                         o->arg ? o->arg : "");
        fputs(left, out);
        if (n + 2 > COLUMN)
            fprintf(out, "\n%*s", COLUMN, "");
        else
            fprintf(out, "%*s", COLUMN - n, "");
        put_wrapped(out, o->help, COLUMN, COLUMN, WIDTH);
    }
    if (c->text) {
        fputc('\n', out);
        put_text(out, c->text);
    }
}

/* ---- manual pages ---- */
/* Text as roff: a line that starts with a dot or quote is guarded, backslashes and dashes are
 * escaped. */
static void roff(const char *s)
{
    bool at_start = true;
    for (; *s; s++) {
        if (at_start && (*s == '.' || *s == '\'')) fputs("\\&", stdout);
        if (*s == '\\')
            fputs("\\e", stdout);
        else if (*s == '-')
            fputs("\\-", stdout);
        else
            putchar(*s);
        at_start = *s == '\n';
    }
}

static void roff_text(const char *text)
{
    bool example = false;
    while (*text) {
        size_t n = strcspn(text, "\n");
        char line[512];
        snprintf(line, sizeof(line), "%.*s", (int)n, text);
        bool is_example = line[0] == ' ' && line[1] == ' ';
        if (is_example != example) puts(is_example ? ".nf" : ".fi");
        example = is_example;
        if (!line[0])
            puts(".PP");
        else {
            roff(line);
            putchar('\n');
        }
        text += n + (text[n] == '\n');
    }
    if (example) puts(".fi");
}

static void roff_options(const cli_command *c)
{
    const cli_option *o;
    for (size_t i = 0; (o = option_at(c, i)); i++) {
        puts(".TP");
        printf(".B ");
        if (o->letter) printf("\\-%c, ", o->letter);
        printf("\\-\\-");
        roff(o->name);
        if (o->arg) {
            putchar(' ');
            roff(o->arg);
        }
        putchar('\n');
        roff(o->help);
        puts(".");
    }
}

static void roff_head(const char *program, const char *summary)
{
    char title[64];
    size_t i = 0;
    for (; program[i] && i + 1 < sizeof(title); i++)
        title[i] = (char)(program[i] == ' ' ? '-' : toupper((unsigned char)program[i]));
    title[i] = 0;
    printf(".TH ");
    roff(title);
    printf(" 1 \"\" \"gem %s\" \"User Commands\"\n.SH NAME\n", GEM_VERSION);
    for (i = 0; program[i] && i + 1 < sizeof(title); i++)
        title[i] = program[i] == ' ' ? '-' : program[i];
    title[i] = 0;
    roff(title);
    printf(" \\- ");
    roff(summary);
    puts("");
}

static void roff_synopsis(const cli_command *c)
{
    printf(".B ");
    roff(c->program);
    printf("\n[options] ");
    roff(c->args);
    puts("");
}

static void roff_tail(void)
{
    puts(".SH EXIT STATUS\n"
         "0 done; 1 checked and it does not hold; 2 usage; 3 cannot run here (no such model or "
         "device, no memory); "
         "4 fault; 130 interrupted.");
}

static void help_man(const cli_command *c)
{
    roff_head(c->program, c->summary);
    puts(".SH SYNOPSIS");
    roff_synopsis(c);
    puts(".SH OPTIONS");
    roff_options(c);
    if (c->text) {
        puts(".SH DESCRIPTION");
        roff_text(c->text);
    }
    roff_tail();
}

/* ---- completion ---- */
static void bash_words(const cli_command *c)
{
    const cli_option *o;
    for (size_t i = 0; (o = option_at(c, i)); i++) {
        printf("%s--%s", i ? " " : "", o->name);
        if (o->letter) printf(" -%c", o->letter);
    }
}

static void bash_choices(const cli_command *c, const char *indent)
{
    const cli_option *o;
    printf("%scase $prev in\n", indent);
    for (size_t i = 0; (o = option_at(c, i)); i++) {
        if (o->kind != CLI_CHOICE) continue;
        printf("%s--%s) COMPREPLY=($(compgen -W \"", indent, o->name);
        for (const char *p = o->arg; *p; p++)
            putchar(*p == '|' ? ' ' : *p);
        printf("\" -- \"$cur\")); return ;;\n");
    }
    printf("%sesac\n", indent);
}

static void function_name(const char *program, char out[64])
{
    size_t i = 0;
    for (; program[i] && i < 63; i++)
        out[i] = (char)(isalnum((unsigned char)program[i]) ? program[i] : '_');
    out[i] = 0;
}

static void help_bash(const cli_command *c)
{
    char f[64];
    function_name(c->program, f);
    printf("# bash completion for %s\n_%s() {\n  local cur=${COMP_WORDS[COMP_CWORD]} "
           "prev=${COMP_WORDS[COMP_CWORD-1]}\n",
           c->program, f);
    bash_choices(c, "  ");
    printf("  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"");
    bash_words(c);
    printf("\" -- \"$cur\")); else compopt -o default; fi\n}\ncomplete -F _%s %s\n", f, c->program);
}

/* zsh reads [ ] : and quotes in specifications; keep them out. */
static void zsh_text(const char *s)
{
    for (; *s; s++)
        if (!strchr("[]:'\"`$\\", *s)) putchar(*s);
}

static void zsh_arguments(const cli_command *c, const char *indent)
{
    const cli_option *o;
    printf("%s_arguments -s", indent);
    for (size_t i = 0; (o = option_at(c, i)); i++) {
        for (int form = 0; form < 2; form++) {
            if (form == 1 && !o->letter) continue;
            printf(" \\\n%s  '", indent);
            if (form == 0)
                printf("--%s", o->name);
            else
                printf("-%c", o->letter);
            putchar('[');
            zsh_text(o->help);
            putchar(']');
            if (o->kind == CLI_CHOICE) {
                printf(":%s:(", o->name);
                for (const char *p = o->arg; *p; p++)
                    putchar(*p == '|' ? ' ' : *p);
                putchar(')');
            } else if (o->arg) {
                putchar(':');
                zsh_text(o->arg);
                putchar(':');
                if (strstr(o->arg, "FILE")) printf("_files");
            }
            putchar('\'');
        }
    }
    printf(" \\\n%s  '*:file:_files'\n", indent);
}

static void help_zsh(const cli_command *c)
{
    printf("#compdef %s\n", c->program);
    zsh_arguments(c, "");
}

static void fish_text(const char *s)
{
    putchar('\'');
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\') putchar('\\');
        putchar(*s);
    }
    putchar('\'');
}

static void fish_options(const cli_command *c, const char *program, const char *condition)
{
    const cli_option *o;
    for (size_t i = 0; (o = option_at(c, i)); i++) {
        printf("complete -c %s", program);
        if (condition) {
            printf(" -n ");
            fish_text(condition);
        }
        printf(" -l %s", o->name);
        if (o->letter) printf(" -s %c", o->letter);
        if (o->kind != CLI_FLAG) printf(" -r");
        if (o->kind == CLI_CHOICE) {
            printf(" -f -a '");
            for (const char *p = o->arg; *p; p++)
                putchar(*p == '|' ? ' ' : *p);
            putchar('\'');
        }
        printf(" -d ");
        fish_text(o->help);
        putchar('\n');
    }
}

bool cli_help_as(const cli_command *c, const char *format)
{
    if (!strcmp(format, "man"))
        help_man(c);
    else if (!strcmp(format, "bash"))
        help_bash(c);
    else if (!strcmp(format, "zsh"))
        help_zsh(c);
    else if (!strcmp(format, "fish"))
        fish_options(c, c->program, NULL);
    else
        return false;
    return true;
}

/* ---- a program with subcommands ---- */
static const char *sub_name(const cli_command *c)
{
    const char *space = strchr(c->program, ' ');
    return space ? space + 1 : c->program;
}

static void tree_man(const char *program, const char *summary, const cli_command *const *sub,
                     size_t n, const char *text)
{
    roff_head(program, summary);
    puts(".SH SYNOPSIS");
    for (size_t i = 0; i < n; i++) {
        if (i) puts(".br");
        roff_synopsis(sub[i]);
    }
    if (text) {
        puts(".SH DESCRIPTION");
        roff_text(text);
    }
    puts(".SH COMMANDS");
    for (size_t i = 0; i < n; i++) {
        printf(".SS ");
        roff(sub[i]->program);
        puts("");
        roff(sub[i]->summary);
        puts(".");
        roff_options(sub[i]);
        if (sub[i]->text) {
            puts(".PP");
            roff_text(sub[i]->text);
        }
    }
    roff_tail();
}

static void tree_bash(const char *program, const cli_command *const *sub, size_t n)
{
    printf("# bash completion for %s\n_%s() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "  if [[ $COMP_CWORD -eq 1 || ( $COMP_CWORD -eq 2 && $prev == help ) ]]; then\n    "
           "COMPREPLY=($(compgen -W \"",
           program, program);
    for (size_t i = 0; i < n; i++)
        printf("%s ", sub_name(sub[i]));
    printf("help --help --version\" -- \"$cur\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n; i++) {
        printf("  %s)\n", sub_name(sub[i]));
        bash_choices(sub[i], "    ");
        printf("    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"");
        bash_words(sub[i]);
        printf("\" -- \"$cur\")); else compopt -o default; fi ;;\n");
    }
    printf("  esac\n}\ncomplete -F _%s %s\n", program, program);
}

static void tree_zsh(const char *program, const cli_command *const *sub, size_t n)
{
    printf("#compdef %s\nif (( CURRENT == 2 )); then\n  local -a commands\n  commands=(\n",
           program);
    for (size_t i = 0; i < n; i++) {
        printf("    '%s:", sub_name(sub[i]));
        zsh_text(sub[i]->summary);
        printf("'\n");
    }
    printf("    'help:help on a command'\n  )\n  _describe command commands\n  return\nfi\nlocal "
           "command=$words[2]\n"
           "shift words\n(( CURRENT-- ))\ncase $command in\n");
    for (size_t i = 0; i < n; i++) {
        printf("%s)\n", sub_name(sub[i]));
        zsh_arguments(sub[i], "  ");
        puts("  ;;");
    }
    puts("esac");
}

static void tree_fish(const char *program, const cli_command *const *sub, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("complete -c %s -n __fish_use_subcommand -a %s -d ", program, sub_name(sub[i]));
        fish_text(sub[i]->summary);
        putchar('\n');
    }
    for (size_t i = 0; i < n; i++) {
        char condition[128];
        snprintf(condition, sizeof(condition), "__fish_seen_subcommand_from %s", sub_name(sub[i]));
        fish_options(sub[i], program, condition);
    }
}

bool cli_help_as_tree(const char *program, const char *summary, const cli_command *const *sub,
                      size_t n_sub, const char *text, const char *format)
{
    if (!strcmp(format, "man"))
        tree_man(program, summary, sub, n_sub, text);
    else if (!strcmp(format, "bash"))
        tree_bash(program, sub, n_sub);
    else if (!strcmp(format, "zsh"))
        tree_zsh(program, sub, n_sub);
    else if (!strcmp(format, "fish"))
        tree_fish(program, sub, n_sub);
    else
        return false;
    return true;
}
