/* plain.c - `gem-analyze stats` and `compare`: the statistics on any lists of raw samples. A file
 * is a JSON list of numbers, or a document in which every list of numbers whose name begins with
 * "samples" is taken, by its place. */
#include "cmd/analyze/analyze.h"
#include "evidence/statistics.h"

#include <math.h>
#include <stdlib.h>

static struct {
    bool higher;
} opt;

static const cli_option stats_options[] = {{NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL}};
static const cli_option compare_options[] = {
    {"higher-is-better", 0, CLI_FLAG, NULL, &opt.higher, 0, 0,
     "samples are rates; default: times, where lower is better", NULL},
    {NULL, 0, CLI_FLAG, NULL, NULL, 0, 0, NULL, NULL},
};

static const char files[] =
    "A file is a JSON list of numbers above zero, or any document: there every list called\n"
    "samples... is taken.\n";

const cli_command analyze_stats_command = {.program = "gem-analyze stats",
                                           .args = "FILE [OUT.json]",
                                           .summary = "figures of raw samples",
                                           .text = files,
                                           .min_args = 1,
                                           .max_args = 2,
                                           .option = stats_options};
const cli_command analyze_compare_command = {.program = "gem-analyze compare",
                                             .args = "A B [OUT.json]",
                                             .summary = "difference of two lists of raw samples",
                                             .text = files,
                                             .min_args = 2,
                                             .max_args = 3,
                                             .option = compare_options};

/* Calls `visit` for each list of samples below v. */
static void each_series(const gem_json *v, void (*visit)(void *user, const gem_json *list),
                        void *user)
{
    if (!v) return;
    bool root_list = !v->parent && v->type == GEM_JSON_ARRAY;
    bool named = v->type == GEM_JSON_ARRAY && v->name && strncmp(v->name, "samples", 7) == 0;
    if (root_list || named) {
        visit(user, v);
        return;
    }
    if (v->type != GEM_JSON_ARRAY && v->type != GEM_JSON_OBJECT) return;
    for (const gem_json *m = v->first; m; m = m->next)
        each_series(m, visit, user);
}

typedef struct walk {
    ev_judge *j;
    gem_json *list;
    const ev_doc *other;
    size_t n, bad;
} walk;

static char *pointer_of(const gem_json *v)
{
    gem_bytes b = {0};
    gem_json_pointer(v, &b);
    gem_bytes_put(&b, "", 0);
    return b.data;
}

static const gem_json *at_pointer(const ev_doc *d, const gem_json *like)
{
    if (!like->parent) return d->root;
    const gem_json *up = at_pointer(d, like->parent);
    return like->parent->type == GEM_JSON_ARRAY ? gem_json_at(up, like->index)
                                                : gem_json_get(up, like->name);
}

static void visit_stats(void *user, const gem_json *list)
{
    walk *w = user;
    ev_series s;
    char *at = pointer_of(list);
    w->n++;
    if (ev_series_read(&s, list)) {
        gem_json *o = gem_json_put(w->j->json, w->list, NULL, GEM_JSON_OBJECT);
        gem_json_put_string(w->j->json, o, "at", at ? at : "");
        ev_put_figures(w->j, o, "figures", &s);
        ev_series_free(&s);
    } else {
        w->bad++;
        ev_check(w->j, false, "samples", "a list of finite numbers above zero", "at '%s'",
                 at ? at : "");
    }
    free(at);
}

static void put_interval(ev_judge *j, gem_json *o, const char *name, const ev_interval *i)
{
    gem_json *v = gem_json_put(j->json, o, name, GEM_JSON_OBJECT);
    gem_json_put_number(j->json, v, "mean", i->mean);
    gem_json_put_number(j->json, v, "standard_error", i->se);
    gem_json_put_number(j->json, v, "degrees_of_freedom", i->df);
    gem_json_put_number(j->json, v, "t", i->t);
    gem_json_put_number(j->json, v, "lower_95", i->lower);
    gem_json_put_number(j->json, v, "upper_95", i->upper);
}

