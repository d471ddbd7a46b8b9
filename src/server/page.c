/* page.c - the page for browsers, and what it is allowed to do. */
#include "server/page.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

extern const unsigned char gem_page_bytes[]; /* made by cmake/embed.cmake */
extern const size_t gem_page_bytes_len;

void gem_page(gem_bytes *out)
{
    gem_bytes_put(out, gem_page_bytes, gem_page_bytes_len);
}

static const char *find(const char *from, const char *end, const char *word)
{
    return memmem(from, (size_t)(end - from), word, strlen(word));
}

/* Base64 of the SHA-256 of what stands between two marks; empty when they are not there. */
static void hash_between(const char *open, const char *close, char out[48])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    const char *page = (const char *)gem_page_bytes, *end = page + gem_page_bytes_len;
    const char *from = find(page, end, open);
    const char *to = from ? find(from, end, close) : NULL;
    out[0] = 0;
    if (!to) return;
    from += strlen(open);
    SHA256((const unsigned char *)from, (size_t)(to - from), digest);
    EVP_EncodeBlock((unsigned char *)out, digest, sizeof(digest));
}

void gem_page_policy(char out[GEM_PAGE_POLICY])
{
    char style[48], script[48];
    hash_between("<style>", "</style>", style);
    hash_between("<script>", "</script>", script);
    snprintf(
        out, GEM_PAGE_POLICY,
        "default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        style, script);
}
