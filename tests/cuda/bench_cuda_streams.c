/* bench_cuda_streams.c - tokens a second of 1, 2, 4 and 8 sequences that decode side by side behind
 * a shared prompt. usage: bench_cuda_streams MODEL DEPTH [TOKENS]. One JSON line a count. */
#include "runtime/engine.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 8 };

static int run(gem_model *m, gem_session *first, int n_seqs, int n_tokens, gem_error *err)
{
    gem_session *s[MOST] = {first};
    gem_row row[MOST];
    const float *x[MOST];
    gem_status st = GEM_OK;
    uint64_t best = UINT64_MAX, from = 0;
    for (int i = 1; i < n_seqs && st == GEM_OK; i++)
        st = gem_session_fork(&s[i], first, err);
    for (int t = 0; t < n_tokens && st == GEM_OK; t++) {
        for (int i = 0; i < n_seqs; i++)
            row[i] = (gem_row){s[i], 1000 + 97 * i + t, 1};
        from = gem_now_ns();
        st = gem_batch_run(m, row, (size_t)n_seqs, x, err);
        if (t > 3) best = GEM_MIN(best, gem_now_ns() - from);
    }
    if (st == GEM_OK)
        printf("{\"sequences\": %d, \"step_ms\": %.3f, \"tok_s\": %.1f}\n", n_seqs,
               (double)best * 1e-6, n_seqs * 1e9 / (double)best);
    for (int i = 1; i < n_seqs; i++)
        gem_session_free(s[i]);
    return st != GEM_OK;
}

int main(int argc, char **argv)
{
    gem_error err = {0};
    gem_model *m = NULL;
    gem_session *s = NULL;
    const float *x;
    int32_t depth = argc > 2 ? atoi(argv[2]) : 0, bad = 0;
    int n = argc > 3 ? atoi(argv[3]) : 40;
    if (argc < 3) return 2;
    gem_model_options o = {.backend = "cuda",
                           .n_ctx = depth + 8 * n + 64,
                           .n_batch = 2048,
                           .n_sessions = MOST,
                           .kv_type = GEM_KV_F16};
    const gem_engine_options e = {.n_logits = MOST, .ops = gem_backend_find("cuda")};
    int32_t *tokens = calloc((size_t)depth + 1, sizeof(*tokens));
    for (int32_t i = 0; i <= depth; i++)
        tokens[i] = 1000 + i * 7 % 5000;
    if (gem_model_open_engine(&m, argv[1], &o, &e, &err) != GEM_OK ||
        gem_session_new(&s, m, &err) != GEM_OK ||
        gem_session_prefill(s, tokens, (size_t)depth + 1, NULL, NULL, &x, &err) != GEM_OK)
        bad = 1;
    for (int seqs = 1; seqs <= MOST && !bad; seqs *= 2)
        bad = run(m, s, seqs, n, &err);
    if (bad) fprintf(stderr, "bench_cuda_streams: %s\n", err.text);
    gem_session_free(s);
    gem_model_close(m);
    free(tokens);
    return bad ? 4 : 0;
}
