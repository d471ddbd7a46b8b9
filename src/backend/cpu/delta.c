/* delta.c - the recurrent ops of the forward pass: short convolution and gated delta rule over
 * states and tapes (docs/adr/0010). Called by run.c on every thread of the region.
 *
 * A run is cut into segments: the rows of one sequence within one chunk of GEM_PAGE positions.
 * Segments of a sequence follow each other, so all sequences advance level by level, one segment
 * each, with a barrier between levels; inside a level, heads are shared out. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/ref/math_ref.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

static size_t channels(const gem_recurrent *r)
{
    return (size_t)(2 * r->n_k_heads + r->n_v_heads) * (size_t)r->head_dim;
}

/* ---- memory: slots of state, tapes ---- */

enum { TAIL = GEM_CONV_TAPS - 1, RING = 16 };

/* One layer of a state slot: S of every V head in panels, then the last TAIL raw inputs. */
static size_t state_floats(const gem_recurrent *r)
{
    return (size_t)r->n_v_heads * (size_t)r->head_dim * (size_t)r->head_dim + TAIL * channels(r);
}

/* One layer of a tape: twice (by parity of the chunk) K panels of every K head, N panels of every V
 * head and the b of their rows; then the raw inputs of the last RING positions. */
static size_t keys_floats(const gem_recurrent *r)
{
    return (size_t)r->n_k_heads * (size_t)r->head_dim * GEM_PAGE;
}
static size_t values_floats(const gem_recurrent *r)
{
    return (size_t)r->n_v_heads * (size_t)r->head_dim * GEM_PAGE;
}
static size_t tape_floats(const gem_recurrent *r)
{
    size_t b = 2 * (size_t)r->n_v_heads * GEM_PAGE; /* doubles */
    return 2 * (keys_floats(r) + values_floats(r) + b) + RING * channels(r);
}

static float *state_at(const gem_backend *be, int32_t slot, int layer)
{
    const gem_recurrent *r = &be->plan->recurrent;
    return be->states + ((size_t)slot * (size_t)r->n_layers + (size_t)layer) * state_floats(r);
}

static float *tape_at(const gem_backend *be, int32_t tape, int layer)
{
    const gem_recurrent *r = &be->plan->recurrent;
    return be->tapes + ((size_t)tape * (size_t)r->n_layers + (size_t)layer) * tape_floats(r);
}

static float *keys_at(const gem_backend *be, int32_t tape, int layer, int32_t chunk, int head)
{
    const gem_recurrent *r = &be->plan->recurrent;
    return tape_at(be, tape, layer) + (size_t)(chunk & 1) * keys_floats(r) +
           (size_t)head * (size_t)r->head_dim * GEM_PAGE;
}

static float *values_at(const gem_backend *be, int32_t tape, int layer, int32_t chunk, int head)
{
    const gem_recurrent *r = &be->plan->recurrent;
    return tape_at(be, tape, layer) + 2 * keys_floats(r) + (size_t)(chunk & 1) * values_floats(r) +
           (size_t)head * (size_t)r->head_dim * GEM_PAGE;
}

static double *b_at(const gem_backend *be, int32_t tape, int layer, int32_t chunk, int head)
{
    const gem_recurrent *r = &be->plan->recurrent;
    float *all = tape_at(be, tape, layer) + 2 * (keys_floats(r) + values_floats(r));
    return (double *)(void *)all +
           ((size_t)(chunk & 1) * (size_t)r->n_v_heads + (size_t)head) * GEM_PAGE;
}

static float *ring_at(const gem_backend *be, int32_t tape, int layer, int32_t pos)
{
    const gem_recurrent *r = &be->plan->recurrent;
    return tape_at(be, tape, layer) + tape_floats(r) -
           (size_t)(RING - (pos & (RING - 1))) * channels(r);
}

gem_status gem_cpu_recurrent_check(const gem_plan *p, gem_error *err)
{
    const gem_recurrent *r = &p->recurrent;
    if (!r->n_layers) return GEM_OK;
    if (r->head_dim < 32 || r->head_dim % 32 || r->head_dim > 512)
        return gem_fail(
            err, GEM_E_UNSUPPORTED,
            "cpu: recurrent heads of %d values; multiples of 32 up to 512 are supported",
            r->head_dim);
    if (r->n_k_heads < 1 || r->n_v_heads < 1 || r->n_v_heads % r->n_k_heads)
        return gem_fail(err, GEM_E_UNSUPPORTED,
                        "cpu: %d value heads on %d key heads of a recurrent layer", r->n_v_heads,
                        r->n_k_heads);
    return GEM_OK;
}

