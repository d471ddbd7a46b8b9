/* sampler.c - logits to a token. Order: logit bias, penalties, then on the sorted distribution at
 * temperature 1: top-k, top-p, min-p; then temperature, then one draw.
 *
 * The same seed and logits give the same token on every machine: comparisons are on the bits of the
 * logits, weights are doubles from exp_neg below (basic operations in a fixed order, no library
 * call, no contraction), sums run in a fixed order, and the generator is integer arithmetic.
 *
 * Cost at a vocabulary of 262,144: one vectorised pass finds the maximum of each block of 64
 * logits; top-k then opens only the blocks whose maximum can still enter a heap of k. Without
 * top-k, masses are collected in bins by distance from the maximum and only the bin in which top-p
 * ends is sorted. */
#include "runtime/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum {
    BLOCK = 64,  /* logits a maximum stands for */
    BINS = 1024, /* by distance from the maximum, eight a unit */
    BINS_PER_UNIT = 8,
    DEFAULT_LAST_N = 64,
    MAX_LAST_N = 1 << 20
};
/* Below it, exp(difference / temperature) is under 1e-4 for differences of 1e-4: greedy in effect.
 */
static const float GREEDY_BELOW = 1e-5f;

typedef struct candidate {
    int32_t key; /* order_key of the logit */
    int32_t id;
} candidate;

struct gem_sampler {
    gem_sampler_options opt; /* logit_bias: owned copy */
    int32_t n_vocab;
    uint64_t rng[4];

    float *adjusted;  /* owned, [n_vocab]; NULL when neither bias nor penalties are on */
    int32_t *count;   /* owned, [n_vocab]: accepted so far; for presence and frequency */
    int32_t *touched; /* owned, [n_vocab]: ids with count > 0, in order of first use */
    int32_t n_touched;
    int32_t *recent; /* owned, ring of penalty_last_n ids */
    int32_t n_recent, next_recent;
    uint32_t *stamp; /* owned, [n_vocab]: last draw that penalised the id */
    uint32_t draw;

    int32_t *block_max; /* owned, [n_blocks] */
    int32_t n_blocks;
    candidate *cand, *tmp; /* owned, [n_cand] */
    double *weight;        /* owned, [n_cand], or partial sums */
    double *bin;           /* owned, [BINS] */
};

/* ---- exact pieces ---- */

/* Bits that order as the float does; -0 and +0 are equal. */
static inline int32_t order_key(float x)
{
    int32_t b;
    x += 0.0f;
    memcpy(&b, &x, sizeof(b));
    return b ^ ((b >> 31) & 0x7fffffff);
}

static inline float key_value(int32_t key)
{
    float x;
    int32_t b = key ^ ((key >> 31) & 0x7fffffff);
    memcpy(&x, &b, sizeof(x));
    return x;
}

typedef double pair __attribute__((vector_size(16)));
typedef uint64_t pair_bits __attribute__((vector_size(16)));

/* exp(x) for x <= 0, within 1 ulp or so, 0 below -708: x = n ln2 + r, |r| <= ln2 / 2, Taylor to
 * r^13 (the rest is below 5e-18), times 2^n. ln2 is split so that n * hi is exact (Cody and Waite,
 * 1980). What lies below -708 is computed like the rest and masked. */
static inline pair exp_pair(pair x)
{
    static const double log2e = 1.4426950408889634, magic = 6755399441055744.0; /* 1.5 * 2^52 */
    static const double hi = 0x1.62e42feep-1, lo = 0x1.a39ef35793c76p-33;
    pair m = x * log2e + magic; /* rounds: the low bits of m now hold n */
    pair n = m - magic;
    pair r = (x - n * hi) - n * lo;
    pair p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    pair_bits scale = ((pair_bits)m + 1023) << 52; /* n + 1023 is in 2..1023: sign 0 */
    return (pair)((pair_bits)(p * (pair)scale) & (pair_bits)(x >= -708.0));
}

static double exp_neg(double x)
{
    return exp_pair((pair){x, x})[0];
}

