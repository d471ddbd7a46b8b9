/* split.c - `gem-analyze split-attention-ab`: the four rows of a same-process run as two records,
 * so that they can be judged like any others. Nothing is computed. */
#include "cmd/analyze/analyze.h"

#include <stdlib.h>

static const cli_option options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};

const cli_command analyze_split_command = {
    .program = "gem-analyze split-attention-ab",
    .args = "PAIRED.json ORACLE.json CANDIDATE.json",
    .summary = "split a gem-bench --attention-ab record into its two arms",
    .text = "Both records keep everything but the other arm's rows. They share the read roof: both "
            "arms ran\n"
            "interleaved in one process.\n",
    .min_args = 3,
    .max_args = 3,
    .option = options};

/* The record with the rows of one arm; NULL when it does not have exactly `want` of them. */
static gem_json_doc *arm_of(const gem_json *record, const char *arm, size_t want)
{
    gem_json_doc *d = gem_json_new();
    gem_json *root = d ? gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT) : NULL;
    size_t n = 0;
    for (const gem_json *m = root ? record->first : NULL; m; m = m->next) {
        if (strcmp(m->name, "rows") != 0) {
            gem_json_put_copy(d, root, m->name, m);
            continue;
        }
        gem_json *rows = gem_json_put(d, root, "rows", GEM_JSON_ARRAY);
        for (const gem_json *r = m->first; r; r = r->next) {
            if (!gem_json_is(gem_json_get(r, "arm"), arm)) continue;
            gem_json_put_copy(d, rows, NULL, r);
            n++;
        }
    }
    if (root) gem_json_put_string(d, root, "split_from", "--attention-ab");
    if (n == want && !gem_json_failed(d)) return d;
    gem_json_free(d);
    return NULL;
}

int analyze_split_main(int argc, char **argv)
{
    static const char *const arms[] = {"oracle", "candidate"};
    const cli_command *c = &analyze_split_command;
    char **args;
    int n_args;
    gem_error err;
    ev_doc in;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    if (ev_doc_load(&in, args[0], &err) != GEM_OK) {
        ev_doc_free(&in);
        return cli_fail(c, &err);
    }
    gem_json_doc *half[2] = {NULL, NULL};
    const gem_json *rows = ev_at(in.root, "rows");
    bool record =
        strcmp(ev_text(in.root, "schema"), "gem-bench/1") == 0 && rows && rows->n % 2 == 0;
    for (int i = 0; record && i < 2; i++)
        half[i] = arm_of(in.root, arms[i], rows->n / 2);
    if (half[0] && half[1]) {
        code = analyze_write(c, gem_json_root(half[0]), args[1]);
        if (code == CLI_DONE) code = analyze_write(c, gem_json_root(half[1]), args[2]);
    } else {
        fprintf(stderr,
                "%s: %s: no record of gem-bench --attention-ab with as many rows of each arm\n",
                c->program, args[0]);
        code = CLI_FALSE;
    }
    for (int i = 0; i < 2; i++)
        gem_json_free(half[i]);
    ev_doc_free(&in);
    return code;
}
