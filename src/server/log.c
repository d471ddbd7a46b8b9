/* log.c - one line an event on stderr, key=value behind the time. No keys, no bodies, no text of
 * prompts. */
#include "server/params.h"

#include <stdio.h>
#include <time.h>

void gem_log_line(const gem_server *s, const char *fmt, ...)
{
    char line[1024];
    struct timespec now;
    struct tm tm;
    (void)s;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ ", now.tv_nsec / 1000000);
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);
    n = GEM_MIN(n + (size_t)GEM_MAX(k, 0), sizeof(line) - 2);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = '?';
    line[n++] = '\n';
    fwrite(line, 1, n, stderr); /* one call: lines of threads do not mix */
}

static double ms(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) * 1e-6 : 0;
}

static double rate(size_t n, double milliseconds)
{
    return milliseconds > 0 ? (double)n * 1e3 / milliseconds : 0;
}

void gem_log_job(gem_job *j)
{
    const gem_answer *a = &j->answer[0];
    size_t prompt, cached, generated;
    if (!j->queued_ns) return; /* refused before it was queued */
    gem_job_counts(j, &prompt, &cached, &generated);
    gem_cancel c = gem_job_cancelled(j);
    const char *end = c               ? gem_cancel_name(c)
                      : j->fault.http ? j->fault.code
                                      : gem_finish_name(a->finish);
    double prefill = ms(a->start_ns, a->prefilled_ns), decode = ms(a->first_ns, a->last_ns);
    gem_log_line(j->server,
                 "%s done wire=%s stream=%d status=%d model=%s prompt=%zu cached=%zu generated=%zu "
                 "queue_ms=%.1f ttft_ms=%.1f prefill_tok_s=%.1f decode_tok_s=%.1f total_ms=%.1f "
                 "end=%s bytes=%zu",
                 j->request_id, j->wire->name, j->p.stream, j->fault.http ? j->fault.http : 200,
                 j->model, prompt, cached, generated, ms(j->queued_ns, a->start_ns),
                 ms(j->queued_ns, a->first_ns), rate(a->prompt->n - a->n_cached, prefill),
                 rate(a->n_generated ? a->n_generated - 1 : 0, decode),
                 ms(j->queued_ns, j->done_ns), end, j->n_out);
}
