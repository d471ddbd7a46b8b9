/* pull.c - `gem pull`: fetch a known model. The download itself is scripts/fetch-model.sh, which
 * lies beside the program when it is installed, or in the source tree the program was built from.
 */
#include "base/base.h"
#include "cmd/gem/commands.h"

#include <errno.h>
#include <unistd.h>

static struct {
    bool list;
} opt;

static const cli_option options[] = {
    {"list", 'l', CLI_FLAG, NULL, &opt.list, 0, 0, "print what can be fetched, and what has been",
     NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_pull_command = {
    .program = "gem pull",
    .args = "NAME",
    .summary = "fetch a model into the cache and check its digest",
    .text = "Models go to $XDG_CACHE_HOME/gem (~/.cache/gem). A broken download resumes; a file "
            "stands under its\n"
            "final name only when its SHA-256 is the known one. Needs python3 with pip.\n",
    .min_args = 0,
    .max_args = 1,
    .option = options,
};

static int list(void)
{
    json_t *all = json_array();
    for (const cli_known_model *m = cli_known_models; m->name; m++) {
        char path[4096];
        gem_error err;
        json_t *row =
            json_pack("{s:s, s:s, s:s}", "name", m->name, "about", m->about, "sha256", m->sha256);
        bool have = cli_model_path(m->name, path, sizeof(path), &err) == GEM_OK;
        json_object_set_new(row, "path", have ? json_string(path) : json_null());
        json_array_append_new(all, row);
    }
    return cli_print_json(&gem_pull_command, all);
}

/* <prefix>/bin/gem -> <prefix>/libexec/gem/fetch-model.sh; <tree>/build/gem ->
 * <tree>/scripts/fetch-model.sh. */
static bool find_script(char *out, size_t size)
{
    static const char *const places[] = {"../" GEM_LIBEXEC "/fetch-model.sh",
                                         "../scripts/fetch-model.sh",
                                         "../../scripts/fetch-model.sh"};
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0) return false;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) return false;
    *slash = 0;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if ((size_t)snprintf(out, size, "%s/%s", self, places[i]) < size && access(out, X_OK) == 0)
            return true;
    }
    return false;
}

int gem_pull_main(int argc, char **argv)
{
    const cli_command *c = &gem_pull_command;
    char script[4096 + 64], **args;
    int n_args;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (opt.list) return list();
    if (n_args == 0) return cli_usage(c, "NAME is needed, or --list");

    const cli_known_model *m = cli_known_models;
    while (m->name && strcmp(m->name, args[0]) != 0)
        m++;
    if (!m->name)
        return cli_usage(c, "'%s' is no known model: gem pull --list names them", args[0]);
    if (!find_script(script, sizeof(script))) {
        fprintf(stderr, "%s: fetch-model.sh was found neither under libexec nor in scripts\n",
                c->program);
        return CLI_CANNOT;
    }
    execl(script, script, m->name, (char *)NULL);
    fprintf(stderr, "%s: %s: %s\n", c->program, script, strerror(errno));
    return CLI_FAULT;
}
