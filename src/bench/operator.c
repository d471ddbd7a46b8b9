/* operator.c - makes the plan and its weights, opens the backend on it, runs it. */
#include "bench/operator.h"

#include "gguf/gguf_write.h"
#include "model/manifest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DISTINCT_ROWS = 64 }; /* of a made-up matrix; then they repeat, in memory of their own */

static float noise(uint64_t *state) /* in [-1, 1) */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

/* ---- weights ---- */

typedef struct matrix {
    char name[16];
    gem_dtype dtype;
    uint64_t n_in, n_out;
    float scale;
} matrix;

static gem_status put_matrix(gem_gguf_writer *w, const matrix *m, uint64_t seed, gem_error *err)
{
    size_t row_bytes = 0;
    uint64_t distinct = GEM_MIN(m->n_out, (uint64_t)DISTINCT_ROWS);
    if (!gem_dtype_row_bytes(gem_dtype_get(m->dtype), m->n_in, &row_bytes))
        return gem_fail(err, GEM_E_ARG, "rows of %llu values have no whole blocks of %s",
                        (unsigned long long)m->n_in, gem_dtype_get(m->dtype)->name);
    float *row = malloc((size_t)m->n_in * sizeof(*row));
    uint8_t *packed = malloc(row_bytes * (size_t)distinct);
    gem_status st = row && packed ? GEM_OK
                                  : gem_fail(err, GEM_E_NOMEM, "no memory for rows of %llu values",
                                             (unsigned long long)m->n_in);
    for (uint64_t r = 0; st == GEM_OK && r < distinct; r++) {
        for (uint64_t i = 0; i < m->n_in; i++)
            row[i] = noise(&seed) * m->scale;
        gem_quantize_row(m->dtype, row, packed + r * row_bytes, (size_t)m->n_in);
    }
    for (uint64_t r = 0; st == GEM_OK && r < m->n_out; r += distinct)
        st = gem_gguf_put_data(w, packed, row_bytes * (size_t)GEM_MIN(distinct, m->n_out - r), err);
    free(row);
    free(packed);
    return st;
}

/* The matrices as a file in tmp_dir, which has no name any more once it is open. */
static gem_status make_file(bench_operator *o, const char *tmp_dir, const matrix *m, size_t n,
                            gem_error *err)
{
    char path[4096];
    gem_gguf_writer *w = NULL;
    if (snprintf(path, sizeof(path), "%s/gem-operator-%ld.gguf", tmp_dir, (long)getpid()) >=
        (int)sizeof(path))
        return gem_fail(err, GEM_E_ARG, "the name of the temporary folder is too long");
    gem_status st = gem_gguf_writer_new(&w, path, err);
    for (size_t i = 0; st == GEM_OK && i < n; i++) {
        const uint64_t dims[2] = {m[i].n_in, m[i].n_out};
        st = gem_gguf_declare_tensor(w, m[i].name, m[i].dtype, 2, dims, err);
    }
    for (size_t i = 0; st == GEM_OK && i < n; i++)
        st = put_matrix(w, &m[i], i + 1, err);
    if (st == GEM_OK) st = gem_gguf_writer_finish(w, err);
    gem_gguf_writer_free(w);
    if (st != GEM_OK) return st;
    st = gem_gguf_open(&o->file, path, err);
    unlink(path);
    return st;
}

/* ---- plans ---- */

static bool add_embed(bench_operator *o, gem_buf dst, float scale)
{
    gem_op *op = gem_plan_add(&o->plan, GEM_OP_EMBED, 0);
    if (!op) return false;
    op->embed.w = gem_gguf_tensor(o->file, "embd");
    op->embed.dst = dst;
    op->embed.scale = scale;
    return true;
}

static bool add_head(bench_operator *o, gem_buf src)
{
    gem_op *op = gem_plan_add(&o->plan, GEM_OP_HEAD, 0);
    if (!op) return false;
    op->head.src = src;
    op->head.w = gem_gguf_tensor(o->file, "head");
    return true;
}

