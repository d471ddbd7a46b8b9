/* bench_cuda_kernels.c - times of single kernels at the shapes of a 31B model, each as a graph of
 * many launches over weights that exceed L2 together. One JSON line a case: us, and TB/s or
 * TFLOP/s. */
#include "device.h"

enum { REPEATS = 20 };

static gem_cuda_stream s;

typedef cudaError_t (*launch_fn)(void *ctx, int i);

/* Mean us of one launch: fastest of REPEATS replays of a graph of n. */
static double time_graph(launch_fn fn, void *ctx, int n, bool pdl)
{
    cudaGraph_t g;
    cudaGraphExec_t x;
    cudaEvent_t a, b;
    float best = 1e30f, ms;
    DO(cudaEventCreate(&a));
    DO(cudaEventCreate(&b));
    DO(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
    s.pdl = pdl;
    for (int i = 0; i < n; i++)
        DO(fn(ctx, i));
    s.pdl = false;
    DO(cudaStreamEndCapture(s.stream, &g));
    DO(cudaGraphInstantiate(&x, g, 0));
    for (int r = 0; r < REPEATS; r++) {
        DO(cudaEventRecord(a, s.stream));
        DO(cudaGraphLaunch(x, s.stream));
        DO(cudaEventRecord(b, s.stream));
        DO(cudaEventSynchronize(b));
        DO(cudaEventElapsedTime(&ms, a, b));
        if (r > 1 && ms < best) best = ms;
    }
    DO(cudaGraphExecDestroy(x));
    DO(cudaGraphDestroy(g));
    return (double)best * 1e3 / n;
}

typedef struct slab_case {
    gem_cuda_weight w[64];
    int count, n;
    float *x, *y;
} slab_case;

static cudaError_t slab(void *ctx, int i)
{
    slab_case *c = ctx;
    gem_cuda_slab_out o = {&c->w[i % c->count], c->y, c->w[0].n_rows};
    gem_cuda_slab_in in = {.a = {.data = c->x, .ld = c->w[0].k, .n_parts = 1}};
    return gem_cuda_linear_slab(&s, &o, 1, &in, NULL, c->n);
}

static void slabs(gem_dtype t, int64_t n_rows, int64_t k)
{
    slab_case c = {0};
    size_t bytes = (size_t)(n_rows / 16 * (k / 256)) * gem_cuda_slab_bytes(t);
    float *x = malloc((size_t)k * 8 * 4);
    for (int64_t i = 0; i < 8 * k; i++)
        x[i] = any_float(-1, 1);
    c.x = device_copy(x, (size_t)k * 8 * 4);
    c.y = device_take(2 * 16 * 8 * (size_t)n_rows * 4);
    c.count = (int)GEM_MIN(64, (size_t)600e6 / bytes + 2);
    uint32_t *noise = malloc(1 << 20);
    for (int i = 0; i < 1 << 18; i++)
        noise[i] = any_u32() & 0xbfffbfffu; /* f16 numbers below 2 */
    for (int i = 0; i < c.count; i++) {
        uint8_t *p = device_take(bytes);
        for (size_t at = 0; at < bytes; at += 1 << 20)
            DO(cudaMemcpy(p + at, noise, GEM_MIN((size_t)1 << 20, bytes - at),
                          cudaMemcpyHostToDevice));
        c.w[i] = (gem_cuda_weight){.data = p, .dtype = t, .slabs = true, .k = k, .n_rows = n_rows};
    }
    for (c.n = 1; c.n <= 8; c.n += 7)
        for (int pdl = 0; pdl < 2; pdl++) {
            double us = time_graph(slab, &c, 2 * c.count < 40 ? 40 : 2 * c.count, pdl);
            printf("{\"kernel\": \"linear_slab\", \"type\": \"%s\", \"rows\": %lld, \"k\": %lld, "
                   "\"n\": "
                   "%d, \"pdl\": %d, \"us\": %.2f, \"tb_s\": %.3f}\n",
                   gem_dtype_get(t)->name, (long long)n_rows, (long long)k, c.n, pdl, us,
                   (double)bytes / us * 1e-6);
        }
    for (int i = 0; i < c.count; i++)
        cudaFree((void *)c.w[i].data);
    cudaFree(c.x), cudaFree(c.y), free(x), free(noise);
}

typedef struct tile_case {
    uint16_t *xh, *wh;
    gem_cuda_weight w;
    int32_t n;
    int64_t n_rows, k;
    float *y;
} tile_case;

static cudaError_t tile(void *ctx, int i)
{
    tile_case *c = ctx;
    (void)i;
    return gem_cuda_linear_tile(&s, c->xh, c->wh, c->n, c->n_rows, c->k, c->y, c->n_rows);
}
static cudaError_t expand(void *ctx, int i)
{
    tile_case *c = ctx;
    (void)i;
    return gem_cuda_expand(&s, &c->w, 0, c->n_rows, c->wh);
}

static void tiles(int64_t n_rows, int64_t k)
{
    tile_case c = {.n_rows = n_rows, .k = k};
    size_t values = (size_t)(2048 * k);
    uint16_t *h = malloc(values * 2);
    for (size_t i = 0; i < values; i++)
        h[i] = gem_f32_to_f16(any_float(-1, 1));
    c.xh = device_copy(h, values * 2);
    c.wh = device_take((size_t)(n_rows * k) * 2);
    for (int64_t r = 0; r < n_rows; r += 2048)
        DO(cudaMemcpy(c.wh + r * k, h, (size_t)(GEM_MIN(2048, n_rows - r) * k) * 2,
                      cudaMemcpyHostToDevice));
    c.y = device_take((size_t)(2048 * n_rows) * 4);
    for (c.n = 512; c.n <= 2048; c.n *= 4) {
        double us = time_graph(tile, &c, 4, false);
        printf(
            "{\"kernel\": \"linear_tile\", \"rows\": %lld, \"k\": %lld, \"n\": %d, \"us\": %.1f, "
            "\"tflop_s\": %.1f}\n",
            (long long)n_rows, (long long)k, c.n, us,
            2e-6 * (double)c.n * (double)(n_rows * k) / us);
    }
    static const gem_dtype types[] = {GEM_DTYPE_Q4_0, GEM_DTYPE_Q8_0, GEM_DTYPE_Q4_K,
                                      GEM_DTYPE_Q5_K, GEM_DTYPE_Q6_K};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        size_t bytes = (size_t)(n_rows / 16 * (k / 256)) * gem_cuda_slab_bytes(types[i]);
        c.w = (gem_cuda_weight){.data = (uint8_t *)device_take(bytes),
                                .dtype = types[i],
                                .slabs = true,
                                .k = k,
                                .n_rows = n_rows};
        double us = time_graph(expand, &c, 4, false);
        printf("{\"kernel\": \"expand\", \"type\": \"%s\", \"rows\": %lld, \"k\": %lld, "
               "\"us\": %.1f, \"tb_s\": %.3f}\n",
               gem_dtype_get(types[i])->name, (long long)n_rows, (long long)k, us,
               ((double)bytes + (double)(n_rows * k) * 2) / us * 1e-6);
        cudaFree((void *)c.w.data);
    }
    cudaFree(c.xh), cudaFree(c.wh), cudaFree(c.y), free(h);
}

