/* synth.h - random-weight models: which tensors a family has, their types, their numbers, and a
 * vocabulary. Used by gem-synth-model alone. The same arguments give the same bytes on every
 * machine and with any number of threads: each run of a tensor draws from its own stream. */
#ifndef GEM_SYNTH_H
#define GEM_SYNTH_H

#include "gguf/gguf.h"
#include "gguf/gguf_write.h"

/* ---- what is to be made ---- */
typedef struct synth_shape {
    const char *name, *arch; /* preset and family; static strings */
    const char *about;       /* one line for --list */
    int32_t n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim;
    int32_t window; /* of sliding layers; 0: the family has none */
    int32_t n_ctx, n_vocab;
    float rope_theta;
    float rope_factor; /* positions of global layers are divided by it; 0: as they are */
    bool tied;         /* the head is the embedding */
    const char *quant; /* mix of the published file; NULL: q4_k_m */
    /* gemma4: of layers that see all; 0 elsewhere */
    int32_t global_kv_heads, global_head_dim;
    bool suppresses; /* the file names tokens that must not be produced */
    /* gemma4-assistant: d_model of the model it is made for, whose heads of keys the others are */
    int32_t target;
    /* qwen35: heads of recurrent layers; 0 elsewhere */
    int32_t k_heads, v_heads, state_dim;
    bool nextn; /* a block more, which predicts the token after the next */
} synth_shape;
extern const synth_shape synth_presets[]; /* ends with name == NULL */
/* By name; NULL when there is none. */
const synth_shape *synth_preset(const char *name);
/* GEM_E_ARG with a sentence when no model can have this shape. */
gem_status synth_check_shape(const synth_shape *s, gem_error *err);

/* What fills a tensor. */
typedef enum synth_fill {
    SYNTH_MATRIX,  /* mean 0, standard deviation `scale` */
    SYNTH_NORM,    /* uniform in scale * [0.6, 1.4] */
    SYNTH_SIGNED,  /* the same with random signs */
    SYNTH_BIAS,    /* uniform in scale * [-1, 1] */
    SYNTH_SCALAR,  /* uniform in scale * [0.87, 1.13] */
    SYNTH_QUARTER, /* rotary factors: a quarter of 1, then 1e30, which stops a pair */
    SYNTH_TAPS,    /* as a matrix, and F32 in every mix */
    SYNTH_DECAY,   /* uniform in scale * [-1, -1/32] */
    SYNTH_STEP     /* uniform in [-6.9, -2.3]: softplus of it is 0.001 to 0.1, log-uniform */
} synth_fill;

typedef struct synth_tensor {
    char name[64];
    uint32_t n_dims;
    uint64_t dim[2];
    gem_dtype dtype;
    synth_fill fill;
    float scale;
} synth_tensor;

typedef struct synth_model {
    synth_shape shape;
    uint64_t seed;
    synth_tensor *tensors; /* owned; file order */
    size_t n_tensors, cap_tensors;
    bool expand; /* store the exact values of the blocks as F32 */
    bool sparse; /* leave the matrices unwritten: holes in the file */
    bool failed; /* no memory for a tensor */
} synth_model;

/* Fill m->tensors from m->shape, in the order of the family's published files, types unset. */
void synth_layout(synth_model *m);
/* The family's own keys, "gemma3.block_count" and so on. */
gem_status synth_put_family_keys(gem_gguf_writer *w, const synth_shape *s, gem_error *err);
void synth_free(synth_model *m);

/* ---- for the layouts of families ---- */
#define SYNTH_LOGIT_SPREAD 4.0f
#define SYNTH_SCORE_SPREAD 2.25f
/* of an FFN's share: what attention adds is alike at all positions */
#define SYNTH_ATTENTION_PART 0.8f
/* layer < 0: the name is whole */
void synth_vector(synth_model *m, int layer, const char *name, int32_t n, synth_fill fill,
                  float scale);
/* Rows of n_in numbers that turn inputs of size 1 into outputs of size `gain`. */
void synth_matrix(synth_model *m, int layer, const char *name, int32_t n_in, int32_t n_out,
                  float gain);
/* What each of the 2 * n_layers sub-blocks adds, for an embedding of size 1. */
float synth_share(const synth_shape *s);
typedef struct synth_key {
    const char *key;
    int32_t value;
} synth_key;
gem_status synth_put_keys(gem_gguf_writer *w, const synth_key *k, size_t n, gem_error *err);
/* gemma4: synth_gemma4.c */
void synth_layout_gemma4(synth_model *m);
gem_status synth_keys_gemma4(gem_gguf_writer *w, const synth_shape *s, gem_error *err);

/* qwen35: synth_qwen35.c */
void synth_layout_qwen35(synth_model *m);
gem_status synth_keys_qwen35(gem_gguf_writer *w, const synth_shape *s, gem_error *err);

/* ---- quantisation mixes ---- */
typedef struct synth_mix {
    const char *name; /* "q4_k_m" */
    uint32_t file_type;
    gem_dtype base;
    bool more_bits; /* some attn_v (recurrent layers: attn_qkv) and ffn_down get Q6_K */
} synth_mix;
extern const synth_mix synth_mixes[]; /* ends with name == NULL */
const synth_mix *synth_mix_by_name(const char *name);
/* Give every tensor the type that the mix gives it; needs the final order. */
void synth_assign_types(synth_model *m, const synth_mix *mix);

/* ---- numbers ---- */
/* Random streams: xoshiro256**, Blackman and Vigna, arXiv:1805.01407. */
typedef struct synth_rng {
    uint64_t s[4];
} synth_rng;
void synth_rng_seed(synth_rng *r, uint64_t seed, const char *name, uint64_t run);
uint64_t synth_rng_next(synth_rng *r);

enum { SYNTH_RUN_BYTES = 1 << 20 }; /* a run is the whole blocks that fit this */
/* Blocks of a run, and runs of a tensor. */
size_t synth_run_blocks(const synth_tensor *t);
uint64_t synth_n_runs(const synth_tensor *t);
/* Bytes of run number `run` into out[SYNTH_RUN_BYTES]; returns how many. */
size_t synth_fill_run(const synth_tensor *t, uint64_t seed, uint64_t run, uint8_t *out);

/* ---- vocabulary ---- */
/* Put the tokenizer's keys: a synthetic vocabulary of s->n_vocab tokens of the family's kind. */
gem_status synth_put_vocab(gem_gguf_writer *w, const synth_shape *s, uint64_t seed, gem_error *err);
/* The tokenizer's keys of another file, unchanged; *n_vocab its size. GEM_E_FORMAT when it is of
 * another kind than the family's. */
gem_status synth_vocab_size(const gem_gguf *from, const char *arch, int32_t *n_vocab,
                            gem_error *err);
gem_status synth_copy_vocab(gem_gguf_writer *w, const gem_gguf *from, gem_error *err);
/* Least size of a synthetic vocabulary of that family. */
int32_t synth_min_vocab(const char *arch);

/* ---- writing ---- */
/* Called from one thread a few times a second; return false to stop. */
typedef bool (*synth_progress)(void *user, uint64_t done, uint64_t total);
/* Write every run of every tensor with n_threads threads. GEM_E_CANCELLED when progress said so. */
gem_status synth_write(gem_gguf_writer *w, const synth_model *m, int n_threads,
                       synth_progress progress, void *user, gem_error *err);

#endif
