/* image.c - parts of a checkpoint out, parts into a session. */
#include "runtime/image.h"

#include <assert.h>

bool gem_image_offered(const gem_model *m)
{
    return m->ops->read_page && m->ops->write_page && m->ops->read_state && m->ops->write_state;
}

/* A drafter that came with the model goes on from the hidden vector before a boundary. */
static size_t edge_bytes(const gem_model *m)
{
    return m->edge ? (size_t)m->plan.d_model * sizeof(*m->edge) : 0;
}

static float *edge_at(const gem_model *m, int32_t slot)
{
    return m->edge + (size_t)slot * (size_t)m->plan.d_model;
}

size_t gem_image_part_bytes(const gem_model *m, int32_t layer)
{
    if (layer < 0) return m->states ? gem_recurrent_bytes(&m->plan.recurrent) + edge_bytes(m) : 0;
    int pool = m->layout.layer_pool[layer];
    return pool < 0 ? 0 : gem_kv_page_bytes(&m->layout.pool[pool]);
}

/* ---- out ---- */

int32_t gem_image_positions(const gem_checkpoint *c)
{
    return c->kv.n_pos;
}

size_t gem_image_pages(const gem_checkpoint *c, int32_t from, gem_image_part *out)
{
    const gem_model *m = c->m;
    size_t n = 0;
    for (int l = 0; l < m->plan.n_layers; l++) {
        size_t bytes = gem_image_part_bytes(m, l);
        int32_t i = c->kv.first[l];
        if (!bytes) continue;
        if (m->layout.window[l] == 0) i = GEM_MAX(i, from / GEM_PAGE);
        for (; i < c->kv.end[l]; i++, n++)
            if (out) out[n] = (gem_image_part){l, i, gem_kv_table(&c->kv, l)[i], bytes};
    }
    return n;
}

bool gem_image_wants_state(int32_t end, int32_t i, size_t n, int32_t last)
{
    if (n >= GEM_IMAGE_STATES) return false;
    return n < 2 || end + 1 - i >= 2 * (end + 1 - last); /* older ones at twice the distance each */
}

size_t gem_image_states(const gem_checkpoint *c, int32_t from, gem_image_part *out)
{
    size_t n = 0, bytes = gem_image_part_bytes(c->m, -1);
    if (!c->m->states) return 0;
    int32_t end = GEM_MIN(c->state.end, c->kv.n_pos / GEM_PAGE), last = end + 1;
    for (int32_t i = end; i > from / GEM_PAGE && n < GEM_IMAGE_STATES; i--) {
        if (c->state.slot[i] < 0 || !gem_image_wants_state(end, i, n, last)) continue;
        out[n++] = (gem_image_part){-1, i, c->state.slot[i], bytes};
        last = i;
    }
    return n;
}

bool gem_image_read(const gem_checkpoint *c, const gem_image_part *p, void *out)
{
    const gem_model *m = c->m;
    if (p->layer >= 0)
        return m->ops->read_page(m->be, m->layout.layer_pool[p->layer], p->place, out);
    if (c->state.slot[p->index] != p->place || !m->ops->read_state(m->be, p->place, out))
        return false;
    if (m->edge)
        memcpy((char *)out + gem_recurrent_bytes(&m->plan.recurrent), edge_at(m, p->place),
               edge_bytes(m));
    return true;
}

/* ---- in ---- */

gem_status gem_image_take(gem_session *s, int32_t n_pos, const int32_t *first, gem_error *err)
{
    assert(s->n_pos == 0 && s->kv.n_pos == 0);
    if (n_pos > s->m->n_ctx)
        return gem_fail(err, GEM_E_RANGE, "%d positions are more than a context of %d", n_pos,
                        s->m->n_ctx);
    gem_status st = gem_kv_restore(&s->kv, n_pos, first, err);
    if (st == GEM_OK && s->m->states) gem_state_restore(&s->state, n_pos);
    return st;
}

int32_t gem_image_place(const gem_session *s, int32_t layer, int32_t index)
{
    if (layer < 0 || layer >= s->m->plan.n_layers || s->m->layout.layer_pool[layer] < 0) return -1;
    if (index < s->kv.first[layer] || index >= s->kv.end[layer]) return -1;
    return gem_kv_table(&s->kv, layer)[index];
}

void gem_image_write(gem_model *m, int32_t layer, int32_t place, const void *in)
{
    m->ops->write_page(m->be, m->layout.layer_pool[layer], place, in);
}

void gem_image_put_state(gem_session *s, int32_t index, const void *in)
{
    gem_model *m = s->m;
    if (!m->states || index < 1 || index > s->state.end || s->state.slot[index] >= 0) return;
    int32_t slot = gem_state_put(&s->state, index);
    if (slot < 0) return;
    m->ops->write_state(m->be, slot, in);
    if (m->edge)
        memcpy(edge_at(m, slot), (const char *)in + gem_recurrent_bytes(&m->plan.recurrent),
               edge_bytes(m));
}

void gem_image_commit(gem_session *s, const int32_t *tokens)
{
    s->n_pos = s->kv.n_pos;
    s->recent_from = s->recent_to = 0;
    if (!s->m->states) return;
    memcpy(s->past, tokens, (size_t)s->n_pos * sizeof(*tokens));
    gem_session_settle(s);
}
