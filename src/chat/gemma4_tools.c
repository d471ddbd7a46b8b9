/* gemma4_tools.c - Gemma 4's notation of values and of tool declarations: bare names, strings
 * between <|"|> pairs, members ordered by lower-cased name. Declarations follow the template to the
 * letter, also where it drops keywords of a schema or closes one brace too few (docs/chat.md). */
#include "chat/chat.h"
#include "chat/text.h"

#include <stdlib.h>

#define QUOTE "<|\"|>"

static void put_quoted(gem_prompt *p, const char *text, size_t len)
{
    gem_put_marker(p, QUOTE);
    gem_put(p, text, len);
    gem_put_marker(p, QUOTE);
}

static void put_quoted_str(gem_prompt *p, const gem_json *v)
{
    gem_put_marker(p, QUOTE);
    gem_json_str(&p->text, v);
    gem_put_marker(p, QUOTE);
}

/* Upper case of what the value prints as; NULL prints nothing. */
static void put_quoted_upper(gem_prompt *p, const gem_json *v)
{
    gem_bytes s = {0};
    gem_json_str(&s, v);
    gem_put_marker(p, QUOTE);
    gem_upper(&p->text, s.data, s.len);
    gem_put_marker(p, QUOTE);
    p->failed |= s.failed;
    gem_bytes_free(&s);
}

static bool is_type(const gem_json *v, const char *name)
{
    gem_bytes s = {0}, up = {0};
    gem_json_str(&s, gem_json_get(v, "type"));
    gem_upper(&up, s.data, s.len);
    bool same = up.data && !strcmp(up.data, name);
    gem_bytes_free(&s);
    gem_bytes_free(&up);
    return same;
}

/* ---- values ---- */

void gem_gemma4_members(gem_prompt *p, const gem_json *v, bool quote_names)
{
    const gem_json **list = gem_json_sorted(v);
    if (!list) {
        p->failed = true;
        return;
    }
    for (size_t i = 0; list[i]; i++) {
        if (i) gem_put_words(p, ",");
        if (quote_names)
            put_quoted(p, list[i]->name, list[i]->name_len);
        else
            gem_put(p, list[i]->name, list[i]->name_len);
        gem_put_words(p, ":");
        gem_gemma4_value(p, list[i], quote_names);
    }
    free(list);
}

void gem_gemma4_value(gem_prompt *p, const gem_json *v, bool quote_names)
{
    switch (v->type) {
    case GEM_JSON_NULL:
        gem_put_words(p, "null");
        break;
    case GEM_JSON_BOOL:
        gem_put_words(p, v->truth ? "true" : "false");
        break;
    case GEM_JSON_NUMBER:
        gem_json_py_number(&p->text, v);
        break;
    case GEM_JSON_STRING:
        put_quoted(p, v->text, v->len);
        break;
    case GEM_JSON_ARRAY:
        gem_put_words(p, "[");
        for (const gem_json *m = v->first; m; m = m->next) {
            gem_gemma4_value(p, m, quote_names);
            if (m->next) gem_put_words(p, ",");
        }
        gem_put_words(p, "]");
        break;
    case GEM_JSON_OBJECT:
        gem_put_words(p, "{");
        gem_gemma4_members(p, v, quote_names);
        gem_put_words(p, "}");
        break;
    }
}

/* ---- declarations ---- */

/* Names in [..], each quoted. */
static void put_required(gem_prompt *p, const gem_json *list)
{
    gem_put_words(p, "required:[");
    for (const gem_json *m = list && list->type == GEM_JSON_ARRAY ? list->first : NULL; m;
         m = m->next) {
        put_quoted_str(p, m);
        if (m->next) gem_put_words(p, ",");
    }
    gem_put_words(p, "]");
}

static void put_properties(gem_prompt *p, const gem_json *v, bool skip_keywords);

static void put_item_type(gem_prompt *p, const gem_json *v)
{
    gem_put_words(p, "type:");
    if (v->type != GEM_JSON_ARRAY) {
        put_quoted_upper(p, v);
        return;
    }
    gem_put_words(p, "[");
    for (const gem_json *m = v->first; m; m = m->next) {
        put_quoted_upper(p, m);
        if (m->next) gem_put_words(p, ",");
    }
    gem_put_words(p, "]");
}

/* The schema of an array's items: every keyword, with its own names quoted. */
static void put_items(gem_prompt *p, const gem_json *items)
{
    const gem_json **list = gem_json_sorted(items);
    bool first = true;
    if (!list) {
        p->failed = true;
        return;
    }
    gem_put_words(p, "items:{");
    for (size_t i = 0; list[i]; i++) {
        const gem_json *v = list[i];
        if (v->type == GEM_JSON_NULL) continue;
        if (!first) gem_put_words(p, ",");
        first = false;
        if (!strcmp(v->name, "properties")) {
            gem_put_words(p, "properties:{");
            if (v->type == GEM_JSON_OBJECT) put_properties(p, v, false);
            gem_put_words(p, "}");
        } else if (!strcmp(v->name, "required")) {
            put_required(p, v);
        } else if (!strcmp(v->name, "type")) {
            put_item_type(p, v);
        } else {
            gem_put(p, v->name, v->name_len);
            gem_put_words(p, ":");
            gem_gemma4_value(p, v, true);
        }
    }
    gem_put_words(p, "}");
    free(list);
}

