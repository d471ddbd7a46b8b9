/* ops_rows.c - quantize, norm, add, glu, rope, append, merge, finish, softcap against ref, and ref
 * against double precision. */
#include "check.h"

#include <float.h>
#include <math.h>

/* ---- quantize ---- */

static gem_qrows new_qrow(check *c, int64_t n)
{
    size_t k = (size_t)n;
    gem_qrows r = {check_buf(c, k),     check_buf(c, k / 8), check_buf(c, k / 8),
                   check_buf(c, k / 8), check_buf(c, k / 4), k};
    return r;
}

static const char *const quantize_data[] = {"uniform", "wide", "odd", "zero",
                                            "tiny",    "ties", "loud"};

static float *quantize_input(check *c, int kind, int64_t n)
{
    float *x = check_floats(c, (size_t)n,
                            kind == 1   ? CHECK_WIDE
                            : kind == 2 ? CHECK_ODD
                                        : CHECK_UNIFORM,
                            3.0f);
    for (int64_t i = 0; i < n; i++) {
        if (kind == 3) x[i] = check_int(c, 0, 1) ? 0.0f : -0.0f;
        if (kind == 4)
            x[i] *= check_int(c, 0, 1) ? 3e-37f : 1e-39f; /* around the smallest block kept */
        if (kind == 5)
            x[i] = (float)check_int(c, -127, 126) + 0.5f; /* with a = 127: halfway between */
        if (kind == 6) x[i] *= 1.1e38f;
    }
    for (int64_t b = 0; kind == 5 && b < n; b += 32)
        x[b + check_int(c, 0, 31)] = check_int(c, 0, 1) ? 127.0f : -127.0f;
    return x;
}

static void quantize(check *c)
{
    static const int64_t lens[] = {32, 64, 96, 640, 4864};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (int kind = 0; kind < (int)ARRAY_LEN(quantize_data); kind++) {
            int64_t n = lens[l];
            if (!check_begin(c, "quantize n=%d %s", (int)n, quantize_data[kind])) continue;
            float *x = quantize_input(c, kind, n);
            gem_qrows want = new_qrow(c, n), got = new_qrow(c, n);
            c->ref->quantize(x, n, &want);
            c->isa->quantize(x, n, &got);
            check_same_bytes(c, "q", got.q, want.q, (size_t)n);
            check_same_floats(c, "xs", got.xs, want.xs, (size_t)n / 32);
            check_same_floats(c, "xsum", got.xsum, want.xsum, (size_t)n / 32);
            check_same_bytes(c, "nsum", got.nsum, want.nsum, (size_t)n / 8);
            check_same_bytes(c, "nsum16", got.nsum16, want.nsum16, (size_t)n / 4);
            /* meaning: half a step, and the rounding of x * (127/a) and a/127: 127 * 3 eps of a
             * step */
            for (int64_t i = 0; i < n; i++) {
                double xs = (double)want.xs[i / 32];
                if (isfinite(xs) && xs > 0.0)
                    check_near(c, "x", (size_t)i, xs * want.q[i], (double)x[i],
                               xs * (0.5 + 400.0 * (double)FLT_EPSILON));
            }
        }
    }
}

/* ---- norm, add, glu, rope, softcap ---- */

static void norm(check *c)
{
    static const int64_t lens[] = {1, 15, 16, 33, 64, 80, 128, 256, 640, 896, 1000, 5376};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (int mode = 0; mode < 8; mode++) {
            int64_t n = lens[l];
            bool in_place = mode & 1, weighted = mode & 2, wide = mode & 4;
            if (!check_begin(c, "norm n=%d%s%s%s", (int)n, in_place ? " in place" : "",
                             weighted ? " w" : "", wide ? " wide" : ""))
                continue;
            float *x = check_floats(c, (size_t)n, wide ? CHECK_ODD : CHECK_UNIFORM, 5.0f);
            float *w = weighted ? check_floats(c, (size_t)n, CHECK_UNIFORM, 2.0f) : NULL;
            float *want = check_buf(c, (size_t)n * 4);
            float *got = in_place ? check_copy(c, x, (size_t)n * 4) : check_buf(c, (size_t)n * 4);
            c->ref->norm(x, w, n, 1e-6f, want);
            c->isa->norm(in_place ? got : x, w, n, 1e-6f, got);
            check_same_floats(c, "y", got, want, (size_t)n);
            if (wide) continue;
            double sum = 0.0;
            for (int64_t i = 0; i < n; i++)
                sum += (double)x[i] * (double)x[i];
            double r = 1.0 / sqrt(sum / (double)n + 1e-6);
            /* n/16 + 4 roundings of the sum count half under the root; six more behind it */
            double rel = ((double)n / 32 + 8) * (double)FLT_EPSILON;
            for (int64_t i = 0; i < n; i++) {
                double y = (double)x[i] * r * (w ? (double)w[i] : 1.0);
                check_near(c, "y", (size_t)i, (double)want[i], y, fabs(y) * rel);
            }
        }
    }
}

