/* gem_tokenize.c - `gem-tokenize`: exact token counts of files, for scripts that make prompts of a
 * given length. --chat-user counts the canonical user turn that a server evaluates, control tokens
 * included. */
#include "base/base.h"
#include "cmd/cli/cli.h"

#include <stdlib.h>

static struct {
    bool count, file, chat_user, special, no_bos;
} opt;

static const cli_option options[] = {
    {"count", 'c', CLI_FLAG, NULL, &opt.count, 0, 0,
     "print the number of tokens instead of their ids", NULL},
    {"file", 'f', CLI_FLAG, NULL, &opt.file, 0, 0,
     "the second argument names a file (- is stdin), not the text itself", NULL},
    {"chat-user", 0, CLI_FLAG, NULL, &opt.chat_user, 0, 0,
     "one user message in the model's chat format, up to the opener of the answer", NULL},
    {"special", 's', CLI_FLAG, NULL, &opt.special, 0, 0,
     "markers in the text become control tokens", NULL},
    {"no-bos", 0, CLI_FLAG, NULL, &opt.no_bos, 0, 0, "never put a beginning-of-text token in front",
     NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "gem-tokenize",
    .args = "MODEL TEXT|FILE",
    .summary = "count or list the tokens of a text",
    .text = "  gem-tokenize --count --file --chat-user MODEL.gguf PROMPT_FILE\n",
    .min_args = 2,
    .max_args = 2,
    .option = options,
};

static int print(const int32_t *ids, size_t n)
{
    if (opt.count) {
        printf("%zu\n", n);
    } else {
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", ids[i]);
        putchar('\n');
    }
    return cli_flush(&command);
}

int main(int argc, char **argv)
{
    char path[4096], **args, *data = NULL;
    const char *text;
    size_t len = 0, n = 0;
    int n_args;
    int32_t *ids = NULL;
    gem_model *m = NULL;
    gem_error err;
    int code = cli_parse(&command, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (opt.chat_user && (opt.special || opt.no_bos))
        return cli_usage(
            &command,
            "--chat-user decides itself about control tokens; leave out --special and --no-bos");

    gem_model_options mo = {.vocab_only = true, .log = cli_log};
    gem_status st = cli_model_path(args[0], path, sizeof(path), &err);
    if (st == GEM_OK) st = gem_model_open(&m, path, &mo, &err);
    if (st == GEM_OK && opt.file) st = cli_read(args[1], &data, &len, &err);
    if (st != GEM_OK) goto done;
    text = opt.file ? data : args[1];
    if (!opt.file) len = strlen(text);
    if (opt.chat_user && memchr(text, 0, len)) {
        st = gem_fail(&err, GEM_E_ARG, "%s: holds a NUL byte, which no chat message can carry",
                      args[1]);
    } else if (opt.chat_user) {
        gem_message message = {"user", text};
        st = gem_chat_tokens(m, &message, 1, &ids, &n, &err);
    } else {
        int flags = (opt.no_bos ? 0 : GEM_TOK_BOS) | (opt.special ? GEM_TOK_SPECIAL : 0);
        st = gem_tokenize(m, text, len, flags, &ids, &n, &err);
    }
    if (st == GEM_OK) code = print(ids, n);
done:
    if (st != GEM_OK) code = cli_fail(&command, &err);
    free(ids);
    free(data);
    gem_model_close(m);
    return code;
}
