/* sequence.h - an answer while it runs: its session, the tokens known and the tokens run, sampler,
 * text. Prompt tokens and drawn tokens are one list; what was not run yet is the next batch's
 * business, so prefill and decode are the same step. Engine thread only. */
#ifndef GEM_SEQUENCE_H
#define GEM_SEQUENCE_H

#include "server/hold.h"
#include "server/prefix_cache.h"
#include "server/serve.h"

typedef struct gem_sequence {
    gem_answer *a;
    gem_job *job;
    gem_session *session;    /* owned */
    gem_sampler *sampler;    /* owned */
    gem_chat_parser *parser; /* owned; NULL: the answer is plain text, of... */
    gem_detokenizer *text;   /* owned; ...this */
    gem_hold *hold;          /* owned; NULL: tokens are drawn freely */
    gem_disk_fetch *fetch;   /* owned; not NULL: the prompt's beginning is being read from disk, and
                                no row may run */
    gem_stop_match stop;
    gem_bytes piece; /* text released by one token */
    int32_t *tokens; /* owned, [n_prompt + limit] */
    size_t n_tokens; /* known */
    size_t n_run;    /* run: positions of the session */
    size_t n_rows;   /* in the batch being put together */
    size_t mark;     /* prompt position to remember on the way; 0: none */
    size_t logged;   /* prompt tokens at the last progress record */
    int slot;
    bool stopped, thought, one_call; /* during a token: a stop string came; it was reasoning; enough
                                        calls */
} gem_sequence;

/* Start an answer: session, sampler, longest cached prefix. NULL with the fault. */
gem_sequence *gem_sequence_new(gem_answer *a, gem_prefix_cache *cache, gem_fault *f);
void gem_sequence_free(gem_sequence *q);
/* With q->fetch: look whether it ended. True: it did, well or not, and rows may run. */
bool gem_sequence_fetched(gem_sequence *q, gem_prefix_cache *cache);
/* The next token depends on all logits, or its record does: the row should want them. */
bool gem_sequence_needs_all(const gem_sequence *q);
/* The batch has run the last known token: draw the next one and deliver its text. Returns
 * GEM_FINISH_NONE to go on, or why the answer ends; GEM_FINISH_FAILED with the fault. */
gem_finish gem_sequence_advance(gem_sequence *q, gem_fault *f);
/* Let go of text that was held back for a stop string, a call or an unfinished character, at the
 * end of an answer that ends for this reason; returns the reason to report. */
gem_finish gem_sequence_end(gem_sequence *q, gem_finish why);
bool gem_sequence_prefilling(const gem_sequence *q);

#endif
