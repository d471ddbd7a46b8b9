/* stop_match.c - the first stop to complete wins; of those that complete together the longest. */
#include "server/stop_match.h"

/* Length of the longest stop that ends exactly at `end`; 0 when none does. */
static size_t ends_at(gem_stop_match *m, size_t end)
{
    size_t best = 0;
    for (size_t i = 0; i < m->n; i++) {
        size_t len = strlen(m->stop[i]);
        if (len > best && len <= end && !memcmp(m->held.data + end - len, m->stop[i], len)) {
            best = len;
            m->hit = m->stop[i];
        }
    }
    return best;
}

/* Length of the longest tail of held that a stop starts with. */
static size_t open_tail(const gem_stop_match *m)
{
    size_t best = 0;
    for (size_t i = 0; i < m->n; i++) {
        size_t len = strlen(m->stop[i]);
        for (size_t k = GEM_MIN(len - 1, m->held.len); k > best; k--)
            if (!memcmp(m->held.data + m->held.len - k, m->stop[i], k)) best = k;
    }
    return best;
}

bool gem_stop_match_push(gem_stop_match *m, const char *text, size_t len, gem_bytes *out)
{
    if (m->n == 0 || len == 0) {
        gem_bytes_put(out, text, len);
        return false;
    }
    size_t before = m->held.len;
    gem_bytes_put(&m->held, text, len);
    if (m->held.failed) {
        out->failed = true;
        return false;
    }
    for (size_t end = before + 1; end <= m->held.len; end++) {
        size_t stop = ends_at(m, end);
        if (!stop) continue;
        gem_bytes_put(out, m->held.data, end - stop);
        m->held.len = 0;
        return true;
    }
    size_t keep = open_tail(m), give = m->held.len - keep;
    gem_bytes_put(out, m->held.data, give);
    memmove(m->held.data, m->held.data + give, keep);
    m->held.len = keep;
    return false;
}

void gem_stop_match_finish(gem_stop_match *m, gem_bytes *out)
{
    gem_bytes_put(out, m->held.data ? m->held.data : "", m->held.len);
    m->held.len = 0;
}

void gem_stop_match_deinit(gem_stop_match *m)
{
    gem_bytes_free(&m->held);
}
