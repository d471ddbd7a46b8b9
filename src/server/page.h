/* page.h - the page for browsers at /: one document, embedded at build time from page.html. */
#ifndef GEM_PAGE_H
#define GEM_PAGE_H

#include "base/base.h"

enum { GEM_PAGE_POLICY = 512 };

void gem_page(gem_bytes *out);
/* Content-Security-Policy: the page's own style and script by their hashes, requests to this server,
 * and nothing else. source: W3C Content Security Policy Level 3 */
void gem_page_policy(char out[GEM_PAGE_POLICY]);

#endif
