/* prefix.c - to a long position and back to it. */
#include "bench/prefix.h"

#include "bench/stages.h"
#include "bench/subject.h"

#include <stdlib.h>

typedef struct building {
    const bench_prefix_options *o;
    uint64_t start;
    int32_t told;
} building;

static bool on_batch(void *user, size_t done, size_t total)
{
    building *b = user;
    int32_t every = b->o->progress_every, n = (int32_t)done;
    if (every > 0 && b->o->progress && (n / every > b->told / every || done == total)) {
        b->o->progress(b->o->progress_user, n, (int32_t)total, gem_now_ns() - b->start);
        b->told = n;
    }
    return !(b->o->stop && *b->o->stop);
}

static gem_status evaluate(bench_prefix *p, const bench_prefix_options *o, gem_error *err)
{
    gem_model_info info;
    const float *logits;
    gem_model_get_info(p->model, &info);
    int32_t *token = bench_random_tokens(o->position, info.n_vocab, info.bos, 3);
    if (!token) return gem_fail(err, GEM_E_NOMEM, "no memory for %d tokens", o->position);
    building b = {.o = o, .start = gem_now_ns()};
    gem_status st =
        gem_session_prefill(p->session, token, (size_t)o->position, on_batch, &b, &logits, err);
    p->build_ns = gem_now_ns() - b.start;
    p->builds = 1;
    free(token);
    return st;
}

gem_status bench_prefix_open(bench_prefix *p, const bench_prefix_options *o, gem_error *err)
{
    gem_model_info info;
    gem_model_options mo = *o->model;
    memset(p, 0, sizeof(*p));
    p->position = o->position;
    p->rows = o->rows;
    p->seeded = o->seeded;
    if (!mo.n_ctx) mo.n_ctx = o->position + o->rows;
    mo.n_sessions = 2; /* memory for a session and its checkpoint */
    if (mo.n_batch && mo.n_batch < o->rows) mo.n_batch = o->rows;
    const gem_engine_options eo = {.n_logits = GEM_MAX(o->rows, 1),
                                   .ops = gem_backend_find(mo.backend)};
    if (!eo.ops)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %.64s is not in this build; it has: %s",
                        mo.backend, gem_backend_names());
    if (o->traced && !eo.ops->run_traced)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %s has no time stamps of its runs",
                        eo.ops->name);
    if (o->position > mo.n_ctx - o->rows)
        return gem_fail(err, GEM_E_ARG, "a context of %d does not hold position %d and %d rows",
                        mo.n_ctx, o->position, o->rows);
    gem_status st = gem_model_open_engine(&p->model, o->path, &mo, &eo, err);
    if (st != GEM_OK) return st;
    gem_model_get_info(p->model, &info);
    p->token = bench_random_tokens(o->rows, info.n_vocab, o->position ? -1 : info.bos, 1);
    p->op_ns = calloc(p->model->plan.n_ops, sizeof(*p->op_ns));
    p->logits = calloc((size_t)o->rows, sizeof(*p->logits));
    if (!p->token || !p->op_ns || !p->logits)
        return gem_fail(err, GEM_E_NOMEM, "no memory for the times of %zu ops",
                        p->model->plan.n_ops);
    if ((st = gem_session_new(&p->session, p->model, err)) != GEM_OK) return st;
    if (o->seeded)
        st = gem_session_seed(p->session, o->position, o->seed, err);
    else if (o->position)
        st = evaluate(p, o, err);
    if (st == GEM_OK) st = gem_session_checkpoint(p->session, &p->start, err);
    return st;
}

void bench_prefix_close(bench_prefix *p)
{
    gem_checkpoint_free(p->start);
    gem_session_free(p->session);
    gem_model_close(p->model);
    free(p->token);
    free(p->op_ns);
    free(p->logits);
    memset(p, 0, sizeof(*p));
}

gem_status bench_prefix_rewind(bench_prefix *p, gem_error *err)
{
    return gem_session_rollback(p->session, p->start, err);
}

gem_status bench_prefix_step(bench_prefix *p, bool all_logits, gem_trace *trace, bool with_ops,
                             uint64_t *wall_ns, gem_error *err)
{
    uint8_t *want = calloc((size_t)p->rows, 1);
    if (!want) return gem_fail(err, GEM_E_NOMEM, "no memory for %d rows", p->rows);
    for (int32_t i = 0; i < p->rows; i++)
        want[i] = all_logits || i + 1 == p->rows;
    if (trace) {
        memset(p->op_ns, 0, p->model->plan.n_ops * sizeof(*p->op_ns));
        *trace = (gem_trace){.op_ns = with_ops ? p->op_ns : NULL};
    }
    p->model->trace = trace;
    uint64_t start = gem_now_ns();
    gem_status st = gem_session_run(p->session, p->token, (size_t)p->rows, want, p->logits, err);
    uint64_t end = gem_now_ns();
    p->model->trace = NULL;
    *wall_ns = end - start;
    if (trace && trace->start_ns) { /* what the engine does before and behind the backend's run */
        trace->prepare_ns += trace->start_ns - start;
        trace->cleanup_ns += end - trace->end_ns;
    }
    free(want);
    return st;
}

json_t *bench_prefix_json(const bench_prefix *p, const char *path, const char *digest)
{
    gem_model_info info;
    gem_model_get_info(p->model, &info);
    char *text = gem_model_config_json(p->model);
    json_t *config = text ? json_loads(text, 0, NULL) : NULL;
    double seconds = (double)p->build_ns * 1e-9;
    free(text);
    return json_pack(
        "{s:{s:s, s:s, s:s, s:o, s:I}, s:s, s:i, s:f, s:o, s:o, s:o, s:o}", "model", "path", path,
        "family", info.family, "name", info.name, "sha256",
        *digest ? json_string(digest) : json_null(), "file_bytes", (json_int_t)info.file_bytes,
        "prefix_mode", p->seeded ? "seeded-kv" : "evaluated", "prefix_builds", p->builds,
        "prefix_build_wall_seconds", seconds, "prefix_tokens_per_second",
        p->build_ns ? json_real(p->position / seconds) : json_null(), "layers",
        bench_layers_json(&p->model->plan), "layer_kinds", bench_layer_kinds_json(&p->model->plan),
        "config", config ? config : json_null());
}

void bench_logits_digest(const bench_prefix *p, char hex[65])
{
    gem_sha256 *h = gem_sha256_new();
    hex[0] = 0;
    if (!h) return;
    gem_sha256_update(h, p->logits[p->rows - 1], (size_t)p->model->plan.n_vocab * sizeof(float));
    gem_sha256_finish(h, hex);
}
