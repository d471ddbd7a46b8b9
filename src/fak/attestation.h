/* attestation.h - judging a recorded system baseline: the verdict follows from the recorded numbers
 * and policy alone, so whoever edits a file and seals it anew is still refused (SBV codes). The
 * sampler that records them is sampler.h; both use the same evaluation. */
#ifndef GEM_FAK_ATTESTATION_H
#define GEM_FAK_ATTESTATION_H

#include "fak/doc.h"

enum { FAK_MAX_CONSUMERS = 5, FAK_MAX_VERDICT_CODES = 24 };

typedef struct fak_verdict {
    const char *code[FAK_MAX_VERDICT_CODES]; /* in evaluation order, static strings */
    const char *detail[FAK_MAX_VERDICT_CODES];
    size_t n;
    const char *word; /* clean, investigate or invalid */
} fak_verdict;

/* The rules over a decoded attestation. */
void fak_attestation_evaluate(const gem_json *a, fak_verdict *v);

typedef enum fak_hashing { FAK_HASH_NONE, FAK_HASH_RFC8785, FAK_HASH_UPSTREAM } fak_hashing;
/* Which hashing the recorded digest verifies under. */
fak_hashing fak_attestation_hashing(const gem_json *a);
/* Every rule; findings SBV-001..015. */
void fak_attestation_validate(const gem_json *a, fak_findings *f);
/* Are these the bytes that the program writes for this document (indented or canonical)? */
bool fak_attestation_as_written(const gem_json *a, const char *data, size_t len);

bool fak_metric_available(const gem_json *metric);
/* Exact coverage words need no opt-in at the gate. */
bool fak_coverage_exact(const char *word);
bool fak_coverage_known(const gem_json *a, const char *word);

#endif
