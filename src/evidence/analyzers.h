/* analyzers.h - the judges of operator and profile records. Inputs are records of the gem-* tools
 * (docs/benchmarking.md lists their members); none of these can promote anything, and each report
 * says so. Each function names its rules. */
#ifndef GEM_EVIDENCE_ANALYZERS_H
#define GEM_EVIDENCE_ANALYZERS_H

#include "evidence/judge.h"

/* The model of the protocol: Gemma 4 31B. */
enum {
    EV_31B_LAYERS = 60,
    EV_31B_SLIDING = 50,
    EV_31B_FULL = 10,
    EV_31B_QUERY_HEADS = 32,
    EV_31B_KV_HEADS = 4,
    EV_31B_HEAD_DIM = 512,
    EV_STAGES = 9 /* of a layer */
};
#define EV_COVERAGE 0.95 /* least share of measured time that stages must account for */
#define EV_CEILING 0.03  /* least whole-token gain that is worth an implementation */

/* Two records of gem-kernel-bench. Rules: schema, controls, one-axis, samples, field, working-set,
 * warmup. Reports promotion.eligible: false, always. */
void ev_judge_kernel_benchmarks(ev_judge *j, const ev_doc *baseline, const ev_doc *candidate);

/* in[4]: records of gem-decode-attention-profile in the order A1 B1 B2 A2. Rules: schema, controls
 * (within each arm), one-axis, samples. */
gem_status ev_judge_decode_abba(ev_judge *j, const ev_doc in[4], gem_error *err);

/* Least logical traffic of a split-score record. Rules: schema, geometry, field, route. */
void ev_judge_attention_traffic(ev_judge *j, const ev_doc *profile);

/* A record of gem-long-prefill-stage-profile. Rules: schema, graph, stages, samples, prefix, rows,
 * coverage. n_layers and n_full: the graph that is required. */
void ev_judge_prefill_stages(ev_judge *j, const ev_doc *profile, size_t n_layers, size_t n_full);

/* A record of gem-decode-profile and the operator's of gem-decode-attention-profile. Rules: schema,
 * graph, rows, prefix, position, geometry, samples, coverage, attribution, ceiling. */
void ev_judge_decode_residual(ev_judge *j, const ev_doc *model, const ev_doc *op);

/* in[4]: model and operator records at 64K, then at 128K. Rules as above, and selector, kernel. */
void ev_judge_split_kv_ceiling(ev_judge *j, const ev_doc in[4]);
/* A resource receipt. Rules: schema, device, geometry, scratch, first-pass, reducer, digest. */
void ev_judge_split_kv_resources(ev_judge *j, const ev_doc *receipt);
/* in[10]: CPU gate, resource analysis, five operator and three model comparisons. Rules: schema,
 * cpu-gate, resources, positions, selector, prefix, finite, correlation, nmse, argmax, top-10,
 * continuation. */
void ev_judge_split_kv_correctness(ev_judge *j, const ev_doc in[10]);
/* in[5]: records of gem-online-merge-check. Rules: schema, positions, geometry, deterministic,
 * correlation, nmse. */
void ev_judge_online_merge(ev_judge *j, const ev_doc in[5]);

#endif
