/* run.c - `gem run`: a prompt continued, a question answered, or a conversation at the terminal. */
#include "base/base.h"
#include "cmd/cli/draft.h"
#include "cmd/gem/commands.h"
#include "cmd/gem/dialog.h"
#include "cmd/gem/generate.h"
#include "cmd/gem/line.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
    cli_model_flags model;
    const char *prompt, *file, *system;
    bool chat, raw, quiet, special, think, no_think, hide_thoughts;
    int32_t n;
    bool n_seen;
    gem_sampler_options sampler;
    cli_draft draft;
} opt;

static const cli_option options[] = {
    {"prompt", 'p', CLI_TEXT, "TEXT", &opt.prompt, 0, 0,
     "the prompt; without it and --file: a conversation", NULL},
    {"file", 'f', CLI_TEXT, "FILE", &opt.file, 0, 0, "read the prompt from FILE; - is stdin", NULL},
    {"predict", 'n', CLI_INT, "N", &opt.n, 1, INT32_MAX,
     "most tokens to generate; default: raw 128, chat until done", &opt.n_seen},
    {"chat", 0, CLI_FLAG, NULL, &opt.chat, 0, 0,
     "use the model's chat format; default when its file has a template", NULL},
    {"raw", 0, CLI_FLAG, NULL, &opt.raw, 0, 0,
     "continue the prompt as it stands; default for base models", NULL},
    {"system", 0, CLI_TEXT, "TEXT", &opt.system, 0, 0, "system message of a chat", NULL},
    {"think", 0, CLI_FLAG, NULL, &opt.think, 0, 0,
     "let the model think before it answers, where its family can", NULL},
    {"no-think", 0, CLI_FLAG, NULL, &opt.no_think, 0, 0,
     "answer at once; default: the family's own (Gemma 4 off, Qwen3.5 and later on)", NULL},
    {"hide-thoughts", 0, CLI_FLAG, NULL, &opt.hide_thoughts, 0, 0,
     "do not show thoughts; a terminal shows them dim, elsewhere they are left out anyway", NULL},
    {"special", 0, CLI_FLAG, NULL, &opt.special, 0, 0,
     "markers in a raw prompt become control tokens", NULL},
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 1, INT32_MAX,
     "positions; default: the model's, at most 4096", NULL},
    {"temperature", 'T', CLI_FLOAT, "X", &opt.sampler.temperature, 0, 100,
     "0: always the likeliest token; default 0.7", NULL},
    {"top-k", 0, CLI_INT, "N", &opt.sampler.top_k, 0, INT32_MAX,
     "draw from the N likeliest; 0: off; default 40", NULL},
    {"top-p", 0, CLI_FLOAT, "X", &opt.sampler.top_p, 0, 1,
     "draw from the likeliest that sum to X; 1: off; default 0.95", NULL},
    {"min-p", 0, CLI_FLOAT, "X", &opt.sampler.min_p, 0, 1,
     "drop tokens below X times the likeliest; 0: off (default)", NULL},
    {"repetition-penalty", 0, CLI_FLOAT, "X", &opt.sampler.repetition_penalty, 0, 100,
     "1: off (default)", NULL},
    {"presence-penalty", 0, CLI_FLOAT, "X", &opt.sampler.presence_penalty, -100, 100,
     "0: off (default)", NULL},
    {"frequency-penalty", 0, CLI_FLOAT, "X", &opt.sampler.frequency_penalty, -100, 100,
     "0: off (default)", NULL},
    {"penalty-last-n", 0, CLI_INT, "N", &opt.sampler.penalty_last_n, 0, INT32_MAX,
     "tokens that --repetition-penalty looks back; default 64", NULL},
    {"seed", 0, CLI_U64, "N", &opt.sampler.seed, 0, 0,
     "the same seed gives the same text, on every machine; default 1", NULL},
    CLI_DRAFT_OPTIONS(&opt.draft),
    {"quiet", 'q', CLI_FLAG, NULL, &opt.quiet, 0, 0, "no figures at the end", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_run_command = {
    .program = "gem run",
    .args = "MODEL",
    .summary = "continue a prompt, answer a question, or talk",
    .text = "The text goes to stdout, token rates to stderr. Ctrl-C stops an answer, twice ends "
            "the program.\n"
            "In a conversation: /clear forgets it, /exit or Ctrl-D ends it, a line that ends in \\ "
            "goes on.\n"
            "Tokens are drawn with a fixed seed, so the same command gives the same text; -T 0 "
            "takes the "
            "likeliest.\n"
            "\n"
            "  gem run qwen2.5-coder-0.5b -p \"Write a haiku about C.\"\n"
            "  gem run gemma-3-270m -p \"Once upon a time\" -n 40\n"
            "  gem run qwen2.5-coder-0.5b\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

/* Tokens of a text as it stands. */
static gem_status raw_tokens(generator *g, const char *text, size_t len, int32_t **ids, size_t *n,
                             gem_error *err)
{
    gem_status st = gem_tokenize(g->model, text, len,
                                 GEM_TOK_BOS | (opt.special ? GEM_TOK_SPECIAL : 0), ids, n, err);
    if (st == GEM_OK && *n == 0) {
        free(*ids);
        *ids = NULL;
        st = gem_fail(err, GEM_E_ARG,
                      "the prompt is empty and this model has no beginning-of-text token");
    }
    return st;
}

static void end_answer(const generate_stats *stats, uint64_t load_ns)
{
    putchar('\n');
    fflush(stdout);
    if (!opt.quiet) print_stats(stats, load_ns);
}

static gem_status continue_text(generator *g, const char *text, size_t len, uint64_t load_ns,
                                generate_stats *stats, gem_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    gem_status st = raw_tokens(g, text, len, &ids, &n, err);
    if (st == GEM_OK) {
        fwrite(text, 1, len, stdout);
        st = generate(g, &opt.sampler, ids, n, opt.n_seen ? opt.n : 128, stats, err);
    }
    if (st == GEM_OK) end_answer(stats, load_ns);
    free(ids);
    return st;
}

/* The answer to what was said last; it is said too. */
static gem_status reply(generator *g, dialog *d, uint64_t load_ns, generate_stats *stats,
                        gem_error *err)
{
    gem_bytes said = {0}, thoughts = {0};
    gem_prompt *prompt = NULL;
    const gem_chat_parser_options events = {.fn = generator_event, .user = g};
    gem_thinking thinking = opt.think      ? GEM_THINKING_ON
                            : opt.no_think ? GEM_THINKING_OFF
                                           : GEM_THINKING_DEFAULT;
    size_t n;
    gem_status st = dialog_render(d, g->model, thinking, &prompt, err);
    if (st == GEM_OK) st = gem_chat_parser_new(&g->parser, g->model, NULL, prompt, &events, err);
    if (st == GEM_OK) {
        const int32_t *ids = gem_prompt_tokens(prompt, &n);
        g->answer = &said;
        g->thoughts = &thoughts;
        g->show_thoughts = !opt.hide_thoughts;
        st = generate(g, &opt.sampler, ids, n, opt.n_seen ? opt.n : -1, stats, err);
        g->answer = g->thoughts = NULL;
    }
    if (st == GEM_OK) {
        end_answer(stats, load_ns);
        st = dialog_say(d, "assistant", said.data ? said.data : "", thoughts.data, err);
    }
    gem_chat_parser_free(g->parser);
    g->parser = NULL;
    gem_prompt_free(prompt);
    gem_bytes_free(&thoughts);
    gem_bytes_free(&said);
    return st;
}

/* One prompt, one answer. In a chat the message was said already. */
static gem_status answer(generator *g, dialog *chat, const char *text, size_t len, uint64_t load_ns,
                         generate_stats *stats, gem_error *err)
{
    return chat ? reply(g, chat, load_ns, stats, err)
                : continue_text(g, text, len, load_ns, stats, err);
}

/* A line, or several joined by a backslash at the end. NULL at the end of input. */
static char *read_message(line_reader *l, bool *interrupted)
{
    gem_bytes b = {0};
    for (;;) {
        const char *line = line_read(l, interrupted);
        if (!line && !b.len) {
            gem_bytes_free(&b);
            return NULL;
        }
        size_t n = line ? strlen(line) : 0;
        bool more = n && line[n - 1] == '\\' && !*interrupted;
        if (line) gem_bytes_put(&b, line, more ? n - 1 : n);
        if (!more) return b.data;
        gem_bytes_put(&b, "\n", 1);
    }
}

static gem_status start_over(dialog *c, gem_error *err)
{
    dialog_forget(c, 0);
    return opt.system ? dialog_say(c, "system", opt.system, NULL, err) : GEM_OK;
}

static gem_status converse(generator *g, bool chat, uint64_t load_ns, gem_error *err)
{
    dialog c = {0};
    generate_stats stats;
    line_reader *l = line_open("> ");
    gem_status st =
        l ? start_over(&c, err) : gem_fail(err, GEM_E_NOMEM, "no memory for the line editor");
    fprintf(stderr, chat ? "Type a message. /clear forgets, /exit ends.\n"
                         : "Base model: type the beginning of a text. /exit ends.\n");
    while (st == GEM_OK) {
        bool interrupted;
        char *text = read_message(l, &interrupted);
        if (!text || !strcmp(text, "/exit")) {
            free(text);
            break;
        }
        if (!strcmp(text, "/clear")) {
            st = start_over(&c, err);
        } else if (*text && !interrupted) {
            size_t before = c.n;
            cli_clear_interrupt();
            if (chat) st = dialog_say(&c, "user", text, NULL, err);
            if (st == GEM_OK)
                st = answer(g, chat ? &c : NULL, text, strlen(text), load_ns, &stats, err);
            load_ns = 0;
            if (st == GEM_E_RANGE) { /* the conversation no longer fits; take back the message */
                fprintf(stderr, "%s; /clear starts over\n", err->text);
                dialog_forget(&c, before);
                st = GEM_OK;
            }
        }
        free(text);
    }
    line_close(l);
    dialog_forget(&c, 0);
    return st;
}

static gem_status one_shot(generator *g, bool chat, const char *text, size_t len, uint64_t load_ns,
                           bool *interrupted, gem_error *err)
{
    dialog c = {0};
    generate_stats stats = {0};
    gem_status st = GEM_OK;
    if (chat && memchr(text, 0, len))
        return gem_fail(err, GEM_E_ARG, "a chat message cannot hold a NUL byte");
    if (chat) st = start_over(&c, err);
    if (chat && st == GEM_OK) st = dialog_say(&c, "user", text, NULL, err);
    if (st == GEM_OK) st = answer(g, chat ? &c : NULL, text, len, load_ns, &stats, err);
    *interrupted = stats.finish == FINISH_INTERRUPTED;
    dialog_forget(&c, 0);
    return st;
}

int gem_run_main(int argc, char **argv)
{
    const cli_command *c = &gem_run_command;
    char path[4096], **args, *text = NULL;
    size_t len = 0;
    int n_args;
    bool interrupted = false, talk;
    gem_model *m = NULL;
    gem_model_options mo;
    generator g = {0};
    gem_error err;
    gem_sampler_defaults(&opt.sampler); /* greedy; small models then repeat themselves */
    opt.sampler.temperature = 0.7f;
    opt.sampler.top_k = 40;
    opt.sampler.top_p = 0.95f;
    opt.sampler.seed = 1;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (opt.prompt && opt.file) return cli_usage(c, "--prompt and --file exclude each other");
    if (opt.think && opt.no_think) return cli_usage(c, "--think and --no-think exclude each other");
    if (opt.chat && opt.raw) return cli_usage(c, "--chat and --raw exclude each other");
    talk = !opt.prompt && !opt.file && isatty(STDIN_FILENO);

    cli_catch_interrupt();
    gem_status st = cli_model_path(args[0], path, sizeof(path), &err);
    if (st == GEM_OK && !talk && !opt.prompt)
        st = cli_read(opt.file ? opt.file : "-", &text, &len, &err);
    if (st != GEM_OK) goto done;
    uint64_t start = gem_now_ns();
    cli_model_options(&mo, &opt.model);
    mo.n_sessions = 1;
    st = cli_draft_options(&mo, &opt.draft, &err);
    if (st == GEM_OK) st = gem_model_open(&m, path, &mo, &err);
    cli_end_progress();
    if (st == GEM_OK) st = cli_draft_open(&opt.draft, m, &mo, &err);
    if (st == GEM_OK) st = generator_init(&g, m, opt.draft.drafter, opt.draft.max, &err);
    if (st != GEM_OK) goto done;
    uint64_t load_ns = gem_now_ns() - start;
    bool chat = opt.chat || (!opt.raw && cli_has_chat_template(m));
    if (opt.prompt) len = strlen(opt.prompt);
    st = talk
             ? converse(&g, chat, load_ns, &err)
             : one_shot(&g, chat, opt.prompt ? opt.prompt : text, len, load_ns, &interrupted, &err);
    if (st == GEM_OK) code = cli_flush(c); /* also when writing failed before */
    if (st == GEM_OK && code == CLI_DONE && interrupted) code = CLI_INTERRUPTED;
done:
    if (st != GEM_OK) code = cli_fail(c, &err);
    generator_deinit(&g);
    cli_draft_close(&opt.draft);
    gem_model_close(m);
    free(text);
    return code;
}