typedef struct attend_case {
    gem_cuda_kv kv[16];
    gem_cuda_rows rows;
    gem_cuda_queries q;
    gem_cuda_block *block;
    int n_blocks, count, n;
    float *partial;
    int32_t *turn;
} attend_case;

static cudaError_t split(void *ctx, int i)
{
    attend_case *c = ctx;
    return gem_cuda_attend_split(&s, &c->kv[i % c->count], &c->rows, &c->q, NULL, c->n, true,
                                 c->partial, c->turn);
}
static cudaError_t flash(void *ctx, int i)
{
    attend_case *c = ctx;
    const gem_cuda_kv *kv = &c->kv[i % c->count];
    return gem_cuda_wgmma_rows(&s, kv->head_dim, kv->f16)
               ? gem_cuda_attend_wgmma(&s, kv, &c->rows, c->block, c->n_blocks, &c->q)
               : gem_cuda_attend_flash(&s, kv, &c->rows, c->block, c->n_blocks, &c->q);
}

static void attention(int hd, int heads, int kv_heads, int32_t window, bool f16, int32_t depth,
                      int32_t n)
{
    attend_case c = {.n = n};
    int32_t n_pages = (depth + n + 63) / 64, *table = malloc((size_t)n_pages * 4);
    int32_t *ids = malloc((size_t)n * 2 * 4);
    gem_cuda_block *block = malloc((size_t)n * sizeof(*block));
    size_t bytes = (size_t)n_pages * 128 * (size_t)(kv_heads * hd) * (f16 ? 2 : 4),
           width = (size_t)(heads * hd);
    uint16_t *noise = malloc(1 << 20);
    float *q = malloc((size_t)n * width * 4);
    for (int i = 0; i < 1 << 19; i++)
        noise[i] = (uint16_t)(any_u32() & 0xbbffu);
    for (size_t i = 0; i < (size_t)n * width; i++)
        q[i] = any_float(-0.05f, 0.05f);
    for (int32_t i = 0; i < n_pages; i++)
        table[i] = i;
    for (int32_t i = 0; i < n; i++)
        ids[i] = depth + i, ids[n + i] = 0;
    c.count = n > 8 ? 1 : (int)GEM_MIN(16, (size_t)300e6 / bytes + 2);
    for (int i = 0; i < c.count; i++) {
        uint8_t *p = device_take(bytes);
        for (size_t at = 0; at < bytes; at += 1 << 20)
            DO(cudaMemcpy(p + at, noise, GEM_MIN((size_t)1 << 20, bytes - at),
                          cudaMemcpyHostToDevice));
        c.kv[i] =
            (gem_cuda_kv){p,       i ? c.kv[0].table : device_copy(table, (size_t)n_pages * 4),
                          n_pages, kv_heads,
                          hd,      window,
                          f16};
    }
    int32_t *d = device_copy(ids, (size_t)n * 2 * 4);
    c.rows = (gem_cuda_rows){d, d, d + n, d};
    c.q =
        (gem_cuda_queries){device_copy(q, (size_t)n * width * 4), (int64_t)width, hd,  heads, false,
                           device_take((size_t)n * width * 4),    (int64_t)width, {0}, {0},   NULL};
    c.partial = device_take(gem_cuda_partial_floats(heads, kv_heads, hd) * 4);
    c.turn = device_take(GEM_CUDA_FEW * 8 * (size_t)kv_heads * 4);
    DO(cudaMemset(c.turn, 0, GEM_CUDA_FEW * 8 * (size_t)kv_heads * 4));
    DO(cudaDeviceSynchronize());
    int most = gem_cuda_block_rows(&s, hd, f16) / (heads / kv_heads);
    for (int32_t r = 0; r < n; r += most)
        block[c.n_blocks++] = (gem_cuda_block){r, GEM_MIN(most, n - r)};
    c.block = device_copy(block, (size_t)c.n_blocks * sizeof(*block));
    double seen = window && depth >= window ? window : depth;
    if (n <= 8) {
        double us = time_graph(split, &c, 40, true);
        double read = seen * kv_heads * hd * 2 * (f16 ? 2 : 4);
        printf("{\"kernel\": \"attend_split\", \"hd\": %d, \"heads\": %d, \"kv_heads\": %d, "
               "\"f16\": %d, "
               "\"depth\": %d, \"window\": %d, \"n\": %d, \"us\": %.2f, \"tb_s\": %.3f}\n",
               hd, heads, kv_heads, f16, depth, window, n, us, read / us * 1e-6);
    } else {
        double us = time_graph(flash, &c, 2, false);
        double keys =
            window && depth >= window ? (double)window * n : (double)depth * n + 0.5 * n * n;
        printf("{\"kernel\": \"attend_flash\", \"hd\": %d, \"heads\": %d, \"kv_heads\": %d, "
               "\"f16\": %d, "
               "\"depth\": %d, \"window\": %d, \"n\": %d, \"us\": %.1f, \"tflop_s\": %.1f}\n",
               hd, heads, kv_heads, f16, depth, window, n, us, 4e-6 * keys * (double)width / us);
    }
    for (int i = 0; i < c.count; i++)
        cudaFree(c.kv[i].pool);
    cudaFree((void *)c.kv[0].table), cudaFree(d), cudaFree((void *)c.q.data), cudaFree(c.q.dst);
    cudaFree(c.partial), cudaFree(c.turn), cudaFree(c.block), free(table), free(ids), free(block),
        free(noise), free(q);
}

