/* tokenize.c - `gem tokenize`: the ids of a text, or the text of ids. */
#include "base/base.h"
#include "cmd/gem/commands.h"

#include <stdlib.h>

static struct {
    const char *prompt, *file;
    bool special, no_bos, count, json, chat, decode;
} opt;

static const cli_option options[] = {
    {"prompt", 'p', CLI_TEXT, "TEXT", &opt.prompt, 0, 0, "the text", NULL},
    {"file", 'f', CLI_TEXT, "FILE", &opt.file, 0, 0,
     "read the text from FILE; - is stdin (default)", NULL},
    {"special", 's', CLI_FLAG, NULL, &opt.special, 0, 0,
     "markers such as <|im_end|> in the text become control tokens", NULL},
    {"no-bos", 0, CLI_FLAG, NULL, &opt.no_bos, 0, 0, "never put a beginning-of-text token in front",
     NULL},
    {"chat-user", 0, CLI_FLAG, NULL, &opt.chat, 0, 0,
     "the tokens of a chat with this one user message", NULL},
    {"count", 'c', CLI_FLAG, NULL, &opt.count, 0, 0, "print only how many tokens there are", NULL},
    {"json", 'j', CLI_FLAG, NULL, &opt.json, 0, 0, "print ids and pieces as JSON", NULL},
    {"decode", 'd', CLI_FLAG, NULL, &opt.decode, 0, 0,
     "the text is a list of ids: print what they spell", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_tokenize_command = {
    .program = "gem tokenize",
    .args = "MODEL",
    .summary = "turn text into token ids, or ids into text",
    .text = "Prints the ids on one line, separated by blanks. Exact for any bytes: invalid UTF-8 "
            "becomes\n"
            "byte tokens.\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

static gem_status decode_ids(const gem_model *m, const char *text, gem_error *err)
{
    gem_model_info info;
    gem_model_get_info(m, &info);
    for (const char *p = text;;) {
        char *end;
        size_t len;
        p += strspn(p, " \t\r\n,[]");
        if (!*p) return GEM_OK;
        long id = strtol(p, &end, 10);
        if (end == p) return gem_fail(err, GEM_E_ARG, "'%.20s' is no token id", p);
        if (id < 0 || id >= info.n_vocab)
            return gem_fail(err, GEM_E_RANGE, "token id %ld is outside the vocabulary of %d", id,
                            info.n_vocab);
        const char *bytes = gem_token_bytes(m, (int32_t)id, opt.special, &len);
        fwrite(bytes, 1, len, stdout);
        p = end;
    }
}

/* One piece as JSON: its text, or null when its bytes are no UTF-8 by themselves. */
static json_t *token_json(const gem_model *m, int32_t id)
{
    size_t len;
    const char *bytes = gem_token_bytes(m, id, true, &len);
    json_t *piece = json_stringn(bytes, len);
    return json_pack("{s:i, s:o}", "id", id, "piece", piece ? piece : json_null());
}

static int print_tokens(const gem_model *m, const int32_t *ids, size_t n)
{
    if (opt.json) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, token_json(m, ids[i]));
        return cli_print_json(&gem_tokenize_command,
                              json_pack("{s:I, s:o}", "n_tokens", (json_int_t)n, "tokens", list));
    }
    if (opt.count) {
        printf("%zu\n", n);
    } else {
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", ids[i]);
        putchar('\n');
    }
    return cli_flush(&gem_tokenize_command);
}

int gem_tokenize_main(int argc, char **argv)
{
    const cli_command *c = &gem_tokenize_command;
    char path[4096], **args, *text = NULL;
    const char *in;
    size_t len = 0, n = 0;
    int n_args;
    int32_t *ids = NULL;
    gem_model *m = NULL;
    gem_error err;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (opt.prompt && opt.file) return cli_usage(c, "--prompt and --file exclude each other");

    gem_model_options mo = {.vocab_only = true, .log = cli_log};
    gem_status st = cli_model_path(args[0], path, sizeof(path), &err);
    if (st == GEM_OK) st = gem_model_open(&m, path, &mo, &err);
    if (st == GEM_OK && !opt.prompt) st = cli_read(opt.file ? opt.file : "-", &text, &len, &err);
    if (st != GEM_OK) goto done;
    in = opt.prompt ? opt.prompt : text;
    if (opt.prompt) len = strlen(opt.prompt);
    if (opt.decode) {
        st = decode_ids(m, in, &err);
        if (st == GEM_OK) code = cli_flush(c);
        goto done;
    }
    if (opt.chat) {
        gem_message message = {"user", in};
        st = gem_chat_tokens(m, &message, 1, &ids, &n, &err);
    } else {
        int flags = (opt.no_bos ? 0 : GEM_TOK_BOS) | (opt.special ? GEM_TOK_SPECIAL : 0);
        st = gem_tokenize(m, in, len, flags, &ids, &n, &err);
    }
    if (st == GEM_OK) code = print_tokens(m, ids, n);
done:
    if (st != GEM_OK) code = cli_fail(c, &err);
    free(ids);
    free(text);
    gem_model_close(m);
    return code;
}
