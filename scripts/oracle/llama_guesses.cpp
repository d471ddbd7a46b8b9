// llama_guesses.cpp - the reference side of gem.assistant: guesses of a drafter beside its model (gemma4-assistant),
// compiled by hand against a llama.cpp checkout and its built library. It is no part of gem.
//
//   llama_guesses MODEL.gguf DRAFTER.gguf STEPS N...  > golden.json
//
// For each N: N made-up tokens go through the model, one more is the drafter's input; then STEPS guesses, each from the
// drafter's own choice before. Written are the N + 1 tokens' recipe, and of each guess's logits the best token, the log
// of the sum of exp, and every 61st logit.
#include "llama.h"

#include "../src/llama-ext.h" // hidden vectors of a model, for its drafter

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static llama_context *context(llama_model *m, llama_context *beside, uint32_t n)
{
    llama_context_params p = llama_context_default_params();
    p.n_ctx = n + 64;
    p.n_batch = p.n_ubatch = 128;
    p.n_threads = p.n_threads_batch = 1;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.ctx_other = beside;
    llama_context *c = llama_init_from_model(m, p);
    if (c) llama_set_embeddings_nextn(c, true, beside != nullptr);
    return c;
}

static std::vector<llama_token> tokens(int n, int n_vocab)
{
    std::vector<llama_token> t{2};
    unsigned long long x = 12345;
    while ((int)t.size() < n) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        t.push_back(300 + (int)((x >> 33) % (unsigned)(n_vocab - 300)));
    }
    return t;
}

static bool run(llama_model *model, llama_model *drafter, int n, int steps)
{
    const int n_embd = llama_model_n_embd(model), n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const std::vector<llama_token> ids = tokens(n + 1, n_vocab);
    llama_context *target = context(model, nullptr, (uint32_t)n), *beside = context(drafter, target, (uint32_t)n);
    if (!target || !beside) return false;
    std::vector<float> hidden;
    llama_batch b = llama_batch_init(128, 0, 1);
    for (int at = 0; at < n; at += b.n_tokens) {
        b.n_tokens = n - at < 128 ? n - at : 128;
        for (int i = 0; i < b.n_tokens; i++) {
            b.token[i] = ids[at + i];
            b.pos[i] = at + i;
            b.n_seq_id[i] = 1;
            b.seq_id[i][0] = 0;
            b.logits[i] = 1;
        }
        if (llama_decode(target, b)) return false;
        const float *h = llama_get_embeddings_nextn_ith(target, b.n_tokens - 1);
        hidden.assign(h, h + n_embd);
    }
    llama_batch_ext *e = llama_batch_ext_init(beside);
    llama_token t = ids[n];
    printf("{\"n\": %d, \"guesses\": [", n);
    for (int s = 0; s < steps; s++) {
        llama_batch_ext_clear(e);
        const int i = llama_batch_ext_add_token(e, 0, t);
        const llama_pos pos = n;
        llama_batch_ext_set_pos(e, i, &pos);
        llama_batch_ext_set_output_logits(e, i, true);
        llama_batch_ext_set_embd_token(e, i, {hidden.data(), 1, (size_t)n_embd});
        if (llama_process(beside, LLAMA_PROCESS_TYPE_DECODE, e)) return false;
        const float *x = llama_get_logits_ith(beside, i), *h = llama_get_embeddings_nextn_ith(beside, i);
        hidden.assign(h, h + n_embd);
        t = 0;
        for (int k = 1; k < n_vocab; k++)
            if (x[k] > x[t]) t = k;
        double sum = 0;
        for (int k = 0; k < n_vocab; k++)
            sum += exp((double)x[k] - x[t]);
        printf("%s\n[%d, %.9g, [", s ? "," : "", t, x[t] + log(sum));
        for (int k = 0; k < n_vocab; k += 61)
            printf("%s%.9g", k ? ", " : "", x[k]);
        printf("]]");
    }
    printf("]}");
    llama_free(beside);
    llama_free(target);
    return true;
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model_params p = llama_model_default_params();
    llama_model *model = llama_model_load_from_file(argv[1], p), *drafter = llama_model_load_from_file(argv[2], p);
    if (!model || !drafter) return 1;
    printf("\"runs\": [");
    for (int i = 4; i < argc; i++) {
        if (i > 4) printf(",\n");
        if (!run(model, drafter, atoi(argv[i]), atoi(argv[3]))) return 1;
    }
    printf("]\n");
    return 0;
}
