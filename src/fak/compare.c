/* compare.c - statistics of one arm, drift between arms, and the comparison document. It describes
 * the sample; only the gate accepts anything. */
#include "fak/receipt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- statistics ---- */
static double *throughputs(const gem_json *receipt, size_t *n)
{
    double *v = malloc((fak_count(receipt, "repetitions") + 1) * sizeof(*v));
    *n = 0;
    for (const gem_json *m = fak_list(receipt, "repetitions"); v && m; m = m->next)
        v[(*n)++] = fak_num(m, "tokens_per_second");
    return v;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

bool fak_stats_of(const gem_json *receipt, fak_stats *s)
{
    double sum = 0, squares = 0;
    memset(s, 0, sizeof(*s));
    double *v = throughputs(receipt, &s->n);
    if (!v) return false;
    if (s->n) {
        for (size_t i = 0; i < s->n; i++)
            sum += v[i];
        s->mean = sum / (double)s->n;
        for (size_t i = 0; i < s->n; i++)
            squares += (v[i] - s->mean) * (v[i] - s->mean);
        s->stddev = sqrt(squares / (double)s->n);
        s->cv_percent = s->stddev / s->mean * 100;
        qsort(v, s->n, sizeof(*v), by_value);
        s->minimum = v[0];
        s->maximum = v[s->n - 1];
        s->median = s->n % 2 ? v[s->n / 2] : (v[s->n / 2 - 1] + v[s->n / 2]) / 2;
    }
    free(v);
    return true;
}

enum { EXACT_MAX = 20 };

/* Number of ways to draw na ranks of na+nb with U = u, for all u, by the recurrence of Mann and
 * Whitney (1947): w(a,b,u) = w(a-1,b,u-b) + w(a,b-1,u). Counts fit a double exactly (C(40,20) <
 * 2^53). */
static double at_most(size_t na, size_t nb, size_t u)
{
    enum { U_MAX = EXACT_MAX * EXACT_MAX };
    double(*w)[U_MAX + 1] = calloc((EXACT_MAX + 1) * (EXACT_MAX + 1), sizeof(*w));
    double below = 0, all = 0;
    if (!w) return -1;
    for (size_t a = 0; a <= na; a++)
        for (size_t b = 0; b <= nb; b++)
            for (size_t k = 0; k <= a * b; k++) {
                double *cell = &w[a * (EXACT_MAX + 1) + b][k];
                if (a == 0 || b == 0) {
                    *cell = 1;
                    continue;
                }
                if (k >= b) *cell += w[(a - 1) * (EXACT_MAX + 1) + b][k - b];
                *cell += w[a * (EXACT_MAX + 1) + b - 1][k];
            }
    for (size_t k = 0; k <= na * nb; k++) {
        all += w[na * (EXACT_MAX + 1) + nb][k];
        if (k <= u) below = all;
    }
    free(w);
    return below / all;
}

bool fak_mann_whitney(const double *a, size_t na, const double *b, size_t nb, double *u, double *p)
{
    size_t wins = 0;
    double pooled[2 * EXACT_MAX];
    if (na < 1 || nb < 1 || na > EXACT_MAX || nb > EXACT_MAX) return false;
    memcpy(pooled, a, na * sizeof(*a));
    memcpy(pooled + na, b, nb * sizeof(*b));
    qsort(pooled, na + nb, sizeof(*pooled), by_value);
    for (size_t i = 1; i < na + nb; i++)
        if (pooled[i - 1] == pooled[i]) return false;
    for (size_t i = 0; i < na; i++)
        for (size_t k = 0; k < nb; k++)
            wins += a[i] > b[k];
    size_t least = GEM_MIN(wins, na * nb - wins);
    double tail = at_most(na, nb, least);
    if (tail < 0) return false;
    *u = (double)least;
    *p = GEM_MIN(1.0, 2 * tail);
    return true;
}

/* ---- drift ---- */
static void drift_member(const gem_json *b, const gem_json *c, const char *name, const char *code,
                         fak_findings *f)
{
    const gem_json *x = gem_json_get(b, name), *y = gem_json_get(c, name);
    if (!gem_json_equal(x, y)) fak_find_in(f, code, c, name, "differs between the two receipts");
}

static void drift_group(const gem_json *b, const gem_json *c, const char *group, const char *code,
                        fak_findings *f)
{
    const gem_json *x = gem_json_get(b, group), *y = gem_json_get(c, group);
    for (const gem_json *m = y->first; m; m = m->next)
        if (!gem_json_equal(gem_json_get(x, m->name), m))
            fak_find(f, code, m, "differs between the two receipts");
}

static bool same_set(const gem_json *a, const gem_json *b)
{
    if (a->n != b->n) return false;
    for (const gem_json *x = a->first; x; x = x->next) {
        const gem_json *y = b->first;
        while (y && strcmp(x->text, y->text) != 0)
            y = y->next;
        if (!y) return false;
    }
    return true;
}

void fak_receipt_drift(const gem_json *b, const gem_json *c, unsigned skip, const char *code,
                       fak_findings *f)
{
    drift_member(b, c, "artifact_sha256", code, f);
    drift_member(b, c, "resolved_identity", code, f);
    drift_group(b, c, "machine", code, f);
    drift_group(b, c, "controls", code, f);
    if (!(skip & FAK_SKIP_EXECUTION)) drift_group(b, c, "execution", code, f);
    const gem_json *x = gem_json_get(b, "unchanged_controls"),
                   *y = gem_json_get(c, "unchanged_controls");
    if (x->n <= 4096 && y->n <= 4096 && !same_set(x, y))
        fak_find(f, code, y, "differs between the two receipts");
}

/* ---- comparison ---- */
static void put_arm(gem_json_doc *d, gem_json *parent, const char *name, const fak_stats *s)
{
    gem_json *o = gem_json_put(d, parent, name, GEM_JSON_OBJECT);
    gem_json_put_int(d, o, "n", (int64_t)s->n);
    gem_json_put_number(d, o, "mean", s->mean);
    gem_json_put_number(d, o, "median", s->median);
    gem_json_put_number(d, o, "minimum", s->minimum);
    gem_json_put_number(d, o, "maximum", s->maximum);
    gem_json_put_number(d, o, "stddev", s->stddev);
    gem_json_put_number(d, o, "cv_percent", s->cv_percent);
}

static void put_evidence(gem_json_doc *d, gem_json *parent, const char *name,
                         const gem_json *receipt)
{
    static const char *const words[] = {"clean", "investigate", "invalid"};
    int64_t count[3] = {0}, all = 0;
    for (const gem_json *a = fak_list(receipt, "system_baselines"); a; a = a->next, all++)
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
            count[i] += strcmp(fak_str(a, "verdict"), words[i]) == 0;
    gem_json *o = gem_json_put(d, parent, name, GEM_JSON_OBJECT);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        gem_json_put_int(d, o, words[i], count[i]);
    gem_json_put_int(d, o, "missing", (int64_t)fak_count(receipt, "repetitions") - all);
}

static const char *direction(const fak_stats *b, const fak_stats *c, double percent)
{
    double noise = 2 * GEM_MAX(b->cv_percent, c->cv_percent);
    if (c->minimum > b->maximum && percent > noise) return "faster";
    if (c->maximum < b->minimum && -percent > noise) return "slower";
    return "indistinguishable";
}

static void put_statistics(gem_json_doc *d, gem_json *root, const gem_json *baseline,
                           const gem_json *candidate, const fak_stats *b, const fak_stats *c,
                           double percent)
{
    gem_json *s = gem_json_put(d, root, "statistics", GEM_JSON_OBJECT);
    size_t na, nb, least = GEM_MIN(b->n, c->n);
    double u, p, *x = throughputs(baseline, &na), *y = throughputs(candidate, &nb);
    put_arm(d, s, "baseline", b);
    put_arm(d, s, "candidate", c);
    gem_json_put_string(d, s, "pairing", "unpaired");
    if (x && y && fak_mann_whitney(x, na, y, nb, &u, &p)) {
        gem_json *m = gem_json_put(d, s, "mann_whitney", GEM_JSON_OBJECT);
        gem_json_put_number(d, m, "u", u);
        gem_json_put_number(d, m, "p_two_sided", p);
        gem_json_put_bool(d, m, "exact", true);
    } else {
        gem_json_put(d, s, "mann_whitney", GEM_JSON_NULL);
    }
    if (least < 4) {
        char note[64];
        snprintf(note, sizeof(note), "n=%zu per arm cannot reach p<0.05", least);
        gem_json_put_string(d, s, "note", note);
    } else {
        gem_json_put(d, s, "note", GEM_JSON_NULL);
    }
    gem_json_put_string(d, s, "direction", direction(b, c, percent));
    free(x);
    free(y);
}

static void comparable(const gem_json *b, const gem_json *c, fak_findings *f)
{
    static const char *const same[] = {"envelope_id", "changed_lever_id"};
    const gem_json *q = gem_json_get(c, "quality");
    if (strcmp(fak_str(b, "role"), "baseline") != 0 || strcmp(fak_str(c, "role"), "candidate") != 0)
        fak_find_in(f, "NPC-001", c, "role",
                    "a baseline and a candidate are compared, in this order");
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (strcmp(fak_str(b, same[i]), fak_str(c, same[i])) != 0)
            fak_find_in(f, "NPC-002", c, same[i], "the baseline says \"%s\"", fak_str(b, same[i]));
    fak_receipt_drift(b, c, 0, "NPC-003", f);
    drift_member(gem_json_get(b, "quality"), q, "name", "NPC-004", f);
    drift_member(gem_json_get(b, "quality"), q, "higher_is_better", "NPC-004", f);
    size_t n = 0;
    for (const gem_json *a = fak_list(c, "system_baselines"); a && n < 4096; a = a->next, n++)
        for (const gem_json *o = fak_list(b, "system_baselines"); o; o = o->next)
            if (strcmp(fak_str(a, "digest"), fak_str(o, "digest")) == 0)
                fak_find_in(f, "NPC-005", a, "digest", "the baseline carries the same attestation");
}

bool fak_receipt_compare(const gem_json *baseline, const gem_json *candidate, gem_bytes *out,
                         fak_findings *f)
{
    fak_stats b, c;
    size_t before = f->n;
    comparable(baseline, candidate, f);
    gem_json_doc *d = gem_json_new();
    if (!d || !fak_stats_of(baseline, &b) || !fak_stats_of(candidate, &c)) f->failed = true;
    if (f->n != before || f->failed) {
        gem_json_free(d);
        return false;
    }
    double delta = c.mean - b.mean, percent = delta / b.mean * 100;
    gem_json *root = gem_json_put(d, NULL, NULL, GEM_JSON_OBJECT);
    gem_json_put_string(d, root, "schema", fak_doc_comparison.schema);
    gem_json_put_string(d, root, "envelope_id", fak_str(baseline, "envelope_id"));
    gem_json_put_string(d, root, "changed_lever_id", fak_str(baseline, "changed_lever_id"));
    gem_json_put_string(d, root, "baseline_revision", fak_str(baseline, "revision"));
    gem_json_put_string(d, root, "candidate_revision", fak_str(candidate, "revision"));
    gem_json_put_number(d, root, "baseline_mean_tokens_per_second", b.mean);
    gem_json_put_number(d, root, "candidate_mean_tokens_per_second", c.mean);
    gem_json_put_number(d, root, "delta_tokens_per_second", delta);
    gem_json_put_number(d, root, "delta_percent", percent);
    put_statistics(d, root, baseline, candidate, &b, &c, percent);
    gem_json *e = gem_json_put(d, root, "evidence", GEM_JSON_OBJECT);
    put_evidence(d, e, "baseline", baseline);
    put_evidence(d, e, "candidate", candidate);
    gem_json_write(out, root);
    bool ok = !gem_json_failed(d) && !out->failed;
    gem_json_free(d);
    return ok;
}
