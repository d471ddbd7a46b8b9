/* cuda_trace.c - what profiles ask of the CUDA backend: time stamps of a run by events in its
 * stream, a KV memory full of finite values that nobody had to compute, and named routes.
 *
 * A run by the ordinary way has two events, around everything that the device does for it. With op
 * times its kernels go to the stream one by one, an event behind each op; the host reads stamps
 * while the device is still at later ops, so that reading them does not lengthen the run. An op
 * that rides in another's kernel (a gate behind its product, keys and values of a single row in
 * their attention) has no time of its own. */
#include "backend/cuda/cuda_backend.h"
#include "backend/op_routes.h"
#include "backend/seed.h"

#include <stdlib.h>

struct gem_cuda_tracer {
    gem_trace *trace;           /* borrowed; NULL: the run is not traced */
    uint64_t stamp;             /* end of the last phase */
    cudaEvent_t *event;         /* owned, [n_events]; 0: before the first kernel */
    size_t *op;                 /* owned, [n_events]; op[k] ends with event k */
    size_t n_events, n;         /* n: recorded in this run */
    unsigned long long *clocks; /* [3], device, owned: of attention's phases, in this run */
};

static gem_trace *traced(const gem_backend *be)
{
    return be->tracer ? be->tracer->trace : NULL;
}

bool gem_cuda_traces_ops(const gem_backend *be)
{
    return traced(be) && traced(be)->op_ns;
}

unsigned long long *gem_cuda_phase_clocks(const gem_backend *be)
{
    return gem_cuda_traces_ops(be) && traced(be)->attend_phases ? be->tracer->clocks : NULL;
}

/* ---- the marks of a run ---- */

void gem_cuda_mark_prepared(gem_backend *be)
{
    if (traced(be)) gem_phase_end(&traced(be)->prepare_ns, &be->tracer->stamp);
}

static cudaError_t record(gem_backend *be, size_t op)
{
    gem_cuda_tracer *t = be->tracer;
    if (t->n == t->n_events) return cudaErrorInvalidValue;
    t->op[t->n] = op;
    return cudaEventRecord(t->event[t->n++], be->s.stream);
}

/* A graph has been encoded when there is one; kernels of a stream are submitted while the first of
 * them run, and that is waiting. */
cudaError_t gem_cuda_mark_begin(gem_backend *be)
{
    if (!traced(be)) return cudaSuccess;
    gem_phase_end(&traced(be)->encode_ns, &be->tracer->stamp);
    unsigned long long *clocks = gem_cuda_phase_clocks(be);
    cudaError_t e =
        clocks ? cudaMemsetAsync(clocks, 0, 3 * sizeof(*clocks), be->s.stream) : cudaSuccess;
    return e ? e : record(be, 0);
}

cudaError_t gem_cuda_mark_op(gem_backend *be, size_t op)
{
    return gem_cuda_traces_ops(be) ? record(be, op) : cudaSuccess;
}

/* Phases of attention overlap in time, over warps that are at different ones; each has the share of
 * the kernels' time that it has of the clocks. */
static cudaError_t share_phases(gem_backend *be, uint64_t attention_ns)
{
    unsigned long long *from = gem_cuda_phase_clocks(be), c[3] = {0};
    gem_trace *trace = traced(be);
    if (!from) return cudaSuccess;
    cudaError_t e = cudaMemcpyAsync(c, from, sizeof(c), cudaMemcpyDeviceToHost, be->s.stream);
    if (!e) e = cudaStreamSynchronize(be->s.stream);
    const double all = (double)c[0] + (double)c[1] + (double)c[2];
    if (e || all == 0) return e;
    const uint64_t score = (uint64_t)((double)attention_ns * (double)c[0] / all),
                   normalization = (uint64_t)((double)attention_ns * (double)c[1] / all);
    trace->score_ns += score;
    trace->normalization_ns += normalization;
    trace->value_ns += attention_ns - score - normalization;
    return e;
}

cudaError_t gem_cuda_mark_end(gem_backend *be)
{
    gem_cuda_tracer *t = be->tracer;
    gem_trace *trace = traced(be);
    if (!trace) return cudaSuccess;
    cudaError_t e = trace->op_ns ? cudaSuccess : record(be, 0);
    uint64_t before = 0, attention = 0;
    for (size_t k = 1; k < t->n && !e; k++) {
        float ms = 0;
        e = cudaEventSynchronize(t->event[k]);
        if (!e) e = cudaEventElapsedTime(&ms, t->event[0], t->event[k]);
        const uint64_t at = GEM_MAX((uint64_t)((double)ms * 1e6 + 0.5), before);
        if (trace->op_ns) trace->op_ns[t->op[k]] += at - before;
        if (be->plan->op[t->op[k]].kind == GEM_OP_ATTEND) attention += at - before;
        trace->device_ns += at - before;
        before = at;
    }
    return e ? e : share_phases(be, attention);
}

void gem_cuda_mark_done(gem_backend *be)
{
    if (traced(be)) gem_phase_end(&traced(be)->wait_ns, &be->tracer->stamp);
}

/* ---- a traced run ---- */

void gem_cuda_trace_close(gem_backend *be)
{
    gem_cuda_tracer *t = be->tracer;
    if (!t) return;
    for (size_t i = 0; t->event && i < t->n_events; i++)
        if (t->event[i]) cudaEventDestroy(t->event[i]);
    if (t->clocks) cudaFree(t->clocks);
    free(t->event);
    free(t->op);
    free(t);
    be->tracer = NULL;
}

