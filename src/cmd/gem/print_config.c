/* print_config.c - `gem print-config`: what would run, as JSON. */
#include "base/base.h"
#include "cmd/gem/commands.h"

#include <stdlib.h>

static struct {
    cli_model_flags model;
    bool sha256;
} opt;

static const cli_option options[] = {
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 1, INT32_MAX,
     "positions a session may hold; default: the model's, at most 4096", NULL},
    {"sha256", 0, CLI_FLAG, NULL, &opt.sha256, 0, 0,
     "add the digest of the model file (reads all of it)", NULL},
    {"exact", 0, CLI_FLAG, NULL, &opt.model.exact, 0, 0, "the exact mode of gem logits", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_print_config_command = {
    .program = "gem print-config",
    .args = "MODEL",
    .summary = "print as JSON how a model would run here",
    .text = "Model and manifest digest, backend, instruction set, routes, tile sizes, type and "
            "exact bytes of\n"
            "keys and values, threads, build.\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

int gem_print_config_main(int argc, char **argv)
{
    const cli_command *c = &gem_print_config_command;
    char path[4096], hex[65], **args;
    int n_args;
    gem_model *m = NULL;
    gem_model_options mo;
    gem_error err;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;

    gem_status st = cli_kv_type_from_env(&opt.model, &err);
    if (st != GEM_OK) return cli_fail(c, &err);
    cli_model_options(&mo, &opt.model);
    st = cli_model_path(args[0], path, sizeof(path), &err);
    if (st == GEM_OK) st = gem_model_open(&m, path, &mo, &err);
    cli_end_progress();
    if (st == GEM_OK && opt.sha256) st = gem_sha256_file(path, hex, &err);
    if (st == GEM_OK) {
        char *text = gem_model_config_json(m);
        json_t *doc = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
        if (doc && opt.sha256) json_object_set_new(doc, "model_sha256", json_string(hex));
        code = cli_print_json(c, doc);
        free(text);
    } else {
        code = cli_fail(c, &err);
    }
    gem_model_close(m);
    return code;
}
