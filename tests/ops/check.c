/* check.c - the frame of the differential tests; see check.h. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GUARD = 64 };

static void *or_die(void *p)
{
    if (!p) {
        fprintf(stderr, "test_ops: out of memory\n");
        exit(4);
    }
    return p;
}

bool check_begin(check *c, const char *fmt, ...)
{
    va_list ap;
    check_end(c);
    va_start(ap, fmt);
    vsnprintf(c->label, sizeof(c->label), fmt, ap);
    va_end(ap);
    if (c->filter && !strstr(c->label, c->filter)) return false;
    if (c->n_labels++ % c->every != 0) return false;
    c->rng = 0xcbf29ce484222325u; /* FNV-1a of the label */
    for (const char *s = c->label; *s; s++)
        c->rng = (c->rng ^ (unsigned char)*s) * 0x100000001b3u;
    c->failed = false;
    c->n_cases++;
    return true;
}

void check_end(check *c)
{
    for (int i = 0; i < c->n_bufs; i++) {
        unsigned char *b = c->buf[i].base;
        for (int g = 0; g < GUARD; g++) {
            if (b[g] != 0x5A) check_fail(c, "wrote %d bytes before buffer %d", GUARD - g, i);
            if (b[GUARD + c->buf[i].size + (size_t)g] != 0x5A)
                check_fail(c, "wrote %d bytes behind buffer %d", g + 1, i);
        }
        free(b);
    }
    c->n_bufs = 0;
}

void *check_buf(check *c, size_t size)
{
    if (c->n_bufs == CHECK_MAX_BUFS) {
        fprintf(stderr, "test_ops: %s uses more than %d buffers\n", c->label, CHECK_MAX_BUFS);
        exit(4);
    }
    size_t all = (size_t)gem_round_up(size + 2 * GUARD, 64);
    unsigned char *b = or_die(aligned_alloc(64, all));
    memset(b, 0x5A, all);
    memset(b + GUARD, 0xAA, size);
    c->buf[c->n_bufs].base = b;
    c->buf[c->n_bufs++].size = size;
    return b + GUARD;
}

void *check_copy(check *c, const void *from, size_t size)
{
    return memcpy(check_buf(c, size), from, size);
}

uint32_t check_u32(check *c)
{
    return (uint32_t)(gem_splitmix64(&c->rng) >> 32);
}

int check_int(check *c, int lo, int hi)
{
    return lo + (int)(check_u32(c) % (uint32_t)(hi - lo + 1));
}

float check_uniform(check *c, float lo, float hi)
{
    return lo + (hi - lo) * ((float)(check_u32(c) >> 8) * 0x1p-24f);
}

float *check_floats(check *c, size_t n, check_fill fill, float range)
{
    static const float odd[] = {0.0f,  -0.0f,    INFINITY, -INFINITY, NAN,       1e-45f, -1e-45f,
                                1e38f, -3.4e38f, 1e-38f,   65504.0f,  -65520.0f, 6e-8f,  127.5f};
    float *x = check_buf(c, n * sizeof(*x));
    for (size_t i = 0; i < n; i++) {
        x[i] = check_uniform(c, -range, range);
        if (fill != CHECK_UNIFORM && check_int(c, 0, 1))
            x[i] = ldexpf(x[i], check_int(c, -149, 100));
        if (fill == CHECK_ODD && check_int(c, 0, 7) == 0)
            x[i] = odd[check_int(c, 0, (int)ARRAY_LEN(odd) - 1)];
    }
    return x;
}

void check_fail(check *c, const char *fmt, ...)
{
    if (c->failed) return; /* the first difference says enough */
    va_list ap;
    c->failed = true;
    c->n_failed++;
    printf("FAIL %s %s: ", c->isa->isa, c->label);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n  repro: GEM_CPU_ISA=%s %s '%s'\n", c->isa->isa, c->program, c->label);
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

void check_same_floats(check *c, const char *what, const float *got, const float *want, size_t n)
{
    if (memcmp(got, want, n * sizeof(*got)) == 0) return;
    for (size_t i = 0; i < n; i++) {
        if (bits_of(got[i]) == bits_of(want[i]) || (isnan(got[i]) && isnan(want[i]))) continue;
        check_fail(c, "%s[%zu] is %a, ref has %a", what, i, (double)got[i], (double)want[i]);
        return;
    }
}

void check_same_bytes(check *c, const char *what, const void *got, const void *want, size_t n)
{
    const unsigned char *g = got, *w = want;
    for (size_t i = 0; i < n; i++) {
        if (g[i] == w[i]) continue;
        check_fail(c, "byte %zu of %s is 0x%02x, ref has 0x%02x", i, what, g[i], w[i]);
        return;
    }
}

void check_near(check *c, const char *what, size_t i, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        check_fail(c, "%s[%zu] is %.9g, exact %.9g, bound %.3g", what, i, got, want, bound);
}
