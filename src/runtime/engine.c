/* engine.c - opening a model: options, file, plan, tokenizer, KV layout, backend, and the scratch
 * of a batch, so that nothing is allocated once tokens flow. */
#include "runtime/engine.h"

#include <stdlib.h>

enum { DEFAULT_N_CTX = 4096, DEFAULT_N_BATCH = 512, DEFAULT_N_SESSIONS = 4 };

static gem_status check_range(const char *field, int64_t v, int64_t max, gem_error *err)
{
    if (v >= 0 && v <= max) return GEM_OK;
    return gem_fail(err, GEM_E_ARG, "option %s is %lld, expected 0 to %lld", field, (long long)v,
                    (long long)max);
}

static gem_status check_options(const gem_model_options *o, const gem_engine_options *e,
                                gem_error *err)
{
    gem_status st;
    if ((st = check_range("n_threads", o->n_threads, 1024, err)) != GEM_OK) return st;
    if ((st = check_range("n_ctx", o->n_ctx, 1 << 24, err)) != GEM_OK) return st;
    if ((st = check_range("n_sessions", o->n_sessions, 4096, err)) != GEM_OK) return st;
    if ((st = check_range("n_batch", o->n_batch, 65536, err)) != GEM_OK) return st;
    if (o->state_bytes < -1)
        return gem_fail(err, GEM_E_ARG, "option state_bytes is %lld, expected -1 or more",
                        (long long)o->state_bytes);
    if ((st = check_range("kv_type", (int64_t)o->kv_type, GEM_KV_F32_VALUES, err)) != GEM_OK)
        return st;
    return check_range("n_logits", e->n_logits, 65536, err);
}

static char *copy_text(const char *s, size_t len)
{
    char *out = malloc(len + 1);
    if (!out) return NULL;
    if (len) memcpy(out, s, len);
    out[len] = 0;
    return out;
}

static gem_status read_names(gem_model *m, gem_error *err)
{
    gem_str arch = {0}, name = {0};
    gem_status st;
    if ((st = gem_gguf_get_str(m->file, "general.architecture", true, &arch, err)) != GEM_OK)
        return st;
    if ((st = gem_gguf_get_str(m->file, "general.name", false, &name, err)) != GEM_OK) return st;
    m->family = copy_text(arch.data, arch.len);
    m->name = copy_text(name.data, name.len);
    if (!m->family || !m->name) return gem_fail(err, GEM_E_NOMEM, "no memory for the model's name");
    return GEM_OK;
}

static void set_sizes(gem_model *m, const gem_model_options *o, const gem_engine_options *e)
{
    int32_t trained = m->plan.n_ctx_train;
    m->n_ctx = o->n_ctx ? o->n_ctx : GEM_MIN(trained, DEFAULT_N_CTX);
    m->n_batch = o->n_batch ? o->n_batch : GEM_MIN(m->n_ctx, DEFAULT_N_BATCH);
    m->n_sessions = o->n_sessions ? o->n_sessions : DEFAULT_N_SESSIONS;
    m->n_threads = o->n_threads ? o->n_threads : gem_cpu_count();
    m->n_logits = GEM_MIN(e->n_logits ? e->n_logits : GEM_DEFAULT_LOGITS, m->n_batch);
    m->kv_type = o->kv_type;
    m->state_bytes = o->state_bytes;
    m->exact = o->exact;
    m->no_repack = o->no_repack;
    if (m->n_ctx > trained)
        gem_logf(&m->log, GEM_LOG_WARN,
                 "n_ctx %d is more than the %d positions the model was trained for", m->n_ctx,
                 trained);
}

static gem_status open_scratch(gem_model *m, gem_error *err)
{
    size_t rows = (size_t)m->n_batch, seqs = (size_t)m->n_sessions;
    m->token = calloc(rows, sizeof(*m->token));
    m->pos = calloc(rows, sizeof(*m->pos));
    m->seq = calloc(rows, sizeof(*m->seq));
    m->want = calloc(rows, sizeof(*m->want));
    m->row = calloc(rows, sizeof(*m->row));
    m->row_logits = calloc(rows, sizeof(*m->row_logits));
    m->logits = calloc((size_t)m->n_logits, sizeof(*m->logits));
    m->top = calloc((size_t)m->n_logits, sizeof(*m->top));
    m->place = calloc(rows, sizeof(*m->place));
    m->table = calloc(seqs * (size_t)m->plan.n_layers, sizeof(*m->table));
    m->batch = calloc(seqs, sizeof(*m->batch));
    if (!m->token || !m->pos || !m->seq || !m->want || !m->row || !m->row_logits || !m->logits ||
        !m->top || !m->place || !m->table || !m->batch)
        return gem_fail(err, GEM_E_NOMEM, "no memory for batches of %d rows", m->n_batch);
    return GEM_OK;
}

