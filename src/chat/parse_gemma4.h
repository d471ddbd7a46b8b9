/* parse_gemma4.h - between parse_gemma4.c (the answer) and parse_gemma4_call.c (one call of it). */
#ifndef GEM_CHAT_PARSE_GEMMA4_H
#define GEM_CHAT_PARSE_GEMMA4_H

#include "chat/parser.h"

void gem_gemma4_call_start(gem_parser *p);
void gem_gemma4_call_text(gem_parser *p, const char *s, size_t len);
/* A marker inside a call. True: the call is over, its last event sent. */
bool gem_gemma4_call_mark(gem_parser *p, gem_mark mark, gem_str spelled);
bool gem_gemma4_call_complete(const gem_parser *p); /* all but its closing marker was read */

#endif
