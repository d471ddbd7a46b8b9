/* parse_qwen.h - between parse_qwen.c (the answer) and the two notations of a call. */
#ifndef GEM_CHAT_PARSE_QWEN_H
#define GEM_CHAT_PARSE_QWEN_H

#include "chat/parser.h"

/* parse_xml.c: <function=NAME> <parameter=KEY> VALUE </parameter> .. </function> */
void gem_call_xml_text(gem_parser *p, const char *s, size_t len);
bool gem_call_xml_complete(const gem_parser *p); /* </function> was read */
/* Inside a value markers are text, except a closer where the value may have ended. */
bool gem_call_xml_takes_mark(gem_parser *p, gem_mark mark);

/* parse_hermes.c: {"name": .., "arguments": {..}} */
void gem_call_hermes_text(gem_parser *p, const char *s, size_t len);

/* Give on the arguments that are known, once the name is. */
void gem_call_hermes_args(gem_parser *p);

/* The declared tool that a bare call names so far; NULL: none, or no bare call. */
const char *gem_qwen_pending_tool(const gem_parser *p);
/* The bare call that is pending is one, whatever comes: from now on it is sent as it arrives. */
void gem_qwen_commit(gem_parser *p);

#endif
