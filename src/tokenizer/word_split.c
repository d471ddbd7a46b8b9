/* word_split.c - the word pattern of Qwen vocabularies, as a scanner over code points:
 *
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]* |
 *   \s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * with \p{L} read as [\p{L}\p{M}] when marks belong to words (pre "qwen35"). The first alternative
 * that matches wins. No recursion and no look back, so any text takes linear time. */
#include "tokenizer/vocabulary.h"

#include <utf8proc.h>

typedef enum char_class {
    CLASS_END,
    CLASS_LETTER,
    CLASS_NUMBER,
    CLASS_SPACE,
    CLASS_OTHER
} char_class;

typedef struct character {
    uint32_t cp;
    uint32_t len; /* bytes; 0 at the end of the text */
    char_class class;
} character;

/* Unicode White_Space. Not the separator categories: those lack the control characters. */
static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static char_class classify(uint32_t cp, bool marks_in_words)
{
    if (cp < 0x80) {
        uint32_t lower = cp | 0x20;
        if (lower >= 'a' && lower <= 'z') return CLASS_LETTER;
        if (cp >= '0' && cp <= '9') return CLASS_NUMBER;
        return is_space(cp) ? CLASS_SPACE : CLASS_OTHER;
    }
    if (is_space(cp)) return CLASS_SPACE;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CLASS_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return marks_in_words ? CLASS_LETTER : CLASS_OTHER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CLASS_NUMBER;
    default:
        return CLASS_OTHER;
    }
}

typedef struct scanner {
    const char *text;
    size_t len;
    bool marks_in_words;
} scanner;

/* A byte that is no UTF-8 is classified as U+FFFD would be. */
static character peek(const scanner *s, size_t pos)
{
    character c = {0, 0, CLASS_END};
    if (pos >= s->len) return c;
    int n = gem_utf8_decode(s->text + pos, s->len - pos, &c.cp);
    if (!n) c.cp = 0xFFFD;
    c.len = n ? (uint32_t)n : 1;
    c.class = classify(c.cp, s->marks_in_words);
    return c;
}

static size_t skip_class(const scanner *s, size_t pos, char_class class)
{
    for (character c; (c = peek(s, pos)).class == class;)
        pos += c.len;
    return pos;
}

static bool is_newline(uint32_t cp)
{
    return cp == '\r' || cp == '\n';
}

static size_t skip_newlines(const scanner *s, size_t pos)
{
    while (pos < s->len && is_newline((uint8_t)s->text[pos]))
        pos++;
    return pos;
}

static int lower(const scanner *s, size_t pos)
{
    int c = pos < s->len ? (uint8_t)s->text[pos] : 0;
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

/* Bytes of an English ending ('s, 'll, ...) at pos; 0 when there is none. */
static size_t contraction(const scanner *s, size_t pos)
{
    if (s->text[pos] != '\'') return 0;
    int a = lower(s, pos + 1), b = lower(s, pos + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
}

/* pos is at white space: a run up to its last newline, else all but the blank that leads the next
 * word, else all of it. */
static size_t white_space_end(const scanner *s, size_t pos)
{
    size_t end = pos, last = pos, after_newline = 0;
    for (character c; (c = peek(s, end)).class == CLASS_SPACE;) {
        last = end;
        end += c.len;
        if (is_newline(c.cp)) after_newline = end;
    }
    if (after_newline) return after_newline;
    return end < s->len && last > pos ? last : end;
}

size_t gem_word_end(const char *text, size_t len, size_t pos, bool marks_in_words)
{
    const scanner s = {text, len, marks_in_words};
    size_t n = contraction(&s, pos);
    if (n) return pos + n;

    character c = peek(&s, pos), next = peek(&s, pos + c.len);
    if (c.class == CLASS_LETTER) return skip_class(&s, pos, CLASS_LETTER);
    if (c.class == CLASS_NUMBER) return pos + c.len;
    if (next.class == CLASS_LETTER && !is_newline(c.cp))
        return skip_class(&s, pos + c.len, CLASS_LETTER);

    if (c.class == CLASS_OTHER) return skip_newlines(&s, skip_class(&s, pos, CLASS_OTHER));
    if (c.cp == ' ' && next.class == CLASS_OTHER)
        return skip_newlines(&s, skip_class(&s, pos + 1, CLASS_OTHER));
    return white_space_end(&s, pos);
}
