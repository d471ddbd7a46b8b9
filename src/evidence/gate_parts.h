/* gate_parts.h - what the operator gates share: their configuration, programs and linkage, receipts
 * of the host around a measurement, and the rules of a gain. */
#ifndef GEM_EVIDENCE_GATE_PARTS_H
#define GEM_EVIDENCE_GATE_PARTS_H

#include "evidence/gate_folder.h"

/* Read gate-config.json and check it: schema and version, programs (live-binary-sha256.txt),
 * linkage.txt against its digest, the source's digest. frozen: the protocol's own shape and lengths
 * are judged, and the report says so. The caller frees *config. */
void ev_parts_begin(const ev_gate *g, ev_doc *config, const char *schema, int version, bool frozen);
/* host-preflightX.json, host-monitorX.ndjson, host-postflightX.json by the policy recorded;
 * seconds: the least time the work took. */
void ev_parts_host(const ev_gate *g, const ev_doc *config, const char *suffix, double seconds);
/* print-config.json: this KV type, bytes of keys and values, the model's digest where it has one.
 */
void ev_parts_print_config(const ev_gate *g, const ev_doc *config, const char *kv_type);
/* Two routes must be other code: a backend that has one for both has nothing to compare. Rule
 * one-axis. */
void ev_parts_other_code(ev_judge *j, const ev_doc *d, const char *a, const char *b);
/* More than 3 %, more than the larger variation, and an interval above zero; all as shares. Rules
 * improvement, variation, lower-bound. */
void ev_parts_gain(ev_judge *j, double gain, double cv, double lower);
/* Machine, build, backend, instruction set and threads are the same in both. Rule controls. */
void ev_parts_same_host(ev_judge *j, const ev_doc *a, const ev_doc *b);
/* promotion_eligible: false, and why. */
void ev_parts_never(ev_judge *j, const char *why);

#endif
