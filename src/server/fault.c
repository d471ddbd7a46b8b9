/* fault.c - faults as JSON. */
#include "server/fault.h"

#include "base/json_reader.h"

#include <stdio.h>

static void fill(gem_fault *f, int http, const char *type, const char *code, const char *param,
                 const char *fmt, va_list ap)
{
    f->http = http;
    f->type = type;
    f->code = code;
    snprintf(f->param, sizeof(f->param), "%s", param ? param : "");
    vsnprintf(f->message, sizeof(f->message), fmt, ap);
    f->message[gem_utf8_complete(f->message, strlen(f->message))] = 0;
}

bool gem_fault_set(gem_fault *f, int http, const char *type, const char *code, const char *param,
                   const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(f, http, type, code, param, fmt, ap);
    va_end(ap);
    return false;
}

bool gem_fault_bad(gem_fault *f, const char *code, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(f, 400, GEM_INVALID, code, param, fmt, ap);
    va_end(ap);
    return false;
}

void gem_quote(gem_bytes *out, const char *text, size_t len)
{
    gem_bytes clean = {0};
    size_t from = 0;
    bool dirty = false;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int n = gem_utf8_decode(text + i, len - i, &cp);
        if (n > 0 && cp != 0) {
            i += (size_t)n;
            continue;
        }
        dirty = true;
        gem_bytes_put(&clean, text + from, i - from);
        gem_bytes_put(&clean, "\xEF\xBF\xBD", 3);
        from = ++i;
    }
    if (!dirty) {
        gem_json_quote(out, text, len);
        return;
    }
    gem_bytes_put(&clean, text + from, len - from);
    out->failed |= clean.failed;
    gem_json_quote(out, clean.data ? clean.data : "", clean.len);
    gem_bytes_free(&clean);
}

void gem_quote_word(gem_bytes *out, const char *text)
{
    gem_quote(out, text, strlen(text));
}

void gem_fault_json(const gem_fault *f, gem_bytes *out)
{
    gem_bytes_printf(out, "{\"error\":{\"message\":");
    gem_quote_word(out, f->message);
    gem_bytes_printf(out, ",\"type\":\"%s\",\"param\":", f->type);
    if (f->param[0])
        gem_quote_word(out, f->param);
    else
        gem_bytes_printf(out, "null");
    gem_bytes_printf(out, ",\"code\":\"%s\"", f->code);
    if (f->n_ctx)
        gem_bytes_printf(out, ",\"n_prompt_tokens\":%lld,\"n_ctx\":%lld", (long long)f->n_prompt,
                         (long long)f->n_ctx);
    gem_bytes_printf(out, "}}");
}
