/* metrics.h - counters, gauges and histograms of the server, and their Prometheus text. Written
 * from every thread without locks. */
#ifndef GEM_METRICS_H
#define GEM_METRICS_H

#include "base/base.h"

#include <stdatomic.h>

enum { GEM_BUCKETS = 12, GEM_ROUTES = 24, GEM_CODES = 16 };

typedef struct gem_histogram {
    _Atomic uint64_t count[GEM_BUCKETS + 1]; /* the last one is +Inf */
    _Atomic uint64_t sum_ns;
} gem_histogram;

typedef struct gem_metrics {
    _Atomic uint64_t requests[GEM_ROUTES][GEM_CODES]; /* by route and status; routes.c names them */
    _Atomic uint64_t cancelled[8];                    /* by gem_cancel */
    _Atomic uint64_t prompt_tokens, cached_tokens, generated_tokens;
    _Atomic uint64_t prefill_ns, decode_ns, batches, batch_rows;
    _Atomic uint64_t prefix_queries, prefix_hits;
    _Atomic uint64_t disk_hits, disk_writes, disk_evicted, disk_damaged;
    _Atomic int64_t running, queued, kv_used, kv_pages, connections; /* kv: pages */
    _Atomic int64_t disk_files, disk_bytes, disk_waiting;
    gem_histogram queue_wait, first_token, inter_token, duration;
} gem_metrics;

void gem_histogram_add(gem_histogram *h, uint64_t ns);
void gem_metrics_request(gem_metrics *m, int route, int status);

struct gem_server;
void gem_metrics_text(struct gem_server *s, gem_bytes *out);

#endif
