/* fak.h - the commands of the program `fak`; src/cmd/fak.c calls them. Each takes the arguments
 * behind its own name and returns the exit status; output is in io->out and io->err. */
#ifndef GEM_FAK_FAK_H
#define GEM_FAK_FAK_H

#include "fak/doc.h"

/* 0 done; 1 the input does not hold; 2 usage; 3 gate regression; 4 gate investigate. */
int fak_native_performance(int argc, char **argv, fak_io *io);
/* `system-baseline`: the child's own status, or 124..127, 128+signal; see docs/evidence.md. Writes
 * the command's output to file descriptors directly while it runs. */
int fak_system_baseline(int argc, char **argv, fak_io *io);
int fak_receipt_fill(int argc, char **argv, fak_io *io);
int fak_report(int argc, char **argv, fak_io *io);

extern const char fak_native_performance_help[], fak_system_baseline_help[],
    fak_receipt_fill_help[], fak_report_help[];

#endif