static gem_status alloc_batch(bench_operator *o, const bench_operator_options *opt, gem_error *err)
{
    size_t n = (size_t)opt->rows;
    o->rows = opt->rows;
    o->token = calloc(n, sizeof(*o->token));
    o->pos = calloc(n, sizeof(*o->pos));
    o->seq = calloc(n, sizeof(*o->seq));
    o->want = calloc(n, sizeof(*o->want));
    o->logits = calloc(n, sizeof(*o->logits));
    o->op_ns = calloc(o->plan.n_ops, sizeof(*o->op_ns));
    if (!o->token || !o->pos || !o->seq || !o->want || !o->logits || !o->op_ns)
        return gem_fail(err, GEM_E_NOMEM, "no memory for a batch of %zu rows", n);
    for (size_t i = 0; i < n; i++) {
        o->token[i] = (int32_t)((i * 7 + 3) % BENCH_OPERATOR_TOKENS);
        o->want[i] = GEM_WANT_LOGITS;
    }
    return GEM_OK;
}

static gem_status open_backend(bench_operator *o, const bench_operator_options *opt, int32_t n_ctx,
                               gem_error *err)
{
    gem_backend_stats stats = {0};
    const gem_backend_options bo = {
        .plan = &o->plan,
        .file = o->file,
        .isa = opt->isa,
        .n_threads = opt->n_threads ? opt->n_threads : gem_cpu_count(),
        .n_batch = opt->rows,
        .n_logits = opt->rows,
        .n_ctx = n_ctx,
        .no_repack = opt->no_repack,
        .pool = &o->pool,
        .n_pools = 1,
        .layer_pool = &o->layer_pool,
    };
    gem_status st = o->ops->open(&o->be, &bo, err);
    if (st != GEM_OK) return st;
    o->ops->stats(o->be, &stats);
    o->n_threads = stats.n_threads;
    snprintf(o->isa, sizeof(o->isa), "%s", stats.isa ? stats.isa : "");
    return GEM_OK;
}

static gem_status find_backend(bench_operator *o, const bench_operator_options *opt, gem_error *err)
{
    memset(o, 0, sizeof(*o));
    o->ops = gem_backend_find(opt->backend);
    if (o->ops) return GEM_OK;
    return gem_fail(err, GEM_E_UNSUPPORTED, "backend %.64s is not in this build; it has: %s",
                    opt->backend, gem_backend_names());
}

static gem_status no_plan(gem_error *err)
{
    return gem_fail(err, GEM_E_NOMEM, "no memory for the plan of an operator");
}

/* A layer of the smallest attention there is: backends want one. */
static bool one_layer(bench_operator *o, const gem_kv_layer *layer, bool f16, int32_t n_pages)
{
    gem_plan *p = &o->plan;
    p->family = "operator";
    p->n_vocab = BENCH_OPERATOR_OUTPUTS;
    p->n_layers = 1;
    p->layer = calloc(1, sizeof(*p->layer));
    o->page = calloc((size_t)n_pages, sizeof(*o->page));
    if (!p->layer || !o->page) return false;
    *p->layer = *layer;
    o->pool = (gem_kv_pool){layer->n_kv_heads, layer->head_dim, f16, n_pages, false};
    for (int32_t i = 0; i < n_pages; i++)
        o->page[i] = i;
    return true;
}

/* ---- products ---- */

static bool linear_plan(bench_operator *o, const bench_linear *l, bool outputs)
{
    static const gem_kv_layer unused = {.n_kv_heads = 1, .head_dim = 32};
    gem_plan *p = &o->plan;
    p->d_model = l->input;
    if (!one_layer(o, &unused, false, 1)) return false;
    gem_buf x = gem_plan_buf(p, l->input), h = gem_plan_buf(p, l->input),
            y = gem_plan_buf(p, l->output);
    if (!add_embed(o, x, 1.0f)) return false;
    gem_op *op = gem_plan_add(p, GEM_OP_NORM, 0);
    if (!op) return false;
    op->norm.src = x;
    op->norm.dst = h;
    op->norm.w = gem_vector(gem_gguf_tensor(o->file, "norm"));
    op->norm.eps = 1e-6f;
    o->first_op = p->n_ops;
    o->n_ops = (size_t)l->span;
    for (int32_t i = 0; i < l->span; i++) {
        char name[16];
        snprintf(name, sizeof(name), "w.%d", i % l->slots);
        if (!(op = gem_plan_add(p, GEM_OP_LINEAR, 0))) return false;
        op->linear.src = h;
        op->linear.n = 1;
        op->linear.w[0] = gem_gguf_tensor(o->file, name);
        op->linear.dst[0] = y;
    }
    return !outputs || add_head(o, y);
}

