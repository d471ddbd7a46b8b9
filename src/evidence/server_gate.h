/* server_gate.h - the long-context server gate: three fresh servers, one long prompt each, perhaps
 * a second turn that extends it. The folder holds gate-config.json, print-config.json, prompt.txt,
 * live-binary-sha256.txt, attempts.ndjson, run.json and, for N = 1, 2, 3, sample-N.json,
 * sample-N.sse, server-N.log; with an extension extension-N.json, extension-N.sse,
 * extension-messages-N.json; where the host policy is enforced host-preflight-N.json and
 * host-monitor-N.ndjson. Schema 1: no host records; 2: load before and during; 3: also the
 * one-second busy share before; 4: also power and heat, before and during. */
#ifndef GEM_EVIDENCE_SERVER_GATE_H
#define GEM_EVIDENCE_SERVER_GATE_H

#include "evidence/manifest.h"

enum { EV_SERVER_GATE_SCHEMA = 4, EV_SERVER_GATE_SAMPLES = 3 };

/* One sample, as a resumed run may use it again. Rules: files, prompt-digest, prompt-tokens,
 * fresh-process, progress, extension, those of a stream, and the host's. n from 1. */
void ev_judge_server_sample(ev_judge *j, const char *dir, int n);

/* The whole folder, from raw files: the summary. Rules besides: schema, repetitions, context,
 * kv-type, kv-bytes, model-digest, binary, host-policy, idle-assertion, attempts, aggregates. */
void ev_judge_server_gate(ev_judge *j, const char *dir);

typedef struct ev_server_audit {
    const char *binary; /* the program now; NULL: not compared */
    const char *model;  /* the model now, read again; NULL: not compared */
} ev_server_audit;
/* All of the above again, the manifest, summary.json as the same summary, the program and the model
 * as frozen. `f` is what ev_folder_read gave. Rules besides: manifest, digest, unlisted, summary.
 */
void ev_judge_server_audit(ev_judge *j, const char *dir, const ev_folder *f,
                           const ev_server_audit *a);

/* May a run go on in a folder: in[] = its gate-config.json and a new one, its print-config.json and
 * a new one. Rules: schema, binary, model-digest, prompt-digest, provenance, configuration. */
void ev_judge_server_resume(ev_judge *j, const ev_doc in[4]);

/* A JSON list of messages: the user's prompt; and for a second turn (text not NULL) the answer of a
 * raw stream and the user's next words. False when out of memory. */
bool ev_messages(gem_bytes *out, const char *prompt, size_t prompt_len, const char *stream,
                 size_t stream_len, const char *text);

#endif