static void attentions(void)
{
    attention(256, 32, 16, 1024, true, 8192, 1);
    attention(256, 32, 16, 1024, false, 8192, 1);
    attention(512, 32, 4, 0, true, 8192, 1);
    attention(256, 32, 16, 1024, true, 2048, 8);
    attention(512, 32, 4, 0, true, 2048, 8);
    attention(512, 32, 4, 0, true, 131072, 1);
    attention(512, 32, 4, 0, false, 131072, 1);
    attention(256, 32, 16, 1024, true, 8192, 2048);
    attention(512, 32, 4, 0, true, 8192, 2048);
    attention(512, 32, 4, 0, false, 8192, 2048);
    attention(512, 32, 4, 0, true, 65536, 2048);
}

/* ---- the kernels of a decode step in their order ---- */

enum { LAYERS = 12, D = 5376, FF = 21504, HEADS = 32, NOISE_BYTES = 7000 * 2304 };

/* One layer of Gemma 4 31B: sliding, or every sixth global. */
typedef struct chain_layer {
    gem_cuda_weight q, k, v, o, both, down;
    gem_cuda_kv kv;
} chain_layer;

typedef struct chain {
    chain_layer l[LAYERS];
    gem_cuda_rows rows;
    gem_cuda_packed packed, heads;
    gem_cuda_runs summed;
    float *x, *q, *k, *v, *o, *attended, *down, *norm, *cs, *q_rows, *partial;
    int32_t *turn, n;
    unsigned skip; /* bits: qkv, attention, o, gate and up, down, residual sums */
} chain;

