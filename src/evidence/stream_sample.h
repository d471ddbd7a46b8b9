/* stream_sample.h - one streamed request as it was kept: what the probe measured, the raw stream
 * and the server's log. The figures are taken from the raw files again. */
#ifndef GEM_EVIDENCE_STREAM_SAMPLE_H
#define GEM_EVIDENCE_STREAM_SAMPLE_H

#include "evidence/judge.h"

typedef struct ev_stream_options {
    double prompt_tokens; /* what the prompt was counted as before; 0: not given */
    double extends;       /* tokens of the request that this one extends; 0: a cold prompt; below 0:
                             what was reused is not judged */
} ev_stream_options;

/* What a raw stream holds. */
typedef struct ev_stream {
    size_t events, comments, terminators, usages, bad;
    bool ends_with_done, visible, one_id;
    char request[64]; /* "req-..." of the server's first comment; "" without one */
    char id[96];
    double prompt_tokens, completion_tokens, total_tokens,
        cached_tokens; /* NAN when not reported */
} ev_stream;
/* data: server-sent events; len bytes, NUL behind them. */
void ev_stream_read(ev_stream *s, const char *data, size_t len);

/* Lines of the log about one request. */
typedef struct ev_stream_log {
    size_t complete, hits; /* records of an exact 100 %, and of a prefix hit */
    double complete_tokens, reused, appended;
} ev_stream_log;
void ev_stream_log_read(ev_stream_log *l, const char *log, const char *request);

/* What a sample says, taken from the raw files where they have it; NAN where nothing does. */
typedef struct ev_stream_figures {
    double first_visible_event_seconds, completion_seconds, prompt_tokens, completion_tokens,
        cached_tokens, keepalive_comments;
    char request[64];
} ev_stream_figures;

/* Rules: schema, http-status, stream, terminator, visible, usage, prompt-tokens, max-tokens,
 * keepalive, request, prefill-100, cold (or prefix-hit for an extension), times. */
void ev_judge_stream(ev_judge *j, ev_stream_figures *out, const ev_doc *measurement,
                     const char *stream, size_t stream_len, const char *log,
                     const ev_stream_options *opt);

/* Text of the answer in a raw stream: every delta's content, in order. False when out of memory. */
bool ev_stream_answer(gem_bytes *out, const char *data, size_t len);
/* The log's records of a prompt being read are at most `step` tokens apart, and its last one is of
 * all of it. */
bool ev_stream_log_steps(const char *log, const char *request, double step);

#endif
