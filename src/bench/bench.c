/* bench.c - order, warm-up, timing, samples. */
#include "bench/bench.h"

#include "bench/stats.h"

#include <stdlib.h>

size_t bench_arm_at(size_t n_arms, int round, size_t slot)
{
    /* parity of the ones in the round's number: the Thue-Morse sequence */
    return __builtin_popcount((unsigned)round) & 1 ? n_arms - 1 - slot : slot;
}

static gem_status run_one(bench_plan *p, bench_arm *a, int round, gem_error *err)
{
    gem_status st = a->prepare ? a->prepare(a->user, err) : GEM_OK;
    if (st != GEM_OK) return st;
    uint64_t start = gem_now_ns();
    st = a->run(a->user, err);
    uint64_t ns = gem_now_ns() - start;
    if (st == GEM_OK && a->finish) st = a->finish(a->user, round, err);
    if (st != GEM_OK) return st;
    if (round < 0)
        a->warm_ns[a->n_warm++] = ns;
    else
        a->ns[a->n++] = ns;
    if (p->progress && !p->progress(p->progress_user, a->name, round, ns))
        return gem_fail(err, GEM_E_CANCELLED, "interrupted");
    return GEM_OK;
}

gem_status bench_run(bench_plan *p, gem_error *err)
{
    size_t reps = (size_t)p->repetitions, warm = (size_t)p->warmups;
    p->order = calloc(p->n_arms * reps + 1, sizeof(*p->order));
    p->n_order = 0;
    if (!p->order)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the order of %zu runs", p->n_arms * reps);
    for (size_t i = 0; i < p->n_arms; i++) {
        bench_arm *a = &p->arm[i];
        a->n = a->n_warm = 0;
        a->ns = calloc(reps + 1, sizeof(*a->ns));
        a->warm_ns = calloc(warm + 1, sizeof(*a->warm_ns));
        if (!a->ns || !a->warm_ns)
            return gem_fail(err, GEM_E_NOMEM, "no memory for %zu samples", reps);
    }
    gem_status st = GEM_OK;
    for (int r = 0; r < p->warmups; r++)
        for (size_t i = 0; st == GEM_OK && i < p->n_arms; i++)
            st = run_one(p, &p->arm[i], -1, err);
    for (int r = 0; r < p->repetitions; r++)
        for (size_t i = 0; st == GEM_OK && i < p->n_arms; i++) {
            bench_arm *a = &p->arm[bench_arm_at(p->n_arms, r, i)];
            st = run_one(p, a, r, err);
            if (st == GEM_OK) p->order[p->n_order++] = a->name;
        }
    return st;
}

void bench_plan_deinit(bench_plan *p)
{
    for (size_t i = 0; i < p->n_arms; i++) {
        free(p->arm[i].ns);
        free(p->arm[i].warm_ns);
        p->arm[i].ns = p->arm[i].warm_ns = NULL;
    }
    free(p->order);
    p->order = NULL;
}

static json_t *integers(const uint64_t *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)x[i]));
    return list;
}

/* Stats of work / time (rates) or of the times themselves. */
static json_t *figures(const bench_arm *a, bool rates, json_t *samples)
{
    bench_stats s;
    double total = 0, *x = calloc(a->n + 1, sizeof(*x));
    if (!x) return NULL;
    for (size_t i = 0; i < a->n; i++) {
        total += (double)a->ns[i];
        x[i] = rates ? a->work * 1e9 / (double)a->ns[i] : (double)a->ns[i];
        if (samples) json_array_append_new(samples, json_real(x[i]));
    }
    json_t *j = a->n && bench_stats_of(&s, x, a->n) ? bench_stats_json(&s) : json_object();
    if (rates && total > 0)
        json_object_set_new(j, "overall", json_real(a->work * (double)a->n * 1e9 / total));
    free(x);
    return j;
}

json_t *bench_arm_json(const bench_arm *a)
{
    json_t *rates = json_array();
    json_t *rate_stats = figures(a, true, rates);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "name", a->name, "samples_ns",
                     integers(a->ns, a->n), "warmup_ns", integers(a->warm_ns, a->n_warm), "time_ns",
                     figures(a, false, NULL), "samples_per_s", rates, "rate_per_s", rate_stats);
}
