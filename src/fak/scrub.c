/* scrub.c - private path, host, user and address syntax. */
#include "fak/scrub.h"

#include "base/base.h"

#include <ctype.h>
#include <strings.h>

static bool has_nocase(const char *s, const char *part)
{
    size_t n = strlen(part);
    for (; *s; s++)
        if (strncasecmp(s, part, n) == 0) return true;
    return false;
}

static bool dotted_ipv4(const char *s, size_t n)
{
    size_t i = 0;
    for (int octet = 0; octet < 4; octet++) {
        int v = 0, digits = 0;
        if (octet && (i >= n || s[i++] != '.')) return false;
        while (i < n && isdigit((unsigned char)s[i]) && digits < 4)
            v = v * 10 + (s[i++] - '0'), digits++;
        if (digits == 0 || digits > 3 || v > 255) return false;
    }
    return i == n || s[i] == ':' || s[i] == '/';
}

static bool bracketed_ipv6(const char *s, size_t n)
{
    int colons = 0;
    size_t i = 1;
    if (n < 4 || s[0] != '[') return false;
    while (i < n && (isxdigit((unsigned char)s[i]) || s[i] == ':' || s[i] == '.' || s[i] == '%'))
        colons += s[i++] == ':';
    return colons >= 2 && i < n && s[i] == ']';
}

static bool private_host(const char *s, size_t n)
{
    static const char *const suffix[] = {".local", ".lan", ".internal", ".corp", ".intranet"};
    size_t len = 0;
    while (len < n && s[len] != ':' && s[len] != '/')
        len++;
    for (size_t i = 0; i < ARRAY_LEN(suffix); i++) {
        size_t k = strlen(suffix[i]);
        if (len > k && strncasecmp(s + len - k, suffix[i], k) == 0) return true;
    }
    return false;
}

static bool parent_segment(const char *s, size_t n)
{
    for (size_t i = 0; i + 2 <= n; i++)
        if (s[i] == '.' && s[i + 1] == '.' && (i == 0 || s[i - 1] == '/') &&
            (i + 2 == n || s[i + 2] == '/'))
            return true;
    return false;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

static const char *private_part(const char *s, size_t n)
{
    while (n && strchr("\"'`(", s[0]))
        s++, n--;
    while (n && strchr("\"'`);", s[n - 1]))
        n--;
    if (n == 0) return NULL;
    if (s[0] == '/') return "an absolute path";
    if (s[0] == '~') return "a home folder";
    if (parent_segment(s, n)) return "a path through a parent folder";
    if (n >= 3 && isalpha((unsigned char)s[0]) && s[1] == ':' && (s[2] == '/' || s[2] == '\\'))
        return "a drive path";
    if (dotted_ipv4(s, n) || bracketed_ipv6(s, n)) return "a network address";
    if (private_host(s, n)) return "a private host name";
    if (is_word(s, n, "ssh") || is_word(s, n, "scp") || is_word(s, n, "sftp") ||
        is_word(s, n, "rsync"))
        return "a remote copy or login command";
    return NULL;
}

const char *fak_private(const char *s)
{
    static const char *const folders[] = {"/users/", "/home/", "/root/",    "/tmp/",    "/var/",
                                          "/mnt/",   "/opt/",  "/private/", "/volumes/"};
    static const char *const variables[] = {"$HOME", "$USER", "${HOME}", "%USERPROFILE%"};
    for (const char *c = s; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) return "a control character";
    if (strchr(s, '\\')) return "a backslash";
    if (strchr(s, '@')) return "an @";
    if (s[0] == '/') return "an absolute path";
    if (has_nocase(s, "ssh ")) return "a remote login";
    if (strstr(s, "://")) return "an address with ://";
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (has_nocase(s, folders[i])) return "a private folder";
    for (size_t i = 0; i < ARRAY_LEN(variables); i++)
        if (strstr(s, variables[i])) return "a variable that names a home or user";
    while (*s) {
        size_t token = strcspn(s, " ");
        for (size_t from = 0; from <= token; from++) { /* the token, and each part behind = or , */
            if (from && s[from - 1] != '=' && s[from - 1] != ',') continue;
            size_t end = from;
            while (end < token && s[end] != '=' && s[end] != ',')
                end++;
            const char *why = private_part(s + from, end - from);
            if (!why && from == 0) why = private_part(s, token);
            if (why) return why;
        }
        s += token;
        s += strspn(s, " ");
    }
    return NULL;
}
