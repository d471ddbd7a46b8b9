/* angles.h - rotary position angles (RoFormer, arXiv:2104.09864) of the CPU backend. */
#ifndef GEM_CPU_ANGLES_H
#define GEM_CPU_ANGLES_H

#include "backend/plan.h"

/* freq[n_dims/2]: radians a position for each pair. */
void gem_rope_frequencies(const gem_rope *r, double *freq);
/* |angle| < 2^21 * pi/2 */
void gem_sincos(double angle, float *sn, float *cs);

#endif
