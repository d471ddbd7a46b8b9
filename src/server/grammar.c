/* grammar.c - walking the nodes of a schema, one byte at a time. What is ambiguous (anyOf, enums)
 * is a set of stacks that go on in parallel; a stack that cannot take a byte is dropped. White
 * space between parts is bounded, because small models fall into it and never come out. */
#include "server/schema.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_DEPTH = 40, MAX_STACKS = 256, INDENT = 4, MAX_FORKS = 64, WORDS = 4 };

enum { /* frame.st of arrays and objects; strings: BEFORE, INSIDE, then escapes */
       BEFORE,
       OPENED,
       IN_KEY,
       AFTER_KEY,
       AFTER_COLON,
       AFTER_VALUE,
       AFTER_COMMA
};
enum { S_BEFORE, S_INSIDE, S_ESCAPE, S_HEX1, S_HEX2, S_HEX3, S_HEX4 };
enum { N_START, N_MINUS, N_ZERO, N_WHOLE, N_POINT, N_FRACTION, N_E, N_E_SIGN, N_EXPONENT };

typedef struct frame {
    const gem_node *n, *child;
    uint8_t st, more; /* more: continuation bytes that a character still needs */
    uint8_t spaces;
    bool newline, escape;              /* white space of this gap; key: after a backslash */
    uint16_t unit;                     /* \u escape so far */
    uint32_t count, pos;               /* items or characters; place in a literal or key */
    int32_t last;                      /* ordered objects: the last member taken */
    uint64_t seen[WORDS], open[WORDS]; /* members taken; whose key agrees so far */
    double value, scale;               /* number so far; 10^-decimals */
    bool negative;
} frame;

typedef struct stack {
    int depth; /* 0: the value is complete */
    frame f[MAX_DEPTH];
} stack;

typedef struct set {
    size_t n;
    stack *s[MAX_STACKS]; /* owned once allocated; s[n..] are spare */
} set;

struct gem_grammar {
    const gem_schema *schema;
    set now, a, b;
    bool failed; /* out of memory: nothing is allowed any more */
};

static const gem_node any_string = {.kind = GEM_NODE_STRING, .max_n = UINT32_MAX};
static const gem_node any_number = {.kind = GEM_NODE_NUMBER, .min = -INFINITY, .max = INFINITY};
static const gem_node word_true = {.kind = GEM_NODE_LITERAL, .text = (char *)"true"};
static const gem_node word_false = {.kind = GEM_NODE_LITERAL, .text = (char *)"false"};
static const gem_node word_null = {.kind = GEM_NODE_LITERAL, .text = (char *)"null"};

static void feed(gem_grammar *g, set *out, const stack *s, unsigned char c, int forks);

/* ---- sets and stacks ---- */

static void copy_stack(stack *to, const stack *from)
{
    to->depth = from->depth;
    memcpy(to->f, from->f, (size_t)from->depth * sizeof(from->f[0]));
}

static void put(gem_grammar *g, set *out, const stack *s)
{
    if (out->n == MAX_STACKS) return;
    if (!out->s[out->n] && !(out->s[out->n] = malloc(sizeof(stack)))) {
        g->failed = true;
        return;
    }
    copy_stack(out->s[out->n++], s);
}

static void copy_set(gem_grammar *g, set *to, const set *from)
{
    to->n = 0;
    for (size_t i = 0; i < from->n; i++)
        put(g, to, from->s[i]);
}

static bool enter(stack *s, const gem_node *n)
{
    if (!n || s->depth == MAX_DEPTH) return false;
    memset(&s->f[s->depth], 0, sizeof(s->f[0]));
    s->f[s->depth].n = n;
    s->f[s->depth].last = -1;
    s->depth++;
    return true;
}

static frame *top(stack *s)
{
    return &s->f[s->depth - 1];
}

/* One space, or a new line and its indentation. */
static bool blank(const stack *s, frame *f, unsigned char c, bool line)
{
    if (c == '\n' && line && !f->newline && !f->spaces) {
        f->newline = true;
        return true;
    }
    if (c != ' ' || f->spaces >= (f->newline ? INDENT * s->depth : 1)) return false;
    f->spaces++;
    return true;
}

static void go(frame *f, uint8_t st)
{
    f->st = st;
    f->spaces = 0;
    f->newline = false;
}

/* ---- numbers ---- */

/* Could a text that begins with these digits end inside the bounds? Its values are from the value
 * so far up to, not including, the next one at this scale, times any power of ten while no point
 * came. */
