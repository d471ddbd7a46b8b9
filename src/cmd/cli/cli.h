/* cli.h - what every program of src/cmd shares: option tables that also print the help, manual
 * pages and completions; exit codes; JSON on stdout, one sentence on stderr; model names; Ctrl-C.
 * Only this room and the programs read the environment. */
#ifndef GEM_CLI_H
#define GEM_CLI_H

#include "gem/gem.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>

/* Exit codes of every program (docs/architecture.md, "Programs"). */
enum {
    CLI_DONE = 0,   /* it was done */
    CLI_FALSE = 1,  /* it was checked and does not hold: a refused file, a digest that differs */
    CLI_USAGE = 2,  /* the command line cannot be meant */
    CLI_CANNOT = 3, /* cannot run here: no such model, no such device, not enough memory */
    CLI_FAULT = 4,  /* our own fault, or the system's: a write that failed */
    CLI_INTERRUPTED = 130 /* Ctrl-C, as shells write it */
};

/* ---- options ---- */
typedef enum cli_kind {
    CLI_FLAG,   /* bool *: set to true */
    CLI_TEXT,   /* const char **: borrowed from argv */
    CLI_INT,    /* int32_t *, within [min, max] */
    CLI_U64,    /* uint64_t * */
    CLI_FLOAT,  /* float *, within [min, max] */
    CLI_CONFIG, /* const char **: a file of options, read before the command line (cli_config_read)
                 */
    CLI_CHOICE  /* int *: index of the word in the list "a|b|c" given as `arg` */
} cli_kind;

typedef struct cli_option {
    const char *name; /* long name, without dashes */
    char letter;      /* 0: none */
    cli_kind kind;
    const char *arg; /* what the help calls the value: "N", "FILE", "a|b"; NULL for a flag */
    void *value;
    double min, max;  /* CLI_INT and CLI_FLOAT; both 0: anything that fits the type */
    const char *help; /* one sentence without a full stop; names the default */
    bool *seen;       /* set when the option was given; may be NULL */
} cli_option;

typedef struct cli_command {
    const char *program; /* "gem run", "gem-bench" */
    const char *args;    /* positional arguments: "MODEL [TEXT]"; "" for none */
    const char *summary; /* one line */
    const char *text;    /* paragraphs behind the options; may be NULL */
    int min_args, max_args;
    const cli_option *option; /* ends with name == NULL */
} cli_command;

/* Read argv[1..]. Returns -1 to go on, with *args the positional arguments; otherwise the exit code
 * (help was printed, or the usage error was). Every command knows --help and -h, and for the makers
 * of documentation --help-as man|bash|zsh|fish. */
int cli_parse(const cli_command *c, int argc, char **argv, char ***args, int *n_args);
/* Options from a file, one `name = value` a line: names of the table without dashes, true or false
 * for a flag, and `model` for the first positional argument. Blank lines and lines that begin with
 * # are skipped. Nothing is set twice, nothing is unknown, every value is checked as on the command
 * line; the sentence names file, line, key and what was expected. *arg: the model, or NULL; values
 * live until the next call. cli_parse calls it for an option of kind CLI_CONFIG, so that what
 * stands on the command line wins.
 * errors  GEM_E_ARG; GEM_E_IO the file cannot be read */
gem_status cli_config_read(const cli_command *c, const char *path, char **arg, gem_error *err);
/* Help text of a command, as --help prints it. */
void cli_help(const cli_command *c, FILE *out);

/* Print "PROGRAM: sentence" and the usage hint; returns CLI_USAGE. */
int cli_usage(const cli_command *c, const char *fmt, ...) GEM_PRINTF(2, 3);
/* Print "PROGRAM: sentence" on stderr; returns the exit code for this status. */
int cli_fail(const cli_command *c, const gem_error *err);
int cli_exit_code(gem_status st);

/* ---- output ---- */
/* One JSON document on stdout with a final newline; takes the reference. Returns an exit code:
 * CLI_DONE, or CLI_FAULT when it could not be written (the sentence is on stderr). */
int cli_print_json(const cli_command *c, json_t *doc);
/* Flush stdout; CLI_FAULT and a sentence when something did not get through. */
int cli_flush(const cli_command *c);

/* Log callback that writes warnings and errors (and more with `verbose`, a bool *) to stderr. */
void cli_log(void *verbose, gem_log_level level, const char *text);

