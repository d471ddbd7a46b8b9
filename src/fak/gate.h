/* gate.h - may this candidate replace what was last accepted? A policy, two receipts, one verdict:
 * pass, investigate or regression. Bad evidence never passes and never blames a revision. */
#ifndef GEM_FAK_GATE_H
#define GEM_FAK_GATE_H

#include "fak/graph.h"

typedef enum fak_gate_class {
    FAK_GATE_REFUSED,
    FAK_GATE_PASS,
    FAK_GATE_REGRESSION,
    FAK_GATE_INVESTIGATE
} fak_gate_class;

/* Rules of a policy alone (NPQ-003..007, 013). `request_v1`: the request that carries it is v1. */
void fak_policy_validate(const fak_graph *g, const gem_json *policy, fak_findings *f);
/* All structural rules of a request (NPQ, NPR). */
void fak_request_validate(const fak_graph *g, const gem_json *request, fak_findings *f);
/* Validate and judge; the verdict document goes to out unless refused. */
fak_gate_class fak_gate(const fak_graph *g, const gem_json *request, gem_bytes *out,
                        fak_findings *f);

/* Do the attestations of both arms qualify (section 6.2)? Writes one sentence. */
bool fak_gate_evidence(const gem_json *policy, const gem_json *accepted, const gem_json *candidate,
                       gem_bytes *detail);

#endif
