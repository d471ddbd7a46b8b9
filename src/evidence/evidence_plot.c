/* evidence_plot.c - SVG of the page: dots in time, bars. */
#include "evidence/page.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

void ev_html(gem_bytes *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        const char *name = c == '<'   ? "&lt;"
                           : c == '>' ? "&gt;"
                           : c == '&' ? "&amp;"
                           : c == '"' ? "&quot;"
                                      : NULL;
        if (name)
            gem_bytes_put(out, name, strlen(name));
        else
            gem_bytes_put(out, c < 0x20 && c != '\n' ? " " : s, 1);
    }
}

void ev_html_number(gem_bytes *out, double v)
{
    char rounded[40], text[32];
    double r = v;
    if (fabs(v) >= 1e9 || v != floor(v)) { /* else it counts something */
        snprintf(rounded, sizeof(rounded), "%.5g", v);
        sscanf(rounded, "%lf", &r);
    }
    gem_json_number(text, r);
    gem_bytes_put(out, text, strlen(text));
}

enum {
    WIDTH = 960,
    HEIGHT = 240,
    LEFT = 84,
    RIGHT = 16,
    TOP = 26,
    BOTTOM = 42,
    ROW = 22,
    NAMES = 260
};

typedef struct scale {
    double low, high; /* data */
    double from, to;  /* picture */
} scale;

static double at(const scale *s, double v)
{
    return s->from + (v - s->low) / (s->high - s->low) * (s->to - s->from);
}

/* A step of 1, 2 or 5 times a power of ten that divides the span into at most `most` parts. */
static double nice_step(double span, int most)
{
    double step = pow(10, floor(log10(span / most)));
    while (span / step > most)
        step *= span / (step * 2) <= most ? 2 : span / (step * 5) <= most ? 5 : 10;
    return step;
}

/* Round outwards to whole steps; a span of nothing gets one around the value. */
static double widen(scale *s)
{
    double span = s->high - s->low, least = fabs(s->high) * 0.01;
    if (!(span > least)) {
        double mid = (s->high + s->low) / 2;
        span = least > 0 ? least : 1;
        s->low = mid - span / 2;
        s->high = mid + span / 2;
    }
    double step = nice_step(span, 5);
    s->low = floor(s->low / step) * step;
    s->high = ceil(s->high / step) * step;
    return step;
}

static void text_at(gem_bytes *out, double x, double y, const char *anchor, const char *s)
{
    gem_bytes_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    ev_html(out, s);
    gem_bytes_printf(out, "</text>");
}

static void number_at(gem_bytes *out, double x, double y, const char *anchor, double v)
{
    gem_bytes b = {0};
    ev_html_number(&b, v);
    text_at(out, x, y, anchor, b.data ? b.data : "");
    gem_bytes_free(&b);
}

static void begin(gem_bytes *out, int height, const char *label)
{
    gem_bytes_printf(out,
                     "<figure><svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                     WIDTH, height);
    ev_html(out, label);
    gem_bytes_printf(out, "\">");
    text_at(out, 4, 16, "start", label);
}

static void grid(gem_bytes *out, const scale *y, double step)
{
    for (double v = y->low; v <= y->high + step / 2; v += step) {
        double p = at(y, v);
        gem_bytes_printf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                         LEFT, WIDTH - RIGHT, p, p);
        number_at(out, LEFT - 6, p + 4, "end", fabs(v) < step * 1e-9 ? 0 : v);
    }
}

/* Dots of one line; those of even colours round, of odd ones square: told apart without colour. */
static void dots(gem_bytes *out, const ev_line *l, const scale *y, const scale *x, double first)
{
    for (size_t i = 0; i < l->n; i++) {
        double px = at(x, l->x ? l->x[i] : first + (double)i), py = at(y, l->y[i]);
        if (l->colour % 2)
            gem_bytes_printf(out,
                             "<rect class=\"c%d\" x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\">",
                             l->colour, px - 3.5, py - 3.5);
        else
            gem_bytes_printf(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\">",
                             l->colour, px, py);
        gem_bytes_printf(out, "<title>");
        ev_html(out, l->name);
        gem_bytes_printf(out, ": ");
        ev_html_number(out, l->y[i]);
        gem_bytes_printf(out, "</title></%s>", l->colour % 2 ? "rect" : "circle");
    }
}

