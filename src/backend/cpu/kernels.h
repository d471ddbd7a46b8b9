/* kernels.h - the kernel table of the CPU backend. gem_cpu_kernels_ref fills every slot with its
 * scalar form (the oracle); each ISA overlays what it improves. All forms of a slot give the same
 * bits, which tests/ops checks with memcmp. */
#ifndef GEM_CPU_KERNELS_H
#define GEM_CPU_KERNELS_H

#include "backend/backend.h"
#include "backend/cpu/panel.h"

/* y[c][0..15] of one panel against n columns. */
typedef struct gem_panel_args {
    const uint8_t *panel;
    int64_t k;
    gem_qrows x;     /* quantised types: column c is row c */
    const float *xf; /* float types: f32[n][ldx] */
    size_t ldx;
    int n;
    float *y; /* f32[n][ldy] */
    size_t ldy;
    uint8_t *scratch;   /* gem_panel_scratch(k) bytes, 64-aligned, of this thread */
    size_t panel_bytes; /* linear4: from one panel to the next */
} gem_panel_args;
enum { GEM_PANEL_STREAMS = 4 };
/* Unpacked bytes (16 k), then two f32[16] scales or minima a block; also f32 panels of 16 k. */
static inline size_t gem_panel_scratch(int64_t k)
{
    return gem_round_up((uint64_t)k * 16 * 4, 64) + gem_round_up((uint64_t)k, 32) / 32 * 128 +
           32768;
}

/* Attention of the rows of one KV head over keys of one sequence, within one chunk of GEM_CHUNK
 * positions. Rows are sorted by position. Result per row: max m, sum s, f32[head_dim] o (not
 * divided). Page, per KV head: K panels of 16 keys, [GEM_PAGE/16][head_dim][16], then V columns of
 * 16 dims, [head_dim/16][GEM_PAGE][16]. head_dim is a multiple of 16; every value in a page is
 * finite. */
enum { GEM_CHUNK = 512, GEM_ATTEND_ROWS = 32 };
typedef struct gem_attend_args {
    int head_dim;
    bool f16;              /* type of the page's values */
    int n;                 /* rows, at most GEM_ATTEND_ROWS */
    const float *const *q; /* [n] f32[head_dim], already scaled */
    const int32_t *pos;    /* [n], ascending */
    int32_t window;        /* 0: none */
    int32_t chunk;         /* first position of the chunk: a multiple of GEM_CHUNK */
    const uint8_t *const
        *page; /* [GEM_CHUNK/GEM_PAGE] this head's part of each page; NULL: not kept */
    const uint8_t *const
        *value;         /* [...] V columns apart from the K panels, f32; NULL: behind them */
    float *m, *s;       /* [n] out; s is 0 when a row sees no key of the chunk */
    float *o;           /* [n][head_dim] out */
    float *scratch;     /* gem_attend_scratch(head_dim) floats, 64-byte aligned */
    uint64_t *phase_ns; /* [2] profiles: the time of scores and of normalisation is added; NULL */
} gem_attend_args;
static inline size_t gem_attend_scratch(int head_dim)
{
    return (size_t)GEM_ATTEND_ROWS * GEM_PAGE + 2u * GEM_PAGE * (size_t)head_dim + 64;
}

/* One head of the short convolution: dst[i] = silu(sum over taps j of w[j*ldw + i] * u[j][i]),
 * then, if norm, times scale / sqrt(sum of dst^2 + eps). */
typedef struct gem_conv_args {
    const float *u[GEM_CONV_TAPS]; /* the oldest first; f32[n] */
    const float *w;
    size_t ldw;
    int64_t n;
    bool norm;
    float eps, scale;
    float *dst;
} gem_conv_args;

/* Gated delta rule of one chunk of GEM_PAGE positions (docs/adr/0010), rows [t0, t0 + n) of it.
 * Rows behind t0 + n need not exist. Matrices stand in panels of 16 columns, like a KV page:
 *   S  f32[head_dim/16][head_dim][16]  row: key dim, column: value dim
 *   N  f32[head_dim/16][GEM_PAGE][16]  row: position
 *   K  f32[GEM_PAGE/16][head_dim][16]  row: key dim, column: position */
typedef struct gem_delta_args {
    int head_dim; /* a multiple of 16 */
    int t0, n;
    const float *const *row; /* [n] rows of q | k | v */
    size_t q_at, k_at, v_at; /* this head's part of a row */
    const float *keys;       /* K, columns [0, t0 + n) written */
    float *kk, *qk;          /* [n][GEM_PAGE]: k.k[s], q.k[s]; delta_scores writes, delta reads */
    const double *b;         /* [t0 + n] */
    const float *beta;       /* [n] */
    const float *s0;         /* NULL: zero */
    float *values;           /* N: rows [t0, t0 + n) are written */
    float *o;                /* [n][head_dim] out */
    float *s1;               /* NULL, or where the state after row 63, the last of these, goes */
    float *scratch;          /* gem_delta_scratch(head_dim) floats, 64-byte aligned; delta finds
                              * there what delta_scores left for the same rows */
} gem_delta_args;
static inline size_t gem_delta_scratch(int head_dim)
{
    return (size_t)GEM_PAGE * (4u * (size_t)head_dim + 2u * GEM_PAGE);
}

/* Keys of a page that holds values alone: k = rotated (v * norm), as QKV makes them, bit for bit.
 */
typedef struct gem_keys_args {
    int head_dim, half;     /* pairs (i, i + half); multiples of 16 */
    int n_keys;             /* from the page's first on; a multiple of 16 */
    int n_pairs;            /* that rotate, the first ones; a multiple of 16, at most half */
    const float *value;     /* V columns: [head_dim/16][GEM_PAGE][16] */
    const float *norm;      /* f32[head_dim] */
    const float *cos, *sin; /* [n_keys][n_pairs] */
    float *keys;            /* out: K panels, [n_keys/16][head_dim][16] */
} gem_keys_args;

