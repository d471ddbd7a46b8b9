/* page_streams.c - the page's part about streamed requests: what people wait for, the first visible
 * event, by the length of the prompt. A request that read its prompt anew and one that found its
 * beginning kept are two different things, and two pictures. */
#include "evidence/page.h"

#include <math.h>
#include <stdlib.h>

static int by_tokens(const void *a, const void *b)
{
    const double x = ((const ev_stream_point *)a)->prompt_tokens,
                 y = ((const ev_stream_point *)b)->prompt_tokens;
    return (x > y) - (x < y);
}

static void number_cell(gem_bytes *out, double v)
{
    gem_bytes_printf(out, "<td class=\"n\">");
    if (isfinite(v)) ev_html_number(out, v);
    gem_bytes_printf(out, "</td>");
}

static void table(gem_bytes *out, const ev_stream_point *pt, size_t n)
{
    gem_bytes_printf(out, "<div class=\"wide\"><table><tr><th>record</th><th>prompt tokens</th>"
                          "<th>of them reused</th><th>first visible event, s</th>"
                          "<th>complete, s</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        gem_bytes_printf(out, "<tr><td>");
        ev_html(out, pt[i].name);
        gem_bytes_printf(out, "</td>");
        number_cell(out, pt[i].prompt_tokens);
        number_cell(out, pt[i].reused_tokens);
        number_cell(out, pt[i].first_seconds);
        number_cell(out, pt[i].complete_seconds);
        gem_bytes_printf(out, "</tr>\n");
    }
    gem_bytes_printf(out, "</table></div>\n");
}

/* Means by length when there are several lengths; else the samples of the one in their order. */
static void picture(gem_bytes *out, const char *label, const ev_stream_point *pt, size_t n,
                    bool reused)
{
    ev_stream_point *own = calloc(n + 1, sizeof(*own));
    double *x = calloc(2 * n + 1, sizeof(*x)), *y = x ? x + n : NULL;
    size_t count = 0, lengths = 0;
    for (size_t i = 0; own && x && i < n; i++)
        if ((pt[i].reused_tokens > 0) == reused && isfinite(pt[i].first_seconds) &&
            isfinite(pt[i].prompt_tokens))
            own[count++] = pt[i];
    for (size_t i = 0; i < count; i++)
        y[i] = own[i].first_seconds;
    const ev_line samples = {"first visible event", y, NULL, count, reused};
    if (count) qsort(own, count, sizeof(*own), by_tokens);
    if (count && own[0].prompt_tokens == own[count - 1].prompt_tokens) {
        ev_plot_lines(out, label, "requests, in order of their names", &samples, 1);
        count = 0;
    }
    for (size_t i = 0; i < count;) {
        double sum = 0;
        size_t k = i;
        for (; k < count && own[k].prompt_tokens == own[i].prompt_tokens; k++)
            sum += own[k].first_seconds;
        x[lengths] = own[i].prompt_tokens;
        y[lengths++] = sum / (double)(k - i);
        i = k;
    }
    const ev_line means = {"mean", y, x, lengths, reused};
    if (lengths) ev_plot_lines(out, label, "tokens of the prompt", &means, 1);
    free(own);
    free(x);
}

void ev_page_streams(gem_bytes *out, const ev_stream_point *pt, size_t n)
{
    if (!n) return;
    gem_bytes_printf(out, "<h2>Streamed requests</h2>\n");
    table(out, pt, n);
    picture(out, "Time to the first visible event, seconds, prompts read anew", pt, n, false);
    picture(out, "Time to the first visible event, seconds, behind a reused beginning", pt, n,
            true);
}