static gem_cuda_weight noise_weight(int64_t n_rows, int64_t k, const uint8_t *noise)
{
    size_t bytes = (size_t)(n_rows / 16 * (k / 256)) * gem_cuda_slab_bytes(GEM_DTYPE_Q4_0);
    uint8_t *p = device_take(bytes);
    for (size_t at = 0; at < bytes; at += NOISE_BYTES)
        DO(cudaMemcpy(p + at, noise, GEM_MIN((size_t)NOISE_BYTES, bytes - at),
                      cudaMemcpyHostToDevice));
    return (gem_cuda_weight){
        .data = p, .dtype = GEM_DTYPE_Q4_0, .slabs = true, .k = k, .n_rows = n_rows};
}

static gem_cuda_view parts_of(const chain *c, const gem_cuda_slab_out *o, int count, float *y,
                              int64_t ld)
{
    return (gem_cuda_view){.data = y,
                           .part_stride = GEM_CUDA_FEW * ld,
                           .ld = ld,
                           .n_parts = gem_cuda_slab_parts(&s, o, count, c->n)};
}

static cudaError_t residual(chain *c, gem_cuda_view src, gem_cuda_slab_in *in)
{
    const gem_cuda_sum sum = {.x = c->x,
                              .post = c->norm,
                              .next = c->norm,
                              .ldx = D,
                              .d = D,
                              .src = src,
                              .runs = c->summed,
                              .eps = 1e-6f,
                              .out_scale = 0.9f};
    *in = (gem_cuda_slab_in){.from = GEM_CUDA_FROM_RUNS, .runs = c->summed};
    return c->skip & 32 ? cudaSuccess : gem_cuda_residual(&s, &sum, c->n);
}

static cudaError_t one_layer(void *ctx, int i)
{
    chain *c = ctx;
    chain_layer *l = &c->l[i % LAYERS];
    const int hd = l->kv.head_dim;
    const int64_t qw = HEADS * hd, kw = (int64_t)l->kv.n_kv_heads * hd;
    gem_cuda_slab_in in;
    cudaError_t e = cudaSuccess;
    const gem_cuda_slab_out down = {&l->down, c->down, D}, o = {&l->o, c->o, D};
    const gem_cuda_slab_out qkv[3] = {{&l->q, c->q, qw}, {&l->k, c->k, kw}, {&l->v, c->v, kw}};
    const int n_qkv = l->v.data ? 3 : 2;
    e = residual(c, parts_of(c, &down, 1, c->down, D), &in);
    if (!e && !(c->skip & 1)) e = gem_cuda_linear_slab(&s, qkv, n_qkv, &in, NULL, c->n);
    const gem_cuda_qkv raw = {.q = parts_of(c, qkv, n_qkv, c->q, qw),
                              .k = parts_of(c, qkv, n_qkv, c->k, kw),
                              .v = parts_of(c, qkv, n_qkv, c->v, kw),
                              .q_out = c->q_rows,
                              .ldq = qw,
                              .cs = c->cs,
                              .sn = c->cs,
                              .half = hd / 2,
                              .n_heads = HEADS,
                              .q_stride = hd,
                              .q_norm = c->norm,
                              .k_norm = c->norm,
                              .eps = 1e-6f,
                              .q_scale = 1,
                              .v_norm = true,
                              .v_from_k = n_qkv == 2};
    const gem_cuda_queries queries = {c->q_rows,   qw, hd,  HEADS,    false,
                                      c->attended, qw, {0}, c->heads, NULL};
    if (!e && c->n > 1 && !(c->skip & 2)) e = gem_cuda_append(&s, &raw, &l->kv, &c->rows, c->n);
    if (!e && !(c->skip & 2))
        e = gem_cuda_attend_split(&s, &l->kv, &c->rows, &queries, c->n == 1 ? &raw : NULL, c->n,
                                  true, c->partial, c->turn);
    in = (gem_cuda_slab_in){.from = GEM_CUDA_FROM_PACKED, .packed = c->heads};
    if (!e && !(c->skip & 4)) e = gem_cuda_linear_slab(&s, &o, 1, &in, NULL, c->n);
    if (!e) e = residual(c, parts_of(c, &o, 1, c->o, D), &in);
    const gem_cuda_slab_out both = {&l->both, NULL, 0};
    const gem_cuda_slab_end end = {true, GEM_ACT_GELU_TANH, c->packed, 0};
    if (!e && !(c->skip & 8)) e = gem_cuda_linear_slab(&s, &both, 1, &in, &end, c->n);
    in = (gem_cuda_slab_in){.from = GEM_CUDA_FROM_PACKED, .packed = c->packed};
    if (!e && !(c->skip & 16)) e = gem_cuda_linear_slab(&s, &down, 1, &in, NULL, c->n);
    return e;
}

