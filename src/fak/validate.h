/* validate.h - any document of this room, chosen by its schema member. */
#ifndef GEM_FAK_VALIDATE_H
#define GEM_FAK_VALIDATE_H

#include "fak/graph.h"

/* Shape and rules of a parsed document (d->root is set, its shape is not checked yet). Returns its
 * kind, or NULL when findings were added: NPJ-005, -006, -009 and the document's own codes. */
const fak_document *fak_validate_document(const fak_graph *g, const fak_doc *d, fak_findings *f);

#endif