static void mean_line(gem_bytes *out, const ev_line *l, const scale *y, const scale *x,
                      double first)
{
    double sum = 0;
    for (size_t i = 0; i < l->n; i++)
        sum += l->y[i];
    double p = at(y, sum / (double)l->n), a = at(x, first - 0.3),
           b = at(x, first + (double)l->n - 0.7);
    gem_bytes_printf(out, "<line class=\"m%d\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                     l->colour, a, b, p, p);
    text_at(out, (a + b) / 2, HEIGHT - 24, "middle", l->name);
}

static void path(gem_bytes *out, const ev_line *l, const scale *y, const scale *x)
{
    gem_bytes_printf(out, "<polyline class=\"m%d\" points=\"", l->colour);
    for (size_t i = 0; i < l->n; i++)
        gem_bytes_printf(out, "%.1f,%.1f ", at(x, l->x[i]), at(y, l->y[i]));
    gem_bytes_printf(out, "\"/>");
    if (l->n) text_at(out, at(x, l->x[l->n - 1]) - 8, at(y, l->y[l->n - 1]) - 8, "end", l->name);
}

void ev_plot_lines(gem_bytes *out, const char *label, const char *x_label, const ev_line *line,
                   size_t n)
{
    scale y = {DBL_MAX, -DBL_MAX, HEIGHT - BOTTOM, TOP + 4},
          x = {DBL_MAX, -DBL_MAX, LEFT + 20, WIDTH - RIGHT - 20};
    double first = 0, total = 0;
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < line[k].n; i++) {
            y.low = fmin(y.low, line[k].y[i]);
            y.high = fmax(y.high, line[k].y[i]);
            if (!line[k].x) continue;
            x.low = fmin(x.low, line[k].x[i]);
            x.high = fmax(x.high, line[k].x[i]);
        }
        total += (double)line[k].n + 1;
    }
    if (!(y.high >= y.low)) return;
    if (!(x.high >= x.low)) {
        x.low = 0;
        x.high = total - 1;
    }
    if (x.high <= x.low) x.high = x.low + 1;
    double step = widen(&y);
    begin(out, HEIGHT, label);
    grid(out, &y, step);
    for (size_t k = 0; k < n; k++) {
        if (line[k].x)
            path(out, &line[k], &y, &x);
        else if (line[k].n)
            mean_line(out, &line[k], &y, &x, first + 0.5);
        dots(out, &line[k], &y, &x, first + 0.5);
        for (size_t i = 0; line[k].x && k == 0 && i < line[k].n; i++)
            number_at(out, at(&x, line[k].x[i]), HEIGHT - 24, "middle", line[k].x[i]);
        first += (double)line[k].n + 1;
    }
    text_at(out, WIDTH - RIGHT, HEIGHT - 6, "end", x_label);
    gem_bytes_printf(out, "</svg>%s</figure>\n",
                     y.low > 0 ? "<figcaption>The scale does not begin at zero.</figcaption>" : "");
}

void ev_plot_bars(gem_bytes *out, const char *label, const ev_bar *bar, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, bar[i].value);
    if (!(most > 0)) return;
    begin(out, TOP + ROW * (int)n + 8, label);
    for (size_t i = 0; i < n; i++) {
        double y = TOP + ROW * (double)i, w = bar[i].value / most * (WIDTH - NAMES - 110);
        text_at(out, NAMES - 8, y + 15, "end", bar[i].name);
        gem_bytes_printf(out,
                         "<rect class=\"c%d\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>",
                         bar[i].colour, NAMES, y + 2, fmax(w, 1), ROW - 6);
        number_at(out, NAMES + w + 6, y + 15, "start", bar[i].value);
    }
    gem_bytes_printf(out, "</svg></figure>\n");
}
