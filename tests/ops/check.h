/* check.h - the frame of the differential tests of CPU kernels: cases with a label, data that
 * depends on the label alone, guarded buffers, comparison bit for bit. A failing case prints its
 * label, the first difference and the line that runs just this case. */
#ifndef GEM_TESTS_OPS_CHECK_H
#define GEM_TESTS_OPS_CHECK_H

#include "backend/cpu/kernels.h"

enum { CHECK_MAX_BUFS = 64 };

typedef struct check {
    const gem_cpu_kernels *ref, *isa; /* the oracle, and the table under test (may be the oracle) */
    const char *filter;               /* run only labels that contain it; NULL: all */
    int every, n_labels;              /* run only each every-th of those; 1: all */
    const char *program;
    char label[160];
    uint64_t rng;
    int n_cases, n_failed;
    bool failed; /* the present case */
    struct {
        unsigned char *base;
        size_t size;
    } buf[CHECK_MAX_BUFS];
    int n_bufs;
} check;

/* Start a case; false: filtered out. Ends the case before it. */
bool check_begin(check *c, const char *fmt, ...) GEM_PRINTF(2, 3);
/* Free the case's buffers, and fail it if something wrote outside them. */
void check_end(check *c);

/* Buffer of the case: 64-byte aligned, a guard at both ends, filled with 0xAA. */
void *check_buf(check *c, size_t size);
/* A copy of n bytes in a buffer of the case. */
void *check_copy(check *c, const void *from, size_t size);

uint32_t check_u32(check *c);
int check_int(check *c, int lo, int hi); /* both included */
float check_uniform(check *c, float lo, float hi);
/* Kinds of float data. WIDE: exponents from denormal to 1e30; ODD: also zeros, infinities, NaN. */
typedef enum check_fill { CHECK_UNIFORM, CHECK_WIDE, CHECK_ODD } check_fill;
float *check_floats(check *c, size_t n, check_fill fill, float range);

void check_fail(check *c, const char *fmt, ...) GEM_PRINTF(2, 3);
/* Equal bits, or NaN on both sides (which NaN differs between instruction forms). */
void check_same_floats(check *c, const char *what, const float *got, const float *want, size_t n);
void check_same_bytes(check *c, const char *what, const void *got, const void *want, size_t n);
/* |got - want| <= bound */
void check_near(check *c, const char *what, size_t i, double got, double want, double bound);

/* The tests: ops_<group>.c */
void ops_linear(check *c);
void ops_rows(check *c);
void ops_attend(check *c);
void ops_delta(check *c);

#endif
