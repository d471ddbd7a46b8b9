/* image.h - the contents of a checkpoint as bytes, and a session from such bytes: for whoever keeps
 * prefixes outside of the process (server/disk_cache.c). Knows nothing of files.
 *
 * An image is a list of parts: KV pages of every layer, and for hybrid models the recurrent state
 * of some boundaries. A session restored from them gives the same bits as one that ran the tokens;
 * where a hybrid's states end before the position, its next batch runs the tokens between again
 * (session.c). Images of a model fit a model of the same file, build and options that shape the
 * numbers; nothing here can check that.
 *
 * Threads. Pages of a checkpoint never change while it lives, and pages taken by gem_image_take
 * are nobody else's: pages may be read and written from any thread while the model runs. All else
 * is the engine thread's. */
#ifndef GEM_IMAGE_H
#define GEM_IMAGE_H

#include "runtime/engine.h"

enum { GEM_IMAGE_STATES = 8 }; /* most states of one image */

typedef struct gem_image_part {
    int32_t layer; /* of a KV page; -1: recurrent state, all layers */
    int32_t index; /* page of the layer's table, or boundary: before position index * GEM_PAGE */
    int32_t place; /* page number in the pool, or slot: of this process alone */
    size_t bytes;
} gem_image_part;

/* The backend lets contents out. */
bool gem_image_offered(const gem_model *m);
/* Bytes of a part: a page of this layer, or with layer -1 a state. 0: the layer has no pages. */
size_t gem_image_part_bytes(const gem_model *m, int32_t layer);

/* Positions that pages of the checkpoint cover: its own, but fewer when tokens are to be run again.
 */
int32_t gem_image_positions(const gem_checkpoint *c);
/* Its pages: of layers that see all those from position `from` (a multiple of GEM_PAGE) on, of
 * windowed layers all that are held. Returns how many; writes them when out is not NULL. */
size_t gem_image_pages(const gem_checkpoint *c, int32_t from, gem_image_part *out);
/* Its states behind position `from`: the last two, and of older ones fewer the farther back. */
size_t gem_image_states(const gem_checkpoint *c, int32_t from, gem_image_part *out);
/* The choice of states, from the last one down: whether boundary i, of a text that ends in boundary
 * `end`, is worth keeping when n were taken, the last of them at boundary `last`. */
bool gem_image_wants_state(int32_t end, int32_t i, size_t n, int32_t last);
/* False: the state has been given up meanwhile. */
bool gem_image_read(const gem_checkpoint *c, const gem_image_part *p, void *out);

/* A session at position 0 takes pages for n_pos positions, of layer l from page first[l] on; its
 * position stays 0 until the commit. To give up, free it or trim it to 0.
 * errors  GEM_E_NOMEM  no free pages; GEM_E_RANGE  more than a context, or a windowed layer lacks
 *         pages that the next token would see */
gem_status gem_image_take(gem_session *s, int32_t n_pos, const int32_t *first, gem_error *err);
/* Number of such a page, for gem_image_write; -1: not taken. */
int32_t gem_image_place(const gem_session *s, int32_t layer, int32_t index);
void gem_image_write(gem_model *m, int32_t layer, int32_t place, const void *in);
/* Boundaries come in falling order; one for which no slot can be spared is left out. */
void gem_image_put_state(gem_session *s, int32_t index, const void *in);
/* Every page was written: the session holds tokens[n_pos]. */
void gem_image_commit(gem_session *s, const int32_t *tokens);

#endif