/* w[i] = exp((x[i] - max) * inv_t), n <= BLOCK */
static void exp_block(const float *x, int32_t n, double max, double inv_t, double *w)
{
    int32_t i = 0;
    for (; i + 1 < n; i += 2) {
        pair e = exp_pair(((pair){x[i], x[i + 1]} - max) * inv_t);
        w[i] = e[0];
        w[i + 1] = e[1];
    }
    if (i < n) w[i] = exp_neg(((double)x[i] - max) * inv_t);
}

/* xoshiro256**: Blackman and Vigna, "Scrambled linear pseudorandom number
 * generators", ACM TOMS 47(4), 2021 (arXiv:1805.01407). */
static inline uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t next_u64(uint64_t s[4])
{
    uint64_t out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

/* [0, 1) in steps of 2^-53. */
static double next_uniform(uint64_t s[4])
{
    return (double)(next_u64(s) >> 11) * 0x1p-53;
}

/* ---- options ---- */

void gem_sampler_defaults(gem_sampler_options *opt)
{
    *opt = (gem_sampler_options){.top_p = 1.0f, .repetition_penalty = 1.0f};
}

static gem_status check_field(const char *name, double v, double min, double max, const char *range,
                              gem_error *err)
{
    if (v >= min && v <= max) return GEM_OK; /* false for NaN */
    return gem_fail(err, GEM_E_ARG, "%s is %g, expected %s", name, v, range);
}

static gem_status check_bias(const gem_sampler_options *o, int32_t n_vocab, gem_error *err)
{
    if (o->n_logit_bias && !o->logit_bias)
        return gem_fail(err, GEM_E_ARG, "logit_bias is missing, n_logit_bias is %zu",
                        o->n_logit_bias);
    for (size_t i = 0; i < o->n_logit_bias; i++) {
        const gem_logit_bias *b = &o->logit_bias[i];
        if (b->token < 0 || b->token >= n_vocab)
            return gem_fail(err, GEM_E_ARG, "logit_bias names token %d, the vocabulary has %d",
                            b->token, n_vocab);
        if (isnan(b->bias) || b->bias == INFINITY)
            return gem_fail(err, GEM_E_ARG,
                            "logit_bias of token %d is %g, expected a number or -infinity",
                            b->token, (double)b->bias);
    }
    return GEM_OK;
}

static gem_status check_options(const gem_sampler_options *o, int32_t n_vocab, gem_error *err)
{
    gem_status st;
    if ((st = check_field("n_vocab", n_vocab, 1, 1 << 24, "1 to 16777216", err)) != GEM_OK)
        return st;
    if ((st = check_field("temperature", o->temperature, 0, 1e6, "0 to 1000000", err)) != GEM_OK)
        return st;
    if ((st = check_field("top_k", o->top_k, 0, INT32_MAX, "0 (off) or more", err)) != GEM_OK)
        return st;
    if ((st = check_field("top_p", o->top_p, 0, 1, "0 to 1", err)) != GEM_OK) return st;
    if ((st = check_field("min_p", o->min_p, 0, 1.0 - FLT_EPSILON / 2, "0 to below 1", err)) !=
        GEM_OK)
        return st;
    if ((st = check_field("repetition_penalty", o->repetition_penalty, 1e-3, 1e3, "0.001 to 1000",
                          err)) != GEM_OK)
        return st;
    if ((st = check_field("presence_penalty", o->presence_penalty, -1e3, 1e3, "-1000 to 1000",
                          err)) != GEM_OK)
        return st;
    if ((st = check_field("frequency_penalty", o->frequency_penalty, -1e3, 1e3, "-1000 to 1000",
                          err)) != GEM_OK)
        return st;
    if ((st = check_field("penalty_last_n", o->penalty_last_n, 0, MAX_LAST_N, "0 (64) to 1048576",
                          err)) != GEM_OK)
        return st;
    return check_bias(o, n_vocab, err);
}

static bool is_greedy(const gem_sampler_options *o)
{
    return o->temperature < GREEDY_BELOW || o->top_k == 1 || o->top_p == 0.0f;
}

static bool uses_counts(const gem_sampler_options *o)
{
    return o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f;
}

static bool uses_top_k(const gem_sampler *s)
{
    return s->opt.top_k > 0 && s->opt.top_k < s->n_vocab;
}

/* Whatever the options need, and nothing else. */
static bool allocate(gem_sampler *s)
{
    size_t n = (size_t)s->n_vocab;
    const gem_sampler_options *o = &s->opt;
    bool ok = (s->block_max = malloc((size_t)s->n_blocks * sizeof(*s->block_max))) != NULL;
    if (o->n_logit_bias || uses_counts(o) || o->repetition_penalty != 1.0f)
        ok = ok && (s->adjusted = malloc(n * sizeof(*s->adjusted))) != NULL;
    if (uses_counts(o)) {
        ok = ok && (s->count = calloc(n, sizeof(*s->count))) != NULL;
        ok = ok && (s->touched = calloc(n, sizeof(*s->touched))) != NULL;
    }
    if (o->repetition_penalty != 1.0f) {
        ok = ok && (s->recent = calloc((size_t)o->penalty_last_n, sizeof(*s->recent))) != NULL;
        ok = ok && (s->stamp = calloc(n, sizeof(*s->stamp))) != NULL;
    }
    if (is_greedy(o)) return ok;
    size_t n_cand = uses_top_k(s) ? (size_t)o->top_k : n;
    ok = ok && (s->cand = malloc(n_cand * sizeof(*s->cand))) != NULL;
    ok = ok && (s->tmp = malloc(n_cand * sizeof(*s->tmp))) != NULL;
    ok = ok && (s->weight = malloc(n_cand * sizeof(*s->weight))) != NULL;
    return ok && (s->bin = malloc(BINS * sizeof(*s->bin))) != NULL;
}

gem_status gem_sampler_new(gem_sampler **out, int32_t n_vocab, const gem_sampler_options *opt,
                           gem_error *err)
{
    *out = NULL;
    gem_status st = check_options(opt, n_vocab, err);
    if (st != GEM_OK) return st;
    gem_sampler *s = calloc(1, sizeof(*s));
    if (!s) return gem_fail(err, GEM_E_NOMEM, "no memory for a sampler");
    s->opt = *opt;
    s->opt.logit_bias = NULL;
    if (!s->opt.penalty_last_n) s->opt.penalty_last_n = DEFAULT_LAST_N;
    s->n_vocab = n_vocab;
    s->n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
    uint64_t seed = opt->seed;
    for (int i = 0; i < 4; i++)
        s->rng[i] = gem_splitmix64(&seed);

    gem_logit_bias *bias = opt->n_logit_bias ? malloc(opt->n_logit_bias * sizeof(*bias)) : NULL;
    if (bias) memcpy(bias, opt->logit_bias, opt->n_logit_bias * sizeof(*bias));
    s->opt.logit_bias = bias;
    if ((opt->n_logit_bias && !bias) || !allocate(s)) {
        gem_sampler_free(s);
        return gem_fail(err, GEM_E_NOMEM, "no memory for a sampler over %d tokens", n_vocab);
    }
    *out = s;
    return GEM_OK;
}

void gem_sampler_free(gem_sampler *s)
{
    if (!s) return;
    free((void *)s->opt.logit_bias);
    free(s->adjusted);
    free(s->count);
    free(s->touched);
    free(s->recent);
    free(s->stamp);
    free(s->block_max);
    free(s->cand);
    free(s->tmp);
    free(s->weight);
    free(s->bin);
    free(s);
}

void gem_sampler_accept(gem_sampler *s, int32_t token)
{
    if (token < 0 || token >= s->n_vocab) return;
    if (s->count && s->count[token]++ == 0) s->touched[s->n_touched++] = token;
    if (s->recent) {
        s->recent[s->next_recent] = token;
        s->next_recent = (s->next_recent + 1) % s->opt.penalty_last_n;
        s->n_recent = GEM_MIN(s->n_recent + 1, s->opt.penalty_last_n);
    }
}

/* ---- bias and penalties ---- */

/* A sum of finite numbers stays finite: only an input may be infinite. */
static float clamp_finite(float x)
{
    return x > FLT_MAX ? FLT_MAX : x;
}

static const float *adjust(gem_sampler *s, const float *logits)
{
    const gem_sampler_options *o = &s->opt;
    float *x = s->adjusted;
    if (!x || (!o->n_logit_bias && !s->n_touched && !s->n_recent)) return logits;
    memcpy(x, logits, (size_t)s->n_vocab * sizeof(*x));
    for (size_t i = 0; i < o->n_logit_bias; i++) {
        float *v = &x[o->logit_bias[i].token];
        if (*v <= FLT_MAX) *v = clamp_finite(*v + o->logit_bias[i].bias);
    }
    s->draw++;
    for (int32_t i = 0; i < s->n_recent; i++) {
        int32_t id = s->recent[i];
        if (s->stamp[id] == s->draw || !(x[id] <= FLT_MAX)) continue;
        s->stamp[id] = s->draw;
        x[id] =
            clamp_finite(x[id] > 0 ? x[id] / o->repetition_penalty : x[id] * o->repetition_penalty);
    }
    for (int32_t i = 0; i < s->n_touched; i++) {
        int32_t id = s->touched[i];
        if (!(x[id] <= FLT_MAX)) continue;
        x[id] =
            clamp_finite(x[id] - (float)s->count[id] * o->frequency_penalty - o->presence_penalty);
    }
    return x;
}

/* ---- selection ---- */

/* Maxima of the blocks. False when a logit is NaN or +inf. */
static bool scan_blocks(gem_sampler *s, const float *x)
{
    int32_t bad = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        int32_t begin = b * BLOCK, end = GEM_MIN(begin + BLOCK, s->n_vocab), max = INT32_MIN;
        for (int32_t i = begin; i < end; i++) {
            int32_t bits, key = order_key(x[i]);
            memcpy(&bits, &x[i], sizeof(bits));
            bad |= (bits & 0x7fffffff) > 0x7f800000;
            max = key > max ? key : max;
        }
        s->block_max[b] = max;
        bad |= max >= 0x7f800000;
    }
    return !bad;
}