static void chains(void)
{
    chain c = {.n = 1};
    const size_t rows = GEM_CUDA_FEW;
    uint8_t *noise = malloc(NOISE_BYTES);
    for (int i = 0; i < NOISE_BYTES / 4; i++)
        ((uint32_t *)noise)[i] = any_u32();
    for (size_t i = 2048; i + 256 <= NOISE_BYTES; i += 2304) /* scales */
        for (int j = 0; j < 256; j += 2) {
            uint16_t h = gem_f32_to_f16(any_float(-0.02f, 0.02f));
            memcpy(noise + i + j, &h, 2);
        }
    float *f = malloc(16384 * rows * 4);
    for (size_t i = 0; i < 16384 * rows; i++)
        f[i] = any_float(-1, 1);
    int32_t n_pages = 40, *table = malloc((size_t)n_pages * 8 * 4);
    for (int32_t i = 0; i < n_pages * 8; i++)
        table[i] = i;
    int32_t *d_table = device_copy(table, (size_t)n_pages * 8 * 4);
    for (int i = 0; i < LAYERS; i++) {
        chain_layer *l = &c.l[i];
        const bool global = i % 6 == 5;
        const int hd = global ? 512 : 256, kv_heads = global ? 4 : 16;
        l->q = noise_weight(HEADS * hd, D, noise), l->k = noise_weight(kv_heads * hd, D, noise);
        if (!global) l->v = noise_weight(kv_heads * hd, D, noise);
        l->o = noise_weight(D, HEADS * hd, noise), l->both = noise_weight(2 * FF, D, noise);
        l->down = noise_weight(D, FF, noise);
        size_t bytes = (size_t)n_pages * 8 * 128 * (size_t)(kv_heads * hd) * 2;
        l->kv = (gem_cuda_kv){device_take(bytes), d_table, n_pages, kv_heads, hd,
                              global ? 0 : 1024,  true};
        DO(cudaMemset(l->kv.pool, 0x11, bytes));
    }
    c.x = device_copy(f, D * rows * 4);
    c.heads = (gem_cuda_packed){device_take(rows * 16384 * 2), device_take(rows * 2048 * 4), 16384};
    DO(cudaMemset(c.heads.h, 0, rows * 16384 * 2));
    c.summed = (gem_cuda_runs){device_take(rows * D * 2), device_take(rows * D / 256 * 96),
                               device_take(rows * D / 256 * 4), D};
    c.norm = device_copy(f, D * 4), c.cs = device_copy(f, 256 * rows * 4);
    c.q_rows = device_copy(f, 16384 * rows * 4);
    c.attended = device_copy(f, 16384 * rows * 4);
    c.q = device_take(2 * rows * 16384 * 4), c.k = device_take(2 * rows * 4096 * 4);
    c.v = device_take(2 * rows * 4096 * 4);
    c.o = device_take(16 * rows * D * 4), c.down = device_take(16 * rows * D * 4);
    DO(cudaMemset(c.o, 0, 16 * rows * D * 4));
    DO(cudaMemset(c.down, 0, 16 * rows * D * 4));
    c.packed = (gem_cuda_packed){device_take(rows * FF * 2), device_take(rows * FF / 8 * 4), FF};
    size_t partial =
        GEM_MAX(gem_cuda_partial_floats(HEADS, 16, 256), gem_cuda_partial_floats(HEADS, 4, 512));
    c.partial = device_take(partial * 4);
    c.turn = device_take(rows * 8 * 16 * 4);
    DO(cudaMemset(c.turn, 0, rows * 8 * 16 * 4));
    DO(cudaDeviceSynchronize());
    for (c.n = 1; c.n <= 8; c.n += 7)
        for (int32_t depth = 10; depth <= 2000; depth += 1990) {
            int32_t ids[16];
            for (int i = 0; i < 8; i++)
                ids[i] = depth + i % 3, ids[8 + i] = i;
            int32_t *d = device_copy(ids, sizeof(ids));
            c.rows = (gem_cuda_rows){d, d, d + 8, d};
            static const unsigned skip[] = {0, 2, 32, 34, 1, 4, 8, 16, 62, 61, 59, 55, 47, 31};
            for (size_t i = 0; i < ARRAY_LEN(skip) && (i < 2 || depth < 100); i++) {
                c.skip = skip[i];
                double us = time_graph(one_layer, &c, 2 * LAYERS, true);
                printf("{\"kernel\": \"layer\", \"n\": %d, \"depth\": %d, \"without\": %u, "
                       "\"us\": %.2f}\n",
                       c.n, depth, c.skip, us);
            }
            cudaFree(d);
        }
    free(noise), free(f), free(table);
}

