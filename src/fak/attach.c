/* attach.c - bind one attestation to the next repetition of a receipt (NPA codes). */
#include "fak/attestation.h"
#include "fak/receipt.h"

/* The receipt in table order, as v2, with one more attestation and its digest at repetition k. */
static void append(gem_json_doc *d, const gem_json *receipt, const gem_json *attestation)
{
    gem_json *root = fak_shape_copy(d, NULL, NULL, &fak_type_receipt, receipt);
    gem_json *list = (gem_json *)gem_json_get(root, "system_baselines");
    gem_json_set_string(d, (gem_json *)gem_json_get(root, "schema"), fak_doc_receipt_v2.schema);
    if (!list) list = gem_json_put(d, root, "system_baselines", GEM_JSON_ARRAY);
    gem_json *rep = (gem_json *)gem_json_at(gem_json_get(root, "repetitions"), list->n);
    fak_shape_copy(d, list, NULL, &fak_type_baseline, attestation);
    if (rep) gem_json_put_string(d, rep, "system_baseline_digest", fak_str(attestation, "digest"));
}

bool fak_receipt_attach(const fak_graph *g, const gem_json *receipt, const gem_json *attestation,
                        gem_bytes *out, fak_findings *f)
{
    const char *digest = fak_str(attestation, "digest");
    size_t before = f->n;
    f->prefix = "receipt#";
    fak_receipt_validate(g, receipt, 0, f);
    f->prefix = "attestation#";
    fak_attestation_validate(attestation, f);
    if (fak_count(attestation, "top_non_sut_consumers"))
        fak_find_in(f, "NPA-003", attestation, "top_non_sut_consumers",
                    "names of other processes stay out of receipts");
    for (const gem_json *a = fak_list(receipt, "system_baselines"); a; a = a->next)
        if (strcmp(fak_str(a, "digest"), digest) == 0) {
            fak_find_in(f, "NPA-002", attestation, "digest",
                        "attestation %zu of the receipt is the same", a->index);
            break;
        }
    f->prefix = "receipt#";
    if (fak_count(receipt, "system_baselines") >= fak_count(receipt, "repetitions"))
        fak_find_in(f, "NPA-001", receipt, "system_baselines",
                    "every repetition has its attestation already");
    if (f->n != before || f->failed) return false;

    gem_json_doc *d = gem_json_new();
    if (!d) {
        f->failed = true;
        return false;
    }
    append(d, receipt, attestation);
    if (gem_json_failed(d)) f->failed = true;
    if (!f->failed) {
        fak_receipt_validate(g, gem_json_root(d), 0, f);
        gem_json_write(out, gem_json_root(d));
    }
    gem_json_free(d);
    return f->n == before && !f->failed && !out->failed;
}