static void add(check *c)
{
    static const int64_t lens[] = {1, 16, 31, 640, 896};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (int odd = 0; odd < 2; odd++) {
            size_t n = (size_t)lens[l];
            if (!check_begin(c, "add n=%d%s", (int)n, odd ? " odd" : "")) continue;
            float *want = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 5.0f),
                  *got = check_copy(c, want, n * 4);
            float *t = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 5.0f);
            c->ref->add(want, t, lens[l], 0.7f);
            c->isa->add(got, t, lens[l], 0.7f);
            check_same_floats(c, "x", got, want, n);
        }
    }
}

/* 0.5 x (1 + tanh u) as x / (1 + exp(-2u)): the first form cancels for negative x. */
static double exact_act(gem_act act, double x)
{
    return x /
           (1.0 +
            exp(act == GEM_ACT_SILU ? -x : -2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void glu(check *c)
{
    static const int64_t lens[] = {1, 15, 16, 17, 64, 2048};
    static const float ranges[] = {1.0f, 10.0f, 100.0f, 1e4f, 3e38f};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (size_t k = 0; k < 4 * ARRAY_LEN(ranges); k++) {
            size_t n = (size_t)lens[l];
            gem_act act = k & 1 ? GEM_ACT_SILU : GEM_ACT_GELU_TANH;
            bool odd = k & 2;
            float range = ranges[k / 4];
            if (!check_begin(c, "glu %s n=%d range=%g%s", act == GEM_ACT_SILU ? "silu" : "gelu",
                             (int)n, (double)range, odd ? " odd" : ""))
                continue;
            float *gate = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, range);
            float *up = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 2.0f);
            float *want = check_buf(c, n * 4), *got = check_copy(c, gate, n * 4);
            c->ref->glu(act, gate, up, lens[l], want);
            c->isa->glu(act, got, up, lens[l], got); /* dst may be gate */
            check_same_floats(c, "dst", got, want, n);
            if (odd || range > 1e4f) continue;
            for (size_t i = 0; i < n; i++) {
                /* u = -gate or so has 4 roundings, which exp turns into |u| * 4 eps of its value;
                 * the last steps add 8. Where exp underflows to 0 or overflows, values are below
                 * 1e-33. */
                double y = exact_act(act, (double)gate[i]) * (double)up[i],
                       u = fabs((double)gate[i]);
                if (act == GEM_ACT_GELU_TANH) u = 1.6 * (u + 0.0448 * u * u * u);
                double rel = (GEM_MIN(u, 90.0) * 4 + 8) * (double)FLT_EPSILON;
                check_near(c, "dst", i, (double)want[i], y, fabs(y) * rel + 1e-33);
            }
        }
    }
}

/* All of f32 in steps: finds a changed operation of exp even where it seldom changes a bit. */
static void glu_sweep(check *c)
{
    const size_t n = (size_t)1 << 20;
    for (int act = GEM_ACT_GELU_TANH; act <= GEM_ACT_SILU; act++) {
        if (!check_begin(c, "glu %s sweep", act == GEM_ACT_SILU ? "silu" : "gelu")) continue;
        float *gate = check_buf(c, n * 4), *up = check_buf(c, n * 4);
        float *want = check_buf(c, n * 4), *got = check_buf(c, n * 4);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)i * 4096u + (check_u32(c) & 4095u);
            memcpy(&gate[i], &bits, 4);
            up[i] = 1.0f;
        }
        c->ref->glu((gem_act)act, gate, up, (int64_t)n, want);
        c->isa->glu((gem_act)act, gate, up, (int64_t)n, got);
        check_same_floats(c, "dst", got, want, n);
    }
}

static void rope(check *c)
{
    static const struct {
        int half, n;
    } shapes[] = {{0, 64},   {16, 32},   {24, 64},   {32, 64}, {64, 128},
                  {32, 256}, {128, 256}, {256, 512}, {5, 13}};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        int half = shapes[s].half, n = shapes[s].n;
        for (int odd = 0; odd < 2; odd++) {
            if (!check_begin(c, "rope half=%d n=%d%s", half, n, odd ? " odd" : "")) continue;
            float *want = check_floats(c, (size_t)n, odd ? CHECK_ODD : CHECK_UNIFORM, 4.0f),
                  *got = check_copy(c, want, (size_t)n * 4);
            float *before = check_copy(c, want, (size_t)n * 4);
            float *cs = check_buf(c, (size_t)half * 4 + 4),
                  *sn = check_buf(c, (size_t)half * 4 + 4);
            for (int i = 0; i < half; i++) {
                double angle = (double)check_uniform(c, 0.0f, 6.28f);
                cs[i] = (float)cos(angle);
                sn[i] = (float)sin(angle);
            }
            c->ref->rope(want, cs, sn, half, n, 0.0625f);
            c->isa->rope(got, cs, sn, half, n, 0.0625f);
            check_same_floats(c, "x", got, want, (size_t)n);
            for (int i = 0; !odd && i < half;
                 i++) { /* meaning: a rotation, within 3 roundings of 8 */
                double a = (double)before[i], b = (double)before[i + half];
                double x = (a * (double)cs[i] - b * (double)sn[i]) * 0.0625,
                       y = (a * (double)sn[i] + b * (double)cs[i]) * 0.0625;
                check_near(c, "x", (size_t)i, (double)want[i], x, 1.5 * (double)FLT_EPSILON);
                check_near(c, "x", (size_t)(i + half), (double)want[i + half], y,
                           1.5 * (double)FLT_EPSILON);
            }
        }
    }
}

