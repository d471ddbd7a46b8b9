/* metrics.c - Prometheus text (exposition format 0.0.4). */
#include "server/metrics.h"

#include "gem_build.h"
#include "server/routes.h"
#include "server/serve.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static const double bound[GEM_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                          0.5,   1,    2.5,   10,   60,  300};
static const int codes[GEM_CODES] = {200, 204, 400, 401, 403, 404, 405, 408,
                                     413, 414, 429, 431, 500, 501, 503, 0};

void gem_histogram_add(gem_histogram *h, uint64_t ns)
{
    int i = 0;
    while (i < GEM_BUCKETS && (double)ns * 1e-9 > bound[i])
        i++;
    atomic_fetch_add(&h->count[i], 1);
    atomic_fetch_add(&h->sum_ns, ns);
}

void gem_metrics_request(gem_metrics *m, int route, int status)
{
    int k = 0;
    while (k + 1 < GEM_CODES && codes[k] != status)
        k++;
    atomic_fetch_add(&m->requests[route < 0 ? GEM_ROUTES - 1 : route][k], 1);
}

static void family(gem_bytes *out, const char *name, const char *type, const char *help)
{
    gem_bytes_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(gem_bytes *out, const char *name, const char *help, double v)
{
    family(out, name, "counter", help);
    gem_bytes_printf(out, "%s %.17g\n", name, v);
}

static void gauge(gem_bytes *out, const char *name, const char *help, double v)
{
    family(out, name, "gauge", help);
    gem_bytes_printf(out, "%s %.17g\n", name, v);
}

static void histogram(gem_bytes *out, const char *name, const char *help, gem_histogram *h)
{
    uint64_t sum = 0;
    family(out, name, "histogram", help);
    for (int i = 0; i < GEM_BUCKETS; i++) {
        sum += atomic_load(&h->count[i]);
        gem_bytes_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bound[i],
                         (unsigned long long)sum);
    }
    sum += atomic_load(&h->count[GEM_BUCKETS]);
    gem_bytes_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9f\n%s_count %llu\n", name,
                     (unsigned long long)sum, name, (double)atomic_load(&h->sum_ns) * 1e-9, name,
                     (unsigned long long)sum);
}

/* A label's value: backslash, quote and newline are escaped. */
static void label(gem_bytes *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') gem_bytes_put(out, "\\", 1);
        gem_bytes_put(out, *s == '\n' ? " " : s, 1);
    }
}

