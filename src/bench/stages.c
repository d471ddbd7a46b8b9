/* stages.c - from ops to stages. */
#include "bench/stages.h"

#include <stdlib.h>

const char *const bench_stage_names[BENCH_ALL_STAGES] = {"input_norm",
                                                         "qkv_projection",
                                                         "qk_norm_rope_append",
                                                         "attention",
                                                         "attention_output",
                                                         "attention_residual",
                                                         "ffn_gate_up",
                                                         "ffn_down",
                                                         "ffn_residual",
                                                         "embed",
                                                         "head"};

const char *bench_layer_kind(const gem_plan *p, int layer)
{
    const gem_kv_layer *l = &p->layer[layer];
    return l->n_kv_heads == 0 ? "recurrent" : l->window ? "sliding" : "full";
}

json_t *bench_layer_kinds_json(const gem_plan *p)
{
    json_t *list = json_array();
    for (int l = 0; l < p->n_layers; l++)
        json_array_append_new(list, json_string(bench_layer_kind(p, l)));
    return list;
}

json_t *bench_layers_json(const gem_plan *p)
{
    int sliding = 0, full = 0, recurrent = 0;
    for (int l = 0; l < p->n_layers; l++) {
        recurrent += p->layer[l].n_kv_heads == 0;
        sliding += p->layer[l].n_kv_heads > 0 && p->layer[l].window > 0;
        full += p->layer[l].n_kv_heads > 0 && p->layer[l].window == 0;
    }
    return json_pack("{s:i, s:i, s:i, s:i}", "total", p->n_layers, "sliding", sliding, "full", full,
                     "recurrent", recurrent);
}

json_t *bench_stages_json(void)
{
    json_t *list = json_array();
    for (int i = 0; i < BENCH_STAGES; i++)
        json_array_append_new(list, json_string(bench_stage_names[i]));
    return list;
}

/* What a product is follows from the last op of the layer that was none. */
static bool stage_of(const gem_op *op, bench_stage before, bench_stage *out)
{
    switch (op->kind) {
    case GEM_OP_EMBED:
        *out = BENCH_EMBED;
        return true;
    case GEM_OP_NORM:
        *out = BENCH_INPUT_NORM;
        return true;
    case GEM_OP_QKV:
    case GEM_OP_CONV:
        *out = BENCH_QK_NORM_ROPE_APPEND;
        return true;
    case GEM_OP_ATTEND:
    case GEM_OP_DELTA:
        *out = BENCH_ATTENTION;
        return true;
    case GEM_OP_GLU:
        *out = BENCH_FFN_GATE_UP;
        return before == BENCH_FFN_GATE_UP;
    case GEM_OP_RESIDUAL:
        *out = before >= BENCH_FFN_GATE_UP ? BENCH_FFN_RESIDUAL : BENCH_ATTENTION_RESIDUAL;
        return true;
    case GEM_OP_HEAD:
        *out = BENCH_HEAD;
        return true;
    case GEM_OP_LINEAR:
    case GEM_OP_INPUT:
        break;
    }
    return false;
}

bool bench_stages_of(const gem_plan *p, bench_stage *stage)
{
    size_t end = p->draft_op ? p->draft_op : p->n_ops;
    bench_stage before = BENCH_INPUT_NORM;
    int layer = -1;
    bool activated = false;
    for (size_t i = 0; i < end; i++) {
        const gem_op *op = &p->op[i];
        if (op->layer != layer) {
            before = BENCH_INPUT_NORM;
            activated = false;
        }
        layer = op->layer;
        if (op->kind != GEM_OP_LINEAR) {
            if (!stage_of(op, before, &stage[i])) return false;
            activated = activated || op->kind == GEM_OP_GLU;
        } else if (before < BENCH_ATTENTION || before == BENCH_EMBED) {
            stage[i] = BENCH_QKV_PROJECTION;
        } else if (before == BENCH_ATTENTION) {
            stage[i] = BENCH_ATTENTION_OUTPUT;
        } else {
            stage[i] = activated ? BENCH_FFN_DOWN : BENCH_FFN_GATE_UP;
        }
        before = stage[i];
    }
    return true;
}

gem_status bench_stage_times_of(bench_stage_times *out, const gem_plan *p, const bench_stage *stage,
                                const uint64_t *op_ns, uint64_t wall_ns, gem_error *err)
{
    size_t end = p->draft_op ? p->draft_op : p->n_ops;
    *out = (bench_stage_times){.wall_ns = wall_ns};
    out->ns = calloc((size_t)p->n_layers * BENCH_STAGES, sizeof(*out->ns));
    if (!out->ns) return gem_fail(err, GEM_E_NOMEM, "no memory for %d layers", p->n_layers);
    for (size_t i = 0; i < end; i++) {
        if (stage[i] == BENCH_EMBED)
            out->embed_ns += op_ns[i];
        else if (stage[i] == BENCH_HEAD)
            out->head_ns += op_ns[i];
        else
            out->ns[(size_t)p->op[i].layer * BENCH_STAGES + stage[i]] += op_ns[i];
    }
    return GEM_OK;
}

json_t *bench_stage_matrix_json(const bench_stage_times *t, const gem_plan *p)
{
    json_t *layers = json_array();
    for (int l = 0; l < p->n_layers; l++) {
        json_t *row = json_array();
        for (int s = 0; s < BENCH_STAGES; s++)
            json_array_append_new(row, json_integer((json_int_t)t->ns[l * BENCH_STAGES + s]));
        json_array_append_new(layers, row);
    }
    return layers;
}
