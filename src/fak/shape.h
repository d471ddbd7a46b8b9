/* shape.h - which members a document has, in which order and of which type. One table a document
 * (shapes.c) drives the strict decoder, the order of written members and the shipped JSON Schemas.
 */
#ifndef GEM_FAK_SHAPE_H
#define GEM_FAK_SHAPE_H

#include "fak/findings.h"

typedef enum fak_kind {
    FAK_STRING,
    FAK_INT,    /* the token -?(0|[1-9][0-9]*), within +-(2^53-1) */
    FAK_NUMBER, /* finite */
    FAK_BOOL,
    FAK_OBJECT,
    FAK_ARRAY,
    FAK_ANY,    /* not looked at here */
    FAK_VARIANT /* one of several objects, told apart by their `schema` member */
} fak_kind;

enum {
    FAK_OPTIONAL = 1, /* may be left out */
    FAK_NULLABLE = 2, /* may be null */
    FAK_V2 =
        4, /* absent from the JSON Schema of the v1 document; the decoder leaves it to the rules */
    FAK_LEGACY = 8 /* known to the decoder so that a rule can refuse it by its own code */
};

typedef struct fak_type fak_type;
typedef struct fak_member {
    const char *name; /* NULL ends the list */
    const fak_type *type;
    unsigned flags;
} fak_member;

/* A document with a name: graph.v2, receipt.v1, ... */
typedef struct fak_document {
    const char *name;   /* as --schema takes it */
    const char *schema; /* value of the member `schema`; NULL when the document has none */
    const fak_type *type;
    unsigned hidden; /* members with these flags are not in its JSON Schema */
} fak_document;

struct fak_type {
    fak_kind kind;
    const fak_member *members; /* OBJECT */
    const fak_type *item;      /* ARRAY */
    const fak_document *const
        *choice; /* VARIANT: NULL-terminated; the last one decodes unknown schemas */
};

extern const fak_document fak_doc_graph, fak_doc_receipt_v1, fak_doc_receipt_v2, fak_doc_comparison,
    fak_doc_request_v1, fak_doc_request_v2, fak_doc_policy_v1, fak_doc_policy_v2, fak_doc_verdict,
    fak_doc_bisect, fak_doc_profile, fak_doc_bottleneck, fak_doc_profile_next, fak_doc_baseline_v1,
    fak_doc_baseline_v2;
/* All documents, in the order of the specification; NULL-terminated. */
extern const fak_document *const fak_documents[];
extern const fak_type fak_type_receipt;  /* v1 or v2 */
extern const fak_type fak_type_baseline; /* attestation v1 or v2 */
extern const fak_type fak_type_policy;

const fak_document *fak_document_by_name(const char *name);
const fak_document *fak_document_by_schema(const gem_json *schema); /* NULL when unknown */

/* Report every unknown, missing, mistyped, overflowing and out-of-range member of v (NPJ-004..008).
 */
void fak_shape_check(fak_findings *f, const fak_type *type, const gem_json *v);
/* Copy v into doc with the members of every object in the order of the table. v passed the check.
 */
gem_json *fak_shape_copy(gem_json_doc *doc, gem_json *parent, const char *name,
                         const fak_type *type, const gem_json *v);
/* The JSON Schema (draft 2020-12) of a document. */
void fak_schema_write(gem_bytes *out, const fak_document *d);

#endif
