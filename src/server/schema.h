/* schema.h - a JSON schema as nodes, between schema.c, which makes them, and grammar.c, which walks
 * them. */
#ifndef GEM_SCHEMA_H
#define GEM_SCHEMA_H

#include "server/grammar.h"

enum { GEM_MAX_PROPERTIES = 256 };

typedef enum gem_node_kind {
    GEM_NODE_ANY,
    GEM_NODE_LITERAL, /* exactly this text: const, enum, null, true, false */
    GEM_NODE_NUMBER,
    GEM_NODE_STRING,
    GEM_NODE_ARRAY,
    GEM_NODE_OBJECT,
    GEM_NODE_ANYOF,
    GEM_NODE_NEVER
} gem_node_kind;

typedef struct gem_node gem_node;

typedef struct gem_property {
    char *key; /* owned: as written between quotes, escapes included */
    size_t len;
    const gem_node *value;
    bool required;
} gem_property;

struct gem_node {
    gem_node_kind kind;
    char *text; /* LITERAL: owned */
    bool integer;
    double min, max;         /* NUMBER: bounds, infinite when open */
    bool min_open, max_open; /* exclusive */
    uint32_t min_n, max_n;   /* STRING: characters, ARRAY: items; max UINT32_MAX when open */
    const gem_node **item;   /* ARRAY: prefix items; ANYOF: alternatives; owned array */
    size_t n_items;
    const gem_node *rest; /* ARRAY: further items; OBJECT: additional members; NULL: none allowed */
    gem_property *property; /* owned, [n_properties] */
    size_t n_properties;
    bool ordered;         /* OBJECT: members come in the order of the schema */
    gem_node *next_node;  /* all nodes of a schema, to free them */
    const json_t *source; /* borrowed while compiling */
};

struct gem_schema {
    gem_node *nodes; /* owned */
    const gem_node *root, *any, *any_object, *any_array;
};

#endif
