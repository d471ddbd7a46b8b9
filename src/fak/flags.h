/* flags.h - command lines: --name value, --name=value, one dash too; every refusal is a finding. */
#ifndef GEM_FAK_FLAGS_H
#define GEM_FAK_FLAGS_H

#include "fak/findings.h"

typedef struct fak_flag {
    const char *name; /* without dashes; NULL ends the table */
    bool takes_value;
    bool many;         /* may be repeated; values are joined in *list */
    bool present;      /* out */
    const char *value; /* out, borrowed from argv */
} fak_flag;

/* Codes of one command: unknown flag, missing or empty value, repeated flag, positional argument,
 * value given to a flag that takes none. */
typedef struct fak_flag_codes {
    const char *unknown, *value, *repeated, *positional, *bad;
} fak_flag_codes;

/* Parse until "--" (left in place) or the end; returns the index of what follows "--", or argc.
 * positional: out array of argc entries for arguments without a dash, NULL: they are findings. */
int fak_flags_parse(fak_flag *flags, int argc, char **argv, const fak_flag_codes *codes,
                    const char **positional, int *n_positional, fak_findings *f);

#endif
