/* evidence_report.c - `gem report`: a folder of evidence as one HTML page. */
#include "base/base.h"
#include "cmd/gem/commands.h"
#include "evidence/page.h"

#include <stdlib.h>

static struct {
    const char *out;
} opt;

static const cli_option options[] = {
    {"out", 'o', CLI_TEXT, "FILE", &opt.out, 0, 0,
     "the page; default: the folder's name with .html", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

const cli_command gem_report_command = {
    .program = "gem report",
    .args = "ARTIFACT_DIR",
    .summary = "show a folder of benchmark evidence as one HTML page",
    .text = "Verdicts with what was required and observed, raw samples over time, stages, speed "
            "and time to\n"
            "first token by context, host snapshots, digests. One file, no script, nothing from "
            "outside.\n"
            "Written beside the folder, not into it: a sealed folder stays as it is.\n",
    .min_args = 1,
    .max_args = 1,
    .option = options,
};

int gem_report_main(int argc, char **argv)
{
    const cli_command *c = &gem_report_command;
    char **args;
    int n_args;
    gem_error err;
    gem_bytes page = {0}, path = {0};
    ev_page_counts n;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    size_t len = strlen(args[0]);
    while (len > 1 && args[0][len - 1] == '/')
        args[0][--len] = 0;
    const char *slash = strrchr(args[0], '/'), *title = slash && slash[1] ? slash + 1 : args[0];
    gem_bytes_printf(&path, "%s%s", opt.out ? opt.out : args[0], opt.out ? "" : ".html");
    gem_status st = ev_page(&page, args[0], title, &n, &err);
    if (st == GEM_OK)
        st = path.failed ? gem_fail(&err, GEM_E_NOMEM, "no memory for a name")
                         : gem_file_write_atomic(path.data, page.data, page.len, &err);
    code = st == GEM_OK
               ? cli_print_json(c, json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "schema",
                                             "gem-report/1", "page", path.data, "files",
                                             (json_int_t)n.files, "reports", (json_int_t)n.reports,
                                             "refused", (json_int_t)n.refused, "manifest",
                                             !n.sealed  ? "none"
                                             : n.intact ? "intact"
                                                        : "broken"))
               : cli_fail(c, &err);
    gem_bytes_free(&page);
    gem_bytes_free(&path);
    return code;
}
