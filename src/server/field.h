/* field.h - members of a request body, strictly: null is absent, a wrong type is a 400 that names
 * the field, integers are JSON integers. Every reader leaves *out alone when the member is absent
 * and returns false with the fault filled when it is wrong. */
#ifndef GEM_FIELD_H
#define GEM_FIELD_H

#include "server/fault.h"

#include <jansson.h>

enum { GEM_BODY_DEPTH = 100 };

/* Parse a body: one JSON object, nesting at most GEM_BODY_DEPTH. NULL with the fault. */
json_t *gem_body_parse(const char *data, size_t len, gem_fault *f);

/* The member, or NULL when absent or null. */
json_t *gem_field(const json_t *object, const char *name);
bool gem_field_bool(const json_t *object, const char *name, bool *out, gem_fault *f);
bool gem_field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   gem_fault *f);
bool gem_field_number(const json_t *object, const char *name, double min, double max, double *out,
                      gem_fault *f);
/* Borrowed from the object. */
bool gem_field_string(const json_t *object, const char *name, const char **out, gem_fault *f);
bool gem_field_object(const json_t *object, const char *name, json_t **out, gem_fault *f);
bool gem_field_array(const json_t *object, const char *name, json_t **out, gem_fault *f);

/* "a string", "an object", ...: for sentences. */
const char *gem_json_kind(const json_t *v);

#endif
