/* shape.c - the strict decoder and the JSON Schema writer over the tables of shapes.c. */
#include "fak/shape.h"

#include <math.h>
#include <stdio.h>

static const char *const kind_names[] = {"a string",      "an integer", "a number",
                                         "true or false", "an object",  "an array"};

static const fak_type *resolve(const fak_type *t, const gem_json *v)
{
    if (t->kind != FAK_VARIANT) return t;
    const fak_document *const *c = t->choice;
    const gem_json *schema = gem_json_get(v, "schema");
    while (c[1] && !gem_json_is(schema, (*c)->schema))
        c++;
    return (*c)->type;
}

static bool int_token(const char *s)
{
    if (*s == '-') s++;
    if (*s == '0') return s[1] == 0;
    while (*s >= '0' && *s <= '9')
        s++;
    return *s == 0;
}

static void check_number(fak_findings *f, fak_kind kind, const gem_json *v)
{
    if (kind == FAK_INT && int_token(v->text)) {
        if (fabs(v->number) > 9007199254740991.0)
            fak_find(f, "NPJ-008", v, "the integer is outside +-(2^53-1)");
        return;
    }
    if (isinf(v->number))
        fak_find(f, "NPJ-007", v, "the number does not fit a double");
    else if (kind == FAK_INT)
        fak_find(f, "NPJ-006", v, "an integer written as digits was expected");
}

static void check_members(fak_findings *f, const fak_type *t, const gem_json *v)
{
    for (const gem_json *m = v->first; m; m = m->next) {
        const fak_member *want = t->members;
        while (want->name && !(strlen(want->name) == m->name_len &&
                               memcmp(want->name, m->name, m->name_len) == 0))
            want++;
        if (!want->name)
            fak_find(f, "NPJ-004", m, "this member is unknown here");
        else if (!(m->type == GEM_JSON_NULL && (want->flags & FAK_NULLABLE)))
            fak_shape_check(f, want->type, m);
    }
    for (const fak_member *want = t->members; want->name; want++)
        if (!(want->flags & FAK_OPTIONAL) && !gem_json_get(v, want->name))
            fak_find_in(f, "NPJ-005", v, want->name, "this member is missing");
}

void fak_shape_check(fak_findings *f, const fak_type *type, const gem_json *v)
{
    static const gem_json_type want[] = {GEM_JSON_STRING, GEM_JSON_NUMBER, GEM_JSON_NUMBER,
                                         GEM_JSON_BOOL,   GEM_JSON_OBJECT, GEM_JSON_ARRAY};
    const fak_type *t = resolve(type, v);
    if (t->kind == FAK_ANY) return;
    if (v->type != want[t->kind]) {
        fak_find(f, "NPJ-006", v, "%s was expected", kind_names[t->kind]);
        return;
    }
    switch (t->kind) {
    case FAK_STRING:
        if (memchr(v->text, 0, v->len)) fak_find(f, "NPJ-006", v, "the string holds U+0000");
        break;
    case FAK_INT:
    case FAK_NUMBER:
        check_number(f, t->kind, v);
        break;
    case FAK_OBJECT:
        check_members(f, t, v);
        break;
    case FAK_ARRAY:
        for (const gem_json *m = v->first; m; m = m->next)
            fak_shape_check(f, t->item, m);
        break;
    default:
        break;
    }
}

gem_json *fak_shape_copy(gem_json_doc *doc, gem_json *parent, const char *name,
                         const fak_type *type, const gem_json *v)
{
    const fak_type *t = resolve(type, v);
    if ((t->kind != FAK_OBJECT && t->kind != FAK_ARRAY) || v->type == GEM_JSON_NULL)
        return gem_json_put_copy(doc, parent, name, v);
    gem_json *out = gem_json_put(doc, parent, name, v->type);
    if (t->kind == FAK_ARRAY) {
        for (const gem_json *m = v->first; m; m = m->next)
            fak_shape_copy(doc, out, NULL, t->item, m);
    } else {
        for (const fak_member *want = t->members; want->name; want++) {
            const gem_json *m = gem_json_get(v, want->name);
            if (m) fak_shape_copy(doc, out, want->name, want->type, m);
        }
    }
    return out;
}

