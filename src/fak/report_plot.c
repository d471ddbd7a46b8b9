/* report_plot.c - the two plots of the report as inline SVG. One envelope a plot: curves of unlike
 * envelopes are never on one scale. */
#include "fak/report.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 720, HEIGHT = 220, LEFT = 64, RIGHT = 16, TOP = 16, BOTTOM = 36 };

/* Not from the locale: numbers of SVG have a point. */
static void coordinate(gem_bytes *out, double v)
{
    char text[32];
    gem_json_number(text, floor(v * 10 + 0.5) / 10);
    gem_bytes_put(out, text, strlen(text));
}

static void attribute(gem_bytes *out, const char *name, double v)
{
    gem_bytes_printf(out, " %s=\"", name);
    coordinate(out, v);
    gem_bytes_put(out, "\"", 1);
}

static void text_at(gem_bytes *out, double x, double y, const char *anchor, const char *s)
{
    gem_bytes_printf(out, "<text");
    attribute(out, "x", x);
    attribute(out, "y", y);
    gem_bytes_printf(out, " text-anchor=\"%s\">", anchor);
    fak_html(out, s);
    gem_bytes_printf(out, "</text>");
}

static void number_at(gem_bytes *out, double x, double y, const char *anchor, double v)
{
    gem_bytes text = {0};
    fak_html_number(&text, v);
    text_at(out, x, y, anchor, text.data ? text.data : "");
    gem_bytes_free(&text);
}

static void line(gem_bytes *out, const char *class, double x1, double y1, double x2, double y2)
{
    gem_bytes_printf(out, "<line class=\"%s\"", class);
    attribute(out, "x1", x1);
    attribute(out, "y1", y1);
    attribute(out, "x2", x2);
    attribute(out, "y2", y2);
    gem_bytes_printf(out, "/>");
}

/* Axis from 0 to a round number above most; returns that number. */
static double scale(gem_bytes *out, double most, const char *label)
{
    double step = pow(10, floor(log10(most > 0 ? most : 1)));
    if (most / step < 2)
        step /= 5;
    else if (most / step < 5)
        step /= 2;
    double top = step * ceil(most / step * 1.0001);
    for (double v = 0; v <= top * 1.0001; v += step) {
        double y = HEIGHT - BOTTOM - v / top * (HEIGHT - TOP - BOTTOM);
        line(out, "grid", LEFT, y, WIDTH - RIGHT, y);
        number_at(out, LEFT - 6, y + 4, "end", v);
    }
    text_at(out, LEFT, TOP - 4, "start", label);
    return top;
}

static double height_of(double v, double top)
{
    return HEIGHT - BOTTOM - v / top * (HEIGHT - TOP - BOTTOM);
}

static bool receipt_of(const fak_entry *e, const char *envelope_id)
{
    return (e->kind == &fak_doc_receipt_v1 || e->kind == &fak_doc_receipt_v2) &&
           strcmp(fak_str(e->doc.root, "envelope_id"), envelope_id) == 0;
}

static void curve(gem_bytes *out, const gem_json *receipt, double x0, double width, double top)
{
    const gem_json *reps = gem_json_get(receipt, "repetitions");
    const char *class =
        strcmp(fak_str(receipt, "role"), "candidate") == 0 ? "candidate" : "baseline";
    double step = reps->n > 1 ? width * 0.7 / (double)(reps->n - 1) : 0;
    gem_bytes_printf(out, "<polyline class=\"%s\" points=\"", class);
    for (const gem_json *m = reps->first; m; m = m->next) {
        coordinate(out, x0 + width * 0.15 + step * (double)m->index);
        gem_bytes_put(out, ",", 1);
        coordinate(out, height_of(fak_num(m, "tokens_per_second"), top));
        gem_bytes_put(out, " ", 1);
    }
    gem_bytes_printf(out, "\"/>");
    for (const gem_json *m = reps->first; m; m = m->next) {
        gem_bytes_printf(out, "<circle class=\"%s\" r=\"4\"", class);
        attribute(out, "cx", x0 + width * 0.15 + step * (double)m->index);
        attribute(out, "cy", height_of(fak_num(m, "tokens_per_second"), top));
        gem_bytes_printf(out, "><title>repetition %zu: ", m->index + 1);
        fak_html_number(out, fak_num(m, "tokens_per_second"));
        gem_bytes_printf(out, " tok/s</title></circle>");
    }
}

