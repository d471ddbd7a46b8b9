/* bench_cuda_streams.c - tokens a second of 1, 2, 4 and 8 sequences that decode side by side behind
 * a shared prompt, each token drawn greedily: where the logits are, or from all of them on the
 * host. usage: bench_cuda_streams MODEL DEPTH [TOKENS [ISA]]. One JSON line a count and way;
 * run_ms: of a step, what the batch takes, the rest is drawing. The tokens of both ways must be
 * equal. */
#include "runtime/engine.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 8 };

/* Forks of `first`. sum: of the tokens drawn, for comparison. */
static int run(gem_model *m, const gem_session *first, gem_sampler *greedy, int n_seqs,
               int n_tokens, gem_row_want want, uint64_t *sum, gem_error *err)
{
    gem_session *s[MOST] = {NULL};
    int32_t token[MOST];
    gem_row row[MOST];
    gem_status st = GEM_OK;
    uint64_t best = UINT64_MAX, best_run = 0;
    for (int i = 0; i < n_seqs && st == GEM_OK; i++)
        st = gem_session_fork(&s[i], first, err);
    for (int i = 0; i < n_seqs; i++)
        token[i] = 1000 + 97 * i;
    for (int t = 0; t < n_tokens && st == GEM_OK; t++) {
        for (int i = 0; i < n_seqs; i++)
            row[i] = (gem_row){s[i], token[i], want};
        uint64_t from = gem_now_ns(), ran, end;
        st = gem_batch_run(m, row, (size_t)n_seqs, NULL, err);
        ran = gem_now_ns();
        for (int i = 0; i < n_seqs && st == GEM_OK; i++) {
            st = gem_session_draw(s[i], greedy, &token[i], err);
            *sum = *sum * 31 + (uint64_t)token[i];
            token[i] = (token[i] + 97 * i + t) % m->plan.n_vocab; /* off a model's circles */
        }
        end = gem_now_ns();
        if (t > 3 && end - from < best) {
            best = end - from;
            best_run = ran - from;
        }
    }
    if (st == GEM_OK)
        printf("{\"sequences\": %d, \"logits\": \"%s\", \"step_ms\": %.3f, \"run_ms\": %.3f, "
               "\"tok_s\": %.1f}\n",
               n_seqs, want == GEM_ROW_DRAW ? "top" : "all", (double)best * 1e-6,
               (double)best_run * 1e-6, n_seqs * 1e9 / (double)best);
    for (int i = 0; i < n_seqs; i++)
        gem_session_free(s[i]);
    return st != GEM_OK;
}

/* Both ways, the same tokens. */
static int both(gem_model *m, const gem_session *s, gem_sampler *greedy, int n_seqs, int n,
                gem_error *err)
{
    uint64_t top = 0, all = 0;
    if (run(m, s, greedy, n_seqs, n, GEM_ROW_DRAW, &top, err) ||
        run(m, s, greedy, n_seqs, n, GEM_ROW_LOGITS, &all, err))
        return 1;
    return top == all ? 0 : gem_fail(err, GEM_E_DEVICE, "tops gave other tokens than all logits");
}

int main(int argc, char **argv)
{
    gem_error err = {0};
    gem_model *m = NULL;
    gem_session *s = NULL;
    gem_sampler *greedy = NULL;
    gem_sampler_options so;
    int32_t depth = argc > 2 ? atoi(argv[2]) : 0, bad = 0;
    int n = argc > 3 ? atoi(argv[3]) : 40;
    if (argc < 3) return 2;
    gem_model_options o = {.backend = "cuda",
                           .n_ctx = depth + n + 64,
                           .n_batch = 2048,
                           .n_sessions = MOST + 1,
                           .kv_type = GEM_KV_F16,
                           .isa = argc > 4 ? argv[4] : NULL};
    const gem_engine_options e = {.n_logits = MOST, .ops = gem_backend_find("cuda")};
    int32_t *tokens = calloc((size_t)depth + 1, sizeof(*tokens));
    for (int32_t i = 0; i <= depth; i++)
        tokens[i] = 1000 + i * 7 % 5000;
    gem_sampler_defaults(&so);
    if (gem_model_open_engine(&m, argv[1], &o, &e, &err) != GEM_OK ||
        gem_session_new(&s, m, &err) != GEM_OK ||
        gem_session_prefill(s, tokens, (size_t)depth + 1, NULL, NULL, NULL, &err) != GEM_OK ||
        gem_sampler_new(&greedy, m->plan.n_vocab, &so, &err) != GEM_OK)
        bad = 1;
    for (int seqs = 1; seqs <= MOST && !bad; seqs *= 2)
        bad = both(m, s, greedy, seqs, n, &err);
    if (bad) fprintf(stderr, "bench_cuda_streams: %s\n", err.text);
    gem_sampler_free(greedy);
    gem_session_free(s);
    gem_model_close(m);
    free(tokens);
    return bad ? 4 : 0;
}