/* Lowest id among the largest. */
static int32_t argmax(const gem_sampler *s, const float *x, int32_t *max_key)
{
    int32_t best = 0;
    for (int32_t b = 1; b < s->n_blocks; b++)
        if (s->block_max[b] > s->block_max[best]) best = b;
    *max_key = s->block_max[best];
    int32_t i = best * BLOCK;
    while (order_key(x[i]) != *max_key)
        i++;
    return i;
}

/* a stands behind b: smaller logit, or equal and higher id. */
static inline bool behind(candidate a, candidate b)
{
    return a.key < b.key || (a.key == b.key && a.id > b.id);
}

/* Sift c down from slot i of a heap whose root is the candidate behind all others. */
static void sift(candidate *heap, int32_t n, int32_t i, candidate c)
{
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && behind(heap[child + 1], heap[child])) child++;
        if (!behind(heap[child], c)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = c;
}

/* The k best in order. Ids ascend while scanning, so an equal logit never displaces an earlier one.
 */
static int32_t select_top_k(gem_sampler *s, const float *x)
{
    int32_t k = s->opt.top_k, n = 0;
    candidate *heap = s->cand;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        if (n == k && s->block_max[b] <= heap[0].key) continue;
        int32_t begin = b * BLOCK, end = GEM_MIN(begin + BLOCK, s->n_vocab);
        for (int32_t i = begin; i < end; i++) {
            candidate c = {order_key(x[i]), i};
            if (n < k) {
                heap[n++] = c;
                if (n == k)
                    for (int32_t j = k / 2 - 1; j >= 0; j--)
                        sift(heap, k, j, heap[j]);
            } else if (c.key > heap[0].key) {
                sift(heap, k, 0, c);
            }
        }
    }
    for (int32_t end = n - 1; end > 0; end--) { /* heap sort: the hindmost moves to the end */
        candidate c = heap[end];
        heap[end] = heap[0];
        sift(heap, end, 0, c);
    }
    while (n > 0 && key_value(heap[n - 1].key) == -INFINITY)
        n--;
    return n;
}

