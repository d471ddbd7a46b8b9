/* fault.h - a refused or failed request as clients see it: HTTP status, type, code, parameter and
 * one sentence. Whoever finds the fault fills it; http_front.c and the wires write it out. */
#ifndef GEM_FAULT_H
#define GEM_FAULT_H

#include "base/base.h"

typedef struct gem_fault {
    int http;                /* 0: no fault */
    const char *type, *code; /* static */
    char param[120];         /* "": null */
    char message[600];
    int64_t n_prompt, n_ctx; /* context_length_exceeded; else 0 */
    int retry_after_s;       /* 0: none */
} gem_fault;

#define GEM_INVALID "invalid_request_error"

/* Fill f; always false, so that checks can return it. */
bool gem_fault_set(gem_fault *f, int http, const char *type, const char *code, const char *param,
                   const char *fmt, ...) GEM_PRINTF(6, 7);
/* 400 of invalid_request_error. */
bool gem_fault_bad(gem_fault *f, const char *code, const char *param, const char *fmt, ...)
    GEM_PRINTF(4, 5);
/* {"error":{...}} as OpenAI has it. */
void gem_fault_json(const gem_fault *f, gem_bytes *out);

/* Quoted JSON string of UTF-8 text; U+0000 becomes U+FFFD, because strict readers refuse it. */
void gem_quote(gem_bytes *out, const char *text, size_t len);
void gem_quote_word(gem_bytes *out, const char *text);

#endif
