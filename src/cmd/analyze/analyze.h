/* analyze.h - the subcommands of gem-analyze. Each takes its documents, writes one report and ends
 * with 0 (it holds), 1 (refused) or the exit codes of cli.h. */
#ifndef GEM_ANALYZE_H
#define GEM_ANALYZE_H

#include "cmd/cli/cli.h"
#include "evidence/judge.h"

/* Files IN... [OUT.json]: judge the inputs, write the report to OUT.json or stdout. */
typedef struct analysis {
    cli_command command; /* .program is "gem-analyze NAME"; min_args is the number of inputs */
    const char *schema, *yes;
    gem_status (*judge)(ev_judge *j, const ev_doc *in, gem_error *err);
} analysis;

extern const analysis analyses[]; /* ends with schema == NULL */

int analysis_main(const analysis *a, int argc, char **argv);

/* Folder DIR [OUT.json]: judge what lies in it. */
typedef struct folder_analysis {
    cli_command command;
    const char *schema, *yes;
    gem_status (*judge)(ev_judge *j, const char *dir, gem_error *err);
} folder_analysis;

extern const folder_analysis folder_analyses[]; /* ends with schema == NULL */

int folder_analysis_main(const folder_analysis *a, int argc, char **argv);

/* Subcommands of another form. */
extern const cli_command analyze_stats_command, analyze_compare_command;
int analyze_stats_main(int argc, char **argv);
int analyze_compare_main(int argc, char **argv);
extern const cli_command analyze_simulate_command;
int analyze_simulate_main(int argc, char **argv);
extern const cli_command analyze_split_command, analyze_seal_command, analyze_audit_command;
int analyze_split_main(int argc, char **argv);
extern const cli_command analyze_stream_command;
int analyze_stream_main(int argc, char **argv);
int analyze_seal_main(int argc, char **argv);
int analyze_audit_main(int argc, char **argv);
extern const cli_command analyze_document_command, analyze_messages_command;
int analyze_document_main(int argc, char **argv);
int analyze_messages_main(int argc, char **argv);

/* Write a document to a file (atomically) or, for NULL and "-", to stdout. Returns an exit code. */
int analyze_write(const cli_command *c, const gem_json *root, const char *path);

#endif
