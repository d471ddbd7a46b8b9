/* report.h - one self-contained page about a folder of evidence. Inside of the command `fak
 * report`. */
#ifndef GEM_FAK_REPORT_H
#define GEM_FAK_REPORT_H

#include "fak/graph.h"

typedef struct fak_entry {
    char *name; /* owned: file name inside the folder */
    fak_doc doc;
    const fak_document *kind; /* NULL: not valid, see findings */
    char digest[FAK_DIGEST_SIZE];
    gem_bytes findings;
    bool listed, matches; /* in MANIFEST.sha256, and with this digest */
} fak_entry;

typedef struct fak_folder {
    fak_entry *entry; /* owned, sorted by name */
    size_t n;
    bool manifest;
    size_t missing; /* names of the manifest that are no file here */
    const fak_graph *graph;
    gem_bytes dot_svg; /* the graph drawn, or empty */
} fak_folder;

void fak_report_page(const fak_folder *folder, gem_bytes *out);

/* ---- pieces ---- */
void fak_html(gem_bytes *out, const char *s);   /* text with < > & " escaped */
void fak_html_number(gem_bytes *out, double v); /* rounded to six significant digits */
/* Throughput of every receipt of one envelope, repetition by repetition. */
void fak_plot_receipts(const fak_folder *folder, const char *envelope_id, gem_bytes *out);
/* Expected ranges against what was witnessed, for the rungs of the first envelope. */
void fak_plot_rungs(const fak_graph *g, gem_bytes *out);

#endif
