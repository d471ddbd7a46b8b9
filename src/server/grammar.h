/* grammar.h - JSON that fits a schema, recognised byte by byte: a set of stacks over the compiled
 * schema, with counters for lengths and bounds instead of expanded repetitions. Tells whether a
 * token may come next, so that an answer can be held to the schema while it is drawn.
 *
 * Enforced: type, properties, required, additionalProperties, items, prefixItems, enum, const,
 * anyOf, oneOf (as anyOf), allOf (of objects), $ref, $defs, minItems, maxItems, minLength,
 * maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum. docs/serving.md has the list. */
#ifndef GEM_GRAMMAR_H
#define GEM_GRAMMAR_H

#include "server/fault.h"

#include <jansson.h>

typedef struct gem_schema gem_schema; /* compiled; read-only, shared by its grammars */
typedef struct gem_grammar gem_grammar;

typedef enum gem_schema_kind {
    GEM_SCHEMA_VALUE,  /* one value that fits the schema */
    GEM_SCHEMA_OBJECT, /* any object; the schema is not looked at */
    GEM_SCHEMA_CALLS   /* {"name": .., "arguments": ..} of one of the tools in an array, or of the
                          one named `only` */
} gem_schema_kind;

/* strict: what is not enforced is refused, and members come in the schema's order.
 * param: of the request, for the fault. NULL with the fault (invalid_json_schema; pointer and
 * keyword in its sentence). */
gem_schema *gem_schema_new(gem_schema_kind kind, const json_t *schema, const char *only,
                           bool strict, const char *param, gem_fault *f);
void gem_schema_free(gem_schema *s);

gem_grammar *gem_grammar_new(const gem_schema *s); /* NULL: no memory */
void gem_grammar_free(gem_grammar *g);
/* Would these bytes go on a valid text? Changes nothing. */
bool gem_grammar_allows(gem_grammar *g, const char *bytes, size_t len);
/* How many of the first bytes would. */
size_t gem_grammar_accepts(gem_grammar *g, const char *bytes, size_t len);
/* Take them; false (and unchanged) when they do not fit. */
bool gem_grammar_push(gem_grammar *g, const char *bytes, size_t len);
/* The value is complete; may it also go on (a number)? Then both end and more are possible. */
bool gem_grammar_done(const gem_grammar *g);
/* The value is complete and nothing can follow. */
bool gem_grammar_ended(const gem_grammar *g);

#endif