/* ---- models ---- */
typedef struct cli_known_model {
    const char *name, *file, *sha256, *about;
} cli_known_model;
extern const cli_known_model cli_known_models[]; /* ends with name == NULL */

/* Folder for fetched models: $XDG_CACHE_HOME/gem, else ~/.cache/gem. GEM_E_IO when neither is set.
 */
gem_status cli_cache_dir(char *out, size_t size, gem_error *err);
/* A path, or a name that `gem pull` fetched, to a path. GEM_E_IO says what is missing and what to
 * do. */
gem_status cli_model_path(const char *arg, char *out, size_t size, gem_error *err);

/* Options that every command which opens a model shares, and what they fill. */
typedef struct cli_model_flags {
    const char *backend, *isa;
    int32_t threads, ctx, batch;
    int kv_type;
    uint64_t state_bytes;
    bool state_bytes_seen;
    bool exact, no_repack, verbose;
} cli_model_flags;
#define CLI_KV_TYPES "f32|f16|f16-full|f32-values"
extern const char *const cli_kv_type_names[]; /* by gem_kv_type */
/* $GEM_KV_TYPE where no --kv-type was given; GEM_E_ARG when it names no type. */
gem_status cli_kv_type_from_env(cli_model_flags *f, gem_error *err);
/* Fills every field from the flags; the ISA also from $GEM_CPU_ISA when no --isa was given. */
void cli_model_options(gem_model_options *out, const cli_model_flags *f);
/* After opening with these options: take the progress line off the terminal. */
void cli_end_progress(void);
/* Rows of an option table. `f` is a cli_model_flags *. */
/* clang-format off: rows of a table */
#define CLI_MODEL_OPTIONS(f)                                                                         \
    {                                                                                                \
        "threads",     't', CLI_INT, "N",                                                            \
        &(f)->threads, 1,   1024,    "threads; default: the cores we may use",                       \
        NULL},                                                                                       \
        {"kv-type",     0, CLI_CHOICE, CLI_KV_TYPES,                                                 \
         &(f)->kv_type, 0, 0,          "type of stored keys and values; default f32",                \
         NULL},                                                                                      \
        {"state-bytes",                                                                              \
         0,                                                                                          \
         CLI_U64,                                                                                    \
         "N",                                                                                        \
         &(f)->state_bytes,                                                                          \
         0,                                                                                          \
         0,                                                                                          \
         "hybrid models: memory for states of past positions, so that going back is quick; "         \
         "default "                                                                                  \
         "1 GiB",                                                                                    \
         &(f)->state_bytes_seen},                                                                    \
        {"batch", 'b', CLI_INT, "N", &(f)->batch, 1, 65536, "rows of one forward pass; default 512", \
         NULL},                                                                                      \
        {"backend", 0, CLI_TEXT, "NAME", &(f)->backend, 0, 0, "cpu (default); cuda where built",     \
         NULL},                                                                                      \
        {"isa",                                                                                      \
         0,                                                                                          \
         CLI_TEXT,                                                                                   \
         "NAME",                                                                                     \
         &(f)->isa,                                                                                  \
         0,                                                                                          \
         0,                                                                                          \
         "instruction set of the CPU: ref, avx2, avx512, neon; default: $GEM_CPU_ISA, else the "     \
         "best",                                                                                     \
         NULL},                                                                                      \
        {"no-repack",                                                                                \
         0,                                                                                          \
         CLI_FLAG,                                                                                   \
         NULL,                                                                                       \
         &(f)->no_repack,                                                                            \
         0,                                                                                          \
         0,                                                                                          \
         "use weights as they lie in the file",                                                      \
         NULL},                                                                                      \
    {                                                                                                \
        "verbose", 'v', CLI_FLAG, NULL, &(f)->verbose, 0, 0, "say what is being done, on stderr",    \
            NULL                                                                                     \
    }
/* clang-format on */

/* True when the file carries a chat template of a format gem knows: an instruct model. */
bool cli_has_chat_template(const gem_model *m);

/* ---- input ---- */
/* Whole file, or stdin for "-", at most 1 GiB; NUL behind it; the caller frees it. */
gem_status cli_read(const char *path, char **data, size_t *len, gem_error *err);

/* ---- Ctrl-C ---- */
/* 1 after the first SIGINT; a second one ends the process the usual way. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupt(void);
/* Arm it again (interactive use: each answer may be stopped on its own). */
void cli_clear_interrupt(void);

#endif
