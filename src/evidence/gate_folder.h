/* gate_folder.h - what the judges of a gate's folder share: files of the folder as inputs of a
 * report, receipts of the host before, during and after a measurement, digests that must agree, and
 * the bytes of keys and values by formula. A file that is not there fails the check "files". */
#ifndef GEM_EVIDENCE_GATE_FOLDER_H
#define GEM_EVIDENCE_GATE_FOLDER_H

#include "evidence/host_state.h"

typedef struct ev_gate {
    ev_judge *j;
    const char *dir; /* borrowed */
} ev_gate;

/* A file that is no JSON, whole; text NUL-terminated. */
typedef struct ev_text_file {
    char *text; /* owned */
    size_t len;
    char sha256[65];
} ev_text_file;

/* DIR/name, recorded as an input under its name. False, and "files" fails, when it cannot be read.
 * The caller frees in every case. */
bool ev_gate_doc(const ev_gate *g, const char *name, ev_doc *d);
bool ev_gate_text(const ev_gate *g, const char *name, ev_text_file *t);
void ev_text_file_free(ev_text_file *t);
bool ev_gate_has(const ev_gate *g, const char *name);

/* The text must be this digest; rule, what it is the digest of, and where it was written. */
bool ev_gate_digest(const ev_gate *g, const char *rule, const char *what, const char *want,
                    const char *have);

/* live-binary-sha256.txt: one digest a line, blanks and a name behind it allowed; its first one
 * must be `want` (NULL: only well formed). out[65] may be NULL. */
bool ev_gate_binary(const ev_gate *g, const char *want, char out[65]);

/* The policy a configuration holds under "host_policy"; false (and "host-policy" fails) when a
 * member is missing or is no limit. at_work is left false. */
bool ev_gate_policy(const ev_gate *g, const gem_json *config, ev_host_policy *p);
/* Every limit of it is the protocol's own. */
bool ev_policy_is_default(const ev_host_policy *p);

/* Which rules of a host receipt are enforced: grown with the schema of the server gate. */
enum { EV_HOST_LOAD = 1, EV_HOST_BUSY = 2, EV_HOST_STATE = 4, EV_HOST_ALL = 7 };
/* A retained snapshot of gem-host-state judged again. */
void ev_gate_snapshot(const ev_gate *g, const gem_json *snapshot, const ev_host_policy *p,
                      unsigned rules);
void ev_gate_receipt(const ev_gate *g, const char *name, const ev_host_policy *p, unsigned rules);
/* A monitor's NDJSON: each record judged with the policy at work, at least one for every 1.5
 * intervals and 2 s of `seconds`, none further from the one before than two intervals and 10 s. Rule
 * "host-monitor" and those of the host. */
void ev_gate_monitor(const ev_gate *g, const char *name, const ev_host_policy *p, unsigned rules,
                     double interval, double seconds);

/* Bytes of the keys and values of one sequence that fills the context, by the shape in a record of
 * `gem print-config`: sum over layers of min(context, window or context) x KV heads x head dim x
 * element x (keys and values). Rule "kv-bytes": what the record says must be that; and for Gemma 4
 * of 60 layers the shape must be 50 layers of window 1024, 16 heads of 256, and ten growing ones of
 * 4 heads of 512. Returns the bytes; NAN when they cannot be derived. */
double ev_gate_kv_bytes(const ev_gate *g, const ev_doc *print_config);

#endif
