/* graph.h - the evidence graph: envelopes that never mix, levers with their edges, what is expected
 * and what is witnessed. Validation runs every rule (NPG codes); views print it. */
#ifndef GEM_FAK_GRAPH_H
#define GEM_FAK_GRAPH_H

#include "fak/doc.h"

typedef struct fak_graph {
    const gem_json *root;                                      /* borrowed from the document */
    const gem_json **envelopes, **levers, **rungs, **features; /* owned arrays of borrowed nodes */
    size_t n_envelopes, n_levers, n_rungs, n_features;
    struct fak_id *lever_index, *envelope_index; /* owned, sorted by id */
} fak_graph;

/* The graph that is built into the program: data/native-performance/graph.json. */
extern const unsigned char fak_graph_data[];
extern const size_t fak_graph_data_len;

/* Index a decoded graph. False when out of memory. */
bool fak_graph_init(fak_graph *g, const gem_json *root);
void fak_graph_free(fak_graph *g);
/* Run every rule; findings NPG-001..038. The graph may be used further only if none was added. */
void fak_graph_validate(const fak_graph *g, fak_findings *f);

const gem_json *fak_graph_lever(const fak_graph *g, const char *id);    /* NULL when unknown */
const gem_json *fak_graph_envelope(const fak_graph *g, const char *id); /* NULL when unknown */
const gem_json *fak_lever_envelope(const fak_graph *g, const gem_json *lever);
bool fak_envelope_unresolved(const gem_json *envelope);
bool fak_issue_placeholder(const char *s, const char *what); /* issue-N-pinned-<what> */
bool fak_bottleneck_class(const char *s);                    /* one of the five closed words */

/* First disabled, unwitnessed lever in file order whose dependencies are all enabled; of one
 * envelope when envelope_id is not NULL. NULL: none left. */
const gem_json *fak_graph_next(const fak_graph *g, const char *envelope_id);

void fak_graph_human(const fak_graph *g, gem_bytes *out);
void fak_graph_print_next(const fak_graph *g, const gem_json *lever, gem_bytes *out);
void fak_graph_dot(const fak_graph *g, gem_bytes *out);
/* "a,b" or "-": items of a string list. */
void fak_join(gem_bytes *out, const gem_json *list);
/* Text into a line: control characters as \u00xx. */
void fak_put_text(gem_bytes *out, const char *s);

#endif
