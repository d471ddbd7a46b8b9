/* routes.h - which path is what. One table; http_front.c asks it, metrics.c names its rows. */
#ifndef GEM_ROUTES_H
#define GEM_ROUTES_H

#include "server/serve.h"

typedef struct gem_route {
    const char *method; /* GET (and HEAD), POST or DELETE */
    const char *path;   /* ends with '/': the rest of the path is the argument */
    const char *alias;  /* NULL: none */
    bool open;          /* no key needed */
    bool needs_model;   /* 503 while loading */
    bool page;          /* for browsers: answered with a policy of what it may do */
    const char *type;   /* content type of `get` and `post` */
    /* a job, or one of: a document made on the spot */
    const gem_wire *wire;
    bool (*get)(gem_server *s, const char *rest, gem_bytes *out, gem_fault *f);
    bool (*post)(gem_server *s, const json_t *body, gem_bytes *out, gem_fault *f);
} gem_route;

/* Row for a request; -1 with 404, or with 405 and *allow. *rest: what follows a path that ends with
 * '/'. */
int gem_route_find(const char *method, const char *path, const char **rest, const char **allow,
                   gem_fault *f);
const gem_route *gem_route_at(int i); /* NULL behind the end */

#endif
