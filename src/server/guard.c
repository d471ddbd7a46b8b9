/* guard.c - Host against DNS rebinding, Origin against other sites' pages, keys in constant time.
 */
#include "server/guard.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <strings.h>

/* Name of a Host header without port, brackets and final dot, in lower case. */
static bool host_name(const char *host, char *out, size_t size)
{
    const char *end;
    if (*host == '[') {
        end = strchr(++host, ']');
        if (!end || (end[1] && end[1] != ':')) return false;
    } else {
        end = host + strcspn(host, ":");
        if (end > host && end[-1] == '.') end--;
    }
    size_t n = (size_t)(end - host);
    if (n == 0 || n >= size) return false;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)tolower((unsigned char)host[i]);
    out[n] = 0;
    return true;
}

static bool is_loopback(const char *name)
{
    unsigned a, b, c;
    int n = 0;
    if (!strcmp(name, "localhost") || !strcmp(name, "::1")) return true;
    return sscanf(name, "127.%3u.%3u.%3u%n", &a, &b, &c, &n) == 3 && !name[n] && a < 256 &&
           b < 256 && c < 256;
}

static bool in_list(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        if (n == len && !strncasecmp(p, word, n)) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

bool gem_guard_host(const char *host, const char *allowed)
{
    char name[256];
    return host_name(host, name, sizeof(name)) && (is_loopback(name) || in_list(allowed, name));
}

static const char *origin_host(const char *origin)
{
    if (!strncasecmp(origin, "http://", 7)) return origin + 7;
    if (!strncasecmp(origin, "https://", 8)) return origin + 8;
    return NULL;
}

bool gem_guard_origin(const char *origin, const char *allowed)
{
    char name[256];
    const char *host = origin_host(origin);
    if (in_list(allowed, origin)) return true;
    return in_list(allowed, "localhost") && host && host_name(host, name, sizeof(name)) &&
           is_loopback(name);
}

bool gem_guard_same(const char *origin, const char *host)
{
    const char *h = origin_host(origin);
    return h && host && !strcasecmp(h, host);
}

void gem_guard_digest(const char *key, size_t len, uint8_t out[32])
{
    SHA256((const unsigned char *)key, len, out);
}

bool gem_guard_key(const char *key, size_t len, const uint8_t (*digest)[32], size_t n)
{
    uint8_t d[32];
    int found = 0;
    gem_guard_digest(key, len, d);
    for (size_t i = 0; i < n; i++)
        found |= CRYPTO_memcmp(d, digest[i], sizeof(d)) == 0;
    return found;
}