static void put_comparison(ev_judge *j, gem_json *o, const ev_series *a, const ev_series *b)
{
    ev_interval i;
    ev_figures fa, fb;
    ev_figures_of(&fa, a->x, a->n);
    ev_figures_of(&fb, b->x, b->n);
    ev_put_figures(j, o, "a", a);
    ev_put_figures(j, o, "b", b);
    gem_json_put_number(j->json, o, "improvement_percent",
                        100 * ev_improvement(fa.mean, fb.mean, opt.higher));
    gem_json_put_bool(j->json, o, "dominance", ev_dominates(b->x, b->n, a->x, a->n, opt.higher));
    if (a->n < 2 || b->n < 2) return;
    gem_json_put_number(j->json, o, "larger_cv_percent", 100 * fmax(fa.cv, fb.cv));
    ev_welch(&i, b->x, b->n, a->x, a->n, 0.95);
    put_interval(j, o, "difference_welch", &i);
    ev_pooled(&i, b->x, b->n, a->x, a->n, 0.95);
    put_interval(j, o, "difference_pooled", &i);
    if (a->n != b->n) return;
    ev_paired(&i, b->x, a->x, a->n, 0.95);
    put_interval(j, o, "difference_paired", &i);
}

static void visit_compare(void *user, const gem_json *list)
{
    walk *w = user;
    ev_series a = {0}, b = {0};
    char *at = pointer_of(list);
    w->n++;
    if (ev_series_read(&a, list) && ev_series_read(&b, at_pointer(w->other, list))) {
        gem_json *o = gem_json_put(w->j->json, w->list, NULL, GEM_JSON_OBJECT);
        gem_json_put_string(w->j->json, o, "at", at ? at : "");
        put_comparison(w->j, o, &a, &b);
    } else {
        w->bad++;
        ev_check(w->j, false, "samples", "a list of finite numbers above zero in both files",
                 "at '%s'", at ? at : "");
    }
    ev_series_free(&a);
    ev_series_free(&b);
    free(at);
}

static int run(const cli_command *c, const char *schema, size_t n_in, int argc, char **argv)
{
    char **args;
    int n_args;
    gem_error err;
    ev_doc in[2] = {{0}};
    ev_judge j;
    int code = cli_parse(c, argc, argv, &args, &n_args);
    if (code >= 0) return code;
    gem_status st = ev_judge_init(&j, schema) ? GEM_OK : gem_fail(&err, GEM_E_NOMEM, "no memory");
    for (size_t i = 0; st == GEM_OK && i < n_in; i++)
        st = ev_doc_load(&in[i], args[i], &err);
    if (st == GEM_OK) {
        ev_judge_options(&j, argv + 1, (size_t)(args - argv) - 1);
        walk w = {.j = &j, .other = &in[1]};
        for (size_t i = 0; i < n_in; i++)
            ev_judge_input(&j, n_in == 1 ? "samples" : i ? "b" : "a", &in[i]);
        w.list = gem_json_put(j.json, j.root, "series", GEM_JSON_ARRAY);
        each_series(in[0].root, n_in == 1 ? visit_stats : visit_compare, &w);
        ev_check(&j, w.n > 0 && !w.bad, "series", "at least one list of samples, all readable",
                 "%zu lists, %zu unreadable", w.n, w.bad);
        ev_judge_finish(&j, "described");
        code = analyze_write(c, j.root, n_args > (int)n_in ? args[n_in] : NULL);
        if (code == CLI_DONE && !ev_holds(&j)) {
            fputs(j.refusals.data ? j.refusals.data : "", stderr);
            code = CLI_FALSE;
        }
    } else {
        code = cli_fail(c, &err);
    }
    for (size_t i = 0; i < n_in; i++)
        ev_doc_free(&in[i]);
    ev_judge_free(&j);
    return code;
}

int analyze_stats_main(int argc, char **argv)
{
    return run(&analyze_stats_command, "gem-analyze-stats/1", 1, argc, argv);
}

int analyze_compare_main(int argc, char **argv)
{
    return run(&analyze_compare_command, "gem-analyze-compare/1", 2, argc, argv);
}
