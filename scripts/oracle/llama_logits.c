/* llama_logits.c - the reference side of real-logit-oracle.sh, compiled on the spot against a
 * llama.cpp checkout and its built library. It is no part of gem.
 *
 *   llama_logits MODEL PROMPT_FILE OUT.f32
 *
 * Tokenizes the file's text (beginning-of-text token as the model asks for it, markers in the text
 * stay text), evaluates it, and writes the last position's logits as raw little-endian F32 into
 * OUT.f32, and what they are into OUT.f32.json. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void warn_only(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static char *slurp(const char *path, int32_t *len)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(1 << 20) : NULL;
    *len = text ? (int32_t)fread(text, 1, (1 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return text;
}

static int fail(const char *what)
{
    fprintf(stderr, "llama_logits: %s\n", what);
    return 4;
}

static int write_out(const char *path, const float *logits, int32_t n_vocab, const llama_token *ids,
                     int32_t n, const char *model)
{
    char name[4096];
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(logits, sizeof(float), (size_t)n_vocab, f) != (size_t)n_vocab || fclose(f))
        return fail("the rows could not be written");
    if (snprintf(name, sizeof(name), "%s.json", path) >= (int)sizeof(name))
        return fail("long name");
    f = fopen(name, "wb");
    if (!f) return fail("the description could not be written");
    fprintf(
        f,
        "{\"schema\": \"gem-oracle-logits/1\", \"engine\": \"llama.cpp\", \"dtype\": \"f32-le\", "
        "\"shape\": [1, %d], \"positions\": [%d], \"tokens\": [",
        n_vocab, n - 1);
    for (int32_t i = 0; i < n; i++)
        fprintf(f, "%s%d", i ? ", " : "", ids[i]);
    fprintf(f, "], \"model\": \"");
    for (const char *s = model; *s; s++)
        if ((unsigned char)*s >= 0x20 && *s != '"' && *s != '\\') fputc(*s, f);
    fprintf(f, "\"}\n");
    return fclose(f) ? fail("the description could not be written") : 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) return fail("usage: llama_logits MODEL PROMPT_FILE OUT.f32");
    int32_t len, n;
    char *text = slurp(argv[2], &len);
    if (!text || len == 0) return fail("the prompt file is empty or cannot be read");
    llama_log_set(warn_only, NULL);
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model) return fail("the reference engine does not load the model");
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    int32_t cap = len + 16, n_vocab = llama_vocab_n_tokens(vocab);
    llama_token *ids = calloc((size_t)cap, sizeof(*ids));
    n = ids ? llama_tokenize(vocab, text, len, ids, cap, true, false) : -1;
    if (n <= 0) return fail("the prompt gives no tokens");
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t)n + 8;
    cp.n_batch = cp.n_ubatch = (uint32_t)n + 8;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    struct llama_context *context = llama_init_from_model(model, cp);
    if (!context) return fail("no context");
    if (llama_decode(context, llama_batch_get_one(ids, n)) != 0)
        return fail("the evaluation failed");
    const float *logits = llama_get_logits_ith(context, -1);
    int code = logits ? write_out(argv[3], logits, n_vocab, ids, n, argv[1]) : fail("no logits");
    llama_free(context);
    llama_model_free(model);
    free(ids);
    free(text);
    return code;
}