static gem_status map(float **out, size_t each, int32_t n, const gem_recurrent *r, const char *what,
                      uint64_t *total, gem_error *err)
{
    size_t bytes;
    if (n < 1)
        return gem_fail(err, GEM_E_ARG, "cpu: a recurrent model was opened without a %s", what);
    if (!gem_mul_ok(each * sizeof(float) * (size_t)r->n_layers, (size_t)n, &bytes))
        return gem_fail(err, GEM_E_NOMEM, "cpu: %d %ss overflow", n, what);
    if (!(*out = gem_cpu_map(bytes)))
        return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu bytes of %ss", bytes, what);
    *total = bytes;
    return GEM_OK;
}

gem_status gem_cpu_recurrent_open(gem_backend *be, gem_error *err)
{
    const gem_plan *p = be->plan;
    const gem_recurrent *r = &p->recurrent;
    gem_status st;
    if (!r->n_layers) return GEM_OK;
    assert(state_floats(r) * sizeof(float) * (size_t)r->n_layers == gem_recurrent_bytes(r));
    if ((st = map(&be->states, state_floats(r), be->opt.n_states, r, "state slot", &be->state_bytes,
                  err)) != GEM_OK ||
        (st = map(&be->tapes, tape_floats(r), be->opt.n_tapes, r, "tape", &be->tape_bytes, err)) !=
            GEM_OK)
        return st;
    /* taps from [channel][tap] to [tap][channel], a plane a tap; and a row of zeros */
    size_t n = channels(r);
    be->conv_w = calloc(((size_t)r->n_layers * GEM_CONV_TAPS + 1) * n, sizeof(float));
    if (!be->conv_w) return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for convolution weights");
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind != GEM_OP_CONV) continue;
        float *w = be->conv_w + (size_t)be->op[i].recurrent * GEM_CONV_TAPS * n;
        for (size_t c = 0; c < n; c++)
            for (size_t j = 0; j < GEM_CONV_TAPS; j++)
                w[j * n + c] = p->op[i].conv.w[c * GEM_CONV_TAPS + j];
    }
    return GEM_OK;
}

uint64_t gem_cpu_recurrent_bytes(const gem_backend *be)
{
    const gem_recurrent *r = &be->plan->recurrent;
    if (!r->n_layers) return 0;
    return sizeof(float) * (uint64_t)r->n_layers *
           (state_floats(r) * (uint64_t)be->opt.n_states +
            tape_floats(r) * (uint64_t)be->opt.n_tapes);
}

void gem_cpu_recurrent_close(gem_backend *be)
{
    const gem_recurrent *r = &be->plan->recurrent;
    size_t each = sizeof(float) * (size_t)r->n_layers;
    if (be->states) munmap(be->states, each * state_floats(r) * (size_t)be->opt.n_states);
    if (be->tapes) munmap(be->tapes, each * tape_floats(r) * (size_t)be->opt.n_tapes);
    free(be->conv_w);
}

bool gem_cpu_read_state(const gem_backend *be, int32_t slot, void *out)
{
    memcpy(out, state_at(be, slot, 0), gem_recurrent_bytes(&be->plan->recurrent));
    return true;
}

void gem_cpu_write_state(gem_backend *be, int32_t slot, const void *in)
{
    memcpy(state_at(be, slot, 0), in, gem_recurrent_bytes(&be->plan->recurrent));
}

/* ---- the rows of a run ---- */

static gem_status check_group(const gem_backend *be, const cpu_seq *g, gem_error *err)
{
    const gem_batch *b = be->batch;
    int32_t last = (g->pos + g->n - 1) / GEM_PAGE;
    for (int32_t i = 0; i < g->n; i++)
        if (b->pos[be->order[g->first + i]] != g->pos + i)
            return gem_fail(err, GEM_E_ARG,
                            "cpu: positions of a recurrent sequence have a gap at %d", g->pos + i);
    if (!b->state || !b->tape || b->tape[g->seq] < 0 || b->tape[g->seq] >= be->opt.n_tapes)
        return gem_fail(err, GEM_E_ARG, "cpu: a recurrent sequence without state or tape");
    for (int32_t c = g->pos / GEM_PAGE; c <= last + 1; c++) {
        bool needed = c > 0 && (c <= last || (g->pos + g->n) % GEM_PAGE == 0);
        if (needed && (b->state[g->seq][c] < 0 || b->state[g->seq][c] >= be->opt.n_states))
            return gem_fail(err, GEM_E_ARG, "cpu: chunk %d of a sequence has state slot %d of %d",
                            c, b->state[g->seq][c], be->opt.n_states);
    }
    return GEM_OK;
}