void fak_plot_receipts(const fak_folder *folder, const char *envelope_id, gem_bytes *out)
{
    double most = 0;
    size_t n = 0, k = 0;
    for (size_t i = 0; i < folder->n; i++) {
        if (!receipt_of(&folder->entry[i], envelope_id)) continue;
        n++;
        for (const gem_json *m = fak_list(folder->entry[i].doc.root, "repetitions"); m; m = m->next)
            most = GEM_MAX(most, fak_num(m, "tokens_per_second"));
    }
    if (n == 0) {
        gem_bytes_printf(out, "<p class=\"none\">No receipt of this envelope is here.</p>\n");
        return;
    }
    gem_bytes_printf(out,
                     "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"tokens "
                     "per second of each repetition\">",
                     WIDTH, HEIGHT);
    double top = scale(out, most, "tokens per second, by receipt and repetition"),
           width = (double)(WIDTH - LEFT - RIGHT) / (double)n;
    for (size_t i = 0; i < folder->n; i++) {
        const fak_entry *e = &folder->entry[i];
        if (!receipt_of(e, envelope_id)) continue;
        double x0 = LEFT + width * (double)k++;
        curve(out, e->doc.root, x0, width, top);
        if (n <= 12) text_at(out, x0 + width / 2, HEIGHT - 18, "middle", e->name);
        if (n <= 12)
            text_at(out, x0 + width / 2, HEIGHT - 4, "middle", fak_str(e->doc.root, "role"));
    }
    gem_bytes_printf(out, "</svg>\n");
}

void fak_plot_rungs(const fak_graph *g, gem_bytes *out)
{
    const gem_json *comparison = gem_json_get(g->root, "comparison");
    double reference = fak_num(comparison, "tokens_per_second"), most = reference;
    if (!g->n_rungs) return;
    for (size_t i = 0; i < g->n_rungs; i++) {
        most =
            GEM_MAX(most, fak_num(gem_json_get(g->rungs[i], "expected"), "roof_tokens_per_second"));
        most = GEM_MAX(most, fak_num(gem_json_get(g->rungs[i], "witnessed"), "tokens_per_second"));
    }
    gem_bytes_printf(out,
                     "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"expected "
                     "ranges and witnessed values of the rungs\">",
                     WIDTH, HEIGHT);
    double top = scale(out, most, "tokens per second"),
           width = (double)(WIDTH - LEFT - RIGHT) / (double)g->n_rungs;
    for (size_t i = 0; i < g->n_rungs; i++) {
        const gem_json *e = gem_json_get(g->rungs[i], "expected"),
                       *w = gem_json_get(g->rungs[i], "witnessed");
        double x = LEFT + width * (double)i,
               roof = height_of(fak_num(e, "roof_tokens_per_second"), top);
        gem_bytes_printf(out, "<rect class=\"expected\"");
        attribute(out, "x", x + width * 0.3);
        attribute(out, "y", roof);
        attribute(out, "width", width * 0.4);
        attribute(out, "height",
                  GEM_MAX(height_of(fak_num(e, "floor_tokens_per_second"), top) - roof, 1.0));
        gem_bytes_printf(out, "><title>expected, a hypothesis</title></rect>");
        if (w->type != GEM_JSON_NULL) {
            double y = height_of(fak_num(w, "tokens_per_second"), top);
            line(out, "witnessed", x + width * 0.25, y, x + width * 0.75, y);
        }
        text_at(out, x + width / 2, HEIGHT - 18, "middle", fak_str(g->rungs[i], "id"));
        text_at(out, x + width / 2, HEIGHT - 4, "middle",
                w->type == GEM_JSON_NULL ? "pending" : "witnessed");
    }
    line(out, "comparison", LEFT, height_of(reference, top), WIDTH - RIGHT,
         height_of(reference, top));
    text_at(out, WIDTH - RIGHT, height_of(reference, top) - 4, "end",
            fak_str(comparison, "engine"));
    gem_bytes_printf(out, "</svg>\n<p class=\"key\">Boxes: expected ranges, hypotheses. Thick "
                          "lines: witnessed. Dashed: "
                          "comparison with another engine, never a witness.</p>\n");
}
