/* error.c - one sentence per failure, and the log callback. */
#include "base/base.h"

#include <stdio.h>

gem_status gem_fail(gem_error *err, gem_status st, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        err->status = st;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
    }
    return st;
}

void gem_logf(const gem_log *log, gem_log_level level, const char *fmt, ...)
{
    if (!log || !log->fn) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log->fn(log->user, level, text);
}

const char *gem_status_name(gem_status st)
{
    switch (st) {
    case GEM_OK: return "ok";
    case GEM_E_ARG: return "argument";
    case GEM_E_NOMEM: return "memory";
    case GEM_E_IO: return "io";
    case GEM_E_FORMAT: return "format";
    case GEM_E_UNSUPPORTED: return "unsupported";
    case GEM_E_RANGE: return "range";
    case GEM_E_DEVICE: return "device";
    case GEM_E_CANCELLED: return "cancelled";
    }
    return "unknown";
}

const char *gem_version(void)
{
    return GEM_VERSION;
}
