/* plan.h - a model as a list of ops. model/<family>.c writes the list once at open; a backend runs
 * it for every batch. Ops read and write activation buffers: f32[n_rows][width], one row a token.
 *
 * The vocabulary of ops (shapes per row; W is a weight handle, w a vector of f32):
 *   EMBED     dst[at..] = scale * row(W, token)
 *   INPUT     dst[at..] = the row's vector that came with the batch; in a drafter's program alone
 *   NORM      dst[at..] = rms(src, w), of src's whole width
 *             (at: two such ops, side by side, make a row that is as wide as both)
 *   LINEAR    dst_i = W_i src (+ bias_i), one to four weights that share an input
 *   QKV       v per head: optional rms without weight, of itself or of k as it comes in; q, k per
 *             head: optional rms with weight, rotary positions, q *= q_scale; append k, v. Without
 *             k (-1) the queries alone: keys and values are those that the layer has
 *   ATTEND    dst = softmax(q k) v over the layer's keys, causal, optionally windowed; if gated,
 *             times sigmoid(gate), the gate standing behind each query head. earlier: without the
 *             key of the row's own position, which was not appended; positions are 1 and more
 *   CONV      per channel: dst = silu(sum of w[i] src[pos - 3 + i], i = 0..3), zeros before
 *             position 0; then q, k per head: x / sqrt(sum x^2 + eps), and q / sqrt(head_dim)
 *   DELTA     gated delta rule over src = q | k | v per head, state S (docs/adr/0010):
 *             S = exp(a softplus(alpha + dt_bias)) S; d = sigmoid(beta) (v - S'k); S += k d';
 *             dst = rms(S'q, norm) * silu(z)
 *   RESIDUAL  x = (x + [rms(src, post_norm)]) * out_scale; then, if next_norm,
 *             dst = rms(x, next_norm)
 *   GLU       dst = act(gate) * up
 *   HEAD      logits = softcap(W src) for rows that want logits */
#ifndef GEM_PLAN_H
#define GEM_PLAN_H

#include "gguf/gguf.h"

typedef enum gem_op_kind {
    GEM_OP_EMBED,
    GEM_OP_INPUT,
    GEM_OP_NORM,
    GEM_OP_LINEAR,
    GEM_OP_QKV,
    GEM_OP_ATTEND,
    GEM_OP_CONV,
    GEM_OP_DELTA,
    GEM_OP_RESIDUAL,
    GEM_OP_GLU,
    GEM_OP_HEAD
} gem_op_kind;

typedef enum gem_act { GEM_ACT_GELU_TANH, GEM_ACT_SILU } gem_act;

typedef int gem_buf; /* index into plan->buf_width; -1: none */

/* What a layer keeps of the past. Layers of one kind share a page pool. */
typedef struct gem_kv_layer {
    int n_kv_heads; /* 0: the layer keeps no keys and values (it is recurrent) */
    int head_dim;
    int32_t window; /* keys visible to a query, itself included; 0: all */
    bool k_from_v;  /* a key is its value times the k_norm of the layer's QKV op, rotated */
} gem_kv_layer;

/* What the Gated DeltaNet layers of a model keep of the past; all such layers are alike. State
 * before position c * GEM_PAGE of a sequence, of every such layer: S of each V head, head_dim of k
 * x head_dim of v in f32, in the backend's own layout, and the last GEM_CONV_TAPS - 1 raw inputs of
 * the short convolution. Between these points the rows of the unfinished chunk are kept
 * (docs/adr/0010). */
typedef struct gem_recurrent {
    int n_layers;             /* that keep state; 0: the model has none */
    int n_k_heads, n_v_heads; /* V head h reads K head h % n_k_heads */
    int head_dim;             /* of keys and of values */
} gem_recurrent;

enum { GEM_CONV_TAPS = 4, GEM_LINEAR_MAX = 4 };

typedef struct gem_rope {
    float theta; /* base */
    int n_dims;  /* dims that rotate: pairs (i, i + n_dims/2) of the first n_dims; 0: no rotation */
    float scale; /* positions are multiplied by it (linear scaling); 1 otherwise */
    const float *freq_factors; /* f32[n_dims/2], angle divided by it; NULL: all 1; borrowed from the
                                  file. 1e29 and more: the pair does not rotate */
    int n_pairs;               /* the pairs that rotate, the first ones; 0: all */
} gem_rope;

