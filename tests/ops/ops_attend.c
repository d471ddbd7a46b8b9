/* ops_attend.c - attention over a chunk: against ref bit for bit, rows alone against rows in
 * company, and ref against a softmax in double precision. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { N_PAGES = GEM_CHUNK / GEM_PAGE };

typedef struct attend_case {
    gem_attend_args a;
    const uint8_t *page[N_PAGES];
    const float *q[GEM_ATTEND_ROWS];
    int32_t pos[GEM_ATTEND_ROWS];
} attend_case;

static const char *const shapes[] = {"decode", "prefill", "mixed"};

/* decode: one position; prefill: runs of four rows a position; mixed: any positions, also before
 * the chunk (they see nothing) and behind it. */
static void fill_positions(check *c, attend_case *k, int shape)
{
    int32_t first = k->a.chunk, p = first + check_int(c, 0, GEM_CHUNK - 1);
    for (int r = 0; r < k->a.n; r++) {
        if (shape == 1 && r % 4 == 3) p++;
        if (shape == 2) {
            if (r == 0) p = GEM_MAX(first + check_int(c, -40, 300), 0);
            p += check_int(c, 0, 3) ? check_int(c, 0, 5) : check_int(c, 0, 90);
        }
        k->pos[r] = p;
    }
}

/* Pages of random values through append. Pages that no row sees are absent, as behind a window. */
static void fill_pages(check *c, attend_case *k)
{
    gem_attend_args *a = &k->a;
    size_t hd = (size_t)a->head_dim;
    for (int i = 0; i < N_PAGES; i++) {
        int32_t first = a->chunk + i * GEM_PAGE, last = first + GEM_PAGE - 1;
        bool seen = false;
        for (int r = 0; r < a->n; r++)
            seen = seen || (k->pos[r] >= first && (!a->window || k->pos[r] - last < a->window));
        if (!seen) continue;
        uint8_t *page = check_buf(c, gem_page_part_bytes(a->head_dim, a->f16));
        float *kv = check_buf(c, 2 * hd * sizeof(*kv));
        for (int32_t s = 0; s < GEM_PAGE; s++) {
            for (size_t d = 0; d < 2 * hd; d++)
                kv[d] = check_uniform(c, -2.0f, 2.0f);
            c->ref->append(page, a->head_dim, a->f16, s, kv, kv + hd);
        }
        k->page[i] = page;
    }
}

static void new_outputs(check *c, gem_attend_args *a)
{
    a->m = check_buf(c, (size_t)a->n * 4);
    a->s = check_buf(c, (size_t)a->n * 4);
    a->o = check_buf(c, (size_t)a->n * (size_t)a->head_dim * 4);
}

static void fill_case(check *c, attend_case *k, int shape, float q_range)
{
    gem_attend_args *a = &k->a;
    a->q = k->q;
    a->pos = k->pos;
    a->page = k->page;
    fill_positions(c, k, shape);
    fill_pages(c, k);
    float *q = check_floats(c, (size_t)a->n * (size_t)a->head_dim, CHECK_UNIFORM, q_range);
    for (int r = 0; r < a->n; r++)
        k->q[r] = q + (size_t)r * (size_t)a->head_dim;
    a->scratch = check_buf(c, gem_attend_scratch(a->head_dim) * 4);
}

static void check_same_rows(check *c, const char *what, const gem_attend_args *got,
                            const gem_attend_args *want)
{
    char name[40];
    static const char *const part[] = {"m", "s", "o"};
    const float *g[] = {got->m, got->s, got->o}, *w[] = {want->m, want->s, want->o};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "%s %s", what, part[i]);
        check_same_floats(c, name, g[i], w[i],
                          (size_t)want->n * (i < 2 ? 1 : (size_t)want->head_dim));
    }
}

/* Softmax of row r in double precision against what ref got.
 * A score is a chain of head_dim fma: its error is at most e = head_dim eps sum |q k|. A weight is
 * then off by a factor 1 +- (2 e + 4 eps) (its own score and the maximum's), s and o by as much and
 * one rounding a key and tile. Numerator and denominator: twice that, of max |v| = 2. */
