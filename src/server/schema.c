/* schema.c - JSON schemas compiled to nodes. A subschema is compiled once and found again by its
 * place in the document, so references may be recursive. */
#include "server/schema.h"

#include "server/field.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_NODES = 20000, MAX_DEPTH = 100 };

typedef struct compiler {
    gem_schema *s;
    const json_t *root; /* for $ref */
    bool strict;
    const char *param;
    gem_fault *f;
    json_t *kept; /* merged schemas: nodes are found by address, so they must stay */
    size_t n_nodes;
    char path[400];
} compiler;

static const gem_node *compile(compiler *c, const json_t *v, int depth);

static const gem_node *refuse(compiler *c, const char *keyword, const char *why)
{
    if (!c->f->http)
        gem_fault_bad(c->f, "invalid_json_schema", c->param, "%s at \"%s\": %s %s", c->param,
                      c->path, keyword, why);
    return NULL;
}

static gem_node *new_node(compiler *c, gem_node_kind kind)
{
    gem_node *n = c->n_nodes < MAX_NODES ? calloc(1, sizeof(*n)) : NULL;
    if (!n) {
        refuse(c, "schema", "is too large");
        return NULL;
    }
    n->kind = kind;
    n->min = -INFINITY;
    n->max = INFINITY;
    n->max_n = UINT32_MAX;
    n->next_node = c->s->nodes;
    c->s->nodes = n;
    c->n_nodes++;
    return n;
}

static const gem_node *literal(compiler *c, const json_t *value)
{
    gem_node *n = new_node(c, GEM_NODE_LITERAL);
    if (n && !(n->text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY)))
        return refuse(c, "const", "cannot be written");
    return n;
}

static const gem_node *word(compiler *c, const char *text)
{
    gem_node *n = new_node(c, GEM_NODE_LITERAL);
    if (n && !(n->text = strdup(text))) return refuse(c, "schema", "is too large");
    return n;
}

static bool add_item(gem_node *n, const gem_node *item)
{
    const gem_node **grown = realloc(n->item, (n->n_items + 1) * sizeof(*grown));
    if (!item || !grown) {
        if (grown) n->item = grown;
        return false;
    }
    n->item = grown;
    n->item[n->n_items++] = item;
    return true;
}

/* Step into a member of the document for the sentence of a fault; returns where to cut back. */
static size_t enter(compiler *c, const char *name)
{
    size_t n = strlen(c->path);
    snprintf(c->path + n, sizeof(c->path) - n, "/%s", name);
    return n;
}

static const gem_node *compile_at(compiler *c, const char *name, const json_t *v, int depth)
{
    size_t back = enter(c, name);
    const gem_node *n = compile(c, v, depth + 1);
    if (n || !c->f->http) c->path[back] = 0;
    return n;
}

/* ---- what cannot be enforced ---- */

static bool check_unenforced(compiler *c, const json_t *v)
{
    static const char *const names[] = {"pattern",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "patternProperties",
                                        "propertyNames",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "contains",
                                        "uniqueItems",
                                        "multipleOf",
                                        "minProperties",
                                        "maxProperties",
                                        "unevaluatedProperties",
                                        "unevaluatedItems"};
    for (size_t i = 0; c->strict && i < ARRAY_LEN(names); i++)
        if (json_object_get(v, names[i])) return refuse(c, names[i], "is not enforced") != NULL;
    return true;
}

/* ---- types ---- */

static bool read_count(compiler *c, const json_t *v, const char *name, uint32_t *out)
{
    const json_t *n = gem_field(v, name);
    if (!n) return true;
    if (!json_is_integer(n) || json_integer_value(n) < 0)
        return refuse(c, name, "is no count") != NULL;
    *out = (uint32_t)GEM_MIN(json_integer_value(n), (json_int_t)UINT32_MAX - 1);
    return true;
}

static bool read_bound(compiler *c, const json_t *v, const char *name, double *out, bool *open,
                       bool exclusive, double sign)
{
    const json_t *n = gem_field(v, name);
    if (!n || (exclusive && json_is_boolean(n))) return true;
    if (!json_is_number(n)) return refuse(c, name, "is no number") != NULL;
    double x = json_number_value(n);
    if (sign * x < sign * *out) return true;
    *out = x;
    *open = exclusive;
    return true;
}

