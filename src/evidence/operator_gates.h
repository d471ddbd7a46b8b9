/* operator_gates.h - gates over operators and graphs, judged from the folders their runners keep.
 * Each folder holds gate-config.json, live-binary-sha256.txt (a line for every program),
 * linkage.txt, receipts of the host (host-preflight*.json, host-monitor*.ndjson,
 * host-postflight*.json) and the records named below. None of these promotes: they admit to the
 * next step of the ladder, and say so. */
#ifndef GEM_EVIDENCE_OPERATOR_GATES_H
#define GEM_EVIDENCE_OPERATOR_GATES_H

#include "evidence/judge.h"

/* What a smaller trial may set; the protocol's own values otherwise. */
typedef struct ev_gate_scale {
    const char *shape; /* of operators: "31b" ("31b-full" for decode) */
    double position;   /* of the graph gate: 65536; of stage attribution: 131040 */
    size_t layers, full_layers;
} ev_gate_scale;

#define EV_SPREAD_MOST 0.03     /* coefficient of variation and half-run drift of an arm */
#define EV_REGRESSION_MOST 0.02 /* at 4K */

/* attention-4k.json, -64k.json, -128k.json of gem-long-attention-profile, resources.json. Rules:
 * files, schema, binary, provenance, host-*, controls, geometry, position, repetitions, one-axis,
 * selector, order, timestamps, deterministic, samples, cv, drift, ramp, discontinuity, resources,
 * regression (4K), improvement, variation, lower-bound (64K and 128K). */
void ev_judge_bq8_gate(ev_judge *j, const char *dir, const ev_gate_scale *s);

/* prefix-ab.json of gem-long-prefix-ab, operator-report.json (what the judge above said when this
 * run began), print-config.json. Rules besides: operator-gate, model-digest, prefix, kv-bytes,
 * bit-identical, finite, argmax, top-10, correlation, nmse. */
void ev_judge_bq8_graph_gate(ev_judge *j, const char *dir, const ev_gate_scale *s);

/* For 64k and 128k A1-, B1-, B2-, A2-64k.json of gem-decode-attention-profile, decode-64k.json of
 * gem-decode-profile, receipts of the host for each; parity.json and oracle.json. Rules besides:
 * kernel, projection, parity, oracle, after-timing. */
void ev_judge_score_tile8_gate(ev_judge *j, const char *dir, const ev_gate_scale *s);

/* profile.json of gem-long-prefill-stage-profile, print-config.json, inventory.json. Rules besides
 * those of prefill stages: inventory, model-digest, kv-type, kv-bytes. */
void ev_judge_stage_attribution(ev_judge *j, const char *dir, const ev_gate_scale *s);

#endif
