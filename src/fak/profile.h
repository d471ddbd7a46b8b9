/* profile.h - profile bundles: phases and counters of one captured run, and which limit they show.
 * Profiles say why a run is limited; only receipts may claim a gain. */
#ifndef GEM_FAK_PROFILE_H
#define GEM_FAK_PROFILE_H

#include "fak/graph.h"

/* Every rule of a bundle (NPP-001..024, NPR-005, NPR-022). */
void fak_profile_validate(const fak_graph *g, const gem_json *p, fak_findings *f);
/* Validate and classify; the bottleneck document goes to out. False: findings. */
bool fak_profile_classify(const fak_graph *g, const gem_json *p, gem_bytes *out, fak_findings *f);
/* Classify and give the recommended lever, or refuse (NPP-040, NPP-041). */
bool fak_profile_next(const fak_graph *g, const gem_json *p, gem_bytes *out, fak_findings *f);

#endif
