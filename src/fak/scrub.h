/* scrub.h - does a text give away a private path, host, user or address? The check never looks at
 * the running machine's own names, so it answers the same everywhere. */
#ifndef GEM_FAK_SCRUB_H
#define GEM_FAK_SCRUB_H

#include <stdbool.h>

/* What makes the text private, as words for a sentence; NULL when nothing does. */
const char *fak_private(const char *s);

#endif
