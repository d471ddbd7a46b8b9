/* fuzz_manifest: any container that opens goes through its family's manifest into a plan. A plan
 * that comes out is walked: every weight and vector it names lies inside the file. */
#include "model/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink; /* keeps the reads */

static void touch(const void *p, size_t bytes)
{
    if (!p || !bytes) return;
    sink = ((const uint8_t *)p)[0];
    sink = ((const uint8_t *)p)[bytes - 1];
}

static void touch_tensor(const gem_tensor *t)
{
    if (t) touch(t->data, t->bytes);
}

static void walk(const gem_plan *p)
{
    size_t d = (size_t)p->d_model * sizeof(float);
    for (size_t i = 0; i < p->n_ops; i++) {
        const gem_op *op = &p->op[i];
        if (op->kind == GEM_OP_EMBED) touch_tensor(op->embed.w);
        if (op->kind == GEM_OP_NORM) touch(op->norm.w, d);
        if (op->kind == GEM_OP_HEAD) touch_tensor(op->head.w);
        if (op->kind == GEM_OP_RESIDUAL) {
            touch(op->residual.post_norm, d);
            touch(op->residual.next_norm, d);
        }
        if (op->kind == GEM_OP_QKV) {
            size_t hd = (size_t)p->layer[op->layer].head_dim * sizeof(float);
            touch(op->qkv.q_norm, hd);
            touch(op->qkv.k_norm, hd);
        }
        for (int k = 0; op->kind == GEM_OP_LINEAR && k < op->linear.n; k++) {
            touch_tensor(op->linear.w[k]);
            touch(op->linear.bias[k], (size_t)op->linear.w[k]->dim[1] * sizeof(float));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gem_gguf *g = NULL;
    gem_plan plan;
    void *copy =
        aligned_alloc(64, (size_t)gem_round_up(size + 1, 64)); /* as a mapping is aligned */
    if (!copy) return 0;
    memcpy(copy, data, size);
    if (gem_gguf_open_memory(&g, copy, size, "fuzz", NULL) == GEM_OK) {
        const gem_tensor *embd = gem_gguf_tensor(g, "token_embd.weight");
        int32_t n_vocab = embd && embd->dim[1] < INT32_MAX ? (int32_t)embd->dim[1] : 4;
        if (gem_model_plan(&plan, g, n_vocab, false, NULL) == GEM_OK) {
            walk(&plan);
            gem_plan_free(&plan);
        }
        gem_gguf_close(g);
    }
    free(copy);
    return 0;
}