static void check_exact(check *c, const attend_case *k, const gem_attend_args *out, int r)
{
    const gem_attend_args *a = &k->a;
    const int hd = a->head_dim;
    double score[GEM_CHUNK], top = -INFINITY, sum = 0.0, e = 0.0;
    int n = 0;
    for (int j = 0; j < GEM_CHUNK; j++) {
        int32_t p = a->chunk + j;
        score[j] = -INFINITY;
        if (p > k->pos[r] || (a->window && k->pos[r] - p >= a->window)) continue;
        const uint8_t *page = a->page[j / GEM_PAGE];
        double dot = 0.0, abs_sum = 0.0;
        for (int d = 0; d < hd; d++) {
            size_t at =
                (size_t)(j % GEM_PAGE / 16) * (size_t)hd * 16 + (size_t)d * 16 + (size_t)(j % 16);
            double x =
                (double)k->q[r][d] * (double)(a->f16 ? gem_f16_to_f32(((const uint16_t *)page)[at])
                                                     : ((const float *)page)[at]);
            dot += x;
            abs_sum += fabs(x);
        }
        score[j] = dot;
        top = fmax(top, dot);
        e = fmax(e, abs_sum * hd * (double)FLT_EPSILON);
        n++;
    }
    if (n == 0) {
        if (out->s[r] != 0.0f)
            check_fail(c, "row %d sees no key, but its sum is %g", r, (double)out->s[r]);
        return;
    }
    double bound = 2.0 * 2.0 * (2.0 * e + (n + 4.0 * N_PAGES + 4.0) * (double)FLT_EPSILON);
    for (int j = 0; j < GEM_CHUNK; j++)
        sum += exp(score[j] - top);
    for (int d = 0; d < hd; d++) {
        double o = 0.0;
        for (int j = 0; j < GEM_CHUNK; j++) {
            if (score[j] == -INFINITY) continue;
            const uint8_t *page = a->page[j / GEM_PAGE];
            size_t at = gem_page_v_at(hd, j % GEM_PAGE, d);
            o +=
                exp(score[j] - top) * (double)(a->f16 ? gem_f16_to_f32(((const uint16_t *)page)[at])
                                                      : ((const float *)page)[at]);
        }
        check_near(c, "o/s", (size_t)d,
                   (double)(out->o[(size_t)r * (size_t)hd + (size_t)d] / out->s[r]), o / sum,
                   bound);
    }
}

static void one_case(check *c, attend_case *k)
{
    gem_attend_args want = k->a, got = k->a, alone = k->a;
    new_outputs(c, &want);
    new_outputs(c, &got);
    new_outputs(c, &alone);
    c->ref->attend(&want);
    c->isa->attend(&got);
    check_same_rows(c, "together", &got, &want);
    for (int r = 0; r < k->a.n; r++) {
        gem_attend_args row = alone;
        row.n = 1;
        row.q += r;
        row.pos += r;
        row.m += r;
        row.s += r;
        row.o += (size_t)r * (size_t)row.head_dim;
        c->isa->attend(&row);
    }
    check_same_rows(c, "one by one", &alone, &want);
    int r = check_int(c, 0, k->a.n - 1);
    bool odd = false;
    for (int d = 0; d < k->a.head_dim; d++)
        odd = odd || !isfinite(k->q[r][d]);
    if (!odd) check_exact(c, k, &want, r);
}

/* Keys made of values, against ref bit for bit, and ref against the ops that QKV makes keys with.
 */
