/* serve.c - `gem serve`: options, keys, and the server. */
#include "server/server.h"

#include "cmd/gem/commands.h"

#include <stdlib.h>
#include <strings.h>

static struct {
    cli_model_flags model;
    const char *config, *host, *alias, *key_file, *allowed_hosts, *cors, *disk_cache;
    int32_t port, parallel, queue, connections, cached, chunk, max_body_mib, max_tokens, disk_mib;
    float drain, timeout;
    bool strict_model, no_slots, no_metrics, insecure, no_memory_check, log_prompts;
    float temperature, top_p, min_p;
    int32_t top_k;
    bool temperature_seen, top_p_seen, top_k_seen;
    float repeat_penalty;
} opt = {.port = 8080,
         .parallel = 4,
         .queue = 32,
         .connections = 512,
         .cached = 2,
         .chunk = 128,
         .max_body_mib = 64,
         .disk_mib = 4096,
         .max_tokens = -1,
         .drain = 30,
         .repeat_penalty = 1};

static const cli_option options[] = {
    {"config", 0, CLI_CONFIG, "FILE", &opt.config, 0, 0,
     "read options from FILE, a 'name = value' a line; those given here win", NULL},
    {"host", 0, CLI_TEXT, "ADDRESS", &opt.host, 0, 0,
     "numeric address to listen on; default 127.0.0.1", NULL},
    {"port", 'p', CLI_INT, "N", &opt.port, 0, 65535,
     "port; 0: any free one, named when listening; default 8080", NULL},
    {"alias", 0, CLI_TEXT, "NAME", &opt.alias, 0, 0, "id of the model; default: its file's name",
     NULL},
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 2, 1 << 24,
     "positions of a sequence; default: the model's, at most 16384", NULL},
    {"parallel", 0, CLI_INT, "N", &opt.parallel, 1, 64, "sequences that run at once; default 4",
     NULL},
    {"queue", 0, CLI_INT, "N", &opt.queue, 0, 4096,
     "requests that may wait, more get 429; default 32", NULL},
    {"connections", 0, CLI_INT, "N", &opt.connections, 8, 16384,
     "open connections at once; default 512", NULL},
    {"cached", 0, CLI_INT, "N", &opt.cached, 0, 1024,
     "contexts' worth of keys and values kept for reuse beside the running ones; default 2", NULL},
    {"disk-cache", 0, CLI_TEXT, "DIR", &opt.disk_cache, 0, 0,
     "folder for keys and values that outlive the server; made if missing; default none", NULL},
    {"disk-cache-size", 0, CLI_INT, "MIB", &opt.disk_mib, 1, INT32_MAX,
     "most MiB of its files; default 4096", NULL},
    {"chunk", 0, CLI_INT, "N", &opt.chunk, 1, 65536,
     "prompt rows of a batch while other sequences generate; default 128", NULL},
    {"api-key-file", 0, CLI_TEXT, "FILE", &opt.key_file, 0, 0,
     "keys, one a line; any of them opens the API; also $GEM_API_KEY", NULL},
    {"insecure", 0, CLI_FLAG, NULL, &opt.insecure, 0, 0, "listen beyond this machine without a key",
     NULL},
    {"allowed-host", 0, CLI_TEXT, "NAME,...", &opt.allowed_hosts, 0, 0,
     "Host names served beside localhost, 127.x.x.x and [::1]", NULL},
    {"cors-origin", 0, CLI_TEXT, "URL,...", &opt.cors, 0, 0,
     "origins whose pages may ask; localhost: every port of this machine; default none", NULL},
    {"max-body", 0, CLI_INT, "MIB", &opt.max_body_mib, 1, 1024,
     "largest request body in MiB; default 64", NULL},
    {"strict-model", 0, CLI_FLAG, NULL, &opt.strict_model, 0, 0,
     "refuse requests that name another model", NULL},
    {"max-tokens", 0, CLI_INT, "N", &opt.max_tokens, -1, INT32_MAX,
     "tokens of an answer when a request names none; -1 (default): until the context is full",
     NULL},
    {"request-timeout", 0, CLI_FLOAT, "S", &opt.timeout, 0, 1e6,
     "end an answer after S seconds with finish_reason length; 0 (default): never", NULL},
    {"drain", 0, CLI_FLOAT, "S", &opt.drain, 0, 1e6,
     "seconds that running answers have after SIGTERM; default 30", NULL},
    {"temperature", 'T', CLI_FLOAT, "X", &opt.temperature, 0, 100,
     "when a request names none; default: what the model's makers advise", &opt.temperature_seen},
    {"top-k", 0, CLI_INT, "N", &opt.top_k, 0, INT32_MAX, "likewise; 0: off", &opt.top_k_seen},
    {"top-p", 0, CLI_FLOAT, "X", &opt.top_p, 0, 1, "likewise; 1: off", &opt.top_p_seen},
    {"min-p", 0, CLI_FLOAT, "X", &opt.min_p, 0, 1, "likewise; 0: off (default)", NULL},
    {"repeat-penalty", 0, CLI_FLOAT, "X", &opt.repeat_penalty, 0.001, 1000,
     "likewise; 1: off (default)", NULL},
    {"no-memory-check", 0, CLI_FLAG, NULL, &opt.no_memory_check, 0, 0,
     "load though the forecast says that memory will not do", NULL},
    {"no-slots", 0, CLI_FLAG, NULL, &opt.no_slots, 0, 0, "switch GET /slots off", NULL},
    {"no-metrics", 0, CLI_FLAG, NULL, &opt.no_metrics, 0, 0, "switch GET /metrics off", NULL},
    {"log-prompts", 0, CLI_FLAG, NULL, &opt.log_prompts, 0, 0,
     "texts of prompts in X-Gem-Prefix-Miss and the log, those of other clients too", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_serve_command = {
    .program = "gem serve",
    .args = "MODEL",
    .summary = "serve a model over HTTP, as OpenAI clients speak it",
    .text =
        "Listens before the model is loaded; GET /health answers 200 when it is. SIGTERM or "
        "Ctrl-C lets\n"
        "running answers finish, a second one ends at once. The log goes to stderr. "
        "docs/serving.md.\n"
        "\n"
        "--config FILE: each line is the long name of an option without dashes, '=', and its "
        "value;\n"
        "true or false for an option without value; model = MODEL for the argument. Blank lines "
        "and\n"
        "lines that begin with # are skipped. A name that is unknown or set twice, or a value "
        "out of\n"
        "range, is refused with file, line, name and what was expected.\n"
        "\n"
        "Exit codes: 0 ended by a signal, 2 options that cannot be meant, 3 no such model, no "
        "memory for\n"
        "it, or no such address.\n"
        "\n"
        "  gem serve qwen2.5-coder-0.5b\n"
        "  curl 127.0.0.1:8080/v1/chat/completions -d "
        "'{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}'\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

/* ---- keys: never from argv, where every user of the machine can read them ---- */

typedef struct key_list {
    char *text; /* owned; the keys point into it */
    const char **key;
    size_t n;
} key_list;

static gem_status add_key(key_list *k, const char *key, gem_error *err)
{
    const char **grown = realloc(k->key, (k->n + 1) * sizeof(*grown));
    if (!grown) return gem_fail(err, GEM_E_NOMEM, "no memory for the API keys");
    k->key = grown;
    k->key[k->n++] = key;
    return GEM_OK;
}

static gem_status read_keys(key_list *k, gem_error *err)
{
    gem_status st = GEM_OK;
    size_t len;
    char *rest = NULL, *env = getenv("GEM_API_KEY");
    if (env && *env) st = add_key(k, env, err);
    if (st != GEM_OK || !opt.key_file) return st;
    if ((st = gem_file_read(opt.key_file, 1 << 20, &k->text, &len, err)) != GEM_OK) return st;
    for (char *line = strtok_r(k->text, "\r\n", &rest); line && st == GEM_OK;
         line = strtok_r(NULL, "\r\n", &rest))
        if (*line && *line != '#') st = add_key(k, line, err);
    if (st == GEM_OK && k->n == 0) st = gem_fail(err, GEM_E_ARG, "%s holds no key", opt.key_file);
    return st;
}

/* What the makers of the families advise for their instruct models. */
static void settle_sampling(gem_server_options *o, const char *path)
{
    gem_sampler_defaults(&o->sampler);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    bool gemma = strncasecmp(name, "gemma", 5) == 0;
    o->sampler.temperature = opt.temperature_seen ? opt.temperature : gemma ? 1.0f : 0.7f;
    o->sampler.top_k = opt.top_k_seen ? opt.top_k : gemma ? 64 : 20;
    o->sampler.top_p = opt.top_p_seen ? opt.top_p : gemma ? 0.95f : 0.8f;
    o->sampler.min_p = opt.min_p;
    o->sampler.repetition_penalty = opt.repeat_penalty;
}

static void settle(gem_server_options *o, const char *path, const key_list *keys)
{
    *o = (gem_server_options){
        .model_path = path,
        .alias = opt.alias,
        .host = opt.host,
        .port = opt.port,
        .n_parallel = opt.parallel,
        .n_queue = opt.queue,
        .n_connections = opt.connections,
        .n_cached = opt.cached,
        .disk_cache = opt.disk_cache,
        .disk_bytes = (uint64_t)opt.disk_mib << 20,
        .chunk = opt.chunk,
        .max_body = (size_t)opt.max_body_mib << 20,
        .keys = keys->key,
        .n_keys = keys->n,
        .allowed_hosts = opt.allowed_hosts,
        .cors_origins = opt.cors,
        .strict_model = opt.strict_model,
        .no_slots = opt.no_slots,
        .no_metrics = opt.no_metrics,
        .insecure = opt.insecure,
        .no_memory_check = opt.no_memory_check,
        .verbose = opt.model.verbose,
        .log_prompts = opt.log_prompts,
        .drain_s = (double)opt.drain,
        .request_timeout_s = (double)opt.timeout,
        .max_tokens = opt.max_tokens,
    };
    cli_model_options(&o->model, &opt.model);
    settle_sampling(o, path);
}

int gem_serve_main(int argc, char **argv)
{
    const cli_command *c = &gem_serve_command;
    char path[4096], **args;
    int n_args;
    key_list keys = {0};
    gem_server_options so;
    gem_error err;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    gem_status st = cli_kv_type_from_env(&opt.model, &err);
    if (st == GEM_OK) st = cli_model_path(args[0], path, sizeof(path), &err);
    if (st == GEM_OK) st = read_keys(&keys, &err);
    if (st == GEM_OK) {
        settle(&so, path, &keys);
        st = gem_server_run(&so, &err);
    }
    free(keys.key);
    free(keys.text);
    return st == GEM_OK ? CLI_DONE : cli_fail(c, &err);
}
