/* random.c - ids that cannot be guessed, and seeds. */
#include "server/serve.h"

#include <sys/random.h>

uint64_t gem_random_u64(void)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v)) v = gem_now_ns();
    return v;
}

void gem_random_hex(char *out, size_t n_bytes)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t v = gem_random_u64();
        for (size_t k = i; k < n_bytes && k < i + 8; k++, v >>= 8) {
            out[2 * k] = digit[v >> 4 & 15];
            out[2 * k + 1] = digit[v & 15];
        }
    }
    out[2 * n_bytes] = 0;
}