typedef struct gem_cpu_kernels {
    const char *isa;
    void (*linear[GEM_N_PANELS])(const gem_panel_args *a);
    /* One token (n is 1) against GEM_PANEL_STREAMS panels, panel_bytes apart, read side by side; y
     * gets 64 values. NULL: no gain over one panel at a time. */
    void (*linear4[GEM_N_PANELS])(const gem_panel_args *a);
    /* One row of n values (a multiple of 32) into 8-bit form. */
    void (*quantize)(const float *x, int64_t n, const gem_qrows *row);
    /* y = (x * 1/sqrt(mean(x^2) + eps)) * w; w NULL: 1. Sums on 16 lanes, see ref. y may be x. */
    void (*norm)(const float *x, const float *w, int64_t n, float eps, float *y);
    /* x = (x + t) * scale */
    void (*add)(float *x, const float *t, int64_t n, float scale);
    void (*glu)(gem_act act, const float *gate, const float *up, int64_t n, float *dst);
    /* Rotate pairs (i, i + half) of one head by cos/sin f32[half], then multiply all n by scale. */
    void (*rope)(float *x, const float *cos, const float *sin, int half, int64_t n, float scale);
    /* Store one head's key and value at slot `pos % GEM_PAGE` of a page part; not finite becomes 0.
     */
    void (*append)(uint8_t *page, int head_dim, bool f16, int32_t slot, const float *k,
                   const float *v);
    void (*attend)(const gem_attend_args *a);
    void (*keys)(const gem_keys_args *a);
    /* Fold (m2, s2, o2) into (m, s, o): the fixed order of chunks is the caller's. */
    void (*attend_merge)(float *m, float *s, float *o, float m2, float s2, const float *o2,
                         int64_t n);
    /* dst = o * (1/s); s > 0 */
    void (*attend_finish)(const float *o, float s, int64_t n, float *dst);
    void (*softcap)(float *x, int64_t n, float cap);
    /* x *= sigmoid(gate) */
    void (*sigmoid_gate)(float *x, const float *gate, int64_t n);
    void (*conv)(const gem_conv_args *a);
    /* kk and qk of the rows: the V heads of one K head share them. */
    void (*delta_scores)(const gem_delta_args *a);
    void (*delta)(const gem_delta_args *a); /* one V head */
} gem_cpu_kernels;

void gem_cpu_kernels_ref(gem_cpu_kernels *t);
void gem_cpu_kernels_avx2(gem_cpu_kernels *t);
void gem_cpu_kernels_avx512(gem_cpu_kernels *t);
void gem_cpu_kernels_neon(gem_cpu_kernels *t);

/* Parts of the tables above, one a file. */
void gem_linear_kernels_ref(gem_cpu_kernels *t);
void gem_delta_kernels_ref(gem_cpu_kernels *t);
void gem_linear_kernels_avx2(gem_cpu_kernels *t);
void gem_token_kernels_avx2(gem_cpu_kernels *t);
void gem_float_kernels_avx2(gem_cpu_kernels *t);
void gem_rows_kernels_avx2(gem_cpu_kernels *t);
void gem_attend_kernels_avx2(gem_cpu_kernels *t);
void gem_delta_kernels_avx2(gem_cpu_kernels *t);
void gem_linear_kernels_avx512(gem_cpu_kernels *t);
void gem_rows_kernels_avx512(gem_cpu_kernels *t);
void gem_attend_kernels_avx512(gem_cpu_kernels *t);
void gem_delta_kernels_avx512(gem_cpu_kernels *t);
void gem_linear_kernels_neon(gem_cpu_kernels *t);
void gem_rows_kernels_neon(gem_cpu_kernels *t);
void gem_attend_kernels_neon(gem_cpu_kernels *t);
void gem_delta_kernels_neon(gem_cpu_kernels *t);

typedef struct gem_cpu_isa {
    const char *name;
    bool usable; /* on this CPU */
} gem_cpu_isa;
/* Best first; returns how many (at most max). */
int gem_cpu_isas(gem_cpu_isa *out, int max);
/* NULL: the best usable; a trailing ",attend=ref" takes attention from the oracle (gem-bench
 * --attention-ab). GEM_E_UNSUPPORTED names what this CPU has. */
gem_status gem_cpu_kernels_get(gem_cpu_kernels *t, const char *isa, gem_error *err);

/* Index of dim d of the key at a slot. */
static inline size_t gem_page_k_at(int head_dim, int32_t slot, int d)
{
    return (size_t)(slot / 16) * (size_t)head_dim * 16 + (size_t)d * 16 + (size_t)(slot % 16);
}

/* Index of dim d of the value at a slot: behind the keys. */
static inline size_t gem_page_v_at(int head_dim, int32_t slot, int d)
{
    return (size_t)GEM_PAGE * (size_t)(head_dim + d / 16 * 16) + (size_t)slot * 16 +
           (size_t)(d % 16);
}

/* Where key dim d of position t of a chunk stands in K panels. */
static inline size_t gem_delta_key_at(int head_dim, int t, int d)
{
    return ((size_t)(t / 16) * (size_t)head_dim + (size_t)d) * 16 + (size_t)(t % 16);
}

/* Bytes of one KV head in a page. */
static inline size_t gem_page_part_bytes(int head_dim, bool f16)
{
    return (size_t)GEM_PAGE * (size_t)head_dim * 2 * (f16 ? 2 : 4);
}

#endif
