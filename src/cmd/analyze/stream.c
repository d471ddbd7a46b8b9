/* stream.c - `gem-analyze stream-sample`: one retained request of server-stream-probe.sh. */
#include "cmd/analyze/analyze.h"
#include "evidence/stream_sample.h"

#include <stdlib.h>

static struct {
    int32_t prompt_tokens, extends;
} opt;

static const cli_option options[] = {
    {"prompt-tokens", 0, CLI_INT, "N", &opt.prompt_tokens, 1, INT32_MAX,
     "what gem-tokenize --count --file --chat-user counted", NULL},
    {"extends", 0, CLI_INT, "N", &opt.extends, 1, INT32_MAX,
     "a prefix extension of a request of N prompt tokens; default: a cold prompt", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command analyze_stream_command = {
    .program = "gem-analyze stream-sample",
    .args = "MEASUREMENT.json STREAM.sse SERVER.log [OUT.json]",
    .summary = "check a streamed request against its raw stream and the server's log",
    .text = "The terminator, usage, keepalive comments and the first visible event are taken from "
            "the raw\n"
            "stream again; the log must hold one record of exactly 100 % of the prompt, and none "
            "(or, with\n"
            "--extends, one exact) of a prefix hit.\n",
    .min_args = 3,
    .max_args = 4,
    .option = options};

/* A file that is no JSON, with its name and digest as an input. */
static gem_status load_text(ev_doc *d, char **text, const char *path, gem_error *err)
{
    memset(d, 0, sizeof(*d));
    gem_status st = gem_file_read(path, EV_MAX_DOCUMENT, text, &d->size, err);
    if (st == GEM_OK) st = gem_sha256_file(path, d->sha256, err);
    d->path = strdup(path);
    if (!d->path) return gem_fail(err, GEM_E_NOMEM, "no memory for a name");
    d->name = strrchr(d->path, '/') ? strrchr(d->path, '/') + 1 : d->path;
    return st;
}

int analyze_stream_main(int argc, char **argv)
{
    const cli_command *c = &analyze_stream_command;
    char **args, *text[2] = {NULL, NULL};
    int n_args;
    gem_error err;
    ev_doc in[3] = {{0}};
    ev_judge j;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    gem_status st = ev_judge_init(&j, "gem-analyze-stream-sample/1")
                        ? GEM_OK
                        : gem_fail(&err, GEM_E_NOMEM, "no memory");
    if (st == GEM_OK) st = ev_doc_load(&in[0], args[0], &err);
    for (int i = 0; st == GEM_OK && i < 2; i++)
        st = load_text(&in[1 + i], &text[i], args[1 + i], &err);
    if (st == GEM_OK) {
        static const char *const roles[] = {"measurement", "stream", "log"};
        const ev_stream_options o = {opt.prompt_tokens, opt.extends};
        for (int i = 0; i < 3; i++)
            ev_judge_input(&j, roles[i], &in[i]);
        ev_judge_options(&j, argv + 1, (size_t)(args - argv) - 1);
        ev_stream_figures f;
        ev_judge_stream(&j, &f, &in[0], text[0], in[1].size, text[1], &o);
        gem_json_put_number(j.json, j.root, "first_visible_event_seconds",
                            f.first_visible_event_seconds);
        gem_json_put_number(j.json, j.root, "completion_seconds", f.completion_seconds);
        gem_json_put_number(j.json, j.root, "prompt_tokens", f.prompt_tokens);
        gem_json_put_number(j.json, j.root, "cached_tokens", f.cached_tokens);
        ev_judge_finish(&j, "sound");
        code = analyze_write(c, j.root, n_args > 3 ? args[3] : NULL);
        if (code == CLI_DONE && !ev_holds(&j)) {
            fputs(j.refusals.data ? j.refusals.data : "", stderr);
            code = CLI_FALSE;
        }
    } else {
        code = cli_fail(c, &err);
    }
    for (int i = 0; i < 3; i++)
        ev_doc_free(&in[i]);
    free(text[0]);
    free(text[1]);
    ev_judge_free(&j);
    return code;
}
