/* page_profiles.c - the page's part about profiles that no report has drawn: where a decode step's
 * time goes, and the runs of attention routes in turn. */
#include "evidence/page.h"

#include <math.h>
#include <stdio.h>

enum { MOST_STAGES = 16, MOST_ARMS = 4 };

static void heading(gem_bytes *out, const char *name)
{
    gem_bytes_printf(out, "<h2>Profile: ");
    ev_html(out, name);
    gem_bytes_printf(out, "</h2>\n");
}

static bool series_of(ev_series *s, const gem_json *list, double unit)
{
    if (!ev_series_read(s, list) || !s->n) return false;
    for (size_t i = 0; i < s->n; i++)
        s->x[i] *= unit;
    return true;
}

/* Stages of a step as bars; profiled steps and production's, one behind the other. */
static void decode(gem_bytes *out, const char *name, const gem_json *d)
{
    ev_bar bar[MOST_STAGES];
    ev_series step = {0}, production = {0};
    size_t n = 0;
    const gem_json *stages = ev_at(d, "stages");
    for (const gem_json *m = stages ? stages->first : NULL; m && n < MOST_STAGES; m = m->next) {
        const double ns = ev_number(m, "time_ns.mean");
        if (isfinite(ns)) bar[n++] = (ev_bar){m->name, ns / 1e3, strstr(m->name, "full") != NULL};
    }
    if (!n) return;
    heading(out, name);
    ev_plot_bars(out, "Stages of a profiled step, mean, microseconds, all layers together", bar, n);
    if (series_of(&step, ev_at(d, "step.samples_ns"), 1e-6) &&
        series_of(&production, ev_at(d, "production_execution.wall.samples_ns"), 1e-6)) {
        const ev_line line[] = {{"profiled", step.x, NULL, step.n, 0},
                                {"production", production.x, NULL, production.n, 1}};
        ev_plot_lines(out, "Time of each step, ms", "steps, in order of time", line, 2);
    }
    ev_series_free(&step);
    ev_series_free(&production);
}

static void attention(gem_bytes *out, const char *name, const gem_json *d)
{
    ev_series s[MOST_ARMS] = {{0}};
    ev_line line[MOST_ARMS];
    size_t n = 0;
    char label[128];
    const gem_json *arms = ev_at(d, "arms");
    for (const gem_json *m = arms ? arms->first : NULL; m && n < MOST_ARMS; m = m->next)
        if (series_of(&s[n], ev_at(m, "samples_ns"), 1e-6)) {
            line[n] = (ev_line){ev_text(m, "variant"), s[n].x, NULL, s[n].n, (int)n};
            n++;
        }
    if (n) {
        heading(out, name);
        snprintf(label, sizeof(label), "Device time of each run at position %.0f, ms",
                 ev_number(d, "parameters.position"));
        ev_plot_lines(out, label, "runs of each route, in order of time", line, n);
    }
    for (size_t i = 0; i < MOST_ARMS; i++)
        ev_series_free(&s[i]);
}

void ev_page_profile(gem_bytes *out, const char *name, const char *schema, const gem_json *d)
{
    if (strcmp(schema, "gem-decode-profile/1") == 0) decode(out, name, d);
    if (strcmp(schema, "gem-long-attention-profile/1") == 0) attention(out, name, d);
}
