/* findings.h - what is wrong with a document: a code, an RFC 6901 pointer and one sentence. Every
 * rule reports here; the command prints them sorted, so the order of the rules never shows. */
#ifndef GEM_FAK_FINDINGS_H
#define GEM_FAK_FINDINGS_H

#include "base/json_reader.h"

typedef struct fak_finding {
    char *line; /* "CODE POINTER: text", owned */
    size_t code_len, pointer_len;
} fak_finding;

typedef struct fak_findings {
    fak_finding *v; /* owned */
    size_t n, cap;
    const char *prefix; /* put before every pointer, e.g. "baseline#"; NULL none; borrowed */
    bool failed;        /* out of memory: the list is incomplete, treat as a failure */
} fak_findings;

/* Report `code` at value `at` (NULL or a root: "-"). */
void fak_find(fak_findings *f, const char *code, const gem_json *at, const char *fmt, ...)
    GEM_PRINTF(4, 5);
/* The same at member `member` of `at`, whether it exists or not. */
void fak_find_in(fak_findings *f, const char *code, const gem_json *at, const char *member,
                 const char *fmt, ...) GEM_PRINTF(5, 6);
/* The same at item `index` of array `at`. */
void fak_find_item(fak_findings *f, const char *code, const gem_json *at, size_t index,
                   const char *fmt, ...) GEM_PRINTF(5, 6);
/* Sorted bytewise by code, then pointer, then text; equal lines once; each line "PROGRAM: ...\n".
 */
void fak_findings_print(fak_findings *f, const char *program, gem_bytes *out);
void fak_findings_free(fak_findings *f);

#endif
