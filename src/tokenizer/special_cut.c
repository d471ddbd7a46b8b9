/* special_cut.c - find markers in a text: the first one, and at one place the longest.
 * Markers are kept sorted by text; a candidate place narrows the range of those that still fit byte
 * by byte, so a place costs at most the longest marker times the logarithm of their number,
 * whatever the text is. tokenizer.c calls it for every text.
 *
 * Leftmost-longest is what the trainers' tokenizers do. Replacing the longest marker everywhere
 * first gives the same unless one marker ends as another begins, which none of the known
 * vocabularies has. */
#include "tokenizer/vocabulary.h"

#include <stdlib.h>

static int by_text(const void *pa, const void *pb)
{
    const gem_marker *a = pa, *b = pb;
    int c = memcmp(a->text, b->text, GEM_MIN(a->len, b->len));
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

void gem_special_index(gem_tokenizer *t)
{
    size_t i = 0;
    if (t->n_markers) qsort(t->markers, t->n_markers, sizeof(*t->markers), by_text);
    for (int b = 0; b < 256; b++) {
        t->first[b] = (uint32_t)i;
        for (; i < t->n_markers && (uint8_t)t->markers[i].text[0] == b; i++)
            for (int level = (int)t->markers[i].level; level < GEM_MARKER_LEVELS; level++)
                t->begins[level][b] = true;
    }
    t->first[256] = (uint32_t)i;
}

/* First marker in [lo, hi) whose byte at `depth` is at least c; all have that byte. */
static size_t lower_bound(const gem_marker *m, size_t lo, size_t hi, size_t depth, int c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((uint8_t)m[mid].text[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest marker that text[0 .. len) begins with. */
static const gem_marker *match(const gem_tokenizer *t, const char *text, size_t len,
                               gem_marker_level level)
{
    const gem_marker *m = t->markers, *best = NULL;
    size_t lo = t->first[(uint8_t)text[0]], hi = t->first[(uint8_t)text[0] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        if (m[lo].len == depth) { /* texts differ, and the shortest of a common start sorts first */
            if (m[lo].level <= level) best = &m[lo];
            lo++;
        }
        if (depth == len) break;
        int c = (uint8_t)text[depth];
        lo = lower_bound(m, lo, hi, depth, c);
        hi = lower_bound(m, lo, hi, depth, c + 1);
    }
    return best;
}

bool gem_special_next(const gem_tokenizer *t, const char *text, size_t len, size_t pos,
                      gem_marker_level level, size_t *at, const gem_marker **found)
{
    const bool *begins = t->begins[level];
    for (; pos < len; pos++) {
        if (!begins[(uint8_t)text[pos]]) continue;
        const gem_marker *m = match(t, text + pos, len - pos, level);
        if (m) {
            *at = pos;
            *found = m;
            return true;
        }
    }
    return false;
}
