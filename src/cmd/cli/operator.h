/* operator.h - the fronts that measuring programs share: products (gem-kernel-bench,
 * gem-prefill-bench), attention alone (gem-long-attention-profile, gem-decode-attention-profile)
 * and a model at a long position (gem-long-prefill-stage-profile, gem-decode-profile,
 * gem-long-prefix-ab). A program says its defaults, what is its own, and what its record holds. */
#ifndef GEM_CMD_CLI_OPERATOR_H
#define GEM_CMD_CLI_OPERATOR_H

#include "bench/attention_bench.h"
#include "bench/linear_bench.h"
#include "bench/prefix.h"
#include "cmd/cli/measure.h"

/* ---- products ---- */

typedef struct cli_linear_flags {
    cli_operator_flags op;
    const char *quant;
    int32_t input, output, slots, span, warmup, iterations, repetitions;
    bool warmup_seen;
} cli_linear_flags;

/* Rows of an option table, with the program's defaults as its help names them. `f` is a
 * cli_linear_flags *. */
/* clang-format off: rows of a table */
#define CLI_LINEAR_OPTIONS(f, input_, output_, slots_, span_, iterations_, repetitions_)             \
    {                                                                                                \
        "input", 0, CLI_INT, "N", &(f)->input, 32, 1 << 20, "values of a row; default " input_,      \
        NULL},                                                                                       \
        {"output", 0, CLI_INT, "N", &(f)->output, 32, 1 << 20, "rows of a matrix; default " output_, \
         NULL},                                                                                      \
        {"quant", 'q', CLI_TEXT, "TYPE", &(f)->quant, 0, 0, "type of the matrices; default q4_0",    \
         NULL},                                                                                      \
        {"matrix-slots",                                                                             \
         0,                                                                                          \
         CLI_INT,                                                                                    \
         "N",                                                                                        \
         &(f)->slots,                                                                                \
         1,                                                                                          \
         1024,                                                                                       \
         "matrices of their own memory, used in turn; 1 repeats one; default " slots_,               \
         NULL},                                                                                      \
        {"command-span",                                                                             \
         0,                                                                                          \
         CLI_INT,                                                                                    \
         "N",                                                                                        \
         &(f)->span,                                                                                 \
         1,                                                                                          \
         65536,                                                                                      \
         "products of one submission to the device; default " span_,                                 \
         NULL},                                                                                      \
        {"warmup",                                                                                   \
         'w',                                                                                        \
         CLI_INT,                                                                                    \
         "N",                                                                                        \
         &(f)->warmup,                                                                               \
         0,                                                                                          \
         INT32_MAX,                                                                                  \
         "untimed products, rounded up to whole submissions; default a tenth of the iterations",     \
         &(f)->warmup_seen},                                                                         \
        {"iterations",                                                                               \
         'n',                                                                                        \
         CLI_INT,                                                                                    \
         "N",                                                                                        \
         &(f)->iterations,                                                                           \
         1,                                                                                          \
         INT32_MAX,                                                                                  \
         "products of a timed run: a multiple of --command-span; default " iterations_,              \
         NULL},                                                                                      \
        {"repetitions",                                                                              \
         'r',                                                                                        \
         CLI_INT,                                                                                    \
         "N",                                                                                        \
         &(f)->repetitions,                                                                          \
         1,                                                                                          \
         100000,                                                                                     \
         "timed runs; default " repetitions_,                                                        \
         NULL},                                                                                      \
        CLI_OPERATOR_OPTIONS(&(f)->op)
/* clang-format on */

/* Measure what the flags say and print the record. kernel: a route of "linear", or NULL for the
 * type's own; rows: of a product. The program's exit status. */
int cli_linear_run(const cli_command *c, cli_linear_flags *f, const char *kernel, int32_t rows,
                   bool copy);

/* ---- attention alone ---- */

typedef struct cli_attention_flags {
    cli_operator_flags op;
    const char *shape;
    int32_t repetitions, warmup;
    int kv_type;
    bool seed_prefix;
    uint64_t seed;
} cli_attention_flags;

/* clang-format off: rows of a table */
#define CLI_ATTENTION_OPTIONS(f, shapes_, repetitions_, warmup_, seed_prefix_)                     \
    {"shape", 's', CLI_TEXT, "NAME", &(f)->shape, 0, 0, shapes_, NULL},                            \
        {"repetitions", 'r', CLI_INT, "N", &(f)->repetitions, 1, 100000, repetitions_, NULL},      \
        {"warmup", 'w', CLI_INT, "N", &(f)->warmup, 0, 100000, warmup_, NULL},                     \
        {"seed-prefix", 0, CLI_FLAG, NULL, &(f)->seed_prefix, 0, 0, seed_prefix_, NULL},           \
        {"seed", 0, CLI_U64, "N", &(f)->seed, 0, 0, "of these values; default 0", NULL},           \
        {"kv-type",     0, CLI_CHOICE, "f32|f16",                                                  \
         &(f)->kv_type, 0, 0,          "type of stored keys and values; default f32",              \
         NULL},                                                                                    \
        CLI_OPERATOR_OPTIONS(&(f)->op)
