/* draft.h - the options of speculative decoding and the drafter they name. Used by gem run and
 * gem-bench. */
#ifndef GEM_CMD_CLI_DRAFT_H
#define GEM_CMD_CLI_DRAFT_H

#include "cmd/cli/cli.h"
#include "runtime/speculate.h"

typedef struct cli_draft {
    const char *arg;      /* "ngram", "own" or a model's name or path; NULL: no speculation */
    char beside[4096];    /* path of a drafter that runs beside the target; "" unless arg is one */
    int32_t max;          /* 0: CLI_DRAFT_NGRAM or CLI_DRAFT_MODEL */
    gem_model *model;     /* owned; NULL unless arg is a model */
    gem_drafter *drafter; /* owned; NULL: no speculation */
} cli_draft;

enum { CLI_DRAFT_NGRAM = 8, CLI_DRAFT_MODEL = 4 };

/* Rows of an option table. `d` is a cli_draft *. */
/* clang-format off: rows of a table */
#define CLI_DRAFT_OPTIONS(d)                                                                       \
    {"draft",                                                                                      \
     0,                                                                                            \
     CLI_TEXT,                                                                                     \
     "ngram|own|MODEL",                                                                            \
     &(d)->arg,                                                                                    \
     0,                                                                                            \
     0,                                                                                            \
     "guess tokens and check them together: by looking up the text so far, by the drafter that "   \
     "the file brings, or by another file: a drafter made for the model (Gemma 4's assistant) or " \
     "a smaller model of the same vocabulary; the same text, sooner if the guesses are good",      \
     NULL},                                                                                        \
    {                                                                                              \
        "draft-max", 0, CLI_INT, "N", &(d)->max, 1, GEM_DRAFT_MAX,                                 \
            "most guesses at once; default 8 for ngram, 4 for a drafter or a model", NULL          \
    }
/* clang-format on */

/* What the target must be opened with; reads the header of a file that arg names. opt points into d
 * afterwards. */
gem_status cli_draft_options(gem_model_options *opt, cli_draft *d, gem_error *err);
/* Open the drafter that the options name, with the target's options; nothing when they name none.
 */
gem_status cli_draft_open(cli_draft *d, const gem_model *target, const gem_model_options *opt,
                          gem_error *err);
void cli_draft_close(cli_draft *d);

#endif
