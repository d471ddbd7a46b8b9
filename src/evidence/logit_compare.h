/* logit_compare.h - a vector of logits beside the one of another engine. */
#ifndef GEM_EVIDENCE_LOGIT_COMPARE_H
#define GEM_EVIDENCE_LOGIT_COMPARE_H

#include "evidence/judge.h"

enum { EV_TOP = 10 };

typedef struct ev_logit_difference {
    bool finite;                                    /* every value of both */
    size_t top_ours[EV_TOP], top_reference[EV_TOP]; /* largest first; ties: the lower id first */
    size_t n_top;                                   /* EV_TOP, or fewer for a smaller vocabulary */
    bool same_argmax, same_top_set, same_top_order;
    double correlation; /* Pearson's */
    double nmse;        /* sum (ours - reference)^2 / sum reference^2 */
    double largest;     /* absolute difference */
    size_t largest_at;
} ev_logit_difference;

/* ours, reference: f32[n], n >= 1. When a value is not finite only `finite` is filled in. */
void ev_logits_compare(ev_logit_difference *out, const float *ours, const float *reference,
                       size_t n);

typedef struct ev_logit_limits {
    double least_correlation, most_nmse;
} ev_logit_limits;

/* Judge two descriptions ("FILE.json" beside raw little-endian F32 rows in "FILE", as `gem logits`
 * writes them): the same token ids first; only then, row by row, finite values, the same argmax and
 * top-10 set, and the limits. Rules: schema, token-ids, positions, shape, raw-file, finite, argmax,
 * top-10, correlation, nmse. */
gem_status ev_judge_logits(ev_judge *j, const ev_doc *native, const ev_doc *reference,
                           const ev_logit_limits *limits, gem_error *err);

#endif