static bool reachable(const frame *f, bool whole)
{
    const gem_node *n = f->n;
    if (isinf(n->min) && isinf(n->max)) return true;
    for (double k = 1; k < 1e19; k *= 10) {
        double lo = f->value * k, hi = (f->value + f->scale) * k;
        if (f->negative ? -lo >= n->min && -hi < n->max : hi > n->min && lo <= n->max) return true;
        if (!whole || f->value == 0) break;
    }
    return false;
}

static bool complete(const frame *f)
{
    double v = f->negative ? -f->value : f->value;
    if (f->st != N_ZERO && f->st != N_WHOLE && f->st != N_FRACTION && f->st != N_EXPONENT)
        return false;
    if (isinf(f->n->min) && isinf(f->n->max)) return true;
    return (f->n->min_open ? v > f->n->min : v >= f->n->min) &&
           (f->n->max_open ? v < f->n->max : v <= f->n->max);
}

static bool bounded(const gem_node *n)
{
    return !isinf(n->min) || !isinf(n->max);
}

static bool digit(frame *f, unsigned char c)
{
    int d = c - '0';
    if (f->count++ > 30) return false; /* digits beyond any number's meaning */
    switch (f->st) {
    case N_START:
    case N_MINUS:
        f->value = d;
        f->scale = 1;
        f->st = d ? N_WHOLE : N_ZERO;
        return reachable(f, d != 0);
    case N_WHOLE:
        f->value = f->value * 10 + d;
        return reachable(f, true);
    case N_POINT:
    case N_FRACTION:
        f->scale /= 10;
        f->value += d * f->scale;
        f->st = N_FRACTION;
        return reachable(f, false);
    case N_E:
    case N_E_SIGN:
    case N_EXPONENT:
        f->st = N_EXPONENT;
        return true;
    default:
        return false;
    }
}

/* True when the byte belongs to the number. */
static bool number_byte(frame *f, unsigned char c)
{
    bool whole = f->n->integer;
    if (c >= '0' && c <= '9') return digit(f, c);
    if (c == '-' && f->st == N_START) {
        f->negative = true;
        f->st = N_MINUS;
        return f->n->min < 0;
    }
    if (c == '.' && !whole && (f->st == N_ZERO || f->st == N_WHOLE)) {
        f->st = N_POINT;
        return reachable(f, false);
    }
    if ((c == 'e' || c == 'E') && !whole && !bounded(f->n) &&
        (f->st == N_ZERO || f->st == N_WHOLE || f->st == N_FRACTION)) {
        f->st = N_E;
        f->count = 28; /* two digits of exponent */
        return true;
    }
    if ((c == '-' || c == '+') && f->st == N_E) {
        f->st = N_E_SIGN;
        return true;
    }
    return false;
}

/* ---- strings ---- */