/* ---- the largest logits ---- */

typedef struct top_case {
    float *x;
    int64_t vocab;
    int32_t n;
    uint32_t *groups;
    gem_top *out; /* the host's, as in a run */
} top_case;

static cudaError_t top(void *ctx, int i)
{
    top_case *c = ctx;
    (void)i;
    return gem_cuda_top(&s, c->x, (c->vocab + 31) / 32 * 32, c->n, c->vocab, NULL, 0, c->groups,
                        c->out);
}

/* Both kernels, over rows that are in L2: any values, and those that leave most to sort out. */
static void tops(int64_t vocab)
{
    static const char *const kind[] = {"any", "equal", "ascending"};
    const size_t floats = 8 * (size_t)((vocab + 31) / 32 * 32);
    float *x = malloc(floats * 4);
    top_case c = {.vocab = vocab};
    DO(cudaMallocHost((void **)&c.out, 8 * sizeof(*c.out)));
    c.groups = device_take(8 * (size_t)gem_cuda_top_groups(vocab) * 4);
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < floats; i++)
            x[i] = k == 0 ? any_float(-30, 30) : k == 1 ? 1.0f : (float)(i % (size_t)vocab);
        c.x = device_copy(x, floats * 4);
        for (c.n = 1; c.n <= 8; c.n += 7)
            for (int pdl = 0; pdl < 2; pdl++)
                printf("{\"kernel\": \"top\", \"vocab\": %lld, \"values\": \"%s\", \"n\": %d, "
                       "\"pdl\": %d, \"us\": %.2f}\n",
                       (long long)vocab, kind[k], c.n, pdl, time_graph(top, &c, 40, pdl));
        cudaFree(c.x);
    }
    cudaFree(c.groups), cudaFreeHost(c.out), free(x);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!device_open(&s)) {
        fprintf(stderr, "bench_cuda_kernels: no CUDA device\n");
        return 3;
    }
    if (argc > 1 && strcmp(argv[1], "chain") == 0) {
        chains();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "attention") == 0) {
        attentions();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "top") == 0) {
        tops(262144);
        tops(151936);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "tiles") == 0) {
        tiles(16384, 5376);
        return 0;
    }
    slabs(GEM_DTYPE_Q4_0, 16384, 5376);
    slabs(GEM_DTYPE_Q4_0, 5376, 8192);
    slabs(GEM_DTYPE_Q4_0, 43008, 5376);
    slabs(GEM_DTYPE_Q4_0, 5376, 21504);
    slabs(GEM_DTYPE_Q6_K, 262144, 5376);
    slabs(GEM_DTYPE_Q4_K, 34816, 5120);
    slabs(GEM_DTYPE_Q5_K, 34816, 5120);
    slabs(GEM_DTYPE_Q6_K, 5120, 17408);
    slabs(GEM_DTYPE_Q8_0, 16384, 5120);
    tiles(16384, 5376);
    tiles(5376, 21504);
    attentions();
    tops(262144);
    return 0;
}