static const gem_node *number(compiler *c, const json_t *v, bool integer)
{
    gem_node *n = new_node(c, GEM_NODE_NUMBER);
    if (!n) return NULL;
    n->integer = integer;
    if (!read_bound(c, v, "minimum", &n->min, &n->min_open, false, 1) ||
        !read_bound(c, v, "exclusiveMinimum", &n->min, &n->min_open, true, 1) ||
        !read_bound(c, v, "maximum", &n->max, &n->max_open, false, -1) ||
        !read_bound(c, v, "exclusiveMaximum", &n->max, &n->max_open, true, -1))
        return NULL;
    if (integer) { /* whole numbers: closed bounds */
        if (isfinite(n->min)) n->min = n->min_open ? floor(n->min) + 1 : ceil(n->min);
        if (isfinite(n->max)) n->max = n->max_open ? ceil(n->max) - 1 : floor(n->max);
        n->min_open = n->max_open = false;
    }
    return n->min > n->max ? refuse(c, "minimum", "is above maximum") : n;
}

static const gem_node *string(compiler *c, const json_t *v)
{
    gem_node *n = new_node(c, GEM_NODE_STRING);
    if (!n || !read_count(c, v, "minLength", &n->min_n) ||
        !read_count(c, v, "maxLength", &n->max_n))
        return NULL;
    return n->min_n > n->max_n ? refuse(c, "minLength", "is above maxLength") : n;
}

static const gem_node *array(compiler *c, const json_t *v, int depth)
{
    gem_node *n = new_node(c, GEM_NODE_ARRAY);
    const json_t *prefix = gem_field(v, "prefixItems"), *items = gem_field(v, "items");
    if (json_is_array(items)) { /* the older form of prefixItems */
        prefix = items;
        items = gem_field(v, "additionalItems");
    }
    if (!n || !read_count(c, v, "minItems", &n->min_n) || !read_count(c, v, "maxItems", &n->max_n))
        return NULL;
    for (size_t i = 0; i < json_array_size(prefix); i++)
        if (!add_item(n, compile_at(c, "prefixItems", json_array_get(prefix, i), depth)))
            return NULL;
    n->rest = json_is_false(items) ? NULL
              : items              ? compile_at(c, "items", items, depth)
                                   : c->s->any;
    return items && !json_is_false(items) && !n->rest ? NULL : n;
}

static bool is_required(const json_t *v, const char *name)
{
    const json_t *list = gem_field(v, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && !strcmp(s, name)) return true;
    }
    return false;
}

/* The key as it stands between quotes in a text. */
static char *written_key(const char *key)
{
    json_t *s = json_string(key);
    char *text = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    size_t n = text ? strlen(text) : 0;
    json_decref(s);
    if (n < 2) return text;
    memmove(text, text + 1, n - 2);
    text[n - 2] = 0;
    return text;
}

static bool add_property(gem_node *n, const char *key, const gem_node *value, bool required)
{
    char *text = written_key(key);
    if (!value || !text) {
        free(text);
        return false;
    }
    n->property[n->n_properties++] = (gem_property){text, strlen(text), value, required};
    return true;
}

static bool add_properties(compiler *c, gem_node *n, const json_t *v, int depth)
{
    json_t *props = gem_field(v, "properties");
    const char *key;
    json_t *value;
    if (props && !json_is_object(props)) return refuse(c, "properties", "is no object") != NULL;
    if (json_object_size(props) > GEM_MAX_PROPERTIES)
        return refuse(c, "properties", "has more than 256 members") != NULL;
    json_object_foreach(props, key, value)
    {
        size_t back = enter(c, "properties");
        const gem_node *p = compile_at(c, key, value, depth);
        if (!add_property(n, key, p, is_required(v, key))) return false;
        c->path[back] = 0;
    }
    return true;
}

/* Names that are required and not described may hold anything. */
static bool add_undescribed(compiler *c, gem_node *n, const json_t *v)
{
    const json_t *list = gem_field(v, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name) return refuse(c, "required", "holds what is no name") != NULL;
        if (json_object_get(gem_field(v, "properties"), name)) continue;
        if (n->n_properties >= GEM_MAX_PROPERTIES || !add_property(n, name, c->s->any, true))
            return refuse(c, "required", "has too many members") != NULL;
    }
    return true;
}

static const gem_node *object(compiler *c, const json_t *v, int depth)
{
    gem_node *n = new_node(c, GEM_NODE_OBJECT);
    const json_t *more = gem_field(v, "additionalProperties");
    if (!n) return NULL;
    size_t most =
        json_object_size(gem_field(v, "properties")) + json_array_size(gem_field(v, "required"));
    n->property = calloc(most + 1, sizeof(*n->property));
    if (!n->property || !add_properties(c, n, v, depth) || !add_undescribed(c, n, v)) return NULL;
    n->ordered = c->strict;
    if (json_is_false(more)) return n;
    n->rest = json_is_object(more) ? compile_at(c, "additionalProperties", more, depth) : c->s->any;
    return n->rest ? n : NULL;
}

/* ---- combinations ---- */

