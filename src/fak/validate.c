/* validate.c - see validate.h. */
#include "fak/validate.h"

#include "fak/attestation.h"
#include "fak/gate.h"
#include "fak/profile.h"
#include "fak/receipt.h"

static void rules(const fak_graph *g, const fak_document *d, const gem_json *root, fak_findings *f)
{
    if (d == &fak_doc_graph) {
        fak_graph other;
        if (fak_graph_init(&other, root))
            fak_graph_validate(&other, f);
        else
            f->failed = true;
        fak_graph_free(&other);
    } else if (d == &fak_doc_receipt_v1 || d == &fak_doc_receipt_v2) {
        fak_receipt_validate(g, root, 0, f);
    } else if (d == &fak_doc_request_v1 || d == &fak_doc_request_v2) {
        fak_request_validate(g, root, f);
    } else if (d == &fak_doc_policy_v1 || d == &fak_doc_policy_v2) {
        fak_policy_validate(g, root, f);
    } else if (d == &fak_doc_profile) {
        fak_profile_validate(g, root, f);
    } else if (d == &fak_doc_baseline_v1 || d == &fak_doc_baseline_v2) {
        fak_attestation_validate(root, f);
    }
}

const fak_document *fak_validate_document(const fak_graph *g, const fak_doc *d, fak_findings *f)
{
    const gem_json *schema = gem_json_get(d->root, "schema");
    const fak_document *kind = schema ? fak_document_by_schema(schema) : NULL;
    size_t before = f->n;
    if (d->root->type != GEM_JSON_OBJECT)
        fak_find(f, "NPJ-006", d->root, "an object was expected");
    else if (!schema)
        fak_find_in(f, "NPJ-005", d->root, "schema", "this member is missing");
    else if (schema->type != GEM_JSON_STRING)
        fak_find(f, "NPJ-006", schema, "a string was expected");
    else if (!kind)
        fak_find(f, "NPJ-009", schema, "\"%s\" is no schema of this program", schema->text);
    else if ((kind == &fak_doc_baseline_v1 || kind == &fak_doc_baseline_v2) &&
             d->raw.len > FAK_MAX_ATTESTATION)
        fak_find(f, "NPI-003", NULL, "an attestation of more than %d bytes", FAK_MAX_ATTESTATION);
    else
        fak_shape_check(f, kind->type, d->root);
    if (f->n == before) rules(g, kind, d->root, f);
    return f->n == before && !f->failed ? kind : NULL;
}