static int hex(unsigned char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* A byte of text outside escapes: whole UTF-8 characters. Counts them. */
static bool text_byte(frame *f, unsigned char c, uint32_t max)
{
    if (f->more) {
        f->more--;
        return c >= 0x80 && c < 0xC0;
    }
    if (c < 0x20 || (c >= 0x80 && c < 0xC2) || c > 0xF4) return false;
    if (f->count >= max) return false;
    f->count++;
    f->more = c < 0x80 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    return true;
}

/* 1: goes on, 0: no, 2: the string ended. */
static int string_byte(frame *f, unsigned char c)
{
    switch (f->st) {
    case S_BEFORE:
        f->st = S_INSIDE;
        return c == '"';
    case S_INSIDE:
        if (f->more) return text_byte(f, c, f->n->max_n);
        if (c == '"') return f->count >= f->n->min_n ? 2 : 0;
        if (c != '\\') return text_byte(f, c, f->n->max_n);
        if (f->count++ >= f->n->max_n) return 0;
        f->st = S_ESCAPE;
        return 1;
    case S_ESCAPE:
        f->st = c == 'u' ? S_HEX1 : S_INSIDE;
        f->unit = 0;
        return c != 0 && strchr("\"\\/bfnrtu", c) != NULL;
    default:
        if (hex(c) < 0) return 0;
        f->unit = (uint16_t)(f->unit << 4 | hex(c));
        /* neither surrogates nor U+0000: strict readers refuse the whole text */
        if (f->st == S_HEX2 && f->unit >= 0xD8 && f->unit <= 0xDF) return 0;
        if (f->st == S_HEX4 && f->unit == 0) return 0;
        f->st = f->st == S_HEX4 ? S_INSIDE : (uint8_t)(f->st + 1);
        return 1;
    }
}

/* ---- objects ---- */

static bool in(const uint64_t *set_, size_t i)
{
    return set_[i / 64] >> (i % 64) & 1;
}

/* May member i come now? */
static bool eligible(const frame *f, size_t i)
{
    const gem_node *n = f->n;
    if (in(f->seen, i)) return false;
    if (!n->ordered) return true;
    if ((int32_t)i <= f->last) return false;
    for (size_t k = (size_t)(f->last + 1); k < i; k++)
        if (n->property[k].required) return false;
    return true;
}

static bool any_member(const frame *f)
{
    if (f->n->rest) return true;
    for (size_t i = 0; i < f->n->n_properties; i++)
        if (eligible(f, i)) return true;
    return false;
}

static bool may_close(const frame *f)
{
    for (size_t i = 0; i < f->n->n_properties; i++)
        if (f->n->property[i].required && !in(f->seen, i)) return false;
    return true;
}

static void begin_key(frame *f)
{
    go(f, IN_KEY);
    f->pos = 0;
    f->escape = false;
    f->more = 0;
    memset(f->open, 0, sizeof(f->open));
    for (size_t i = 0; i < f->n->n_properties; i++)
        f->open[i / 64] |= (uint64_t)1 << (i % 64);
}

/* The closing quote of a key. */
static bool end_key(frame *f)
{
    const gem_node *n = f->n;
    f->child = n->rest;
    for (size_t i = 0; i < n->n_properties; i++) {
        if (!in(f->open, i) || n->property[i].len != f->pos) continue;
        if (!eligible(f, i)) return false;
        f->seen[i / 64] |= (uint64_t)1 << (i % 64);
        f->last = (int32_t)i;
        f->child = n->property[i].value;
    }
    go(f, AFTER_KEY);
    return f->child != NULL;
}

static bool key_byte(frame *f, unsigned char c)
{
    bool alive = f->n->rest != NULL;
    if (c == '"' && !f->escape && !f->more) return end_key(f);
    for (size_t i = 0; i < f->n->n_properties; i++) {
        const gem_property *p = &f->n->property[i];
        if (!in(f->open, i)) continue;
        if (f->pos >= p->len || (unsigned char)p->key[f->pos] != c)
            f->open[i / 64] &= ~((uint64_t)1 << (i % 64));
        else
            alive |= eligible(f, i);
    }
    f->pos++;
    if (f->escape) { /* simple escapes only */
        f->escape = false;
        return alive && c != 0 && strchr("\"\\/bfnrt", c) != NULL;
    }
    if (c == '\\' && !f->more) {
        f->escape = true;
        return alive;
    }
    f->count = 0;
    return text_byte(f, c, UINT32_MAX) && alive && f->pos < 1000;
}

static void object_byte(gem_grammar *g, set *out, stack *s, unsigned char c, int forks)
{
    frame *f = top(s);
    switch (f->st) {
    case BEFORE:
        go(f, OPENED);
        if (c == '{') put(g, out, s);
        return;
    case OPENED:
    case AFTER_COMMA:
    case AFTER_VALUE:
        if (c == '}' && f->st != AFTER_COMMA && may_close(f)) {
            s->depth--;
            put(g, out, s);
        } else if (c == ',' && f->st == AFTER_VALUE && any_member(f)) {
            go(f, AFTER_COMMA);
            put(g, out, s);
        } else if (c == '"' && f->st != AFTER_VALUE && any_member(f)) {
            begin_key(f);
            put(g, out, s);
        } else if (blank(s, f, c, true)) {
            put(g, out, s);
        }
        return;
    case IN_KEY:
        if (key_byte(f, c)) put(g, out, s);
        return;
    case AFTER_KEY:
        go(f, AFTER_COLON);
        if (c == ':') put(g, out, s);
        return;
    default:
        if (blank(s, f, c, false)) {
            put(g, out, s);
            return;
        }
        go(f, AFTER_VALUE);
        if (enter(s, f->child)) feed(g, out, s, c, forks);
    }
}

static void array_byte(gem_grammar *g, set *out, stack *s, unsigned char c, int forks)
{
    frame *f = top(s);
    const gem_node *n = f->n;
    const gem_node *next = f->count < n->n_items ? n->item[f->count] : n->rest;
    if (f->count >= n->max_n) next = NULL;
    if (f->st == BEFORE) {
        go(f, OPENED);
        if (c == '[') put(g, out, s);
        return;
    }
    if (c == ']' && f->st != AFTER_COMMA && f->count >= n->min_n) {
        s->depth--;
        put(g, out, s);
        return;
    }
    if (blank(s, f, c, true)) {
        put(g, out, s);
        return;
    }
    if (f->st == AFTER_VALUE) {
        go(f, AFTER_COMMA);
        if (c == ',' && next) put(g, out, s);
        return;
    }
    f->count++;
    go(f, AFTER_VALUE);
    if (enter(s, next)) feed(g, out, s, c, forks);
}

/* ---- one byte ---- */

static const gem_node *any_from(const gem_grammar *g, unsigned char c)
{
    switch (c) {
    case '{':
        return g->schema->any_object;
    case '[':
        return g->schema->any_array;
    case '"':
        return &any_string;
    case 't':
        return &word_true;
    case 'f':
        return &word_false;
    case 'n':
        return &word_null;
    default:
        return &any_number;
    }
}

static void feed_copy(gem_grammar *g, set *out, stack *s, unsigned char c, int forks)
{
    frame *f = top(s);
    int r;
    switch (f->n->kind) {
    case GEM_NODE_ANY:
        f->n = any_from(g, c);
        feed_copy(g, out, s, c, forks);
        return;
    case GEM_NODE_ANYOF:
        for (size_t i = 0; i < f->n->n_items && forks < MAX_FORKS; i++) {
            stack t;
            copy_stack(&t, s);
            top(&t)->n = f->n->item[i];
            feed_copy(g, out, &t, c, forks + 1);
        }
        return;
    case GEM_NODE_LITERAL:
        if ((unsigned char)f->n->text[f->pos++] != c) return;
        if (!f->n->text[f->pos]) s->depth--;
        put(g, out, s);
        return;
    case GEM_NODE_NUMBER:
        if (complete(f) && !strchr("0123456789.eE+-", c)) {
            s->depth--;
            if (s->depth) feed_copy(g, out, s, c, forks);
        } else if (number_byte(f, c)) {
            put(g, out, s);
        }
        return;
    case GEM_NODE_STRING:
        if (!(r = string_byte(f, c))) return;
        if (r == 2) s->depth--;
        put(g, out, s);
        return;
    case GEM_NODE_ARRAY:
        array_byte(g, out, s, c, forks);
        return;
    case GEM_NODE_OBJECT:
        object_byte(g, out, s, c, forks);
        return;
    case GEM_NODE_NEVER:
        return;
    }
}

static void feed(gem_grammar *g, set *out, const stack *s, unsigned char c, int forks)
{
    stack t;
    if (s->depth == 0 || c == 0) return;
    copy_stack(&t, s);
    feed_copy(g, out, &t, c, forks);
}

/* ---- entry ---- */

gem_grammar *gem_grammar_new(const gem_schema *schema)
{
    gem_grammar *g = calloc(1, sizeof(*g));
    stack s = {0};
    if (!g) return NULL;
    g->schema = schema;
    if (enter(&s, schema->root)) put(g, &g->now, &s);
    if (!g->failed && g->now.n) return g;
    gem_grammar_free(g);
    return NULL;
}

void gem_grammar_free(gem_grammar *g)
{
    if (!g) return;
    for (size_t i = 0; i < MAX_STACKS; i++) {
        free(g->now.s[i]);
        free(g->a.s[i]);
        free(g->b.s[i]);
    }
    free(g);
}

/* The set after as many of these bytes as fit; how many they were in *n. */
static set *walk(gem_grammar *g, const char *bytes, size_t len, size_t *n)
{
    set *from = &g->now, *to = &g->a;
    for (*n = 0; *n < len; ++*n) {
        to->n = 0;
        for (size_t k = 0; k < from->n; k++)
            feed(g, to, from->s[k], (unsigned char)bytes[*n], 0);
        if (!to->n || g->failed) break;
        from = to;
        to = from == &g->a ? &g->b : &g->a;
    }
    return from;
}

size_t gem_grammar_accepts(gem_grammar *g, const char *bytes, size_t len)
{
    size_t n;
    walk(g, bytes, len, &n);
    return n;
}

bool gem_grammar_allows(gem_grammar *g, const char *bytes, size_t len)
{
    return len && gem_grammar_accepts(g, bytes, len) == len;
}

bool gem_grammar_push(gem_grammar *g, const char *bytes, size_t len)
{
    size_t n;
    set *end = walk(g, bytes, len, &n);
    if (n < len) return false;
    if (end != &g->now) copy_set(g, &g->now, end);
    return !g->failed;
}

bool gem_grammar_done(const gem_grammar *g)
{
    for (size_t i = 0; i < g->now.n; i++) {
        const stack *s = g->now.s[i];
        if (s->depth == 0) return true;
        if (s->depth == 1 && s->f[0].n->kind == GEM_NODE_NUMBER && complete(&s->f[0])) return true;
    }
    return false;
}

bool gem_grammar_ended(const gem_grammar *g)
{
    for (size_t i = 0; i < g->now.n; i++)
        if (g->now.s[i]->depth) return false;
    return g->now.n > 0;
}
