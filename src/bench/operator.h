/* operator.h - one op of a model alone, at any shape and position: a plan of a few ops over
 * made-up weights, opened by the same backend and run by the same code as a model. What the
 * operator benches and profiles time. */
#ifndef GEM_BENCH_OPERATOR_H
#define GEM_BENCH_OPERATOR_H

#include "backend/backend.h"
#include "backend/op_routes.h"

#include <jansson.h>

typedef struct bench_operator_options {
    const char *backend, *isa; /* NULL: the default, the best */
    int n_threads;             /* 0: the cores we may use */
    int32_t rows;              /* of every run */
    const char *tmp_dir;       /* where the made-up weights are put while they are loaded */
    bool no_repack;
    bool outputs; /* an op behind it projects the result to OPERATOR_OUTPUTS values a row */
} bench_operator_options;

enum { BENCH_OPERATOR_OUTPUTS = 32, BENCH_OPERATOR_TOKENS = 64 };

typedef struct bench_linear {
    int32_t input, output; /* multiples of 32 (of 256 for K types) */
    int32_t slots;         /* matrices of their own memory, used in turn */
    int32_t span;          /* products of one submission */
    gem_dtype dtype;
} bench_linear;

typedef struct bench_attention {
    int n_heads, n_kv_heads, head_dim;
    int32_t window; /* 0: none */
    bool f16;       /* type of keys and values */
    int32_t n_ctx;  /* positions there is memory for */
} bench_attention;

typedef struct bench_operator {
    const gem_backend_ops *ops;
    gem_backend *be; /* owned, as all below */
    gem_gguf *file;
    gem_plan plan;
    gem_kv_pool pool;
    int layer_pool;
    int32_t rows, *page, *token, *pos, *seq;
    uint8_t *want;
    const float **logits;   /* [rows] of the last run */
    uint64_t *op_ns;        /* [plan.n_ops], for traces */
    size_t first_op, n_ops; /* the ops under test in the plan */
    uint64_t weight_bytes;  /* of all slots, as the file has them */
    int n_threads;
    char isa[64];
} bench_operator;

/* GEM_E_UNSUPPORTED: no such backend; the backend's own errors. */
gem_status bench_operator_linear(bench_operator *o, const bench_operator_options *opt,
                                 const bench_linear *l, gem_error *err);
gem_status bench_operator_attention(bench_operator *o, const bench_operator_options *opt,
                                    const bench_attention *a, gem_error *err);
void bench_operator_close(bench_operator *o); /* contents; takes a zeroed or half-open one */

/* Seed the KV memory; GEM_E_UNSUPPORTED where the backend cannot. */
gem_status bench_operator_seed(bench_operator *o, uint64_t seed, gem_error *err);
/* Run all rows, the first one at `position`. trace NULL: by the ordinary way; otherwise with op
 * times (trace->op_ns is set here). GEM_E_UNSUPPORTED where the backend has no time stamps. */
gem_status bench_operator_run(bench_operator *o, int32_t position, gem_trace *trace,
                              gem_error *err);
/* Time of the ops under test in the last traced run. */
uint64_t bench_operator_ns(const bench_operator *o);
/* SHA-256 of the outputs of the last run. */
void bench_operator_digest(const bench_operator *o, char hex[65]);

/* What a record says of a route: {"name", "selector", "op", "axis", "status", "means", "ran"}; ran
 * is what the backend's configuration calls the code for these rows. New reference. */
json_t *bench_route_json(const gem_op_route *r, const char *ran);
/* The member of the configuration that names the code for attention ("attention", else its forms
 * for few and many rows) or for products; a static or borrowed text, "" when there is none. config:
 * as from ops->config, borrowed. */
const char *bench_route_ran(const json_t *config, const char *op, int32_t rows);
json_t *bench_operator_config(const bench_operator *o); /* new reference */
/* Take a route in the runs to come: the code it leads to, "" where the backend has one way for
 * everything. */
const char *bench_choose_route(const gem_backend_ops *ops, gem_backend *be, const gem_op_route *r);

#endif