/* clang-format on */

/* What a program measures besides: rows of a run, positions there is memory for, seeded or not. */
typedef struct cli_attention_job {
    int32_t rows, n_ctx;
    bool seeded;
    /* takes host */
    json_t *(*record)(const bench_attention_bench *b, const bench_shape *s, json_t *host);
} cli_attention_job;

/* Find the shape; NULL after a usage error, *code is its status. */
const bench_shape *cli_attention_shape(const cli_command *c, const cli_attention_flags *f,
                                       int *code);
/* A route of an op by name; NULL after a usage error. also: further names that the program takes,
 * for the message; "" for none. */
const gem_op_route *cli_route(const cli_command *c, const char *option, const char *op,
                              const char *name, const char *also, int *code);
/* Routes, position, iterations, phases and progress of b were set. The program's exit status; b is
 * closed. */
int cli_attention_run(const cli_command *c, cli_attention_flags *f, const cli_attention_job *job,
                      const bench_shape *s, bench_attention_bench *b);

/* ---- a model at a long position ---- */

typedef struct cli_prefix_flags {
    cli_model_flags model;
    bool seed_prefix, no_progress, sha256;
    uint64_t seed;
    int32_t rows, progress_every;
} cli_prefix_flags;

/* clang-format off: rows of a table */
#define CLI_SEED_PREFIX_OPTION(f)                                                                  \
    {                                                                                              \
        "seed-prefix", 0, CLI_FLAG, NULL, &(f)->seed_prefix, 0, 0,                                 \
            "stand at the position over finite made-up keys and values instead of evaluating a "   \
            "prompt",                                                                              \
            NULL                                                                                   \
    }
#define CLI_PREFIX_OPTIONS(f)                                                                      \
    {"seed", 0, CLI_U64, "N", &(f)->seed, 0, 0, "of made-up keys and values; default 0", NULL},    \
        {"context",                                                                                \
         'c',                                                                                      \
         CLI_INT,                                                                                  \
         "N",                                                                                      \
         &(f)->model.ctx,                                                                          \
         1,                                                                                        \
         INT32_MAX,                                                                                \
         "positions of the session; default: as many as are needed",                               \
         NULL},                                                                                    \
        {"progress-every",                                                                         \
         0,                                                                                        \
         CLI_INT,                                                                                  \
         "N",                                                                                      \
         &(f)->progress_every,                                                                     \
         1,                                                                                        \
         INT32_MAX,                                                                                \
         "tokens of the prefix between two lines on stderr; default 4096",                         \
         NULL},                                                                                    \
        {"no-progress", 0, CLI_FLAG, NULL, &(f)->no_progress, 0, 0, "nothing on stderr", NULL},    \
        {"sha256",                                                                                 \
         0,                                                                                        \
         CLI_FLAG,                                                                                 \
         NULL,                                                                                     \
         &(f)->sha256,                                                                             \
         0,                                                                                        \
         0,                                                                                        \
         "record the model's digest (reads all of it); else $GEM_MODEL_SHA256",                    \
         NULL},                                                                                    \
        CLI_MODEL_OPTIONS(&(f)->model)
/* clang-format on */

typedef struct cli_prefix_job {
    gem_status (*measure)(void *user, const char *path, gem_error *err);
    json_t *(*record)(void *user, const char *path, const char *digest,
                      json_t *host); /* takes host */
    bool (*holds)(const void *user); /* false: exit 1, after the record */
    void *user;
} cli_prefix_job;

/* MODEL POSITION [REPETITIONS] of programs that take them so; a status >= 0 after a usage error,
 * else -1. */
int cli_prefix_arguments(const cli_command *c, char *const *args, int n_args, int32_t *position,
                         int32_t *repetitions);
/* The model at the position, by the flags; for `measure`. traced: steps will want time stamps. */
gem_status cli_prefix_open(bench_prefix *p, const cli_prefix_flags *f, const char *path,
                           int32_t position, bool traced, gem_error *err);
/* Resolve and measure `model`, print the record. The program's exit status. */
int cli_prefix_run(const cli_command *c, cli_prefix_flags *f, const char *model,
                   const cli_prefix_job *job);

#endif