/* Rows by sequence, in the order of their first rows. */
gem_status gem_cpu_recurrent_begin(gem_backend *be, gem_error *err)
{
    const gem_batch *b = be->batch;
    int32_t n = 0, at = 0, *group = be->group_of_row;
    if (!be->plan->recurrent.n_layers) return GEM_OK;
    for (int32_t r = 0, g = 0; r < b->n_rows; r++) {
        if (n == 0 || be->group[g].seq != b->seq[r])
            for (g = 0; g < n && be->group[g].seq != b->seq[r];)
                g++;
        if (g == n) be->group[n++] = (cpu_seq){.seq = b->seq[r], .pos = b->pos[r]};
        be->group[g].n++;
        group[r] = g;
    }
    for (int32_t g = 0; g < n; g++) {
        be->group[g].first = at;
        at += be->group[g].n;
        be->group[g].n = 0;
    }
    for (int32_t r = 0; r < b->n_rows; r++) {
        cpu_seq *g = &be->group[group[r]];
        be->group_of[g->first + g->n] = group[r];
        be->order[g->first + g->n++] = r;
    }
    be->n_groups = n;
    be->n_levels = 0;
    for (int32_t g = 0; g < n; g++) {
        const cpu_seq *s = &be->group[g];
        gem_status st = check_group(be, s, err);
        if (st != GEM_OK) return st;
        be->n_levels =
            GEM_MAX(be->n_levels, (s->pos + s->n - 1) / GEM_PAGE - s->pos / GEM_PAGE + 1);
    }
    return GEM_OK;
}

typedef struct segment {
    const cpu_seq *g;
    int32_t chunk, first; /* first: in the order of rows */
    int t0, n;
} segment;

/* The segment of a sequence at a level; false: it has fewer. */
static bool segment_at(const cpu_seq *g, int level, segment *s)
{
    int32_t chunk = g->pos / GEM_PAGE + level, from = GEM_MAX(g->pos, chunk * GEM_PAGE),
            to = GEM_MIN(g->pos + g->n, (chunk + 1) * GEM_PAGE);
    if (from >= to) return false;
    *s = (segment){g, chunk, g->first + (from - g->pos), (int)(from - chunk * GEM_PAGE),
                   (int)(to - from)};
    return true;
}

static float *row_of(const gem_backend *be, gem_buf b, int32_t place)
{
    return gem_cpu_row(be, b, be->order[place]);
}

/* ---- convolution ---- */

/* The raw inputs of position pos, at most TAIL before the run or within it: rows of the run; before
 * them the tape's ring; before the chunk that the run starts in, the state's tail. */
static const float *raw_input(const gem_backend *be, const cpu_seq *g, gem_buf src, int layer,
                              int32_t pos)
{
    const gem_recurrent *r = &be->plan->recurrent;
    int32_t chunk = g->pos / GEM_PAGE, start = chunk * GEM_PAGE;
    if (pos < 0) return be->conv_w + (size_t)r->n_layers * GEM_CONV_TAPS * channels(r);
    if (pos >= g->pos) return row_of(be, src, g->first + (pos - g->pos));
    if (pos >= start) return ring_at(be, be->batch->tape[g->seq], layer, pos);
    return state_at(be, be->batch->state[g->seq][chunk], layer) + state_floats(r) -
           (size_t)(start - pos) * channels(r);
}

static void store_key(const gem_recurrent *r, const float *k, int t, float *keys)
{
    for (int d = 0; d < r->head_dim; d++)
        keys[gem_delta_key_at(r->head_dim, t, d)] = k[d];
}

/* Raw inputs that later runs need: the tail of each state that this run wrote, and the ring. Tails
 * first, because they may read the ring; by blocks of channels, so that no thread reads what
 * another one overwrites. */
