/* models.c - a model argument is a path or a fetched name; flags that fill gem_model_options. */
#include "base/base.h"
#include "cmd/cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* scripts/fetch-model.sh holds the same names, files and digests; a test compares the two. */
const cli_known_model cli_known_models[] = {
    {"gemma-3-270m", "gemma-3-270m-q4_k_m.gguf",
     "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     "Gemma 3 270M, base model, Q4_K_M, 241 MiB"},
    {"qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
     "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
     "Qwen2.5-Coder 0.5B Instruct, Q4_K_M, 469 MiB"},
    {"qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
     "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
     "Qwen2.5-Coder 1.5B Instruct, Q4_K_M, 1.1 GiB"},
    {NULL, NULL, NULL, NULL}};

gem_status cli_cache_dir(char *out, size_t size, gem_error *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && *cache == '/')
        n = snprintf(out, size, "%s/gem", cache);
    else if (home && *home)
        n = snprintf(out, size, "%s/.cache/gem", home);
    else
        return gem_fail(err, GEM_E_IO,
                        "neither XDG_CACHE_HOME nor HOME is set, so there is no model cache");
    if (n < 0 || (size_t)n >= size)
        return gem_fail(err, GEM_E_RANGE, "the path of the model cache is too long");
    return GEM_OK;
}

static void known_names(char *out, size_t size)
{
    size_t len = 0;
    out[0] = 0;
    for (const cli_known_model *m = cli_known_models; m->name && len < size; m++)
        len += (size_t)snprintf(out + len, size - len, "%s%s", len ? ", " : "", m->name);
}

gem_status cli_model_path(const char *arg, char *out, size_t size, gem_error *err)
{
    char dir[4096], names[256];
    if (strchr(arg, '/') || access(arg, F_OK) == 0) {
        if ((size_t)snprintf(out, size, "%s", arg) >= size)
            return gem_fail(err, GEM_E_RANGE, "the path of the model is too long");
        if (access(out, R_OK) != 0) return gem_fail(err, GEM_E_IO, "%s: %s", out, strerror(errno));
        return GEM_OK;
    }
    gem_status st = cli_cache_dir(dir, sizeof(dir), err);
    if (st != GEM_OK) return st;
    const cli_known_model *known = cli_known_models;
    while (known->name && strcmp(known->name, arg) != 0)
        known++;
    if ((size_t)snprintf(out, size, "%s/%s", dir, known->name ? known->file : arg) >= size)
        return gem_fail(err, GEM_E_RANGE, "the path of the model is too long");
    if (access(out, R_OK) == 0) return GEM_OK;
    if (known->name)
        return gem_fail(err, GEM_E_IO, "%s has not been fetched yet: run 'gem pull %s'", arg, arg);
    known_names(names, sizeof(names));
    return gem_fail(err, GEM_E_IO,
                    "%s: no such file, and no model of that name; names that can be fetched: %s",
                    arg, names);
}

/* Progress of opening, on a terminal, once it takes long enough to wonder. */
static uint64_t loading_since; /* 0: not asked yet */
static int loading_shown = -1; /* percent on the screen; -1: none */

static void show_loading(void *user, double done)
{
    uint64_t now = gem_now_ns();
    int percent = (int)(done * 100);
    (void)user;
    if (!loading_since) loading_since = now;
    if (now - loading_since < 300000000 || percent == loading_shown) return;
    fprintf(stderr, "\rloading the model: %d %%", percent);
    loading_shown = percent;
}

void cli_end_progress(void)
{
    if (loading_shown >= 0) fprintf(stderr, "\r\033[K");
    loading_since = 0;
    loading_shown = -1;
}

const char *const cli_kv_type_names[] = {"f32", "f16", "f16-full", "f32-values"};

gem_status cli_kv_type_from_env(cli_model_flags *f, gem_error *err)
{
    const char *name = getenv("GEM_KV_TYPE");
    if (f->kv_type != GEM_KV_F32 || !name || !*name) return GEM_OK;
    for (int i = 0; i < (int)ARRAY_LEN(cli_kv_type_names); i++)
        if (!strcmp(name, cli_kv_type_names[i])) {
            f->kv_type = i;
            return GEM_OK;
        }
    return gem_fail(err, GEM_E_ARG, "GEM_KV_TYPE is %.32s, expected f32, f16 or f16-full", name);
}

void cli_model_options(gem_model_options *out, const cli_model_flags *f)
{
    memset(out, 0, sizeof(*out));
    out->backend = f->backend;
    out->isa = f->isa;
    if (!out->isa) {
        const char *isa = getenv("GEM_CPU_ISA");
        if (isa && *isa) out->isa = isa;
    }
    out->n_threads = f->threads;
    out->n_ctx = f->ctx;
    out->n_batch = f->batch;
    out->kv_type = (gem_kv_type)f->kv_type;
    if (f->state_bytes_seen)
        out->state_bytes = f->state_bytes ? (int64_t)GEM_MIN(f->state_bytes, INT64_MAX) : -1;
    out->exact = f->exact;
    out->no_repack = f->no_repack;
    out->log = cli_log;
    out->log_user = (void *)&f->verbose;
    if (isatty(STDERR_FILENO)) out->progress = show_loading;
}

gem_status cli_read(const char *path, char **data, size_t *len, gem_error *err)
{
    const size_t max = (size_t)1 << 30;
    gem_bytes b = {0};
    char buf[16384];
    *data = NULL;
    *len = 0;
    if (strcmp(path, "-") != 0) return gem_file_read(path, max, data, len, err);
    for (size_t n; (n = fread(buf, 1, sizeof(buf), stdin)) > 0 && b.len <= max;)
        gem_bytes_put(&b, buf, n);
    gem_bytes_put(&b, "", 0);
    if (ferror(stdin) || b.failed || b.len > max) {
        gem_bytes_free(&b);
        return gem_fail(err, GEM_E_IO, "standard input: cannot be read whole (at most %zu bytes)",
                        max);
    }
    *data = b.data;
    *len = b.len;
    return GEM_OK;
}
