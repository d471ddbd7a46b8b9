/* field.c - strict members of request bodies. */
#include "server/field.h"

static const char *const word[] = {"an object", "an array", "a string", "an integer",
                                   "a number",  "true",     "false",    "null"};

const char *gem_json_kind(const json_t *v)
{
    if (json_is_boolean(v)) return "a boolean";
    return word[json_typeof(v)];
}

/* Brackets outside strings; jansson recurses, so depth is bounded before it reads. */
static bool too_deep(const char *s, size_t len)
{
    bool quoted = false;
    int depth = 0;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > GEM_BODY_DEPTH) return true;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return false;
}

json_t *gem_body_parse(const char *data, size_t len, gem_fault *f)
{
    json_error_t e;
    if (too_deep(data, len)) {
        gem_fault_bad(f, "invalid_json", NULL, "the body nests deeper than %d levels",
                      GEM_BODY_DEPTH);
        return NULL;
    }
    json_t *v = json_loadb(data, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (!v) {
        char *near =
            strstr(e.text, " near"); /* what stands there is the client's text: not echoed */
        if (near) *near = 0;
        gem_fault_bad(f, "invalid_json", NULL, "the body is no JSON: %s at byte %d", e.text,
                      e.position);
        return NULL;
    }
    if (json_is_object(v)) return v;
    gem_fault_bad(f, "invalid_json", NULL, "the body is %s, expected an object", gem_json_kind(v));
    json_decref(v);
    return NULL;
}

json_t *gem_field(const json_t *object, const char *name)
{
    json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

static bool wrong(gem_fault *f, const char *name, const char *expected, const json_t *v)
{
    return gem_fault_bad(f, "invalid_type", name, "%s is %s, expected %s", name, gem_json_kind(v),
                         expected);
}

bool gem_field_bool(const json_t *object, const char *name, bool *out, gem_fault *f)
{
    const json_t *v = gem_field(object, name);
    if (!v) return true;
    if (!json_is_boolean(v)) return wrong(f, name, "a boolean", v);
    *out = json_is_true(v);
    return true;
}

bool gem_field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   gem_fault *f)
{
    const json_t *v = gem_field(object, name);
    if (!v) return true;
    if (!json_is_integer(v)) return wrong(f, name, "an integer", v);
    int64_t n = json_integer_value(v);
    if (n < min || n > max)
        return gem_fault_bad(f, "invalid_value", name, "%s is %lld, expected %lld to %lld", name,
                             (long long)n, (long long)min, (long long)max);
    *out = n;
    return true;
}

bool gem_field_number(const json_t *object, const char *name, double min, double max, double *out,
                      gem_fault *f)
{
    const json_t *v = gem_field(object, name);
    if (!v) return true;
    if (!json_is_number(v)) return wrong(f, name, "a number", v);
    double x = json_number_value(v);
    if (!(x >= min && x <= max))
        return gem_fault_bad(f, "invalid_value", name, "%s is %g, expected %g to %g", name, x, min,
                             max);
    *out = x;
    return true;
}

bool gem_field_string(const json_t *object, const char *name, const char **out, gem_fault *f)
{
    const json_t *v = gem_field(object, name);
    if (!v) return true;
    if (!json_is_string(v)) return wrong(f, name, "a string", v);
    *out = json_string_value(v);
    return true;
}

bool gem_field_object(const json_t *object, const char *name, json_t **out, gem_fault *f)
{
    json_t *v = gem_field(object, name);
    if (!v) return true;
    if (!json_is_object(v)) return wrong(f, name, "an object", v);
    *out = v;
    return true;
}

bool gem_field_array(const json_t *object, const char *name, json_t **out, gem_fault *f)
{
    json_t *v = gem_field(object, name);
    if (!v) return true;
    if (!json_is_array(v)) return wrong(f, name, "an array", v);
    *out = v;
    return true;
}
