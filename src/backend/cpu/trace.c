/* trace.c - what profiles ask of the CPU backend: time stamps of a run, and a KV cache full of
 * finite values that nobody had to compute. */
#include "backend/cpu/cpu.h"
#include "backend/op_routes.h"
#include "backend/seed.h"

#include <stdlib.h>

enum { PATTERN = GEM_SEED_PATTERN };

void gem_cpu_trace_op(gem_backend *be, size_t op, uint64_t *last)
{
    uint64_t ns = 0;
    gem_phase_end(&ns, last);
    be->trace->device_ns += ns;
    if (be->trace->op_ns) be->trace->op_ns[op] += ns;
}

/* There is no command buffer to encode and nothing to clean up: what ends a run is the last
 * barrier. */
gem_status gem_cpu_run_traced(gem_backend *be, const gem_batch *b, const float **logits,
                              gem_trace *trace, gem_error *err)
{
    uint64_t now = gem_now_ns(), sum[3] = {0};
    if (!trace->start_ns) trace->start_ns = now;
    if (trace->end_ns) trace->prepare_ns += now - trace->end_ns; /* between two runs */
    trace->end_ns = now;
    for (int t = 0; t < be->n_threads; t++)
        memset(be->scratch[t].phase_ns, 0, sizeof(be->scratch[t].phase_ns));
    be->trace = trace;
    uint64_t before = trace->prepare_ns + trace->wait_ns;
    gem_status st = gem_cpu_run(be, b, logits, err);
    be->trace = NULL;
    uint64_t end = gem_now_ns(), told = trace->prepare_ns + trace->wait_ns - before;
    trace->readback_ns += end - now - told;
    trace->end_ns = end;
    for (int t = 0; t < be->n_threads; t++)
        for (int i = 0; i < 3; i++)
            sum[i] += be->scratch[t].phase_ns[i];
    trace->score_ns += sum[0] / (uint64_t)be->n_threads;
    trace->normalization_ns += sum[1] / (uint64_t)be->n_threads;
    trace->value_ns += (sum[2] - sum[0] - sum[1]) / (uint64_t)be->n_threads;
    return st;
}

/* ---- seeded keys and values ---- */

typedef struct seed_job {
    gem_backend *be;
    const float *f32;    /* [2 * PATTERN] */
    const uint16_t *f16; /* the same values */
    int64_t n_pages;     /* of all pools */
} seed_job;

static void seed_page(const seed_job *j, int pool, int64_t page)
{
    gem_backend *be = j->be;
    size_t size = be->opt.pool[pool].f16 ? 2 : 4, n = be->page_bytes[pool] / size;
    size_t at = gem_seed_start(pool, page);
    uint8_t *out = be->pool[pool] + (size_t)page * be->page_bytes[pool];
    const uint8_t *from = size == 2 ? (const uint8_t *)j->f16 : (const uint8_t *)j->f32;
    for (size_t i = 0; i < n; i += PATTERN)
        memcpy(out + i * size, from + at * size, GEM_MIN(n - i, (size_t)PATTERN) * size);
}

static void seed_part(void *ctx, int tid)
{
    const seed_job *j = ctx;
    int64_t lo, hi, first = 0;
    gem_share(j->n_pages, j->be->n_threads, tid, &lo, &hi);
    for (int p = 0; p < j->be->opt.n_pools; p++) {
        int64_t n = j->be->opt.pool[p].n_pages;
        for (int64_t i = GEM_MAX(lo - first, 0); i < GEM_MIN(hi - first, n); i++)
            seed_page(j, p, i);
        first += n;
    }
}

gem_status gem_cpu_seed_kv(gem_backend *be, uint64_t seed, gem_error *err)
{
    float *f32 = malloc(2 * PATTERN * (sizeof(float) + sizeof(uint16_t)));
    if (!f32) return gem_fail(err, GEM_E_NOMEM, "cpu: no memory for %d diagnostic values", PATTERN);
    uint16_t *f16 = (uint16_t *)(f32 + 2 * PATTERN);
    seed_job job = {be, f32, f16, 0};
    gem_seed_pattern(seed, f32);
    for (int i = 0; i < PATTERN; i++) {
        f32[i + PATTERN] = f32[i];
        f16[i] = f16[i + PATTERN] = gem_f32_to_f16(f32[i]);
    }
    for (int p = 0; p < be->opt.n_pools; p++)
        job.n_pages += be->opt.pool[p].n_pages;
    gem_team_run(be->team, seed_part, &job);
    free(f32);
    return GEM_OK;
}

/* ---- routes ---- */

const char gem_cpu_attention[] = "flash, f32 scores of 64 keys, chunks of 512";
static const char two_rows[] =
    "flash, f32 scores of 64 keys, chunks of 512, two query tokens a pass";
static const char four_rows[] =
    "flash, f32 scores of 64 keys, chunks of 512, four query tokens a pass";

/* Some layer has passes of more tokens than this. */
static bool limits(const gem_plan *p, int tokens)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].kind != GEM_OP_ATTEND) continue;
        int group = p->op[i].attend.n_heads / p->layer[p->op[i].layer].n_kv_heads;
        if (GEM_ATTEND_ROWS / group > tokens) return true;
    }
    return false;
}

/* The bits do not change: a row's result does not depend on the rows beside it. */
void gem_cpu_choose_route(gem_backend *be, const gem_op_route *route, const char **ran)
{
    int rows = !strcmp(route->name, "online-row2")   ? 2
               : !strcmp(route->name, "online-row4") ? 4
                                                     : 0;
    *ran = !strcmp(route->op, "linear") ? "panels of 16 rows" : gem_cpu_attention;
    if (strcmp(route->op, "prefill-attention") != 0) return;
    be->query_rows = rows;
    if (rows && limits(be->plan, rows)) *ran = rows == 2 ? two_rows : four_rows;
}
