/* json_reader.h - strict JSON (RFC 8259) as a tree that remembers where everything stood: every
 * value knows its parent, so a finding can name an RFC 6901 pointer; numbers keep their source
 * text, so an integer field can refuse 1.0 and 1e3; a second member of the same name is an error,
 * not a choice. Also builds trees and writes them: indented, and in the canonical form of RFC 8785
 * for digests. Evidence documents are read with this; jansson stays for what merely has to be valid
 * JSON. Values live in the arena of their document and are borrowed until gem_json_free. */
#ifndef GEM_BASE_JSON_READER_H
#define GEM_BASE_JSON_READER_H

#include "base/base.h"

typedef enum gem_json_type {
    GEM_JSON_NULL,
    GEM_JSON_BOOL,
    GEM_JSON_NUMBER,
    GEM_JSON_STRING,
    GEM_JSON_ARRAY,
    GEM_JSON_OBJECT
} gem_json_type;

typedef struct gem_json gem_json;
struct gem_json {
    gem_json_type type;
    bool truth;    /* BOOL */
    double number; /* NUMBER: nearest double; infinite when the literal overflows */
    const char
        *text;  /* STRING: decoded UTF-8 (may hold U+0000); NUMBER: source text; NUL behind it */
    size_t len; /* bytes of text */
    const char *name; /* member name when the parent is an object, else NULL; NUL behind it */
    size_t name_len;
    size_t index; /* position in the parent */
    size_t n;     /* ARRAY, OBJECT: number of children */
    gem_json *parent, *first, *last, *next;
};

typedef enum gem_json_fault {
    GEM_JSON_OK,
    GEM_JSON_SYNTAX,    /* grammar, UTF-8, lone surrogate, nesting or number of values */
    GEM_JSON_TRAILING,  /* something other than blanks follows the value */
    GEM_JSON_DUPLICATE, /* one object has a member name twice; `at` is the second one */
    GEM_JSON_NOMEM
} gem_json_fault;

typedef struct gem_json_error {
    gem_json_fault fault;
    size_t line, column; /* from 1; column counts bytes */
    const gem_json *at;  /* DUPLICATE: the second member; lives as long as the document */
    char text[160];
} gem_json_error;

typedef struct gem_json_doc gem_json_doc;

/* Read one document. Nesting beyond max_depth and more than 2^20 values are refused (SYNTAX), so
 * memory stays within a small multiple of the input.
 * Always returns a document unless out of memory (NULL); its root is NULL after SYNTAX, TRAILING.
 */
gem_json_doc *gem_json_read(const char *data, size_t len, int max_depth, gem_json_error *err);
/* An empty document to build in. NULL when out of memory. */
gem_json_doc *gem_json_new(void);
void gem_json_free(gem_json_doc *doc);
const gem_json *gem_json_root(const gem_json_doc *doc);
/* An allocation failed while building; the tree is incomplete. */
bool gem_json_failed(const gem_json_doc *doc);

/* ---- looking ---- */
/* Member of an object by name; NULL when absent or when v is no object (NULL included). */
const gem_json *gem_json_get(const gem_json *v, const char *name);
/* Item of an array or n-th member of an object; NULL out of range. */
const gem_json *gem_json_at(const gem_json *v, size_t index);
bool gem_json_is(const gem_json *v, const char *string); /* a STRING equal to this text */
/* Deep equality: numbers by value, members in any order. */
bool gem_json_equal(const gem_json *a, const gem_json *b);
/* Append the RFC 6901 pointer of v ("" for the root). */
void gem_json_pointer(const gem_json *v, gem_bytes *out);

/* ---- building; parent NULL makes the root; name NULL when the parent is an array ---- */
gem_json *gem_json_put(gem_json_doc *doc, gem_json *parent, const char *name, gem_json_type type);
gem_json *gem_json_put_string(gem_json_doc *doc, gem_json *parent, const char *name,
                              const char *text);
gem_json *gem_json_put_number(gem_json_doc *doc, gem_json *parent, const char *name, double value);
gem_json *gem_json_put_int(gem_json_doc *doc, gem_json *parent, const char *name, int64_t value);
gem_json *gem_json_put_bool(gem_json_doc *doc, gem_json *parent, const char *name, bool value);
/* Deep copy of v, which may belong to another document. NULL: nothing is put, as when memory is
 * out. */
gem_json *gem_json_put_copy(gem_json_doc *doc, gem_json *parent, const char *name,
                            const gem_json *v);
/* Replace the text of a STRING node. */
void gem_json_set_string(gem_json_doc *doc, gem_json *v, const char *text);
/* Insert member `name` as a copy of v behind `after` (a child of `parent`), or first when NULL. */
gem_json *gem_json_insert_copy(gem_json_doc *doc, gem_json *parent, const gem_json *after,
                               const char *name, const gem_json *v);

/* ---- writing ---- */
/* Shortest decimal that reads back to the same double, in the form of ECMAScript Number::toString:
 * plain for 1e-6 <= |v| < 1e21, else exponent; -0 gives 0. v is finite. Independent of the locale.
 */
void gem_json_number(char out[32], double v);
/* Quoted; only `"` `\` and U+0000..001F escaped. */
void gem_json_quote(gem_bytes *out, const char *text, size_t len);
/* Two-space indent, members in tree order, `[]` and `{}` for empty ones, one final LF. */
void gem_json_write(gem_bytes *out, const gem_json *v);
/* RFC 8785: members sorted by UTF-16 units, no blanks. The string of the top-level member `blank`
 * (NULL: none) is written as "". */
void gem_json_write_canonical(gem_bytes *out, const gem_json *v, const char *blank);

#endif
