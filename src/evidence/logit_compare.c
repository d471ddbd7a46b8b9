/* logit_compare.c - whole-vector comparison, and the gate over it. */
#include "evidence/logit_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Indices of the n_top largest values, largest first, ties by the lower index. */
static void find_top(size_t *top, size_t n_top, const float *x, size_t n)
{
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        if (have == n_top && x[i] <= x[top[have - 1]]) continue;
        size_t k = have < n_top ? have++ : have - 1;
        for (; k > 0 && x[top[k - 1]] < x[i]; k--)
            top[k] = top[k - 1];
        top[k] = i;
    }
}

static bool same_set(const size_t *a, const size_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < n; k++)
            found = found || a[i] == b[k];
        if (!found) return false;
    }
    return true;
}

void ev_logits_compare(ev_logit_difference *out, const float *ours, const float *reference,
                       size_t n)
{
    double ma = 0, mb = 0, aa = 0, bb = 0, ab = 0, error = 0, energy = 0;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(ours[i]) || !isfinite(reference[i])) return;
        ma += (double)ours[i];
        mb += (double)reference[i];
    }
    out->finite = true;
    ma /= (double)n;
    mb /= (double)n;
    for (size_t i = 0; i < n; i++) {
        double a = (double)ours[i], b = (double)reference[i], d = fabs(a - b);
        aa += (a - ma) * (a - ma);
        bb += (b - mb) * (b - mb);
        ab += (a - ma) * (b - mb);
        error += (a - b) * (a - b);
        energy += b * b;
        if (d > out->largest) {
            out->largest = d;
            out->largest_at = i;
        }
    }
    /* constant vectors have no correlation: NAN, which no limit admits */
    out->correlation = ab / sqrt(aa * bb);
    out->nmse = energy > 0 ? error / energy : error > 0 ? INFINITY : 0;
    out->n_top = GEM_MIN(n, (size_t)EV_TOP);
    find_top(out->top_ours, out->n_top, ours, n);
    find_top(out->top_reference, out->n_top, reference, n);
    out->same_argmax = out->top_ours[0] == out->top_reference[0];
    out->same_top_set = same_set(out->top_ours, out->top_reference, out->n_top);
    out->same_top_order =
        memcmp(out->top_ours, out->top_reference, out->n_top * sizeof(*out->top_ours)) == 0;
}

/* ---- the gate ---- */
typedef struct vectors {
    gem_map map;
    char sha256[65];
    const float *x;
    size_t n_rows, n_vocab;
} vectors;

/* Rows of the raw file that the description names: its own name without ".json". */
static gem_status map_rows(vectors *v, ev_judge *j, const ev_doc *d, gem_error *err)
{
    size_t n = strlen(d->path), values, bytes;
    double rows = ev_need_number(j, d, "shape.0"), vocab = ev_need_number(j, d, "shape.1");
    memset(v, 0, sizeof(*v));
    if (!ev_check(j, n > 5 && strcmp(d->path + n - 5, ".json") == 0, "raw-file",
                  "a description called FILE.json beside the rows in FILE", "%s", d->name))
        return GEM_OK;
    if (!ev_check(j,
                  rows >= 1 && rows < 1e6 && vocab >= 1 && vocab < 1e8 && rows == floor(rows) &&
                      vocab == floor(vocab),
                  "shape", "[rows, values a row]", "%s: %g x %g", d->name, rows, vocab))
        return GEM_OK;
    char *raw = strndup(d->path, n - 5);
    if (!raw) return gem_fail(err, GEM_E_NOMEM, "%s: no memory for a name", d->path);
    gem_status st = gem_map_open(&v->map, raw, err);
    if (st == GEM_OK) st = gem_sha256_file(raw, v->sha256, err);
    free(raw);
    if (st != GEM_OK) return st;
    if (!gem_mul_ok((size_t)rows, (size_t)vocab, &values) || !gem_mul_ok(values, 4, &bytes))
        return gem_fail(err, GEM_E_FORMAT, "%s: a shape beyond memory", d->path);
    if (ev_check(j, v->map.size == bytes, "raw-file", "as many F32 values as the shape says",
                 "%s: %zu bytes for %.0f x %.0f", d->name, v->map.size, rows, vocab)) {
        v->x = (const float *)(const void *)v->map.data;
        v->n_rows = (size_t)rows;
        v->n_vocab = (size_t)vocab;
    }
    return GEM_OK;
}

static bool integers(const gem_json *list)
{
    if (!list || list->type != GEM_JSON_ARRAY || !list->n) return false;
    for (const gem_json *m = list->first; m; m = m->next)
        if (m->type != GEM_JSON_NUMBER || m->number < 0 || m->number != floor(m->number))
            return false;
    return true;
}