static void keep_inputs(const gem_backend *be, int tid, const cpu_op *o, gem_buf src)
{
    const gem_recurrent *r = &be->plan->recurrent;
    const size_t n = channels(r), hd = (size_t)r->head_dim;
    const int heads = (int)(n / hd);
    int64_t lo, hi;
    gem_share((int64_t)be->n_groups * heads, be->n_threads, tid, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const cpu_seq *g = &be->group[i / heads];
        const size_t at = (size_t)(i % heads) * hd;
        const int32_t end = g->pos + g->n, tape = be->batch->tape[g->seq];
        for (int32_t c = g->pos / GEM_PAGE + 1; c * GEM_PAGE <= end; c++) {
            float *tail = state_at(be, be->batch->state[g->seq][c], o->recurrent) +
                          state_floats(r) - TAIL * n + at;
            for (int j = 0; j < TAIL; j++)
                memcpy(tail + (size_t)j * n,
                       raw_input(be, g, src, o->recurrent, c * GEM_PAGE - TAIL + j) + at,
                       hd * sizeof(float));
        }
        for (int32_t pos = GEM_MAX(g->pos, end - RING); pos < end; pos++)
            memcpy(ring_at(be, tape, o->recurrent, pos) + at,
                   row_of(be, src, g->first + (pos - g->pos)) + at, hd * sizeof(float));
    }
}

/* One item is one head of one row. Keys of the first level go to the tape at once. */
void gem_cpu_conv(gem_backend *be, int tid, const cpu_op *o)
{
    const gem_recurrent *r = &be->plan->recurrent;
    const gem_op *op = o->op;
    const size_t hd = (size_t)r->head_dim, n = channels(r);
    const int heads = 2 * r->n_k_heads + r->n_v_heads;
    int64_t lo, hi;
    gem_share((int64_t)be->batch->n_rows * heads, be->n_threads, tid, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t place = (int32_t)(i / heads), h = (int32_t)(i % heads);
        const cpu_seq *g = &be->group[be->group_of[place]];
        int32_t pos = g->pos + (place - g->first), chunk = pos / GEM_PAGE;
        bool q = h < r->n_k_heads, k = !q && h < 2 * r->n_k_heads;
        gem_conv_args a = {
            .w = be->conv_w + (size_t)o->recurrent * GEM_CONV_TAPS * n + (size_t)h * hd,
            .ldw = n,
            .n = r->head_dim,
            .norm = q || k,
            .eps = op->conv.eps,
            .scale = q ? 1.0f / sqrtf((float)r->head_dim) : 1.0f,
            .dst = row_of(be, op->conv.dst, place) + (size_t)h * hd,
        };
        for (int j = 0; j < GEM_CONV_TAPS; j++)
            a.u[j] = raw_input(be, g, op->conv.src, o->recurrent, pos - TAIL + j) + (size_t)h * hd;
        be->k.conv(&a);
        if (k && chunk == g->pos / GEM_PAGE)
            store_key(r, a.dst, pos % GEM_PAGE,
                      keys_at(be, be->batch->tape[g->seq], o->recurrent, chunk, h - r->n_k_heads));
    }
    gem_team_barrier(be->team);
    keep_inputs(be, tid, o, op->conv.src);
}

/* ---- delta rule ---- */

/* b of the segment's rows in the tape, and their beta. */
static void gates(const gem_backend *be, const cpu_op *o, const segment *s, int head, double *b,
                  float *beta)
{
    const gem_op *op = o->op;
    double sum = s->t0 ? b[s->t0 - 1] : 0.0;
    for (int i = 0; i < s->n; i++) {
        float x = row_of(be, op->delta.alpha, s->first + i)[head];
        sum += (double)(op->delta.a[head] * gem_softplus_ref(x + op->delta.dt_bias[head]));
        b[s->t0 + i] = sum;
        beta[i] = gem_sigmoid_ref(row_of(be, op->delta.beta, s->first + i)[head]);
    }
}

/* y = rms(o, norm) * silu(z), and its 8-bit form. */
static void finish_rows(const gem_backend *be, const gem_op *op, const segment *s, int head,
                        float *o)
{
    const size_t hd = (size_t)be->plan->recurrent.head_dim, at = (size_t)head * hd;
    for (int i = 0; i < s->n; i++, o += hd) {
        float *y = row_of(be, op->delta.dst, s->first + i) + at;
        be->k.norm(o, op->delta.norm, (int64_t)hd, op->delta.eps, o);
        be->k.glu(GEM_ACT_SILU, row_of(be, op->delta.z, s->first + i) + at, o, (int64_t)hd, y);
        gem_cpu_quantize(be, op->delta.dst, be->order[s->first + i], (int64_t)at, (int64_t)hd);
    }
}

