/* mix.c - which tensor gets which type: the mixes that common quantisers produce without an
 * importance matrix, so that a synthetic file costs what a published one costs. */
#include "cmd/synth_model/synth.h"

#include <strings.h>

const synth_mix synth_mixes[] = {
    {"f32", 0, GEM_DTYPE_F32, false},     {"f16", 1, GEM_DTYPE_F16, false},
    {"bf16", 32, GEM_DTYPE_BF16, false},  {"q4_0", 2, GEM_DTYPE_Q4_0, false},
    {"q4_1", 3, GEM_DTYPE_Q4_1, false},   {"q5_0", 8, GEM_DTYPE_Q5_0, false},
    {"q5_1", 9, GEM_DTYPE_Q5_1, false},   {"q8_0", 7, GEM_DTYPE_Q8_0, false},
    {"q4_k_m", 15, GEM_DTYPE_Q4_K, true}, {"q5_k_m", 17, GEM_DTYPE_Q5_K, true},
    {"q6_k", 18, GEM_DTYPE_Q6_K, false},  {NULL, 0, GEM_DTYPE_F32, false},
};

const synth_mix *synth_mix_by_name(const char *name)
{
    for (const synth_mix *m = synth_mixes; m->name; m++)
        if (strcasecmp(m->name, name) == 0) return m;
    return NULL;
}

/* The first and last eighth of the layers, and every third between. `i` counts tensors of this kind
 * in file order, which need not be the order of the layers: real files carry the same trace. */
static bool more_bits(int i, int n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* Rows that are no multiple of a type's block get the next larger type of 32-element blocks. */
static gem_dtype fit(gem_dtype t, uint64_t row)
{
    if (row % gem_dtype_get((uint32_t)t)->block_len == 0) return t;
    gem_dtype smaller = t == GEM_DTYPE_Q4_K   ? GEM_DTYPE_Q5_0
                        : t == GEM_DTYPE_Q5_K ? GEM_DTYPE_Q5_1
                        : t == GEM_DTYPE_Q6_K ? GEM_DTYPE_Q8_0
                                              : GEM_DTYPE_F16;
    return row % gem_dtype_get((uint32_t)smaller)->block_len == 0 ? smaller : GEM_DTYPE_F16;
}

static bool is_values(const char *name)
{
    return gem_text_ends(name, ".attn_v.weight") || gem_text_ends(name, ".attn_qkv.weight");
}

void synth_assign_types(synth_model *m, const synth_mix *mix)
{
    int n_v = 0, n_down = 0, all_v = 0;
    bool quantised = gem_dtype_get((uint32_t)mix->base)->block_len > 1;
    const char *head = m->shape.tied ? "token_embd.weight" : "output.weight";
    for (size_t i = 0; i < m->n_tensors; i++) /* not every layer of every family has one */
        all_v += is_values(m->tensors[i].name);
    for (size_t i = 0; i < m->n_tensors; i++) {
        synth_tensor *t = &m->tensors[i];
        t->dtype = GEM_DTYPE_F32;
        if (t->fill != SYNTH_MATRIX) continue;
        gem_dtype type = mix->base;
        bool extra = false;
        if (quantised && strcmp(t->name, head) == 0 && mix->base != GEM_DTYPE_Q8_0)
            type = GEM_DTYPE_Q6_K;
        else if (is_values(t->name))
            extra = more_bits(n_v++, all_v);
        else if (gem_text_ends(t->name, ".ffn_down.weight"))
            extra = more_bits(n_down++, m->shape.n_layers + m->shape.nextn);
        if (mix->more_bits && extra) type = GEM_DTYPE_Q6_K;
        t->dtype = fit(type, t->dim[0]);
    }
}
