/* weights.c - bring weights into the arena as R16K4 panels, in parallel, straight from the mapped
 * file; the file's pages are let go as they are copied, so that memory holds the weights once. */
#include "backend/cpu/cpu.h"

#include <stdlib.h>
#include <sys/mman.h>

static cpu_weight *find(gem_backend *be, const gem_tensor *t)
{
    for (size_t i = 0; i < be->n_weights; i++)
        if (be->weight[i].tensor == t) return &be->weight[i];
    return NULL;
}

static cpu_weight *add(gem_backend *be, const gem_tensor *t)
{
    cpu_weight *w = find(be, t);
    if (w) return w;
    w = &be->weight[be->n_weights++];
    w->tensor = t;
    w->k = (int64_t)t->dim[0];
    w->n_rows = (int64_t)t->dim[1];
    w->n_panels = (w->n_rows + GEM_PANEL_ROWS - 1) / GEM_PANEL_ROWS;
    w->type = be->opt.exact ? GEM_PANEL_F32 : gem_panel_type_of(t->dtype);
    w->panel_bytes = gem_panel_bytes(w->type, w->k);
    return w;
}

/* Vectors are copied: aligned, and independent of the file's layout. */
static const float *copy_vector(gem_backend *be, const float *v, int64_t n, int64_t padded)
{
    if (!v) return NULL;
    float *p = gem_cpu_take(be, (size_t)padded * sizeof(float));
    if (p) memcpy(p, v, (size_t)n * sizeof(float));
    return p;
}

typedef struct load_job {
    gem_backend *be;
    uint8_t *const *panels; /* [n_weights] destinations */
    gem_range *range;       /* over all panels of all weights */
    const int64_t *first;   /* [n_weights + 1] panel numbers */
    _Atomic int64_t done;
} load_job;

static void load_part(void *ctx, int tid)
{
    load_job *j = ctx;
    gem_backend *be = j->be;
    int victim = tid;
    int64_t lo, hi, total = j->first[be->n_weights];
    size_t w = 0;
    while ((hi = gem_range_take(j->range, be->n_threads, tid, &victim, 64, &lo)) > lo) {
        for (int64_t p = lo; p < hi; p++) {
            while (j->first[w] > p)
                w--;
            while (j->first[w + 1] <= p)
                w++;
            const cpu_weight *x = &be->weight[w];
            gem_panel_pack(x->type, x->tensor->data, x->tensor->row_bytes, x->n_rows,
                           (p - j->first[w]) * GEM_PANEL_ROWS, x->k,
                           j->panels[w] + (size_t)(p - j->first[w]) * x->panel_bytes);
        }
        int64_t done = atomic_fetch_add(&j->done, hi - lo) + hi - lo;
        if (tid == 0 && be->opt.progress)
            be->opt.progress(be->opt.progress_user, (double)done / (double)total);
    }
}

/* Panels of this many bytes, on huge pages. */
static size_t arena_bytes(size_t panels)
{
    return (size_t)gem_round_up(panels, 2u << 20) + (2u << 20);
}

uint64_t gem_cpu_weights_bytes(const gem_backend *be)
{
    uint64_t total = 0;
    if (be->opt.exact || be->opt.no_repack) return 0;
    for (size_t i = 0; i < be->n_weights; i++)
        total += (uint64_t)be->weight[i].n_panels * be->weight[i].panel_bytes;
    return arena_bytes(total);
}

static gem_status pack_all(gem_backend *be, gem_error *err)
{
    gem_status st = GEM_OK;
    size_t n = be->n_weights;
    int64_t *first = calloc(n + 1, sizeof(*first));
    uint8_t **panels = calloc(n + 1, sizeof(*panels));
    gem_range *range = aligned_alloc(64, sizeof(*range) * (size_t)be->n_threads);
    if (!first || !panels || !range) {
        st = gem_fail(err, GEM_E_NOMEM, "cpu: no memory to load %zu weights", n);
        goto done;
    }
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        if (!gem_mul_ok((size_t)be->weight[i].n_panels, be->weight[i].panel_bytes, &bytes) ||
            !gem_add_ok(total, bytes, &total)) {
            st = gem_fail(err, GEM_E_NOMEM, "cpu: %s does not fit the address space",
                          be->weight[i].tensor->name);
            goto done;
        }
        first[i + 1] = first[i] + be->weight[i].n_panels;
    }
    be->arena_bytes = arena_bytes(total);
    void *map =
        mmap(NULL, be->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        be->arena_bytes = 0;
        st = gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %zu bytes of weights", total);
        goto done;
    }
    be->arena = map;
    uint8_t *at = (uint8_t *)gem_round_up((uintptr_t)map, 2u << 20);
#ifdef MADV_HUGEPAGE
    madvise(at, be->arena_bytes - (size_t)(at - be->arena), MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < n; i++) {
        panels[i] = at;
        be->weight[i].panels = at;
        at += (size_t)be->weight[i].n_panels * be->weight[i].panel_bytes;
    }
    load_job job = {.be = be, .panels = panels, .range = range, .first = first};
    gem_ranges_set(range, be->n_threads, first[n]);
    gem_team_run(be->team, load_part, &job);
    for (size_t i = 0; i < n; i++) {
        gem_gguf_drop_pages(be->opt.file, be->weight[i].tensor);
        if (be->opt.drafter) gem_gguf_drop_pages(be->opt.drafter, be->weight[i].tensor);
    }
done:
    free(first);
    free(panels);
    free(range);
    return st;
}

/* Which tensors are multiplied, in op order; embeddings are only gathered and stay mapped. */
static gem_status bind_op(gem_backend *be, cpu_op *o, gem_error *err)
{
    const gem_op *op = o->op;
    int n = op->kind == GEM_OP_LINEAR ? op->linear.n : op->kind == GEM_OP_HEAD ? 1 : 0;
    for (int i = 0; i < n; i++) {
        const gem_tensor *t = op->kind == GEM_OP_HEAD ? op->head.w : op->linear.w[i];
        o->w[i] = add(be, t);
        o->n_panels += o->w[i]->n_panels;
        if (op->kind == GEM_OP_LINEAR && op->linear.bias[i]) {
            int64_t padded = o->w[i]->n_panels * GEM_PANEL_ROWS;
            o->bias[i] = copy_vector(be, op->linear.bias[i], o->w[i]->n_rows, padded);
            if (!o->bias[i])
                return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for biases of layer %d",
                                op->layer);
        }
        bool drafter = be->plan->draft_op && op >= be->plan->op + be->plan->draft_op;
        if (!drafter) be->decode_bytes += (uint64_t)o->w[i]->n_panels * o->w[i]->panel_bytes;
        gem_buf src = op->kind == GEM_OP_HEAD ? op->head.src : op->linear.src;
        if (o->w[i]->type < GEM_N_QPANELS) be->quantized[src] = true;
    }
    return GEM_OK;
}

gem_status gem_cpu_load_weights(gem_backend *be, gem_error *err)
{
    gem_status st = GEM_OK;
    for (size_t i = 0; i < be->plan->n_ops; i++) {
        be->op[i].op = &be->plan->op[i];
        if ((st = bind_op(be, &be->op[i], err)) != GEM_OK) return st;
    }
    if ((st = gem_cpu_forecast(be, err)) != GEM_OK) return st;
    if (be->opt.exact || be->opt.no_repack) return GEM_OK;
    return pack_all(be, err);
}
