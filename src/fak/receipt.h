/* receipt.h - experiment receipts: one arm of one lever on one envelope. Validation of one receipt
 * (NPR codes), the template to fill, attachment of attestations (NPA), comparison of two (NPC). */
#ifndef GEM_FAK_RECEIPT_H
#define GEM_FAK_RECEIPT_H

#include "fak/graph.h"

enum {
    FAK_SKIP_EXECUTION = 1, /* engine, path and fallback are judged by the gate's own checks */
    FAK_SKIP_BASELINES = 2  /* so are the embedded attestations */
};
void fak_receipt_validate(const fak_graph *g, const gem_json *r, unsigned skip, fak_findings *f);

/* The deliberately invalid receipt of a lever. */
void fak_receipt_template(const gem_json *lever, const gem_json *envelope, gem_bytes *out);

/* Receipt with the attestation appended at the next free repetition; both documents are decoded.
 * False: findings were added and nothing was written. */
bool fak_receipt_attach(const fak_graph *g, const gem_json *receipt, const gem_json *attestation,
                        gem_bytes *out, fak_findings *f);

/* Drift between two arms; skip as above. Findings go to f at members of `candidate`, with `code`.
 */
void fak_receipt_drift(const gem_json *baseline, const gem_json *candidate, unsigned skip,
                       const char *code, fak_findings *f);
/* Comparison document of two valid receipts; false: NPC findings were added. */
bool fak_receipt_compare(const gem_json *baseline, const gem_json *candidate, gem_bytes *out,
                         fak_findings *f);

/* ---- statistics over tokens_per_second, sums left to right ---- */
typedef struct fak_stats {
    size_t n;
    double mean, median, minimum, maximum, stddev, cv_percent; /* population form: divide by n */
} fak_stats;
bool fak_stats_of(const gem_json *receipt, fak_stats *s); /* false when out of memory */
/* Smaller U and exact two-sided p of Mann-Whitney; false when ties or n > 20 rule the exact form
 * out. */
bool fak_mann_whitney(const double *a, size_t na, const double *b, size_t nb, double *u, double *p);

#endif
