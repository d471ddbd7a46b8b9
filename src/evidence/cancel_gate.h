/* cancel_gate.h - the prefill cancel gate: one server; a long prompt whose client goes away while
 * it is read, then a short request that the same server answers. The folder holds gate-config.json,
 * print-config.json, live-binary-sha256.txt, prompt.txt, request.json, cancelled.sse,
 * curl-status.json, curl-error.txt, recovery.json, second-prompt.txt, second.json, second.sse and
 * server.log. */
#ifndef GEM_EVIDENCE_CANCEL_GATE_H
#define GEM_EVIDENCE_CANCEL_GATE_H

#include "evidence/judge.h"

enum { EV_CANCEL_LEAST_TOKENS = 128, EV_CANCEL_SECOND_TOKENS = 16 };

/* Rules: files, schema, context, kv-type, kv-bytes, model-digest, prompt-digest, binary,
 * prompt-tokens, request, curl-status, keepalive, cancelled, recovery, same-process, second, and
 * those of a stream for the second request. */
void ev_judge_cancel_gate(ev_judge *j, const char *dir);

#endif
