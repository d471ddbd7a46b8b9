/* state.h - recurrent state of past tokens: slots, each the state of every recurrent layer before
 * one multiple of GEM_PAGE positions (a boundary), and what a session's tape still covers. Hands
 * out slot numbers and counts references; the memory is the backend's. The session puts slots into
 * a batch, shares, cuts and drops them; kv.h does the same for keys and values.
 *
 * Rules. A slot is written once, by the batch that takes it, and never again while a table names
 * it; sequences that share a past share its slots. Recurrent state cannot be cut back: a sequence
 * that goes back continues from the nearest kept boundary and runs the tokens behind it again.
 *
 * Which boundaries are kept. Each sequence keeps its last two whatever the others do; all older
 * ones stay while slots are free. When one is needed, the boundary that will be missed least is
 * given up, of all sequences and checkpoints: the one whose neighbours lie closest together in
 * proportion to its distance from the end, (next - previous) / (end - own + 1) smallest. So the
 * gaps grow with the distance from the end. The boundary a checkpoint continues from goes last.
 * Nothing here allocates after gem_state_open and gem_state_seq_init. */
#ifndef GEM_STATE_H
#define GEM_STATE_H

#include "backend/backend.h"

/* Slots a session needs at once: the one its batch reads, and two that the batch passes through. */
enum { GEM_STATE_SLOTS = 3 };
/* Model option state_bytes: 0 means this. */
enum { GEM_STATE_DEFAULT_BYTES = 1 << 30 };

/* How many slots a model gets: GEM_STATE_SLOTS a session, and what the budget adds, at most one a
 * boundary of every session. 0 without recurrent layers. GEM_E_NOMEM. (pools.c) */
gem_status gem_state_slots(int32_t *n_slots, const gem_recurrent *r, int64_t state_bytes,
                           int32_t n_ctx, int n_sessions, gem_error *err);

typedef struct gem_state_store gem_state_store;

/* n_slots >= GEM_STATE_SLOTS for every sequence that will run. GEM_E_NOMEM. */
gem_status gem_state_open(gem_state_store **out, int32_t n_slots, int32_t max_positions,
                          gem_error *err);
void gem_state_close(gem_state_store *st); /* every sequence must be gone; may be NULL */
int32_t gem_state_used(const gem_state_store *st);
int32_t gem_state_refs(const gem_state_store *st, int32_t slot); /* 0: free */

/* The kept boundaries of one sequence, or of a checkpoint, and the reach of its tape. */
typedef struct gem_state_seq gem_state_seq;
struct gem_state_seq {
    gem_state_store *store;     /* borrowed; NULL: nothing to free */
    gem_state_seq *prev, *next; /* all sequences of the store */
    int32_t *slot;              /* owned, [max_boundaries]; -1: not kept; [0] is never kept */
    int32_t *run;  /* inside the allocation of `slot`: the slots of the batch at hand, where those
                      passed through repeat; gem_batch.state */
    int32_t end;   /* last boundary at or before the sequence's end */
    int32_t reads; /* boundary that the batch at hand starts from; -1: none */
    int32_t tape_from, tape_to; /* positions whose rows the tape holds; tape_to -1: none */
    bool checkpoint;
};

gem_status gem_state_seq_init(gem_state_seq *s, gem_state_store *st, bool checkpoint,
                              gem_error *err);
void gem_state_seq_deinit(gem_state_seq *s); /* drops its slots */
/* Make dst hold the boundaries of src, sharing the slots. The tape stays dst's, and is dropped. */
void gem_state_seq_copy(gem_state_seq *dst, const gem_state_seq *src);

/* True when a batch may start at `pos` straight away: the state of its chunk is kept, and the tape
 * holds what lies between. */
bool gem_state_covers(const gem_state_seq *s, int32_t pos);
/* The last position at or before `pos` whose state is kept: a multiple of GEM_PAGE. */
int32_t gem_state_base(const gem_state_seq *s, int32_t pos);
/* Drop the boundaries behind `pos`, which becomes the sequence's end. When the tape does not cover
 * pos it is dropped, and the next batch must start at a kept boundary. */
void gem_state_cut(gem_state_seq *s, int32_t pos);

/* A batch of n rows from `pos`, which gem_state_covers: take slots for the boundaries it passes
 * (s->run). Never fails: there are always GEM_STATE_SLOTS for a sequence. */
void gem_state_append(gem_state_seq *s, int32_t pos, int32_t n);
/* Contents from outside (runtime/image.h): the end of a sequence without boundaries, then the slot
 * of one boundary a call, from the last one down. -1: none can be spared. */
void gem_state_restore(gem_state_seq *s, int32_t n_pos);
int32_t gem_state_put(gem_state_seq *s, int32_t c);
/* The rows were written. */
void gem_state_commit(gem_state_seq *s, int32_t pos, int32_t n);

#endif