static void separate(gem_prompt *p, bool *first)
{
    if (!*first) gem_put_words(p, ",");
    *first = false;
}

static void put_object_schema(gem_prompt *p, const gem_json *v, bool *first)
{
    const gem_json *inner = gem_json_get(v, "properties"), *required = gem_json_get(v, "required");
    bool own = inner && inner->type == GEM_JSON_OBJECT;
    separate(p, first);
    gem_put_words(p, "properties:{");
    put_properties(p, own ? inner : v, !own);
    gem_put_words(p, "}");
    if (!gem_json_truthy(required)) return;
    separate(p, first);
    put_required(p, required);
}

static void put_property(gem_prompt *p, const gem_json *v)
{
    const gem_json *description = gem_json_get(v, "description"), *e = gem_json_get(v, "enum"),
                   *items = gem_json_get(v, "items");
    bool first = true;
    gem_put(p, v->name, v->name_len);
    gem_put_words(p, ":{");
    if (gem_json_truthy(description)) {
        separate(p, &first);
        gem_put_words(p, "description:");
        put_quoted_str(p, description);
    }
    if (is_type(v, "STRING") && gem_json_truthy(e)) {
        separate(p, &first);
        gem_put_words(p, "enum:");
        gem_gemma4_value(p, e, true);
    } else if (is_type(v, "ARRAY") && gem_json_truthy(items) && items->type == GEM_JSON_OBJECT) {
        separate(p, &first);
        put_items(p, items);
    }
    if (gem_json_truthy(gem_json_get(v, "nullable"))) {
        separate(p, &first);
        gem_put_words(p, "nullable:true");
    }
    if (is_type(v, "OBJECT")) put_object_schema(p, v, &first);
    separate(p, &first);
    gem_put_words(p, "type:");
    put_quoted_upper(p, gem_json_get(v, "type"));
    gem_put_words(p, "}");
}

static bool is_keyword(const char *name)
{
    static const char *const names[] = {"description", "type", "properties", "required",
                                        "nullable"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static void put_properties(gem_prompt *p, const gem_json *v, bool skip_keywords)
{
    const gem_json **list = gem_json_sorted(v);
    bool first = true;
    if (!list) {
        p->failed = true;
        return;
    }
    for (size_t i = 0; list[i]; i++) {
        if (skip_keywords && is_keyword(list[i]->name)) continue;
        separate(p, &first);
        put_property(p, list[i]);
    }
    free(list);
}

static void put_parameters(gem_prompt *p, const gem_json *v)
{
    const gem_json *properties = gem_json_get(v, "properties"),
                   *required = gem_json_get(v, "required"), *type = gem_json_get(v, "type");
    gem_put_words(p, ",parameters:{");
    if (gem_json_truthy(properties) && properties->type == GEM_JSON_OBJECT) {
        gem_put_words(p, "properties:{");
        put_properties(p, properties, false);
        gem_put_words(p, "},");
    }
    if (gem_json_truthy(required)) {
        put_required(p, required);
        gem_put_words(p, ",");
    }
    if (!gem_json_truthy(type)) return;
    gem_put_words(p, "type:");
    put_quoted_upper(p, type);
    gem_put_words(p, "}");
}

static void put_result_schema(gem_prompt *p, const gem_json *v)
{
    const gem_json *description = gem_json_get(v, "description");
    gem_put_words(p, ",response:{");
    if (gem_json_truthy(description)) {
        gem_put_words(p, "description:");
        put_quoted_str(p, description);
        gem_put_words(p, ",");
    }
    if (!is_type(v, "OBJECT")) return;
    gem_put_words(p, "type:");
    put_quoted_upper(p, gem_json_get(v, "type"));
    gem_put_words(p, "}");
}

gem_status gem_gemma4_tools(gem_prompt *p, const gem_json *tools, gem_error *err)
{
    size_t i = 0;
    for (const gem_json *t = tools->first; t; t = t->next, i++) {
        const gem_json *f = gem_json_get(t, "function"),
                       *parameters = gem_json_get(f, "parameters"),
                       *properties = gem_json_get(parameters, "properties");
        if (gem_json_truthy(properties) && properties->type != GEM_JSON_OBJECT)
            return gem_fail(err, GEM_E_ARG,
                            "tools[%zu].function.parameters.properties: expected an object", i);
        gem_put_marker(p, "<|tool>");
        gem_put_words(p, "declaration:");
        gem_json_str(&p->text, gem_json_get(f, "name"));
        gem_put_words(p, "{description:");
        put_quoted_str(p, gem_json_get(f, "description"));
        if (gem_json_truthy(parameters)) put_parameters(p, parameters);
        if (gem_json_get(f, "response")) put_result_schema(p, gem_json_get(f, "response"));
        gem_put_words(p, "}");
        gem_put_marker(p, "<tool|>");
    }
    return GEM_OK;
}
