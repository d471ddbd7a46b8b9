/* attention_bench.c - shapes, arms, dispatches. */
#include "bench/attention_bench.h"

#include "bench/stats.h"

#include <stdio.h>
#include <stdlib.h>

static const bench_shape shapes[] = {
    {"31b", 32, 4, 512, 0, "full-attention layer of Gemma 4 31B"},
    {"31b-full", 32, 4, 512, 0, "the same"},
    {"31b-sliding", 32, 16, 256, 1024, "sliding layer of Gemma 4 31B"},
    {"12b-full", 16, 1, 512, 0, "full-attention layer of Gemma 4 12B"},
    {"12b-sliding", 16, 8, 256, 1024, "sliding layer of Gemma 4 12B"},
    {"tiny", 8, 2, 64, 0, "for tests"},
};

const bench_shape *bench_shape_at(size_t i)
{
    return i < ARRAY_LEN(shapes) ? &shapes[i] : NULL;
}

const bench_shape *bench_shape_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (!strcmp(shapes[i].name, name)) return &shapes[i];
    return NULL;
}

bool bench_shape_names(char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        int n = snprintf(out + at, size - at, "%s%s", at ? ", " : "", shapes[i].name);
        if (n < 0 || (size_t)n >= size - at) return false;
        at += (size_t)n;
    }
    return true;
}

static gem_status choose(void *user, gem_error *err)
{
    bench_attention_route *a = user;
    (void)err;
    a->ran = bench_choose_route(a->bench->op.ops, a->bench->op.be, a->route);
    return GEM_OK;
}

static gem_status dispatch(void *user, gem_error *err)
{
    bench_attention_route *a = user;
    bench_attention_bench *b = a->bench;
    bench_dispatch *d = &a->last;
    gem_status st = GEM_OK;
    memset(d, 0, sizeof(*d));
    d->start_ns = gem_now_ns();
    for (int32_t i = 0; st == GEM_OK && i < b->iterations; i++) {
        gem_trace t = {.attend_phases = b->phases};
        st = bench_operator_run(&b->op, b->position, &t, err);
        d->device_ns += bench_operator_ns(&b->op);
        d->score_ns += t.score_ns;
        d->normalization_ns += t.normalization_ns;
        d->value_ns += t.value_ns;
    }
    d->end_ns = gem_now_ns();
    return st;
}

static gem_status keep(void *user, int round, gem_error *err)
{
    bench_attention_route *a = user;
    char hex[65];
    (void)err;
    a->last.round = round;
    bench_operator_digest(&a->bench->op, hex);
    if (!*a->digest) memcpy(a->digest, hex, sizeof(hex));
    a->same = a->same && strcmp(a->digest, hex) == 0;
    if (round >= 0) a->sample[a->n++] = a->last;
    return GEM_OK;
}

gem_status bench_attention_run(bench_attention_bench *b, gem_error *err)
{
    for (size_t i = 0; i < b->n_routes; i++) {
        bench_attention_route *a = &b->arm[i];
        *a = (bench_attention_route){.bench = b, .route = b->route[i], .ran = "", .same = true};
        a->sample = calloc((size_t)b->repetitions, sizeof(*a->sample));
        if (!a->sample) return gem_fail(err, GEM_E_NOMEM, "no memory for the samples");
        b->timed[i] = (bench_arm){.name = a->route->name,
                                  .prepare = choose,
                                  .run = dispatch,
                                  .finish = keep,
                                  .user = a,
                                  .work = b->iterations};
    }
    b->plan = (bench_plan){.arm = b->timed,
                           .n_arms = b->n_routes,
                           .repetitions = b->repetitions,
                           .warmups = b->warmup,
                           .progress = b->progress};
    return bench_run(&b->plan, err);
}

void bench_attention_close(bench_attention_bench *b)
{
    bench_plan_deinit(&b->plan);
    for (size_t i = 0; i < b->n_routes; i++)
        free(b->arm[i].sample);
    bench_operator_close(&b->op);
}

/* ---- records ---- */

uint64_t bench_part_device(const bench_dispatch *d)
{
    return d->device_ns;
}

uint64_t bench_part_score(const bench_dispatch *d)
{
    return d->score_ns;
}

uint64_t bench_part_normalization(const bench_dispatch *d)
{
    return d->normalization_ns;
}

uint64_t bench_part_value(const bench_dispatch *d)
{
    return d->value_ns;
}

json_t *bench_samples_json(const double *x, size_t n)
{
    bench_stats s;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i]));
    return json_pack("{s:o, s:o}", "samples_ns", list, "time_ns",
                     n && bench_stats_of(&s, x, n) ? bench_stats_json(&s) : json_null());
}

json_t *bench_part_json(const bench_attention_bench *b, size_t route, bench_dispatch_part part)
{
    const bench_attention_route *a = &b->arm[route];
    double *x = calloc(a->n + 1, sizeof(*x));
    for (size_t i = 0; x && i < a->n; i++)
        x[i] = (double)part(&a->sample[i]) / b->iterations;
    json_t *j = x ? bench_samples_json(x, a->n) : NULL;
    free(x);
    return j;
}

json_t *bench_dispatches_json(const bench_attention_bench *b)
{
    json_t *list = json_array();
    size_t at[BENCH_ROUTES] = {0};
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < b->n_routes; i++)
        if (b->arm[i].n) first = GEM_MIN(first, b->arm[i].sample[0].start_ns);
    for (;;) {
        size_t next = BENCH_ROUTES;
        for (size_t i = 0; i < b->n_routes; i++)
            if (at[i] < b->arm[i].n &&
                (next == BENCH_ROUTES ||
                 b->arm[i].sample[at[i]].start_ns < b->arm[next].sample[at[next]].start_ns))
                next = i;
        if (next == BENCH_ROUTES) return list;
        const bench_dispatch *d = &b->arm[next].sample[at[next]++];
        json_array_append_new(list, json_pack("{s:s, s:i, s:I, s:I, s:I}", "variant",
                                              b->arm[next].route->name, "round", d->round,
                                              "start_ns", (json_int_t)(d->start_ns - first),
                                              "end_ns", (json_int_t)(d->end_ns - first),
                                              "device_ns", (json_int_t)d->device_ns));
    }
}

bool bench_attention_identical(const bench_attention_bench *b)
{
    return b->n_routes == 2 && strcmp(b->arm[0].ran, b->arm[1].ran) == 0;
}

bool bench_attention_deterministic(const bench_attention_bench *b)
{
    for (size_t i = 0; i < b->n_routes; i++)
        if (!b->arm[i].same) return false;
    return true;
}
