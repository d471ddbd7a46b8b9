/* families.h - the families of this build, for registry.c; one line each. */
#ifndef GEM_FAMILIES_H
#define GEM_FAMILIES_H

#include "model/model.h"

extern const gem_family gem_family_gemma3;
extern const gem_family gem_family_gemma4;
extern const gem_family gem_family_qwen2;
extern const gem_family gem_family_qwen35;
extern const gem_beside gem_beside_gemma4_assistant;

#endif
