/* check_cuda_memory.c - whether the bytes that `gem print-config` names are those that the device
 * gives: opens a model with one long context and compares the sum with what cudaMemGetInfo lost,
 * once open and once prompts and decode steps have run at the context's very end; then asks for a
 * context that no device holds, which must be refused with the numbers before anything is loaded.
 * On another backend the second half alone. Prints one JSON object.
 * exit codes  0 both hold, 1 one does not, 2 usage, 3 cannot run here */
#include "cmd/cli/cli.h"
#include "memory.h"
#include "runtime/engine.h"

#include <math.h>
#include <stdlib.h>

enum { TOO_LONG = 1 << 24, STEPS = 8 };
static const double most_percent = 1;

static struct {
    cli_model_flags model;
    int32_t sessions;
} opt;

static const cli_option options[] = {
    {"context", 'c', CLI_INT, "N", &opt.model.ctx, 1, INT32_MAX,
     "positions a session may hold; default 131328", NULL},
    {"sessions", 'n', CLI_INT, "N", &opt.sessions, 1, 4096, "sessions; default 1", NULL},
    CLI_MODEL_OPTIONS(&opt.model),
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const cli_command command = {
    .program = "check_cuda_memory",
    .args = "MODEL",
    .summary = "compare the bytes of print-config with those the device gives",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

/* The sum of print-config's memory; *parts gets a reference to the object. */
static int64_t planned_bytes(const gem_model *m, json_t **parts)
{
    static const char *const key[] = {"weights_bytes", "kv_bytes", "recurrent_bytes",
                                      "workspace_bytes"};
    int64_t sum = 0;
    char *text = gem_model_config_json(m);
    json_t *doc = text ? json_loads(text, 0, NULL) : NULL;
    *parts = json_incref(json_object_get(doc, "memory"));
    for (size_t i = 0; i < ARRAY_LEN(key); i++)
        sum += json_integer_value(json_object_get(*parts, key[i]));
    json_decref(doc);
    free(text);
    return sum;
}

/* Every route, as far back as there is room: a tile of a prompt, steps of one row, and of few. */
static gem_status use(gem_model *m, gem_error *err)
{
    gem_session *s = NULL;
    const float *x, *xs[STEPS];
    int32_t n = GEM_MAX(1, GEM_MIN(m->n_batch, m->n_ctx - 2 * STEPS));
    int32_t *tokens = calloc((size_t)n + STEPS, sizeof(*tokens));
    if (!tokens) return gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", n);
    gem_status st = gem_session_new(&s, m, err);
    if (st == GEM_OK) st = gem_session_seed(s, m->n_ctx - n - 2 * STEPS, 1, err);
    if (st == GEM_E_UNSUPPORTED) st = GEM_OK; /* recurrent layers: from the start */
    if (st == GEM_OK) st = gem_session_prefill(s, tokens, (size_t)n, NULL, NULL, &x, err);
    for (int i = 0; i < STEPS && st == GEM_OK; i++)
        st = gem_session_decode(s, i, &x, err);
    if (st == GEM_OK) st = gem_session_run(s, tokens, STEPS, NULL, xs, err);
    gem_session_free(s);
    free(tokens);
    return st;
}

/* {"bytes", "percent" beyond the plan}; *ok becomes false when that is too much. */
static json_t *taken(int64_t bytes, int64_t planned, bool *ok)
{
    double percent = 100 * ((double)bytes / (double)planned - 1);
    *ok = *ok && fabs(percent) <= most_percent;
    return json_pack("{s:I, s:f}", "bytes", (json_int_t)bytes, "percent", percent);
}

static void count_calls(void *user, double part)
{
    (void)part;
    ++*(int *)user;
}

static json_t *check_refused(const char *path, gem_model_options o, int64_t before, bool *ok)
{
    gem_model *m = NULL;
    gem_error err = {0};
    int loaded = 0;
    o.n_ctx = TOO_LONG;
    o.progress = count_calls;
    o.progress_user = &loaded;
    if (before == 0) o.max_bytes = gem_memory_available("");
    uint64_t from = gem_now_ns();
    gem_status st = gem_model_open(&m, path, &o, &err);
    uint64_t ns = gem_now_ns() - from;
    gem_model_close(m);
    *ok = *ok && st == GEM_E_NOMEM && loaded == 0;
    return json_pack("{s:i, s:s, s:s, s:b, s:f}", "context", TOO_LONG, "status",
                     gem_status_name(st), "text", err.text, "loaded", loaded > 0, "ms",
                     (double)ns * 1e-6);
}

int main(int argc, char **argv)
{
    gem_model *m = NULL;
    gem_model_options o;
    gem_error err = {0};
    char path[4096], **args;
    int n_args, code;
    bool ok = true;
    opt.model.ctx = 131328;
    opt.sessions = 1;
    if ((code = cli_parse(&command, argc, argv, &args, &n_args)) >= 0) return code;
    cli_model_options(&o, &opt.model);
    o.n_sessions = opt.sessions;
    o.progress = NULL;
    json_t *doc = json_pack("{s:i, s:i, s:s}", "context", (int)o.n_ctx, "sessions", o.n_sessions,
                            "kv_type", cli_kv_type_names[o.kv_type]);
    gem_status st = cli_model_path(args[0], path, sizeof(path), &err);
    const int64_t before = st == GEM_OK ? device_bytes(o.backend) : 0;
    if (st == GEM_OK && before > 0) {
        json_t *parts = NULL;
        st = gem_model_open(&m, path, &o, &err);
        const int64_t opened = device_bytes(o.backend) - before;
        if (st == GEM_OK) st = use(m, &err);
        if (st == GEM_OK) {
            int64_t planned = planned_bytes(m, &parts);
            json_object_set_new(doc, "print_config", parts);
            json_object_set_new(doc, "planned_bytes", json_integer(planned));
            json_object_set_new(doc, "opened", taken(opened, planned, &ok));
            json_object_set_new(doc, "used", taken(device_bytes(o.backend) - before, planned, &ok));
        }
        gem_model_close(m);
        json_object_set_new(doc, "closed_bytes", json_integer(device_bytes(o.backend) - before));
    } else if (st == GEM_OK && o.backend && !strcmp(o.backend, "cuda")) {
        st = gem_model_open(&m, path, &o, &err); /* says why there is no device */
        gem_model_close(m);
    }
    if (st != GEM_OK) {
        json_decref(doc);
        return cli_fail(&command, &err);
    }
    json_object_set_new(doc, "refused", check_refused(path, o, before, &ok));
    json_object_set_new(doc, "holds", json_boolean(ok));
    code = cli_print_json(&command, doc);
    return code == CLI_DONE && !ok ? CLI_FALSE : code;
}
