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
    gem_status (*plan)(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter, gem_error *err);
    /* Files of this family may bring a drafter of their own (plan.h, draft_op): plan writes it too
     * when it is asked to; GEM_E_UNSUPPORTED when this file brings none. */
    bool drafts;
    /* Signs of a broken conversion in a file that has a plan, each a warning that names the symptom
     * to expect. NULL: none are known. */
    void (*warn)(const gem_gguf *g, const gem_log *log);
} gem_family;

/* A drafter in a file of its own, which runs only beside the model it was made for. */
typedef struct gem_beside {
    const char *arch, *target; /* general.architecture of its files; of the model's */
    const gem_manifest *manifest;
    /* Check every key and tensor, and against the target's plan; append the program to it (plan.h,
     * draft_op). Weights stay in g, which the plan borrows. */
    gem_status (*attach)(gem_plan *plan, gem_gguf *g, gem_error *err);
} gem_beside;

/* By general.architecture; GEM_E_UNSUPPORTED names the file's architecture and the supported ones.
 */
gem_status gem_family_find(const gem_family **out, gem_gguf *g, gem_error *err);
const gem_family *gem_family_at(size_t i); /* NULL behind the last */

/* The whole strict check of a file: container is open already; family, manifest, tokenizer sizes,
 * nothing unexplained left over. drafter: with the drafter that the file brings, GEM_E_UNSUPPORTED
 * when it has none. The plan must be freed by the caller on success. */
gem_status gem_model_plan(gem_plan *out, gem_gguf *g, int32_t n_vocab, bool drafter,
                          gem_error *err);
/* The same of a drafter's file, for the model whose plan this is; its program is appended. The
 * caller compares the vocabularies. GEM_E_UNSUPPORTED, GEM_E_FORMAT; the plan may then only be
 * freed. */
gem_status gem_model_plan_beside(gem_plan *plan, gem_gguf *drafter, gem_error *err);
/* Whether a file is such a drafter, by its general.architecture alone. */
bool gem_model_is_beside(const gem_gguf *g);

#endif