static bool check_tokens(ev_judge *j, const ev_doc *a, const ev_doc *b)
{
    const gem_json *x = ev_at(a->root, "tokens"), *y = ev_at(b->root, "tokens");
    size_t at = 0;
    if (!integers(x) || !integers(y))
        return ev_check(j, false, "token-ids", "a list of ids in both", "absent or no ids");
    const gem_json *m = x->first, *k = y->first;
    for (; m && k && m->number == k->number; m = m->next, k = k->next)
        at++;
    if (!m && !k) return ev_check(j, true, "token-ids", "the same ids", "%zu ids, all equal", x->n);
    return ev_check(j, false, "token-ids", "the same ids",
                    "%zu and %zu ids, apart from index %zu on", x->n, y->n, at);
}

static void put_top(ev_judge *j, gem_json *o, const char *name, const size_t *top, size_t n)
{
    gem_json *list = gem_json_put(j->json, o, name, GEM_JSON_ARRAY);
    for (size_t i = 0; i < n; i++)
        gem_json_put_int(j->json, list, NULL, (int64_t)top[i]);
}

static void judge_row(ev_judge *j, gem_json *rows, double position, const ev_logit_difference *d,
                      const ev_logit_limits *limits)
{
    char corr[64], nmse[64];
    gem_json *o = gem_json_put(j->json, rows, NULL, GEM_JSON_OBJECT);
    gem_json_put_number(j->json, o, "position", position);
    gem_json_put_bool(j->json, o, "finite", d->finite);
    if (!ev_check(j, d->finite, "finite", "every logit of both vectors finite", "position %.0f: %s",
                  position, d->finite ? "finite" : "a value is not finite"))
        return;
    put_top(j, o, "top_native", d->top_ours, d->n_top);
    put_top(j, o, "top_reference", d->top_reference, d->n_top);
    gem_json_put_bool(j->json, o, "same_top_order", d->same_top_order);
    gem_json_put_number(j->json, o, "correlation", d->correlation);
    gem_json_put_number(j->json, o, "nmse", d->nmse);
    gem_json_put_number(j->json, o, "largest_difference", d->largest);
    gem_json_put_int(j->json, o, "largest_difference_at", (int64_t)d->largest_at);
    ev_check(j, d->same_argmax, "argmax", "the same in both", "position %.0f: %zu and %zu",
             position, d->top_ours[0], d->top_reference[0]);
    ev_check(j, d->same_top_set, "top-10", "the same set in both", "position %.0f: %s", position,
             d->same_top_set ? "the same" : "they differ");
    snprintf(corr, sizeof(corr), "at least %g", limits->least_correlation);
    snprintf(nmse, sizeof(nmse), "at most %g", limits->most_nmse);
    ev_check(j, d->correlation >= limits->least_correlation, "correlation", corr,
             "position %.0f: %.9f", position, d->correlation);
    ev_check(j, d->nmse <= limits->most_nmse, "nmse", nmse, "position %.0f: %.3e", position,
             d->nmse);
}

gem_status ev_judge_logits(ev_judge *j, const ev_doc *native, const ev_doc *reference,
                           const ev_logit_limits *limits, gem_error *err)
{
    vectors a = {0}, b = {0};
    ev_logit_difference d;
    ev_judge_input(j, "native", native);
    ev_judge_input(j, "reference", reference);
    bool ok = ev_check_schema(j, native, "gem-logits/1");
    ok = ev_check_schema(j, reference, "gem-oracle-logits/1") && ok;
    ok = check_tokens(j, native, reference) && ok;
    ok = ev_check_same(j, native, reference, "positions") && ok;
    if (!ok) return GEM_OK; /* vectors of other tokens say nothing */

    gem_status st = map_rows(&a, j, native, err);
    if (st == GEM_OK) st = map_rows(&b, j, reference, err);
    if (st == GEM_OK && a.x && b.x &&
        ev_check(j, a.n_rows == b.n_rows && a.n_vocab == b.n_vocab, "shape", "the same in both",
                 "%zu x %zu and %zu x %zu", a.n_rows, a.n_vocab, b.n_rows, b.n_vocab)) {
        gem_json_put_string(j->json, j->root, "native_rows_sha256", a.sha256);
        gem_json_put_string(j->json, j->root, "reference_rows_sha256", b.sha256);
        gem_json_put_string(j->json, j->root, "engine", ev_text(reference->root, "engine"));
        gem_json_put_int(j->json, j->root, "n_vocab", (int64_t)a.n_vocab);
        gem_json *rows = gem_json_put(j->json, j->root, "rows", GEM_JSON_ARRAY);
        const gem_json *position = ev_at(native->root, "positions.0");
        for (size_t r = 0; r < a.n_rows; r++, position = position ? position->next : NULL) {
            ev_logits_compare(&d, a.x + r * a.n_vocab, b.x + r * b.n_vocab, a.n_vocab);
            judge_row(j, rows, position ? position->number : NAN, &d, limits);
        }
    }
    gem_map_close(&a.map);
    gem_map_close(&b.map);
    return st;
}
