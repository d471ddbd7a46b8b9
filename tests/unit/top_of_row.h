/* top_of_row.h - the largest logits of a row as gem_top has them, by insertion. */
#ifndef GEM_TEST_TOP_OF_ROW_H
#define GEM_TEST_TOP_OF_ROW_H

#include "backend/backend.h"

#include <math.h>

static inline void top_of_row(const float *x, int32_t n, gem_top *out)
{
    memset(out, 0, sizeof(*out));
    for (int32_t i = 0; i < n; i++) {
        if (isnan(x[i]) || x[i] == INFINITY) {
            out->n = 0;
            return;
        }
        if (out->n == GEM_TOP && !(x[i] > out->logit[GEM_TOP - 1])) continue;
        int32_t at = out->n < GEM_TOP ? out->n++ : GEM_TOP - 1;
        for (; at > 0 && out->logit[at - 1] < x[i]; at--) {
            out->logit[at] = out->logit[at - 1];
            out->id[at] = out->id[at - 1];
        }
        out->logit[at] = x[i] + 0.0f;
        out->id[at] = i;
    }
}

#endif