const fak_document *fak_document_by_name(const char *name)
{
    for (const fak_document *const *d = fak_documents; *d; d++)
        if (strcmp((*d)->name, name) == 0) return *d;
    return NULL;
}

const fak_document *fak_document_by_schema(const gem_json *schema)
{
    for (const fak_document *const *d = fak_documents; *d; d++)
        if ((*d)->schema && gem_json_is(schema, (*d)->schema)) return *d;
    return NULL;
}

/* ---- JSON Schema ---- */
static void put_schema(gem_json_doc *doc, gem_json *out, const fak_type *t, unsigned hidden,
                       unsigned flags, const char *schema);

static void put_type(gem_json_doc *doc, gem_json *out, const char *word, unsigned flags)
{
    if (!(flags & FAK_NULLABLE)) {
        gem_json_put_string(doc, out, "type", word);
        return;
    }
    gem_json *types = gem_json_put(doc, out, "type", GEM_JSON_ARRAY);
    gem_json_put_string(doc, types, NULL, word);
    gem_json_put_string(doc, types, NULL, "null");
}

static void put_object(gem_json_doc *doc, gem_json *out, const fak_type *t, unsigned hidden,
                       unsigned flags, const char *schema)
{
    put_type(doc, out, "object", flags);
    gem_json_put_bool(doc, out, "additionalProperties", false);
    gem_json *required = gem_json_put(doc, out, "required", GEM_JSON_ARRAY);
    gem_json *properties = gem_json_put(doc, out, "properties", GEM_JSON_OBJECT);
    for (const fak_member *m = t->members; m->name; m++) {
        if (m->flags & (hidden | FAK_LEGACY)) continue;
        if (!(m->flags & FAK_OPTIONAL)) gem_json_put_string(doc, required, NULL, m->name);
        gem_json *p = gem_json_put(doc, properties, m->name, GEM_JSON_OBJECT);
        if (schema && strcmp(m->name, "schema") == 0)
            gem_json_put_string(doc, p, "const", schema);
        else
            put_schema(doc, p, m->type, hidden, m->flags, NULL);
    }
}

static void put_schema(gem_json_doc *doc, gem_json *out, const fak_type *t, unsigned hidden,
                       unsigned flags, const char *schema)
{
    switch (t->kind) {
    case FAK_STRING:
        put_type(doc, out, "string", flags);
        break;
    case FAK_INT:
        put_type(doc, out, "integer", flags);
        gem_json_put_int(doc, out, "minimum", -9007199254740991);
        gem_json_put_int(doc, out, "maximum", 9007199254740991);
        break;
    case FAK_NUMBER:
        put_type(doc, out, "number", flags);
        break;
    case FAK_BOOL:
        put_type(doc, out, "boolean", flags);
        break;
    case FAK_ARRAY:
        put_type(doc, out, "array", flags);
        put_schema(doc, gem_json_put(doc, out, "items", GEM_JSON_OBJECT), t->item, hidden, 0, NULL);
        break;
    case FAK_OBJECT:
        put_object(doc, out, t, hidden, flags, schema);
        break;
    case FAK_ANY:
        break;
    case FAK_VARIANT: {
        gem_json *any = gem_json_put(doc, out, "anyOf", GEM_JSON_ARRAY);
        for (const fak_document *const *c = t->choice; *c; c++)
            put_schema(doc, gem_json_put(doc, any, NULL, GEM_JSON_OBJECT), (*c)->type, (*c)->hidden,
                       0, (*c)->schema);
        break;
    }
    }
}

void fak_schema_write(gem_bytes *out, const fak_document *d)
{
    gem_json_doc *doc = gem_json_new();
    if (!doc) {
        out->failed = true;
        return;
    }
    gem_json *root = gem_json_put(doc, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(doc, root, "$schema", "https://json-schema.org/draft/2020-12/schema");
    gem_json_put_string(doc, root, "title", d->schema ? d->schema : d->name);
    put_schema(doc, root, d->type, d->hidden, 0, d->schema);
    gem_json_write(out, root);
    if (gem_json_failed(doc)) out->failed = true;
    gem_json_free(doc);
}
