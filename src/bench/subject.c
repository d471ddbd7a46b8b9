/* subject.c - what gem-bench times on a model. */
#include "bench/subject.h"

#include "bench/stats.h"
#include "runtime/engine.h"

#include <stdlib.h>

int32_t *bench_random_tokens(int32_t n, int32_t n_vocab, int32_t bos, uint64_t seed)
{
    int32_t *t = malloc(((size_t)n + 1) * sizeof(*t));
    for (int32_t i = 0; t && i < n; i++)
        t[i] = (int32_t)(gem_splitmix64(&seed) % (uint64_t)n_vocab);
    if (t && bos >= 0) t[0] = bos;
    return t;
}

static gem_status fill(bench_subject *s, int32_t depth, const gem_model_info *info, gem_error *err)
{
    int32_t *before = bench_random_tokens(depth, info->n_vocab, info->bos, 3);
    if (!before) return gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", depth);
    gem_status st =
        gem_session_prefill(s->session, before, (size_t)depth, NULL, NULL, &s->logits, err);
    if (st == GEM_OK) st = gem_session_checkpoint(s->session, &s->start, err);
    free(before);
    return st;
}

gem_status bench_subject_open(bench_subject *s, const char *path, const gem_model_options *opt,
                              bool layer_span, int32_t n_prompt, int32_t n_generated, int32_t depth,
                              size_t max_ttft, gem_error *err)
{
    gem_model_info info;
    gem_sampler_options so;
    memset(s, 0, sizeof(*s));
    uint64_t start = gem_now_ns();
    const gem_engine_options engine = {.ops = gem_backend_find(opt->backend),
                                       .layer_span = layer_span};
    gem_status st = engine.ops ? gem_model_open_engine(&s->model, path, opt, &engine, err)
                               : gem_model_open(&s->model, path, opt, err); /* says why not */
    if (st != GEM_OK) return st;
    s->load_ns = gem_now_ns() - start;
    gem_model_get_info(s->model, &info);
    s->n_prompt = n_prompt;
    s->n_generated = n_generated;
    s->max_ttft = max_ttft;
    int32_t bos = depth ? -1 : info.bos;
    s->prompt = bench_random_tokens(n_prompt, info.n_vocab, bos, 1);
    s->generated = bench_random_tokens(n_generated, info.n_vocab, bos, 2);
    s->ttft_ns = calloc(max_ttft + 1, sizeof(*s->ttft_ns));
    if (!s->prompt || !s->generated || !s->ttft_ns)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the tokens");
    gem_sampler_defaults(&so);
    st = gem_sampler_new(&s->greedy, info.n_vocab, &so, err);
    if (st == GEM_OK) st = gem_session_new(&s->session, s->model, err);
    if (st == GEM_OK && depth) st = fill(s, depth, &info, err);
    return st;
}

void bench_subject_close(bench_subject *s)
{
    gem_checkpoint_free(s->start);
    gem_session_free(s->session);
    gem_sampler_free(s->greedy);
    gem_model_close(s->model);
    free(s->prompt);
    free(s->generated);
    free(s->ttft_ns);
    memset(s, 0, sizeof(*s));
}

gem_status bench_subject_rewind(void *user, gem_error *err)
{
    bench_subject *s = user;
    if (s->start) return gem_session_rollback(s->session, s->start, err);
    gem_session_free(s->session);
    s->session = NULL;
    return gem_session_new(&s->session, s->model, err);
}

gem_status bench_subject_prompt(void *user, gem_error *err)
{
    bench_subject *s = user;
    s->run_start = gem_now_ns();
    return gem_session_prefill(s->session, s->prompt, (size_t)s->n_prompt, NULL, NULL, &s->logits,
                               err);
}

gem_status bench_subject_first(void *user, int round, gem_error *err)
{
    bench_subject *s = user;
    int32_t token;
    gem_status st = gem_sampler_draw(s->greedy, s->logits, &token, err);
    if (st == GEM_OK && round >= 0 && s->n_ttft < s->max_ttft)
        s->ttft_ns[s->n_ttft++] = gem_now_ns() - s->run_start;
    return st;
}

gem_status bench_subject_generate(void *user, gem_error *err)
{
    bench_subject *s = user;
    gem_status st = GEM_OK;
    for (int32_t i = 0; st == GEM_OK && i < s->n_generated; i++)
        st = gem_session_decode(s->session, s->generated[i], &s->logits, err);
    return st;
}

json_t *bench_subject_ttft_json(const bench_subject *s)
{
    bench_stats stats;
    double *x = calloc(s->n_ttft + 1, sizeof(*x));
    json_t *samples = json_array();
    for (size_t i = 0; x && i < s->n_ttft; i++) {
        x[i] = (double)s->ttft_ns[i];
        json_array_append_new(samples, json_integer((json_int_t)s->ttft_ns[i]));
    }
    bool have = x && s->n_ttft && bench_stats_of(&stats, x, s->n_ttft);
    free(x);
    return json_pack("{s:o, s:o}", "samples_ns", samples, "time_ns",
                     have ? bench_stats_json(&stats) : json_null());
}