static void keys(check *c)
{
    static const struct {
        int head_dim, half, n_pairs, n_keys;
    } shapes_of[] = {{32, 16, 16, 16},   {64, 32, 16, 64},    {128, 64, 64, 48},
                     {512, 256, 64, 64}, {512, 256, 256, 32}, {96, 32, 16, 64}};
    for (size_t i = 0; i < 4 * ARRAY_LEN(shapes_of); i++) {
        int hd = shapes_of[i / 4].head_dim, half = shapes_of[i / 4].half,
            n_pairs = shapes_of[i / 4].n_pairs, n_keys = shapes_of[i / 4].n_keys;
        if (!check_begin(c, "keys head_dim=%d half=%d pairs=%d keys=%d %d", hd, half, n_pairs,
                         n_keys, (int)(i % 4)))
            continue;
        size_t n = (size_t)hd * (size_t)n_keys;
        float *want = check_buf(c, n * 4), *got = check_buf(c, n * 4), *row = check_buf(c, 4096),
              *wide_cos = check_buf(c, (size_t)half * 4),
              *wide_sin = check_buf(c, (size_t)half * 4);
        gem_keys_args a = {
            .head_dim = hd,
            .half = half,
            .n_keys = n_keys,
            .n_pairs = n_pairs,
            .value = check_floats(c, (size_t)hd * GEM_PAGE, CHECK_UNIFORM, 3.0f),
            .norm = check_floats(c, (size_t)hd, CHECK_UNIFORM, 2.0f),
            .cos = check_floats(c, (size_t)(n_keys * n_pairs), CHECK_UNIFORM, 1.0f),
            .sin = check_floats(c, (size_t)(n_keys * n_pairs), CHECK_UNIFORM, 1.0f),
            .keys = want,
        };
        c->ref->keys(&a);
        a.keys = got;
        c->isa->keys(&a);
        check_same_floats(c, "keys", got, want, n);
        int s = check_int(c, 0, n_keys - 1);
        for (int d = 0; d < hd; d++)
            row[d] = a.value[d / 16 * 16 * GEM_PAGE + s * 16 + d % 16] * a.norm[d];
        for (int k = 0; k < half; k++) { /* pairs behind n_pairs stand still */
            wide_cos[k] = k < n_pairs ? a.cos[s * n_pairs + k] : 1.0f;
            wide_sin[k] = k < n_pairs ? a.sin[s * n_pairs + k] : 0.0f;
        }
        c->ref->rope(row, wide_cos, wide_sin, half, hd, 1.0f);
        for (int d = 0; d < hd; d++)
            if (want[gem_page_k_at(hd, s, d)] != row[d])
                check_fail(c, "key %d dim %d is %g, QKV makes %g", s, d,
                           (double)want[gem_page_k_at(hd, s, d)], (double)row[d]);
    }
}

/* Values apart from the keys are the same values. */
static void values_apart(check *c)
{
    for (int i = 0; i < 6; i++) {
        static const int rows[] = {1, 16, 32};
        if (!check_begin(c, "attend values apart rows=%d %d", rows[i % 3], i)) continue;
        attend_case k = {.a = {.head_dim = i < 3 ? 64 : 512, .n = rows[i % 3], .chunk = 512}};
        const uint8_t *value[N_PAGES] = {NULL};
        fill_case(c, &k, 1, 1.0f);
        for (int t = 0; t < N_PAGES; t++)
            if (k.page[t]) value[t] = k.page[t] + (size_t)GEM_PAGE * (size_t)k.a.head_dim * 4;
        gem_attend_args behind = k.a, apart = k.a;
        new_outputs(c, &behind);
        new_outputs(c, &apart);
        apart.value = value;
        c->isa->attend(&behind);
        c->isa->attend(&apart);
        check_same_rows(c, "apart", &apart, &behind);
        c->ref->attend(&apart);
        check_same_rows(c, "apart, ref", &apart, &behind);
    }
}

void ops_attend(check *c)
{
    keys(c);
    values_apart(c);
    static const int dims[] = {64, 128, 256, 512, 80};
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17, 24, 31, 32};
    static const int32_t windows[] = {0, 1, 17, 512};
    for (size_t h = 0; h < ARRAY_LEN(dims); h++) {
        for (size_t i = 0; i < ARRAY_LEN(rows) * ARRAY_LEN(windows) * 6; i++) {
            int shape = (int)(i % 3), n = rows[i / 24];
            bool f16 = i / 3 % 2;
            int32_t window = windows[i / 6 % 4],
                    chunk = i % 5 == 0 ? 0 : (int32_t)(i % 5 + 1) * GEM_CHUNK;
            /* every shape at small heads; the rest thinned, ref is slow */
            if (dims[h] > 64 && i % 7 != h && n != 4 && n != 32) continue;
            if (dims[h] > 256 && n > 13 && i % 5) continue;
            if (!check_begin(c, "attend head_dim=%d %s rows=%d %s window=%d chunk=%d", dims[h],
                             f16 ? "f16" : "f32", n, shapes[shape], (int)window, (int)chunk))
                continue;
            attend_case k = {
                .a = {.head_dim = dims[h], .f16 = f16, .n = n, .window = window, .chunk = chunk}};
            fill_case(c, &k, shape, i % 2 ? 0.1f : 1.0f);
            one_case(c, &k);
        }
    }
    for (int i = 0; i < 4; i++) { /* queries that are not finite: the fault shows, the same way */
        static const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f};
        if (!check_begin(c, "attend query=%g", (double)odd[i])) continue;
        attend_case k = {.a = {.head_dim = 64, .n = 7, .chunk = 512}};
        fill_case(c, &k, 1, 1.0f);
        for (int r = 1; r < 7; r += 2)
            ((float *)k.q[r])[check_int(c, 0, 63)] = odd[i];
        one_case(c, &k);
    }
}
