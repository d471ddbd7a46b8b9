/* graph_rules.h - inside of the graph: the id index, and the rules that graph_validate.c calls. */
#ifndef GEM_FAK_GRAPH_RULES_H
#define GEM_FAK_GRAPH_RULES_H

#include "fak/graph.h"

typedef struct fak_id {
    const char *id;
    size_t index;
} fak_id;
/* Sorted by id, then index. The caller frees. NULL when out of memory. */
fak_id *fak_index_new(const gem_json *const *v, size_t n);
size_t fak_index_find(const fak_id *ids, size_t n, const char *id); /* SIZE_MAX when absent */

/* Edges item -> dependency among n items; reports each loop found at its first member (code). */
void fak_graph_cycles(const gem_json *const *v, size_t n, const fak_id *index, const char *code,
                      fak_findings *f);
/* Values of envelopes, throughputs, ranges and effects: rules over single records. */
void fak_rule_envelope(fak_findings *f, const gem_json *envelope);
void fak_rule_throughput(fak_findings *f, const gem_json *t);
void fak_rule_range(fak_findings *f, const gem_json *range);
void fak_rule_effect(fak_findings *f, const gem_json *effect, const char *code,
                     const char *classification);
void fak_rule_issue(fak_findings *f, const gem_json *issue);
void fak_rule_platform(fak_findings *f, const gem_json *lever, const gem_json *envelope);

#endif