/* V heads kh + j * n_k_heads, j in [from, to), of one segment. */
static void delta_heads(const gem_backend *be, int tid, const cpu_op *o, const segment *s, int kh,
                        int from, int to)
{
    const gem_recurrent *r = &be->plan->recurrent;
    const size_t hd = (size_t)r->head_dim;
    const int32_t *state = be->batch->state[s->g->seq], tape = be->batch->tape[s->g->seq];
    const float *row[GEM_PAGE];
    float beta[GEM_PAGE], *scratch = be->scratch[tid].delta;
    for (int i = 0; i < s->n; i++)
        row[i] = row_of(be, o->op->delta.src, s->first + i);
    gem_delta_args a = {
        .head_dim = r->head_dim,
        .t0 = s->t0,
        .n = s->n,
        .row = row,
        .q_at = (size_t)kh * hd,
        .k_at = (size_t)(r->n_k_heads + kh) * hd,
        .keys = keys_at(be, tape, o->recurrent, s->chunk, kh),
        .kk = scratch,
        .qk = scratch + GEM_PAGE * GEM_PAGE,
        .beta = beta,
        .o = scratch + 2 * GEM_PAGE * GEM_PAGE,
        .scratch = scratch + 2 * GEM_PAGE * GEM_PAGE + GEM_PAGE * hd,
    };
    be->k.delta_scores(&a);
    for (int h = kh + from * r->n_k_heads; h < kh + to * r->n_k_heads; h += r->n_k_heads) {
        const size_t at = (size_t)h * hd * hd;
        double *b = b_at(be, tape, o->recurrent, s->chunk, h);
        gates(be, o, s, h, b, beta);
        a.b = b;
        a.v_at = (size_t)(2 * r->n_k_heads + h) * hd;
        a.s0 = s->chunk ? state_at(be, state[s->chunk], o->recurrent) + at : NULL;
        a.values = values_at(be, tape, o->recurrent, s->chunk, h);
        a.s1 =
            s->t0 + s->n == GEM_PAGE ? state_at(be, state[s->chunk + 1], o->recurrent) + at : NULL;
        be->k.delta(&a);
        finish_rows(be, o->op, s, h, a.o);
    }
}

static void level_keys(const gem_backend *be, int tid, const cpu_op *o, int level)
{
    const gem_recurrent *r = &be->plan->recurrent;
    int64_t lo, hi;
    gem_share((int64_t)be->n_groups * r->n_k_heads, be->n_threads, tid, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int kh = (int)(i % r->n_k_heads);
        segment s;
        if (!segment_at(&be->group[i / r->n_k_heads], level, &s)) continue;
        float *keys = keys_at(be, be->batch->tape[s.g->seq], o->recurrent, s.chunk, kh);
        for (int t = 0; t < s.n; t++)
            store_key(r,
                      row_of(be, o->op->delta.src, s.first + t) +
                          (size_t)(r->n_k_heads + kh) * (size_t)r->head_dim,
                      s.t0 + t, keys);
    }
}

/* The V heads of a K head share its scores, unless there are too few K heads for the threads. */
static void level_heads(const gem_backend *be, int tid, const cpu_op *o, int level)
{
    const gem_recurrent *r = &be->plan->recurrent;
    const int ratio = r->n_v_heads / r->n_k_heads;
    int64_t items = (int64_t)be->n_groups * r->n_k_heads, lo, hi;
    int parts = items < 4 * be->n_threads ? ratio : 1;
    gem_share(items * parts, be->n_threads, tid, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int64_t item = i / parts;
        int part = (int)(i % parts);
        segment s;
        if (!segment_at(&be->group[item / r->n_k_heads], level, &s)) continue;
        delta_heads(be, tid, o, &s, (int)(item % r->n_k_heads), parts > 1 ? part : 0,
                    parts > 1 ? part + 1 : ratio);
    }
}

void gem_cpu_delta(gem_backend *be, int tid, const cpu_op *o)
{
    for (int level = 0; level < be->n_levels; level++) {
        if (level > 0) {
            level_keys(be, tid, o, level);
            gem_team_barrier(be->team);
        }
        level_heads(be, tid, o, level);
    }
}

size_t gem_cpu_delta_scratch(const gem_recurrent *r)
{
    return gem_delta_scratch(r->head_dim) + 2 * GEM_PAGE * GEM_PAGE +
           GEM_PAGE * (size_t)r->head_dim;
}
