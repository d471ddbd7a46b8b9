/* text.h - how templates treat text and JSON, for the renderers: Python's strip and number forms,
 * json.dumps, and the order of dictsort. Families print values the way their templates' engine did
 * when they were trained, so these follow it to the byte. */
#ifndef GEM_CHAT_TEXT_H
#define GEM_CHAT_TEXT_H

#include "base/json_reader.h"
#include "gguf/gguf.h"

/* Without white space at both ends: Unicode's, and the four separators U+001C..U+001F. */
gem_str gem_trim(gem_str s);
bool gem_starts_with(gem_str s, const char *text);
bool gem_ends_with(gem_str s, const char *text);
/* First place of `text` in s at or after `from`; SIZE_MAX: none. */
size_t gem_find(gem_str s, size_t from, const char *text);

bool gem_json_truthy(const gem_json *v); /* NULL, null, false, 0, "", [], {} are not */
/* As json.dumps(v, ensure_ascii=False): one line, ", " and ": ", members in order. */
void gem_json_dumps(gem_bytes *out, const gem_json *v);
/* As str(v): texts as they are, True, None, 1.0, ['a', {'b': 1}]; NULL prints nothing. */
void gem_json_str(gem_bytes *out, const gem_json *v);
/* A number as Python prints what JSON reads: whole ones as written, others in shortest form. */
void gem_json_py_number(gem_bytes *out, const gem_json *v);
/* Upper case of every character, by simple mapping. */
void gem_upper(gem_bytes *out, const char *text, size_t len);
/* Members of an object ordered by lower-cased name, equal ones in their order; malloc'd v->n + 1
 * pointers, the last NULL. NULL when out of memory. */
const gem_json **gem_json_sorted(const gem_json *v);

#endif
