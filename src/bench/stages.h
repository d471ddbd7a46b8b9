/* stages.h - the nine stages of a layer, which ops belong to which, and the time of each from a
 * traced run. The order and the names are those of the protocol (docs/benchmarking.md). */
#ifndef GEM_BENCH_STAGES_H
#define GEM_BENCH_STAGES_H

#include "backend/backend.h"

#include <jansson.h>

typedef enum bench_stage {
    BENCH_INPUT_NORM, /* of the first layer; later ones are done by the residual before them */
    BENCH_QKV_PROJECTION,
    BENCH_QK_NORM_ROPE_APPEND, /* recurrent layers: the short convolution */
    BENCH_ATTENTION,           /* recurrent layers: the delta rule */
    BENCH_ATTENTION_OUTPUT,
    BENCH_ATTENTION_RESIDUAL,
    BENCH_FFN_GATE_UP, /* with the activation */
    BENCH_FFN_DOWN,
    BENCH_FFN_RESIDUAL,
    BENCH_STAGES,
    BENCH_EMBED = BENCH_STAGES, /* once a pass */
    BENCH_HEAD,
    BENCH_ALL_STAGES
} bench_stage;

extern const char *const bench_stage_names[BENCH_ALL_STAGES];

/* "sliding", "full" or "recurrent". */
const char *bench_layer_kind(const gem_plan *p, int layer);
json_t *bench_layer_kinds_json(const gem_plan *p); /* a list, by layer */
/* {"total", "sliding", "full", "recurrent"} */
json_t *bench_layers_json(const gem_plan *p);
json_t *bench_stages_json(void); /* the nine names */

/* Stage of every op of the model's program, stage[plan->n_ops]; false when the plan has an order of
 * ops that the nine stages do not describe. */
bool bench_stages_of(const gem_plan *p, bench_stage *stage);

/* The time of each stage of each layer: ns[n_layers][BENCH_STAGES], and of embedding and head. */
typedef struct bench_stage_times {
    uint64_t *ns; /* owned, [n_layers * BENCH_STAGES] */
    uint64_t embed_ns, head_ns, wall_ns;
} bench_stage_times;
gem_status bench_stage_times_of(bench_stage_times *out, const gem_plan *p, const bench_stage *stage,
                                const uint64_t *op_ns, uint64_t wall_ns, gem_error *err);
/* [layer][stage]; new reference. */
json_t *bench_stage_matrix_json(const bench_stage_times *t, const gem_plan *p);

#endif