/* Descending by logit, ascending by id: stable byte-wise radix sort; the input ascends by id. */
static void sort_candidates(candidate *c, candidate *tmp, int32_t n)
{
    for (int shift = 0; shift < 32; shift += 8) {
        int32_t start[256] = {0}, sum = 0;
        for (int32_t i = 0; i < n; i++)
            start[~((uint32_t)c[i].key ^ 0x80000000u) >> shift & 255]++;
        for (int d = 0; d < 256; d++) {
            int32_t count = start[d];
            start[d] = sum;
            sum += count;
        }
        for (int32_t i = 0; i < n; i++)
            tmp[start[~((uint32_t)c[i].key ^ 0x80000000u) >> shift & 255]++] = c[i];
        candidate *swap = c;
        c = tmp;
        tmp = swap;
    } /* four passes: the result is in the first array again */
}

static inline int bin_of(double below)
{
    double b = below * BINS_PER_UNIT;
    return b < BINS - 1 ? (int)b : BINS - 1;
}

/* Without top-k: gather what top-p and min-p leave, in no particular but a fixed order. */
static int32_t select_mass(gem_sampler *s, const float *x, double max)
{
    double total = 0, before = 0, target;
    int last = BINS - 1; /* the bin in which top-p ends */
    bool nucleus = s->opt.top_p < 1.0f;
    int32_t n = 0, n_sorted = 0;
    candidate *cut = s->tmp;
    /* min-p is decided by exp_neg; this bound, with a margin for the library's log, only saves work
     */
    double far = s->opt.min_p > 0.0f ? 1.0 - log((double)s->opt.min_p) : INFINITY;

    if (nucleus) {
        memset(s->bin, 0, BINS * sizeof(*s->bin));
        for (int32_t begin = 0; begin < s->n_vocab; begin += BLOCK) {
            int32_t len = GEM_MIN(BLOCK, s->n_vocab - begin);
            double w[BLOCK];
            exp_block(x + begin, len, max, 1.0, w);
            for (int32_t i = 0; i < len; i++)
                s->bin[bin_of(max - (double)x[begin + i])] += w[i];
        }
        for (int b = 0; b < BINS; b++)
            total += s->bin[b];
        target = (double)s->opt.top_p * total;
        for (last = 0; last < BINS - 1 && before + s->bin[last] < target; last++)
            before += s->bin[last];
    }
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double below = max - (double)x[i];
        int b = bin_of(below);
        if (b > last || below > far || x[i] == -INFINITY) continue;
        if (s->opt.min_p > 0.0f && exp_neg(-below) < (double)s->opt.min_p) continue;
        candidate c = {order_key(x[i]), i};
        if (nucleus && b == last)
            cut[n_sorted++] = c;
        else
            s->cand[n++] = c;
    }
    if (!nucleus) return n;
    /* `cut` lies in tmp, and what remains of cand is as large as the sort needs */
    sort_candidates(cut, s->cand + n, n_sorted);
    for (int32_t i = 0; i < n_sorted; i++) {
        s->cand[n++] = cut[i];
        before += exp_neg((double)key_value(cut[i].key) - max);
        if (before >= target) break;
    }
    return n;
}