static const gem_node *any_of(compiler *c, const json_t *list, const char *name, int depth)
{
    gem_node *n = new_node(c, GEM_NODE_ANYOF);
    if (!json_is_array(list) || !json_array_size(list))
        return refuse(c, name, "is no array with members");
    for (size_t i = 0; n && i < json_array_size(list); i++)
        if (!add_item(n, compile_at(c, name, json_array_get(list, i), depth))) return NULL;
    return n;
}

static const gem_node *enumeration(compiler *c, const json_t *list)
{
    gem_node *n = new_node(c, GEM_NODE_ANYOF);
    if (!json_is_array(list) || !json_array_size(list))
        return refuse(c, "enum", "is no array with members");
    for (size_t i = 0; n && i < json_array_size(list); i++)
        if (!add_item(n, literal(c, json_array_get(list, i)))) return NULL;
    return n;
}

/* allOf of objects: their members together. */
static const gem_node *all_of(compiler *c, const json_t *v, const json_t *list, int depth)
{
    json_t *merged = json_deep_copy(v);
    json_object_del(merged, "allOf");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *key;
        json_t *value, *part = json_array_get(list, i);
        json_object_foreach(part, key, value)
        {
            json_t *old = json_object_get(merged, key);
            if (json_is_object(old) && json_is_object(value))
                json_object_update(old, value);
            else if (json_is_array(old) && json_is_array(value))
                json_array_extend(old, value);
            else
                json_object_set(merged, key, value);
        }
    }
    json_array_append_new(c->kept, merged);
    return compile(c, merged, depth + 1);
}

/* "#", "#/$defs/name", "#/definitions/a/b": a place in the document. */
static const gem_node *reference(compiler *c, const json_t *ref, int depth)
{
    const json_t *v = c->root;
    const char *p = json_string_value(ref);
    if (!p || p[0] != '#') return refuse(c, "$ref", "leads outside the schema");
    for (p++; *p == '/' && v;) {
        char name[256];
        size_t n = 0;
        for (p++; *p && *p != '/' && n + 1 < sizeof(name); p++) {
            char ch = *p;
            if (ch == '~' && (p[1] == '0' || p[1] == '1')) ch = *++p == '0' ? '~' : '/';
            name[n++] = ch;
        }
        name[n] = 0;
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(name)) : json_object_get(v, name);
    }
    return v && !*p ? compile(c, v, depth + 1) : refuse(c, "$ref", "leads nowhere");
}

static const gem_node *typed(compiler *c, const json_t *v, const char *type, int depth)
{
    if (!strcmp(type, "object")) return object(c, v, depth);
    if (!strcmp(type, "array")) return array(c, v, depth);
    if (!strcmp(type, "string")) return string(c, v);
    if (!strcmp(type, "integer")) return number(c, v, true);
    if (!strcmp(type, "number")) return number(c, v, false);
    if (!strcmp(type, "null")) return word(c, "null");
    if (!strcmp(type, "boolean")) {
        gem_node *n = new_node(c, GEM_NODE_ANYOF);
        return n && add_item(n, word(c, "true")) && add_item(n, word(c, "false")) ? n : NULL;
    }
    return refuse(c, "type", "names no type");
}

static const gem_node *by_type(compiler *c, const json_t *v, int depth)
{
    const json_t *type = gem_field(v, "type");
    if (json_is_string(type)) return typed(c, v, json_string_value(type), depth);
    if (json_is_array(type)) {
        gem_node *n = new_node(c, GEM_NODE_ANYOF);
        for (size_t i = 0; n && i < json_array_size(type); i++) {
            const char *t = json_string_value(json_array_get(type, i));
            if (!t) return refuse(c, "type", "names no type");
            if (!add_item(n, typed(c, v, t, depth))) return NULL;
        }
        return n && n->n_items ? n : refuse(c, "type", "names no type");
    }
    if (type) return refuse(c, "type", "is no string");
    if (gem_field(v, "properties") || gem_field(v, "required") ||
        gem_field(v, "additionalProperties"))
        return object(c, v, depth);
    if (gem_field(v, "items") || gem_field(v, "prefixItems")) return array(c, v, depth);
    if (gem_field(v, "minLength") || gem_field(v, "maxLength")) return string(c, v);
    if (gem_field(v, "minimum") || gem_field(v, "maximum")) return number(c, v, false);
    return c->s->any;
}

static const gem_node *compile_new(compiler *c, const json_t *v, int depth)
{
    const json_t *x;
    if (!check_unenforced(c, v)) return NULL;
    if ((x = gem_field(v, "$ref"))) return reference(c, x, depth);
    if ((x = json_object_get(v, "const"))) return literal(c, x);
    if ((x = gem_field(v, "enum"))) return enumeration(c, x);
    if ((x = gem_field(v, "allOf"))) return all_of(c, v, x, depth);
    if ((x = gem_field(v, "anyOf"))) return any_of(c, x, "anyOf", depth);
    if ((x = gem_field(v, "oneOf"))) return any_of(c, x, "oneOf", depth);
    return by_type(c, v, depth);
}

