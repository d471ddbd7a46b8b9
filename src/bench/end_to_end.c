/* end_to_end.c - see end_to_end.h. */
#include "bench/end_to_end.h"
#include "gem_build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

gem_status bench_e2e_init(bench_e2e *e, gem_error *err)
{
    size_t n = (size_t)e->repetitions;
    e->e2e_ns = calloc(n, sizeof(*e->e2e_ns));
    e->ttft_ns = calloc(n, sizeof(*e->ttft_ns));
    e->decode_ns = calloc(n, sizeof(*e->decode_ns));
    e->tokens = calloc((size_t)e->n_decode + 1, sizeof(*e->tokens));
    if (!e->e2e_ns || !e->ttft_ns || !e->decode_ns || !e->tokens)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the samples");
    return GEM_OK;
}

void bench_e2e_deinit(bench_e2e *e)
{
    gem_session_free(e->session);
    free(e->e2e_ns);
    free(e->ttft_ns);
    free(e->decode_ns);
    free(e->tokens);
}

/* A new session each time: the cache is cold. */
gem_status bench_e2e_prepare(void *user, gem_error *err)
{
    bench_e2e *e = user;
    gem_session_free(e->session);
    e->session = NULL;
    return gem_session_new(&e->session, e->model, err);
}

gem_status bench_e2e_run(void *user, gem_error *err)
{
    bench_e2e *e = user;
    uint64_t start = gem_now_ns();
    gem_status st =
        gem_session_prefill(e->session, e->prompt, (size_t)e->n_prompt, NULL, NULL, NULL, err);
    if (st == GEM_OK) st = gem_session_draw(e->session, e->greedy, &e->tokens[0], err);
    uint64_t first = gem_now_ns();
    for (int32_t i = 0; st == GEM_OK && i < e->n_decode; i++) {
        st = gem_session_decode(e->session, e->tokens[i], NULL, err);
        if (st == GEM_OK) st = gem_session_draw(e->session, e->greedy, &e->tokens[i + 1], err);
    }
    uint64_t end = gem_now_ns();
    e->run[0] = end - start;
    e->run[1] = first - start;
    e->run[2] = end - first;
    return st;
}

gem_status bench_e2e_finish(void *user, int round, gem_error *err)
{
    bench_e2e *e = user;
    char hex[65];
    if (round < 0) return GEM_OK;
    e->e2e_ns[e->n] = e->run[0];
    e->ttft_ns[e->n] = e->run[1];
    e->decode_ns[e->n++] = e->run[2];
    gem_sha256 *h = gem_sha256_new();
    if (!h) return gem_fail(err, GEM_E_NOMEM, "no memory for a digest");
    gem_sha256_update(h, e->tokens, ((size_t)e->n_decode + 1) * sizeof(*e->tokens));
    gem_sha256_finish(h, hex);
    if (e->n == 1) memcpy(e->output, hex, sizeof(hex));
    e->n_same += strcmp(e->output, hex) == 0;
    return GEM_OK;
}

/* Bytes of a line "Key:  123 kB" of /proc/self/status; 0 when there is none. */
static void platform(char out[64])
{
    struct utsname u;
    if (uname(&u) != 0) memset(&u, 0, sizeof(u));
    const char *machine = strcmp(u.machine, "x86_64") == 0    ? "amd64"
                          : strcmp(u.machine, "aarch64") == 0 ? "arm64"
                                                              : u.machine;
    snprintf(out, 64, "%.30s/%.30s", u.sysname, machine);
    for (char *c = out; *c && *c != '/'; c++)
        *c = (char)tolower((unsigned char)*c);
}

json_t *bench_e2e_json(const bench_e2e *e, int batch, const char *command)
{
    gem_model_info info;
    char path[96], where[64];
    json_t *repetitions = json_array();
    gem_model_get_info(e->model, &info);
    platform(where);
    snprintf(path, sizeof(path), "%.30s/%.40s-session-v1", info.backend, info.family);
    for (size_t i = 0; i < e->n; i++) {
        double decode = (double)e->decode_ns[i] * 1e-6, ttft = (double)e->ttft_ns[i] * 1e-6;
        json_array_append_new(
            repetitions, json_pack("{s:f, s:f, s:f, s:f, s:f}", "end_to_end_milliseconds",
                                   (double)e->e2e_ns[i] * 1e-6, "tokens_per_second",
                                   e->n_decode / decode * 1e3, "ttft_milliseconds", ttft,
                                   "prefill_milliseconds", ttft, "decode_milliseconds", decode));
    }
    /* what a backend cannot run is refused at open: there is no fallback to count */
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:i, s:f, s:s, s:s, s:{s:I, s:I}, "
                     "s:{s:s, s:f, s:b}, s:o}",
                     "engine", "gem-native", "backend", info.backend, "platform", where,
                     "forward_path", path, "fallback_count", 0, "revision", GEM_BUILD_COMMIT,
                     "sampling", "greedy", "cache_state", "cold", "batch", batch, "temperature",
                     0.0, "command", command, "output_sha256", e->output, "memory", "peak_bytes",
                     (json_int_t)gem_process_bytes("VmHWM"), "resident_bytes",
                     (json_int_t)gem_process_bytes("VmRSS"), "quality", "name",
                     "greedy-tokens-repeat", "score", e->n ? (double)e->n_same / (double)e->n : 0.0,
                     "higher_is_better", 1, "repetitions", repetitions);
}

char *bench_scrubbed_command(int argc, char **argv)
{
    gem_bytes line = {0};
    for (int i = 0; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/'), *equals = strchr(argv[i], '=');
        if (i) gem_bytes_put(&line, " ", 1);
        if (slash && equals && equals < slash) /* --model=folder/file */
            gem_bytes_put(&line, argv[i], (size_t)(equals - argv[i]) + 1);
        gem_bytes_printf(&line, "%s", slash ? slash + 1 : argv[i]);
    }
    if (!line.failed) return line.data;
    gem_bytes_free(&line);
    return NULL;
}
