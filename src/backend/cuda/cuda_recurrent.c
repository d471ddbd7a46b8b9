/* cuda_recurrent.c - the host's part of recurrent layers (docs/adr/0010): how large slots and tapes
 * are, and for each run which rows belong together and which slots hold their states. */
#include "backend/cuda/cuda_backend.h"

gem_status gem_cuda_recurrent_check(const gem_plan *p, gem_error *err)
{
    const gem_recurrent *r = &p->recurrent;
    if (!r->n_layers) return GEM_OK;
    if (r->head_dim < 32 || r->head_dim % 32 || r->head_dim > 128)
        return gem_fail(
            err, GEM_E_UNSUPPORTED,
            "cuda: recurrent heads of %d values; multiples of 32 up to 128 are supported",
            r->head_dim);
    if (r->n_k_heads < 1 || r->n_v_heads < 1 || r->n_v_heads % r->n_k_heads)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "cuda: %d value heads on %d key heads of a recurrent layer", r->n_v_heads,
                        r->n_k_heads);
    return GEM_OK;
}

gem_status gem_cuda_recurrent_plan(gem_backend *be, gem_error *err)
{
    const gem_recurrent *r = &be->plan->recurrent;
    size_t state, tape;
    if (!r->n_layers) return GEM_OK;
    if (be->opt.n_states < 1 || be->opt.n_tapes < 1)
        return gem_fail(err, GEM_E_ARG,
                        "cuda: a recurrent model was opened without state slots or tapes");
    if (!gem_mul_ok(gem_cuda_state_floats(r) * sizeof(float) * (size_t)r->n_layers,
                    (size_t)be->opt.n_states, &state) ||
        !gem_mul_ok(gem_cuda_tape_floats(r) * sizeof(float) * (size_t)r->n_layers,
                    (size_t)be->opt.n_tapes, &tape))
        return gem_fail(err, GEM_E_NOMEM, "cuda: %d state slots overflow", be->opt.n_states);
    be->state_bytes = state;
    be->tape_bytes = tape;
    be->slot_ld = be->opt.n_batch / GEM_PAGE + 3;
    be->rec_ints = 4 + (size_t)be->n_seqs * (4 + (size_t)be->slot_ld) + 2 * (size_t)be->opt.n_batch;
    return GEM_OK;
}

typedef struct parts { /* of host_rec or rec */
    int32_t *n_seqs;
    gem_cuda_seq *seq;
    int32_t *order, *seq_of, *slot;
} parts;

static parts parts_of(const gem_backend *be, int32_t *base)
{
    parts p = {.n_seqs = base, .seq = (gem_cuda_seq *)(void *)(base + 4)};
    p.order = base + 4 + 4 * (size_t)be->n_seqs;
    p.seq_of = p.order + be->opt.n_batch;
    p.slot = p.seq_of + be->opt.n_batch;
    return p;
}

gem_cuda_recurrent gem_cuda_recurrent_of(const gem_backend *be, int layer)
{
    parts p = parts_of(be, be->rec);
    return (gem_cuda_recurrent){
        .r = be->plan->recurrent,
        .layer = layer,
        .states = be->states,
        .tapes = be->tapes,
        .n_seqs = p.n_seqs,
        .seq = p.seq,
        .order = p.order,
        .seq_of = p.seq_of,
        .slot = p.slot,
        .slot_ld = be->slot_ld,
        .exact = be->opt.exact,
        .chunks = be->opt.exact || be->delta_rows ? NULL : be->chunks,
    };
}

/* Slots of the states around a sequence's rows; -1 where none is read or written. */
static gem_status put_slots(const gem_backend *be, const gem_batch *b, int32_t seq,
                            const gem_cuda_seq *g, int32_t *slot, gem_error *err)
{
    int32_t first = g->pos / GEM_PAGE, last = (g->pos + g->n - 1) / GEM_PAGE;
    for (int32_t c = first; c <= last + 1; c++) {
        bool needed = c > 0 && (c <= last || (g->pos + g->n) % GEM_PAGE == 0);
        slot[c - first] = needed ? b->state[seq][c] : -1;
        if (needed && (slot[c - first] < 0 || slot[c - first] >= be->opt.n_states))
            return gem_fail(err, GEM_E_ARG, "cuda: chunk %d of a sequence has state slot %d of %d",
                            c, slot[c - first], be->opt.n_states);
    }
    return GEM_OK;
}

gem_status gem_cuda_recurrent_begin(gem_backend *be, const gem_batch *b, gem_error *err)
{
    int32_t at = 0;
    if (!be->plan->recurrent.n_layers) return GEM_OK;
    if (!b->state || !b->tape)
        return gem_fail(err, GEM_E_ARG, "cuda: a recurrent sequence without state or tape");
    parts p = parts_of(be, be->host_rec);
    *p.n_seqs = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        gem_cuda_seq *g = &p.seq[*p.n_seqs];
        *g = (gem_cuda_seq){.first = at, .tape = b->tape[s]};
        for (int32_t r = 0; r < b->n_rows; r++) {
            if (b->seq[r] != s) continue;
            if (g->n == 0) g->pos = b->pos[r];
            if (b->pos[r] != g->pos + g->n)
                return gem_fail(err, GEM_E_ARG,
                                "cuda: positions of a recurrent sequence have a gap at %d",
                                g->pos + g->n);
            p.order[at] = r;
            p.seq_of[at++] = *p.n_seqs;
            g->n++;
        }
        if (g->n == 0) continue;
        if (g->tape < 0 || g->tape >= be->opt.n_tapes)
            return gem_fail(err, GEM_E_ARG, "cuda: a recurrent sequence without state or tape");
        gem_status st = put_slots(be, b, s, g, p.slot + *p.n_seqs * be->slot_ld, err);
        if (st != GEM_OK) return st;
        ++*p.n_seqs;
    }
    cudaError_t e = cudaMemcpyAsync(be->rec, be->host_rec, be->rec_ints * sizeof(int32_t),
                                    cudaMemcpyHostToDevice, be->s.stream);
    return e ? gem_cuda_fail(err, e, "sending the rows' order") : GEM_OK;
}