/* top-p and min-p on a sorted list. */
static int32_t cut_sorted(const gem_sampler *s, int32_t n, double max)
{
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++) {
        s->weight[i] = exp_neg((double)key_value(s->cand[i].key) - max);
        total += s->weight[i];
    }
    if (s->opt.top_p < 1.0f) {
        double target = (double)s->opt.top_p * total;
        int32_t i = 0;
        while (i < n && sum < target)
            sum += s->weight[i++];
        n = GEM_MAX(i, 1);
    }
    while (n > 1 && s->weight[n - 1] < (double)s->opt.min_p)
        n--;
    return n;
}

/* ---- drawing ---- */

static int32_t draw_candidates(gem_sampler *s, int32_t n, double max)
{
    double total = 0, sum = 0, inv_t = 1.0 / (double)s->opt.temperature;
    for (int32_t i = 0; i < n; i++) {
        s->weight[i] = exp_neg(((double)key_value(s->cand[i].key) - max) * inv_t);
        total += s->weight[i];
    }
    double target = next_uniform(s->rng) * total;
    int32_t last = 0; /* where rounding leaves the target behind the sum: the last possible one */
    for (int32_t i = 0; i < n; i++) {
        if (s->weight[i] == 0.0) continue;
        sum += s->weight[i];
        last = i;
        if (sum > target) break;
    }
    return s->cand[last].id;
}