typedef struct gem_op {
    gem_op_kind kind;
    int layer; /* for profiles and KV */
    union {
        struct {
            const gem_tensor *w;
            gem_buf dst;
            int32_t at;
            float scale;
        } embed;
        struct {
            gem_buf dst;
            int32_t at; /* d_model values from there on */
        } input;
        struct {
            gem_buf src, dst;
            const float *w;
            float eps;
            int32_t at; /* column of dst; the row is complete when it is filled to its width */
        } norm;
        struct {
            gem_buf src;
            int n;
            const gem_tensor *w[GEM_LINEAR_MAX];
            const float *bias[GEM_LINEAR_MAX];
            gem_buf dst[GEM_LINEAR_MAX];
        } linear;
        struct {
            gem_buf q, k, v;
            int n_heads;
            int q_stride;                 /* from one query head to the next; 0: head_dim */
            const float *q_norm, *k_norm; /* f32[head_dim] or NULL */
            float eps, q_scale;
            int rope;      /* index into plan->rope */
            bool v_norm;   /* rms of each value head, without a weight */
            bool v_from_k; /* v is the k projection before k_norm and rotation; written to buffer v
                            */
        } qkv;
        struct {
            gem_buf q, dst;
            int n_heads;
            int q_stride; /* as in qkv */
            bool gated;   /* head_dim gate values behind each query head: q_stride >= 2 head_dim */
            bool earlier;
        } attend;
        struct {
            gem_buf src, dst; /* q heads | k heads | v heads, by plan->recurrent */
            const float *w;   /* f32[width][GEM_CONV_TAPS], the oldest first */
            float eps;
        } conv;
        struct {
            gem_buf src, z, alpha, beta, dst; /* alpha, beta: a value a V head */
            const float *a, *dt_bias;         /* f32[n_v_heads]; a <= 0 */
            const float *norm;                /* f32[head_dim] */
            float eps;
        } delta;
        struct {
            gem_buf x, src, dst;    /* dst -1 when next_norm is NULL */
            const float *post_norm; /* f32[d] or NULL */
            const float *next_norm;
            float eps, out_scale; /* out_scale 1 when absent */
        } residual;
        struct {
            gem_buf gate, up, dst;
            gem_act act;
        } glu; /* dst may be gate */
        struct {
            gem_buf src;
            gem_buf hidden; /* the row's hidden vector, f32[d_model], for those who ask; src but in
                               drafters that end otherwise */
            const gem_tensor *w;
            float softcap;
        } head; /* softcap 0: none */
    };
} gem_op;

enum { GEM_PLAN_MAX_BUFS = 24, GEM_PLAN_MAX_ROPES = 4 };

typedef struct gem_plan {
    const char *family; /* static string */
    gem_op *op;         /* owned */
    size_t n_ops, cap_ops;
    /* A drafter: the ops from here on are a program of their own, which guesses the token after
     * next from the hidden vector of a position (the first HEAD's) and the token behind it. 0:
     * there is none. It may read every layer's keys and values. */
    size_t draft_op;
    /* It also appends to a layer of its own, the last, and so has to pass over every position. If
     * not, the rows of a round of guesses all stand at the position of the first. */
    bool draft_appends;
    int n_bufs;
    int32_t buf_width[GEM_PLAN_MAX_BUFS]; /* widest use of each buffer */
    int n_ropes;
    gem_rope rope[GEM_PLAN_MAX_ROPES];
    int n_layers;
    gem_kv_layer *layer; /* owned, [n_layers] */
    gem_recurrent recurrent;
    int32_t d_model, n_vocab, n_ctx_train;
    int32_t *suppress; /* owned; token ids whose logits become -inf */
    size_t n_suppress;
} gem_plan;

/* Append a zeroed op of this kind; NULL when out of memory. */
gem_op *gem_plan_add(gem_plan *p, gem_op_kind kind, int layer);
gem_buf gem_plan_buf(gem_plan *p, int32_t width);
void gem_plan_free(gem_plan *p); /* contents, not p itself */

#endif