/* What a recurrent model needs besides: slots of state, tapes, scratch to run tokens again. */
static gem_status open_states(gem_model *m, gem_error *err)
{
    size_t rows = (size_t)m->n_batch, seqs = (size_t)m->n_sessions;
    gem_status st = gem_state_slots(&m->n_states, &m->plan.recurrent, m->state_bytes, m->n_ctx,
                                    m->n_sessions, err);
    if (st != GEM_OK || m->n_states == 0) return st;
    if ((st = gem_state_open(&m->states, m->n_states, m->n_ctx, err)) != GEM_OK) return st;
    m->state = calloc(seqs, sizeof(*m->state));
    m->tape = calloc(seqs, sizeof(*m->tape));
    m->free_tape = calloc(seqs, sizeof(*m->free_tape));
    m->again_pos = calloc(rows, sizeof(*m->again_pos));
    m->zeros = calloc(rows, sizeof(*m->zeros));
    if (!m->state || !m->tape || !m->free_tape || !m->again_pos || !m->zeros)
        return gem_fail(err, GEM_E_NOMEM, "no memory for batches of %d rows", m->n_batch);
    for (int32_t i = 0; i < m->n_sessions; i++)
        m->free_tape[m->n_free_tapes++] = m->n_sessions - 1 - i;
    return GEM_OK;
}

/* A drafter in a file of its own: the same vocabulary, then its program behind the model's. */
static gem_status open_beside(gem_model *m, const char *path, gem_error *err)
{
    gem_tokenizer *tok = NULL;
    gem_status st = gem_gguf_open(&m->drafter, path, err);
    if (st == GEM_OK) st = gem_tokenizer_open(&tok, m->drafter, err);
    if (st == GEM_OK) st = gem_tokenizer_same(tok, m->tok, path, err);
    if (st == GEM_OK) st = gem_model_plan_beside(&m->plan, m->drafter, err);
    gem_tokenizer_close(tok);
    return st;
}

/* Scratch of a drafter. */
static gem_status open_drafter(gem_model *m, gem_error *err)
{
    size_t rows = (size_t)m->n_batch, bytes;
    if (!m->plan.draft_op) return GEM_OK;
    if (gem_mul_ok(rows, (size_t)m->plan.d_model * sizeof(*m->input), &bytes))
        m->input = malloc(bytes);
    if (gem_mul_ok((size_t)GEM_MAX(m->n_states, 1), (size_t)m->plan.d_model * sizeof(*m->edge),
                   &bytes))
        m->edge = malloc(bytes);
    m->want_hidden = malloc(rows);
    m->hidden = calloc(rows, sizeof(*m->hidden));
    if (!m->zeros) m->zeros = calloc(rows, sizeof(*m->zeros));
    if (!m->input || !m->edge || !m->want_hidden || !m->hidden || !m->zeros)
        return gem_fail(err, GEM_E_NOMEM, "no memory for a drafter's batches of %d rows",
                        m->n_batch);
    memset(m->want_hidden, GEM_WANT_HIDDEN, rows);
    return GEM_OK;
}

static void copy_page(void *user, int pool, int32_t dst, int32_t src)
{
    gem_model *m = user;
    m->ops->copy_page(m->be, pool, dst, src);
}

static gem_status open_backend(gem_model *m, const gem_model_options *o, const gem_engine_options *e,
                               gem_error *err)
{
    const gem_backend_options bo = {
        .plan = &m->plan,
        .file = m->file,
        .drafter = m->drafter,
        .isa = o->isa,
        .n_threads = m->n_threads,
        .n_batch = m->n_batch,
        .n_logits = m->n_logits,
        .n_ctx = m->n_ctx,
        .exact = o->exact,
        .no_repack = o->no_repack,
        .layer_span = e->layer_span,
        .max_bytes = o->max_bytes,
        .pool = m->layout.pool,
        .n_pools = m->layout.n_pools,
        .layer_pool = m->layout.layer_pool,
        .n_states = m->n_states,
        .n_tapes = m->n_states ? m->n_sessions : 0,
        .log = m->log,
        .progress = o->progress,
        .progress_user = o->progress_user,
    };
    gem_backend_stats stats = {0};
    gem_status st = m->ops->open(&m->be, &bo, err);
    if (st != GEM_OK) return st;
    m->ops->stats(m->be, &stats);
    m->n_threads = stats.n_threads;
    m->isa = copy_text(stats.isa ? stats.isa : "", stats.isa ? strlen(stats.isa) : 0);
    if (!m->isa) return gem_fail(err, GEM_E_NOMEM, "no memory for the ISA's name");

    const gem_kv_options ko = {
        .n_layers = m->plan.n_layers,
        .n_pools = m->layout.n_pools,
        .layer_pool = m->layout.layer_pool,
        .window = m->layout.window,
        .pool = m->layout.pool,
        .max_positions = m->n_ctx,
        .copy_page = copy_page,
        .user = m,
    };
    return gem_kv_open(&m->kv, &ko, err);
}