static void softcap(check *c)
{
    static const int64_t lens[] = {1, 16, 30, 2048};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (int odd = 0; odd < 2; odd++) {
            size_t n = (size_t)lens[l];
            if (!check_begin(c, "softcap n=%d%s", (int)n, odd ? " odd" : "")) continue;
            float *want = check_floats(c, n, odd ? CHECK_ODD : CHECK_UNIFORM, 90.0f),
                  *got = check_copy(c, want, n * 4);
            float *x = check_copy(c, want, n * 4);
            c->ref->softcap(want, lens[l], 30.0f);
            c->isa->softcap(got, lens[l], 30.0f);
            check_same_floats(c, "x", got, want, n);
            /* tanh is 1 - (something up to 2): a few roundings of 2, times the cap */
            for (size_t i = 0; !odd && i < n; i++)
                check_near(c, "x", i, (double)want[i], 30.0 * tanh((double)x[i] / 30.0),
                           30.0 * 8 * (double)FLT_EPSILON);
        }
    }
}

/* ---- the attention's row parts ---- */

static void append(check *c)
{
    static const int dims[] = {16, 64, 80, 128, 256, 512};
    static const int32_t slots[] = {0, 1, 15, 16, 31, 47, 63};
    for (size_t h = 0; h < ARRAY_LEN(dims); h++) {
        for (size_t k = 0; k < 2 * ARRAY_LEN(slots); k++) {
            int hd = dims[h];
            bool f16 = k & 1;
            int32_t slot = slots[k / 2];
            if (!check_begin(c, "append head_dim=%d %s slot=%d", hd, f16 ? "f16" : "f32",
                             (int)slot))
                continue;
            size_t bytes = gem_page_part_bytes(hd, f16), n = (size_t)hd;
            float *key = check_floats(c, n, CHECK_ODD, 5.0f),
                  *value = check_floats(c, n, CHECK_ODD, 5.0f);
            uint8_t *want = check_buf(c, bytes), *got = check_buf(c, bytes);
            c->ref->append(want, hd, f16, slot, key, value);
            c->isa->append(got, hd, f16, slot, key, value);
            check_same_bytes(c, "page", got, want, bytes);
        }
    }
}

static void merge(check *c)
{
    static const float m[][2] = {{1.0f, 2.0f},      {2.0f, 1.0f},      {3.0f, 3.0f},
                                 {-INFINITY, 1.0f}, {1.0f, -INFINITY}, {-INFINITY, -INFINITY},
                                 {90.0f, -90.0f},   {NAN, 1.0f}};
    static const int64_t lens[] = {16, 64, 80, 100, 256, 512};
    for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
        for (size_t k = 0; k < ARRAY_LEN(m); k++) {
            size_t n = (size_t)lens[l];
            if (!check_begin(c, "merge n=%d m=%g m2=%g", (int)n, (double)m[k][0], (double)m[k][1]))
                continue;
            float *want = check_floats(c, n, CHECK_UNIFORM, 5.0f),
                  *got = check_copy(c, want, n * 4);
            float *o2 = check_floats(c, n, CHECK_WIDE, 5.0f), *x = check_buf(c, n * 4),
                  *y = check_buf(c, n * 4);
            float wm = m[k][0], gm = wm, ws = 3.5f, gs = ws;
            c->ref->attend_merge(&wm, &ws, want, m[k][1], 1.25f, o2, lens[l]);
            c->isa->attend_merge(&gm, &gs, got, m[k][1], 1.25f, o2, lens[l]);
            check_same_floats(c, "o", got, want, n);
            check_same_floats(c, "m", &gm, &wm, 1);
            check_same_floats(c, "s", &gs, &ws, 1);
            c->ref->attend_finish(want, ws, lens[l], x);
            c->isa->attend_finish(want, ws, lens[l], y);
            check_same_floats(c, "dst", y, x, n);
        }
    }
}

void ops_rows(check *c)
{
    quantize(c);
    norm(c);
    add(c);
    glu(c);
    glu_sweep(c);
    rope(c);
    softcap(c);
    append(c);
    merge(c);
}