gem_status bench_operator_linear(bench_operator *o, const bench_operator_options *opt,
                                 const bench_linear *l, gem_error *err)
{
    size_t n = 0;
    gem_status st = find_backend(o, opt, err);
    matrix *m = calloc((size_t)l->slots + 3, sizeof(*m));
    if (st == GEM_OK && !m) st = no_plan(err);
    if (st == GEM_OK) {
        uint64_t in = (uint64_t)l->input, out = (uint64_t)l->output;
        float spread = 1.7320508f / sqrtf((float)in); /* rows that keep the size of their input */
        m[n++] = (matrix){"embd", GEM_DTYPE_F32, in, BENCH_OPERATOR_TOKENS, 1.0f};
        m[n++] = (matrix){"norm", GEM_DTYPE_F32, in, 1, 1.0f};
        m[n++] = (matrix){"head", GEM_DTYPE_F32, out, BENCH_OPERATOR_OUTPUTS, 1.0f};
        for (int32_t i = 0; i < l->slots; i++, n++) {
            m[n] = (matrix){"", l->dtype, in, out, spread};
            snprintf(m[n].name, sizeof(m[n].name), "w.%d", i);
        }
        st = make_file(o, opt->tmp_dir, m, n, err);
    }
    if (st == GEM_OK && !linear_plan(o, l, opt->outputs)) st = no_plan(err);
    if (st == GEM_OK) {
        o->weight_bytes = (uint64_t)gem_gguf_tensor(o->file, "w.0")->bytes * (uint64_t)l->slots;
        st = alloc_batch(o, opt, err);
    }
    if (st == GEM_OK) st = open_backend(o, opt, GEM_PAGE, err);
    free(m);
    return st;
}

/* ---- attention ---- */

static bool attention_plan(bench_operator *o, const bench_attention *a)
{
    const gem_kv_layer layer = {
        .n_kv_heads = a->n_kv_heads, .head_dim = a->head_dim, .window = a->window};
    gem_plan *p = &o->plan;
    int32_t width = a->n_heads * a->head_dim;
    p->d_model = width;
    p->n_ropes = 1;
    p->rope[0] = (gem_rope){.theta = 1e6f, .n_dims = a->head_dim, .scale = 1.0f};
    if (!one_layer(o, &layer, a->f16, (a->n_ctx + GEM_PAGE - 1) / GEM_PAGE)) return false;
    gem_buf q = gem_plan_buf(p, width), k = gem_plan_buf(p, width), v = gem_plan_buf(p, width),
            dst = gem_plan_buf(p, width);
    if (!add_embed(o, q, 1.0f) || !add_embed(o, k, -0.5f) || !add_embed(o, v, 0.25f)) return false;
    gem_op *op = gem_plan_add(p, GEM_OP_QKV, 0);
    if (!op) return false;
    op->qkv.q = q;
    op->qkv.k = k;
    op->qkv.v = v;
    op->qkv.n_heads = a->n_heads;
    op->qkv.eps = 1e-6f;
    op->qkv.q_scale = 1.0f / sqrtf((float)a->head_dim);
    o->first_op = p->n_ops;
    o->n_ops = 1;
    if (!(op = gem_plan_add(p, GEM_OP_ATTEND, 0))) return false;
    op->attend.q = q;
    op->attend.dst = dst;
    op->attend.n_heads = a->n_heads;
    return add_head(o, dst);
}