gem_status gem_model_open_gguf(gem_model **out, gem_gguf *file, const gem_model_options *opt,
                               const gem_engine_options *engine, gem_error *err)
{
    static const gem_model_options no_options;
    static const gem_engine_options no_engine;
    const gem_model_options *o = opt ? opt : &no_options;
    const gem_engine_options *e = engine ? engine : &no_engine;
    gem_status st = check_options(o, e, err);
    *out = NULL;
    if (st != GEM_OK) return st;
    gem_model *m = calloc(1, sizeof(*m));
    if (!m) return gem_fail(err, GEM_E_NOMEM, "no memory for %zu bytes", sizeof(*m));
    m->log = (gem_log){o->log, o->log_user};
    m->ops = e->ops;
    m->file = file;

    if ((st = read_names(m, err)) != GEM_OK) goto done;
    const gem_family *family = NULL;
    if (!o->vocab_only) { /* before the tokenizer: a foreign family is refused as such */
        if ((st = gem_family_find(&family, file, err)) != GEM_OK) goto done;
    }
    if ((st = gem_tokenizer_open(&m->tok, file, err)) != GEM_OK) goto done;
    gem_chat_format_of(&m->chat, m->tok);
    if (!o->vocab_only) {
        int32_t n_vocab = gem_tokenizer_n_vocab(m->tok);
        st = gem_model_plan(&m->plan, file, n_vocab, o->drafter, err);
        if (st == GEM_OK && o->drafter_path) st = open_beside(m, o->drafter_path, err);
        if (st != GEM_OK) goto done;
        if (e->change_plan) e->change_plan(&m->plan);
        if (family->warn) family->warn(file, &m->log);
        set_sizes(m, o, e);
        if ((st = gem_kv_layout_init(&m->layout, &m->plan, m->kv_type, m->n_ctx, m->n_batch,
                                     m->n_sessions, err)) != GEM_OK)
            goto done;
        if ((st = open_states(m, err)) != GEM_OK) goto done;
        if ((st = open_drafter(m, err)) != GEM_OK) goto done;
        if ((st = open_scratch(m, err)) != GEM_OK) goto done;
        if ((st = open_backend(m, o, e, err)) != GEM_OK) goto done;
    }
    *out = m;
    m = NULL;
done:
    if (m) m->file = NULL; /* still the caller's */
    gem_model_close(m);
    return st;
}

gem_status gem_model_open_engine(gem_model **out, const char *path, const gem_model_options *opt,
                                 const gem_engine_options *engine, gem_error *err)
{
    gem_gguf *file = NULL;
    *out = NULL;
    if (!path) return gem_fail(err, GEM_E_ARG, "no path given");
    gem_status st = gem_gguf_open(&file, path, err);
    if (st != GEM_OK) return st;
    if ((st = gem_model_open_gguf(out, file, opt, engine, err)) != GEM_OK) gem_gguf_close(file);
    return st;
}

void gem_model_close(gem_model *m)
{
    if (!m) return;
    gem_kv_close(m->kv);
    gem_state_close(m->states);
    if (m->be) m->ops->close(m->be);
    gem_kv_layout_deinit(&m->layout);
    gem_plan_free(&m->plan);
    gem_tokenizer_close(m->tok);
    gem_gguf_close(m->file);
    gem_gguf_close(m->drafter);
    free(m->family);
    free(m->name);
    free(m->isa);
    free(m->token);
    free(m->pos);
    free(m->seq);
    free(m->want);
    free(m->row);
    free(m->row_logits);
    free(m->logits);
    free(m->top);
    free(m->place);
    free(m->table);
    free(m->batch);
    free(m->state);
    free(m->tape);
    free(m->free_tape);
    free(m->again_pos);
    free(m->zeros);
    free(m->want_hidden);
    free(m->hidden);
    free(m->input);
    free(m->edge);
    free(m);
}

void gem_model_get_info(const gem_model *m, gem_model_info *out)
{
    gem_backend_stats stats = {0};
    if (m->be) m->ops->stats(m->be, &stats);
    *out = (gem_model_info){
        .family = m->family,
        .name = m->name,
        .backend = m->ops ? m->ops->name : "",
        .isa = m->isa ? m->isa : "",
        .n_vocab = gem_tokenizer_n_vocab(m->tok),
        .n_layers = m->plan.n_layers,
        .d_model = m->plan.d_model,
        .n_ctx = m->n_ctx,
        .n_ctx_train = m->plan.n_ctx_train,
        .bos = gem_tokenizer_bos(m->tok),
        .eos = gem_tokenizer_eos(m->tok),
        .n_threads = m->n_threads,
        .file_bytes = gem_gguf_bytes(m->file),
        .weights_bytes = stats.weights_bytes,
        .kv_bytes = stats.kv_bytes,
        .workspace_bytes = stats.workspace_bytes,
        .decode_bytes = stats.decode_bytes,
        .recurrent_bytes = stats.state_bytes + stats.tape_bytes,
    };
}
