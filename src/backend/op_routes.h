/* op_routes.h - the named ways to compute an op, one table for every backend: what a command line,
 * a receipt and a gate mean by a route's name or number. Which code a backend runs for a route
 * stands in its configuration ("routes"); several names may lead to the same code, and then two of
 * them differ in nothing. */
#ifndef GEM_OP_ROUTES_H
#define GEM_OP_ROUTES_H

#include "base/base.h"

typedef struct gem_op_route {
    const char *name;  /* as on the command line */
    int selector;      /* the number that receipts bind to; 0: it has none */
    const char *op;    /* "decode-attention", "prefill-attention", "linear" */
    const char *axis;  /* the one thing that tells it from the route in production */
    bool production;   /* else diagnostic: never chosen by itself */
    const char *means; /* one sentence without a full stop */
} gem_op_route;

const gem_op_route *gem_op_route_at(size_t i); /* NULL behind the last */
/* NULL: no such route for this op. */
const gem_op_route *gem_op_route_find(const char *op, const char *name);
const gem_op_route *gem_op_route_by_selector(const char *op, int selector);
/* "a, b, c" of one op, for messages; false when it does not fit. */
bool gem_op_route_names(const char *op, char *out, size_t size);

#endif