static void requests(gem_metrics *m, gem_bytes *out)
{
    family(out, "gem_requests_total", "counter", "HTTP requests by route and status.");
    for (int r = 0; r < GEM_ROUTES; r++)
        for (int k = 0; k < GEM_CODES; k++) {
            uint64_t n = atomic_load(&m->requests[r][k]);
            if (!n) continue;
            const gem_route *route = gem_route_at(r);
            gem_bytes_printf(out, "gem_requests_total{route=\"%s\",code=\"%d\"} %llu\n",
                             route ? route->path : "other", codes[k], (unsigned long long)n);
        }
    family(out, "gem_requests_cancelled_total", "counter", "Generations that ended early.");
    for (int c = GEM_CANCEL_GONE; c < GEM_CANCEL_KINDS; c++)
        gem_bytes_printf(out, "gem_requests_cancelled_total{reason=\"%s\"} %llu\n",
                         gem_cancel_name((gem_cancel)c),
                         (unsigned long long)atomic_load(&m->cancelled[c]));
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void process(gem_server *s, gem_bytes *out)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    gauge(out, "process_start_time_seconds", "Start of the process, Unix time.",
          (double)s->started);
    gauge(out, "process_resident_memory_bytes", "Resident memory.", resident_bytes());
    counter(out, "process_cpu_seconds_total", "CPU time, user and system.",
            (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6);
}

static void disk(gem_metrics *m, gem_bytes *out)
{
    gauge(out, "gem_disk_cache_files", "Files of the disk cache.",
          (double)atomic_load(&m->disk_files));
    gauge(out, "gem_disk_cache_bytes", "Bytes of those files.",
          (double)atomic_load(&m->disk_bytes));
    gauge(out, "gem_disk_cache_waiting", "Texts that wait to be written, or are being written.",
          (double)atomic_load(&m->disk_waiting));
    counter(out, "gem_disk_cache_hits_total", "Prefixes brought from disk.",
            (double)atomic_load(&m->disk_hits));
    counter(out, "gem_disk_cache_writes_total", "Files written.",
            (double)atomic_load(&m->disk_writes));
    counter(out, "gem_disk_cache_evicted_total", "Files removed to make room.",
            (double)atomic_load(&m->disk_evicted));
    counter(out, "gem_disk_cache_damaged_total", "Files found damaged when they were read.",
            (double)atomic_load(&m->disk_damaged));
}

void gem_metrics_text(gem_server *s, gem_bytes *out)
{
    gem_metrics *m = &s->metrics;
    family(out, "gem_build_info", "gauge", "What runs.");
    gem_bytes_printf(out, "gem_build_info{version=\"%s\",commit=\"%s\",model=\"", gem_version(),
                     GEM_BUILD_COMMIT);
    label(out, s->id);
    gem_bytes_printf(out, "\"} 1\n");
    requests(m, out);
    int64_t queued = atomic_load(&m->queued); /* first: what starts meanwhile is then in both */
    gauge(out, "gem_requests_running", "Answers being generated.",
          (double)atomic_load(&m->running));
    gauge(out, "gem_requests_queued", "Answers waiting for a slot.", (double)queued);
    gauge(out, "gem_connections", "Open connections.", (double)atomic_load(&m->connections));
    counter(out, "gem_prompt_tokens_total", "Prompt tokens computed.",
            (double)atomic_load(&m->prompt_tokens));
    counter(out, "gem_prompt_tokens_cached_total", "Prompt tokens taken from the prefix cache.",
            (double)atomic_load(&m->cached_tokens));
    counter(out, "gem_generated_tokens_total", "Tokens generated.",
            (double)atomic_load(&m->generated_tokens));
    counter(out, "gem_prefill_seconds_total", "Time of batches that held prompt rows.",
            (double)atomic_load(&m->prefill_ns) * 1e-9);
    counter(out, "gem_decode_seconds_total", "Time of batches without prompt rows.",
            (double)atomic_load(&m->decode_ns) * 1e-9);
    counter(out, "gem_batches_total", "Forward passes.", (double)atomic_load(&m->batches));
    counter(out, "gem_batch_rows_total", "Rows of forward passes.",
            (double)atomic_load(&m->batch_rows));
    counter(out, "gem_prefix_cache_queries_total", "Prompts looked up in the prefix cache.",
            (double)atomic_load(&m->prefix_queries));
    counter(out, "gem_prefix_cache_hits_total", "Prompts of which a part was held.",
            (double)atomic_load(&m->prefix_hits));
    gauge(out, "gem_kv_pages_used", "KV pages held by running answers and the prefix cache.",
          (double)atomic_load(&m->kv_used));
    gauge(out, "gem_kv_pages", "KV pages there are.", (double)atomic_load(&m->kv_pages));
    if (s->disk) disk(m, out);
    gauge(out, "gem_slots", "Sequences that can run at once.", s->n_slots);
    gauge(out, "gem_context_tokens", "Positions of a sequence.", s->opt.model.n_ctx);
    histogram(out, "gem_queue_wait_seconds", "Time in the queue.", &m->queue_wait);
    histogram(out, "gem_time_to_first_token_seconds", "From the queue to the first token.",
              &m->first_token);
    histogram(out, "gem_inter_token_seconds", "Between tokens of one answer.", &m->inter_token);
    histogram(out, "gem_request_duration_seconds", "From the queue to the end.", &m->duration);
    process(s, out);
}
