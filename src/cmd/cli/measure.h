/* measure.h - the options of programs that run one op alone. Used by gem-kernel-bench,
 * gem-prefill-bench and the attention profiles. */
#ifndef GEM_CMD_CLI_MEASURE_H
#define GEM_CMD_CLI_MEASURE_H

#include "cmd/cli/cli.h"

typedef struct cli_operator_flags {
    const char *backend, *isa;
    int32_t threads;
} cli_operator_flags;

/* Rows of an option table. `f` is a cli_operator_flags *. */
/* clang-format off: rows of a table */
#define CLI_OPERATOR_OPTIONS(f)                                                                    \
    {"threads", 't', CLI_INT, "N", &(f)->threads, 1, 1024,                                         \
     "threads; default: the cores we may use", NULL},                                              \
    {"backend", 0, CLI_TEXT, "NAME", &(f)->backend, 0, 0, "cpu (default); cuda where built", NULL},\
    {"isa", 0, CLI_TEXT, "NAME", &(f)->isa, 0, 0,                                                  \
     "instruction set of the CPU; default: $GEM_CPU_ISA, else the best", NULL}
/* clang-format on */

/* A positional argument that is a whole number within [min, max]. */
bool cli_count(const char *text, int32_t min, int32_t max, int32_t *out);
/* $GEM_CPU_ISA where no --isa was given. */
void cli_operator_finish(cli_operator_flags *f);
/* Where temporary files go: $TMPDIR, else /tmp. */
const char *cli_tmp_dir(void);
/* $GEM_MODEL_SHA256, else with `read` the digest of the file, else ""; GEM_E_ARG when the variable
 * is no digest. */
gem_status cli_model_digest(const char *path, bool read, char hex[65], gem_error *err);

#endif
