/* server.h - `gem serve`: a model behind HTTP, as OpenAI, Anthropic and llama.cpp clients speak it.
 * This is the room's only door: options in, run until told to stop. Called by cmd/gem/serve.c. */
#ifndef GEM_SERVER_H
#define GEM_SERVER_H

#include "base/base.h"

typedef struct gem_server_options {
    const char *model_path;
    const char *alias;       /* id in /v1/models; NULL: the file's name without .gguf */
    gem_model_options model; /* n_sessions is set by the server */
    const char *host;        /* numeric address; NULL: 127.0.0.1 */
    int port;                /* 0: any free one, printed when listening */
    int n_parallel;          /* sequences that run at once */
    int n_queue;             /* requests that may wait */
    int n_connections;       /* open at once */
    int n_cached;           /* contexts' worth of KV pages kept for reuse beside the running ones */
    const char *disk_cache; /* folder for prefixes that outlive the process; NULL: none */
    uint64_t disk_bytes;    /* most bytes of its files */
    int32_t chunk;          /* prompt rows of a batch while others generate */
    size_t max_body;        /* bytes */
    const char *const *keys; /* [n_keys] borrowed; any of them opens the API */
    size_t n_keys;
    const char *allowed_hosts; /* comma-separated, beside loopback names; NULL: none */
    const char *cors_origins;  /* comma-separated origins, or the word localhost; NULL: no CORS */
    bool strict_model, no_slots, no_metrics, insecure, verbose;
    bool log_prompts; /* X-Gem-Prefix-Miss and the log may show what prompts say */
    bool no_memory_check;
    double drain_s, request_timeout_s; /* 0: no limit of a request */
    int32_t max_tokens;          /* when a request names none; -1: until the context is full */
    gem_sampler_options sampler; /* when a request names none */
} gem_server_options;

/* Serve until SIGTERM or SIGINT. Blocks both in the calling thread, which must be the only one.
 * errors GEM_E_ARG, GEM_E_IO (address taken), and those of gem_model_open. */
GEM_MUST_USE gem_status gem_server_run(const gem_server_options *opt, gem_error *err);

#endif