/* Nothing cut off: the mass of each block, then the block in which the draw falls once more. */
static int32_t draw_all(gem_sampler *s, const float *x, double max)
{
    double total = 0, sum = 0, inv_t = 1.0 / (double)s->opt.temperature, w[BLOCK];
    for (int32_t b = 0; b < s->n_blocks; b++) {
        double mass = 0;
        int32_t n = GEM_MIN(BLOCK, s->n_vocab - b * BLOCK);
        exp_block(x + b * BLOCK, n, max, inv_t, w);
        for (int32_t i = 0; i < n; i++)
            mass += w[i];
        s->weight[b] = mass;
        total += mass;
    }
    double target = next_uniform(s->rng) * total;
    int32_t b = 0, last = -1;
    while (b < s->n_blocks - 1 && sum + s->weight[b] <= target)
        sum += s->weight[b++];
    while (s->weight[b] == 0.0)
        sum -= s->weight[--b]; /* rounding led behind the last mass */
    int32_t n = GEM_MIN(BLOCK, s->n_vocab - b * BLOCK);
    exp_block(x + b * BLOCK, n, max, inv_t, w);
    for (int32_t i = 0; i < n; i++) {
        if (w[i] == 0.0) continue;
        sum += w[i];
        last = i;
        if (sum > target) break;
    }
    return b * BLOCK + last;
}

static gem_status refuse(gem_error *err)
{
    return gem_fail(err, GEM_E_RANGE, "the logits hold a value that is no number or infinite");
}

static gem_status refuse_all(gem_error *err)
{
    return gem_fail(err, GEM_E_RANGE, "every logit is -infinity: no token is possible");
}

gem_status gem_sampler_draw(gem_sampler *s, const float *logits, int32_t *token, gem_error *err)
{
    const float *x = adjust(s, logits);
    int32_t max_key;
    if (!scan_blocks(s, x)) return refuse(err);
    int32_t best = argmax(s, x, &max_key);
    double max = (double)key_value(max_key);
    if (max == -INFINITY) return refuse_all(err);

    if (is_greedy(&s->opt)) {
        *token = best;
    } else if (uses_top_k(s)) {
        int32_t n = cut_sorted(s, select_top_k(s, x), max);
        *token = draw_candidates(s, n, max);
    } else if (s->opt.top_p < 1.0f || s->opt.min_p > 0.0f) {
        *token = draw_candidates(s, select_mass(s, x, max), max);
    } else {
        *token = draw_all(s, x, max);
    }
    return GEM_OK;
}

/* ---- from the largest alone ---- */

bool gem_sampler_needs_all(const gem_sampler *s)
{
    const bool few = is_greedy(&s->opt) || (uses_top_k(s) && s->opt.top_k <= GEM_TOP);
    return s->adjusted || !few;
}

/* What select_top_k leaves of the whole row. */
static int32_t take_top_k(gem_sampler *s, const gem_top *top)
{
    int32_t n = 0;
    for (; n < s->opt.top_k && top->logit[n] != -INFINITY; n++)
        s->cand[n] = (candidate){order_key(top->logit[n]), top->id[n]};
    return n;
}

gem_status gem_sampler_draw_top(gem_sampler *s, const gem_top *top, int32_t *token, gem_error *err)
{
    assert(!gem_sampler_needs_all(s));
    if (top->n == 0) return refuse(err);
    double max = (double)key_value(order_key(top->logit[0]));
    if (max == -INFINITY) return refuse_all(err);
    *token = is_greedy(&s->opt) ? top->id[0]
                                : draw_candidates(s, cut_sorted(s, take_top_k(s, top), max), max);
    return GEM_OK;
}