gem_status bench_operator_attention(bench_operator *o, const bench_operator_options *opt,
                                    const bench_attention *a, gem_error *err)
{
    gem_status st = find_backend(o, opt, err);
    if (st != GEM_OK) return st;
    uint64_t width = (uint64_t)a->n_heads * (uint64_t)a->head_dim;
    const matrix m[] = {
        {"embd", GEM_DTYPE_F32, width, BENCH_OPERATOR_TOKENS, 1.0f},
        {"head", GEM_DTYPE_F32, width, BENCH_OPERATOR_OUTPUTS, 1.0f},
    };
    st = make_file(o, opt->tmp_dir, m, ARRAY_LEN(m), err);
    if (st == GEM_OK && !attention_plan(o, a)) st = no_plan(err);
    if (st == GEM_OK) st = alloc_batch(o, opt, err);
    if (st == GEM_OK) st = open_backend(o, opt, a->n_ctx, err);
    return st;
}

void bench_operator_close(bench_operator *o)
{
    if (o->be) o->ops->close(o->be);
    gem_plan_free(&o->plan);
    gem_gguf_close(o->file);
    free(o->page);
    free(o->token);
    free(o->pos);
    free(o->seq);
    free(o->want);
    free(o->logits);
    free(o->op_ns);
    memset(o, 0, sizeof(*o));
}

/* ---- running ---- */

gem_status bench_operator_seed(bench_operator *o, uint64_t seed, gem_error *err)
{
    if (!o->ops->seed_kv)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %s cannot seed its KV cache",
                        o->ops->name);
    return o->ops->seed_kv(o->be, seed, err);
}

gem_status bench_operator_run(bench_operator *o, int32_t position, gem_trace *trace, gem_error *err)
{
    const int32_t *table = o->page;
    for (int32_t i = 0; i < o->rows; i++)
        o->pos[i] = position + i;
    const gem_batch b = {.n_rows = o->rows,
                         .token = o->token,
                         .pos = o->pos,
                         .seq = o->seq,
                         .want = o->want,
                         .n_seqs = 1,
                         .table = &table};
    if (!trace) return o->ops->run(o->be, &b, o->logits, err);
    if (!o->ops->run_traced)
        return gem_fail(err, GEM_E_UNSUPPORTED, "backend %s has no time stamps of its ops",
                        o->ops->name);
    memset(o->op_ns, 0, o->plan.n_ops * sizeof(*o->op_ns));
    trace->op_ns = o->op_ns;
    return o->ops->run_traced(o->be, &b, o->logits, trace, err);
}

uint64_t bench_operator_ns(const bench_operator *o)
{
    uint64_t ns = 0;
    for (size_t i = o->first_op; i < o->first_op + o->n_ops; i++)
        ns += o->op_ns[i];
    return ns;
}

void bench_operator_digest(const bench_operator *o, char hex[65])
{
    gem_sha256 *h = gem_sha256_new();
    hex[0] = 0;
    if (!h) return;
    for (int32_t i = 0; i < o->rows; i++)
        gem_sha256_update(h, o->logits[i], BENCH_OPERATOR_OUTPUTS * sizeof(float));
    gem_sha256_finish(h, hex);
}

/* ---- records ---- */

json_t *bench_operator_config(const bench_operator *o)
{
    json_t *j = o->ops->config ? o->ops->config(o->be) : NULL;
    return j ? j : json_object();
}

const char *bench_route_ran(const json_t *config, const char *op, int32_t rows)
{
    const json_t *routes = json_object_get(config, "routes");
    int few = (int)json_integer_value(json_object_get(config, "few_rows"));
    const char *stem = strstr(op, "attention") ? "attention" : "linear";
    char name[32];
    const char *ran = json_string_value(json_object_get(routes, stem));
    if (ran) return ran;
    snprintf(name, sizeof(name), "%s_%s", stem, rows <= few ? "few" : "many");
    ran = json_string_value(json_object_get(routes, name));
    return ran ? ran : "";
}

const char *bench_choose_route(const gem_backend_ops *ops, gem_backend *be, const gem_op_route *r)
{
    const char *ran = "";
    if (ops->choose_route) ops->choose_route(be, r, &ran);
    return ran;
}

json_t *bench_route_json(const gem_op_route *r, const char *ran)
{
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s}", "name", r->name, "selector",
                     r->selector ? json_integer(r->selector) : json_null(), "op", r->op, "axis",
                     r->axis, "status", r->production ? "production" : "diagnostic", "means",
                     r->means, "ran", ran);
}