static const gem_node *compile(compiler *c, const json_t *v, int depth)
{
    if (json_is_true(v)) return c->s->any;
    if (json_is_false(v)) return new_node(c, GEM_NODE_NEVER);
    if (!json_is_object(v)) return refuse(c, "schema", "is no object");
    if (depth > MAX_DEPTH) return refuse(c, "schema", "nests too deep");
    for (const gem_node *n = c->s->nodes; n; n = n->next_node)
        if (n->source == v) return n;
    /* a place holder, so that recursive references find it; filled with the one alternative */
    gem_node *hold = new_node(c, GEM_NODE_ANYOF);
    if (!hold) return NULL;
    hold->source = v;
    const gem_node *n = compile_new(c, v, depth);
    return add_item(hold, n) ? hold : NULL;
}

/* ---- the whole ---- */

static bool basics(compiler *c)
{
    gem_node *any = new_node(c, GEM_NODE_ANY), *o = new_node(c, GEM_NODE_OBJECT);
    gem_node *a = new_node(c, GEM_NODE_ARRAY);
    if (!any || !o || !a) return false;
    o->rest = a->rest = any;
    c->s->any = any;
    c->s->any_object = o;
    c->s->any_array = a;
    return true;
}

static const gem_node *call_of(compiler *c, const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *params = gem_field(function, "parameters");
    const char *name = json_string_value(json_object_get(function, "name"));
    gem_node *n = new_node(c, GEM_NODE_OBJECT);
    if (!n || !name) return NULL;
    json_t *text = json_string(name);
    n->property = calloc(2, sizeof(*n->property));
    n->ordered = true;
    c->root = params;
    snprintf(c->path, sizeof(c->path), "%.64s", name);
    bool strict = c->strict;
    c->strict = json_is_true(json_object_get(function, "strict"));
    bool ok = n->property && add_property(n, "name", literal(c, text), true);
    const gem_node *arguments = json_object_size(params) ? compile(c, params, 0) : c->s->any_object;
    ok = ok && add_property(n, "arguments", arguments, true);
    c->strict = strict;
    json_decref(text);
    return ok ? n : NULL;
}

static const gem_node *calls(compiler *c, const json_t *tools, const char *only)
{
    gem_node *n = new_node(c, GEM_NODE_ANYOF);
    for (size_t i = 0; n && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *name =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (only && name && strcmp(only, name)) continue;
        if (!add_item(n, call_of(c, tool))) return NULL;
    }
    return n && n->n_items ? n : refuse(c, "tools", "are missing");
}

/* Can any text begin? A schema that only refers to itself, or is false, admits none. */
static bool admits_something(const gem_schema *s)
{
    gem_grammar *g = gem_grammar_new(s);
    bool ok = !g; /* out of memory is no fault of the schema */
    for (int c = ' '; c < 127 && !ok; c++)
        ok = gem_grammar_allows(g, (const char[]){(char)c}, 1);
    gem_grammar_free(g);
    return ok;
}

gem_schema *gem_schema_new(gem_schema_kind kind, const json_t *schema, const char *only,
                           bool strict, const char *param, gem_fault *f)
{
    gem_schema *s = calloc(1, sizeof(*s));
    compiler c = {
        .s = s, .root = schema, .strict = strict, .param = param, .f = f, .kept = json_array()};
    if (s && basics(&c))
        s->root = kind == GEM_SCHEMA_OBJECT  ? s->any_object
                  : kind == GEM_SCHEMA_CALLS ? calls(&c, schema, only)
                                             : compile(&c, schema, 0);
    json_decref(c.kept);
    c.path[0] = 0;
    if (s && s->root && !admits_something(s)) s->root = refuse(&c, "schema", "admits no value");
    if (s && s->root) {
        for (gem_node *n = s->nodes; n; n = n->next_node)
            n->source = NULL;
        return s;
    }
    if (!f->http) gem_fault_set(f, 500, "server_error", "internal_error", NULL, "out of memory");
    if (kind == GEM_SCHEMA_CALLS && f->http == 400) f->code = "invalid_function_parameters";
    gem_schema_free(s);
    return NULL;
}

void gem_schema_free(gem_schema *s)
{
    if (!s) return;
    for (gem_node *n = s->nodes, *next; n; n = next) {
        next = n->next_node;
        free(n->text);
        free(n->item);
        for (size_t i = 0; i < n->n_properties; i++)
            free(n->property[i].key);
        free(n->property);
        free(n);
    }
    free(s);
}
