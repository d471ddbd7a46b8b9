/* parse_hermes.c - a call written as JSON between tags: {"name": .., "arguments": {..}}. Arguments
 * go on as they come, once the name is known. */
#include "chat/parse_qwen.h"

void gem_call_hermes_args(gem_parser *p)
{
    gem_call_json *j = &p->json;
    /* a string of arguments counts only once it was read through */
    bool ready = j->args_done || j->args_object;
    if (!p->begun || !ready || !j->args.len) return;
    gem_call_args(p, j->args.data, j->args.len);
    j->args.len = 0;
    p->any_argument = true;
}

void gem_call_hermes_text(gem_parser *p, const char *s, size_t len)
{
    gem_call_json *j = &p->json;
    for (size_t i = 0; i < len && !p->broken; i++) {
        bool was_done = j->done;
        gem_scan r = gem_call_json_byte(j, s[i]);
        if (r == GEM_SCAN_BAD) {
            gem_call_break(p, was_done  ? "something follows the call's JSON"
                              : j->done ? "the call has no name"
                                        : "the call is malformed JSON");
            return;
        }
        if (j->named && !p->begun) {
            gem_bytes_put(&p->name, j->name.data, j->name.len);
            gem_call_begin(p);
        }
        gem_call_hermes_args(p);
        if (j->done && !was_done && !p->any_argument) gem_call_args(p, "{}", 2);
    }
}
