/* page.h - a folder of evidence as one HTML page for people who would rather look than read: the
 * verdicts first, then every report with its checks and pictures, then the measurements. No script,
 * no outside resource, no clock: the same folder gives the same bytes. */
#ifndef GEM_EVIDENCE_PAGE_H
#define GEM_EVIDENCE_PAGE_H

#include "evidence/manifest.h"

typedef struct ev_page_counts {
    size_t files, documents, reports, refused;
    bool sealed, intact;
} ev_page_counts;

/* Append the page about `dir`. title: what it is called at the top. */
gem_status ev_page(gem_bytes *out, const char *dir, const char *title, ev_page_counts *counts,
                   gem_error *err);

/* ---- parts of it (evidence_plot.c) ---- */
void ev_html(gem_bytes *out, const char *text); /* escaped */
void ev_html_number(gem_bytes *out, double v);  /* whole ones below 1e9 as they are, else
                                                   five digits */

typedef struct ev_line {
    const char *name; /* borrowed */
    const double *y;  /* borrowed, [n] in order of time */
    const double *x;  /* borrowed, [n]; NULL: one behind the other, lines in the order given */
    size_t n;
    int colour; /* 0..3 */
} ev_line;
/* Raw samples as dots with a line through each arm's mean. The scale need not begin at zero; the
 * plot says so. Without x, arms stand side by side: the order of time. */
void ev_plot_lines(gem_bytes *out, const char *label, const char *x_label, const ev_line *line,
                   size_t n);

typedef struct ev_bar {
    const char *name; /* borrowed */
    double value;
    int colour;
} ev_bar;
/* Horizontal bars from zero. */
void ev_plot_bars(gem_bytes *out, const char *label, const ev_bar *bar, size_t n);

/* ---- streamed requests (page_streams.c) ---- */
typedef struct ev_stream_point {
    const char *name; /* borrowed: of the record */
    double prompt_tokens, reused_tokens, first_seconds, complete_seconds;
} ev_stream_point;
/* A table and, by tokens of the prompt, pictures of the time to the first visible event. Nothing
 * for n 0. */
void ev_page_streams(gem_bytes *out, const ev_stream_point *pt, size_t n);

/* ---- profiles (page_profiles.c) ---- */
/* Pictures of a decode or attention profile; nothing for other documents. */
void ev_page_profile(gem_bytes *out, const char *name, const char *schema, const gem_json *d);

#endif
