/* model.h - model families: manifest (what a file must hold) and forward pass as a plan. One file a
 * family; registry.c lists them. */
#ifndef GEM_MODEL_FAMILY_H
#define GEM_MODEL_FAMILY_H

#include "backend/plan.h"
#include "model/manifest.h"

enum { GEM_MAX_LAYERS = 512 };

typedef struct gem_family {
    const char *arch; /* general.architecture */
    const gem_manifest *manifest;
    /* Check every key and tensor of the manifest (and mark them), then write the plan.
     * n_vocab is the tokenizer's size. GEM_E_FORMAT names file, key or tensor, value and
     * expectation; GEM_E_UNSUPPORTED names the feature that gem does not run. */
    gem_status (*plan)(gem_plan *out, gem_gguf *g, int32_t n_vocab, gem_error *err);
    /* The same with the drafter that such a file may bring (plan.h, draft_op); NULL: none may.
     * GEM_E_UNSUPPORTED when this file brings none. */
    gem_status (*plan_drafter)(gem_plan *out, gem_gguf *g, int32_t n_vocab, gem_error *err);
    /* Signs of a broken conversion in a file that has a plan, each a warning that names the symptom
     * to expect. NULL: none are known. */
    void (*warn)(const gem_gguf *g, const gem_log *log);
} gem_family;

/* By general.architecture; GEM_E_UNSUPPORTED names the file's architecture and the supported ones.
 */
gem_status gem_family_find(const gem_family **out, gem_gguf *g, gem_error *err);
const gem_family *gem_family_at(size_t i); /* NULL behind the last */

/* The whole strict check of a file: container is open already; family, manifest, tokenizer sizes,
 * nothing unexplained left over. The plan must be freed by the caller on success. */
gem_status gem_model_plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, gem_error *err);
/* The same with the file's own drafter; GEM_E_UNSUPPORTED when it has none. */
gem_status gem_model_plan_drafter(gem_plan *out, gem_gguf *g, int32_t n_vocab, gem_error *err);

#endif