static gem_status open_tracer(gem_backend *be, gem_error *err)
{
    gem_cuda_tracer *t = calloc(1, sizeof(*t));
    be->tracer = t;
    if (!t) return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for time stamps");
    t->n_events = be->plan->n_ops + 2;
    t->event = calloc(t->n_events, sizeof(*t->event));
    t->op = calloc(t->n_events, sizeof(*t->op));
    if (!t->event || !t->op)
        return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for %zu time stamps", t->n_events);
    cudaError_t e = cudaSetDevice(be->device_id);
    for (size_t i = 0; i < t->n_events && !e; i++)
        e = cudaEventCreate(&t->event[i]);
    if (!e) e = cudaMalloc((void **)&t->clocks, 3 * sizeof(*t->clocks));
    return e ? gem_cuda_fail(err, e, "making time stamps") : GEM_OK;
}

gem_status gem_cuda_run_traced(gem_backend *be, const gem_batch *b, const float **logits,
                               gem_trace *trace, gem_error *err)
{
    gem_status st = be->tracer ? GEM_OK : open_tracer(be, err);
    if (st != GEM_OK) {
        gem_cuda_trace_close(be);
        return st;
    }
    gem_cuda_tracer *t = be->tracer;
    t->stamp = gem_now_ns();
    if (!trace->start_ns) trace->start_ns = t->stamp;
    if (trace->end_ns) trace->prepare_ns += t->stamp - trace->end_ns; /* between two runs */
    t->trace = trace;
    t->n = 0;
    st = gem_cuda_run(be, b, logits, err);
    t->trace = NULL;
    /* the copy of the logits is the last thing that the device does; what is left is the host's */
    gem_phase_end(&trace->readback_ns, &t->stamp);
    trace->end_ns = t->stamp;
    return st;
}

/* ---- seeded keys and values ---- */

gem_status gem_cuda_seed_kv(gem_backend *be, uint64_t seed, gem_error *err)
{
    const size_t bytes = GEM_SEED_PATTERN * sizeof(float);
    float *pattern = malloc(bytes), *there = NULL;
    if (!pattern) return gem_fail(err, GEM_E_NOMEM, "cuda: no memory for %zu bytes", bytes);
    gem_seed_pattern(seed, pattern);
    cudaError_t e = cudaSetDevice(be->device_id);
    if (!e) e = cudaMalloc((void **)&there, bytes);
    if (!e) e = cudaMemcpyAsync(there, pattern, bytes, cudaMemcpyHostToDevice, be->s.stream);
    for (int i = 0; i < be->opt.n_pools && !e; i++)
        e = gem_cuda_seed(&be->s, be->pool[i], &be->opt.pool[i], i, there);
    if (!e) e = cudaStreamSynchronize(be->s.stream);
    if (there) cudaFree(there);
    free(pattern);
    return e ? gem_cuda_fail(err, e, "seeding keys and values") : GEM_OK;
}

/* ---- routes ---- */

enum { ROWS, FLASH, WGMMA, BASES };
enum { AS_FITS, TWO_TOKENS, FOUR_TOKENS, WIDE_KEYS, FORMS };
#define BOTH "wgmma for f16 heads of 256 and 512, "
static const char *const many[BASES][FORMS] = {
    {"rows", "rows", "rows", "rows"},
    {"flash64", "flash64, two query tokens a block without a window",
     "flash64, four query tokens a block without a window", "flash64, flash128 without a window"},
    {BOTH "flash64", BOTH "flash64, two query tokens a block without a window",
     BOTH "flash64, four query tokens a block without a window",
     BOTH "flash64, flash128 without a window"},
};

static int base_of(const gem_backend *be)
{
    return be->opt.exact || be->attend_ref ? ROWS : be->s.wgmma ? WGMMA : FLASH;
}

const char *gem_cuda_attention_many(const gem_backend *be)
{
    return many[base_of(be)][AS_FITS];
}

/* Some layer without a window is computed otherwise when these are chosen. */
static bool matters(const gem_backend *be, int tokens, bool wide)
{
    const gem_plan *p = be->plan;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gem_kv_layer *l = &p->layer[p->op[i].layer];
        if (p->op[i].kind != GEM_OP_ATTEND || l->window || !gem_cuda_flash_head(l->head_dim))
            continue;
        const bool f16 = be->opt.pool[be->opt.layer_pool[p->op[i].layer]].f16;
        const int rows = gem_cuda_block_rows(&be->s, l->head_dim, f16);
        if (tokens && rows / (p->op[i].attend.n_heads / l->n_kv_heads) > tokens) return true;
        if (wide && !gem_cuda_wgmma_rows(&be->s, l->head_dim, f16) &&
            gem_cuda_flash128_head(&be->s, l->head_dim))
            return true;
    }
    return false;
}

/* Windowed layers, decode and products stay as they are, whatever is chosen. */
void gem_cuda_choose_route(gem_backend *be, const gem_op_route *route, const char **ran)
{
    const bool exact = be->opt.exact;
    int form = AS_FITS;
    if (!strcmp(route->op, "decode-attention")) *ran = be->attend_ref ? "rows" : "split";
    if (!strcmp(route->op, "linear")) *ran = exact ? "f32" : "slab-mma";
    if (strcmp(route->op, "prefill-attention") != 0) return;
    if (!strcmp(route->name, "online-row2")) form = TWO_TOKENS;
    if (!strcmp(route->name, "online-row4")) form = FOUR_TOKENS;
    if (!strcmp(route->name, "bq8-bk128")) form = WIDE_KEYS;
    const int tokens = form == TWO_TOKENS ? 2 : form == FOUR_TOKENS ? 4 : 0;
    if (!matters(be, tokens, form == WIDE_KEYS)) form = AS_FITS;
    be->query_tokens = form == AS_FITS ? 0 : tokens;
    be->wide_keys = form == WIDE_KEYS;
    *ran = many[base_of(be)][form];
}
